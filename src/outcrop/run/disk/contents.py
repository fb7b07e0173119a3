"""The names that a run takes in its directories. No other file is ever removed, even if a manifest names it.

    .u.0  .u.1  m              folders of arrays (`array_folder`), each with zarr.json and shards c/S/0/0
    u                          a link to the folder of its current turn
    z  y  x                    coordinates
    .taps                      points, values and records of taps
    snapshots.zarr             a group, with a group of its own for snapshots that have a name
    zarr.json  .scratch-...
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator

from outcrop.axes import NAMES
from outcrop.durable import Directory
from outcrop.run.disk.arrays import ArrayEntry
from outcrop.run.disk.manifest import MANIFEST, Description, Manifest

GROUP = "zarr.json"
"""Metadata of a group or an array, for readers of Zarr."""

TAPS = ".taps"
SNAPSHOTS = "snapshots.zarr"

SCRATCH = ".scratch-"
"""How names of scratch files begin while they have one."""

_MAX_DEPTH = 8

_ARRAY = re.compile(r"(?:zarr\.json|c/\d+(?:/0){0,2})(?:\.tmp)?")
_PATTERNS = {
    TAPS: re.compile(r"(?:source|receivers|trace|norms|snapshots)-[A-Za-z0-9_-]+(?:\.tmp)?"),
    SNAPSHOTS: re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*/){0,2}(?:zarr\.json|c/\d+(?:/0){0,3})(?:\.tmp)?"),
}
"""Names of files below folders of a run."""


def array_folder(entry: ArrayEntry, turn: int) -> str:
    """Folder of an array of the state in one turn, to the current of which its own name links; of a static array."""
    return entry.name if entry.is_static else f".{entry.name}.{turn}"


def array_folders(manifest: Description) -> list[str]:
    """Folders of all arrays, in each directory of the run."""
    return [array_folder(entry, turn) for entry, turn in manifest.copies]


def coordinate_folders(manifest: Description) -> list[str]:
    """Folders of the coordinates, in the run's own directory."""
    return list(NAMES[len(manifest.shape)]) if manifest.coordinates else []


def tap_folders(manifest: Description) -> list[str]:
    """Folders of sources, receivers, norms and snapshots: in the run's own directory, or beside devices."""
    return ([TAPS] if manifest.taps else []) + ([SNAPSHOTS] if manifest.taps.snapshots else [])


def shard_name(shard: int, ndim: int) -> str:
    """Path of a shard below the folder of its array of `ndim` axes."""
    return "/".join(["c", str(shard), *["0"] * (ndim - 1)])


def top_names(manifest: Description) -> set[str]:
    """All names in the run's own directory that arrays, coordinates and taps take."""
    state = (entry.name for entry in manifest.state)
    return {*array_folders(manifest), *coordinate_folders(manifest), *tap_folders(manifest), *state}


def files_of_run(directory: Directory, manifest: Manifest) -> tuple[list[str], list[str]]:
    """What lies below the names of a run in its own directory: files and links of the run, but its manifest; and what
    is not the run's. Raises OSError."""
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
    """Of everything in these folders of a run, what has the name of a file of a run, and the rest. Raises OSError."""
    ours: list[str] = []
    foreign: list[str] = []
    for folder in folders:
        for name in _below(directory, folder, 0):
            pattern = _PATTERNS.get(folder, _ARRAY)
            (ours if pattern.fullmatch(name[len(folder) + 1 :]) else foreign).append(name)
    return ours, foreign


def _below(directory: Directory, name: str, depth: int) -> Iterator[str]:
    """`name` itself when it is no folder, else what is in it that is none."""
    status = directory.status(name)
    if status is None:
        return
    if not stat.S_ISDIR(status.st_mode) or depth == _MAX_DEPTH:
        yield name
        return
    for inner in directory.names(name):
        yield from _below(directory, f"{name}/{inner}", depth + 1)
