"""Check the Python interface. Users assign values, compute steps, read results, and open runs again."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from oracle import advance
from outcrop.errors import BudgetError, CorruptionError, InputError, StorageError
from outcrop.run.disk.planes import Planes
from outcrop.run.places import open_state

SHAPE = (20, 12, 17)
HEAT = oc.stencils.heat(ndim=3)


def make_run(where: Path, **options: object) -> oc.Simulation:
    simulation = oc.Simulation(HEAT, SHAPE, directory=where, **{"memory": "1MiB", "threads": 2, **options})  # type: ignore[arg-type]
    simulation["u"] = np.random.default_rng(5).random(SHAPE)
    return simulation


def start() -> np.ndarray:
    return np.random.default_rng(5).random(SHAPE).astype("float32")


@pytest.mark.parametrize("in_place", [False, True])
def test_the_result_is_the_oracle_s_over_several_runs_and_openings(tmp_path: Path, in_place: bool) -> None:
    simulation = make_run(tmp_path / "run.oc", in_place=in_place, memory="64KiB")
    simulation.run(steps=7, progress="none")
    simulation.run(steps=2, progress="none")
    again = oc.open(tmp_path / "run.oc")
    assert (again.step, again.remaining_steps, again.shape) == (9, 0, SHAPE)
    report = again.run(steps=3, progress="none")
    expected = advance(HEAT, start(), {}, 12)
    assert np.array_equal(again["u"][...], expected)
    assert np.array_equal(simulation["u"][...], expected), "an older object must see the newer state"
    assert (report.steps, report.step) == (3, 12)


def test_parameters_and_the_user_s_own_stencil_are_kept(tmp_path: Path) -> None:
    """Checks that a run stores its parameters and its stencil, so that it can be continued without its script."""
    u, k = oc.Field("u"), oc.Parameter("k", 0.1)
    mine = oc.Stencil("drift", {u: u[0, 0, 0] + k * (u[0, 0, -2] - u[0, 0, 0])})
    simulation = oc.Simulation(mine, SHAPE, "float64", tmp_path / "run.oc", memory="1MiB", params={"k": 0.3})
    values = np.random.default_rng(5).random(SHAPE)
    simulation["u"] = values
    simulation.run(steps=2, progress="none")
    again = oc.open(tmp_path / "run.oc")
    again.run(steps=2, progress="none")
    assert np.array_equal(again["u"][...], advance(mine, values, {"k": 0.3}, 4))


def test_a_run_without_values_starts_from_zeros(tmp_path: Path) -> None:
    simulation = oc.Simulation(HEAT, SHAPE, directory=tmp_path / "run.oc", memory="1MiB")
    assert not (tmp_path / "run.oc").exists()
    with pytest.raises(InputError, match="assign sim"):
        simulation["u"]
    simulation.run(steps=1, progress="none")
    assert not simulation["u"][...].any()


INDICES = [
    0, -1, np.int64(3), ..., slice(None), slice(3, 9), slice(None, None, 5), slice(15, 3, -4), slice(9, 3),
    (4, 5, 6), (slice(None), 3), (..., 2), (2, ..., 1), (slice(2, 4), slice(1, 7, 2), slice(None, None, -1)),
]  # fmt: skip


KILLED_AT_ITS_VALUES = """
import os, sys
import outcrop as oc
sim = oc.Simulation("heat7", (12, 12, 12), directory=sys.argv[1])
sim["u"] = lambda z0, z1: os._exit(9)
"""


def test_an_opened_run_without_values_does_not_begin_with_zeros(tmp_path: Path) -> None:
    """Checks a run whose process was killed while the initial values were written. The run must not start from
    zeros."""
    where = tmp_path / "run.oc"
    assert subprocess.run([sys.executable, "-c", KILLED_AT_ITS_VALUES, str(where)]).returncode == 9
    opened = oc.open(where)
    with pytest.raises(InputError, match=r"has no values of u: .*start it again"):
        opened.run(3, progress="none")
    assert oc.open(where).step == 0
    opened["u"] = "gaussian"
    assert opened.run(3, progress="none").step == 3


def test_indexing_is_numpy_s(tmp_path: Path) -> None:
    view, array = make_run(tmp_path / "run.oc")["u"], start()
    for index in INDICES:
        assert np.array_equal(view[index], array[index]), index
        assert np.shape(view[index]) == np.shape(array[index]), index
    assert np.array_equal(np.asarray(view), array)
    assert len(view) == 20 and view.dtype == array.dtype
    for wrong in (20, -21, (0, 12), (0, 0, 0, 0), "z", 1.5, [1, 2]):
        with pytest.raises(IndexError):
            view[wrong]


def test_what_another_process_overwrites_meanwhile_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that a read never mixes planes of two generations. Checksums do not detect such a mixture."""
    simulation = make_run(tmp_path / "run.oc")
    other = oc.open(tmp_path / "run.oc")
    groups, calls = Planes.groups, iter(range(100))

    def interrupted(self: Planes, z0: int, z1: int) -> Iterator[tuple[int, np.ndarray]]:
        for z in range(z0, z1):
            if z == 10 and next(calls) == 0:
                monkeypatch.setattr(Planes, "groups", groups)
                other["u"] = 1  # this assignment writes the copy that is not being read
                other["u"] = 2  # this assignment writes the copy that is being read
                monkeypatch.setattr(Planes, "groups", interrupted)
            yield from groups(self, z, z + 1)

    monkeypatch.setattr(Planes, "groups", interrupted)
    assert (simulation["u"][...] == 2).all()


