"""Protects from runs that grow: judged by the values that a model has, wherever they are."""

from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop.errors import InputError
from shots import SHAPE, H, velocity


@pytest.mark.parametrize("together", [False, True])
def test_a_model_too_fast_for_the_step_is_refused_and_nothing_is_left(together: bool, tmp_path: Path) -> None:
    """The largest velocity decides, wherever it is; with unstable=True it runs, and the report says so."""
    fast = np.array(velocity())
    fast[20, 10, 10] = 9000
    sponge = oc.stencils.acoustic(order=4, sponge=True)
    stencil = sponge if together else oc.stencils.acoustic(order=4)
    damp = oc.stencils.sponge(SHAPE, 4, velocity=3000.0, spacing=H)
    values = {"v": fast, "damp": damp} if together else {"v": fast}
    sim = oc.Simulation(stencil, SHAPE, directory=tmp_path / "run.oc", memory="1MiB", dt=0.001)
    with pytest.raises(InputError, match=r"dt=0.001 is unstable.*the largest stable one is 0.00055.*--unstable"):
        sim.assign(values)
        sim.run(2)
    assert not (tmp_path / "run.oc").exists()
    again = oc.Simulation(
        stencil, SHAPE, directory=tmp_path / "run.oc", memory="1MiB", dt=0.001, unstable=True, force=True
    )
    again.assign(values)
    assert "the largest stable one is 0.00055" in again.run(2).warning
    assert "0.00055" in oc.open(tmp_path / "run.oc").run(1).warning


def test_fields_judged_together_are_not_refused_for_cells_that_are_not_there(tmp_path: Path) -> None:
    """Light cells and stiff ones are unstable together, but each is stable where it is."""
    u, a, b = oc.Field("u"), oc.Field("a"), oc.Field("b")
    dt = oc.Parameter("dt", 1.0)
    spread = u[0, 0, 1] - 2 * u[0, 0, 0] + u[0, 0, -1]
    stencil = oc.Stencil("product", {u: u[0, 0, 0] + dt * a[0, 0, 0] * b[0, 0, 0] * spread})
    half = np.zeros((8, 8, 8)) + np.where(np.arange(8) < 4, 0.2, 2.0)
    for other, is_stable in ((half[:, :, ::-1], True), (half, False)):
        sim = oc.Simulation(stencil, (8, 8, 8), directory=tmp_path / "run.oc", memory="1MiB", force=True)
        sim["a"] = half
        sim["b"] = other
        if is_stable:
            assert sim.run(2).warning == ""
        else:
            with pytest.raises(InputError, match=r"largest stable one is 0\.12"):
                sim.run(2)
