"""The actions of a plan, and the parts of the grid that they name.

An action is small and frozen. It means the same to the validator, the rehearsal, the cost model and the executor.
Ranges are half open. y counts rows. x counts cells of a row with its padding, so that x0 and x1 can be multiples of 64
bytes. An action applies to all fields at once.

The window has one ring of slots for the first copy of each field, and one for the second copy of each field with two.
Updates write the two copies alternately: a single field that is updated in one stage has levels 0, 2, ... in the first
copy and levels 1, 3, ... in the second. Plane z lies in slot z + shift modulo the size of its ring. A slot holds the
frame of its plane: the whole plane, or the part that the current block needs.

Arrays on disk:  source   generation g
                 target   generation g + 1; during the pass also unfinished levels of the last level's parity
                 statics  fields that nothing updates
                 other    unfinished levels of the other parity; discarded when the pass ends
                 fringes  rows between two blocks in y, of both copies; discarded when the pass ends
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FAR = 1 << 40
"""A coordinate beyond every grid."""

Array: TypeAlias = Literal["source", "target", "statics", "other", "fringes"]


def round_up(count: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `count`."""
    return -(-count // multiple) * multiple


def round_down(count: int, multiple: int) -> int:
    """The largest multiple of `multiple` that is not above `count`."""
    return count // multiple * multiple


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Rows y0 <= y < y1 and cells x0 <= x < x1 of a plane."""

    y0: int
    y1: int
    x0: int
    x1: int

    @property
    def cells(self) -> int:
        return max(0, self.y1 - self.y0) * max(0, self.x1 - self.x0)


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound that moves with the level: at_zero + slope * level."""

    at_zero: int
    slope: int = 0

    def at(self, level: int) -> int:
        return self.at_zero + self.slope * level


@dataclass(frozen=True, slots=True)
class UpdateRegion:
    """The cells that a block updates at each level: low <= z < high, likewise along y and x, within the grid."""

    z_low: Bound = Bound(-FAR)
    z_high: Bound = Bound(FAR)
    y_low: Bound = Bound(-FAR)
    y_high: Bound = Bound(FAR)
    x_low: Bound = Bound(-FAR)
    x_high: Bound = Bound(FAR)


EVERYTHING = UpdateRegion()
EVERY_CELL = Rectangle(-FAR, FAR, -FAR, FAR)


@dataclass(frozen=True, slots=True)
class Block:
    """Start a block. The actions that follow apply to it. Its slots hold the cells `frame` of their planes. A block
    cannot use cells that another block has left in a slot, unless a Carry moves them.

    The block computes the checksums of the cells `own` in planes own_z0 <= z < own_z1 as it updates them. Equal Blocks
    are the same block: blocks with different `shift` have different slots, so the plan may alternate between them.
    """

    frame: Rectangle
    own_z0: int = -FAR
    own_z1: int = FAR
    own: Rectangle = EVERY_CELL
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """Read the cells `area` of planes z0 <= z < z1 from an array into its ring. From `other` and `fringes`, read into
    the rings of first (even `level`) or second copies.

    From source and statics, the read that includes the last cell of a plane also reads its checksum.
    """

    z0: int
    z1: int
    area: Rectangle
    array: Array = "source"
    level: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy the rim within the cells `area` of planes z0 <= z < z1 from first to second copies. The rim is the whole
    plane if the plane belongs to the rim in z, else its rows of the rim in y. Compute the checksums of `own` cells."""

    z0: int
    z1: int
    area: Rectangle
    own: Rectangle = EVERY_CELL


@dataclass(frozen=True, slots=True)
class Update:
    """Update levels 1 .. levels of the slab zeta0 <= z + skew_z * (level - 1) < zeta1 within `region`."""

    zeta0: int
    zeta1: int
    levels: int
    region: UpdateRegion = EVERYTHING


@dataclass(frozen=True, slots=True)
class Write:
    """Write the cells `area` of planes z0 <= z < z1 to an array. To the target, write the newest value of each field,
    and its previous value if that is part of the state. To the other arrays, write the rings of first (even `level`) or
    second copies.

    The write to the target that includes the last cell of a plane also writes its checksum.
    """

    z0: int
    z1: int
    level: int
    area: Rectangle
    array: Array = "target"


@dataclass(frozen=True, slots=True)
class Commit:
    """Wait until everything is written, and flush it. The target then holds the next generation."""


@dataclass(frozen=True, slots=True)
class Carry:
    """Move the cells `area` of planes z0 <= z < z1, in the rings of first (even `level`) or second copies, from their
    place in the frame of the previous block to their place in this one. Only schemes of the literature use it."""

    z0: int
    z1: int
    area: Rectangle
    level: int


Action: TypeAlias = Block | Read | Copy | Update | Write | Commit | Carry
