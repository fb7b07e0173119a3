"""Waves of pressure in a medium whose velocity varies, with an absorbing sponge where one is wanted."""

from __future__ import annotations

from outcrop.language.library.differences import laplacian, over_square, require, spacings
from outcrop.language.stencil import Stencil
from outcrop.language.symbols import Field, Parameter


def acoustic(ndim: int = 3, order: int = 8, *, sponge: bool = False, equal_spacing: bool = True) -> Stencil:
    """Acoustic wave equation u_tt + damp u_t = v^2 (u_xx + u_yy + u_zz), constant density, of `order` 2, 4, ... 16.

    Leapfrog, second order in time; with `sponge` the damping is taken at the middle of both steps (semi-implicit):

        u' = u_previous + (2 (u - u_previous) + dt^2 v^2 lap u) / (1 + damp dt/2)

    Fields: u (any unit, say Pa), the read-only v (m/s), with `sponge` the read-only damp (1/s, see `sponge`; Devito's
    damping field is damp / v^2). Parameters: dt (s), h (m), or dz, dy, dx without `equal_spacing`. Stable for
    dt v <= 2 h / sqrt(ndim s), s = 4, 16/3, 6.04, 6.50, ... 7.43 for order 2, 4, 6, 8, ... 16; damping does not lower
    that. Source: M. A. Dablain, Geophysics 51, 54, 1986; sponge: C. Cerjan et al., Geophysics 50, 705, 1985, as a term
    of the equation: J. Sochacki et al., Geophysics 52, 60, 1987.
    """
    require("acoustic", "ndim", ndim, (1, 2, 3))
    require("acoustic", "order", order, range(2, 17, 2))
    require("acoustic", "sponge", sponge, (False, True))
    u, v, damp = Field("u"), Field("v"), Field("damp")
    dt, h, here = Parameter("dt", 0.001), spacings(ndim, equal_spacing, 10.0), (0,) * ndim
    force = dt**2 * over_square(h) * v[here] ** 2 * laplacian(u, order, h)
    if sponge:
        update = u.previous[here] + (2 * (u[here] - u.previous[here]) + force) / (1 + dt / 2 * damp[here])
        text = "u' = u_ + (2*(u - u_) + dt^2*v^2*lap(u)) / (1 + damp*dt/2)"
    else:
        update = 2 * u[here] - u.previous[here] + force
        text = "u' = 2*u - u_ + dt^2*v^2*lap(u)"
    name = f"acoustic{order}" + ("" if ndim == 3 else f"_{ndim}d") + ("_sponge" if sponge else "")
    return Stencil(name, {u: update}, f"{text}, order {order}")
