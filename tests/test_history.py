"""Check the history of a run: it has the same states as snapshots, survives kills, and can be freed."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from outcrop.cli.main import call
from outcrop.durable import System
from outcrop.errors import CorruptionError, InputError
from outcrop.run.disk.manifest import Manifest
from outcrop.run.places import open_state

SHAPE, STEPS = (20, 24, 33), 11
SPAWN = get_context("forkserver")
SPAWN.set_forkserver_preload(["outcrop.run.simulation", "test_history"])


def make(path: Path, **options: Any) -> oc.Simulation:
    """Return a run of a wave that needs previous values. No values are assigned yet."""
    stencil = oc.stencils.acoustic(order=4)
    options = {"init": {"u": "gaussian", "v": np.full(SHAPE, 0.4, "float32")}, "memory": "1MiB", **options}
    return oc.Simulation(stencil, SHAPE, "float32", path, **options)


def states(path: Path, every: int = 1, **options: Any) -> Any:
    """Make a run with snapshots, and return the states in the snapshots."""
    sim = make(path, snapshots=oc.Snapshots(every), **options)
    sim.run(STEPS, progress="none")
    return sim.snapshots["u"][:]


@pytest.mark.parametrize("every", ["all", 1, 3, 20])
def test_a_history_has_the_states_of_snapshots(every: int | str, tmp_path: Path) -> None:
    """Checks the steps of the history, and its values in forward and in reverse order. Later calls of `run` must
    continue the history, even after the run has been opened again."""
    expected = states(tmp_path / "with-snapshots", 1 if every == "all" else int(every))
    sim = make(tmp_path / "run.oc", snapshots=oc.Snapshots(4))
    sim.run(2, history=oc.History(every), progress="none")
    sim.run(3, history=every, progress="none")  # this must mean the same as the option in the call above
    sim = oc.open(tmp_path / "run.oc")
    seen: list[str] = []
    sim.run(STEPS - 5, progress="none", on_snapshot=lambda step, kept: seen.extend(kept))
    history = sim.history
    assert list(history) == ["u"] == list(sim.snapshots) and set(seen) == {"u"}
    assert np.array_equal(history["u"][:], expected) and history["u"].shape == expected.shape
    steps = list(range(0, STEPS + 1, history.every))
    assert history.steps.tolist() == steps
    found = [(step, state["u"].copy()) for step, state in history.reversed()]
    assert [step for step, _ in found] == steps[::-1]
    assert all(np.array_equal(values, expected[-1 - number]) for number, (_, values) in enumerate(found))
    with pytest.raises(IndexError, match=f"index 99: .* has {len(steps)} snapshots? of history/u$"):
        history["u"][99]
    step, _ = next(history.reversed())  # a reader may stop early
    assert step == steps[-1]


def test_values_may_be_assigned_before_the_history_begins(tmp_path: Path) -> None:
    """Checks a run whose values are on disk before a call of `run` begins the history, because they were assigned
    earlier. The stencil has several fields, and its arrays have padding."""
    sim = oc.Simulation(oc.stencils.gray_scott(ndim=2), (40, 50), "float64", tmp_path / "run.oc", memory="1MiB")
    values = np.random.default_rng(2).random((40, 50))
    sim["u"], sim["v"] = values, values / 2
    sim.run(4, history=oc.History(2), progress="none")
    for name in ("u", "v"):
        assert np.array_equal(sim.history[name][-1], sim[name][:]) and len(sim.history[name]) == 3
    (first, _), *_, (last, state) = sim.history.reversed()
    assert (first, last) == (4, 0) and np.array_equal(state["v"], values / 2)


def test_xarray_and_commands_show_the_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that xarray and `outcrop info` show the history, and that `outcrop verify` and a later read find a damaged
    file of the history."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    sim = make(tmp_path / "run.oc")
    sim.run(STEPS, history=oc.History(2), progress="none")
    shown = xarray.open_zarr(tmp_path / "run.oc" / "snapshots.zarr", group="history")
    assert np.array_equal(shown["u"], sim.history["u"][:]) and shown["step"].values.tolist() == [0, 2, 4, 6, 8, 10]
    assert call(["info", str(tmp_path / "run.oc")]) == 0
    assert "the history of u, 33 x 24 x 20 cells every 2 steps, 6 so far" in capsys.readouterr().out
    assert call(["verify", str(tmp_path / "run.oc")]) == 0
    file = tmp_path / "run.oc" / "snapshots.zarr" / "history" / "u" / "c" / "4" / "0" / "0" / "0"
    data = file.read_bytes()
    file.write_bytes(data[:99] + bytes([data[99] ^ 1]) + data[100:])
    assert call(["verify", str(tmp_path / "run.oc")]) == 2
    reading = sim.history.reversed()
    assert next(reading)[0] == 10
    with pytest.raises(CorruptionError, match="c/4/0/0/0 is damaged: checksum mismatch"):
        next(reading)


@pytest.mark.parametrize("snapshots", [None, oc.Snapshots(2)])
def test_a_freed_history_leaves_nothing(snapshots: oc.Snapshots | None, tmp_path: Path) -> None:
    """Checks that `free()` deletes the files of the history and no other files. The history can then no longer be read.
    If a process was killed in `free()`, the next call of `run` deletes the remaining files of the history."""
    sim = make(tmp_path / "run.oc", snapshots=snapshots)
    before = make(tmp_path / "other.oc", snapshots=snapshots)
    for one, kept in ((sim, oc.History("all")), (before, None)):
        one.run(6, history=kept, progress="none")
    history = sim.history
    history.free()
    history.free()
    names = [sorted(path.relative_to(run.directory) for run in [one] for path in run.directory.rglob("*"))
             for one in (sim, before)]  # fmt: skip
    assert names[0] == names[1]
    for use in (lambda: next(history.reversed()), lambda: history["u"], lambda: sim.history):
        with pytest.raises(InputError, match=r"was freed|keeps no history"):
            use()
    (tmp_path / "run.oc" / "snapshots.zarr" / "history" / "u" / "c" / "0").mkdir(parents=True)  # left by a kill
    sim.run(STEPS - 6, progress="none")
    assert not (tmp_path / "run.oc" / "snapshots.zarr" / "history").exists()
    assert call(["verify", str(tmp_path / "run.oc")]) == 0


def test_a_kill_in_free_leaves_nothing_that_the_next_command_does_not_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks kills before each change of `free()`. Then `verify --repair` deletes the rest of the history."""
    one, before = tmp_path / "run.oc", tmp_path / "other.oc"
    make(before).run(STEPS, progress="none")
    for last in range(100):
        sim = make(one)
        sim.run(STEPS, history=oc.History(2), progress="none")
        calls = iter(range(last))

        def step(original: Any, *given: Any, calls: Iterator[int] = calls, **named: Any) -> Any:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return original(*given, **named)

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            for name in ("unlink", "rmdir"):
                patch.setattr(System, name, staticmethod(partial(step, getattr(os, name))))
            sim.history.free()
        is_done = next(calls, None) is not None
        if open_state(one).manifest.taps.history is None:
            call(["verify", "--repair", str(one), "--quiet"])
            names = [{str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()} for run in (one, before)]
            assert names[0] == names[1], last
        shutil.rmtree(one)
        if is_done:
            break
    assert last > 5


