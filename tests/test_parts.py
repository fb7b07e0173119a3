"""Check the parts of ranks on disk: the cut, initial values, the return to the previous generation, and errors."""

import os
from dataclasses import astuple, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from manifests import make_manifest
from outcrop.errors import InputError, StorageError
from outcrop.plan.machine import StorageRates
from outcrop.run import engine
from outcrop.run.disk.entries import BeforeEntry, PartEntry
from outcrop.run.disk.manifest import parse_manifest
from outcrop.run.disk.verify import find_damage
from outcrop.run.joint_plan import machine_for
from outcrop.run.places import open_state
from outcrop.run.ranks.agreement import agree
from outcrop.run.ranks.group import RankGroup
from outcrop.run.setup import reopen
from outcrop.tiers import measure, update_rate
from rank_processes import ranks

SHAPE = (11, 50, 13)
VALUES = np.random.default_rng(3).random(SHAPE, dtype="float32")


def simulation(group: Any, where: object, **options: Any) -> oc.Simulation:
    """Return a simulation of heat7 on SHAPE."""
    given = {"shape": SHAPE, "memory": "4MiB", "steps": 8, **options}
    return oc.Simulation("heat7", directory=where, comm=group, **given)


def assigns(group: RankGroup, where: Path, values: object) -> Any:
    """Assign values to all rows, and return the rows of this rank."""
    sim = simulation(group, where)
    sim["u"] = VALUES if values is None else values
    return sim.rows, sim.shape, sim["u"][:, slice(*sim.rows)]


@pytest.mark.parametrize("values", [None, "gaussian", "random:7", 2.5])
def test_each_rank_keeps_its_rows_of_the_whole_grid(tmp_path: Path, values: object) -> None:
    """Checks that the parts have the same initial values as one process, for every source of values."""
    alone = oc.Simulation("heat7", shape=SHAPE, directory=tmp_path / "alone", memory="4MiB", steps=8)
    alone["u"] = VALUES if values is None else values
    found = ranks(3, assigns, tmp_path / "parts", values)
    ends = [rows for rows, _, _ in found]
    assert ends[0][0] == 0 and ends[-1][1] == SHAPE[1] and [end for _, end in ends[:-1]] == [one for one, _ in ends[1:]]
    assert all(shape == SHAPE for _, shape, _ in found)
    np.testing.assert_array_equal(np.concatenate([part for _, _, part in found], axis=1), alone["u"][:])
    for rank in range(3):
        state = open_state(tmp_path / "parts" / f"rank-{rank}")
        assert not find_damage(state).damage
        assert reopen(state.path, {}, reads_only=True).description.part == state.manifest.part


def cuts(group: RankGroup, where: str, options: dict[str, Any]) -> Any:
    """Return the rows of this rank in a new run, the rows of this rank after the run is opened again, and the
    scheme."""
    sim = simulation(group, where, shape=(16, 246, 64), **options)
    sim["u"] = "random:1"
    sim.run()
    return sim.rows, oc.open(where, comm=group).rows, sim.plan(8).plan.scheme


