"""Room for the arrays that a pass keeps for itself: rows between blocks, and levels that are not final.

Such a file has no name once it is open, so it goes with the process however that ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

from outcrop import _core
from outcrop.run.disk.region import ShardFile

ScratchMaker: TypeAlias = Callable[[int], AbstractContextManager[Sequence[ShardFile]]]
"""Gives room for so many bytes, as no file or one, for as long as it takes to open it."""

PREFIX = ".scratch-"
"""How names of scratch files begin while they have one."""


@contextmanager
def scratch_in(folder: Path, count: int) -> Iterator[Sequence[ShardFile]]:
    """A file of `count` bytes in `folder`; none for no bytes. Raises StorageError when there is no space."""
    if count == 0:
        yield []
        return
    handle, name = tempfile.mkstemp(prefix=PREFIX, dir=folder)
    os.close(handle)
    try:
        _core.create_file(name, count)
        yield [name]
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def no_scratch(count: int) -> Iterator[Sequence[ShardFile]]:
    """For plans that keep nothing for themselves."""
    assert count == 0
    yield []
