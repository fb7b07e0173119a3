"""Make a new run beside the run that it replaces, and replace the old run when the new run has its first values.

    run.oc/                     the old run, which stays complete while the first values are read
      .new-run/                 the new run, a complete run in a folder of its own

    publish:  lock both runs ──► manifest without values ──► clear the old run ──► rename files ──► manifest

The values of the new run can come from the old run. Therefore the old run is removed only when all values are written.
If the process is killed during `publish`, the folder `.new-run` still contains the files that were not renamed yet.
Each directory of the run has such a folder, so that each rename stays in one file system. `created_in` replaces a
folder that a killed process has left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError, os_errors_as
from outcrop.paths import remove_made
from outcrop.run.disk.contents import array_folders
from outcrop.run.disk.creation import (
    check_contents,
    clear,
    clear_share,
    clear_staged,
    hold_directories,
    seal_member,
)
from outcrop.run.disk.manifest import MANIFEST, MEMBER, NEW, STAGED, Description, Manifest, Member, read_manifest
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder, further_directories


def staged_places(directories: Sequence[Path]) -> list[Path]:
    """Return the folder of the new run in each directory. Raises InputError if a directory holds something else with
    the name of this folder."""
    for one in directories:
        place = one / STAGED
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise InputError(f"directory {one} holds something that is not the run's ({STAGED}); move it away")
    return [one / STAGED for one in directories]


def located(manifest: Manifest, places: Sequence[Path]) -> Manifest:
    """Return a copy of `manifest` for the same run in the directories `places`."""
    return replace(manifest, directories=tuple(str(one.absolute()) for one in places))


@contextlib.contextmanager
def old_run_held(directories: Sequence[Path], description: Description) -> Iterator[list[Directory]]:
    """Lock the directories of a run that will be replaced, and yield them. Raises InputError when another process holds
    a lock, or when a directory holds files that must not be replaced. If an error ends the `with`, new directories are
    removed."""
    with hold_directories(directories) as (taken, _, made):
        try:
            check_contents(dict(enumerate(taken)), description, force=True)
            yield taken
        except BaseException:
            remove_made(made)
            raise


def publish(state: State, taken: Sequence[Directory]) -> None:
    """Replace the old run in the directories `taken` by the new run. The caller must have locked these directories.
    `state` is the state of the new run, and afterwards refers to these directories. Raises StorageError."""
    own = taken[0]
    manifest = located(state.manifest, [one.path for one in taken])
    with os_errors_as(StorageError, f"cannot replace the run in {own.path}", names_file=True):
        old = read_manifest(own) if own.status(MANIFEST) else None
        before = further_directories(own, old, must_be_there=False) if old else []
        own.replace(MANIFEST, replace(manifest, phase=NEW, filled={}).to_bytes())
        if old is not None:
            clear(own, old)
        for directory in (*before, *taken[1:]):
            clear_share(directory)
        for index, directory in enumerate(taken):
            if index:
                member = Member(manifest.identity, str(own.path.absolute()), index, tuple(array_folders(manifest)))
                directory.replace(MEMBER, seal_member(member))
            _move_files(directory)
        storage = RunFolder(own.path)
        if len(taken) > 1:
            storage.repair(manifest)  # links to shards in further directories contain the paths of these directories
        own.replace(MANIFEST, manifest.to_bytes())
        for directory in taken:
            clear_staged(directory)
    state.move_to(storage, manifest)


def _move_files(directory: Directory) -> None:
    for name in directory.names(STAGED):
        if name not in (MANIFEST, MEMBER):
            directory.move(f"{STAGED}/{name}", name)
    directory.flush()
