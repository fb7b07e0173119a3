"""Put a new run on block devices: all of it, or nothing when it cannot be.

    check and hold ──► slot: the new manifest ──► superblock ──► zeros where others look ──► indices ──► first values

Writing the superblock of the first device is the moment at which an older run is gone and the new one, still without
values, is there: whoever finds it after a crash knows that there is nothing to lose. The zeros remove what other
programs could still recognise, at both ends of the device.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from outcrop.errors import InputError, StorageError
from outcrop.run.device import use as device_use
from outcrop.run.device.checks import hold_devices
from outcrop.run.device.device import member_text, opened, regions
from outcrop.run.device.header import (
    BLOCK_BYTES,
    HEADER_BYTES,
    MEMBER,
    RUN,
    SLOT_BYTES,
    SLOT_OFFSETS,
    Header,
    read_header,
    write_all,
    write_slot,
    write_superblock,
)
from outcrop.run.disk.home import release
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.state import State
from outcrop.run.disk.zarr_format import index_parts

_TAIL_BYTES = 1 << 20
"""Backups of partition tables and the metadata of arrays lie within this of a device's end."""


@contextlib.contextmanager
def created_on_devices(devices: list[Path], manifest: Manifest, force: bool) -> Iterator[State]:
    """Put a run without values on the devices; the caller commits the first ones inside the `with`.

    The devices are held meanwhile. As for `created_state`, InputError leaves all as it was, and whatever ends the
    `with` before values are there takes the run away again; what was on the devices before is gone then.
    """
    handles = hold_devices(devices, manifest, force)
    state = State(devices[0], manifest)
    try:
        try:
            for index, device in enumerate(devices):
                _write_header(device, _header(manifest, index))
                _write_indices(device, manifest, index)
            with state.locked(handles):
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
    return Header(MEMBER, manifest.identity, member_text(manifest, index))


def _write_header(device: Path, header: Header) -> None:
    with _errors_named(device), opened(device, os.O_RDWR) as handle:
        try:
            old = read_header(handle, device)
        except InputError:  # damaged or of another version, to be replaced
            old = None
        new = replace(header, sequence=old.sequence + 1 if old else 0)
        write_slot(handle, new)
        write_superblock(handle, new)
        _clean(handle, keep=SLOT_OFFSETS[new.sequence % 2])
        os.fsync(handle)


def _clean(handle: int, keep: int) -> None:
    """Zeros everywhere in the header but in the superblock and the slot at `keep`, and at the end of the device."""
    _write_zeros(handle, BLOCK_BYTES, keep)
    _write_zeros(handle, keep + SLOT_BYTES, HEADER_BYTES)
    size = device_use.size_of(handle)
    _write_zeros(handle, max(HEADER_BYTES, size - _TAIL_BYTES), size)


def _write_zeros(handle: int, begin: int, end: int) -> None:
    if begin < end:
        write_all(handle, bytes(end - begin), begin)


def _write_indices(device: Path, manifest: Manifest, index: int) -> None:
    # Not flushed here: values are flushed together with it before they are committed.
    layout = manifest.layout
    with _errors_named(device), opened(device, os.O_RDWR) as handle:
        for (_, _, shard), region in regions(manifest, index, str(device)).items():
            offset = region.begin + layout.records(shard) * layout.record_bytes
            for part in index_parts(layout, shard):
                write_all(handle, part, offset)
                offset += len(part)


def _forget(devices: list[Path], identity: str) -> None:
    """Take the run away from the devices that it had reached, as far as they still can be written."""
    for device in devices:
        with contextlib.suppress(OSError, InputError), opened(device, os.O_RDWR) as handle:
            header = read_header(handle, device)
            if header is not None and header.identity == identity:
                _write_zeros(handle, 0, HEADER_BYTES)
                os.fsync(handle)


@contextlib.contextmanager
def _errors_named(device: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot create the run on {device}: {error.strerror}") from error
