"""Checks `force=True`: a new run replaces an old run only after the new run has got its values."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from outcrop.cli.main import call
from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError

SHAPE = (12, 8, 8)
TWO: dict[str, Any] = {"memory": "1MiB", "threads": 1}


def make_old(*places: Path, steps: int = 3) -> np.ndarray[Any, Any]:
    """Make a run in these directories, and return its last values."""
    oc.Simulation("heat2", SHAPE, directory=list(places), init="random:1", **TWO).run(steps, "none")
    values: np.ndarray[Any, Any] = oc.open(places[0])["u"][:]
    return values


def from_zarr(place: Path) -> object:
    return pytest.importorskip("zarr").open_array(place / "u", mode="r")


def from_xarray(place: Path) -> object:
    return pytest.importorskip("xarray").open_dataset(place, engine="outcrop")["u"]


def from_netcdf(place: Path) -> object:
    for name in ("h5py", "xarray", "h5netcdf"):
        pytest.importorskip(name)
    view = place.with_name("view.nc")  # HDF5 that refers to the files of the run
    assert call(["export", str(place), "--hdf5", str(view)]) == 0
    return str(view)


SOURCES: dict[str, Callable[[Path], object]] = {
    "view": lambda place: oc.open(place)["u"],
    "text": lambda place: f"{place}/u",
    "resampled": lambda place: oc.resample(f"{place}/u", SHAPE),
    "zarr": from_zarr,
    "xarray": from_xarray,
    "netcdf": from_netcdf,
    "function": lambda place: lambda z0, z1: oc.open(place)["u"][z0:z1],
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_run_starts_from_the_run_that_it_replaces(tmp_path: Path, name: str) -> None:
    place = tmp_path / "run.oc"
    values = make_old(place)
    source = SOURCES[name](place)
    sim = oc.Simulation("heat2", SHAPE, directory=place, force=True, **TWO)
    sim["u"] = source
    assert sim.step == 0 and np.array_equal(sim["u"][:], values)
    sim.run(2, "none")
    sim = oc.open(place)
    assert sim.step == 2 and sorted(one.name for one in place.iterdir()) == [
        ".u.0", ".u.1", "manifest.json", "u", "zarr.json"
    ]  # fmt: skip
    assert call(["verify", str(place)]) == 0


def test_the_option_init_may_name_the_run_that_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "run.oc"
    words = ["run", "heat2", "-d", str(place), "--memory", "1MiB", "--quiet", "--force"]
    assert call([*words, "-n", "8", "8", "12", "-t", "3", "--init", "random:1"]) == 0
    values = oc.open(place)["u"][:]
    assert call([*words, "-t", "2", "--init", str(place)]) == 0
    other = oc.Simulation("heat2", SHAPE, directory=tmp_path / "other.oc", init={"u": values}, **TWO)
    other.run(2, "none")
    assert oc.open(place).step == 2 and np.array_equal(oc.open(place)["u"][:], other["u"][:])


def test_a_run_in_several_directories_starts_from_the_run_that_it_replaces(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    values = make_old(*places)
    third = [places[0], tmp_path / "c"]
    sim = oc.Simulation("heat2", SHAPE, directory=third, force=True, init=oc.open(places[0])["u"], **TWO)
    sim.fill()
    assert np.array_equal(oc.open(places[0])["u"][:], values)
    assert np.array_equal(from_zarr(places[0])[:], values)  # type: ignore[index]
    assert call(["verify", str(places[0])]) == 0 and not list(places[1].iterdir())
    sim.run(2, "none")
    assert oc.open(places[0]).step == 2


def test_a_source_that_fails_keeps_the_replaced_run_and_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "run.oc"
    values = make_old(place)
    before = sorted(place.rglob("*"))

    def fail_at_the_end(z0: int, z1: int) -> np.ndarray[Any, Any]:
        if z1 == SHAPE[0]:
            raise OSError("the tape is torn")
        return np.ones((z1 - z0, *SHAPE[1:]))

    sim = oc.Simulation("heat2", SHAPE, directory=place, force=True, **TWO)
    with pytest.raises(OSError, match="torn"):
        sim["u"] = fail_at_the_end
    assert sorted(place.rglob("*")) == before and np.array_equal(oc.open(place)["u"][:], values)


def test_too_little_space_for_both_runs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "run.oc"
    values = make_old(place)
    sim = oc.Simulation("heat2", SHAPE, directory=place, force=True, **TWO)
    full = os.statvfs(tmp_path)
    room = type("Room", (), {"f_bavail": 0, "f_frsize": full.f_frsize})
    monkeypatch.setattr(os, "statvfs", lambda path: room)
    with pytest.raises(InputError, match=r"no space for both runs.*remove the old run first.*another directory"):
        sim["u"] = oc.open(place)["u"]
    monkeypatch.undo()
    assert np.array_equal(oc.open(place)["u"][:], values)


def test_a_link_in_place_of_the_new_run_is_not_followed(tmp_path: Path) -> None:
    place, other = tmp_path / "run.oc", tmp_path / "other.oc"
    make_old(place)
    values = make_old(other)
    (place / ".new-run").symlink_to(other)
    sim = oc.Simulation("heat2", SHAPE, directory=place, force=True, **TWO)
    with pytest.raises(InputError, match="move it away"):
        sim["u"] = oc.open(place)["u"]
    sim = oc.Simulation("heat2", SHAPE, directory=place, force=True, init=1, **TWO)
    sim.run(1, "none")
    assert np.array_equal(oc.open(other)["u"][:], values)


def test_a_function_is_called_once_for_each_plane(tmp_path: Path) -> None:
    """Checks that random values are the same with and without an old run."""
    found = []
    for _ in range(2):
        generator = np.random.default_rng(1)
        sim = oc.Simulation("heat2", SHAPE, directory=tmp_path / "run.oc", force=True, **TWO)
        sim["u"] = lambda z0, z1, one=generator: one.random((z1 - z0, *SHAPE[1:]))
        found.append(sim["u"][:])
    assert np.array_equal(*found)


def test_the_old_run_stays_until_all_fields_have_values(tmp_path: Path) -> None:
    place = tmp_path / "run.oc"
    values = make_old(place)
    given: dict[str, Any] = dict(directory=place, force=True, **TWO)
    sim = oc.Simulation("acoustic2", SHAPE, **given)
    sim.assign({"u": np.ones(SHAPE)})
    with pytest.raises(InputError, match="reads v"):
        sim.run(2, "none")
    assert np.array_equal(oc.open(place)["u"][:], values)
    sim = oc.Simulation("acoustic2", SHAPE, **given)  # replaces the folder that the first object has left
    sim["u"] = oc.open(place)["u"]
    sim["v"] = 0.1
    assert np.array_equal(oc.open(place)["u"][:], values) and oc.open(place).stencil.name == sim.stencil.name
    assert np.array_equal(sim["u"][:], values) and not (place / ".new-run").exists()
    sim.run(2, "none")
    assert oc.open(place).step == 2
    oc.Simulation("acoustic2", SHAPE, **given)["u"] = 1
    assert (place / ".new-run").exists()
    oc.Simulation("heat2", SHAPE, init=1, **given).fill()
    assert not (place / ".new-run").exists() and oc.open(place).stencil.name == "heat2"


def test_options_that_come_from_the_old_run_are_read_before_it_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "run.oc"
    given: dict[str, Any] = dict(directory=place, force=True, **TWO)
    oc.Simulation("acoustic2", SHAPE, init={"u": "random:1", "v": 0.1}, **given).run(2, "none")
    values = oc.open(place)["u"][:]
    sim = oc.Simulation("acoustic2", SHAPE, init=str(place), **given)
    sim["v"] = 0.05
    sim.fill()
    assert np.array_equal(oc.open(place)["u"][:], values) and (oc.open(place)["v"][:] == np.float32(0.05)).all()


KILLED = """
import os, sys
import outcrop as oc
sim = oc.Simulation("heat2", (12, 8, 8), directory=sys.argv[1], force=True, memory="1MiB", threads=1)
sim["u"] = lambda z0, z1: os._exit(9)
"""


def test_a_kill_while_values_are_read_keeps_the_replaced_run(tmp_path: Path) -> None:
    place = tmp_path / "run.oc"
    values = make_old(place)
    assert subprocess.run([sys.executable, "-c", KILLED, place]).returncode == 9
    assert (place / ".new-run").exists() and np.array_equal(oc.open(place)["u"][:], values)
    assert call(["verify", str(place)]) == 0
    sim = oc.Simulation("heat2", SHAPE, directory=place, force=True, init=str(place), **TWO)
    sim.run(1, "none")
    assert oc.open(place).step == 1 and not (place / ".new-run").exists()


class Killed(BaseException):
    """Ends a process in a test, in place of a signal."""


def kill_at(operation: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Raise Killed instead of operation number `operation` of those that change directories. Later operations also
    raise Killed. The returned function tells whether such an operation took place."""
    count = 0

    def counted(wanted: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count > operation:
                raise Killed
            return wanted(*arguments, **named)

        return change

    for name in ("replace", "move", "remove", "remove_files", "remove_empty", "put", "link"):
        monkeypatch.setattr(Directory, name, counted(getattr(Directory, name)))
    return lambda: count > operation


@pytest.mark.parametrize("several", [False, True])
def test_a_kill_loses_neither_run_while_one_replaces_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    """Checks kills before operations of the replacement. Afterwards, `oc.open` and `outcrop run` find the old run
    or the new run, with all values and without other files."""
    ends = set()
    for operation in range(0, 1000, 1 + several):
        places = [tmp_path / f"{operation}" / name for name in ("a", "b")[: 1 + several]]
        values = make_old(*places)
        new = oc.Simulation("heat2", SHAPE, directory=places, force=True, norms=oc.Norms(1), **TWO)
        doubled = 2 * oc.open(places[0])["u"][:]

        def twice(z0: int, z1: int, doubled: np.ndarray[Any, Any] = doubled) -> np.ndarray[Any, Any]:
            return doubled[z0:z1]

        with monkeypatch.context() as changed:
            was_killed = kill_at(operation, changed)
            with contextlib.suppress(Killed):
                new["u"] = twice
        if operation % 3 == 1:  # a command that would replace the run finishes the work first
            words = ["run", "heat2", *(word for one in places for word in ("-d", str(one))), "-n", "8", "8", "12"]
            assert call([*words, "--init", "1", "-t", "1"]) == 2
        found = oc.open(places[0])
        ends.add(found.step)
        assert np.array_equal(found["u"][:], values if found.step else doubled)
        assert call(["verify", "--quiet", str(places[0])]) == 0
        if operation % 4 == 0:
            oc.Simulation("heat2", SHAPE, directory=places[0], init=1, force=True, **TWO).run(1, "none")
            names = sorted(one.name for one in places[0].iterdir())
            assert names == [".u.0", ".u.1", "manifest.json", "u", "zarr.json"]
            assert not several or not any(places[1].iterdir())
        if not was_killed():
            break
    assert ends == {0, 3} and operation > 10


def test_a_kill_leaves_no_files_of_the_replaced_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks kills while a run with other files is removed. Both kinds of runs can then be made in this directory."""
    place, more = tmp_path / "run.oc", {"norms": oc.Norms(1), "snapshots": oc.Snapshots(1), **TWO}
    for operation in range(12):
        oc.Simulation("heat2", SHAPE, directory=place, init=1, force=True, **more).run(2, "none")
        with monkeypatch.context() as changed:
            kill_at(operation, changed)
            with pytest.raises(Killed):
                oc.Simulation("heat2", SHAPE, directory=place, init=2, force=True, **TWO).run(1, "none")
        if operation % 2:
            oc.Simulation("heat2", SHAPE, directory=place, init=2, force=True, **TWO).run(1, "none")
            names = sorted(one.name for one in place.iterdir())
            assert names == [".u.0", ".u.1", "manifest.json", "u", "zarr.json"]


def test_another_new_run_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "run.oc"
    values = make_old(place)
    (place / ".new-run").mkdir()
    (place / ".new-run" / "manifest.json").write_text("damaged")
    with pytest.raises(InputError, match=r"\.new-run"):
        oc.Simulation("heat2", SHAPE, directory=place, init=1, force=True, **TWO).run(1, "none")
    assert np.array_equal(oc.open(place)["u"][:], values) and call(["verify", str(place)]) == 0


def test_force_keeps_the_planes_of_a_run_that_was_moved(tmp_path: Path) -> None:
    """Checks two directories of a run whose first directory was moved. When the moved run has continued, no other run
    may take its second directory."""
    places = [tmp_path / "run.oc", tmp_path / "more.oc"]
    make_old(*places)
    places[0].rename(tmp_path / "kept.oc")
    sim = oc.open(tmp_path / "kept.oc")
    sim.run(1, "none")
    with pytest.raises(InputError, match=r"more\.oc belongs to another run, .*kept\.oc"):
        oc.Simulation("heat2", SHAPE, directory=places, init=1, force=True, **TWO).run(1, "none")
    assert np.array_equal(oc.open(tmp_path / "kept.oc")["u"][:], sim["u"][:])
    assert call(["verify", str(tmp_path / "kept.oc")]) == 0


def test_a_failure_while_files_are_renamed_does_not_lose_the_new_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "run.oc"
    values = make_old(place)
    sim = oc.Simulation("heat2", SHAPE, directory=place, force=True, **TWO)

    def fail(*names: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as changed:
        changed.setattr(Directory, "move", fail)
        with pytest.raises(StorageError, match="cannot replace the run"):
            sim["u"] = oc.open(place)["u"]
    assert oc.open(place / ".new-run").step == 0  # all files are still there
    with pytest.raises(InputError, match=r"holds (a|an unfinished) run"):
        oc.Simulation("heat2", SHAPE, directory=place, init=1, **TWO)
    found = oc.open(place)
    assert found.step == 0 and np.array_equal(found["u"][:], values) and not (place / ".new-run").exists()
