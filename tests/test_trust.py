"""Check run directories of untrusted users, and runs whose writes were lost, misplaced or damaged."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from folders import everything_below
from outcrop.cli.main import call
from outcrop.durable import sealed
from outcrop.errors import CorruptionError, InputError, OutcropError, StorageError
from outcrop.run.disk.verify import find_damage
from outcrop.run.places import open_state

SHAPE = (12, 10, 8)


def make_run(where: Path, *others: Path) -> oc.Simulation:
    """Make two generations of a wave with previous values, traces, norms, snapshots and a source."""
    sim = oc.Simulation(
        "acoustic2", SHAPE, directory=[where, *others], memory="1MiB", params={"dt": 1e-4, "h": 1.0},
        sources=[oc.Source("u", [5.0, 5.0, 4.0], np.linspace(1, 2, 40))],
        receivers=[oc.Receivers("line", "u", [[6.0, 5.0, 4.0], [5.0, 6.0, 3.0]])],
        snapshots=oc.Snapshots(2), norms=oc.Norms(2),
    )  # fmt: skip
    sim["v"] = 1000.0
    sim["u"] = np.random.default_rng(1).random(SHAPE, dtype=np.float32)
    sim.run(4, progress="none")
    sim.run(4, progress="none")
    return sim


def record_bytes(where: Path) -> int:
    return open_state(where).layout.record_bytes


def swap_planes(where: Path) -> None:
    shard, size = where / "u" / "c/0/0/0", record_bytes(where)
    content = bytearray(shard.read_bytes())
    content[:size], content[size : 2 * size] = content[size : 2 * size], content[:size]
    shard.write_bytes(content)


def swap_arrays(where: Path) -> None:
    one, other = (where / name / "c/0/0/0" for name in ("u", "u.previous"))
    ours, theirs = one.read_bytes(), other.read_bytes()
    one.write_bytes(theirs)
    other.write_bytes(ours)


def take_the_other_turn(where: Path) -> None:
    current = os.readlink(where / "u")
    other = current[:-1] + str(1 - int(current[-1]))
    shutil.copyfile(where / other / "c/0/0/0", where / current / "c/0/0/0")


def lose_a_write(where: Path) -> None:
    """Replace the newest values of a plane by its values in the other copy on disk, as if the last write were lost."""
    current = os.readlink(where / "u")
    size = record_bytes(where)
    older = (where / (current[:-1] + str(1 - int(current[-1]))) / "c/0/0/0").read_bytes()
    with open(where / current / "c/0/0/0", "r+b") as file:
        file.seek(5 * size)
        file.write(older[5 * size : 6 * size])


def take_planes_of_another_run(where: Path) -> None:
    make_run(where.with_name("other.oc"))
    shutil.copyfile(where.with_name("other.oc") / "v/c/0/0/0", where / "v/c/0/0/0")


def flip(name: str, place: int = 9) -> Callable[[Path], None]:
    def damage(where: Path) -> None:
        content = bytearray((where / name).read_bytes())
        content[place] ^= 4
        (where / name).write_bytes(content)

    damage.__name__ = f"flip {name}"
    return damage


def cut(name: str) -> Callable[[Path], None]:
    def damage(where: Path) -> None:
        os.truncate(where / name, (where / name).stat().st_size - 8)

    damage.__name__ = f"cut {name}"
    return damage


PLANES = [swap_planes, swap_arrays, take_the_other_turn, lose_a_write, take_planes_of_another_run]
RECORDS = [
    flip(".taps/trace-line"), flip(".taps/norms-u"), flip(".taps/snapshots-u", 1), flip(".taps/source-0"),
    flip(".taps/source-0", -9), flip(".taps/receivers-0"), cut(".taps/trace-line"), cut(".taps/norms-u"),
]  # fmt: skip
SNAPSHOTS = [flip("snapshots.zarr/u/c/3/0/0/0"), cut("snapshots.zarr/u/c/1/0/0/0")]


@pytest.mark.parametrize("damage", [*PLANES, *RECORDS, *SNAPSHOTS], ids=lambda damage: damage.__name__)
def test_verify_finds_what_is_not_what_was_written(damage: Callable[[Path], None], tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    make_run(where)
    assert not find_damage(open_state(where)).damage
    damage(where)
    try:
        assert find_damage(open_state(where)).damage
    except StorageError as error:  # a file that is too short is refused immediately
        assert " bytes, but needs " in str(error) or " bytes, not " in str(error)


@pytest.mark.parametrize("damage", [*PLANES, *RECORDS], ids=lambda damage: damage.__name__)
def test_resume_does_not_go_on_from_what_is_damaged(damage: Callable[[Path], None], tmp_path: Path) -> None:
    """Checks that a run stops if planes, records, points or values are damaged. The run stops before its first pass or
    during a pass."""
    where = tmp_path / "run.oc"
    make_run(where)
    damage(where)
    before = json.loads((where / "manifest.json").read_text())["step"]
    with pytest.raises(StorageError):
        oc.open(where).run(4, progress="none")
    assert json.loads((where / "manifest.json").read_text())["step"] == before


def test_repair_mends_links_and_keeps_damaged_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `--repair` writes links and metadata again, and accepts damaged traces. It does not change damaged
    planes.
    """
    where = tmp_path / "run.oc"
    make_run(where)
    (where / "u").unlink()
    (where / "zarr.json").write_text("{}")
    flip(".taps/trace-line")(where)
    assert call(["verify", str(where)]) == 2
    assert "1 of" in capsys.readouterr().err
    assert call(["verify", "--repair", str(where)]) == 0
    assert "kept as it is" in capsys.readouterr().out
    oc.open(where).run(2, progress="none")
    cut(".taps/trace-line")(where)
    (where / ".taps/norms-u").unlink()
    assert call(["resume", str(where), "-t", "2"]) == 2
    assert call(["verify", "--repair", str(where)]) == 0
    sim = oc.open(where)
    sim.run(2, progress="none")
    lost = np.isnan(sim.traces["line"])
    assert lost.sum() == 1 and lost[9, 1] and np.isnan(sim.norms["u"]["sum"][:6]).all()
    flip("u/c/0/0/0")(where)
    assert call(["verify", "--repair", str(where)]) == 2


