"""Check that a run continues with another number of ranks or with one process. The results must be identical, even if
ranks are killed at any time. Impossible moves must be refused.

OUTCROP_MOVE_KILLS is the number of kills in the test that moves runs repeatedly:

    OUTCROP_MOVE_KILLS=200 pytest -s tests/test_rank_move.py -k again_and_again
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
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
from outcrop.run.opening import open_run
from outcrop.run.places import open_state
from outcrop.run.ranks import move, part
from outcrop.run.ranks.group import RankGroup
from rank_processes import RankProcesses, at_call, die, ranks

CLI = (sys.executable, "-m", "outcrop.cli.main")
SHAPE = (15, 66, 21)
GIVEN = {"memory": "4MiB", "threads": 1, "sizes": {"bt": 2}}
SPEEDS = 1500 + 1000 * np.random.default_rng(4).random(SHAPE, "float32")
STEPS = 14
MOVE_KILLS = int(os.environ.get("OUTCROP_MOVE_KILLS", "5"))
ACQUISITION: dict[str, Any] = {
    "sources": oc.Source("u", [(7, 32.75, 10), (6.5, 20, 8)], np.random.default_rng(6).standard_normal((STEPS - 3, 2))),
    "receivers": [oc.Receivers("line", "u", [(7.5, y, 9) for y in np.arange(0, 65, 0.75)]),
                  oc.Receivers("early", "u", [(3, 21.5, 4), (3, 60, 4)], before=True)],
    "norms": oc.Norms(every=2, initial=True),
    "snapshots": [oc.Snapshots(every=3, initial=True), oc.Snapshots(every=4, name="side", box=np.s_[2:9, 11:30, 3:17]),
                  oc.Snapshots(every=4, name="coarse", coarsen=(2, 11, 5))],
}  # fmt: skip
"""Points near all cuts, snapshots that have no rows in some parts, and snapshots that move the cuts."""
Arrays = dict[str, np.ndarray]
Grid = str | tuple[int, int]


def begin(
    where: object, group: RankGroup | None = None, stencil: str = "acoustic8", grid: Grid = "auto"
) -> oc.Simulation:
    """Begin a run with sources, receivers, norms and snapshots. One field has previous values, and one field is only
    read. `grid` has the numbers of parts along y and z."""
    given: dict[str, Any] = {"shape": SHAPE, "steps": STEPS, **GIVEN, **ACQUISITION}
    sim = oc.Simulation(stencil, directory=where, comm=group, ranks=grid, **given)
    sim.assign({"u": "gaussian", "v": SPEEDS})
    return sim


def arrays_of(sim: oc.Simulation) -> Arrays:
    """Return all values of the whole grid, and all traces, norms and snapshots."""
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


def begins(group: RankGroup, where: object, steps: int, stencil: str = "acoustic8", grid: Grid = "auto") -> Any:
    """Begin a run on several ranks, and compute some steps."""
    sim = begin(where, group, stencil, grid)
    sim.run(steps, progress="none")
    return sim.step


def prepare(moment: str) -> None:
    """Let this process kill itself in the given step of a move."""
    (KILLS | TO_RANKS | TO_ONE)[moment][1]()


def goes_on(
    group: RankGroup, where: object, steps: int, kill: tuple[str, int] | None = None, grid: Grid = "auto"
) -> Any:
    """Open a run and compute some steps. `kill` is a pair: the moment of the kill, and the rank that is killed."""
    if kill is not None and group.rank == kill[1]:
        prepare(kill[0])
    sim = oc.open(where, comm=group, ranks=grid)
    if steps != 0:
        sim.run(steps, progress="none")
    return sim.step, sim.rows, arrays_of(sim), sim.planes


def goes_on_alone(group: RankGroup, where: object, steps: int, kill: str = "") -> Any:
    """Open a run with one process, and compute some steps. `kill` is the step of a move in which the process kills
    itself, or ""."""
    if kill:
        prepare(kill)
    sim = oc.open(where)
    sim.run(steps, progress="none")
    return sim.step, sim.rows, arrays_of(sim)


def require_same(found: list[Any], expected: Arrays) -> None:
    """Check that all ranks have reached the last step and have read the expected values."""
    for one in found:
        assert isinstance(one, tuple) and one[0] == STEPS, one
        for name, values in expected.items():
            assert one[2][name].tobytes() == values.tobytes(), name


def names_in(where: Path) -> list[str]:
    """Return the directories of parts."""
    return sorted(one.name for one in where.iterdir() if one.name.startswith("rank-"))


@pytest.mark.parametrize("place", ["run.oc", "disk-{rank}/run.oc"])
def test_a_run_goes_on_with_other_numbers_of_ranks(tmp_path: Path, expected: Arrays, place: str) -> None:
    """Runs some steps with 3, then 2, then 4, then 3 ranks. The ranks share a directory, or each rank has its own
    directory. No old files may remain."""
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


@pytest.mark.parametrize("place", ["run.oc", "disk-{rank}/run.oc"])
def test_one_process_and_ranks_go_on_with_each_others_runs(tmp_path: Path, expected: Arrays, place: str) -> None:
    """Runs some steps with one process, then 3 ranks, one process, and 2 ranks. No old files may remain, and the
    remaining files must be a complete run."""
    where, alone = tmp_path / place, Path(str(tmp_path / place).replace("{rank}", "0"))
    begin(alone).run(4, progress="none")
    found = ranks(3, goes_on, where, 3)
    assert [one[0] for one in found] == [7] * 3, found
    assert (where / "zarr.json").exists() == (place == "run.oc")  # the Zarr group of all parts
    assert call(["verify", str(where), "--quiet"]) == 0
    sim = oc.open(where)
    assert sim.step == 7
    sim.run(3, progress="none")
    assert sim.step == 10 and sim.rows == (0, SHAPE[1]) and sim.directory == alone
    assert call(["verify", str(alone), "--quiet"]) == 0
    assert not names_in(alone) and "whole.moving" not in os.listdir(alone)
    assert {one for one in tmp_path.glob("*/*") if one.suffix == ".oc"} <= {alone}
    kept = tmp_path / "kept.oc"
    shutil.copytree(alone, kept, symlinks=True)
    require_same([goes_on_alone(None, kept, STEPS - 10)], expected)  # type: ignore[arg-type]
    require_same(ranks(2, goes_on, where, STEPS - 10), expected)
    assert call(["verify", str(where), "--quiet"]) == 0
    if place == "run.oc":
        assert names_in(where) == ["rank-0", "rank-1"] and not (where / "manifest.json").exists()
        assert not any(one.startswith("whole") for one in os.listdir(where))


@pytest.fixture(scope="module")
def expected_of_acoustic2(tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    """Return the values of a run of one process after STEPS steps, with a stencil of radius 1. Parts of this run can
    have few planes."""
    sim = begin(tmp_path_factory.mktemp("alone") / "run.oc", stencil="acoustic2")
    sim.run(progress="none")
    return arrays_of(sim)


MOVES: list[tuple[int, Grid, tuple[int, int]]] = [
    (4, (2, 2), (2, 2)), (4, (4, 1), (4, 1)), (3, "auto", (3, 1)), (4, (1, 4), (1, 4)), (4, "auto", (1, 4)),
    (1, "auto", (1, 1)), (2, (1, 2), (1, 2)),
]  # fmt: skip
"""The number of ranks, the given numbers of parts along y and z, and the numbers of parts after the move. Without given
numbers, the same number of ranks keeps its parts."""


@pytest.mark.parametrize("place", ["run.oc", "disk-{rank}/run.oc", "{node}/run.oc"])
def test_parts_along_z_move(tmp_path: Path, expected_of_acoustic2: Arrays, place: str) -> None:
    """Checks moves from and to grids that are cut along z, also with the same number of ranks. With `{node}`, a node
    cannot see the disks of other nodes. Ranks then send planes and records to each other."""
    where, has_nodes = tmp_path / place, "node" in place
    moves = [*MOVES[:3], MOVES[6]] if has_nodes else MOVES
    for turn, (size, grid, parts) in enumerate(moves):
        steps = 2 if turn < len(moves) - 1 else STEPS - 2 * turn
        program: Any = partial(goes_on, grid=grid) if turn else partial(begins, stencil="acoustic2", grid=grid)
        program = goes_on_alone if size == 1 else program
        found = (
            ranks(size, on_nodes, where, steps, [0, 1, 0, 1][:size], program) if has_nodes
            else ranks(size, program, where, steps)
        )  # fmt: skip
        assert all(isinstance(one[0] if turn else one, int) for one in found), found
        if turn and size > 1:
            assert (len({one[1] for one in found}), len({one[3] for one in found})) == parts
    require_same(found, expected_of_acoustic2)
    if place == "run.oc":
        assert names_in(where) == ["rank-0", "rank-1"]
        assert call(["verify", str(where), "--quiet"]) == 0
    else:
        assert sorted(one.name for one in tmp_path.glob("*/*")) == ["run.oc", "run.oc"]


def on_nodes(group: RankGroup, where: object, steps: int, nodes: list[int], program: Callable[..., Any]) -> Any:
    """Run a program as if each rank were on the given node. A node cannot see the disks of other nodes."""
    group.places = [replace(one, host=f"n{node}", node=node) for one, node in zip(group.places, nodes, strict=True)]
    original, own = part.part_at, f"/n{nodes[group.rank]}/"

    def part_at(place: Any, end: str, finder: int) -> Any:
        return original(place, end, finder) if own in str(place.final) else None

    part.part_at = move.part_at = part_at
    return program(group, where, steps)


def test_rows_move_between_nodes_without_a_shared_file_system(tmp_path: Path, expected: Arrays) -> None:
    """Checks that a rank that can read a part sends the rows, points and values of this part to the other ranks, even
    to ranks on nodes without a part. If no rank can read a part, the error must report this part as missing."""
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
    return partial(at_call, kind, name, count, before=True)


def after(kind: Any, name: str, count: int) -> Callable[[], None]:
    return partial(at_call, kind, name, count)


KILLS: dict[str, tuple[int, Callable[[], None]]] = {
    "before the copy": (1, before(move, "_copy", 0)),
    "after the copy": (0, after(move, "_copy", 0)),
    "before the commit": (1, before(State, "commit", 0)),
    "after the commit": (0, after(State, "commit", 0)),
    "between renames of old parts": (0, after(move, "_rename", 1)),
    "before renames of new parts": (1, before(move, "_rename", 0)),
    "after the rename of one new part": (1, after(move, "_rename", 0)),
    "after renames of new parts": (0, after(move, "_rename", 3)),
    "before the removal": (0, before(move, "_remove", 0)),
    "in the removal": (0, after(move, "clear", 1)),
    "after the removal": (0, after(move, "_remove", 2)),
}
"""A dictionary from each step of a move to the rank that is killed and a function that prepares the kill."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of three ranks. One rank has committed one pass more than the other ranks."""
    where = tmp_path_factory.mktemp("three") / "run.oc"
    ranks(3, begins, where, 4)
    commit_one_pass_more(where)
    return where


