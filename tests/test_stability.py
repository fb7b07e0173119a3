"""Check the stability limit. Values must grow without bound only above the limit. The analysis must find the limit of
each linear stencil. Error messages must name a stable time step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
import sympy

import outcrop as oc
from fields import noise, run, zeros
from outcrop.errors import InputError
from outcrop.language import library
from outcrop.language.program import Program
from outcrop.language.stability import Extremes, corners, growth, largest_step, linearise
from outcrop.language.stencil import Field, Parameter, Signal, Stencil

ROCK = {"lam": 9e9, "mu": 4.5e9, "b": 1 / 2000}  # vp = 3000 m/s, vs = 1500 m/s
LINEAR: dict[str, Mapping[str, float]] = {
    "heat2": {}, "heat4_2d": {}, "heat8_1d": {}, "acoustic2": {"v": 2000}, "acoustic8_2d": {"v": 2000},
    "acoustic8_1d_sponge": {"v": 2000, "damp": 20}, "elastic2_2d": ROCK, "elastic4": ROCK, "maxwell": {"eps": 2},
    "maxwell_2d": {"eps": 2}, "maxwell_2d_te": {"eps": 2}, "maxwell_1d_lossy": {"eps": 2, "sigma": 0.01},
    "maxwell_vacuum": {}, "advection1": {}, "advection1_2d": {}, "advection2": {}, "advection2_1d": {},
}  # fmt: skip


def largest_after(stencil: Stencil, dt: float, known: Mapping[str, float]) -> float:
    """Run many steps from noise on a small periodic grid. Return the largest value of any field, relative to the
    initial noise.
    """
    steps = 400 if len(stencil.fields) < 6 else 150
    shape = {1: (1, 1, 16), 2: (8, 1, 8), 3: (4, 4, 8)}[stencil.ndim]
    state = noise(stencil, shape, known)
    for one, storage in zip(stencil.fields, stencil.storage, strict=True):
        if stencil.name.startswith("elastic") and one.name.startswith("t") and not storage.is_static:
            state[one.name] *= 6e6  # the amplitude of the stresses in a wave of 1 m/s
    scale = {name: np.abs(array).max() for name, array in state.items()}
    after = run(stencil, state, steps, {"dt": dt})
    with np.errstate(all="ignore"):
        return max(float(np.abs(after[one.name] / scale[one.name]).max()) for one in stencil.fields)


@pytest.mark.parametrize("name", sorted(LINEAR))
def test_a_step_below_the_limit_is_bounded_and_one_above_grows(name: str) -> None:
    """Checks the limit of the step from both sides. With a step of 99.9 % of the limit, values stay bounded. With a
    step of 105 % of the limit, values grow without bound.
    """
    stencil, known = library.find_stencil(name), LINEAR[name]
    limit = library.stable_limit(stencil, {}, [known])
    assert limit is not None
    assert largest_after(stencil, 0.999 * limit, known) < 100
    assert not largest_after(stencil, 1.05 * limit, known) < 1e6


@pytest.mark.parametrize(
    ("name", "known", "formula"),
    [
        ("heat2", {}, 1 / 6),
        ("heat4", {}, 1 / 8),
        ("acoustic2", {"v": 2000}, 10 / 2000 / math.sqrt(3)),
        ("acoustic4_2d", {"v": 2000}, 10 / 2000 * math.sqrt(3 / 8)),
        ("acoustic4_2d_sponge", {"v": 2000, "damp": 50}, 10 / 2000 * math.sqrt(3 / 8)),
        ("elastic2", ROCK, 10 / 3000 / math.sqrt(3)),
        ("elastic4_2d", ROCK, 10 / 3000 / math.sqrt(2) * 6 / 7),
        ("maxwell", {"eps": 4}, 2 * 0.01 / 299792458 / math.sqrt(3)),
        ("maxwell_2d_te", {"eps": 4}, 2 * 0.01 / 299792458 / math.sqrt(2)),
        ("maxwell_1d", {"eps": 4}, 2 * 0.01 / 299792458),
        ("advection1", {}, 1 / 3),
        ("advection2", {}, 1.0),
        ("gray_scott_2d", {}, 2 / (8 * 0.16 + 0.035 + 0.25)),
        ("d2q9", {}, 0.5),
    ],
)
def test_limits_are_those_of_the_formulas(name: str, known: Mapping[str, float], formula: float) -> None:
    """Checks that the limits from the analysis equal the limits from the formulas in the docstrings."""
    found = library.stable_limit(library.find_stencil(name), {}, [known])
    assert found == pytest.approx(formula, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "known"),
    [("heat4_1d", {}), ("advection2_1d", {}), ("acoustic4_1d_sponge", {"v": 2000, "damp": 30}),
     ("maxwell_1d_lossy", {"eps": 2, "sigma": 0.02})],
)  # fmt: skip
@pytest.mark.parametrize("factor", [0.7, 1.6])
def test_growth_is_the_spectral_radius_of_the_whole_step(name: str, known: Mapping[str, float], factor: float) -> None:
    """Checks the growth factor that the analysis finds. It must equal the spectral radius of the matrix of one step of
    the oracle. On this small grid, the analysis samples all waves."""
    stencil, cells = library.find_stencil(name), 8
    values = {"dt": factor * (library.stable_limit(stencil, {}, [known]) or 0)}
    state = zeros(stencil, (1, 1, cells)) | {key: np.full((1, 1, cells), float(v)) for key, v in known.items()}
    changing = [key for key in state if key not in known]
    columns = []
    for key in changing:
        for cell in range(cells):
            one = {name: array.copy() for name, array in state.items()}
            one[key][0, 0, cell] = 1
            after = run(stencil, one, 1, values)
            columns.append(np.concatenate([after[other].ravel() for other in changing]))
    radius = np.abs(np.linalg.eigvals(np.array(columns).T)).max()
    assert growth(stencil, values, known) == pytest.approx(radius, rel=1e-6)


def test_an_unstable_step_is_told_with_the_largest_stable_one() -> None:
    """Checks that the message gives a stable value of the parameter: a maximum for most parameters, and a minimum for
    some."""
    acoustic = library.acoustic()
    assert library.stability(acoustic, {}, [{"v": 4500}]) is None
    text = library.stability(acoustic, {"dt": 0.002}, [{"v": 1500}, {"v": 4500}]) or ""
    assert text.startswith("dt=0.002 is unstable: the worst wave grows by a factor")
    step = float(text.rpartition(" ")[2])
    assert library.stability(acoustic, {"dt": step}, [{"v": 4500}]) is None
    assert library.stability(acoustic, {"dt": 1.001 * step}, [{"v": 4500}]) is not None
    text = library.stability(library.lattice_boltzmann(2), {"tau": 0.4}) or ""
    assert text.endswith("the smallest stable one is 0.5")
    u, dt = Field("u"), Parameter("dt", 0.1)
    grows = Stencil("grows", {u: u[0] * (2 + sympy.Abs(dt))})
    assert "and so is every other value" in (library.stability(grows, {}) or "")


def test_what_cannot_be_said_is_not_said() -> None:
    """Checks that the analysis gives no limit in three cases: the velocity is unknown, a coefficient is a signal, or
    the stencil is not linear."""
    u = Field("u")
    assert growth(library.acoustic(), {}) is None
    with pytest.raises(InputError, match=r'has no value for v, which the equation reads; give .* \[{"v": 0.5}\]'):
        library.stability(library.acoustic(), {"dt": 10})
    with pytest.raises(InputError, match=r'not linear, so its stability depends on the values of u; give .*"u": 0.5'):
        library.stability(Stencil("cube", {u: u[0] ** 3}), {}, [{}])
    fed = Stencil("fed", {u: Signal("s") * u[0] ** 2})
    assert library.stability(fed, {}, [{"u": 1.0}]) is None
    assert library.why_unknown(fed, {}, [{"u": 1.0}]) == "a coefficient is a signal"
    assert growth(Stencil("cube", {u: u[0] ** 3}), {}) is None
    assert growth(Stencil("cube", {u: u[0] ** 3}), {}, {"u": 0.5}) == pytest.approx(0.75)
    assert growth(Stencil("fed", {u: Signal("s") * u[0]}), {}) is None
    assert growth(Stencil("forced", {u: u[0] / 2 + Signal("s")}), {}) == 0.5
    assert library.stable_limit(library.heat7(), {}) is None
    assert library.stable_limit(library.heat(), {}, []) is None, "no state is no answer"
    assert library.stability(library.sharpen(), {}, [{"image": 1}]) is None
    assert library.stability(library.stream_function(), {}) is None


@pytest.mark.parametrize("state", [0.7, -0.4])
def test_slopes_are_derivatives(state: float) -> None:
    """Checks the derivative of each operator near a state. The derivative is compared with the difference of two
    values."""
    u, v = Field("u"), Field("v")
    one, other = u[0], v[0]
    terms = [one**3, one * other, other / (one + 3), sympy.sqrt(one**2 + other), abs(one) * other, -one / other]
    terms += [sympy.Min(one * other, 0.2), sympy.Max(one, other - 1)]
    for term in terms:
        program = Stencil("term", {u: term, v: other}).stages[0].program

        def value(near: float, program: Program = program) -> float:
            return linearise(program, [], [near, 1.3])[0].value

        slopes = linearise(program, [], [state, 1.3])[0].slopes
        found = sum(slope for load, slope in slopes.items() if load.field == 0)
        assert found == pytest.approx((value(state + 1e-6) - value(state - 1e-6)) / 2e-6, rel=1e-6, abs=1e-9), term


def test_any_step_may_be_stable() -> None:
    """Checks that the limit is infinite if every step is stable."""
    still = {"vx": 0.0, "vy": 0.0, "vz": 0.0}
    assert largest_step(library.advection(), still) == math.inf


def test_extremes_keep_cells_together() -> None:
    """Checks that the limit is computed from the values of one cell, because the lowest density and the highest
    stiffness can belong to different cells."""
    stencil = library.elastic(ndim=2)
    found = library.extremes_of(stencil)
    assert isinstance(found, Extremes)
    water, rock = {"lam": 2.2e9, "mu": 0.0, "b": 1e-3}, {"lam": 2e10, "mu": 2e10, "b": 1 / 2600}
    for cell in (water, rock):
        found.add({name: np.full((2, 3, 4), value) for name, value in cell.items()})
    assert sorted(state["b"] for state in found.states) == sorted([water["b"], rock["b"]])
    vp = math.sqrt(6e10 / 2600)
    limit = library.stable_limit(stencil, {}, found.states)
    assert limit == pytest.approx(10 / vp / math.sqrt(2) * 6 / 7, rel=1e-5)
    ranges = {name: (min(water[name], rock[name]), max(water[name], rock[name])) for name in water}
    assert len(corners(ranges)) == 8
    assert (library.stable_limit(stencil, {}, corners(ranges)) or 0) < 0.7 * limit
    assert library.extremes_of(library.heat()).states == [{}]


def test_a_stencil_of_ones_own_may_have_any_name() -> None:
    """Checks that the limits of a built-in stencil are not used for a user's stencil with the same name."""
    u, dt, tau = Field("u"), Parameter("dt", 0.1), Parameter("tau", 0.4)
    mine = Stencil("d2q9", {u: u[0] + dt * tau * (u[1] - 2 * u[0] + u[-1])})
    assert library.stable_limit(mine, {}) == pytest.approx(1.25, rel=1e-5)
    assert library.extremes_of(Stencil("elastic4", {u: u[0] * Field("m")[0]})).states == []


