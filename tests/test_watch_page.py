"""Check how the live page of `outcrop watch` fits into a terminal, and what the page in a browser says about slices.
Also check the status of a run that continues."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

import outcrop as oc
from outcrop.cli import watch as page_module
from outcrop.cli import watch_web
from outcrop.cli.info import facts
from outcrop.cli.main import call
from outcrop.cli.watch_web import make_server
from outcrop.errors import InterruptedRun
from outcrop.run import engine
from outcrop.run.disk.planes import Planes
from outcrop.run.watch import INTERRUPTED, PREPARING, Watcher


@pytest.mark.parametrize("columns", [80, 40])
def test_a_narrow_terminal_shows_the_whole_command(columns: int) -> None:
    """Checks that the live page wraps the row of the status. No word of the command may be cut or divided."""
    text = "  status    interrupted: step 8 of 20; continue it with: outcrop resume small-shot.oc --memory 16MiB"
    lines = page_module._wrapped(text, columns)
    assert len(lines) > 1 and max(map(len, lines)) <= columns
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    bar = "  progress  " + "#" * 100
    assert page_module._wrapped(bar, columns) == [bar]


@pytest.mark.parametrize("columns", [130, 120, 80, 60, 40])
def test_no_number_of_the_page_is_cut(columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the figures of the page in terminals of several widths. If the figures of norms or traces do not fit
    beside the curve, they are below the curve."""
    sim = oc.Simulation(
        "heat2_2d", (30, 40), directory=tmp_path / "run.oc", memory="1MiB", init=-1.2345e-5, boundary="mirror",
        norms=oc.Norms(1), receivers=[oc.Receivers("line", "u", [[1, 2]])],
    )  # fmt: skip
    sim.run(200, progress="none")
    monkeypatch.setenv("COLUMNS", str(columns))
    now = Watcher(tmp_path / "run.oc").look(page_module.curve_columns())
    assert now.pace is not None
    earlier = replace(now, pace=replace(now.pace, steps_done=99, seconds=now.pace.seconds / 2))
    lines = page_module.page(now, earlier)
    assert columns < 60 or max(map(len, lines[1:])) <= columns
    first = next(number for number, line in enumerate(lines) if line.startswith("  trace line"))
    records = lines[first:]
    assert max(map(len, records)) <= columns
    text = " ".join(" ".join(records).split())
    assert "of u (1 point), largest 1.234e-05" in text
    assert "step 200: sum -0.01481, L2 0.0004276, min -1.234e-05, max -1.234e-05" in text
    assert not any(line.endswith(("min", "max", "L2", "sum")) for line in records)
    if columns >= 120:
        assert len(records) == 2


def test_the_table_names_the_step_at_which_it_begins(tmp_path: Path) -> None:
    """Checks that the table of a continued run says which steps it is about, and that the columns of the figures since
    an earlier look have a true head."""
    sim = oc.Simulation("heat2_2d", (30, 40), directory=tmp_path / "run.oc", memory="1MiB", init=1.0)
    sim.run(5, progress="none")
    watcher = Watcher(tmp_path / "run.oc")
    table = "\n".join(page_module.page(watcher.look()))
    assert "time of all 5" in table and "since step" not in table
    sim.run(7, progress="none")
    now = watcher.look()
    lines = page_module.page(now)
    assert lines[1].split() == ["status", "finished:", "step", "12"]
    head = next(line for line in lines if "measured" in line)
    assert head.split() == ["since", "step", "5", "measured", "predicted"] and "time of all 7" in "\n".join(lines)
    assert now.pace is not None
    earlier = replace(now, pace=replace(now.pace, steps_done=3, seconds=now.pace.seconds / 2))
    head = next(line for line in page_module.page(now, earlier) if "measured" in line)
    assert head.split()[-3:] == ["measured", "predicted", "latest"]


