"""Stencils of wave equations: acoustic, elastic and electromagnetic.

The function `sponge` computes the damping field of an absorbing layer for acoustic waves, plane by plane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import sympy
from numpy.typing import DTypeLike, NDArray

from outcrop.axes import NAMES
from outcrop.errors import InputError, shown
from outcrop.language.library.differences import (
    ahead,
    as_one,
    as_real_dtype,
    as_size,
    as_sizes,
    behind,
    laplacian,
    over_square,
    require,
    spacings,
    unit,
)
from outcrop.language.schema import as_finite
from outcrop.language.stencil import Field, Parameter, Stencil

SIDES = ("z0", "z1", "y0", "y1", "x0", "x1")
"""The names of the low and the high side of each axis."""


def acoustic(ndim: int = 3, order: int = 8, *, sponge: bool = False, equal_spacing: bool = True) -> Stencil:
    """Make a stencil for the acoustic wave equation u_tt + damp u_t = v^2 (u_xx + u_yy + u_zz) with constant density,
    of `order` 2, 4, ... 16.

    The scheme is leapfrog, of second order in time. With `sponge`, the damping is semi-implicit, because the time
    derivative in the damping term is centred between the previous and the next value:

        u' = u_previous + (2 (u - u_previous) + dt^2 v^2 lap u) / (1 + damp dt/2)

    Fields: u (any unit, for example Pa) and the read-only v (m/s). With `sponge`, there is also the read-only damp
    (1/s), which the function `sponge` computes. Devito's damping field is damp / v^2. Parameters: dt (s) and h (m).
    Without `equal_spacing`, dz, dy and dx (m) replace h. The stencil is stable for dt v <= 2 h / sqrt(ndim s). The
    number s is 4, 16/3, 6.04, 6.50, ... 7.43 for order 2, 4, 6, 8, ... 16. Damping does not lower this limit. Source:
    M. A. Dablain, Geophysics 51, 54, 1986. The sponge is from C. Cerjan et al., Geophysics 50, 705, 1985. The damping
    term in the equation is from J. Sochacki et al., Geophysics 52, 60, 1987.
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


def elastic(ndim: int = 3, order: int = 4, *, equal_spacing: bool = True) -> Stencil:
    """Make a stencil for isotropic elastic waves in `ndim` = 2 or 3 dimensions, of `order` 2, 4, ... 16. The stencil
    updates velocities and stresses.

        rho v_t = div T,    T_t = lam (div v) I + mu (grad v + grad v^T)

    Fields: vx, vy, vz (m/s), txx, tyy, tzz, tyz, txz, txy (Pa), and read-only lam, mu (Pa) and the buoyancy b = 1/rho
    (m^3/kg). In 2-D (axes y, x), the updated fields are vx, vy, txx, tyy, txy. The normal stresses, lam, mu and b lie
    at the centre of a cell. A velocity lies half a cell ahead of the centre along its own axis. A shear stress lies
    half a cell ahead of the centre along both of its axes. At points between cells, b and mu are means over the
    surrounding cells. A step is leapfrog in two stages: the first stage updates the velocities, the second stage
    updates the stresses. Before the first step, the stresses have their values at time 0, and the velocities have their
    values at time -dt/2. Parameters: dt (s) and h (m). Without `equal_spacing`, dz, dy and dx (m) replace h.

    The stencil is stable for dt vp <= h / (sqrt(ndim) sum |weights|), where vp^2 = (lam + 2 mu) b. The sum of the
    absolute weights is 1 for order 2 and 7/6 for order 4. Source: J. Virieux, Geophysics 51, 889, 1986; fourth order:
    A. R. Levander, Geophysics 53, 1425, 1988.
    """
    require("elastic", "ndim", ndim, (2, 3))
    require("elastic", "order", order, range(2, 17, 2))
    grid = _Staggered(ndim, order, equal_spacing)
    name = f"elastic{order}" + ("" if ndim == 3 else "_2d")
    text = f"v' = v + dt*b*div(T); T' = T + dt*(lam*div(v')*I + mu*(grad(v') + grad(v')^T)), order {order}"
    return Stencil(name, [grid.velocities(), grid.stresses()], text)


