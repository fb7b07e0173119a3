"""Elastic waves on a staggered grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
from numpy.typing import NDArray

from outcrop.language.library.differences import ahead, as_one, behind, require, spacings, unit
from outcrop.language.stencil import Stencil
from outcrop.language.symbols import Field, Parameter


def elastic(ndim: int = 3, order: int = 4, *, equal_spacing: bool = True) -> Stencil:
    """Isotropic elastic waves as velocities and stresses, in `ndim` = 2 or 3 dimensions, of `order` 2, 4, ... 16.

        rho v_t = div T,    T_t = lam (div v) I + mu (grad v + grad v^T)

    Fields: vx, vy, vz (m/s), txx, tyy, tzz, tyz, txz, txy (Pa), and read-only lam, mu (Pa) and the buoyancy b = 1/rho
    (m^3/kg); in 2-D (axes y, x) vx, vy, txx, tyy, txy. In a cell the normal stresses, lam, mu and b lie at the centre,
    a velocity half a cell ahead along its own axis, a shear stress half a cell ahead along both of its axes; there b
    and mu are the means of the cells around. Two stages, velocities then stresses, leapfrog: stresses before the
    first step belong to time 0, velocities to -dt/2. Parameters: dt (s), h (m), or dz, dy, dx without `equal_spacing`.

    Stable for dt vp <= h / (sqrt(ndim) sum |weights|), vp^2 = (lam + 2 mu) b; the sum is 1 for order 2 and 7/6 for
    order 4. Source: J. Virieux, Geophysics 51, 889, 1986; fourth order: A. R. Levander, Geophysics 53, 1425, 1988.
    """
    require("elastic", "ndim", ndim, (2, 3))
    require("elastic", "order", order, range(2, 17, 2))
    grid = _Staggered(ndim, order, equal_spacing)
    name = f"elastic{order}" + ("" if ndim == 3 else "_2d")
    text = f"v' = v + dt*b*div(T); T' = T + dt*(lam*div(v')*I + mu*(grad(v') + grad(v')^T)), order {order}"
    return Stencil(name, [grid.velocities(), grid.stresses()], text)


def squared_speed(planes: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The square of the speed of P waves, m^2/s^2, of lam, mu and b: it alone decides on the largest step."""
    speed: NDArray[Any] = (planes["lam"] + 2 * planes["mu"]) * planes["b"]
    return speed


class _Staggered:
    """The fields of an elastic medium, and their updates; axes count from the first of an offset."""

    def __init__(self, ndim: int, order: int, equal_spacing: bool) -> None:
        self.ndim, self.order = ndim, order
        self.names = "zyx"[3 - ndim :]
        self.h, self.dt = spacings(ndim, equal_spacing, 10.0), Parameter("dt", 0.001)
        # One factor dt/h in front of all differences, or dt in front and 1/h at each.
        self.front = self.dt / self.h[0] if equal_spacing else self.dt
        self.scales = [1 if equal_spacing else 1 / one for one in self.h]

    def v(self, axis: int) -> Field:
        """The velocity along an axis."""
        return Field(f"v{self.names[axis]}")

    def t(self, one: int, other: int) -> Field:
        """The stress of two axes; the letters of its name ascend."""
        return Field("t" + "".join(sorted(self.names[one] + self.names[other])))

    def velocities(self) -> dict[Field, sympy.Expr]:
        """From stresses."""
        updates = {}
        for axis in reversed(range(self.ndim)):
            v, b = self.v(axis), self._mean("b", [axis])
            terms = [
                (ahead if other == axis else behind)(self.t(axis, other), other, self.order, self.ndim) * scale
                for other, scale in enumerate(self.scales)
            ]
            updates[v] = v[self._here] + self.front * b * as_one(*reversed(terms))
        return updates

    def stresses(self) -> dict[Field, sympy.Expr]:
        """From the new velocities."""
        lam, mu = Field("lam")[self._here], Field("mu")[self._here]
        own = [behind(self.v(a), a, self.order, self.ndim) * scale for a, scale in enumerate(self.scales)]
        divergence = as_one(*reversed(own))
        updates = {}
        for axis in reversed(range(self.ndim)):
            t = self.t(axis, axis)
            updates[t] = t[self._here] + self.front * (lam * divergence + 2 * mu * own[axis])
        for one in range(self.ndim):
            for other in range(one + 1, self.ndim):
                t, strain = self.t(one, other), as_one(self._slope(other, one), self._slope(one, other))
                updates[t] = t[self._here] + self.front * self._mean("mu", [one, other]) * strain
        return updates

    @property
    def _here(self) -> tuple[int, ...]:
        return (0,) * self.ndim

    def _slope(self, of: int, along: int) -> sympy.Expr:
        return ahead(self.v(of), along, self.order, self.ndim) * self.scales[along]

    def _mean(self, name: str, axes: Sequence[int]) -> sympy.Expr:
        """The mean of a read-only field over the cells that meet half a cell ahead along some axes."""
        offsets = [self._here]
        for axis in axes:
            step = unit(axis, 1, self.ndim)
            offsets += [tuple(a + b for a, b in zip(offset, step, strict=True)) for offset in offsets]
        total = sympy.Add(*(Field(name)[offset] for offset in offsets))
        return sympy.Mul(sympy.Rational(1, len(offsets)), total, evaluate=False)
