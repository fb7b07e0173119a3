"""This module defines the actions of a plan, and the parts of the grid to which actions apply.

Actions are small immutable objects. An action has the same meaning for the validator, the cost model, the executor and
the rehearsal (tests/rehearsal.py). All ranges are half open. The coordinate y counts rows. The coordinate x counts the
cells of a row, including its padding. Because of the padding, x0 and x1 can always be multiples of 64 bytes. An action
applies to all fields.

The window has one ring of slots for the first copy of each field. If a field has two copies, the window has another
ring for the second copy. Updates write the two copies alternately. For example, in a run with one field and one stage,
the first copy holds the levels 0, 2, ..., and the second copy holds the levels 1, 3, ... Plane z uses slot (z + shift)
modulo the number of slots of the ring. A slot holds the part of its plane that the current block needs. The part of a
plane that a slot holds is called the frame. The frame can be the whole plane.

A pass uses the following arrays on disk. The arrays `other`, `fringes` and `recomputed` are discarded when the pass
ends:

    `source`      Generation g of the updated fields.
    `target`      Generation g + 1 of the updated fields. During the pass, `target` also holds unfinished levels of the
                  same parity as the last level.
    `statics`     The static fields, which no stage updates.
    `other`       Unfinished levels whose parity differs from the parity of the last level.
    `fringes`     Both copies of the rows between two blocks in y.
    `recomputed`  Rows between two blocks in y, of the fields that the pass computes again.
    `history`     States of a forward run (history.py). A pass only reads these arrays.

If the grid is divided among ranks, a rank exchanges rows with its neighbours. Rows are counted from the first row of
the rank. The rank's own rows are 0 <= y < ny. Rows of the lower neighbour have y < 0, and rows of the upper neighbour
have y >= ny. If the grid is also divided along z, planes are counted from the first plane of the rank. Planes of the
neighbour below have z < 0, and planes of the neighbour above have z >= nz. Four more arrays stand for the connections
to the neighbours:

    `faces`         Rows or planes of the updated fields at level 0.
    `static_faces`  Rows or planes of the static fields.
    `stairs`        Rows of the fields that one level has written. A rank sends the rows of `stairs` to its lower
                    neighbour.
    `finished`      Rows of the updated fields at the last level. A rank sends the rows of `finished` to its upper
                    neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FAR = 1 << 40
"""A coordinate that lies outside every grid."""

Array: TypeAlias = Literal[
    "source", "target", "statics", "other", "fringes", "recomputed", "history", "faces", "static_faces", "stairs",
    "finished",
]  # fmt: skip
FACES: frozenset[Array] = frozenset({"faces", "static_faces", "stairs", "finished"})
"""The arrays that stand for the connections to neighbouring ranks."""
LOW, HIGH, BELOW, ABOVE = SIDES = range(4)
"""The sides of a rank. The lower neighbour is beyond row 0, and the upper neighbour is beyond the last row. The
neighbour below is beyond plane 0, and the neighbour above is beyond the last plane. The side opposite to side number
`side` has the number `side ^ 1`."""


def round_up(count: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is not below `count`."""
    return -(-count // multiple) * multiple


def round_down(count: int, multiple: int) -> int:
    """Return the largest multiple of `multiple` that is not above `count`."""
    return count // multiple * multiple


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle of a plane: the rows y0 <= y < y1, and in each row the cells x0 <= x < x1."""

    y0: int
    y1: int
    x0: int
    x1: int

    @property
    def cells(self) -> int:
        return max(0, self.y1 - self.y0) * max(0, self.x1 - self.x0)


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of a region. The bound depends linearly on the level: `at_zero + slope * level`."""

    at_zero: int
    slope: int = 0

    def at(self, level: int) -> int:
        return self.at_zero + self.slope * level


@dataclass(frozen=True, slots=True)
class UpdateRegion:
    """The cells of the grid that a block updates at each level. At each level, a cell is in the region if `z_low <= z <
    z_high`, `y_low <= y < y_high` and `x_low <= x < x_high`."""

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
    """Start a block. The actions that follow a Block action apply to the new block. Each slot of the block holds the
    cells `frame` of a plane. At the start of a block, a slot can still hold cells of another block. The new block can
    use cells of another block only after the action Carry has moved these cells.

    The updates of a block also compute the checksums of the cells `own` in the planes `own_z0 <= z < own_z1`. If two
    Block actions of a plan are equal, they start the same block. Blocks with different values of `shift` use different
    slots for a plane, so a plan can alternate between these blocks.

    If the range `own_z0` to `own_z1` is empty, the block only sends planes to neighbours along z. The actions of a
    block that only sends read whole planes from disk, send the planes, and check the planes.
    """

    frame: Rectangle
    own_z0: int = -FAR
    own_z1: int = FAR
    own: Rectangle = EVERY_CELL
    shift: int = 0

    @property
    def only_sends(self) -> bool:
        """True if the block only sends planes to neighbours along z."""
        return self.own_z0 >= self.own_z1


@dataclass(frozen=True, slots=True)
class Read:
    """Read the cells `area` of planes z0 <= z < z1 from an array into the rings of the array's fields. If the array is
    `other` or `fringes`, an even `level` selects the rings of first copies, and an odd `level` selects the rings of
    second copies. If the array is `history`, `level` is the position of the field among the history fields
    (`FieldPlan.is_history`). If the array is `recomputed`, `level` is the position of the field in `Problem.computed`.

    If the array is `source` or `statics`, the read of the last cell of a plane also reads the plane's checksum.

    If the array is `faces` or `static_faces`, the action receives the cells from a neighbour, and `level` is the side
    of this neighbour. From the sides BELOW and ABOVE, the action receives whole planes. The array `faces` stands for
    all arrays of the state, and the array `static_faces` stands for all static arrays. One message contains all rows of
    the area in one plane of one array. A rank sends its messages in the order of its actions.

    If the array is `stairs`, the action receives the cells from the upper neighbour. The cells belong to the fields
    that the level `level` has written. The action stores the cells in the rings that hold the level `level`. If `level`
    is 0, the cells belong to all arrays of the state. If the array is `finished`, the action receives cells of all
    arrays of the state from the lower neighbour. The received cells are at the last level of the pass, and `level` is
    the number of this level.
    """

    z0: int
    z1: int
    area: Rectangle
    array: Array = "source"
    level: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy cells of the rim from the first copies to the second copies, in the area `area` of planes z0 <= z < z1. If a
    plane belongs to the rim in z, the whole plane is copied. In any other plane, only the rows of the rim in y are
    copied. The action also computes the checksums of the copied cells that are in `own`.

    If `recomputed` is not negative, it is the position of a field in `Problem.recomputed`. The action then copies the
    rim from the field with the number `FieldPlan.follows` to this field, and computes no checksums."""

    z0: int
    z1: int
    area: Rectangle
    own: Rectangle = EVERY_CELL
    recomputed: int = -1


@dataclass(frozen=True, slots=True)
class Update:
    """Update the levels 1 to `levels` of a slab within `region`. At each level, the slab contains the planes with zeta0
    <= z + skew_z * (level - 1) < zeta1."""

    zeta0: int
    zeta1: int
    levels: int
    region: UpdateRegion = EVERYTHING


@dataclass(frozen=True, slots=True)
class Write:
    """Write the cells `area` of planes z0 <= z < z1 to an array. If the array is `target`, write the newest value of
    each field. If the state includes the previous value of a field, also write this previous value. If the array is
    `other` or `fringes`, an even `level` selects the rings of first copies, and an odd `level` selects the rings of
    second copies. If the array is `recomputed`, `level` is the position of the field in `Problem.computed`.

    The write of the last cell of a plane to the target also writes the plane's checksum. If the first block of a rank
    has the highest rows (`Problem.block_order`), the checksum is written with the first cell instead.

    If the array is `faces` or `static_faces`, the action sends the cells to a neighbour, and `level` is the side of
    this neighbour. The sent cells must still have the values that were read from the source or from the static fields.
    If the array is `stairs`, the action sends cells with the values of the level `level` to the lower neighbour. If the
    array is `finished`, the action sends cells with the values of the last level of the pass to the upper neighbour.
    """

    z0: int
    z1: int
    level: int
    area: Rectangle
    array: Array = "target"


@dataclass(frozen=True, slots=True)
class Check:
    """Add the cells `area` of planes z0 <= z < z1 to the checksums of an array. A Check is needed for cells of a rank
    that another rank updates. If the array is `source`, the cells have the values that were read from the source. If
    the array is `source`, the action also adds cells of the static fields to the checksums of the static fields. If the
    array is `target`, the cells are at the last level.

    In a block that only sends, the action checks whole planes that were read from the array `source` or `statics`. The
    action immediately compares the checksums of the checked planes with the stored checksums."""

    z0: int
    z1: int
    area: Rectangle
    array: Array


@dataclass(frozen=True, slots=True)
class Commit:
    """Wait until all writes have ended, and flush the written data. After a Commit, the target holds the next
    generation."""


@dataclass(frozen=True, slots=True)
class Carry:
    """Move the cells `area` of planes z0 <= z < z1 from the frame of the previous block into the frame of this block.
    An even `level` selects the rings of first copies, and an odd `level` selects the rings of second copies. Only
    published schemes (schemes/literature) use Carry."""

    z0: int
    z1: int
    area: Rectangle
    level: int


Action: TypeAlias = Block | Read | Copy | Update | Write | Check | Commit | Carry


def side_of(action: Read | Write) -> int:
    """Return the side of the neighbour with which an action exchanges rows or planes. The array of the action is one of
    FACES."""
    is_sent = isinstance(action, Write)
    match action.array:
        case "stairs":
            return LOW if is_sent else HIGH
        case "finished":
            return HIGH if is_sent else LOW
    return action.level