class _Staggered:
    """The fields of an elastic medium and their updates. Axis 0 is the first axis of an offset."""

    def __init__(self, ndim: int, order: int, equal_spacing: bool) -> None:
        self.ndim, self.order, self.here = ndim, order, (0,) * ndim
        self.names = NAMES[ndim]
        self.h, self.dt = spacings(ndim, equal_spacing, 10.0), Parameter("dt", 0.001)
        # With equal spacings, all differences have the common factor dt/h. With different spacings, the common factor
        # is dt, and each difference has its own factor 1/h.
        self.front = self.dt / self.h[0] if equal_spacing else self.dt
        self.scales = [1 if equal_spacing else 1 / one for one in self.h]

    def v(self, axis: int) -> Field:
        return Field(f"v{self.names[axis]}")

    def t(self, one: int, other: int) -> Field:
        """Return the stress of two axes. The letters in the name of a stress are in alphabetical order."""
        return Field("t" + "".join(sorted(self.names[one] + self.names[other])))

    def velocities(self) -> dict[Field, sympy.Expr]:
        """Return the updates of the velocities. These updates read the stresses."""
        updates = {}
        for axis in reversed(range(self.ndim)):
            v, b = self.v(axis), self._mean("b", [axis])
            terms = [
                (ahead if other == axis else behind)(self.t(axis, other), other, self.order, self.ndim) * scale
                for other, scale in enumerate(self.scales)
            ]
            updates[v] = v[self.here] + self.front * b * as_one(*reversed(terms))
        return updates

    def stresses(self) -> dict[Field, sympy.Expr]:
        """Return the updates of the stresses. These updates read the new velocities."""
        lam, mu = Field("lam")[self.here], Field("mu")[self.here]
        own = [behind(self.v(a), a, self.order, self.ndim) * scale for a, scale in enumerate(self.scales)]
        divergence = as_one(*reversed(own))
        updates = {}
        for axis in reversed(range(self.ndim)):
            t = self.t(axis, axis)
            updates[t] = t[self.here] + self.front * (lam * divergence + 2 * mu * own[axis])
        for one in range(self.ndim):
            for other in range(one + 1, self.ndim):
                t, strain = self.t(one, other), as_one(self._slope(other, one), self._slope(one, other))
                updates[t] = t[self.here] + self.front * self._mean("mu", [one, other]) * strain
        return updates

    def _slope(self, of: int, along: int) -> sympy.Expr:
        return ahead(self.v(of), along, self.order, self.ndim) * self.scales[along]

    def _mean(self, name: str, axes: Sequence[int]) -> sympy.Expr:
        """Return the value of a read-only field at the point half a cell ahead of the centre along the given axes. The
        value is the mean over all cells around that point."""
        offsets = [self.here]
        for axis in axes:
            step = unit(axis, 1, self.ndim)
            offsets += [tuple(a + b for a, b in zip(offset, step, strict=True)) for offset in offsets]
        total = sympy.Add(*(Field(name)[offset] for offset in offsets))
        return sympy.Mul(sympy.Rational(1, len(offsets)), total, evaluate=False)


Derivative: TypeAlias = Callable[[Field, int, int, int], sympy.Expr]

EPS0 = 8.8541878128e-12
"""Permittivity of free space, F/m (CODATA 2018)."""

MEDIA = ("eps", "vacuum", "lossy")
_NEXT = {"x": ("y", "z"), "y": ("z", "x"), "z": ("x", "y")}
_COMPONENTS = {  # for each (ndim, mode): the components of E and of H
    (3, "tm"): ("xyz", "xyz"),
    (2, "tm"): ("z", "xy"),
    (2, "te"): ("xy", "z"),
    (1, "tm"): ("z", "y"),
}


