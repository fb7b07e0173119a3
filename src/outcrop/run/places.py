"""Choose the storage of a run: a directory, several directories, or block devices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from outcrop.errors import InputError, StorageError
from outcrop.run.acquisition.definitions import NOTHING_DEFINED, AcquisitionDefinitions
from outcrop.run.device import use as device_use
from outcrop.run.device.creation import are_devices, check_devices, created_on_devices
from outcrop.run.device.device import Device
from outcrop.run.disk.acquisition_files import first_sums
from outcrop.run.disk.creation import check_creation, created_in
from outcrop.run.disk.manifest import MANIFEST, NEW, Description, Manifest
from outcrop.run.disk.replacement import finish
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder, RunStorage


def storage_at(path: Path) -> RunStorage:
    """Return the storage of the run at `path`: a `Device` or a `RunFolder`. The directory of a `RunFolder` can be
    missing."""
    return Device(path) if device_use.is_block_device(path) else RunFolder(path)


def may_hold_run(path: Path) -> bool:
    return device_use.is_block_device(path) or (path / MANIFEST).exists()


def open_state(path: Path, check: bool = True) -> State:
    """Return the state of the run at `path`. The function changes no file. Raises InputError when `path` holds no run.
    If `check` is true, raises the errors of `check_files`."""
    storage = storage_at(path)
    state = State(storage, storage.read())
    if check:
        check_files(state)
    return state


def check_files(state: State) -> None:
    """Raise StorageError when files of a run are missing or too short. If another process is making the files of the
    run, raise InputError."""
    try:
        state.check()
    except StorageError:
        if state.manifest.phase == NEW and storage_at(state.path).in_use():
            raise InputError(f"{state.path} is being created by another process; wait until it has values") from None
        state.refresh()
        state.check()  # the other process may have made the files in the meantime


def check_state(
    places: list[Path], description: Description, force: bool = False, raw_device: bool = False, scratch_bytes: int = 0
) -> None:
    """Raise InputError if `created_state` cannot create the run, or if there is no space for the `scratch_bytes` of its
    plan. If a killed process has begun to replace an older run in the same place, complete the replacement first. Apart
    from a replacement that it completes, the function changes nothing on storage."""
    if are_devices(places, raw_device):
        check_devices(places, description, force, scratch_bytes)
    else:
        finish(places[0])
        check_creation(places, description, force, scratch_bytes=scratch_bytes)


@contextlib.contextmanager
def created_state(
    places: list[Path], manifest: Manifest, force: bool = False, raw_device: bool = False,
    definitions: AcquisitionDefinitions = NOTHING_DEFINED,
) -> Iterator[State]:
    """Create the directories and files of a run without values. Use this function in a `with` statement. The calling
    process holds the lock of the run until the `with` block ends. Inside the `with` block, the caller commits the first
    values.

    If `raw_device` is true, the places are block devices. `definitions` contains the points and values of the
    acquisition. If `force` is true, an older run in the same place is replaced. If `created_state` raises InputError,
    nothing has changed. If the `with` block ends before the first commit, all created files and directories are
    removed. Raises StorageError when the system refuses an operation that the checks allowed."""
    files = definitions.files
    manifest = replace(manifest, sums=first_sums(manifest, files))
    if are_devices(places, raw_device):
        with created_on_devices(places, manifest, force, files) as state:
            yield state
        return
    check_creation(places, manifest, force)
    with created_in(places, manifest, force, files) as state:
        yield state
