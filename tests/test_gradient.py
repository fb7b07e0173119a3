"""Check misfits and their gradients: known results, finite differences, Taylor tests, optimisers, and wrong
arguments."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy

import outcrop as oc
from outcrop.durable import sealed
from outcrop.errors import BudgetError, InputError
from outcrop.language.library import find_stencil
from outcrop.language.stencil import PREVIOUS
from outcrop.run import passes

STEPS = 5
SHAPE = (12, 10, 14)
U, A = oc.Field("u"), oc.Parameter("a", 0.2)
DECAY = oc.Stencil("decay", {U: U[0] + A * (U[1] - 2 * U[0] + U[-1])})
SHIFT = oc.Stencil("shift", {U: U[-1]})


def new_run(
    name: str, folder: Path, dtype: str = "float64", boundary: str = "fixed"
) -> tuple[oc.Simulation, list[str]]:
    """Return a run at step 0, and the names of its gradients. The run has random values, a source, receivers and
    snapshots."""
    stencil, rng = find_stencil(name), np.random.default_rng(1)
    shape = SHAPE[-stencil.ndim :]
    pairs = list(zip(stencil.fields, stencil.storage, strict=True))
    updated = [field.name for field, storage in pairs if not storage.is_static]
    previous = [field.name + PREVIOUS for field, storage in pairs if storage.history == 2]
    middle, box = np.array(shape) / 2, [slice(n // 2 - 1, n // 2 + 2) for n in shape]
    sim = oc.Simulation(
        stencil, shape, dtype, folder / "run.oc", memory="64MiB", threads=1, boundary=boundary, unstable=True,
        sources=[oc.Source(updated[-1], [middle - 0.3], rng.standard_normal(STEPS))],
        receivers=[oc.Receivers("line", updated[0], [middle - 1.3, middle + 0.2])],
        snapshots=[
            oc.Snapshots(2, updated[0], box, name="middle"),
            oc.Snapshots(STEPS, updated[-1], box, name="last", initial=False),
        ],
    )  # fmt: skip
    sim.assign({one: rng.standard_normal(shape) for one in [*updated, *previous]})
    sim.assign({field.name: rng.random(shape) / 2 + 0.5 for field, storage in pairs if storage.is_static})
    return sim, [*updated, *previous, "source"]


def all_kinds(sim: oc.Simulation) -> Any:
    """Return a misfit with terms of all kinds for a run of `new_run`."""
    rng, first = np.random.default_rng(2), sim.stencil.fields[0].name
    last = next(name for name in sim.setup.description.taps.snapshots if name.name == "last").fields[0]
    weight = rng.random(sim.shape)

    def of_a_user(one: oc.Simulation) -> tuple[float, dict[str, Any]]:
        trace = one.traces["line"]
        return float((trace**3).sum() / 3), {"line": trace**2}

    return (
        oc.Misfit("line", rng.standard_normal((STEPS, 2)), weight=0.5)
        + oc.Misfit(f"middle/{first}", None, rng.random((1 + STEPS // 2, *(3,) * sim.stencil.ndim)))
        + oc.Misfit(f"last/{last}", None)
        + oc.Misfit(first, rng.standard_normal(sim.shape), weight)
        + oc.Misfit(first, 0.25)
        + of_a_user
    )


@pytest.mark.parametrize(
    ("name", "boundary"),
    [("heat7", "fixed"), ("heat6_1d", "periodic"), ("advection2_2d", "periodic"), ("acoustic2", "mirror")],
)
def test_gradients_pass_the_taylor_test(name: str, boundary: str, tmp_path: Path) -> None:
    sim, wrt = new_run(name, tmp_path, boundary=boundary)
    rates = oc.taylor_test(sim, STEPS, all_kinds(sim), wrt, change=0.001)
    assert list(rates) == wrt
    for name, one in rates.items():
        assert one.shape == (4,) and abs(one - 2).max() < 0.05, name
    assert sim.step == 0 and [path.name for path in tmp_path.iterdir()] == ["run.oc"]


@pytest.mark.parametrize(("name", "dtype"), [("acoustic2", "float64"), ("gray_scott_2d", "float32")])
def test_gradients_that_need_the_states_of_the_run(name: str, dtype: str, tmp_path: Path) -> None:
    """Checks gradients with respect to static fields, parameters and initial values. The states that a gradient needs
    are removed at the end."""
    stencil = find_stencil(name)
    rng, shape = np.random.default_rng(8), SHAPE[-stencil.ndim :]
    sim = oc.Simulation(
        stencil, shape, dtype, tmp_path / "run.oc", memory="64MiB", unstable=True, dt=0.5,
        receivers=[oc.Receivers("line", "u", [np.array(shape) / 2])],
    )  # fmt: skip
    sim.assign({one.name: rng.random(shape) / 4 + 0.5 for one in stencil.fields})
    wrt = [*(one.name for one in stencil.fields), stencil.parameters[-1].name]
    misfit = oc.Misfit("u", rng.random(shape)) + oc.Misfit("line", None)
    rates = oc.taylor_test(sim, STEPS, misfit, wrt, change=0.005)
    assert list(rates) == wrt and all(abs(one - 2).max() < 0.05 for one in rates.values()), rates
    value, gradient = sim.gradient(STEPS, misfit, wrt, progress="none")
    with pytest.raises(InputError, match="keeps no history"):
        _ = sim.history
    assert not list((tmp_path / "run.oc" / "snapshots.zarr").glob("history/*"))
    again, same = sim.gradient(STEPS, misfit, wrt, resume=True)
    assert again == value and all(np.array_equal(same[one][...], gradient[one][...]) for one in ("u", "v"))
    with pytest.raises(InputError, match=r"which .* does not keep; run it with history="):
        sim.gradient(STEPS, misfit, wrt, force=True)


def test_a_history_that_a_user_keeps_is_not_removed(tmp_path: Path) -> None:
    s = oc.Signal("s")
    stencil = oc.Stencil("driven", {U: U[0] + A * s * (U[1] - 2 * U[0] + U[-1])})
    sim = oc.Simulation(
        stencil, (14,), "float64", tmp_path / "run.oc", init=np.arange(14.0) ** 2, signals={"s": np.arange(1.0, 8.0)},
        unstable=True,
    )  # fmt: skip
    rates = oc.taylor_test(sim, STEPS, oc.Misfit("u", None), ["s", "a"], change=0.001)
    assert all(abs(one - 2).max() < 0.05 for one in rates.values()), rates
    fun = oc.Objective(sim, STEPS, oc.Misfit("u", None), ["a", "s"])
    assert fun.start.tolist() == [0.2, 1, 2, 3, 4, 5] and fun.unpack(fun.start)["s"].tolist() == [1, 2, 3, 4, 5]
    value, gradient = fun(fun.start)
    sim.run(2, progress="none", history=oc.History("all"))
    same, other = sim.gradient(STEPS, oc.Misfit("u", None), ["a", "s"], progress="none")
    assert same == value and gradient.tolist() == [other["a"], *other["s"]]
    assert sim.history.steps.tolist() == [*range(STEPS + 1)]


def test_the_taylor_test_of_a_run_in_float32(tmp_path: Path) -> None:
    sim, wrt = new_run("acoustic4_1d", tmp_path, "float32")
    rates = oc.taylor_test(sim, STEPS, oc.Misfit("line", None) + oc.Misfit("u", 1.0), wrt, seed=1)
    assert all(abs(one - 2).max() < 0.05 for one in rates.values())


def test_the_taylor_test_finds_a_wrong_gradient(tmp_path: Path) -> None:
    """Checks that the rates of the Taylor test are near 1 if the gradient is wrong. The gradient is wrong because the
    residuals are 3 % too large, or one step too late."""
    sim, _ = new_run("heat6_1d", tmp_path)
    observed = np.random.default_rng(3).standard_normal((STEPS, 2))
    right = oc.Misfit("line", observed)

    def too_large(one: oc.Simulation) -> tuple[float, dict[str, Any]]:
        value, residuals = right(one)
        return value, {"line": residuals["line"] * 1.03}

    def late(one: oc.Simulation) -> tuple[float, dict[str, Any]]:
        value, residuals = right(one)
        return value, {"line": np.roll(residuals["line"], 1, axis=0)}

    for wrong in (too_large, late):
        assert oc.taylor_test(sim, STEPS, wrong, "u")["u"].max() < 1.5
    assert abs(oc.taylor_test(sim, STEPS, right, "u")["u"] - 2).max() < 0.05
    with pytest.raises(InputError, match=r"the Taylor test of u has no result: a change of 6\.25e-07"):
        oc.taylor_test(sim, STEPS, lambda one: (float(one["u"][...].sum()), {"u": 1.0}), "u", change=1e-5)


def test_the_gradient_of_a_decaying_wave(tmp_path: Path) -> None:
    """Checks the gradient of the energy of a wave. The exact gradient is known, because each step multiplies this wave
    by the same factor."""
    n, a, wave = 16, 0.2, 2 * math.pi * 3 / 16
    factor = 1 - 2 * a * (1 - math.cos(wave))
    start = np.cos(wave * np.arange(n))
    sim = oc.Simulation(DECAY, (n,), "float64", tmp_path / "run.oc", boundary="periodic", params={"a": a})
    sim["u"] = start
    value, gradient = sim.gradient(STEPS, oc.Misfit("u", None), "u", progress="none")
    assert value == pytest.approx(factor ** (2 * STEPS) * (start**2).sum() / 2, rel=1e-12)
    assert np.allclose(gradient["u"][...], factor ** (2 * STEPS) * start, rtol=0, atol=1e-13)


def test_the_gradient_of_a_shift(tmp_path: Path) -> None:
    """Checks that the gradient is exact for a stencil that moves the field by one cell in each step."""
    rng = np.random.default_rng(4)
    start, observed = rng.standard_normal((2, 16))
    sim = oc.Simulation(SHIFT, (16,), "float64", tmp_path / "run.oc", boundary="periodic", unstable=True)
    sim["u"] = start
    value, gradient = sim.gradient(STEPS, oc.Misfit("u", observed), ["u"], progress="none")
    expected = start - np.roll(observed, -STEPS)
    assert (gradient["u"][...] == expected).all() and value == pytest.approx((expected**2).sum() / 2, rel=1e-14)


def test_misfits_are_sums_of_squares(tmp_path: Path) -> None:
    """Checks values and residuals of all kinds of misfits against NumPy. The observed values are arrays, files that are
    mapped into memory, and numbers."""
    sim, _ = new_run("heat7", tmp_path)
    sim.run(STEPS, progress="none")
    rng = np.random.default_rng(5)
    for name, computed in {
        "line": sim.traces["line"], "u": sim["u"][...], "middle/u": sim.snapshots["middle/u"][:],
    }.items():  # fmt: skip
        observed, weight = rng.random((2, *computed.shape))
        np.save(tmp_path / "observed.npy", observed)
        mapped = np.load(tmp_path / "observed.npy", mmap_mode="r")
        value, residuals = oc.Misfit(name, mapped, weight)(sim)
        assert value == pytest.approx((weight * (computed - observed) ** 2).sum() / 2, rel=1e-13)
        found = residuals[name](0, len(computed)) if callable(residuals[name]) else residuals[name]
        assert (found == weight * (computed - observed)).all()
        both, added = sum([oc.Misfit(name, mapped), oc.Misfit(name, 0.5, 2.0)])(sim)
        assert both == pytest.approx(((computed - observed) ** 2).sum() / 2 + ((computed - 0.5) ** 2).sum(), rel=1e-13)
        found = added[name](0, len(computed)) if callable(added[name]) else added[name]
        assert np.allclose(found, computed - observed + 2 * (computed - 0.5), rtol=0, atol=1e-12)
    assert repr(oc.Misfit("line", None) + oc.Misfit("u", None)) == "<<misfit of 'line'> + <misfit of 'u'>>"


def test_masked_observed_values_need_a_weight(tmp_path: Path) -> None:
    """Checks that the numbers behind a mask are not compared. With the opposite of the mask as the weight, the misfit
    has the values that are not masked."""
    sim, _ = new_run("heat7", tmp_path)
    sim.run(STEPS, progress="none")
    for name in ("line", "u", "middle/u"):
        computed = (sim.traces if name == "line" else sim.snapshots if "/" in name else sim)[name][...]
        mask = np.random.default_rng(9).random(computed.shape) < 0.5
        observed = np.ma.masked_array(np.where(mask, -9999.0, 0.5), mask)
        with pytest.raises(InputError, match=rf"^misfit of '{name}': observed: masked values are not numbers; fill"):
            oc.Misfit(name, observed)(sim)
        with pytest.raises(InputError, match=rf"^misfit of '{name}': weight: masked values are not numbers; fill"):
            oc.Misfit(name, None, observed)(sim)
        if name == "u":
            with pytest.raises(InputError, match=r"^misfit of 'u': a function: masked values are not numbers; fill"):
                oc.Misfit(name, lambda z0, z1, one=observed: one[z0:z1])(sim)
        value, _ = oc.Misfit(name, observed.filled(0.0), weight=~mask)(sim)
        assert value == pytest.approx(((computed - 0.5)[~mask] ** 2).sum() / 2, rel=1e-12)
        assert oc.Misfit(name, np.ma.masked_array(observed.data, False))(sim)[0] > value
    with pytest.raises(InputError, match=r"^residuals of 'line': masked values are not numbers"):
        sim.adjoint({"line": np.ma.masked_array(np.ones((STEPS, 2)), [[1, 0]] * STEPS)}, "u")


def test_observed_values_in_zarr_are_read(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    sim, _ = new_run("heat7", tmp_path)
    sim.run(STEPS, progress="none")
    for name, shape in {"line": (STEPS, 2), "u": SHAPE, "middle/u": (3, 3, 3, 3)}.items():
        observed = np.random.default_rng(6).random(shape)
        stored = zarr.create_array(str(tmp_path / f"{len(shape)}.zarr"), shape=shape, chunks=shape, dtype="float64")
        stored[...] = observed
        assert oc.Misfit(name, stored)(sim)[0] == oc.Misfit(name, observed)(sim)[0]


def test_a_gradient_does_not_repeat_what_is_done(tmp_path: Path) -> None:
    """Checks that `gradient` continues the forward run at its last step, and that later calls do not repeat the forward
    run. With resume=True, a complete adjoint run is only read.
    """
    sim, _ = new_run("acoustic2", tmp_path)
    misfit = oc.Misfit("line", None)
    sim.run(2, progress="none")
    value, first = sim.gradient(STEPS, misfit, ["u", "source"], progress="none")
    generation = sim.setup.description.taps, sim.reader().manifest.generation  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"run-adjoint\.oc exists; give resume=True"):
        sim.gradient(STEPS, misfit, "u")
    again, second = oc.open(tmp_path / "run.oc").gradient(STEPS, misfit, ["u", "source"], resume=True)
    assert again == value and second["u"][...].tobytes() == first["u"][...].tobytes()
    assert second["source"][0].tobytes() == first["source"][0].tobytes()
    half, third = sim.gradient(STEPS, oc.Misfit("line", None, 0.5), "u", force=True, progress="none")
    assert half == value / 2 and third["u"][6].any()
    assert generation == (sim.setup.description.taps, sim.reader().manifest.generation)  # type: ignore[union-attr]
    with pytest.raises(InputError, match="is at step 5, past step 3; start a new run"):
        sim.gradient(3, misfit, "u")


def test_an_optimiser_finds_the_initial_values(tmp_path: Path) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    truth = np.pad(np.random.default_rng(7).standard_normal(12), 1)
    sim = oc.Simulation(DECAY, (14,), "float64", tmp_path / "run.oc", params={"a": 0.05})
    known = oc.Simulation(DECAY, (14,), "float64", tmp_path / "known.oc", params={"a": 0.05}, init=truth)
    known.run(STEPS, progress="none")
    fun = oc.Objective(sim, STEPS, oc.Misfit("u", known["u"]), wrt="u")
    assert (fun.start == 0).all() and repr(fun) == f"<objective of u over {STEPS} steps>"
    found = optimize.minimize(fun, fun.start, jac=True, method="L-BFGS-B", options={"maxiter": 20})
    assert np.allclose(fun.unpack(found.x)["u"], truth, rtol=0, atol=1e-2)
    assert sim.step == 0 and sorted(path.name for path in tmp_path.iterdir()) == ["known.oc", "run.oc"]
    for wrong in ([1.0] * 13, np.full(14, np.nan), np.zeros((14, 1)), "x", [[1], [2, 3]]):
        with pytest.raises(InputError, match="the objective takes a vector of 14 finite numbers"):
            fun(wrong)


def test_an_objective_of_several_inputs(tmp_path: Path) -> None:
    """Checks each entry of a gradient against a finite difference. The vector of inputs consists of a field and the
    sources."""
    sim = oc.Simulation(
        DECAY, (10,), "float64", tmp_path / "run.oc", init=np.arange(10.0),
        sources=[oc.Source("u", [4.5], [1.0, 2.0]), oc.Source("u", [[3.0], [6.0]], np.ones((9, 2)))],
        receivers=[oc.Receivers("line", "u", [5.0])],
    )  # fmt: skip
    fun = oc.Objective(sim, 3, oc.Misfit("line", np.ones((3, 1))), wrt=["u", "source", "u"])
    start = fun.start
    assert start.tolist() == [*range(10), 1, 2, 0, *[1] * 6]
    assert [one.shape for one in fun.unpack(start)["source"]] == [(3, 1), (3, 2)]
    _, gradient = fun(start)
    for place in (1, 5, 11, 12, 17):
        change = np.zeros_like(start)
        change[place] = 1e-3
        difference = (fun(start + change)[0] - fun(start - change)[0]) / 2e-3
        assert difference == pytest.approx(gradient[place], rel=1e-8, abs=1e-12)
    for factor in (3.0, 2.0, 1.0):  # an objective takes the current inputs of the run
        sim["u"] = factor * np.arange(10.0)
        assert fun.start[:10].tolist() == [factor * one for one in range(10)]
    assert fun(start)[0] == pytest.approx(sim.gradient(3, oc.Misfit("line", np.ones((3, 1))), "u")[0], rel=1e-14)
    with pytest.raises(InputError, match=r"run\.oc is at step 3 and has no initial values any more"):
        fun(start)
    with pytest.raises(InputError, match=r"run\.oc is at step 3 and has no initial values any more"):
        oc.Objective(sim, 3, oc.Misfit("line", None), "u")


def test_misfits_with_residuals_of_different_shapes_have_no_sum(tmp_path: Path) -> None:
    """Checks residuals that NumPy would repeat: one number per step instead of one per step and point."""
    sim, _ = new_run("heat7", tmp_path)

    def short(run: oc.Simulation) -> tuple[float, dict[str, Any]]:
        return 0.0, {"line": run.traces["line"][-1]}

    with pytest.raises(InputError, match=r"two misfits return the shapes \(5, 2\) and \(2,\)"):
        sim.gradient(STEPS, oc.Misfit("line", None) + short, "u")


def test_wrong_arguments_are_refused_before_the_run(tmp_path: Path) -> None:
    sim, _ = new_run("heat7", tmp_path)
    nan = np.zeros((STEPS, 2))
    nan[3, 1] = np.nan

    def refused(message: str, misfit: Any, wrt: Any = "u", steps: Any = STEPS, **more: Any) -> None:
        with pytest.raises(InputError, match=message) as caught:
            sim.gradient(steps, misfit, wrt, **more)
        assert "\n" not in str(caught.value)
        assert sim.step == 0 and [path.name for path in tmp_path.iterdir()] == ["run.oc"]

    good = oc.Misfit("line", None)
    refused("steps 0 must be at least 1", good, steps=0)
    refused("there is no gradient by .k.; there are: u, source", good, wrt=["u", "k"])
    refused(r"wrt \[\] must be names", good, wrt=[])
    refused("there is no 'lines'; there are the receivers, snapshots and fields: line, middle/u, last/u, u",
            oc.Misfit("lines", None))  # fmt: skip
    refused(
        r"misfit of 'line': observed must be numbers of shape \(5, 2\); given: \(3,\)", oc.Misfit("line", [1, 2, 3])
    )
    refused(r"weight must be numbers of shape \(5, 2\); given: 'x'", oc.Misfit("line", None, "x"))
    refused(r"misfit of 'middle/u': observed must be .* \(3, 3, 3, 3\)", oc.Misfit("middle/u", np.zeros((3, 3))))
    refused(r"misfit of 'u': .* has shape \(4, 4, 4\), the grid", oc.Misfit("u", np.zeros((4, 4, 4))))
    refused(r"misfit of 'line': observed values have nan at index \(3, 1\)", oc.Misfit("line", nan) + good)
    refused("misfit of 'u': weights have nan at index", oc.Misfit("u", None, np.full(SHAPE, np.nan)))
    refused("misfit 3 is not a misfit; give an oc.Misfit or a function", 3)
    refused("memory", good, memory="1 parsec")
    refused("memory 1 KiB is too small for adjoint of heat7", good, memory="1KiB")
    refused("threads", good, threads=0)
    refused("overlap; choose another directory", good, directory=tmp_path / "run.oc" / "inside")
    refused(r"misfit of 'last/u': there is no snapshot up to step 4", oc.Misfit("last/u", None), steps=4)
    refused("resume 'x' must be True or False", good, resume="x")
    refused("force 0 must be True or False", good, force=0)
    with pytest.raises(InputError, match="5 is not a simulation"):
        good(5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="misfit: 3 must be the name"):
        oc.Misfit(3, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _ = good + 1
    for function in (oc.taylor_test, oc.Objective):
        with pytest.raises(InputError, match=r"'run\.oc' is not a simulation"):
            function("run.oc", STEPS, good, "u")  # type: ignore[operator]
    with pytest.raises(InputError, match=r"change -1\.0 must be positive"):
        oc.taylor_test(sim, STEPS, good, "u", change=-1)


@pytest.mark.parametrize(("name", "wrt"), [("heat2_2d", "u"), ("heat2_2d", "source"), ("gray_scott_2d", ["v", "feed"])])
def test_the_memory_for_points_is_checked_before_the_run(name: str, wrt: Any, tmp_path: Path) -> None:
    """Checks a misfit of snapshots that have many cells, with a run that needs no states, and with a run that chooses a
    history. Many sources also need memory. The memory that the message names must be enough."""
    last = find_stencil(name).fields[-1].name
    points = np.stack(np.mgrid[4:44, 4:44], axis=-1).reshape(-1, 2)
    sim = oc.Simulation(
        name, (48, 48), directory=tmp_path / "run.oc", memory="16MiB", params={"dt": 0.1}, init={last: "random:1"},
        sources=oc.Source(last, points, np.ones((STEPS, len(points)))) if wrt == "source" else (),
        snapshots=oc.Snapshots(2, last, name="all"),
    )  # fmt: skip
    misfit = oc.Misfit(last, None) if wrt == "source" else oc.Misfit(f"all/{last}", None) + oc.Misfit(last, None)
    with pytest.raises(BudgetError, match=r"too small for adjoint of heat2_2d|no history is possible") as caught:
        sim.gradient(STEPS, misfit, wrt, memory="256KiB")
    assert sim.step == 0 and not list(tmp_path.iterdir())
    needed = re.search(r"at least ([0-9.]+ [KM]iB) are needed", str(caught.value))
    value, _ = sim.gradient(STEPS, misfit, wrt, memory=needed[1].replace(" ", "") if needed else "4MiB")
    assert value > 0


def test_a_history_that_does_not_fit_is_refused_before_the_run(tmp_path: Path) -> None:
    """Checks histories that a user has begun, and that have too few values for the gradient. Receivers of a static
    field have no residuals, so they are also refused before the run."""
    k = oc.Field("k")
    spread = A * (U[1] - 2 * U[0] + U[-1])
    damped = oc.Stencil("damped", {U: 2 * U[0] - (1 - k[0]) * U.previous[0] + spread})
    product = oc.Stencil("product", {U: U[0] + spread - 0.1 * U[0] ** 2 + k[0] / 100})
    for stencil, history, message in (
        (damped, "all", r"contains u\(t - dt\) in each step, .*, or call sim.gradient in a new run, which"),
        (product, oc.History(3), "needs u after each step, but .* keeps every 3 steps"),
    ):
        sim = oc.Simulation(
            stencil, (20,), "float64", tmp_path / "run.oc", init={"u": "random:1", "k": 0.1}, unstable=True, force=True,
            receivers=[oc.Receivers("line", "u", [[7]]), oc.Receivers("medium", "k", [[7]])],
        )  # fmt: skip
        with pytest.raises(InputError, match="misfit of 'medium': it records k, which no step changes; compare rec"):
            sim.gradient(STEPS, oc.Misfit("line", None) + oc.Misfit("medium", None), "k")
        assert sim.step == 0
        sim.run(1, progress="none", history=history)
        with pytest.raises(InputError, match=message):
            sim.gradient(STEPS, oc.Misfit("u", None), "k")
        assert sim.step == 1


def test_a_misfit_that_fails_does_not_cost_a_second_forward_run(tmp_path: Path) -> None:
    """Checks that the states are kept after an error of a misfit, so that another call can go back through them."""
    sim = oc.Simulation("gray_scott_2d", (12, 12), directory=tmp_path / "run.oc", init={"u": "random:1", "v": 0.5})

    def fails(_: oc.Simulation) -> tuple[float, dict[str, Any]]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sim.gradient(STEPS, fails, "u", progress="none")
    assert sim.step == STEPS
    value, gradient = sim.gradient(STEPS, oc.Misfit("u", None), "u", progress="none")
    assert value > 0 and gradient["u"][5].any()
    sim.history.free()
    assert not list(tmp_path.rglob("history*"))


def test_residuals_of_large_boxes_are_refused(tmp_path: Path) -> None:
    sim = oc.Simulation("heat2_2d", (64, 64), directory=tmp_path / "run.oc", snapshots=[oc.Snapshots(100, name="all")])
    with pytest.raises(InputError, match=r"'all/u' need 625\.2 MiB for 4096 cells and 10000 steps, at most 256 MiB"):
        sim.gradient(10000, oc.Misfit("all/u", None), "u")
    assert not list(tmp_path.iterdir())


BEND = U[1] - 2 * U[0] + U[-1]
OLD, OLDER = ((one[1] - one[-1]) / 20 for one in (U.back(1), U.back(2)))
STRING = oc.Stencil("string", {U: 2 * U[0] - U.previous[0] + A * BEND + 0.1 * U[0] ** 2})
ADAMS = oc.Stencil("adams", {U: U[0] - 23 * (U[1] - U[-1]) / 20 + 16 * OLD - 5 * OLDER})
LIMITED = oc.Stencil("limited", {U: U[0] + A * BEND * sympy.Piecewise((2, U.previous[0] > 0), (1, True))})


@pytest.mark.parametrize("stencil", ["acoustic2_2d", STRING, ADAMS, LIMITED])
def test_previous_values_that_copy_a_field_belong_to_its_gradient(stencil: Any, tmp_path: Path) -> None:
    """Checks the gradient with respect to u if no previous or older values of u are assigned. These values start as a
    copy of u, so a change of u also changes these values. Assigned previous values do not change with u."""
    misfit, rng = oc.Misfit("u", 0.5), np.random.default_rng(5)
    number = iter(range(100))

    def simulation(start: Any) -> oc.Simulation:
        shape, name = ((10, 12) if isinstance(stencil, str) else (20,)), f"{next(number)}.oc"
        sim = oc.Simulation(stencil, shape, "float64", tmp_path / name, boundary="periodic", unstable=True, threads=1)
        values = {one.name: np.full(shape, 0.5) for one in sim.stencil.fields if one.name == "v"}
        sim.assign(values | ({} if start is None else {"u": start}))
        return sim

    def value(start: Any) -> float:
        sim = simulation(start)
        sim.run(STEPS, progress="none")
        return misfit(sim)[0]

    sim = simulation(None)
    start, change = rng.random(sim.shape), rng.standard_normal(sim.shape)
    slope = (value(start + 1e-6 * change) - value(start - 1e-6 * change)) / 2e-6
    fun = oc.Objective(sim, STEPS, misfit, "u")
    assert fun(start.reshape(-1))[0] == value(start) and fun.start.any() == 0
    assert (fun(start.reshape(-1))[1].reshape(sim.shape) * change).sum() == pytest.approx(slope, rel=1e-6)
    for other in (2 * start, start):
        sim["u"] = other
    assert fun.start.tolist() == start.reshape(-1).tolist()
    if stencil is not LIMITED:
        (rates,) = oc.taylor_test(sim, STEPS, misfit, "u", change=0.001).values()
        assert abs(rates - 2).max() < 0.05, rates
    copies = [one.name for one in sim.setup.description.state if one.name != "u"]
    assert copies
    _, gradients = sim.gradient(STEPS, misfit, "u", progress="none")
    whole = gradients["u"]
    assert (whole[:] * change).sum() == pytest.approx(slope, rel=1e-6) and (whole[2] == whole[:][2]).all()
    kept = json.loads((sim.directory / "manifest.json").read_text())["copied_from"]
    assert kept == dict.fromkeys(copies, "u")
    given = simulation(start)
    given.assign(dict.fromkeys(copies, start))
    names = ["u", *(copies if stencil is not LIMITED else [])]
    value_of_all, parts = given.gradient(STEPS, misfit, names, progress="none")
    assert value_of_all == misfit(sim)[0]
    np.testing.assert_allclose(sum(parts[name][:] for name in names), whole[:], rtol=1e-12, atol=1e-12)
    fun = oc.Objective(simulation(start), STEPS, misfit, names)
    np.testing.assert_array_equal(fun(fun.start)[1], np.concatenate([parts[name][:].reshape(-1) for name in names]))


def test_copies_belong_to_a_field_until_it_is_assigned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks a run that was interrupted in its first step, when previous values had already become a copy of u. If u is
    then assigned again, previous values keep the older values, and belong no more to the gradient with respect to u."""
    values, found = np.random.default_rng(5).random((2, 20)), []
    for is_interrupted in (False, True):
        where = tmp_path / f"{is_interrupted}.oc"
        sim = oc.Simulation(STRING, (20,), "float64", where, boundary="periodic", unstable=True)
        if is_interrupted:
            sim["u"] = values[0]
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(passes, "compute", interrupt)
                sim.run(1, progress="none")
            np.testing.assert_array_equal(sim["u.previous"][:], values[0])
        else:
            sim["u.previous"] = values[0]
        sim["u"] = values[1]
        value, gradients = sim.gradient(STEPS, oc.Misfit("u", None), "u", progress="none")
        found.append((value, gradients["u"][:].tolist()))
    assert found[0] == found[1]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_copies_in_a_manifest_are_checked(tmp_path: Path) -> None:
    """Checks manifests of untrusted users and of earlier versions."""
    where = tmp_path / "run.oc"
    oc.Simulation(ADAMS, (20,), "float64", where, boundary="periodic", unstable=True).run(1, progress="none")
    file = where / "manifest.json"
    content = json.loads(file.read_text())
    assert content.pop("crc32c") and content["copied_from"] == {"u_back1": "u", "u_back2": "u"}
    for wrong in (
        {"u": "u"}, {"u": "u_back1", "u_back1": "u"}, {"u_back1": "x"}, {"x": "u"}, {"u.previous": "u"}, {"u": 1}, [],
    ):  # fmt: skip
        file.write_bytes(sealed({**content, "copied_from": wrong}))
        with pytest.raises(InputError, match="is damaged or not written by Outcrop"):
            oc.open(where)
    del content["copied_from"]
    file.write_bytes(sealed(content))
    assert oc.open(where).step == 1


