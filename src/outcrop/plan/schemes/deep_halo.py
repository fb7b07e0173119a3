"""Deep halos, for a grid that is divided among ranks along y or z. Before a pass updates a plane, each rank gets rows
of this plane, or the whole plane, from its neighbours. The received rows and planes are enough for all levels of the
pass, so ranks exchange no other data.

Halos of rows: a rank has the rows 0 <= y < ny. A pass of L levels with the radius r needs H = rL rows beyond each side
that has a neighbour. At each level, r more rows at the outer end of each halo become invalid, because the rows beyond
the halo are not in memory. So on each side, a level updates r rows fewer than the previous level. The last level
updates the rank's own rows:

    level L  |         |  own rows  |          At level q, the rank updates the rows
       :     |       / |            | \\            -H + rq <= y < ny + H - rq.
       1     |     /   |            |   \\
       0     |___/_____|____________|_____\\    Level 0 of the halo comes from the neighbours.
                -H     0            ny   ny+H

The rows in the two triangles of the drawing are updated twice: by this rank and by a neighbour. For each plane, a rank
sends its lowest H rows to its lower neighbour and its highest H rows to its upper neighbour. A halo has only rows of
the direct neighbour, so H is at most the number of rows of this neighbour. A rank never updates the fixed rim of a
neighbour, because level 1 begins r rows above the lowest row of the halo.

The rows of a rank and its halos can be divided into skewed blocks (skewed_cut.py). The first block has the rows that
are exchanged with one neighbour. The last block has the rows that are exchanged with the other neighbour. The blocks of
two neighbours must reach the cut between the two ranks at the same time. So the blocks of every second rank begin with
the highest rows:

    rank        0               1               2               3
    blocks      2   1   0   |   0   1   2   |   2   1   0   |   0   1   2          numbers of the blocks, from low rows
                ◄───────────    ───────────►    ◄───────────    ───────────►       to high rows

If y is periodic and the number of ranks is odd, the orders of blocks cannot alternate, so each rank has one block.

Halos of planes: a rank has the planes 0 <= z < nz. A pass of L levels with the radius r needs H = rL planes beyond each
side that has a neighbour. On each of these sides, a level updates r planes fewer than the previous level:

    level L  |         | own planes |          At level q, the rank updates the planes
       :     |       / |            | \\            -H + rq <= z < nz + H - rq.
       1     |     /   |            |   \\
       0     |___/_____|____________|_____\\    Level 0 of the halos comes from the neighbours.
            -H         0            nz   nz+H  ──► the window moves

The windows of all ranks move from low to high planes at the same time. A rank needs the halo of planes from the
neighbour below when its pass begins. But the window of the neighbour below reaches the planes of this halo only at the
end of the pass. So when a neighbour needs planes, the rank that owns these planes reads the planes from its disk again
and sends them. In addition to the planes of its pass, a rank reads the following planes:

    when its window moves over the first H planes    its highest H planes, and sends them to the neighbour above
    when its window moves beyond the last plane      its lowest H planes, and sends them to the neighbour below

The windows of all ranks are at the same place at the same time. When a rank sends a group of planes to one neighbour,
the rank receives the corresponding group of planes from the other neighbour. No rank keeps planes for later use. The
source does not change during a pass. A pass reads up to 2H planes twice.

A rank reads some planes only to send these planes to a neighbour. Planes that are only sent belong to a separate block
(`Block.only_sends`). The separate block and the block of the pass use the same rings. When a ring holds a group of
planes that is only sent, it also holds the groups that the pass needs at the same time. Therefore each ring has slots
for an additional group (plan/memory.py):

    slots   |  planes of the pass ...   | next group of the pass | group that is sent |

A slot gets a plane of the pass only after the previous plane of the slot has been sent. When a rank sends a group, the
rank compares the checksums of the previous group. At that time, the reads of the previous group have usually ended.

If the grid is also divided along y, a rank first receives halo planes. Then the rank sends rows of the halo planes to
its neighbours along y. A rank gets the rows at a corner from a diagonal neighbour in two steps. First, the diagonal
neighbour sends the rows along z to the rank's neighbour along y. Then the neighbour along y sends the rows to the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from outcrop.plan.actions import (
    ABOVE,
    BELOW,
    EVERY_CELL,
    FAR,
    HIGH,
    LOW,
    Action,
    Array,
    Block,
    Bound,
    Check,
    Read,
    Rectangle,
    UpdateRegion,
    Write,
)
from outcrop.plan.given_sizes import GivenSizes
from outcrop.plan.memory import planes_sent_at_once
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.skewed_cut import SkewedBlock, SkewedCut, cut_axis


@dataclass(frozen=True)
class DeepHalo:
    """The rows of neighbours that a rank uses in a pass of `levels` levels."""

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
    The order must not depend on the ranges, because two neighbours can have different ranges."""
    (z, end), (static, static_end) = planes, statics_planes if problem.statics else (0, 0)
    while z < end or static < static_end:
        needed = static + problem.skew_z - problem.statics_z  # updates need planes `needed` and `static` together
        if z == end or (static < static_end and needed < z):
            yield static, static + 1, True
            static += 1
        else:
            last = end if static == static_end else min(end, max(z, needed) + 1)
            yield z, last, False
            z = last


