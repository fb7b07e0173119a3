"""The axes of grids of one, two and three.

Inside, every grid has three: one of shape (ny, nx) is (ny, 1, nx), so that its rows are streamed as planes, and one of
shape (nx,) is (1, 1, nx), a single plane. Users, files and Zarr see the stencil's own axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

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


def inside(values: Sequence[int], missing: int) -> tuple[int, int, int]:
    """One number for each of the three axes inside, from those of a grid's own axes; `missing` for the others."""
    found = [missing] * 3
    for place, value in zip(PLACES[len(values)], values, strict=True):
        found[place] = value
    z, y, x = found
    return z, y, x


def grid_shape(shape: Shape) -> GridShape:
    """(nz, ny, nx) of a grid of one to three axes."""
    return inside(shape, 1)


def axes_text(ndim: int) -> str:
    """How many axes, and their order, in words."""
    return f"{_COUNTS[ndim]} {ORDERS[ndim]}"


def option_text(ndim: int) -> str:
    """How `-n` is written for that many axes."""
    return _OPTIONS[ndim]


def size_text(shape: Shape) -> str:
    """The `-n` of a shape: "-n 20 12 10" of (10, 12, 20)."""
    return f"-n {' '.join(map(str, reversed(shape)))}"
