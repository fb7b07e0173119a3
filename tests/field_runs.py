"""Generate random runs of stencils with several fields, stages, previous values, signals and boundaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import sympy
from hypothesis import strategies as st

import outcrop as oc
from outcrop.language.boundary import Boundary
from outcrop.language.stencil import Field, Parameter, Signal, Stencil
from outcrop.plan.plan import Plan, Sizes
from outcrop.plan.tuner import build
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from strategies import MACHINE, assumed_rate, schemes_for

Offset = tuple[int, int, int]


def mean(*terms: sympy.Expr) -> sympy.Expr:
    """Return a bounded mean of the terms. The bound keeps the values of random stencils finite."""
    return sum(terms) / (len(terms) + 1)


@st.composite
def offsets(draw: st.DrawFn, count: int = 2) -> list[Offset]:
    """Generate the offsets of some random neighbours."""
    return [draw(st.tuples(*[st.integers(-2, 2)] * 3)) for _ in range(count)]


def waves(near: Sequence[Offset]) -> Stencil:
    """Make a stencil of second order in time. Its velocity and its damping are static fields."""
    u, v, damp = Field("u"), Field("v"), Field("damp")
    spread = mean(*(u[offset] for offset in near)) * v[0, 0, 0]
    return Stencil("waves", {u: damp[0, 0, 0] * (u[0, 0, 0] - u.previous[0, 0, 0] / 2) + spread / 4})


def staggered(near: Sequence[Offset]) -> Stencil:
    """Make a stencil of two stages that uses a signal. Each field needs only one copy in memory."""
    e, h, w, c = Field("e"), Field("h"), Signal("w"), Parameter("c", 0.3)
    return Stencil(
        "staggered",
        [
            {h: h[0, 0, 0] / 2 + c * mean(*(e[offset] for offset in near))},
            {e: e[0, 0, 0] / 2 - c * mean(*(h[offset] for offset in near)) + w * h[0, 0, 0] / 9},
        ],
    )


def species(near: Sequence[Offset]) -> Stencil:
    """Make a stencil that updates three fields in one stage. Two of the fields need two copies, and the third field
    needs one copy.
    """
    a, b, trace = Field("a"), Field("b"), Field("trace")
    spread_a, spread_b = (mean(*(one[offset] for offset in near)) for one in (a, b))
    return Stencil(
        "species",
        {
            a: (spread_a + b[0, 0, 0] * a[0, 0, 0]) / 3,
            b: sympy.Max(spread_b, a[0, 0, 0]) / 2,
            trace: trace[0, 0, 0] / 2 + a[near[0]] / 4,
        },
    )


def memory(near: Sequence[Offset]) -> Stencil:
    """Make a stencil whose second stage reads previous values that the first stage has replaced.

    The first stage reads a model in neighbouring cells.
    """
    p, q, m = Field("p"), Field("q"), Field("m")
    return Stencil(
        "memory",
        [
            {p: mean(*(p[offset] * m[offset] for offset in near), q[0, 0, 0])},
            {q: (q[0, 0, 0] + p[near[-1]] - p.previous[near[0]]) / 3},
        ],
    )


def heat(near: Sequence[Offset]) -> Stencil:
    """Make a stencil of one field. Every scheme supports this stencil."""
    u = Field("u")
    return Stencil("heat", {u: mean(u[0, 0, 0], *(u[offset] for offset in near))})


def placed(near: Sequence[Offset]) -> Stencil:
    """Make a stencil of two stages that reads positions, the number of the step and the size of the grid. The stencil
    also reads them inside functions and conditions, and updates boxes."""
    u, v = Field("u"), Field("v")
    slope = sympy.sin(oc.z * oc.nx - oc.y) / 2 + sympy.cos(oc.x + oc.t) * oc.y / oc.ny
    here = u[0, 0, 0] / 2 + slope * mean(*(u[offset] for offset in near))
    rows = sympy.Piecewise((v[near[0]], oc.y > oc.z), (u[0, 0, 0] + oc.x, True))
    boxes = {v: v[0, 0, 0] / 3, v.box[2:, 1:-1, :-3]: rows / 4, v.box[-2:, 3:]: 1 / oc.nz}
    return Stencil("placed", [{u: here}, boxes])


def old(near: Sequence[Offset]) -> Stencil:
    """Make a stencil that reads values three updates back, also in neighbouring cells."""
    u, w = Field("u"), Field("w")
    spread = mean(*(u.back(2)[offset] for offset in near), u.back(3)[near[1]])
    first = {u: (u[0, 0, 0] - u.previous[0, 0, 0] + spread) / 3, w: (w[near[0]] - w.previous[near[1]]) / 2}
    return Stencil("old", [first, {w: w[0, 0, 0] / 2 + u.back(3)[near[0]] / 4}])


FEW_ROWS = st.integers(1, 3)
"""Numbers of rows of a grid with few rows. On a grid of two axes, a plane has one row."""

STENCILS = {make.__name__: make for make in (waves, staggered, species, memory)}
PLACED = {make.__name__: make for make in (placed, old)}


@st.composite
def boundaries(draw: st.DrawFn) -> Boundary:
    """Generate a random kind of boundary for each side."""
    pair = st.sampled_from([("periodic", "periodic")]) | st.tuples(*[st.sampled_from(["fixed", "mirror"])] * 2)
    return Boundary(draw(pair), draw(pair), draw(pair))


@st.composite
def field_runs(
    draw: st.DrawFn, stencils: Mapping[str, Callable[[Sequence[Offset]], Stencil]] = STENCILS
) -> tuple[Stencil, Boundary, Plan]:
    """Generate a random run: a stencil of any kind with any boundary, a small grid of irregular shape, and a legal
    plan."""
    stencil = draw(st.sampled_from(sorted(stencils.items())))[1](draw(offsets()))
    boundary = draw(boundaries())
    shape = draw(st.tuples(st.integers(1, 26), FEW_ROWS | st.integers(1, 20), st.integers(1, 40)))
    layout = make_layout(shape, draw(st.sampled_from(["float32", "float64"])))
    problem = as_problem(stencil, layout, draw(st.integers(1, 6)), boundary, in_place=draw(st.booleans()))
    is_cut_y, is_cut_x = not problem.periodic[1], not problem.periodic[2]
    keeps = draw(st.booleans())
    sizes = Sizes(
        levels=problem.stages * draw(st.integers(1, problem.steps)),
        slab=draw(st.integers(1, problem.planes + 3)),
        diamond=draw(st.integers(0, 4)),
        sweep_rows=draw(st.integers(1, 7)),
        planes_per_call=draw(st.integers(1, 4)),
        block_x=draw(st.sampled_from([0, 0, 16])) if is_cut_x else 0,
        block_y=draw(st.integers(0, shape[1])) if is_cut_y else 0,
        block_z=draw(st.integers(0, shape[0])),
        keeps_statics=keeps,
        chunk=draw(st.sampled_from([0, 0, 0, 0, 1, 2, 5, 12])),
        rows_at_once=draw(st.sampled_from([1, 2, 4])),
        prefetch=draw(st.booleans()),
        columns=draw(st.sampled_from([0, 0, 16, 48])),
    )
    scheme = draw(schemes_for(problem))
    if scheme.name != "wavefront":
        sizes = Sizes(**{**sizes.__dict__, "keeps_statics": False})
    return stencil, boundary, build(problem, scheme, sizes, MACHINE, assumed_rate)


def wavelet(stencil: Stencil, steps: int) -> dict[str, list[float]]:
    """Return random values for each signal of the stencil."""
    return {name: [0.1 * (step % 3) for step in range(steps)] for name in stencil.given_signals}
