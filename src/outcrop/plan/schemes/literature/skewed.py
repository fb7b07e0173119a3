"""The scheme with skewed blocks in z, y and x. With each level, the cells of a block move to lower positions. The
blocks are processed one after another, as in AL-NR of Midorikawa and Tan.

    z-blocks              A block takes over the fringe that its lower neighbours left beside the cuts. The fringe has
      └─ x-blocks         the latest two levels of each cell, one in each ring (skewed_cut.py). No cell is computed
           └─ y-blocks    twice. Planes are written when their last level is complete. Unfinished levels are written
                          at the end.

The scheme has three variants, which move different data between disk and memory. In the formulas, r is the radius, a
pass has `bt` steps, and a block has `bz` planes and `by` rows:

    `full`   All cells of the block are read and written, in both arrays. The paper calls this variant aio. This variant
             moves 4 (1 + r bt/by) (1 + r bt/bz) / bt words per cell and step.
    `3y`     The fringe in y stays in memory and is copied to the next block. This variant moves 4 (1 + r bt/bz) / bt
             words per cell and step.
    `5y`     This variant works like `3y`, but in the array `other` (see below), only the fringe in z and x is read and
             written. This variant moves 2/bt + 4r/bz words per cell and step.

The paper has two arrays, for levels of even and of odd parity. In this file, `target` is the array for levels of the
same parity as the last level. `other` is the array for levels of the opposite parity. Level 0 is read from a third
array, `source`. The array `source` does not change, so that a pass is a transaction. If a run works in place, `source`
and `target` are the same array.

Along z and along y, a block consists of a fringe and a body. The parts of a block get their values as follows:

    `fringe in y`        The values are copied from the previous block (`Carry`). Only the variant `full` reads the
                         values of the fringe in y from disk.
    `fringe in z only`   Values of levels of both parities are read.
    `body`               Level 0 is read. The variants `full` and `3y` also read the body from the array `other`,
                         although no update needs these values. The variant `5y` does not read the body from the array
                         `other`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal, TypeAlias

from outcrop.plan.actions import (
    Action,
    Array,
    Block,
    Carry,
    Commit,
    Copy,
    Read,
    Rectangle,
    UpdateRegion,
    Write,
    round_up,
)
from outcrop.plan.memory import Window, make_window, slot_bytes
from outcrop.plan.plan import Pass, Scheme, Sizes, Volume
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.literature import blocked
from outcrop.plan.schemes.skewed_cut import SkewedBlock, SkewedCut, cut_axis

Variant: TypeAlias = Literal["full", "3y", "5y"]


@dataclass(frozen=True)
class Cuts:
    """The blocks along each of the three axes."""

    z: SkewedCut
    y: SkewedCut
    x: SkewedCut


def cuts(problem: Problem, levels: int, sizes: Sizes) -> Cuts:
    """Return the blocks for a pass of `levels` levels. Along x, each level of a block is shifted by a whole number of
    vectors."""
    nz, ny, _ = problem.shape
    reach_x = round_up(problem.radii[2], problem.vector_cells)
    block_x = round_up(sizes.block_x, problem.vector_cells)
    return Cuts(
        cut_axis(nz, problem.radius_z, problem.skew_z, levels, sizes.block_z),
        cut_axis(ny, problem.radius_y, problem.radius_y, levels, sizes.block_y, problem.row_group),
        cut_axis(problem.pitch_cells, 0, reach_x, levels, block_x, problem.vector_cells),
    )


def window(problem: Problem, levels: int, sizes: Sizes) -> Window:
    """Return the window. Each ring has slots for all planes of the largest block."""
    cut = cuts(problem, levels, sizes)
    planes = cut.z.max_frame
    return make_window(problem, (planes,) * 3, slot_bytes(problem, Rectangle(0, cut.y.max_frame, 0, cut.x.max_frame)))


def make_pass(variant: Variant, problem: Problem, levels: int, sizes: Sizes) -> Pass:
    cut = cuts(problem, levels, sizes)
    actions: list[Action] = []
    for z, x, y in product(cut.z.blocks, cut.x.blocks, cut.y.blocks):
        actions += _BlockPass(variant, problem, levels, z, y, x).actions(sizes.slab)
    actions.append(Commit())
    uses_other = any(isinstance(action, Read | Write) and action.array == "other" for action in actions)
    return Pass(levels, sizes.slab, window(problem, levels, sizes), tuple(actions), uses_other=uses_other)


class _BlockPass:
    def __init__(
        self, variant: Variant, problem: Problem, levels: int, z: SkewedBlock, y: SkewedBlock, x: SkewedBlock
    ) -> None:
        self.variant, self.problem, self.levels = variant, problem, levels
        self.z, self.y, self.x = z, y, x
        self.planes = z.frame()

    def actions(self, slab: int) -> Iterator[Action]:
        problem, own_z = self.problem, self.z.own()
        yield Block(Rectangle(*self.y.frame(), *self.x.frame()), *own_z, Rectangle(*self.y.own(), *self.x.own()))
        yield from self._carries()
        rims = [Copy(*self.z.body(1), Rectangle(*self.y.body(1), *self.x.body(1)))]
        last_zeta = min(problem.end_plane + problem.skew_z * (self.levels - 1), own_z[1])
        yield from blocked.in_slabs(
            problem, self.levels, slab, (max(problem.first_plane, own_z[0]), last_zeta), self._region(), self.planes,
            list(self._reads()), rims, list(self._writes()),
        )  # fmt: skip

    def _region(self) -> UpdateRegion:
        (y_low, y_high), (x_low, x_high) = self.y.bounds(), self.x.bounds()
        return UpdateRegion(y_low=y_low, y_high=y_high, x_low=x_low, x_high=x_high)

    def _array(self, parity: int) -> Array:
        return "target" if parity == self.levels % 2 else "other"

    def _carries(self) -> Iterator[Action]:
        if self.variant != "full" and not self.y.is_first:
            for parity in (0, 1):
                if (area := Rectangle(*self.y.fringe(parity), *self.x.span(parity))).cells:
                    yield Carry(*self.z.span(parity), area, parity)

    def _reads(self) -> Iterator[Read]:
        """Yield the reads of a block: level 0 of the body, the static fields, and the fringes that earlier blocks have
        written. The variants `full` and `3y` also read the body from the array `other`."""
        z, y, x = self.z, self.y, self.x
        yield Read(*z.body(0), Rectangle(*y.body(0), *x.body(0)))
        yield from blocked.static_reads(self.problem, *self.planes, Rectangle(*y.frame(), *x.frame()))
        for parity in (0, 1):
            array = self._array(parity)
            rows = y.span(parity) if self.variant == "full" else y.body(parity)
            if parity == 1 and self.variant != "5y":
                yield Read(*z.span(1), Rectangle(*rows, *x.span(1)), array, 1)
                continue
            yield Read(*z.fringe(parity), Rectangle(*rows, *x.span(parity)), array, parity)
            yield Read(*z.body(parity), Rectangle(*rows, *x.fringe(parity)), array, parity)
            if self.variant == "full":
                yield Read(*z.body(parity), Rectangle(*y.fringe(parity), *x.body(parity)), array, parity)

    def _writes(self) -> Iterator[Write]:
        """Yield writes of all values that later blocks or the next pass read."""
        z, y, x = self.z, self.y, self.x
        final = self.levels % 2
        for parity in (final, 1 - final):
            array = self._array(parity)
            rows = y.span(parity) if self.variant == "full" else y.left_below(parity)
            if self.variant == "5y" and parity != final:
                yield Write(*z.next_fringe(parity), parity, Rectangle(*rows, *x.span(parity)), array)
                yield Write(*z.left_below(parity), parity, Rectangle(*rows, *x.next_fringe(parity)), array)
            else:
                yield Write(*z.span(parity), parity, Rectangle(*rows, *x.span(parity)), array)


def volume(variant: Variant, problem: Problem, sizes: Sizes) -> Volume:
    """Estimate the work of a pass: the number of cells times the number of words per cell. The docstring of this file
    gives the number of words per cell."""
    rho_z, rho_y = blocked.overlaps(problem, sizes)
    arrays = {
        "full": 2 * (1 + rho_y) * (1 + rho_z),
        "3y": 2 * (1 + rho_z),
        "5y": 1 + 2 * rho_z,
    }[variant]
    moved = problem.grid_bytes * arrays
    return Volume(
        moved + problem.grid_bytes * problem.statics,
        moved,
        problem.cells * sizes.levels,
        *blocked.exposed(problem, sizes),
    )


def _variant(name: Variant) -> Scheme:
    return Scheme(
        f"skewed-{name}",
        window,
        lambda problem, levels, sizes: make_pass(name, problem, levels, sizes),
        partial(blocked.candidates, window),
        partial(blocked.smallest_window, window),
        lambda problem, sizes: volume(name, problem, sizes),
        blocked.SIZES,
        single=True,
        # Unfinished levels have no checksums, because a Read can read only some of the cells that a Write has written.
        checks_all=False,
    )


FULL, THREE_Y, FIVE_Y = _variant("full"), _variant("3y"), _variant("5y")
