"""Check reads of the whole grid of several ranks by all ranks, by one process, by Zarr, and by the commands."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcrop as oc
from mpi_programs import run_ranks
from outcrop.cli.main import call
from outcrop.errors import InputError
from outcrop.run import opening
from outcrop.run.places import open_state
from outcrop.run.ranks import whole, wire
from outcrop.run.ranks.gather import gather
from outcrop.run.ranks.group import RankGroup
from rank_processes import at_call, ranks
from strategies import examples

SHAPE = (13, 46, 9)
VALUES = np.random.default_rng(5).random(SHAPE, "float32")
INDICES: list[Any] = [
    4, -1, np.s_[:], np.s_[3:9:2, ::-1], np.s_[..., 2], np.s_[1, 15:16], np.s_[:, 45, 3], np.s_[2, 3, 4],
    np.s_[::-3, 40:5:-7, ::2], np.s_[5:5], np.s_[:, 20:20], np.s_[2:4, 10:40, ::-1],
]  # fmt: skip
OUTSIDE = "index 99 is outside the array: axis 0 has the cells 0 to 12"


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run an `outcrop` command in this process. Return its code, its output and its errors."""
    capsys.readouterr()
    code = call([str(word) for word in words])
    return code, *capsys.readouterr()


def begin(group: RankGroup | None, where: object, shape: tuple[int, ...] = SHAPE, **more: Any) -> oc.Simulation:
    """Begin a run of heat7. The initial values are VALUES if the grid has the shape SHAPE, and random otherwise."""
    options = {"memory": "4MiB", "steps": 8, "sizes": {"bt": 2}, "threads": 1, **more}
    sim = oc.Simulation("heat7", shape=shape, directory=where, comm=group, **options)
    sim["u"] = VALUES if shape == SHAPE else "random:3"
    return sim


def reads(group: RankGroup, where: Path, way: str) -> Any:
    """Read the whole grid on all ranks. The ranks read the same cells, different cells, or no cells."""
    if way == "tcp":
        wire.place_of_process = lambda: f"a node of its own {os.getpid()}"  # type: ignore[assignment]
    sim = begin(group, where)
    view = sim["u"]
    found = [view[index] for index in INDICES]
    found += [view[INDICES[(number + group.rank) % len(INDICES)]] for number in range(len(INDICES))]
    assert view.shape == sim.shape == SHAPE and len(view) == SHAPE[0]
    wrong = None
    try:
        view[99 if group.rank == 1 else 0]
    except (IndexError, InputError) as error:
        wrong = type(error).__name__, str(error), getattr(error, "is_told_elsewhere", False)
    found.append(view[:, 7])  # the ranks can still be used
    return found, wrong, np.asarray(view)


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_each_rank_reads_any_cells_of_the_whole_grid(tmp_path: Path, way: str) -> None:
    """Compares all kinds of indices with NumPy, over both kinds of sockets. Also checks a wrong index on one rank."""
    for rank, (found, wrong, every) in enumerate(ranks(3, reads, tmp_path / "parts", way)):
        indices = [*INDICES, *(INDICES[(number + rank) % len(INDICES)] for number in range(len(INDICES)))]
        for values, index in zip(found, [*indices, np.s_[:, 7]], strict=True):
            np.testing.assert_array_equal(values, VALUES[index], repr(index))
            assert np.shape(values) == VALUES[index].shape and values.dtype == VALUES.dtype
        np.testing.assert_array_equal(every, VALUES)
        assert wrong == (
            ("IndexError", OUTSIDE, False) if rank == 1 else ("InputError", f"rank 1 reads u: {OUTSIDE}", True)
        )


def reads_damage(group: RankGroup, where: Path, way: str) -> Any:
    """Read a plane. The rows of this plane on rank 1 are damaged, or rank 1 kills itself when it sends these rows."""
    sim = oc.open(where, comm=group)
    original = whole.read_rows

    def read(*given: Any) -> Any:
        os._exit(9)
        return original(*given)

    if way == "killed" and group.rank == 1:
        whole.read_rows = read
    return sim["u"][4 if group.rank == 2 else slice(0)]


