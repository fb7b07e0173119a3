"""NumPy's own files: .npy, the same compressed (.npy.xz, .npy.gz), and .npz archives of several."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from outcrop.errors import InputError
from outcrop.run.inputs.formats.cells import PackedCells, PlainCells, cells_source, open_packed
from outcrop.run.inputs.source import Source, require_real


def npy_source(path: Path, variable: str, cache_bytes: int) -> Source:
    """A .npy file of a real dtype, in C or Fortran order, read in pieces and not left in the page cache."""
    try:
        with open(path, "rb") as file:
            shape, fortran, dtype = _read_header(str(path), file)
            start = file.tell()
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    require_real(str(path), dtype)
    if size < start + dtype.itemsize * int(np.prod(shape)):
        raise InputError(f"{path} is cut short: {size} bytes for shape {shape} of {dtype}")
    return cells_source(str(path), PlainCells(path), start, shape, dtype, fortran, cache_bytes)


def packed_npy_source(path: Path, variable: str, cache_bytes: int) -> Source:
    """A .npy file compressed with xz or gzip, unpacked on the way."""
    return _packed_source(open_packed(path), cache_bytes)


def npz_source(path: Path, variable: str, cache_bytes: int) -> Source:
    """The array `variable` of an .npz archive, or its only one."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except zipfile.BadZipFile:
        raise InputError(f"{path} is not an .npz archive, or is cut short") from None
    name = choose_variable(path, variable, names)

    def unpack() -> BinaryIO:
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
        shape, fortran, dtype = _read_header(cells.name, stream)
        start = stream.tell()
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(f"{cells.name} cannot be unpacked: {error}") from None
    finally:
        cells.close()
    return cells_source(cells.name, cells, start, shape, dtype, fortran, cache_bytes)


def _read_header(name: str, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the order is Fortran's, and dtype; the file is then at the first cell."""
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        return headers[np.lib.format.read_magic(file)](file)
    except (ValueError, KeyError):
        raise InputError(f"{name} is not a .npy file") from None
