"""Check whole runs of tangent stencils: Born modelling, and the Jacobian of traces with respect to the medium and to
parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy

import outcrop as oc
from outcrop.errors import InputError

SHAPE, STEPS = (20, 18), 40
COLUMNS = [[50.0, x] for x in range(30, 150, 30)]


def shot(stencil: oc.Stencil, directory: Path, speed: Any, dtype: str = "float64", **options: Any) -> oc.Simulation:
    """Return a simulation of a shot at its last step. If `stencil` is a tangent stencil, further receivers record the
    changes.
    """
    fields = [one.name for one in stencil.fields if one.name in ("u", "u_tangent")]
    sim = oc.Simulation(
        stencil, SHAPE, dtype=dtype, directory=directory, memory="4MiB", force=True, spacing=10.0,
        sources=[oc.Source("u", [[90.0, 80.0]], np.sin(np.arange(STEPS) / 3))],
        receivers=[oc.Receivers(f"line_{name}", name, COLUMNS) for name in fields],
        **{"params": {"h": 10.0}, "dt": 0.002, **options},
    )  # fmt: skip
    sim["v"] = speed
    return sim


def medium() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    speed = np.full(SHAPE, 1500.0)
    speed[12:] = 1800.0
    return speed, np.random.default_rng(1).standard_normal(SHAPE)


@pytest.mark.parametrize("dtype, bound", [("float64", 1e-12), ("float32", 1e-6)])
def test_born_traces_and_the_adjoint_pass_the_dot_test(tmp_path: Path, dtype: str, bound: float) -> None:
    """Checks <J c, d> = <c, J* d> for a change c of the speed and residuals d. A run of the tangent gives J c. The
    adjoint run of the equation gives J* d. The traces of u in the tangent run are identical to the traces of u in the
    run of the equation."""
    equation = oc.stencils.acoustic(order=4, ndim=2)
    speed, change = medium()
    born = shot(oc.tangent(equation, "v"), tmp_path / "born.oc", speed, dtype)
    born["v_tangent"] = change
    born.run(STEPS, progress="none")
    sim = shot(equation, tmp_path / "run.oc", speed, dtype)
    sim.run(STEPS, progress="none", history="all")
    assert np.array_equal(born.traces["line_u"], sim.traces["line_u"])
    assert np.array_equal(born["u"][:], sim["u"][:])
    traces = np.asarray(born.traces["line_u_tangent"], np.float64)
    residuals = np.random.default_rng(2).standard_normal(traces.shape).astype(dtype)
    adjoint = sim.adjoint({"line_u": residuals}, wrt="v")
    adjoint.run(progress="none")
    by_speed = np.asarray(adjoint.gradients["v"][:], np.float64)
    inside = np.zeros(SHAPE, bool)
    inside[2:-2, 2:-2] = True  # the speed in the rim has no effect
    left, right = np.sum(traces * residuals), np.sum((change.astype(dtype) * by_speed)[inside])
    assert abs(left - right) <= bound * np.linalg.norm(traces) * np.linalg.norm(residuals)
    assert np.linalg.norm(traces) > 0


@pytest.mark.parametrize("name", ["v", "dt"])
def test_traces_change_as_the_tangent_says(tmp_path: Path, name: str) -> None:
    """Compares the tangent with central differences. Central differences have an error of second order. If the change
    is 10 times smaller, the error must be 100 times smaller."""
    equation, (speed, change) = oc.stencils.acoustic(order=4, ndim=2), medium()
    is_field = name == "v"
    params = {"h": 10.0} if is_field else {"h": 10.0, "dt_tangent": 2e-5}
    born = shot(oc.tangent(equation, name), tmp_path / "born.oc", speed, params=params)
    if is_field:
        born["v_tangent"] = change
    born.run(STEPS, progress="none")

    def traces(step: float) -> Any:
        sim = shot(equation, tmp_path / "run.oc", speed + step * change if is_field else speed,
                   **({} if is_field else {"dt": 0.002 + step * 2e-5}))  # fmt: skip
        sim.run(STEPS, progress="none")
        return sim.traces["line_u"]

    exact = born.traces["line_u_tangent"]
    errors = [np.abs((traces(h) - traces(-h)) / (2 * h) - exact).max() / np.abs(exact).max() for h in (1.0, 0.1)]
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.1)


def test_a_source_of_the_change_is_the_change_of_a_source(tmp_path: Path) -> None:
    """Checks the tangent of a linear equation with a source for the change of u. This change must equal u in a run that
    starts from zeros and has only this source.
    """
    stencil, values = oc.stencils.heat(ndim=2), np.cos(np.arange(8.0))
    found = []
    for name, own in (("u_tangent", oc.tangent(stencil)), ("u", stencil)):
        sim = oc.Simulation(
            own, SHAPE, dtype="float64", directory=tmp_path / f"{name}.oc", memory="4MiB",
            sources=[oc.Source(name, [[9.0, 8.0]], values)],
        )  # fmt: skip
        if name == "u_tangent":
            sim["u"] = np.random.default_rng(3).random(SHAPE)
        sim.run(8, progress="none")
        found.append(sim[name][:])
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-15)
    assert np.abs(found[1]).max() > 0


def test_a_static_field_without_an_effect_is_refused() -> None:
    """Checks a field that only chooses between other values, so the tangent does not read a change of this field."""
    u, k = oc.Field("u"), oc.Field("k")
    chosen = oc.Stencil("chosen", {u: u[0] + sympy.Piecewise((u[1], k[0] > 1), (u[-1], True)) / 4})
    with pytest.raises(InputError, match="wrt: a change of k changes no field of 'chosen' to first order; leave k out"):
        oc.tangent(chosen, "k")
    assert [one.name for one in oc.tangent(chosen).fields] == ["u", "u_tangent", "k"]


def test_names_of_changes() -> None:
    u, v = oc.Field("u"), oc.Field("u_tangent")
    both = oc.tangent(oc.Stencil("both", {u: u[0] + oc.Parameter("c", 2.0) * v[0], v: v[0]}), ["c"])
    assert [one.name for one in both.fields] == ["u", "u_tangent", "u_tangent_", "u_tangent_tangent"]
    assert [(one.name, one.default) for one in both.parameters] == [("c", 2.0), ("c_tangent", 0.0)]
    with pytest.raises(InputError, match="has no derivative by 'w'; there are: v, dt, h"):
        oc.tangent(oc.stencils.acoustic(order=2, ndim=2), "w")
    for wrong in (5, None):
        with pytest.raises(InputError, match=f"has no derivative by '{wrong}'; there are: v, dt, h"):
            oc.tangent(oc.stencils.acoustic(order=4, ndim=2), wrong)  # type: ignore[arg-type]
