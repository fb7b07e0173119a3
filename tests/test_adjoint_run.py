"""Check adjoint runs: dot products, the same bits for every budget, resumed runs, and wrong arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from outcrop.cli.main import call
from outcrop.durable import sealed
from outcrop.errors import InputError
from outcrop.language.boundary import as_boundary, boundary_on_grid
from outcrop.language.library import find_stencil
from outcrop.language.stencil import PREVIOUS
from strategies import examples

STEPS = 9
SHAPE = (14, 13, 17)
STENCILS = ["heat7", "acoustic2", "acoustic4_2d_sponge", "elastic2_2d", "maxwell", "advection2_2d", "heat6_1d"]


def run_forward(
    name: str, folder: Path, dtype: str, boundary: str = "fixed", first: bool = False
) -> tuple[oc.Simulation, dict[str, Any], list[Any]]:
    """Run a stencil with random values, a source and two sets of receivers. With `first`, the source adds to the field
    that the first stage updates. Return the run, its initial values inside the rim, and the values of the source."""
    stencil, rng = find_stencil(name), np.random.default_rng(1)
    shape = SHAPE[-stencil.ndim :]
    pairs = list(zip(stencil.fields, stencil.storage, strict=True))
    updated = [field.name for field, storage in pairs if not storage.is_static]
    static = [field.name for field, storage in pairs if storage.is_static]
    places = {1: [2], 2: [0, 2], 3: [0, 1, 2]}[stencil.ndim]
    rims = boundary_on_grid(as_boundary(boundary), stencil.ndim).rims(stencil.radii)
    inside = np.zeros(shape, bool)
    inside[tuple(slice(rims[axis][0], n - rims[axis][1]) for axis, n in zip(places, shape, strict=True))] = True
    middle = np.array(shape) / 2
    driven = updated[0 if first else -1]
    scale = oc.Field(static[0])[(0,) * stencil.ndim] ** 2 / 2 if static else None
    values = [rng.standard_normal((STEPS, 2))]
    sim = oc.Simulation(
        stencil, shape, dtype, folder / "run.oc", memory="64MiB", threads=2, boundary=boundary, unstable=True,
        sources=[oc.Source(driven, [middle - 0.3, middle + 1.2], values[0], scale)],
        receivers=[
            oc.Receivers("line", updated[0], [middle - 1.6]), oc.Receivers("first", driven, [middle], before=True),
        ],
    )  # fmt: skip
    initial = {field: rng.standard_normal(shape) * inside for field in updated}
    initial |= {
        field.name + PREVIOUS: rng.standard_normal(shape) * inside for field, storage in pairs if storage.history == 2
    }
    initial = {key: one.astype(dtype).astype(float) for key, one in initial.items()}
    sim.assign({**initial, **{field: rng.random(shape) / 2 + 0.5 for field in static}})
    sim.run(STEPS, progress="none")
    return sim, initial, values


@pytest.mark.parametrize("name", STENCILS)
@settings(max_examples=examples(2), deadline=None)
@given(
    boundary=st.sampled_from(["fixed", "periodic", "mirror"]), dtype=st.sampled_from(["float32", "float64"]),
    first=st.booleans(),
)  # fmt: skip
def test_dot_products_agree(
    name: str, boundary: str, dtype: str, first: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Checks that <F x, y> = <x, F* y>. x has the initial values, the previous values and the sources. y has residuals
    of both kinds of receivers, and of the last values of a field."""
    sim, initial, values = run_forward(name, tmp_path_factory.mktemp("run"), dtype, boundary, first)
    rng = np.random.default_rng(2)
    last = sim.stencil.fields[0].name
    residuals = {key: rng.standard_normal(one.shape) for key, one in sim.traces.items()}
    residuals[last] = rng.standard_normal(sim.shape)
    left = sum((sim.traces[key] * residuals[key]).sum() for key in sim.traces)
    left += (sim[last][...] * residuals[last]).sum()
    outside = np.asarray(initial[last]) == 0
    left -= (sim[last][...] * residuals[last] * outside).sum()  # the rim stays 0
    adjoint = sim.adjoint(residuals, wrt=[*initial, "source"])
    adjoint.run(progress="none")
    right = sum((adjoint.gradients[key][...] * one).sum() for key, one in initial.items())
    right += sum((found * one).sum() for found, one in zip(adjoint.gradients["source"], values, strict=True))
    scale = max(np.linalg.norm(residuals[last]) * np.linalg.norm(initial[last]), abs(left))
    assert abs(left - right) <= (1e-12 if dtype == "float64" else 1e-6) * scale


