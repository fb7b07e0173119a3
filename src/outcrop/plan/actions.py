"""The instructions of a plan.

Each is small, frozen and means the same to the validator, the rehearsal, the cost model and the executor. Planes
are half open ranges. An action is about all fields at once: each has a ring for its first copy, and maybe one for a
second copy, with which it takes turns. Of a single field updated in one stage the first one holds levels 0, 2, ...,
the second one levels 1, 3, ... Plane z lies in slot z + shift modulo the ring's size. A slot holds the frame of its
plane: all of it, or the part that the block at hand needs.

Arrays on disk:  source   generation g
                 target   generation g + 1; meanwhile also unfinished levels of the last level's parity
                 statics  fields that nothing updates
                 other    unfinished levels of the other parity; its content does not outlive the pass
                 faces    rows between two blocks in y, of both copies; neither does this
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from outcrop.plan.geometry import EVERY_CELL, EVERYTHING, FAR, Cut, Region

Array: TypeAlias = Literal["source", "target", "statics", "other", "faces"]


@dataclass(frozen=True, slots=True)
class Block:
    """What follows is about the block whose slots hold the cells `frame` of their planes; what a slot holds of another
    block is of no use to it unless a Carry moves it.

    `own` in planes own_z0 <= z < own_z1 are the cells whose checksums this block accounts for as it updates them. Equal
    Blocks are one and the same: blocks whose planes are shifted into slots of their own may take turns.
    """

    frame: Cut
    own_z0: int = -FAR
    own_z1: int = FAR
    own: Cut = EVERY_CELL
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Carry:
    """Move the cells `cut` of planes z0 <= z < z1 in the rings of first (even `level`) or second copies from where the
    former block's frame has them to where this one's does."""

    z0: int
    z1: int
    cut: Cut
    level: int


@dataclass(frozen=True, slots=True)
class Read:
    """Read the cells `cut` of planes z0 <= z < z1 from an array into its ring; from what a pass keeps for itself into
    those of first (even `level`) or second copies.

    From source and statics, the checksum comes along with a plane's last cell.
    """

    z0: int
    z1: int
    cut: Cut
    array: Array = "source"
    level: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy what is rim of the cells `cut` of planes z0 <= z < z1 from first to second copies: all of them where the
    plane belongs to the rim in z, else what belongs to the rim in y. The checksums of `own` cells are taken with it."""

    z0: int
    z1: int
    cut: Cut
    own: Cut = EVERY_CELL


@dataclass(frozen=True, slots=True)
class Update:
    """Update levels 1 .. levels of the slab zeta0 <= zeta < zeta1, where zeta = z + skew_z * (level - 1), as far as
    `region` goes."""

    zeta0: int
    zeta1: int
    levels: int
    region: Region = EVERYTHING


@dataclass(frozen=True, slots=True)
class Write:
    """Write the cells `cut` of planes z0 <= z < z1 to an array: to the target what is newest, and of fields of which
    the state has two values the one before; to the others from the rings of first (even `level`) or second copies.

    To the target, the checksum goes along with a plane's last cell.
    """

    z0: int
    z1: int
    level: int
    cut: Cut
    array: Array = "target"


@dataclass(frozen=True, slots=True)
class Commit:
    """Wait until everything is written and flush it: the target now holds the next generation."""


Action: TypeAlias = Block | Carry | Read | Copy | Update | Write | Commit
