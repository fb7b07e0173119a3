"""The MPI program of `outcrop agg bench`. The program measures all ways in a fixed order.

    mpirun -n RANKS python -m outcrop.bench.aggregate.job JOB

JOB is a file that contains a Job as JSON. The program writes its figures, as JSON, to the job's `output`. Ways are
measured alternately, so that changes of the machine's load affect all ways equally:

    for each workload:  prepare the file to be read
                        turn 0    write: a b c    durable write: b c a    cold read: c a b    warm read: a b c
                        turn 1    write: b c a    ...

    write   remove the file, sync ─► create ─► │ write, flush if durable │ ─► close ─► read back by another way
    read    drop the cached pages ─► open ─► (warm: read once) ─► │ read │ ─► close, compare
                             measured from barrier to barrier, for the slowest rank

Each write creates a new file. All reads of a workload read one common file. Before the first measurement, each rank
writes and flushes its own part of the common file with plain system calls. Several MPI programs can share one list of
tasks (bench.py). Each program has its own ways. While one program performs a task, the other programs sleep (class
`Baton`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outcrop.aggregate.workloads import Contents, make_kernel
from outcrop.bench.aggregate.way import MAKERS, MpiIo, OutcropWay, Way
from outcrop.bench.memory import PeakMemory, cached_share, drop_from_page_cache
from outcrop.bench.ranks import MpiRanks, all_ranks
from outcrop.errors import CorruptionError, InputError, StorageError

SECONDS_BETWEEN_LOOKS = 0.02
MAX_SECONDS = 900.0
STAMP_OF_READING = 2**32
"""A stamp that is larger than the number of any task."""


@dataclass(frozen=True)
class Mode:
    """A measured operation."""

    name: str
    text: str
    is_write: bool
    is_durable: bool = False
    is_warm: bool = False


MODES = (
    Mode("write", "write", True),
    Mode("write-durable", "write, durable", True, is_durable=True),
    Mode("read-cold", "read, cold", False),
    Mode("read-warm", "read, warm", False, is_warm=True),
)


@dataclass(frozen=True)
class Task:
    """A task is a measurement of one way in one mode. If `mode` is None, the task prepares a workload."""

    number: int
    workload: str
    mode: Mode | None
    way: str
    turn: int


def schedule(workloads: Sequence[str], modes: Sequence[Mode], ways: Sequence[str], turns: int) -> Iterator[Task]:
    """Yield all tasks in their order. The program that measures the first of `ways` prepares each workload."""
    number = 0
    for workload in workloads:
        yield Task(number, workload, None, ways[0], 0)
        number += 1
        for turn in range(turns):
            for place, mode in enumerate(modes):
                first = (turn + place) % len(ways)
                for way in (*ways[first:], *ways[:first]):
                    yield Task(number, workload, mode, way, turn)
                    number += 1


class Baton:
    """Lets the programs take turns. The file of a baton has one byte for each completed task. If there is only one
    program, the path is None and no file is used."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def wait_for(self, number: int) -> None:
        """Wait until all tasks with numbers below `number` are completed. Raises StorageError after MAX_SECONDS."""
        if self._path is None:
            return
        end = time.monotonic() + MAX_SECONDS
        while os.stat(self._path).st_size < number:
            if time.monotonic() > end:
                raise StorageError(f"{self._path}: the other MPI program has not finished its task in {MAX_SECONDS} s")
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def pass_on(self) -> None:
        """Record that a task is completed. Only one rank calls this method."""
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(b".")


@dataclass
class Declared:
    """A way that has declared its variables. `seconds` is the time of this declaration. `memory` and `bytes_by_rank`
    measure the additional memory that each rank needs for the declaration and the first task.
    """

    way: Way
    seconds: float
    memory: PeakMemory
    bytes_by_rank: list[int | None] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        known = [one for one in self.bytes_by_rank if one is not None]
        return {
            "seconds_declare": self.seconds,
            "memory_mean_bytes": round(sum(known) / len(known)) if known else None,
            "memory_max_bytes": max(known, default=None),
            "implementation": self.way.implementation if isinstance(self.way, MpiIo) else None,
            "explained": self.way.plan.explain() if isinstance(self.way, OutcropWay) else None,
        }


