"""Deep halos, for a grid that is divided among ranks along y. Before a pass updates a plane, each rank gets rows of
this plane from its neighbours. These rows are enough for all levels of the pass, so ranks exchange no other data.

A rank has the rows 0 <= y < ny. A pass of L levels with the radius r needs H = rL rows beyond each side that has a
neighbour. At each level, r more rows at the outer end of each halo become invalid, because the rows beyond the halo are
not in memory. So on each side, a level updates r rows fewer than the previous level. The last level updates the rank's
own rows:

    level L  |         |  own rows  |          At level q, the rank updates the rows
       :     |       / |            | \\            -H + rq <= y < ny + H - rq.
       1     |     /   |            |   \\
       0     |___/_____|____________|_____\\    Level 0 of the halo comes from the neighbours.
                -H     0            ny   ny+H

The rows in the two triangles are updated twice: by this rank and by a neighbour. For each plane, a rank sends its
lowest H rows to its lower neighbour and its highest H rows to its upper neighbour. A halo has only rows of the direct
neighbour, so H is at most the number of rows of this neighbour. A rank never updates the fixed rim of a neighbour,
because level 1 begins r rows above the lowest row of the halo.

The rows of a rank and its halos can be divided into skewed blocks (skewed_cut.py). The first block has the rows that
are exchanged with one neighbour, and the last block has the rows that are exchanged with the other neighbour. The
blocks of two neighbours must reach the cut between the two ranks at the same time. So the blocks of every second rank
begin with the highest rows:

    rank        0               1               2               3
    blocks      2   1   0   |   0   1   2   |   2   1   0   |   0   1   2          numbers of the blocks, from low rows
                ◄───────────    ───────────►    ◄───────────    ───────────►       to high rows

If y is periodic and the number of ranks is odd, the orders of blocks cannot alternate. In this case, each rank has one
block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from outcrop.errors import InputError
from outcrop.plan.actions import (
    EVERY_CELL,
    FAR,
    HIGH,
    LOW,
    Array,
    Bound,
    Read,
    Rectangle,
    UpdateRegion,
    Write,
    round_up,
)
from outcrop.plan.given_sizes import GivenSizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.skewed_cut import SkewedBlock, SkewedCut, cut_axis


@dataclass(frozen=True)
class DeepHalo:
    """The rows that a pass of `levels` levels uses from the neighbours of a rank."""

    problem: Problem
    levels: int

    @cached_property
    def rows(self) -> tuple[int, int]:
        """The range of rows that the pass holds in memory: the rank's own rows and its halos."""
        low, high = self.problem.halo(self.levels)
        return -low, self.problem.shape[1] + high

    @cached_property
    def own(self) -> Rectangle:
        """The cells for which the rank computes checksums."""
        return Rectangle(0, self.problem.shape[1], EVERY_CELL.x0, EVERY_CELL.x1)

    @cached_property
    def region(self) -> UpdateRegion:
        """The rows that the pass updates at each level."""
        (low, high), (first, end), radius = self.problem.neighbours, self.rows, self.problem.radius_y
        return UpdateRegion(
            y_low=Bound(first, radius) if low else Bound(-FAR),
            y_high=Bound(end, -radius) if high else Bound(FAR),
        )

    @cached_property
    def faces(self) -> list[tuple[int, Rectangle, Rectangle]]:
        """For each side with a neighbour, a tuple of three values: the side, the cells that are sent, and the cells
        that are received."""
        rows, (low, high) = self.problem.shape[1], self.problem.halo(self.levels)
        each = [(LOW, low, (0, low), (-low, 0)), (HIGH, high, (rows - high, rows), (rows, rows + high))]
        return [(side, self._cells(*sent), self._cells(*received)) for side, count, sent, received in each if count]

    def exchanges(
        self, planes: tuple[int, int], statics_planes: tuple[int, int], block: SkewedBlock
    ) -> Iterator[Read | Write]:
        """Yield the actions that exchange rows of the planes that `block` has just read. `planes` is the range of
        planes of updated fields. `statics_planes` is the range of planes of static fields.

        All sends of a group of planes come before the first receive, so neighbours never wait for each other."""
        faces = [one for one in self.faces if touches(block, one[0])]
        for z0, z1, is_static in in_order(self.problem, planes, statics_planes) if faces else ():
            array: Array = "static_faces" if is_static else "faces"
            yield from (Write(z0, z1, side, sent, array) for side, sent, _ in faces)
            yield from (Read(z0, z1, received, array, side) for side, _, received in faces)

    def _cells(self, y0: int, y1: int) -> Rectangle:
        return Rectangle(y0, y1, 0, self.problem.pitch_cells)


def in_order(
    problem: Problem, planes: tuple[int, int], statics_planes: tuple[int, int]
) -> Iterator[tuple[int, int, bool]]:
    """Divide two ranges of planes: `planes` for updated fields, and `statics_planes` for static fields. Yield each part
    as (z0, z1, flag). The flag is True for static fields. The parts are in the order in which updates need the planes.
    The order must not depend on the ranges, because the ranges of two neighbours may differ."""
    (z, end), (static, static_end) = planes, statics_planes if problem.statics else (0, 0)
    while z < end or static < static_end:
        needed = static + problem.skew_z - problem.statics_z  # updates need this plane and `static` together
        if z == end or (static < static_end and needed < z):
            yield static, static + 1, True
            static += 1
        else:
            last = end if static == static_end else min(end, max(z, needed) + 1)
            yield z, last, False
            z = last


