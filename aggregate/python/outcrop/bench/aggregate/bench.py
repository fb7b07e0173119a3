"""`outcrop agg bench`: many ranks write and read one file with Outcrop, MPI-IO and plain system calls.

    mpirun -n 8 outcrop agg bench -d SCRATCH
    outcrop agg bench -d SCRATCH --ranks 4,8,16

The first command uses mpirun to start 8 ranks, which then perform the measurement. The second command starts mpirun by
itself, once for each number of ranks.

outcrop/aggregate/workloads.py contains the I/O kernels. An I/O kernel has the variables of a known program. way.py
contains the ways to write and read the file. job.py determines the order of the measurements. Open MPI chooses its
implementation of MPI-IO when a program starts, so each implementation needs its own program:

Open MPI   mpirun --mca io ompio       outcrop, mpi-io:ompio, posix   ─┐ alternating, task by task
           mpirun --mca io romio321    mpi-io:romio321                ─┘
others     mpirun                      outcrop, mpi-io, posix
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.aggregate.workloads import KERNELS, make_kernel
from outcrop.bench.aggregate.figures import NOTES, draw, head, of_programs, remarks, summary, table
from outcrop.bench.aggregate.job import MODES, Job, measure
from outcrop.bench.aggregate.way import WAYS
from outcrop.bench.figures import describe_machine
from outcrop.bench.ranks import LAUNCHERS, MpiRanks, all_ranks
from outcrop.errors import InputError, StorageError
from outcrop.paths import made_directory, require_directory
from outcrop.tiers import discover
from outcrop.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from outcrop.aggregate.mpi_library import Launcher

RANKS = (4, 8, 16)
MAX_RANKS = 4096
COPIES_IN_MEMORY = 4
"""The number of copies of a rank's data in memory: the original, the bytes to write, the bytes read, and the buffers of
a way.
"""
COPIES_ON_DISK = 2
SECONDS_BETWEEN_CHECKS = 0.1
SECONDS_TO_END = 10.0
REMEDY = "give a smaller --size"
DURABLE = ("both", "yes", "no")
WORKLOADS = {
    **{name: (name,) for name in KERNELS},
    "hacc": tuple(name for name in KERNELS if name.startswith("hacc")),
    "all": tuple(KERNELS),
}
"""The I/O kernels of each workload."""


@dataclass(frozen=True)
class BenchRequest:
    """The options of the benchmark. Raises InputError for invalid values."""

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
        unknown = [way for way in self._chosen_ways() if way not in WAYS]
        if unknown:
            raise InputError(f"--ways {self.ways}: {unknown[0]!r} is unknown; there are {', '.join(WAYS)}")

    def _chosen_ways(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(way.strip() for way in self.ways.split(",")))

    def job(self) -> Job:
        """Return the job for `ranks` ranks. The job has no folder yet."""
        left_out = {"yes": "write", "no": "write-durable"}.get(self.durable)
        return Job(
            folder="",
            workloads=WORKLOADS[self.workload],
            bytes_of_rank=parse_bytes(self.size),
            modes=tuple(mode.name for mode in MODES if mode.name != left_out),
            ways=self._chosen_ways(),
            own=self._chosen_ways(),
            turns=self.turns,
        )


def bench(request: BenchRequest, ranks: str | None = None, png: Path | None = None) -> dict[str, Any]:
    """Measure all ways, and print the figures. Returns the figures as JSON data on the first rank, and {} on all other
    ranks.

    If mpirun has started this process, `ranks` must be None. Otherwise `ranks` has numbers of ranks, separated by
    commas, or is None for the default. Raises InputError for invalid options. Raises StorageError if the device is full
    or if an MPI program fails. Raises CorruptionError if the bytes that were read differ from the written bytes.
    """
    job = request.job()
    if any(name in os.environ for name in LAUNCHERS):
        if ranks is not None:
            raise InputError(f"--ranks {ranks}: mpirun has already started the ranks; leave out --ranks")
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
    """Return the numbers of ranks in a text such as "4,8,16". If the text is None, return the default. Raises
    InputError."""
    if text is None:
        return RANKS
    counts = tuple(int(one) if one.isdecimal() else 0 for one in text.split(","))
    if not all(1 <= one <= MAX_RANKS for one in counts):
        raise InputError(f"--ranks {text}: write numbers from 1 to {MAX_RANKS}, separated by commas, such as 4,8,16")
    return counts


def check_room(directory: Path, job: Job, ranks: int, on_node: int) -> None:
    """Raise InputError if the directory has too little space for the files, or if the memory is too small for the
    arrays."""
    largest = max(make_kernel(name, ranks, 0, job.bytes_of_rank).file_bytes for name in job.workloads)
    free = discover.free_disk_bytes(directory)
    if COPIES_ON_DISK * largest > free:
        wanted = format_bytes(COPIES_ON_DISK * largest)
        raise InputError(f"{ranks} ranks need {wanted} in {directory}, which has {format_bytes(free)} free: {REMEDY}")
    needed, there = COPIES_IN_MEMORY * job.bytes_of_rank * on_node, discover.memory_bytes()
    if needed > there:
        has = f"which has {format_bytes(there)}"
        raise InputError(f"{on_node} ranks need {format_bytes(needed)} of memory on a node, {has}: {REMEDY}")


def _on_these_ranks(directory: Path, job: Job) -> list[dict[str, Any]]:
    with all_ranks() as ranks:
        if not isinstance(ranks, MpiRanks):
            raise InputError("mpirun has not started this process")
        check_room(directory, job, ranks.size, ranks.on_node)
        with _folder(directory, ranks) as folder:
            figures = measure(replace(job, folder=folder), ranks)
        found = of_programs([figures])
        if ranks.rank == 0:
            _say(found)
        return found if ranks.rank == 0 else []


def _by_mpirun(directory: Path, job: Job, counts: Sequence[int]) -> list[dict[str, Any]]:
    from outcrop.aggregate.mpi_library import find_launcher

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
    """Make a folder, and yield its path on all ranks. At the end, the folder is removed."""
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


@dataclass(frozen=True)
class Program:
    """The ways that one MPI program measures, and the options of mpirun for this program."""

    ways: tuple[str, ...]
    options: tuple[str, ...] = ()


def programs_for(ways: Sequence[str], mpi_io: Sequence[str]) -> list[Program]:
    """Return the programs that measure the ways `ways`. `mpi_io` lists the implementations of MPI-IO that can be
    chosen. `mpi_io` is empty if no implementation can be chosen.
    """
    if "mpi-io" not in ways or not mpi_io:
        return [Program(tuple(ways))]
    first, *others = mpi_io
    own = tuple(f"mpi-io:{first}" if way == "mpi-io" else way for way in ways)
    return [
        Program(own, ("--mca", "io", first)),
        *(Program((f"mpi-io:{name}",), ("--mca", "io", name)) for name in others),
    ]


def run_programs(launcher: Launcher, ranks: int, programs: Sequence[Program], job: Job) -> list[dict[str, Any]]:
    """Run the programs on `ranks` ranks, and return the figures of the programs. Raises StorageError if a program
    fails."""
    ways = tuple(way for program in programs for way in program.ways)
    with tempfile.TemporaryDirectory(prefix="turns-", dir=job.folder) as folder:
        baton = Path(folder) / "baton"
        baton.touch()
        running, outputs = [], []
        try:
            for number, program in enumerate(programs):
                outputs.append(Path(folder) / f"{number}.json")
                asked = Path(folder) / f"{number}.job"
                shared = str(baton) if len(programs) > 1 else ""
                part = replace(job, ways=ways, own=program.ways, output=str(outputs[-1]), baton=shared)
                asked.write_text(json.dumps(asdict(part)))
                starts = launcher.command(ranks, *program.options)
                command = [*starts, sys.executable, "-m", "outcrop.bench.aggregate.job", str(asked)]
                said = (Path(folder) / f"{number}.said").open("w+")
                # More threads of NumPy's libraries would need memory, but would not make the benchmark faster.
                environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
                process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
                running.append((process, said))
            _wait(running)
        finally:
            for process, said in running:
                _end(process)
                said.close()
        return [json.loads(output.read_text()) for output in outputs]


def _wait(running: Sequence[tuple[subprocess.Popen[bytes], Any]]) -> None:
    """Wait until all programs have ended. Raises StorageError as soon as one program has failed. After a failure, the
    other programs can wait forever. Therefore the caller must end them.
    """
    while any(process.poll() is None for process, _ in running):
        if any(process.returncode for process, _ in running):
            break
        time.sleep(SECONDS_BETWEEN_CHECKS)
    for process, said in running:
        if process.returncode:
            said.seek(0)
            lines = [line.strip() for line in said.read().splitlines() if line.strip()]
            own = [line for line in lines if line.startswith("outcrop: ")]
            text = own[0].removeprefix("outcrop: ") if own else (lines or ["it printed nothing"])[-1]
            raise StorageError(f"an MPI program has failed ({process.returncode}): {text}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to mpirun. mpirun then ends its ranks and itself. If mpirun does not end in time, kill it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
