"""Check the Python interface of the storage. The interface makes no hidden copies, and its errors are exceptions of the
package.

The tests in tests/core check the properties of each backend.
"""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from outcrop import _core
from outcrop.errors import InputError, StorageError

PAGE = 4096
USABLE = sorted(name for name, reason in _core.probe().items() if not reason)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Create a file of 16 pages and return its path."""
    _core.create_file(str(tmp_path / "file"), 16 * PAGE)
    return str(tmp_path / "file")


def random_page(seed: int, pages: int = 1) -> np.ndarray:
    array = _core.aligned_array(pages * PAGE)
    array[:] = np.random.default_rng(seed).integers(0, 256, pages * PAGE, dtype=np.uint8)
    return array


def test_probe_names_every_backend() -> None:
    """Checks the list of backends. The portable backends must work on this machine."""
    assert set(_core.probe()) == {"io_uring", "libaio", "threads", "mmap", "memory"}
    assert {"threads", "mmap", "memory"} <= set(USABLE)


@pytest.mark.parametrize("backend", ["auto", *USABLE])
def test_round_trip(path: str, backend: str) -> None:
    """Checks that each byte is written and read correctly."""
    store = _core.Store([path], backend, writable=True)
    written, read = random_page(1, 4), _core.aligned_array(4 * PAGE)
    store.write_from(0, PAGE, written)
    store.flush()
    store.read_into(0, PAGE, read)
    store.close()
    np.testing.assert_array_equal(read, written)
    if backend != "memory":
        np.testing.assert_array_equal(np.fromfile(path, np.uint8)[PAGE : 5 * PAGE], written)


def test_any_dtype_and_any_shape_but_never_a_copy(path: str) -> None:
    """Checks that an array is refused if the storage can use only a copy of the array. A read would then fill the copy,
    and not the caller's array."""
    store = _core.Store([path], writable=True)
    source = np.arange(PAGE, dtype=np.float64).reshape(4, -1)
    store.write_from(0, 0, source)
    target = np.zeros_like(source)
    store.read_into(0, 0, target)
    np.testing.assert_array_equal(target, source)
    with pytest.raises((BufferError, ValueError, TypeError)):
        store.read_into(0, 0, target[:, ::2])
    target.flags.writeable = False
    with pytest.raises((BufferError, ValueError, TypeError)):
        store.read_into(0, 0, target)
    with pytest.raises(TypeError):
        store.read_into(0, 0, [1, 2, 3])  # type: ignore[arg-type]


def test_the_index_at_an_odd_end(tmp_path: Path) -> None:
    """Checks a file that is open for direct transfers. The index at the end of a shard must be readable, although it
    does not consist of whole pages."""
    name, size = str(tmp_path / "shard"), 3 * PAGE + 16 * 3 + 4
    _core.create_file(name, size)
    store = _core.Store([name], writable=True)
    index = np.arange(52, dtype=np.uint8)
    store.write_from(0, 3 * PAGE, index)
    read = np.zeros(52, np.uint8)
    store.read_into(0, 3 * PAGE, read)
    np.testing.assert_array_equal(read, index)
    assert os.path.getsize(name) == size


def test_files_are_allocated(tmp_path: Path) -> None:
    """Checks that created files have no holes, so that a full disk cannot stop a run later."""
    _core.create_file(str(tmp_path / "file"), 1 << 20)
    status = os.stat(tmp_path / "file")
    assert status.st_size == 1 << 20
    assert status.st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize("size", [1 << 61, 1 << 50])
def test_no_space_is_one_clear_line(tmp_path: Path, size: int) -> None:
    """Checks that a full disk gives a clear error of one line, and that no file remains."""
    with pytest.raises(StorageError, match="full") as caught:
        _core.create_file(str(tmp_path / "full"), size)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "full").exists()


def test_errors_are_the_packages_own(path: str, tmp_path: Path) -> None:
    """Checks that a failed transfer raises an error of the package. The message has one line with the file, the offset,
    the length and the cause."""
    with pytest.raises(StorageError, match="missing"):
        _core.Store([str(tmp_path / "missing")])
    with pytest.raises(InputError, match="tape"):
        _core.Store([path], "tape")
    with pytest.raises(InputError, match="no_such"):
        _core.Store([path], faults={"no_such": 1})
    store = _core.Store([path])
    with pytest.raises(StorageError, match="Bad file descriptor"):
        store.write_from(0, 0, random_page(1))
    with pytest.raises(StorageError, match=f"{path}.*{16 * PAGE}"):
        store.read_into(0, 16 * PAGE, random_page(1))
    store.close()
    with pytest.raises(StorageError):
        store.read_into(0, 0, random_page(1))


def test_faults_arrive(path: str) -> None:
    """Checks that simulated faults happen as requested. The tests of durability depend on these faults."""
    pages = random_page(1, 2)
    with pytest.raises(StorageError, match="Input/output error"):
        _core.Store([path], writable=True, faults={"error_at": 0}).write_from(0, 0, pages)
    with pytest.raises(StorageError, match="No space left"):
        _core.Store([path], writable=True, faults={"full_after_bytes": PAGE}).write_from(0, 0, pages)
    _core.Store([path], writable=True, faults={"short_rate": 1, "again_rate": 0.5}).write_from(0, 0, pages)
    read = _core.aligned_array(2 * PAGE)
    _core.Store([path]).read_into(0, 0, read)
    np.testing.assert_array_equal(read, pages)
    _core.Store([path], faults={"flip_at": 0}).read_into(0, 0, read)
    assert np.unpackbits(read ^ pages).sum() == 1


@pytest.mark.parametrize("backend", USABLE)
def test_a_store_may_be_used_by_one_thread_after_another(path: str, backend: str) -> None:
    """Checks that several threads can use a store one after another. For each new thread, the store needs new rings of
    io_uring."""
    store = _core.Store([path], backend, writable=True)
    failures: list[BaseException] = []

    def use(seed: int) -> None:
        try:
            written, read = random_page(seed), _core.aligned_array(PAGE)
            store.write_from(0, 0, written)
            store.read_into(0, 0, read)
            np.testing.assert_array_equal(read, written)
        except BaseException as error:
            failures.append(error)

    for seed in range(4):  # a new thread may get the same number as a thread that has ended
        thread = threading.Thread(target=use, args=(seed,))
        thread.start()
        thread.join()
    use(9)
    assert failures == []


def test_crc32c_is_the_one_of_zarr() -> None:
    """Checks that our checksum equals the checksum of zarr's codec, so that other programs can read our files."""
    codec = pytest.importorskip("google_crc32c")
    data = np.random.default_rng(0).integers(0, 256, 100_003, dtype=np.uint8)
    assert _core.crc32c(data) == codec.value(data.tobytes())
    assert _core.crc32c(data[1000:], _core.crc32c(data[:1000])) == _core.crc32c(data)
    assert _core.crc32c(b"123456789") == 0xE3069283
    assert _core.crc32c(b"") == 0


def test_aligned_arrays_outlive_nothing_and_leak_nothing() -> None:
    """Checks that aligned arrays have aligned addresses and zero bytes, and that a view keeps the memory alive."""
    for nbytes in (1, PAGE, 3 << 20):
        array = _core.aligned_array(nbytes)
        assert array.ctypes.data % PAGE == 0
        assert array.shape == (nbytes,)
        assert not array.any()
        view = array[-1:]
        del array
        view[0] = 5
        assert view[0] == 5
    assert _core.aligned_array(0).size == 0
