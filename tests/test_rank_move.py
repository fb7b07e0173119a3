"""Check that a run goes on with another number of ranks: the same bits, kills at any moment, and what is refused."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from mpi_programs import launcher, mpirun
from outcrop.cli.main import call
from outcrop.errors import InputError
from outcrop.run.disk.acquisition_files import fill_up
from outcrop.run.disk.state import State
from outcrop.run.places import open_state
from outcrop.run.ranks import move
from outcrop.run.ranks.group import RankGroup
from rank_processes import at_call, ranks

CLI = (sys.executable, "-m", "outcrop.cli.main")
SHAPE = (15, 66, 21)
GIVEN = {"memory": "4MiB", "threads": 1, "sizes": {"bt": 2}}
SPEEDS = 1500 + 1000 * np.random.default_rng(4).random(SHAPE, "float32")
STEPS = 14
ACQUISITION: dict[str, Any] = {
    "sources": oc.Source("u", [(7, 32.75, 10), (6.5, 20, 8)], np.random.default_rng(6).standard_normal((STEPS - 3, 2))),
    "receivers": [oc.Receivers("line", "u", [(7.5, y, 9) for y in np.arange(0, 65, 0.75)]),
                  oc.Receivers("early", "u", [(3, 21.5, 4), (3, 60, 4)], before=True)],
    "norms": oc.Norms(every=2, initial=True),
    "snapshots": [oc.Snapshots(every=3, initial=True), oc.Snapshots(every=4, name="side", box=np.s_[2:9, 11:30, 3:17])],
}  # fmt: skip
"""Points near all cuts, and snapshots of which some parts have no rows."""
Arrays = dict[str, np.ndarray]


def begin(where: object, group: RankGroup | None = None) -> oc.Simulation:
    """Begin a run with sources, receivers, norms and snapshots, a field that has previous values, and a field that is
    only read."""
    sim = oc.Simulation("acoustic8", shape=SHAPE, directory=where, comm=group, steps=STEPS, **GIVEN, **ACQUISITION)
    sim.assign({"u": "gaussian", "v": SPEEDS})
    return sim


def arrays_of(sim: oc.Simulation) -> Arrays:
    """Return all values of the whole grid, and all records."""
    found = {name: sim[name][:] for name in ("u", "u.previous", "v")}
    found |= {name: sim.traces[name] for name in ("line", "early")}
    found |= {f"snapshots {name}": np.asarray(view) for name, view in sim.snapshots.items()}
    return found | {"norms": sim.norms["u"]}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    """Return the values of a run of one process after STEPS steps."""
    sim = begin(tmp_path_factory.mktemp("alone") / "run.oc")
    sim.run(progress="none")
    return arrays_of(sim)


def begins(group: RankGroup, where: object, steps: int) -> Any:
    """Begin a run on several ranks, and compute some steps."""
    sim = begin(where, group)
    sim.run(steps, progress="none")
    return sim.step


def goes_on(group: RankGroup, where: object, steps: int, kill: tuple[str, int] | None = None) -> Any:
    """Open a run and compute some steps. `kill` has a key of KILLS and a rank."""
    if kill is not None and group.rank == kill[1]:
        KILLS[kill[0]][1]()
    sim = oc.open(where, comm=group)
    if steps != 0:
        sim.run(steps, progress="none")
    return sim.step, sim.rows, arrays_of(sim)


def require_same(found: list[Any], expected: Arrays) -> None:
    """Check the values that all ranks have read at the last step."""
    for one in found:
        assert isinstance(one, tuple) and one[0] == STEPS, one
        for name, values in expected.items():
            assert one[2][name].tobytes() == values.tobytes(), name


def names_in(where: Path) -> list[str]:
    """Return the directories of parts."""
    return sorted(one.name for one in where.iterdir() if one.name.startswith("rank-"))


@pytest.mark.parametrize("place", ["run.oc", "disk-{rank}/run.oc"])
def test_a_run_goes_on_with_other_numbers_of_ranks(tmp_path: Path, expected: Arrays, place: str) -> None:
    """Checks 3, 2, 4 and 3 ranks with steps in between, in one directory and in a directory for each rank. No old
    files are left."""
    where = tmp_path / place
    assert ranks(3, begins, where, 4) == [4] * 3
    for size, steps, after in ((2, 2, 6), (4, 4, 10), (3, 4, STEPS)):
        found = ranks(size, goes_on, where, steps)
        assert [one[0] for one in found] == [after] * size, found
        assert [one[1][1] for one in found][-1] == SHAPE[1]
    require_same([*found, (STEPS, None, arrays_of(oc.open(where)))], expected)
    if place == "run.oc":
        assert names_in(where) == ["rank-0", "rank-1", "rank-2"]
    else:
        assert [list((tmp_path / f"disk-{rank}").iterdir()) for rank in range(4)] == [
            *([tmp_path / f"disk-{rank}" / "run.oc"] for rank in range(3)), []
        ]  # fmt: skip
    assert call(["verify", str(where), "--quiet"]) == 0


def on_nodes(group: RankGroup, where: object, steps: int, nodes: list[int], program: Callable[..., Any]) -> Any:
    """Run a program as if the ranks were on the given nodes, whose disks other nodes cannot see."""
    group.places = [replace(one, host=f"n{node}", node=node) for one, node in zip(group.places, nodes, strict=True)]
    original, own = move._part_at, f"/n{nodes[group.rank]}/"

    def part_at(path: Path, finder: int) -> Any:
        return original(path, finder) if own in str(path) else None

    move._part_at = part_at  # type: ignore[assignment]
    return program(group, where, steps)


def test_rows_move_between_nodes_without_a_shared_file_system(tmp_path: Path, expected: Arrays) -> None:
    """Checks that rows, points and values are sent by a rank that sees them, also to a node without a part, and that a
    part that no rank sees is missing."""
    where = tmp_path / "{node}" / "run.oc"
    assert ranks(3, on_nodes, where, 4, [0, 0, 1], begins) == [4] * 3
    for nodes, steps in (([0, 1], 2), ([1, 2, 0, 1], 8)):
        found = ranks(len(nodes), on_nodes, where, steps, nodes, goes_on)
        assert all(isinstance(one[0], int) for one in found), found
    require_same(found, expected)
    for node, names in ((0, ["rank-2"]), (1, ["rank-0", "rank-3"]), (2, ["rank-1"])):
        assert names_in(tmp_path / f"n{node}" / "run.oc") == names
    found = ranks(2, on_nodes, where, 0, [0, 0], goes_on)
    assert all("the parts of ranks 0, 1, 3 of 4 cannot be found; start ranks on all" in one[1] for one in found), found


def before(kind: Any, name: str, count: int) -> Callable[[], None]:
    return lambda: at_call(kind, name, count, before=True)


def after(kind: Any, name: str, count: int) -> Callable[[], None]:
    return lambda: at_call(kind, name, count)


KILLS: dict[str, tuple[int, Callable[[], None]]] = {
    "before the copy": (1, before(move, "_copy", 0)),
    "after the copy": (0, after(move, "_copy", 0)),
    "before the commit": (1, before(State, "commit", 0)),
    "after the commit": (0, after(State, "commit", 0)),
    "between renames of old parts": (0, after(move, "_rename", 1)),
    "before renames of new parts": (1, before(move, "_rename", 0)),
    "after renames of new parts": (0, after(move, "_rename", 3)),
    "before the removal": (0, before(move, "_remove", 0)),
    "in the removal": (0, after(move, "clear", 1)),
    "after the removal": (0, after(move, "_remove", 2)),
}
"""For each moment: the rank that is killed, and a function that prepares it."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of three ranks of which one has committed a pass that the others have not."""
    where = tmp_path_factory.mktemp("three") / "run.oc"
    ranks(3, begins, where, 4)
    state = open_state(where / "rank-1")
    with state.locked():
        state.begin_writing()
        for name in state.manifest.own_taps.records(0):
            fill_up(state.records, replace(state.manifest, step=6), name)
        for name in ("u", "u.previous"):
            with state.target_planes(name, 1 - state.manifest.current) as planes:
                planes.fill(lambda z0, z1: np.zeros((z1 - z0, *state.layout.shape[1:]), "float32"))
                planes.flush()
        state.commit(6)
    return where


