"""What must be true of block devices before a run may be created on them. Nothing here changes anything."""

from __future__ import annotations

from pathlib import Path

from outcrop.errors import InputError
from outcrop.run.device import use as device_use
from outcrop.run.device.device import Device, member_of, needed_bytes, signature_on
from outcrop.run.device.header import RUN, Header, encode_slot, read_header
from outcrop.run.disk.directory import what_is_there
from outcrop.run.disk.home import release
from outcrop.run.disk.manifest import NEW, Description, new_manifest, parse_manifest
from outcrop.units import format_bytes

SLACK_BYTES = 1 << 16
"""By how much the manifest of a run may grow after it was made: numbers of steps, names of arrays with values."""


def are_devices(places: list[Path], raw_device: bool) -> bool:
    """Whether the places of a new run are block devices. Raises InputError unless `raw_device` says so of all."""
    devices = [place for place in places if device_use.is_block_device(place)]
    others = [place for place in places if place not in devices]
    if raw_device and others:
        raise InputError(f"{others[0]} is not a block device; leave out --raw-device, or name a device")
    if devices and others:
        raise InputError(f"{devices[0]} is a block device and {others[0]} is not; a run uses one kind of place only")
    if devices and not raw_device:
        raise InputError(
            f"{devices[0]} is a block device, and a run would overwrite what is on it; if that is meant, add "
            "--raw-device (in Python raw_device=True)"
        )
    return bool(devices)


def check_devices(devices: list[Path], description: Description, force: bool) -> None:
    """Raise InputError unless the run can be created on these devices."""
    release(hold_devices(devices, description, force))


def hold_devices(devices: list[Path], description: Description, force: bool) -> list[int]:
    """Descriptors that hold the devices until they are closed, when the run can be created there. Raises InputError.

    Checked: duplicates, users, permission, size, and unless `force` that they hold nothing known.
    """
    manifest = new_manifest(description)
    longest = manifest.to_bytes().decode() + " " * SLACK_BYTES
    encode_slot(Header(RUN, manifest.identity, longest))  # raises when there is no room
    seen: dict[str, Path] = {}
    for device in devices:
        if (identity := device_use.identity_of(device)) in seen:
            raise InputError(f"device {device} is given twice (also as {seen[identity]}); each must be another")
        seen[identity] = device
    handles: list[int] = []
    try:
        for index, device in enumerate(devices):
            device_use.require_writable(device)
            handles.append(device_use.claim(device))
            _check_size(device, handles[-1], needed_bytes(description, index))
        headers = [_read(device, handle, force) for device, handle in zip(devices, handles, strict=True)]
        replaced = {header.identity for header in headers if header and header.kind == RUN}
        for device, handle, header in zip(devices, handles, headers, strict=True):
            if header and header.kind == RUN:
                _check_run(device, header, force)
            elif header and header.identity not in replaced:
                _check_member(device, header, force)
            if not force and (found := signature_on(device, handle)):
                raise InputError(f"{device} holds {found}; give another device, or destroy what is there with --force")
    except BaseException:
        release(handles)
        raise
    return handles


def hold_empty(device: Path) -> int:
    """Descriptor that holds a device on which nothing known is, until it is closed. Raises InputError."""
    device_use.require_writable(device)
    handle = device_use.claim(device)
    try:
        try:
            found = "a run, or a share of one" if read_header(handle, device) else signature_on(device, handle)
        except OSError as error:
            raise InputError(f"{device} cannot be read: {error.strerror}") from None
        if found:
            raise InputError(f"{device} holds {found}; give a device that holds nothing")
    except BaseException:
        release([handle])
        raise
    return handle


def _check_size(device: Path, handle: int, needed: int) -> None:
    size = device_use.size_of(handle)
    if size < needed:
        raise InputError(
            f"{device} has {size} bytes ({format_bytes(size)}), the run needs {needed} bytes ({format_bytes(needed)}) "
            "there; use a larger device, several, a smaller grid, or --in-place for about half of it"
        )


def _read(device: Path, handle: int, force: bool) -> Header | None:
    """The header of the device; None when it has none, or if forced, one that is damaged or of another version."""
    try:
        return read_header(handle, device)
    except OSError as error:
        raise InputError(f"{device} cannot be read: {error.strerror}") from None
    except InputError as error:
        if force:
            return None
        raise InputError(f"{error}; give another device, or destroy what is there with --force") from None


def _check_run(device: Path, header: Header, force: bool) -> None:
    if force:
        return
    old = parse_manifest(header.text.encode(), device)
    if old.phase != NEW:
        raise InputError(what_is_there(device, old))


def _check_member(device: Path, header: Header, force: bool) -> None:
    member = member_of(header)
    if _is_alive(member):
        raise InputError(f"{device} belongs to another run, in {member.get('run')}; give another device")
    if not force:
        raise InputError(
            f"{device} holds a share of a run whose first device, {member.get('run')}, is not there any more under "
            "this name; replace it with --force"
        )


def _is_alive(member: dict[str, object]) -> bool:
    """Whether the run that a member names still is one of which this is a member."""
    try:
        return Device(Path(str(member.get("run")))).read().identity == member.get("identity")
    except InputError:
        return False
