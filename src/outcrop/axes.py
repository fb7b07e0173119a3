"""The names, the number and the order of the axes of a grid.

The engine uses three axes for every grid. The engine treats a grid of shape (ny, nx) as (ny, 1, nx), so that each row
is streamed as one plane. The engine treats a grid of shape (nx,) as (1, 1, nx), which is a single plane. Users, files
and Zarr metadata use only the own axes of a grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

Shape: TypeAlias = tuple[int, ...]
"""The number of cells along each of the grid's own axes."""
GridShape: TypeAlias = tuple[int, int, int]
"""The number of cells along each of the engine's axes z, y and x."""

NAMES: dict[int, tuple[str, ...]] = {1: ("x",), 2: ("y", "x"), 3: ("z", "y", "x")}
"""For each number of axes of a grid, the names of the axes."""

PLACES: dict[int, tuple[int, ...]] = {1: (2,), 2: (0, 2), 3: (0, 1, 2)}
"""For each number of axes of a grid, the positions of these axes among the engine's axes (z, y, x)."""

ORDERS = {1: "(nx,)", 2: "(ny, nx)", 3: "(nz, ny, nx)"}
"""For each number of axes of a grid, the text that messages use for the shape."""

FIRST_AXIS = {1: "cells", 2: "rows", 3: "planes"}
"""For each number of axes of a grid, the word for the parts into which its first axis divides it."""

T = TypeVar("T")

_COUNTS = {1: "one axis", 2: "two axes", 3: "three axes"}
_OPTIONS = {1: "-n NX", 2: "-n NX NY", 3: "-n NX NY NZ"}


def inside(values: Sequence[T], missing: T) -> tuple[T, T, T]:
    """Return one value for each of the engine's axes. The grid's own axes get the values in `values`, and the engine's
    other axes get `missing`."""
    found = [missing] * 3
    for place, value in zip(PLACES[len(values)], values, strict=True):
        found[place] = value
    z, y, x = found
    return z, y, x


def grid_shape(shape: Shape) -> GridShape:
    """Return the shape (nz, ny, nx) that the engine uses for a grid of one to three axes."""
    return inside(shape, 1)


def x_first(values: Sequence[T], names: Sequence[str]) -> tuple[T, ...]:
    """Return the values of a grid's own axes in the order in which sizes are printed: x comes first. `names` are the
    names of the axes. Outcrop's axes end with x. Axes with Devito's names keep Devito's order, which begins with x."""
    return tuple(reversed(values)) if tuple(names) == NAMES[len(values)] else tuple(values)


def order_text(ndim: int, names: Sequence[str] = ()) -> str:
    """Return the text for the order of a shape, such as "(nz, ny, nx)". `names` are the names of the axes, if they are
    not Outcrop's names."""
    return f"({', '.join(f'n{name}' for name in names)})" if len(names) > 1 else ORDERS[ndim]


def axes_text(ndim: int, names: Sequence[str] = ()) -> str:
    return f"{_COUNTS[ndim]} {order_text(ndim, names)}"


def option_text(ndim: int) -> str:
    return _OPTIONS[ndim]


def size_text(shape: Shape) -> str:
    """Return the option `-n` for a shape. For example, the shape (10, 12, 20) gives "-n 20 12 10"."""
    return f"-n {' '.join(map(str, reversed(shape)))}"
