"""Measure the device under a directory through the store that runs use, past the page cache where that is possible.

    fill            the first write allocates blocks, which no run sees: no figure, but it says how large the span is
    sequential      requests as large and as many in flight as runs have them
    random          4 KiB, many in flight
    latency         4 KiB, one in flight
    flush           4 KiB written and made durable

It takes up to 1 GiB of scratch space and about ten seconds.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from outcrop import _core
from outcrop.errors import InputError
from outcrop.tiers.figures import Figures
from outcrop.tiers.scratch import scratch_store
from outcrop.units import format_bytes

SCRATCH_BYTES, SCRATCH_BYTES_LEAST = 1 << 30, 64 << 20
SHARE_OF_FREE = 4
"""Of the free space at most the fourth part is taken."""
RECORD_BYTES, RECORDS_IN_FLIGHT = 2 << 20, 16
PAGE_BYTES, PAGES_IN_FLIGHT = 4096, 32
FILL_SECONDS, SEQUENTIAL_SECONDS, RANDOM_SECONDS, LATENCY_SECONDS = 4.0, 1.5, 1.0, 0.5
REPEATS, FLUSHES = 2, 5


def measure_storage(folder: Path, free_bytes: int, io: str = "auto") -> Figures:
    """Figures of the device under `folder`. Raises InputError where there is no room, StorageError and OSError where
    files cannot be made or fail."""
    size = min(SCRATCH_BYTES, free_bytes // SHARE_OF_FREE, shutil.disk_usage(folder).free // SHARE_OF_FREE)
    size -= size % RECORD_BYTES
    if size < SCRATCH_BYTES_LEAST:
        raise InputError(f"not measured: no room for {format_bytes(SCRATCH_BYTES_LEAST)}, a quarter of what is free")
    with scratch_store(folder, size, io) as store:
        meter = _Meter(store, size)
        span = meter.moved_bytes(write=True, seconds=FILL_SECONDS)
        meter = _Meter(store, max(span - span % RECORD_BYTES, RECORDS_IN_FLIGHT * RECORD_BYTES))
        write, read = (max(meter.sequential(write) for _ in range(REPEATS)) for write in (True, False))
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
        """How much was moved sequentially, in that time at most."""
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