def commit_one_pass_more(where: Path) -> None:
    """Commit a pass on rank 1 only, with wrong values. All ranks must go back to the previous pass."""
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


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of 4x1 ranks. One rank has committed one pass more than the other ranks."""
    where = tmp_path_factory.mktemp("four") / "run.oc"
    ranks(4, partial(begins, stencil="acoustic2"), where, 4)
    commit_one_pass_more(where)
    return where


@pytest.mark.parametrize("moment", KILLS)
def test_a_kill_during_the_move_loses_nothing(three: Path, tmp_path: Path, expected: Arrays, moment: str) -> None:
    """Kills a rank in each step of a move from 3 to 2 ranks. The next start may have any number of ranks. This start
    must give identical results and delete incomplete files."""
    is_killed_in_move(three, tmp_path / "run.oc", 2, "auto", moment, KILLS[moment][0])
    goes_on_after_kill(tmp_path / "run.oc", 2 + list(KILLS).index(moment) % 3, "auto", expected)


NEXT_GRIDS: list[tuple[int, Grid]] = [(4, (4, 1)), (4, (1, 4)), (4, "auto"), (3, "auto"), (1, "auto"), (4, (2, 2))]
"""The next number of ranks after a kill, and the next grid."""


@pytest.mark.parametrize("moment", KILLS)
def test_a_kill_during_a_move_to_another_grid_loses_nothing(
    four: Path, tmp_path: Path, expected_of_acoustic2: Arrays, moment: str
) -> None:
    """Kills a rank in each step of a move from 4x1 to 2x2 ranks. The old parts and the new parts have the same names.
    The next start may have the old grid, the new grid, another grid or another number of ranks."""
    is_killed_in_move(four, tmp_path / "run.oc", 4, (2, 2), moment, KILLS[moment][0])
    goes_on_after_kill(tmp_path / "run.oc", *NEXT_GRIDS[list(KILLS).index(moment) % 6], expected_of_acoustic2)


def is_killed_in_move(run: Path, where: Path, size: int, grid: Grid, moment: str, killed: int) -> None:
    """Copy a run to `where`, and kill a rank while the copy moves to `size` ranks."""
    shutil.copytree(run, where, symlinks=True)
    found = ranks(size, goes_on, where, 0, (moment, killed), grid)
    assert found[killed] is None, found
    assert all(one[:2] == ("CommunicationError", f"rank {killed} has gone") for one in found if one is not None), found


def goes_on_after_kill(where: Path, size: int, grid: Grid, expected: Arrays) -> None:
    """Complete a run that was killed in a move, and check that no other parts are left."""
    program: Any = partial(goes_on, grid=grid) if size > 1 else goes_on_alone
    require_same(ranks(size, program, where, STEPS - 4), expected)
    assert names_in(where) == ([f"rank-{rank}" for rank in range(size)] if size > 1 else [])
    assert call(["verify", str(where), "--quiet"]) == 0


TO_RANKS: dict[str, tuple[int, Callable[[], None]]] = {
    "to ranks, after the copy": (1, after(move, "_copy", 0)),
    "to ranks, after the commit": (0, after(State, "commit", 0)),
    "to ranks, after the old run has left": (0, after(move, "_rename", 0)),
    "to ranks, between renames of new parts": (1, before(move, "_rename", 0)),
    "to ranks, before the removal": (0, before(move, "_remove", 0)),
    "to ranks, in the removal": (0, after(move, "clear", 1)),
}
TO_ONE: dict[str, tuple[int, Callable[[], None]]] = {
    "to one, after the copy": (0, after(move, "_copy", 0)),
    "to one, after the commit": (0, after(State, "commit", 0)),
    "to one, between renames of old parts": (0, after(move, "_rename", 1)),
    "to one, before the new run arrives": (0, after(move, "_rename", 2)),
    "to one, when the new run has arrived in part": (0, after(move, "_rename", 7)),
    "to one, before the manifest arrives": (0, after(move, "_rename", 12)),
    "to one, in the removal": (0, after(move, "_remove", 0)),
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of one process."""
    where = tmp_path_factory.mktemp("one") / "run.oc"
    begin(where).run(4, progress="none")
    return where


