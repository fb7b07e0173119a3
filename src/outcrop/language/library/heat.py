"""The heat equation u_t = kappa lap u, explicit in time: with coefficients of one's own, or of any even order."""

from __future__ import annotations

from outcrop.language.library.differences import as_one, both_sides, require, second_derivative, spacings
from outcrop.language.stencil import Stencil
from outcrop.language.symbols import Field, Parameter

_SIX = ((0, 0, -1), (0, 0, 1), (0, -1, 0), (0, 1, 0), (-1, 0, 0), (1, 0, 0))


def heat7() -> Stencil:
    """Heat equation, second order in space, explicit Euler: u' = c0 u + c1 (sum of the six neighbours).

    With c1 = alpha dt / h^2 and c0 = 1 - 6 c1; stable for 0 <= c1 <= 1/6.
    """
    u, c0, c1 = Field("u"), Parameter("c0", 0.4), Parameter("c1", 0.1)
    near = sum(u[offset] for offset in _SIX)
    return Stencil("heat7", {u: c0 * u[0, 0, 0] + c1 * near}, "u' = c0*u + c1*(sum of the 6 neighbours)")


def heat13() -> Stencil:
    """Heat equation, fourth order in space, explicit Euler: weights -1/12, 4/3, -5/2 along each axis.

    u' = c0 u + c1 (sum of the six at distance 1) + c2 (sum of the six at distance 2), c1 = 4/3 a, c2 = -a/12,
    c0 = 1 - 15/2 a, a = alpha dt / h^2; stable for 0 <= a <= 1/8. The defaults are those of a = 0.1.
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


def box27() -> Stencil:
    """Weighted mean of the 27 cells around and including a cell, by how many axes a neighbour differs in.

    u' = w0 u + w1 (6 faces) + w2 (12 edges) + w3 (8 corners); the defaults are the binomial weights 8, 4, 2, 1
    over 64.
    """
    u = Field("u")
    weights = [Parameter("w0", 8 / 64), Parameter("w1", 4 / 64), Parameter("w2", 2 / 64), Parameter("w3", 1 / 64)]
    steps = (-1, 0, 1)
    groups = [
        sum(u[dz, dy, dx] for dz in steps for dy in steps for dx in steps if abs(dz) + abs(dy) + abs(dx) == distance)
        for distance in range(4)
    ]
    update = sum(weight * group for weight, group in zip(weights, groups, strict=True))
    return Stencil("box27", {u: update}, "u' = w0*u + w1*(6 faces) + w2*(12 edges) + w3*(8 corners)")


def heat(ndim: int = 3, order: int = 2, *, equal_spacing: bool = True) -> Stencil:
    """Heat equation u_t = kappa (u_xx + u_yy + u_zz) in `ndim` = 1, 2 or 3 dimensions, of `order` 2, 4, ... 16.

    u' = u + dt kappa (sum over the axes of the second differences), forward Euler, first order in time, of `order` in
    space. Field: u (any unit, say K). Parameters: kappa (m^2/s), dt (s), h (m), or dz, dy, dx without `equal_spacing`.
    Stable for dt kappa ndim s / h^2 <= 2, where s = 4, 16/3, 6.04, 6.50, ... 7.43 is the largest symbol of the second
    difference of order 2, 4, 6, 8, ... 16; order 2 in 3-D: dt <= h^2 / (6 kappa). Source: R. Courant, K. Friedrichs,
    H. Lewy, Math. Ann. 100, 32, 1928; weights: B. Fornberg, Math. Comp. 51, 699, 1988.

    Differences to the centre are added, so a constant state stays constant to the last bit, over any number of steps.
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
