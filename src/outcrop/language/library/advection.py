"""Transport by a constant velocity."""

from __future__ import annotations

import sympy

from outcrop.language.library.differences import require, spacings, unit
from outcrop.language.stencil import Stencil
from outcrop.language.symbols import Field, Parameter


def advection(ndim: int = 3, order: int = 1, *, equal_spacing: bool = True) -> Stencil:
    """Linear advection u_t + vx u_x + vy u_y + vz u_z = 0 in `ndim` = 1, 2 or 3 dimensions, of `order` 1 or 2.

    Order 1 takes differences upwind (donor cell) along all axes at once, keeps u within its bounds, and is stable
    for a sum of |v| dt / h over the axes <= 1. Order 2 is Lax and Wendroff's scheme along x, then y, then z, a stage
    for each (the velocity is constant, so their order does not matter), stable for |v| dt / h <= 1 along each axis.
    Both are differences of fluxes: on a periodic grid the sum of u does not change.

    Field: u (any unit). Parameters: vx, vy, vz (m/s, of any sign), dt (s), h (m), or dz, dy, dx without
    `equal_spacing`. Source: R. Courant, E. Isaacson, M. Rees, Comm. Pure Appl. Math. 5, 243, 1952; P. Lax and
    B. Wendroff, Comm. Pure Appl. Math. 13, 217, 1960.
    """
    require("advection", "ndim", ndim, (1, 2, 3))
    require("advection", "order", order, (1, 2))
    u, dt, h = Field("u"), Parameter("dt", 0.25), spacings(ndim, equal_spacing, 1.0)
    names = "zyx"[3 - ndim :]
    courant = [Parameter(f"v{name}", 1.0) * dt / one for name, one in zip(names, h, strict=True)]
    change = [_change(u, axis, ndim, order, courant[axis]) for axis in range(ndim)]
    here = u[(0,) * ndim]
    stages = [{u: here + sympy.Add(*change)}] if order == 1 else [{u: here + one} for one in reversed(change)]
    name = f"advection{order}" + ("" if ndim == 3 else f"_{ndim}d")
    return Stencil(name, stages, f"u' = u - dt*(v . grad u), {'upwind' if order == 1 else 'Lax-Wendroff'}")


def _change(u: Field, axis: int, ndim: int, order: int, courant: sympy.Expr) -> sympy.Expr:
    """What flows in from both neighbours along one axis, as multiples of their differences to the centre."""
    here = u[(0,) * ndim]
    below, above = (u[unit(axis, step, ndim)] - here for step in (-1, 1))
    if order == 1:
        return sympy.Max(courant, 0) * below - sympy.Min(courant, 0) * above
    return courant * (courant + 1) / 2 * below + courant * (courant - 1) / 2 * above