def maxwell(ndim: int = 3, mode: str = "tm", *, medium: str = "eps", equal_spacing: bool = True) -> Stencil:
    """Make a stencil for Maxwell's equations in `ndim` = 1, 2 or 3 dimensions. The scheme has second order in space and
    time.

        H_t = -c curl E,    eps E_t = c curl H - sigma E / eps0

    Fields: ex, ey, ez (V/m) and hx, hy, hz, which are H times the impedance sqrt(mu0/eps0) of free space (also V/m). In
    2-D (axes y, x), the mode "tm" has the fields ez, hx and hy, and the mode "te" has the fields ex, ey and hz. In 1-D
    the fields are ez and hy. `medium` is "vacuum", "eps" or "lossy". "eps" has the read-only relative permittivity eps.
    "lossy" has eps and the read-only conductivity sigma (S/m). A component of E lies half a cell ahead of the centre
    along its own axis. A component of H lies half a cell ahead of the centre along the two other axes. The fields eps
    and sigma lie at the centre of a cell, so an update of E uses the mean of the two nearest cells. A step is leapfrog
    in two stages: the first stage updates H, the second stage updates E. Before the first step, E has its values at
    time 0, and H has its values at time -dt/2. Parameters: c (m/s), dt (s), h (m), and eps0 (F/m) for "lossy". Without
    `equal_spacing`, dz, dy and dx (m) replace h. All cells have the magnetic permeability mu0 of free space.

    The stencil is stable for c dt <= h sqrt(eps / ndim), where eps is the smallest value of the field eps. Source: K.
    S. Yee, IEEE Trans. Antennas Propag. 14, 302, 1966; limit: A. Taflove and M. E. Brodwin, IEEE Trans. Microwave
    Theory Tech. 23, 623, 1975.
    """
    require("maxwell", "ndim", ndim, (1, 2, 3))
    require("maxwell", "mode", mode, ("tm", "te") if ndim == 2 else ("tm",))
    require("maxwell", "medium", medium, MEDIA)
    grid = _Yee(ndim, *_COMPONENTS[ndim, mode], medium, equal_spacing)
    name = "maxwell" + ("" if ndim == 3 else f"_{ndim}d")
    name += "_te" if mode == "te" else ""
    name += "" if medium == "eps" else f"_{medium}"
    text = {
        "vacuum": "h' = h - c*dt*curl(e); e' = e + c*dt*curl(h')",
        "eps": "h' = h - c*dt*curl(e); e' = e + c*dt/eps*curl(h')",
        "lossy": "h' = h - c*dt*curl(e); e' = ((eps - q)*e + c*dt*curl(h')) / (eps + q), q = sigma*dt/(2*eps0)",
    }[medium]
    return Stencil(name, [grid.magnetic(), grid.electric()], text)


