"""Protects snapshots of whole runs: from the first picture on, each once, and shown when they are committed."""

import os
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from outcrop.errors import InputError
from outcrop.run.disk.manifest import MANIFEST
from shots import DT, STEPS, make


def test_snapshots_are_handed_over_as_they_are_committed(tmp_path: Path) -> None:
    """Each once, in order, with its step and values; what stops in there stops the run, which can go on."""
    seen: list[tuple[int, float]] = []
    sim = make(tmp_path / "run.oc")

    def look(step: int, kept: Any) -> None:
        seen.append((step, float(kept["u"].sum())))
        assert len(sim.snapshots["u"]) > step // 7  # committed by now
        if step == 21:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        sim.run(STEPS, on_snapshot=look)
    assert [step for step, _ in seen] == [0, 7, 14, 21]
    if sim.step < STEPS:  # the passes go on while snapshots are looked at
        sim.run(STEPS - sim.step)
    assert [value for _, value in seen] == [float(one.sum()) for one in sim.snapshots["u"][:4]]


def test_snapshots_committed_but_not_shown_yet_are_shown_when_the_run_is_opened(tmp_path: Path) -> None:
    """A power cut right after the manifest was renamed leaves the metadata of an earlier step."""
    sim, group = make(tmp_path / "run.oc"), tmp_path / "run.oc" / "snapshots.zarr"
    files = [group / name for name in ("zarr.json", "u/zarr.json", "step/zarr.json", "time/zarr.json")]
    early = [file.read_text() for file in files]
    sim.run(14)
    late = [file.read_text() for file in files]
    assert early != late
    for file, text in zip(files, early, strict=True):
        file.write_text(text)
    oc.open(tmp_path / "run.oc")
    assert [file.read_text() for file in files] == late


def test_a_movie_begins_with_the_initial_values(tmp_path: Path) -> None:
    """Snapshot k is that of step k * every; what was assigned last before the first step is its first picture."""
    sim = oc.Simulation(
        oc.stencils.heat(), (12, 20, 30), directory=tmp_path / "run.oc", memory="300KiB", snapshots=oc.Snapshots(3)
    )
    sim["u"] = 1.0
    first = np.random.default_rng(1).standard_normal((12, 20, 30)).astype(np.float32)
    sim["u"] = first
    assert len(sim.snapshots["u"]) == 0
    sim.run(4)
    sim.run(2)
    kept = sim.snapshots["u"]
    assert kept.steps.tolist() == [0, 3, 6]
    np.testing.assert_array_equal(kept[0], first)
    np.testing.assert_array_equal(kept[2], sim["u"][...])


def test_runs_made_before_initial_values_were_kept_go_on_without(tmp_path: Path) -> None:
    """A manifest that says nothing of it counts its snapshots and norms from `every` on, whoever resumes it."""
    taps = {"snapshots": oc.Snapshots(7, initial=False), "norms": oc.Norms(4, initial=False)}
    sim, path = make(tmp_path / "run.oc", **taps), tmp_path / "run.oc" / MANIFEST
    sim.run(20)
    text = path.read_text()
    early = text.replace(',\n      "initial": false', "")
    assert text.count('"initial"') == 2 and '"initial"' not in early
    path.write_text(early)
    again = oc.open(tmp_path / "run.oc")
    again.run(8)
    assert again.snapshots["u"].steps.tolist() == [7, 14, 21, 28]
    assert again.norms["u"]["step"].tolist() == [4, 8, 12, 16, 20, 24, 28]


@pytest.mark.skipif(not (find_spec("zarr") and find_spec("xarray")), reason="needs zarr and xarray")
def test_xarray_shows_snapshots_with_coordinates(tmp_path: Path) -> None:
    """Dimensions by name, places in metres, steps and seconds; also before the first and half-way."""
    import xarray

    sim = make(tmp_path / "run.oc")
    path = tmp_path / "run.oc" / "snapshots.zarr"
    assert xarray.open_zarr(path).sizes["time"] == 0
    for steps, count in ((20, 3), (STEPS - 20, 9)):
        sim.run(steps)
        shown = xarray.open_zarr(path)
        assert shown.u.dims == ("time", "z", "y", "x")
        assert shown.u.shape == (count, 36, 1, 37)
        np.testing.assert_array_equal(shown.u, sim.snapshots["u"][:])
    np.testing.assert_array_equal(shown.step, np.arange(0, 57, 7))
    np.testing.assert_allclose(shown.time, np.arange(0, 57, 7) * DT)
    np.testing.assert_array_equal(shown.z, 100.0 + 10.0 * np.arange(4, 40))
    assert float(shown.x[0]) == -50.0
    assert (shown.x.attrs["units"], shown.time.attrs["units"]) == ("m", "s")


def test_snapshots_that_have_no_room_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step, with how much is needed, rather than in the middle."""
    sim, room = make(tmp_path / "run.oc"), os.statvfs(tmp_path)
    few = SimpleNamespace(f_bavail=10, f_frsize=room.f_frsize)
    monkeypatch.setattr(os, "statvfs", lambda path: few)
    with pytest.raises(InputError, match="no space: 9 snapshots need"):
        sim.run(STEPS)
    assert sim.step == 0