def test_values_in_the_middle_of_a_step_are_computed_again(tmp_path: Path) -> None:
    """Checks the gradient of a stencil that updates a field twice in a step. The gradient also needs the values after
    the first update, which no history stores."""
    twice = oc.Stencil("twice", [{U: U[0] * U[1]}, {U: U[0] + A * U[-1]}])
    sim = oc.Simulation(twice, (12,), directory=tmp_path / "run.oc", unstable=True)
    sim["u"] = np.linspace(0.5, 0.9, 12, dtype="f4")
    (rates,) = oc.taylor_test(sim, 11, oc.Misfit("u", None), "a", change=1e-4).values()
    assert np.abs(rates - 2).max() < 0.05, rates
    sim.gradient(11, oc.Misfit("u", None), "a")
    assert not list(tmp_path.rglob("history*"))  # the history is freed at the end


@pytest.mark.parametrize("update", ["condition", "sign"])
def test_the_gradient_by_a_previous_value_that_no_value_depends_on_is_0(update: str, tmp_path: Path) -> None:
    """Checks updates that read the previous value only to choose between other values."""
    previous = U.previous[0]
    chosen = {"condition": sympy.Piecewise((U[1], previous > 0.5), (U[-1], True)), "sign": U[1] * sympy.sign(previous)}
    stencil = oc.Stencil("choice", {U: U[0] / 2 + chosen[update] / 4})
    sim = oc.Simulation(
        stencil, (20,), directory=tmp_path / "run.oc", boundary="periodic", unstable=True,
        init={"u": np.linspace(-1, 2, 20), "u.previous": np.linspace(0.1, 0.9, 20)},
    )  # fmt: skip
    _, gradients = sim.gradient(4, oc.Misfit("u", None), ["u", "u.previous"], progress="none")
    found = gradients["u.previous"]
    assert (found.shape, found.dtype) == ((20,), "float32") and gradients["u"][...].any()
    assert found[3:15:2].shape == (6,) and not found[...].any()


