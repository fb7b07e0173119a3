"""`outcrop agg bench`: writing and reading one file by many ranks, beside the MPI's own MPI-IO and plain system calls.

    mpirun -n 8 outcrop agg bench -d SCRATCH            on these ranks
    outcrop agg bench -d SCRATCH --ranks 4,8,16         by mpirun of mpi4py's MPI, once for each number

Kernels: kernel.py; ways: way.py; what is on the clock: rank.py; who takes
turns with whom: schedule.py.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outcrop.bench.aggregate.figures import of_programs
from outcrop.bench.aggregate.job import Job, measure
from outcrop.bench.aggregate.kernel import KERNELS, make_kernel
from outcrop.bench.aggregate.picture import draw
from outcrop.bench.aggregate.programs import programs_for, run_programs
from outcrop.bench.aggregate.schedule import MODES
from outcrop.bench.aggregate.table import NOTES, head, remarks, summary, table
from outcrop.bench.aggregate.way import WAYS
from outcrop.bench.core import describe_machine
from outcrop.bench.ranks import LAUNCHERS, MpiRanks, all_ranks
from outcrop.errors import InputError
from outcrop.paths import made_directory, require_directory
from outcrop.tiers import discover
from outcrop.units import format_bytes, parse_bytes

RANKS = (4, 8, 16)
RANKS_MOST = 4096
COPIES_IN_MEMORY = 4
"""Of a rank's data: as it was made, as it is written, as it is read, and in the buffers of one way."""
COPIES_ON_DISK = 2
REMEDY = "give a smaller --size"
DURABLE = ("both", "yes", "no")
WORKLOADS = {
    **{name: (name,) for name in KERNELS},
    "hacc": tuple(name for name in KERNELS if name.startswith("hacc")),
    "all": tuple(KERNELS),
}
"""Kernels by name, one or several."""


@dataclass(frozen=True)
class Request:
    """What is to be measured. Raises InputError for what cannot be."""

    directory: Path
    workload: str = "all"
    size: str = "16MiB"
    turns: int = 5
    ways: str = ",".join(WAYS)
    durable: str = "both"

    def __post_init__(self) -> None:
        require_directory(self.directory)
        if self.workload not in WORKLOADS:
            raise InputError(f"--workload {self.workload} is unknown; there are {', '.join(WORKLOADS)}")
        if self.turns < 1:
            raise InputError(f"--turns {self.turns}: there must be at least 1")
        if self.durable not in DURABLE:
            raise InputError(f"--durable {self.durable} must be one of {', '.join(DURABLE)}")
        unknown = [way for way in self.ways.split(",") if way not in WAYS]
        if unknown:
            raise InputError(f"--ways {self.ways}: {unknown[0]!r} is unknown; there are {', '.join(WAYS)}")

    def job(self) -> Job:
        """For the ranks."""
        left_out = {"yes": "write", "no": "write-durable"}.get(self.durable)
        return Job(
            folder="",
            workloads=WORKLOADS[self.workload],
            bytes_of_rank=parse_bytes(self.size),
            modes=tuple(mode.name for mode in MODES if mode.name != left_out),
            ways=tuple(dict.fromkeys(self.ways.split(","))),
            own=tuple(dict.fromkeys(self.ways.split(","))),
            turns=self.turns,
        )


def bench(request: Request, ranks: str | None = None, png: Path | None = None) -> dict[str, Any]:
    """Measure and print; the figures as plain data, on the first rank: none on others.

    `ranks` are the numbers of them, with commas between; for a process that mpirun has not started. Raises InputError,
    StorageError when there is no room or a program of MPI fails, CorruptionError when other bytes are read than were
    written.
    """
    job = request.job()
    if any(name in os.environ for name in LAUNCHERS):
        if ranks is not None:
            raise InputError(f"--ranks {ranks}: mpirun has started this already, its ranks are those that there are")
        found = _on_these_ranks(request.directory, job)
    else:
        found = _by_mpirun(request.directory, job, ranks_of(ranks))
    if not found:
        return {}
    print("\n".join([*NOTES, summary(found)]))
    if png is not None:
        draw(found, png)
    return {
        "benchmark": "aggregate",
        "machine": describe_machine(request.directory, len(os.sched_getaffinity(0))),
        "turns": request.turns,
        "notes": list(NOTES),
        "runs": found,
    }


def ranks_of(text: str | None) -> tuple[int, ...]:
    """Of "4,8,16". Raises InputError."""
    if text is None:
        return RANKS
    counts = tuple(int(one) if one.isdecimal() else 0 for one in text.split(","))
    if not all(1 <= one <= RANKS_MOST for one in counts):
        raise InputError(f"--ranks {text}: write numbers from 1 to {RANKS_MOST} with commas between, such as 4,8,16")
    return counts


def check_room(directory: Path, job: Job, ranks: int, on_node: int) -> None:
    """Raise InputError when files or arrays do not fit."""
    most = max(make_kernel(name, ranks, 0, job.bytes_of_rank).file_bytes for name in job.workloads)
    free = discover.free_disk_bytes(directory)
    if COPIES_ON_DISK * most > free:
        wanted = format_bytes(COPIES_ON_DISK * most)
        raise InputError(f"{ranks} ranks need {wanted} in {directory}, which has {format_bytes(free)}: {REMEDY}")
    needed, there = COPIES_IN_MEMORY * job.bytes_of_rank * on_node, discover.memory_bytes()
    if needed > there:
        has = f"it has {format_bytes(there)}"
        raise InputError(f"{on_node} ranks on a node need {format_bytes(needed)} of memory, {has}: {REMEDY}")


def _on_these_ranks(directory: Path, job: Job) -> list[dict[str, Any]]:
    with all_ranks() as ranks:
        if not isinstance(ranks, MpiRanks):
            raise InputError("this process is not one of mpirun's")
        check_room(directory, job, ranks.size, ranks.on_node)
        with _folder(directory, ranks) as folder:
            figures = measure(replace(job, folder=folder), ranks)
        found = of_programs([figures])
        if ranks.rank == 0:
            _say(found)
        return found if ranks.rank == 0 else []


def _by_mpirun(directory: Path, job: Job, counts: Sequence[int]) -> list[dict[str, Any]]:
    from outcrop.aggregate.mpi_launcher import find_launcher

    for count in counts:
        check_room(directory, job, count, count)
    launcher = find_launcher()
    programs = programs_for(job.ways, launcher.mpi_io())
    every = []
    with made_directory(directory):
        for count in counts:
            with tempfile.TemporaryDirectory(prefix="outcrop-bench-", dir=directory) as folder:
                found = of_programs(run_programs(launcher, count, programs, replace(job, folder=folder)))
            _say(found)
            every += found
    return every


@contextmanager
def _folder(directory: Path, ranks: MpiRanks) -> Iterator[str]:
    """One for all ranks, removed at the end."""
    with made_directory(directory) if ranks.rank == 0 else nullcontext():
        made = tempfile.mkdtemp(prefix="outcrop-bench-", dir=directory) if ranks.rank == 0 else ""
        folder = str(ranks.of_all(made)[0])
        try:
            yield folder
        finally:
            if ranks.rank == 0:
                shutil.rmtree(folder, ignore_errors=True)


def _say(found: Sequence[dict[str, Any]]) -> None:
    for figures in found:
        print("\n".join([*head(figures), "", *table(figures), *remarks(figures), ""]), flush=True)
