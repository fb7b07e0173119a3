"""Check adjoint runs that repeat parts of the forward run, because the history does not have room for all states."""

from __future__ import annotations

import contextlib
import math
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from adjoint_cases import STENCILS, all_names, seeds_of
from outcrop.cli.main import call
from outcrop.errors import CorruptionError, InputError, InterruptedRun
from outcrop.plan.history import first_states, repeated_segments
from outcrop.run.disk.state import State
from outcrop.run.places import open_state
from recomputed import STEPS, as_arrays, run_forward

SHAPE, LAST = (14, 12, 13), 23
STATE_BYTES = 2 * (4 * math.prod(SHAPE) + 16 * SHAPE[0] + 4)
"""The bytes of the files of one state: u and its previous values, each with the index of its planes."""

WRT = ["v", "dt", "u", "source"]
RESIDUALS = {"line": np.random.default_rng(1).standard_normal((LAST, 3))}


def make(path: Path, history: oc.History, steps: int = LAST, **options: Any) -> oc.Simulation:
    """Return a wave with sources and receivers after `steps` steps."""
    rng = np.random.default_rng(2)
    points = rng.uniform(4.0, 8.0, (3, 3))
    options = {"sizes": {"bt": 2}, **options}
    sim = oc.Simulation(
        oc.stencils.acoustic(order=4), SHAPE, "float32", path, memory="64MiB", threads=1,
        sources=[oc.Source("u", points, rng.standard_normal((LAST, 3)), scale=0.1)],
        receivers=[oc.Receivers("line", "u", points + 1)], **options,
    )  # fmt: skip
    sim["u"], sim["v"] = "gaussian", rng.uniform(0.2, 0.3, SHAPE).astype("f4")
    sim.run(steps, progress="none", history=history)
    return sim


def limited(every: int, states: int) -> oc.History:
    return oc.History(every, limit=states * STATE_BYTES + 7, recompute=True)