@pytest.mark.parametrize(
    ("options", "moved"),
    [
        ({"scheme": "split", "steps": 4, "sizes": {"bt": 6}}, 5 // 2),
        ({"scheme": "split", "sizes": {"bt": 6}, "boundary": "y=periodic"}, 0),
    ],
)
def test_ranks_that_share_updates_have_a_cut_of_equal_work(
    tmp_path: Path, options: dict[str, Any], moved: int
) -> None:
    """Checks the cut of a new run in which each rank has its own directory. On average over the levels, a rank also
    updates some rows above its own rows. Each place of the cut must be lower by this number of rows than with equal
    parts. The run must store the cut."""
    found = ranks(3, cuts, str(tmp_path / "part-{rank}"), options)
    places = [0, 82 - moved, 164 - moved, 246]
    assert [one[0] for one in found] == [one[1] for one in found] == list(pairwise(places)), found
    assert {one[2] for one in found} == {options["scheme"]}


def chosen_cut(group: RankGroup, where: str, scheme: str) -> Any:
    """Return the rows of this rank, and the chosen scheme and steps of a pass."""
    sim = simulation(group, where, shape=(64, 246, 64), steps=40, memory=f"{2 + group.rank}MiB", scheme=scheme)
    plan = sim.plan().plan
    return sim.rows, plan.scheme, plan.sizes.levels, plan.sizes.slab


@pytest.mark.parametrize("scheme", ["split", "auto"])
def test_the_cut_is_for_the_steps_that_all_ranks_choose(tmp_path: Path, scheme: str) -> None:
    """Checks ranks with different amounts of memory. The cut is made for a certain number of steps in a pass. Without
    measurements, the plan must have this number of steps."""
    found = ranks(3, chosen_cut, str(tmp_path / "part-{rank}"), scheme)
    assert len({one[1:] for one in found}) == 1, found
    rows, (_, chosen, levels, _) = [one[0] for one in found], found[0]
    assert [end for _, end in rows[:-1]] == [first for first, _ in rows[1:]]
    middle = rows[1][1] - rows[1][0]
    moved = (middle - (rows[0][1] - rows[0][0]), rows[2][1] - rows[2][0] - middle)
    assert moved[0] == moved[1] and (moved[0] > 0) == (chosen == "split")
    if chosen == "split":
        assert moved[0] == (levels + 1) // 2
    assert list(tmp_path.iterdir()) == []


def measures(group: RankGroup, where: Path, disks: list[str]) -> Any:
    """Return the figures of this rank's disk. A substitute records which disks would be measured, and measures nothing.
    `disks` has the name of the disk of each rank."""
    noted = []

    def device(places: list[Path], *_: object) -> StorageRates:
        noted.append(group.rank)
        rate = 1e9 * (1 + group.rank)
        return StorageRates(rate, 2 * rate, 3 * rate, 0.5, "measured", 4 * rate)

    measure.device = device  # type: ignore[assignment]
    measure.source_of = lambda _: disks[group.rank]  # type: ignore[assignment]
    setup = simulation(group, where).setup
    noted.clear()
    settings = setup.description.settings
    machine = machine_for(settings, setup.directories, setup.problem(8), 1 << 22, True, group)
    return noted, machine.device


def test_one_rank_measures_a_disk_that_ranks_share(tmp_path: Path) -> None:
    """Checks that the lowest rank of each disk measures the disk, and that all ranks on a disk get equal shares of its
    bandwidth."""
    found = ranks(4, measures, tmp_path, ["a", "b", "a", "a"])
    assert [noted for noted, _ in found] == [[0], [1], [], []]
    third = StorageRates(1e9 / 3, 2e9 / 3, 1e9, 0.5, "measured", 4e9 / 3)
    assert [one for _, one in found] == [third, StorageRates(2e9, 4e9, 6e9, 0.5, "measured", 8e9), third, third]


def plans_with_measured_rates(group: RankGroup, where: Path) -> Any:
    """Plan a run whose update rates are measured. Return the measured sizes, and the sizes and rates of the plan."""
    engine.WORTH_MEASURING_UPDATES, update_rate.MIN_SECONDS, update_rate.AGAIN_SECONDS = 1, 0.1, 0.01
    measure.device = lambda *_: StorageRates(1e9, 2e9, 3e9, 0.5, "measured", 4e9)  # type: ignore[assignment]
    update_rate.load_figures = lambda *_: {}  # type: ignore[assignment]
    measured, again = [], update_rate.UpdateRateMeter.measure_again

    def measure_again(self: Any, sizes: Any) -> None:
        measured.append((sizes.levels, sizes.slab, sizes.block_y))
        again(self, sizes)

    update_rate.UpdateRateMeter.measure_again = measure_again  # type: ignore[method-assign]
    planned = oc.Simulation("heat7", shape=(40, 96, 256), directory=where, comm=group, memory="4MiB", steps=20).plan()
    sizes = planned.plan.sizes
    return measured, (sizes.levels, sizes.slab, sizes.block_y), planned.updates_origin


def test_all_ranks_measure_the_rate_of_their_plan(tmp_path: Path) -> None:
    """Checks that all ranks measure the update rates of the same sizes, and choose one of these sizes."""
    found = ranks(2, plans_with_measured_rates, tmp_path / "run.oc")
    measured, chosen, origin = found[0]
    assert found[1] == found[0] and chosen in measured and origin == "measured"


def plans_with_a_lucky_rate(group: RankGroup, where: Path) -> Any:
    """Plan the same run twice, with a cache. The sizes that are best at first have a tenth of their speed when all
    ranks measure them together. Return the sizes that were measured together, and the sizes of both plans."""
    engine.WORTH_MEASURING_UPDATES, update_rate.MIN_SECONDS, update_rate.AGAIN_SECONDS = 1, 0.1, 0.01
    measure.device = lambda *_: StorageRates(1e9, 2e9, 3e9, 0.5, "measured", 4e9)  # type: ignore[assignment]
    kept = dict[str, Any]()
    update_rate.load_figures = lambda *_: dict(kept)  # type: ignore[assignment]
    update_rate.keep_figures = lambda _, figures: kept.update(figures)  # type: ignore[attr-defined, assignment]
    timed, measured = update_rate.UpdateRateMeter._timed, []

    def measure_again(self: Any, sizes: Any) -> None:
        measured.append(sizes)
        reduced = self._reduce(sizes)
        rate = timed(self, reduced)
        self._known[reduced] = rate / 10 if sizes == measured[0] else rate
        self._new.add(reduced)

    update_rate.UpdateRateMeter.measure_again = measure_again  # type: ignore[method-assign]
    chosen = []
    for _ in range(2):
        sim = oc.Simulation("heat7", shape=(40, 96, 256), directory=where, comm=group, memory="4MiB", steps=20)
        chosen.append(sim.plan().plan.sizes)
    return [[(one.levels, one.slab, one.block_y, *astuple(one)) for one in every] for every in (measured, chosen)]


def test_ranks_choose_again_after_they_have_measured_together(tmp_path: Path) -> None:
    """Checks ranks whose best plan is slower than its rate. The ranks must choose another plan, and keep the new rate,
    so that the next run does not try the slow plan again."""
    found = ranks(2, plans_with_a_lucky_rate, tmp_path / "run.oc")
    shared = [[[sizes[:3] for sizes in every] for every in of_rank] for of_rank in found]
    assert shared[0] == shared[1], "only the cache tiles of the ranks can differ"
    for measured, chosen in found:
        assert measured[0] not in chosen and measured.count(measured[0]) == 1 and len(measured) >= 3


def plans_with_cached_rates(group: RankGroup, where: Path) -> Any:
    """Plan a run with enough memory for measurements, and then with less memory. Return the origins of the rates."""
    engine.WORTH_MEASURING_UPDATES, update_rate.MIN_SECONDS, update_rate.AGAIN_SECONDS = 1, 0.1, 0.01
    measure.device = lambda *_: StorageRates(1e9, 2e9, 3e9, 0.5, "measured", 4e9)  # type: ignore[assignment]
    kept = dict[str, Any]()
    update_rate.load_figures = lambda *_: dict(kept)  # type: ignore[assignment]
    update_rate.keep_figures = lambda _, figures: kept.update(figures)  # type: ignore[attr-defined, assignment]

    def plan(memory: str) -> str:
        sim = oc.Simulation(
            "heat7", shape=(64, 64, 64), dtype="float64", directory=where, comm=group, memory=memory, threads=1,
            scheme="wavefront", sizes={"bt": 1, "slab": 1}, steps=4,
        )  # fmt: skip
        return sim.plan().updates_origin

    return [plan(memory) for memory in ("8MiB", "8MiB", "170KiB")]


def test_ranks_with_little_memory_do_not_measure_together(tmp_path: Path) -> None:
    """Checks ranks that have rates from the user's cache, and too little memory for measurements. The ranks must not
    measure the rate of their plan together."""
    found = ranks(2, plans_with_cached_rates, tmp_path / "run.oc")
    assert all(one[0] == "measured" and set(one) <= {"measured", "cached"} for one in found), found


def assigns_by_name(group: RankGroup, where: str) -> Any:
    """Assign values in a separate directory for each rank."""
    sim = simulation(group, where)
    sim["u"] = 1.0
    return str(sim.directory)


def test_directories_can_have_the_rank_and_the_node_in_their_names(tmp_path: Path) -> None:
    """Checks that {rank} and {node} in a path are replaced."""
    host = os.uname().nodename.partition(".")[0]
    found = ranks(2, assigns_by_name, str(tmp_path / "disk-{rank}" / "{node}.oc"))
    assert found == [str(tmp_path / f"disk-{rank}" / f"{host}.oc") for rank in range(2)]


def commits(group: RankGroup, where: Path, ahead: list[int]) -> Any:
    """Commit a second generation on some ranks only, as if the other ranks were killed before their rename. Then open
    the run again."""
    sim = simulation(group, where)
    sim["u"] = VALUES
    state = open_state(sim.directory)
    with state.locked():
        if group.rank in ahead:
            for name in ("u",):
                state.begin_writing()
                with state.target_planes(name, 1 - state.manifest.current) as planes:
                    planes.fill(lambda z0, z1: np.zeros((z1 - z0, *state.layout.shape[1:]), "float32"))
                    planes.flush()
            state.commit(4)
    again = oc.open(where, comm=group)
    return again.step, open_state(again.directory).manifest.generation, float(again["u"][:, slice(*again.rows)].sum())


@pytest.mark.parametrize("ahead", [[], [0], [2], [0, 1], [0, 1, 2]])
def test_ranks_go_back_to_the_generation_that_all_have(tmp_path: Path, ahead: list[int]) -> None:
    """Checks that ranks return to the previous generation, with its values, if another rank has not committed the last
    pass."""
    found = ranks(3, commits, tmp_path / "parts", ahead)
    if len(ahead) == 3:
        assert found == [(4, 1, 0.0)] * 3
        return
    assert [one[:2] for one in found] == [(0, 0)] * 3
    np.testing.assert_allclose(sum(total for _, _, total in found), VALUES.sum(), rtol=1e-5)


def commits_twice(group: RankGroup, where: Path) -> Any:
    """Commit two more generations on rank 1 only. A killed run cannot leave this state."""
    sim = simulation(group, where)
    sim["u"] = VALUES
    state = open_state(sim.directory)
    with state.locked():
        for step in (4, 8) if group.rank == 1 else ():
            state.commit(step)
        agree(group, state)


def test_parts_of_different_states_are_refused(tmp_path: Path) -> None:
    """Checks that a rank does not go back two generations, because the values of that generation are overwritten."""
    found = ranks(2, commits_twice, tmp_path / "parts")
    assert [one[0] for one in found] == ["StorageError"] * 2
    assert "has generation 2, but the part of rank 0 has 0: these parts do not belong to one state" in found[0][1]
    assert [one[2] for one in found] == [True, False]


def test_going_back_needs_the_generation_before(tmp_path: Path) -> None:
    """Checks that a state cannot return to the previous generation twice."""
    ranks(2, assigns, tmp_path / "parts", None)
    state = open_state(tmp_path / "parts" / "rank-0")
    with state.locked():
        state.commit(4)
        state.go_back()
        assert (state.manifest.step, state.manifest.generation, state.manifest.current) == (0, 0, 0)
        with pytest.raises(StorageError, match="does not hold the generation before 0 any more"):
            state.go_back()


def sets_up(group: RankGroup, where: object, options: list[dict[str, Any]]) -> Any:
    """Make a simulation with options that may differ between ranks."""
    mine = options[group.rank % len(options)]
    return simulation(group, mine.pop("directory", where), **mine).step


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([{"in_place": True}], "in_place: runs of several ranks cannot do this yet"),
        ([{"raw_device": True}], "raw_device: runs of several ranks"),
        ([{"directory": ["a", "b"]}], "a run of several ranks has one directory for each rank"),
        ([{"shape": (11, 1, 13)}], "use at most 1"),
        ([{"ranks": 3}], "ranks 3: 2 ranks were started; start as many: mpirun -n 3"),
        ([{"ranks": (2, 1, 1)}], "the grid can only be cut along y and z"),
        ([{"ranks": "2x"}], "must be 'auto', a number of at least 1, or the numbers of parts along y and z"),
        ([{"ranks": (2, 2)}], "ranks 2x2: 2 ranks were started; start as many: mpirun -n 4"),
        ([{"ranks": "1x2", "shape": (1, 50, 13)}], "2 parts along z: each needs at least 1 planes"),
        ([{"ranks": (1, 2), "scheme": "split"}], "split cannot divide the grid along z"),
        ([{"ranks": (1, 2)}, {"ranks": 2}], "ranks differs between ranks: rank 1 has 1, and rank 0 has 2"),
        ([{"shape": SHAPE}, {"shape": (11, 51, 13)}], "rank 1: shape differs" "|shape differs between ranks: rank 1"),
        ([{"params": {"c0": 0.4, "c1": 0.1}}, {"params": {"c0": 0.3, "c1": 0.1}}], "params differs between ranks"),
        ([{"steps": 8}, {"steps": 9}], "steps differs between ranks: rank 1 has 9, and rank 0 has 8"),
        ([{"boundary": "fixed"}, {"boundary": "periodic"}], "boundary differs between ranks"),
        ([{"sizes": {"bt": 2}}, {"sizes": {"bt": 4}}], "sizes differs between ranks"),
        (
            [{"scheme": "wavefront", "sizes": {"bt": 5, "by": 18}}],
            "rows of a rank are too few for blocks of 18 rows in passes of 5 steps",
        ),
        (
            [{"receivers": [oc.Receivers("line", "u", [[1, one, 1]])]} for one in (2, 3)],
            "sources and receivers differs between ranks: rank 1",
        ),
        ([{}, {"memory": "1KiB"}], "rank 1: memory 1 KiB is too small"),
        ([{}, {"dtype": "int8"}], "rank 1: dtype 'int8' is not supported"),
    ],
)
def test_wrong_options_are_refused_on_all_ranks_in_one_line(
    tmp_path: Path, options: list[dict[str, Any]], text: str
) -> None:
    """Checks that a wrong or different option of one rank ends all ranks before a directory is made, and that one rank
    prints the error."""
    where = tmp_path / "parts"
    for one in options:
        if "directory" in one:
            one["directory"] = [str(tmp_path / name) for name in one["directory"]]
    found = ranks(2, sets_up, where, options)
    assert all(one[0] in ("InputError", "BudgetError") for one in found), found
    assert any(part in found[0][1] for part in text.split("|")), found
    assert found[0][1] == found[1][1]
    assert list(tmp_path.iterdir()) == []


