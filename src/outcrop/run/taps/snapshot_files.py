"""The files of a run's snapshots: made before the pass that fills them, shown once it is committed.

    before a pass:  files of its snapshots, full size, each with its index         killed here: no reader sees them
    the pass:       the core fills them and flushes, and takes their checksums
    before commit:  the checksums are kept with the records (records.py)
    after commit:   metadata says how many there are                              killed before: mended by the next run

What lies beyond the manifest's step is not in the metadata, and the pass that is done again fills it again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import numpy as np

from outcrop import _core
from outcrop.axes import grid_shape
from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError
from outcrop.run.disk.contents import SNAPSHOTS, TAPS
from outcrop.run.disk.derived import snapshot_files
from outcrop.run.disk.manifest import Manifest
from outcrop.run.taps.entries import SUM_BYTES, SnapshotsEntry
from outcrop.run.taps.pass_taps import Box, SnapshotFile
from outcrop.run.taps.snapshot_metadata import shard_index
from outcrop.units import format_bytes

DIRECT_BYTES = 1 << 20
"""Snapshots of as many bytes bypass the page cache. Smaller ones cost it nothing, and would make tiny transfers."""

_PART_BYTES = 4 << 20


def show_snapshots(directory: Directory, manifest: Manifest) -> None:
    """Say in the metadata how many snapshots there are, where it does not yet. Raises StorageError."""
    try:
        for name, content in outdated(directory, snapshot_files(manifest)).items():
            directory.make_folder(name.rpartition("/")[0])
            directory.replace(name, content)
    except OSError as error:
        raise StorageError(f"cannot list snapshots of {directory.path}: {error.strerror}") from error


def are_current(directory: Directory, manifest: Manifest) -> bool:
    """Whether the metadata says what the manifest does."""
    return not manifest.taps.snapshots or not outdated(directory, snapshot_files(manifest))


def outdated(directory: Directory, files: dict[str, bytes]) -> dict[str, bytes]:
    """Of these files those that are missing or have other content."""
    found = {}
    for name, content in files.items():
        try:
            if directory.read_file(name, len(content) + 1) == content:
                continue
        except (OSError, StorageError):
            pass
        found[name] = content
    return found


def snapshot_name(entry: SnapshotsEntry, field: str, number: int) -> str:
    """The file of snapshot `number`, from 0, in the run's directory."""
    return "/".join([SNAPSHOTS, f"{entry.prefix}{field}", "c", str(number), *["0"] * len(entry.box)])


def require_space(directory: Directory, manifest: Manifest, last_step: int) -> None:
    """Raise InputError unless the snapshots up to a step have room."""
    if not manifest.taps.snapshots:
        return
    times = needed = 0
    for entry in manifest.taps.snapshots:
        more = entry.count(last_step) - entry.count(manifest.step)
        each = math.prod(entry.shape) * np.dtype(manifest.dtype).itemsize + len(shard_index(entry.shape, 1))
        times, needed = times + more, needed + more * len(entry.fields) * each
    room = os.statvfs(directory.handle)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        raise InputError(
            f"no space: {times} snapshots need {format_bytes(needed)} in {directory.path}, {format_bytes(free)} are "
            "free; make room, or start again with fewer of them or a smaller box"
        )


def make_files(
    directory: Directory, manifest: Manifest, fields: list[str], first: int, steps: int
) -> list[tuple[str, SnapshotFile]]:
    """Files for the snapshots that the pass of so many steps from step `first` on is to keep, each with the name of the
    record of its checksum; `fields` are those of the stencil, in its order. Raises OSError and StorageError."""
    itemsize = np.dtype(manifest.dtype).itemsize
    return [
        file for entry in manifest.taps.snapshots for file in _files(directory, entry, itemsize, fields, first, steps)
    ]


def _files(
    directory: Directory, entry: SnapshotsEntry, itemsize: int, fields: list[str], first: int, steps: int
) -> Iterator[tuple[str, SnapshotFile]]:
    size, index = math.prod(entry.shape) * itemsize, shard_index(entry.shape, itemsize)
    for number in range(entry.count(first), entry.count(first + steps)):
        for field in entry.fields:
            name = snapshot_name(entry, field, number)
            folder = name.rpartition("/")[0]
            directory.make_folder(folder)
            directory.remove(name)  # of a pass that was killed
            directory.create(name, size=size + len(index))
            directory.write(name, size, index)
            parts = folder.split("/")
            for count in range(len(parts), len(parts) - len(entry.box) - 2, -1):
                directory.flush("/".join(parts[:count]))
            step, box = entry.step_of(number), _grid_box(entry.box)
            direct = size >= DIRECT_BYTES
            yield (
                entry.record(field),
                SnapshotFile(fields.index(field), step, box, name, direct=direct, folder=directory.handle),
            )


def damaged_snapshots(directory: Directory, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """For every snapshot that counts its name, and what is wrong with it, in words; "" if nothing.

    The record of its checksum must be whole. Raises StorageError when that cannot be read.
    """
    itemsize = np.dtype(manifest.dtype).itemsize
    for entry in manifest.taps.snapshots:
        size, index = math.prod(entry.shape) * itemsize, shard_index(entry.shape, itemsize)
        for field in entry.fields:
            data = directory.read_file(f"{TAPS}/{entry.record(field)}", SUM_BYTES * entry.count(manifest.step))
            for number, expected in enumerate(np.frombuffer(data, "<u4").tolist()):
                name = snapshot_name(entry, field, number)
                yield name, _damage_of(directory, name, size, index, expected)


def _damage_of(directory: Directory, name: str, size: int, index: bytes, expected: int) -> str:
    path, checksum, done = directory.path / name, 0, 0
    try:
        with directory.opened(name) as handle:
            while part := directory.read_from(handle, done, min(_PART_BYTES, size - done)):
                checksum, done = _core.crc32c(part, checksum), done + len(part)
            tail = directory.read_from(handle, size, len(index) + 1)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except StorageError as error:
        return str(error)
    if done < size or len(tail) != len(index):
        return f"{path} has not the {size + len(index)} bytes that belong there"
    if checksum != expected:
        return f"{path} is damaged: checksum mismatch"
    return "" if tail == index else f"{path}: the index at offset {size} is damaged"


def _grid_box(box: tuple[tuple[int, int], ...]) -> Box:
    """The box on the three axes inside."""
    (z0, y0, x0), (z1, y1, x1) = (grid_shape(tuple(ends)) for ends in zip(*box, strict=True))
    if len(box) < 3:
        y0, y1 = 0, 1
    if len(box) < 2:
        z0, z1 = 0, 1
    return (z0, z1), (y0, y1), (x0, x1)
