"""Check that Outcrop follows no links and reads only regular files in a run directory of another user."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from outcrop import _core
from outcrop.errors import StorageError
from outcrop.run.disk.planes import DeviceRange, FileBeneath, ShardFile, place_of, read_bytes


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """Yield a descriptor of the folder `tmp_path/run` with the file u/0. The file `tmp_path/outside` is outside this
    folder."""
    (tmp_path / "run" / "u").mkdir(parents=True)
    (tmp_path / "run" / "u" / "0").write_bytes(bytes(range(200)))
    (tmp_path / "outside").write_bytes(b"not yours")
    descriptor = os.open(tmp_path / "run", os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_each_kind_of_shard_gives_its_bytes(tmp_path: Path, folder: int) -> None:
    """Checks reads from the three kinds of places that can hold a shard: a path, a range of a device, and a file in an
    open folder. Offsets count from the start of the range or file. A read across the end of the file must return fewer
    bytes."""
    path = str(tmp_path / "run" / "u" / "0")
    (tmp_path / "link").symlink_to(path)
    kinds: list[ShardFile] = [path, DeviceRange(path, 100, 50), FileBeneath(folder, "u/0", "run.oc/u/0")]
    assert [read_bytes(file, 3, 2) for file in kinds] == [b"\3\4", b"\x67\x68", b"\3\4"]
    assert len(read_bytes(kinds[2], 190, 100)) == 10
    assert place_of(str(tmp_path / "link")) == path
    assert [place_of(file) for file in kinds] == [path, f"{path} (from byte 100)", "run.oc/u/0"]


@pytest.mark.parametrize("name", ["link", "linked/0", "../outside", "pipe", "u", ""])
def test_what_leads_outside_or_is_no_file_is_refused(tmp_path: Path, folder: int, name: str) -> None:
    """Checks that reads and stores refuse links and special files immediately. A pipe must not block."""
    (tmp_path / "run" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "run" / "linked").symlink_to("u")
    os.mkfifo(tmp_path / "run" / "pipe")
    shard = FileBeneath(folder, name, "run.oc/shard")
    with pytest.raises(StorageError, match=r"^open failed: run.oc/shard: "):
        read_bytes(shard, 0, 1)
    for writable in (False, True):
        with pytest.raises(StorageError, match=r"^open failed: run.oc/shard: "):
            _core.Store([shard], backend="threads", writable=writable)
    assert (tmp_path / "outside").read_bytes() == b"not yours"


def test_a_path_that_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    """Checks that a file that is read by its path, such as the index of a shard, must also be a regular file."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(StorageError, match="not a regular file"):
            read_bytes(str(path), 0, 1)


def test_a_store_shows_labels_and_needs_no_descriptor_later(tmp_path: Path, folder: int) -> None:
    """Checks that a store can use its files after the descriptor of the run directory is closed. The store also lists
    the labels of its files.
    """
    again = os.dup(folder)
    store = _core.Store([FileBeneath(again, "u/0", "run.oc/u/0"), str(tmp_path / "outside")], writable=True)
    os.close(again)
    assert store.paths == ["run.oc/u/0", str(tmp_path / "outside")]
    found = np.empty(5, np.uint8)
    store.write_from(0, 10, np.full(5, 7, np.uint8))
    store.read_into(0, 10, found)
    assert (found == 7).all()
    with pytest.raises(StorageError, match=r"run\.oc/u/0"):
        store.read_into(0, 1000, found)
    store.close()