@pytest.mark.parametrize("way", ["damage", "killed"])
def test_a_rank_that_cannot_send_ends_the_read_on_all_ranks(tmp_path: Path, way: str) -> None:
    """Checks that damaged planes and a killed rank end the read of another rank with an error of one line."""
    parts = tmp_path / "parts"
    ranks(3, begins, parts)
    if way == "damage":
        with open(parts / "rank-1" / ".u.0" / "c" / "0" / "0" / "0", "r+b") as file:
            file.seek(open_state(parts / "rank-1").layout.locate(4)[1])
            file.write(b"damaged")
    found = ranks(3, reads_damage, parts, way)
    if way == "damage":
        assert {one[0] for one in found} == {"CorruptionError"} and "plane 4" in found[0][1]
        assert found[0][1].startswith("rank 1: ") and [one[2] for one in found] == [True, False, True]
    else:
        assert found[1] is None and {one[0] for one in (found[0], found[2])} == {"CommunicationError"}, found
        assert all(one[1].startswith("rank 1 has gone") for one in (found[0], found[2])), found


def begins(
    group: RankGroup, where: Path, shape: tuple[int, ...] = SHAPE, steps: int = 0, more: dict[str, Any] | None = None
) -> Any:
    """Begin a run, and compute some steps."""
    sim = begin(group, where, shape, **(more or {}))
    if steps:
        sim.run(steps, progress="none")
    return sim.step


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of three parts of VALUES at step 0."""
    where = tmp_path_factory.mktemp("parts") / "run.oc"
    ranks(3, begins, where)
    return where


@given(data=st.data())
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_process_reads_any_cells_of_all_parts(parts: Path, data: st.DataObject) -> None:
    """Checks slices with any steps against NumPy."""
    index = tuple(data.draw(st.one_of(st.slices(size), st.integers(-size, size - 1))) for size in SHAPE)
    np.testing.assert_array_equal(oc.open(parts)["u"][index], VALUES[index])


def test_indices_outside_all_parts_give_the_message_of_one_process(parts: Path, tmp_path: Path) -> None:
    """Checks indices outside the grid, too many indices, and a mask."""
    alone, whole_grid = begin(None, tmp_path / "alone.oc")["u"], oc.open(parts)["u"]
    for index in (99, -14, np.s_[0, -47], np.s_[:, 2, 9], np.s_[1, 2, 3, 4], np.ones(SHAPE, bool)):
        with pytest.raises(IndexError) as expected:
            alone[index]
        with pytest.raises(IndexError) as found:
            whole_grid[index]
        assert str(found.value) == str(expected.value)
    with pytest.raises(IndexError, match=OUTSIDE):
        whole_grid[99]


def test_one_process_reads_all_parts_until_it_takes_a_step(parts: Path) -> None:
    """Opens the parts of a run in one process. Plans and steps must be refused. Checks that the error suggests a
    command, and that no file changes."""
    sim, names = oc.open(parts), sorted(parts.iterdir())
    assert (sim.shape, sim.step, sim.rows, sim.remaining_steps) == (SHAPE, 0, (0, SHAPE[1]), 8)
    text = f"{parts} holds the parts of 3 ranks; make one run of them first: outcrop gather, or go on without mpirun"
    for act in (sim.plan, lambda: sim.run(2, history="all"), lambda: sim.run(0)):
        with pytest.raises(InputError, match="steps 0|" + text):
            act()
    assert sorted(parts.iterdir()) == names


def test_parts_of_an_interrupted_commit_are_read_at_one_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that reads, `gather` and the commands use the older generation if only some parts have the newer
    generation."""
    where = tmp_path / "run.oc"
    ranks(2, begins, where, SHAPE, 2)
    expected = oc.open(where)["u"][:]
    state = open_state(where / "rank-1")
    with state.locked():
        state.begin_writing()
        with state.target_planes("u", 1 - state.manifest.current) as planes:
            planes.fill(lambda z0, z1: np.zeros((z1 - z0, *state.layout.shape[1:]), "float32"))
            planes.flush()
        state.commit(4)
    sim = oc.open(where)
    assert sim.step == 2
    np.testing.assert_array_equal(sim["u"][:], expected)
    assert gather([where], tmp_path / "whole.oc").manifest.step == 2
    np.testing.assert_array_equal(oc.open(tmp_path / "whole.oc")["u"][:], expected)
    info = command(capsys, "info", where)[1]
    assert "ranks 0 at step 2; ranks 1 at step 4: a commit was interrupted, the run goes back to step 2" in info
    assert command(capsys, "verify", where) == (0, f"{where}: all 28 checksums of step 2 are right\n", "")
    with state.locked():
        state.commit(6)
        state.commit(8)
    with pytest.raises(InputError, match=r"rank-1 has generation 4, and .*rank-0 has 1: these parts do not belong"):
        oc.open(where)