class RankBench:
    """The measurements of one workload. All ranks must call each method at the same time."""

    def __init__(self, workload: str, bytes_of_rank: int, folder: Path, ranks: MpiRanks) -> None:
        self.kernel = make_kernel(workload, ranks.size, ranks.rank, bytes_of_rank)
        self._ranks, self._folder = ranks, folder
        self._contents = Contents(self.kernel, ranks.rank)
        self._written, self._to_read = folder / f"{workload}.written", folder / f"{workload}.read"
        self.declared: dict[str, Declared] = {}

    def prepare(self) -> None:
        """Write the file that all ways will read."""
        way = self._way("posix")
        way.create(self._to_read, durable=True)
        way.write(self._contents.stamped(STAMP_OF_READING))
        way.close()
        self._note_memory("posix")
        self._ranks.wait_for_all()

    def measure(self, task: Task, mode: Mode) -> dict[str, Any]:
        """Measure a task. Returns JSON data with the times of the slowest rank. `known` contains the figures that only
        the way can measure. Each figure is the maximum of all ranks. Raises CorruptionError if the bytes that were read
        are wrong.
        """
        measured = self._write(task, mode) if mode.is_write else self._read(task, mode)
        every = self._ranks.of_all(measured["known"])
        known = {name: max(one[name] for one in every) for name in measured["known"]}
        return {"workload": task.workload, "mode": mode.name, "way": task.way, "turn": task.turn, **measured,
                "known": known}  # fmt: skip

    def end(self) -> None:
        """Free all ways, and remove the files of the workload."""
        for one in self.declared.values():
            one.way.end()
        if self._ranks.rank == 0:
            self._written.unlink(missing_ok=True)
            self._to_read.unlink(missing_ok=True)
        self._ranks.wait_for_all()

    def _write(self, task: Task, mode: Mode) -> dict[str, Any]:
        known: dict[str, float] = {}
        self._settle()
        memory = self._contents.stamped(task.number)
        way = self._way(task.way)
        set_up = self._clock(lambda: way.create(self._written, mode.is_durable))
        seconds = self._clock(lambda: known.update(way.write(memory)))
        close = self._clock(way.close)
        self._note_memory(task.way)
        if task.turn == 0:
            reader = self._other_than(task.way)
            other = self._way(reader)
            other.open(self._written)
            other.read(self._contents.emptied())
            other.close()
            self._demand_right(task, mode, reader)
        return {"seconds": seconds, "seconds_set_up": set_up, "seconds_close": close, "cached_before": None,
                "known": known}  # fmt: skip

    def _read(self, task: Task, mode: Mode) -> dict[str, Any]:
        known: dict[str, float] = {}
        self._settle()
        way = self._way(task.way)
        self._contents.stamped(STAMP_OF_READING)
        drop_from_page_cache(self._to_read)
        self._ranks.wait_for_all()
        set_up = self._clock(lambda: way.open(self._to_read))
        if mode.is_warm:
            way.read(self._contents.emptied())
        memory = self._contents.emptied()
        cached = cached_share(self._to_read) if self._ranks.rank == 0 else None
        seconds = self._clock(lambda: known.update(way.read(memory)))
        close = self._clock(way.close)
        self._note_memory(task.way)
        self._demand_right(task, mode, task.way)
        return {"seconds": seconds, "seconds_set_up": set_up, "seconds_close": close, "cached_before": cached,
                "known": known}  # fmt: skip

    def _settle(self) -> None:
        """Wait until the system has written all data of earlier tasks to the storage device."""
        if self._ranks.rank == 0:
            self._written.unlink(missing_ok=True)
            os.sync()
        self._ranks.wait_for_all()

    def _way(self, name: str) -> Way:
        """Return the way with this name. The first call for a name makes the way, and declares its variables."""
        if name not in self.declared:
            memory = PeakMemory()
            made: list[Way] = []
            make = MAKERS[name.partition(":")[0]]
            seconds = self._clock(lambda: made.append(make(self._ranks.communicator, self.kernel, self._folder)))
            self.declared[name] = Declared(made[0], seconds, memory)
        return self.declared[name].way

    def _other_than(self, name: str) -> str:
        """Return the name of another way. This way reads back the file that the way `name` has written. The way `posix`
        reads back the files of all other ways.
        """
        return next((other for other in self.declared if other != name), "outcrop") if name == "posix" else "posix"

    def _note_memory(self, name: str) -> None:
        """Record the memory that the way `name` needs in its first task. Later calls for the same way do nothing."""
        one = self.declared[name]
        if not one.bytes_by_rank:
            one.bytes_by_rank = self._ranks.of_all(one.memory.bytes_more)

    def _demand_right(self, task: Task, mode: Mode, reader: str) -> None:
        wrong = [rank for rank, right in enumerate(self._ranks.of_all(self._contents.is_right)) if not right]
        if wrong:
            raise CorruptionError(
                f"{task.workload}, {mode.text} by {task.way}, turn {task.turn}: rank {wrong[0]} has read bytes "
                f"by {reader} that differ from the bytes written"
            )

    def _clock(self, act: Callable[[], object]) -> float:
        """Call `act` between two barriers. Return the time of the slowest rank, in seconds."""
        self._ranks.wait_for_all()
        begin = time.perf_counter()
        act()
        self._ranks.wait_for_all()
        seconds: list[float] = self._ranks.of_all(time.perf_counter() - begin)
        return max(seconds)


