"""Replace the old parts of a run by new parts that are complete: the steps 3 to 5 of a move (move.py).

A part is renamed with its directory. A run of one process in /disk/run.oc cannot be renamed in this way, because this
directory also has the new parts. Its manifest decides whether it is valid, so the manifest is moved:

    leaves    run.oc/manifest.json ──► run.oc/whole.moved/manifest.json      one rename; the other files stay in run.oc
    arrives   run.oc/whole.moving/u, .u.0, ... ──► run.oc/                   and manifest.json at last

Before a run of one process arrives, the Zarr group of the old parts is removed, which has the same names (shared.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError, os_errors_as
from outcrop.run.disk.contents import GROUP, top_names
from outcrop.run.disk.creation import clear
from outcrop.run.disk.manifest import MANIFEST, Description, Manifest, read_manifest
from outcrop.run.disk.storage import RunFolder
from outcrop.run.ranks.found import LEFT, MADE, FoundPart, PartPlace
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.shared import SharedGroup


def swap(group: RankGroup, made: Sequence[PartPlace], old: Sequence[FoundPart]) -> None:
    """Replace the parts `old` by the parts `made`, which are complete. Both are those for which this rank is
    responsible. All ranks must call this function together, and can call it again after an interruption."""
    leave(group, made, old)
    arrive(group, made, old)


def leave(group: RankGroup, made: Sequence[PartPlace], old: Sequence[FoundPart]) -> None:
    """Do step 3: rename the old parts."""
    staying = [one for one in old if one.end != LEFT]
    with group.together():
        if staying and any(one.is_around for one in made):
            first = RunFolder(staying[0].path).read()
            SharedGroup(made[0].final, first).remove()
        for one in staying:
            if one.place.is_around:
                _make_folder(one.place.path(LEFT))
                rename(one.path / MANIFEST, one.place.path(LEFT) / MANIFEST)
            else:
                rename(one.path, one.place.path(LEFT))


def arrive(group: RankGroup, made: Sequence[PartPlace], old: Sequence[FoundPart]) -> None:
    """Do the steps 4 and 5: rename the new parts, and remove the old ones."""
    with group.together():
        for place in made:
            if place.is_around:
                _arrive_inside(place)
            else:
                rename(place.path(MADE), place.final)
    with group.together():
        for one in reversed(old):  # low ranks come last, because the next start looks for them first
            remove(one.place, LEFT)


def require_room(place: PartPlace, description: Description, old: Manifest) -> None:
    """Raise InputError if a run of one process cannot arrive at `place`, because something else than the Zarr group of
    the parts has a name that it needs. `old` is the manifest of an old part."""
    names = {*top_names(description), GROUP}
    if other := SharedGroup(place.final, old).something_else(names):
        raise InputError(f"{place.final / other} is something else; move it away")


def rename(path: Path, to: Path) -> None:
    if not is_free(to):
        raise InputError(f"{to} holds something else; move it away")
    with os_errors_as(StorageError, f"cannot rename {path} to {to}"):
        path.rename(to)
        for folder in {path.parent, to.parent}:
            _flush(folder)


def is_free(path: Path) -> bool:
    """Return True if a directory can be renamed to `path`: there is nothing, or an empty directory."""
    return not os.path.lexists(path) or (path.is_dir() and not path.is_symlink() and not any(path.iterdir()))


def remove(place: PartPlace, end: str) -> None:
    """Remove the part at a place. Its manifest goes last, so that a later start can remove the other files. Files that
    do not belong to the part are kept."""
    path = place.path(end)
    with os_errors_as(StorageError, f"cannot remove {path}", names_file=True), Directory.open(path) as directory:
        held = directory.hold()
        try:
            manifest = read_manifest(directory)
            clear(directory, manifest)
            if place.is_around and manifest.has_values:
                _clear_around(place.final, manifest)
            directory.flush()
            directory.remove(MANIFEST)
        finally:
            directory.release(held)
    remove_empty(path)


def remove_empty(path: Path) -> None:
    """Remove a directory in which a killed process has left no run."""
    with contextlib.suppress(OSError):
        (path / f"{MANIFEST}.tmp").unlink(missing_ok=True)
        path.rmdir()
        _flush(path.parent)


def _arrive_inside(place: PartPlace) -> None:
    """Move the files of a run of one process to its directory. Its manifest goes last."""
    made = place.path(MADE)
    with os_errors_as(StorageError, f"cannot use {made}"):
        names = {*top_names(RunFolder(made).read()), GROUP}
        there = sorted(names.intersection(os.listdir(made)))
    for name in [*there, MANIFEST]:
        rename(made / name, place.final / name)
    remove_empty(made)


def _clear_around(final: Path, manifest: Manifest) -> None:
    """Remove the files of a run whose manifest has left its directory, or has not arrived there. If the directory holds
    another run, there are no such files."""
    with Directory.open(final) as directory:
        if directory.status(MANIFEST) is None:
            held = directory.hold()
            try:
                clear(directory, manifest)
                directory.flush()
            finally:
                directory.release(held)


def _make_folder(path: Path) -> None:
    """Make a directory, unless a killed process has left it empty."""
    if not is_free(path):
        raise InputError(f"{path} holds something else; move it away")
    with os_errors_as(StorageError, f"cannot make {path}"):
        path.mkdir(exist_ok=True)
        _flush(path.parent)


def _flush(folder: Path) -> None:
    with Directory.open(folder) as directory:
        directory.flush()
