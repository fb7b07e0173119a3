"""Check sources, receivers and norms of whole runs. The values must equal the oracle's values, even if a run was killed
and resumed."""

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from oracle import record_fields
from outcrop.cli.main import call
from outcrop.durable import Directory
from outcrop.errors import InputError, InterruptedRun, StorageError
from outcrop.language.boundary import FIXED
from outcrop.language.sparse import Injection, Sampling
from outcrop.run.acquisition.definitions import read_definitions
from outcrop.run.acquisition.recorder import Recorder
from outcrop.run.places import storage_at
from shots import BOX, DT, LINE, SHAPE, SHOTS, STEPS, assert_same, everything, make, velocity, wavelets


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return all results of a run without interruptions."""
    where = tmp_path_factory.mktemp("whole") / "run.oc"
    report = make(where).run(STEPS)
    assert report.plan["passes"] > 5
    return everything(where)


def test_a_run_has_the_oracles_numbers(whole: dict[str, Any], tmp_path: Path) -> None:
    """Checks that field, traces, snapshots and norms equal the oracle's values.

    The points are given in metres, and the sources are scaled by dt^2 v^2. After the last value of a source, the source
    is 0.
    """
    sim = make(tmp_path / "run.oc")
    with Directory.open(tmp_path / "run.oc") as directory:
        acquisition = read_definitions(directory, storage_at(tmp_path / "run.oc").read())
    padded = np.zeros((STEPS, 2))
    padded[:50] = wavelets()
    shots: list[Injection] = [Injection(i.field, i.cells, i.weights, padded, i.scale) for i in acquisition.injections]
    receivers: list[Sampling] = list(acquisition.samplings)
    zeros = np.zeros(SHAPE, np.float32)
    state = {"u": zeros, "u.previous": zeros, "v": np.array(velocity())}

    def advance(steps: int) -> Any:
        return record_fields(sim.stencil, state, {"dt": DT}, steps, FIXED, {}, 0, shots, receivers)

    done = advance(STEPS)
    np.testing.assert_array_equal(whole["u"], done.state["u"])
    assert abs(done.traces["line"]).max() > 0
    for name, trace in done.traces.items():
        np.testing.assert_array_equal(whole[name], trace)
    u14 = advance(14).state["u"]
    np.testing.assert_array_equal(whole["snapshots"][2], u14[BOX])
    assert not whole["snapshots"][0].any()
    u8 = advance(8).state["u"].astype(np.float64)
    row = whole["norms"][2]
    assert whole["norms"]["step"].tolist() == list(range(0, STEPS + 1, 4))
    assert whole["norms"][0].tolist() == (0, 0, 0, 0, 0)
    assert (row["step"], row["min"], row["max"]) == (8, u8.min(), u8.max())
    assert row["squares"] == pytest.approx((u8**2).sum(), rel=1e-12)
    assert row["sum"] == pytest.approx(u8.sum(), rel=1e-9, abs=1e-12)


def test_other_plans_leave_the_same(whole: dict[str, Any], tmp_path: Path) -> None:
    """Checks that the bits of the results do not depend on the budget, the number of threads and interruptions."""
    sim = make(tmp_path / "run.oc", memory="4MiB")
    sim.run(23)
    sim.run(STEPS - 23)
    assert_same(everything(tmp_path / "run.oc"), whole)


@pytest.mark.parametrize("moment", ["before", "after", "commit"])
def test_a_pass_cut_off_is_done_again(
    moment: str, whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that a pass is repeated if it fails at any moment. Each result must be recorded exactly once.

    The pass may fail before its work, after it has written its rows, or in its commit.
    """
    from outcrop.run.disk.state import State

    sim, owner = make(tmp_path / "run.oc"), State if moment == "commit" else Recorder
    original, calls = getattr(owner, moment), []

    def cut_off(*arguments: Any, **more: Any) -> Any:
        calls.append(0)
        if len(calls) == 4:
            raise StorageError("cut off")
        return original(*arguments, **more)

    monkeypatch.setattr(owner, moment, cut_off)
    with pytest.raises(StorageError, match="outcrop resume"):
        sim.run(STEPS)
    monkeypatch.undo()
    left = oc.open(tmp_path / "run.oc")
    assert 0 < left.step < STEPS
    assert len(left.traces["line"]) == left.step
    assert len(left.snapshots["u"]) == 1 + left.step // 7
    np.testing.assert_array_equal(left.traces["line"], whole["line"][: left.step])
    assert call(["resume", str(tmp_path / "run.oc"), "--quiet"]) == 0
    assert_same(everything(tmp_path / "run.oc"), whole)