def results(run: Any) -> dict[str, Any]:
    found = run.gradients
    return {**as_arrays({one: found[one] for one in WRT[:3]}), "source": found["source"][0]}


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The correct gradients, from a run that keeps all states."""
    sim = make(tmp_path_factory.mktemp("right") / "run.oc", oc.History("all"))
    run = sim.adjoint(RESIDUALS, WRT)
    run.run(progress="none")
    assert all(np.abs(one).max() > 0 for one in results(run).values())
    return results(run)


def compare(run: Any, right: dict[str, Any]) -> None:
    for name, found in results(run).items():
        assert np.array_equal(found, right[name]), name


def history_bytes(folder: Path) -> int:
    """Return the bytes of all states below a folder."""
    return sum(one.stat().st_size for one in folder.glob("*/snapshots.zarr/history/u*/c/*/*/*/*"))


@pytest.mark.parametrize(("every", "states"), [(2, 2), (2, 3), (2, 5), (3, 3), (4, 2), (4, 5), (5, 4), (11, 2)])
def test_a_limit_does_not_change_a_gradient(
    every: int, states: int, right: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Checks that a limit of states does not change the gradients, and that the number of repeated steps is right.
    After each commit of each run, the stored states must keep the limit. At the end, only state 0 may remain."""
    commit, largest = State.commit, [0]

    def checked(self: State, *arguments: Any, **options: Any) -> None:
        commit(self, *arguments, **options)
        largest[0] = max(largest[0], history_bytes(tmp_path))

    monkeypatch.setattr(State, "commit", checked)
    sim = make(tmp_path / "run.oc", limited(every, states))
    segments = -(-LAST // every)
    first = first_states(segments, states)
    assert sim.history.steps.tolist() == [one * every for one in first]
    repeated = every * repeated_segments(first, segments, states)
    assert sim.history.repeated_steps == repeated
    run = sim.adjoint(RESIDUALS, WRT)
    report = run.run(progress="none")
    compare(run, right)
    assert (report.steps, report.steps_repeated) == (LAST, repeated) and largest[0] <= states * STATE_BYTES
    assert (report.predicted.seconds_repeated > 0) == (repeated > 0)
    assert call(["info", str(tmp_path / "run.oc")]) == 0
    assert f"every {every} steps, 1 of {LAST // every + 1} on the disk" in capsys.readouterr().out
    assert (report.bytes_read, report.bytes_written) == (report.predicted.bytes_read, report.predicted.bytes_written)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run-adjoint.oc", "run.oc"]
    assert sim.history.steps.tolist() == [0] and history_bytes(tmp_path) == STATE_BYTES
    with pytest.raises(IndexError, match=r"index 3: .* has 1 state of u .* an adjoint run has freed the other"):
        sim.history["u"][3]
    assert call(["verify", str(tmp_path / "run.oc")]) == 0


OTHERS = [
    ("gray_scott", "fixed"), ("maxwell", "periodic"), ("acoustic4_2d_sponge", "fixed"), ("signals", "fixed"),
    ("twice", "periodic"), ("older", "fixed"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), OTHERS)
def test_other_equations_give_the_same_bits(name: str, text: str, tmp_path: Path) -> None:
    """Checks that a history that may keep only two states gives the same gradients as a history without this limit. The
    equations have several fields, several stages, previous values and signals.
    """
    stencil, found = STENCILS[name], []
    seeds = seeds_of(stencil, text)
    for folder, limit in (("all", None), ("few", 2)):
        place = tmp_path / folder
        place.mkdir()
        sim = run_forward(stencil, place, text, oc.History(2, recompute=True))
        if limit:
            each = sum(one.stat().st_size for one in place.glob("run.oc/snapshots.zarr/history/*/c/0/**/*")
                       if one.is_file())  # fmt: skip
            sim = run_forward(stencil, place, text, oc.History(2, limit=limit * each, recompute=True), force=True)
            assert sim.history.steps.tolist() == [0, 6]
        run = sim.adjoint({key: one.reshape(sim.shape) for key, one in seeds.items()}, [*all_names(stencil), *seeds])
        assert run.run(progress="none").steps_repeated == (0 if limit is None else 4 + 2)
        found.append(as_arrays(run.gradients))
    assert STEPS == 7
    for key, one in found[0].items():
        assert np.array_equal(one, found[1][key]), key


class Killed(BaseException):
    """Ends a run before it commits."""


@pytest.mark.parametrize("seed", range(2))
def test_a_stop_before_any_commit_does_not_change_a_gradient(
    seed: int, right: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stops the adjoint run repeatedly, and continues it each time. Each stop comes before a random commit of one of
    the three runs. The adjoint run must never lose a committed step."""
    sim, rng, store = make(tmp_path / "run.oc", limited(3, 3)), np.random.default_rng(seed), State._store
    run = sim.adjoint(RESIDUALS, WRT)
    place, left = run.simulation.directory, [0]

    def stopping(self: State, manifest: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        store(self, manifest)

    reached = 0
    for attempt in count():
        left[0] = int(rng.integers(0, 9)) if attempt < 30 else 10**9
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            patch.setattr(State, "_store", stopping)
            if oc.open(place).remaining_steps:
                oc.open(place).run(progress="none")
            break
        assert oc.open(place).step >= reached and history_bytes(tmp_path) <= 3 * STATE_BYTES
        reached = oc.open(place).step
    assert attempt > 3
    compare(sim.adjoint(RESIDUALS, WRT, resume=True), right)


def test_commands_continue_an_adjoint_run(
    right: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks `outcrop info` and `outcrop resume` in the middle of a schedule. `verify` must accept the forward run, the
    replay and the adjoint run."""
    sim = make(tmp_path / "run.oc", limited(3, 3))
    assert call(["info", str(tmp_path / "run.oc")]) == 0
    repeated = sim.history.repeated_steps
    assert f"3 states at once; an adjoint run repeats {repeated} steps of this run" in capsys.readouterr().out
    run = sim.adjoint(RESIDUALS, WRT)
    run.simulation.run(LAST - 12, progress="none")
    (replay,) = tmp_path.glob("run-replay-*.oc")
    for place in (tmp_path / "run.oc", replay, run.simulation.directory):
        assert call(["verify", str(place)]) == 0 and call(["info", str(place)]) == 0
    assert call(["resume", str(run.simulation.directory)]) == 0
    assert "steps of the forward run were repeated in" in capsys.readouterr().out
    compare(sim.adjoint(RESIDUALS, WRT, resume=True), right)


def test_another_adjoint_run_begins_with_state_0(right: dict[str, Any], tmp_path: Path) -> None:
    """Checks further adjoint runs that begin after a first adjoint run has freed states. One of the further runs has a
    damaged replay. At the end, the first adjoint run is continued."""
    sim = make(tmp_path / "run.oc", limited(3, 4))
    first = sim.adjoint(RESIDUALS, WRT)
    first.simulation.run(LAST - 9, progress="none")
    second = sim.adjoint(RESIDUALS, WRT, tmp_path / "second.oc")
    repeated = sim.history.repeated_steps
    assert 0 < second.run(progress="none").steps_repeated <= repeated  # the first sweep may continue a replay
    compare(second, right)
    third = sim.adjoint(RESIDUALS, WRT, tmp_path / "third.oc")
    third.simulation.run(2, progress="none")
    (replay,) = tmp_path.glob("run-replay-*.oc")
    third = sim.adjoint(RESIDUALS, WRT, tmp_path / "third.oc", resume=True)
    whole = (replay / "manifest.json").read_bytes()
    (replay / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"is damaged .*; delete .*run-replay") as raised:
        third.run(progress="none")
    assert "\n" not in str(raised.value)
    (replay / "manifest.json").write_bytes(whole)
    next(one for one in replay.glob(".u.0/c/**/*") if one.is_file()).unlink()
    third.run(progress="none")
    compare(third, right)
    first = sim.adjoint(RESIDUALS, WRT, resume=True)
    first.run(progress="none")
    compare(first, right)


def test_a_run_may_go_on_beyond_its_states(right: dict[str, Any], tmp_path: Path) -> None:
    """Checks a history with a limit of states. The first call of `run` chooses the states that are kept. Later calls
    keep no further states."""
    sim = make(tmp_path / "run.oc", limited(4, 2), 9)
    assert sim.history.steps.tolist() == [0, 8]
    sim.run(LAST - 9, progress="none", history=limited(4, 2))
    assert sim.history.steps.tolist() == [0, 8]
    repeated, run = sim.history.repeated_steps, sim.adjoint(RESIDUALS, WRT)
    assert run.run(progress="none").steps_repeated == repeated
    compare(run, right)


def test_damage_of_a_kept_state_is_found(tmp_path: Path) -> None:
    """Checks that neither adjoint passes nor repeated forward steps use damaged states."""
    sim = make(tmp_path / "run.oc", limited(2, 2))
    run = sim.adjoint(RESIDUALS, WRT)
    run.simulation.run(1, progress="none")
    file = next((tmp_path / "run.oc").glob("snapshots.zarr/history/u/c/0/*/*/*"))
    whole = file.read_bytes()
    file.write_bytes(whole[:99] + bytes([whole[99] ^ 1]) + whole[100:])
    with pytest.raises(CorruptionError, match="c/0/0/0/0 is damaged: checksum mismatch"):
        run.run(progress="none")
    file.write_bytes(whole)
    run.run(progress="none")
    sim.history.free()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run-adjoint.oc", "run.oc"]


def test_an_interruption_between_passes_names_the_adjoint_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the error after Ctrl-C between two passes, while states are freed."""
    run = make(tmp_path / "run.oc", limited(4, 2)).adjoint(RESIDUALS, WRT)

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("outcrop.run.replay.keep_only", interrupted)
    with pytest.raises(InterruptedRun, match=r"stopped; go on with: outcrop resume .*run-adjoint\.oc"):
        run.run(progress="none")


def test_a_manifest_without_state_0_is_refused(tmp_path: Path) -> None:
    """Checks the error if another program has removed state 0 from the manifest of the forward run."""
    sim = make(tmp_path / "run.oc", limited(2, 2))
    run = sim.adjoint(RESIDUALS, WRT)
    state = open_state(tmp_path / "run.oc")
    taps = state.manifest.taps
    with state.locked():
        state.change(taps=replace(taps, snapshots=(replace(taps.snapshots[0], kept=(11,)),)))
    assert sim.history.repeated_steps == 0
    with pytest.raises(InputError, match="has no state 0; run it again with force") as raised:
        run.run(progress="none")
    assert "\n" not in str(raised.value)


def test_freeing_a_history_deletes_the_replay(tmp_path: Path) -> None:
    sim = make(tmp_path / "run.oc", limited(2, 2))
    run = sim.adjoint(RESIDUALS, WRT)
    run.simulation.run(3, progress="none")
    assert list(tmp_path.glob("run-replay-*.oc"))
    sim.history.free()
    assert not list(tmp_path.glob("run-replay-*.oc")) and not history_bytes(tmp_path)
    with pytest.raises(InputError, match=r"the history of .* was freed") as raised:
        run.run(progress="none")
    assert "\n" not in str(raised.value)


def test_a_replay_without_values_is_made_again(
    right: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that an adjoint run can continue after a kill. The kill comes after the creation of the replay, and before
    its first commit.
    """
    sim = make(tmp_path / "run.oc", limited(3, 3))
    run, commit = sim.adjoint(RESIDUALS, WRT), State.commit

    def killed(self: State, *arguments: Any, **options: Any) -> None:
        # the files are copied, because an exception removes them, but a kill leaves them
        if "-replay-" in self.path.name:
            shutil.copytree(self.path, tmp_path / "copy" / self.path.name, symlinks=True)
            raise Killed
        commit(self, *arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(State, "commit", killed)
        run.run(progress="none")
    (copy,) = (tmp_path / "copy").iterdir()
    copy.rename(tmp_path / copy.name)
    run = sim.adjoint(RESIDUALS, WRT, resume=True)
    run.run(progress="none")
    compare(run, right)


def test_a_run_without_ranges_of_its_fields_goes_on(
    right: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks a kill between two commits. The first commit has the first values of the adjoint run. The second commit
    has the minimum and the maximum of its static fields. The next process must compute the minimum and the maximum
    again."""
    sim, change = make(tmp_path / "run.oc", limited(3, 3)), State.change

    def killed(self: State, **values: Any) -> None:
        if "ranges" in values:
            raise Killed
        change(self, **values)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(State, "change", killed)
        sim.adjoint(RESIDUALS, WRT)
    run = sim.adjoint(RESIDUALS, WRT, resume=True)
    run.run(progress="none")
    compare(run, right)


def test_a_replay_without_a_manifest_is_deleted(tmp_path: Path) -> None:
    """Checks that a replay without a manifest is deleted. A kill before the first manifest gets its final name leaves
    such a replay.
    """
    sim = make(tmp_path / "run.oc", limited(3, 3))
    run = sim.adjoint(RESIDUALS, WRT)
    run.simulation.run(LAST - 12, progress="none")
    (replay,) = tmp_path.glob("run-replay-*.oc")
    shutil.rmtree(replay)
    replay.mkdir()
    (replay / "manifest.json.tmp").write_text("{")
    sim.history.free()
    assert not replay.exists()


def test_a_limit_without_room_for_two_states_is_refused(tmp_path: Path) -> None:
    for limit in (STATE_BYTES, 100):
        with pytest.raises(InputError, match="is enough for two states"):
            make(tmp_path / f"{limit}.oc", oc.History(2, limit=limit, recompute=True))
    with pytest.raises(InputError, match="no room for the history"):  # these states cannot be computed again
        make(tmp_path / "run.oc", oc.History(2, limit=2 * STATE_BYTES))
