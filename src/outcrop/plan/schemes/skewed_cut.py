"""Divide one axis into blocks for skewed schemes. At each level, a block begins and ends at lower cells than at the
previous level.

A cut is the border between two blocks. At level 1, cut number j is at cell eta[j]. At each further level, the cut is
`reach` cells lower. So the cut has the same coordinate eta = y + reach * (level - 1) at all levels. A block needs no
cells of later blocks:

    level L  |    \\         \\         |
       :     | 0   \\    1    \\    2   |      Beside cut j is the fringe, which block j takes over from block
       1     |______\\_________\\_______|      j - 1. Each ring holds its latest levels on 2 reach cells each.
       0     |       eta[1]    eta[2]  |

Level q + 1 is the last level that reads level q. Level q + 1 of block j reads these cells of block j - 1: eta - reach
(q + 1) <= y < eta - reach (q - 1). So the ring of one parity holds the fringe

    eta - reach (q_max + 1) <= y < eta + reach (1 - parity),      q_max is the highest level of this parity below L.

All cells below the fringe are final or no longer needed. At its end, a block writes all its cells below the fringe of
the next block.

If a pass computes states again, its first levels belong to the forward run and do not use the state of this run. Then
the fringe of the state ends at the cells of the first level that uses the state. Each recomputed field has its own
fringe. Let w be the first level that writes the field, and let p be the last level that reads the field. The fringe is

    eta - reach p <= y < eta - reach (w - 1).

If the first values of the field come from a history, the fringe also includes the cells that levels of the previous
block have read. With such a history, the fringe ends at eta - reach (v - 2), where v is the first level that reads the
field. Each block reads from the history only the cells above its fringe, so each cell of the history is read once.

A place is the number of a cell, counted from the end of the axis at which the first block begins. Usually, this is the
lower end. If the blocks of a rank begin at the upper end, the axis is mirrored, and the cuts move up by `reach` cells
per level. `SkewedCut.cells` converts places to coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from outcrop.plan.actions import FAR, Bound, round_down, round_up

Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class SkewedCut:
    """The blocks of one axis with `extent` cells, in a pass of `levels` levels.

    `starts` are eta[0], eta[1], ... The first block begins at the first cell of the grid, and the last block ends at
    the last cell of the grid. All ranges of a block are half open. Each range begins and ends at a multiple of `group`
    cells or at an end of the grid. If `joint` is true, a ring can hold levels of both parities, and the fringe in a
    ring includes the fringes of both parities. `first_level` is the first level that uses the state. `origin` is the
    coordinate at which the first block begins. If `descends` is true, the first block is at the upper end of the axis,
    and `origin` is the coordinate of this end.
    """

    extent: int
    reach: int
    levels: int
    starts: tuple[int, ...]
    group: int = 1
    joint: bool = False
    first_level: int = 1
    origin: int = 0
    descends: bool = False

    @property
    def count(self) -> int:
        return len(self.starts)

    @property
    def blocks(self) -> list[SkewedBlock]:
        """The blocks, in the order in which they are processed."""
        return [SkewedBlock(self, number) for number in range(self.count)]

    def fringe_reaches(self, parity: int) -> tuple[int, int]:
        """Return the arguments with which `SkewedBlock.beside_cut` returns the fringe in the ring of `parity`."""
        highest = self.levels - 1 - (0 if self.joint else (self.levels - self.first_level - parity) % 2)
        return highest + 1, (1 if self.joint else 1 - parity) - (self.first_level - 1)

    def cells(self, place: Range) -> Range:
        """Convert a range of places to a range of coordinates."""
        first, end = place
        return (self.origin - end, self.origin - first) if self.descends else (self.origin + first, self.origin + end)

    def rounded_down(self, place: int) -> int:
        """Return the largest place that is not above `place`, and whose coordinate is a multiple of `group`."""
        origin, group = self.origin, self.group
        if self.descends:
            return origin - round_up(origin - place, group)
        return round_down(origin + place, group) - origin

    def rounded_up(self, place: int) -> int:
        """Return the smallest place that is not below `place`, and whose coordinate is a multiple of `group`."""
        origin, group = self.origin, self.group
        if self.descends:
            return origin - round_down(origin - place, group)
        return round_up(origin + place, group) - origin

    @property
    def max_frame(self) -> int:
        """The maximum number of cells in the frame of a block. The frame includes the block, the fringe below, the
        reach or rim above, and the rounding to groups."""
        if self.count == 1:
            return self.extent
        # the first block has no fringe below, and the last block ends with the axis
        ends = max(end - first for first, end in (block.frame() for block in (self.blocks[0], self.blocks[-1])))
        if self.count == 2:
            return ends
        size = self.starts[2] - self.starts[1]  # the first block may have more cells than the others
        cells = size + self.reach * self.levels + max(self.reach, self.starts[0]) + 2 * (self.group - 1)
        return min(self.extent, max(ends, round_down(cells, self.group)))


@dataclass(frozen=True)
class SkewedBlock:
    """One block of a cut. `number` is the number of the block."""

    cut: SkewedCut
    number: int

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def is_last(self) -> bool:
        return self.number + 1 == self.cut.count

    def fringe(self, parity: int) -> Range:
        """Return the range of cells that this block takes over from the previous block, in the ring of `parity`. The
        range is empty for the first block. Before `first_level`, the state is in the ring of parity 0."""
        return self.beside_cut(*self.cut.fringe_reaches(parity))

    def beside_cut(self, below: int, above: int) -> Range:
        """Return a range of cells around the lower cut of this block at level 1. The range begins `below` * `reach`
        cells below the cut, and ends `above` * `reach` cells above the cut. The range is empty for the first block."""
        if self.is_first:
            return 0, 0
        cut = self.cut
        low, high = (cut.starts[self.number] + cut.reach * reaches for reaches in (-below, above))
        return self._clamp(cut.rounded_down(low)), self._clamp(cut.rounded_up(high))

    def next_beside_cut(self, below: int, above: int) -> Range:
        """Return the range that `beside_cut` returns for the next block. If this block is the last block, the range is
        empty."""
        if self.is_last:
            return self.cut.extent, self.cut.extent
        return SkewedBlock(self.cut, self.number + 1).beside_cut(below, above)

    def next_fringe(self, parity: int) -> Range:
        """Return the range of cells that the next block takes over from this block. If this block is the last block,
        the range is empty."""
        return self.next_beside_cut(*self.cut.fringe_reaches(parity))

    def body(self, parity: int) -> Range:
        """Return the range of cells from the end of this block's fringe to the end of the next block's fringe. In the
        ring of even parity, the cells of the range are read from disk before `first_level`."""
        return self.fringe(parity)[1], self.next_fringe(parity)[1]

    def span(self, parity: int) -> Range:
        return self.fringe(parity)[0], self.next_fringe(parity)[1]

    def frame(self) -> Range:
        """Return the range of cells that this block needs in memory."""
        return self.beside_cut(self.cut.levels, 0)[0], self.next_beside_cut(0, 1)[1]

    def left_below(self, parity: int) -> Range:
        """Return the range of cells that no later block updates. The values of the returned cells are final after this
        block.
        """
        return self.fringe(parity)[0], self.next_fringe(parity)[0]

    def own(self) -> Range:
        """Return the range of cells that this block updates at `first_level`. The range includes the rim next to the
        updated cells."""
        return self._updated(self.cut.first_level)

    def bounds(self) -> tuple[Bound, Bound]:
        """Return the lower and the upper bound of the cells that this block updates at each level. The bounds are
        coordinates."""
        one, other = self.cut.cells(self._updated(1)), self.cut.cells(self._updated(2))
        low, high = (Bound(first - (after - first), after - first) for first, after in zip(one, other, strict=True))
        at_low, at_high = (self.is_last, self.is_first) if self.cut.descends else (self.is_first, self.is_last)
        return Bound(-FAR) if at_low else low, Bound(FAR) if at_high else high

    def _updated(self, level: int) -> Range:
        starts, back = self.cut.starts, self.cut.reach * (level - 1)
        low = -FAR if self.is_first else starts[self.number] - back
        return low, FAR if self.is_last else starts[self.number + 1] - back

    def _clamp(self, place: int) -> int:
        return max(0, min(self.cut.extent, place))


def cut_axis(
    extent: int,
    first: int,
    reach: int,
    levels: int,
    size: int,
    group: int = 1,
    lead: int = 0,
    joint: bool = False,
    first_level: int = 1,
    origin: int = 0,
    descends: bool = False,
    least: tuple[int, int] = (0, 0),
) -> SkewedCut:
    """Divide an axis into blocks that have `size` cells at level 1. If `size` is 0, the axis is one block. The first
    block begins at cell `first`.

    The first block has `lead` more cells than the other blocks, because the first block has no fringe below. If `lead`
    is at most `reach * (levels - 1)`, the frame of the first block is not larger than the other frames. At level 1, the
    distance from the beginning of the axis to the first cut is at least `least[0]` places. The distance from the last
    cut to the end of the axis is at least `least[1]` places. If the minimum distances `least` are not possible, the
    axis is one block. If the same axis is divided for fewer levels, the frames are not larger.
    """
    begin, highest = max(first + size + lead, least[0]), extent - max(first, least[1])
    further = list(range(begin, extent - first, size)) if size else []
    if further and further[-1] > highest:
        kept = [one for one in further if one < highest]
        further = [*kept, highest] if kept else []
    starts = (first, *further)
    return SkewedCut(extent, reach, levels, starts, group, joint, first_level, origin, descends)
