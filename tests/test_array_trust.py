"""Check arrays of untrusted users. Damage gives an error of one line, each call returns, and no other file is
changed."""

from __future__ import annotations

import errno
import json
import os
import shutil
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from committed_arrays import SHAPE, made, refusal, ways
from folders import tree
from outcrop import durable
from outcrop.errors import CorruptionError, InputError, OutcropError, StorageError

pytestmark = pytest.mark.timeout(300)  # this limit stops a test that waits for a pipe

TILES, EVEN, ODD = "tiles", "commit.0.json", "commit.1.json"


def rewrite(path: Path, **fields: object) -> None:
    """Change fields of a record and update its checksum. The value None removes a field."""
    content = json.loads(path.read_text())
    del content["crc32c"]
    content = {name: value for name, value in {**content, **fields}.items() if value is not None}
    path.write_bytes(durable.sealed(content))


NUMBERS = (True, -1, 0, 2, 2**31, 2**62, 2**63 - 1, 1.5)
NONSENSE = (None, *NUMBERS, "", "x", "\0", "a\nb", "../..", "0" * 300, [], [1], [[1]], {}, {"a": 1})
FIELDS: dict[str, tuple[object, ...]] = {
    "format": (),
    "shape": ([-3, 1 << 17], [3, 0], [3.0, 5], [1] * 33, [2**61, 2**61], [2**62] * 32, [True, 3], [3, 1 << 18], "3"),
    "dtype": ("O", "<f3", "<f4\n", "<U8", "<M8[s]", "V8", "f4,f4", "float32", "<f99", "<c16"),
    "access": ("write", "READ", ["read"]),
    "persist": ("never", "steps", 0, -5, 2**64 - 1),
    "tile_bytes": (4096, 1 << 21, 1048577, -(1 << 20)),
    "generation": (3, 2**62 + 1, -2),
    "steps": (-2, 2**62 + 1),
    "slots": ("0", "00", "000000", "0002", "00ff", "00 00", "0000\n", "zz00", 0),
    "checksums": ("00" * 4, "00" * 7, "00" * 8, "00" * 12, "zz" * 8, " " * 16),
    "array": ("0" * 31, "g" * 32, "0" * 33),
}
RIGHT: dict[str, tuple[object, ...]] = {
    "format": (1,),
    "persist": (2, 2**31, 2**62),
    "generation": (3,),
    "steps": (0, 2, 2**31, 2**62),
    "array": (None,),
}
"""Values in the lists of wrong values that are valid for a field."""


@pytest.mark.parametrize("name", FIELDS)
def test_a_record_with_a_field_of_any_type_and_range_is_one_line(tmp_path: Path, name: str) -> None:
    """Checks that a record with a wrong field is refused in one line and is not changed.

    The checksum of the record is correct, so only the value of the field is wrong.
    """
    path = made(tmp_path / "a")
    whole = (path / ODD).read_bytes()
    for number, value in enumerate((*NONSENSE, *FIELDS[name])):
        if any(type(value) is type(right) and value == right for right in RIGHT.get(name, ())):
            continue
        (path / ODD).write_bytes(whole)
        rewrite(path / ODD, **{name: value})
        before = tree(tmp_path)
        refusal(ways(path)[number % 4], CorruptionError, InputError)
        assert tree(tmp_path) == before, value


def test_records_that_are_no_records_are_one_line(tmp_path: Path) -> None:
    """Checks that a file without a valid record is refused in one line, for example a file with very long numbers or
    deeply nested brackets.
    """
    path = made(tmp_path / "a")
    whole = (path / ODD).read_bytes()
    texts = [b"", b"\0" * 100, b"[]", b"null", b"{}", b'{"crc32c": 0}', b"[" * 100_000, b'{"a":' * 100_000, whole[:-30]]
    texts += [
        b'{"steps": 1%s}' % (b"0" * 10_000),
        whole * 2,
        b" " * (1 << 20) + whole,
        b'{"crc32c": 1e999}',
        b"\xff\xfe",
    ]
    for number, text in enumerate(texts):
        (path / ODD).write_bytes(text)
        assert "commit.1.json is damaged" in refusal(ways(path)[number % 4], CorruptionError)
    with open(path / ODD, "wb") as file:
        file.truncate(1 << 40)
    assert "are too many for the tiles" in refusal(ways(path)[0], CorruptionError)
    (path / ODD).write_bytes(whole)
    rewrite(path / ODD, format=2)
    assert "is of format 2; this version of Outcrop reads 1" in refusal(ways(path)[1], InputError)


def test_a_commit_that_could_not_be_read_again_is_not_made(tmp_path: Path) -> None:
    """Checks that a record with the greatest allowed step can be read, but that no later step can be committed."""
    path = made(tmp_path / "a")
    rewrite(path / ODD, steps=2**62)
    with oc.open_array(path) as array:
        with pytest.raises(StorageError, match="cannot count to generation 2, step 46116"):
            array.step()
        array.abandon()
    ways(path)[0]().abandon()


