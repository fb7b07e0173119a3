"""Measure the figures of tiers: of memory, and of the device under a directory.

Of memory: plain reads, plain writes and STREAM's triad by all threads, cache lines at random, and latency. Each of
three arrays has at least four times the bytes of all last-level caches, as STREAM asks for, unless a quarter of the
free memory is less.

Of a device, through the store that runs use, past the page cache where that is possible, with up to 1 GiB of scratch
space and in about ten seconds:

    fill            the first write allocates blocks, which no run sees: no figure, but it says how large the span is
    sequential      requests as large and as many in flight as runs have them
    random          4 KiB, many in flight
    latency         4 KiB, one in flight
    flush           4 KiB written and made durable
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from outcrop import _core
from outcrop.errors import InputError
from outcrop.tiers.discover import available_cores, last_level_bytes, numa_nodes
from outcrop.tiers.tier import Figures
from outcrop.units import format_bytes

ARRAYS, CACHES = 3, 4
MIN_ARRAY_BYTES = 16 << 20
MEMORY_REPEATS = 5

SCRATCH_BYTES, MIN_SCRATCH_BYTES = 1 << 30, 64 << 20
SHARE_OF_FREE = 4
"""At most a quarter of the free space is used."""
RECORD_BYTES, RECORDS_IN_FLIGHT = 2 << 20, 16
PAGE_BYTES, PAGES_IN_FLIGHT = 4096, 32
FILL_SECONDS, SEQUENTIAL_SECONDS, RANDOM_SECONDS, LATENCY_SECONDS = 4.0, 1.5, 1.0, 0.5
STORAGE_REPEATS, FLUSHES = 2, 5
PREFIX = ".outcrop-measure-"


def measure_memory(nodes: tuple[int, ...], free_bytes: int) -> Figures:
    """The figures of the memory of these nodes; without nodes, of the memory near the threads.

    Raises InputError when there is no room, or the system does not let memory be taken from nodes of one's choice.
    """
    array_bytes = min(CACHES * last_level_bytes(), free_bytes // 4 // ARRAYS)
    if array_bytes < MIN_ARRAY_BYTES:
        raise InputError(f"not measured: takes {ARRAYS * MIN_ARRAY_BYTES >> 20} MiB, a quarter of what is free")
    meter = _core.MemoryMeter(max(1, min(available_cores(), _cores())), array_bytes, nodes)
    return Figures(
        origin="measured",
        read_bytes_per_second=meter.bandwidth("read", MEMORY_REPEATS),
        write_bytes_per_second=meter.bandwidth("write", MEMORY_REPEATS),
        triad_bytes_per_second=meter.bandwidth("triad", MEMORY_REPEATS),
        random_read_bytes_per_second=meter.random_bandwidth(False),
        random_write_bytes_per_second=meter.random_bandwidth(True),
        latency_seconds_read=meter.latency(),
        latency_seconds_flush=0.0,
    )


def _cores() -> int:
    """The number of threads: one for each core. Two threads of a core share its requests in flight."""
    return sum(node.cores for node in numa_nodes())


def measure_storage(folder: Path, free_bytes: int, io: str = "auto") -> Figures:
    """The figures of the device under `folder`. Raises InputError if there is too little room, and StorageError or
    OSError if files cannot be made or transfers fail."""
    size = min(SCRATCH_BYTES, free_bytes // SHARE_OF_FREE, shutil.disk_usage(folder).free // SHARE_OF_FREE)
    size -= size % RECORD_BYTES
    if size < MIN_SCRATCH_BYTES:
        raise InputError(f"not measured: no room for {format_bytes(MIN_SCRATCH_BYTES)}, a quarter of what is free")
    with scratch_store(folder, size, io) as store:
        meter = _Meter(store, size)
        span = meter.moved_bytes(write=True, seconds=FILL_SECONDS)
        meter = _Meter(store, max(span - span % RECORD_BYTES, RECORDS_IN_FLIGHT * RECORD_BYTES))
        write, read = (max(meter.sequential(write) for _ in range(STORAGE_REPEATS)) for write in (True, False))
        return Figures(
            origin="measured",
            read_bytes_per_second=read,
            write_bytes_per_second=write,
            random_read_bytes_per_second=meter.random(False),
            random_write_bytes_per_second=meter.random(True),
            latency_seconds_read=meter.latency(False),
            latency_seconds_write=meter.latency(True),
            latency_seconds_flush=median(meter.flush() for _ in range(FLUSHES)),
        )


@dataclass(frozen=True)
class _Meter:
    """Measures on the first `span_bytes` of a store's file."""

    store: _core.Store
    span_bytes: int

    def moved_bytes(self, write: bool, seconds: float) -> int:
        """The bytes that were moved sequentially within the time."""
        return self._measure(write, False, RECORD_BYTES, RECORDS_IN_FLIGHT, seconds)[0]

    def sequential(self, write: bool) -> float:
        """Bytes per second."""
        moved, _, seconds = self._measure(write, False, RECORD_BYTES, RECORDS_IN_FLIGHT, SEQUENTIAL_SECONDS)
        return moved / seconds

    def random(self, write: bool) -> float:
        """Bytes per second."""
        moved, _, seconds = self._measure(write, True, PAGE_BYTES, PAGES_IN_FLIGHT, RANDOM_SECONDS)
        return moved / seconds

    def latency(self, write: bool) -> float:
        """Seconds of one request."""
        _, requests, seconds = self._measure(write, True, PAGE_BYTES, 1, LATENCY_SECONDS)
        return seconds / requests

    def flush(self) -> float:
        """Seconds until a page is durable."""
        return self._measure(True, True, PAGE_BYTES, 1, 0.0, flush=True)[2]

    def _measure(
        self, write: bool, random: bool, request_bytes: int, depth: int, seconds: float, flush: bool = False
    ) -> tuple[int, int, float]:
        return _core.measure_transfers(
            self.store,
            write=write,
            random=random,
            flush=flush,
            request_bytes=request_bytes,
            depth=depth,
            span_bytes=self.span_bytes,
            total_bytes=self.span_bytes,
            seconds_most=seconds,
        )


@contextmanager
def scratch_store(folder: Path, size_bytes: int, io: str) -> Iterator[_core.Store]:
    """A store with one new file, all of it allocated. The file has no name any more, so it cannot stay behind.

    Raises StorageError, and OSError for the folder.
    """
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
    """Fill the first records with noise: devices may be faster with zeros."""
    noise = _core.aligned_array(record_bytes)
    noise[:] = np.random.default_rng(0).integers(0, 256, record_bytes, np.uint8)
    for z in range(records):
        store.write_from(0, z * record_bytes, noise)
