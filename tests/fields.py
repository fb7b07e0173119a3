"""What tests of several fields share: grids of one to three axes, states, and steps through the oracle."""

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
    """A shape of `extent` cells along the axes that the stencil has, and of `length` along x."""
    nz, ny = {1: (1, 1), 2: (extent, 1), 3: (extent, extent)}[stencil.ndim]
    return nz, ny, length or extent


def zeros(stencil: Stencil, shape: tuple[int, int, int], dtype: str = "float64") -> State:
    """Every field, with the previous values that a step needs, at 0."""
    state: State = {}
    for field, storage in zip(stencil.fields, stencil.storage, strict=True):
        state[field.name] = np.zeros(shape, dtype)
        if storage.history == 2:
            state[field.name + PREVIOUS] = np.zeros(shape, dtype)
    return state


def noise(stencil: Stencil, shape: tuple[int, int, int], known: Mapping[str, float], seed: int = 1) -> State:
    """Random values of mean 0, the same before; uniform ones for the fields in `known`."""
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
    """The state after some steps."""
    return advance_fields(stencil, state, values or {}, steps, as_boundary(boundary))


def along(shape: tuple[int, int, int], axis: str = "x") -> Cells:
    """The number of each cell along an axis."""
    place = "zyx".index(axis)
    numbers = np.arange(shape[place], dtype=float).reshape([-1 if one == place else 1 for one in range(3)])
    return np.broadcast_to(numbers, shape).copy()


def order_between(coarse: float, fine: float) -> float:
    """The order of convergence that two errors show, the second with half the spacing."""
    return float(np.log2(coarse / fine))