def test_linear_equations_with_conditions_have_an_operator(tmp_path: Path) -> None:
    """Checks conditions that depend on positions, on the step and on a static field, a factor that is not linear in a
    static field, and a forcing that is 0. An operator cannot have receivers of a static field."""
    u, v, a = oc.Field("u"), oc.Field("v"), oc.Parameter("a", 0.0)
    inner = sympy.Max(v[0], 0) * (u[1] - 2 * u[0] + u[-1]) / 4 + u[0] / sympy.sqrt(v[0])
    late = sympy.Piecewise((u[0] / 2, oc.t > 1), (u[-1], v[0] < 1), (0, True))
    stencil = oc.Stencil("linear", {u: inner - late + a * v[0], u.box[10:12]: -u[0] / 4})
    receivers = [oc.Receivers("line", "u", [[7], [11]]), oc.Receivers("medium", "v", [[7]])]
    for count in (1, 2):
        sim = oc.Simulation(
            stencil, (20,), "float64", tmp_path / f"{count}.oc", unstable=True, init={"v": np.linspace(0.5, 1.5, 20)},
            sources=oc.Source("u", [[5]], np.ones(5)), receivers=receivers[:count],
        )  # fmt: skip
        sim.run(5, progress="none")
        if count == 1:
            assert oc.dot_test(sim) < 1e-12 and not oc.SourceOperator(sim).matvec(np.zeros(5)).any()
    with pytest.raises(InputError, match=r"receivers 'medium' record v, .*; make a run without these"):
        oc.SourceOperator(sim)


def test_every_budget_and_every_interruption_give_the_same_bits(tmp_path: Path) -> None:
    """Checks that an adjoint run that stops and is opened again gives the same bits as a run without interruption."""
    sim, _, _ = run_forward("acoustic2", tmp_path, "float32")
    residuals = {"line": np.ones((STEPS, 1)), "first": np.ones((STEPS, 1))}
    whole = sim.adjoint(residuals, ["u", "source"], tmp_path / "whole.oc")
    whole.run(progress="none")
    parts = sim.adjoint(residuals, ["u", "source"], tmp_path / "parts.oc", memory="2MiB", threads=1)
    parts.simulation.run(4, progress="none")
    again = oc.open(tmp_path / "parts.oc", sizes={"bt": 2})
    assert again.step == 4 and again.remaining_steps == STEPS - 4  # its last step is the first step of the forward run
    again.run(progress="none")
    assert again["u_adj"][...].tobytes() == whole.simulation["u_adj"][...].tobytes()
    assert np.isfinite(whole.gradients["u"][...]).all()
    assert again.traces["source_0"][::-1].tobytes() == whole.gradients["source"][0].tobytes()


