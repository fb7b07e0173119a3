"""The files of a run's snapshots: made before the pass that fills them, shown once it is committed.

    before a pass:  files of its snapshots, full size, each with its index         killed here: nobody sees them
    the pass:       the core fills them and flushes
    after commit:   metadata says how many there are                              killed before: mended when opened

What lies beyond the manifest's step is not in the metadata, and the pass that is done again fills it again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from outcrop import _core
from outcrop.durable import flush_folder, replace_file
from outcrop.errors import InputError, StorageError
from outcrop.run.axes import grid_shape
from outcrop.run.disk.directory import SNAPSHOTS
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.zarr_format import to_text
from outcrop.run.taps.entries import SnapshotsEntry
from outcrop.run.taps.pass_taps import Box, SnapshotFile
from outcrop.run.taps.snapshot_metadata import (
    TIMES_PER_CHUNK,
    box_coordinates,
    shard_index,
    snapshot_group,
    snapshot_metadata,
)
from outcrop.units import format_bytes

DIRECT_BYTES = 1 << 20
"""Snapshots of as many bytes bypass the page cache. Smaller ones cost it nothing, and would make tiny transfers."""


def create_snapshots(directory: Path, manifest: Manifest) -> None:
    """Make the groups, without a snapshot yet. Raises OSError."""
    for entry in manifest.taps.snapshots:
        for name, cells in box_coordinates(manifest, entry).items():
            _write_chunk(_group(directory, entry) / name / "c" / "0", cells.astype("<f8"))
    update_snapshots(directory, manifest)


def update_snapshots(directory: Path, manifest: Manifest) -> None:
    """Say in the metadata how many snapshots there are. Raises OSError."""
    below: dict[str, dict[str, Any]] = {}
    for entry in manifest.taps.snapshots:
        group, arrays = _group(directory, entry), snapshot_metadata(manifest, entry)
        _write_times(group, manifest, entry)
        for name, metadata in arrays.items():
            (group / name).mkdir(parents=True, exist_ok=True)
            replace_file(group / name / "zarr.json", to_text(metadata))
            below[entry.prefix + name] = metadata
        if entry.name:
            below[entry.name] = snapshot_group(manifest, arrays)
            replace_file(group / "zarr.json", to_text(below[entry.name]))
    if below:
        replace_file(directory / SNAPSHOTS / "zarr.json", to_text(snapshot_group(manifest, below)))


def show_snapshots(directory: Path, manifest: Manifest) -> None:
    """`update_snapshots` after a commit. Raises StorageError."""
    try:
        update_snapshots(directory, manifest)
    except OSError as error:
        raise StorageError(f"cannot list snapshots of {directory}: {error.strerror}") from error


def are_current(directory: Path, manifest: Manifest) -> bool:
    """Whether the metadata says what the manifest does."""
    if not manifest.taps.snapshots:
        return True
    try:
        text = json.loads((directory / SNAPSHOTS / "zarr.json").read_text())
        below = text["consolidated_metadata"]["metadata"]
        shapes = [below[f"{entry.prefix}step"]["shape"] for entry in manifest.taps.snapshots]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return shapes == [[entry.count(manifest.step)] for entry in manifest.taps.snapshots]


def snapshot_path(directory: Path, entry: SnapshotsEntry, field: str, number: int) -> Path:
    """The file of snapshot `number`, from 0."""
    return _group(directory, entry).joinpath(field, "c", str(number), *["0"] * len(entry.box))


def require_space(directory: Path, manifest: Manifest, last_step: int) -> None:
    """Raise InputError unless the snapshots up to a step have room."""
    if not manifest.taps.snapshots:
        return
    times = needed = 0
    for entry in manifest.taps.snapshots:
        more = entry.count(last_step) - entry.count(manifest.step)
        each = math.prod(entry.shape) * np.dtype(manifest.dtype).itemsize + len(shard_index(entry.shape, 1))
        times, needed = times + more, needed + more * len(entry.fields) * each
    room = os.statvfs(directory)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        raise InputError(
            f"no space: {times} snapshots need {format_bytes(needed)} in {directory}, {format_bytes(free)} are free; "
            "make room, or start again with fewer of them or a smaller box"
        )


def make_files(directory: Path, manifest: Manifest, fields: list[str], first: int, steps: int) -> list[SnapshotFile]:
    """Files for the snapshots that the pass of so many steps from step `first` on is to keep; `fields` are those of the
    stencil, in its order.

    Raises OSError and StorageError.
    """
    return [
        file
        for entry in manifest.taps.snapshots
        for file in _files(directory, entry, np.dtype(manifest.dtype).itemsize, fields, first, steps)
    ]


def _files(
    directory: Path, entry: SnapshotsEntry, itemsize: int, fields: list[str], first: int, steps: int
) -> Iterator[SnapshotFile]:
    size, index = math.prod(entry.shape) * itemsize, shard_index(entry.shape, itemsize)
    for number in range(entry.count(first), entry.count(first + steps)):
        for name in entry.fields:
            path = snapshot_path(directory, entry, name, number)
            path.parent.mkdir(parents=True, exist_ok=True)
            _core.create_file(str(path), size + len(index))
            with open(path, "r+b") as file:
                file.seek(size)
                file.write(index)
            for folder in path.parents[: len(entry.box) + 1]:
                flush_folder(folder)
            step, box = entry.step_of(number), _grid_box(entry.box)
            yield SnapshotFile(fields.index(name), step, box, str(path), direct=size >= DIRECT_BYTES)


def _group(directory: Path, entry: SnapshotsEntry) -> Path:
    return directory / SNAPSHOTS / entry.name


def _grid_box(box: tuple[tuple[int, int], ...]) -> Box:
    """The box on the three axes inside."""
    (z0, y0, x0), (z1, y1, x1) = (grid_shape(tuple(ends)) for ends in zip(*box, strict=True))
    if len(box) < 3:
        y0, y1 = 0, 1
    if len(box) < 2:
        z0, z1 = 0, 1
    return (z0, z1), (y0, y1), (x0, x1)


def _write_times(group: Path, manifest: Manifest, entry: SnapshotsEntry) -> None:
    """The chunks of step and time that are not there yet."""
    for chunk in range(-(-entry.count(manifest.step) // TIMES_PER_CHUNK)):
        first = chunk * TIMES_PER_CHUNK
        steps = np.array([entry.step_of(first + i) for i in range(TIMES_PER_CHUNK)], "<i8")
        arrays: dict[str, Any] = {"step": steps}
        if "dt" in manifest.parameters:
            arrays["time"] = (steps * manifest.parameters["dt"]).astype("<f8")
        for name, values in arrays.items():
            path = group / name / "c" / str(chunk)
            if not path.exists():
                _write_chunk(path, values)


def _write_chunk(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    beside.write_bytes(values.tobytes())
    beside.replace(path)
