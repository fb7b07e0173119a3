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
    return _packed_source(open_packed(path), cache_bytes)


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

    return _packed_source(PackedCells(f"{path}:{name}" if variable else str(path), unpack), cache_bytes)


def choose_variable(path: Path, variable: str, names: list[str]) -> str:
    """`variable`, or the only one of `names`. Raises InputError that lists them when it is neither."""
    there = f"there are: {', '.join(names) or 'none'}"
    if variable and variable not in names:
        raise InputError(f"{path} has no array {variable!r}; {there}")
    if not variable and len(names) != 1:
        raise InputError(f"{path} does not hold one array alone; name one as {path}:NAME ({there})")
    return variable or names[0]


def _packed_source(cells: PackedCells, cache_bytes: int) -> Source:
    try:
        stream = cells.stream()
        shape, fortran, dtype, start = _read_header(cells.name, stream)
    except DAMAGE as error:
        raise InputError(f"{cells.name} cannot be unpacked: {error}") from None
    finally:
        cells.close()
    return cells_source(cells.name, cells, start, shape, dtype, fortran, cache_bytes)


def _read_header(name: str, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether the order is Fortran's, dtype, and where the first cell is."""
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    begin = BytesIO(file.read(HEADER_BYTES_MOST))
    try:
        shape, fortran, dtype = headers[np.lib.format.read_magic(begin)](begin)
    except Exception:  # NumPy evaluates the header as Python, which has many ways to fail
        raise InputError(f"{name} is not a .npy file") from None
    return shape, fortran, dtype, begin.tell()


HEADER_BYTES_MOST = 1 << 16
"""Longer than any header of plain numbers, and short enough to be read whatever its length is said to be."""
