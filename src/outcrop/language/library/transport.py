"""Stencils of transport: diffusion of heat, reaction of two species with diffusion, and advection by a constant
velocity. The module also has filters, which smooth or sharpen a field with a weighted mean of the cells around a cell.
"""

from __future__ import annotations

import math

import sympy

from outcrop.axes import NAMES
from outcrop.language.library.differences import as_one, both_sides, require, second_derivative, spacings, unit
from outcrop.language.stencil import Field, Parameter, Stencil

_SIX = ((0, 0, -1), (0, 0, 1), (0, -1, 0), (0, 1, 0), (-1, 0, 0), (1, 0, 0))


def heat7() -> Stencil:
    """Make a stencil for the heat equation with explicit Euler steps, second order in space. The update is u' = c0 u +
    c1 (sum of the six neighbours). For the diffusivity alpha, c1 = alpha dt / h^2 and c0 = 1 - 6 c1. The stencil is
    stable for 0 <= c1 <= 1/6."""
    u, c0, c1 = Field("u"), Parameter("c0", 0.4), Parameter("c1", 0.1)
    near = sum(u[offset] for offset in _SIX)
    return Stencil("heat7", {u: c0 * u[0, 0, 0] + c1 * near}, "u' = c0*u + c1*(sum of the 6 neighbours)")


def heat13() -> Stencil:
    """Make a stencil for the heat equation with explicit Euler steps, fourth order in space. The second difference
    along each axis has the weights -1/12, 4/3, -5/2, 4/3, -1/12. The update is u' = c0 u + c1 (sum of the six
    neighbours at distance 1) + c2 (sum of the six neighbours at distance 2). For the diffusivity alpha and a = alpha dt
    / h^2, the parameters are c0 = 1 - 15/2 a, c1 = 4/3 a and c2 = -a/12. The stencil is stable for 0 <= a <= 1/8. With
    the default parameters, a is 0.1.
    """
    u = Field("u")
    c0, c1, c2 = Parameter("c0", 0.25), Parameter("c1", 0.4 / 3), Parameter("c2", -0.1 / 12)
    near = sum(u[offset] for offset in _SIX)
    far = sum(u[2 * dz, 2 * dy, 2 * dx] for dz, dy, dx in _SIX)
    return Stencil(
        "heat13",
        {u: c0 * u[0, 0, 0] + c1 * near + c2 * far},
        "u' = c0*u + c1*(sum of 6 at distance 1) + c2*(sum of 6 at distance 2)",
    )


def heat(ndim: int = 3, order: int = 2, *, equal_spacing: bool = True) -> Stencil:
    """Make a stencil for the heat equation u_t = kappa (u_xx + u_yy + u_zz) in `ndim` = 1, 2 or 3 dimensions, of
    `order` 2, 4, ... 16.

    The update is u' = u + dt kappa (sum over the axes of the second differences). The forward Euler method is of first
    order in time and of order `order` in space. Field: u (any unit, for example K). Parameters: kappa (m^2/s), dt (s)
    and h (m). Without `equal_spacing`, dz, dy and dx (m) replace h. The stencil is stable for dt <= 2 h^2 / (kappa ndim
    s). The number s is the largest factor, in magnitude, by which the second difference multiplies a wave: s is 4,
    16/3, 6.04, 6.50, ... 7.43 for order 2, 4, 6, 8, ... 16. For order 2 in 3-D, the limit is dt <= h^2 / (6 kappa).
    Source: R. Courant, K. Friedrichs, H. Lewy, Math. Ann. 100, 32, 1928; weights: B. Fornberg, Math. Comp. 51, 699,
    1988.

    The update adds differences to the centre, so a constant state stays constant to the last bit.
    """
    require("heat", "ndim", ndim, (1, 2, 3))
    require("heat", "order", order, range(2, 17, 2))
    u, kappa, dt = Field("u"), Parameter("kappa", 1.0), Parameter("dt", 0.05)
    h = spacings(ndim, equal_spacing, 1.0)
    centre = u[(0,) * ndim]
    axes = [tuple(range(ndim))] if equal_spacing else [(axis,) for axis in range(ndim)]
    update = centre
    for group in axes:
        for distance, weight in enumerate(second_derivative(order)[1:], 1):
            near = sum(both_sides(u, axis, distance, ndim) for axis in group)
            differences = as_one(near, -2 * len(group) * centre)
            update += weight * dt * kappa / h[group[0]] ** 2 * differences
    name = f"heat{order}" + ("" if ndim == 3 else f"_{ndim}d")
    return Stencil(name, {u: update}, f"u' = u + dt*kappa*lap(u), order {order}")


