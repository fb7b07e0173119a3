"""Make a new run beside the run that it replaces, and replace the old run when the new run has its first values.

    run.oc/                     the old run, which stays complete while the first values are read
      .new-run/                 the new run, a complete run in a folder of its own

    publish:  lock both runs ──► old manifest without values ──► clear the old run ──► new manifest without values
                                                             ──► rename files      ──► new manifest

The values of the new run can come from the old run. Therefore the old run is removed only after all values of the new
run are written. If the process is killed during `publish`, the folder `.new-run` still contains its manifest, and the
files that were not renamed yet. The next command that opens or replaces the run calls `finish`, which does the
remaining steps of `publish`.

Each directory of the run has its own folder `.new-run`, so that each rename stays in one file system. `created_in`
replaces a folder that a killed process has left before `publish`."""

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
    clear_share,
    clear_staged,
    hold_directories,
    withdraw,
)
from outcrop.run.disk.manifest import (
    MANIFEST,
    MEMBER,
    NEW,
    READY,
    STAGED,
    Description,
    Manifest,
    Member,
    read_manifest,
    read_member,
)
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder, further_directories


def staged_places(directories: Sequence[Path]) -> list[Path]:
    """Return the folder of the new run in each directory. Raises InputError if a directory holds something else with
    the name `.new-run`."""
    for one in directories:
        place = one / STAGED
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise InputError(f"directory {one} holds something that is not the run's ({STAGED}); move it away")
    return [one / STAGED for one in directories]


def located(manifest: Manifest, places: Sequence[Path]) -> Manifest:
    """Return a copy of `manifest` in which the directories of the run are `places`."""
    return replace(manifest, directories=tuple(str(one.absolute()) for one in places))


@contextlib.contextmanager
def old_run_held(directories: Sequence[Path], description: Description) -> Iterator[list[Directory]]:
    """Lock the directories of a run that will be replaced, and yield them. Raises InputError when another process holds
    a lock, or when a directory holds files that must not be replaced. If an error ends the `with` block, new
    directories are removed."""
    with hold_directories(directories) as (taken, _, made):
        try:
            check_contents(dict(enumerate(taken)), description, force=True)
            yield taken
        except BaseException:
            remove_made(made)
            raise


def publish(state: State, taken: Sequence[Directory]) -> None:
    """Replace the old run in the directories `taken` by the new run. The caller must have locked the directories
    `taken`. `state` is the state of the new run. After the call, `state` refers to the directories `taken`. Raises
    InputError if another process uses the new run. Raises StorageError."""
    with state.locked():
        manifest = located(state.manifest, [one.path for one in taken])
        _replace(taken, manifest)
    _clear_staged(taken)
    state.move_to(RunFolder(taken[0].path), manifest)


def finish(path: Path, is_begun: bool = False) -> None:
    """If a killed process has begun to replace the run in the directory `path`, and the new run is complete, do the
    rest of `publish`. `is_begun` is True if the old run must be replaced although it still has values, because another
    rank has begun. If another process has locked the run in `path`, do nothing. Raises InputError and StorageError."""
    staged = path / STAGED
    if staged.is_symlink() or not (staged / MANIFEST).exists() or not (is_begun or _is_withdrawn(path)):
        return
    with Directory.open(staged) as new:
        manifest = read_manifest(new)
        places = [path, *(Path(name).parent for name in manifest.directories[1:])]
        if manifest.phase != READY or not all(_is_share(one, manifest, n) for n, one in enumerate(places) if n):
            return
        with contextlib.suppress(InputError), hold_directories(places) as (taken, _, _):
            lock = new.hold()
            try:
                if replaces := is_begun or _is_withdrawn(path):
                    _replace(taken, located(read_manifest(new), places))
            finally:
                new.release(lock)
            if replaces:
                _clear_staged(taken)


def staged_run(path: Path) -> Manifest | None:
    """Return the manifest of a new run that is complete and has not replaced the run in `path`. Return None if `path`
    has no new run that is complete."""
    found = None if (path / STAGED).is_symlink() else _manifest_at(path / STAGED)
    return found if found is not None and found.phase == READY else None


def _is_withdrawn(path: Path) -> bool:
    """Return True if `path` contains a run without values."""
    found = _manifest_at(path)
    return found is not None and found.phase == NEW


def _manifest_at(path: Path) -> Manifest | None:
    try:
        with Directory.open(path) as own:
            return read_manifest(own)
    except (OSError, InputError):
        return None


def _is_share(path: Path, manifest: Manifest, index: int) -> bool:
    """Return True if `path` has the planes of directory number `index` of the new run `manifest`. The manifest alone
    cannot be trusted. The planes are in a folder STAGED or in `path` itself."""
    for place in (path / STAGED, path):
        try:
            with Directory.open(place) as there:
                member = read_member(there)
        except (OSError, InputError):
            continue
        if member is not None and (member.identity, member.index) == (manifest.identity, index):
            return True
    return False


def _replace(taken: Sequence[Directory], manifest: Manifest) -> None:
    """Do the steps of `publish`. An earlier process may have done some of the steps before it was killed."""
    own = taken[0]
    with os_errors_as(StorageError, f"cannot replace the run in {own.path}", names_file=True):
        old = read_manifest(own) if own.status(MANIFEST) else None
        before = further_directories(own, old, must_be_there=False) if old else []
        if old is not None and old.identity != manifest.identity:
            withdraw(own, old)
        for directory in (*before, *taken[1:]):
            if (member := read_member(directory)) is not None and member.identity != manifest.identity:
                clear_share(directory)
        own.replace(MANIFEST, replace(manifest, phase=NEW, filled={}).to_bytes())
        for index, directory in enumerate(taken):
            if index:
                member = Member(manifest.identity, str(own.path.absolute()), index, tuple(array_folders(manifest)))
                directory.replace(MEMBER, member.to_bytes())
            _move_files(directory)
        if len(taken) > 1:
            # links to shards in further directories contain the paths of these directories
            RunFolder(own.path).repair(manifest)
        own.replace(MANIFEST, manifest.to_bytes())


def _clear_staged(taken: Sequence[Directory]) -> None:
    with os_errors_as(StorageError, f"cannot replace the run in {taken[0].path}", names_file=True):
        for directory in taken:
            clear_staged(directory)


def _move_files(directory: Directory) -> None:
    if directory.status(STAGED) is None:
        return
    for name in directory.names(STAGED):
        if name not in (MANIFEST, MEMBER):
            directory.move(f"{STAGED}/{name}", name)
    directory.flush()
