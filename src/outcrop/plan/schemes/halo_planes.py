"""Deep halos in z, for a grid that is divided among ranks along z.

A rank has the planes 0 <= z < nz. A pass of L levels with the radius r needs H = rL planes beyond each side that has a
neighbour. On each of these sides, a level updates r planes fewer than the previous level. Halos of rows are similar
(deep_halo.py):

    level L  |         | own planes |          At level q, the rank updates the planes
       :     |       / |            | \\            -H + rq <= z < nz + H - rq.
       1     |     /   |            |   \\
       0     |___/_____|____________|_____\\    Level 0 of the halos comes from the neighbours.
            -H         0            nz   nz+H  ──► the window moves

The windows of all ranks move from low to high planes at the same time. A rank needs the halo below when its pass
begins, but the window of the neighbour below reaches these planes only at the end of the pass. So when a neighbour
needs planes, the rank that owns these planes reads the planes from its disk again and sends them. In addition to the
planes of its pass, a rank reads

    when its window moves over the first H planes    its highest H planes, and sends them to the neighbour above
    when its window moves beyond the last plane      its lowest H planes, and sends them to the neighbour below

The windows of all ranks are at the same place at the same time. When a rank sends a group of planes to one neighbour,
the rank receives the corresponding group of planes from the other neighbour. No rank keeps planes for later use. The
source does not change during a pass. A pass reads up to 2H planes twice.

A rank reads some planes only to send these planes to a neighbour. These planes belong to a separate block
(`Block.only_sends`). This block and the block of the pass use the same rings. In a ring, the planes that are sent are
one group ahead of the planes of the pass. Therefore each ring has slots for an additional group (plan/memory.py):

    slots   |  planes of the pass ...   | next group of the pass | group that is sent |

A slot gets a plane of the pass only after the previous plane of the slot has been sent. When a rank sends a group, it
compares the checksums of the previous group. At that time, the reads of the previous group have usually ended.

If the grid is also divided along y, a rank first receives halo planes. Then the rank sends rows of these planes to its
neighbours along y. Rows at a corner belong to a diagonal neighbour. These rows are first sent along z to a neighbour
along y, and then along y to the rank itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from outcrop.plan.actions import (
    ABOVE,
    BELOW,
    FAR,
    Action,
    Array,
    Block,
    Bound,
    Check,
    Read,
    UpdateRegion,
    Write,
)
from outcrop.plan.memory import planes_sent_at_once
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.deep_halo import DeepHalo, in_order
from outcrop.plan.schemes.skewed_cut import SkewedBlock


class HaloPlanes:
    """Makes the actions that read, receive and send planes in a pass of `levels` levels, with slabs of `slab` planes.
    `begin` starts the block of the pass, which has all rows of the rank (`block`).

    The position of a plane is its number. The window also moves over positions beyond a boundary of the grid, where the
    rank has no planes. The rank may send planes while the window is at these positions."""

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
        """Yield the actions that bring planes, with their rows of neighbours, into memory. These are all planes of the
        updated fields below `end`, and all planes of the static fields below `statics_end`. The last action starts the
        block of the pass again."""
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
        # positions above the last plane of the halo have no rows
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
        """Divide a range of positions. Each part belongs to one neighbour or to the rank itself. At positions where the
        rank sends planes, a part is not longer than a group."""
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
    """Return the numbers of planes that a pass gets from the neighbours below and above. If a pass updates no rows, it
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
