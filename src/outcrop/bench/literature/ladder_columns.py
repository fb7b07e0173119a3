"""This module has the columns of the ladder, the scale of the ladder, and the measurement of one column.

The columns are the eleven columns of Figure 4 of Midorikawa and Tan, and one column of our own.

    `layers = 1`   Both arrays are in plain memory or in a mapped file, and are updated in place (one_layer.py).
    `layers = 2`   The engine copies blocks, or a window, between the arrays and a separate memory.

Each measurement is a separate process, so that its memory can be measured and limited separately:

    python -m outcrop.bench.literature.ladder_columns JOB     # JOB is JSON, and so is the printed ColumnRun

The process of a measurement also makes the initial values. So the pages of the initial values in the page cache count
as memory of this process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.bench.literature import one_layer
from outcrop.bench.literature.one_layer import ArrayMemory, OneLayerRun
from outcrop.bench.memory import run_limited
from outcrop.bench.rates import OVERHEAD_BYTES, smooth_planes
from outcrop.errors import InputError
from outcrop.plan.memory import Window
from outcrop.plan.plan import Plan
from outcrop.plan.schemes.literature import blocked
from outcrop.run.acquisition.recorder import Recorder
from outcrop.run.disk.layout import make_layout
from outcrop.run.disk.planes import DeviceRange, Planes, ShardFile
from outcrop.run.engine import Engine
from outcrop.run.passes import PassRunner
from outcrop.run.places import open_state
from outcrop.run.progress import make_progress
from outcrop.run.report import peak_memory_bytes
from outcrop.run.simulation import Simulation
from outcrop.tiers import discover
from outcrop.units import format_bytes, parse_bytes

STENCIL, DTYPE, FIELD = "heat7", "float32", "u"
NAIVE_STEPS = 2
"""The number of steps of plain sweeps out of core. Each step moves both arrays through swap, so all steps take about
the same time."""
PAGED_SHARE = 0.5
"""The share of the budget that blocks get if the system moves pages. The rest of the budget is for pages in transfer.
Measured runs with larger shares were slower. In columns with one layer, runs with larger shares took three times as
long, because the system moved pages out before their last use."""


@dataclass(frozen=True)
class Column:
    """A column of the ladder: one program to compare.

    `scheme` is the name of the scheme of the plan. The program of a column with one layer copies no planes, so it uses
    only the blocks of the scheme. The scheme "naive" means plain sweeps. `through` is the mechanism that moves planes
    between memory and flash. If `padded` is true, rows and planes are padded so that they do not compete for the same
    cache sets.
    """

    number: int
    name: str
    scheme: str
    through: Literal["swap", "mmap", "aio"]
    layers: Literal[1, 2]
    padded: bool = False

    @property
    def locks_memory(self) -> bool:
        """True if the blocks of this column are locked in memory. The system may still swap out the arrays from which
        blocks are copied."""
        return self.through == "swap" and self.layers == 2

    @property
    def needs_limit(self) -> bool:
        """True if only the operating system can limit the memory of this column. In columns with aio, the plan limits
        the memory."""
        return self.through != "aio"


COLUMNS = (
    Column(1, "noTB swap", "naive", "swap", 1),
    Column(2, "AL-R swap", "overlapped", "swap", 2),
    Column(3, "AL-R mmap", "overlapped", "mmap", 2),
    Column(4, "AL-R aio", "overlapped", "aio", 2),
    Column(5, "mmap1", "skewed-full", "mmap", 1),
    Column(6, "mmap1+opt", "skewed-full", "mmap", 1, padded=True),
    Column(7, "mmap2", "skewed-full", "mmap", 2),
    Column(8, "mmap3y", "skewed-3y", "mmap", 2),
    Column(9, "mmap5y", "skewed-5y", "mmap", 2),
    Column(10, "aio3y", "skewed-3y", "aio", 2),
    Column(11, "aio5y", "skewed-5y", "aio", 2),
    Column(12, "wavefront", "wavefront", "aio", 2),
)


def find_column(number: int) -> Column:
    return next(column for column in COLUMNS if column.number == number)


# --- scale -----------------------------------------------------------------------------------------------------------

IN_CORE_SHARE = 2.0
"""The memory for columns in core, as a multiple of the size of both arrays. In the paper, arrays of 64 GiB have 128 GiB
of memory."""
USUAL_BUDGET = "50%"
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015)
"""The amounts of memory in the diagram of the relative speed (Figure 10), as fractions of the size of both arrays."""
SWAP_SPARE_BYTES = 256 << 20
MIN_PLANES = 64


@dataclass(frozen=True)
class LadderScale:
    """The scale of the benchmark: the grid (nz, ny, nx), and the limits of the measurements.

    Each bar is measured up to `max_repeats` times. A bar is measured again only if its last measurement took less than
    `repeat_below_seconds`. No measurement is repeated after `seconds_in_all` seconds. A measurement that takes longer
    than `max_seconds` is stopped.
    """

    shape: tuple[int, int, int]
    steps: int
    shares: tuple[float, ...]
    max_repeats: int
    repeat_below_seconds: float
    seconds_in_all: float
    max_seconds: float

    @property
    def both_bytes(self) -> int:
        """The number of bytes of all cells of both arrays, without padding. The paper also counts memory without
        padding."""
        nz, ny, nx = self.shape
        return 2 * 4 * nz * ny * nx

    @property
    def window_bytes(self) -> int:
        """The size in bytes of a window that holds both arrays."""
        layout = make_layout(self.shape, DTYPE)
        return Window((self.shape[0], self.shape[0], 0), layout.record_bytes).bytes

    @property
    def in_core_bytes(self) -> int:
        return int(IN_CORE_SHARE * self.both_bytes)

    @property
    def swap_bytes(self) -> int:
        return self.both_bytes + SWAP_SPARE_BYTES


FULL = LadderScale((512, 512, 512), 128, SHARES, 3, 15, 720, 240)
SMALL = LadderScale((96, 64, 64), 6, (0.25,), 1, 0, 0, 60)


def scaled(
    scale: LadderScale, size: tuple[int, int, int] | None, steps: int | None, directory: Path, swap: bool
) -> LadderScale:
    """Return `scale` with the user's `steps` and `size` (nx, ny, nz). If `size` is not given, the number of planes is
    halved until the grid fits on this machine. If `swap` is true, the machine must have room for the grid and for a
    swap file. Raises InputError if the grid does not fit."""
    scale = replace(scale, steps=steps or scale.steps)
    if size is not None:
        if min(size) < 1:
            raise InputError(f"-n {size[0]} {size[1]} {size[2]}: all three sizes must be at least 1")
        scale = replace(scale, shape=(size[2], size[1], size[0]))
    while size is None and _missing(scale, directory, swap) and scale.shape[0] > MIN_PLANES:
        scale = replace(scale, shape=(scale.shape[0] // 2, *scale.shape[1:]))
    if missing := _missing(scale, directory, swap):
        raise InputError(f"bench ladder {missing}; give a smaller grid with -n NX NY NZ")
    return scale


def _missing(scale: LadderScale, directory: Path, swap: bool) -> str:
    """Return a text about the memory or disk space that this machine lacks. Return "" if the machine has enough memory
    and disk space."""
    needed = scale.in_core_bytes + OVERHEAD_BYTES
    if needed > discover.memory_bytes():
        return f"needs {format_bytes(needed)} of memory for what it measures in core"
    needed = 2 * scale.both_bytes + (scale.swap_bytes if swap else 0)
    if needed > discover.free_disk_bytes(directory):
        return f"needs {format_bytes(needed)} of disk in {directory}"
    return ""


def budget_of(memory: str | None, scale: LadderScale) -> int:
    """Return the number of bytes of memory for the columns whose runs are out of core. Raises InputError if `memory` is
    not a size, or if both arrays fit into this memory."""
    budget_bytes = parse_bytes(memory or USUAL_BUDGET, scale.both_bytes)
    if budget_bytes >= scale.both_bytes:
        raise InputError(f"--memory {memory} is not out of core: both arrays have {format_bytes(scale.both_bytes)}")
    return budget_bytes


# --- one measurement -------------------------------------------------------------------------------------------------

COMPONENTS = ("update", "read_wait", "write_wait", "copy", "checksum", "commit")
"""The components of the time of the thread that executes a plan. With one layer, the time of updates includes the waits
for pages."""
CHUNK_PLANES = 16
"""The number of planes that are filled with initial values, or added to the digest, at a time."""


@dataclass(frozen=True)
class ColumnJob:
    """A job for the program of column `number`: advance a grid of `shape` (nz, ny, nx) by `steps` steps.

    A block has at most `window_bytes` bytes. `directory` is an empty folder for files.
    """

    number: int
    shape: tuple[int, int, int]
    steps: int
    window_bytes: int
    directory: str = ""


@dataclass(frozen=True)
class ColumnRun:
    """The result of a job: the wall-clock `seconds` of `steps` steps, and the seconds of each component that COMPONENTS
    lists.

    `block` is (bx, by, bz) in cells, `levels` is bt, and `passes` is the number of passes over all blocks. `bytes_read`
    and `bytes_written` are 0 for columns of one layer. `predicted_*` are the values of the plan. The operating system
    counts `device_bytes_*` of this process and `swapped_*_bytes` of the whole machine. `memory_peak_bytes` is the peak
    memory of this process, including mapped pages. `digest` is a checksum of the final grid.
    """

    steps: int
    seconds: float
    seconds_components: dict[str, float]
    cells_updated: int
    io: str
    block: tuple[int, int, int]
    levels: int
    passes: int
    window_bytes: int
    bytes_read: int
    bytes_written: int
    predicted_seconds: float
    predicted_bytes_read: int
    predicted_bytes_written: int
    device_bytes_read: int
    device_bytes_written: int
    swapped_in_bytes: int
    swapped_out_bytes: int
    memory_peak_bytes: int
    digest: int


@dataclass(frozen=True)
class LimitedRun:
    """A measurement, and its memory limit. `limit_bytes` is None if no control group could be made. `group_peak_bytes`
    is the peak memory of the group, including its page cache, or None if the system does not count this memory."""

    measured: ColumnRun
    limit_bytes: int | None
    group_peak_bytes: int | None


def run_job(job: ColumnJob, directory: Path, limit_bytes: int, may_swap: bool, max_seconds: float) -> LimitedRun:
    """Run `job` in a separate process, with a new folder in `directory`. Raises StorageError as `run_limited` does."""
    with tempfile.TemporaryDirectory(prefix="outcrop-ladder-", dir=directory) as folder:
        text = json.dumps(asdict(replace(job, directory=folder)))
        arguments = ["-m", "outcrop.bench.literature.ladder_columns", text]
        output = run_limited(arguments, limit_bytes, may_swap, max_seconds)
    measured = ColumnRun(**json.loads(output.text))
    return LimitedRun(measured, limit_bytes if output.is_limited else None, output.peak_bytes)


def measure(job: ColumnJob) -> ColumnRun:
    """Make the initial values, run the job, and compute the digest of the final grid."""
    column = find_column(job.number)
    if column.layers == 1:
        return _one_layer(job, column)
    return _swapped(job, column) if column.locks_memory else _stored(job, column)


def _stored(job: ColumnJob, column: Column) -> ColumnRun:
    """Run a program with two layers. The arrays of the program are in files, as in `outcrop run`."""
    prepared, io = _simulation(job, column).plan(job.steps), "mmap" if column.through == "mmap" else "auto"
    simulation = _simulation(job, column, io)
    simulation[FIELD] = lambda z0, z1: smooth_planes(z0, z1, job.shape)
    state = open_state(simulation.directory)
    arrays = state.files(0), state.files(1), state.static_files()
    with state.locked(), Engine(prepared, *arrays, state.layout, io, scratch=state.scratch) as engine:
        recorder = Recorder(state, [FIELD])
        runner, before = PassRunner(engine, state, prepared.plan, recorder), _moved_bytes()
        runner.run(make_progress("none", len(prepared.plan.passes), 0, job.steps, 1))
        moved = _moved_since(before)
        counters = asdict(engine.sample())
        counters["seconds_commit"] += runner.seconds_commit
        used = engine.io
    return _result(job, prepared.plan, runner.seconds, counters, used, moved, state.planes_of(FIELD, io).read)


def _swapped(job: ColumnJob, column: Column) -> ColumnRun:
    """Run a program with two layers. The system may swap out the arrays of the program, but the blocks are locked in
    memory."""
    prepared = _simulation(job, column).plan(job.steps)
    layout = make_layout(job.shape, DTYPE)
    array = [DeviceRange("array in memory", 0, layout.array_bytes)]
    with Engine(prepared, [array], [array], [], layout, "memory", scratch=_memory_scratch, lock=True) as engine:
        arrays = [Planes(engine.store, layout, first_file=number) for number in (0, 1)]
        arrays[0].fill(lambda z0, z1: smooth_planes(z0, z1, job.shape))
        before, start = _moved_bytes(), time.perf_counter()
        for index in range(len(prepared.plan.passes)):
            engine.run_pass(index, index % 2)
        seconds, moved = time.perf_counter() - start, _moved_since(before)
        final = arrays[len(prepared.plan.passes) % 2].read
        return _result(job, prepared.plan, seconds, asdict(engine.sample()), column.through, moved, final)


def _one_layer(job: ColumnJob, column: Column) -> ColumnRun:
    """Run a program with one layer. The arrays of the program are in plain memory or in a mapped file."""
    prepared = _simulation(job, column).plan(job.steps)
    sizes = prepared.plan.sizes  # a program with two layers gets the same sizes from this budget
    if column.scheme == "naive":
        sizes = replace(sizes, levels=1, slab=blocked.MIN_SLAB)
    problem = one_layer.in_memory(prepared.problem, column.padded)
    rate = problem.cells * problem.steps / max(prepared.plan.predicted.seconds_update, 1e-9)
    plan = one_layer.make_plan(problem, sizes, prepared.machine, lambda _: rate)
    if column.through == "swap":
        memory = ArrayMemory.plain(plan.window.bytes)
    else:
        memory = ArrayMemory.mapped(Path(job.directory) / "arrays", plan.window.bytes)
    run = OneLayerRun(plan, prepared.kernel.calls, prepared.scalars.of_steps(0, 0), prepared.machine.threads, memory)
    run.fill(lambda z0, z1: smooth_planes(z0, z1, job.shape), CHUNK_PLANES)
    before, start = _moved_bytes(), time.perf_counter()
    for index in range(len(plan.passes)):
        run.run_pass(index)
    seconds, moved = time.perf_counter() - start, _moved_since(before)
    counters = {**run.counters(), "seconds_commit": run.seconds_flush}
    return _result(job, plan, seconds, counters, column.through, moved, lambda z0, z1: run.current[z0:z1])


def _simulation(job: ColumnJob, column: Column, io: str = "auto") -> Simulation:
    """Return a simulation whose run is not on disk yet. By default, the plan of this simulation assumes direct I/O."""
    return Simulation(
        STENCIL,
        shape=job.shape,
        dtype=DTYPE,
        directory=Path(job.directory) / "run.oc",
        memory=job.window_bytes,
        scheme=column.scheme,
        io=io,
    )


@contextmanager
def _memory_scratch(count: int) -> Iterator[Sequence[ShardFile]]:
    yield [DeviceRange("scratch in memory", 0, count)] if count else []


def _moved_bytes() -> dict[str, int]:
    """Return a dictionary with four counters for ColumnRun. Two counters are for this process: the bytes that the
    process has read from devices, and the bytes that it has marked for writing. The counters of this process are 0 if
    the system does not count bytes. The two counters for the whole machine are the bytes that were swapped in and the
    bytes that were swapped out."""
    own, machine = _counters("/proc/self/io"), _counters("/proc/vmstat")
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return {
        "device_bytes_read": own.get("read_bytes", 0),
        "device_bytes_written": own.get("write_bytes", 0),
        "swapped_in_bytes": machine.get("pswpin", 0) * page_bytes,
        "swapped_out_bytes": machine.get("pswpout", 0) * page_bytes,
    }


def _moved_since(before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in _moved_bytes().items()}


def _counters(path: str) -> dict[str, int]:
    try:
        pairs = (line.split() for line in Path(path).read_text().splitlines())
        return {name.rstrip(":"): int(value) for name, value in pairs}
    except (OSError, ValueError):
        return {}


def _result(
    job: ColumnJob,
    plan: Plan,
    seconds: float,
    counters: Mapping[str, Any],
    io: str,
    moved: dict[str, int],
    final: Callable[[int, int], NDArray[Any]],
) -> ColumnRun:
    """Return the result of a run. `counters` are the counters of the executor. `final` returns planes of the final
    grid."""
    sizes, predicted = plan.sizes, plan.predicted
    nz, ny, nx = job.shape
    digest = 0
    for z0 in range(0, nz, CHUNK_PLANES):
        block = final(z0, min(nz, z0 + CHUNK_PLANES))
        digest = _core.crc32c(np.ascontiguousarray(block).view(np.uint8).reshape(-1), digest)
    return ColumnRun(
        steps=job.steps,
        seconds=seconds,
        seconds_components={name: counters[f"seconds_{name}"] for name in COMPONENTS},
        cells_updated=int(counters["cells_updated"]),
        io=io,
        block=(sizes.block_x or nx, sizes.block_y or ny, sizes.block_z or min(nz, sizes.slab)),
        levels=sizes.levels,
        passes=len(plan.passes),
        window_bytes=plan.memory_bytes,
        bytes_read=int(counters["bytes_read"]),
        bytes_written=int(counters["bytes_written"]),
        predicted_seconds=predicted.seconds,
        predicted_bytes_read=predicted.bytes_read,
        predicted_bytes_written=predicted.bytes_written,
        **moved,
        memory_peak_bytes=peak_memory_bytes(),
        digest=digest,
    )


def main() -> None:
    given = json.loads(sys.argv[1])
    print(json.dumps(asdict(measure(ColumnJob(**{**given, "shape": tuple(given["shape"])})))))


if __name__ == "__main__":
    main()
