"""Check `outcrop watch`: it shows the committed progress of a run, and neither locks nor writes anything."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from folders import everything_below
from images import make_image, simulation
from outcrop.cli import watch as page_module
from outcrop.cli.main import call
from outcrop.cli.picture import Range, Scale
from outcrop.cli.watch import Follower, curve, line, page
from outcrop.durable import SYSTEM
from outcrop.errors import InputError, InterruptedRun
from outcrop.run import engine as engine_module
from outcrop.run.acquisition.views import MAX_BINS, Envelope, NormRows, joined_envelope
from outcrop.run.disk.acquisition_files import NORMS
from outcrop.run.disk.manifest import IN_FLIGHT, Manifest
from outcrop.run.pace import is_alive, process_mark
from outcrop.run.places import open_state
from outcrop.run.ranks.group import RankGroup
from outcrop.run.watch import FINISHED, INTERRUPTED, LOST, NO_VALUES, NOT_STARTED, PREPARING, QUIET, RUNNING, Watcher
from rank_processes import ranks
from strategies import examples

SCREENS = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "screens.py"))
SHAPE = (12, 10, 8)
OTHER_COMPUTER = "another-boot pid:[1] 1 1"


def make_run(where: Path, group: RankGroup | None = None, shape: tuple[int, ...] = SHAPE) -> oc.Simulation:
    """Return a wave with traces, norms and snapshots that has no values yet."""
    rng = np.random.default_rng(1)
    sim = oc.Simulation(
        "acoustic2", shape, directory=where, memory="1MiB", params={"dt": 1e-4, "h": 1.0}, sizes={"bt": 2}, threads=1,
        sources=[oc.Source("u", [5.0, 5.0, 4.0], np.linspace(1, 2, 40))],
        receivers=[oc.Receivers("line", "u", [[6.0, 5.0, 4.0], [5.0, 6.0, 3.0]])],
        snapshots=oc.Snapshots(2), norms=oc.Norms(2), comm=group,
    )  # fmt: skip
    sim.assign({"v": 1000.0, "u": rng.random(shape, dtype=np.float32)})
    return sim


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run that has finished step 8. No test changes this run."""
    where = tmp_path_factory.mktemp("template") / "run.oc"
    make_run(where).run(8, progress="none")
    return where


@pytest.fixture
def where(template: Path, tmp_path: Path) -> Path:
    """Return a copy of a run that has finished step 8."""
    return Path(shutil.copytree(template, tmp_path / "run.oc", symlinks=True))


def change(where: Path, **values: Any) -> Manifest:
    """Change the manifest of a run. `pace` is a dictionary of changes of the pace."""
    state = open_state(where)
    pace = values.pop("pace", {})
    with state.locked(check=False):
        if pace is not None:
            assert state.manifest.pace is not None
            pace = replace(state.manifest.pace, **pace)
        state.change(pace=pace, **values)
    return state.manifest


def test_a_run_commits_what_its_report_says(tmp_path: Path) -> None:
    """Checks that the pace in the manifest has the figures of the report, and the predicted figures of the plan."""
    sim = make_run(tmp_path / "run.oc")
    sim.run(4, progress="none")
    report = sim.run(6, progress="none")
    pace = open_state(tmp_path / "run.oc").manifest.pace
    assert pace is not None and (pace.first_step, pace.last_step, pace.pass_steps) == (4, 10, 2)
    assert (pace.bytes_read, pace.bytes_written) == (report.bytes_read, report.bytes_written)
    assert 0 < pace.seconds <= report.seconds
    assert pace.cells == report.cells_updated / 6
    assert pace.predicted_seconds == pytest.approx(report.predicted.seconds, abs=1e-6)
    assert pace.predicted_bytes_written == report.predicted.bytes_written
    seen = Watcher(tmp_path / "run.oc").look().pace
    assert seen is not None and (seen.steps, seen.steps_done) == (6, 6)
    assert seen.updates == pytest.approx(pace.cells * 6 / pace.seconds)
    assert seen.written == pytest.approx(pace.bytes_written / pace.seconds)


def test_one_summary_has_all_facts(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["watch", str(where), "--once"]) == 0
    text = capsys.readouterr().out
    norms = oc.open(where).norms["u"][-1]
    trace = np.abs(oc.open(where).traces["line"]).max()
    for part in (
        "acoustic2 8 x 10 x 12 float32", "finished: step 8", "100.0%", "measured", "predicted", "time of 8 steps",
        f"of u (2 points), largest {trace:.4g}", f"L2 {norms['squares'] ** 0.5:.4g}", f"max {norms['max']:.4g}",
    ):  # fmt: skip
        assert part in text, part