U, A = oc.Field("u"), oc.Field("a")
TURNED = oc.Stencil("turned", {U: (U[0, 1, 0] + U[0, -1, 0]) / 2 * sympy.cos(A[0, 0, 0])})


def assigns(group: RankGroup | None, where: Path, functions: str = "once") -> Any:
    """Begin a run that reads a function of a static field."""
    options: dict[str, Any] = {"directory": where, "comm": group, "memory": "4MiB", "functions": functions}
    sim = oc.Simulation(TURNED, SHAPE, **options)
    sim.assign({"u": VALUES, "a": VALUES[::-1]})
    return sim if group is None else sim.step


def test_parts_are_gathered_before_their_functions_are_computed(tmp_path: Path) -> None:
    """Checks `gather` before the first step, when the function of the static field has no values yet. The new run must
    compute the function, and must have the bits of a run that computes the function in each step."""
    alone = assigns(None, tmp_path / "alone.oc", "steps")
    alone.run(3, progress="none")
    assert ranks(2, assigns, tmp_path / "parts") == [0, 0]
    assert gather([tmp_path / "parts"], tmp_path / "whole.oc").manifest.step == 0
    sim = oc.open(tmp_path / "whole.oc")
    assert sim.run(3, progress="none").computed_once == ("cos_a = cos(a)",)
    np.testing.assert_array_equal(sim["u"][:], alone["u"][:])
    assert ranks(2, computes_a_step, tmp_path / "parts") == [1, 1]
    gather([tmp_path / "parts"], tmp_path / "later.oc")
    sim = oc.open(tmp_path / "later.oc")
    sim.run(2, progress="none")
    np.testing.assert_array_equal(sim["u"][:], alone["u"][:])


def test_gathered_parts_remember_assignments_between_steps(tmp_path: Path) -> None:
    assert ranks(2, assigns_later, tmp_path / "parts") == [1, 1]
    gather([tmp_path / "parts"], tmp_path / "whole.oc")
    sim = oc.open(tmp_path / "whole.oc")
    with pytest.raises(InputError, match="fields were assigned at step 1"):
        sim.adjoint({"u": VALUES}, "u")


def assigns_later(group: RankGroup, where: Path) -> int:
    sim = begin(group, where)
    sim.run(1, progress="none")
    sim["u"] = VALUES
    return sim.step


def computes_a_step(group: RankGroup, where: Path) -> int:
    sim = oc.open(where, comm=group)
    sim.run(1, progress="none")
    return sim.step


