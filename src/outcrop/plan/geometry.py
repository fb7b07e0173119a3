"""Parts of the grid: what a transfer moves, and what a block updates at each level.

y counts rows; x counts cells of a row, padding included, so that x0 and x1 of a part can be multiples of 64 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

FAR = 1 << 40
"""Beyond every grid."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows y0 <= y < y1 and cells x0 <= x < x1 of a plane."""

    y0: int
    y1: int
    x0: int
    x1: int

    @property
    def cells(self) -> int:
        """Number of cells."""
        return max(0, self.y1 - self.y0) * max(0, self.x1 - self.x0)


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound that moves with the level: at_zero + slope * level."""

    at_zero: int
    slope: int = 0

    def at(self, level: int) -> int:
        """The bound at a level."""
        return self.at_zero + self.slope * level


@dataclass(frozen=True, slots=True)
class Region:
    """What a block updates at each level: low <= z < high, and so on along y and x, as far as there is grid."""

    z_low: Bound = Bound(-FAR)
    z_high: Bound = Bound(FAR)
    y_low: Bound = Bound(-FAR)
    y_high: Bound = Bound(FAR)
    x_low: Bound = Bound(-FAR)
    x_high: Bound = Bound(FAR)


EVERYTHING = Region()
EVERY_CELL = Cut(-FAR, FAR, -FAR, FAR)


def round_up(count: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `count`."""
    return -(-count // multiple) * multiple


def round_down(count: int, multiple: int) -> int:
    """The largest multiple of `multiple` that is not above `count`."""
    return count // multiple * multiple
