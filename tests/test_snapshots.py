"""Check snapshots of whole runs, including snapshots of the initial values. Each snapshot is stored once, and readers
see it after its commit.
"""

import os
import resource
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from oracle import group_means
from outcrop.axes import grid_shape, inside
from outcrop.cli.main import call
from outcrop.errors import InputError
from outcrop.units import format_bytes
from shots import BOX, DT, STEPS, make


@pytest.mark.parametrize("shape, box", [((40, 256), None), ((16, 40, 64), np.s_[2:14, 19:20, :])])
def test_blocks_of_columns_write_the_same_snapshots(tmp_path: Path, shape: tuple[int, ...], box: Any) -> None:
    """Checks snapshots and histories with one row, if each block has only some of the columns."""
    found = []
    for number, sizes in enumerate([{"bt": 4}, {"bt": 4, "bx": 16}]):
        sim = oc.Simulation(
            "heat4_2d" if len(shape) == 2 else "heat7", shape, directory=tmp_path / str(number), memory="1MiB",
            scheme="overlapped", sizes=sizes, snapshots=oc.Snapshots(2, initial=True, box=box), threads=2,
        )  # fmt: skip
        sim["u"] = "random:1"
        sim.run(12, progress="none", history=oc.History(3) if box is None else None)
        found.append([sim["u"][:], sim.snapshots["u"][:]] + ([sim.history["u"][:]] if box is None else []))
        assert call(["verify", str(tmp_path / str(number)), "--quiet"]) == 0
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


MANY_FILES = """
import resource, sys
import outcrop as oc
resource.setrlimit(resource.RLIMIT_NOFILE, (80, int(sys.argv[2])))
sim = oc.Simulation("heat4_2d", (20, 24), directory=sys.argv[1], memory="8MiB", threads=1, sizes={"bt": 200},
                    snapshots=oc.Snapshots(1), init="gaussian")
try:
    sim.run(200, progress="none")
    print(sim.step, len(sim.snapshots["u"]))
except oc.errors.StorageError as error:
    print(error)
"""