@pytest.mark.parametrize(("ny", "scheme", "parts"), [
    (36, "wavefront", "12 rows"), (36, "split", "12 rows"), (34, "wavefront", "10 to 12 rows"),
    (31, "split", "9 to 11 rows"),
])  # fmt: skip
def test_parts_on_a_shared_file_system_are_one_zarr_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ny: int, scheme: str, parts: str
) -> None:
    """Checks the Zarr group of all parts. xarray and zarr must read the last step of the whole grid and its
    coordinates. The directory of the last part must also be a Zarr group. `verify` must find a wrong link, and repair
    it with `--repair`. A later run must remove the old arrays. The last part may have fewer rows than the others."""
    xarray, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    where, shape = tmp_path / "run.oc", (7, ny, 10)
    ranks(3, begins, where, shape, 6, {"spacing": 10.0, "origin": (0.0, 5.0, 0.0), "scheme": scheme})
    alone = begin(None, tmp_path / "alone.oc", shape)
    alone.run(6, progress="none")
    expected = oc.open(where)["u"][:]
    np.testing.assert_array_equal(expected, alone["u"][:])
    with xarray.open_zarr(where) as found:
        np.testing.assert_array_equal(found["u"].values, expected)
        np.testing.assert_array_equal(found["y"].values, 5.0 + 10.0 * np.arange(ny))
    assert zarr.open(where, mode="r")["u"].shape == shape
    with xarray.open_zarr(where / "rank-2") as found:
        np.testing.assert_array_equal(found["u"].values, expected[:, -len(found["y"]) :])
    info = command(capsys, "info", where)[1]
    assert f"parts    3 of {parts}" in info and "is a group of all parts" in info and f"10 x {ny} x 7 cells" in info
    (where / "u").unlink()
    (where / "u").symlink_to(".u.0" if os.readlink(where / "rank-0" / "u") == ".u.1" else ".u.1")
    assert command(capsys, "verify", where)[0] != 0
    code, said, _ = command(capsys, "verify", "--repair", where)
    assert code == 0 and "u does not lead to .u." in said
    with xarray.open_zarr(where) as found:
        np.testing.assert_array_equal(found["u"].values, expected)
    assert command(capsys, "plot", where, "--slice", "y=29", "-o", tmp_path / "a.png")[0] == 0
    assert ranks(2, replaces, where) == [2, 2]
    with xarray.open_zarr(where) as found:
        for name in ("ez", "hx", "eps"):
            np.testing.assert_array_equal(found[name].values, oc.open(where)[name][:])
        assert not {"u", "z"} & set(found.variables)
    assert not {"u", ".u.0", ".u.1", "z", "y", "x"} & set(os.listdir(where))


BOX = np.s_[2:6, 4:32, 1:9]
IN_BOX: list[Any] = [0, -1, np.s_[:, 2], np.s_[::-2, 1:3, ::-5, 3], np.s_[..., 2], np.s_[1:1], np.s_[2, 3, 27, 0]]


def snapshots_of(group: RankGroup | None, where: Path) -> Any:
    """Compute some steps, and read snapshots of the whole grid and of a box. One rank asks for a missing snapshot."""
    kept = [oc.Snapshots(every=2, initial=True), oc.Snapshots(every=3, name="box", box=BOX)]
    sim = begin(group, where, (7, 36, 10), snapshots=kept)
    sim.run(4, progress="none")
    sim.run(2, progress="none")
    view = sim.snapshots["box/u"]
    found = [np.array(sim.snapshots["u"][:]), *(np.array(view[index]) for index in IN_BOX)]
    wrong = InputError if group and group.rank else IndexError
    with pytest.raises(wrong, match=r"index 9: .* has 3 snapshots of box/u"):
        view[9 if not group or group.rank == 0 else 0]
    return found, view.shape, view.steps.tolist()


