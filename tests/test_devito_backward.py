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
    that the run of the first Operator keeps. The error for wrong saved states must say what to give."""
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
    """Checks that the loop begins at Devito's time_M also if only a saved function has a number of rows. The saved run
    may have more states than the loop needs."""
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
