"""Where the bytes of a shard are: a file of its own, or a region of a block device.

Both are what `_core.Store` opens: a path, or (path, first byte, bytes).
"""

from __future__ import annotations

import os
from typing import NamedTuple, TypeAlias

from outcrop.errors import StorageError


class Region(NamedTuple):
    """The `size` bytes of a device from byte `begin` on."""

    path: str
    begin: int
    size: int

    def __str__(self) -> str:
        return f"{self.path} (from byte {self.begin})"


ShardFile: TypeAlias = str | Region
"""A shard: the path of its file, or its region."""


def read_bytes(file: ShardFile, offset: int, count: int) -> bytes:
    """Up to `count` bytes of a shard from `offset` on, through the page cache. Raises StorageError."""
    path, begin = (file.path, file.begin) if isinstance(file, Region) else (file, 0)
    try:
        with open(path, "rb") as opened:
            opened.seek(begin + offset)
            return opened.read(count)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from None


def place_of(file: ShardFile) -> str:
    """The shard as messages name it, links resolved."""
    return str(file) if isinstance(file, Region) else os.path.realpath(file)
