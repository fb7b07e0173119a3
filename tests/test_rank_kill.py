"""Kill a rank in each step of a commit. Check that the other ranks end, and that no committed pass is lost.

The runs have deep halos or split tiling, with one block or several blocks of rows on each rank, or parts along z.
OUTCROP_RANK_KILLS is the number of kills. One kill in twenty happens in each of the steps of a commit. The other kills
happen at random moments. Another test kills ranks while all ranks read the grid, with a third of this number of kills:

    OUTCROP_RANK_KILLS=200 pytest -s tests/test_rank_kill.py
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy

import outcrop as oc
from outcrop import durable
from outcrop.durable import Directory
from outcrop.run.acquisition.recorder import Recorder
from outcrop.run.disk import replacement
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder
from outcrop.run.engine import Engine
from outcrop.run.places import open_state
from outcrop.run.ranks import links
from outcrop.run.ranks.agreement import Agreement
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.links import RankPeers
from rank_processes import RankProcesses, at_call, die, ranks

KILLS = int(os.environ.get("OUTCROP_RANK_KILLS", "10"))
SECONDS_TO_END = 30
SHAPE = (23, 62, 31)
STEPS = 40
GIVEN = {"memory": "4MiB", "threads": 1}
KINDS: list[dict[str, Any]] = [
    {"scheme": "wavefront", "sizes": {"bt": 5}},
    {"scheme": "split", "sizes": {"bt": 5}},
    {"scheme": "wavefront", "sizes": {"bt": 5, "by": 6}},
    {"scheme": "split", "sizes": {"bt": 3, "by": 4}},
    {"scheme": "wavefront", "sizes": {"bt": 5}, "ranks": (1, 3)},
]
"""Deep halos and split tiling, each with one block and with three blocks of rows in a rank, and parts along z."""
RANKS = 3
SPEEDS = 1500 + 1000 * np.random.default_rng(4).random(SHAPE, "float32")


CUT = [21, 42]
"""The first rows of ranks 1 and 2. Rank 2 has fewer rows than the others."""


def acquisition() -> dict[str, Any]:
    """Return a source and receivers near the cuts, norms and snapshots."""
    near = [(11.5, cut + offset, 12.25) for cut in CUT for offset in (-6, -0.5, 0, 0.5, 3.75, 9)]
    return {
        "sources": oc.Source("u", near[1:2], np.random.default_rng(5).standard_normal(STEPS)),
        "receivers": oc.Receivers("line", "u", near),
        "norms": oc.Norms(every=3, initial=True),
        "snapshots": oc.Snapshots(every=10, initial=True, box=np.s_[3:20, 10:45, :]),
    }


def when_named(name: str, count: int) -> None:
    """Let this process kill itself when it has created the temporary file `name`, but not at the first `count`
    times."""
    original = durable.Directory.create
    calls = iter(range(count))

    def create(self: Any, path: str, *given: Any, **named: Any) -> None:
        original(self, path, *given, **named)
        if path == name and next(calls, None) is None:
            die()

    durable.Directory.create = create  # type: ignore[method-assign]


STEPS_OF_COMMIT: dict[str, Callable[[int, float], None]] = {
    "before the passes, while neighbours connect": lambda count, later: at_call(links, "connect", 0, before=True),
    "at the beginning of the pass": lambda count, later: at_call(State, "begin_writing", count + 1),
    "in the pass": lambda count, later: at_call(Engine, "run_pass", count, later=later),
    "in the exchange of samples": lambda count, later: at_call(RankPeers, "pass_up", count + 1),
    "after the records": lambda count, later: at_call(Recorder, "after", count + 1),
    "after the flush": lambda count, later: at_call(State, "commit", count + 1, before=True),
    "before the rename": lambda count, later: when_named("manifest.json.tmp", count + 2),
    "after the rename": lambda count, later: at_call(RunFolder, "store", count + 2),
    "before the exchange": lambda count, later: at_call(State, "commit", count + 1),
    "while others compute": lambda count, later: at_call(Agreement, "begin", count, before=True, later=5 * later),
    "in the exchange": lambda count, later: at_call(Agreement, "begin", count, later=later / 10),
    "after the exchange": lambda count, later: at_call(Agreement, "wait", 2 * count + 2),
}
IN_EACH_STEP = max(1, KILLS // 20)
AT_RANDOM = max(2, KILLS - IN_EACH_STEP * len(STEPS_OF_COMMIT))


def computes(
    group: RankGroup, where: Path, is_begun: bool, kill: tuple[int, str, int, float] | None, options: dict[str, Any]
) -> Any:
    """Begin the run, or continue it if `is_begun` is true. `kill` has four values: the rank, a key of STEPS_OF_COMMIT,
    the number of the pass, and the time from the start of the pass to the kill. `options` are options of the new
    run."""
    (where.parent / f"joined-{group.rank}").touch()
    if kill is not None and group.rank == kill[0]:
        STEPS_OF_COMMIT[kill[1]](kill[2], kill[3])
    if is_begun:
        sim = oc.open(where, comm=group)
        if sim.remaining_steps:
            sim.run(progress="none")
    else:
        given = {**GIVEN, **acquisition(), **options}
        sim = oc.Simulation("acoustic2", shape=SHAPE, directory=where, comm=group, steps=STEPS, **given)
        sim.assign({"u": "gaussian", "v": SPEEDS})
        sim.run(progress="none")
    return results_of(sim)


def results_of(sim: oc.Simulation) -> Any:
    """Return the step, the values, the snapshots, the trace, and the norms of a run, for the whole grid."""
    return sim.step, sim["u"][:], sim["u.previous"][:], sim.snapshots["u"][:], sim.traces["line"], sim.norms["u"]


def require_told(found: list[Any], killed: int) -> None:
    """Check that exactly one of the other ranks reports that the rank `killed` has gone."""
    assert found[killed] is None
    left = [one for rank, one in enumerate(found) if rank != killed]
    assert all(isinstance(one[0], str) and one[0] == "CommunicationError" for one in left), left
    assert all(one[1].startswith(f"rank {killed} has gone") for one in left), left
    assert [one[2] for one in left].count(False) == 1, left


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the results of a run of one process."""
    where = tmp_path_factory.mktemp("alone") / "run.oc"
    sim = oc.Simulation("acoustic2", shape=SHAPE, directory=where, steps=STEPS, **GIVEN, **acquisition())
    sim.assign({"u": "gaussian", "v": SPEEDS})
    sim.run(progress="none")
    return results_of(sim)