def opens(group: RankGroup, where: Path) -> Any:
    """Open a run."""
    return oc.open(where, comm=group).step


def test_a_part_is_refused_where_it_does_not_belong(tmp_path: Path) -> None:
    """Checks that one process cannot continue a part, and that a part in another place is detected. The messages must
    say what to do."""
    where = tmp_path / "parts"
    ranks(3, assigns, where, None)
    text = f"holds the part of rank 1 of 3; go on with mpirun -n 3 outcrop resume {where}, or make one run"
    with pytest.raises(InputError, match=text):
        oc.open(where / "rank-1")
    alone = oc.Simulation("heat7", shape=SHAPE, directory=where / "rank-3", memory="4MiB", steps=8)
    alone["u"] = 1.0
    (text,) = {one[1] for one in ranks(4, opens, where)}
    assert "rank-3 holds something that is not a part of this run; move it away" in text
    (text,) = {one[1] for one in ranks(2, opens, where / "rank-1")}
    assert "one part; name the directory above" in text
    (where / "rank-0").rename(where / "x")
    (where / "rank-1").rename(where / "rank-0")
    (where / "x").rename(where / "rank-1")
    (text,) = {one[1] for one in ranks(3, opens, where)}
    assert "rank-0 holds the part of rank 1, not of rank 0" in text
    (text,) = {one[1] for one in ranks(2, opens, where)}
    assert "the parts of ranks 0, 1 of 3 cannot be found; start ranks on all nodes" in text