class _Yee:
    """The components of E and H, and their updates."""

    def __init__(self, ndim: int, electric: str, magnetic: str, medium: str, equal_spacing: bool) -> None:
        self.ndim, self.medium, self.here = ndim, medium, (0,) * ndim
        self.e = {axis: Field(f"e{axis}") for axis in electric}
        self.h = {axis: Field(f"h{axis}") for axis in magnetic}
        self.axes = NAMES[ndim]
        steps, self.dt = spacings(ndim, equal_spacing, 0.01), Parameter("dt", 1e-11)
        speed = Parameter("c", 299792458.0) * self.dt
        self.front = speed / steps[0] if equal_spacing else speed
        self.scales = [1 if equal_spacing else 1 / one for one in steps]

    def magnetic(self) -> dict[Field, sympy.Expr]:
        """Return the updates of H. The updates of H read the components of E."""
        return {h: h[self.here] - self.front * self._curl(axis, self.e, ahead) for axis, h in self.h.items()}

    def electric(self) -> dict[Field, sympy.Expr]:
        """Return the updates of E. The updates of E read the new values of H."""
        updates = {}
        for axis, e in self.e.items():
            old, change = e[self.here], self.front * self._curl(axis, self.h, behind)
            if self.medium == "vacuum":
                updates[e] = old + change
            elif self.medium == "eps":
                updates[e] = old + change / self._mean("eps", axis)
            else:
                eps, loss = self._mean("eps", axis), self._mean("sigma", axis) * self.dt / (2 * Parameter("eps0", EPS0))
                updates[e] = (old * (eps - loss) + change) / (eps + loss)
        return updates

    def _curl(self, axis: str, of: dict[str, Field], derivative: Derivative) -> sympy.Expr:
        """Return one component of a curl. Derivatives along missing axes are 0."""
        one, other = _NEXT[axis]
        terms = []
        for along, component, sign in ((one, other, 1), (other, one, -1)):
            if along in self.axes and component in of:
                number = self.axes.index(along)
                terms.append(sign * self.scales[number] * derivative(of[component], number, 2, self.ndim))
        return as_one(*terms) if len(terms) > 1 else terms[0]

    def _mean(self, name: str, axis: str) -> sympy.Expr:
        """Return the value of a read-only field half a cell ahead along an axis."""
        values = Field(name)
        if axis not in self.axes:
            return values[self.here]
        return (values[self.here] + values[unit(self.axes.index(axis), 1, self.ndim)]) / 2


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
    """Return a function planes(z0, z1) that computes the read-only field `damp` of `acoustic(sponge=True)`, in 1/s.

    The planes have the shape (z1 - z0, *shape[1:]). Each call of the returned function computes only the requested
    planes, so the whole array is never in memory. In a layer of `width` cells, damp is 0 at the inner edge, and grows
    with the square of the depth. At the outer edge, damp is

        3 velocity ln(1/reflection) / (width spacing)

    If a wave with the velocity `velocity` crosses the layer twice along an axis, only the fraction `reflection` of its
    amplitude remains. For `velocity`, give the largest velocity of the medium, in m/s. In addition, the layer itself
    reflects long waves. If the wavelength is half of the width of the layer, the layer reflects 1 % of the amplitude.
    If the wavelength is equal to the width of the layer, the layer reflects 6 % of the amplitude. To reduce the
    reflection of long waves, make the layer wider. A smaller `reflection` does not reduce the reflection of long waves.
    `spacing` is in m. Where layers overlap, damp has the larger value.

    `sides` are the absorbing sides. By default, all six sides of a grid of shape (nz, ny, nx) absorb. For a free
    surface at the low side of z, leave "z0" out of `sides`. A shape of two numbers has the axes y and x, but `sides`
    can also name the first axis z. A shape of one number has the axis x. Axes of one cell never absorb. Raises
    InputError if a layer is wider than the grid, or if `sides` names an axis that the shape does not have.

    Source: quadratic profile as in F. Collino and C. Tsogka, Geophysics 66, 294, 2001, applied to the damping term of
    J. Sochacki et al., Geophysics 52, 60, 1987.
    """
    shape, width = as_sizes("sponge", shape, 3), as_size(width, "sponge: width")
    velocity, spacing = as_finite(velocity, "sponge: velocity"), as_finite(spacing, "sponge: spacing")
    reflection = as_finite(reflection, "sponge: reflection")
    kind = as_real_dtype("sponge", dtype)
    absorbing = _absorbing(shape, sides)
    for name, value in (("velocity", velocity), ("spacing", spacing)):
        if not value > 0:
            raise InputError(f"sponge: {name} {value} must be above 0")
    if not 0 < reflection < 1:
        raise InputError(f"sponge: reflection {reflection} must lie between 0 and 1")
    for axis, extent, both in zip(NAMES[len(shape)], shape, absorbing, strict=True):
        layers = sum(both)
        if layers * width > extent:
            raise InputError(f"sponge: {layers} layers of width {width} do not fit the {extent} cells along {axis}")
    largest = 3 * velocity * math.log(1 / reflection) / (width * spacing)
    profiles = [_profile(extent, width, *both) * largest for extent, both in zip(shape, absorbing, strict=True)]

    def planes(z0: int, z1: int) -> NDArray[Any]:
        along = [profiles[0][z0:z1], *profiles[1:]]
        return reduce(np.maximum, np.ix_(*along)).astype(kind)

    return planes


def _absorbing(shape: Sequence[int], sides: Collection[str]) -> list[tuple[bool, bool]]:
    """Return two flags for each axis. The first flag says whether the low side absorbs, and the second flag says
    whether the high side absorbs. Raises InputError for sides that do not exist."""
    if not isinstance(sides, Collection) or len(sides) > len(SIDES) or not all(isinstance(one, str) for one in sides):
        raise InputError(f"sponge: sides {shown(sides)} must be some of {', '.join(SIDES)}")
    names = ("zy", "x") if len(shape) == 2 else NAMES[len(shape)]
    there = [side for side in SIDES if any(side[0] in name for name in names)]
    for side in () if tuple(sides) == SIDES else sides:
        if side not in there:
            raise InputError(
                f"sponge: side {shown(side)} is unknown for shape {tuple(shape)}; there are {', '.join(there)}"
            )

    def absorbs(extent: int, name: str, end: str) -> bool:
        return extent > 1 and any(letter + end in sides for letter in name)

    return [(absorbs(extent, name, "0"), absorbs(extent, name, "1")) for extent, name in zip(shape, names, strict=True)]


def _profile(extent: int, width: int, low: bool, high: bool) -> NDArray[np.float64]:
    """For each cell centre in the layers of one axis, return the square of its relative depth. The relative depth is 0
    at the inner edge and 1 at the outer edge."""
    place = np.arange(extent) + 0.5
    depth = np.zeros(extent)
    if low:
        depth = np.maximum(depth, 1 - place / width)
    if high:
        depth = np.maximum(depth, 1 - (extent - place) / width)
    squared: NDArray[np.float64] = depth**2
    return squared
