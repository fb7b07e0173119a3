"""Damping values of an absorbing layer, plane by plane."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcrop.errors import InputError

SIDES = ("z0", "z1", "y0", "y1", "x0", "x1")
"""The first and the last cells along each axis."""


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
    """The read-only field `damp` of `acoustic(sponge=True)`, in 1/s, as a callable: planes(z0, z1).

    The planes have the shape (z1 - z0, *shape[1:]) and are made when asked for; never is the whole array in memory.
    From 0 at the inner edge of a layer of `width` cells, damp grows with the square of the depth to

        3 velocity ln(1/reflection) / (width spacing)

    at its outer edge. There and back along an axis at `velocity` (m/s; take the largest) a wave would be left with
    the part `reflection`. In truth 1 % comes back of waves half as long as the layer is wide, and 6 % of those as long
    as that: the layer reflects long waves by itself, so make it wider rather than stronger. `spacing` is in m. Where
    layers meet, the larger value holds.

    `sides` are those that absorb: on a grid of shape (nz, ny, nx) all six, or for instance all but "z0" below a free
    surface. Grids of two axes, as shapes of two numbers or with ny = 1, have z and x; axes of one cell never absorb.
    Raises InputError for a layer that does not fit.

    Source: quadratic profile as in F. Collino and C. Tsogka, Geophysics 66, 294, 2001, applied to the damping term of
    J. Sochacki et al., Geophysics 52, 60, 1987.
    """
    _check(shape, width, velocity, spacing, reflection, sides)
    largest = 3 * velocity * math.log(1 / reflection) / (width * spacing)
    names = "zyx" if len(shape) == 3 else "zx"
    profiles = [
        _profile(extent, width, f"{axis}0" in sides and extent > 1, f"{axis}1" in sides and extent > 1) * largest
        for axis, extent in zip(names, shape, strict=True)
    ]
    plane = profiles[-1] if len(shape) == 2 else np.maximum(profiles[1][:, None], profiles[2][None, :])

    def planes(z0: int, z1: int) -> NDArray[Any]:
        along_z = profiles[0][z0:z1].reshape(-1, *(1,) * plane.ndim)
        return np.maximum(along_z, plane[None]).astype(dtype)

    return planes


def _profile(extent: int, width: int, low: bool, high: bool) -> NDArray[np.float64]:
    """The square of the depth in the layers on both sides, as a part of their width; cell centres."""
    place = np.arange(extent) + 0.5
    depth = np.zeros(extent)
    if low:
        depth = np.maximum(depth, 1 - place / width)
    if high:
        depth = np.maximum(depth, 1 - (extent - place) / width)
    squared: NDArray[np.float64] = depth**2
    return squared


def _check(
    shape: Sequence[int], width: int, velocity: float, spacing: float, reflection: float, sides: Collection[str]
) -> None:
    if len(shape) not in (2, 3):
        raise InputError(f"sponge: shape {tuple(shape)} must have two or three sizes")
    for side in sides:
        if side not in SIDES:
            raise InputError(f"sponge: side {side!r} is unknown; there are {', '.join(SIDES)}")
    for name, value in (("width", width), ("velocity", velocity), ("spacing", spacing)):
        if not value > 0:
            raise InputError(f"sponge: {name} {value} must be above 0")
    if not 0 < reflection < 1:
        raise InputError(f"sponge: reflection {reflection} must lie between 0 and 1")
    names = "zyx" if len(shape) == 3 else "zx"
    for axis, extent in zip(names, shape, strict=True):
        layers = sum(side[0] == axis for side in sides)
        if extent > 1 and layers * width > extent:
            raise InputError(f"sponge: {layers} layers of width {width} do not fit the {extent} cells along {axis}")
