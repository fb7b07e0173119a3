"""`Planes`: read and write the planes of an array with NumPy, a few at a time, with checksums and seals.

A shard is a file, a file beneath an open folder, or a range of a block device. `_core.Store` can open all three kinds.
A file is given by its path. A file beneath a folder is given as (descriptor of the folder, path in the folder, label).
A range is given as (path of the device, first byte, number of bytes).

    record:  | plane | CRC32C | seal | zeros |          the seal identifies the plane (storage/checksums.hpp)

Initial values, views of results and verification use this module. The engine does not use this module, because the core
(the C++ code) accesses the files during a pass.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from outcrop import _core
from outcrop.errors import CorruptionError, StorageError, os_errors_as
from outcrop.run.disk.layout import RECORD_BYTES, PlaneLayout

BUFFER_BYTES = 4 << 20
"""The maximum size in bytes of a group of planes that is read or written together. Planes that are larger than
BUFFER_BYTES are moved one by one."""

SPARSE = 8
"""Cells are sparse in a plane if reading them alone moves at most 1/SPARSE of the bytes of the plane."""


class DeviceRange(NamedTuple):
    """A range of `size` bytes of a device, from byte `begin` on."""

    path: str
    begin: int
    size: int

    def __str__(self) -> str:
        return f"{self.path} (from byte {self.begin})"


class FileBeneath(NamedTuple):
    """A regular file beneath a folder, opened without following links. The descriptor `folder` must stay open until the
    file has been opened. `name` is the path of the file in the folder, and `label` is the name of the file in
    messages."""

    folder: int
    name: str
    label: str

    def __str__(self) -> str:
        return self.label


PlaneSource: TypeAlias = Callable[[int, int], np.ndarray[Any, Any]]
"""A function (z0, z1) that returns the planes z0 <= z < z1 on the engine's three axes. The result has the shape (z1 -
z0, ny, nx)."""

ShardFile: TypeAlias = str | DeviceRange | FileBeneath
"""A shard: the path of its file, its range of a device, or its file beneath a folder."""


def read_bytes(file: ShardFile, offset: int, count: int) -> bytes:
    """Return up to `count` bytes of a shard, from byte `offset` on, through the page cache. Raises StorageError."""
    with os_errors_as(StorageError, _path(file)), open(_opened(file), "rb") as opened:
        opened.seek(offset + (file.begin if isinstance(file, DeviceRange) else 0))
        return opened.read(count)


def place_of(file: ShardFile) -> str:
    """Return the path of a shard for messages, with links resolved."""
    return os.path.realpath(file) if isinstance(file, str) else str(file)


def _path(file: ShardFile) -> str:
    return file.path if isinstance(file, DeviceRange) else str(file)


def _opened(file: ShardFile) -> int:
    """Open a shard for reading and return its descriptor. Raises StorageError if the shard is neither a regular file
    nor a device. If the file is a pipe, the function does not wait for another program."""
    if isinstance(file, FileBeneath):
        return _core.open_beneath(*file)
    descriptor = os.open(_path(file), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or (isinstance(file, DeviceRange) and stat.S_ISBLK(mode))):
        os.close(descriptor)
        raise StorageError(f"open failed: {file}: it is not a regular file")
    os.set_blocking(descriptor, True)
    return descriptor


def is_sparse(layout: PlaneLayout, rows: range, columns: range) -> bool:
    """Return True if `rows` and `columns` select only a small part of a plane. `rows` and `columns` have at least one
    cell each."""
    first, end = _ends(columns)
    row_bytes = max(RECORD_BYTES, (end - first) * np.dtype(layout.dtype).itemsize)
    return SPARSE * len(rows) * row_bytes <= layout.plane_bytes


def _ends(chosen: range) -> tuple[int, int]:
    """Return two numbers: the smallest number in the range `chosen`, and the largest number plus 1."""
    return min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1]) + 1


def _as_slice(chosen: range, first: int = 0) -> slice:
    """Return the slice that selects the positions `chosen` from an array. The first entry of the array has the position
    `first`."""
    end = chosen.stop - first
    return slice(chosen.start - first, end if end >= 0 else None, chosen.step)


class Planes:
    """The open files of one array. Only one thread may use a `Planes` object."""

    def __init__(
        self, files: Sequence[ShardFile] | _core.Store, layout: PlaneLayout, writable: bool = False, io: str = "auto",
        first_file: int = 0, seed: int = 0, direct: bool = True,
    ) -> None:  # fmt: skip
        """Open the files of an array. `files` may also be an open store with the files of several arrays. If `files` is
        a store, `first_file` is the number of the array's first file in the store. `seed` is the seed of the seals of
        the planes. If `direct` is False, transfers use the page cache."""
        self._layout, self._first_file, self._seed = layout, first_file, seed
        if isinstance(files, _core.Store):
            self._store = files
        else:
            self._store = _core.Store(files, backend=io, direct=direct, writable=writable)
        self.group_planes = max(1, min(layout.shard_planes, BUFFER_BYTES // layout.record_bytes))
        self._buffer = _core.aligned_array(self.group_planes * layout.record_bytes)

    def read(self, z0: int, z1: int) -> np.ndarray[Any, Any]:
        """Return planes z0 <= z < z1 as a new array. Raises CorruptionError and StorageError."""
        _, ny, nx = self._layout.shape
        result = np.empty((z1 - z0, ny, nx), dtype=self._layout.dtype)
        for first, block in self.groups(z0, z1):
            result[first - z0 : first - z0 + len(block)] = block
        return result

    def groups(self, z0: int, z1: int) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        """Read planes z0 <= z < z1 in groups and verify their checksums. Yield (first plane, planes). The planes of a
        group are valid until the next group is read."""
        layout = self._layout
        for first, count in self._runs(z0, z1):
            shard, offset = layout.locate(first)
            records = self._buffer[: count * layout.record_bytes]
            self._store.read_into(self._first_file + shard, offset, records)
            for index, record in enumerate(records.reshape(count, layout.record_bytes)):
                crc, seal = record[layout.plane_bytes :].view("<u4")[:2].tolist()
                whole = _core.crc32c(record[: layout.plane_bytes]) == crc
                if not whole or _core.plane_seal(first + index, crc, self._seed) != seal:
                    path, place = self._store.paths[self._first_file + shard], offset + index * layout.record_bytes
                    raise CorruptionError(_core.plane_damage(first + index, whole, path, place, layout.plane_bytes))
            yield first, self._cells(records, count)

    def selected(self, z: int, rows: range, columns: range) -> np.ndarray[Any, Any]:
        """Return the cells of plane z in `rows` and `columns`, in a new array of shape (rows, columns). The plane is
        read in strips of about BUFFER_BYTES, so large planes need little memory. The checksum of the whole plane is
        verified. Raises CorruptionError and StorageError."""
        if rows.step < 0:
            return self.selected(z, rows[::-1], columns)[::-1]
        layout = self._layout
        result = np.empty((len(rows), len(columns)), layout.dtype)
        shard, offset = layout.locate(z)
        # direct I/O moves whole pages, so a strip has a number of rows that fill whole pages
        unit = RECORD_BYTES // math.gcd(layout.pitch_bytes, RECORD_BYTES)
        strip = unit * max(1, BUFFER_BYTES // (unit * layout.pitch_bytes))
        crc, found = 0, [0, 0]
        for y0 in range(0, layout.chunk_rows, strip):
            y1 = min(y0 + strip, layout.chunk_rows)
            size = (y1 - y0) * layout.pitch_bytes
            read = self._buffer[: size if y1 < layout.chunk_rows else layout.record_bytes - y0 * layout.pitch_bytes]
            self._store.read_into(self._first_file + shard, offset + y0 * layout.pitch_bytes, read)
            crc = _core.crc32c(read[:size], crc)
            if y1 == layout.chunk_rows:
                found = read[size:].view("<u4")[:2].tolist()
            cells = read[:size].view(layout.dtype).reshape(y1 - y0, layout.pitch_cells)
            # `rows[first:end]` are the rows of this strip
            first, end = (min(max(0, -((rows.start - y) // rows.step)), len(rows)) for y in (y0, y1))
            if first < end:
                result[first:end] = cells[rows[first] - y0 : y1 - y0 : rows.step][: end - first, _as_slice(columns)]
        if crc != found[0] or _core.plane_seal(z, crc, self._seed) != found[1]:
            path = self._store.paths[self._first_file + shard]
            raise CorruptionError(_core.plane_damage(z, crc == found[0], path, offset, layout.plane_bytes))
        return result

    def unverified(self, z: int, rows: range, columns: range) -> np.ndarray[Any, Any]:
        """Return the cells of plane z in `rows` and `columns`, in a new array of shape (rows, columns). Only `rows` are
        read, so the checksum of the plane cannot be verified. Raises StorageError."""
        layout = self._layout
        first, end = _ends(columns)
        shard, offset = layout.locate(z)
        result, row = np.empty((len(rows), len(columns)), layout.dtype), np.empty(end - first, layout.dtype)
        for place, y in enumerate(rows):
            begin = offset + y * layout.pitch_bytes + first * row.itemsize
            self._store.read_into(self._first_file + shard, begin, row)
            result[place] = row[_as_slice(columns, first)]
        return result

    def fill(self, source: PlaneSource, z0: int = 0, z1: int | None = None) -> None:
        """Write planes z0 <= z < z1, by default all planes. The values come from `source`."""
        layout = self._layout
        self._buffer[:] = 0
        for first, count in self._runs(z0, layout.shape[0] if z1 is None else z1):
            shard, offset = layout.locate(first)
            records = self._buffer[: count * layout.record_bytes]
            self._cells(records, count)[...] = source(first, first + count)
            for index, record in enumerate(records.reshape(count, layout.record_bytes)):
                crc = _core.crc32c(record[: layout.plane_bytes])
                seal = _core.plane_seal(first + index, crc, self._seed)
                record[layout.plane_bytes :].view("<u4")[:2] = crc, seal
            self._store.write_from(self._first_file + shard, offset, records)

    def flush(self) -> None:
        self._store.flush()

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Planes:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _runs(self, z0: int, z1: int) -> Iterator[tuple[int, int]]:
        """Divide planes z0 <= z < z1 into groups. All planes of one group are in the same shard. Yield (first plane,
        number of planes) for each group."""
        while z0 < z1:
            shard_end = (z0 // self._layout.shard_planes + 1) * self._layout.shard_planes
            count = min(z1, shard_end, z0 + self.group_planes) - z0
            yield z0, count
            z0 += count

    def _cells(self, records: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
        """Return a view of the cells of `count` records, without padding. The view has the shape (count, ny, nx)."""
        layout = self._layout
        _, ny, nx = layout.shape
        planes = records.reshape(count, layout.record_bytes)[:, : layout.plane_bytes]
        # Rows are contiguous within a record, so reshape() returns a view and copies nothing.
        rows = planes.view(layout.dtype).reshape(count, layout.chunk_rows, layout.pitch_cells)
        assert np.shares_memory(rows, records)
        return rows[:, :ny, :nx]