@pytest.mark.parametrize("moment", KILLS)
def test_a_kill_during_the_move_loses_nothing(three: Path, tmp_path: Path, expected: Arrays, moment: str) -> None:
    """Checks kills in all steps of a move from 3 to 2 ranks: the next start goes on with any number of ranks, with the
    same bits, and removes what the kill has left."""
    where, killed = tmp_path / "run.oc", KILLS[moment][0]
    shutil.copytree(three, where, symlinks=True)
    found = ranks(2, goes_on, where, 0, (moment, killed))
    assert found[killed] is None and found[1 - killed][:2] == ("CommunicationError", f"rank {killed} has gone"), found
    size = 2 + list(KILLS).index(moment) % 3
    require_same(ranks(size, goes_on, where, STEPS - 4), expected)
    assert names_in(where) == [f"rank-{rank}" for rank in range(size)]


def has_no_space(group: RankGroup, where: Path) -> Any:
    """Open a run as if the disk of rank 1 were full."""
    if group.rank == 1:
        move.os = SimpleNamespace(path=os.path, listdir=os.listdir, statvfs=lambda path: os.statvfs_result([1] * 10))
    return oc.open(where, comm=group).step


def test_a_move_that_cannot_be_done_changes_nothing(three: Path, tmp_path: Path) -> None:
    """Checks too many ranks, a full disk and foreign files: one line on one rank, and the run is as before."""
    where = tmp_path / "run.oc"
    shutil.copytree(three, where, symlinks=True)
    found = ranks(2, has_no_space, where)
    assert all("no space: to move to 2 ranks, the run needs" in one[1] for one in found), found
    assert [one[2] for one in found] == [True, False]
    (where / "rank-3").mkdir()
    (where / "rank-3" / "mine").touch()
    found = ranks(4, goes_on, where, 0)
    assert all("rank-3 holds something that is not a part of this run; move it away" in one[1] for one in found), found
    shutil.rmtree(where / "rank-3")
    assert names_in(where) == ["rank-0", "rank-1", "rank-2"]
    assert oc.open(where).step == 4