@pytest.mark.parametrize("moment", TO_RANKS)
def test_a_kill_during_a_move_from_one_process_loses_nothing(
    alone: Path, tmp_path: Path, expected: Arrays, moment: str
) -> None:
    """Kills a rank in each step of a move to 2 ranks. The next start, with one process or several ranks, must complete
    the run."""
    where, killed = tmp_path / "run.oc", TO_RANKS[moment][0]
    shutil.copytree(alone, where, symlinks=True)
    found = ranks(2, goes_on, where, 0, (moment, killed))
    assert found[killed] is None and found[1 - killed][:2] == ("CommunicationError", f"rank {killed} has gone"), found
    goes_on_with_any_number(where, (list(TO_RANKS).index(moment) + 2) % 3, expected)


@pytest.mark.parametrize("moment", TO_ONE)
def test_a_kill_during_a_move_to_one_process_loses_nothing(
    three: Path, tmp_path: Path, expected: Arrays, moment: str
) -> None:
    """Kills a rank in each step of a move from 3 ranks. One rank has committed one pass more than the other ranks."""
    where = tmp_path / "run.oc"
    shutil.copytree(three, where, symlinks=True)
    (found,) = ranks(1, goes_on_alone, where, 1, moment)
    assert found is None, found
    goes_on_with_any_number(where, list(TO_ONE).index(moment) % 3, expected)


