"""Cells that lie one after the other in a file, plain or compressed, read in ranges and in little memory."""

from __future__ import annotations

import gzip
import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np

from outcrop.axes import Shape
from outcrop.errors import InputError
from outcrop.paths import open_regular, require_regular
from outcrop.run.inputs.source import Array, Source, chunked_source, require_real, require_solid

PIECE_BYTES = 4 << 20
"""Files are read in pieces of about this size."""

DAMAGE = (OSError, EOFError, ValueError, KeyError, RuntimeError, struct.error, lzma.LZMAError, zlib.error,
           zipfile.BadZipFile)  # fmt: skip
"""What Python's modules raise for damaged archives; RuntimeError, and NotImplementedError, for ones with a password or
by a method they do not know."""


class Cells(Protocol):
    """Bytes of a file, read as numbers."""

    def read(self, offset: int, dtype: np.dtype[Any], count: int) -> Array:
        """`count` numbers from byte `offset` on. Raises InputError when the file ends before."""


class PlainCells:
    """A file as it lies on disk; what is read does not stay in the page cache."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, offset: int, dtype: np.dtype[Any], count: int) -> Array:
        """`count` numbers from byte `offset` on."""
        try:
            with open_regular(self._path) as file:
                file.seek(offset)
                cells = np.fromfile(file, dtype, count)
                os.posix_fadvise(file.fileno(), offset, count * dtype.itemsize, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise InputError(f"{self._path} cannot be read at offset {offset}: {error.strerror}") from error
        if cells.size != count:
            raise InputError(f"{self._path} became shorter while it was read")
        return cells


class PackedCells:
    """A compressed file, unpacked on the way; going back means unpacking again from its beginning."""

    def __init__(self, name: str, unpack: Callable[[], BinaryIO]) -> None:
        self.name, self._unpack = name, unpack
        self._stream: BinaryIO | None = None

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the next `read` opens it again."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def stream(self) -> BinaryIO:
        """The unpacked file, open. Raises InputError when that cannot be."""
        if self._stream is None:
            try:
                self._stream = self._unpack()
            except OSError as error:
                raise InputError(f"{self.name} cannot be read: {error.strerror or error}") from None
            except DAMAGE as error:
                raise InputError(f"{self.name} cannot be unpacked: {error}") from None
        return self._stream

    def read(self, offset: int, dtype: np.dtype[Any], count: int) -> Array:
        """`count` numbers from byte `offset` on."""
        wanted, done = np.empty(count * dtype.itemsize, np.uint8), 0
        try:
            stream = self.stream()
            stream.seek(offset)
            while done < len(wanted):
                piece = stream.read(min(len(wanted) - done, PIECE_BYTES))
                if not piece:
                    raise EOFError
                wanted[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
                done += len(piece)
        except EOFError:
            self.close()
            raise InputError(f"{self.name} is cut short: it ends before byte {offset + len(wanted)} unpacked") from None
        except DAMAGE as error:
            self.close()
            raise InputError(f"{self.name} is damaged near byte {offset + done} unpacked: {error}") from None
        return wanted.view(dtype)


def open_packed(path: Path) -> PackedCells:
    """A file of one of the suffixes .xz and .gz."""
    open_packed_file: Any = {".xz": lzma.open, ".gz": gzip.open}[path.suffix.lower()]

    def unpack() -> BinaryIO:
        require_regular(path)
        return cast(BinaryIO, open_packed_file(path, "rb"))

    return PackedCells(str(path), unpack)


def cells_source(
    name: str, cells: Cells, start: int, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool, cache_bytes: int
) -> Source:
    """Planes of an array whose numbers begin at byte `start`, in C or in Fortran order."""
    require_real(name, dtype)
    solid = require_solid(name, shape)
    if fortran:
        return chunked_source(name, _FortranCells(cells, start, solid, dtype), cache_bytes)
    plane_cells = math.prod(solid[1:])

    def planes(z0: int, z1: int) -> Array:
        block = cells.read(start + z0 * plane_cells * dtype.itemsize, dtype, (z1 - z0) * plane_cells)
        return block.reshape(z1 - z0, *solid[1:])

    return Source(name, solid, planes)


class _FortranCells:
    """Cells that lie x by x, column by column along z; looks like an array of one chunk."""

    def __init__(self, cells: Cells, start: int, shape: Shape, dtype: np.dtype[Any]) -> None:
        self._cells, self._start = cells, start
        self.shape, self.dtype, self.chunks = shape, dtype, shape

    def __getitem__(self, wanted: slice) -> Array:
        """Planes of a slice of z."""
        nz, across = self.shape[0], math.prod(self.shape[1:])
        count = len(range(nz)[wanted])
        columns = np.empty((across, count), self.dtype)
        group = max(1, PIECE_BYTES // (nz * self.dtype.itemsize))
        for first in range(0, across, group):
            target = columns[first : first + group]
            offset = self._start + first * nz * self.dtype.itemsize
            target[:] = self._cells.read(offset, self.dtype, len(target) * nz).reshape(-1, nz)[:, wanted]
        return columns.reshape(*reversed(self.shape[1:]), count).transpose()
