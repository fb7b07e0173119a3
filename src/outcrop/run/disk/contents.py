"""This module defines the names of the files in the directories of a run, and computes the content of derived files
from the manifest.

From the directory of a run, Outcrop removes only files with the following names, even if a manifest lists files with
other names:

    .u.0  .u.1  m              folders of arrays (`array_folder`), each with zarr.json and shards c/S/0/0
    u                          a link to the folder of its current copy
    z  y  x                    coordinates
    .taps                      points, values and records of acquisition
    snapshots.zarr             a group, with a subgroup for snapshots that have a name
    zarr.json  .scratch-...

    snapshots.zarr/zarr.json            group; contains the metadata of all groups and arrays below it
    snapshots.zarr/u/c/T/0/0/0          snapshot T: rows in C order, then the index of its planes
    snapshots.zarr/time, step, z, y, x  coordinates; time only if the stencil has a parameter dt
    snapshots.zarr/side/...             a group for snapshots with the name "side", with the same content

On a grid of three axes, the file of a snapshot is a shard whose inner chunks are planes. On other grids, the file of a
snapshot is a plain chunk.

Derived files are the metadata and coordinates for readers of Zarr. Derived files are created with the run, and the
derived files of snapshots are updated after each commit. Outcrop itself does not use derived files. `outcrop verify`
compares derived files with their expected content, and `outcrop verify --repair` writes wrong derived files again.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import NAMES
from outcrop.durable import Directory
from outcrop.errors import StorageError, os_errors_as
from outcrop.plan.problem import chunk_rows
from outcrop.run.disk.entries import ArrayEntry, PartEntry, SnapshotsEntry
from outcrop.run.disk.layout import array_metadata, group_metadata, plain_metadata, snapshot_index, to_json
from outcrop.run.disk.manifest import MANIFEST, Description, Manifest

GROUP = "zarr.json"
"""The metadata file of a group or an array of Zarr."""

ACQUISITION = ".taps"
SNAPSHOTS = "snapshots.zarr"

SCRATCH = ".scratch-"
"""The beginning of the names of scratch files."""

TIMES_PER_CHUNK = 1024
"""The number of entries of `time` and `step` in one chunk. The entries never change, so each chunk is written only
once."""

RESERVED = {ndim: ("time", "step", *names) for ndim, names in NAMES.items()}
"""For each number of axes, the names that fields in snapshots cannot have."""

_MAX_DEPTH = 8

_ARRAY = re.compile(r"(?:zarr\.json|c/\d+(?:/0){0,2})(?:\.tmp)?")
_PATTERNS = {
    ACQUISITION: re.compile(r"(?:source|receivers|trace|norms|snapshots)-[A-Za-z0-9_-]+(?:\.previous)?(?:\.tmp)?"),
    SNAPSHOTS: re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*(?:\.previous)?/){0,2}(?:zarr\.json|c/\d+(?:/0){0,3})(?:\.tmp)?"),
}
"""Patterns for the names of the files of a run, for each kind of folder."""


def array_folder(entry: ArrayEntry, copy: int) -> str:
    """Return the name of the folder of copy `copy` of an array. A static array has only one copy, in a folder with its
    name."""
    return entry.name if entry.is_static else f".{entry.name}.{copy}"


def array_folders(manifest: Description) -> list[str]:
    """Return the folders of all arrays. Each directory of the run has a folder for each array."""
    return [array_folder(entry, copy) for entry, copy in manifest.copies]


def coordinate_folders(manifest: Description) -> list[str]:
    """Return the folders of the coordinates, which are in the run's own directory."""
    return list(manifest.axis_names) if manifest.coordinates else []


def acquisition_folders(manifest: Description) -> list[str]:
    """Return the folders of acquisition, in the run's own directory or in the folder of records."""
    return ([ACQUISITION] if manifest.taps else []) + ([SNAPSHOTS] if manifest.own_taps.snapshots else [])


