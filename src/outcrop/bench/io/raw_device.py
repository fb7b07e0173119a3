"""The block device of `outcrop bench io --raw-device`: as a rule only read; written only when it holds nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outcrop.errors import InputError
from outcrop.run.device import use as device_use
from outcrop.run.device.checks import hold_empty
from outcrop.run.device.header import write_all
from outcrop.units import format_bytes

LEAST_BYTES = 1 << 20
ENDS_BYTES = 4 << 20
"""At both ends of a device: here programs look for what it holds, and must not take the noise of writing for it."""


@contextmanager
def in_use(device: Path, write: bool) -> Iterator[int]:
    """Bytes of the device, which can be read meanwhile; with `write` nobody else gets it, and its ends are zeros then.

    Raises InputError when it is no block device, too small, or cannot be opened, and with `write` unless it is free and
    holds nothing known.
    """
    if not device_use.is_block_device(device):
        raise InputError(f"--raw-device {device} is not a block device")
    handle = hold_empty(device) if write else device_use.open_device(device, os.O_RDONLY)
    try:
        if (size := device_use.size_of(handle)) < LEAST_BYTES:
            raise InputError(f"--raw-device {device} has {format_bytes(size)}; {format_bytes(LEAST_BYTES)} are needed")
        try:
            yield size
        finally:
            if write:
                _clear_ends(device, size)
    finally:
        os.close(handle)


def _clear_ends(device: Path, size: int) -> None:
    handle = device_use.open_device(device, os.O_WRONLY)
    try:
        for begin in (0, max(0, size - ENDS_BYTES)):
            write_all(handle, bytes(min(ENDS_BYTES, size - begin)), begin)
        os.fsync(handle)
    finally:
        os.close(handle)
