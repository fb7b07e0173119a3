"""Where the bytes of a shard are: a file of its own, a file beneath an open folder, or a region of a block device.

All are what `_core.Store` opens: a path, (descriptor, path in that folder, label), or (path, first byte, bytes).
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple, TypeAlias

from outcrop import _core
from outcrop.errors import StorageError


class Region(NamedTuple):
    """The `size` bytes of a device from byte `begin` on."""

    path: str
    begin: int
    size: int

    def __str__(self) -> str:
        return f"{self.path} (from byte {self.begin})"


class Inside(NamedTuple):
    """A regular file beneath a folder, opened without following links.

    `folder` is a descriptor of the caller's, needed only while the file is being opened. `name` is the path in that
    folder; `label` names the file in messages."""

    folder: int
    name: str
    label: str

    def __str__(self) -> str:
        return self.label


ShardFile: TypeAlias = str | Region | Inside
"""A shard: the path of its file, its region, or its file beneath a folder."""


def read_bytes(file: ShardFile, offset: int, count: int) -> bytes:
    """Up to `count` bytes of a shard from `offset` on, through the page cache. Raises StorageError, also for what is
    neither a regular file nor a region."""
    try:
        descriptor = _opened(file)
        with open(descriptor, "rb") as opened:
            opened.seek(offset + (file.begin if isinstance(file, Region) else 0))
            return opened.read(count)
    except OSError as error:
        raise StorageError(f"{_path(file)}: {error.strerror}") from None


def place_of(file: ShardFile) -> str:
    """The shard as messages name it, links resolved."""
    return os.path.realpath(file) if isinstance(file, str) else str(file)


def _path(file: ShardFile) -> str:
    return file.path if isinstance(file, Region) else str(file)


def _opened(file: ShardFile) -> int:
    """A descriptor. Opening a pipe does not wait for its other end."""
    if isinstance(file, Inside):
        return _core.open_beneath(*file)
    descriptor = os.open(_path(file), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or (isinstance(file, Region) and stat.S_ISBLK(mode))):
        os.close(descriptor)
        raise StorageError(f"open failed: {file}: it is not a regular file")
    os.set_blocking(descriptor, True)
    return descriptor