def test_looking_neither_locks_nor_writes(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that `outcrop watch` neither writes nor locks anything when it looks at a run. It must work while another
    process holds the lock of the run."""
    change(where, target_step=20)
    before = everything_below(where)

    def refuse(*_: object) -> None:
        raise AssertionError("watch changes or locks something")

    with open_state(where).locked():
        opened = SYSTEM.open

        def read_only(path: Any, flags: int, *more: Any, **named: Any) -> int:
            assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC), path
            return opened(path, flags, *more, **named)

        monkeypatch.setattr(SYSTEM, "open", read_only)
        for name in ("flock", "write", "rename", "unlink", "mkdir", "rmdir", "symlink", "fsync", "allocate"):
            monkeypatch.setattr(SYSTEM, name, refuse)
        found = Watcher(where).look()
        assert found.step == 8 and found.traces[0].rows == 8
        monkeypatch.undo()
    assert everything_below(where) == before


LONG_AGO = {"begun": 1e9, "process": OTHER_COMPUTER}
STATUSES = {
    "the process lives": ({"target_step": 20, "pace": {"process": process_mark(), "begun": 1e9}}, RUNNING, ""),
    "a commit on another computer": ({"target_step": 20, "pace": {"process": OTHER_COMPUTER}}, RUNNING, ""),
    "no commit for years": ({"target_step": 20, "pace": LONG_AGO}, QUIET, "no commit for .*outcrop resume"),
    "stopped": ({"target_step": 20, "pace": {"is_stopped": True}}, INTERRUPTED, "outcrop resume"),
    "in place, stopped": (
        {"target_step": 20, "in_place": True, "phase": IN_FLIGHT, "pace": {"is_stopped": True}}, LOST, "after step 8",
    ),
    "no step": ({"target_step": 20, "pace": None}, QUIET, "not taken a step.*outcrop resume"),
    "finished": ({}, FINISHED, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", STATUSES)
def test_each_status_is_recognised(name: str, where: Path) -> None:
    changes, status, note = STATUSES[name]
    if changes.get("pace") and changes["pace"].get("process") == "":
        pytest.skip("this system does not identify processes")
    change(where, **changes)
    found = Watcher(where).look()
    assert found.status == status and re.search(note, found.note), found
    assert (found.seconds_left is not None) == (status == RUNNING)
    assert page(found)[0].startswith(str(where)) and status in line(found)


def test_a_run_that_still_measures_is_preparing(where: Path) -> None:
    """Checks the status of a run that has computed no pass. First a process holds the run, then the process has
    ended."""
    change(where, target_step=20, pace=None)
    with open_state(where).locked():
        found = Watcher(where).look()
    assert found.status == PREPARING and "outcrop resume" not in found.note, found
    assert Watcher(where).look().status == QUIET, "no process has the run any more"


def test_before_the_first_commit_no_time_of_0_steps_is_shown(where: Path) -> None:
    found = Watcher(where).look()
    assert found.pace is not None
    text = "\n".join(page(replace(found, pace=replace(found.pace, steps_done=0))))
    assert "time of all 8" in text and "time of 0 steps" not in text, text


def test_an_interrupted_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a run counts as interrupted after Ctrl-C, and shows its committed step. After the next call of `run`,
    it counts as finished.
    """
    sim, run_pass = make_run(tmp_path / "run.oc"), engine_module.Engine.run_pass

    def stop(self: Any, index: int, *values: Any) -> Any:
        if index == 2:
            raise InterruptedRun
        return run_pass(self, index, *values)

    monkeypatch.setattr(engine_module.Engine, "run_pass", stop)
    with pytest.raises(InterruptedRun):
        sim.run(12, progress="none")
    found = Watcher(tmp_path / "run.oc").look()
    assert (found.status, found.step, found.fraction) == (INTERRUPTED, 4, 4 / 12)
    monkeypatch.undo()
    oc.open(tmp_path / "run.oc").run(progress="none")
    assert Watcher(tmp_path / "run.oc").look().status == FINISHED


def test_a_process_is_told_from_an_ended_one() -> None:
    """Checks the marks by which a run identifies its process. The marks belong to this process, to a process that has
    ended, and to other computers."""
    mark = process_mark()
    if not mark:
        pytest.skip("this system does not identify processes")
    assert is_alive(mark) is True
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    of_child = process_mark(child.pid)
    assert is_alive(of_child) is True
    child.communicate(b"\n")
    assert is_alive(of_child) is False
    assert [is_alive(one) for one in ("", OTHER_COMPUTER, "a b", f"{mark} x", "\x1b")] == [None] * 5
    assert is_alive(" ".join([*mark.split()[:2], "9" * 400, "1"])) is False


def test_a_run_is_watched_while_it_runs(tmp_path: Path) -> None:
    """Looks at a run repeatedly while the run computes in another thread. Checks that the number of steps never
    decreases, and that all records are valid at each look."""
    sim, seen, problems = make_run(tmp_path / "run.oc"), [], []
    worker = threading.Thread(target=lambda: sim.run(24, progress="none"))
    watcher = Watcher(tmp_path / "run.oc")
    worker.start()
    while worker.is_alive():
        time.sleep(0.002)
        seen.append(found := watcher.look())
        problems += [one.problem for one in (*found.traces, *found.norms) if one.problem]
    worker.join()
    found = watcher.look()
    steps = [one.step for one in seen]
    assert not problems and steps == sorted(steps) and found.status == FINISHED and found.traces[0].rows == 24
    assert {one.status for one in seen} <= {NOT_STARTED, RUNNING, FINISHED, QUIET}
    assert all(one.step == 24 for one in seen if one.status == FINISHED)
    assert found.traces == Watcher(tmp_path / "run.oc").look().traces, "rows in portions and rows at once are equal"


@pytest.mark.parametrize("again", ["go back", "replace"])
def test_a_run_that_goes_back_is_read_from_its_beginning(again: str, where: Path) -> None:
    watcher = Watcher(where)
    assert watcher.look().traces[0].rows == 8
    if again == "replace":
        sim = oc.Simulation("heat7", (6, 5, 4), directory=where, memory="1MiB", force=True)
        sim.run(2, progress="none")
        assert [watcher.look().traces, watcher.look().step] == [(), 2]
    else:
        state = open_state(where)
        sums = {name: state.manifest.seed(name, 0) for name in state.manifest.sums}
        change(where, step=0, sums=state.manifest.sums | {k: v for k, v in sums.items() if k[0] not in "sr"})
        assert watcher.look().traces[0].rows == 0


@pytest.mark.parametrize("name", [".taps/trace-line", ".taps/norms-u"])
@pytest.mark.parametrize("kind", ["flip", "cut", "link", "pipe", "missing"])
def test_damaged_records_are_named_and_the_rest_is_shown(kind: str, name: str, where: Path) -> None:
    file, beside = where / name, where.with_name("elsewhere")
    content = bytearray(file.read_bytes())
    beside.write_bytes(content)
    content[3] ^= 4
    file.unlink()
    if kind == "flip":
        file.write_bytes(content)
    elif kind == "cut":
        file.write_bytes(beside.read_bytes()[:-5])
    elif kind == "link":
        file.symlink_to(beside)
    elif kind == "pipe":
        os.mkfifo(file)
    watcher = Watcher(where)
    for _ in range(2):  # the second look must not read the damaged file again as if it were intact
        found = watcher.look()
        problems = [one.problem for one in (*found.traces, *found.norms)]
        assert sorted(map(bool, problems)) == [False, True] and str(file) in max(problems, key=len)
        assert found.status == FINISHED and any(str(file) in text for text in page(found))


def test_what_is_not_a_run_is_refused(tmp_path: Path, where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a path without a run gives an error of one line. With --once, a run that does not exist yet also
    gives an error, because scripts must notice a wrong name."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    for name in ("empty", "none.oc", "none/none.oc"):
        assert call(["watch", str(tmp_path / name), "--once"]) == 2
        shown = capsys.readouterr()
        assert f"there is no run in {tmp_path / name} yet" in shown.err and shown.err.count("\n") == 1
        assert not shown.out and "waiting" not in shown.err
        assert (f"there is no directory {tmp_path / 'none'}" in shown.err) == (name == "none/none.oc")
    (where / "manifest.json").write_text("{}")
    for words, text in (
        ([str(tmp_path / "file"), "--once"], "holds no Outcrop run"),
        ([str(where), "--once"], "is damaged"),
        ([str(where)], "is damaged"),
        ([str(where), "--once", "--web"], "--once ends at once; leave out --web"),
        ([str(where), "--port", "80"], "give --web, too"),
        ([str(where), "--web", "--port", "99999"], "--port 99999"),
        ([str(where), "--interval", "0"], "--interval 0: give 0.05 to 3600 seconds"),
    ):
        assert call(["watch", *words]) == 2
        error = capsys.readouterr().err
        assert text in error and error.count("\n") == 1
    assert Watcher(tmp_path / "empty").look().status == NOT_STARTED


def test_a_run_without_values_waits(tmp_path: Path) -> None:
    make_run(tmp_path / "run.oc")
    state = open_state(tmp_path / "run.oc")
    state.change(phase="new", filled={}, current=1)
    assert Watcher(tmp_path / "run.oc").look().status == NO_VALUES


def test_a_run_that_has_only_initial_values_is_not_finished(tmp_path: Path) -> None:
    """Checks the status between the first assignment and the first call of `run`. The run must not count as finished,
    because a live page would then end.
    """
    make_run(tmp_path / "run.oc")
    found = Watcher(tmp_path / "run.oc").look()
    assert found.status == NOT_STARTED and "not started: step 0; it has initial values" in "\n".join(page(found))


def test_without_a_terminal_each_commit_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks the lines that the command prints about a run. The run does not exist at first. It computes steps, stops,
    is damaged for a moment, and ends.
    """
    where, runs = tmp_path / "run.oc", []
    manifest = where / "manifest.json"

    def events() -> Iterator[None]:
        yield  # nothing happens
        runs.append(make_run(where))
        runs[0].run(4, progress="none")
        change(where, target_step=8, pace={"last_step": 8})
        yield
        change(where, pace={"is_stopped": True})
        yield
        content = manifest.read_bytes()
        manifest.write_bytes(b"{}")
        yield
        manifest.write_bytes(content)
        yield
        oc.open(where).run(progress="none")
        yield

    happens = events()
    # the watcher also sleeps between its attempts to read a damaged manifest
    monkeypatch.setattr("outcrop.run.watch._PAUSE_SECONDS", 0)
    monkeypatch.setattr(page_module.time, "sleep", lambda seconds: next(happens) if seconds else None)
    assert call(["watch", str(where)]) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = [r"run\.oc$", r"not started: waiting for a run in .*run\.oc; Ctrl-C",
                "running: step 4 of 8, 50.0%", "interrupted: step 4 of 8.*outcrop resume",
                "manifest.json is damaged", "interrupted: step 4",
                r"finished: step 8, 100.0%.*cell/s, read .*u: step 8"]  # fmt: skip
    assert len(lines) == len(expected)
    assert all(re.search(*pair) for pair in zip(expected, lines, strict=True)), lines


def test_a_terminal_shows_a_page_and_ctrl_c_ends_it(where: Path) -> None:
    """Checks the live page in a terminal, and the exit code and the message after Ctrl-C."""
    pty = pytest.importorskip("pty")
    main, end = pty.openpty()
    command = [sys.executable, "-m", "outcrop.cli.main", "watch", str(where)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    done = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, env=environment, timeout=60)
    os.close(end)
    text = os.read(main, 1 << 16).decode()
    os.close(main)
    assert done.returncode == 0 and "finished: step 8" in text and "predicted" in text
    waiting = subprocess.Popen([*command[:-1], str(where.with_name("later.oc"))], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert waiting.stdout is not None and "later.oc" in waiting.stdout.readline()
    waiting.send_signal(signal.SIGINT)
    assert (waiting.communicate(timeout=60)[1], waiting.returncode) == ("outcrop: interrupted\n", 130)


def test_a_live_page_keeps_its_characters(where: Path) -> None:
    """Checks that the page in a terminal uses the same characters for its bar at each look."""
    pty = pytest.importorskip("pty")
    main, end = pty.openpty()
    command = [sys.executable, "-m", "outcrop.cli.main", "watch", str(where), "--keep", "--interval", "0.05"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40", "PYTHONUTF8": "1"}
    process = subprocess.Popen(command, stdout=end, stderr=subprocess.PIPE, env=environment)
    os.close(end)
    text = b""
    while text.count(b"progress") < 4:
        text += os.read(main, 1 << 16)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    os.close(main)
    lines = [one for one in text.decode(errors="replace").splitlines() if "progress" in one]
    assert len(lines) >= 4 and all("█" in one and "##" not in one for one in lines[:4])


def test_a_run_on_a_block_device_is_watched(tmp_path: Path, images: None) -> None:
    device = make_image(tmp_path / "a.img", noise=False)
    sim = simulation([device])
    sim["u"] = "gaussian"
    sim.run(3, progress="none")
    found = Watcher(device).look()
    assert (found.status, found.step) == (FINISHED, 3) and page(found)[0].startswith(f"{device}: heat2 50 x 36 x 40")


def run_part(group: RankGroup, where: Path) -> None:
    make_run(where, group).run(6, progress="none")


def test_all_ranks_are_shown_as_one_run(tmp_path: Path) -> None:
    """Checks the parts of two ranks. The traces and norms must equal the traces and norms of one process. If only one
    part has a newer generation, this generation does not count."""
    ranks(2, run_part, tmp_path / "parts")
    make_run(tmp_path / "whole.oc").run(6, progress="none")
    found, whole = Watcher(tmp_path / "parts").look(), Watcher(tmp_path / "whole.oc").look()
    assert found.steps == (6, 6) and found.status == FINISHED and "2 parts, all at step 6" in "\n".join(page(found))
    assert found.run is not None and found.run.own_shape == SHAPE
    assert found.traces == whole.traces
    for one, other in zip(found.norms, whole.norms, strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)
    state = open_state(tmp_path / "parts" / "rank-1")
    with state.locked():
        state.go_back()
    behind = Watcher(tmp_path / "parts").look()
    assert (behind.step, behind.steps, behind.traces[0].rows) == (4, (6, 4), 4)
    assert "rank 0 at step 6, rank 1 at step 4" in "\n".join(page(behind))
    os.rename(tmp_path / "parts" / "rank-1", tmp_path / "moved")
    with pytest.raises(InputError, match="part of rank 1 of 2 is missing"):
        Watcher(tmp_path / "parts").look()
    open_state(tmp_path / "parts" / "rank-0").change(phase="new", filled={}, step=0, before=None)
    found = Watcher(tmp_path / "parts").look()
    assert found.status == NO_VALUES and "part of rank 1 of 2 is missing" in found.note


@settings(max_examples=examples(40))
@given(st.integers(1, 9), st.integers(0, 700), st.randoms(use_true_random=False))
def test_an_envelope_is_the_largest_value_of_each_range(points: int, rows: int, rng: Any) -> None:
    """Compares envelopes with NumPy. The envelopes get their values in random portions."""
    values = np.random.default_rng(rng.randrange(1000)).standard_normal((rows, points))
    envelope, data, done = Envelope(points), values.tobytes(), 0
    while done < len(data):
        count = 8 * rng.randint(1, 50 * points)
        envelope.take(data[done : done + count])
        done += count
    largest = np.abs(values).max(axis=1)
    columns = rng.randint(1, 50)
    found = joined_envelope([envelope], rows, columns)
    assert len(found) == min(columns, rows)
    if rows:
        assert max(found) == largest.max()
    if rows <= MAX_BINS:
        ends = [rows * column // len(found) for column in range(len(found) + 1)] if found else []
        assert found == [largest[slice(*pair)].max() for pair in itertools.pairwise(ends)]


def test_the_first_value_that_is_not_finite_is_found() -> None:
    values = np.zeros((10, 3))
    values[6, 2], values[8, 0] = np.nan, np.inf
    envelope = Envelope(3)
    envelope.take(values[:4].tobytes())
    envelope.take(values[4:].tobytes())
    assert envelope.first_infinite == 7  # row 6 has the values of step 7
    assert curve(joined_envelope([envelope], 10, 10))[6] == "!"


@settings(max_examples=examples(20))
@given(st.integers(0, 1500))
def test_rows_of_norms_stay_few(count: int) -> None:
    rows = np.zeros(count, NORMS)
    rows["step"] = np.arange(count)
    kept = NormRows(NORMS.itemsize)
    for first in range(0, count, 7):
        kept.take(rows[first : first + 7].tobytes())
    numbers = sorted(kept.rows)
    assert len(numbers) <= MAX_BINS + 1
    if count:
        assert (numbers[0], numbers[-1]) == (0, count - 1)
    assert all(np.frombuffer(kept.rows[number], NORMS)["step"][0] == number for number in numbers)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_curves_suit_the_terminal(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(BytesIO(), encoding=encoding))
    text = curve([0.0, 0.5, 1.0, float("inf")])
    text.encode(encoding)
    assert len(text) == 4 and text[-1] == "!" and len(set(text)) == 4
    assert curve([]) == "" and len(set(curve([0.0, 0.0]))) == 1


@contextmanager
def served(where: Path) -> Iterator[int]:
    """Serve the page about the run `where`, and yield the port."""
    from outcrop.cli.watch_web import make_server

    server = make_server(Follower(Watcher(where).look), 1.0, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def ask(where: Path) -> Iterator[Callable[..., tuple[http.client.HTTPResponse, bytes]]]:
    """Return a function that sends a request to the page about the run `where`."""

    def request(path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer, content

    with served(where) as port:
        yield request


def test_the_page_in_a_browser(ask: Callable[..., Any], where: Path) -> None:
    """Checks that the server of the page answers each of its addresses, draws slices with the right colours, and
    refuses wrong requests.
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex
    from matplotlib.image import imread

    answer, content = ask("/")
    assert answer.status == 200 and b'src="/watch.js"' in content and "script-src 'self'" in str(answer.headers)
    assert ask("/watch.js")[0].headers["Content-Type"].startswith("text/javascript")
    found = json.loads(ask("/status.json")[1])
    assert (found["status"], found["step"], found["fraction"]) == ("finished", 8, 1.0)
    assert [one["name"] for one in found["slices"]] == ["snapshots u", "u", "u.previous", "v"]
    assert len(found["norms"][0]["l2"]) == 5 and found["traces"][0]["rows"] == 8
    sim = oc.open(where)
    for name, values in (("snapshots%20u", sim.snapshots["u"][-1]), ("u", sim["u"][...])):
        answer, content = ask(f"/slice.png?name={name}&slice=y=3")
        picture = imread(BytesIO(content), format="png")
        assert picture.shape[:2] == (12, 8)
        found = Range()
        found.include(values[:, 3])
        scale = Scale.of(found, None, "auto")
        assert answer.headers["X-Outcrop-About"].endswith(f"y = 3: {scale.low:.4g} to {scale.high:.4g}")
        colors = colormaps[scale.colors](scale.norm(values[::-1, 3]))  # the last plane is at the top of the picture
        np.testing.assert_allclose(picture, colors, atol=1 / 255)
        bar = answer.headers["X-Outcrop-Colors"].split()
        assert (bar[0], bar[-1]) == tuple(map(to_hex, colormaps[scale.colors]([0.0, 1.0])))
    for path, text in (
        ("/slice.png", "''"), ("/slice.png?name=..%2F..%2Fetc", "no field"), ("/slice.png?name=u&slice=y=99", "y goes"),
        ("/slice.png?name=snapshots%20v", "no array"), ("/manifest.json", "no such page"), ("/../x", "no such page"),
    ):  # fmt: skip
        answer, content = ask(path)
        assert answer.status == 404 and text in content.decode(), content
    assert ask("/status.json", Host="other.example")[0].status == 403
    assert ask("/status.json", "POST")[0].status == 501
    assert ask("/", "HEAD")[1] == b""


@pytest.mark.skipif(bool(SCREENS["missing"]()), reason=f"a browser is missing: {SCREENS['missing']()}")
def test_a_browser_shows_the_flat_side_of_a_box(tmp_path: Path) -> None:
    """Checks the page in Chromium for snapshots that are only one row thick. The page shows this row with its colour
    bar."""
    row = oc.Snapshots(2, ["u"], box=(slice(None), slice(4, 5), slice(None)))
    sim = oc.Simulation("heat2", SHAPE, directory=tmp_path / "run.oc", memory="1MiB", snapshots=row)
    sim["u"] = "random:1"
    sim.run(4, progress="none")
    values = sim.snapshots["u"][-1]
    with served(tmp_path / "run.oc") as port, SCREENS["browser"](900, 900) as driver:
        driver.get(f"http://127.0.0.1:{port}/")
        SCREENS["wait_until"](lambda: driver.find_element("id", "high").text, "a slice")
        assert driver.find_element("id", "axis").get_property("value") == "y"
        assert driver.find_element("id", "low").text == f"{values.min():.4g}"
        assert driver.find_element("id", "high").text == f"{values.max():.4g}"
        assert "linear-gradient" in driver.find_element("id", "scale").value_of_css_property("background-image")
        picture = driver.find_element("id", "slice")
        sizes = [picture.get_property(name) for name in ("naturalWidth", "naturalHeight")]
        assert sizes == [SHAPE[2], SHAPE[0]]


def test_a_port_that_is_taken_is_named(where: Path) -> None:
    from outcrop.cli.watch_web import make_server

    follower = Follower(Watcher(where).look)
    with make_server(follower, 1.0, 0) as server, pytest.raises(InputError, match=r"--port [0-9]+ cannot be used"):
        make_server(follower, 1.0, server.server_port)
