"""The folder beside block devices for what these cannot hold: points, traces, norms and snapshots of their run.

    records/
      outcrop-member.json    of which run it is
      .taps/                 the same as in a run's own directory
      snapshots.zarr/

The manifest on the first device names it, and says which of its rows and snapshots count. Whoever holds the devices
holds it, too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError
from outcrop.paths import remove_made, require_directory
from outcrop.run.device.device import Device
from outcrop.run.disk.contents import files_below, tap_folders
from outcrop.run.disk.derived import snapshot_files
from outcrop.run.disk.directory import (
    clear_share,
    held,
    opened,
    seal_member,
)
from outcrop.run.disk.manifest import MEMBER, NEW, Description, Manifest, Member, read_member
from outcrop.run.disk.state import State
from outcrop.run.taps.definitions import TapDefinitions, write_tap_files


def check_records_folder(devices: list[Path], manifest: Description, force: bool) -> None:
    """Raise InputError unless the run has the folder that it needs, and no other: a new or empty one; if forced, that
    of a run that is gone, or of the one on these devices."""
    if bool(manifest.taps) != bool(manifest.records):
        raise InputError(
            f"{devices[0]}: block devices hold arrays only; say with records=DIRECTORY where what sources, receivers, "
            "snapshots and norms keep is to be"
            if manifest.taps
            else f"records {manifest.records}: there are no sources, receivers, snapshots or norms; leave it out"
        )
    if not manifest.records:
        return
    path = Path(manifest.records)
    require_directory(path)
    if path.is_dir():
        with opened(path) as folder:
            _check_content(folder, devices[0], force)


def _check_content(folder: Directory, device: Path, force: bool) -> None:
    names, member, path = folder.names(), read_member(folder), folder.path
    ours = {MEMBER, *(member.folders if member else ())}
    if foreign := [name for name in names if name not in ours]:
        raise InputError(f"directory {path} holds something else ({foreign[0]}); give a new or empty one")
    if member is None:
        if names:
            raise InputError(f"directory {path} holds something else ({names[0]}); give a new or empty one")
    elif foreign := files_below(folder, member.folders)[1]:
        raise InputError(f"directory {path} holds something else ({foreign[0]}); give a new or empty one")
    elif (old := _run_of(member)) is not None and os.path.realpath(member.run) != os.path.realpath(device):
        raise InputError(f"directory {path} belongs to another run, {member.run}; give another one")
    elif not force and (old is None or old.phase != NEW):
        raise InputError(f"directory {path} holds records of {member.run}; replace them with force, or give another")


@contextlib.contextmanager
def created_records_folder(
    state: State, definitions: TapDefinitions, device: Path, force: bool
) -> Iterator[None]:
    """Make it, with points and without records, where the run has one; the caller commits the first values inside the
    `with`. What ends it before that takes the folder away again. Raises InputError, StorageError."""
    manifest = state.manifest
    if not manifest.records:
        yield
        return
    with held([Path(manifest.records)]) as (taken, _, made):
        folder = taken[0]
        try:
            _check_content(folder, device, force)
        except BaseException:
            remove_made(made)
            raise
        try:
            try:
                clear_share(folder)
                member = Member(manifest.identity, str(state.path.absolute()), 0, tuple(tap_folders(manifest)))
                folder.put(MEMBER, seal_member(member))
                write_tap_files(folder, manifest, definitions)
                for name, content in snapshot_files(manifest).items():
                    folder.put(name, content)
                folder.flush_all()
            except OSError as error:
                raise StorageError(f"cannot create {folder.path}: {error.strerror} ({error.filename})") from error
            yield
        except BaseException:
            if not state.has_values:
                with contextlib.suppress(OSError, StorageError):
                    clear_share(folder)
                remove_made(made)
            raise


def _run_of(member: Member) -> Manifest | None:
    """The run that a folder belongs to, if it still is where it was."""
    try:
        found = Device(Path(member.run)).read()
    except InputError:
        return None
    return found if found.identity == member.identity else None