def test_snapshots_of_all_ranks_are_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks reads of snapshots by all ranks, by one process and by xarray. One box has the same number of rows on each
    rank. Another box has different numbers of rows, so xarray does not find it. Later, the number of ranks changes, and
    the last part has fewer rows."""
    xarray, where = pytest.importorskip("xarray"), tmp_path / "run.oc"
    expected, shape, steps = snapshots_of(None, tmp_path / "alone.oc")
    for found, *rest in ranks(3, snapshots_of, where):
        assert rest == [shape, steps]
        for one, values in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, values)
    sim = oc.open(where)
    for index, values in zip(IN_BOX, expected[1:], strict=True):
        np.testing.assert_array_equal(sim.snapshots["box/u"][index], values)
    with pytest.raises(IndexError, match=r"index 9: .* has 3 snapshots of box/u"):
        sim.snapshots["box/u"][9]
    with pytest.raises(IndexError, match=r"snapshots have four axes \(times, nz, ny, nx\) here, not 5"):
        sim.snapshots["box/u"][0, 0, 0, 0, 0]
    for size in (3, 2):
        if size == 2:
            assert ranks(2, opens, where) == [6] * 2
        with xarray.open_zarr(where / "snapshots.zarr") as kept:
            np.testing.assert_array_equal(kept["u"].values, expected[0])
            assert kept["step"].values.tolist() == [0, 2, 4, 6] and kept["y"].values.tolist() == list(range(36))
        assert (where / "snapshots.zarr" / "box").exists() == (size == 2)  # the box has 14 rows in each of two parts
        assert command(capsys, "verify", where)[0] == 0
    with xarray.open_zarr(where / "snapshots.zarr", group="box") as kept:
        np.testing.assert_array_equal(kept["u"].values[-1], expected[2])
    assert not (where / "snapshots.zarr" / "u" / "c" / "3" / "0" / "2").exists()
    assert ranks(5, opens, where) == [6] * 5  # the last part has 4 rows, and each other part has 8 rows
    np.testing.assert_array_equal(oc.open(where).snapshots["u"], expected[0])
    for place, rows in ((where, np.s_[:]), (where / "rank-4", np.s_[32:])):
        with xarray.open_zarr(place / "snapshots.zarr") as kept:
            np.testing.assert_array_equal(kept["u"].values, expected[0][:, :, rows])
    assert not (where / "snapshots.zarr" / "box").exists()  # the box has 4 rows in the first part, and 8 in other parts
    assert command(capsys, "verify", where)[0] == 0
    assert ranks(7, opens, where) == [6] * 7
    assert sorted(os.listdir(where)) == [f"rank-{rank}" for rank in range(7)]  # no group: parts of 5 and 6 rows
    np.testing.assert_array_equal(oc.open(where).snapshots["u"], expected[0])


def opens(group: RankGroup, where: Path, grid: Any = "auto", is_killed: bool = False) -> int:
    """Open a run. If `is_killed` is true, this process kills itself after its part can be used, but before the parts
    get a Zarr group."""
    if is_killed:
        at_call(opening, "share", 0, before=True)
    return oc.open(where, comm=group, ranks=grid).step


def replaces(group: RankGroup, where: Path) -> Any:
    """Replace the run by a run with other fields and fewer ranks."""
    sim = oc.Simulation("maxwell", (7, 36, 10), directory=where, comm=group, memory="8MiB", threads=1, force=True)
    sim["eps"] = 2.0
    sim["ez"] = "random:5"
    sim.run(2, progress="none")
    return sim.step


def test_no_zarr_group_is_made_for_unequal_parts_or_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks runs that have no Zarr group of all parts, because of unequal parts, other files or separate directories.
    If 11 rows are divided among 5 ranks, equal parts would leave no row for the last rank."""
    unequal, other, apart = tmp_path / "unequal.oc", tmp_path / "other.oc", tmp_path / "apart-{rank}.oc"
    (other / "u").mkdir(parents=True)
    (other / "u" / "mine").write_text("mine")
    ranks(5, begins, unequal, (7, 11, 10))
    ranks(2, begins, other)
    ranks(2, begins, apart)
    for where in (unequal, other):
        assert not (where / "zarr.json").exists()
    assert (other / "u" / "mine").read_text() == "mine"
    info = command(capsys, "info", unequal)[1]
    assert "no group of all parts, because they have different numbers of rows" in info
    np.testing.assert_array_equal(oc.open(apart)["u"][:], VALUES)