def to_json(bench: RankBench, measured: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "workload": bench.kernel.name,
        "text": bench.kernel.text,
        "file_bytes": bench.kernel.file_bytes,
        "declared": {name: one.to_json() for name, one in bench.declared.items()},
        "measured": measured,
    }


@dataclass(frozen=True)
class Job:
    """The work of an MPI program. `ways` are the ways of all programs that share the schedule, and `own` are the ways
    of this program. The program writes the measured figures to `output`. `baton` is the path of the Baton's file, or ""
    if this is the only program.
    """

    folder: str
    workloads: tuple[str, ...]
    bytes_of_rank: int
    modes: tuple[str, ...]
    ways: tuple[str, ...]
    own: tuple[str, ...]
    turns: int
    output: str = ""
    baton: str = ""

    def tasks(self) -> Iterable[Task]:
        """Return all tasks in their order. The list includes the tasks of other programs."""
        modes = [mode for mode in MODES if mode.name in self.modes]
        return schedule(self.workloads, modes, self.ways, self.turns)


def measure(job: Job, ranks: MpiRanks) -> dict[str, Any]:
    """Perform all tasks of a job. Returns JSON data, which are the same on all ranks."""
    baton = Baton(Path(job.baton) if job.baton else None)
    benches: dict[str, RankBench] = {}
    found: dict[str, list[dict[str, Any]]] = {workload: [] for workload in job.workloads}
    last = {task.workload: task.number for task in job.tasks()}
    for task in job.tasks():
        if task.way in job.own:
            baton.wait_for(task.number)
            if task.workload not in benches:
                benches[task.workload] = RankBench(task.workload, job.bytes_of_rank, Path(job.folder), ranks)
            bench = benches[task.workload]
            if task.mode is None:
                bench.prepare()
            else:
                found[task.workload].append(bench.measure(task, task.mode))
            ranks.wait_for_all()
            if ranks.rank == 0:
                baton.pass_on()
        if task.number == last[task.workload]:
            baton.wait_for(task.number + 1)
            benches[task.workload].end()
    return {
        "library": ranks.library,
        "own": list(job.own),
        "ranks": ranks.size,
        "nodes": list(dict.fromkeys(ranks.of_all(ranks.node))),
        "workloads": [to_json(benches[workload], found[workload]) for workload in job.workloads],
    }


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    job = Job(**fields)
    with all_ranks() as ranks:
        if not isinstance(ranks, MpiRanks):
            raise InputError("this program needs MPI: start it with mpirun")
        figures = measure(job, ranks)
        if ranks.rank == 0:
            Path(job.output).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