def test_a_pass_can_write_more_snapshots_than_a_process_may_usually_open(tmp_path: Path) -> None:
    """Checks a soft limit of 80 open files, and then a hard limit of 80 open files."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for limit, text in ((hard, "200 201\n"), (80, "too many open files; allow more (ulimit -n), or give a smaller bt")):
        command = [sys.executable, "-c", MANY_FILES, str(tmp_path / str(limit)), str(limit)]
        assert text in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_indices_of_snapshots(tmp_path: Path) -> None:
    sim = oc.Simulation("heat2_1d", (9,), directory=tmp_path / "run.oc", init="random:1", snapshots=oc.Snapshots(1))
    sim.run(4, progress="none")
    view = sim.snapshots["u"]
    whole = np.stack([view[number] for number in range(5)])
    for index in ((), Ellipsis, slice(None), np.s_[1:, 2], np.s_[..., 3], np.s_[-1, ::2]):
        np.testing.assert_array_equal(view[index], whole[index])
    for wrong in ([0, 1], None, "u", 1.5, 5):
        with pytest.raises(IndexError):
            view[wrong]


def test_snapshots_are_handed_over_as_they_are_committed(tmp_path: Path) -> None:
    """Checks that the callback gets each committed snapshot once, in order, with its step and values. An exception in
    the callback stops the run, and the run can be continued afterwards.
    """
    seen: list[tuple[int, float]] = []
    sim = make(tmp_path / "run.oc")

    def look(step: int, kept: Any) -> None:
        seen.append((step, float(kept["u"].sum())))
        assert len(sim.snapshots["u"]) > step // 7  # at this time, the snapshot is already committed
        if step == 21:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        sim.run(STEPS, on_snapshot=look)
    assert [step for step, _ in seen] == [0, 7, 14, 21]
    if sim.step < STEPS:  # the passes continue during the callback
        sim.run(STEPS - sim.step)
    assert [value for _, value in seen] == [float(one.sum()) for one in sim.snapshots["u"][:4]]


def test_reports_and_plans_count_snapshots(tmp_path: Path) -> None:
    """Checks the bytes of snapshots and of a history in plans, in reports and in JSON, and that the times of a report
    add up to its whole time."""
    several = [
        oc.Snapshots(3), oc.Snapshots(7, ["u"], box=BOX, coarsen=(2, 3, 2), name="coarse", initial=False),
        oc.Snapshots(STEPS + 1, name="never", initial=False),
    ]  # fmt: skip
    sim = make(tmp_path / "run.oc", memory="2MiB", snapshots=several)
    for steps, options in ((10, {"history": "all"}), (STEPS - 10, {})):
        before = sum(one[...].nbytes for one in sim.snapshots.values()) if sim.step else 0
        before += sum(sim.history[name][...].nbytes for name in sim.history) if sim.step else 0
        report = sim.run(steps, progress="none", **options)  # type: ignore[arg-type]
        after = sum(one[...].nbytes for one in sim.snapshots.values())
        after += sum(sim.history[name][...].nbytes for name in sim.history)
        assert report.bytes_snapshots == report.predicted.bytes_snapshots == after - before > 0
        assert report.to_json()["plan"]["snapshot_bytes"] == after - before
        names = ("update", "read_wait", "write_wait", "copy", "checksum", "commit", "snapshots", "other")
        assert sum(getattr(report, f"seconds_{name}") for name in names) == pytest.approx(report.seconds)
    both = report.followed_by(report)
    assert both.bytes_snapshots == both.predicted.bytes_snapshots == 2 * report.bytes_snapshots

    times = dict.fromkeys(("seconds_read_wait", "seconds_write_wait", "seconds_copy", "seconds_checksum"), 0.5)
    times |= {"seconds_update": 2.0, "seconds_commit": 1.0, "seconds_snapshots": 3.0, "seconds_other": 2.0}
    lines = str(replace(report, seconds=10.0, **times)).splitlines()  # type: ignore[arg-type]
    rows = {one[:24].strip(): one[24:].split() for one in lines if one.startswith("  ")}
    parts = [float(rows[one[:24].strip()][0]) for one in lines if one.startswith("    ") and one[:24].strip()]
    assert sum(parts) == float(rows["time"][0]) == 10.0
    assert rows["snapshots"][:2] == rows["snapshots"][2:], "the measured bytes and the predicted bytes"
    text = str(make(tmp_path / "other.oc", snapshots=several[0]).plan(9))
    kept = f", and {format_bytes(4 * np.prod(sim.shape).item() * 4)} of snapshots"
    assert [line.endswith(kept) for line in text.splitlines() if line.split()[0] in ("disk", "written")] == [True, True]
    plain = make(tmp_path / "plain.oc", snapshots=None)
    assert "of snapshots" not in str(plain.plan(9)) and "snapshot" not in str(plain.run(9, progress="none"))


def test_a_callback_that_would_never_be_called_is_refused(tmp_path: Path) -> None:
    """Checks that a callback is refused before the first step if it is not a function, or if the run has no snapshots.
    """
    with pytest.raises(InputError, match="this run keeps no snapshots"):
        make(tmp_path / "run.oc", snapshots=None).run(3, on_snapshot=print)
    sim = make(tmp_path / "run.oc", force=True)
    with pytest.raises(InputError, match="on_snapshot 5 must be a function"):
        sim.run(3, on_snapshot=5)  # type: ignore[arg-type]
    assert sim.step == 0


def test_snapshots_committed_but_not_shown_yet_are_shown_by_repair(tmp_path: Path) -> None:
    """Checks a power cut after a commit and before the update of the metadata for readers. After a repair, readers see
    the committed snapshots."""
    sim, group = make(tmp_path / "run.oc"), tmp_path / "run.oc" / "snapshots.zarr"
    files = [group / name for name in ("zarr.json", "u/zarr.json", "step/zarr.json", "time/zarr.json")]
    early = [file.read_text() for file in files]
    sim.run(14)
    late = [file.read_text() for file in files]
    assert early != late
    for file, text in zip(files, early, strict=True):
        file.write_text(text)
    oc.open(tmp_path / "run.oc")
    assert [file.read_text() for file in files] == early, "opening changes nothing"
    assert call(["verify", str(tmp_path / "run.oc")]) == 2
    assert call(["verify", "--repair", str(tmp_path / "run.oc")]) == 0
    assert [file.read_text() for file in files] == late


@pytest.mark.skipif(not (find_spec("zarr") and find_spec("xarray")), reason="needs zarr and xarray")
def test_several_boxes_are_groups_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks snapshots of two boxes, which are taken at different steps. Each box has the same bits as in a run with
    only this box. Python and xarray find a box by its name. Old metadata does not change the result. A power cut can
    leave such metadata. One call of the callback gets all boxes of a step."""
    import xarray

    boxes = [oc.Snapshots(7, box=BOX, time_units="s"), oc.Snapshots(5, box=(slice(3, 4),) * 3, name="spot")]
    alone = []
    for number, one in enumerate(boxes):
        sim = make(tmp_path / f"alone{number}.oc", snapshots=replace(one, name=""))
        sim.run(STEPS)
        alone.append(sim.snapshots["u"][:])
    sim, seen = make(tmp_path / "run.oc", snapshots=boxes), dict[int, list[str]]()
    sim.run(STEPS - 9, on_snapshot=lambda step, kept: seen.update({step: sorted(kept)}))
    (tmp_path / "run.oc" / "snapshots.zarr" / "zarr.json").write_text("{}")  # a power cut may leave such a file
    sim = oc.open(tmp_path / "run.oc")
    sim.run(9, on_snapshot=lambda step, kept: seen.update({step: sorted(kept)}))
    assert list(sim.snapshots) == ["u", "spot/u"]
    for name, group, values in zip(sim.snapshots, ("", "spot"), alone, strict=True):
        np.testing.assert_array_equal(sim.snapshots[name][:], values)
        for shown in (
            xarray.open_zarr(tmp_path / "run.oc" / "snapshots.zarr" / group),
            xarray.open_zarr(tmp_path / "run.oc" / "snapshots.zarr", group=group),
        ):
            np.testing.assert_array_equal(shown.u, values)
            np.testing.assert_array_equal(shown.step, sim.snapshots[name].steps)
    assert list(seen) == sorted({*range(0, STEPS + 1, 5), *range(0, STEPS + 1, 7)})
    assert (seen[0], seen[5], seen[7]) == (["spot/u", "u"], ["spot/u"], ["u"])
    assert call(["info", str(tmp_path / "run.oc")]) == 0
    text = capsys.readouterr().out
    assert "snapshots of u, 37 x 1 x 36 cells every 7 steps, 9 so far" in text
    assert "snapshots spot of u, 1 x 1 x 1 cells every 5 steps, 13 so far" in text


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("", ""), "at most one can be without a name"),
        (("a", "a"), "two have the name 'a'"),
        (("", "time"), "name 'time' is the name of a field or a coordinate"),
        (("", "u"), "name 'u' is the name of a field"),
        (("", "a/b"), "name 'a/b' must be letters"),
        (("", 5), "name 5 must be letters"),
    ],
)
def test_names_that_cannot_be_are_refused(names: tuple[str, str], words: str, tmp_path: Path) -> None:
    """Checks that wrong names of snapshots are refused: a name that is not valid, or the same name for two groups of
    snapshots. No run is made."""
    with pytest.raises(InputError, match=words):
        make(tmp_path / "run.oc", snapshots=[oc.Snapshots(5, name=name) for name in names])
    assert not (tmp_path / "run.oc").exists()


