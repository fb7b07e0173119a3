"""This module defines the interface to the storage of arrays. The module also has two kinds of storage: memory that
exists until the process ends, and a mapped .npy file.

The system can write changed pages of a mapped file at any time. A flush writes the remaining pages. If a flush does not
finish, the file contains a mixture of old and new values. In an array with commits (committed.py), old and new values
are never mixed. The header of a new .npy file fills one page, so that the values begin at the start of a page. The path
of a .npy file can be a link, because the user has named this path. Outcrop follows the link once, when it opens the
file.

Python gives C++ the descriptors of open files, so that the system looks up each name only once.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import reprlib
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.arrays.spec import MAX_AXES, MAX_NUMBER, ArraySpec
from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError
from outcrop.paths import make_directory, remove_made
from outcrop.tiers.memory_tiers import bytes_on
from outcrop.tiers.storage_tiers import BY_NOTHING, BY_WRITE_BACK
from outcrop.tiers.survey import MAIN_MEMORY
from outcrop.tiers.tier import Tier

MIN_TRANSFERS = 16
"""The minimum number of concurrent transfers. With fewer transfers, the queue of a device could become empty."""

HEADER_BYTES = 4096
MAX_HEADER_BYTES = 1 << 16
"""The maximum length of a header. Headers of arrays of plain numbers have about a hundred bytes."""
_PREFIX = np.lib.format.magic(1, 0)

Header = tuple[tuple[int, ...], np.dtype[Any], int]
"""The header of a .npy file: the shape, the dtype, and the offset of the first value in the file."""

_IN_USE: defaultdict[str, WeakValueDictionary[int, NDArray[np.uint8]]] = defaultdict(WeakValueDictionary)
"""For each tier, the memory of the open arrays of this process. The system counts a page as free until a thread first
reads or writes the page. So without this table, two arrays could get the same free memory."""


def path_of(handle: int) -> str:
    """Return a path by which this process can open the file of `handle` again, even if the file was renamed."""
    return f"/proc/self/fd/{handle}"


@contextmanager
def named(opened: str, path: Path) -> Iterator[None]:
    """If the body of the `with` raises a StorageError, replace `opened` by `path` in its message. Only this process can
    use the path `opened`, so messages must not show `opened` to the user."""
    try:
        yield
    except StorageError as error:
        raise type(error)(str(error).replace(opened, str(path))) from None


@contextmanager
def storage_errors(path: Path, what: str) -> Iterator[None]:
    """If the body of the `with` raises an OSError, raise a StorageError instead. The message of the StorageError is
    "`path` cannot be `what`", followed by the reason. For example, `what` is "opened"."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{error.filename or path} cannot be {what}: {error.strerror}") from None


def transfer_threads() -> int:
    """Return the number of threads that flush or load an array."""
    return max(MIN_TRANSFERS, len(os.sched_getaffinity(0)))