def test_the_operator_is_linear_and_passes_the_dot_test(tmp_path: Path) -> None:
    sim, _, _ = run_forward("elastic2_2d", tmp_path, "float64")
    operator, rng = oc.SourceOperator(sim), np.random.default_rng(3)
    assert operator.shape == (2 * STEPS, 2 * STEPS)
    a, b = rng.standard_normal((2, 2 * STEPS))
    assert np.allclose(operator.matvec(a - 2 * b), operator.matvec(a) - 2 * operator.matvec(b), rtol=1e-12, atol=1e-14)
    assert oc.dot_test(sim) < 1e-12
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.oc"]
    with pytest.raises(InputError, match="the operator takes a vector of 18 values; given: 3"):
        operator.matvec([1, 2, 3])
    for wrong in ("x", [np.nan] * 18, [1j] * 18, [[1], [2, 3]]):
        with pytest.raises(InputError, match="a vector of finite real numbers"):
            operator.matvec(wrong)
    with pytest.raises(InputError, match=r"'run\.oc' is not a simulation"):
        oc.SourceOperator("run.oc")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "update", ["product", "constant", "static", "signal", "box", "late", "threshold", "sign", "condition"]
)
def test_there_is_no_operator_for_equations_that_are_not_linear(tmp_path: Path, update: str) -> None:
    """Checks an equation with a product of updated values, and equations with terms without an updated field. Some
    terms are 0 in most cells, in the first steps, or for most values of a static field."""
    u, v, w = oc.Field("u"), oc.Field("v"), oc.Signal("w")
    more: Any = {
        "product": u[0] ** 2 / 8, "constant": 0.5, "static": v[0] / 4, "signal": w * v[0],
        "late": sympy.Piecewise((1, oc.t > 2), (0, True)), "threshold": sympy.Max(v[0] - 2, 0),
        "sign": sympy.sign(u[0]), "condition": sympy.Piecewise((1, u[0] > 0.5), (0, True)),
    }.get(update, 0)  # fmt: skip
    linear = u[0] / 2 + u[1] / 4
    box = {u.box[10:12]: linear + 1} if update == "box" else {}
    sim = oc.Simulation(
        oc.Stencil("it", {u: linear + more, **box}), (20,), "float64", tmp_path / "run.oc", unstable=True,
        sources=oc.Source("u", [[5]], np.ones(4)), receivers=oc.Receivers("line", "u", [[7]]),
        init={"v": 1.0} if update in ("static", "signal", "threshold") else None,
        signals={"w": np.ones(4)} if update == "signal" else None,
    )  # fmt: skip
    sim.run(4, progress="none", history="all")
    with pytest.raises(InputError, match="it is not linear in its updated fields, so traces are not a linear"):
        oc.SourceOperator(sim)
    with pytest.raises(InputError, match="it is not linear"):
        oc.dot_test(sim)


def test_the_operator_has_the_last_parameters_of_a_run(tmp_path: Path) -> None:
    """Checks a run whose parameter has changed between steps. Its operator is that of a run with the new parameter."""
    u, k = oc.Field("u"), oc.Parameter("k", 0.1)
    stencil = oc.Stencil("spread", {u: u[0] + k * (u[-1] + u[1] - 2 * u[0])})
    given: dict[str, Any] = {
        "sources": oc.Source("u", [[5]], np.ones(4)), "receivers": oc.Receivers("line", "u", [[7], [9]])
    }  # fmt: skip
    oc.Simulation(stencil, (20,), "float64", tmp_path / "run.oc", **given).run(2, progress="none")
    changed = oc.open(tmp_path / "run.oc", params={"k": 0.3})
    changed.run(2, progress="none")
    fresh = oc.Simulation(stencil, (20,), "float64", tmp_path / "fresh.oc", params={"k": 0.3}, **given)
    fresh.run(4, progress="none")
    vector = np.random.default_rng(1).standard_normal((2, 8))
    for name, values in (("matvec", vector[0][:4]), ("rmatvec", vector[1])):
        found = [getattr(oc.SourceOperator(one), name)(values) for one in (changed, fresh)]
        np.testing.assert_array_equal(found[0], found[1])
        assert found[0].any()
    assert oc.dot_test(changed) < 1e-12


def test_a_point_source_under_an_adjoint_is_what_a_finite_difference_says(tmp_path: Path) -> None:
    """Checks that one gradient equals its definition: the change of a quadratic misfit when one value of a source
    changes.
    """
    sim, _, _ = run_forward("heat7", tmp_path, "float64")
    operator = oc.SourceOperator(sim)
    values = np.random.default_rng(4).standard_normal(operator.shape[1])
    gradient = operator.rmatvec(operator.matvec(values))
    change = np.zeros_like(values)
    change[5] = 1e-3

    def misfit(given: Any) -> float:
        return float((operator.matvec(given) ** 2).sum() / 2)

    assert (misfit(values + change) - misfit(values - change)) / 2e-3 == pytest.approx(gradient[5], rel=1e-8)


