"""How skewed schemes cut one axis into blocks that lean back with the level.

Cut number j lies at eta[j] at level 1 and `reach` cells lower at every further level (eta = y + reach (level - 1)),
so that a block needs nothing of those after it:

    level L  |    \\         \\         |
       :     | 0   \\    1    \\    2   |      Beside cut j both rings hold the latest two levels, by steps of
       1     |______\\_________\\_______|      2 reach: the fringe, which block j takes over from block j - 1.
       0     |       eta[1]    eta[2]  |

Level q + 1 is the last one to need level q, at cells eta - reach (q + 1) <= y < eta - reach (q - 1). So the ring of one
parity holds the fringe

    eta - reach (q_max + 1) <= y < eta + reach (1 - parity),      q_max the highest level below L of that parity,

and everything below it is final, or not needed any more. A block writes its cells below the fringe of the next block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from outcrop.plan.actions import FAR, Bound, round_down, round_up

Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class SkewedCut:
    """Blocks of one axis with `extent` cells, for passes of `levels` levels.

    `starts` are eta[0], eta[1], ...; the first and the last block end with the grid. All ranges of a block are
    half open and begin and end at multiples of `group` cells, or with the grid. `joint`: a ring may hold levels of both
    parities, so that its fringe is that of both.
    """

    extent: int
    reach: int
    levels: int
    starts: tuple[int, ...]
    group: int = 1
    joint: bool = False

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.starts)

    @property
    def blocks(self) -> list[SkewedBlock]:
        """All of them, in the order in which they are advanced."""
        return [SkewedBlock(self, number) for number in range(self.count)]

    @property
    def max_frame(self) -> int:
        """Cells that are enough for every frame: a block, a fringe below, the reach above or the rim, and the rounding
        to groups."""
        if self.count == 1:
            return self.extent
        if self.count == 2:  # the first has no fringe below, the second nothing above
            return max(end - first for first, end in (block.frame() for block in self.blocks))
        size = self.starts[2] - self.starts[1]  # the first one may be larger, because it has no fringe below
        most = size + self.reach * self.levels + max(self.reach, self.starts[0]) + 2 * (self.group - 1)
        return min(self.extent, round_down(most, self.group) if self.group > 1 else most)


@dataclass(frozen=True)
class SkewedBlock:
    """Block number `number` of a cut."""

    cut: SkewedCut
    number: int

    @property
    def is_first(self) -> bool:
        """Whether it begins with the grid."""
        return self.number == 0

    @property
    def is_last(self) -> bool:
        """Whether it ends with the grid."""
        return self.number + 1 == self.cut.count

    @property
    def following(self) -> SkewedBlock:
        """The next block."""
        return SkewedBlock(self.cut, self.number + 1)

    def fringe(self, parity: int) -> Range:
        """Cells that this block takes over from the one before it, in the ring of `parity`; none for the first."""
        if self.is_first:
            return 0, 0
        cut = self.cut
        highest = cut.levels - 1 - (0 if cut.joint else (cut.levels - 1 - parity) % 2)
        low = cut.starts[self.number] - cut.reach * (highest + 1)
        high = cut.starts[self.number] + cut.reach * (1 if cut.joint else 1 - parity)
        return self._clamp(round_down(low, cut.group)), self._clamp(round_up(high, cut.group))

    def next_fringe(self, parity: int) -> Range:
        """Cells that the next block takes over; none for the last."""
        return (self.cut.extent, self.cut.extent) if self.is_last else self.following.fringe(parity)

    def body(self, parity: int) -> Range:
        """Cells above the fringe; those of even parity are read at level 0."""
        return self.fringe(parity)[1], self.next_fringe(parity)[1]

    def span(self, parity: int) -> Range:
        """Fringe and body."""
        return self.fringe(parity)[0], self.next_fringe(parity)[1]

    def frame(self) -> Range:
        """Cells that this block needs in memory."""
        return min(self.span(0)[0], self.span(1)[0]), self.span(0)[1]

    def left_below(self, parity: int) -> Range:
        """Cells that this block leaves as they belong on disk: no later block updates them."""
        return self.fringe(parity)[0], self.next_fringe(parity)[0]

    def own(self) -> Range:
        """Cells that this block updates at level 1, the rim beside them included."""
        starts = self.cut.starts
        return -FAR if self.is_first else starts[self.number], FAR if self.is_last else starts[self.number + 1]

    def bounds(self) -> tuple[Bound, Bound]:
        """What this block updates at each level."""
        low, high = self.own()
        slope = -self.cut.reach
        return (
            Bound(-FAR) if self.is_first else Bound(low - slope, slope),
            Bound(FAR) if self.is_last else Bound(high - slope, slope),
        )

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
) -> SkewedCut:
    """Blocks of `size` cells each at level 1 (0: one block), the first one from cell `first` on.

    The first block has `lead` cells more. It has no fringe below, so with up to reach (levels - 1) of them its frame
    is no larger than those of the others.
    """
    further = range(first + size + lead, extent - first, size) if size else ()
    return SkewedCut(extent, reach, levels, (first, *further), group, joint)
