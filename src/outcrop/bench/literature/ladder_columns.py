"""What the ladder measures: its columns, its scale, and one measurement, which is a process of its own (ladder_run.py).

The columns are the eleven of Figure 4 of Midorikawa and Tan, and ours.

layers = 1    both arrays are memory, plain or mapped, and updated where they lie (one_layer.py)
layers = 2    blocks, or a window, are copied between the arrays and memory of their own (the engine)
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from outcrop.bench.memory import run_limited
from outcrop.bench.rates import OVERHEAD_BYTES
from outcrop.errors import InputError
from outcrop.plan.memory import Window
from outcrop.run.disk.layout import make_layout
from outcrop.tiers import discover
from outcrop.units import format_bytes, parse_bytes

Through: TypeAlias = Literal["swap", "mmap", "aio"]

STEPS_WHERE_HOPELESS = 2
"""Without temporal blocking every step moves both arrays through swap; more steps only take longer."""
PAGED_SHARE = 0.5
"""Where the system moves pages, it needs room for pages in transfer. Larger blocks were slower, in one layer by three
times: they lost pages that they still needed."""


@dataclass(frozen=True)
class Column:
    """`scheme` is that of the plan, or the one whose blocks a single layer takes; "naive" for plain sweeps.

    `through`: what carries planes between memory and flash. `padded`: rows and planes are kept from competing for the
    same sets of caches.
    """

    number: int
    name: str
    scheme: str
    through: Through
    layers: Literal[1, 2]
    padded: bool = False

    @property
    def window_share(self) -> float:
        """The part of the budget that blocks take out of core."""
        return 1.0 if self.through == "aio" else PAGED_SHARE

    @property
    def locks_memory(self) -> bool:
        """Whether blocks are kept from being swapped out while their arrays may be."""
        return self.through == "swap" and self.layers == 2

    @property
    def hopeless(self) -> bool:
        """Whether out of core a few steps are measured and scaled."""
        return self.scheme == "naive"

    @property
    def needs_limit(self) -> bool:
        """Whether out of core only a limit by the system keeps it to the budget; aio keeps to it by itself."""
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
    """The column of that number."""
    return next(column for column in COLUMNS if column.number == number)


IN_CORE_SHARE = 2.0
"""Memory in core against both arrays: the paper's 128 GiB for 64 GiB."""
USUAL_SHARE = "50%"
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015)
"""The memory of the figure of relative speed, as shares of both arrays."""
SWAP_SPARE_BYTES = 256 << 20
MIN_PLANES = 64


