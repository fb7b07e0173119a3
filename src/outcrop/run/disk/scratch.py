"""Room for the arrays that a pass keeps for itself: rows between blocks, and levels that are not final.

Such a file has no name once it is open, so it goes with the process however that ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from outcrop.durable import Directory
from outcrop.errors import StorageError
from outcrop.run.disk.contents import SCRATCH
from outcrop.run.disk.region import Inside, ShardFile

ScratchMaker: TypeAlias = Callable[[int], AbstractContextManager[Sequence[ShardFile]]]
"""Gives room for so many bytes, as no file or one, for as long as it takes to open it."""


@contextmanager
def scratch_in(directory: Directory, count: int) -> Iterator[Sequence[ShardFile]]:
    """A file of `count` bytes in a directory; none for no bytes. Raises StorageError when there is no space."""
    if count == 0:
        yield []
        return
    name = f"{SCRATCH}{secrets.token_hex(8)}"
    try:
        directory.create(name, size=count)
    except OSError as error:
        raise StorageError(f"allocate {directory.path / name}: {error.strerror} ({count} bytes)") from None
    try:
        yield [Inside(directory.handle, name, str(directory.path / name))]
    finally:
        directory.remove(name)


@contextmanager
def no_scratch(count: int) -> Iterator[Sequence[ShardFile]]:
    """For plans that keep nothing for themselves."""
    assert count == 0
    yield []
