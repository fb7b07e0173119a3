"""Check that several ranks and one process give identical results: with mpirun, from a script, and after `gather`."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from mpi_programs import launcher, mpirun, run_ranks
from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.state import State
from outcrop.run.engine import Engine
from outcrop.run.places import open_state
from outcrop.run.ranks import gather as gather_module
from outcrop.run.ranks import wire
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.shared import SharedGroup
from rank_processes import ranks

CLI = (sys.executable, "-m", "outcrop.cli.main")
RANGES = {"v": (1500, 2500), "eps": (1, 4)}
GRID = ("heat7", "-n", "30", "44", "26", "--memory", "4MiB", "--init", "random:3")


def computes(group: RankGroup | None, where: Path, stencil: str, options: dict[str, Any], steps: list[int]) -> Any:
    """Begin a run with random values of all fields. Call `run` once for each number of steps."""
    shape = (19, 48, 21)
    sim = oc.Simulation(stencil, shape=shape, directory=where, comm=group, memory="8MiB", threads=1, **options)
    for number, entry in enumerate(sim.setup.description.arrays):
        if not entry.is_previous:
            values = np.random.default_rng(number).random(shape, "float32")
            low, high = RANGES.get(entry.name, (0, 1))
            sim[entry.name] = low + (high - low) * values
    reports = [sim.run(count, progress="none") for count in steps]
    own = slice(*sim.planes), slice(*sim.rows)
    arrays = {entry.name: (own, sim[entry.name][own]) for entry in sim.setup.description.arrays}
    return arrays, sim.step, reports[-1]


@pytest.mark.parametrize(
    ("stencil", "size", "options"),
    [
        ("heat7", 2, {"boundary": "mirror", "sizes": {"bt": 3}}),
        ("heat7", 3, {"boundary": "periodic", "sizes": {"bt": 4}}),
        ("heat7", 4, {"scheme": "naive"}),
        ("acoustic8", 2, {"boundary": "y=periodic", "sizes": {"bt": 3}}),
        ("acoustic8", 3, {"sizes": {"bt": 2}}),
        ("maxwell", 2, {"boundary": "y=mirror,z=periodic", "dtype": "float64"}),
        ("d3q19", 2, {"boundary": "periodic"}),
        ("heat7", 3, {"scheme": "split", "boundary": "periodic", "sizes": {"bt": 4}}),
        ("acoustic8", 2, {"scheme": "split", "boundary": "mirror", "sizes": {"bt": 2}}),
        ("maxwell", 2, {"scheme": "split", "sizes": {"bt": 3}}),
        ("heat7", 3, {"ranks": (1, 3), "boundary": "periodic", "sizes": {"bt": 3}}),
        ("acoustic8", 2, {"ranks": (1, 2), "boundary": "mirror"}),
        ("acoustic2", 4, {"ranks": (2, 2), "sizes": {"bt": 3}}),
        ("d3q19", 4, {"ranks": (2, 2), "boundary": "periodic"}),
        ("maxwell", 6, {"ranks": (2, 3), "boundary": "y=mirror,z=periodic", "dtype": "float64"}),
    ],
)
def test_ranks_have_the_bits_of_one_process(tmp_path: Path, stencil: str, size: int, options: dict[str, Any]) -> None:
    """Checks that several ranks compute the arrays of one process. The cases cover stencils with several stages and
    fields, all boundaries, and several calls of `run`.
    """
    steps = [7, 4]
    alone = options | ({"scheme": "auto"} if options.get("scheme") == "split" else {}) | {"ranks": 1}
    expected, _, _ = computes(None, tmp_path / "alone.oc", stencil, alone, steps)
    found = ranks(size, computes, tmp_path / "parts", stencil, options, steps)
    assert all(not isinstance(one[0], str) for one in found), found
    for name, (_, values) in expected.items():
        together = np.zeros_like(values)
        for arrays, _, _ in found:
            own, part = arrays[name]
            together[own] = part
        np.testing.assert_array_equal(together, values, name)
    assert {step for _, step, _ in found} == {sum(steps)}
    report = found[0][2]
    assert (report.ranks, report.shape, report.steps) == (size, (19, 48, 21), 4)
    assert report.bytes_sent == report.bytes_received == report.predicted.bytes_sent > 0
    assert report.bytes_written == report.predicted.bytes_written
    assert [one[2] for one in found] == [report] * size


def computes_over_tcp(group: RankGroup, where: Path, *more: Any) -> Any:
    """Compute as if each rank were on a separate node."""
    wire.place_of_process = lambda: f"a node of its own {os.getpid()}"  # type: ignore[assignment]
    return computes(group, where, *more)


def test_ranks_on_different_nodes_have_the_same_bits(tmp_path: Path) -> None:
    """Checks that ranks that exchange rows over TCP give the results of one process."""
    more = ("heat7", {"sizes": {"bt": 3}, "boundary": "periodic"}, [8])
    expected, _, _ = computes(None, tmp_path / "alone.oc", *more)
    found = ranks(3, computes_over_tcp, tmp_path / "parts", *more)
    np.testing.assert_array_equal(np.concatenate([one[0]["u"][1] for one in found], axis=1), expected["u"][1])


def fails(group: RankGroup, where: Path, way: str) -> Any:
    """Let rank 1 raise an error in its second pass, or before its first pass."""
    original, calls = Engine.run_pass, iter(range(1))

    def run_pass(self: Engine, *given: Any) -> Any:
        if way == "error" and next(calls, None) is None:
            given[-1]()  # all ranks have committed the first pass
            raise StorageError("write /disk/u: No space left on device")
        if way == "damage" and next(calls, None) is None:
            with open(state_file(where, "u"), "r+b") as file:
                file.seek(4096)
                file.write(b"damaged")
        return original(self, *given)

    if way == "links":
        SharedGroup.show = cannot_show  # type: ignore[method-assign]
    if group.rank == 1:
        Engine.run_pass = run_pass  # type: ignore[method-assign]
    if way == "lock" and group.rank == 1:
        sim = oc.open(where, comm=group)
        with Directory.open(where / "rank-1") as directory:
            held = directory.hold()
            try:
                return sim.run(12)
            finally:
                directory.release(held)
    return oc.open(where, comm=group).run(12, progress="none")


def cannot_show(self: SharedGroup, manifest: Manifest) -> None:
    """Raise the error that `SharedGroup.show` raises on a broken file system, but only after the run has begun."""
    if manifest.step > 4:
        raise StorageError("link run.oc/u: Read-only file system")


def state_file(where: Path, name: str) -> Path:
    """Return the path of a shard on rank 1. The shard belongs to the committed copy of the array `name`."""
    return (where / "rank-1" / name).resolve() / "c" / "0" / "0" / "0"


@pytest.mark.parametrize(
    ("way", "kind", "text"),
    [
        ("error", "StorageError", "write /disk/u: No space left on device"),
        ("damage", "CorruptionError", "plane"),
        ("lock", "InputError", "is in use by another process"),
    ],
)
def test_an_error_of_one_rank_ends_all_ranks_with_its_line(tmp_path: Path, way: str, kind: str, text: str) -> None:
    """Checks that the rank with the error prints it, and that the other ranks end with the same reason. A later start
    must continue the run."""
    parts = tmp_path / "parts"
    ranks(3, computes, parts, "heat7", {"sizes": {"bt": 2}}, [4])
    found = ranks(3, fails, parts, way)
    assert found[1][0] == kind and text in found[1][1] and found[1][2] is False, found
    for rank in (0, 2):
        assert found[rank][0] == ("InputError" if way == "lock" else "CommunicationError")
        assert text in found[rank][1] and found[rank][2] is True, found
    if way == "error":
        assert "step 6 of 16 is intact; go on with: mpirun -n 3 outcrop resume" in found[1][1]
        expected, _, _ = computes(None, tmp_path / "alone.oc", "heat7", {"sizes": {"bt": 2}}, [16])
        again = ranks(3, finishes, parts)
        np.testing.assert_array_equal(np.concatenate(again, axis=1), expected["u"][1])


def continues_slowly(group: RankGroup, where: Path, planes: int) -> Any:
    """Compute 4 more steps on parts along z. Each part has `planes` planes. Rank 1 writes the first plane of a pass
    only after rank 2 has committed this pass."""
    original, before = Engine.run_pass, open_state(where / "rank-2").manifest.generation

    def run_pass(self: Engine, *given: Any) -> Any:
        *given, wait = given  # type: ignore[assignment]

        def waits() -> None:
            wait()
            end = time.monotonic() + 60
            while open_state(where / "rank-2").manifest.generation == before and time.monotonic() < end:
                time.sleep(0.001)

        return original(self, *given, waits)

    sim = oc.open(where, comm=group)
    assert sim.planes == (planes * group.rank, planes * (group.rank + 1))
    if group.rank == 1:
        Engine.run_pass = run_pass  # type: ignore[method-assign]
    return sim.run(4, progress="none")


def flip_bit(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize(("plane", "is_ahead"), [(15, True), (0, False), (1, False), (18, False), (19, False)])
def test_a_pass_with_a_damaged_plane_is_not_committed(tmp_path: Path, plane: int, is_ahead: bool) -> None:
    """Damages a plane of the middle part of three parts along z. The rank above needs only the last 2 planes of this
    part, and gets them when the pass begins. If another plane is damaged, the rank above can commit its part of the
    pass before the damage is noticed. The ranks together must still be at the step before the pass. When the plane is
    right again, the next start must give the bits of one process."""
    parts, shape = tmp_path / "parts", (60, 24, 21)
    given = {"memory": "8MiB", "threads": 1, "sizes": {"bt": 2, "slab": 2}}
    alone = oc.Simulation("heat7", shape, directory=tmp_path / "alone.oc", **given)
    alone["u"] = "random:3"
    alone.run(4, progress="none")
    before = alone["u"][:]
    assert ranks(3, begins_along_z, parts, shape, given) == [4] * 3
    state = open_state(parts / "rank-1")
    _, offset = state.layout.locate(plane)
    flip_bit(state_file(parts, "u"), offset + 9)
    below, own, above = ranks(3, continues_slowly, parts, 20)
    assert own[0] == "CorruptionError" and f"plane {plane} is damaged" in own[1], own
    assert all(one[0] == "CommunicationError" and f"plane {plane} is damaged" in one[1] for one in (below, above))
    generations = [open_state(parts / f"rank-{rank}").manifest.generation for rank in range(3)]
    if is_ahead:  # otherwise, the rank above may have committed its part
        assert generations == [state.manifest.generation + one for one in (0, 0, 1)]
    assert oc.open(parts).step == 4
    flip_bit(state_file(parts, "u"), offset + 9)
    np.testing.assert_array_equal(oc.open(parts)["u"][:], before)
    alone.run(4, progress="none")
    for found in ranks(3, finishes_whole, parts):
        np.testing.assert_array_equal(found, alone["u"][:])


def begins_along_z(group: RankGroup, where: Path, shape: tuple[int, int, int], given: dict[str, Any]) -> int:
    """Begin a run on parts along z, and compute 4 steps."""
    sim = oc.Simulation("heat7", shape, directory=where, comm=group, ranks=(1, group.size), **given)
    sim["u"] = "random:3"
    sim.run(4, progress="none")
    return sim.step


def finishes_whole(group: RankGroup, where: Path) -> Any:
    """Compute the missing steps, and return the whole grid."""
    sim = oc.open(where, comm=group)
    sim.run(progress="none")
    return sim["u"][:]


def test_links_that_cannot_be_changed_end_all_ranks(tmp_path: Path) -> None:
    """Checks that one rank prints the error if a commit cannot update the links of a shared directory."""
    parts = tmp_path / "parts"
    ranks(3, computes, parts, "heat7", {"sizes": {"bt": 2}}, [4])
    found = ranks(3, fails, parts, "links")
    text = "link run.oc/u: Read-only file system; step 4 of 16 is intact; go on with: mpirun -n 3 outcrop resume"
    assert all(one[0] == "StorageError" and text in one[1] for one in found), found
    assert [one[2] for one in found] == [False, True, True]


def is_interrupted(group: RankGroup, where: Path) -> Any:
    """Send Ctrl-C to rank 1 in its second pass."""
    original, calls = Engine.run_pass, iter(range(1))

    def run_pass(self: Engine, *given: Any) -> Any:
        if next(calls, None) is None:
            given[-1]()  # all ranks have committed the first pass
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        return original(self, *given)

    if group.rank == 1:
        Engine.run_pass = run_pass  # type: ignore[method-assign]
    sim = oc.open(where, comm=group)
    return sim.run(12, progress="none")


def test_ctrl_c_on_one_rank_stops_all_ranks(tmp_path: Path) -> None:
    """Checks that all ranks stop, and that one rank prints how to continue. The results must be identical."""
    parts = tmp_path / "parts"
    ranks(3, computes, parts, "heat7", {"sizes": {"bt": 2}}, [4])
    found = ranks(3, is_interrupted, parts)
    text = f"stopped; step 6 of 16 is intact; go on with: mpirun -n 3 outcrop resume {parts}"
    assert found == [("InterruptedRun", text, rank > 0) for rank in range(3)]
    expected, _, _ = computes(None, tmp_path / "alone.oc", "heat7", {"sizes": {"bt": 2}}, [16])
    np.testing.assert_array_equal(np.concatenate(ranks(3, finishes, parts), axis=1), expected["u"][1])


PASSES = 5


def overlaps(group: RankGroup, where: Path, scheme: str, seed: int) -> Any:
    """Run with seeded delays before commits. One rank commits each pass only after all other ranks have begun the next
    pass. Return the values of this rank."""
    original, commit, others = Engine.run_pass, State.commit, {0, 1, 2} - {group.rank}
    chance, counts = random.Random(f"{seed} {group.rank}"), {"passes": 0, "commits": 0}

    def mark(what: str, number: int) -> None:
        (where.parent / f"{what}-{number}-{group.rank}").touch()

    def have(what: str, number: int) -> list[bool]:
        return [(where.parent / f"{what}-{number}-{rank}").exists() for rank in others]

    def run_pass(self: Engine, index: int, source: int, *given: Any) -> Any:
        number, counts["passes"] = counts["passes"], counts["passes"] + 1
        *given, wait = given
        calls = []

        def waits() -> None:
            calls.append(number)
            wait()
            assert number == 0 or all(have("committed", number - 1)), "a rank wrote over a copy that another may need"
            assert os.readlink(where / "u") == f".u.{source}"
            mark("wrote", number)

        mark("begun", number)
        results = original(self, index, source, *given, waits)
        assert len(calls) == 1
        return results

    def commits(self: State, *given: Any, **named: Any) -> None:
        number, counts["commits"] = counts["commits"], counts["commits"] + 1
        end = time.monotonic() + 60
        if number < PASSES - 1 and (seed + number) % 3 == group.rank:
            while not all(have("begun", number + 1)):
                assert time.monotonic() < end, "the other ranks wait before the next pass"
                time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.01))
        assert not any(have("wrote", number + 1))
        commit(self, *given, **named)
        mark("committed", number)

    steps = 2 * PASSES
    sim = oc.Simulation(
        "heat7", (19, 48, 21), directory=where, comm=group, memory="8MiB", threads=1, scheme=scheme, sizes={"bt": 2},
        steps=steps if scheme == "split" else None,
    )  # fmt: skip
    sim["u"] = "random:3"
    Engine.run_pass, State.commit = run_pass, commits  # type: ignore[method-assign]
    sim.run(steps, progress="none")
    return sim["u"][:, slice(*sim.rows)]


@pytest.mark.parametrize("scheme", ["wavefront", "split"])
@pytest.mark.parametrize("seed", range(3))
def test_a_pass_begins_before_all_ranks_have_committed_and_then_waits(tmp_path: Path, scheme: str, seed: int) -> None:
    """Checks that the other ranks begin the next pass during a slow commit of one rank. A rank may overwrite its older
    copy only after all ranks have committed and the links of the shared directory are updated."""
    alone = oc.Simulation("heat7", (19, 48, 21), directory=tmp_path / "alone.oc", memory="8MiB")
    alone["u"] = "random:3"
    alone.run(2 * PASSES, progress="none")
    found = ranks(3, overlaps, tmp_path / "parts", scheme, seed)
    assert all(isinstance(one, np.ndarray) for one in found), found
    np.testing.assert_array_equal(np.concatenate(found, axis=1), alone["u"][:])


def finishes(group: RankGroup, where: Path) -> Any:
    """Compute the steps that are still missing."""
    sim = oc.open(where, comm=group)
    sim.run(progress="none")
    return sim["u"][:, slice(*sim.rows)]


@pytest.mark.parametrize("given", [{"scheme": "auto"}, {"scheme": "split"}, {"ranks": (1, 3)}])
def test_gathered_parts_are_a_run_of_one_process(tmp_path: Path, given: dict[str, Any]) -> None:
    """Checks the arrays of a gathered run. The gathered run must continue and give identical results, even if the ranks
    used a scheme that one process cannot use."""
    parts, alone, whole = tmp_path / "parts", tmp_path / "alone.oc", tmp_path / "whole.oc"
    options = {"sizes": {"bt": 1 if "ranks" in given else 2}, "spacing": 10.0, "origin": (3.0, 5.0, 0.0)}
    stencil = "acoustic4" if "ranks" in given else "acoustic8"
    computes(None, alone, stencil, options, [4])
    found = ranks(3, computes, parts, stencil, options | given, [4])
    assert all(one[1] == 4 for one in found), found
    state = gather_module.gather([parts], whole)
    assert (state.manifest.step, state.manifest.part) == (4, None)
    assert state.manifest.copied_from == {"u.previous": "u"}
    one, other = oc.open(alone), oc.open(whole)
    assert other.shape == one.shape and other.coordinates == one.coordinates
    assert (alone / "y" / "c" / "0").read_bytes() == (whole / "y" / "c" / "0").read_bytes()
    for sim in (one, other):
        sim.run(3, progress="none")
    for name in ("u", "u.previous", "v"):
        np.testing.assert_array_equal(other[name][:], one[name][:])


def reopens(group: RankGroup, where: Path, given: object) -> Any:
    sim = oc.open(where, comm=group, ranks=given)  # type: ignore[arg-type]
    return sim.step, sim.rows, sim.planes


def test_parts_along_z_can_be_read(tmp_path: Path) -> None:
    """Checks that one process and the same number of ranks can read parts along z, and that a read changes no file."""
    parts, alone = tmp_path / "parts", tmp_path / "alone.oc"
    found = ranks(2, computes, parts, "heat7", {"ranks": "1x2"}, [3])
    assert [one[1] for one in found] == [3, 3], found
    computes(None, alone, "heat7", {}, [3])
    files = {one: one.stat().st_mtime_ns for one in parts.rglob("*") if one.is_file()}
    sim, expected = oc.open(parts), oc.open(alone)["u"][:]
    for index in (np.s_[:], np.s_[9], np.s_[12:5:-2, 3:40:7], np.s_[8:11, -1], np.s_[0:0]):
        np.testing.assert_array_equal(sim["u"][index], expected[index])
    assert {one: one.stat().st_mtime_ns for one in parts.rglob("*") if one.is_file()} == files
    for grid in ("auto", 2, "1x2"):
        assert ranks(2, reopens, parts, grid) == [(3, (0, 48), planes) for planes in ((0, 9), (9, 19))]
    info = subprocess.run([*CLI, "info", parts], capture_output=True, text=True).stdout
    assert "parts    2 of 48 rows and 9 to 10 planes" in info and "the planes of the grid are divided" in info
    assert subprocess.run([*CLI, "verify", parts], capture_output=True).returncode == 0


def test_parts_that_do_not_fit_are_not_gathered(tmp_path: Path) -> None:
    """Checks that `gather` refuses missing or repeated parts, and parts of other runs or of different states. No
    directory may be made.
    """
    parts, whole = tmp_path / "parts", tmp_path / "whole.oc"
    ranks(3, computes, parts, "heat7", {}, [4])
    ranks(2, computes, tmp_path / "others", "heat7", {}, [4])
    every = [parts / f"rank-{rank}" for rank in range(3)]

    def refused(places: list[Path], text: str) -> None:
        with pytest.raises(InputError, match=text):
            gather_module.gather(places, whole)
        assert not whole.exists()

    refused(every[:2], "the part of rank 2 of 3 is missing")
    refused([every[0]], "the parts of ranks 1, 2 of 3 are missing")
    refused([*every, every[1]], "are both the part of rank 1")
    refused([*every[:2], tmp_path / "others" / "rank-1"], "belongs to another run than")
    refused([tmp_path / "nothing"], "holds no Outcrop run")
    with pytest.raises(InputError, match="holds"):
        gather_module.gather(every, parts / "rank-1")
    from outcrop.run.places import open_state

    state = open_state(every[2])
    with state.locked():
        state.commit(8)
        state.commit(12)
    refused(every, r"rank-2 has generation 3, and .*rank-0 has 1: these parts do not belong to one state")
    computes(None, tmp_path / "alone.oc", "heat7", {}, [1])
    refused([tmp_path / "alone.oc"], "is not a part of a run of several ranks")


def command(ranks: int, *words: object, **named: Any) -> subprocess.CompletedProcess[str]:
    """Run an `outcrop` command on several ranks of mpirun."""
    return mpirun(ranks, *CLI, *map(str, words), **named)


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines that Outcrop has printed on standard error, without the lines of the launcher."""
    return [line for line in done.stderr.splitlines() if line.startswith("outcrop: ")]


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 3])
def test_mpirun_runs_resumes_and_gathers(tmp_path: Path, size: int) -> None:
    """Checks commands under mpirun. All ranks together must print one report, write one JSON file, and give the same
    results as one process."""
    parts, alone, report = tmp_path / "parts", tmp_path / "alone.oc", tmp_path / "report.json"
    done = command(size, "run", *GRID, "-t", 8, "-d", parts, "--bt", 4, "--json", report)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("heat7 30 x 44 x 26 float32: 8 steps in") == 1
    assert f"{size} ranks; bytes of all" in done.stdout
    assert json.loads(report.read_text())["ranks"] == size
    done = command(size, "resume", parts, "-t", 5)
    assert done.returncode == 0 and "5 steps in" in done.stdout, done.stderr
    done = command(size, "resume", parts)
    assert done.returncode == 0 and done.stdout.count("is finished at step 13") == 1
    gathered = subprocess.run([*CLI, "gather", parts, "-d", tmp_path / "whole.oc"], capture_output=True, text=True)
    assert gathered.stdout == f"{tmp_path / 'whole.oc'} holds heat7 30 x 44 x 26 at step 13\n", gathered.stderr
    subprocess.run([*CLI, "run", *GRID, "-t", "13", "-d", str(alone), "--quiet"], check=True)
    np.testing.assert_array_equal(oc.open(tmp_path / "whole.oc")["u"][:], oc.open(alone)["u"][:])
    info = subprocess.run([*CLI, "info", parts / "rank-1"], capture_output=True, text=True).stdout
    assert re.search(rf"part +rank 1 of {size}, rows \d+ to \d+ of 44", info)
    for words in (["verify", parts / "rank-1"], ["plot", parts / "rank-1", "-o", tmp_path / "picture.png"]):
        assert subprocess.run([*CLI, *words], capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", *GRID, "-t", "4", "--in-place"], "in_place: runs of several ranks cannot do this yet"),
        (["run", *GRID, "-t", "4", "--ranks", "3"], "ranks 3: 2 ranks were started"),
        (["run", *GRID, "-t", "4", "--scheme", "nonsense"], "scheme 'nonsense' is unknown"),
        (["run", *GRID], "-t STEPS is missing"),
        (["run", "heat7", "-n", "30", "1", "26", "-t", "4"], "use at most 1"),
        (["run", "acoustic8_2d", "-n", "30", "20", "-t", "4"], "ranks divide y of a grid of three axes"),
        (["resume"], "holds no Outcrop run"),
    ],
)
def test_wrong_commands_print_one_line(tmp_path: Path, words: list[str], text: str) -> None:
    """Checks that all ranks end after wrong input, that one rank prints one line, and that no file is created."""
    where = tmp_path / "parts"
    done = command(2, *words, *([where] if words == ["resume"] else ["-d", where]))
    assert done.returncode != 0
    (line,) = lines_of(done)
    assert text in line and "Traceback" not in done.stderr
    assert not where.exists()


