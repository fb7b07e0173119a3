"""Several fields, stages, previous values, signals and boundaries: every plan gives the oracle's bits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from execution import array_names, execute_fields, random_state
from outcrop import _core
from outcrop.language.boundary import Boundary
from outcrop.language.compile import available_isas
from outcrop.language.stencil import Field, Parameter, Signal, Stencil
from outcrop.plan.plan import Plan, Sizes
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import build
from outcrop.plan.validate import validate
from outcrop.run.arguments import as_problem
from outcrop.run.disk.layout import make_layout
from outcrop.run.oracle import advance_fields
from outcrop.run.rehearsal import rehearse_fields
from strategies import MACHINE, assumed_rate, examples, schemes_for

BACKENDS = [name for name, reason in _core.probe().items() if not reason and name != "memory"]

Offset = tuple[int, int, int]
HERE: Offset = (0, 0, 0)


def mean(*terms: sympy.Expr) -> sympy.Expr:
    """Bounded, so that random stencils stay finite."""
    return sum(terms) / (len(terms) + 1)


@st.composite
def offsets(draw: st.DrawFn, count: int = 2) -> list[Offset]:
    """Some neighbours."""
    return [draw(st.tuples(*[st.integers(-2, 2)] * 3)) for _ in range(count)]


def waves(near: Sequence[Offset]) -> Stencil:
    """Second order in time, with a velocity and a damping that are only read."""
    u, v, damp = Field("u"), Field("v"), Field("damp")
    spread = mean(*(u[offset] for offset in near)) * v[0, 0, 0]
    return Stencil("waves", {u: damp[0, 0, 0] * (u[0, 0, 0] - u.previous[0, 0, 0] / 2) + spread / 4})


def staggered(near: Sequence[Offset]) -> Stencil:
    """Two stages, each field updated where it lies, with a wavelet."""
    e, h, w, c = Field("e"), Field("h"), Signal("w"), Parameter("c", 0.3)
    return Stencil(
        "staggered",
        [
            {h: h[0, 0, 0] / 2 + c * mean(*(e[offset] for offset in near))},
            {e: e[0, 0, 0] / 2 - c * mean(*(h[offset] for offset in near)) + w * h[0, 0, 0] / 9},
        ],
    )


def species(near: Sequence[Offset]) -> Stencil:
    """Two fields that need two copies each, updated at once, and one where it lies."""
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
    """A later stage that reads what an earlier one has replaced, and a model at neighbours."""
    p, q, m = Field("p"), Field("q"), Field("m")
    return Stencil(
        "memory",
        [
            {p: mean(*(p[offset] * m[offset] for offset in near), q[0, 0, 0])},
            {q: (q[0, 0, 0] + p[near[-1]] - p.previous[near[0]]) / 3},
        ],
    )


FEW_ROWS = st.integers(1, 3)
"""Grids that are not worth cutting along y, as those of two axes."""

STENCILS = {make.__name__: make for make in (waves, staggered, species, memory)}


@st.composite
def boundaries(draw: st.DrawFn) -> Boundary:
    """Every side of any kind."""
    pair = st.sampled_from([("periodic", "periodic")]) | st.tuples(*[st.sampled_from(["fixed", "mirror"])] * 2)
    return Boundary(draw(pair), draw(pair), draw(pair))


@st.composite
def field_runs(
    draw: st.DrawFn, stencils: Mapping[str, Callable[[Sequence[Offset]], Stencil]] = STENCILS
) -> tuple[Stencil, Boundary, Plan]:
    """A stencil of each kind with any boundary on a small odd grid, with any legal plan."""
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
    )
    scheme = draw(schemes_for(problem))
    if scheme.name != "wavefront":
        sizes = Sizes(**{**sizes.__dict__, "keeps_statics": False})
    return stencil, boundary, build(problem, scheme, sizes, MACHINE, assumed_rate)


def wavelet(stencil: Stencil, steps: int) -> dict[str, list[float]]:
    """Values for every signal."""
    return {name: [0.1 * (step % 3) for step in range(steps)] for name in stencil.signals}


@settings(max_examples=examples(120), deadline=None)
@given(field_runs(), st.integers(0, 2**32 - 1))
def test_plans_of_several_fields_are_legal_and_mean_the_oracles_steps(
    run: tuple[Stencil, Boundary, Plan], seed: int
) -> None:
    """Protects planning for several fields, stages and boundaries: proved without data, and done by NumPy."""
    stencil, boundary, plan = run
    problem = plan.problem
    validate(plan)
    state = random_state(stencil, problem.shape, problem.dtype, seed)
    signals = wavelet(stencil, problem.steps)
    right = advance_fields(stencil, state, {}, problem.steps, boundary, signals)
    found = rehearse_fields(plan, stencil, {}, state, signals)
    for name in array_names(stencil)[0]:
        np.testing.assert_array_equal(found[name], right[name], err_msg=name)


@settings(max_examples=examples(120), deadline=None)
@given(
    field_runs(),
    st.integers(1, 4),
    st.sampled_from(BACKENDS),
    st.sampled_from(available_isas()),
    st.integers(0, 2**32 - 1),
)
def test_executor_gives_the_oracles_bits_of_several_fields(
    run: tuple[Stencil, Boundary, Plan], threads: int, backend: str, isa: str, seed: int
) -> None:
    """Protects promise 1 for several fields: same bits, whatever the plan, the boundary, the threads, the storage."""
    stencil, boundary, plan = run
    problem = plan.problem
    state = random_state(stencil, problem.shape, problem.dtype, seed)
    signals = wavelet(stencil, problem.steps)
    with tempfile.TemporaryDirectory() as folder:
        result, moved = execute_fields(Path(folder), stencil, plan, state, threads, backend, signals=signals, isa=isa)
    right = advance_fields(stencil, state, {}, problem.steps, boundary, signals)
    for name, array in result.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)
    assert moved == (plan.predicted.bytes_read, plan.predicted.bytes_written)


@pytest.mark.parametrize("name", sorted(STENCILS))
def test_a_scheme_that_keeps_unfinished_levels_refuses_several_fields(name: str) -> None:
    """Protects from wrong bits: skewed schemes know one field in one stage."""
    stencil = STENCILS[name]([(0, 0, 1), (1, 0, 0)])
    problem = as_problem(stencil, make_layout((9, 9, 9), "float32"), 2, Boundary(), in_place=False)
    refusal = SCHEMES["skewed-5y"].refusal(problem)
    assert refusal is not None and "one field only" in refusal