@pytest.mark.parametrize(("size", "grid", "reason"), [
    (4, (2, 2), "the planes of the grid are divided among the ranks"),
    (7, "auto", "the parts have 5 to 6 rows, and Zarr needs equally many"),
])  # fmt: skip
def test_the_group_of_other_parts_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int, grid: Any, reason: str
) -> None:
    """Moves parts that are a Zarr group to parts that cannot be a group, and kills all ranks at the end of the move.
    Checks that no group of the old parts is left. An earlier version can have left such a group, with wrong values.
    `verify` must report the group, and `--repair` must remove it."""
    where, old = tmp_path / "run.oc", tmp_path / "old"
    ranks(4, begins, where, (8, 36, 10), 2, {"snapshots": oc.Snapshots(every=2)})
    shutil.copytree(where, old, symlinks=True, ignore=shutil.ignore_patterns("rank-*"))
    assert ranks(size, opens, where, grid, True) == [None] * size
    parts = [f"rank-{rank}" for rank in range(size)]
    assert sorted(os.listdir(where)) == parts
    assert command(capsys, "verify", where)[0] == 0
    shutil.copytree(old, where, symlinks=True, dirs_exist_ok=True)
    code, said, error = command(capsys, "verify", where)
    line = f"{where / 'zarr.json'} is not a group of these parts, because {reason}"
    assert code != 0 and said == f"{line}\n" and "but 1 link or other file is not; repair it with: outcrop" in error
    code, said, _ = command(capsys, "verify", "--repair", where)
    assert code == 0 and f"{line}: mended\n" in said
    assert sorted(os.listdir(where)) == parts
    assert command(capsys, "verify", where)[0] == 0


@pytest.mark.mpi
def test_a_script_reads_the_whole_grid_under_mpirun(tmp_path: Path) -> None:
    """Checks that a plane of the whole grid is the same on one and on three ranks of mpirun."""
    script = (
        "import sys, numpy as np, outcrop as oc\n"
        "sim = oc.Simulation('heat7', shape=(12, 30, 15), memory='2MiB', directory=sys.argv[1])\n"
        "sim['u'] = 'random:4'\n"
        "sim.run(4, progress='none')\n"
        "np.save(f'{sys.argv[1]}-{sim.rank}.npy', sim['u'][sim.rank])\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "alone")], check=True)
    done = run_ranks(3, script, str(tmp_path / "parts"))
    assert done.returncode == 0, done.stderr
    alone = oc.open(tmp_path / "alone")["u"]
    for rank in range(3):
        np.testing.assert_array_equal(np.load(tmp_path / f"parts-{rank}.npy"), alone[rank])


def opens_otherwise(group: RankGroup, where: Path, given: list[dict[str, Any]]) -> Any:
    """Open a run. Each rank has its own options."""
    return oc.open(where, comm=group, **given[group.rank]).step


def test_ranks_with_different_options_do_not_move_a_run(tmp_path: Path) -> None:
    """Checks that all ranks are refused before any row moves. The run can then be opened with equal options."""
    where = tmp_path / "run.oc"
    assert ranks(3, replaces, where) == [2] * 3
    files = {one: one.stat().st_mtime_ns for one in where.rglob("*") if one.is_file()}
    for options, text in (
        ([{"sizes": {"bt": 1}}, {"sizes": {"bt": 3}}], "^sizes differs between ranks: rank 1 has .*3"),
        ([{"scheme": "wavefront"}, {"scheme": "split"}], "^scheme differs between ranks: rank 1 has 'split'"),
        ([{"ranks": "1x2"}, {}], "^ranks differs between ranks: rank 1 has 'auto', and rank 0 has '1x2'"),
    ):
        for kind, message, _ in ranks(2, opens_otherwise, where, options):
            assert kind == "InputError" and re.search(text, message), message
        assert {one: one.stat().st_mtime_ns for one in where.rglob("*") if one.is_file()} == files
    assert ranks(2, opens_otherwise, where, [{"sizes": {"bt": 1}}] * 2) == [2, 2]