def test_a_movie_begins_with_the_initial_values(tmp_path: Path) -> None:
    """Checks that snapshot k belongs to step k * `every`. Snapshot 0 has the last values that were assigned before the
    first step.
    """
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


@pytest.mark.skipif(not (find_spec("zarr") and find_spec("xarray")), reason="needs zarr and xarray")
def test_xarray_shows_snapshots_with_coordinates(tmp_path: Path) -> None:
    """Checks that xarray shows named dimensions, and coordinates in metres, steps and seconds. Snapshots can be opened
    before the first step and during the run.
    """
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
    assert shown.x.attrs == {"long_name": "position along x", "axis": "X", "units": "m"}
    assert shown.time.attrs == {"long_name": "step multiplied by dt", "units": "s"}
    assert shown.step.attrs == {"long_name": "number of completed steps"}


def test_snapshots_that_have_no_room_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a run is refused before its first step if its snapshots do not fit on the disk. The error gives the
    size of the snapshots.
    """
    sim, room = make(tmp_path / "run.oc"), os.statvfs(tmp_path)
    few = SimpleNamespace(f_bavail=10, f_frsize=room.f_frsize, f_fsid=room.f_fsid)
    monkeypatch.setattr(os, "statvfs", lambda path: few)
    with pytest.raises(InputError, match="no space: 9 snapshots need"):
        sim.run(STEPS)
    assert sim.step == 0


@pytest.mark.parametrize("coarsen", [4, (1, 3, 2), [100, 1, 1]], ids=str)
def test_coarse_snapshots_are_means_of_the_cells(coarsen: Any, tmp_path: Path) -> None:
    """Checks that coarse snapshots have the means of the cells in plain snapshots. The means must have the bits of the
    oracle. This must hold after an interruption, and for every budget. A snapshot of one plane has groups of one
    plane."""
    along = (slice(None), slice(12, 13), slice(2, None))
    kept = [oc.Snapshots(7), oc.Snapshots(7, coarsen=coarsen, name="coarse"),
            oc.Snapshots(14, box=along, coarsen=coarsen, initial=False, name="along")]  # fmt: skip
    sim = make(tmp_path / "run.oc", snapshots=kept, memory="2MiB")
    sim.run(20)
    sim = oc.open(tmp_path / "run.oc")
    sim.run(STEPS - 20)
    group = [coarsen] * 3 if isinstance(coarsen, int) else coarsen
    whole = sim.snapshots["u"]
    coarse, section = sim.snapshots["coarse/u"], sim.snapshots["along/u"]
    assert coarse.shape[1:] == tuple(-(-n // cells) for n, cells in zip(whole.shape[1:], group, strict=True))
    for number, cells in enumerate(whole):
        np.testing.assert_array_equal(coarse[number], group_means(cells, group))
    assert section.steps.tolist() == [14, 28, 42, 56]
    for number, cells in enumerate(whole[2::2]):
        np.testing.assert_array_equal(section[number], group_means(cells[along], [group[0], 1, group[2]]))
    assert call(["verify", str(tmp_path / "run.oc")]) == 0


@pytest.mark.parametrize(("shape", "coarsen"), [((50,), 4), ((30, 41), 4), ((30, 41), (3, 1))], ids=str)
def test_coarse_snapshots_of_grids_with_fewer_axes(shape: tuple[int, ...], coarsen: Any, tmp_path: Path) -> None:
    """Checks that coarse snapshots have the right means on grids of one and two axes. The engine streams such grids as
    rows.
    """
    sim = oc.Simulation(
        oc.stencils.heat(ndim=len(shape)), shape, directory=tmp_path / "run.oc", memory="1MiB", dtype="float64",
        snapshots=[oc.Snapshots(2), oc.Snapshots(2, coarsen=coarsen, name="coarse")],
    )  # fmt: skip
    sim["u"] = np.random.default_rng(1).standard_normal(shape)
    sim.run(4)
    group = [coarsen] * len(shape) if isinstance(coarsen, int) else list(coarsen)
    for cells, means in zip(sim.snapshots["u"], sim.snapshots["coarse/u"], strict=True):
        right = group_means(cells.reshape(grid_shape(shape)), inside(group, 1))
        np.testing.assert_array_equal(means, right.reshape(means.shape))


@pytest.mark.skipif(not (find_spec("zarr") and find_spec("xarray")), reason="needs zarr and xarray")
def test_coarse_snapshots_have_the_centres_of_their_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the coordinates in xarray are the centres of the groups of cells, even of the smaller groups at the
    upper sides. `outcrop info` must show the numbers of means and cells."""
    import xarray

    box = (slice(4, 40), slice(None), slice(1, None))
    sim = make(tmp_path / "run.oc", snapshots=oc.Snapshots(7, box=box, coarsen=(8, 4, 5)), memory="900KiB")
    sim.run(20)
    shown = xarray.open_zarr(tmp_path / "run.oc" / "snapshots.zarr")
    assert shown.u.shape == (3, 5, 8, 8) and shown.u.attrs["coarsen"] == [8, 4, 5]
    np.testing.assert_allclose(shown.z, 100.0 + 10.0 * np.array([7.5, 15.5, 23.5, 31.5, 37.5]))
    np.testing.assert_allclose(shown.y[-2:], 10.0 * np.array([25.5, 28.5]))
    np.testing.assert_allclose(shown.x[-2:], -50.0 + 10.0 * np.array([33, 36]))
    np.testing.assert_array_equal(shown.u, sim.snapshots["u"][:])
    assert call(["info", str(tmp_path / "run.oc")]) == 0
    assert "snapshots of u, 8 x 8 x 5 means of 5 x 4 x 8 cells every 7 steps, 3 so far" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("coarsen", "words"),
    [
        (0, "coarsen 0: 0 must be at least 1"),
        (2.5, "coarsen 2.5: 2.5 must be a whole number"),
        ("4", "coarsen '4': '4' must be a whole number"),
        ((4, 4), "coarsen .4, 4. must be a whole number, or one for each axis: z, y, x"),
        ((4, True, 4), "True must be a whole number"),
        (None, "coarsen None: None must be a whole number"),
    ],
)
def test_wrong_groups_are_refused(coarsen: Any, words: str, tmp_path: Path) -> None:
    """Checks that wrong values of `coarsen` are refused before a run is made."""
    with pytest.raises(InputError, match=words):
        make(tmp_path / "run.oc", snapshots=oc.Snapshots(7, coarsen=coarsen))
    assert not (tmp_path / "run.oc").exists()


def test_coarse_snapshots_have_no_residuals(tmp_path: Path) -> None:
    """Checks that an adjoint run refuses residuals of means. The adjoint run needs a value for each cell."""
    sim = make(tmp_path / "run.oc", snapshots=oc.Snapshots(7, box=BOX, coarsen=2, name="side"), memory="900KiB")
    sim.run(14, history=oc.History("all"))
    with pytest.raises(InputError, match=r"'side/u'.*means of cells"):
        sim.adjoint({"side/u": np.ones(sim.snapshots["side/u"].shape)}, wrt="v", directory=tmp_path / "adjoint.oc")