def touches(block: SkewedBlock, side: int) -> bool:
    """Return True if a block has the rows at a side (LOW or HIGH) of a rank."""
    return block.is_first if (side == HIGH) == block.cut.descends else block.is_last


def own_part(problem: Problem, cut: SkewedCut, places: tuple[int, int]) -> Rectangle:
    """Return the part of a block that the rank stores on disk: the block without the rows of neighbours."""
    y0, y1 = cut.cells(places)
    return Rectangle(max(0, y0), min(problem.shape[1], y1), 0, problem.pitch_cells)


def own_cells(problem: Problem, block: SkewedBlock) -> Rectangle:
    """Return the cells of a rank whose checksums a block computes."""
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
    """Divide the rows that a pass of a rank holds in memory into blocks of `block_y` rows. The rows in memory are the
    rank's own rows, and `beyond` rows of the lower and of the upper neighbour. `least(order)` returns two minimum
    numbers of rows at level 1, for an order of the blocks. The first number is for the block at the lower neighbour,
    and the second number is for the block at the upper neighbour.

    Either all ranks have one block, or all ranks have several blocks. If only some ranks had several blocks, a rank
    with one block could have two neighbours with several blocks. Such a rank would need the first block of one
    neighbour and the last block of the other neighbour at the same time."""
    radius, size = problem.radius_y, block_y if problem.block_order else 0
    lead = radius * (levels - 1)

    def axis(rows: int, neighbours: tuple[bool, bool], order: int) -> tuple[int, tuple[int, int]]:
        """Return two values for an axis: its extent, and a pair with the minimum numbers of rows of its first and its
        last block."""
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
    the rows can be enough."""
    return not (problem.is_part and given.by and given.by < problem.shape[1] and cut.count == 1)


def halo_blocks(problem: Problem, levels: int, block_y: int) -> SkewedCut:
    """Return the blocks of a pass with deep halos. The first and the last block have all rows that are exchanged. The
    other blocks need no rows of neighbours."""
    halo = problem.radius_y * levels
    least = 2 * halo + problem.radius_y + problem.row_group
    return blocks_of_rows(problem, levels, block_y, (halo, halo), lambda _: (least, least))


def smallest_block(problem: Problem, levels: int) -> int:
    """Return the minimum number of rows of a block. With smaller blocks, the first block of one rank could have more
    rows than the first block of another rank."""
    return problem.is_part * (problem.radius_y * (levels + 1) + problem.row_group)


# --- halos of planes -------------------------------------------------------------------------------------------------


class HaloPlanes:
    """Makes the actions that read, receive and send planes in a pass of `levels` levels, with slabs of `slab` planes.
    `begin` starts the block of the pass, which has all rows of the rank (`block`).

    The position of a plane is its number. The window also moves over positions beyond a boundary of the grid, where the
    rank has no planes. While the window is at positions beyond a boundary, the rank can send planes."""

    def __init__(self, problem: Problem, levels: int, slab: int, begin: Block, block: SkewedBlock) -> None:
        self.problem, self._begin = problem, begin
        self._current: Block | None = None
        self._halo, self._block = DeepHalo(problem, levels), block
        self._low, self._high = halo_of(problem, levels)
        self._depth = problem.radius_z * levels * problem.has_updates
        self._group = planes_sent_at_once(problem, levels, slab)
        self._read, self._statics_read = -self._low, -self._low
        planes, ahead, whole = problem.planes, begin.shift + self._group, problem.whole_plane
        # For k = 0 .. H-1: when the window reads plane k - `_low`, the rank sends plane nz - H + k to the neighbour
        # above. When the window is at position nz + k, the rank sends plane k to the neighbour below.
        self._blocks = {
            ABOVE: Block(whole, 0, 0, whole, ahead - self._low - planes + self._depth),
            BELOW: Block(whole, 0, 0, whole, ahead + planes),
        }
        self._unchecked: list[tuple[Block, Check]] = []

    def to(self, end: int, statics_end: int) -> Iterator[Action]:
        """Yield the actions that bring planes into memory: all planes of the updated fields below `end`, and all planes
        of the static fields below `statics_end`. The actions also exchange the rows of neighbours in these planes. The
        last action starts the block of the pass again."""
        yield from self._to(end, statics_end)
        yield from self._in(self._begin)

    def finish(self) -> Iterator[Action]:
        """Yield the actions for all remaining positions, and the last checks."""
        yield from self._to(FAR, FAR)
        yield from self._checks()

    def _to(self, end: int, statics_end: int) -> Iterator[Action]:
        first, last = (self._read, self._statics_read), self.problem.planes + self._depth
        read, self._read = self._read, max(self._read, min(end, last))
        statics_read, self._statics_read = self._statics_read, max(self._statics_read, min(statics_end, last))
        for z0, z1, is_static in in_order(self.problem, (read, self._read), (statics_read, self._statics_read)):
            for begin, stop in self._groups(z0, z1):
                yield from self._checks()
                yield from self._send(begin, stop, is_static)
                yield from self._get(begin, stop, is_static)
        # positions above the last plane of the halo have no plane, so no rows are exchanged
        planes, statics = ((min(z0, self.planes[1]), min(z1, self.planes[1]))
                           for z0, z1 in zip(first, (self._read, self._statics_read), strict=True))  # fmt: skip
        for action in self._halo.exchanges(planes, statics, self._block):
            yield from self._in(self._begin)
            yield action

    def _checks(self) -> Iterator[Action]:
        """Yield the checks of all sent planes that have not been checked yet."""
        for block, check in self._unchecked:
            yield from self._in(block)
            yield check
        self._unchecked.clear()

    def _in(self, block: Block) -> Iterator[Action]:
        if block != self._current:
            self._current = block
            yield block

    def _groups(self, z0: int, z1: int) -> Iterator[tuple[int, int]]:
        """Divide the positions z0 <= z < z1, and yield the parts. Each part belongs to one neighbour or to the rank
        itself. At positions where the rank sends planes, a part is not longer than a group."""
        planes = self.problem.planes
        edges = [-self._low, 0, self._depth - self._low, planes, planes + self._depth]
        for first, end in zip(sorted(edges), sorted(edges)[1:], strict=False):
            begin, stop = max(z0, first), min(z1, end)
            is_sent = first < self._depth - self._low or first >= planes
            size = max(1, self._group if is_sent else stop - begin)
            for z in range(begin, stop, size):
                yield z, min(stop, z + size)

    def _send(self, z0: int, z1: int, is_static: bool) -> Iterator[Action]:
        """Yield the actions that send planes while the window moves over the positions z0 <= z < z1."""
        problem, planes = self.problem, self.problem.planes
        if z0 < self._depth - self._low and problem.neighbours_z[1]:
            side, back = ABOVE, self._low + planes - self._depth
        elif z0 >= planes and problem.neighbours_z[0]:
            side, back = BELOW, -planes
        else:
            return
        first, end, whole, block = z0 + back, z1 + back, problem.whole_plane, self._blocks[side]
        array: Array = "statics" if is_static else "source"
        yield from self._in(block)
        yield Read(first, end, whole, array)
        yield Write(first, end, side, whole, "static_faces" if is_static else "faces")
        self._unchecked.append((block, Check(first, end, whole, array)))

    def _get(self, z0: int, z1: int, is_static: bool) -> Iterator[Action]:
        """Yield the action that reads or receives the planes z0 <= z < z1."""
        problem, area = self.problem, self.problem.whole_plane
        if 0 <= z0 < problem.planes:
            yield from self._in(self._begin)
            yield Read(z0, z1, area, "statics" if is_static else "source")
        elif problem.neighbours_z[z0 > 0]:
            array: Array = "static_faces" if is_static else "faces"
            yield from self._in(self._begin)
            yield Read(z0, z1, area, array, BELOW if z0 < 0 else ABOVE)

    @property
    def planes(self) -> tuple[int, int]:
        """The range of planes that the pass holds in memory: the rank's own planes and its halos."""
        return -self._low, self.problem.planes + self._high