def test_gray_scott_and_fluids_are_judged_near_a_uniform_state() -> None:
    """Checks nonlinear stencils near a uniform state. The limits equal the limits in the docstrings, and runs below the
    limits stay bounded.
    """
    stencil = library.gray_scott(2)
    assert library.stability(stencil, {}) is None
    assert "largest stable one is 1.2" in (library.stability(stencil, {"dt": 1.4}) or "")
    assert library.stability(library.lattice_boltzmann(3), {"tau": 0.51}) is None


def own(name: str, update: sympy.Expr, other: sympy.Expr | None = None) -> Stencil:
    """Return a stencil that updates u, and w if `other` is given."""
    return Stencil(name, {Field("u"): update} | ({} if other is None else {Field("w"): other}))


U, W, DT = Field("u"), Field("w"), Parameter("dt", 0.1)
CURVED = U[0, 1] + U[0, -1] + U[1, 0] + U[-1, 0] - 4 * U[0, 0]
GROWING = own("growing", U[0, 0] + DT * (0.5 * CURVED + 0.3 * U[0, 0]))
LOGISTIC = own("logistic", U[0, 0] + DT * (0.5 * CURVED + 0.3 * U[0, 0] * (1 - U[0, 0])))


@pytest.mark.parametrize(
    ("stencil", "states", "limit"),
    [
        (GROWING, [{}], 2 / (8 * 0.5 - 0.3)),
        (LOGISTIC, [{"u": 0.0}], 2 / (8 * 0.5 - 0.3)),
        (LOGISTIC, [{"u": 0.0}, {"u": 1.0}], 2 / (8 * 0.5 + 0.3)),
        (own("pendulum upside down", 2 * U[0] - U.previous[0] + DT**2 * (U[1] - 1.7 * U[0] + U[-1])), [{}],
         2 / math.sqrt(4 - 0.3)),
    ],
)  # fmt: skip
def test_an_equation_that_grows_by_itself_has_a_useful_limit(
    stencil: Stencil, states: list[dict[str, float]], limit: float
) -> None:
    """Checks that growth of the exact solution does not count as instability. In the exact solution, the shortest wave
    does not grow. So the limit is the largest step with which this wave does not grow."""
    assert library.stable_limit(stencil, {}, states) == pytest.approx(limit, rel=1e-5)
    assert library.stability(stencil, {}, states) is None
    assert "largest stable one is" in (library.stability(stencil, {"dt": 1.05 * limit}, states) or "")


