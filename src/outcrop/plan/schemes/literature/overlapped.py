"""The scheme with independent blocks (AL-R). Each block computes all its cells from level 0. So cells that several
blocks need are computed more than once.

    level L  |     |___0___|___1___|            A block reads its own cells and r L more cells on each side. Each level
       :     |    /         \\ /     \\           updates r fewer cells on each side. A block writes only its own cells.
       1     |   /          /\\       \\          Blocks do not depend on each other.
       0     |  /__________/__\\_______\\
                           overlap

Let a pass have bt steps, let r be the radius, and let blocks have b cells along each of d axes. With rho = r bt/b, the
scheme moves [(1 + 2 rho)^d + 1]/bt words per cell and step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

from outcrop.plan.actions import (
    FAR,
    Action,
    Block,
    Bound,
    Commit,
    Copy,
    Read,
    Rectangle,
    UpdateRegion,
    Write,
    round_down,
    round_up,
)
from outcrop.plan.memory import Window, make_window, slot_bytes
from outcrop.plan.plan import Pass, Scheme, Sizes, Volume
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.literature import blocked


@dataclass(frozen=True)
class _Blocks:
    """The blocks of an axis. Each block has `size` cells. On each side, a block reads `reach` * `levels` more cells."""

    extent: int
    reach: int
    levels: int
    size: int
    group: int

    def __iter__(self) -> Iterator[_Range]:
        return (_Range(self, low, min(self.extent, low + self.size)) for low in range(0, self.extent, self.size))


@dataclass(frozen=True)
class _Range:
    """A block with the cells low <= i < high."""

    blocks: _Blocks
    low: int
    high: int

    @property
    def frame(self) -> tuple[int, int]:
        """The range of cells that the block reads."""
        group, beside = self.blocks.group, self.blocks.reach * self.blocks.levels
        low, high = round_down(self.low - beside, group), round_up(self.high + beside, group)
        return max(0, low), min(self.blocks.extent, high)

    @property
    def bounds(self) -> tuple[Bound, Bound]:
        """The bounds of updates at each level. At the last level, a block updates only its own cells."""
        reach, beside = self.blocks.reach, self.blocks.reach * self.blocks.levels
        return (
            Bound(self.low - beside, reach) if self.low else Bound(-FAR),
            Bound(self.high + beside, -reach) if self.high < self.blocks.extent else Bound(FAR),
        )


def _cut(extent: int, reach: int, levels: int, size: int, group: int = 1) -> _Blocks:
    """Divide an axis into blocks of `size` cells. `size` is rounded up to whole groups. If `size` is 0, the axis is one
    block."""
    return _Blocks(extent, reach, levels, round_up(size, group) or extent, group)


def _axes(problem: Problem, levels: int, sizes: Sizes) -> tuple[_Blocks, _Blocks, _Blocks]:
    nz, ny, _ = problem.shape
    vector = problem.vector_cells
    return (
        _cut(nz, problem.skew_z, levels, sizes.block_z),
        _cut(ny, problem.radius_y, levels, sizes.block_y, problem.row_group),
        _cut(problem.pitch_cells, round_up(problem.radii[2], vector), levels, sizes.block_x, vector),
    )


def window(problem: Problem, levels: int, sizes: Sizes) -> Window:
    """Return the window. Each ring has slots for all planes of the largest block, including the overlap of this block.
    """
    planes, rows, columns = (_max_frame(axis) for axis in _axes(problem, levels, sizes))
    return make_window(problem, (planes,) * 3, slot_bytes(problem, Rectangle(0, rows, 0, columns)))


def _max_frame(blocks: _Blocks) -> int:
    """Return an upper limit for the number of cells in the frame of a block."""
    if blocks.size >= blocks.extent:
        return blocks.extent
    cells = blocks.size + 2 * blocks.reach * blocks.levels + 2 * (blocks.group - 1)
    return min(blocks.extent, round_down(cells, blocks.group))


def make_pass(problem: Problem, levels: int, sizes: Sizes) -> Pass:
    actions: list[Action] = []
    for z, y, x in product(*_axes(problem, levels, sizes)):
        actions += _block(problem, levels, sizes.slab, z, y, x)
    actions.append(Commit())
    return Pass(levels, sizes.slab, window(problem, levels, sizes), tuple(actions))


def _block(problem: Problem, levels: int, slab: int, z: _Range, y: _Range, x: _Range) -> Iterator[Action]:
    skew, frame, (first, last) = problem.skew_z, Rectangle(*y.frame, *x.frame), z.frame
    own = Rectangle(y.low, y.high, x.low, x.high)
    yield Block(frame, z.low, z.high, own)
    (z_low, z_high), (y_low, y_high), (x_low, x_high) = z.bounds, y.bounds, x.bounds
    region = UpdateRegion(z_low, z_high, y_low, y_high, x_low, x_high)
    reads = [Read(first, last, frame), *blocked.static_reads(problem, first, last, frame)]
    beside = skew * (levels - 1)  # the largest distance from a block to a plane that the block updates
    rims = [Copy(max(first, z.low - beside), min(last, z.high + beside), frame, own)]
    zetas = max(problem.first_plane, z_low.at(1)), beside + min(problem.end_plane, z.high)
    writes = [Write(z.low, z.high, levels, own)]
    yield from blocked.in_slabs(problem, levels, slab, zetas, region, z.frame, reads, rims, writes)


def volume(problem: Problem, sizes: Sizes) -> Volume:
    """Estimate the work of a pass: [(1 + 2 rho)^d + 1]/bt words per cell and step. Overlaps multiply the number of
    updates by the mean of (1 + 2 rho t/bt)^d over the levels t."""
    rho_z, rho_y = blocked.overlaps(problem, sizes)
    read = problem.grid_bytes * (1 + 2 * rho_z) * (1 + 2 * rho_y) * (problem.state_arrays + problem.statics)
    more = 1 + rho_z + rho_y + 4 / 3 * rho_z * rho_y
    cells = problem.cells * sizes.levels * more
    return Volume(read, problem.grid_bytes * problem.state_arrays, cells, *blocked.exposed(problem, sizes))


SCHEME = Scheme(
    "overlapped",
    window,
    make_pass,
    partial(blocked.candidates, window),
    partial(blocked.smallest_window, window),
    volume,
    blocked.SIZES,
    in_place=False,  # in place, a block would overwrite level 0 of cells that a later block reads
    repeats_updates=True,
)