@pytest.mark.mpi
def test_processes_that_do_not_belong_together_can_be_told_so(tmp_path: Path) -> None:
    """Checks `ranks=1` under mpirun. Two ranks must refuse to continue a run of one process."""
    program = (
        "import sys, outcrop as oc\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\n"
        "sim = oc.Simulation('heat7', shape=(9, 12, 9), memory='1MiB', directory=f'{sys.argv[1]}/{rank}', ranks=1)\n"
        "sim.run(2)\nassert oc.open(sim.directory, ranks=1).step == 2"
    )
    done = run_ranks(2, program, str(tmp_path))
    assert done.returncode == 0, done.stderr
    (tmp_path / "0").rename(tmp_path / "rank-0")
    (tmp_path / "1").rename(tmp_path / "rank-1")
    (line,) = lines_of(command(2, "resume", tmp_path, "-t", 2))
    assert "holds a run of one process; go on without mpirun" in line


@pytest.mark.parametrize("force", [False, True])
def test_ranks_do_not_begin_in_the_directory_of_a_run_of_one_process(tmp_path: Path, force: bool) -> None:
    """Checks that the refusal leaves all files and links of the run of one process."""
    where = tmp_path / "run.oc"
    computes(None, where, "heat7", {}, [2])
    before = sorted((str(one), one.lstat().st_mtime_ns) for one in where.rglob("*"))
    for kind, text, _ in ranks(2, computes, where, "heat7", {"force": force}, [2]):
        assert kind == "InputError" and "run.oc holds a run of one process; remove this run" in text
    assert sorted((str(one), one.lstat().st_mtime_ns) for one in where.rglob("*")) == before


