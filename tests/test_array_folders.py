"""Check that a run verifies, counts and removes the folders of all its arrays, and no other folder."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import outcrop as oc
from folders import everything_below
from manifests import make_manifest
from outcrop.errors import InputError
from outcrop.run.disk.contents import array_folders
from outcrop.run.disk.entries import arrays_of
from outcrop.run.disk.manifest import MANIFEST
from outcrop.run.disk.verify import Findings, find_damage
from outcrop.run.places import created_state, open_state
from several_arrays import (
    SHAPE,
    make_run,
    make_simulation,
    state_of,
    waves,
)


def test_verify_tests_every_array_and_names_the_damaged_one(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    simulation, _ = make_run(where)
    assert find_damage(open_state(where)) == Findings([], [], 4 * 7, 0)
    for name in ("m", "u.previous"):
        with open(str(state_of(simulation).current_files_of(name)[0]), "r+b") as file:
            file.seek(2 * state_of(simulation).layout.record_bytes + 7)
            file.write(b"\xff")
    found = find_damage(open_state(where))
    assert found.checked == 28
    assert [line.split(" is damaged")[0] for line in found.damage] == ["u.previous: plane 2", "m: plane 2"]


def test_space_is_counted_for_all_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the disk space that a new run needs: two copies of each array of the state, and one copy of each other
    array.

    If the disk has too little space, the run is refused before it writes anything.
    """
    arrays = arrays_of(waves())
    for in_place, copies in ((False, 7), (True, 4)):
        where = tmp_path / f"{in_place}.oc"
        manifest = replace(make_manifest(where, in_place=in_place), arrays=arrays)
        needed = copies * manifest.layout.array_bytes + (1 << 20)
        for free in (needed - 1, needed):
            room = SimpleNamespace(f_bavail=free, f_frsize=1)
            with monkeypatch.context() as patch:
                patch.setattr(os, "statvfs", lambda path, room=room: room)
                if free < needed:
                    with pytest.raises(InputError, match="no space"), created_state([where], manifest):
                        pass
                    assert not where.exists()
                else:
                    with created_state([where], manifest) as state:
                        assert len(state.manifest.copies) == copies
                        state.commit(0)


def test_a_run_over_directories_goes_completely_when_it_is_replaced(tmp_path: Path) -> None:
    """Checks the replacement of a run. The folders of all fields are removed, including static fields. Files of the
    user are kept.
    """
    places = [tmp_path / "a", tmp_path / "b"]
    make_run(places)
    (places[0] / "plots").mkdir()
    (places[0] / "plots" / "mine.png").write_text("precious")
    u = oc.Field("u")
    small = oc.Stencil("small", {u: u[0, 0, 0] / 2})
    oc.Simulation(small, SHAPE, directory=places[0], memory="1MiB", force=True)["u"] = 1
    assert sorted(os.listdir(places[0])) == [".u.0", ".u.1", "manifest.json", "plots", "u", "zarr.json"]
    assert not any(places[1].iterdir())


def test_a_name_that_the_user_s_own_folder_has_is_not_taken(tmp_path: Path) -> None:
    """Checks that --force does not overwrite a user's folder that has the name of a field."""
    u, plots = oc.Field("u"), oc.Field("plots")
    where = tmp_path / "run.oc"
    oc.Simulation(oc.Stencil("small", {u: u[0, 0, 0] / 2}), SHAPE, directory=where, memory="1MiB")["u"] = 1
    (where / "plots").mkdir()
    (where / "plots" / "mine.png").write_text("precious")
    before = everything_below(where)
    reads = oc.Stencil("reads", {u: u[0, 0, 0] * plots[0, 0, 0]})
    with pytest.raises(InputError, match=r"holds something else \(plots\)"):
        oc.Simulation(reads, SHAPE, directory=where, memory="1MiB", force=True)
    assert everything_below(where) == before


def test_a_share_that_names_folders_elsewhere_is_no_share(tmp_path: Path) -> None:
    """Checks that `force` deletes only folders inside the directories of the run, even if a file of the run names other
    folders."""
    places = [tmp_path / "a", tmp_path / "b"]
    state = state_of(make_run(places)[0])
    member = places[1] / "outcrop-member.json"
    said = json.loads(member.read_text())
    assert said["folders"] == array_folders(state.manifest)
    member.write_text(json.dumps({**said, "folders": ["../a"]}))
    make_simulation(places[0], force=True)["u"] = 1
    assert (places[1] / ".u.0").exists() and (places[0] / "u").exists()


def test_an_older_run_is_refused_in_one_line(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    make_run(where)
    data = json.loads((where / MANIFEST).read_text())
    (where / MANIFEST).write_text(json.dumps({**data, "format": 1}))
    with pytest.raises(InputError, match="format 1, this version reads format 3; use the version that wrote it"):
        oc.open(where)
