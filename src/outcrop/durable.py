"""Files and names that survive a power cut, and folders that are held against other processes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from outcrop.errors import InputError


def replace_file(path: Path, text: str) -> None:
    """Write beside, flush, rename, flush the folder: a reader sees the old or the new text, also after a power cut."""
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_folder(path: Path, shared: bool = False) -> int:
    """Descriptor that holds a folder until it is closed, alone or with others who share it. Raises InputError when
    another process is in the way."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InputError(f"{path} is in use by another process; wait for it or stop it") from None
    return handle


def share_folder(handle: int) -> None:
    """Let others share a folder that was held alone."""
    fcntl.flock(handle, fcntl.LOCK_SH)