@dataclass(frozen=True)
class LadderScale:
    """The grid (nz, ny, nx) and for how long to measure.

    Each bar is measured up to `max_repeats` times: more than once only if it took less than `repeat_below_seconds`, and
    until `seconds_in_all` have passed. A measurement that takes `max_seconds` is stopped.
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
        """Cells of both arrays, as the paper counts memory."""
        nz, ny, nx = self.shape
        return 2 * 4 * nz * ny * nx

    @property
    def window_bytes(self) -> int:
        """A window that holds everything."""
        layout = make_layout(self.shape, "float32")
        return Window((self.shape[0], self.shape[0], 0), layout.record_bytes).bytes

    @property
    def in_core_bytes(self) -> int:
        """Memory in core."""
        return int(IN_CORE_SHARE * self.both_bytes)

    @property
    def swap_bytes(self) -> int:
        """Swap space that is enough."""
        return self.both_bytes + SWAP_SPARE_BYTES


FULL = LadderScale((512, 512, 512), 128, SHARES, 3, 15, 720, 240)
SMALL = LadderScale((96, 64, 64), 6, (0.25,), 1, 0, 0, 60)


def scaled(
    scale: LadderScale, size: tuple[int, int, int] | None, steps: int | None, directory: Path, swap: bool
) -> LadderScale:
    """`scale` with what was asked for: `size` (nx, ny, nz) or as many of its planes as this machine has room for, and
    `steps`. `swap`: whether swap space is to be made, too. Raises InputError for what cannot be."""
    if steps is not None and steps < 1:
        raise InputError(f"-t {steps}: the number of steps must be at least 1")
    scale = replace(scale, steps=steps or scale.steps)
    if size is not None:
        if min(size) < 1:
            raise InputError(f"-n {size[0]} {size[1]} {size[2]}: all three sizes must be at least 1")
        scale = replace(scale, shape=(size[2], size[1], size[0]))
    while size is None and _lacks(scale, directory, swap) and scale.shape[0] > MIN_PLANES:
        scale = replace(scale, shape=(scale.shape[0] // 2, *scale.shape[1:]))
    if lacks := _lacks(scale, directory, swap):
        raise InputError(f"bench ladder {lacks}; give a smaller grid with -n NX NY NZ")
    return scale


def _lacks(scale: LadderScale, directory: Path, swap: bool) -> str:
    """What this machine has too little of; "" if nothing."""
    needed = scale.in_core_bytes + OVERHEAD_BYTES
    if needed > discover.memory_bytes():
        return f"needs {format_bytes(needed)} of memory for what it measures in core"
    needed = 2 * scale.both_bytes + (scale.swap_bytes if swap else 0)
    if needed > discover.free_disk_bytes(directory):
        return f"needs {format_bytes(needed)} of disk in {directory}"
    return ""


def budget_of(memory: str | None, scale: LadderScale) -> int:
    """Bytes of memory out of core. Raises InputError for what is no size, or holds both arrays."""
    budget_bytes = parse_bytes(memory or USUAL_SHARE, scale.both_bytes)
    if budget_bytes >= scale.both_bytes:
        raise InputError(f"--memory {memory} is not out of core: both arrays have {format_bytes(scale.both_bytes)}")
    return budget_bytes


COMPONENTS = ("update", "read_wait", "write_wait", "copy", "checksum", "commit")
"""What the thread that interprets a plan does. In one layer, updates include the waits for the system's paging."""


@dataclass(frozen=True)
class ColumnJob:
    """Advance a grid of `shape` (nz, ny, nx) by `steps` steps as column `number` does, with blocks of at most
    `window_bytes`; files go to `directory`, which is empty."""

    number: int
    shape: tuple[int, int, int]
    steps: int
    window_bytes: int
    directory: str = ""

    def to_argument(self) -> str:
        """The job on a command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_argument(text: str) -> ColumnJob:
        """The inverse."""
        values = json.loads(text)
        return ColumnJob(**{**values, "shape": tuple(values["shape"])})


@dataclass(frozen=True)
class ColumnRun:
    """`seconds` of wall-clock time for `steps` steps, and those of each of COMPONENTS.

    `block` is (bx, by, bz) in cells, `levels` bt, `passes` how often all blocks are gone through. Bytes: `bytes_read`
    and `bytes_written` moved by the plan (0 in one layer) and as it predicted; by the system's count, read from and
    written to devices by this process, and swapped by the machine meanwhile. `memory_peak_bytes` of this process,
    mapped pages included. `digest`: checksum of the final grid.
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

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Limited:
    """A measurement, and how its memory was limited: `limit_bytes` by a control group, None where there was none;
    `group_peak_bytes` the most all of it took, page cache included, None where nothing counts that."""

    measured: ColumnRun
    limit_bytes: int | None
    group_peak_bytes: int | None


def run_job(job: ColumnJob, directory: Path, limit_bytes: int, may_swap: bool, max_seconds: float) -> Limited:
    """Do `job` in a process of its own, with a folder of its own in `directory`. Raises StorageError when it fails, is
    killed or takes longer than `max_seconds`."""
    with tempfile.TemporaryDirectory(prefix="outcrop-ladder-", dir=directory) as folder:
        own = ColumnJob(job.number, job.shape, job.steps, job.window_bytes, folder)
        arguments = ["-m", "outcrop.bench.literature.ladder_run", own.to_argument()]
        output = run_limited(arguments, limit_bytes, may_swap, max_seconds)
    measured = ColumnRun(**json.loads(output.text))
    return Limited(measured, limit_bytes if output.is_limited else None, output.peak_bytes)