def goes_on_with_any_number(where: Path, turn: int, expected: Arrays) -> None:
    """Complete a run with one process, 3 ranks or 2 ranks, and check that no other files are left."""
    size = (1, 3, 2)[turn]
    goes_on_after_kill(where, size, "auto", expected)
    assert (where / "manifest.json").exists() == (size == 1)
    assert not any(one.startswith("whole") for one in os.listdir(where))


def is_killed_and_goes_on(group: RankGroup, where: Path, size: int, steps: int, kill: Any, grid: Grid) -> Any:
    """Continue with `size` ranks or one process. `kill` is a rank, and the step or the time at which it is killed.
    `grid` has the numbers of parts along y and z."""
    if kill is not None and group.rank == kill[0]:
        if isinstance(kill[1], float):
            threading.Timer(kill[1], die).start()
        else:
            (MOMENTS_OF_RANKS | TO_ONE)[kill[1]][1]()
    sim = oc.open(where, comm=group if size > 1 else None, ranks=grid)
    first = sim.step
    if left := min(steps, STEPS - first):
        sim.run(left, progress="none")
    return first, sim.step, arrays_of(sim) if sim.step == STEPS else None


MOMENTS_OF_RANKS = {
    **KILLS,
    "at the beginning of a pass": (0, before(State, "begin_writing", 1)),
    "before the commit of a pass": (0, before(State, "commit", 1)),
    "after the commit of a pass": (0, after(State, "commit", 1)),
}