def test_verify_finds_states_that_a_kill_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks a kill in `free()` after the commit of the manifest without the history. `verify` must find the files of
    the history that remain. If the run is complete, no later call of `run` deletes these files."""
    sim = make(tmp_path / "run.oc")
    sim.run(STEPS, history=oc.History("all"), progress="none")

    def killed(directory: object, manifest: Manifest) -> None:
        if manifest.taps.history is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("outcrop.run.disk.storage.remove_freed_history", killed)
        sim.history.free()
    kept = tmp_path / "run.oc" / "snapshots.zarr" / "history"
    assert kept.exists() and call(["verify", str(tmp_path / "run.oc")]) == 2
    assert f"{kept} holds states that were freed\n" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"keeps no history; .*"):
        _ = sim.history
    assert call(["verify", "--repair", str(tmp_path / "run.oc")]) == 0
    assert not kept.exists() and call(["verify", str(tmp_path / "run.oc")]) == 0


def run_with_history(path: Path) -> None:
    """Make a run with a history. A child process calls this function, and the parent kills the child."""
    make(path, sizes={"bt": 2}).run(200, history=oc.History(10, recompute=True), progress="none")


def test_a_killed_run_continues_its_history(tmp_path: Path) -> None:
    """Checks that a run continues after a kill at a random moment. Its history, with previous values, must have the
    same bits as the history of a run without kills."""
    whole, chance = make(tmp_path / "whole.oc"), random.Random(5)
    whole.run(200, history=oc.History(10, recompute=True), progress="none")
    for kill in range(int(os.environ.get("OUTCROP_KILLS", "2"))):
        path = tmp_path / f"killed-{kill}.oc"
        child = SPAWN.Process(target=run_with_history, args=(path,))
        child.start()
        while child.is_alive() and not (path / "snapshots.zarr" / "history" / "u" / "c" / "3").exists():
            time.sleep(0.002)
        time.sleep(chance.random() * 0.3)
        child.kill()
        child.join()
        sim = oc.open(path)
        if sim.remaining_steps:
            sim.run(progress="none")
        assert list(sim.history) == ["u", "u.previous"]
        for (step, state), (other, expected) in zip(sim.history.reversed(), whole.history.reversed(), strict=True):
            assert step == other
            for name, values in state.items():
                assert np.array_equal(values, expected[name]) and np.array_equal(values, sim.history[name][step // 10])


BAD: list[tuple[Any, str]] = [
    (1.5, r"history 1\.5 is not an oc\.History"),
    ("some", "must be 'all', 'auto' or a number"),
    (True, "every True must be a whole number"),
    (oc.History("some"), "must be 'all', 'auto' or a number"),
    (oc.History(0), "every"),
    (oc.History(1.5), "every"),  # type: ignore[arg-type]
    (oc.History("all", limit="many"), "limit"),
    (oc.History("all", limit="640KiB"), r"12 states of .* but the limit is 640 KiB; every=2 fits"),
    (oc.History("all", limit=100), "not even one state fits"),
]


@pytest.mark.parametrize(("history", "text"), BAD)
def test_a_wrong_history_is_refused_before_anything_is_made(history: Any, text: str, tmp_path: Path) -> None:
    """Checks the error for a wrong history. A history with an interval that the error suggests must be accepted."""
    sim = make(tmp_path / "run.oc")
    with pytest.raises(InputError, match=text) as raised:
        sim.run(STEPS, history=history, progress="none")
    assert "\n" not in str(raised.value) and os.listdir(tmp_path) == []
    if "every=2" in text:
        sim.run(STEPS, history=oc.History(2, limit="640KiB"), progress="none")
    else:
        sim.run(1, progress="none")
        with pytest.raises(InputError, match="keeps no history"):
            _ = sim.history


@pytest.mark.parametrize("limit", ["1KiB", "150KiB"])
def test_a_limit_for_two_states_is_enough_for_recomputation(limit: str, tmp_path: Path) -> None:
    """Checks that the message gives the smallest limit for two states, in KiB."""
    sim = make(tmp_path / "run.oc")
    with pytest.raises(InputError, match=r"but the limit is 1.*; limit='\d+KiB' is enough for two states") as raised:
        sim.run(STEPS, history=oc.History(2, limit, recompute=True), progress="none")
    enough = int(re.findall(r"limit='(\d+)KiB'", str(raised.value))[0])
    with pytest.raises(InputError, match=f"limit='{enough}KiB' is enough"):
        sim.run(STEPS, history=oc.History(2, f"{enough - 1}KiB", recompute=True), progress="none")
    sim.run(STEPS, history=oc.History(2, f"{enough}KiB", recompute=True), progress="none")
    assert len(sim.history.steps) == 2 and sim.history.repeated_steps > 0


def test_a_full_disk_names_a_smaller_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sim = make(tmp_path / "run.oc")
    for free, message in ((450 << 10, "limit='450KiB' fits$"), (240 << 10, "not even two states fit$")):
        monkeypatch.setattr("outcrop.run.acquisition.history.free_bytes", lambda *_: free)  # noqa: B023
        with pytest.raises(InputError, match=f"KiB are free in .*; {message}"):
            sim.run(STEPS, history=oc.History(2, "700KiB", recompute=True), progress="none")
    monkeypatch.undo()


def test_a_history_begins_with_the_run_and_stays_as_it_is(tmp_path: Path) -> None:
    """Checks that a history cannot begin after step 0, that its interval cannot change, and that snapshots cannot have
    the name `history`."""
    sim = make(tmp_path / "run.oc")
    with pytest.raises(InputError, match="keeps no history"):
        _ = sim.history
    sim.run(2, progress="none")
    with pytest.raises(InputError, match="begins with step 0, but this run is at step 2"):
        sim.run(2, history=oc.History("all"), progress="none")
    sim = make(tmp_path / "other.oc")
    sim.run(2, history=oc.History(2), progress="none")
    with pytest.raises(InputError, match="keeps a history with every=2"):
        sim.run(2, history=oc.History("all"), progress="none")
    with pytest.raises(InputError, match="'history' is reserved"):
        make(tmp_path / "third.oc", snapshots=oc.Snapshots(2, name="history"))
    with pytest.raises(InputError, match="on_snapshot would never be called"):
        sim.run(2, on_snapshot=print, progress="none")


def test_a_freed_history_cannot_begin_again_on_the_same_object(tmp_path: Path) -> None:
    sim = oc.Simulation("heat7", (8, 8, 8), directory=tmp_path / "run.oc")
    sim.run(4, progress="none", history=oc.History(2))
    sim.history.free()
    with pytest.raises(InputError, match="a history begins with step 0, but this run is at step 4"):
        sim.run(2, progress="none", history=oc.History(2))
    sim.run(2, progress="none")
    assert oc.open(tmp_path / "run.oc").step == 6