def test_a_pass_in_place_by_another_process_is_not_taken_for_a_lost_one(tmp_path: Path) -> None:
    make_run(tmp_path / "run.oc", in_place=True)
    running, looking = open_state(tmp_path / "run.oc"), oc.open(tmp_path / "run.oc")
    with running.locked():
        running.begin_writing()
        with pytest.raises(InputError, match="in use by another process"):
            looking["u"][0]
    with pytest.raises(StorageError, match="state was lost"):
        looking["u"][0]


def test_new_values_replace_the_old_ones_as_a_transaction(tmp_path: Path) -> None:
    simulation = make_run(tmp_path / "run.oc")
    simulation.run(steps=3, progress="none")
    before = simulation["u"][...]

    def breaks(z0: int, z1: int) -> np.ndarray:
        if z1 > 10:
            raise RuntimeError("the user's own")
        return np.ones((z1 - z0, *SHAPE[1:]))

    with pytest.raises(RuntimeError):
        simulation["u"] = breaks
    assert np.array_equal(simulation["u"][...], before)
    simulation["u"] = 2
    assert (simulation["u"][...] == 2).all()


def test_values_that_fail_at_the_start_leave_nothing_behind(tmp_path: Path) -> None:
    """Checks that wrong initial values leave no new files and folders, and do not change existing files."""
    simulation = oc.Simulation(HEAT, SHAPE, directory=tmp_path / "deep" / "run.oc", memory="1MiB")
    for wrong in (np.ones((3, 3, 3)), lambda z0, z1: np.ones((1, 1)), lambda z0, z1: 1 / 0):
        with pytest.raises((InputError, ZeroDivisionError)):
            simulation["u"] = wrong
        assert not list(tmp_path.iterdir())
    simulation["u"] = 1
    assert (simulation["u"][3] == 1).all()


def test_a_second_run_in_a_directory_needs_force(tmp_path: Path) -> None:
    make_run(tmp_path / "run.oc").run(steps=1, progress="none")
    with pytest.raises(InputError, match="force=True"):
        make_run(tmp_path / "run.oc")
    assert make_run(tmp_path / "run.oc", force=True).step == 0


def test_values_that_fail_do_not_cost_the_older_run(tmp_path: Path) -> None:
    make_run(tmp_path / "run.oc").run(steps=1, progress="none")
    before = oc.open(tmp_path / "run.oc")["u"][...]

    def fail_at_the_end(z0: int, z1: int) -> np.ndarray[Any, Any]:
        if z1 == SHAPE[0]:
            raise OSError("the tape is torn")
        return np.ones((z1 - z0, *SHAPE[1:]))

    with pytest.raises(OSError, match="torn"):
        oc.Simulation(HEAT, SHAPE, directory=tmp_path / "run.oc", memory="1MiB", force=True)["u"] = fail_at_the_end
    assert oc.open(tmp_path / "run.oc").step == 1 and np.array_equal(oc.open(tmp_path / "run.oc")["u"][...], before)


def test_directories_given_relatively_and_moved_runs_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("run.oc")).run(steps=1, progress="none")
    Path("run.oc").rename("moved.oc")
    moved = oc.open("moved.oc")
    moved.run(steps=1, progress="none")
    assert np.array_equal(moved["u"][...], advance(HEAT, start(), {}, 2))


