"""Check commits of arrays. An opened array has the values of the last complete commit. Messages name damaged parts."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop import durable
from outcrop.errors import CorruptionError, InputError

SHAPE = (5, 1 << 17)  # the array has 2.5 tiles of 1 MiB each
MIB = 1 << 20


def made(path: Path, persist: str | int = "step", steps: int = 3) -> None:
    """Make an array and commit some steps. Step k sets all cells to k, so each step changes all tiles."""
    with oc.array(SHAPE, "float32", persist=persist, path=path) as array:
        for step in range(1, steps + 1):
            array[...] = step
            array.step()


def flip(path: Path, offset: int) -> None:
    """Flip one bit of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


@pytest.mark.parametrize(("persist", "commits"), [("step", 7), (3, 3), (7, 1), (8, 1), ("end", 1)])
def test_commits_when_it_was_asked_to(tmp_path: Path, persist: str | int, commits: int) -> None:
    """Checks the number of commits for each value of `persist`. An array is committed at each step, at each k-th step,
    or when it is closed with changes.
    """
    made(tmp_path / "a", persist, steps=7)
    with oc.open_array(tmp_path / "a") as array:
        assert (array.steps, array.generation, array.persist) == (7, commits, persist)
        assert (np.asarray(array) == 7).all()


def test_names_of_new_folders_are_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that all new folders above an array are flushed. Otherwise a power cut may remove the folder that contains
    a commit."""
    flushed: set[Path] = set()

    class Told(durable.System):
        @staticmethod
        def fsync(handle: int) -> None:
            flushed.add(Path(os.readlink(f"/proc/self/fd/{handle}")))

    monkeypatch.setattr(durable, "SYSTEM", Told())
    monkeypatch.chdir(tmp_path)
    oc.array(SHAPE, persist="end", path="of/mine/a").abandon()
    below = {tmp_path / name for name in ("", "of", "of/mine", "of/mine/a")}
    assert flushed >= below | {tmp_path / "of/mine/a/commit.0.json.tmp"}
    assert all(path in below or path in tmp_path.parents or path.is_file() for path in flushed)
    flushed.clear()
    oc.array(SHAPE, path=tmp_path / "of" / "b.npy").close()
    assert {path for path in flushed if path.is_dir()} == {tmp_path / "of"}


def test_goes_on_where_it_was(tmp_path: Path) -> None:
    """Checks that each call of `oc.array` continues the array of the previous call: its values, its steps and its
    generations.
    """
    for run in range(3):
        with oc.array(SHAPE, "float32", persist="step", path=tmp_path / "a") as array:
            assert array.steps == array.generation == run and (array.values == run).all()
            array += 1
            array.step()
    with oc.open_array(tmp_path / "a", access="read") as array:
        assert (array.values == 3).all() and array.access == "read"


def test_writes_only_what_changed(tmp_path: Path) -> None:
    """Checks that a commit writes only the tiles that changed. A tile has 1 MiB, and the last tile is shorter."""
    with oc.array(SHAPE, "float32", persist="step", path=tmp_path / "a") as array:
        whole = array.step()
        array[0, 5] = 1
        first = array.step()
        array[4, -1] = 1
        last, nothing = array.step(), array.step()
        written = [flush.bytes_written for flush in (whole, first, last, nothing) if flush]
        assert written == [array.nbytes, MIB, MIB // 2, 0]
        assert array.generation == 4 and array.flush().generation == 4, "steps count, an idle flush does not"


def test_an_exception_leaves_the_last_commit(tmp_path: Path) -> None:
    """Checks that the array has the values of its last commit after an exception. Later changes are lost."""
    with pytest.raises(ZeroDivisionError), oc.array(SHAPE, persist="step", path=tmp_path / "a") as array:
        array[...] = 1
        array.step()
        array[2] = 5
        raise ZeroDivisionError
    with oc.open_array(tmp_path / "a") as array:
        assert (array.values == 1).all() and array.steps == 1


def test_read_arrays_have_one_slot_until_they_are_updated(tmp_path: Path) -> None:
    """Checks that a read-only array has one slot for each tile. When the array is opened for updates, each tile gets a
    second slot.
    """
    path = tmp_path / "a"
    with oc.array(SHAPE, "float32", access="read", persist="end", path=path) as array:
        array[...] = 4
    size = (path / "tiles").stat().st_size
    with oc.open_array(path, access="update", persist="step") as array:
        array += 1
        array.step()
    assert (path / "tiles").stat().st_size == 2 * size
    with oc.open_array(path, access="read") as array:
        assert (array.values == 5).all()


@pytest.mark.parametrize("access", ["read", "update"])
def test_a_flipped_byte_is_found_and_the_commit_before_opened(tmp_path: Path, access: str) -> None:
    """Checks that a flipped byte anywhere in the last commit is found, and that the previous commit is opened instead.

    A warning gives the place of the damage. The next commit continues from the commit that was opened.
    """
    path = tmp_path / "a"
    made(path)
    flip(path / "tiles", 1 * MIB + 77)  # generation 3 is in slot 0, like generation 1
    with (
        pytest.warns(RuntimeWarning, match=r"generation 3 is damaged: checksum .* at offset 1048576 .*; opened .* 2"),
        oc.open_array(path, access=access) as array,
    ):
        assert (array.values == 2).all() and array.steps == array.generation == 2
        if access == "update":
            array += 10
            array.step()
    if access == "update":
        with oc.open_array(path) as array:
            assert (array.values == 12).all() and array.generation == 3


def test_a_damaged_record_is_found_and_the_commit_before_opened(tmp_path: Path) -> None:
    """Checks that a damaged record is found by its own checksum. The previous commit is opened instead."""
    path = tmp_path / "a"
    made(path, steps=2)
    content = json.loads((path / "commit.0.json").read_text())
    (path / "commit.0.json").write_text(json.dumps({**content, "steps": 99}))
    mismatch = r"commit.0.json is damaged: checksum mismatch"
    with pytest.warns(RuntimeWarning, match=mismatch), oc.open_array(path) as array:
        assert (array.values == 1).all() and array.steps == 1
    (path / "commit.0.json").write_bytes(b"\xff{")
    with pytest.warns(RuntimeWarning, match=r"commit.0.json is damaged or not written by Outcrop"):
        oc.open_array(path).abandon()


def test_when_nothing_is_whole_it_says_so(tmp_path: Path) -> None:
    """Checks that an array without a complete commit cannot be opened."""
    path = tmp_path / "a"
    made(path)
    stride = 5 * MIB // 2
    flip(path / "tiles", 5)
    flip(path / "tiles", stride + 2 * MIB)
    with pytest.raises(CorruptionError, match=r"no intact commit: generation 3 .* generation 2 is damaged"):
        oc.open_array(path)
    os.truncate(path / "tiles", 100)
    with pytest.raises(CorruptionError, match=r"no intact commit: .*tiles has 100 bytes; .* needs"):
        oc.open_array(path, access="read")


def hold(path: Path) -> str:
    """Try to open the array. Return the error message, or an empty text if the array was opened. Another process runs
    this function."""
    try:
        oc.open_array(path).abandon()
    except InputError as error:
        return str(error)
    return ""


def test_one_process_at_a_time_changes_it(tmp_path: Path) -> None:
    """Checks that only one process at a time may change an array. Several readers may open it together."""
    path = tmp_path / "a"
    made(path)
    with get_context("spawn").Pool(1) as others:
        with oc.open_array(path):
            assert "in use by another process" in others.apply(hold, (path,))
        with oc.open_array(path, access="read"), oc.open_array(path, access="read") as second:
            assert "in use by another process" in others.apply(hold, (path,)), "it wants to update"
            assert (second.values == 3).all()
        assert others.apply(hold, (path,)) == ""


def test_an_array_that_is_let_go_unclosed_says_what_is_lost(tmp_path: Path) -> None:
    """Checks an array object that is deleted without `close`. A warning says that changes are lost. Another object can
    open the array.

    For example, a notebook cell that runs a second time deletes the array object of its first run. Committed changes
    are not lost.
    """
    path = tmp_path / "a"
    array = oc.array(SHAPE, persist="end", path=path)
    array[...] = 1
    with pytest.raises(InputError, match=r"or by an array of this process that is not closed; .*close it"):
        oc.array(SHAPE, persist="end", path=path)
    with pytest.warns(RuntimeWarning, match=r"a was not closed: the changes after commit 0 are lost; use `with`"):
        del array
    array = oc.array(SHAPE, persist=np.int64(2), path=path)
    array.step()
    array.step()
    del array  # the array has no changes that could be lost
    array = oc.open_array(path)
    assert (array.steps, array.persist) == (2, 2)
    array.step()
    with pytest.warns(RuntimeWarning, match="after commit 1 are lost"):
        del array
    array = oc.open_array(path, access="read")
    del array


def test_steps_of_several_threads_are_counted_and_committed_one_after_the_other(tmp_path: Path) -> None:
    """Checks that several threads can commit one array. Each step must be counted and committed."""
    threads, steps = 4, 8
    with oc.array(SHAPE, "int8", persist="step", path=tmp_path / "a") as array:

        def work(thread: int) -> None:
            for _ in range(steps):
                array[thread] += 1
                array.step()
                array.flush()

        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(work, thread) for thread in range(threads)]:
                done.result()
        assert array.steps == threads * steps and array.generation >= array.steps
        generation = array.generation
    with oc.open_array(tmp_path / "a", access="read") as array:
        assert (array.steps, array.generation) == (threads * steps, generation)
        assert (array.values[:threads] == steps).all()


def names_in_use(folder: Path) -> list[str]:
    """Return the names of the files below `folder` that this process has opened or mapped."""
    opened = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
    mapped = [line.partition("/")[2] for line in Path("/proc/self/maps").read_text().splitlines()]
    return [name for name in (*opened, *mapped) if name.startswith((str(folder), str(folder)[1:]))]


@pytest.mark.parametrize(
    "words",
    [
        {"persist": "step", "path": "a"},
        {"persist": "end", "path": "a", "access": "read"},
        {"path": "a.npy"},
    ],
)
def test_a_closed_array_keeps_no_memory_and_no_file(tmp_path: Path, words: dict[str, str]) -> None:
    """Checks that `close` releases mappings and descriptors, even if a variable still refers to the array. Only views
    keep the memory of the values."""
    array = oc.array(SHAPE, "float32", **{**words, "path": tmp_path / words["path"]})
    array[...] = 3
    primitive = array.primitive
    view = array.values[2:4]
    array.close()
    assert (view == 3).all() and names_in_use(tmp_path)
    del view
    assert names_in_use(tmp_path) == []
    assert (array.primitive, array.generation) == (primitive, 1 if "persist" in words else 0)
    with pytest.raises(InputError, match="is closed"):
        array.flush()


def test_an_array_that_does_not_fit_names_the_remedy(tmp_path: Path) -> None:
    """Checks the message for an array whose tier has no room for the working copy. The remedy in the message must
    work."""
    path = tmp_path / "a"
    with oc.array(SHAPE, "float32", persist="step", path=path, working="dram") as array:
        array[...] = 1
        array.step()
        tier = array.tier.name

    def placed(**words: str) -> oc.Placement:
        spec = oc.ArraySpec(SHAPE, "float32", persist="step", path=path, **words)
        return oc.place({"array": spec}, capacities={tier: 0})

    with pytest.raises(InputError, match=r"no room: .*; use oc.array\(\.\.\., working='dram'\), or access='read'$"):
        placed()
    with placed(working="dram").make()["array"] as array:
        assert (array.values == 1).all()


def test_a_copy_in_dram_is_committed_the_same(tmp_path: Path) -> None:
    """Checks a commit of an array whose program computes on a working copy in DRAM. The committed values must equal the
    values of the working copy."""
    with oc.array(SHAPE, persist="step", path=tmp_path / "a", working="dram") as array:
        array[...] = 3
        array.step()
    with oc.open_array(tmp_path / "a", access="read") as array:
        assert (array.values == 3).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"tier": "floppy"}, "there is no tier 'floppy'; there are dram"),
        ({"tier": "cxl"}, "there is no cxl here; there are dram"),
        ({"shape": 1 << 50, "tier": "dram"}, "no room: it takes 8 PiB|no room: it takes 8 PiB"),
        ({"shape": 1 << 50, "path": "new.npy"}, "no room: it takes 8 PiB"),
        ({"shape": 1 << 50, "path": "new", "persist": "step"}, "no room: it takes 24 PiB"),
        ({"tier": "dram", "persist": "end"}, "persist='end' on dram, which loses its data when the process ends; use "),
        ({"tier": "dram", "path": "new.npy"}, "new.npy is on .* not in tier dram, which has no files"),
        ({"tier": "tmpfs", "path": "new.npy"}, "new.npy is on .* not on tier tmpfs; give a path on .* of /dev/shm"),
        ({"persist": "end"}, "persist='end' needs a path"),
        ({"path": "text"}, "text is not a .npy file"),
        ({"path": "folder", "persist": "end"}, r"folder holds something else \(mine\)"),
        ({"path": "folder"}, "folder is a folder; give another path"),
        ({"path": "text", "persist": "end"}, "text is a file; an array that is committed is a folder"),
        ({"path": "text/below", "persist": "end"}, "text/below cannot be made: .*text is a file"),
        ({"path": "there", "persist": "end"}, r"there holds an array of shape \(2, 2\) and dtype int8, not \(3,\)"),
        ({"path": "there"}, "there is an array that is committed; open it with oc.open_array"),
        ({"shape": (0, 3)}, "must have at least one cell"),
        ({"shape": "large"}, "shape 'large' must be whole numbers"),
        ({"shape": (1,) * 33, "persist": "end", "path": "new"}, "has more axes than NumPy takes; give at most 32"),
        ({"persist": np.arange(2)}, "persist=array.* must be 'never', 'end', 'step' or a number"),
        ({"dtype": "O"}, "cannot be kept as plain bytes"),
        ({"dtype": "float31"}, "dtype 'float31' is not known"),
        ({"access": "write"}, "access='write' must be one of 'read', 'update'"),
        ({"persist": 0}, "persist=0 must be 'never', 'end', 'step' or a number"),
        ({"persist": "step", "access": "read", "path": "new"}, "only read never changes"),
        ({"working": "dram"}, "working='dram' is for arrays that are committed"),
        ({"seconds_per_step": -1.0}, "seconds_per_step=-1.0 must be a finite number of at least 0"),
        ({"seconds_per_step": "fast"}, "seconds_per_step='fast' must be a finite number of at least 0"),
        ({"bytes_read_per_step": float("nan")}, "bytes_read_per_step=nan must be a finite number of at least 0"),
        ({"path": "text/below/none"}, "text/below/none cannot be made: .*text is a file"),
        ({"path": ""}, "path '' is not a path"),
        ({"path": 3}, "path 3 is not a path"),
        ({"tier": None}, "tier=None must be 'auto', or a name or kind of a tier"),
    ],
)
def test_what_cannot_be_is_one_line_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, object], message: str
) -> None:
    """Checks that wrong arguments of arrays are refused. The error names the wrong value and the correct form. No file
    is made."""
    if words.get("tier") == "tmpfs" and not Path("/dev/shm").is_mount():
        pytest.skip("no tmpfs here")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("of mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()
    with oc.array((2, 2), "int8", persist="end", path="there"):
        pass
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=message) as raised:
        oc.array(**{"shape": 3, **words})  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_opening_what_is_not_there(tmp_path: Path) -> None:
    """Checks the error messages for a missing path, for a folder without an array, and for an array without a
    commit."""
    with pytest.raises(InputError, match="there is no array at"):
        oc.open_array(tmp_path / "a")
    with pytest.raises(InputError, match="holds no array"):
        oc.open_array(tmp_path)
    array = oc.array(SHAPE, persist="end", path=tmp_path / "a")
    array.abandon()
    with pytest.raises(InputError, match="an array without any commit yet"):
        oc.open_array(tmp_path / "a")
    with oc.array((2, 2), persist="end", path=tmp_path / "a"):
        pass  # after this call, another array may be made at this path
