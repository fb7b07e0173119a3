"""What one rank does in `outcrop agg bench`: all ways of one workload, one measurement at a time.

    write   no file, all on the device ─► create ─► │ write, flush if durable │ ─► close ─► read back another way
    read    its pages dropped ─► open ─► (warm: read once) ─► │ read │ ─► close, compare
                             on the clock, from barrier to barrier, of the slowest rank

Every write makes a new file. Reads are of one file for all ways, written by each rank's own calls and flushed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from outcrop.bench import page_cache
from outcrop.bench.aggregate.kernel import Contents, make_kernel
from outcrop.bench.aggregate.schedule import Task
from outcrop.bench.aggregate.way import MAKERS, MpiIo, Outcrop, Way
from outcrop.bench.peak_memory import PeakMemory
from outcrop.bench.ranks import MpiRanks
from outcrop.errors import CorruptionError

STAMP_OF_READING = 2**32
"""Beyond the numbers of tasks."""


@dataclass(frozen=True)
class Measured:
    """One task, of all ranks: seconds of the slowest. `known` is what the way knows of its own time, of the slowest."""

    workload: str
    mode: str
    way: str
    turn: int
    seconds: float
    seconds_set_up: float
    seconds_close: float
    cached_before: float | None
    known: dict[str, float]


@dataclass
class Declared:
    """A way that is in use, and what it took to have it. Bytes are of the first task, above what there was before."""

    way: Way
    seconds: float
    memory: PeakMemory
    bytes_by_rank: list[int | None] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        known = [one for one in self.bytes_by_rank if one is not None]
        return {
            "seconds_declare": self.seconds,
            "memory_mean_bytes": round(sum(known) / len(known)) if known else None,
            "memory_max_bytes": max(known, default=None),
            "implementation": self.way.implementation if isinstance(self.way, MpiIo) else None,
            "explained": self.way.plan.explain() if isinstance(self.way, Outcrop) else None,
        }


class RankBench:
    """One workload. All functions are collective."""

    def __init__(self, workload: str, bytes_of_rank: int, folder: Path, ranks: MpiRanks) -> None:
        self.kernel = make_kernel(workload, ranks.size, ranks.rank, bytes_of_rank)
        self._ranks, self._folder = ranks, folder
        self._contents = Contents(self.kernel, ranks.rank)
        self._written, self._to_read = folder / f"{workload}.written", folder / f"{workload}.read"
        self.declared: dict[str, Declared] = {}

    def prepare(self) -> None:
        """The file that all ways read."""
        way = self._way("posix")
        way.create(self._to_read, durable=True)
        way.write(self._contents.stamped(STAMP_OF_READING))
        way.close()
        self._note_memory("posix")
        self._ranks.wait_for_all()

    def measure(self, task: Task) -> Measured:
        """Raises CorruptionError where bytes are not what they should be."""
        assert task.mode is not None
        return self._write(task) if task.mode.is_write else self._read(task)

    def end(self) -> None:
        """Give back what was declared, remove the files."""
        for one in self.declared.values():
            one.way.end()
        if self._ranks.rank == 0:
            self._written.unlink(missing_ok=True)
            self._to_read.unlink(missing_ok=True)
        self._ranks.wait_for_all()

    def _write(self, task: Task) -> Measured:
        assert task.mode is not None
        durable, known = task.mode.is_durable, {}
        self._settle()
        memory = self._contents.stamped(task.number)
        way = self._way(task.way)
        set_up = self._clock(lambda: way.create(self._written, durable))
        seconds = self._clock(lambda: known.update(way.write(memory)))
        close = self._clock(way.close)
        self._note_memory(task.way)
        if task.turn == 0:
            self._check(task, self._other_than(task.way), self._written)
        return self._measured(task, seconds, set_up, close, None, known)

    def _read(self, task: Task) -> Measured:
        assert task.mode is not None
        known: dict[str, float] = {}
        self._settle()
        way = self._way(task.way)
        self._contents.stamped(STAMP_OF_READING)
        page_cache.drop(self._to_read)
        self._ranks.wait_for_all()
        set_up = self._clock(lambda: way.open(self._to_read))
        if task.mode.is_warm:
            way.read(self._contents.emptied())
        memory = self._contents.emptied()
        cached = page_cache.cached_share(self._to_read) if self._ranks.rank == 0 else None
        seconds = self._clock(lambda: known.update(way.read(memory)))
        close = self._clock(way.close)
        self._note_memory(task.way)
        self._demand_right(task, task.way)
        return self._measured(task, seconds, set_up, close, cached, known)

    def _settle(self) -> None:
        """Nothing of an earlier task is on its way to the device any more."""
        if self._ranks.rank == 0:
            self._written.unlink(missing_ok=True)
            os.sync()
        self._ranks.wait_for_all()

    def _way(self, name: str) -> Way:
        """Made when it is first used."""
        if name not in self.declared:
            memory = PeakMemory()
            made: list[Way] = []
            make = MAKERS[name.partition(":")[0]]
            seconds = self._clock(lambda: made.append(make(self._ranks.communicator, self.kernel, self._folder)))
            self.declared[name] = Declared(made[0], seconds, memory)
        return self.declared[name].way

    def _other_than(self, name: str) -> str:
        """What reads back what that way has written."""
        return next((other for other in self.declared if other != name), "outcrop") if name == "posix" else "posix"

    def _check(self, task: Task, reader: str, path: Path) -> None:
        way = self._way(reader)
        way.open(path)
        way.read(self._contents.emptied())
        way.close()
        self._demand_right(task, reader)

    def _note_memory(self, name: str) -> None:
        """Of the first task of a way."""
        one = self.declared[name]
        if not one.bytes_by_rank:
            one.bytes_by_rank = self._ranks.of_all(one.memory.bytes_more)

    def _demand_right(self, task: Task, reader: str) -> None:
        wrong = [rank for rank, right in enumerate(self._ranks.of_all(self._contents.is_right)) if not right]
        if wrong:
            assert task.mode is not None
            raise CorruptionError(
                f"{task.workload}, {task.mode.text} by {task.way}, turn {task.turn}: rank {wrong[0]} has read other "
                f"bytes, by {reader}, than were written"
            )

    def _clock(self, act: Callable[[], object]) -> float:
        """Seconds from barrier to barrier, of the slowest rank."""
        self._ranks.wait_for_all()
        begin = time.perf_counter()
        act()
        self._ranks.wait_for_all()
        seconds: list[float] = self._ranks.of_all(time.perf_counter() - begin)
        return max(seconds)

    def _measured(
        self, task: Task, seconds: float, set_up: float, close: float, cached: float | None, known: dict[str, float]
    ) -> Measured:
        assert task.mode is not None
        every = self._ranks.of_all(known)
        most = {name: max(one[name] for one in every) for name in known}
        return Measured(task.workload, task.mode.name, task.way, task.turn, seconds, set_up, close, cached, most)


def to_json(bench: RankBench, measured: list[Measured]) -> dict[str, Any]:
    """Of one workload, as plain data."""
    return {
        "workload": bench.kernel.name,
        "text": bench.kernel.text,
        "file_bytes": bench.kernel.file_bytes,
        "declared": {name: one.to_json() for name, one in bench.declared.items()},
        "measured": [asdict(one) for one in measured],
    }
