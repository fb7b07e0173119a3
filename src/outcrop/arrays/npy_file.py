"""An array whose bytes are a mapped .npy file: what is stored gets there some time, and surely when it is flushed.

The header takes a page, so that values begin with one. Nothing protects a flush that does not finish: that is what
commits are for.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.arrays.keeper import Keeper, transfer_threads
from outcrop.durable import flush_folder
from outcrop.errors import InputError, StorageError
from outcrop.tiers.storage_tiers import BY_NOTHING, BY_WRITE_BACK
from outcrop.tiers.tier import Tier

HEADER_BYTES = 4096
_PREFIX = np.lib.format.magic(1, 0)


class NpyFile(Keeper):
    """An existing .npy file in C order."""

    def __init__(self, path: Path, tier: Tier, writable: bool) -> None:
        """Raises InputError for other files, StorageError."""
        self.path = path
        self.shape, self.dtype, self._begin = read_header(path)
        self._mapping = _core.MappedFile.file(str(path), writable)
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
        self._mapping.flush(0, self._mapping.bytes.nbytes, transfer_threads())
        return self.bytes.nbytes


def create_npy(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Make a file of zeros, all of it allocated, that is there as a whole or not at all. Raises StorageError."""
    beside = path.with_name(f".outcrop-{uuid4().hex}")  # nobody else's
    try:
        _core.create_file(str(beside), HEADER_BYTES + math.prod(shape) * dtype.itemsize)
        with open(beside, "r+b") as file:
            file.write(_header(shape, dtype))
        beside.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        raise StorageError(f"{path} cannot be made: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    content = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    room = HEADER_BYTES - len(_PREFIX) - 2
    text = repr(content).encode().ljust(room - 1) + b"\n"
    return _PREFIX + room.to_bytes(2, "little") + text


def read_header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and the first byte of the values. Raises InputError when it is not such a file, or cut short."""
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        with open(path, "rb") as file:
            shape, is_fortran, dtype = headers[np.lib.format.read_magic(file)](file)
            begin = file.tell()
    except (ValueError, KeyError):
        raise InputError(f"{path} holds something else than an array (no .npy file); give another path") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if dtype.kind not in "biufc":
        raise InputError(f"{path} holds {dtype}, which cannot be mapped; arrays on tiers are of numbers or booleans")
    if is_fortran and len(shape) > 1:
        raise InputError(f"{path} holds an array in Fortran order; arrays on tiers are in C order")
    if path.stat().st_size < begin + math.prod(shape) * dtype.itemsize:
        raise InputError(f"{path} is cut short: {path.stat().st_size} bytes for shape {shape} of {dtype}")
    return shape, dtype, begin
