"""Measure a storage device through the executor, with the transfers that a run makes and without updates.

A scratch file in the directory is written, read, then read and written at the same time. It is always removed. Figures
are cached for each device and backend, so that this happens once.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from outcrop import _core
from outcrop.plan.actions import Action, Commit, Read, Rectangle, Write
from outcrop.plan.machine import StorageRates
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import PLAIN_FIELDS, Problem
from outcrop.tiers import cache
from outcrop.tiers.discover import available_cores
from outcrop.tiers.measure_tiers import scratch_store, write_noise
from outcrop.tiers.storage_tiers import cache_key, mount_of
from outcrop.units import format_bytes

CACHE = "devices.json"
RECORD_BYTES = 2 << 20
SCRATCH_RECORDS = 512
RING_RECORDS = 16
MIN_GRID_BYTES = SCRATCH_RECORDS * RECORD_BYTES // 4
"""A device is not measured for smaller arrays, because that would take longer than the run."""
WHOLE = Rectangle(0, 1, 0, RECORD_BYTES // 4 - 1024)
"""The cells of a record; its tail is moved with them."""
ASSUMED = StorageRates(1e9, 1e9, 1e9, 0.01, "assumed")
"""The device if it has not been measured, and measuring it is not worth the time or not allowed."""


@dataclass(frozen=True)
class _Transfer:
    """A grid of records only, for an executor that never updates."""

    shape: tuple[int, int, int]
    radius_z: int = 0
    radius_y: int = 0
    rim_z: tuple[int, int] = (0, 0)
    rim_y: tuple[int, int] = (0, 0)
    periodic: tuple[bool, bool, bool] = (False, False, False)
    skew_z: int = 1
    skew_y: int = 1
    statics_z: int = 0
    item_bytes: int = 4
    pitch_bytes: int = RECORD_BYTES - 4096
    plane_bytes: int = RECORD_BYTES - 4096
    record_bytes: int = RECORD_BYTES


def device(directories: Sequence[Path], io: str, may_write: bool, problem: Problem) -> StorageRates:
    """The bandwidths of the storage under `directories` together: cached, or measured if that may write and is worth
    the time."""
    may_measure = may_write and problem.grid_bytes >= MIN_GRID_BYTES
    every = [_one_device(folder, io, may_measure) for folder in directories]
    distinct = {_source_of(folder): found for folder, found in zip(directories, every, strict=True)}
    found = list(distinct.values())
    return replace(
        found[0],
        read_bytes_per_second=sum(one.read_bytes_per_second for one in found),
        write_bytes_per_second=sum(one.write_bytes_per_second for one in found),
        mixed_bytes_per_second=sum(one.mixed_bytes_per_second for one in found),
        seconds_flush=max(one.seconds_flush for one in found),
        origin=ASSUMED.origin if ASSUMED in found else found[0].origin,
    )


def why_assumed(directories: Sequence[Path], may_write: bool, problem: Problem) -> str:
    """The reason why `device` has assumed the figures for a run."""
    if not all(folder.is_dir() for folder in directories):
        return "a raw device is not measured"
    if problem.grid_bytes < MIN_GRID_BYTES:
        return f"arrays of less than {format_bytes(MIN_GRID_BYTES)} are not worth measuring it"
    return "there is too little free space to measure it" if may_write else "plan writes nothing; run measures it"


def _source_of(folder: Path) -> str:
    """The source of the file system of `folder`. Folders on one source share its bandwidth."""
    return mount_of(folder).source if folder.is_dir() else str(folder)


def _one_device(folder: Path, io: str, may_measure: bool) -> StorageRates:
    if not folder.is_dir():
        return ASSUMED  # a raw device has no room for a scratch file, and may hold a run
    known = cache.load(CACHE, StorageRates).get(_key(folder, io))
    if known is not None:
        return replace(known, origin="cached")
    return measure_afresh(folder, io) if may_measure else ASSUMED


def measure_afresh(folder: Path, io: str = "auto") -> StorageRates:
    """Measure the device of `folder`, and keep its figures for later runs in place of older ones."""
    measured = measure_device(folder, io)
    if measured is not ASSUMED:
        cache.keep(CACHE, _key(folder, io), measured)
    return measured


def _key(folder: Path, io: str) -> str:
    return f"{cache_key(folder)} {io}"


def measure_device(folder: Path, io: str) -> StorageRates:
    """Measure reading, writing and both at once in `folder`, with up to 1 GiB of scratch space for a few seconds."""
    records = min(SCRATCH_RECORDS, shutil.disk_usage(folder).free // 4 // RECORD_BYTES)
    if records < 2 * RING_RECORDS:
        return ASSUMED
    with scratch_store(folder, records * RECORD_BYTES, io) as store:
        grid = _Transfer((records, 1, RECORD_BYTES // 4 - 1024))
        executor = _core.make_executor(
            grid,
            Sizes(1, 1, 1),
            rings=((RING_RECORDS, RECORD_BYTES, False), (1, RECORD_BYTES, False)),  # the second one is not used
            fields=PLAIN_FIELDS,
            calls=((0, ((0, 0),), ((0, 1),)), (0, ((0, 1),), ((0, 0),))),
            scalars_bytes=0,
            max_levels=1,
            threads=1,
            checksum=False,
            store=store,
        )

        def seconds(actions: Sequence[Action]) -> float:
            one_pass = _core.Pass([*actions, Commit()], 0)
            start = time.perf_counter()
            executor.run(one_pass, [0], [0], [], 0, records, fringe_rows=0, scalars=b"")
            return time.perf_counter() - start

        ring = min(RING_RECORDS, records)
        write_noise(store, ring, RECORD_BYTES)  # every record written holds what the ring reads back first
        fill: list[Action] = [Read(0, ring, WHOLE)]
        total = records * RECORD_BYTES
        seconds([*fill, Write(0, records, 0, WHOLE)])  # the first write also allocates blocks, which no run sees
        write = min(seconds([*fill, Write(0, records, 0, WHOLE)]) for _ in range(2))
        read = min(seconds([Read(0, records, WHOLE)]) for _ in range(2))
        first = records // 2 + (ring // 2 - records // 2) % ring  # half a ring from what is read at that time
        both: list[Action] = []
        for z in range(records - first):
            both += [Read(z, z + 1, WHOLE), Write(first + z, first + z + 1, 0, WHOLE)]
        with _busy_processor():
            mixed = min(seconds(both) for _ in range(2))
        flush = min(seconds([*fill, Write(0, 1, 0, WHOLE)]) for _ in range(3))
    return StorageRates(total / read, total / write, 2 * (records - first) * RECORD_BYTES / mixed, flush, "measured")


@contextmanager
def _busy_processor() -> Iterator[None]:
    """Keep all cores and the memory busy, as updates do, because transfers then take longer."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            _core.measure_checksum_rate(available_cores(), 1 << 20, 64 << 20)

    worker = threading.Thread(target=work, name="outcrop-busy")
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()