GRIDS: dict[int, list[Grid]] = {1: ["auto"], 2: [(1, 2), (2, 1)], 3: [(1, 3), "auto"], 4: [(2, 2), (4, 1), (1, 4)]}
"""Numbers of parts along y and z, for each number of ranks."""


def test_runs_that_are_killed_and_move_again_and_again_have_the_same_bits(
    tmp_path: Path, expected: Arrays, expected_of_acoustic2: Arrays
) -> None:
    """Kills ranks at random moments, and in steps of moves and commits. The number of ranks may change at each start.
    No committed step may be lost. Every second run also changes the grid of its ranks."""
    chance = random.Random(int(os.environ.get("OUTCROP_SEED", "9")))
    kills = runs = turn = 0
    while kills < MOVE_KILLS:
        where, size, reached, is_cut_along_z = tmp_path / str(runs), 1, 2, runs % 2 == 0
        results = expected_of_acoustic2 if is_cut_along_z else expected
        begin(where, stencil="acoustic2" if is_cut_along_z else "acoustic8").run(reached, progress="none")
        while reached < STEPS:
            size = (max(2, size), chance.choice([one for one in (2, 3, 4) if one != size]), 1)[turn % 3]
            killed, moments = chance.randrange(size), [*(MOMENTS_OF_RANKS if size > 1 else TO_ONE)]
            moment = chance.choice([chance.uniform(0, 1.5), *chance.sample(moments, 3)])
            kill = (killed, moment) if kills < MOVE_KILLS and chance.random() < 0.8 else None
            grid = chance.choice(GRIDS[size]) if is_cut_along_z else "auto"
            started = RankProcesses(size, is_killed_and_goes_on, where, size, chance.randint(2, 5), kill, grid)
            found, turn = started.results, turn + 1
            kills += any(one.exitcode == -signal.SIGKILL for one in started.processes)
            for one in found:
                assert one is None or isinstance(one[0], int) or one[1].startswith(f"rank {killed} has gone"), found
            steps = [one for one in found if one is not None and isinstance(one[0], int)]
            assert all(one[0] >= reached for one in steps), f"step {reached} was lost: {found}"
            reached = max([reached, *(one[1] for one in steps)])
            if len(steps) == size and reached == STEPS:
                require_same([(STEPS, None, one[2]) for one in steps], results)
        require_same([(STEPS, None, arrays_of(oc.open(where)))], results)
        runs += 1
    print(f"\n{kills} kills in {turn} starts of {runs} runs")


