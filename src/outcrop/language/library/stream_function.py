"""Potential flow through a box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcrop.errors import InputError, shown
from outcrop.language.library.differences import as_real_dtype, as_size, as_sizes, both_sides
from outcrop.language.schema import as_finite
from outcrop.language.stencil import Stencil
from outcrop.language.symbols import Field


def stream_function() -> Stencil:
    """Laplace's equation psi_yy + psi_xx = 0 in 2-D by Jacobi's iteration: psi' = (sum of the four neighbours) / 4.

    psi (m^2/s) is the stream function of a flow without friction or vorticity: its contours are stream lines, its
    differences fluxes. Values on a fixed rim are the boundary condition (`inlet_outlet`). No parameters; the iteration
    converges on any grid. Errors with k half waves per side of n cells are left with the part cos(pi k/n) per step.
    Source: C. G. J. Jacobi, Astron. Nachr. 22, 297, 1845; as a case: A. Jackson, EPCC's computational fluid dynamics
    exercise.
    """
    psi = Field("psi")
    near = both_sides(psi, 0, 1, 2) + both_sides(psi, 1, 1, 2)
    return Stencil("stream_function", {psi: near / 4}, "psi' = (sum of the 4 neighbours)/4")


def inlet_outlet(
    shape: tuple[int, int],
    inlet: tuple[int, int],
    outlet: tuple[int, int],
    *,
    flux: float = 1.0,
    dtype: DTypeLike = np.float64,
) -> Callable[[int, int], NDArray[Any]]:
    """Initial values of `stream_function` for a box that is open at two places, as a callable: planes(z0, z1).

    `shape` is (nz, nx), the planes have shape (z1 - z0, nx). The flow of `flux` m^2/s in all enters through the first
    row, between the cells `inlet` = (first, last) along x, and leaves through the last column, between the cells
    `outlet` along z. psi is constant along walls, changes linearly over an opening, and is 0 inside. Raises InputError
    for openings that are empty or leave the side.
    """
    nz, nx = as_sizes("inlet_outlet", shape, 2, least=2)
    flux, kind = as_finite(flux, "inlet_outlet: flux"), as_real_dtype("inlet_outlet", dtype)
    inlet, outlet = _as_opening("inlet", inlet), _as_opening("outlet", outlet)
    for name, (first, last), extent in (("inlet", inlet, nx), ("outlet", outlet, nz)):
        if not 0 <= first < last <= extent - 1:
            raise InputError(f"inlet_outlet: {name} {(first, last)} must ascend and lie within 0 and {extent - 1}")
    # From the wall left of the inlet (psi = 0), across it, along the corner, and back down across the outlet.
    top = flux * np.interp(np.arange(nx), inlet, (0.0, 1.0))
    right = flux * np.interp(np.arange(nz), outlet, (1.0, 0.0))

    def planes(z0: int, z1: int) -> NDArray[Any]:
        rows = np.zeros((z1 - z0, nx))
        rows[:, -1] = right[z0:z1]
        if z0 == 0 and z1 > 0:
            rows[0] = top
        return rows.astype(kind)

    return planes


def _as_opening(name: str, ends: Sequence[int]) -> tuple[int, int]:
    """The first and the last cell of an opening."""
    if not isinstance(ends, Sequence) or isinstance(ends, str) or len(ends) != 2:
        raise InputError(f"inlet_outlet: {name} {shown(ends)} must be two cells, the first and the last")
    return as_size(ends[0], f"inlet_outlet: {name}", least=0), as_size(ends[1], f"inlet_outlet: {name}", least=0)
