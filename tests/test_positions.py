"""Check expressions that depend on the position of the cell, on the number of the step, and on the size of the grid."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from execution import BACKENDS, execute_fields, random_state
from field_runs import PLACED, field_runs
from oracle import advance_fields
from outcrop.errors import InputError
from outcrop.language.boundary import Boundary
from outcrop.language.compile import available_isas
from outcrop.language.stability import growth
from outcrop.plan.plan import Plan
from outcrop.run.user_values import require_steps
from strategies import examples

SHAPE = (5, 7, 9)
U, V = oc.Field("u"), oc.Field("v")


@settings(max_examples=examples(60), deadline=None)
@given(field_runs(PLACED), st.integers(1, 3), st.sampled_from(BACKENDS), st.sampled_from(available_isas()))
def test_every_plan_gives_the_oracles_bits(
    run: tuple[oc.Stencil, Boundary, Plan], threads: int, backend: str, isa: str
) -> None:
    """Checks positions, boxes and older values: the bits do not depend on the scheme, the sizes, the blocks, the
    threads, the vectors or the storage."""
    stencil, boundary, plan = run
    problem = plan.problem
    state = random_state(stencil, problem.shape, problem.dtype, 1)
    with tempfile.TemporaryDirectory() as folder:
        result, moved = execute_fields(Path(folder), stencil, plan, state, threads, backend, isa=isa)
    right = advance_fields(stencil, state, {}, problem.steps, boundary)
    for name, array in result.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)
    assert moved == (plan.predicted.bytes_read, plan.predicted.bytes_written)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_the_names_of_the_axes_are_those_of_the_grid(tmp_path: Path, ndim: int) -> None:
    """Checks that each index counts the cells along its own axis from 0, in the rim as well. Also checks that t counts
    steps from 0, even in a process that opens the run later."""
    shape = SHAPE[-ndim:]
    indices, extents = (oc.z, oc.y, oc.x)[-ndim:], (oc.nz, oc.ny, oc.nx)[-ndim:]
    position = sum(100**place * one for place, one in enumerate(indices))
    count = sum(10**place * one for place, one in enumerate(extents))
    stencil = oc.Stencil("where", {U: position, V: V[(0,) * ndim] + count + 1000 * oc.t})
    sim = oc.Simulation(stencil, shape, "float64", tmp_path / "run.oc", memory="16MiB")
    sim.run(2, progress="none")
    sim = oc.open(tmp_path / "run.oc")
    sim.run(3, progress="none")
    expected = sum(100.0**place * one for place, one in enumerate(np.indices(shape)))
    assert np.array_equal(sim["u"][:], expected)
    assert (sim["v"][:] == 5 * sum(10**place * n for place, n in enumerate(shape)) + 1000 * (0 + 1 + 2 + 3 + 4)).all()


def test_a_position_is_a_whole_number_in_both_dtypes(tmp_path: Path) -> None:
    """Checks that positions are exact in float32 up to the largest possible index, in the last cells of a long row."""
    n = (1 << 24) - 3
    stencil = oc.Stencil("long", {U: oc.nx - oc.x}, ndim=1)
    sim = oc.Simulation(stencil, n, directory=tmp_path / "run.oc", memory="512MiB")
    sim.run(1, progress="none")
    assert np.array_equal(sim["u"][n - 20 :], np.arange(20, 0, -1))


def test_positions_and_steps_that_are_not_exact_are_refused(tmp_path: Path) -> None:
    """Checks that a stencil in float32 cannot read positions or steps beyond 2^24. An axis can be longer if the stencil
    does not read its positions."""
    placed, timed = oc.Stencil("placed", {U: U[0] + oc.x}), oc.Stencil("timed", {U: U[0] + oc.t})
    with pytest.raises(InputError, match=r"an axis has 16777217 cells; float32 has exact positions of up to 16777216"):
        oc.Simulation(placed, (1 << 24) + 1, directory=tmp_path / "run.oc")
    oc.Simulation(placed, (1 << 24) + 1, "float64", tmp_path / "run.oc")
    oc.Simulation(timed, (1 << 24) + 1, directory=tmp_path / "run.oc")
    # a call of run has at most 10,000,000 steps, so only a run that continues reaches this limit
    require_steps(timed, "float32", {}, 1 << 24)
    require_steps(timed, "float64", {}, (1 << 24) + 1)
    require_steps(placed, "float32", {}, (1 << 24) + 1)
    with pytest.raises(InputError, match=r"float32 has exact numbers of up to 16777216 steps, not of 16777217"):
        require_steps(timed, "float32", {}, (1 << 24) + 1)
    for time_line in ((1, 1), ((1 << 24) + 1, -1)):  # in Devito's equations, step 0 has a number
        with pytest.raises(InputError, match=r"not of 1677721[78]"):
            require_steps(timed, "float32", {}, 1 << 24, time_line)
    require_steps(timed, "float32", {}, 1 << 24, (9, -1))
    assert not list(tmp_path.iterdir())


def test_positions_that_a_run_cannot_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"z belongs to an axis that a grid of 2 axes does not have"):
        oc.Stencil("flat", {U: U[0, 0] + oc.z})
    with pytest.raises(InputError, match=r"two fields, parameters or signals have the name 't'"):
        oc.Stencil("warm", {oc.Field("t"): oc.Field("t")[0] + oc.t})
    timed = oc.Stencil("timed", {U: U[0] + oc.t})
    with pytest.raises(InputError, match=r"no signal 't'; there are: none"):
        oc.Simulation(timed, 9, directory=tmp_path / "run.oc", signals={"t": [1.0]})
    with pytest.raises(InputError, match=r"no derivative by 't'; there are: none"):
        oc.tangent(timed, "t")
    flat = oc.Stencil("flat", {U: U[0, 0] + oc.x})
    with pytest.raises(InputError, match=r"without signals and positions"):
        oc.Sweep(flat, {"u": np.zeros((9, 16))})
    plain = oc.Stencil("plain", {U: U[0]})
    with pytest.raises(InputError, match=r"scale has x"):
        oc.Simulation(plain, 9, directory=tmp_path / "run.oc", sources=[oc.Source("u", [[4]], [1.0], oc.x)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("along", [oc.y, oc.x])
def test_the_stable_limit_needs_the_shape_that_the_simulation_has(along: sympy.Symbol) -> None:
    """Checks the stability limit of advection on two axes. The speed grows along one of the axes, and its largest value
    is about 1.5.
    """
    u, dt = oc.Field("u"), oc.Parameter("dt", 0.1)
    speed = 0.5 + along / (40 if along == oc.y else 30)
    stencil = oc.Stencil("faster", {u: u[0, 0] - dt * speed * (u[0, 0] - u[0, -1])})
    assert oc.stencils.stable_limit(stencil, {}, shape=(40, 30)) == pytest.approx(1 / 1.5, rel=0.05)
    assert oc.stencils.stable_limit(stencil, {}) is None
    for wrong in [(1, 40, 30), (40,), 40, (40, 0), ("40", "30")]:
        with pytest.raises(InputError, match="is not the shape of a grid of two axes"):
            oc.stencils.stable_limit(stencil, {}, shape=wrong)


def test_a_description_with_a_wrong_position_is_refused() -> None:
    """Checks that the JSON of a stencil is refused if it names an axis or a signal that the stencil does not have."""
    stencil = oc.Stencil("placed", {U: U[0, 0] + oc.y * oc.t + oc.nx})
    data = stencil.to_json()
    assert oc.Stencil.from_json(json.loads(json.dumps(data))) == stencil
    text = json.dumps(data)
    for old, new, words in (
        ('["index", 0]', '["index", 1]', "positions along an axis"),
        ('["index", 0]', '["index", 3]', "whole number from 0 to 2"),
        ('["count", 2]', '["count", -1]', "whole number"),
        ('["count", 2]', '["count", 1]', "positions along an axis"),
        ('"step_signal": "t"', '"step_signal": "s"', "which does not exist"),
        ('"step_signal": "t"', '"step_signal": ["t"]', "not an identifier"),
    ):
        assert old in text
        with pytest.raises(InputError, match=words):
            oc.Stencil.from_json(json.loads(text.replace(old, new)))


def test_positions_appear_in_texts() -> None:
    """Checks the text and the formula of a stencil with positions. In formulas, n is the number of the step."""
    stencil = oc.Stencil("placed", {U: U[0, 0] + sympy.exp(oc.y / oc.nx) * oc.t})
    assert "positions  y, x, t" in str(stencil) and "signals" not in str(stencil)
    factor = r"n\, \exp\left(\frac{1}{{n_{\mathrm{x}}}}\, y\right)"
    assert stencil.latex == rf"\begin{{aligned}} u^{{n+1}}_{{y,x}} &= {factor} + u^{{n}}_{{y,x}} \end{{aligned}}"


def test_growth_depends_on_the_cells(tmp_path: Path) -> None:
    """Checks that a run is refused if its equation is unstable only in some cells: near an end of the grid, or in a
    box."""
    spread = U[1] - 2 * U[0] + U[-1]
    ramp = oc.Stencil("ramp", {U: U[0] + oc.x / 100 * spread})
    assert growth(ramp, {}) is None
    assert growth(ramp, {}, shape=(1, 1, 51)) == pytest.approx(1.0)
    assert growth(ramp, {}, shape=(1, 1, 101)) == pytest.approx(3.0)
    box = oc.Stencil("box", {U: U[0] + 0.2 * spread, U.box[20:24]: U[0] + 0.8 * spread})
    with pytest.raises(InputError, match=r"unstable: the worst wave grows by a factor 2.2 per step"):
        oc.Simulation(box, 60, directory=tmp_path / "box.oc").run(1, progress="none")
    calm = oc.Stencil("calm", {U: U[0] + 0.2 * spread, U.box[20:24]: U[0] + 0.3 * spread})
    oc.Simulation(calm, 60, directory=tmp_path / "calm.oc").run(1, progress="none")
    dt = oc.Parameter("dt", 0.8)
    timed = oc.Stencil("timed", {U: U[0], U.box[20:24]: U[0] + dt * spread})
    with pytest.raises(InputError, match=r"dt=0.8 is unstable: .* 2.2 per step; the largest stable one is 0.5"):
        oc.Simulation(timed, 60, directory=tmp_path / "timed.oc").run(1, progress="none")
    driven = oc.Stencil("driven", {U: U[0] + 0.8 * spread + sympy.sin(oc.x * oc.t)})
    assert growth(driven, {}, shape=(1, 1, 60)) == pytest.approx(2.2)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_gradient_of_a_run_with_positions_is_right(tmp_path: Path, recompute: bool) -> None:
    """Checks <F' d, r> = <d, F'* r> for a change d of the model. Factors of the equation depend on x, on the size of
    the grid and on t. The derivative F' d is a run of the tangent."""
    spread = U[0, 1] - 2 * U[0, 0] + U[0, -1] + U[1, 0] - U[-1, 0]
    factor = oc.x / oc.nx * sympy.cos(oc.t / 3) + sympy.sin(oc.y)
    stencil = oc.Stencil("placed", {U: U[0, 0] + V[0, 0] * factor * spread / 9, U.box[3:5, -4:]: U[0, 0] / 2 + V[0, 0]})
    rng, shape, steps = np.random.default_rng(5), (9, 12), 7
    u, v, change, residual = (rng.standard_normal(shape) for _ in range(4))
    sim = oc.Simulation(
        stencil, shape, "float64", tmp_path / "run.oc", memory="16MiB", boundary="mirror", unstable=True
    )
    sim.assign({"u": u, "v": v})
    sim.run(steps, progress="none", history=oc.History(3, recompute=True) if recompute else "all")
    adjoint = sim.adjoint({"u": residual}, "v")
    adjoint.run(progress="none")
    born = oc.Simulation(
        oc.tangent(stencil, "v"), shape, "float64", tmp_path / "born.oc", memory="16MiB", boundary="mirror",
        unstable=True,
    )  # fmt: skip
    born.assign({"u": u, "v": v, "u_tangent": 0.0, "v_tangent": change})
    born.run(steps, progress="none")
    assert np.array_equal(born["u"][:], sim["u"][:])
    left, right = (born["u_tangent"][:] * residual).sum(), (adjoint.gradients["v"][:] * change).sum()
    assert abs(left) > 1e-3 and left == pytest.approx(right, rel=1e-12)
    with pytest.raises(InputError, match=r"'t'.*there are: u, v"):
        sim.adjoint({"u": residual}, "t", tmp_path / "other.oc")