CHILD = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import shots
shots.make(Path({where!r})).run(shots.STEPS)
"""


def committed_step(where: Path) -> int:
    """Return the last committed step of a run. Another process may be executing the run."""
    try:
        return storage_at(where).read().step
    except InputError:
        return 0


def test_killed_and_resumed_it_leaves_the_same(whole: dict[str, Any], tmp_path: Path) -> None:
    """Checks that `outcrop resume` completes a run after SIGKILL, without the script that has defined the points."""
    where = tmp_path / "run.oc"
    text = CHILD.format(tests=str(Path(__file__).parent), where=str(where))
    with subprocess.Popen([sys.executable, "-c", text]) as process:
        for _ in range(4000):
            if committed_step(where) > 10:
                break
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    step = oc.open(where).step
    assert step > 10
    if step < STEPS:
        assert call(["resume", str(where), "--quiet"]) == 0
    assert_same(everything(where), whole)


@pytest.mark.parametrize("ndim", [1, 2])
def test_grids_of_fewer_axes(ndim: int, tmp_path: Path) -> None:
    """Checks grids of one and two axes. Points and snapshots have the axes of the grid. If the run has no spacing,
    points are given in cells.
    """
    shape = (31, 40)[-ndim:]
    sim = oc.Simulation(
        oc.stencils.heat(ndim=ndim, order=2), shape, directory=tmp_path / "run.oc", memory="1MiB",
        sources=[oc.Source("u", [10.0, 21.0][-ndim:], np.ones(8), scale=2)],
        receivers=[oc.Receivers("here", "u", [10.0, 20.5][-ndim:])],
        snapshots=oc.Snapshots(4),
    )  # fmt: skip
    sim.run(8)
    u = sim["u"][...]
    np.testing.assert_array_equal(sim.snapshots["u"][-1], u)
    near = u[10, 20:22] if ndim == 2 else u[20:22]
    assert sim.traces["here"][-1, 0] == pytest.approx(float(near.astype(np.float64).mean()), rel=1e-12)
    assert u.astype(np.float64).sum() == pytest.approx(16, rel=1e-3)
    if find_spec("zarr") and find_spec("xarray"):
        import xarray

        shown = xarray.open_zarr(tmp_path / "run.oc" / "snapshots.zarr")
        assert shown.u.dims == ("time", "y", "x")[:1] + ("y", "x")[-ndim:]
        np.testing.assert_array_equal(shown.u[-1], u)


def test_info_lists_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `outcrop info` lists sources, receivers, snapshots and norms."""
    make(tmp_path / "run.oc").run(14)
    assert call(["info", str(tmp_path / "run.oc")]) == 0
    text = capsys.readouterr().out
    assert "in u (2 points, 50 steps)" in text
    assert "line of u (9 points), before of u (1 point), 14 steps" in text
    assert "u, 37 x 1 x 36 cells every 7 steps, 3 so far" in text
    assert "u, every 4 steps" in text


def test_a_run_is_replaced_with_all_it_has_kept(tmp_path: Path) -> None:
    """Checks that `force` removes all points, traces and snapshots of the older run."""
    make(tmp_path / "run.oc").run(14)
    assert {".taps", "snapshots.zarr"} <= set(os.listdir(tmp_path / "run.oc"))
    make(tmp_path / "run.oc", force=True, sources=[], receivers=[], norms=None, snapshots=None)
    assert not {".taps", "snapshots.zarr"} & set(os.listdir(tmp_path / "run.oc"))


