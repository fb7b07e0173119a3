"""Files of contiguous numbers, plain or compressed. Outcrop reads a file part by part, and therefore needs little
memory.

    FILE.npy     FILE.npy.xz     FILE.npy.gz     FILE.npz[:NAME]       NumPy's own
    raw:FILE:DTYPE:SIZES[:OFFSET]        raw:vp.bin:float32:401,1601        raw:head.img:>i2:256,256,109:1024

A raw file has no header, so the text that names the file also describes the numbers in the file. SIZES are `NX,NY,NZ`
or `NX,NZ` or `NX`. As in the option `-n`, the axis with contiguous cells comes first. DTYPE is NumPy's name of a dtype.
DTYPE can be a short name such as ">i2", in which the character "<" or ">" gives the byte order. OFFSET is the number of
bytes before the first cell."""

from __future__ import annotations

import gzip
import lzma
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np

from outcrop.axes import Shape
from outcrop.errors import InputError, os_errors_as, shown
from outcrop.paths import open_regular, require_regular
from outcrop.run.inputs.input_array import Array, InputArray, from_chunks, require_real, require_solid

RAW = "raw:"
_RAW_FORM = re.compile(r"raw:(?P<path>.+):(?P<dtype>[^:,\d][^:,]*):(?P<sizes>[0-9]{1,19}(?:,[0-9]{1,19}){0,2})"
                       r"(?::(?P<offset>[0-9]{1,19}))?")  # fmt: skip

READ_BYTES = 4 << 20
"""The approximate size of one read of a file."""

MAX_HEADER_BYTES = 1 << 16
"""The maximum number of bytes of a header that are read. Headers of arrays of plain numbers are shorter."""

MAX_PADDING_BYTES = 1 << 20

DAMAGE = (OSError, EOFError, ValueError, KeyError, RuntimeError, struct.error, lzma.LZMAError, zlib.error,
           zipfile.BadZipFile)  # fmt: skip
"""The errors of Python's modules for damaged archives, archives with a password (RuntimeError), and an unknown method
of compression (NotImplementedError, a RuntimeError)."""


class PlainFile:
    """An uncompressed file. `read` counts offsets in bytes. Bytes are dropped from the page cache after they have been
    read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, offset: int, dtype: np.dtype[Any], count: int) -> Array:
        what = f"{self._path} cannot be read at offset {offset}"
        with os_errors_as(InputError, what), open_regular(self._path) as file:
            file.seek(offset)
            cells = np.fromfile(file, dtype, count)
            os.posix_fadvise(file.fileno(), offset, count * dtype.itemsize, os.POSIX_FADV_DONTNEED)
        if cells.size != count:
            raise InputError(f"{self._path} became shorter while it was read")
        return cells


class PackedFile:
    """A compressed file. Offsets in a compressed file are positions in the unpacked bytes. If a read begins before the
    end of the previous read, the file is unpacked again from its beginning."""

    def __init__(self, name: str, unpack: Callable[[], BinaryIO]) -> None:
        self.name, self._unpack = name, unpack
        self._stream: BinaryIO | None = None

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def stream(self) -> BinaryIO:
        """Open the file, and return a stream of its unpacked bytes. Raises InputError."""
        if self._stream is None:
            try:
                self._stream = self._unpack()
            except OSError as error:
                raise InputError(f"{self.name} cannot be read: {error.strerror or error}") from None
            except DAMAGE as error:
                raise InputError(f"{self.name} cannot be unpacked: {error}") from None
        return self._stream

    def read(self, offset: int, dtype: np.dtype[Any], count: int) -> Array:
        wanted, done = np.empty(count * dtype.itemsize, np.uint8), 0
        try:
            stream = self.stream()
            stream.seek(offset)
            while done < len(wanted):
                part = stream.read(min(len(wanted) - done, READ_BYTES))
                if not part:
                    raise EOFError
                wanted[done : done + len(part)] = np.frombuffer(part, np.uint8)
                done += len(part)
        except EOFError:
            self.close()
            raise InputError(f"{self.name} is cut short: it ends before byte {offset + len(wanted)} unpacked") from None
        except DAMAGE as error:
            self.close()
            raise InputError(f"{self.name} is damaged near byte {offset + done} unpacked: {error}") from None
        return wanted.view(dtype)


NumberFile: TypeAlias = PlainFile | PackedFile


def array_in_file(
    name: str, file: NumberFile, start: int, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool,
    cache_bytes: int,
) -> InputArray:  # fmt: skip
    """Return the input array for the numbers in a file. The numbers begin at byte `start` and are in C or Fortran
    order."""
    require_real(name, dtype)
    solid = require_solid(name, shape)
    if fortran:
        return from_chunks(name, _FortranOrder(file, start, solid, dtype), cache_bytes)
    plane_cells = math.prod(solid[1:])

    def planes(z0: int, z1: int) -> Array:
        block = file.read(start + z0 * plane_cells * dtype.itemsize, dtype, (z1 - z0) * plane_cells)
        return block.reshape(z1 - z0, *solid[1:])

    return InputArray(name, solid, planes)


class _FortranOrder:
    """An array in a file in Fortran order: the cells of a column along z are contiguous. `_FortranOrder` has the
    interface of a chunked array, and its single chunk is the whole array."""

    def __init__(self, file: NumberFile, start: int, shape: Shape, dtype: np.dtype[Any]) -> None:
        self._file, self._start = file, start
        self.shape, self.dtype, self.chunks = shape, dtype, shape

    def __getitem__(self, wanted: slice) -> Array:
        nz, across = self.shape[0], math.prod(self.shape[1:])
        count = len(range(nz)[wanted])
        columns = np.empty((across, count), self.dtype)
        group = max(1, READ_BYTES // (nz * self.dtype.itemsize))
        for first in range(0, across, group):
            target = columns[first : first + group]
            offset = self._start + first * nz * self.dtype.itemsize
            target[:] = self._file.read(offset, self.dtype, len(target) * nz).reshape(-1, nz)[:, wanted]
        return columns.reshape(*reversed(self.shape[1:]), count).transpose()


def open_npy(path: Path, variable: str, cache_bytes: int) -> InputArray:
    with os_errors_as(InputError, f"{path} cannot be read"), open_regular(path) as file:
        shape, fortran, dtype, start = _read_header(str(path), file)
        size = os.fstat(file.fileno()).st_size
    require_real(str(path), dtype)
    require_solid(str(path), shape)
    if size < start + dtype.itemsize * math.prod(shape):
        raise InputError(f"{path} is cut short: {size} bytes for shape {shape} of {dtype}")
    return array_in_file(str(path), PlainFile(path), start, shape, dtype, fortran, cache_bytes)


def open_packed_npy(path: Path, variable: str, cache_bytes: int) -> InputArray:
    open_stream: Any = {".xz": lzma.open, ".gz": gzip.open}[path.suffix.lower()]

    def unpack() -> BinaryIO:
        require_regular(path)
        return cast(BinaryIO, open_stream(path, "rb"))

    return _packed_array(PackedFile(str(path), unpack), path.stat().st_size, cache_bytes)


def open_npz(path: Path, variable: str, cache_bytes: int) -> InputArray:
    """Return the array `variable` of an .npz archive. If `variable` is "", the archive must have only one array, which
    is returned."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            names = sorted(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))
    except DAMAGE as error:
        raise InputError(f"{path} is not an .npz archive, or is cut short: {error}") from None
    name = choose_variable(path, variable, names)

    def unpack() -> BinaryIO:
        require_regular(path)
        with zipfile.ZipFile(path) as archive:
            return cast(BinaryIO, archive.open(f"{name}.npy"))

    return _packed_array(PackedFile(f"{path}:{name}" if variable else str(path), unpack), 0, cache_bytes)


