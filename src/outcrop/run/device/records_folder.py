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
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from outcrop.durable import flush_folder, replace_file
from outcrop.errors import InputError, StorageError
from outcrop.run.device.device import Device
from outcrop.run.disk.directory import check_kind, check_permission, make_directories, remove_member, tap_folders
from outcrop.run.disk.manifest import MANIFEST, MEMBER, NEW, Manifest, Member, read_member
from outcrop.run.disk.state import State
from outcrop.run.taps.definitions import TapDefinitions, write_definitions
from outcrop.run.taps.records import create_records
from outcrop.run.taps.snapshot_files import create_snapshots


def check_records_folder(devices: list[Path], manifest: Manifest, force: bool) -> None:
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
    folder = Path(manifest.records)
    check_kind(folder)
    check_permission(folder)
    names = set(os.listdir(folder)) if folder.is_dir() else set()
    member = read_member(folder)
    if member is None or MANIFEST in names:
        if names:
            raise InputError(f"directory {folder} holds something else ({min(names)}); give a new or empty one")
    elif (old := _run_of(member)) is not None and os.path.realpath(member.run) != os.path.realpath(devices[0]):
        raise InputError(f"directory {folder} belongs to another run, {member.run}; give another one")
    elif not force and (old is None or old.phase != NEW):
        raise InputError(f"directory {folder} holds records of {member.run}; replace them with force, or give another")


@contextlib.contextmanager
def created_records_folder(state: State, definitions: TapDefinitions) -> Iterator[None]:
    """Make it, with points and without records, where the run has one; the caller commits the first values inside the
    `with`. What ends it before that takes the folder away again. Raises StorageError."""
    manifest, folder = state.manifest, state.records_path
    if not manifest.records:
        yield
        return
    made = make_directories([folder])
    try:
        try:
            remove_member(folder)
            member = Member(manifest.identity, str(state.path.absolute()), tuple(tap_folders(manifest)))
            replace_file(folder / MEMBER, json.dumps(asdict(member)) + "\n")
            write_definitions(folder, definitions)
            create_snapshots(folder, manifest)
            create_records(folder, manifest)
            flush_folder(folder)
        except OSError as error:
            raise StorageError(f"cannot create {folder}: {error.strerror} ({error.filename})") from error
        yield
    except BaseException:
        if not state.has_values:
            remove_member(folder)
            for directory in reversed(made):
                with contextlib.suppress(OSError):
                    directory.rmdir()
        raise


def _run_of(member: Member) -> Manifest | None:
    """The run that a folder belongs to, if it still is where it was."""
    try:
        found = Device(Path(member.run)).read()
    except InputError:
        return None
    return found if found.identity == member.identity else None