def test_devitos_equations_have_an_adjoint(tmp_path: Path) -> None:
    """Runs a wave equation of Devito, with its source and its receivers, forward and backward."""
    devito = pytest.importorskip("devito")
    grid = devito.Grid(shape=(16, 15, 14), extent=(150.0, 140.0, 130.0))
    u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=4)
    m = devito.Function(name="m", grid=grid, space_order=4)
    m.data[:] = 0.25 + 0.1 * np.random.default_rng(0).random(grid.shape)
    source = devito.SparseTimeFunction(name="src", grid=grid, npoint=1, nt=20)
    source.coordinates.data[:] = [[80.0, 70.0, 60.0]]
    receiver = devito.SparseTimeFunction(name="rec", grid=grid, npoint=2, nt=20)
    receiver.coordinates.data[:] = [[60.0, 50.0, 80.0], [90.0, 70.0, 45.0]]
    step = grid.time_dim.spacing
    equations = [
        devito.Eq(u.forward, devito.solve(m * u.dt2 - u.laplace, u.forward)),
        source.inject(field=u.forward, expr=source * step**2 / m),
        receiver.interpolate(expr=u),
    ]
    sim = oc.Simulation(equations, dt=1.5, directory=tmp_path / "run.oc", memory="64MiB")
    sim.run(18, progress="none")
    assert oc.dot_test(sim) < 1e-6
    adjoint = sim.adjoint({"u": np.ones((16, 15, 14))}, ["u"])
    adjoint.run(progress="none")
    assert adjoint.gradients["u"][...].any()


@pytest.mark.parametrize("boundary", [None, "fixed"])
def test_devitos_equations_have_gradients_by_functions(boundary: str | None, tmp_path: Path) -> None:
    """Checks a gradient with respect to a function of Devito. It must agree with finite differences of the misfit, with
    and without Devito's halo."""
    devito = pytest.importorskip("devito")
    grid = devito.Grid(shape=(14, 15), extent=(130.0, 140.0), dtype=np.float64)
    u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=2)
    m = devito.Function(name="m", grid=grid)
    wave = devito.Eq(u.forward, devito.solve(m * u.dt2 - u.laplace, u.forward))
    start = np.pad(np.random.default_rng(0).standard_normal((10, 11)), 2)

    def simulation(name: str, change: float) -> oc.Simulation:
        sim = oc.Simulation([wave], dt=1.5, directory=tmp_path / name, memory="64MiB", boundary=boundary)
        slowness = np.full((14, 15), 0.25)
        slowness[6, 7] += change
        sim.assign({"u": start, "u.previous": start, "m": slowness})
        return sim

    misfit = oc.Misfit("u", None)
    runs = [simulation(f"{change}.oc", change) for change in (0.0, -1e-4, 1e-4)]
    (_, gradient), (less, _), (more, _) = (one.gradient(6, misfit, "m", progress="none") for one in runs)
    assert gradient["m"][6][7] == pytest.approx((more - less) / 2e-4, rel=1e-5)


def test_a_speed_of_zero_is_no_factor(tmp_path: Path) -> None:
    """Checks the adjoint of a wave equation whose speed is 0 in some cells. The adjoint must not divide by the
    speed."""
    speed = np.ones((14, 13, 17))
    speed[:, 6] = 0
    sim = oc.Simulation("acoustic2", SHAPE, "float64", tmp_path / "run.oc", unstable=True)
    rng = np.random.default_rng(6)
    initial = {name: np.pad(rng.standard_normal((12, 11, 15)), 1) for name in ("u", "u.previous")}
    sim.assign({**initial, "v": speed})
    sim.run(STEPS, progress="none")
    residual = np.pad(rng.standard_normal((12, 11, 15)), 1)
    adjoint = sim.adjoint({"u": residual}, ["u", "u.previous"])
    adjoint.run(progress="none")
    right = sum((adjoint.gradients[name][...] * one).sum() for name, one in initial.items())
    assert (sim["u"][...] * residual).sum() == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("value", [0.0, np.nan, 1e-25])
