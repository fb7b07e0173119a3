"""NumPy's own files: .npy, the same compressed (.npy.xz, .npy.gz), and .npz archives of several."""

from __future__ import annotations

import math
import os
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from outcrop.errors import InputError
from outcrop.paths import open_regular, require_regular
from outcrop.run.inputs.formats.cells import DAMAGE, PackedCells, PlainCells, cells_source, open_packed
from outcrop.run.inputs.source import Source, require_real, require_solid


def npy_source(path: Path, variable: str, cache_bytes: int) -> Source:
    """A .npy file of a real dtype, in C or Fortran order, read in pieces and not left in the page cache."""
    try:
        with open_regular(path) as file:
            shape, fortran, dtype, start = _read_header(str(path), file)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    require_real(str(path), dtype)
    require_solid(str(path), shape)
    if size < start + dtype.itemsize * math.prod(shape):
        raise InputError(f"{path} is cut short: {size} bytes for shape {shape} of {dtype}")
    return cells_source(str(path), PlainCells(path), start, shape, dtype, fortran, cache_bytes)


def packed_npy_source(path: Path, variable: str, cache_bytes: int) -> Source:
    """A .npy file compressed with xz or gzip, unpacked on the way."""
    return _packed_source(open_packed(path), path.stat().st_size, cache_bytes)


def npz_source(path: Path, variable: str, cache_bytes: int) -> Source:
    """The array `variable` of an .npz archive, or its only one."""
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

    return _packed_source(PackedCells(f"{path}:{name}" if variable else str(path), unpack), 0, cache_bytes)


def choose_variable(path: Path, variable: str, names: list[str]) -> str:
    """`variable`, or the only one of `names`. Raises InputError that lists them when it is neither."""
    there = f"there are: {', '.join(names) or 'none'}"
    if variable and variable not in names:
        raise InputError(f"{path} has no array {variable!r}; {there}")
    if not variable and len(names) != 1:
        raise InputError(f"{path} does not hold one array alone; name one as {path}:NAME ({there})")
    return variable or names[0]


def _packed_source(cells: PackedCells, packed_bytes: int, cache_bytes: int) -> Source:
    try:
        stream = cells.stream()
        shape, fortran, dtype, start = _read_header(cells.name, stream)
    except DAMAGE as error:
        raise InputError(f"{cells.name} cannot be unpacked: {error}") from None
    finally:
        cells.close()
    unpacked_bytes = start + math.prod(shape) * dtype.itemsize
    if packed_bytes > 2 * unpacked_bytes + MAX_PADDING_BYTES:  # gzip reads padding to its end
        raise InputError(f"{cells.name} has {packed_bytes} bytes, but holds {unpacked_bytes} unpacked; it is damaged")
    return cells_source(cells.name, cells, start, shape, dtype, fortran, cache_bytes)


def _read_header(name: str, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether the order is Fortran's, dtype, and where the first cell is."""
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    begin = BytesIO(_header_bytes(file))
    try:
        shape, fortran, dtype = headers[np.lib.format.read_magic(begin)](begin)
    except Exception:  # NumPy evaluates the header as Python, which has many ways to fail
        raise InputError(f"{name} is not a .npy file") from None
    return shape, fortran, dtype, begin.tell()


def _header_bytes(file: BinaryIO) -> bytes:
    """Magic, version, length and text, and nothing behind them, because a packed file may go on without end."""
    begin = file.read(12)
    is_short = begin[6:7] == b"\1"  # version 1 has two bytes for the length, version 2 has four
    count = 10 + int.from_bytes(begin[8:10], "little") if is_short else 12 + int.from_bytes(begin[8:12], "little")
    return begin + file.read(max(0, min(count, HEADER_BYTES_MOST) - len(begin)))


HEADER_BYTES_MOST = 1 << 16
"""Longer than any header of plain numbers, and short enough to be read whatever its length is said to be."""

MAX_PADDING_BYTES = 1 << 20
