"""Two species that react and diffuse."""

from __future__ import annotations

import sympy

from outcrop.language.library.differences import both_sides, require, spacings
from outcrop.language.stability import Limit
from outcrop.language.stencil import Stencil
from outcrop.language.symbols import Field, Parameter

LIMIT = Limit("dt", state={"u": 0.0, "v": 0.5})
"""Judged where reaction takes u away fastest: patterns hold v below 1/2."""


def gray_scott(ndim: int = 3, *, equal_spacing: bool = True) -> Stencil:
    """Gray and Scott's reaction with diffusion, in `ndim` = 1, 2 or 3 dimensions, forward Euler, second order in space.

        u_t = du lap u - u v^2 + feed (1 - u),    v_t = dv lap v + u v^2 - (feed + kill) v

    Fields: the concentrations u and v (no unit; u = 1, v = 0 is at rest). Parameters: du, dv (cells^2 per unit of time
    for h = 1), feed, kill (per unit of time), dt, h, or dz, dy, dx without `equal_spacing`. Not linear; the limit is
    that of the update near u = 0, v = 1/2, where u goes fastest: dt <= 2 / (4 ndim du / h^2 + feed + 1/4).
    Source: P. Gray and S. K. Scott, Chem. Eng. Sci. 39, 1087, 1984; patterns: J. E. Pearson, Science 261, 189, 1993.
    """
    require("gray_scott", "ndim", ndim, (1, 2, 3))
    u, v, here = Field("u"), Field("v"), (0,) * ndim
    du, dv, feed, kill = (
        Parameter(name, default) for name, default in (("du", 0.16), ("dv", 0.08), ("feed", 0.035), ("kill", 0.06))
    )
    dt, h = Parameter("dt", 0.5 if ndim == 3 else 1.0), spacings(ndim, equal_spacing, 1.0)
    reaction = dt * u[here] * v[here] ** 2
    updates = {
        u: _decayed_and_diffused(u, dt * feed, dt * du, h) - reaction + dt * feed,
        v: _decayed_and_diffused(v, dt * (feed + kill), dt * dv, h) + reaction,
    }
    text = "u' = u + dt*(du*lap(u) - u*v^2 + feed*(1 - u)); v' = v + dt*(dv*lap(v) + u*v^2 - (feed + kill)*v)"
    return Stencil("gray_scott" + ("" if ndim == 3 else f"_{ndim}d"), updates, text)


def _decayed_and_diffused(u: Field, decay: sympy.Expr, diffusion: sympy.Expr, h: tuple[Parameter, ...]) -> sympy.Expr:
    """u - decay u + diffusion lap u, as one weighted sum."""
    ndim = len(h)
    numbers = [diffusion / one**2 for one in h]
    near = [number * both_sides(u, axis, 1, ndim) for axis, number in enumerate(numbers)]
    return u[(0,) * ndim] * (1 - decay - 2 * sympy.Add(*numbers)) + sympy.Add(*near)
