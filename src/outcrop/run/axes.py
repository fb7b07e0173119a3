"""Grids of one, two and three axes.

Inside, every grid has three: one of shape (ny, nx) is (ny, 1, nx), so that its rows are streamed as planes, and one of
shape (nx,) is (1, 1, nx), a single plane. Users, files and Zarr see the stencil's own axes.
"""

from __future__ import annotations

from typing import TypeAlias

from outcrop.errors import InputError
from outcrop.language.boundary import Boundary

Shape: TypeAlias = tuple[int, ...]
"""Cells along a grid's own axes."""
GridShape: TypeAlias = tuple[int, int, int]
"""Cells along z, y and x as the engine counts them."""

NAMES: dict[int, tuple[str, ...]] = {1: ("x",), 2: ("y", "x"), 3: ("z", "y", "x")}
"""Names of the axes of grids of one, two and three."""

PLACES: dict[int, tuple[int, ...]] = {1: (2,), 2: (0, 2), 3: (0, 1, 2)}
"""Which of the three axes inside those axes are."""

ORDERS = {1: "(nx,)", 2: "(ny, nx)", 3: "(nz, ny, nx)"}
"""Shapes as messages write them."""

_COUNTS = {1: "one axis", 2: "two axes", 3: "three axes"}
_OPTIONS = {1: "-n NX", 2: "-n NX NY", 3: "-n NX NY NZ"}
_FIXED = ("fixed", "fixed")


def grid_shape(shape: Shape) -> GridShape:
    """(nz, ny, nx) of a grid of one to three axes."""
    sizes = [1, 1, 1]
    for place, size in zip(PLACES[len(shape)], shape, strict=True):
        sizes[place] = size
    nz, ny, nx = sizes
    return nz, ny, nx


def axes_text(ndim: int) -> str:
    """How many axes, and their order, in words."""
    return f"{_COUNTS[ndim]} {ORDERS[ndim]}"


def option_text(ndim: int) -> str:
    """How `-n` is written for that many axes."""
    return _OPTIONS[ndim]


def size_text(shape: Shape) -> str:
    """The `-n` of a shape: "-n 20 12 10" of (10, 12, 20)."""
    return f"-n {' '.join(map(str, reversed(shape)))}"


def boundary_on_grid(boundary: Boundary, ndim: int) -> Boundary:
    """`boundary`, which names a grid's own axes, on the three axes inside; those that the grid has not are fixed.

    Of two axes the first may be called z as well as y. Raises InputError for sides of an axis there is not.
    """
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


def boundary_text(boundary: Boundary, ndim: int) -> str:
    """What `boundary_on_grid` gave, as it is written for the grid's own axes."""
    own = {1: (boundary.x,) * 3, 2: (boundary.z, boundary.z, boundary.x), 3: boundary.sides}[ndim]
    text = str(Boundary(*own))
    return ",".join(text.split(",")[-ndim:])