def test_the_shortest_wave_grows_above_the_limit_only() -> None:
    """Checks the limit of an equation whose solution grows. The test computes steps from noise. The mean always grows.
    The wave that alternates from cell to cell decays below the limit, and grows above the limit."""
    limit, steps = library.stable_limit(GROWING, {}) or 0, 200
    signs = (-1.0) ** np.add.outer(np.arange(8), np.arange(8))[:, None, :]
    for factor in (0.98, 1.05):
        before = noise(GROWING, (8, 1, 8), {})
        after = run(GROWING, before, steps, {"dt": factor * limit})["u"]
        assert abs(after.mean()) > 100 * abs(before["u"].mean())
        assert bool(abs((after * signs).mean()) > abs((before["u"] * signs).mean())) == (factor > 1)


@pytest.mark.parametrize(
    "update",
    [
        U[0] + DT * (U[0] - U[-1]),  # upwind differences on the wrong side
        U[0] - DT * (U[1] - 2 * U[0] + U[-1]),  # diffusion with a negative coefficient
        U[0] - DT * (U[1] - U[-1]) / 2,  # central differences in space, forward in time
        2 * U[0] - U.previous[0] - DT**2 * (U[1] - 2 * U[0] + U[-1]),  # waves with an imaginary velocity
    ],
)
def test_a_wrong_scheme_does_not_count_as_an_equation_that_grows(update: sympy.Expr) -> None:
    """Checks schemes that are unstable with every step. The analysis must not treat the growth of these schemes as
    growth of the exact solution. In these schemes, the shortest waves grow fastest, or the growth tends to 0 with
    dt."""
    stencil = own("wrong", update)
    assert library.stable_limit(stencil, {}) == 0
    assert library.limit_text(stencil, {}) == "no dt is stable with these values"
    assert "and so is every other value" in (library.stability(stencil, {}) or "")