def choose_variable(path: Path, variable: str, names: list[str]) -> str:
    """Return `variable`. If `variable` is "", `names` must have only one name, which is returned. Raises InputError if
    `variable` is not in `names`. Also raises InputError if `variable` is "" and the number of names is not 1. The
    message lists the names."""
    there = f"there are: {', '.join(names) or 'none'}"
    if variable and variable not in names:
        raise InputError(f"{path} has no array {variable!r}; {there}")
    if not variable and len(names) != 1:
        raise InputError(f"{path} does not hold one array alone; name one as {path}:NAME ({there})")
    return variable or names[0]


def _packed_array(file: PackedFile, packed_bytes: int, cache_bytes: int) -> InputArray:
    try:
        stream = file.stream()
        shape, fortran, dtype, start = _read_header(file.name, stream)
    except DAMAGE as error:
        raise InputError(f"{file.name} cannot be unpacked: {error}") from None
    finally:
        file.close()
    unpacked_bytes = start + math.prod(shape) * dtype.itemsize
    # A gzip file can have huge padding after its data. The gzip module would read all of the padding.
    if packed_bytes > 2 * unpacked_bytes + MAX_PADDING_BYTES:
        raise InputError(f"{file.name} has {packed_bytes} bytes, but holds {unpacked_bytes} unpacked; it is damaged")
    return array_in_file(file.name, file, start, shape, dtype, fortran, cache_bytes)


def _read_header(name: str, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return four values: the shape, whether the array is in Fortran order, the dtype, and the offset of the first
    cell."""
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    begin = BytesIO(_header_bytes(file))
    try:
        shape, fortran, dtype = headers[np.lib.format.read_magic(begin)](begin)
    except Exception:  # NumPy evaluates the header as Python code and raises many types of errors
        raise InputError(f"{name} is not a .npy file") from None
    return shape, fortran, dtype, begin.tell()


def _header_bytes(file: BinaryIO) -> bytes:
    """Read and return the header. The function reads only the header, because a small packed file can contain an
    endless amount of data."""
    begin = file.read(12)
    short = begin[6:7] == b"\1"  # in version 1 of the format, the length has two bytes; in version 2, four
    count = 10 + int.from_bytes(begin[8:10], "little") if short else 12 + int.from_bytes(begin[8:12], "little")
    return begin + file.read(max(0, min(count, MAX_HEADER_BYTES) - len(begin)))


def open_raw(text: str, cache_bytes: int) -> InputArray:
    """Return the array that `text` describes. Raises InputError if the text is wrong, or does not fit the file."""
    match = _RAW_FORM.fullmatch(text)
    if not match:
        raise InputError(
            f"{shown(text)} is not understood; write raw:FILE:DTYPE:NX,NY,NZ[:OFFSET], as in "
            "raw:vp.bin:float32:401,1601"
        )
    path, offset = Path(match["path"]), int(match["offset"] or 0)
    shape = tuple(int(size) for size in reversed(match["sizes"].split(",")))
    try:
        dtype = np.dtype(match["dtype"])
    except Exception:  # NumPy raises many types of errors for names that are not dtypes
        raise InputError(
            f"{text}: dtype {match['dtype']!r} is unknown; write for example float32, >f4 or int16"
        ) from None
    require_real(str(path), dtype)
    require_solid(text, shape)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
    needed = offset + dtype.itemsize * math.prod(shape)
    if size < needed:
        raise InputError(f"{text}: {path} is cut short, or the sizes are wrong: it has {size} bytes, not {needed}")
    if size > needed:
        raise InputError(f"{text}: {path} has {size} bytes, {size - needed} more than offset and sizes need ({needed})")
    return array_in_file(str(path), PlainFile(path), offset, shape, dtype, False, cache_bytes)
