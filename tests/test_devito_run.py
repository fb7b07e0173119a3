"""Check scripts of Devito in which three lines are changed, so that they run out of core. The results must equal
Devito's results in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import outcrop as oc
from devito_scripts import DTYPES, close, dv, fill, make_grid
from outcrop.cli.main import call
from outcrop.cli.watch_web import draw_slice
from outcrop.errors import InputError
from outcrop.language.devito import from_devito
from outcrop.run.disk.verify import find_damage
from outcrop.run.places import open_state

pytestmark = pytest.mark.filterwarnings("ignore")  # Devito itself causes these warnings
STEPS = 40


def heat_script(dtype: Any) -> tuple[list[Any], Any, Any, float]:
    """Return a script of the heat equation of order 4, with random initial values and a coefficient that varies from
    cell to cell."""
    grid = make_grid((40, 24, 22), dtype)
    u = dv.TimeFunction(name="u", grid=grid, space_order=4)
    a = dv.Function(name="a", grid=grid)
    fill(u)
    fill(a, 1.0, 2.0)
    return [dv.Eq(u.forward, dv.solve(u.dt - a * u.laplace, u.forward))], u, None, 5.0


def acoustic_script(dtype: Any) -> tuple[list[Any], Any, Any, float]:
    """Return a script of the wave equation of order 8. It has receivers, one source between cells, and one source on a
    cell."""
    grid = make_grid((36, 26, 24), dtype)
    u = dv.TimeFunction(name="u", grid=grid, space_order=8, time_order=2)
    m = dv.Function(name="m", grid=grid)
    fill(m, 0.1, 0.4)
    nt = STEPS + 2
    shots = np.array([[101.0, 122.0, 113.0], [200.0, 105.0, 120.0]])
    src = dv.SparseTimeFunction(name="src", grid=grid, npoint=2, nt=nt, coordinates=shots)
    src.data[:] = np.exp(-(((np.arange(nt) - 10) / 3.0) ** 2))[:, None]
    places = np.array([[33.0, 20.0 + 23 * i, 30.0 + 19 * i] for i in range(6)])
    rec = dv.SparseTimeFunction(name="rec", grid=grid, npoint=6, nt=nt, coordinates=places)
    wave = dv.Eq(u.forward, dv.solve(m * u.dt2 - u.laplace, u.forward))
    shot = src.inject(field=u.forward, expr=src * grid.stepping_dim.spacing**2 / m)
    return [wave, shot, rec.interpolate(expr=u)], u, rec, 1.0


MEMORY = {
    ("heat", np.float32): "300KiB",
    ("heat", np.float64): "500KiB",
    ("acoustic", np.float32): "900KiB",
    ("acoustic", np.float64): "1500KiB",
    ("elastic", np.float32): "700KiB",
    ("elastic", np.float64): "1400KiB",
    ("maxwell", np.float32): "200KiB",
    ("maxwell", np.float64): "400KiB",
}
"""Budgets below half of the arrays, for which a run needs several passes."""
SCRIPTS = {"heat": heat_script, "acoustic": acoustic_script}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SCRIPTS)
def test_out_of_core_has_devitos_numbers(name: str, dtype: Any, tmp_path: Path) -> None:
    """Checks that a run of several passes gives Devito's values in the fields and in the traces of receivers."""
    equations, u, rec, dt = SCRIPTS[name](dtype)
    first = u.time_order - 1
    dv.Operator(equations, opt="noop").apply(dt=dt, time_m=first, time_M=first + STEPS - 1)
    want = np.array(u.data[(first + STEPS) % u.shape_allocated[0]])
    traces = np.array([] if rec is None else rec.data)
    equations, u, rec, dt = SCRIPTS[name](dtype)

    sim = oc.Simulation(equations, dt=dt, directory=tmp_path / "run.oc", memory=MEMORY[name, dtype])
    report = sim.run(steps=STEPS)
    assert report.plan["passes"] > 2
    assert sim.shape == u.grid.shape
    close("u", sim["u"][...], want, dtype)
    if rec is not None:
        close("rec", np.asarray(rec.data), traces, dtype)
        np.testing.assert_array_equal(oc.open(tmp_path / "run.oc").traces["rec"].astype(dtype), rec.data[1 : STEPS + 1])


