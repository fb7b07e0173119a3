"""Make the directories and files of a new run: all of them, or nothing when it cannot be.

    check ──► make directories ──► hold ──► check again ──► manifest ──► clear the old run ──► files ──► first values
                                   └──────────────────────── until the caller is done ────────────────────────────┘

The lock comes before anything in a directory is changed, and a process that does not get it removes nothing. The first
thing made is a manifest without values: it takes the place of an older run's in one step, and a process that finds it
after a crash knows that there is nothing to lose. Files are allocated to their full size here and never extended later.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from outcrop.durable import Directory, flush_parents
from outcrop.errors import InputError, StorageError
from outcrop.paths import remove_made
from outcrop.run.device.checks import are_devices, check_devices
from outcrop.run.device.creation import created_on_devices
from outcrop.run.device.records_folder import check_records_folder, created_records_folder
from outcrop.run.disk.contents import array_folder, shard_name
from outcrop.run.disk.derived import derived_files
from outcrop.run.disk.directory import (
    check_contents,
    check_directories,
    clear,
    clear_share,
    held,
    member_bytes,
)
from outcrop.run.disk.folder import further_directories
from outcrop.run.disk.manifest import MANIFEST, MEMBER, Description, Manifest, read_manifest
from outcrop.run.disk.state import State
from outcrop.run.disk.zarr_format import index_parts
from outcrop.run.taps.definitions import NO_TAPS_DEFINED, TapDefinitions, first_sums, write_tap_files


@contextlib.contextmanager
def created_state(
    directories: list[Path],
    manifest: Manifest,
    force: bool = False,
    raw_device: bool = False,
    definitions: TapDefinitions = NO_TAPS_DEFINED,
) -> Iterator[State]:
    """Make the directories and files of a run without values; the caller commits the first ones inside the `with`,
    which holds the run.

    With `raw_device` the places are block devices. `definitions` are those of the manifest's taps.

    InputError leaves all as it was. Whatever ends the `with` early takes away again what was made, so that a refused or
    interrupted start leaves nothing behind. With `force` an older run there is replaced. Raises StorageError when the
    system refuses what had seemed possible.
    """
    manifest = replace(manifest, sums=first_sums(manifest, definitions))
    if are_devices(directories, raw_device):
        check_records_folder(directories, manifest, force)
        with (
            created_on_devices(directories, manifest, force) as state,
            created_records_folder(state, definitions, directories[0], force),
        ):
            yield state
        return
    check_state(directories, manifest, force)
    with created_in(directories, manifest, force, definitions) as state:
        yield state


@contextlib.contextmanager
def created_in(
    directories: list[Path], manifest: Manifest, force: bool, definitions: TapDefinitions = NO_TAPS_DEFINED
) -> Iterator[State]:
    """`created_state` in directories, of which only what they hold is checked."""
    with held(directories) as (taken, locks, made):
        own = taken[0]
        try:
            check_contents(dict(enumerate(taken)), manifest, force)
            with _errors_named(own.path):
                old = read_manifest(own) if own.status(MANIFEST) else None
                before = further_directories(own, old, must_be_there=False) if old else []
        except BaseException:
            remove_made(made)
            raise
        state = State(own.path, manifest)
        try:
            with _errors_named(own.path):
                own.replace(MANIFEST, manifest.to_bytes())  # from here on the old run is gone, in one step
                if old is not None:
                    clear(own, old)
                for directory in (*before, *taken[1:]):
                    clear_share(directory)
                _make_files(taken, manifest, definitions)
                for directory in taken:
                    flush_parents(directory.path)
            with state.locked(locks):
                yield state
        except BaseException:
            if not state.has_values:
                with contextlib.suppress(OSError, StorageError):
                    clear(own, manifest)
                    for directory in taken[1:]:
                        clear_share(directory)
                    own.flush()  # while the manifest is there, what is left of the run may be removed
                    own.remove(MANIFEST)
                remove_made(made)
            raise


def check_state(
    directories: list[Path], description: Description, force: bool = False, raw_device: bool = False
) -> None:
    """Raise InputError unless `created_state` would work; changes nothing."""
    if are_devices(directories, raw_device):
        check_records_folder(directories, description, force)
        return check_devices(directories, description, force)
    if description.records:
        raise InputError(f"records {description.records}: a run in a directory keeps them there; leave it out")
    check_directories(directories, description, _needed_bytes(directories, description), force)
    if force and directories[0].is_dir():
        with Directory.open(directories[0]) as own:
            own.release(own.hold(shared=True))


def _needed_bytes(directories: list[Path], description: Description) -> list[int]:
    needed = [0] * len(directories)
    for shard in range(description.layout.shards):
        needed[shard % len(directories)] += len(description.copies) * description.layout.shard_bytes(shard)
    return needed


@contextlib.contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot create the run in {path}: {error.strerror} ({error.filename})") from error


def _make_files(directories: list[Directory], manifest: Manifest, definitions: TapDefinitions) -> None:
    own = directories[0]
    for index, directory in enumerate(directories[1:], start=1):
        directory.replace(MEMBER, member_bytes(index, own.path, manifest))
    for entry, turn in manifest.copies:
        _make_shards(directories, manifest, array_folder(entry, turn))
    for name, content in derived_files(manifest).items():
        own.put(name, content)
    write_tap_files(own, manifest, definitions)
    for directory in directories:
        directory.flush_all()


def _make_shards(directories: list[Directory], manifest: Manifest, folder: str) -> None:
    """Make the shards of one copy of an array, and links for readers of Zarr where they lie elsewhere."""
    layout, own = manifest.layout, directories[0]
    for shard in range(layout.shards):
        name, place = f"{folder}/{shard_name(shard, len(manifest.shape))}", directories[shard % len(directories)]
        for directory in dict.fromkeys((own, place)):
            directory.make_folder(name.rpartition("/")[0])
        place.create(name, size=layout.shard_bytes(shard))
        with place.opened(name, os.O_RDWR) as handle:
            offset = layout.records(shard) * layout.record_bytes
            for part in index_parts(layout, shard):
                offset += place.write_to(handle, offset, part)
            place.flush_file(handle)  # an array may be without values for long, and its size counts
        if place is not own:
            own.link(name, str(place.path.absolute() / name))
