"""The Zarr v3 metadata of a run's snapshots: a group with an array (time, z, y, x) for each field, and coordinates.

snapshots.zarr/zarr.json            group, with the metadata of all that is below it inlined
snapshots.zarr/u/c/T/0/0/0          everything of snapshot T: rows in C order, then the index of its planes
snapshots.zarr/time, step, z, y, x  coordinates; time where the stencil has a parameter dt
snapshots.zarr/side/...             those called "side": the same once more, a group of its own

On three axes a file is a shard whose inner chunks are planes; with fewer axes it is a plain chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.axes import NAMES
from outcrop.run.disk.layout import CHECKSUM_BYTES
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.zarr_format import group_metadata, plain_codecs
from outcrop.run.taps.entries import SnapshotsEntry

TIMES_PER_CHUNK = 1024
"""Entries of time and step in one chunk. Their values follow from its number, so a chunk is written once and whole."""

RESERVED = {ndim: ("time", "step", *names) for ndim, names in NAMES.items()}
"""Names that fields of snapshots cannot have, by the number of axes."""


def snapshot_metadata(manifest: Manifest, entry: SnapshotsEntry) -> dict[str, dict[str, Any]]:
    """Content of zarr.json of every array of a group, by name, as of the manifest's step."""
    count, axes = entry.count(manifest.step), NAMES[len(manifest.shape)]
    found = {name: _field(manifest, entry.shape, count) for name in entry.fields}
    found["step"] = _coordinate("time", count, TIMES_PER_CHUNK, "int64", "")
    if "dt" in manifest.parameters:
        found["time"] = _coordinate("time", count, TIMES_PER_CHUNK, "float64", entry.time_units)
    for axis, cells in zip(axes, entry.shape, strict=True):
        units = manifest.coordinates.units if manifest.coordinates else ""
        found[axis] = _coordinate(axis, cells, cells, "float64", units)
    return found


def snapshot_group(manifest: Manifest, nodes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Content of a group's zarr.json; `nodes` are what is below it."""
    return group_metadata(nodes, {"stencil": manifest.stencil.get("name", ""), "parameters": manifest.parameters})


def box_coordinates(manifest: Manifest, entry: SnapshotsEntry) -> dict[str, NDArray[np.float64]]:
    """Where the cells of the box are along each axis; their numbers in the user's grid where nothing is known."""
    found = {}
    for axis, name in enumerate(NAMES[len(manifest.shape)]):
        begin, end = entry.box[axis]
        cells = np.arange(manifest.shape[axis], dtype=np.float64) - manifest.padding[axis]
        if manifest.coordinates:
            cells = manifest.coordinates.along(axis, manifest.shape[axis])
        found[name] = cells[begin:end]
    return found


def shard_index(shape: tuple[int, ...], itemsize: int) -> bytes:
    """What follows the rows of a snapshot of this shape; nothing on fewer than three axes."""
    if len(shape) < 3:
        return b""
    plane_bytes = shape[1] * shape[2] * itemsize
    entries = np.empty((shape[0], 2), dtype="<u8")
    entries[:, 0] = np.arange(shape[0], dtype="<u8") * np.uint64(plane_bytes)
    entries[:, 1] = plane_bytes
    body = entries.tobytes()
    return body + _core.crc32c(body).to_bytes(CHECKSUM_BYTES, "little")


def _field(manifest: Manifest, box: tuple[int, ...], count: int) -> dict[str, Any]:
    # xarray takes "coordinates" to mean that step belongs to these cells as time does.
    return _array(
        (count, *box),
        (1, *box),
        manifest.dtype,
        ("time", *NAMES[len(box)]),
        {"coordinates": "step"},
        (1, 1, *box[1:]) if len(box) == 3 else None,
    )


def _coordinate(axis: str, count: int, chunk: int, dtype: str, units: str) -> dict[str, Any]:
    return _array((count,), (chunk,), dtype, (axis,), {"units": units} if units else {})


def _array(
    shape: tuple[int, ...],
    chunk: tuple[int, ...],
    dtype: str,
    axes: tuple[str, ...],
    attributes: dict[str, Any],
    inner: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0 if dtype == "int64" else 0.0,
        "codecs": plain_codecs(inner),
        "attributes": attributes,
        "dimension_names": list(axes),
        "storage_transformers": [],
    }