def test_a_growing_oscillation_has_a_limit() -> None:
    """Checks two fields that oscillate and grow. Euler's method adds growth that is proportional to dt. A step counts
    as stable if values grow at most twice as fast as the exact solution."""
    swing = own("swing", U[0] + DT * (0.1 * U[0] - W[0]), W[0] + DT * (0.1 * W[0] + U[0]))
    limit = library.stable_limit(swing, {}) or 0
    assert 0.15 < limit < 0.3
    assert abs(1 + limit * (0.1 + 1j)) == pytest.approx(1 + 2 * 0.1 * limit, rel=0.01)


@pytest.mark.parametrize(
    ("stencil", "state", "text"),
    [
        (LOGISTIC, {}, "the limit is unknown: the equation is not linear, so its stability depends on the values of u"),
        (library.acoustic(), {}, "the limit is unknown: the state has no value for v, which the equation reads"),
        (own("fed", Signal("s") * U[0]), {}, "the limit is unknown: a coefficient is a signal"),
        (own("still", U[0] / 2), {}, "the stencil has no parameter dt, whose limit could be found"),
        (own("kink", U[0] - DT * sympy.Abs(U[0])), {"u": 0.0},
         "the limit is unknown: the equation has no derivative in this state"),
        (own("rises", U[0] * (1 + DT)), {}, "every dt is stable with these values"),
        (own("heat", U[0] + DT * (U[1] - 2 * U[0] + U[-1])), {}, "dt <= 0.5 with these values"),
        (library.lattice_boltzmann(2), {}, "tau >= 0.5 with these values"),
    ],
)  # fmt: skip
def test_a_limit_is_a_sentence(stencil: Stencil, state: dict[str, float], text: str) -> None:
    """Checks that the text gives the limit, or the reason why the limit is unknown."""
    assert library.limit_text(stencil, {}, [state]) == text
    assert library.why_unknown(stencil, {}, [state]) == (text.partition("unknown: ")[2])


def test_states_of_other_fields_are_refused() -> None:
    """Checks that a state with an unknown field, and a state that is not in a list, are refused with one line."""
    heat = oc.stencils.heat(ndim=2)
    with pytest.raises(InputError, match="has no field 'v'; its fields are u"):
        oc.stencils.stable_limit(heat, {}, [{"v": 1.0}])
    with pytest.raises(InputError, match="must be a list of states"):
        oc.stencils.stable_limit(heat, {}, {"u": 1.0})  # type: ignore[arg-type]