def test_the_browser_names_the_cell_of_the_grid(tmp_path: Path) -> None:
    """Checks the text about slices of a field, of snapshots of a box, and of coarse snapshots."""
    where, box = tmp_path / "run.oc", (slice(2, 10), slice(None), slice(4, 16))
    kept = [oc.Snapshots(2, box=box, name="box"), oc.Snapshots(2, box=box, coarsen=4, name="coarse")]
    sim = oc.Simulation("heat2", (14, 9, 20), directory=where, memory="1MiB", snapshots=kept)
    sim["u"] = "random:1"
    sim.run(4, progress="none")

    server = make_server(page_module.Follower(Watcher(where).look), 1.0, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/slice.png?name="
        for name, cut, text in (
            ("u", "z=3", "u at step 4, z = 3: "),
            ("snapshots%20box/u", "z=3", "snapshot of box/u at step 4, z = 5: "),
            ("snapshots%20box/u", "x=0", "snapshot of box/u at step 4, x = 4: "),
            ("snapshots%20coarse/u", "x=1", "snapshot of coarse/u at step 4, x = 9.5: "),
        ):
            with urllib.request.urlopen(f"{address}{name}&slice={cut}", timeout=30) as answer:
                assert answer.headers["X-Outcrop-About"].startswith(text)
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{address}snapshots%20box/u&slice=z=8", timeout=30)
        assert "z goes from 0 to 7, because --slice counts the cells of the box: index 0 is at z = 2" in (
            error.value.read().decode()
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_slice_reads_only_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that slices along y and x of a field read only the rows that they show, and no whole plane."""
    shape = (6, 64, 1024)
    sim = oc.Simulation("heat2", shape, directory=tmp_path / "run.oc", memory="4MiB")
    sim["u"] = "random:1"
    values = sim["u"][...]
    rows_read: list[int] = []
    unverified = Planes.unverified

    def count(self: Planes, z: int, rows: range, columns: range) -> object:
        rows_read.append(len(rows))
        return unverified(self, z, rows, columns)

    def refuse(self: Planes, *places: object) -> object:
        raise AssertionError("a whole plane is read")

    monkeypatch.setattr(Planes, "unverified", count)
    for name in ("groups", "selected", "read"):
        monkeypatch.setattr(Planes, name, refuse)
    monkeypatch.setattr(watch_web, "MAX_PIXELS", 4)
    for cut, shown, rows in (("y=5", values[::2, 5, ::256], 1), ("x=1000", values[::2, ::16, 1000], 4)):
        rows_read.clear()
        _, text, _ = watch_web.draw_slice(tmp_path / "run.oc", "u", cut)
        assert rows_read == [rows] * 3
        assert text.endswith(f": {shown.min():.4g} to {shown.max():.4g}"), text


def test_one_slice_is_drawn_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that two requests at the same time do not read the run at the same time."""
    sim = oc.Simulation("heat2_2d", (9, 20), directory=tmp_path / "run.oc", memory="1MiB")
    sim["u"] = "random:1"
    both = threading.Barrier(2)
    met: list[bool] = []

    def draw(*wanted: object) -> tuple[bytes, str, str]:
        try:
            both.wait(0.5)
            met.append(True)
        except threading.BrokenBarrierError:
            met.append(False)
        return b"", "", ""

    monkeypatch.setattr(watch_web, "draw_slice", draw)
    server = make_server(page_module.Follower(Watcher(tmp_path / "run.oc").look), 1.0, 0)
    address = f"http://127.0.0.1:{server.server_port}/slice.png?name=u"

    def ask() -> None:
        urllib.request.urlopen(address, timeout=30).close()

    threads = [threading.Thread(target=one) for one in (server.serve_forever, ask, ask)]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    server.shutdown()
    server.server_close()
    threads[0].join()
    assert met == [False, False]


def test_a_run_that_continues_is_preparing_until_its_first_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks the status of an interrupted run while `resume` measures and plans, and before its first pass. Also checks
    that a second command is refused during this time."""
    where, run_pass, prepare = tmp_path / "run.oc", engine.Engine.run_pass, oc.Simulation._prepare
    sim = oc.Simulation("heat2", (14, 9, 20), directory=where, memory="1MiB", sizes={"bt": 2})
    sim["u"] = "random:1"

    def stop(self: engine.Engine, index: int, *values: object) -> object:
        if index == 2:
            raise InterruptedRun("stopped")
        return run_pass(self, index, *values)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.Engine, "run_pass", stop)
    with pytest.raises(InterruptedRun):
        sim.run(12, progress="none")
    assert Watcher(where).look().status == INTERRUPTED and facts(where)["status"] == "unfinished"

    seen = []

    def look(self: oc.Simulation, steps: int, may_write: bool) -> object:
        seen.append((Watcher(where).look().status, facts(where)["status"]))
        assert call(["info", str(where)]) == 0 and "step 4 of 12, being prepared now" in capsys.readouterr().out
        assert call(["resume", str(where), "--quiet"]) == 2 and "another process" in capsys.readouterr().err
        return prepare(self, steps, may_write)

    def first_pass(self: engine.Engine, *values: object) -> object:
        seen.append((Watcher(where).look().status, facts(where)["status"]))
        monkeypatch.setattr(engine.Engine, "run_pass", run_pass)
        return run_pass(self, *values)  # type: ignore[arg-type]

    monkeypatch.setattr(oc.Simulation, "_prepare", look)
    monkeypatch.setattr(engine.Engine, "run_pass", first_pass)
    assert call(["resume", str(where), "--quiet"]) == 0
    assert seen == [(PREPARING, "preparing"), ("running", "running")]
    assert facts(where)["status"] == "finished"