def elastic_script(dtype: Any) -> tuple[list[Any], list[Any], list[Any], float]:
    """Return a script of the elastic wave equation on a staggered grid. The receivers record a sum of values from
    before and after a step."""
    grid, nt = make_grid((30, 15, 14), dtype), STEPS + 1
    v = dv.VectorTimeFunction(name="v", grid=grid, space_order=4, time_order=1)
    tau = dv.TensorTimeFunction(name="tau", grid=grid, space_order=4, time_order=1)
    b, lam, mu = (dv.Function(name=name, grid=grid, space_order=4) for name in ("b", "lam", "mu"))
    for function in (b, lam, mu):
        fill(function, 0.5, 1.0)
    dt = grid.stepping_dim.spacing
    src = dv.SparseTimeFunction(name="src", grid=grid, npoint=1, nt=nt, coordinates=np.array([[131.0, 57.0, 55.0]]))
    src.data[:, 0] = np.sin(np.arange(nt) / 3) * np.exp(-np.arange(nt) / 15)
    places = np.array([[61.0, 67.0, 75.0], [193.3, 44.4, 101.0]])
    rec = dv.SparseTimeFunction(name="pressure", grid=grid, npoint=2, nt=nt, coordinates=places)
    strain = dv.grad(v.forward) + dv.grad(v.forward).transpose(inner=False)
    equations = [
        dv.Eq(v.forward, v + dt * b * dv.div(tau)),
        dv.Eq(tau.forward, tau + dt * (lam * dv.diag(dv.div(v.forward)) + mu * strain)),
        *(src.inject(field=tau.forward[i, i], expr=src * dt) for i in range(3)),
        rec.interpolate(expr=tau.forward[0, 0] + tau.forward[1, 1] - 2 * tau[2, 2]),
    ]
    return equations, [*v, *(tau[i, j] for i in range(3) for j in range(i + 1))], [rec], 2.0


def maxwell_script(dtype: Any) -> tuple[list[Any], list[Any], list[Any], float]:
    """Return a script of Yee's scheme with Devito's curl and random initial fields."""
    grid = make_grid((30, 12, 15), dtype, 1.0)
    e = dv.VectorTimeFunction(name="E", grid=grid, space_order=2, time_order=1)
    x, y, z = grid.dimensions
    sides = ((y, z), (x, z), (x, y))
    h = dv.VectorTimeFunction(name="H", grid=grid, space_order=2, time_order=1, staggered=sides)
    for component in (*e, *h):
        fill(component, -1.0)
    dt = grid.stepping_dim.spacing
    equations = [dv.Eq(h.forward, h - dt * dv.curl(e)), dv.Eq(e.forward, e + dt * dv.curl(h.forward))]
    return equations, [*e, *h], [], 0.4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("script", [elastic_script, maxwell_script])
def test_staggered_systems_have_devitos_numbers(script: Any, dtype: Any, tmp_path: Path) -> None:
    """Checks each component of the fields, and the recorded sums, in a run out of core. The stencil has two stages with
    many fields."""
    equations, fields, receivers, dt = script(dtype)
    dv.Operator(equations, opt="noop").apply(dt=dt, time_m=0, time_M=STEPS - 1)
    want = {one.name: np.array(one.data[STEPS % 2]) for one in fields}
    traces = [np.array(one.data) for one in receivers]
    equations, fields, receivers, dt = script(dtype)
    memory = MEMORY[script.__name__.partition("_")[0], dtype]
    sim = oc.Simulation(equations, dt=dt, directory=tmp_path / "run.oc", memory=memory)
    assert sim.run(STEPS).plan["passes"] > 2
    for one in fields:
        close(one.name, sim[one.name][...], want[one.name], dtype)
    for one, trace in zip(receivers, traces, strict=True):
        close(one.name, np.asarray(one.data), trace, dtype)


def test_values_are_given_to_the_simulation_and_never_allocated(tmp_path: Path) -> None:
    """Checks that a run never accesses `.data`. Assigned values must have the shape of Devito's grid, even after
    `oc.open`.
    """
    equations, u, _, dt = heat_script(np.float32)
    dv.Operator(equations, opt="noop").apply(dt=dt, time_m=0, time_M=9)
    want = np.array(u.data[10 % 2])
    equations, filled, _, dt = heat_script(np.float32)
    a = next(one for one in equations[0].evaluate.rhs.atoms(dv.Function) if one.name == "a")
    values = {"u": np.array(filled.data[0]), "a": np.array(a.function.data)}

    grid = filled.grid
    u = dv.TimeFunction(name="u", grid=grid, space_order=4)
    a = dv.Function(name="a", grid=grid)
    heat = dv.Eq(u.forward, dv.solve(u.dt - a * u.laplace, u.forward))
    sim = oc.Simulation([heat], dt=dt, directory=tmp_path / "run.oc", memory="1MiB", norms=oc.Norms(5))
    with pytest.raises(InputError, match=r"reads a, which has no values; assign sim\['a'\]"):
        sim.run(10)
    assert not (tmp_path / "run.oc").exists()
    sim.assign(values)
    np.testing.assert_array_equal(sim["u"][3:30:-1, 2:9], values["u"][3:30:-1, 2:9])
    np.testing.assert_array_equal(sim["u"][::-3, 5, 2:9], values["u"][::-3, 5, 2:9])
    sim.run(4)
    again = oc.open(tmp_path / "run.oc")
    again.run(6)
    assert u._data is None and a._data is None
    close("u", sim["u"][...], want, np.float32)
    assert again.shape == grid.shape
    assert again.coordinates is not None and again.coordinates.origin == tuple(map(float, grid.origin))
    assert again.norms["u"]["squares"][-1] == pytest.approx((want.astype(np.float64) ** 2).sum(), rel=1e-5)