def test_several_directories_share_a_run(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    simulation = make_run(places)  # type: ignore[arg-type]
    simulation.run(steps=5, progress="none")
    assert open_state(places[0]).layout.shards > 1
    assert np.array_equal(oc.open(places[0])["u"][...], advance(HEAT, start(), {}, 5))
    (places[1] / ".u.1").rename(places[1] / "elsewhere")
    with pytest.raises(StorageError, match="No such file"):
        oc.open(places[0])


def test_damage_is_found_by_reading_and_by_running(tmp_path: Path) -> None:
    simulation = make_run(tmp_path / "run.oc")
    state = open_state(tmp_path / "run.oc")
    shard, offset = state.layout.locate(13)
    with open(str(state.current_files_of("u")[shard]), "r+b") as file:
        file.seek(offset + 5)
        file.write(b"\xff\xff")
    assert np.array_equal(simulation["u"][:13], start()[:13])
    for attempt in (lambda: simulation["u"][13], lambda: simulation.run(steps=3, progress="none")):
        with pytest.raises(CorruptionError, match="plane 13"):
            attempt()
    assert oc.open(tmp_path / "run.oc").step == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stencil": "heat9"}, "heat7"),
        ({"shape": (0, 3, 3)}, "at least 1"),
        ({"shape": (3, 3)}, "three axes"),
        ({"dtype": "int32"}, "float32 and float64"),
        ({"dtype": "nonsense"}, "float32 and float64"),
        ({"memory": "much"}, "512MiB"),
        ({"memory": "0"}, "positive"),
        ({"memory": -5}, "positive"),
        ({"threads": 0}, "at least 1"),
        ({"scheme": "magic"}, "wavefront"),
        ({"scheme": "split"}, "cannot run on one rank"),
        ({"scheme": "skewed", "stencil": "acoustic4"}, "the scheme supports only one field"),
        ({"scheme": "overlapped", "in_place": True}, "cannot run in place"),
        ({"scheme": "naive", "shape": (20, 100, 17), "memory": "80KiB"}, "at least 108 KiB"),
        ({"io": "tape"}, "io_uring"),
        ({"boundary": "open"}, "fixed, mirror, periodic"),
        ({"boundary": "w=mirror"}, "there are z, y, x"),
        ({"boundary": "x=fixed:periodic"}, "periodic on both sides"),
        ({"params": {"c7": 1.0}}, "kappa"),
        ({"params": {"c0": float("nan")}}, "finite"),
        ({"directory": []}, "directory"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_made(tmp_path: Path, options: dict[str, object], words: str) -> None:
    good: dict[str, object] = {"stencil": HEAT, "shape": SHAPE, "directory": tmp_path / "run.oc", "memory": "1MiB"}
    with pytest.raises(InputError, match=words):
        oc.Simulation(**{**good, **options})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_budget_too_small_names_the_smallest_that_works(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match=r"at least (\d+) KiB") as refused:
        make_run(tmp_path / "run.oc", memory="4KiB")
    smallest = int(str(refused.value).split("at least ")[1].split()[0])
    make_run(tmp_path / "run.oc", memory=f"{smallest}KiB").run(steps=2, progress="none")
    with pytest.raises(BudgetError):
        make_run(tmp_path / "other.oc", memory=f"{smallest - 1}KiB")


def test_a_run_can_be_opened_if_its_only_values_could_not_be_replaced(tmp_path: Path) -> None:
    """Checks new values of a static field that cannot be read completely. No other array of the run has values."""
    where, given = tmp_path / "run.oc", {"memory": "1MiB", "threads": 1}
    sim = oc.Simulation("acoustic2", SHAPE, directory=where, **given)
    sim["v"] = 1500.0

    def damaged(z0: int, z1: int) -> np.ndarray:
        raise OSError("no such plane")

    with pytest.raises(OSError, match="no such plane"):
        sim["v"] = damaged
    sim = oc.open(where)
    with pytest.raises(InputError, match=r"acoustic2 reads v, which has no values; assign sim\['v'\]"):
        sim.run(2, progress="none")
    sim["v"] = 1600.0
    assert sim.run(2, progress="none").steps == 2


def test_a_run_that_is_being_created_is_not_opened(tmp_path: Path) -> None:
    """Checks the messages about two kinds of runs. Another process is making the files of the run, or such a process
    has ended and has left an incomplete run."""
    where = tmp_path / "run.oc"
    make_run(where)
    state = open_state(where)
    state.change(phase="new", filled={}, current=1)
    (where / ".u.1" / "c" / "0" / "0" / "0").unlink()
    with state.locked(check=False):
        for use in (oc.open, lambda place: Path(oc.export(place, tmp_path / "a.zarr").target)):
            with pytest.raises(InputError, match=r"run\.oc is being created by another process; wait until it has val"):
                use(where)
    with pytest.raises(StorageError, match="No such file"):
        oc.open(where)


def test_the_report_has_the_promised_keys_and_true_bytes(tmp_path: Path) -> None:
    simulation = make_run(tmp_path / "run.oc")
    report = simulation.run(steps=6, progress="none")
    report.save(tmp_path / "report.json")
    saved = json.loads((tmp_path / "report.json").read_text())
    promised = {
        *("stencil", "shape", "dtype", "steps", "scheme", "io", "threads", "memory_budget_bytes", "memory_peak_bytes"),
        *("seconds", "cell_updates_per_second", "bytes_read", "bytes_written", "seconds_read_wait"),
        *("seconds_write_wait", "seconds_update", "seconds_commit", "plan", "predicted"),
    }
    assert not promised - saved.keys()
    assert {"seconds", "bytes_read", "bytes_written", "memory_bytes"} <= saved["predicted"].keys()
    assert saved["bytes_read"] == saved["predicted"]["bytes_read"] > 0
    assert saved["bytes_written"] == saved["predicted"]["bytes_written"] > 0
    assert saved["memory_peak_bytes"] > saved["window_bytes"] == saved["predicted"]["memory_bytes"]
    assert "measured" in str(report) and "predicted" in str(report)