def gray_scott(ndim: int = 3, *, equal_spacing: bool = True) -> Stencil:
    """Make a stencil for Gray and Scott's reaction with diffusion, in `ndim` = 1, 2 or 3 dimensions. The scheme is
    forward Euler, of second order in space.

        u_t = du lap u - u v^2 + feed (1 - u),    v_t = dv lap v + u v^2 - (feed + kill) v

    Fields: the concentrations u and v (no unit; the state u = 1, v = 0 does not change). Parameters: du, dv (cells^2
    per unit of time for h = 1), feed, kill (per unit of time), dt and h. Without `equal_spacing`, dz, dy and dx replace
    h. The update is not linear. For the stability limit, the update is linearised at u = 0, v = 1/2, because v stays
    below 1/2 in the usual patterns. The limit is dt <= 2 / (4 ndim du / h^2 + feed + 1/4). Source: P. Gray and S. K.
    Scott, Chem. Eng. Sci. 39, 1087, 1984; patterns: J. E. Pearson, Science 261, 189, 1993.
    """
    require("gray_scott", "ndim", ndim, (1, 2, 3))
    u, v, here = Field("u"), Field("v"), (0,) * ndim
    du, dv, feed, kill = (
        Parameter(name, default) for name, default in (("du", 0.16), ("dv", 0.08), ("feed", 0.035), ("kill", 0.06))
    )
    dt, h = Parameter("dt", 0.5 if ndim == 3 else 1.0), spacings(ndim, equal_spacing, 1.0)
    reaction = dt * u[here] * v[here] ** 2
    updates = {
        u: _decay_and_diffuse(u, dt * feed, dt * du, h) - reaction + dt * feed,
        v: _decay_and_diffuse(v, dt * (feed + kill), dt * dv, h) + reaction,
    }
    text = "u' = u + dt*(du*lap(u) - u*v^2 + feed*(1 - u)); v' = v + dt*(dv*lap(v) + u*v^2 - (feed + kill)*v)"
    return Stencil("gray_scott" + ("" if ndim == 3 else f"_{ndim}d"), updates, text)


def _decay_and_diffuse(u: Field, decay: sympy.Expr, diffusion: sympy.Expr, h: tuple[Parameter, ...]) -> sympy.Expr:
    """Return `u - decay u + diffusion lap u` as one weighted sum. `lap` means the Laplacian."""
    ndim = len(h)
    numbers = [diffusion / one**2 for one in h]
    near = [number * both_sides(u, axis, 1, ndim) for axis, number in enumerate(numbers)]
    return u[(0,) * ndim] * (1 - decay - 2 * sympy.Add(*numbers)) + sympy.Add(*near)


def advection(ndim: int = 3, order: int = 1, *, equal_spacing: bool = True) -> Stencil:
    """Make a stencil for linear advection u_t + vx u_x + vy u_y + vz u_z = 0 in `ndim` = 1, 2 or 3 dimensions, of
    `order` 1 or 2.

    Order 1 uses upwind differences (donor cell) along all axes in one stage. With order 1, no new value is above the
    maximum or below the minimum of the old values. Order 1 is stable if the sum of |v| dt / h over the axes is <= 1.
    Order 2 is Lax and Wendroff's scheme along x, then y, then z, with one stage for each axis. The velocity is
    constant, so the order of the axes does not matter. Order 2 is stable for |v| dt / h <= 1 along each axis. The
    schemes of order 1 and of order 2 use differences of fluxes, so on a periodic grid the sum of u does not change.

    Field: u (any unit). Parameters: vx, vy, vz (m/s, of any sign), dt (s) and h (m). Without `equal_spacing`, dz, dy
    and dx (m) replace h. Source: R. Courant, E. Isaacson, M. Rees, Comm. Pure Appl. Math. 5, 243, 1952; P. Lax and B.
    Wendroff, Comm. Pure Appl. Math. 13, 217, 1960.
    """
    require("advection", "ndim", ndim, (1, 2, 3))
    require("advection", "order", order, (1, 2))
    u, dt, h = Field("u"), Parameter("dt", 0.25), spacings(ndim, equal_spacing, 1.0)
    courant = [Parameter(f"v{name}", 1.0) * dt / one for name, one in zip(NAMES[ndim], h, strict=True)]
    change = [_inflow(u, axis, ndim, order, courant[axis]) for axis in range(ndim)]
    here = u[(0,) * ndim]
    stages = [{u: here + sympy.Add(*change)}] if order == 1 else [{u: here + one} for one in reversed(change)]
    name = f"advection{order}" + ("" if ndim == 3 else f"_{ndim}d")
    return Stencil(name, stages, f"u' = u - dt*(v . grad u), {'upwind' if order == 1 else 'Lax-Wendroff'}")