def has_no_space(group: RankGroup, where: Path) -> Any:
    """Open a run as if the disk of rank 1 were full."""
    if group.rank == 1:
        move.os = SimpleNamespace(path=os.path, listdir=os.listdir, statvfs=lambda path: os.statvfs_result([1] * 10))
    return oc.open(where, comm=group).step


def test_a_move_that_cannot_be_done_changes_nothing(three: Path, tmp_path: Path) -> None:
    """Checks the errors for too many ranks, a full disk and unknown files. One rank prints one line. No run changes."""
    where = tmp_path / "run.oc"
    shutil.copytree(three, where, symlinks=True)
    found = ranks(2, has_no_space, where)
    assert all("move to 2 ranks, the run needs" in one[1] and "same grid of ranks as before" in one[1] for one in found)
    assert [one[2] for one in found] == [True, False]
    (where / "rank-3").mkdir()
    (where / "rank-3" / "mine").touch()
    found = ranks(4, goes_on, where, 0)
    assert all("rank-3 holds something that is not a part of this run; move it away" in one[1] for one in found), found
    shutil.rmtree(where / "rank-3")
    assert names_in(where) == ["rank-0", "rank-1", "rank-2"]
    assert oc.open(where).step == 4


def refusals(group: RankGroup, places: list[Path]) -> list[str]:
    """Return the error messages of ranks that refuse to open runs."""
    found = []
    for where in places:
        with pytest.raises(InputError) as raised:
            oc.open(where, comm=group)
        found.append(str(raised.value))
    return found


def test_ranks_refuse_runs_of_one_process_that_they_cannot_compute(alone: Path, three: Path, tmp_path: Path) -> None:
    """Checks the one-line errors for a run that cannot move, for a full disk, and for two runs in one directory. No
    file may change."""
    given: dict[str, dict[str, Any]] = {
        "history": {}, "in place": {"in_place": True}, "sides": {}, "overlapped": {"scheme": "overlapped"},
        "flat": {"shape": (30, 30)}, "means": {"snapshots": oc.Snapshots(2, coarsen=(1, 30, 1))},
    }  # fmt: skip
    for name, options in given.items():
        place = [tmp_path / name, tmp_path / "more"] if name == "sides" else tmp_path / name
        flat = name == "flat"
        one = {"shape": (15, 30, 21), "directory": place, "memory": "4MiB", "threads": 1} | options
        sim = oc.Simulation("heat4_2d" if flat else "heat7", **one)
        sim.run(2, progress="none", history="all" if name == "history" else None)
    both = tmp_path / "both"
    shutil.copytree(alone, both, symlinks=True)
    for rank in range(3):
        shutil.copytree(three / f"rank-{rank}", both / f"rank-{rank}", symlinks=True)
    places = [tmp_path / name for name in given] + [both]
    before = {one: sorted(os.listdir(one)) for one in places}
    said = (
        "cannot have a history yet; go on without mpirun", "cannot have a run in place yet",
        "cannot have several directories yet", "scheme overlapped cannot divide the grid among ranks",
        "cannot have a grid of fewer than three axes yet", "because no part ends inside a group of 30 of a coarse",
        "holds a run of one process, and also the parts of 3 ranks; move one of them away",
    )  # fmt: skip
    for texts in ranks(2, refusals, places):
        assert all(one in text for one, text in zip(said, texts, strict=True)), texts
    assert {one: sorted(os.listdir(one)) for one in places} == before