REFUSALS: list[tuple[dict[str, Any], str]] = [
    (
        {"receivers": [oc.Receivers("r", "u", (600.0, 0.0, 0.0))]},
        r"'r': point 0 at \(600, 0, 0\).*to \(530, 290, 310\)",
    ),
    ({"receivers": [oc.Receivers("r", "u", LINE), oc.Receivers("r", "u", LINE)]}, "'r' are given twice"),
    ({"receivers": [oc.Receivers("r", "q", LINE)]}, "no field 'q'; there are: u, v"),
    ({"receivers": [oc.Receivers("a/b", "u", LINE)]}, "'a/b': a name is"),
    ({"receivers": [oc.Receivers("r", "u", [(1.0, 2.0)])]}, r"they need \(points, 3\)"),
    ({"receivers": [oc.Receivers("r", "u", LINE, before="no")]}, "'r': before 'no' must be True or False"),  # type: ignore[arg-type]
    ({"receivers": ["line"]}, "is not an oc.Receivers"),
    ({"sources": [oc.Source("v", SHOTS, wavelets())]}, "need a field that is updated; there are: u"),
    ({"sources": [oc.Source("u", SHOTS, wavelets()[:, 0])]}, r"values have shape \(50, 1\); they need \(steps, 2\)"),
    ({"sources": [oc.Source("u", SHOTS, wavelets() * np.nan)]}, "value of point 0 in step 0 is nan"),
    (
        {"sources": [oc.Source("u", [(105.0, 50.0, 0.0)], np.ones(3))]},
        "point 0 needs cell z=0, y=5, x=5 of the fixed rim",
    ),
    ({"sources": [oc.Source("u", SHOTS[0], np.ones(3), scale=oc.Field("v")[0, 0, 1])]}, r"reads v at \(0, 0, 1\)"),
    ({"sources": [oc.Source("u", SHOTS[0], np.ones(3), scale=oc.Field("u")[0, 0, 0])]}, "that nothing updates"),
    ({"sources": [oc.Source("u", SHOTS[0], np.ones(3), scale=oc.Parameter("q", 1))]}, "parameters are: dt, h"),
    ({"snapshots": oc.Snapshots(0)}, "every 0 must be at least 1"),
    ({"snapshots": oc.Snapshots(5, initial="no")}, "initial 'no' must be True or False"),  # type: ignore[arg-type]
    ({"snapshots": oc.Snapshots(5, fields=("v",))}, "'v' is not an updated field"),
    ({"snapshots": oc.Snapshots(5, box=(slice(0, 45), slice(None), slice(None)))}, "is not a range within 0 to 44"),
    ({"snapshots": oc.Snapshots(5, box=(slice(-50, 45), slice(None), slice(None)))}, "is not a range within 0 to 44"),
    ({"snapshots": oc.Snapshots(5, box=(slice(0, 4.5), slice(None), slice(None)))}, "along z must have whole numbers"),
    ({"snapshots": oc.Snapshots(5, fields=5)}, "fields 5 must be names; there are: u"),  # type: ignore[arg-type]
    ({"snapshots": oc.Snapshots(5, fields=oc.Field("u"))}, "must be names; there are: u"),  # type: ignore[arg-type]
    ({"norms": oc.Norms(5, fields=oc.Field("u"))}, "must be names; there are: u"),  # type: ignore[arg-type]
    ({"sources": [oc.Source("u", SHOTS[0], np.ones(3), scale=oc.Field("w")[0, 0, 0])]}, "0 in 'u': w.* not a field"),
    ({"params": [1]}, r"params \[1\] must be values by name"),
    ({"snapshots": oc.Snapshots(5, box=(slice(0, 4),))}, "a slice for each axis: z, y, x"),
    ({"norms": oc.Norms(5, fields=("u", "u"))}, "contain a name twice"),
    ({"norms": oc.Norms(5, initial=1)}, "norms: initial 1 must be True or False"),  # type: ignore[arg-type]
    ({"norms": 5}, "norms: 5 is not an oc.Norms"),
]


@pytest.mark.parametrize(("options", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_what_cannot_be_is_one_line(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Checks that wrong sources, receivers, snapshots and norms give an error of one line. The error names the wrong
    value and the correct form. No run is made."""
    with pytest.raises(InputError, match=words) as caught:
        make(tmp_path / "run.oc", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run.oc").exists()


def test_ctrl_c_leaves_what_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the traces have exactly the committed steps after an interruption."""
    sim = make(tmp_path / "run.oc")
    original = Recorder.after

    def then_interrupt(self: Recorder, first_step: int, results: Any) -> Any:
        sums = original(self, first_step, results)
        if first_step > 20:
            raise InterruptedRun
        return sums

    monkeypatch.setattr(Recorder, "after", then_interrupt)
    with pytest.raises(InterruptedRun, match="outcrop resume"):
        sim.run(STEPS)
    assert len(sim.traces["line"]) == sim.step > 20