def test_wrong_results_of_a_users_misfit_are_refused(tmp_path: Path) -> None:
    sim, _ = new_run("heat6_1d", tmp_path)
    results: dict[str, Any] = {
        r"must return \(value, residuals\), not 3": 3,
        r"must return \(value, residuals\), not \('x', {}\)": ("x", {}),
        "must return residuals by name, not 3": (1.0, 3),
        "returned the value nan; it must be finite": (math.nan, {}),
        "residuals are empty": (1.0, {}),
        "there is no 'm'": (1.0, {"m": 1}),
        r"of 'middle/u' must be numbers of shape \(3, 3\): times, box; given: \(2,\)": (1, {"middle/u": [1, 2]}),
        "residuals of 'middle/u': cell .* of snapshot 0 is not finite": (1, {"middle/u": np.full((3, 3), np.inf)}),
    }  # fmt: skip
    for message, result in results.items():
        with pytest.raises(InputError, match=message):
            sim.gradient(STEPS, lambda one, result=result: result, "u", progress="none")
    assert sim.step == STEPS and [path.name for path in tmp_path.iterdir()] == ["run.oc"]
    sim.assign({"u": np.full(14, np.nan)})
    with pytest.raises(InputError, match="the misfit of 'u' is nan: the run or the observed values are not finite"):
        oc.Misfit("u", None)(sim)