@pytest.mark.mpi
def test_a_script_is_the_same_under_mpirun(tmp_path: Path) -> None:
    """Checks two scripts under mpirun: a script without any MPI call, and a script that passes its communicator. Both
    must give the results of one process.
    """
    script = (
        "import sys, numpy as np, outcrop as oc\n"
        "sim = oc.Simulation('heat7', shape=(20, 30, 15), memory='2MiB', directory=sys.argv[1]{})\n"
        "sim['u'] = np.random.default_rng(1).random((20, 30, 15), 'float32')\n"
        "sim.run(6, progress='none')\n"
        "np.save(f'{{sys.argv[1]}}-{{sim.rank}}.npy', sim['u'][:, slice(*sim.rows)])\n"
    )
    subprocess.run([sys.executable, "-c", script.format(""), str(tmp_path / "alone")], check=True)
    expected = np.load(tmp_path / "alone-0.npy")
    given = "from mpi4py import MPI\n" + script.format(", comm=MPI.COMM_WORLD.Dup()")
    for name, program in (("auto", script.format("")), ("given", given)):
        done = run_ranks(3, program, str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        found = [np.load(tmp_path / f"{name}-{rank}.npy") for rank in range(3)]
        np.testing.assert_array_equal(np.concatenate(found, axis=1), expected)


@pytest.mark.mpi
def test_equations_of_devito_are_refused_in_one_line(tmp_path: Path) -> None:
    """Checks runs of Devito's equations. Devito imports mpi4py, but does not initialise MPI. Devito's functions have a
    halo, so several ranks must refuse the run."""
    pytest.importorskip("devito")
    program = (
        "import sys\nfrom devito import Eq, Grid, TimeFunction\nfrom outcrop.errors import InputError\n"
        "import outcrop as oc\ngrid = Grid(shape=(20, 24, 20))\n"
        "u = TimeFunction(name='u', grid=grid, space_order=2)\n"
        "try:\n"
        "    oc.Simulation([Eq(u.forward, u + 0.1 * u.laplace)], dt=0.1, directory=sys.argv[1], memory='4MiB')\n"
        "except InputError as error:\n    print(error)\n"
    )
    done = run_ranks(2, program, str(tmp_path / "parts"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("runs of several ranks cannot have a halo, padding or sources yet") == 2
    assert not (tmp_path / "parts").exists()


def test_without_a_launcher_mpi4py_is_not_imported(tmp_path: Path) -> None:
    """Checks that a run of one process does not load MPI."""
    program = (
        "import sys, outcrop as oc\n"
        "oc.Simulation('heat7', shape=(9, 12, 9), memory='1MiB', directory=sys.argv[1]).run(2)\n"
        "assert 'mpi4py' not in sys.modules"
    )
    names = ("PMI", "OMPI", "MPI", "SLURM", "FLUX")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "run.oc")], env=plain)
    assert done.returncode == 0