@pytest.mark.parametrize("shape", [(60,), (30, 34)])
def test_snapshots_and_own_receivers_are_on_devitos_grid(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Checks that boxes, points and coordinates do not include the padding, on one and two axes."""
    grid = make_grid(shape, np.float32)
    u = dv.TimeFunction(name="u", grid=grid, space_order=4)
    fill(u)
    start = np.array(u.data[0])
    box = (slice(2, 9), slice(3, 4))[: len(shape)]
    places = [o + 10.0 * 5 for o in map(float, grid.origin)]
    sim = oc.Simulation(
        dv.Eq(u.forward, u + 5.0 * u.laplace), dt=1.0, directory=tmp_path / "run.oc", memory="1MiB", boundary=None,
        receivers=[oc.Receivers("start", "u", places, before=True)], snapshots=oc.Snapshots(3, box=box),
    )  # fmt: skip
    sim.run(6)
    assert sim.traces["start"][0, 0] == start[(5,) * len(shape)]
    np.testing.assert_array_equal(sim.snapshots["u"][-1], sim["u"][box])
    with pytest.raises(InputError, match="outside the grid"):
        oc.Simulation(
            dv.Eq(u.forward, u.laplace), dt=1.0, directory=tmp_path / "other.oc",
            receivers=[oc.Receivers("r", "u", [o - 1.0 for o in map(float, grid.origin)])],
        )  # fmt: skip


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    """Checks the errors for a wrong time step, for sizes that the equations already define, and for too many steps."""
    equations, _, rec, _ = acoustic_script(np.float32)

    def refused(words: str, **options: Any) -> None:
        with pytest.raises(InputError, match=words):
            oc.Simulation(equations, **{"dt": 1.0, "directory": tmp_path / "run.oc", **options})

    refused("give dt=", dt=None)
    refused("shape=.*beside Devito's equations", shape=(4, 4, 4))
    refused("the equations' grid has float32", dtype="float64")
    refused("there are: u", snapshots=oc.Snapshots(3, fields=("w",)))
    sim = oc.Simulation(equations, dt=1.0, directory=tmp_path / "run.oc", memory="2MiB")
    with pytest.raises(InputError, match=rf"room for {rec.shape[0] - 1} steps, not for 100; make their nt larger"):
        sim.run(100)
    fast = oc.Simulation(equations, dt=3.0, directory=tmp_path / "run.oc", memory="2MiB")
    with pytest.raises(InputError, match=r"dt=3 is unstable.*the largest stable one is 1\.4"):
        fast.run(3)
    assert not (tmp_path / "run.oc").exists()


CHANGES = ["src.data", "src.coordinates.data", "rec.coordinates.data", "c.data", "pulse.data"]


@pytest.mark.parametrize("changed", CHANGES)
def test_what_was_taken_may_not_change(changed: str, tmp_path: Path) -> None:
    """Checks that a change of a source or coefficient after `oc.Simulation(...)` is refused, and that the error names
    the changed object. Without this error, a wavelet that is set too late would silently have no effect. A change of
    the data of receivers is allowed."""
    grid = make_grid((20, 12, 12), np.float32)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2)
    c = dv.Constant(name="c", value=1.0)
    pulse = dv.Function(name="pulse", dimensions=(grid.time_dim,), shape=(20,), dtype=np.float32)
    points = {"npoint": 1, "nt": 20, "coordinates": np.array([[50.0, 55.0, 60.0]])}
    src, rec = (dv.SparseTimeFunction(name=name, grid=grid, **points) for name in ("src", "rec"))
    src.data[:] = 1.0
    heat = dv.Eq(u.forward, u + c * u.laplace + pulse)
    equations = [heat, src.inject(field=u.forward, expr=src), rec.interpolate(expr=u.forward)]
    objects = {"src": src, "rec": rec, "c": c, "pulse": pulse}

    def change() -> None:
        name, *parts = changed.split(".")
        owner = objects[name]
        for part in parts[:-1]:
            owner = getattr(owner, part)
        if name == "c":
            c.data = c.data / 2
        else:
            owner.data[:] = np.asarray(owner.data) + 1.0

    fresh = oc.Simulation(equations, dt=1.0, directory=tmp_path / "fresh.oc", memory="1MiB")
    sim = oc.Simulation(equations, dt=1.0, directory=tmp_path / "run.oc", memory="1MiB")
    sim.run(3)
    sim.run(3)
    change()
    for one, act in ((sim, lambda: sim.run(3)), (fresh, lambda: fresh.run(3)), (fresh, lambda: fresh.assign({"u": 0}))):
        with pytest.raises(InputError, match=f"{changed} was changed after the Simulation was made"):
            act()
        assert one.step == (6 if one is sim else 0)
    assert not (tmp_path / "fresh.oc").exists()
    oc.Simulation(equations, dt=1.0, directory=tmp_path / "fresh.oc", memory="1MiB").run(3)


def test_saved_functions_become_snapshots(tmp_path: Path) -> None:
    """Checks that functions with `save=` and functions with a ConditionalDimension become snapshots with Devito's
    values. Some functions keep the values before a step, and some functions keep the values after a step.
    """
    grid = make_grid((20, 12), np.float64, 1.0)
    sub = dv.ConditionalDimension("sub", parent=grid.time_dim, factor=3)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2, time_order=2, save=STEPS + 2)
    v = dv.TimeFunction(name="v", grid=grid, space_order=2)
    before, after = (dv.TimeFunction(name=one, grid=grid, save=15, time_dim=sub) for one in ("before", "after"))
    fill(v)
    u.data[0], u.data[1] = v.data[0], v.data[0]
    equations = [
        dv.Eq(u.forward, dv.solve(u.dt2 - 0.1 * u.laplace, u.forward)), dv.Eq(v.forward, 0.9 * v + 0.1 * u),
        dv.Eq(before, u), dv.Eq(after, v.forward),
    ]  # fmt: skip
    sim = oc.Simulation(equations, dt=1.0, directory=tmp_path / "run.oc", memory="300KiB")
    assert sim.run(STEPS).plan["passes"] > 1
    dv.Operator(equations, opt="noop").apply(dt=1.0, time_M=STEPS)
    close("u", sim.snapshots["u"][...], np.array(u.data[1:]), np.float64)
    rows = slice(1, STEPS // 3 + 1)  # Devito's loop begins at time 1, so it does not keep time 0
    close("before", sim.snapshots["before/u"][...], np.array(before.data[rows]), np.float64)
    close("after", sim.snapshots["after/v"][...], np.array(after.data[rows]), np.float64)
    assert sim.snapshots["u"].steps.tolist() == list(range(1, STEPS + 2)), "snapshot k is u.data[k + 1]"
    assert sim.snapshots["before/u"].steps.tolist() == [3 * row for row in range(15)][rows], "kept.data[k] has time 3 k"
    assert sim.snapshots["after/v"].steps.tolist() == [3 * row + 1 for row in range(15)][rows]
    with pytest.raises(InputError, match="snapshots: two have the name 'before'"):
        oc.Simulation(
            equations, dt=1.0, directory=tmp_path / "other.oc", snapshots=oc.Snapshots(5, name="before"), memory="1MiB"
        )


@pytest.mark.parametrize("is_backward", [False, True])
def test_results_have_devitos_times(tmp_path: Path, is_backward: bool) -> None:
    """Checks that snapshots, traces and sources have the times of Devito in Zarr, in xarray, in callbacks and in plots.
    u.data[t], rec.data[t] and src.data[t] belong to the time t * dt."""
    grid, dt = make_grid((16, 12), np.float64, 1.0), 0.5
    v = dv.TimeFunction(name="v", grid=grid, space_order=2, time_order=2, save=STEPS)
    rec = dv.SparseTimeFunction(name="rec", grid=grid, npoint=1, nt=STEPS, coordinates=np.array([[5.0, 11.0]]))
    src = dv.SparseTimeFunction(name="src", grid=grid, npoint=1, nt=STEPS, coordinates=np.array([[7.0, 9.0]]))
    src.data[:, 0] = np.arange(STEPS)
    next_v = v.backward if is_backward else v.forward
    wave = dv.Eq(next_v, dv.solve(v.dt2 - 0.1 * v.laplace, next_v))
    equations = [wave, src.inject(field=next_v, expr=src), rec.interpolate(expr=v)]
    where, seen = tmp_path / "run.oc", list[int]()
    sim = oc.Simulation(equations, dt=dt, directory=where, memory="300KiB", snapshots=oc.Snapshots(4, name="four"))
    sim.run(20, on_snapshot=lambda step, kept: seen.append(step) if "four/v" in kept else None, history=oc.History(10))
    first, way = (STEPS - 2, -1) if is_backward else (1, 1)
    times = [first + way * step for step in range(21)]
    assert sim.snapshots["v"].steps.tolist() == times
    assert sim.snapshots["four/v"].steps.tolist() == times[::4] == seen
    kept = xarray.open_zarr(where / "snapshots.zarr" / "four")
    assert kept.step.values.tolist() == times[::4] and kept.time.values.tolist() == [dt * one for one in times[::4]]
    for group, name in (("snapshots/four", "step"), ("traces", "step"), ("sources", "source_0_step")):
        shown = xarray.open_dataset(where, engine="outcrop", group=group)
        rows = {"snapshots/four": times[::4], "traces": times[:-1]}.get(group)
        if rows is not None:
            assert shown[name].values.tolist() == rows
        if group == "traces":
            np.testing.assert_array_equal(shown.rec.values[:, 0], rec.data[rows, 0])
        if group == "sources":
            rows = shown[name].values
            np.testing.assert_array_equal(shown.source_0.values[:, 0], src.data[rows, 0])
    assert sim.history.steps.tolist() == [step for step, _ in sim.history.reversed()][::-1] == times[::10]
    assert xarray.open_zarr(where / "snapshots.zarr" / "history").step.values.tolist() == times[::10]
    assert draw_slice(where, "snapshots four/v", None)[1].startswith(f"snapshot of four/v at time index {times[-1]}")
    words = ["--snapshots", "four", "--step", str(times[8]), "-o", str(tmp_path / "a.png")]
    assert call(["plot", str(where), *words]) == 0
    assert oc.open(where).snapshots["four/v"].steps.tolist() == times[::4]
    assert find_damage(open_state(where)).damage == []


def test_commands_use_devitos_axes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks the names and the order of the axes in commands, texts and messages. A name means the axis of Devito's
    grid, although Outcrop gives the same name to another axis of its own grids."""
    grid = make_grid((20, 12, 9), np.float32)
    u, a = dv.TimeFunction(name="u", grid=grid, space_order=2), dv.Function(name="a", grid=grid)
    fill(u), fill(a)
    heat, where, picture = dv.Eq(u.forward, u + 5.0 * a * u.laplace), tmp_path / "run.oc", tmp_path / "a.png"
    options: dict[str, Any] = {"dt": 1.0, "directory": where, "memory": "1MiB", "units": "m"}
    sim = oc.Simulation(heat, boundary={"x": "periodic", "z": ("fixed", "mirror")}, **options)
    assert "20 x 12 x 9 float32" in str(sim.plan(2)).splitlines()[0]
    assert "boundary x=periodic,y=fixed,z=fixed:mirror" in str(sim.plan(2)).splitlines()[0]
    assert "20 x 12 x 9 float32" in sim.run(2, progress="none").headline
    assert "20 x 12 x 9 cells (x, y, z)" in str(sim) and "boundary x=periodic,y=fixed,z=fixed:mirror" in str(sim)
    values = sim["u"][...]
    assert np.array_equal(values[:, :, 0], u.data[0, :, :, 0]), "the low side of z is fixed"
    assert not np.array_equal(values[0], u.data[0, 0]) and not np.array_equal(values[:, :, -1], u.data[0, :, :, -1])

    assert call(["info", str(where)]) == call(["watch", str(where), "--once"]) == 0
    text = capsys.readouterr().out
    assert "20 x 12 x 9 cells (x, y, z), float32" in text and "devito 20 x 12 x 9 float32" in text
    assert "10 x 10 x 10 m apart, the first at 0 x 5 x 10" in text and "boundary x=periodic" in text
    for cut, title, plane in (("x=19", "x = 19 (190 m)", values[19]), ("z=8", "z = 8 (90 m)", values[:, :, 8])):
        assert call(["plot", str(where), "--slice", cut, "-o", str(picture)]) == 0
        text = capsys.readouterr().out
        assert f"devito, after 2 steps, {title}, values {plane.min():g} to {plane.max():g}" in text
    for cut, words in (("z=9", "z goes from 0 to 8"), ("q=1", "write x=256, y=0 or z=10,20,30")):
        assert call(["plot", str(where), "--slice", cut, "-o", str(picture)]) == 2
        assert words in capsys.readouterr().err
    np.save(tmp_path / "bad.npy", np.zeros((9, 12, 20)))
    for wrong_shape in (np.zeros((9, 12, 20)), str(tmp_path / "bad.npy")):
        with pytest.raises(InputError, match=r"the grid is \(20, 12, 9\) \(nx, ny, nz\)"):
            sim["u"] = wrong_shape
        with pytest.raises(InputError, match=r"the grid is \(20, 12, 9\) \(nx, ny, nz\)"):
            oc.Misfit("u", wrong_shape).check(sim, 2)
    spoilt = np.zeros((20, 12, 9))
    spoilt[3, 4, 5] = np.nan
    checked = oc.Simulation(heat, check_finite=True, **{**options, "directory": tmp_path / "checked.oc"})
    with pytest.raises(InputError, match="holds nan at x=3, y=4, z=5"):
        checked["u"] = spoilt
    for wrong, words in (
        ({"boundary": {"q": "mirror"}}, "axis 'q' is unknown; there are x, y, z"),
        ({"boundary": {"x": ("periodic", "fixed")}}, "axis x must be periodic on both sides"),
        ({"boundary": "x=periodic:fixed"}, "axis x must be periodic on both sides"),
        ({"boundary": {"x": ("fixed", "fixed", "mirror")}}, "axis x has 3 sides"),
        ({"snapshots": oc.Snapshots(1, box=[slice(0, 1)])}, "a slice for each axis: x, y, z"),
        ({"snapshots": oc.Snapshots(1, box=[slice(0, 30), slice(0, 1), slice(0, 1)])}, r"along x is not a range"),
        ({"snapshots": oc.Snapshots(1, coarsen=(2, 2))}, "one for each axis: x, y, z"),
    ):
        with pytest.raises(InputError, match=words):
            oc.Simulation(heat, **{**options, "directory": tmp_path / "other.oc", **wrong})


def test_a_changed_model_is_refused_by_later_steps(tmp_path: Path) -> None:
    """Checks that later steps are refused if a Function has changed after the first step, also if a term is computed
    from this Function. Values that are set before the first step are used. A Function that gets its old values again is
    accepted."""
    grid = make_grid((20, 12), np.float64, 1.0)
    u, a = dv.TimeFunction(name="u", grid=grid, space_order=2), dv.Function(name="a", grid=grid)
    theta = dv.Function(name="theta", grid=grid)
    fill(u), fill(a)
    heat = dv.Eq(u.forward, u + 0.1 * a * dv.cos(theta) * u.laplace)
    sim = oc.Simulation(heat, dt=1.0, directory=tmp_path / "run.oc", memory="1MiB")
    theta.data[:] = 0.5
    sim.run(2)
    for function in (a, theta):
        before = np.array(function.data)
        function.data[3, 4] += 0.25
        words = rf"{function.name}\.data was changed after the first step.*new Simulation"
        with pytest.raises(InputError, match=words):
            sim.run(2)
        with pytest.raises(InputError, match="changed after the first step"):
            sim.gradient(2, oc.Misfit("u", None), "u")
        function.data[:] = before
    u.data[:] = 0.0  # the run has its own values of u
    sim.run(2)
    assert sim.step == 4 and sim["u"][...].any()
    again = oc.Simulation(heat, dt=1.0, directory=tmp_path / "again.oc", memory="1MiB")
    again.assign({"u": 1.0, "a": 1.0, "theta": 1.0})
    again.run(1)
    a.data[:] = 3.0  # the run has its own values of a
    again.run(1)


def test_the_tangent_of_devitos_equations_is_their_derivative(tmp_path: Path) -> None:
    """Checks the tangent of translated equations against a central difference. Equations themselves are refused."""
    grid = make_grid((20, 12), np.float64, 1.0)
    u, m = dv.TimeFunction(name="u", grid=grid, space_order=2, time_order=2), dv.Function(name="m", grid=grid)
    wave = dv.Eq(u.forward, dv.solve(m * u.dt2 - u.laplace, u.forward))
    lowered, rng = from_devito([wave], dt=0.3), np.random.default_rng(1)
    shape = (lowered.shape[0], lowered.shape[2])
    change, first = rng.standard_normal(shape), {"u": "gaussian", "u.previous": "gaussian"}

    def last(stencil: oc.Stencil, speed: Any, **more: Any) -> Any:
        sim = oc.Simulation(stencil, shape, "float64", tmp_path / "run.oc", memory="1MiB", force=True)
        sim.assign({**first, "m": speed, **more})
        sim.run(10, progress="none")
        return sim["u_tangent" if more else "u"][...]

    base, h = np.full(shape, 0.5), 1e-5
    found = last(oc.tangent(lowered.stencil, wrt="m"), base, m_tangent=change)
    wanted = (last(lowered.stencil, base + h * change) - last(lowered.stencil, base - h * change)) / (2 * h)
    assert np.abs(found - wanted).max() < 1e-6 * np.abs(wanted).max() > 0
    for given in ([wave], wave):
        with pytest.raises(InputError, match=r"give from_devito\(equations, dt\)\.stencil"):
            oc.tangent(given, wrt="m")  # type: ignore[arg-type]


def test_computed_fields_can_be_assigned(tmp_path: Path) -> None:
    """Checks a function that no kernel can compute. Outcrop computes the values of the function from `.data`. If the
    run has other values than `.data`, the user must assign the values of the function."""
    grid = make_grid((20, 12), np.float64, 1.0)
    u, theta = dv.TimeFunction(name="u", grid=grid, space_order=2), dv.Function(name="theta", grid=grid)
    heat = dv.Eq(u.forward, u + 0.1 * dv.cosh(theta) * u.laplace + 0.01 * theta)
    sim = oc.Simulation(heat, dt=1.0, directory=tmp_path / "one.oc", memory="1MiB")
    sim.assign({"u": "gaussian", "theta": 0.5})
    with pytest.raises(InputError, match=r"cosh_theta, which has no values; assign sim\['cosh_theta'\]"):
        sim.run(3)
    sim["cosh_theta"] = np.full(grid.shape, np.cosh(0.5))
    sim.run(3)
    theta.data[:] = 0.5
    other = oc.Simulation(heat, dt=1.0, directory=tmp_path / "two.oc", memory="1MiB")
    other["u"] = "gaussian"
    other.run(3)
    np.testing.assert_array_equal(other["u"][1:-1, 1:-1], sim["u"][1:-1, 1:-1])
    third = oc.Simulation(heat, dt=1.0, directory=tmp_path / "three.oc", memory="1MiB")
    third.assign({"u": "gaussian", "theta": 0.1})  # `theta.data` has other values
    with pytest.raises(InputError, match="cosh_theta, which has no values"):
        third.run(3)


def test_computed_fields_do_not_outlive_the_fields_that_they_come_from(tmp_path: Path) -> None:
    """Checks a new value of a field after its function was computed from `.data`, but before the first step."""
    grid = make_grid((20, 12), np.float64, 1.0)
    u, theta = dv.TimeFunction(name="u", grid=grid, space_order=2), dv.Function(name="theta", grid=grid)
    theta.data[:] = 0.5
    heat = dv.Eq(u.forward, u + 0.1 * dv.cosh(theta) * u.laplace + 0.01 * theta)
    sim = oc.Simulation(heat, dt=1.0, directory=tmp_path / "one.oc", memory="1MiB")
    sim.fill()
    assert sim["cosh_theta"][3, 3] == np.cosh(0.5)
    sim["u"] = "gaussian"
    assert sim["cosh_theta"][3, 3] == np.cosh(0.5), "only theta changes cosh(theta)"
    sim["theta"] = 0.7
    with pytest.raises(InputError, match="holds no values of cosh_theta yet"):
        sim["cosh_theta"][3, 3]
    with pytest.raises(InputError, match=r"cosh_theta, which has no values; assign sim\['cosh_theta'\]"):
        sim.run(3)
    sim["cosh_theta"] = np.cosh(0.7)
    sim["theta"] = 0.7  # keeps values that the user has assigned
    sim.run(3)
    other = oc.Simulation(heat, dt=1.0, directory=tmp_path / "two.oc", memory="1MiB")
    other.assign({"u": "gaussian", "theta": 0.7, "cosh_theta": np.cosh(0.7)})
    other.run(3)
    np.testing.assert_array_equal(sim["u"][...], other["u"][...])


def test_functions_of_static_fields_follow_assigned_values(tmp_path: Path) -> None:
    """Checks functions that kernels compute, in cells and between cells. They are computed once from the values of the
    run. These values come from `.data` or from an assignment. The halo has other values."""
    grid = make_grid((20, 12), np.float64, 1.0)
    u, theta = dv.TimeFunction(name="u", grid=grid, space_order=4), dv.Function(name="theta", grid=grid, space_order=4)
    heat = dv.Eq(u.forward, u + 0.1 * (dv.cos(theta) * u.dx).dx + 0.01 * theta)
    values = np.random.default_rng(1).random(grid.shape)
    sim = oc.Simulation(heat, dt=1.0, directory=tmp_path / "one.oc", memory="1MiB")
    sim.assign({"u": "gaussian", "theta": 0.7})
    sim["theta"] = values
    assert sim.run(3, progress="none").computed_once == ("cos_theta = cos(theta)",)
    theta.data[:] = values
    other = oc.Simulation(heat, dt=1.0, directory=tmp_path / "two.oc", memory="1MiB", functions="steps")
    other["u"] = "gaussian"
    assert other.run(3, progress="none").computed_once == ()
    np.testing.assert_array_equal(other["u"][...], sim["u"][...])


def test_positions_in_a_run(tmp_path: Path) -> None:
    """Checks positions and the time in a run that is opened again and continued. One run has a halo, and one run has a
    boundary instead of the halo."""
    grid = make_grid((20, 12), np.float64, 1.0)
    x, y = grid.dimensions
    for boundary in (None, "mirror"):
        where = tmp_path / f"{boundary}.oc"
        u = dv.TimeFunction(name="u", grid=grid, space_order=4)
        equation = dv.Eq(u.forward, u + 0.01 * u.laplace + 0.1 * (x + 100 * y) + 10 * grid.time_dim)
        sim = oc.Simulation(equation, dt=0.5, directory=where, memory="1MiB", boundary=boundary)
        sim.run(3, progress="none")
        oc.open(where).run(4, progress="none")
        if boundary is None:
            dv.Operator(equation).apply(time_m=0, time_M=6, dt=0.5)
            close("u", sim["u"][...], np.array(u.data[1]), np.float64)
        else:  # the change of a linear ramp is 0, except near a mirror
            expected = 0.7 * (np.arange(20)[:, None] + 100 * np.arange(12)) + 10 * sum(range(7))
            assert sim["u"][:].shape == (20, 12) and abs(sim["u"][10, 6] / expected[10, 6] - 1) < 1e-2
    tall = dv.Grid(shape=((1 << 24) + 1,), dtype=np.float32)
    u = dv.TimeFunction(name="u", grid=tall)
    with pytest.raises(InputError, match="float32 has exact positions of up to 16777216"):
        oc.Simulation(dv.Eq(u.forward, u + tall.dimensions[0]), dt=0.5, directory=tmp_path / "tall.oc")


@pytest.mark.parametrize("shape", [(30,), (20, 14), (20, 12, 13)])
def test_readers_of_zarr_see_devitos_grid(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Checks that other programs see the arrays without the halo, with the names and coordinates of Devito's
    dimensions. If an array has shards in several directories, other programs also see the halo."""
    grid = make_grid(shape, np.float32)
    u = dv.TimeFunction(name="u", grid=grid, space_order=4)
    fill(u)
    heat = dv.Eq(u.forward, u + 5.0 * u.laplace)
    run = tmp_path / "run.oc"
    sim = oc.Simulation(heat, dt=1.0, directory=run, memory="1MiB", units="m", snapshots=oc.Snapshots(2))
    sim.run(4)
    shown = xarray.open_zarr(run)
    names = ("x", "y", "z")[: len(shape)]
    assert shown.u.dims == names
    np.testing.assert_array_equal(shown.u.values, sim["u"][...])
    for axis, name in enumerate(names):
        places = float(grid.origin[axis]) + 10.0 * np.arange(shape[axis])
        np.testing.assert_allclose(shown[name].values, places)
    kept = xarray.open_zarr(run / "snapshots.zarr").u
    assert kept.dims == ("time", *names)
    np.testing.assert_array_equal(kept[-1].values, sim["u"][...])
    assert oc.open(run).run(2).steps == 2
    np.testing.assert_array_equal(xarray.open_zarr(run).u.values, oc.open(run)["u"][...])

    places = [tmp_path / name for name in ("a.oc", "b.oc")]
    striped = oc.Simulation(heat, dt=1.0, directory=places, memory="1MiB")
    striped.run(4)
    hidden = len(shape) == 1  # an array of one axis has a single shard
    whole = xarray.open_zarr(places[0]).u.values
    inner = tuple(slice(0 if hidden else 2, n + (0 if hidden else 2)) for n in shape)
    assert whole.shape == tuple(n + (0 if hidden else 4) for n in shape)
    np.testing.assert_array_equal(whole[inner], striped["u"][...])