class ArrayStorage(ABC):
    """The interface to the storage of an array: the bytes of its values, and the method that makes the values
    durable."""

    bytes: NDArray[np.uint8]
    """The bytes of the values that users read and write."""
    primitive: str
    """The method that makes values durable, or "none" if values are not durable."""
    read_only = False
    """True if the values can be read but not written."""

    @abstractmethod
    def flush(self, steps: int) -> int:
        """Make the current values durable, if this storage can keep values. `steps` is the number of steps that were
        done. Return the number of bytes written, or the size of the array if this number is unknown. Raises
        StorageError if a write fails."""

    @property
    def generation(self) -> int:
        """The number of the last commit of the array, or 0 before the first commit."""
        return 0

    @property
    def steps(self) -> int:
        """The number of steps that were done before the last commit."""
        return 0

    def close(self) -> None:
        """Release the memory and the locks of the storage, and close its open files. The bytes of the values stay valid
        as long as an array refers to these bytes."""
        self.bytes = np.empty(0, np.uint8)

    def values(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        count = math.prod(shape) * dtype.itemsize
        return self.bytes[:count].view(dtype).reshape(shape)


class Volatile(ArrayStorage):
    """Storage in memory, or in a file without a name. When the process ends, the values in such a storage are lost."""

    primitive = "none"

    def __init__(self, content: NDArray[np.uint8]) -> None:
        self.bytes = content

    def flush(self, steps: int) -> int:
        return 0


def take_memory(tier: Tier, nbytes: int) -> NDArray[np.uint8]:
    """Return `nbytes` bytes of zeros on a tier. The returned bytes exist until the process ends. If the tier is a file
    system, the bytes are in a mapped file without a name. If the tier is DRAM, each page comes from the NUMA node of
    the thread that first reads or writes the page. If the tier is another memory, the bytes are on the NUMA nodes of
    the tier. Raises InputError or StorageError if the tier cannot give the bytes."""
    if tier.directory is not None:
        with storage_errors(tier.directory, "used"), Directory.open(tier.directory) as folder:
            opened = path_of(folder.handle)
            with named(opened, tier.directory):
                return _core.MappedFile.scratch(opened, nbytes).bytes
    content = _core.aligned_array(nbytes) if tier.kind == "dram" else bytes_on(tier, nbytes)
    _IN_USE[_memory_of(tier)][id(content)] = content
    return content


def _memory_of(tier: Tier) -> str:
    """Arrays on `tier` occupy some memory. Return the name of this memory. Files on tmpfs occupy DRAM."""
    return "dram" if tier.kind in MAIN_MEMORY else tier.name


def subtract_reserved(tiers: Sequence[Tier]) -> list[Tier]:
    """Return the tiers with a corrected number of `free_bytes`. The system counts memory as free until the memory is
    read or written for the first time. So `subtract_reserved` subtracts the memory that arrays of this process have
    reserved, but never read or written."""
    reserved = {memory: sum(map(untouched_bytes, list(arrays.values()))) for memory, arrays in _IN_USE.items()}
    return [replace(tier, free_bytes=max(0, tier.free_bytes - reserved.get(_memory_of(tier), 0))) for tier in tiers]


def untouched_bytes(content: NDArray[Any]) -> int:
    """Return the number of bytes in pages of `content` that were never read or written, or 0 if this number is unknown.
    `content` begins at the start of a page."""
    pages = np.zeros(-(-content.nbytes // mmap.PAGESIZE), np.uint8)
    answer = ctypes.CDLL(None).mincore(
        ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(content.nbytes), ctypes.c_void_p(pages.ctypes.data)
    )
    return int(np.count_nonzero(pages & 1 == 0)) * mmap.PAGESIZE if answer == 0 else 0


class NpyFile(ArrayStorage):
    """An existing .npy file in C order."""

    def __init__(self, path: Path, spec: ArraySpec, tier: Tier, writable: bool) -> None:
        """Open the file. Raises InputError if the file is not a .npy file. Raises StorageError if the file cannot be
        mapped."""
        self.path = path
        self._place = Path(os.path.realpath(path))
        with _opened(path, os.O_RDWR if writable else os.O_RDONLY) as (folder, handle):
            shape, dtype, begin = _header_of(path, folder, handle)
            spec.check_same(path, shape, dtype)
            status, self._opened = os.fstat(handle), path_of(handle)
            with named(self._opened, path):
                self._mapping = _core.MappedFile.file(self._opened, writable)
        self.bytes = self._mapping.bytes[begin:]
        self._identity = status.st_dev, status.st_ino
        self.read_only = not writable
        self.primitive = BY_WRITE_BACK if self._mapping.is_synchronous else "msync"
        if tier.kind == "tmpfs":
            self.primitive = BY_NOTHING

    def close(self) -> None:
        super().close()
        del self._mapping

    def flush(self, steps: int) -> int:
        """Write all changed pages. The number of changed pages is unknown, so return the size of the array in bytes."""
        if self.read_only:
            return 0
        with named(self._opened, self.path):
            self._mapping.flush(0, self._mapping.bytes.nbytes, transfer_threads())
        try:
            status = os.lstat(self._place)
        except OSError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self._identity:
            raise StorageError(f"{self.path} was moved or deleted while it was in use: its values are not kept there")
        return self.bytes.nbytes


def create_npy(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Make a .npy file of zeros, and the missing folders above this file. The disk space of the .npy file is allocated.
    If `create_npy` fails, no new file and no new folder remains. Raises InputError if another process has just made a
    file at `path`. Raises StorageError if the system refuses an operation."""
    size = HEADER_BYTES + math.prod(shape) * dtype.itemsize
    made = make_directory(path.absolute().parent)
    try:
        try:
            with Directory.open(path.absolute().parent) as folder:
                folder.create_whole(path.name, _header(shape, dtype), size)
        except BaseException:
            remove_made(made)
            raise
    except FileExistsError:
        raise InputError(f"{path} was just made by another process; open it with oc.open_array") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be made: {error.strerror}") from error


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    content = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    room = HEADER_BYTES - len(_PREFIX) - 2
    text = repr(content).encode().ljust(room - 1) + b"\n"
    return _PREFIX + room.to_bytes(2, "little") + text


def read_npy_header(path: Path) -> Header:
    """Return the header of a .npy file. Raises InputError if the file is not a .npy file, or is cut short."""
    with _opened(path, os.O_RDONLY) as (folder, handle):
        return _header_of(path, folder, handle)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[tuple[Directory, int]]:
    """Open a file and its folder. At the end of the `with` block, close the file and the folder. Raises InputError if
    `path` is not a regular file or cannot be opened."""
    if not os.path.isfile(path):
        raise InputError(f"{path} is neither a file nor a folder; give another path")
    place = Path(os.path.realpath(path))
    try:
        with Directory.open(place.parent) as folder, folder.opened(place.name, flags) as handle:
            yield folder, handle
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _header_of(path: Path, folder: Directory, handle: int) -> Header:
    shape, fortran, dtype, begin = _parsed(path, folder.read_from(handle, 0, len(_PREFIX) + 4 + MAX_HEADER_BYTES))
    text = reprlib.repr(shape)
    if dtype.kind not in "biufc":
        what = reprlib.repr(str(dtype))
        raise InputError(f"{path} holds {what}, which cannot be mapped; arrays on tiers hold numbers or booleans")
    if fortran and len(shape) > 1:
        raise InputError(f"{path} holds an array in Fortran order; arrays on tiers are in C order")
    if len(shape) > MAX_AXES or not all(type(count) is int and 1 <= count <= MAX_NUMBER for count in shape):
        raise InputError(f"{path} has shape {text}; give 1 to {MAX_AXES} axes, and cells along each")
    size, needed = os.fstat(handle).st_size, begin + math.prod(shape) * dtype.itemsize
    if size < needed:
        raise InputError(f"{path} is cut short: {size} bytes for shape {text} of {dtype}")
    return shape, dtype, begin


def _parsed(path: Path, data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return the shape, a bool that is True for Fortran order, the dtype, and the offset of the first value. Raises
    InputError if the header is longer than MAX_HEADER_BYTES bytes."""
    readers = {(1, 0): (np.lib.format.read_array_header_1_0, 2), (2, 0): (np.lib.format.read_array_header_2_0, 4)}
    file = BytesIO(data)
    try:
        reader, bytes_of_length = readers[np.lib.format.read_magic(file)]
        length = int.from_bytes(data[len(_PREFIX) :][:bytes_of_length], "little")
        if length > MAX_HEADER_BYTES:
            raise ValueError(length)
        with warnings.catch_warnings():
            # `simplefilter` prevents warnings about unusual text in the header.
            warnings.simplefilter("ignore")
            shape, fortran, dtype = reader(file)
    except Exception:
        raise InputError(f"{path} is not a .npy file; give another path") from None
    return shape, fortran, dtype, file.tell()