def test_one_process_refuses_a_move_that_it_cannot_do(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks the errors for a full disk, an existing name, and a part on another node. The run must not change."""
    where = tmp_path / "run.oc"
    shutil.copytree(three, where, symlinks=True)
    before = sorted(os.listdir(where))
    with monkeypatch.context() as patch:
        patch.setattr(move, "os", SimpleNamespace(statvfs=lambda path: os.statvfs_result([1] * 10)))
        with pytest.raises(InputError, match="no space: to move to 1 rank, the run needs"):
            oc.open(where).run(1, progress="none")
    assert sorted(os.listdir(where)) == before
    (where / "v" / "mine").touch()  # in the folder of the Zarr group of the parts
    with pytest.raises(InputError, match="v is something else; move it away"):
        oc.open(where).run(1, progress="none")
    (where / "v" / "mine").unlink()
    (where / "rank-1").rename(tmp_path / "rank-1")
    with pytest.raises(InputError, match=r"rank 1 of 3 is missing; copy all parts to one .*: outcrop gather"):
        oc.open(where)
    (tmp_path / "rank-1").rename(where / "rank-1")
    assert sorted(os.listdir(where)) == before and oc.open(where).step == 4


@pytest.mark.parametrize("name", ["snapshots.zarr/u/c/1/0/0/0", ".taps/trace-line", ".taps/receivers-0"])
def test_damaged_records_do_not_move(three: Path, tmp_path: Path, name: str) -> None:
    """Damages a snapshot, a trace or a file of points of one part. Checks that the damaged file is not copied, and that
    the run does not change."""
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
    """Checks `--force` after a kill in a move: it must replace the old run, even if its new parts are complete."""
    where = tmp_path / "run.oc"
    shutil.copytree(three, where, symlinks=True)
    ranks(2, goes_on, where, 0, ("before renames of new parts", 1))
    assert {"rank-0.moved", "rank-1.moving", "rank-2.moved"} <= set(names_in(where))
    with pytest.raises(InputError, match="its rows were moving to other ranks: outcrop resume"):
        open_run(where, {}, reads_only=True)
    assert ranks(2, forces, where) == [0, 0]
    assert ranks(2, forces, where, False) == [2, 2]
    assert names_in(where) == ["rank-0", "rank-1"]


def forces(group: RankGroup, where: Path, is_new: bool = True) -> Any:
    """Replace the run, or continue it."""
    if not is_new:
        sim = oc.open(where, comm=group)
        sim.run(2, progress="none")
        return sim.step
    sim = oc.Simulation("heat7", shape=SHAPE, directory=where, comm=group, steps=4, force=True, **GIVEN)
    sim["u"] = 1.0
    return sim.step


@pytest.mark.mpi
def test_outcrop_resume_goes_on_with_fewer_ranks_and_with_one_process(tmp_path: Path) -> None:
    """Checks the command with and without mpirun. The results must be identical to the results of one process."""
    launcher()
    parts, alone = tmp_path / "parts", tmp_path / "alone.oc"
    words = ["heat7", "-n", "20", "36", "12", "--memory", "4MiB", "--init", "random:3"]
    assert mpirun(3, *CLI, "run", *words, "-t", "4", "-d", str(parts), "--quiet").returncode == 0
    done = mpirun(2, *CLI, "resume", str(parts), "-t", "4")
    assert done.returncode == 0 and done.stdout.count("4 steps in") == 1, done.stderr
    subprocess.run([*CLI, "resume", str(parts), "-t", "2", "--memory", "8MiB", "--quiet"], check=True)
    assert not names_in(parts) and oc.open(parts).step == 10
    done = mpirun(2, *CLI, "resume", str(parts), "-t", "2")
    assert done.returncode == 0 and done.stdout.count("2 steps in") == 1, done.stderr
    assert names_in(parts) == ["rank-0", "rank-1"]
    subprocess.run([*CLI, "run", *words, "-t", "12", "-d", str(alone), "--quiet"], check=True)
    np.testing.assert_array_equal(oc.open(parts)["u"][:], oc.open(alone)["u"][:])