def shard_name(shard: int, ndim: int) -> str:
    """Return the path of a shard, relative to the folder of its array."""
    return "/".join(["c", str(shard), *["0"] * (ndim - 1)])


def top_names(manifest: Description) -> set[str]:
    """Return the names in the run's own directory: the folders of arrays, coordinates and acquisition, and the links to
    arrays."""
    state = (entry.name for entry in manifest.state)
    return {*array_folders(manifest), *coordinate_folders(manifest), *acquisition_folders(manifest), *state}


def files_of_run(directory: Directory, manifest: Manifest) -> tuple[list[str], list[str]]:
    """Return two lists of names in the run's own directory. The first list has the files and links of the run, without
    the manifest. The second list has all other files in the folders of the run. Raises OSError."""
    links = {entry.name for entry in manifest.state}
    beside = {GROUP, *(f"{name}.tmp" for name in (GROUP, MANIFEST, *links))}
    names = directory.names()
    folders = [name for name in names if name in top_names(manifest) - links]
    ours, foreign = files_below(directory, folders)
    ours += [name for name in names if name in beside or name.startswith(SCRATCH)]
    for name in sorted(links.intersection(names)):
        (foreign if directory.read_link(name) is None else ours).append(name)
    return ours, foreign


def files_below(directory: Directory, folders: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return two lists of the files in these folders: the files whose names belong to a run, and all other files.
    Raises OSError."""
    ours: list[str] = []
    foreign: list[str] = []
    for folder in folders:
        for name in names_below(directory, folder):
            pattern = _PATTERNS.get(folder, _ARRAY)
            (ours if pattern.fullmatch(name[len(folder) + 1 :]) else foreign).append(name)
    return ours, foreign


def names_below(directory: Directory, name: str, depth: int = 0) -> Iterator[str]:
    """Yield the files and links in the folder `name` and in its subfolders. If `name` is a file, yield `name`."""
    status = directory.status(name)
    if status is None:
        return
    if not stat.S_ISDIR(status.st_mode) or depth == _MAX_DEPTH:
        yield name
        return
    for inner in directory.names(name):
        yield from names_below(directory, f"{name}/{inner}", depth + 1)


def derived_files(manifest: Manifest, part: PartEntry | None = None) -> dict[str, bytes]:
    """Return a dictionary that maps the path of each derived file in the run's own directory to the content of the
    file. If `part` is given, the parts of several ranks form one Zarr array, and `part` is any part. Each shard of such
    a Zarr array has only the rows of one part (run/ranks/shared.py)."""
    attributes, part_rows = _attributes(manifest), part.chunk_rows if part else None
    metadata = array_metadata(manifest.layout, manifest.axis_names, attributes, part_rows)
    files = {f"{array_folder(entry, copy)}/{GROUP}": to_json(metadata) for entry, copy in manifest.copies}
    arrays: dict[str, dict[str, Any]] = {entry.name: metadata for entry in manifest.arrays}
    for axis, name in enumerate(coordinate_folders(manifest)):
        where = manifest.own_coordinates if any(manifest.layout.hidden) else manifest.coordinates
        assert where is not None and manifest.coordinates is not None
        cells = where.along(axis, arrays[manifest.arrays[0].name]["shape"][axis])
        arrays[name] = _coordinate(name, len(cells), len(cells), "float64", axis_attributes(manifest, name))
        files |= {f"{name}/c/0": cells.astype("<f8").tobytes(), f"{name}/{GROUP}": to_json(arrays[name])}
    return files | snapshot_files(manifest, part) | {GROUP: to_json(group_metadata(arrays, attributes))}


def snapshot_files(manifest: Manifest, part: PartEntry | None = None) -> dict[str, bytes]:
    """Return a dictionary with the content of each derived file of snapshots at the manifest's step. The keys are paths
    of files. The last item of the dictionary is the metadata of the top group, which lists all groups and arrays of the
    snapshots. `part` has the same meaning as in `derived_files`."""
    files: dict[str, bytes] = {}
    below: dict[str, dict[str, Any]] = {}
    for entry in manifest.own_taps.snapshots:
        group, arrays = f"{SNAPSHOTS}/{entry.prefix}", _snapshot_metadata(manifest, entry, part)
        for name, cells in box_coordinates(manifest, entry).items():
            files[f"{group}{name}/c/0"] = cells.astype("<f8").tobytes()
        for name, values in _times(manifest, entry).items():
            files[f"{group}{name}"] = values
        for name, metadata in arrays.items():
            files[f"{group}{name}/{GROUP}"] = to_json(metadata)
            below[entry.prefix + name] = metadata
        if entry.name:
            below[entry.name] = group_metadata(arrays, _attributes(manifest))
            files[f"{group}{GROUP}"] = to_json(below[entry.name])
    return files | {f"{SNAPSHOTS}/{GROUP}": to_json(group_metadata(below, _attributes(manifest)))} if below else files


def rows_of_parts(entry: SnapshotsEntry, cut: Sequence[int]) -> list[tuple[int, int]]:
    """Return a pair for each part that has rows of the snapshot's box: the rank of the part, and the number of these
    rows."""
    rows = [entry.of_rows(first, end).shape[1] for first, end in pairwise(cut)]
    return [(rank, count) for rank, count in enumerate(rows) if count]


def snapshot_end(manifest: Description, own: SnapshotsEntry) -> bytes:
    """Return the bytes after the cells of a snapshot of a run or a part: the zeros that complete the last plane, and
    the index. `own` is the entry of the snapshots with the rows of this run or part."""
    itemsize = np.dtype(manifest.dtype).itemsize
    return snapshot_index(own.shape, itemsize, _snapshot_rows(manifest, own))


def _snapshot_rows(manifest: Description, own: SnapshotsEntry) -> int | None:
    """Return the number of rows of a chunk in the file of a snapshot. Return None if a chunk has exactly the rows of
    the entry `own`."""
    if manifest.part is None or manifest.part.planes:
        return None
    (whole,) = (one for one in manifest.taps.snapshots if one.name == own.name)
    return chunk_rows([rows for _, rows in rows_of_parts(whole, manifest.part.cut)]) or None


def show_snapshots(directory: Directory, manifest: Manifest, part: PartEntry | None = None) -> None:
    """Update the metadata files of snapshots. A file is written only if its content is wrong for the manifest's step.
    Raises StorageError."""
    with os_errors_as(StorageError, f"cannot list snapshots of {directory.path}"):
        for name, content in outdated(directory, snapshot_files(manifest, part)).items():
            directory.make_folder(name.rpartition("/")[0])
            directory.replace(name, content)


def outdated(directory: Directory, files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the items of `files` (names and contents) whose file in `directory` is missing or different."""
    found = {}
    for name, content in files.items():
        try:
            if directory.read_file(name, len(content) + 1) == content:
                continue
        except (OSError, StorageError):
            pass
        found[name] = content
    return found


def _attributes(manifest: Manifest) -> dict[str, Any]:
    return {"stencil": manifest.stencil.get("name", ""), "parameters": manifest.parameters}


def _snapshot_metadata(
    manifest: Manifest, entry: SnapshotsEntry, part: PartEntry | None
) -> dict[str, dict[str, Any]]:
    """Return the metadata of the arrays in a group, at the manifest's step. The result maps the name of each array to
    the content of the array's zarr.json."""
    count, axes, box = entry.count(manifest.step), manifest.axis_names, entry.shape
    shard, rows = box, _snapshot_rows(manifest, entry)
    if part is not None:
        rows = chunk_rows([rows for _, rows in rows_of_parts(entry, part.cut)])
    if rows:
        shard = (box[0], rows, box[2])
    inner = (1, 1, *shard[1:]) if len(box) == 3 else None
    # Without the attribute "coordinates", xarray would not recognise that `step` is a coordinate.
    belongs: dict[str, Any] = {"coordinates": "step"}
    if entry.coarsen:
        belongs |= {"cell_methods": f"{': '.join(axes)}: mean", "coarsen": list(entry.coarsen)}
    found = {
        name: plain_metadata((count, *box), (1, *shard), manifest.dtype, ("time", *axes), belongs, inner)
        for name in entry.fields
    }
    found["step"] = _coordinate("time", count, TIMES_PER_CHUNK, "int64", step_attributes(manifest))
    if "dt" in manifest.parameters:
        about = time_attributes(manifest, entry.time_units)
        found["time"] = _coordinate("time", count, TIMES_PER_CHUNK, "float64", about)
    return found | {
        axis: _coordinate(axis, n, n, "float64", axis_attributes(manifest, axis))
        for axis, n in zip(axes, box, strict=True)
    }


def _coordinate(axis: str, count: int, chunk: int, dtype: str, attributes: dict[str, str]) -> dict[str, Any]:
    return plain_metadata((count,), (chunk,), dtype, (axis,), attributes)


def step_attributes(manifest: Description) -> dict[str, str]:
    """Return the attributes of the coordinate `step`."""
    if manifest.first_time is None:
        return {"long_name": "number of completed steps"}
    return {"long_name": "time index of Devito"}


def time_attributes(manifest: Description, units: str) -> dict[str, str]:
    """Return the attributes of the coordinate `time`."""
    what = "step" if manifest.first_time is None else "time index of Devito"
    return {"long_name": f"{what} multiplied by dt", **({"units": units} if units else {})}


def axis_attributes(manifest: Description, name: str) -> dict[str, str]:
    """Return the attributes of a coordinate along an axis of the grid. The names of the attributes follow the CF
    conventions."""
    axis = {"axis": name.upper()} if name in NAMES[3] else {}
    if manifest.coordinates is None:
        return {"long_name": f"number of the cell along {name}", **axis}
    units = manifest.coordinates.units
    return {"long_name": f"position along {name}", **axis, **({"units": units} if units else {})}


def box_coordinates(manifest: Manifest, entry: SnapshotsEntry) -> dict[str, NDArray[np.float64]]:
    """Return the coordinates of the values of a snapshot along each axis: the centres of cells or of groups of cells.
    If the run has no coordinates, positions are the numbers of cells in the user's grid."""
    found = {}
    first_row, first_plane = manifest.rows[0], manifest.planes[0]
    for axis, name in enumerate(manifest.axis_names):
        begin, end = entry.box[axis]
        cells = np.arange(manifest.shape[axis], dtype=np.float64) - manifest.padding[axis]
        cells += {"y": first_row, "z": first_plane}.get(name, 0) if manifest.part else 0
        if manifest.coordinates:
            cells = manifest.coordinates.along(axis, manifest.shape[axis])
        found[name] = _centres(cells[begin:end], entry.group[axis])
    return found


def _centres(cells: NDArray[np.float64], group: int) -> NDArray[np.float64]:
    """Return the centre of each group of `group` cells. The last group can have fewer cells."""
    if group == 1:
        return cells
    first = np.arange(0, len(cells), group)
    last = np.minimum(first + group, len(cells)) - 1
    centres: NDArray[np.float64] = (cells[first] + cells[last]) / 2
    return centres


def _times(manifest: Manifest, entry: SnapshotsEntry) -> dict[str, bytes]:
    """Return the chunks of the coordinates step and time. Each chunk has entries for TIMES_PER_CHUNK snapshots,
    including snapshots that do not exist yet."""
    files, (first_time, way) = {}, manifest.time_line
    for chunk in range(-(-entry.count(manifest.step) // TIMES_PER_CHUNK)):
        first = chunk * TIMES_PER_CHUNK
        steps = np.array([first_time + way * entry.step_of(first + i) for i in range(TIMES_PER_CHUNK)], "<i8")
        files[f"step/c/{chunk}"] = steps.tobytes()
        if "dt" in manifest.parameters:
            files[f"time/c/{chunk}"] = (steps * manifest.parameters["dt"]).astype("<f8").tobytes()
    return files