def test_verify_goes_on_after_missing_and_truncated_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `verify` prints a line for each missing or truncated file, and also tests all other files."""
    where = tmp_path / "run.oc"
    make_run(where, tmp_path / "more")
    (where / "v/c/0/0/0").unlink()
    current = os.readlink(where / "u")
    os.truncate(where / current / "c/0/0/0", 100)
    os.truncate(where / ".taps/source-0", 8)
    (where / ".taps/snapshots-u").unlink()
    flip(f"{current}/c/1/0/0")(where)
    flip(".taps/trace-line")(where)
    before = everything_below(tmp_path)
    assert call(["verify", str(where)]) == 2
    out, error = capsys.readouterr()
    lines = out.splitlines()
    for text in ("v/c/0/0/0 cannot be used: No such file", "c/0/0/0 has 100 bytes, not", "source-0 has 8 bytes, but",
                 "snapshots-u is missing", "plane 6 is damaged", "trace-line is damaged"):  # fmt: skip
        assert sum(text in line for line in lines) == 1, (text, lines)
    assert len(lines) == 6 and "4 files cannot be used, and 2 of " in error and everything_below(tmp_path) == before


def test_reading_changes_nothing(tmp_path: Path) -> None:
    """Checks that reads change no file, not even a file that a crash has left incomplete."""
    where = tmp_path / "run.oc"
    make_run(where)
    (where / "u").unlink()
    (where / "manifest.json.tmp").write_text("half")
    (where / "snapshots.zarr/zarr.json").unlink()
    before = everything_below(tmp_path)
    sim = oc.open(where)
    assert sim["u"][3].any() and len(sim.traces["line"]) == 8 and sim.snapshots["u"][1].any()
    for words in (["info"], ["verify"], ["plot", "-o", str(tmp_path.parent / "picture.png")]):
        call([words[0], str(where), *words[1:]])
    assert everything_below(tmp_path) == before


def rewrite(path: Path, **changes: object) -> None:
    """Change keys of a sealed file and update its checksum."""
    content = json.loads(path.read_text())
    del content["crc32c"]
    path.write_bytes(sealed({**content, **changes}))


def test_info_ends_for_any_number_of_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks a run with a history whose manifest has a very large number of steps. `outcrop info` must not count the
    steps that an adjoint run would repeat."""
    where = tmp_path / "run.oc"
    sim = oc.Simulation("heat2", (12, 8, 8), directory=where, init=1, memory="1MiB", threads=1)
    sim.run(16, history=oc.History(2, limit="16KiB", recompute=True), progress="none")
    assert call(["info", str(where), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["repeated_steps"] > 0
    rewrite(where / "manifest.json", step=1 << 52, target_step=1 << 52)
    assert call(["info", str(where), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["repeated_steps"] is None
    assert call(["info", str(where)]) == 0


def test_names_of_a_manifest_lead_nowhere_else(tmp_path: Path) -> None:
    """Checks that `--force` deletes nothing outside a run, for any names of arrays, members or records in a manifest.
    """
    where, mine = tmp_path / "run.oc", tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    arrays = [{"name": str(mine), "is_static": True}, {"name": "../mine", "is_static": True}]
    for array in arrays:
        shutil.rmtree(where, ignore_errors=True)
        make_run(where)
        rewrite(where / "manifest.json", arrays=[array])
        with pytest.raises(InputError, match=r"manifest\.json is damaged"):
            oc.Simulation("heat7", SHAPE, directory=where, force=True)
    where.joinpath("manifest.json").unlink()
    shutil.rmtree(where)
    where.mkdir()
    member = {"identity": "1", "run": str(tmp_path / "gone"), "index": 1, "folders": ["../mine", ".."]}
    (where / "outcrop-member.json").write_bytes(sealed(member))
    with pytest.raises(InputError, match="something else"):
        oc.Simulation("heat7", SHAPE, directory=where, force=True)
    assert (mine / "thesis.tex").exists()


@pytest.mark.parametrize("name", ["manifest.json.tmp", ".taps/trace-line", ".u.0/c/0/0/0", ".u.0", ".taps", "u"])
def test_nothing_is_written_through_links(name: str, tmp_path: Path) -> None:
    where, mine = tmp_path / "run.oc", tmp_path / "mine"
    make_run(where)
    mine.mkdir()
    target = mine / "file"
    if (where / name).is_dir() and name != "u":
        shutil.rmtree(where / name)
        target = mine
    else:
        (where / name).unlink(missing_ok=True)
        target.write_bytes(bytes(1 << 16))
    (where / name).symlink_to(target)
    before = everything_below(mine)
    try:
        oc.open(where).run(4, progress="none")
    except OutcropError as error:
        assert "\n" not in str(error)
    assert everything_below(mine) == before


def test_a_copy_of_a_run_cannot_overwrite_further_directories(tmp_path: Path) -> None:
    """Checks a copy of a run. As long as the original run exists, the copy cannot write to the further directories of
    the original run. A run that was moved can use its further directories.
    """
    first, second, copy = (tmp_path / name for name in ("run.oc", "further", "copy.oc"))
    make_run(first, second)
    shutil.copytree(first, copy, symlinks=True)
    with pytest.raises(StorageError, match=r"belongs to the run in .*run\.oc, of which .*copy\.oc is a copy"):
        oc.open(copy)
    shutil.rmtree(first)
    oc.open(copy).run(4, progress="none")
    rewrite(second / "outcrop-member.json", identity="0" * 32)
    with pytest.raises(StorageError, match="does not hold planes of the run"):
        oc.open(copy)


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_directory_that_goes_during_a_run_is_noticed(is_moved: bool, tmp_path: Path) -> None:
    """Checks that a run fails at its next commit if its directory was moved or deleted. If the error says that a step
    is committed, this step must be committed.
    """
    where = tmp_path / "run.oc"
    oc.Simulation("heat7", SHAPE, directory=where, memory="1MiB", sizes={"bt": 1})["u"] = 1.0
    sim = oc.open(where)

    def leave() -> None:
        while sim.step < 3 and not ended:
            time.sleep(0.001)
        if is_moved:
            where.rename(tmp_path / "elsewhere")
        while where.exists():  # a commit may create a file at this place again
            shutil.rmtree(where, ignore_errors=True)

    ended: list[bool] = []
    leaving = threading.Thread(target=leave)
    leaving.start()
    try:
        with pytest.raises(StorageError) as caught:
            sim.run(100_000, progress="none")
    finally:
        ended.append(True)
        leaving.join()
    assert "intact" not in str(caught.value) and not (where / "manifest.json").exists()
    if is_moved:
        assert "was moved or deleted" in str(caught.value)
        moved = oc.open(tmp_path / "elsewhere")
        assert moved.step >= 3 and (moved["u"][...] == 1).all()


def test_force_keeps_files_that_are_not_of_the_run(tmp_path: Path) -> None:
    """Checks that `force` keeps the user's files in the directory of a run. `force` is refused if a file of the user is
    inside a folder of the run.
    """
    where = tmp_path / "run.oc"
    make_run(where)
    (where / "notes.txt").write_text("mine")
    oc.Simulation("heat7", SHAPE, directory=where, force=True)["u"] = 1.0
    assert (where / "notes.txt").read_text() == "mine"
    (where / ".u.0" / "notes.txt").write_text("mine")
    before = everything_below(where)
    with pytest.raises(InputError, match=r"not the run's \(\.u\.0/notes\.txt\)"):
        oc.Simulation("heat7", SHAPE, directory=where, force=True)
    assert everything_below(where) == before


def test_a_manifest_that_was_changed_by_chance_is_refused(tmp_path: Path) -> None:
    """Checks that the checksum of the manifest detects a changed number."""
    where = tmp_path / "run.oc"
    make_run(where)
    path = where / "manifest.json"
    path.write_text(path.read_text().replace('"step": 8,', '"step": 9,'))
    with pytest.raises(InputError, match="checksum mismatch"):
        oc.open(where)


def test_a_refused_run_does_not_change_the_requested_steps(tmp_path: Path) -> None:
    """Checks a finished run with a damaged trace. A command that is refused because of the damage must not change the
    run."""
    where = tmp_path / "run.oc"
    make_run(where)
    flip(".taps/trace-line")(where)
    before = everything_below(where)
    assert call(["resume", str(where), "-t", "20"]) == 2
    assert oc.open(where).remaining_steps == 0 and everything_below(where) == before
    with pytest.raises(CorruptionError, match="trace-line is damaged"):
        oc.open(where, params={"h": 2.0}).run(20, progress="none")
    assert everything_below(where) == before


def test_truncated_traces_are_no_corruption_of_planes(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    make_run(where)
    flip("u/c/0/0/0")(where)
    with pytest.raises(CorruptionError, match="plane 0 is damaged: checksum mismatch"):
        oc.open(where)["u"][0]
    swap_planes(where)
    with pytest.raises(CorruptionError, match="it is whole, but is not what was last written there"):
        oc.open(where)["u"][0]


def test_repair_keeps_the_checksums_that_a_short_record_still_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks a record of the checksums of snapshots that has lost its last two rows. `--repair` must not change the
    other three rows."""
    where = tmp_path / "run.oc"
    shape, shots = (12, 8, 8), oc.Snapshots(1)
    sim = oc.Simulation("heat2", shape, directory=where, init=1, memory="1MiB", threads=1, snapshots=shots)
    sim.run(4, "none")
    os.truncate(where / ".taps" / "snapshots-u", 3 * 4)
    assert call(["verify", "--repair", str(where)]) == 2
    capsys.readouterr()
    assert call(["verify", str(where)]) == 2
    out = capsys.readouterr().out
    assert [number for number in range(5) if f"/u/c/{number}/" in out] == [3, 4]


def test_repair_goes_on_after_missing_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `--repair` mends everything else if shards and a record cannot be used, and says at the end what it
    could not mend."""
    where = tmp_path / "run.oc"
    make_run(where, tmp_path / "more")
    current = os.readlink(where / "u")
    shutil.rmtree(where / current / "c/0")
    (where / "v/c/0/0/0").unlink()
    (where / "v/c/0/0/0").mkdir()
    (where / "u").unlink()
    (where / "zarr.json").write_text("{}")
    (where / ".taps/norms-u").unlink()
    os.mkfifo(where / ".taps/norms-u")
    flip(".taps/trace-line")(where)
    flip("v/c/1/0/0", -9)(where)  # the index of this shard
    assert call(["verify", "--repair", str(where)]) == 2
    out, error = capsys.readouterr()
    for text in ("u does not lead to", "zarr.json is not what belongs there: mended", "norms-u", ": not repaired",
                 "trace-line is damaged: checksum mismatch: kept as it is", f"{current}/c/0/0/0 cannot be used:",
                 "v/c/0/0/0 is not a regular file"):  # fmt: skip
        assert text in out
    assert "3 files cannot be used, and 0 of " in error
    assert error.endswith("; --repair cannot mend the files above: restore them from a copy\n")
    assert os.readlink(where / "u") == current and (where / "zarr.json").stat().st_size > 100
    assert call(["verify", str(where)]) == 2
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize("way", ["removed", "shorter", "removed folder"])
def test_a_lost_file_without_committed_values_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """Checks the copy that the next pass overwrites. Reads do not need it. `verify` reports it, and `--repair` and the
    next pass make it again."""
    where = tmp_path / "run.oc"
    make_run(where, tmp_path / "more")
    values, spare = oc.open(where)["u"][:], {".u.0": ".u.1", ".u.1": ".u.0"}[os.readlink(where / "u")]
    steps = oc.open(where).step

    def damage() -> None:
        if way == "removed folder":
            shutil.rmtree(where / spare / "c")
        elif way == "removed":
            (tmp_path / "more" / spare / "c/1/0/0").unlink()
        else:
            os.truncate(where / spare / "c/0/0/0", 100)

    before = {str(one.relative_to(where)) for one in where.rglob("*")}
    damage()
    np.testing.assert_array_equal(oc.open(where)["u"][:], values)
    assert call(["verify", str(where)]) == 2
    out, error = capsys.readouterr()
    assert "(without committed values)" in out and "--repair" in error and "cannot be used," not in error
    assert call(["verify", "--repair", str(where)]) == 0 and call(["verify", str(where), "--quiet"]) == 0
    assert {str(one.relative_to(where)) for one in where.rglob("*")} == before
    damage()
    oc.open(where).run(3, progress="none")
    assert oc.open(where).step == steps + 3 and call(["verify", str(where), "--quiet"]) == 0
