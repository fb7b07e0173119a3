"""Make grids of one to three axes and states of several fields, and compute steps of the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle import advance_fields
from outcrop.language.boundary import as_boundary
from outcrop.language.stencil import PREVIOUS, Stencil

Cells: TypeAlias = NDArray[Any]
State: TypeAlias = dict[str, Cells]


def grid_of(stencil: Stencil, extent: int, length: int | None = None) -> tuple[int, int, int]:
    """Return a shape with `length` cells along x and `extent` cells along each other axis of the stencil."""
    nz, ny = {1: (1, 1), 2: (extent, 1), 3: (extent, extent)}[stencil.ndim]
    return nz, ny, length or extent


def zeros(stencil: Stencil, shape: tuple[int, int, int], dtype: str = "float64") -> State:
    """Return a state of zeros: each field, and the previous values that a step needs."""
    state: State = {}
    for field, storage in zip(stencil.fields, stencil.storage, strict=True):
        state[field.name] = np.zeros(shape, dtype)
        if storage.history == 2:
            state[field.name + PREVIOUS] = np.zeros(shape, dtype)
    return state


def noise(stencil: Stencil, shape: tuple[int, int, int], known: Mapping[str, float], seed: int = 1) -> State:
    """Return values for each field. A field in `known` has the value in `known`. All other fields have random values
    with mean 0. The previous values equal the newest values.
    """
    rng = np.random.default_rng(seed)
    state = zeros(stencil, shape)
    for field in stencil.fields:
        name = field.name
        state[name] = np.full(shape, float(known[name])) if name in known else rng.standard_normal(shape)
        if name + PREVIOUS in state:
            state[name + PREVIOUS] = state[name].copy()
    return state


def run(
    stencil: Stencil, state: State, steps: int, values: Mapping[str, float] | None = None, boundary: str = "periodic"
) -> State:
    """Return the state after `steps` steps of the oracle."""
    return advance_fields(stencil, state, values or {}, steps, as_boundary(boundary))


def along(shape: tuple[int, int, int], axis: str = "x") -> Cells:
    """Return the number of each cell along an axis."""
    place = "zyx".index(axis)
    numbers = np.arange(shape[place], dtype=float).reshape([-1 if one == place else 1 for one in range(3)])
    return np.broadcast_to(numbers, shape).copy()


def order_between(coarse: float, fine: float) -> float:
    """Return the order of convergence from two errors. The second grid has half the spacing of the first grid."""
    return float(np.log2(coarse / fine))
