"""Initial values from .npy files and Zarr arrays, whatever their order and chunks, in little memory."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from outcrop.errors import InputError
from outcrop.run.source import CACHE_BYTES, Array, Shape, Source, chunked_source, require_real, require_solid

PIECE_BYTES = 4 << 20
"""Files are read in pieces of about this size."""


def npy_source(path: Path, cache_bytes: int = CACHE_BYTES) -> Source:
    """A .npy file of one to three axes and a real dtype, read in pieces and not left in the page cache."""
    try:
        with open(path, "rb") as file:
            version = np.lib.format.read_magic(file)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, fortran, dtype = read_header[version](file)
            start = file.tell()
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError):
        raise InputError(f"{path} is not a .npy file; --init reads .npy and .zarr") from None
    require_real(str(path), dtype)
    solid = require_solid(str(path), shape)
    if size < start + dtype.itemsize * int(np.prod(shape)):
        raise InputError(f"{path} is cut short: {size} bytes for shape {shape} of {dtype}")
    if fortran:
        return chunked_source(str(path), _FortranFile(path, start, solid, dtype), cache_bytes)
    plane_cells = math.prod(solid[1:])

    def planes(z0: int, z1: int) -> Array:
        block = _read_cells(path, start, dtype, z0 * plane_cells, (z1 - z0) * plane_cells)
        return block.reshape(z1 - z0, *solid[1:])

    return Source(str(path), solid, planes)


def zarr_source(path: Path, cache_bytes: int = CACHE_BYTES) -> Source:
    """A Zarr array, or a group of one array, or a run directory (its current state)."""
    try:
        import zarr
    except ImportError:
        raise InputError(f"{path}: reading Zarr needs zarr (Python 3.11 or later): pip install zarr") from None
    try:
        node = zarr.open(str(path), mode="r")
        if isinstance(node, zarr.Group):
            arrays = {name: array for name, array in node.arrays()}
            if len(arrays) != 1:
                names = ", ".join(sorted(arrays)) or "none"
                raise InputError(f"{path} is a Zarr group; name one of its arrays as {path}/NAME (there are: {names})")
            node = next(iter(arrays.values()))
    except InputError:
        raise
    except Exception as error:  # zarr raises many kinds for what is not Zarr
        raise InputError(f"{path} cannot be opened as Zarr: {' '.join(str(error).split())}") from None
    return chunked_source(str(path), node, cache_bytes)


class _FortranFile:
    """A .npy file whose cells lie x by x, column by column along z; looks like an array of one chunk."""

    def __init__(self, path: Path, start: int, shape: Shape, dtype: np.dtype[Any]) -> None:
        self._path, self._start = path, start
        self.shape, self.dtype, self.chunks = shape, dtype, shape

    def __getitem__(self, wanted: slice) -> Array:
        """Planes of a slice of z."""
        nz, across = self.shape[0], math.prod(self.shape[1:])
        count = len(range(nz)[wanted])
        columns = np.empty((across, count), self.dtype)
        group = max(1, PIECE_BYTES // (nz * self.dtype.itemsize))
        for first in range(0, across, group):
            target = columns[first : first + group]
            cells = _read_cells(self._path, self._start, self.dtype, first * nz, len(target) * nz)
            target[:] = cells.reshape(-1, nz)[:, wanted]
        return columns.reshape(*reversed(self.shape[1:]), count).transpose()


def _read_cells(path: Path, start: int, dtype: np.dtype[Any], first: int, count: int) -> Array:
    """Cells first .. first + count of a file whose cells begin at byte `start`; they do not stay in the page cache."""
    offset = start + first * dtype.itemsize
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            cells = np.fromfile(file, dtype, count)
            os.posix_fadvise(file.fileno(), offset, count * dtype.itemsize, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        raise InputError(f"{path} cannot be read at offset {offset}: {error.strerror}") from error
    if cells.size != count:
        raise InputError(f"{path} became shorter while it was read")
    return cells