def test_static_values_that_cannot_be_divided_by(value: float, tmp_path: Path) -> None:
    """Checks adjoints of an equation with a factor that is a static field. The field may be 0, or too small for a
    division. In the rim, it may also be NaN."""
    u, k = oc.Field("u"), oc.Field("k")
    stencil = oc.Stencil("damped", {u: u[0] + k[0] * (u[1] - 2 * u[0] + u[-1]) / 4})
    sponge = np.ones(20)
    sponge[0] = value
    if np.isfinite(value):
        sponge[7] = value
    rng = np.random.default_rng(7)
    sim = oc.Simulation(stencil, (20,), "float32", tmp_path / "run.oc", unstable=True)
    initial = np.pad(rng.standard_normal(18), 1).astype("float32")
    sim.assign({"u": initial, "k": sponge})
    sim.run(STEPS, progress="none")
    residual = np.pad(rng.standard_normal(18), 1)
    adjoint = sim.adjoint({"u": residual}, "u")
    adjoint.run(progress="none")
    left = (sim["u"][...].astype(float) * residual).sum()
    assert (adjoint.gradients["u"][...].astype(float) * initial).sum() == pytest.approx(left, rel=1e-5)
    assert adjoint.gradients["u"][::-3].tolist() == adjoint.gradients["u"][...][::-3].tolist()


def test_an_adjoint_run_is_found_again_and_ends(tmp_path: Path) -> None:
    """Checks that resume=True continues an unfinished adjoint run with the same residuals, and only reads a complete
    adjoint run. A complete adjoint run refuses further steps."""
    sim, _, _ = run_forward("acoustic2", tmp_path, "float64")
    residuals = {"line": np.ones((STEPS, 1))}
    first = sim.adjoint(residuals, ["u", "source"], resume=True)
    first.simulation.run(4, progress="none")
    again = oc.open(tmp_path / "run.oc").adjoint(residuals, ["u", "source"], resume=True)
    assert again.remaining_steps == STEPS - 4
    again.run(progress="none")
    done = sim.adjoint(residuals, ["u", "source"], resume=True)
    assert done.gradients["u"][3].tobytes() == again.gradients["u"][3].tobytes()
    with pytest.raises(InputError, match=r"run-adjoint\.oc ends at step 9 and is at step 9"):
        oc.open(tmp_path / "run-adjoint.oc").run(1)
    with pytest.raises(InputError, match="holds another run or other residuals"):
        sim.adjoint({"line": np.zeros((STEPS, 1))}, ["u", "source"], resume=True)
    with pytest.raises(InputError, match="exists; give resume=True"):
        sim.adjoint(residuals, "u")
    for place in ("run.oc", "run.oc/inside", "."):
        with pytest.raises(InputError, match="overlap; choose another directory"):
            sim.adjoint(residuals, "u", tmp_path / place, force=True)
    assert sim["u"][3].any()


@pytest.mark.parametrize("wrt", ["u", "v"])
def test_an_adjoint_run_of_a_replaced_run_is_not_continued(wrt: str, tmp_path: Path) -> None:
    """Checks that an adjoint run is not continued after its forward run was replaced with force=True. The new forward
    run gets the same residuals. So only the identity of the forward run shows that the gradient belongs to the old
    run."""
    found = []
    for speed in (1000.0, 1500.0):
        sim = oc.Simulation(
            "acoustic2_2d", (12, 14), directory=tmp_path / "run.oc", force=True, params={"h": 10.0},
            receivers=[oc.Receivers("line", "u", [[5.0, 5.0]])],
        )  # fmt: skip
        sim.assign({"u": "gaussian", "v": speed})
        residuals = {"line": np.ones((9, 1))}
        if found:
            for resume, remedy in ((True, "give force=True without resume"), (False, "give force=True without resume")):
                with pytest.raises(InputError, match=rf"or the adjoint of an older run in .*run\.oc; {remedy}"):
                    sim.gradient(9, oc.Misfit("line", None), wrt, resume=resume)
            assert sim.step == 0, "the refusal comes before the forward run"
        sim.run(9, progress="none", history="all")
        if found:
            with pytest.raises(InputError, match="the adjoint of an older run"):
                sim.adjoint(residuals, wrt, resume=True)
        adjoint = sim.adjoint(residuals, wrt, force=bool(found))
        adjoint.run(progress="none")
        assert sim.adjoint(residuals, wrt, resume=True).remaining_steps == 0
        found.append(np.array(adjoint.gradients[wrt][...]))
    assert not np.array_equal(*found)