def replace_by(what: str, path: Path, elsewhere: Path) -> None:
    """Replace a file by something else, such as a link or a pipe."""
    elsewhere.mkdir(exist_ok=True)
    if path.exists():
        path.replace(elsewhere / path.name)
    if what == "link":
        path.symlink_to(elsewhere / path.name)
    elif what == "dangling link":
        path.symlink_to(elsewhere / "new")
    elif what == "circle":
        path.symlink_to(path)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "device":
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("what", ["link", "dangling link", "circle", "pipe", "folder", "device", "nothing"])
@pytest.mark.parametrize("name", [TILES, EVEN, ODD, f"{EVEN}.tmp", f"{ODD}.tmp"])
def test_files_that_are_something_else_are_one_line(tmp_path: Path, name: str, what: str) -> None:
    """Checks that no link is followed, that no call waits, and that nothing outside the folder changes."""
    path = made(tmp_path / "a", steps=2)
    replace_by(what, path / name, tmp_path / "b")
    before = tree(tmp_path)
    for way in ways(path):
        if what == "nothing" and name != TILES:  # the last commit is lost, but the previous commit remains
            with way() as array:
                assert (array.values == (1 if name == EVEN else 2)).all()
        else:
            assert name in refusal(way, StorageError, InputError) or name == TILES
    assert tree(tmp_path) == before


def test_tiles_cut_short_are_found_before_anything_is_changed(tmp_path: Path) -> None:
    """Checks that a truncated file of tiles is detected. The previous commit is opened if all of its tiles are
    complete."""
    path, slots = made(tmp_path / "a", steps=2), 3 << 19
    for count in (2 * slots - 1, slots):
        os.truncate(path / TILES, count)
        before = tree(tmp_path)
        with pytest.warns(RuntimeWarning, match=rf"has {count} bytes; generation 2 needs .*; opened generation 1"):
            array = ways(path)[0]()
        assert (array.values == 1).all() and tree(tmp_path) == before
        array.abandon()
    for count in (slots - 1, 4096, 1, 0):
        os.truncate(path / TILES, count)
        before = tree(tmp_path)
        for way in ways(path):
            assert f"has {count} bytes" in refusal(way, CorruptionError)
        assert tree(tmp_path) == before


def test_records_of_other_arrays_and_under_other_names_are_found(tmp_path: Path) -> None:
    """Checks that Outcrop detects records that belong to another array, even if all values are equal."""
    one, other, small = made(tmp_path / "a", 2), made(tmp_path / "b", 3), tmp_path / "c"
    with oc.array((5,), "float32", persist="step", path=small) as array:
        array.step()
    kept = {name: (one / name).read_bytes() for name in (EVEN, ODD)}
    for foreign in (other / ODD, small / ODD):
        shutil.copy(foreign, one / ODD)
        for way in ways(one):
            assert "belong to different arrays; remove" in refusal(way, CorruptionError)
    (one / EVEN).write_bytes(kept[ODD])
    (one / ODD).write_bytes(kept[EVEN])
    assert "generation 1 does not belong in this file" in refusal(ways(one)[0], CorruptionError)
    (one / ODD).write_bytes(kept[ODD])
    with pytest.warns(RuntimeWarning, match="commit.0.json is damaged: generation 1 .*; opened generation 1"):
        ways(one)[0]().abandon()


def test_tiles_of_another_place_array_or_time_are_found(tmp_path: Path) -> None:
    """Checks that Outcrop detects misplaced tiles and lost writes by the checksum of each tile in the record."""
    path = tmp_path / "a"
    with oc.array(SHAPE, "float32", persist="step", path=path) as array:
        array.values.reshape(-1)[:] = np.arange(array.size)
        array.step()
    whole = (path / TILES).read_bytes()
    half = 1 << 19
    misplaced = whole[half : 2 * half] + whole[:half] + whole[2 * half :]
    for wrong in (misplaced, (made(tmp_path / "b") / TILES).read_bytes(), bytes(len(whole))):
        (path / TILES).write_bytes(wrong)
        assert "checksum mismatch" in refusal(ways(path)[0], CorruptionError)


def test_a_folder_of_the_version_before_is_read_and_goes_on(tmp_path: Path) -> None:
    """Checks that an array of an earlier version of Outcrop can be read and updated. The records of such an array do
    not contain its name.

    The next record contains the name. Outcrop must accept both records as records of the same array.
    """
    path = made(tmp_path / "a", steps=2)
    (path / f"{EVEN}.tmp").unlink(missing_ok=True)
    for name in (EVEN, ODD):
        rewrite(path / name, array=None)
    for step in (3, 4):
        with oc.open_array(path) as array:
            assert (array.values == step - 1).all() and array.steps == step - 1
            array += 1
            array.step()
    names = {json.loads((path / name).read_text())["array"] for name in (EVEN, ODD)}
    assert len(names) == 1 and len(names.pop()) == 32


