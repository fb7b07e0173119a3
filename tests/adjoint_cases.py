"""Stencils, small grids and values for tests of adjoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy

import outcrop as oc
from backwards import PLAIN, State, Steps, inner, put, reverse
from outcrop.language import library
from outcrop.language.adjoint import adjoint_of
from outcrop.language.boundary import Boundary, as_boundary, boundary_on_grid
from outcrop.language.stencil import PREVIOUS, Field, Parameter, Signal, Stencil
from strategies import SOAK

FAMILIES = [
    "heat7", "heat13", "box27", "heat2", "acoustic2", "acoustic4_2d_sponge", "elastic2", "maxwell", "maxwell_lossy",
    "gray_scott", "advection1", "stream_function", "sharpen", "d2q9", "d3q19",
]  # fmt: skip
"""One stencil of each family, and options that change its equations."""
MORE = [
    "heat8", "heat4_2d", "heat6_1d", "acoustic8", "acoustic4_1d", "acoustic8_sponge", "elastic4", "elastic4_2d",
    "maxwell_2d_te", "maxwell_1d", "maxwell_vacuum", "gray_scott_2d", "advection2", "advection2_2d",
]  # fmt: skip
"""Stencils that only `make soak` compares: other orders, fewer axes."""
NAMES = FAMILIES + (MORE if SOAK > 1 else [])
BOUNDARIES = ["fixed", "periodic", "mirror", "y=mirror:fixed,x=periodic"]


def users() -> list[Stencil]:
    """Return stencils with features that no built-in stencil has. The features are signals, two updates of a field,
    positions, boxes, values of four steps, functions, and operations without a derivative."""
    u, v, k, a, s = Field("u"), Field("v"), Field("k"), Parameter("a", 0.3), Signal("s")
    return [
        Stencil("signals", {u: u[0] + s * a * (u[1] - 2 * u[0] + u[-1]) + s**2 * k[1] * u[-2]}),
        Stencil("twice", [{u: u[0] * u[1]}, {v: v[0] + a * u[-1] ** 2}, {u: u[0] + a * v[1] * u[0]}]),
        Stencil("older", [{v: v[0] + a * u.previous[1] * u[0]}, {u: u[0] + a * (v[1] - v.previous[0]) * u[-1]}]),
        Stencil("damped", {u: 2 * u[0] - (1 - k[0]) * u.previous[0] + a * (k[1] * u[1] - k[0] * (u[0] - u[-1]))}),
        Stencil("driven", {u: 2 * u[0] - s * u.previous[0] + a * (u[1] + u[-1])}),
        Stencil("names", {u: u[0] + Field("u_adj")[1] * u[-1] ** 2 * Field("edge_x")[-1]}),
        Stencil("kinks", {u: sympy.Max(u[1], a * u[0]) + sympy.Min(u[-1], k[0]) * abs(u[0] - a) + sympy.sqrt(u[2])}),
        Stencil("functions", {u: sympy.exp(-a * u[0]) * (1 + sympy.sin(u[1]) * sympy.cos(u[-1])) / 2
                              + sympy.log(1 + u[0] * k[1]) ** 2 + sympy.atan2(u[1], k[0]) * sympy.tanh(s * u[0]) / 4
                              + u[0] ** a / 8 + k[0] ** u[1] / 8 + u[-1] ** 1.5 * sympy.sign(u[0] - k[0]) / 16
                              + sympy.tan(a * k[0]) * sympy.exp(s) / 8}),
        Stencil("conditions", {u: sympy.Piecewise(
            (u[0] * u[1], u[0] > k[0]), (u[1] / (k[0] + u[-1]), sympy.Or(u[1] >= u[-1], sympy.Eq(u[0], u[1]))),
            (a * u[-1] ** 2, sympy.And(u[0] <= a * k[1], sympy.Ne(u[1], k[0]))), (k[0] * u[0], True))}),
        Stencil("places", {u: u[0, 0] + a * oc.x / oc.nx * k[0, 1] * (u[0, 1] - u[0, -1])
                           + (oc.y - oc.ny / 2) * u[1, 0] / 8 + oc.x * k[0, 0] * u[0, -1] / 4}),
        Stencil("boxes", {u: a * u[0], u.box[2:-2]: u[1] * k[-1] - u[-1] / 2, u.box[:3]: k[0] * u[2]}),
        Stencil("fourth", {u: 2 * u[0] - k[0] * u.previous[0] + a * (u.back(2)[1] - u.back(3)[0])}),
        Stencil("plane", {u: u[0, 0] / (1 + u[1, 0] ** 2) + k[-1, 1] * u[2, -1] * u[0, 1] + k[0, 1] * u[-1, -1]}),
    ]  # fmt: skip


STENCILS = {**{name: library.find_stencil(name) for name in NAMES}, **{one.name: one for one in users()}}


def grid(stencil: Stencil, text: str, spare: int = 3, rows: int = 0) -> tuple[Boundary, tuple[int, ...]]:
    """Return a boundary for the axes of the stencil, and the shape of a small grid. If `rows` is given, the grid has
    `rows` cells along y."""
    boundary = boundary_on_grid(as_boundary(text.rpartition(",")[2] if stencil.ndim == 1 else text), stencil.ndim)
    z, y, x = (2 * radius + spare if radius else 1 for radius in stencil.radii)
    return boundary, (z, rows or y, x)


def values(stencil: Stencil, shape: tuple[int, ...], seed: int) -> State:
    """Return random values between 1/2 and 1. An update can divide by a value, so values must not be near 0."""
    rng, state = np.random.default_rng(seed), State()
    for field, storage in zip(stencil.fields, stencil.storage, strict=True):
        state[field.name] = rng.random(shape) / 2 + 0.5
        if storage.history == 2:
            state[field.name + PREVIOUS] = rng.random(shape) / 2 + 0.5
    return state


def static_names(stencil: Stencil) -> list[str]:
    pairs = zip(stencil.fields, stencil.storage, strict=True)
    return [field.name for field, storage in pairs if storage.is_static]


def all_names(stencil: Stencil) -> list[str]:
    """Return the names of all static fields, parameters and signals. Each static field, parameter and signal has a
    gradient."""
    return [*static_names(stencil), *(one.name for one in stencil.parameters), *stencil.signals]


def seeds_of(stencil: Stencil, text: str, spare: int = 5, rows: int = 0) -> dict[str, Any]:
    """Return random derivatives with respect to the last values of each updated field. In the rim, the derivatives are
    0."""
    boundary, shape = grid(stencil, text, spare, rows)
    rng, found, static = np.random.default_rng(3), {}, static_names(stencil)
    for name in (one.name for one in stencil.fields if one.name not in static):
        found[name] = np.zeros(shape)
        cells = inner(stencil, boundary, shape)
        found[name][cells] = rng.standard_normal(found[name][cells].shape)
    return found


def compare_with_oracle(
    gradients: Mapping[str, Any], stencil: Stencil, text: str, steps: int, signals: Sequence[Any], rows: int = 0
) -> None:
    """Compare all gradients of a run of `steps` steps in float64 with the gradients of the oracle. The run began with
    `values(stencil, shape, 1)`, and its adjoint run began with the result of `seeds_of`."""
    (boundary, shape), seeds = grid(stencil, text, 5, rows), seeds_of(stencil, text, rows=rows)
    scalars = [[*(one.default for one in stencil.parameters), *(one[step] for one in signals)] for step in range(steps)]
    derived = adjoint_of(stencil, all_names(stencil), boundary)
    start: State = values(stencil, shape, 1)
    expected = reverse(derived, Steps(stencil, boundary, PLAIN, put), start, scalars, seeds)
    for key, one in gradients.items():
        of = expected.adjoints if key in seeds else expected.gradients
        right = np.asarray(of.get(key, 0.0))
        found = np.asarray(one[:] if np.ndim(right) == 3 else one)
        scale = np.abs(right).max(initial=1e-6)
        assert np.abs(found.reshape(right.shape) - right).max() <= 1e-12 * scale, key