@pytest.mark.mpi
def test_a_killed_rank_of_mpirun_can_be_resumed(tmp_path: Path) -> None:
    """Checks that `outcrop resume` under mpirun continues after a kill, with the same results as one process."""
    launcher()
    parts, alone = tmp_path / "parts", tmp_path / "alone.oc"
    program = (
        "import os, signal, sys\nfrom outcrop.cli.main import call\nfrom outcrop.run.disk.state import State\n"
        "real, rank = State.commit, os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ['PMI_RANK']\n"
        "def commit(self, step, *given, **named):\n"
        "    real(self, step, *given, **named)\n"
        "    if step == 6 and rank == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        "State.commit = commit\n"
        "sys.exit(call(sys.argv[1:]))"
    )
    words = ["run", *GRID, "-t", "12", "--bt", "3", "--quiet"]
    assert run_ranks(3, program, *words, "-d", str(parts)).returncode != 0
    # The launcher kills the other ranks at any instant. A rank that is killed in its commit leaves a temporary file.
    done = command(3, "resume", parts, "--quiet")
    assert done.returncode == 0, done.stderr
    assert not list(parts.glob("*/manifest.json.tmp"))
    subprocess.run([*CLI, *words, "-d", str(alone)], check=True)
    gather_module.gather([parts], tmp_path / "whole.oc")
    np.testing.assert_array_equal(oc.open(tmp_path / "whole.oc")["u"][:], oc.open(alone)["u"][:])
