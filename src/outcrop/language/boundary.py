"""Boundaries define the values beyond the sides of the grid.

`fixed`      The rim, which is as thick as the stencil's radius, keeps its initial values.
`mirror`     All cells are updated. The grid is mirrored at the side: cell -1-k, beyond the side, has the value of cell
             k. The gradient at the side is 0.
`periodic`   All cells are updated. Beyond a side, the grid continues with the cells at the opposite side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from outcrop.axes import NAMES
from outcrop.errors import InputError, by_caller, shown

Side: TypeAlias = Literal["fixed", "mirror", "periodic"]
SIDES: tuple[Side, ...] = ("fixed", "mirror", "periodic")
AXES = NAMES[3]
_FIXED = ("fixed", "fixed")
_MAX_TEXT = 200  # characters
_ABSORBING = ("absorb", "abc", "pml", "cpml", "sponge", "damp", "open", "radiat", "transparent", "nonreflect")
"""The beginnings of the words for sides that absorb waves. No boundary does this, so the message names the equations
with absorbing layers."""


@dataclass(frozen=True)
class Boundary:
    """The boundary on both sides of each axis: (low, high). If one side of an axis is periodic, the other side is
    periodic, too."""

    z: tuple[Side, Side] = ("fixed", "fixed")
    y: tuple[Side, Side] = ("fixed", "fixed")
    x: tuple[Side, Side] = ("fixed", "fixed")

    def __post_init__(self) -> None:
        for axis, sides in zip(AXES, self.sides, strict=True):
            if not isinstance(sides, tuple) or len(sides) != 2:
                raise InputError(f"boundary: axis {axis} has {shown(sides)}; it needs a tuple of two sides")
            _pair(axis, sides)

    @property
    def sides(self) -> tuple[tuple[Side, Side], ...]:
        """The boundaries (low, high) along z, y and x."""
        return self.z, self.y, self.x

    def rims(self, radii: tuple[int, int, int]) -> tuple[tuple[int, int], ...]:
        """Return the thickness of the rim, in cells, at the low end and at the high end of each axis. The cells of the
        rim keep their values. `radii` contains the radii of the stencil."""
        return tuple(
            (radius if low == "fixed" else 0, radius if high == "fixed" else 0)
            for radius, (low, high) in zip(radii, self.sides, strict=True)
        )

    def __str__(self) -> str:
        """Return the boundary as text: one word if all sides are equal, otherwise the sides of each axis. `as_boundary`
        can read this text."""
        words = {side for sides in self.sides for side in sides}
        if len(words) == 1:
            return words.pop()
        return ",".join(
            f"{axis}={low}" if low == high else f"{axis}={low}:{high}"
            for axis, (low, high) in zip(AXES, self.sides, strict=True)
        )


def as_boundary(value: object) -> Boundary:
    """Make a Boundary from a word, a text or a mapping. Examples: "x=periodic,z=fixed:mirror", {"x": "periodic", "z":
    ("fixed", "mirror")}.

    Axes that `value` does not name are fixed. Raises InputError for other values. The message lists the possible words.
    """
    if isinstance(value, Boundary):
        return value
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        raise InputError(f"boundary {shown(value)} is too long; there are {', '.join(SIDES)}")
    if isinstance(value, str) and "=" not in value:
        side = _side(value)
        return Boundary((side, side), (side, side), (side, side))
    if isinstance(value, str):
        value = _by_axis(value)
    if not isinstance(value, Mapping):
        raise InputError(
            f"boundary {shown(value)} is neither a word nor sides by axis, such as {shown({'x': 'periodic'})}; "
            f"there are {', '.join(SIDES)}"
        )
    for axis in value:
        if axis not in AXES:
            raise InputError(f"boundary: axis {shown(axis)} is unknown; there are {', '.join(AXES)}")
    return Boundary(**{axis: _pair(axis, sides) for axis, sides in value.items()})


def _by_axis(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for part in text.split(","):
        axis, _, sides = part.partition("=")
        if (axis := axis.strip()) in found:
            raise InputError(f"boundary {shown(text)}: axis {axis} is there twice; write both sides as {axis}=LOW:HIGH")
        found[axis] = tuple(side.strip() for side in sides.split(":"))
    return found


def _pair(axis: str, sides: Any) -> tuple[Side, Side]:
    if isinstance(sides, str) or not isinstance(sides, Sequence):
        sides = (sides,)
    if len(sides) not in (1, 2):
        raise InputError(f"boundary: axis {axis} has {len(sides)} sides; give one word for both, or two")
    pair = _side(sides[0]), _side(sides[-1])
    if pair.count("periodic") == 1:
        raise InputError(f"boundary: axis {axis} must be periodic on both sides, or on none")
    return pair


def _side(word: object) -> Side:
    for side in SIDES:
        if isinstance(word, str) and word == side:
            return side
    message = f"boundary {shown(word)} is not available; there are {', '.join(SIDES)}"
    if isinstance(word, str) and word.lower().startswith(_ABSORBING):
        message += "; to absorb waves near the sides, use " + by_caller(
            "an acoustic stencil whose name ends in _sponge, such as acoustic8_2d_sponge, with --init damp=FILE",
            "oc.stencils.acoustic(sponge=True), and assign oc.stencils.sponge(...) to its field damp",
        )
    raise InputError(message)


def boundary_on_grid(boundary: Boundary, ndim: int) -> Boundary:
    """Return the boundary for the engine, in which every grid has the three axes z, y and x. Axes that the grid does
    not have are fixed. If the grid has two axes, the user can name the first axis z or y. Raises InputError for sides
    of an axis that the grid does not have."""
    if ndim == 2:
        if boundary.y not in (_FIXED, boundary.z) and boundary.z != _FIXED:
            raise InputError(f"boundary {boundary}: a grid of two axes has no z beside y; name y and x")
        return Boundary(z=boundary.z if boundary.y == _FIXED else boundary.y, x=boundary.x)
    if ndim == 1:
        for axis, sides in (("z", boundary.z), ("y", boundary.y)):
            if sides not in (_FIXED, boundary.x):
                raise InputError(f"boundary {boundary}: a grid of one axis has no {axis}; name x")
        return Boundary(x=boundary.x)
    return boundary


def boundary_text(boundary: Boundary, ndim: int, names: Sequence[str] | None = None) -> str:
    """Return the text of a boundary. `boundary` is for the engine's three axes, and the text is for the grid's own
    axes. `names` are the names of these axes, if they have Devito's names."""
    own = {1: (boundary.x,) * 3, 2: (boundary.z, boundary.z, boundary.x), 3: boundary.sides}[ndim]
    parts = str(Boundary(*own)).split(",")[-ndim:]
    if names is None or len(parts) < ndim or "=" not in parts[0]:
        return ",".join(parts)
    return ",".join(f"{name}={part.partition('=')[2]}" for name, part in zip(names, parts, strict=True))


def with_own_names(value: object, names: Sequence[str]) -> object:
    """Return a boundary whose axes are renamed to Outcrop's names z, y and x. `value` is a word, a text or a mapping,
    in which the axes have the names `names`, in the order of the grid. Other values are returned unchanged. Raises
    InputError for unknown axes and wrong sides."""
    if isinstance(value, str):
        if "=" not in value or len(value) > _MAX_TEXT:
            return value
        value = _by_axis(value)
    if not isinstance(value, Mapping):
        return value
    own = dict(zip(names, NAMES[len(names)], strict=True))
    for axis in value:
        if axis not in own:
            raise InputError(f"boundary: axis {shown(axis)} is unknown; there are {', '.join(names)}")
    return {own[axis]: _pair(axis, sides) for axis, sides in value.items()}


FIXED = Boundary()
