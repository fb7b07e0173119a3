"""Check adjoint and tangent stencils: comparisons with JAX, results in exact fractions, and runs by the engine."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoint_cases import BOUNDARIES, NAMES, STENCILS, all_names, grid, static_names, values
from backwards import PLAIN, Dual, State, Steps, inner, put, reverse
from execution import array_names, execute_fields, random_state
from oracle import advance_fields
from outcrop.errors import InputError
from outcrop.language import library
from outcrop.language.adjoint import adjoint_of, edge_values
from outcrop.language.boundary import Boundary, as_boundary
from outcrop.language.functions import FUNCTIONS
from outcrop.language.linearised import tangent
from outcrop.language.stencil import PREVIOUS, Field, Stencil
from outcrop.plan.planner import choose, smallest_budget_bytes
from outcrop.plan.schemes import SCHEMES
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from strategies import MACHINE, assumed_rate, examples

STEPS = 2
LINEAR = set(STENCILS) - {"gray_scott", "sharpen", "d2q9", "d3q19", "twice", "older", "names", "kinks", "plane"} - {
    "functions", "conditions",
}  # fmt: skip
"""The stencils whose next values are linear in the fields that they update. `sharpen` does not read its field."""
SHARP, IMAGE = Field("sharp"), Field("image")
EXACT = STENCILS | {"sharpen": Stencil("sharpen", {SHARP: 2 * IMAGE[0, 0] - IMAGE[1, -1] / 2 - IMAGE[-2, 0] / 4})}
"""The stencils that are computed in exact fractions. `sharpen` has 3 taps, because 289 taps take too long."""


def signals_of(stencil: Stencil, seed: int) -> dict[str, list[float]]:
    rng = np.random.default_rng(seed)
    return {name: rng.random(STEPS).tolist() for name in stencil.signals}


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name in STENCILS for text in (BOUNDARIES if name not in NAMES else BOUNDARIES[:3])],
)
def test_the_adjoint_is_that_of_jax(name: str, text: str) -> None:
    """Checks that the adjoints and all gradients of two steps equal the result of jax.vjp for the same steps, in
    float64."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    stencil = STENCILS[name]
    boundary, shape = grid(stencil, text)
    state, signals = values(stencil, shape, 1), signals_of(stencil, 2)
    cells = inner(stencil, boundary, shape)
    where = jax.numpy.where
    steps = Steps(
        stencil,
        boundary,
        {
            **PLAIN,
            **{one: getattr(jax.numpy, one) for one in ("sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "sign")},
            "atan2": jax.numpy.arctan2,
            "pow": jax.numpy.power,
            "where": lambda a, b, c, d: where(a > b, c, d),
            "where_equal": lambda a, b, c, d: where(a == b, c, d),
            "abs": lambda a: where(a < 0, -a, a),
            "min": lambda a, b: where(a < b, a, b),
            "max": lambda a, b: where(a > b, a, b),
        },
        lambda array, index, new: array.at[index].set(new),
    )
    static = static_names(stencil)
    changing = {key: jax.numpy.array(one) for key, one in state.items() if key not in static}
    medium = {key: jax.numpy.array(state[key]) for key in static}
    parameters = {one.name: one.default for one in stencil.parameters}

    def run(now: State, medium: State, scalars: State) -> State:
        for row in rows(scalars):
            now = {key: one for key, one in steps.advance({**medium, **now}, row).items() if key in now}
        return now

    def rows(scalars: State) -> list[list[Any]]:
        of_steps = [[scalars[key][step] for key in signals] for step in range(STEPS)]
        return [[*(scalars[key] for key in parameters), *row] for row in of_steps]

    given = {**parameters, **{key: np.array(one) for key, one in signals.items()}}
    after, vjp = jax.vjp(run, changing, medium, {key: jax.numpy.array(one) for key, one in given.items()})
    seeds = {key: np.zeros(shape) for key in after}
    rng = np.random.default_rng(3)
    for key in seeds:
        if not key.endswith(PREVIOUS):
            seeds[key][cells] = rng.standard_normal(seeds[key][cells].shape)
    expected = vjp({key: jax.numpy.array(one) for key, one in seeds.items()})
    forward = Steps(stencil, boundary, PLAIN, put)
    found = reverse(adjoint_of(stencil, all_names(stencil), boundary), forward, state, rows(given), seeds)
    for key, one in {**expected[0], **expected[1]}.items():
        ours = {**found.adjoints, **found.gradients}.get(key, np.zeros(shape))
        assert_near(ours[cells], np.asarray(one)[cells], key)
    for key, one in expected[2].items():
        assert_near(np.asarray(found.gradients.get(key, 0.0)), np.asarray(one), key)


def assert_near(found: Any, expected: Any, what: str) -> None:
    scale = np.abs(expected).max(initial=1e-6)
    assert np.abs(found - expected).max(initial=0.0) <= 1e-12 * scale, what


def fractions(rng: np.random.Generator, shape: tuple[int, ...], cells: tuple[slice, ...]) -> Any:
    """Return an array of exact fractions: random multiples of 1/8 in `cells`, and 0 in all other cells."""
    numbers = np.full(shape, Fraction(0))
    chosen = rng.integers(1, 9, numbers[cells].shape)
    numbers[cells] = np.array([Fraction(int(one), 8) for one in chosen.flat], object).reshape(chosen.shape)
    return numbers


def duals(values: Any, slopes: Any = None) -> Any:
    """Return an array of dual numbers. Without `slopes`, their derivatives are 0."""
    return np.vectorize(Dual, otypes=[object])(values, values * 0 if slopes is None else slopes)


WITHOUT_ROOTS = [
    name
    for name, one in EXACT.items()
    if not any(f"'{operator}'" in str(stage.program) for stage in one.stages for operator in ("sqrt", *FUNCTIONS))
]
"""The stencils without operations that have no exact result in fractions."""


@dataclass(frozen=True)
class Change:
    """A step F of a stencil in exact fractions, and a change of its input. The input consists of `state` and `scalars`.
    The change has parts for the state, its previous values, static fields and scalars. `end` has dual numbers: the
    values after the step, and F' of the change."""

    boundary: Boundary
    shape: tuple[int, ...]
    cells: tuple[slice, ...]
    state: dict[str, Any]
    scalars: dict[str, Fraction]
    changes: dict[str, Any]
    slopes: dict[str, Fraction]
    end: dict[str, Any]


def change_of(stencil: Stencil, text: str, rng: np.random.Generator) -> Change:
    boundary, shape = grid(stencil, text, spare=2 if stencil.ndim > 1 else 3)
    cells, everything = inner(stencil, boundary, shape), (slice(None),) * 3
    state = {key: fractions(rng, shape, everything) for key in values(stencil, shape, 0)}
    names = [*(one.name for one in stencil.parameters), *stencil.signals]
    scalars, slopes = ({name: Fraction(int(rng.integers(1, 9)), 8) for name in names} for _ in range(2))
    changes = {key: fractions(rng, shape, cells) for key in state}
    start = {key: duals(one, changes[key]) for key, one in state.items()}
    own_scalars = [Dual(one, slopes[name]) for name, one in scalars.items()]
    end = Steps(stencil, boundary, PLAIN, put, lambda value: Dual(Fraction(value))).advance(start, own_scalars)
    return Change(boundary, shape, cells, state, scalars, changes, slopes, end)


@pytest.mark.parametrize("text", BOUNDARIES)
@pytest.mark.parametrize("name", WITHOUT_ROOTS)
def test_tangents_are_the_derivative_in_exact_fractions(name: str, text: str) -> None:
    """Compares one step of the tangent with a step in dual numbers, for each family of stencils. All inputs have a
    change."""
    stencil = EXACT[name]
    made, one = tangent(stencil, all_names(stencil)), change_of(stencil, text, np.random.default_rng(6))

    def of_change(key: str) -> str:
        return f"{key.removesuffix(PREVIOUS)}_tangent{PREVIOUS * key.endswith(PREVIOUS)}"

    start = {**one.state, **{of_change(key): change for key, change in one.changes.items()}}
    scalars = {**one.scalars, **{of_change(key): slope for key, slope in one.slopes.items()}}
    own_scalars = [scalars[key] for key in (*(two.name for two in made.parameters), *made.signals)]
    end = Steps(made, one.boundary, PLAIN, put, Fraction).advance(start, own_scalars)
    for key in one.end.keys() - static_names(stencil):
        for found, part in ((end[key], "value"), (end[of_change(key)], "slope")):
            assert np.array_equal(found, np.vectorize(lambda dual, part=part: getattr(dual, part))(one.end[key])), key


@pytest.mark.parametrize("text", BOUNDARIES)
@pytest.mark.parametrize("name", WITHOUT_ROOTS)
def test_small_changes_and_adjoints_agree_in_exact_fractions(name: str, text: str) -> None:
    """Checks that <F' d, a> = <d, F'* a> for one step F of each family, in exact fractions. F' d is computed with dual
    numbers. The change d has parts for the state, its previous values, static fields, parameters and signals."""
    stencil, rng = EXACT[name], np.random.default_rng(4)
    one, medium, wrt = change_of(stencil, text, rng), static_names(stencil), all_names(stencil)
    updated = [key for key in one.state if key not in medium and not key.endswith(PREVIOUS)]
    seeds = {key: fractions(rng, one.shape, one.cells) for key in updated}
    forward = Steps(stencil, one.boundary, PLAIN, put, Fraction)
    back = reverse(adjoint_of(stencil, wrt, one.boundary), forward, one.state, [[*one.scalars.values()]], seeds)
    left = sum((np.sum(one.end[key] * duals(seed)).slope for key, seed in seeds.items()), Fraction(0))
    both = ((bar, one.changes[key]) for key, bar in back.adjoints.items() if key in one.changes)
    right = sum((np.sum(bar * change) for bar, change in both), Fraction(0))
    for key, bar in back.gradients.items():
        right += np.sum(bar * one.changes[key]) if key in medium else np.sum(bar) * one.slopes[key]
    assert left == right
    assert left != 0


@pytest.mark.parametrize("text", BOUNDARIES)
@pytest.mark.parametrize("name", [name for name in STENCILS if name in LINEAR])
def test_linear_steps_and_their_adjoint_agree_in_exact_fractions(name: str, text: str) -> None:
    """Checks that <F d, a> = <d, F* a> for two steps F of each linear stencil, in exact fractions. The state d has
    previous values."""
    stencil = STENCILS[name]
    boundary, shape = grid(stencil, text, spare=2 if stencil.ndim > 1 else 3)
    rng, cells, everything = np.random.default_rng(5), inner(stencil, boundary, shape), (slice(None),) * 3
    medium = static_names(stencil)
    state = {key: fractions(rng, shape, everything if key in medium else cells) for key in values(stencil, shape, 0)}
    parameters = [Fraction(int(one), 8) for one in rng.integers(1, 9, len(stencil.parameters))]
    rows = [[*parameters, *(Fraction(int(one), 8) for one in rng.integers(1, 9, len(stencil.signals)))]
            for _ in range(STEPS)]  # fmt: skip
    forward, end = Steps(stencil, boundary, PLAIN, put, Fraction), dict(state)
    for row in rows:
        end |= forward.advance(end, row)
    seeds = {key: fractions(rng, shape, cells) for key in state if key not in medium and not key.endswith(PREVIOUS)}
    back = reverse(adjoint_of(stencil, (), boundary), forward, state, rows, seeds)
    left = sum((np.sum(end[key] * seed) for key, seed in seeds.items()), Fraction(0))
    assert left == sum((np.sum(one * state[key]) for key, one in back.adjoints.items() if key in state), Fraction(0))
    assert left != 0


def test_ties_take_the_documented_side() -> None:
    """Checks the adjoint at points where Min, Max and Abs have no derivative. For Min and Max, the derivative of the
    second operand is used. For Abs, the value 1 is used."""
    import sympy

    u, k = Field("u"), Field("k")
    state = {"u": np.zeros((1, 1, 3)), "k": np.zeros((1, 1, 3))}
    boundary = as_boundary("fixed")
    for update in (sympy.Max(u[0], k[0]), sympy.Min(u[0], k[0]), abs(u[0])):
        stencil = Stencil("tie", {u: update}, ndim=1)
        if "k" in static_names(stencil):
            operation = stencil.stages[0].program.operations[-1]
            second = stencil.stages[0].program.operations[operation.operands[1]]  # type: ignore[union-attr]
            chosen = stencil.fields[second.field].name  # type: ignore[union-attr]
        found = reverse(
            adjoint_of(stencil, static_names(stencil)), Steps(stencil, boundary, PLAIN, put),
            {key: state[key] for key in values(stencil, (1, 1, 3), 0)}, [[]], {"u": np.ones((1, 1, 3))},
        )  # fmt: skip
        if update.func == sympy.Abs:
            assert found.adjoints["u"].tolist() == [[[1, 1, 1]]]
        else:
            assert found.adjoints["u"].tolist() == [[[float(chosen == "u")] * 3]]
            assert found.gradients["k"].tolist() == [[[float(chosen == "k")] * 3]]


@pytest.mark.parametrize(
    "name", ["acoustic4_2d_sponge", "maxwell", "kinks", "older", "damped", "functions", "conditions"]
)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_kernels_of_adjoints_have_the_oracles_bits(name: str, data: st.DataObject) -> None:
    """Checks that the schemes execute an adjoint stencil like any other stencil, with the values of the forward step as
    static fields."""
    text = data.draw(st.sampled_from(BOUNDARIES))
    forward = STENCILS[name]
    boundary, shape = grid(forward, text, spare=data.draw(st.integers(3, 20)))
    stencil = adjoint_of(forward, all_names(forward), boundary).stencil
    assert Stencil.from_json(stencil.to_json()) == stencil
    assert stencil.radii == forward.radii
    dtype, steps = data.draw(st.sampled_from(["float32", "float64"])), data.draw(st.integers(1, 4))
    signals = {key: [0.5] * steps for key in stencil.signals}
    state = {key: (one + 1) / 2 for key, one in random_state(stencil, shape, dtype, 5).items()}
    expected = advance_fields(stencil, state, {}, steps, boundary, signals)
    problem = as_problem(stencil, make_layout(shape, dtype), steps, boundary, in_place=False)
    scheme = data.draw(st.sampled_from([one for one in SCHEMES.values() if one.refusal(problem) is None]))
    budget = data.draw(st.integers(1, 3)) * smallest_budget_bytes(problem, scheme.name)
    plan = choose(problem, MACHINE, budget, scheme.name, assumed_rate).plan
    with tempfile.TemporaryDirectory() as folder:
        found, _ = execute_fields(Path(folder), stencil, plan, state, threads=2, backend="threads", signals=signals)
    for key in array_names(stencil)[0]:
        assert found[key].tobytes() == expected[key].tobytes(), key


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="no derivative by 'w'; there are: v, dt, h"):
        adjoint_of(library.find_stencil("acoustic2"), ["w"])
    with pytest.raises(InputError, match="no derivative by 'u'"):
        adjoint_of(library.find_stencil("heat7"), ["u"])
    with pytest.raises(InputError, match="a mirrored axis has 3 cells; the adjoint of this stencil needs 4 or more"):
        edge_values(3, 2)


def test_a_linear_equation_needs_no_values_of_the_forward_run() -> None:
    """Checks that the adjoint of a linear stencil reads no values of the forward run. The adjoint of a wave equation
    has only two fields: the adjoint of u, and the velocity."""
    for name in ("heat7", "acoustic8_sponge", "elastic4", "maxwell_lossy", "advection1"):
        assert not adjoint_of(library.find_stencil(name)).history, name
    wave, operations = library.find_stencil("acoustic8"), {}
    for is_scaled in (False, True):
        found = adjoint_of(wave, is_scaled=is_scaled)
        assert [field.name for field in found.stencil.fields] == ([] if is_scaled else ["u_w0"]) + ["u_adj", "v"]
        operations[is_scaled] = sum(len(stage.program.operations) for stage in found.stencil.stages)
    assert operations[True] <= 1.1 * len(wave.stages[0].program.operations) < operations[False]
    assert adjoint_of(library.find_stencil("gray_scott")).history
