"""Which kind of home a path is."""

from __future__ import annotations

from pathlib import Path

from outcrop.run.device import use as device_use
from outcrop.run.device.device import Device
from outcrop.run.disk.folder import Folder
from outcrop.run.disk.home import Home
from outcrop.run.disk.manifest import MANIFEST


def find_home(path: Path) -> Home:
    """The home at `path`: a device where there is one, else a folder, which need not exist."""
    return Device(path) if device_use.is_block_device(path) else Folder(path)


def may_hold_run(path: Path) -> bool:
    """Whether `path` is a block device or a directory with a manifest, and not a file of another kind."""
    return device_use.is_block_device(path) or (path / MANIFEST).exists()
