"""Stencils of fluid flow: the lattice Boltzmann equation, and potential flow through a box."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import sympy
from numpy.typing import DTypeLike, NDArray

from outcrop.errors import InputError, shown
from outcrop.language.library.differences import as_one, as_real_dtype, as_size, as_sizes, both_sides, require
from outcrop.language.schema import as_finite
from outcrop.language.stencil import Field, Parameter, Stencil

Vector = tuple[int, ...]

_RATIONALS = {  # for each ndim: the weights of velocity 0, of velocities along one axis, and along two axes
    2: (sympy.Rational(4, 9), sympy.Rational(1, 9), sympy.Rational(1, 36)),
    3: (sympy.Rational(1, 3), sympy.Rational(1, 18), sympy.Rational(1, 36)),
}


def lattice_directions(ndim: int) -> tuple[Vector, ...]:
    """Return the velocity of each field f0, f1, ... The first velocity is 0. Pairs of opposite velocities follow. The
    result has 9 velocities (y, x) for `ndim` = 2, or 19 velocities (z, y, x) for `ndim` = 3."""
    require("lattice_boltzmann", "ndim", ndim, (2, 3))
    half = [c for c in product((-1, 0, 1), repeat=ndim) if 1 <= sum(map(abs, c)) <= 2 and c > (0,) * ndim]
    half.sort(key=lambda c: (sum(map(abs, c)), c))
    pairs = [one for c in half for one in (c, tuple(-step for step in c))]
    return ((0,) * ndim, *pairs)


def lattice_weights(ndim: int) -> tuple[float, ...]:
    """Return the weights w_i. In a fluid at rest, the fraction w_i of the fluid moves along direction i of
    `lattice_directions`."""
    return tuple(float(_weight(c)) for c in lattice_directions(ndim))


def _weight(c: Vector) -> sympy.Rational:
    return _RATIONALS[len(c)][sum(map(abs, c))]


def lattice_boltzmann(ndim: int = 3) -> Stencil:
    """Make a stencil for the lattice Boltzmann equation with a single relaxation time: D2Q9 (`ndim` = 2) or D3Q19
    (`ndim` = 3).

        f_i'(x) = f_i(x - c_i) - (f_i(x - c_i) - f_i^eq) / tau,    rho = 1 + sum f_i,  rho u = sum c_i f_i,
        f_i^eq = w_i (rho - 1 + 3 c_i.j + (9/2 (c_i.j)^2 - 3/2 j.j) / rho),  j = rho u

    One stage performs both streaming and collision. The stage first reads the values that arrive from the neighbours
    ("pull"). Fields: f0 ... f8 or f18, one field without a unit for each of `lattice_directions`. Field f_i holds the
    difference between the distribution function and its value at rest, w_i (`lattice_weights`). In a fluid at rest with
    density 1, all fields are 0. So rounding errors are small compared with the values that describe flow and sound.
    Lattice units: the unit of length is one cell and the unit of time is one step. The speed of sound is 1/sqrt(3), and
    the kinematic viscosity is (tau - 1/2)/3. Keep |u| well below 0.3. Parameter: tau (steps). Near rest, the stencil is
    stable for tau >= 1/2. A faster flow needs a larger tau. Source: Y. H. Qian, D. d'Humieres, P. Lallemand, Europhys.
    Lett. 17, 479, 1992; BGK: P. L. Bhatnagar, E. P. Gross, M. Krook, Phys. Rev. 94, 511, 1954; difference to w_i: P. A.
    Skordos, Phys. Rev. E 48, 4823, 1993.
    """
    velocities = lattice_directions(ndim)
    fields = [Field(f"f{i}") for i in range(len(velocities))]
    rate = 1 / Parameter("tau", 0.8)
    arriving = [f[tuple(-step for step in c)] for f, c in zip(fields, velocities, strict=True)]
    pairs = range(1, len(fields), 2)
    excess = as_one(arriving[0], *(as_one(arriving[i], arriving[i + 1]) for i in pairs))  # rho - 1
    # The vectors `momentum` = 3 j and `speed` = 3/2 j / rho include the factors 3 and 3/2 of f_i^eq.
    flows = {velocities[i]: arriving[i] - arriving[i + 1] for i in pairs}
    momentum = [_whole(_times(sympy.Integer(3), _carried(axis, flows))) for axis in range(ndim)]
    inverse = _times(sympy.Rational(1, 2), 1 / as_one(sympy.S.One, excess))
    speed = [_whole(_times(one, inverse)) for one in momentum]
    energy = as_one(*(_times(one, other) for one, other in zip(momentum, speed, strict=True)))
    still = as_one(excess, _times(-sympy.Rational(1, 3), energy))

    def updated(i: int, equilibrium: sympy.Expr) -> sympy.Expr:
        return (1 - rate) * arriving[i] + _weight(velocities[i]) * rate * equilibrium

    updates = {fields[0]: updated(0, still)}
    for i in pairs:
        along = _along(velocities[i], momentum)
        even = as_one(still, _times(along, _along(velocities[i], speed)))
        updates[fields[i]] = updated(i, as_one(even, along))
        updates[fields[i + 1]] = updated(i + 1, as_one(even, _times(sympy.Integer(-1), along)))
    return Stencil({2: "d2q9", 3: "d3q19"}[ndim], updates, "f_i'(x) = f_i(x - c_i) - (f_i(x - c_i) - feq_i)/tau")


def _times(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """Return a product that SymPy does not rearrange, so that other expressions can share its factors."""
    return sympy.Mul(a, b, evaluate=False)


def _whole(term: sympy.Expr) -> sympy.Expr:
    """Return `term` as one factor of a product. So a sum does not combine `term` with other terms that have the same
    coefficient."""
    return _times(sympy.S.One, term)


def _carried(axis: int, flows: Mapping[Vector, sympy.Expr]) -> sympy.Expr:
    """Return the component of the momentum j along `axis`: the sum of c[axis] times the flow along c. `flows` contains
    one velocity c of each pair of opposite velocities. The flow along c is the difference between the fields of c and
    of -c."""
    return as_one(
        *(_times(sympy.Integer(c[axis]), flow) if c[axis] < 0 else flow for c, flow in flows.items() if c[axis])
    )


def _along(c: Vector, vector: Sequence[sympy.Expr]) -> sympy.Expr:
    """Return the scalar product of a lattice velocity and a vector. The first nonzero component of the velocity must be
    positive."""
    terms = [one if step > 0 else _times(sympy.Integer(step), one) for step, one in zip(c, vector, strict=True) if step]
    return as_one(*terms) if len(terms) > 1 else terms[0]


def stream_function() -> Stencil:
    """Make a stencil for Laplace's equation psi_yy + psi_xx = 0 in 2-D by Jacobi's iteration: psi' = (sum of the four
    neighbours) / 4.

    psi (m^2/s) is the stream function of a flow without friction or vorticity. The contours of psi are stream lines.
    The difference of psi between two points is the flux between these points. The values on a fixed rim are the
    boundary condition. `inlet_outlet` computes such values. The stencil has no parameters. The iteration converges on
    any grid. For example, each step multiplies an error with the shape of k half waves along a side of n cells by
    cos(pi k/n). Source: C. G. J. Jacobi, Astron. Nachr. 22, 297, 1845; example: A. Jackson, EPCC's computational fluid
    dynamics exercise.
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
    """Return a function planes(z0, z1) that computes the initial values of `stream_function` for a box with two
    openings.

    `shape` is (nz, nx), and the planes have the shape (z1 - z0, nx). A flow of `flux` m^2/s enters through the first
    row, between the cells `inlet` = (first, last) along x. The flow leaves through the last column, between the cells
    `outlet` = (first, last) along z. The values of psi are constant along walls, change linearly over an opening, and
    are 0 inside the box. Raises InputError if an opening is empty or does not lie within its side.
    """
    nz, nx = as_sizes("inlet_outlet", shape, 2, minimum=2)
    flux, kind = as_finite(flux, "inlet_outlet: flux"), as_real_dtype("inlet_outlet", dtype)
    inlet, outlet = _as_opening("inlet", inlet), _as_opening("outlet", outlet)
    for name, (first, last), extent in (("inlet", inlet, nx), ("outlet", outlet, nz)):
        if not 0 <= first < last <= extent - 1:
            raise InputError(f"inlet_outlet: {name} {(first, last)} must ascend and lie within 0 and {extent - 1}")
    # psi is 0 left of the inlet, grows along the inlet, is constant from the inlet to the outlet, and falls along the
    # outlet.
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
    """Convert the first and the last cell of an opening to numbers. Raises InputError for other values."""
    if not isinstance(ends, Sequence) or isinstance(ends, str) or len(ends) != 2:
        raise InputError(f"inlet_outlet: {name} {shown(ends)} must be two cells, the first and the last")
    return as_size(ends[0], f"inlet_outlet: {name}", minimum=0), as_size(ends[1], f"inlet_outlet: {name}", minimum=0)
