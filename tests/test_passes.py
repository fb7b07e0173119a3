"""Check how a run stops. After a stop, the run must keep its committed steps, and must not continue in the
background."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import outcrop as oc
from outcrop.errors import CorruptionError, InterruptedRun, StorageError
from outcrop.run.acquisition.pass_acquisition import NO_ACQUISITION, Acquisition, AcquisitionResults
from outcrop.run.acquisition.recorder import Recorder
from outcrop.run.disk.state import State
from outcrop.run.engine import NO_SEEDS, Seeds
from outcrop.run.passes import PassRunner
from outcrop.run.places import open_state
from outcrop.run.progress import Progress, Standing, make_progress, part_of_stage, stage

PLAN: Any = SimpleNamespace(problem=SimpleNamespace(steps_of=int, statics=0), passes=[SimpleNamespace(levels=5)] * 3)
WAIT_SECONDS = 20.0  # much longer than any test of this file


class FakeEngine:
    """A substitute for the engine. A pass of this engine ends when the test ends it, or when the pass is cancelled."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.cancelled = threading.Event(), threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.passes = 0

    def not_finite(self) -> list[int]:
        return []

    def run_pass(
        self,
        index: int,
        source: int,
        first_step: int = 0,
        acquisition: Acquisition = NO_ACQUISITION,
        seeds: Seeds = NO_SEEDS,
        before_write: Callable[[], None] | None = None,
    ) -> AcquisitionResults:
        self.passes += 1
        self.begun.set()
        if self.error is not None and index == 1:
            raise self.error
        for _ in range(int(WAIT_SECONDS / 0.005)):
            if self.cancelled.is_set():
                raise InterruptedRun("the run was cancelled")
            if self.may_end.wait(0.005):
                return AcquisitionResults((), ())
        raise AssertionError("nobody ended this pass")

    def cancel(self) -> None:
        self.cancelled.set()

    def sample(self) -> SimpleNamespace:
        return SimpleNamespace(cells_updated=0, bytes_read=0, bytes_written=0)


def make_runner(folder: Path, in_place: bool = False) -> tuple[PassRunner, FakeEngine, State]:
    """Return a runner with a real state and a fake engine."""
    sim = oc.Simulation("heat7", (8, 8, 8), directory=folder / "run.oc", memory="1MiB", in_place=in_place)
    sim["u"] = "zeros"
    state = open_state(folder / "run.oc")
    state.change(target_step=15)
    engine = FakeEngine()
    recorder = Recorder(state, ["u"])
    return PassRunner(engine, state, PLAN, recorder), engine, state  # type: ignore[arg-type]


