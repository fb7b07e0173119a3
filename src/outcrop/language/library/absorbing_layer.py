"""Compute the damping field of an absorbing layer, plane by plane."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcrop.axes import NAMES
from outcrop.errors import InputError, shown
from outcrop.language.library.differences import as_real_dtype, as_size, as_sizes
from outcrop.language.schema import as_finite

SIDES = ("z0", "z1", "y0", "y1", "x0", "x1")
"""The names of the low and the high side of each axis."""


def sponge(
    shape: Sequence[int],
    width: int,
    *,
    velocity: float,
    spacing: float,
    reflection: float = 1e-3,
    sides: Collection[str] = SIDES,
    dtype: DTypeLike = np.float32,
) -> Callable[[int, int], NDArray[Any]]:
    """Return a function planes(z0, z1) that computes the read-only field `damp` of `acoustic(sponge=True)`, in 1/s.

    The planes have the shape (z1 - z0, *shape[1:]). The function computes them when it is called, so the whole array is
    never in memory. In a layer of `width` cells, damp is 0 at the inner edge. damp grows with the square of the depth.
    At the outer edge, damp is

        3 velocity ln(1/reflection) / (width spacing)

    A wave that crosses the layer twice along an axis at `velocity` keeps the fraction `reflection` of its amplitude.
    Give the largest velocity of the medium, in m/s. In addition, the layer itself reflects long waves. The reflected
    amplitude is 1 % for waves that are half as long as the width of the layer, and 6 % for waves that are as long as
    the width. To absorb more, make the layer wider, not stronger. `spacing` is in m. Where layers overlap, the larger
    value is used.

    `sides` are the absorbing sides. By default, all six sides of a grid of shape (nz, ny, nx) absorb. For a free
    surface at the low side of z, leave out "z0". A shape of two numbers has the axes y and x, and the first axis may
    also be called z. A shape of one number has the axis x. Axes of one cell never absorb. Raises InputError if a layer
    is wider than the grid, or if `sides` names an axis that the shape does not have.

    Source: quadratic profile as in F. Collino and C. Tsogka, Geophysics 66, 294, 2001, applied to the damping term of
    J. Sochacki et al., Geophysics 52, 60, 1987.
    """
    shape, width = as_sizes("sponge", shape, 3), as_size(width, "sponge: width")
    velocity, spacing = as_finite(velocity, "sponge: velocity"), as_finite(spacing, "sponge: spacing")
    reflection = as_finite(reflection, "sponge: reflection")
    kind = as_real_dtype("sponge", dtype)
    absorbing = _absorbing(shape, sides)
    for name, value in (("velocity", velocity), ("spacing", spacing)):
        if not value > 0:
            raise InputError(f"sponge: {name} {value} must be above 0")
    if not 0 < reflection < 1:
        raise InputError(f"sponge: reflection {reflection} must lie between 0 and 1")
    for axis, extent, both in zip(NAMES[len(shape)], shape, absorbing, strict=True):
        layers = sum(both)
        if layers * width > extent:
            raise InputError(f"sponge: {layers} layers of width {width} do not fit the {extent} cells along {axis}")
    largest = 3 * velocity * math.log(1 / reflection) / (width * spacing)
    profiles = [_profile(extent, width, *both) * largest for extent, both in zip(shape, absorbing, strict=True)]

    def planes(z0: int, z1: int) -> NDArray[Any]:
        along = [profiles[0][z0:z1], *profiles[1:]]
        return reduce(np.maximum, np.ix_(*along)).astype(kind)

    return planes


def _absorbing(shape: Sequence[int], sides: Collection[str]) -> list[tuple[bool, bool]]:
    """Return for each axis whether its low side absorbs and whether its high side absorbs. Raises InputError for sides
    that do not exist."""
    if not isinstance(sides, Collection) or len(sides) > len(SIDES) or not all(isinstance(one, str) for one in sides):
        raise InputError(f"sponge: sides {shown(sides)} must be some of {', '.join(SIDES)}")
    names = ("zy", "x") if len(shape) == 2 else NAMES[len(shape)]
    there = [side for side in SIDES if any(side[0] in name for name in names)]
    for side in () if tuple(sides) == SIDES else sides:
        if side not in there:
            raise InputError(
                f"sponge: side {shown(side)} is unknown for shape {tuple(shape)}; there are {', '.join(there)}"
            )

    def absorbs(extent: int, name: str, end: str) -> bool:
        return extent > 1 and any(letter + end in sides for letter in name)

    return [(absorbs(extent, name, "0"), absorbs(extent, name, "1")) for extent, name in zip(shape, names, strict=True)]


def _profile(extent: int, width: int, low: bool, high: bool) -> NDArray[np.float64]:
    """Return the square of the relative depth of each cell centre in the layers of one axis. The relative depth is 0 at
    the inner edge and 1 at the outer edge."""
    place = np.arange(extent) + 0.5
    depth = np.zeros(extent)
    if low:
        depth = np.maximum(depth, 1 - place / width)
    if high:
        depth = np.maximum(depth, 1 - (extent - place) / width)
    squared: NDArray[np.float64] = depth**2
    return squared