def test_reading_writes_nothing(tmp_path: Path) -> None:
    """Checks that reads change nothing, not even the time of a file, because the folder may belong to another user."""
    path = made(tmp_path / "a", steps=2)
    np.save(tmp_path / "x.npy", np.ones(5))
    before = tree(tmp_path)
    for where in (path, tmp_path / "x.npy"):
        with oc.open_array(where, access="read") as array:
            array.sum()
            array.flush()
    assert tree(tmp_path) == before


def test_a_file_of_the_user_that_is_called_tiles_is_left_alone(tmp_path: Path) -> None:
    """Checks that a user's file named `tiles` is kept. A file `tiles` with a second name (a hard link) is also kept,
    because it may belong to a copy of the array.
    """
    path = tmp_path / "a"
    path.mkdir()
    (path / TILES).write_text("of a floor")
    (path / "with\nlines").touch()
    assert "holds something else" in refusal(lambda: oc.array(3, persist="step", path=path), InputError)
    (path / "with\nlines").unlink()
    refused = refusal(lambda: oc.array(SHAPE, "float32", persist="step", path=path), InputError)
    assert "does not belong to an array that was begun here" in refused and (path / TILES).read_text() == "of a floor"
    path = made(tmp_path / "b")
    os.link(path / TILES, tmp_path / "copy")
    assert "has another name, too" in refusal(ways(path)[3], StorageError)
    ways(path)[0]().abandon()


def test_an_array_that_was_begun_and_killed_begins_anew(tmp_path: Path) -> None:
    """Checks that an array can be made again after a kill at any moment of its creation."""
    path = tmp_path / "a"
    oc.array(SHAPE, "float32", persist="step", path=path).abandon()
    begun = (path / f"{EVEN}.tmp").read_bytes()
    for shown, tiles in ((begun[:9], None), (b"", None), (begun, None), (begun, b""), (begun, b"1" * 5000)):
        shutil.rmtree(path)
        path.mkdir()
        (path / f"{EVEN}.tmp").write_bytes(shown)
        if tiles is not None:
            (path / TILES).write_bytes(tiles)
        with oc.array((5,), "int8", persist="step", path=path) as array:
            assert not array.values.any() and array.generation == 0


def test_an_array_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that no file and no folder remains if an array cannot be made."""

    class Full(durable.System):
        @staticmethod
        def allocate(handle: int, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable, "SYSTEM", Full())
    assert "No space left" in refusal(lambda: oc.array(3, persist="end", path=tmp_path / "of" / "mine"), StorageError)
    assert "No space left" in refusal(lambda: oc.array(3, path=tmp_path / "mine.npy"), StorageError)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["moved", "deleted", "replaced", "tiles"])
def test_a_folder_that_is_gone_is_noticed_at_the_next_commit(tmp_path: Path, what: str) -> None:
    """Checks that a commit fails if the folder of the array was moved or removed, or if a .npy file is missing."""
    path = tmp_path / "a"
    array = oc.array(SHAPE, "float32", persist="step", path=path)
    file = oc.array(SHAPE, "float32", path=tmp_path / "x.npy")
    array.step()
    if what == "tiles":
        replace_by("link", path / TILES, tmp_path / "b")
    elif what == "deleted":
        shutil.rmtree(path)
        (tmp_path / "x.npy").unlink()
    else:
        path.rename(tmp_path / "b")
        (tmp_path / "x.npy").rename(tmp_path / "y.npy")
    if what == "replaced":
        made(path)
    array[...] = 5
    before = tree(tmp_path)
    with pytest.raises(StorageError, match="a was moved or deleted while it was in use: commits are no longer"):
        array.step()
    assert tree(tmp_path) == before and array.generation == 1
    if what != "tiles":
        with pytest.raises(StorageError, match=r"x.npy was moved or deleted"):
            file.flush()
    array.abandon()


def begin(path: Path, together: Barrier, answers: Any) -> None:
    """Make an array at the same moment as other processes. Keep the array open until all processes have a result."""
    together.wait()
    try:
        array = oc.array(SHAPE, "float32", persist="step", path=path)
    except OutcropError as error:
        answers.put(str(error))
        together.wait()
        return
    answers.put("")
    together.wait()
    array[...] = 7
    array.step()
    array.close()


def test_of_processes_that_begin_one_array_exactly_one_goes_on(tmp_path: Path) -> None:
    """Checks that exactly one process gets the array. All other processes are refused in one line and remove nothing.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["numpy", "outcrop.arrays.placing", "test_array_trust"])
    for trial in range(3):
        path, together, answers = tmp_path / f"of{trial}" / "a", context.Barrier(3), context.SimpleQueue()
        children = [context.Process(target=begin, args=(path, together, answers)) for _ in range(3)]
        for child in children:
            child.start()
        told = sorted(answers.get() for _ in children)
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0, 0]
        assert told[0] == "" and all("in use by another process" in one and "\n" not in one for one in told[1:]), told
        with oc.open_array(path, access="read") as array:
            assert (array.values == 7).all() and array.steps == 1