@pytest.mark.parametrize("is_complete", [False, True])
def test_other_residuals_of_fields_are_refused(is_complete: bool, tmp_path: Path) -> None:
    """Checks that resume=True accepts only the residuals of the existing run, given as arrays or as functions. Runs of
    earlier versions have no checksums of residuals, and accept any residuals."""
    sim = oc.Simulation("gray_scott_2d", (12, 13), directory=tmp_path / "run.oc", init={"u": "random:1", "v": "0.5"})
    sim.run(4, progress="none", history="all")
    residual = np.random.default_rng(0).standard_normal((12, 13)).astype("float32")
    run = sim.adjoint({"u": residual}, "u")
    if is_complete:
        run.run(progress="none")
    other = residual.copy()
    other[5, 6] += 1
    for same in (residual, lambda z0, z1: residual[z0:z1]):
        assert sim.adjoint({"u": same}, "u", resume=True).remaining_steps == (0 if is_complete else 4)
    for wrong in ({"u": other}, {"v": residual}, {"u": residual, "v": residual}):
        with pytest.raises(InputError, match=r"run-adjoint\.oc holds a run with other residuals of fields; give force"):
            sim.adjoint(wrong, "u", resume=True)
    file = tmp_path / "run-adjoint.oc" / "manifest.json"
    content = json.loads(file.read_text())
    assert list(content["begun"]) == ["u_adj"]
    file.write_bytes(sealed({one: content[one] for one in content if one not in ("begun", "crc32c")}))
    sim.adjoint({"u": other}, "u", resume=True)


def test_a_residual_that_fails_does_not_cost_the_older_adjoint_run(tmp_path: Path) -> None:
    sim, _, _ = run_forward("acoustic2", tmp_path, "float64")
    good = {"u": np.ones(SHAPE)}
    first = sim.adjoint(good, "u")
    first.run(progress="none")
    kept = first.gradients["u"][:]

    def fail(z0: int, z1: int) -> Any:
        raise OSError("the tape is torn")

    for residuals, error in (({"u": fail}, OSError), ({"u": lambda z0, z1: np.ones(3)}, InputError)):
        with pytest.raises(error):
            sim.adjoint(residuals, "u", force=True)
        assert np.array_equal(sim.adjoint(good, "u", resume=True).gradients["u"][:], kept)


def test_an_adjoint_run_does_not_follow_its_forward_run(tmp_path: Path) -> None:
    """Checks the message if the forward run of a complete adjoint run has computed further steps."""
    sim, _, _ = run_forward("acoustic2", tmp_path, "float64")
    sim.adjoint({"line": np.ones((STEPS, 1))}, "u").run(progress="none")
    sim.run(2, progress="none")
    message = r"run-adjoint\.oc is an adjoint run that begins at step 9, but .*run\.oc is now at step 11; give"
    for residuals in ({"u": 1.0}, {"line": np.ones((STEPS, 1))}, {"line": np.ones((STEPS + 2, 1))}):
        with pytest.raises(InputError, match=message):
            sim.adjoint(residuals, "u", resume=True)


def test_an_assignment_of_nothing_changes_nothing(tmp_path: Path) -> None:
    sim = oc.Simulation("heat7", (8, 8, 8), directory=tmp_path / "run.oc")
    sim.assign({})
    assert not list(tmp_path.iterdir())
    sim.run(2, progress="none")
    assert sim.step == 2