def _inflow(u: Field, axis: int, ndim: int, order: int, courant: sympy.Expr) -> sympy.Expr:
    """Return the inflow from both neighbours along one axis. The inflow is a weighted sum of two differences: the value
    of each neighbour minus the value of the centre."""
    here = u[(0,) * ndim]
    below, above = (u[unit(axis, step, ndim)] - here for step in (-1, 1))
    if order == 1:
        return sympy.Max(courant, 0) * below - sympy.Min(courant, 0) * above
    return courant * (courant + 1) / 2 * below + courant * (courant - 1) / 2 * above


def box27() -> Stencil:
    """Make a stencil whose update is the weighted mean of a cell and its 26 neighbours. The weight of a neighbour
    depends on the number of axes along which the neighbour is shifted. The update is u' = w0 u + w1 (sum of 6 faces) +
    w2 (sum of 12 edges) + w3 (sum of 8 corners). The default parameters are the binomial weights 8/64, 4/64, 2/64 and
    1/64."""
    u = Field("u")
    weights = [Parameter("w0", 8 / 64), Parameter("w1", 4 / 64), Parameter("w2", 2 / 64), Parameter("w3", 1 / 64)]
    steps = (-1, 0, 1)
    groups = [
        sum(u[dz, dy, dx] for dz in steps for dy in steps for dx in steps if abs(dz) + abs(dy) + abs(dx) == distance)
        for distance in range(4)
    ]
    update = sum(weight * group for weight, group in zip(weights, groups, strict=True))
    return Stencil("box27", {u: update}, "u' = w0*u + w1*(6 faces) + w2*(12 edges) + w3*(8 corners)")


REACH = 8
"""The reach d of the filter in pixels. The filter has (2d + 1)^2 = 289 taps."""


def sharpen() -> Stencil:
    """Make the stencil that sharpens an image with the Laplacian of a Gaussian. Each step is one convolution with 17 by
    17 weights (taps).

        sharp' = image - 2/(2d - 1)^2 sum over |i|, |j| <= d of w(i, j) image[i, j],    d = 8
        w = -40 (1 - delta) exp(-delta),  delta = (i^2 + j^2) / (2 sigma^2),  sigma = 1.4 d/4

    Fields: sharp, which is updated but not read, and the read-only image (any unit). One step gives the complete
    result. With a fixed boundary, 8 cells along each side keep the initial values of sharp. The stencil has no
    parameters, and is always stable, because sharp is not read. Pixels at the same distance are added before they are
    multiplied, so 289 taps need only 42 multiplications. Source: D. Marr and E. Hildreth, Proc. R. Soc. Lond. B 207,
    187, 1980; these weights: A. Jackson, EPCC's image sharpening exercise.
    """
    sharp, image = Field("sharp"), Field("image")
    scale, width = -2 / (2 * REACH - 1) ** 2, 1.4 * REACH / 4
    steps = range(-REACH, REACH + 1)
    rings: dict[int, list[tuple[int, int]]] = {}
    for dy in steps:
        for dx in steps:
            rings.setdefault(dy**2 + dx**2, []).append((dy, dx))
    terms = []
    for square, offsets in rings.items():
        delta = square / (2 * width**2)
        weight = scale * (-40 * (1 - delta) * math.exp(-delta)) + (square == 0)
        terms += [sympy.Float(weight) * image[offset] for offset in offsets]
    return Stencil("sharpen", {sharp: sympy.Add(*terms)}, "sharp' = image - 2/225 * (289 taps of a LoG * image)")