def halo_of(problem: Problem, levels: int) -> tuple[int, int]:
    """Return the numbers of planes that a pass gets from the neighbours below and above. A pass that updates no rows
    needs no planes of neighbours."""
    return problem.halo_z(levels) if problem.has_updates else (0, 0)


def updated(problem: Problem, levels: int, region: UpdateRegion, zeta: int) -> UpdateRegion:
    """Return the cells of `region` that a slab updates. The slab begins at `zeta`. If the planes below belong to a
    neighbour, each level of the first slabs updates fewer planes than the previous level. If the planes above belong to
    a neighbour, no bound is necessary, because all levels end at the same zeta (`zetas_of_pass`). With the radius 0,
    all levels end at the same plane, so a bound is necessary."""
    radius = problem.radius_z
    if problem.neighbours_z[1] and not radius:
        region = replace(region, z_high=Bound(problem.planes))
    if problem.neighbours_z[0] and zeta < problem.skew_z * (levels - 1):
        region = replace(region, z_low=Bound(-radius * levels, radius))
    return region


def zetas_of_pass(problem: Problem, levels: int) -> tuple[int, int]:
    """Return the range of zeta that a pass of `levels` levels updates.

    If the radius is at least 1, each level updates planes up to the highest zeta of this range. Later levels need these
    planes.
    """
    first = -problem.radius_z * (levels - 1) if problem.neighbours_z[0] else problem.first_plane
    return first, problem.own_planes[1] + problem.skew_z * (levels - 1)
