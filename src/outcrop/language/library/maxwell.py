"""Maxwell's equations on Yee's grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import sympy

from outcrop.language.library.differences import ahead, as_one, behind, require, spacings, unit
from outcrop.language.stencil import Stencil
from outcrop.language.symbols import Field, Parameter

Derivative: TypeAlias = Callable[[Field, int, int, int], sympy.Expr]

EPS0 = 8.8541878128e-12
"""Permittivity of free space, F/m (CODATA 2018)."""

MEDIA = ("eps", "vacuum", "lossy")
_NEXT = {"x": ("y", "z"), "y": ("z", "x"), "z": ("x", "y")}
_COMPONENTS = {  # (ndim, mode) -> the components of E and of H
    (3, "tm"): ("xyz", "xyz"),
    (2, "tm"): ("z", "xy"),
    (2, "te"): ("xy", "z"),
    (1, "tm"): ("z", "y"),
}


def maxwell(ndim: int = 3, mode: str = "tm", *, medium: str = "eps", equal_spacing: bool = True) -> Stencil:
    """Maxwell's equations, second order in space and time, in `ndim` = 1, 2 or 3 dimensions.

        H_t = -c curl E,    eps E_t = c curl H - sigma E / eps0

    Fields: ex, ey, ez (V/m) and hx, hy, hz, which are H times the impedance sqrt(mu0/eps0) of free space (V/m too). In
    2-D (axes y, x) `mode` "tm" has ez, hx and hy, "te" has ex, ey and hz; in 1-D there are ez and hy. `medium` is
    "vacuum"; "eps" with the read-only relative permittivity eps; or "lossy" with the read-only conductivity sigma (S/m)
    too. A component of E lies half a cell ahead along its own axis, one of H along the two others; eps and sigma lie at
    the centre, and their means over two cells count for E. Two stages, H then E, leapfrog: E before the first step
    belongs to time 0, H to -dt/2. Parameters: c (m/s), dt (s), h (m), or dz, dy, dx without `equal_spacing`, and eps0
    (F/m) for "lossy". The magnetic permeability is that of free space.

    Stable for c dt <= h sqrt(eps / ndim), eps the least. Source: K. S. Yee, IEEE Trans. Antennas Propag. 14, 302, 1966;
    limit: A. Taflove and M. E. Brodwin, IEEE Trans. Microwave Theory Tech. 23, 623, 1975.
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
    """The components that there are, and their updates."""

    def __init__(self, ndim: int, electric: str, magnetic: str, medium: str, equal_spacing: bool) -> None:
        self.ndim, self.medium = ndim, medium
        self.e = {axis: Field(f"e{axis}") for axis in electric}
        self.h = {axis: Field(f"h{axis}") for axis in magnetic}
        self.axes = "zyx"[3 - ndim :]
        steps, self.dt = spacings(ndim, equal_spacing, 0.01), Parameter("dt", 1e-11)
        speed = Parameter("c", 299792458.0) * self.dt
        self.front = speed / steps[0] if equal_spacing else speed
        self.scales = [1 if equal_spacing else 1 / one for one in steps]

    def magnetic(self) -> dict[Field, sympy.Expr]:
        """H from E."""
        return {h: h[self._here] - self.front * self._curl(axis, self.e, ahead) for axis, h in self.h.items()}

    def electric(self) -> dict[Field, sympy.Expr]:
        """E from the new H."""
        updates = {}
        for axis, e in self.e.items():
            old, change = e[self._here], self.front * self._curl(axis, self.h, behind)
            if self.medium == "vacuum":
                updates[e] = old + change
            elif self.medium == "eps":
                updates[e] = old + change / self._mean("eps", axis)
            else:
                eps, loss = self._mean("eps", axis), self._mean("sigma", axis) * self.dt / (2 * Parameter("eps0", EPS0))
                updates[e] = (old * (eps - loss) + change) / (eps + loss)
        return updates

    @property
    def _here(self) -> tuple[int, ...]:
        return (0,) * self.ndim

    def _curl(self, axis: str, of: dict[str, Field], derivative: Derivative) -> sympy.Expr:
        """One component of a curl; what does not depend on an axis has no derivative along it."""
        one, other = _NEXT[axis]
        terms = []
        for along, component, sign in ((one, other, 1), (other, one, -1)):
            if along in self.axes and component in of:
                number = self.axes.index(along)
                terms.append(sign * self.scales[number] * derivative(of[component], number, 2, self.ndim))
        return as_one(*terms) if len(terms) > 1 else terms[0]

    def _mean(self, name: str, axis: str) -> sympy.Expr:
        """A read-only field half a cell ahead along an axis."""
        values = Field(name)
        if axis not in self.axes:
            return values[self._here]
        return (values[self._here] + values[unit(self.axes.index(axis), 1, self.ndim)]) / 2
