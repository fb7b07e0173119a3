"""A scratch file to measure a device with: in a given directory, with a name for a moment only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from outcrop import _core

PREFIX = ".outcrop-measure-"


@contextmanager
def scratch_store(folder: Path, size_bytes: int, io: str) -> Iterator[_core.Store]:
    """A store with one new file of that size, all of it allocated. Raises StorageError, and OSError for the folder."""
    handle, name = tempfile.mkstemp(prefix=PREFIX, dir=folder)
    os.close(handle)
    try:
        _core.create_file(name, size_bytes)
        store = _core.Store([name], backend=io, direct=True, writable=True)
    finally:
        Path(name).unlink(missing_ok=True)  # at once, so that nothing stays behind, however this process ends
    try:
        yield store
    finally:
        store.close()


def write_noise(store: _core.Store, records: int, record_bytes: int) -> None:
    """Put the same noise into the first records: devices may be faster with zeros."""
    noise = _core.aligned_array(record_bytes)
    noise[:] = np.random.default_rng(0).integers(0, 256, record_bytes, np.uint8)
    for z in range(records):
        store.write_from(0, z * record_bytes, noise)