def test_parts_of_different_runs_are_refused(tmp_path: Path) -> None:
    """Checks that Outcrop detects a part that belongs to another run with the same options."""
    for name in ("a", "b"):
        ranks(2, assigns, tmp_path / name, None)
    (tmp_path / "a" / "rank-1").rename(tmp_path / "a" / "x")
    (tmp_path / "b" / "rank-1").rename(tmp_path / "a" / "rank-1")
    (text,) = {one[1] for one in ranks(2, opens, tmp_path / "a")}
    assert "the run differs between ranks: rank 1 has" in text


def starts_again(group: RankGroup, where: Path, dies: int) -> Any:
    """Begin a run in which one rank never completes its initial values."""

    def planes(z0: int, z1: int) -> Any:
        if group.rank == dies and z1 == SHAPE[0]:
            os._exit(9)
        return VALUES[z0:z1]

    sim = simulation(group, where)
    sim["u"] = planes
    return sim["u"][:, slice(*sim.rows)]


def test_a_run_without_complete_initial_values_can_be_started_again(tmp_path: Path) -> None:
    """Checks that a run whose first start was killed can start again without --force. A complete run must need
    --force."""
    where = tmp_path / "parts"
    ranks(3, starts_again, where, 1)
    found = ranks(3, starts_again, where, -1)
    np.testing.assert_array_equal(np.concatenate(found, axis=1), VALUES)
    texts = [one[1] for one in ranks(3, starts_again, where, -1)]
    assert all("rank-0 holds the part of rank 0 of an unfinished run of heat7 (step 0 of 8)" in text for text in texts)
    assert f"continue it with 'mpirun -n 3 outcrop resume {where}'" in texts[0]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"part": PartEntry("a", 0, (0, 4, 10))}, "part"),  # the arrays have other rows
        ({"part": PartEntry("a", 2, (0, 5, 10))}, "part"),  # rank 2 does not exist
        ({"part": PartEntry("a", 1, (1, 5, 10))}, "part"),  # no rank has row 0
        ({"part": PartEntry("a", 0, (0, 5, 5))}, "part"),  # rank 1 has no rows
        # there are too many ranks
        ({"part": PartEntry("a", 0, (0, *range(5, 1000)), planes=(0, *range(6, 1000)))}, "part"),
        ({"part": PartEntry("a", 0, (0, 5, 10)), "in_place": True}, "part"),
        ({"before": BeforeEntry(0, {"u": 1}, {})}, "before"),  # only parts have this entry
        # the step is too late
        ({"part": PartEntry("a", 0, (0, 5, 10)), "before": BeforeEntry(9, {"u": 1}, {})}, "before"),
        # array w does not exist
        ({"part": PartEntry("a", 0, (0, 5, 10)), "before": BeforeEntry(0, {"w": 1}, {})}, "before"),
        ({"part": PartEntry("a", 0, (0, 5, 10)), "before": BeforeEntry(0, {}, {})}, "before"),  # no values
    ],
)
def test_manifests_with_impossible_parts_are_refused(changes: dict[str, Any], name: str) -> None:
    """Checks that contradictions in the parts of a manifest are detected before any file is opened."""
    good = replace(make_manifest(Path("/a")), phase="ready", filled={"u": 1}, step=4, generation=1)
    whole = replace(good, part=PartEntry("a", 0, (0, 5, 10)), before=BeforeEntry(0, {"u": 1}, {}))
    assert parse_manifest(whole.to_bytes(), Path("it")) == whole
    with pytest.raises(InputError, match=f"{name} contradicts the rest"):
        parse_manifest(replace(good, **changes).to_bytes(), Path("it"))