def require_same(found: list[Any], expected: Any) -> None:
    """Check that all ranks are at the last step, and that the results are identical to those of one process."""
    assert [one[0] for one in found] == [STEPS] * RANKS, found
    for one in found:
        for mine, right in zip(one[1:], expected[1:], strict=True):
            np.testing.assert_array_equal(mine, right)


@pytest.mark.parametrize("place", STEPS_OF_COMMIT)
def test_a_rank_can_be_killed_in_each_step_of_a_commit(undisturbed: Any, tmp_path: Path, place: str) -> None:
    """Checks that the other ranks end within 30 s and name the killed rank. The next start must continue from the
    generation that all ranks have."""
    chance, first = random.Random(place), list(STEPS_OF_COMMIT).index(place)
    kills = 0
    for number in range(10 * IN_EACH_STEP):
        where, killed, count = tmp_path / str(number), number % RANKS, chance.randrange(STEPS // 5 - 1)
        options = KINDS[(first + number) % len(KINDS)]
        begin = time.monotonic()
        found = ranks(RANKS, computes, where, False, (killed, place, count, chance.uniform(0, 0.02)), options)
        assert time.monotonic() - begin < SECONDS_TO_END
        if not isinstance(found[killed], tuple):  # if it is a tuple, the pass ended before the kill
            kills += 1
            require_told(found, killed)
            generations = {open_state(where / f"rank-{rank}").manifest.generation for rank in range(RANKS)}
            assert max(generations) - min(generations) <= 1
            require_same(ranks(RANKS, computes, where, True, None, {}), undisturbed)
        else:
            require_same(found, undisturbed)
        if kills == IN_EACH_STEP:
            break
    print(f"\n{place}: {kills} kills")


def test_runs_that_are_killed_again_and_again_have_the_same_bits(undisturbed: Any, tmp_path: Path) -> None:
    """Checks kills of random ranks at random moments, from the start to the last commit. No committed step is lost."""
    chance = random.Random(int(os.environ.get("OUTCROP_SEED", "8")))
    kills = runs = 0
    while kills < AT_RANDOM:
        where, reached, options = tmp_path / str(runs), 0, KINDS[runs % len(KINDS)]
        while True:
            joined = [tmp_path / f"joined-{rank}" for rank in range(RANKS)]
            for one in joined:
                one.unlink(missing_ok=True)
            started = RankProcesses(RANKS, computes, where, committed_steps(where) is not None, None, options)
            killed, kills_now = chance.randrange(RANKS), kills < AT_RANDOM
            if kills_now:
                while not all(one.exists() for one in joined):  # the launcher, not the run, handles earlier kills
                    time.sleep(0.001)
                started.processes[killed].join(chance.uniform(0, 1.5))
                started.kill(killed)
            begin = time.monotonic()
            found = started.results
            assert time.monotonic() - begin < SECONDS_TO_END or not kills_now, (killed, options, found)
            kills += started.processes[killed].exitcode == -signal.SIGKILL
            if found[killed] is None and isinstance(found[killed - 1][0], str):
                require_told(found, killed)
            steps = committed_steps(where)
            if steps is not None:
                assert min(steps) >= reached, f"step {reached} was lost: {steps}"
                reached = min(steps)
            if all(not isinstance(one, str) and one is not None and not isinstance(one[0], str) for one in found):
                require_same(found, undisturbed)
                break
        runs += 1
    print(f"\nat random moments: {kills} kills in {runs} runs")


def committed_steps(where: Path) -> list[int] | None:
    """Return the committed step of each rank, or None if not all ranks have values."""
    try:
        states = [open_state(where / f"rank-{rank}") for rank in range(RANKS)]
    except oc.errors.OutcropError:
        return None
    return [one.manifest.step for one in states] if all(one.has_values for one in states) else None


def reads_until_killed(group: RankGroup, where: Path, killed: int, later: float) -> None:
    """Read the whole grid repeatedly, until a rank is gone. The rank `killed` is killed after `later` seconds."""
    sim = oc.open(where, comm=group)
    if group.rank == killed:
        threading.Timer(later, die).start()
    while True:
        sim["u"][:], sim.snapshots["u"][:]


def test_a_rank_can_be_killed_while_all_ranks_read_the_grid(tmp_path: Path) -> None:
    """Checks that the other ranks end and name the killed rank. In a read, each rank receives rows and sends rows."""
    where, chance = tmp_path / "run.oc", random.Random(3)
    ranks(RANKS, computes, where, False, None, KINDS[0])
    for number in range(max(3, KILLS // 3)):
        killed = number % RANKS
        require_told(ranks(RANKS, reads_until_killed, where, killed, chance.uniform(0, 0.2)), killed)


COSINES = oc.Stencil("cosines", {
    oc.Field("u"): oc.Field("u")[0, 0, 0] / 2 + sympy.cos(oc.Field("a")[0, 0, 0]) * oc.Field("v")[0, 1, 0] / 4,
    oc.Field("v"): oc.Field("v")[0, 0, 0] + oc.Field("u")[0, -1, 0] / 8,
})  # fmt: skip
"""A stencil with a field that is only read, and with a function of this field that runs compute once."""


def writes_in_place(group: RankGroup | None, where: Path, kill: tuple[int, str, int] | None) -> Any:
    """Begin or continue a run whose field `a` gets values twice before the first step. `kill` is the rank, the method
    of `State` after which it is killed, and the number of the call. Return the final values, and the values of `a` with
    which this program began, or None."""
    if kill is not None and group is not None and group.rank == kill[0]:
        at_call(State, kill[1], kill[2])
    found = None
    if is_begun := kill is None and group is not None:
        sim = oc.open(where, comm=group)
        if "a" in sim.reader().manifest.filled:
            found = sim["a"][:]
    else:
        given = {**GIVEN, "steps": 4, "functions": "once", "unstable": True}
        sim = oc.Simulation(COSINES, SHAPE, directory=where, comm=group, **given)
        sim["u"] = SPEEDS
    for number in [2] if is_begun else [1, 2]:
        if not sim.step:
            sim["a"] = number * SPEEDS
    if sim.remaining_steps:
        sim.run(sim.remaining_steps, progress="none")
    return sim["v"][:], found


WRITES = [("begin_filling", number) for number in range(5)] + [("end_filling", number) for number in range(4)]
"""Arrays get values five times: `u` first, `a` twice, then `v` gets zeros, and the cosine of `a` is computed."""


def test_a_rank_can_be_killed_while_arrays_are_written_in_place(tmp_path: Path) -> None:
    """Checks that the next start works, although some arrays have values on one rank only. The values of `a` are never
    those of the first assignment on one rank, and those of the second assignment on the other rank."""
    expected, _ = writes_in_place(None, tmp_path / "alone", None)
    for number, write in enumerate(WRITES):
        where, killed = tmp_path / str(number), number % 2
        require_told(ranks(2, writes_in_place, where, (killed, *write)), killed)
        if write == ("begin_filling", 0):  # the run has no values yet, so it begins again
            assert [one[0] for one in ranks(2, writes_in_place, where, None)] == ["InputError"] * 2
            continue
        for values, found in ranks(2, writes_in_place, where, None):
            np.testing.assert_array_equal(values, expected)
            assert found is None or any(np.array_equal(found, np.float32(one) * SPEEDS) for one in (1, 2)), write


def replaces_a_run(group: RankGroup, where: Path, factor: float, kill: tuple[int, str, bool] | None) -> Any:
    """Replace a run by a run with other values, and return the step and the values. `kill` is the rank, the step of the
    replacement in which it is killed, and whether the kill is before this step."""
    if kill is not None and group.rank == kill[0]:
        kind = State if kill[1] == "commit" else replacement if kill[1] == "_replace" else Directory
        at_call(kind, kill[1], 1 if kind is Directory else 0, before=kill[2])
    sim = oc.Simulation("heat7", SHAPE, directory=where, comm=group, steps=4, force=True, **GIVEN)
    # values of a function can come from the old run, so the old run stays until all values are written
    sim["u"] = lambda z0, z1: np.float32(factor) * SPEEDS[z0:z1]
    return opened(group, where)


def opened(group: RankGroup, where: Path) -> Any:
    return oc.open(where, comm=group)["u"][:]


@pytest.mark.parametrize("step", ["commit", "_replace", "move"])
def test_a_rank_can_be_killed_while_a_run_is_replaced(tmp_path: Path, step: str) -> None:
    """Checks that all ranks have the old run afterwards, or that all ranks have the new run. `move` is the second
    rename of a file in the replacement."""
    for number, before in enumerate([True, False]):
        where = tmp_path / str(number)
        (old, *_) = ranks(2, replaces_a_run, where, 1, None)
        require_told(ranks(2, replaces_a_run, where, 2, (number, step, before)), number)
        for found in ranks(2, opened, where):
            assert isinstance(found, np.ndarray), found
            np.testing.assert_array_equal(found, old if step == "commit" else 2 * old)
        for found in ranks(2, replaces_a_run, where, 3, None):
            np.testing.assert_array_equal(found, 3 * old)
        assert not list(where.glob("rank-*/.new-run"))
