"""Equations of Devito that run backward in time and read the states of another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from devito_scripts import close, dv, make_grid
from outcrop.errors import InputError
from outcrop.language.devito import keep_equations

STEPS = 40


def wave_and_image(grid: Any) -> tuple[list[Any], list[Any], Any, Any]:
    """Return the equations of a wave, and the equations of a second wave. The second wave sends the recorded traces
    back, and its equations also correlate the two waves. The model has a layer that absorbs waves, and a SubDomain that
    is the whole grid."""
    nt = STEPS + 2
    options: dict[str, Any] = {"grid": grid, "space_order": 4, "time_order": 2}
    u, v = dv.TimeFunction(name="u", save=nt, **options), dv.TimeFunction(name="v", **options)
    m, damp = dv.Function(name="m", grid=grid), dv.Function(name="damp", grid=grid)
    image = dv.Function(name="image", grid=grid)
    m.data[:], m.data[10:] = 0.4, 0.2
    damp.data[:], damp.data[:3], damp.data[-3:] = 0.0, 0.05, 0.05
    src = dv.SparseTimeFunction(name="src", grid=grid, npoint=1, nt=nt, coordinates=np.array([[5.2, 8.0]]))
    rec = dv.SparseTimeFunction(name="rec", grid=grid, npoint=1, nt=nt, coordinates=np.array([[4.0, 6.5]]))
    src.data[:, 0] = np.exp(-(((np.arange(nt) - 8) / 3.0) ** 2))
    scale = grid.stepping_dim.spacing**2 / m
    wave = dv.Eq(u.forward, dv.solve(m * u.dt2 - u.laplace + damp * u.dt, u.forward))
    back = dv.Eq(v.backward, dv.solve(m * v.dt2 - v.laplace + damp * v.dt.T, v.backward))
    forward = [wave, src.inject(field=u.forward, expr=src * scale), rec.interpolate(expr=u)]
    return forward, [back, rec.inject(field=v.backward, expr=rec * scale), dv.Inc(image, -u * v.dt2)], image, rec


def test_an_image_from_two_operators(tmp_path: Path) -> None:
    """Checks that two Operators give Devito's image. The second Operator runs backward in time and reads the states
    that the run of the first Operator keeps. The error for wrong saved states must name the argument to give."""
    with keep_equations():
        forward, back, image, rec = wave_and_image(make_grid((20, 16), np.float64, 1.0))
        operators = [dv.Operator(one, opt="noop") for one in (forward, back)]
    sim = oc.Simulation(operators[0], dt=0.2, directory=tmp_path / "wave.oc", memory="500KiB")
    with pytest.raises(InputError, match=r"wave.oc does not keep all its states; give saved=, the simulation"):
        oc.Simulation(operators[1], dt=0.2, directory=tmp_path / "image.oc", memory="1MiB", saved=sim)
    sim.run(STEPS, history="all")
    assert np.abs(rec.data).max() > 0
    with pytest.raises(InputError, match=r"the equations read u of another run; give saved="):
        oc.Simulation(operators[1], dt=0.2, directory=tmp_path / "image.oc", memory="1MiB")
    with pytest.raises(InputError, match=r"saved= is given, but no equation reads"):
        oc.Simulation(operators[0], dt=0.2, directory=tmp_path / "image.oc", memory="1MiB", saved=sim)
    imaging = oc.Simulation(
        operators[1], dt=0.2, directory=tmp_path / "image.oc", memory="500KiB", saved=oc.open(tmp_path / "wave.oc")
    )
    with pytest.raises(InputError, match=r"has no field 'w'; .* give saved=\(simulation, \{'u0': 'u'\}\)"):
        oc.Simulation(operators[1], dt=0.2, directory=tmp_path / "other.oc", memory="1MiB", saved=(sim, {"u": "w"}))
    assert imaging.run(STEPS).plan["passes"] > 1

    operators[0].apply(dt=0.2)
    operators[1].apply(dt=0.2)
    close("image", imaging["image"][...], np.array(image.data), np.float64)


@pytest.mark.parametrize("rows", [STEPS + 2, STEPS - 3])
@pytest.mark.parametrize("form", ["u * v", "u.dt2 * v", "u.dt * v.backward"])
def test_a_backward_loop_without_receivers_begins_with_the_saved_states(form: str, rows: int, tmp_path: Path) -> None:
    """Checks a loop without receivers, in which only a saved function has a number of rows. The loop must begin at
    Devito's time_M. The saved run may have more states than the loop needs."""
    grid = make_grid((20, 16), np.float64, 1.0)
    forward, (back, _, _), image, _ = wave_and_image(grid)
    v, wave = back.lhs.function, forward[0].lhs.function
    u = dv.TimeFunction(name="u", grid=grid, space_order=4, time_order=2, save=rows)
    correlate = dv.Inc(image, -{"u * v": u * v, "u.dt2 * v": u.dt2 * v}.get(form, u.dt * v.backward))
    sim = oc.Simulation(forward, dt=0.2, directory=tmp_path / "wave.oc", memory="500KiB")
    sim.run(STEPS, history="all")
    v.data[:] = np.random.default_rng(3).standard_normal(grid.shape)
    imaging = oc.Simulation([back, correlate], dt=0.2, directory=tmp_path / "image.oc", memory="500KiB", saved=sim)
    time_m = 1 + ("dt2" in form)  # the step at time 1 would read u.data[0] for u.dt2
    imaging.run(rows - 1 - time_m)
    if time_m == 2:
        with pytest.raises(InputError, match=r"read u before step 0 of the saved run, .* run fewer steps"):
            imaging.run(1)

    dv.Operator(forward, opt="noop").apply(dt=0.2)
    u.data[:] = wave.data[:rows]
    dv.Operator([back, correlate], opt="noop").apply(dt=0.2, time_m=time_m)
    close("image", imaging["image"][...], np.array(image.data), np.float64)


