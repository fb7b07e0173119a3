"""Create a new run on block devices. If the creation fails, no part of the run remains.

    check and hold ──► slot: the new manifest ──► superblock ──► zeros over signatures ──► indices ──► first values

When the superblock of the first device is written, the new run replaces an older run. The new run has no values yet.
After a crash, another process can replace the new run, because a run without values has no data to lose. The zeros at
both ends of each device overwrite signatures that other programs could recognise. The checks before the first write
change nothing on the devices.

A run on block devices stores its acquisition (points, traces, norms and snapshots) in a folder of a file system:

    records/
      outcrop-member.json    names the run that owns the folder
      .taps/                 the same as in a run's own directory
      snapshots.zarr/

The manifest on the first device contains the path of the folder with the acquisition. The step in the manifest
determines which rows and snapshots in the folder are valid. The lock of the devices also protects the folder with the
acquisition.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError, by_caller, os_errors_as
from outcrop.paths import remove_made, require_directory
from outcrop.run.device import use as device_use
from outcrop.run.device.device import (
    BLOCK_BYTES,
    HEADER_BYTES,
    RUN,
    SHARE,
    SLOT_BYTES,
    Device,
    Header,
    encode_slot,
    header_of,
    member_of,
    member_text,
    needed_bytes,
    opened,
    ranges_on,
    read_header,
    signature_on,
    write_all,
    write_slot,
    write_superblock,
)
from outcrop.run.disk.acquisition_files import Definitions, write_acquisition_files
from outcrop.run.disk.contents import acquisition_folders, files_below, snapshot_files
from outcrop.run.disk.creation import clear_share, hold_directories, less_scratch, open_directory, what_is_there
from outcrop.run.disk.layout import index_parts
from outcrop.run.disk.manifest import (
    MEMBER,
    NEW,
    Description,
    Manifest,
    Member,
    new_manifest,
    parse_manifest,
    read_member,
)
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import release
from outcrop.units import format_bytes

SLACK_BYTES = 1 << 16
"""The number of bytes by which a manifest can grow when numbers of steps get more digits and when arrays get values."""

_TAIL_BYTES = 1 << 20
"""The number of bytes at the end of a device that can contain backups of partition tables, or metadata of disk
arrays."""


def are_devices(places: list[Path], raw_device: bool) -> bool:
    """Return True if all places are block devices, and False if no place is a block device. Raises InputError if only
    some places are block devices. Also raises InputError if `raw_device` is true for directories, or false for block
    devices."""
    devices = [place for place in places if device_use.is_block_device(place)]
    others = [place for place in places if place not in devices]
    if raw_device and others:
        option = by_caller("--raw-device", "raw_device")
        raise InputError(f"{others[0]} is not a block device; leave out {option}, or name a device")
    if devices and others:
        raise InputError(f"{devices[0]} is a block device and {others[0]} is not; a run uses one kind of place only")
    if devices and not raw_device:
        raise InputError(
            f"{devices[0]} is a block device, and a run would overwrite its content; if you want that, add "
            + by_caller("--raw-device", "raw_device=True")
        )
    return bool(devices)


def check_devices(devices: list[Path], description: Description, force: bool, scratch_bytes: int = 0) -> None:
    """Raise InputError if the run cannot use one of `devices`, or cannot use its folder of records. A pass of the run
    needs `scratch_bytes` for its temporary array."""
    check_records_folder(devices, description, force)
    release(hold_devices(devices, description, force, scratch_bytes))


def hold_devices(devices: list[Path], description: Description, force: bool, scratch_bytes: int = 0) -> list[int]:
    """Open the devices exclusively, and return their descriptors. Closing a descriptor releases its device. Raises
    InputError if a device is given twice, is in use, is too small, or cannot be written. If `force` is false, also
    raises InputError if a device has known content. The first device must have room for `scratch_bytes` after the
    arrays."""
    manifest = new_manifest(description)
    longest = manifest.to_bytes().decode() + " " * SLACK_BYTES
    encode_slot(Header(RUN, manifest.identity, longest))  # raises InputError if the manifest is too long for a slot
    seen: dict[str, Path] = {}
    for device in devices:
        if (identity := device_use.identity_of(device)) in seen:
            raise InputError(f"device {device} is given twice (also as {seen[identity]}); name each device once")
        seen[identity] = device
    handles: list[int] = []
    try:
        for index, device in enumerate(devices):
            device_use.require_writable(device)
            handles.append(device_use.claim(device))
            _check_size(device, handles[-1], needed_bytes(description, index), 0 if index else scratch_bytes)
        headers = [_read(device, handle, force) for device, handle in zip(devices, handles, strict=True)]
        replaced = {header.identity for header in headers if header and header.kind == RUN}
        for device, handle, header in zip(devices, handles, headers, strict=True):
            if header and header.kind == RUN and not force:
                old = parse_manifest(header.text.encode(), device)
                if old.phase != NEW:
                    raise InputError(what_is_there(device, old))
            elif header and header.identity not in replaced:
                _check_member(device, header, force)
            if not force and (found := signature_on(device, handle)):
                raise InputError(f"{device} holds {found}; {_overwrite()}")
    except BaseException:
        release(handles)
        raise
    return handles


def hold_empty(device: Path) -> int:
    """Open a device exclusively, and return its descriptor. Raises InputError if the device has known content."""
    device_use.require_writable(device)
    handle = device_use.claim(device)
    try:
        found = "a run, or a share of one" if header_of(device, handle) else signature_on(device, handle)
        if found:
            raise InputError(f"{device} holds {found}; give a device that holds nothing")
    except BaseException:
        release([handle])
        raise
    return handle


def _check_size(device: Path, handle: int, array_bytes: int, scratch_bytes: int) -> None:
    size, needed = device_use.size_of(handle), array_bytes + scratch_bytes
    if size < needed:
        part = f", {scratch_bytes} of them during a pass" if scratch_bytes else ""
        raise InputError(
            f"{device} has {size} bytes ({format_bytes(size)}), the run needs {needed} bytes ({format_bytes(needed)}) "
            f"there{part}; use a larger device, several, a smaller grid, {less_scratch(scratch_bytes)}or "
            f"{by_caller('--in-place', 'in_place=True')} for about half of it"
        )


def _read(device: Path, handle: int, force: bool) -> Header | None:
    """Return the header of the device, or None if the device has no run. If `force` is true, also return None for a
    header that is damaged or of another version. If `force` is false, raise InputError for a header that is damaged or
    of another version."""
    try:
        return header_of(device, handle)
    except InputError as error:
        if force:
            return None
        raise InputError(f"{error}; {_overwrite()}") from None


def _overwrite() -> str:
    return f"give another device, or overwrite its content with {by_caller('--force', 'force=True')}"


def _check_member(device: Path, header: Header, force: bool) -> None:
    member = member_of(header)
    if _run_at(Path(str(member.get("run"))), member.get("identity")):
        raise InputError(f"{device} belongs to another run, in {member.get('run')}; give another device")
    if not force:
        raise InputError(
            f"{device} holds a share of a run whose first device, {member.get('run')}, is not there any more under "
            f"this name; replace it with {by_caller('--force', 'force=True')}"
        )


def _run_at(device: Path, identity: object) -> Manifest | None:
    """Return the manifest of the run on `device`. Return None if the device does not hold the run with the given
    identity."""
    try:
        found = Device(device).read()
    except InputError:
        return None
    return found if found.identity == identity else None


@contextlib.contextmanager
def created_on_devices(
    devices: list[Path], manifest: Manifest, force: bool, definitions: Definitions
) -> Iterator[State]:
    """Create a run without values on the devices. If the run has an acquisition, also create the folder of records, and
    write the points and values in `definitions` to it. The caller uses this context manager in a `with` statement, and
    commits the first values inside the `with` block. During the `with` block, the devices are locked.

    If InputError is raised, the devices are unchanged. If the `with` block ends before the first commit, the run is
    removed, and the earlier content of the devices is lost."""
    check_records_folder(devices, manifest, force)
    handles = hold_devices(devices, manifest, force)
    state = State(Device(devices[0]), manifest)
    try:
        try:
            for index, device in enumerate(devices):
                _write_header(device, _header(manifest, index))
                _write_indices(device, manifest, index)
            with state.locked(handles), _created_records_folder(state, definitions, force):
                yield state
        except BaseException:
            if not state.has_values:
                _forget(devices, manifest.identity)
            raise
    finally:
        release(handles)


def _header(manifest: Manifest, index: int) -> Header:
    if index == 0:
        return Header(RUN, manifest.identity, manifest.to_bytes().decode())
    return Header(SHARE, manifest.identity, member_text(manifest, index))


def _write_header(device: Path, header: Header) -> None:
    with _opened_new(device) as handle:
        try:
            old = read_header(handle, device)
        except InputError:  # the old header is damaged or of another version, and is replaced below
            old = None
        new = replace(header, sequence=old.sequence + 1 if old else 0)
        write_slot(handle, new)
        write_superblock(handle, new)
        _clean(handle, keep=new.slot_offset)
        os.fsync(handle)


def _clean(handle: int, keep: int) -> None:
    """Write zeros to the header and to the end of the device. Do not overwrite the superblock and the slot at offset
    `keep`."""
    _write_zeros(handle, BLOCK_BYTES, keep)
    _write_zeros(handle, keep + SLOT_BYTES, HEADER_BYTES)
    size = device_use.size_of(handle)
    _write_zeros(handle, max(HEADER_BYTES, size - _TAIL_BYTES), size)


def _write_zeros(handle: int, begin: int, end: int) -> None:
    if begin < end:
        write_all(handle, bytes(end - begin), begin)


def _write_indices(device: Path, manifest: Manifest, index: int) -> None:
    # The indices of the shards are not flushed here. The indices are flushed together with the first values, before the
    # first commit.
    layout = manifest.layout
    with _opened_new(device) as handle:
        for (_, _, shard), place in ranges_on(manifest, index, str(device)).items():
            offset = place.begin + layout.records(shard) * layout.record_bytes
            for part in index_parts(layout, shard):
                write_all(handle, part, offset)
                offset += len(part)


def _forget(devices: list[Path], identity: str) -> None:
    """Remove the run with the given identity from the devices. Devices that cannot be written are skipped."""
    for device in devices:
        with contextlib.suppress(OSError, InputError), opened(device, os.O_RDWR) as handle:
            header = read_header(handle, device)
            if header is not None and header.identity == identity:
                _write_zeros(handle, 0, HEADER_BYTES)
                os.fsync(handle)


@contextlib.contextmanager
def _opened_new(device: Path) -> Iterator[int]:
    with os_errors_as(StorageError, f"cannot create the run on {device}"), opened(device, os.O_RDWR) as handle:
        yield handle


def check_records_folder(devices: list[Path], manifest: Description, force: bool) -> None:
    """Raise InputError if the run needs a folder of records and no folder is given. Also raise InputError if a folder
    is given, but the run needs no folder of records. The folder must be new or empty. If `force` is true, the folder
    may belong to the run on `devices`, or to a run that no longer exists."""
    if bool(manifest.taps) != bool(manifest.records):
        raise InputError(
            f"{devices[0]}: block devices hold arrays only; give records=DIRECTORY for the files of sources, "
            "receivers, snapshots and norms"
            if manifest.taps
            else f"records {manifest.records}: there are no sources, receivers, snapshots or norms; leave it out"
        )
    if not manifest.records:
        return
    path = Path(manifest.records)
    require_directory(path)
    if path.is_dir():
        with open_directory(path) as folder:
            _check_content(folder, devices[0], force)


def _check_content(folder: Directory, device: Path, force: bool) -> None:
    names, member, path = folder.names(), read_member(folder), folder.path
    ours = {MEMBER, *(member.folders if member else ())}
    if foreign := [name for name in names if name not in ours]:
        raise InputError(f"directory {path} holds something else ({foreign[0]}); give a new or empty directory")
    if member is None:
        if names:
            raise InputError(f"directory {path} holds something else ({names[0]}); give a new or empty directory")
        return
    if foreign := files_below(folder, member.folders)[1]:
        raise InputError(f"directory {path} holds something else ({foreign[0]}); give a new or empty directory")
    old = _run_at(Path(member.run), member.identity)
    if old is not None and os.path.realpath(member.run) != os.path.realpath(device):
        raise InputError(f"directory {path} belongs to another run, {member.run}; give another directory")
    if not force and (old is None or old.phase != NEW):
        remedy = f"replace them with {by_caller('--force', 'force=True')}, or give another directory"
        raise InputError(f"directory {path} holds records of {member.run}; {remedy}")


@contextlib.contextmanager
def _created_records_folder(state: State, definitions: Definitions, force: bool) -> Iterator[None]:
    """Create the folder of records, if the run has one, and write the definitions to it. If the body of the `with`
    fails before the first commit, the files in the folder are removed. If the folder of records is new, it is also
    removed. Raises InputError and StorageError."""
    manifest = state.manifest
    if not manifest.records:
        yield
        return
    with hold_directories([Path(manifest.records)]) as (taken, _, made):
        folder = taken[0]
        try:
            _check_content(folder, state.path, force)
        except BaseException:
            remove_made(made)
            raise
        try:
            with os_errors_as(StorageError, f"cannot create {folder.path}", names_file=True):
                clear_share(folder)
                member = Member(manifest.identity, str(state.path.absolute()), 0, tuple(acquisition_folders(manifest)))
                folder.put(MEMBER, member.to_bytes())
                write_acquisition_files(folder, manifest, definitions)
                for name, content in snapshot_files(manifest).items():
                    folder.put(name, content)
                folder.flush_all()
            yield
        except BaseException:
            if not state.has_values:
                with contextlib.suppress(OSError, StorageError):
                    clear_share(folder)
                remove_made(made)
            raise