def touches(block: SkewedBlock, side: int) -> bool:
    """Return True if a block has the rows at the side LOW or HIGH of a rank."""
    return block.is_first if (side == HIGH) == block.cut.descends else block.is_last


def own_part(problem: Problem, cut: SkewedCut, places: tuple[int, int]) -> Rectangle:
    """Return the part of a block that the rank stores on disk: the block without the rows of neighbours."""
    y0, y1 = cut.cells(places)
    return Rectangle(max(0, y0), min(problem.shape[1], y1), 0, problem.pitch_cells)


def own_cells(problem: Problem, block: SkewedBlock) -> Rectangle:
    """Return the cells of a rank for which a block computes checksums."""
    y0, y1 = block.cut.cells(block.own())
    return Rectangle(max(0, y0), min(problem.shape[1], y1), EVERY_CELL.x0, EVERY_CELL.x1)


def bounded(block: SkewedBlock, region: UpdateRegion) -> UpdateRegion:
    """Return the cells of `region` that belong to a block. `region` contains the cells that a rank updates."""
    low, high = block.bounds()
    return UpdateRegion(
        y_low=region.y_low if touches(block, LOW) else low, y_high=region.y_high if touches(block, HIGH) else high
    )


def blocks_of_rows(
    problem: Problem, levels: int, block_y: int, beyond: tuple[int, int], least: Callable[[int], tuple[int, int]]
) -> SkewedCut:
    """Divide the rows that a pass of a rank holds in memory into blocks of `block_y` rows. These rows are the rank's
    own rows, and `beyond` rows of the lower and of the upper neighbour. `least` is a function of the order of the
    blocks. The function returns two minimum numbers of rows at level 1. The first number is for the block at the lower
    neighbour, and the second number is for the block at the upper neighbour.

    Either all ranks have one block, or all ranks have several blocks. Otherwise, a rank with one block could have two
    neighbours with several blocks. This rank would need the first block of one neighbour and the last block of the
    other neighbour at the same time."""
    radius, size = problem.radius_y, block_y if problem.block_order else 0
    lead = radius * (levels - 1)

    def axis(rows: int, neighbours: tuple[bool, bool], order: int) -> tuple[int, tuple[int, int]]:
        """Return the extent of the axis, and the numbers of rows that its first and its last block must have."""
        low, high = (count * is_there for count, is_there in zip(least(order), neighbours, strict=True))
        extent = rows + beyond[0] * neighbours[0] + beyond[1] * neighbours[1]
        return extent, (high, low) if order < 0 else (low, high)

    def is_long(neighbours: tuple[bool, bool], order: int) -> bool:
        extent, (first, last) = axis(problem.max_halo, neighbours, order)
        return max(radius + size + lead, first) < extent - max(radius, last)

    kinds = product(((False, True), (True, False), (True, True)), (1, -1))
    if size and not all(is_long(neighbours, order) for neighbours, order in kinds):
        size = 0
    extent, ends = axis(problem.shape[1], problem.neighbours, problem.block_order)
    descends, first_row = problem.block_order < 0, -beyond[0] * problem.neighbours[0]
    return cut_axis(
        extent, radius, radius, levels, size, problem.row_group, lead, not problem.plain,
        origin=first_row + extent if descends else first_row, descends=descends, least=ends,
    )  # fmt: skip


def has_given_blocks(problem: Problem, given: GivenSizes, cut: SkewedCut) -> bool:
    """Return False if the user wants blocks, but a rank has too few rows for these blocks. In passes with fewer levels,
    the rows may be enough."""
    return not (problem.is_part and given.by and given.by < problem.shape[1] and cut.count == 1)


def require_given_blocks(problem: Problem, given: GivenSizes, cut_of: Callable[[int, int], SkewedCut]) -> None:
    """Raise InputError if even passes of one step cannot have the blocks that the user wants. `cut_of` returns the
    blocks for a number of levels and a number of rows."""
    if given.by is None or has_given_blocks(problem, given, cut_of(problem.stages, given.by)):
        return
    group = problem.row_group
    smaller = range(round_up(given.by, group) - group, max(problem.radius_y, 1) - 1, -group)
    most = next((rows for rows in smaller if cut_of(problem.stages, rows).count > 1), 0)
    raise InputError(
        f"by {given.by}: the {problem.max_halo} rows of a rank are too few for blocks of {given.by} rows; "
        + (f"give at most {most}, or leave by out" if most else "leave by out")
    )


def halo_blocks(problem: Problem, levels: int, block_y: int) -> SkewedCut:
    """Return the blocks of a pass with deep halos. The first and the last block have all rows that are exchanged. The
    other blocks need no rows of neighbours."""
    halo = problem.radius_y * levels
    least = 2 * halo + problem.radius_y + problem.row_group
    return blocks_of_rows(problem, levels, block_y, (halo, halo), lambda _: (least, least))


def smallest_block(problem: Problem, levels: int) -> int:
    """Return the minimum number of rows of a block. If blocks have at least this number of rows, the first blocks of
    all ranks have the same number of rows."""
    return problem.is_part * (problem.radius_y * (levels + 1) + problem.row_group)
