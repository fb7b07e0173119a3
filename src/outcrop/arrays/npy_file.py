"""An array whose bytes are a mapped .npy file: what is stored gets there some time, and surely when it is flushed.

The header takes a page, so that values begin with one. Nothing protects a flush that does not finish: that is what
commits are for.

The path of a .npy file may be a link, because the user has named it. It is followed once, when the file is opened.
"""

from __future__ import annotations

import math
import os
import reprlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.arrays.keeper import Keeper, transfer_threads
from outcrop.arrays.opened import named, path_of
from outcrop.arrays.record import MAX_NUMBER
from outcrop.arrays.spec import AXES_MOST, ArraySpec
from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError
from outcrop.paths import make_directory, remove_made
from outcrop.tiers.storage_tiers import BY_NOTHING, BY_WRITE_BACK
from outcrop.tiers.tier import Tier

HEADER_BYTES = 4096
MAX_HEADER_BYTES = 1 << 16
"""Longer headers are refused; those of plain numbers have about a hundred bytes."""
_PREFIX = np.lib.format.magic(1, 0)

Header = tuple[tuple[int, ...], np.dtype[Any], int]
"""Shape, dtype and the first byte of the values."""


class NpyFile(Keeper):
    """An existing .npy file in C order."""

    def __init__(self, path: Path, spec: ArraySpec, tier: Tier, writable: bool) -> None:
        """Raises InputError for other files, StorageError."""
        self.path = path
        self._place = Path(os.path.realpath(path))
        with _opened(path, os.O_RDWR if writable else os.O_RDONLY) as (folder, handle):
            shape, dtype, self._begin = _header_of(path, folder, handle)
            spec.check_same(path, shape, dtype)
            status, self._opened = os.fstat(handle), path_of(handle)
            with named(self._opened, path):
                self._mapping = _core.MappedFile.file(self._opened, writable)
        self._identity = status.st_dev, status.st_ino
        self.is_sealed = not writable
        self.primitive = BY_WRITE_BACK if self._mapping.is_synchronous else "msync"
        if tier.kind == "tmpfs":
            self.primitive = BY_NOTHING

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """See Keeper."""
        return self._mapping.bytes[self._begin :]

    def flush(self, steps: int) -> int:
        """Until all of it is as durable as the file system makes it; how much of it had changed, nobody knows."""
        if self.is_sealed:
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
    """Make a file of zeros, all of it allocated, that is there as a whole or not at all, and the folders above it.
    Raises InputError when another process has made the file first, and StorageError."""
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
        raise InputError(f"{path} was made by another process meanwhile; open it with oc.open_array") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be made: {error.strerror}") from error


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    content = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    room = HEADER_BYTES - len(_PREFIX) - 2
    text = repr(content).encode().ljust(room - 1) + b"\n"
    return _PREFIX + room.to_bytes(2, "little") + text


def read_header(path: Path) -> Header:
    """Raises InputError when it is not such a file, or cut short."""
    with _opened(path, os.O_RDONLY) as (folder, handle):
        return _header_of(path, folder, handle)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[tuple[Directory, int]]:
    """The folder of a file, and the file. Raises InputError when it is no regular file or cannot be opened."""
    if not os.path.isfile(path):
        raise InputError(f"{path} is neither a file nor a folder; give another path")
    place = Path(os.path.realpath(path))
    try:
        with Directory.open(place.parent) as folder, folder.opened(place.name, flags) as handle:
            yield folder, handle
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _header_of(path: Path, folder: Directory, handle: int) -> Header:
    shape, is_fortran, dtype, begin = _parsed(path, folder.read_from(handle, 0, len(_PREFIX) + 4 + MAX_HEADER_BYTES))
    text = reprlib.repr(shape)
    if dtype.kind not in "biufc":
        what = reprlib.repr(str(dtype))
        raise InputError(f"{path} holds {what}, which cannot be mapped; arrays on tiers are of numbers or booleans")
    if is_fortran and len(shape) > 1:
        raise InputError(f"{path} holds an array in Fortran order; arrays on tiers are in C order")
    if len(shape) > AXES_MOST or not all(type(count) is int and 1 <= count <= MAX_NUMBER for count in shape):
        raise InputError(f"{path} is of shape {text}; arrays have at most {AXES_MOST} axes, and cells along each")
    size, needed = os.fstat(handle).st_size, begin + math.prod(shape) * dtype.itemsize
    if size < needed:
        raise InputError(f"{path} is cut short: {size} bytes for shape {text} of {dtype}")
    return shape, dtype, begin


def _parsed(path: Path, data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """What the beginning of the file says, and where values begin. NumPy parses it, but only what is of that length."""
    readers = {(1, 0): (np.lib.format.read_array_header_1_0, 2), (2, 0): (np.lib.format.read_array_header_2_0, 4)}
    file = BytesIO(data)
    try:
        reader, bytes_of_length = readers[np.lib.format.read_magic(file)]
        length = int.from_bytes(data[len(_PREFIX) :][:bytes_of_length], "little")
        if length > MAX_HEADER_BYTES:
            raise ValueError(length)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python about the text
            shape, is_fortran, dtype = reader(file)
    except Exception:
        raise InputError(f"{path} holds something else than an array (no .npy file); give another path") from None
    return shape, is_fortran, dtype, file.tell()
