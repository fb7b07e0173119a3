"""Make the directories and files of a new run: all of them, or nothing when it cannot be.

Everything is checked before anything is made. The first thing made is a manifest without values: it takes the place of
an older run's in one step, and whoever finds it after a crash knows that there is nothing to lose. Files are allocated
to their full size here and never extended later.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outcrop import _core
from outcrop.durable import flush_folder, lock_folder, replace_file
from outcrop.errors import InputError, StorageError
from outcrop.run.coordinates import coordinate_metadata
from outcrop.run.device.checks import are_devices, check_devices
from outcrop.run.device.creation import created_on_devices
from outcrop.run.device.records_folder import check_records_folder, created_records_folder
from outcrop.run.disk.directory import (
    GROUP,
    array_folder,
    check_directories,
    coordinate_folders,
    make_directories,
    member_text,
    remove_member,
    remove_run,
)
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.disk.manifest import MANIFEST, MEMBER, Manifest, read_manifest
from outcrop.run.disk.state import State
from outcrop.run.disk.zarr_format import array_metadata, group_metadata, index_bytes, shard_name, to_text
from outcrop.run.taps.definitions import NO_TAPS_DEFINED, TapDefinitions, write_definitions
from outcrop.run.taps.records import create_records
from outcrop.run.taps.snapshot_files import create_snapshots
from outcrop.tiers.mounts import nearest_existing


@contextlib.contextmanager
def created_state(
    directories: list[Path],
    manifest: Manifest,
    force: bool = False,
    raw_device: bool = False,
    definitions: TapDefinitions = NO_TAPS_DEFINED,
) -> Iterator[State]:
    """Make the directories and files of a run without values; the caller commits the first ones inside the `with`.

    With `raw_device` the places are block devices. `definitions` are those of the manifest's taps.

    InputError leaves all as it was. Whatever ends the `with` early takes away again what was made, so that a refused or
    interrupted start leaves nothing behind. With `force` an older run there is replaced. Raises StorageError when the
    system refuses what had seemed possible.
    """
    if are_devices(directories, raw_device):
        check_records_folder(directories, manifest, force)
        with created_on_devices(directories, manifest, force) as state, created_records_folder(state, definitions):
            yield state
        return
    check_state(directories, manifest, force)
    path, made = directories[0], make_directories(directories)
    state = State(path, manifest)
    try:
        with _errors_named(path):
            lock = lock_folder(path)
            try:
                old = read_manifest(path) if (path / MANIFEST).exists() else None
                replace_file(path / MANIFEST, manifest.to_text())  # from here on the old run is gone, in one step
                if old is not None:
                    remove_run(path, old)
                for directory in directories:
                    remove_member(directory)
                _make_files(directories, manifest)
                write_definitions(path, definitions)
                create_snapshots(path, manifest)
                create_records(path, manifest)
                flush_folder(path)
            finally:
                os.close(lock)
        yield state
    except BaseException:
        if not state.has_values:
            remove_run(path, manifest)
            (path / MANIFEST).unlink(missing_ok=True)
            for directory in reversed(made):
                with contextlib.suppress(OSError):
                    directory.rmdir()
        raise


def check_state(directories: list[Path], manifest: Manifest, force: bool = False, raw_device: bool = False) -> None:
    """Raise InputError unless `created_state` would work; changes nothing."""
    if are_devices(directories, raw_device):
        check_records_folder(directories, manifest, force)
        return check_devices(directories, manifest, force)
    if manifest.records:
        raise InputError(f"records {manifest.records}: a run in a directory keeps them there; leave it out")
    check_directories(directories, manifest, _needed_bytes(directories, manifest), force)
    if force and os.path.exists(directories[0] / MANIFEST):
        os.close(lock_folder(directories[0]))


def _needed_bytes(directories: list[Path], manifest: Manifest) -> list[int]:
    needed = [0] * len(directories)
    for shard in range(manifest.layout.shards):
        needed[shard % len(directories)] += len(manifest.copies) * manifest.layout.shard_bytes(shard)
    return needed


@contextlib.contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot create the run in {path}: {error.strerror} ({error.filename})") from error


def _make_files(directories: list[Path], manifest: Manifest) -> None:
    attributes = {"stencil": manifest.stencil.get("name", ""), "parameters": manifest.parameters}
    metadata = array_metadata(manifest.layout, len(manifest.shape), attributes)
    folders: set[Path] = set()
    for member in directories[1:]:
        replace_file(member / MEMBER, member_text(directories[0], manifest))
    for entry, turn in manifest.copies:
        name = array_folder(entry, turn)
        folders |= _make_shards(directories, manifest, name)
        replace_file(directories[0] / name / "zarr.json", to_text(metadata))
    arrays = {entry.name: metadata for entry in manifest.arrays}
    arrays |= _make_coordinates(directories[0], manifest)
    replace_file(directories[0] / GROUP, to_text(group_metadata(arrays, attributes)))
    for folder in folders | {nearest_existing(directory).parent for directory in directories}:
        flush_folder(folder)


def _make_shards(directories: list[Path], manifest: Manifest, name: str) -> set[Path]:
    """Make the shards of one copy of an array, and links where they lie elsewhere; the folders that hold them."""
    layout, folders = manifest.layout, set[Path]()
    for shard in range(layout.shards):
        file = shard_name(shard, len(manifest.shape))
        link, place = directories[0] / name / file, directories[shard % len(directories)] / name / file
        for path in {link, place}:
            path.parent.mkdir(parents=True, exist_ok=True)
            folders.update(path.parents[: len(manifest.shape) + 1])
        _core.create_file(str(place), layout.shard_bytes(shard))
        if link != place:
            link.symlink_to(place.absolute())
        _write_index(place, layout, shard)
    return folders


def _make_coordinates(directory: Path, manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Write the coordinates of every axis, where there are any; their metadata by name."""
    found: dict[str, dict[str, Any]] = {}
    for axis, name in enumerate(coordinate_folders(manifest)):
        assert manifest.coordinates is not None
        found[name] = coordinate_metadata(manifest.coordinates, axis, manifest.shape)
        folder = directory / name
        (folder / "c").mkdir(parents=True)
        cells = manifest.coordinates.along(axis, manifest.shape[axis])
        (folder / "c" / "0").write_bytes(cells.astype("<f8").tobytes())
        replace_file(folder / "zarr.json", to_text(found[name]))
    return found


def _write_index(path: Path, layout: PlaneLayout, shard: int) -> None:
    # Not flushed here: values are flushed together with it before they are committed.
    with open(path, "r+b") as file:
        file.seek(layout.records(shard) * layout.record_bytes)
        file.write(index_bytes(layout, shard))
