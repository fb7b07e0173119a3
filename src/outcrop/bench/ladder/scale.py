"""How large the ladder is: the grid, the steps, the memory, and for how long to measure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from outcrop.bench.core import OVERHEAD_BYTES
from outcrop.errors import InputError
from outcrop.plan.window import Window
from outcrop.run.disk.layout import make_layout
from outcrop.tiers import discover
from outcrop.units import format_bytes, parse_bytes

IN_CORE_SHARE = 2.0
"""Memory in core against both arrays: the paper's 128 GiB for 64 GiB."""
USUAL_SHARE = "50%"
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015)
"""What memory the figure of relative speed is for, against both arrays."""
SWAP_SPARE_BYTES = 256 << 20
PLANES_LEAST = 64


@dataclass(frozen=True)
class Scale:
    """The grid (nz, ny, nx) and for how long to measure.

    `repeats_most` measurements of each bar at most, more than one only of those that took less than
    `repeat_below_seconds`, and only until `seconds_in_all` have passed. One that takes `seconds_most` is stopped.
    """

    shape: tuple[int, int, int]
    steps: int
    shares: tuple[float, ...]
    repeats_most: int
    repeat_below_seconds: float
    seconds_in_all: float
    seconds_most: float

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


FULL = Scale((512, 512, 512), 128, SHARES, 3, 15, 720, 240)
SMALL = Scale((96, 64, 64), 6, (0.25,), 1, 0, 0, 60)


def scaled(scale: Scale, size: tuple[int, int, int] | None, steps: int | None, directory: Path, swap: bool) -> Scale:
    """`scale` with what was asked for: `size` (nx, ny, nz) or as many of its planes as this machine has room for, and
    `steps`. `swap`: whether swap space is to be made, too. Raises InputError for what cannot be."""
    if steps is not None and steps < 1:
        raise InputError(f"-t {steps}: the number of steps must be at least 1")
    scale = replace(scale, steps=steps or scale.steps)
    if size is not None:
        if min(size) < 1:
            raise InputError(f"-n {size[0]} {size[1]} {size[2]}: all three sizes must be at least 1")
        scale = replace(scale, shape=(size[2], size[1], size[0]))
    while size is None and _lacks(scale, directory, swap) and scale.shape[0] > PLANES_LEAST:
        scale = replace(scale, shape=(scale.shape[0] // 2, *scale.shape[1:]))
    if lacks := _lacks(scale, directory, swap):
        raise InputError(f"bench ladder {lacks}; give a smaller grid with -n NX NY NZ")
    return scale


def _lacks(scale: Scale, directory: Path, swap: bool) -> str:
    """What this machine has too little of; "" if nothing."""
    needed = scale.in_core_bytes + OVERHEAD_BYTES
    if needed > discover.memory_bytes():
        return f"needs {format_bytes(needed)} of memory for what it measures in core"
    needed = 2 * scale.both_bytes + (scale.swap_bytes if swap else 0)
    if needed > discover.free_disk_bytes(directory):
        return f"needs {format_bytes(needed)} of disk in {directory}"
    return ""


def budget_of(memory: str | None, scale: Scale) -> int:
    """Bytes of memory out of core. Raises InputError for what is no size, or holds both arrays."""
    budget_bytes = parse_bytes(memory or USUAL_SHARE, scale.both_bytes)
    if budget_bytes >= scale.both_bytes:
        raise InputError(f"--memory {memory} is not out of core: both arrays have {format_bytes(scale.both_bytes)}")
    return budget_bytes