def test_wrong_arguments_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    sim, _, _ = run_forward("acoustic2", tmp_path, "float64")
    good = {"line": np.zeros((STEPS, 1))}

    def refused(message: str, residuals: Any = good, wrt: Any = "u", **more: Any) -> None:
        with pytest.raises(InputError, match=message):
            sim.adjoint(residuals, wrt, **more)
        assert [path.name for path in tmp_path.iterdir()] == ["run.oc"]

    refused("there is no 'lines'; there are the receivers, snapshots and fields: line, first, u", {"lines": 1})
    refused(r"residuals of 'line' must be numbers of shape \(9, 1\): steps, points; given: \(3,\)", {"line": [1, 2, 3]})
    refused("residuals of 'line' must be numbers", {"line": "x"})
    wrong = r"residuals of 'u': the array has shape .*, the grid is \(14, 13, 17\) \(nz, ny, nx\); to inter"
    refused(wrong, {"u": np.zeros((14, 13, 16))})
    refused("the value of point 0 in step 2 is nan", {"line": np.where(np.arange(9)[:, None] == 2, np.nan, 0)})
    wrong = r"^residuals of 'u': the array holds nan at z=2, y=3, x=4$"
    refused(wrong, {"u": np.where(np.arange(14 * 13 * 17).reshape(SHAPE) == (2 * 13 + 3) * 17 + 4, np.nan, 0)})
    refused("residuals of 'u': a function holds inf at", {"u": lambda z0, z1: np.full((z1 - z0, 13, 17), np.inf)})
    refused("residuals .* must be values by name", 3)
    refused("wrt: there is no gradient by 'w'; there are: u, u.previous, source, v, dt, h", wrt=["u", "w"])
    refused("the gradient with respect to h needs u after each step, which .* does not keep; run it", wrt=["u", "h"])
    refused(r"wrt \[\] must be names", wrt=[])
    refused("residuals are empty", {})
    refused("force 1 must be True or False", force=1)
    refused("memory", memory="1 parsec")
    with pytest.raises(InputError, match="memory 1 KiB is too small for adjoint of acoustic2"):
        sim.adjoint(good, "u", memory="1KiB")
    fresh = oc.Simulation("heat7", (8, 8, 8), directory=tmp_path / "new.oc")
    with pytest.raises(InputError, match="has no step yet, so it has no adjoint"):
        fresh.adjoint({}, "u")
    with pytest.raises(InputError, match="has no step yet"):
        oc.dot_test(fresh)


def test_what_is_not_there_yet_is_said(tmp_path: Path) -> None:
    sim = oc.Simulation(
        "gray_scott_2d", (12, 12), directory=tmp_path / "run.oc", init={"u": "random:1", "v": "random:2"}
    )
    sim.run(2, progress="none")
    with pytest.raises(InputError, match="the adjoint of gray_scott_2d, which is not linear, needs u, v after"):
        sim.adjoint({"u": np.ones((12, 12))}, "u")
    with pytest.raises(InputError, match="needs sources and receivers"):
        oc.SourceOperator(sim)
    linear = oc.Simulation("heat7", (8, 8, 8), directory=tmp_path / "heat.oc")
    linear.run(2, progress="none")
    adjoint = linear.adjoint({"u": np.ones((8, 8, 8))}, "u")
    with pytest.raises(InputError, match="the adjoint run is not complete"):
        _ = adjoint.gradients
    adjoint.run(progress="none")
    with pytest.raises(InputError, match="the adjoint run is complete"):
        adjoint.run(progress="none")
    with pytest.raises(InputError, match=r"heat-adjoint\.oc"):
        linear.adjoint({"u": np.ones((8, 8, 8))}, "u")
    linear.adjoint({"u": np.ones((8, 8, 8))}, "u", force=True)