def interrupt_when(event: threading.Event) -> None:
    """Send Ctrl-C as soon as `event` is set."""

    def press() -> None:
        event.wait(WAIT_SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()


class Said(StringIO):
    """A stream that records the text for the terminal. The stream sets the event `answered` after the message about the
    first Ctrl-C."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.answered = threading.Event()
        monkeypatch.setattr(sys, "stderr", self)

    def write(self, text: str) -> int:
        if "finishing this pass" in text:
            self.answered.set()
        return super().write(text)


def quiet() -> Progress:
    """Return a display that shows nothing."""
    return make_progress("none", 3, 0, 15, 1)


def test_ctrl_c_cancels_and_keeps_the_last_commit(tmp_path: Path) -> None:
    """Checks that Ctrl-C cancels the current pass, ends the worker, and prints how to continue."""
    runner, engine, state = make_runner(tmp_path)
    handler = signal.getsignal(signal.SIGINT)
    interrupt_when(engine.begun)
    with pytest.raises(InterruptedRun, match="step 0 of 15 is intact; go on with: outcrop resume"):
        runner.run(quiet())
    assert engine.cancelled.is_set()
    assert state.manifest.generation == 0
    assert signal.getsignal(signal.SIGINT) is handler
    assert not [thread for thread in threading.enumerate() if thread.name == "outcrop-passes"]


def test_ctrl_c_in_place_lets_the_pass_end_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks Ctrl-C during a run in place. The first Ctrl-C only prevents the next pass, and a message says so. The
    current pass is completed, because a cancelled pass destroys the run.
    """
    runner, engine, state = make_runner(tmp_path, in_place=True)
    said = Said(monkeypatch)

    def press_then_end() -> None:
        engine.begun.wait(WAIT_SECONDS)
        os.kill(os.getpid(), signal.SIGINT)
        said.answered.wait(WAIT_SECONDS)
        engine.may_end.set()

    threading.Thread(target=press_then_end, daemon=True).start()
    with pytest.raises(InterruptedRun, match="step 5 of 15 is intact"):
        runner.run(quiet())
    assert (engine.passes, engine.cancelled.is_set()) == (1, False)
    assert "Ctrl-C again stops at once" in said.getvalue()
    assert open_state(state.path).manifest.step == 5


def test_ctrl_c_twice_in_place_gives_the_run_up_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a second Ctrl-C stops a run in place immediately. The message says that the state of the run is
    lost."""
    runner, engine, _ = make_runner(tmp_path, in_place=True)
    said = Said(monkeypatch)

    def press_twice() -> None:
        engine.begun.wait(WAIT_SECONDS)
        os.kill(os.getpid(), signal.SIGINT)
        said.answered.wait(WAIT_SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_twice, daemon=True).start()
    with pytest.raises(InterruptedRun, match="lost"):
        runner.run(quiet())
    assert (engine.passes, engine.cancelled.is_set()) == (1, True)
    assert said.answered.is_set()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (StorageError, "step 5 of 15 is intact; go on with: outcrop resume"),
        (CorruptionError, "step 5 of 15 is the last committed step; test it with: outcrop verify"),
    ],
)
def test_a_failing_device_says_what_is_committed(kind: type[StorageError], text: str, tmp_path: Path) -> None:
    """Checks that an error of a pass keeps its type and text. The last committed step is added to the text. If the
    error is damage, the text does not say that the step is intact."""
    runner, engine, _ = make_runner(tmp_path)
    engine.error = kind("plane 3 is gone")
    engine.may_end.set()
    with pytest.raises(kind, match=f"plane 3 is gone; {text}"):
        runner.run(quiet())


def test_a_display_that_fails_stops_the_run(tmp_path: Path) -> None:
    """Checks that an exception from the display stops the worker."""
    runner, engine, _ = make_runner(tmp_path)

    class Broken(Progress):
        def show(self, standing: Standing) -> None:
            raise OSError("the terminal is gone")

    with pytest.raises(OSError, match="terminal"):
        runner.run(Broken(3, 0, 15, 1))
    assert engine.cancelled.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "outcrop-passes"]


def test_lines_and_bar_show_where_the_run_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the display shows the pass, the step, the remaining time, cell updates per second, reads and writes.
    """
    monkeypatch.setattr("outcrop.run.progress.LINE_SECONDS", 0.0)
    standing = Standing(passes_done=1, steps_done=5, cells_updated=600, bytes_read=7_000_000, bytes_written=5_000_000)
    with make_progress("lines", 3, 10, 25, 1000) as progress:
        progress.show(standing)
        progress.show(replace(standing, passes_done=3))
    lines = capsys.readouterr().err.splitlines()
    for word in ("60.0%", "pass 2/3", "step 15/25", "left", "cell/s", "read", "write"):
        assert word in lines[0]
    assert "pass 3/3" in lines[1]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    with make_progress("auto", 3, 10, 25, 1000) as progress:
        progress.show(standing)
    assert "pass 2/3" in capsys.readouterr().err, "a line where no bar can be drawn"
    monkeypatch.setenv("TERM", "xterm")
    with make_progress("auto", 3, 10, 25, 1000) as progress:
        progress.show(standing)
    shown = capsys.readouterr().err
    for word in ("60%", "pass 2/3", "step 15/25", "cell/s", "read", "write"):
        assert word in shown
    with make_progress("none", 3, 10, 25, 1000) as progress:
        progress.show(standing)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("seconds", [0.0, 1e6])
def test_a_log_has_a_line_for_long_work_before_the_run(
    seconds: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the log has one line for each part that takes long, and no line for short parts."""
    monkeypatch.setattr("outcrop.run.progress.STAGE_SECONDS", seconds)

    def work() -> None:
        for thread in threading.enumerate():
            if thread.name == "outcrop-stage" and not seconds:
                thread.join()

    with stage("preparing", "lines"):
        work()
        with part_of_stage("measuring the disk"):
            work()
    with stage("writing", "none"), part_of_stage("a part without a display"):
        work()
    with part_of_stage("a part without a stage"):
        work()
    assert capsys.readouterr().err.splitlines() == ([] if seconds else ["preparing ...", "measuring the disk ..."])
    for thread in threading.enumerate():
        if thread.name == "outcrop-stage":
            thread.join()  # a cancelled timer ends


def test_a_terminal_shows_one_text_at_a_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with stage("preparing", "auto"), part_of_stage("measuring the disk"):
        pass
    shown = capsys.readouterr().err
    assert [one for one in shown.split("\r\x1b[K") if one] == [
        "preparing ...", "measuring the disk ...", "preparing ..."
    ]  # fmt: skip
    assert shown.endswith("\r\x1b[K")


def test_updates_that_are_computed_twice_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the rate and the progress of a run whose blocks overlap. `cells_updated` counts all computed updates. The
    rate and the progress count each cell once for each step, also in the sum of two reports."""
    ends = list[tuple[int, float]]()

    class Ends(Progress):
        """Stores the final count and the final share."""

        def finish(self, standing: Standing) -> None:
            ends.append((standing.cells_updated, self._fraction(standing) * self._cells_in_all))

    monkeypatch.setattr("outcrop.run.passes.make_progress", lambda kind, *run: Ends(*run))
    sim = oc.Simulation("heat7", (40, 64, 64), directory=tmp_path / "run.oc", memory="600KiB", scheme="overlapped")
    sim["u"] = "gaussian"
    report = sim.run(24)
    cells = 38 * 62 * 64 * 24
    assert report.cells_updated > 1.5 * cells
    assert ends == [(cells, pytest.approx(cells))]
    assert report.cell_updates_per_second * report.seconds == pytest.approx(cells)
    both = report.followed_by(report)
    assert both.cells_updated == 2 * report.cells_updated
    assert both.cell_updates_per_second == pytest.approx(report.cell_updates_per_second)