@pytest.mark.parametrize("name", ["snapshots.zarr/u/c/1/0/0/0", ".taps/trace-line", ".taps/receivers-0"])
def test_damaged_records_do_not_move(three: Path, tmp_path: Path, name: str) -> None:
    """Checks that a damaged snapshot, trace or file of points of one part is not copied, and that the run is as
    before."""
    where = tmp_path / "run.oc"
    shutil.copytree(three, where, symlinks=True)
    part = where / ("rank-0" if "receivers" in name else "rank-1")
    with open(part / name, "r+b") as file:
        file.seek(40)
        file.write(b"damaged")
    found = ranks(2, goes_on, where, 0)
    assert all(f"{name} is damaged" in one[1] and one[0] == "CorruptionError" for one in found), found
    assert names_in(where) == ["rank-0", "rank-1", "rank-2"]


def test_a_new_run_is_not_replaced_by_parts_of_an_old_move(three: Path, tmp_path: Path) -> None:
    """Checks that `--force` after a kill in the move wins over the complete new parts of the older run."""
    where = tmp_path / "run.oc"
    shutil.copytree(three, where, symlinks=True)
    ranks(2, goes_on, where, 0, ("before renames of new parts", 1))
    assert {"rank-0.moved", "rank-1.moving", "rank-2.moved"} <= set(names_in(where))
    with pytest.raises(InputError, match="its rows were moving to other ranks: mpirun -n N outcrop resume"):
        oc.open(where)
    assert ranks(2, forces, where) == [0, 0]
    assert ranks(2, forces, where, False) == [2, 2]
    assert names_in(where) == ["rank-0", "rank-1"]


def forces(group: RankGroup, where: Path, is_new: bool = True) -> Any:
    """Replace the run, or go on with it."""
    if not is_new:
        sim = oc.open(where, comm=group)
        sim.run(2, progress="none")
        return sim.step
    sim = oc.Simulation("heat7", shape=SHAPE, directory=where, comm=group, steps=4, force=True, **GIVEN)
    sim["u"] = 1.0
    return sim.step


def test_outcrop_resume_goes_on_with_fewer_ranks(tmp_path: Path) -> None:
    """Checks the command under mpirun, whose result has the bits of one process."""
    launcher()
    parts, alone = tmp_path / "parts", tmp_path / "alone.oc"
    words = ["heat7", "-n", "20", "36", "12", "--memory", "4MiB", "--init", "random:3"]
    assert mpirun(3, *CLI, "run", *words, "-t", "4", "-d", str(parts), "--quiet").returncode == 0
    done = mpirun(2, *CLI, "resume", str(parts), "-t", "4")
    assert done.returncode == 0 and done.stdout.count("4 steps in") == 1, done.stderr
    subprocess.run([*CLI, "run", *words, "-t", "8", "-d", str(alone), "--quiet"], check=True)
    np.testing.assert_array_equal(oc.open(parts)["u"][:], oc.open(alone)["u"][:])