def test_the_benchmark_compares_both_directions(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    command = ["bench", "adjoint", "--small", "--only", "heat2,elastic4", "-d", str(tmp_path), "--json", str(target)]
    assert call(command) == 0
    stencils = json.loads(target.read_text())["stencils"]
    assert set(stencils) == {"heat2", "elastic4"}
    assert all(rate > 0 for one in stencils.values() for rate in (*one["forward"], *one["adjoint"], one["ratio"]))
    assert stencils["heat2"]["gradient_every"] > 0 and stencils["heat2"]["gradient_all"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
    assert call(["bench", "adjoint", "--small", "--only", "gray_scott", "-d", str(tmp_path)]) == 2


def test_changed_parameters_have_no_adjoint(tmp_path: Path) -> None:
    """Checks a run whose parameters have changed between steps. An adjoint run would use the last parameters for all
    steps. A change before the first step is allowed."""
    place = tmp_path / "run.oc"
    oc.Simulation("heat2", (6, 7, 8), "float64", place, memory="1MiB", threads=1)["u"] = 1
    oc.open(place, params={"kappa": 0.8}).run(2, "none")
    before = oc.open(place)
    before.adjoint({"u": before["u"][:]}, "u", tmp_path / "adjoint.oc").run("none")
    sim = oc.open(place, params={"kappa": 0.5})
    sim.run(2, "none")
    with pytest.raises(InputError, match="has changed its parameters at step 2"):
        sim.adjoint({"u": sim["u"][:]}, "u", tmp_path / "other.oc")


@pytest.mark.parametrize("in_place", [False, True])
def test_fields_assigned_between_steps_have_no_adjoint(in_place: bool, tmp_path: Path) -> None:
    """Checks a run whose field has got new values after some steps. Its last values do not depend on its initial values
    any more. Assignments before the first step, and assignments that are refused, are allowed."""
    place, misfit = tmp_path / "run.oc", oc.Misfit("u", None)
    sim = oc.Simulation("heat2", (6, 7, 8), "float64", place, memory="1MiB", threads=1, in_place=in_place)
    for value in (1, 2):
        sim["u"] = value
    first, _ = sim.gradient(3, misfit, "u", progress="none")
    if not in_place:
        with pytest.raises(InputError, match="shape"):
            sim["u"] = lambda z0, z1: np.zeros((z1 - z0, 7, 8 + (z1 > 5)))
    assert sim.gradient(3, misfit, "u", resume=True)[0] == first
    sim["u"] = 3
    message = "fields were assigned at step 3, .* make a new run for new initial values, or use oc.Objective"
    for one in (sim, oc.open(place)):
        with pytest.raises(InputError, match=message):
            one.gradient(5, misfit, "u", force=True)
        with pytest.raises(InputError, match=message):
            one.adjoint({"u": sim["u"][:]}, "u", force=True)
        assert one.step == 3
    file = place / "manifest.json"
    content = json.loads(file.read_text())
    assert content.pop("crc32c") and content["assigned_step"] == 3
    for wrong in (-1, 4, "3", None):
        file.write_bytes(sealed({**content, "assigned_step": wrong}))
        with pytest.raises(InputError, match="is damaged or not written by Outcrop"):
            oc.open(place)
    del content["assigned_step"]
    file.write_bytes(sealed(content))
    assert oc.open(place).step == 3


@pytest.mark.parametrize("rim", [0.0, np.nan])
def test_values_in_the_rim_do_not_matter_for_points_beside_it(rim: float, tmp_path: Path) -> None:
    """Checks a run whose speeds are 0 or NaN in the rim. Its source and its receiver are in the last cells beside the
    rim. With linear interpolation, these points also have a cell in the rim, with the weight 0."""
    found = []
    for value in (1500.0, rim):
        folder = tmp_path / f"{value}"
        sim = oc.Simulation(
            "acoustic2_2d", (12, 12), "float64", folder / "run.oc", memory="1MiB", threads=1, unstable=True,
            sources=[oc.Source("u", [[5.0, 10.0]], np.arange(1.0, 9.0))],
            receivers=[oc.Receivers("line", "u", [[6.0, 10.0]])],
        )  # fmt: skip
        sim.assign({"u": 0, "v": np.pad(np.full((10, 10), 1500.0), 1, constant_values=value)})
        sim.run(8, "none")
        adjoint = sim.adjoint({"line": np.ones((8, 1))}, "source", folder / "adjoint.oc")
        adjoint.run("none")
        found.append(adjoint.gradients["source"][0])
    assert np.isfinite(found[0]).all() and found[0].any() and np.array_equal(*found)


def test_a_field_with_the_name_of_the_sources_is_refused(tmp_path: Path) -> None:
    u, field = oc.Field("u"), oc.Field("source")
    stencil = oc.Stencil("driven", {u: u[0, 0] + 0.1 * (u[0, 1] + u[0, -1] - 2 * u[0, 0]) + field[0, 0]})
    sim = oc.Simulation(stencil, (8, 8), "float64", tmp_path / "run.oc", memory="1MiB", threads=1)
    sim.assign({"u": 0, "source": 1})
    sim.run(2, "none")
    with pytest.raises(InputError, match="'source' means the sources of the run, but driven has a field"):
        sim.adjoint({"u": np.ones((8, 8))}, "source", tmp_path / "adjoint.oc")
