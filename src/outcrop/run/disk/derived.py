"""Files of a run that follow from its manifest: metadata and coordinates for readers of Zarr.

They are made with the run; those of snapshots grow with its steps. Nothing that Outcrop computes depends on them, so
`outcrop verify` compares them with what they should be, and `--repair` writes them again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from outcrop.run.coordinates import coordinate_metadata
from outcrop.run.disk.contents import GROUP, SNAPSHOTS, array_folder, coordinate_folders
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.zarr_format import array_metadata, group_metadata, to_json
from outcrop.run.taps.entries import SnapshotsEntry
from outcrop.run.taps.snapshot_metadata import TIMES_PER_CHUNK, box_coordinates, snapshot_group, snapshot_metadata


def derived_files(manifest: Manifest) -> dict[str, bytes]:
    """All of them in the run's own directory, by name."""
    attributes = {"stencil": manifest.stencil.get("name", ""), "parameters": manifest.parameters}
    metadata = array_metadata(manifest.layout, len(manifest.shape), attributes)
    files = {f"{array_folder(entry, turn)}/{GROUP}": to_json(metadata) for entry, turn in manifest.copies}
    arrays: dict[str, dict[str, Any]] = {entry.name: metadata for entry in manifest.arrays}
    for axis, name in enumerate(coordinate_folders(manifest)):
        assert manifest.coordinates is not None
        arrays[name] = coordinate_metadata(manifest.coordinates, axis, manifest.shape)
        cells = manifest.coordinates.along(axis, manifest.shape[axis])
        files |= {f"{name}/c/0": cells.astype("<f8").tobytes(), f"{name}/{GROUP}": to_json(arrays[name])}
    return files | snapshot_files(manifest) | {GROUP: to_json(group_metadata(arrays, attributes))}


def snapshot_files(manifest: Manifest) -> dict[str, bytes]:
    """Those of snapshots, which say how many there are at the manifest's step; the one that lists the others last."""
    files: dict[str, bytes] = {}
    below: dict[str, dict[str, Any]] = {}
    for entry in manifest.taps.snapshots:
        group, arrays = f"{SNAPSHOTS}/{entry.prefix}", snapshot_metadata(manifest, entry)
        for name, cells in box_coordinates(manifest, entry).items():
            files[f"{group}{name}/c/0"] = cells.astype("<f8").tobytes()
        for name, values in _times(manifest, entry).items():
            files[f"{group}{name}"] = values
        for name, metadata in arrays.items():
            files[f"{group}{name}/{GROUP}"] = to_json(metadata)
            below[entry.prefix + name] = metadata
        if entry.name:
            below[entry.name] = snapshot_group(manifest, arrays)
            files[f"{group}{GROUP}"] = to_json(below[entry.name])
    return files | {f"{SNAPSHOTS}/{GROUP}": to_json(snapshot_group(manifest, below))} if below else files


def _times(manifest: Manifest, entry: SnapshotsEntry) -> dict[str, bytes]:
    """The chunks of step and time. Their values follow from their numbers, so each is written once and whole."""
    files = {}
    for chunk in range(-(-entry.count(manifest.step) // TIMES_PER_CHUNK)):
        first = chunk * TIMES_PER_CHUNK
        steps = np.array([entry.step_of(first + i) for i in range(TIMES_PER_CHUNK)], "<i8")
        files[f"step/c/{chunk}"] = steps.tobytes()
        if "dt" in manifest.parameters:
            files[f"time/c/{chunk}"] = (steps * manifest.parameters["dt"]).astype("<f8").tobytes()
    return files