def test_a_saved_function_with_too_few_rows_is_refused(tmp_path: Path) -> None:
    grid = make_grid((20, 16), np.float64, 1.0)
    forward, (back, _, _), image, _ = wave_and_image(grid)
    sim = oc.Simulation(forward, dt=0.2, directory=tmp_path / "wave.oc", memory="500KiB")
    sim.run(2, history="all")
    late = dv.TimeFunction(name="u", grid=grid, space_order=4, time_order=2, save=2)
    equations = [back, dv.Inc(image, -late * back.lhs.function)]
    with pytest.raises(InputError, match=r"reads u before step 0 of .*wave.oc, .* Devito's index 0"):
        oc.Simulation(equations, dt=0.2, directory=tmp_path / "late.oc", memory="1MiB", saved=sim)


@pytest.mark.parametrize("is_backward", [False, True])
def test_a_misfit_uses_the_rows_of_devitos_data(is_backward: bool, tmp_path: Path) -> None:
    """Checks that a misfit takes the whole array of Devito, and that the error for another shape names the rows."""
    grid, steps = make_grid((20, 16), np.float64, 1.0), 12
    u = dv.TimeFunction(name="u", grid=grid, space_order=4, time_order=2)
    rec = dv.SparseTimeFunction(name="rec", grid=grid, npoint=2, nt=20, coordinates=np.array([[5.2, 8.0], [9.0, 7.5]]))
    later = u.backward if is_backward else u.forward
    equations = [dv.Eq(later, dv.solve(0.3 * u.dt2 - u.laplace, later)), rec.interpolate(expr=u)]
    where, rng = tmp_path / "run.oc", np.random.default_rng(2)
    sim = oc.Simulation(equations, dt=0.2, directory=where, memory="1MiB")
    sim["u"] = rng.standard_normal(grid.shape)
    sim.run(steps, progress="none")
    whole = rng.standard_normal((20, 2))
    rows, text = (whole[7:19][::-1], r"\[7:19\]\[::-1\]") if is_backward else (whole[1:13], r"\[1:13\]$")
    value, residuals = oc.Misfit("rec", whole, weight=2 * np.ones((20, 2)))(sim)
    assert value == oc.Misfit("rec", rows, weight=2)(sim)[0] > 0
    np.testing.assert_array_equal(residuals["rec"], 2 * (sim.traces["rec"] - rows))
    for opened, wrong in ((sim, whole[:15]), (oc.open(where), whole)):
        with pytest.raises(InputError, match=rf"shape \(12, 2\); given: .*; these are the rows rec\.data{text}"):
            oc.Misfit("rec", wrong)(opened)


def test_gradients_of_damped_equations_say_which_history_they_need(tmp_path: Path) -> None:
    """Checks the usual form of Devito's damping, in which the factor of u(t - dt) contains m. The calls that the error
    message suggests must work. The error of a second gradient must say why states are missing."""
    equations, _, _, _ = wave_and_image(make_grid((20, 16), np.float64, 1.0))

    def made() -> oc.Simulation:
        return oc.Simulation(equations, dt=0.2, directory=tmp_path / "shot.oc", memory="4MiB", force=True)

    sim = made()
    sim.run(10, "none", history="all")
    with pytest.raises(InputError, match=r"does not have u\(t - dt\); give history=oc.History\(8, recompute=T"):
        sim.adjoint({"rec": sim.traces["rec"]}, wrt="m")
    found = []
    for history in ("auto", oc.History(8, recompute=True)):
        sim = made()
        sim.run(10, "none", history=history)
        adjoint = sim.adjoint({"rec": sim.traces["rec"]}, wrt=["m", "damp"], force=True)
        adjoint.run("none")
        found.append(adjoint.gradients["m"][:])
    assert np.array_equal(*found) and abs(found[0]).max() > 0

    sim = made()
    _, gradient = sim.gradient(10, oc.Misfit("rec", None), wrt="m", progress="none", force=True)
    assert np.array_equal(gradient["m"][:], found[0])
    assert "\n" not in repr(gradient["m"]) and repr(gradient["m"]).startswith("<gradient of shape (20, 16), float64")
    with pytest.raises(InputError, match=r"does not keep; run it with .*recompute=True.* has freed the states"):
        sim.gradient(10, oc.Misfit("rec", None), wrt="m", progress="none", force=True)
