"""This module measures memory and storage: the figures of tiers, and the bandwidths of the storage of a run.

In memory, all threads perform plain reads, plain writes, STREAM's triad, and random accesses to cache lines. The
latency is also measured. The triad uses three arrays. STREAM requires that each array is at least four times as large
as all last-level caches together. If enough memory is free, the arrays have the size that STREAM requires. The three
arrays together take at most a quarter of the free memory.

A storage tier is measured with the same store as in runs. If possible, the transfers bypass the page cache. The
measurement uses up to 1 GiB of scratch space and takes about ten seconds. If transfers use the page cache, the pages of
the scratch file are removed from the cache before each measurement. With the page cache, the time of writes includes
their flush. The parts of the measurement are:

    `fill` The first write shows only how many bytes can be transferred in the given time. The rate of the first write
    does not count, because it allocates blocks, and the writes of runs do not.
    `sequential`   The size of requests and the number in flight are the same as in runs.
    `random`       Many requests of 4 KiB are in flight.
    `latency`      One request of 4 KiB is in flight.
    `flush`        A page of 4 KiB is written and made durable.

The storage of a run is measured with the executor. The executor performs the same transfers as in a run, but no
updates. The executor writes a scratch file, reads this file, and then reads and writes at the same time. The first
write to the new file is timed separately, because snapshots are also written to new files. If transfers use the page
cache, the pages of the scratch file are removed from the cache before each pass. The measured rates are cached for each
device and backend.

Factors correct measured speeds. Update rates and the speeds of disks are measured once, and then kept in the cache.
Kept speeds can become wrong, for example because other programs use the machine, or because the machine has become
slower or faster. So at the end of a long run, Outcrop keeps two factors: one factor for the kernel of the run, and one
factor for the disk of the run:

    factor = speed in the run / speed in the cache

Later plans multiply all rates of a kernel or of a disk by the factor that the last long run has kept for it. All sizes
of a kernel have the same factor, so the factor does not change which sizes are the fastest. A long run also corrects
the rate of its own sizes (`RateOfPlan` in update_rate.py).

After a disk was measured again, its factor is 1. If the factor of a disk would be outside the limits, the next long run
measures the disk again. It is possible that all known rates of a kernel were measured while the factor was not 1, and
that no known rate can be measured again. In such a case, a new epoch with the factor 1 begins, and rates of earlier
epochs are no longer used.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.errors import InputError, StorageError
from outcrop.plan.actions import Action, Commit, Read, Rectangle, Write
from outcrop.plan.machine import StorageRates
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import PLAIN_FIELDS, Problem
from outcrop.tiers.discover import available_cores, last_level_bytes, numa_nodes, processor_name
from outcrop.tiers.storage_tiers import IN_MEMORY, SCRATCH_PREFIX, cache_key, mount_of
from outcrop.tiers.tier import Figures
from outcrop.units import format_bytes
from outcrop.user_cache import forget_figures, keep_figures, key_of, load_figures

ARRAYS, CACHES = 3, 4
MIN_ARRAY_BYTES = 16 << 20
MEMORY_REPEATS = 5

RECORD_BYTES, RECORDS_IN_FLIGHT = 2 << 20, 16
PAGE_BYTES, PAGES_IN_FLIGHT = 4096, 32
SCRATCH_BYTES, MIN_SCRATCH_BYTES = 1 << 30, 64 << 20
SHARE_OF_FREE = 4
"""A measurement uses at most 1/SHARE_OF_FREE of the free space."""
SHARE_OF_SPAN = 16
"""Random accesses through the page cache transfer at most 1/SHARE_OF_SPAN of the file, so that they seldom reach a page
for the second time."""
MAX_KEPT_SHARE = 0.1
"""The maximum share of a file's pages that may stay in the page cache, so that reads still show the speed of the
disk."""
FILL_SECONDS, SEQUENTIAL_SECONDS, RANDOM_SECONDS, LATENCY_SECONDS = 4.0, 1.5, 1.0, 0.5
STORAGE_REPEATS, FLUSHES = 2, 5
MAX_MEMORY_SECONDS = 2.0
MAX_STORAGE_SECONDS = FILL_SECONDS + 2 * (STORAGE_REPEATS * SEQUENTIAL_SECONDS + RANDOM_SECONDS + LATENCY_SECONDS)
"""The expected maximum time of the measurement of a tier. Fast storage takes less time."""

Tell: TypeAlias = Callable[[str, float], object]
"""A function that is called before each part of a measurement, with its name and the maximum time of this part and all
later parts in seconds."""

CACHE = "devices.json"
SCRATCH_RECORDS, RING_RECORDS = 512, 16
MIN_SCRATCH_RECORDS = 2 * RING_RECORDS
MIN_GRID_BYTES = SCRATCH_RECORDS * RECORD_BYTES // 4
"""The minimum size of arrays for which the device is measured. For smaller arrays, the measurement would take longer
than the run."""
WHOLE = Rectangle(0, 1, 0, RECORD_BYTES // 4 - 1024)
"""The cells of a record, as a rectangle. The last 4096 bytes of a record contain no cells."""
ASSUMED = StorageRates(1e9, 1e9, 1e9, 0.01, "assumed")
"""The rates that are assumed if the device may not be measured, or if a measurement would take too long."""


def measure_memory(nodes: tuple[int, ...], free_bytes: int) -> Figures:
    """Measure the memory of the NUMA nodes `nodes`. If `nodes` is empty, measure the memory of the nodes on which the
    threads run.

    Raises InputError if too little memory is free, or if the system does not allow this process to choose nodes.
    """
    array_bytes = min(CACHES * last_level_bytes(), free_bytes // 4 // ARRAYS)
    if array_bytes < MIN_ARRAY_BYTES:
        needed = format_bytes(ARRAYS * MIN_ARRAY_BYTES)
        raise InputError(f"not measured: needs {needed}, and may use a quarter of the free memory")
    # Only one thread runs on each core. Two threads on the same core would share the maximum number of requests that
    # the core can have in flight.
    threads = max(1, min(available_cores(), sum(node.cores for node in numa_nodes())))
    meter = _core.MemoryMeter(threads, array_bytes, nodes)
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


def measure_storage(
    folder: Path, free_bytes: int, io: str = "auto", tell: Tell = lambda part, seconds: None
) -> Figures:
    """Measure the device that holds `folder`. `tell` is called before each part of the measurement. Raises InputError
    if the device has too little free space. Raises StorageError or OSError if the scratch file cannot be created, if
    transfers fail, or if the scratch file stays in the page cache."""
    size = min(SCRATCH_BYTES, free_bytes // SHARE_OF_FREE, shutil.disk_usage(folder).free // SHARE_OF_FREE)
    size -= size % RECORD_BYTES
    if size < MIN_SCRATCH_BYTES:
        needed = format_bytes(MIN_SCRATCH_BYTES)
        raise InputError(f"not measured: needs {needed}, and may use a quarter of the free space")
    with scratch_store(folder, size, io) as (store, handle):
        if not store.direct:
            _require_dropped(store, handle, folder)
            size = MIN_SCRATCH_BYTES  # the flush of more bytes could take longer than the given time
        left = MAX_STORAGE_SECONDS

        def begin(part: str, seconds: float) -> None:
            nonlocal left
            tell(part, left)
            left -= seconds

        begin("first write", FILL_SECONDS)
        meter = _Meter(store, handle, size)
        span = meter.moved_bytes(write=True, seconds=FILL_SECONDS)
        meter = _Meter(store, handle, max(span - span % RECORD_BYTES, RECORDS_IN_FLIGHT * RECORD_BYTES))
        begin("writes", STORAGE_REPEATS * SEQUENTIAL_SECONDS)
        write = max(meter.sequential(True) for _ in range(STORAGE_REPEATS))
        begin("reads", STORAGE_REPEATS * SEQUENTIAL_SECONDS)
        read = max(meter.sequential(False) for _ in range(STORAGE_REPEATS))
        begin("random accesses", 2 * RANDOM_SECONDS)
        random_read, random_write = meter.random(False), meter.random(True)
        begin("latencies", 2 * LATENCY_SECONDS)
        return Figures(
            origin="measured",
            read_bytes_per_second=read,
            write_bytes_per_second=write,
            random_read_bytes_per_second=random_read,
            random_write_bytes_per_second=random_write,
            latency_seconds_read=meter.latency(False),
            latency_seconds_write=meter.latency(True),
            latency_seconds_flush=median(meter.flush() for _ in range(FLUSHES)),
        )


@dataclass(frozen=True)
class _Meter:
    """Measures transfers of the first `span_bytes` bytes of a store's file. `handle` is a descriptor of this file."""

    store: _core.Store
    handle: int
    span_bytes: int

    def moved_bytes(self, write: bool, seconds: float) -> int:
        """Return the number of bytes that sequential requests have transferred in the given time."""
        return self._measure(write, False, RECORD_BYTES, RECORDS_IN_FLIGHT, seconds)[0]

    def sequential(self, write: bool) -> float:
        moved, _, seconds = self._measure(write, False, RECORD_BYTES, RECORDS_IN_FLIGHT, SEQUENTIAL_SECONDS)
        return moved / seconds

    def random(self, write: bool) -> float:
        moved, _, seconds = self._measure(write, True, PAGE_BYTES, PAGES_IN_FLIGHT, RANDOM_SECONDS)
        return moved / seconds

    def latency(self, write: bool) -> float:
        """Return the time of one request in seconds."""
        _, requests, seconds = self._measure(write, True, PAGE_BYTES, 1, LATENCY_SECONDS)
        return seconds / requests

    def flush(self) -> float:
        """Return the time in seconds until a written page is durable."""
        return self._measure(True, True, PAGE_BYTES, 1, 0.0, flush=True)[2]

    def _measure(
        self, write: bool, random: bool, request_bytes: int, depth: int, seconds: float, flush: bool = False
    ) -> tuple[int, int, float]:
        total = self.span_bytes
        if not self.store.direct:
            drop_from_page_cache(self.handle)
            flush, total = flush or write, total // SHARE_OF_SPAN if random else total
        return _core.measure_transfers(
            self.store, write=write, random=random, flush=flush, request_bytes=request_bytes, depth=depth,
            span_bytes=self.span_bytes, total_bytes=total, seconds_most=seconds,
        )  # fmt: skip


@contextmanager
def scratch_store(folder: Path, size_bytes: int, io: str) -> Iterator[tuple[_core.Store, int]]:
    """Open a store with one new file, whose blocks are all allocated, and yield the store and a descriptor of the file.
    The new file has no name, so Linux removes the file when the process ends. Raises StorageError or OSError if the
    folder cannot be used."""
    handle, name = tempfile.mkstemp(prefix=SCRATCH_PREFIX, dir=folder)
    with open(handle, "r+b"):
        try:
            _core.create_file(name, size_bytes)
            store = _core.Store([name], backend=io, direct=True, writable=True)
        finally:
            Path(name).unlink(missing_ok=True)  # an open file can still be used after its name is removed
        try:
            yield store, handle
        finally:
            store.close()


def drop_from_page_cache(handle: int, length: int = 0) -> None:
    """Remove the first `length` bytes of an open file from the page cache. If `length` is 0, remove all bytes of the
    file from the page cache. The file is flushed first, because Linux removes only pages that are equal to the bytes on
    the device. Linux also does not remove pages that a process has mapped."""
    os.fsync(handle)
    os.posix_fadvise(handle, 0, length, os.POSIX_FADV_DONTNEED)


def cached_share(handle: int, length: int = 0) -> float | None:
    """Return the share of a file's pages that are in the page cache, from 0 to 1. If `length` is not 0, count only the
    pages of the first `length` bytes. Return None if the share is unknown. The file must be open for reading and
    writing, because the system call `mincore` reports pages only to a process that may write the file."""
    if os.fstat(handle).st_size == 0:
        return 0.0
    with mmap.mmap(handle, length) as mapped:
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        place = np.frombuffer(mapped, np.uint8)
        answer = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(place.ctypes.data), ctypes.c_size_t(len(mapped)), ctypes.c_void_p(pages.ctypes.data)
        )
        del place
    return float(np.mean(pages & 1)) if answer == 0 else None


def _require_dropped(store: _core.Store, handle: int, folder: Path) -> None:
    """Raise StorageError if Linux keeps the written bytes of a scratch file in the page cache. Reads from the page
    cache would show the speed of memory, and not the speed of the disk. The check is not made for a file system in
    memory, because the page cache is the place of its bytes."""
    if mount_of(folder).type in IN_MEMORY:
        return
    store.write_from(0, 0, _noise())
    drop_from_page_cache(handle)
    share = cached_share(handle, RECORD_BYTES)
    if share is None or share > MAX_KEPT_SHARE:
        raise StorageError(f"not measured: a scratch file in {folder} stays in the page cache")


def _noise() -> NDArray[np.uint8]:
    """Return a record of random bytes. Random bytes are needed, because some devices are faster with zeros."""
    noise = _core.aligned_array(RECORD_BYTES)
    noise[:] = np.random.default_rng(0).integers(0, 256, RECORD_BYTES, np.uint8)
    return noise


def device(directories: Sequence[Path], io: str, may_write: bool, problem: Problem) -> StorageRates:
    """Return the bandwidths of all `directories` together. If the user's cache has these bandwidths, the cached
    bandwidths are used. If the cache has no bandwidths, `may_write` is true and the problem is large, the function
    measures the devices. If the function cannot measure the devices, it returns assumed bandwidths."""
    may_measure = may_write and problem.grid_bytes >= MIN_GRID_BYTES
    every = [_one_device(folder, io, may_measure) for folder in directories]
    sources = map(source_of, directories)
    found = list(dict(zip(sources, every, strict=True)).values())
    if (key := factor_key(directories, io)) and found[0].origin == "cached":
        found = [found[0].shared_by(1 / factor_of(key))]
    return replace(
        found[0],
        read_bytes_per_second=sum(one.read_bytes_per_second for one in found),
        write_bytes_per_second=sum(one.write_bytes_per_second for one in found),
        mixed_bytes_per_second=sum(one.mixed_bytes_per_second for one in found),
        seconds_flush=max(one.seconds_flush for one in found),
        origin=ASSUMED.origin if ASSUMED in found else found[0].origin,
    )


def factor_key(directories: Sequence[Path], io: str) -> str:
    """Return the key of the factor that runs have measured for a disk (`keep_factor`). Return "" for raw devices. Also
    return "" for a run in several directories, because the time of such a run does not show which disk is slow."""
    folder = directories[0]
    return f"storage {_key(folder, io)}" if len(directories) == 1 and folder.is_dir() else ""


def source_of(folder: Path) -> str:
    """Return the name of the device that holds `folder` on this node. If several mounts have the same source, folders
    on these mounts share the bandwidth of the source. A raw device has no mount. If `folder` is a raw device, return
    the path of the device."""
    return mount_of(folder).source if folder.is_dir() else str(folder)


def why_assumed(directories: Sequence[Path], may_write: bool, problem: Problem) -> str:
    """Return the reason why `device` returns assumed rates instead of measured rates."""
    if not all(folder.is_dir() for folder in directories):
        return "a raw device is not measured"
    if problem.grid_bytes < MIN_GRID_BYTES:
        return f"a measurement takes too long for arrays of less than {format_bytes(MIN_GRID_BYTES)}"
    if not may_write:
        return "plan writes nothing; run measures it"
    if any(_scratch_records(folder) < MIN_SCRATCH_RECORDS for folder in directories):
        return "there is too little free space to measure it"
    return "the scratch file of a measurement cannot be written, or stays in the page cache"


def _one_device(folder: Path, io: str, may_measure: bool) -> StorageRates:
    if not folder.is_dir():
        # A raw device cannot be measured, because it has no file system for a scratch file and can contain a run.
        return ASSUMED
    known = load_figures(CACHE, StorageRates).get(_key(folder, io))
    if may_measure and (known is None or known.first_write_bytes_per_second is None):
        # Errors are ignored, because a quota can be too small for the scratch file, but large enough for the run. Rates
        # of transfers through the page cache are not kept, because no run would correct these rates.
        with suppress(StorageError, OSError):
            return measure_afresh(folder, io)
    return ASSUMED if known is None else replace(known, origin="cached")


def measure_afresh(folder: Path, io: str = "auto") -> StorageRates:
    """Measure the device of `folder`, and replace its cached rates. After the measurement, the factor of the device is
    1."""
    measured = measure_device(folder, io)
    if measured is not ASSUMED:
        keep_figures(CACHE, {_key(folder, io): measured})
        keep_factor(factor_key([folder], io), 1.0)
    return measured


def forget_device(folder: Path, io: str) -> None:
    """Remove the rates of the device of `folder` from the cache, so that the next long run measures the device."""
    forget_figures(CACHE, StorageRates, _key(folder, io))


def _scratch_records(folder: Path) -> int:
    """Return the number of records in the scratch file that `measure_device` writes."""
    return min(SCRATCH_RECORDS, shutil.disk_usage(folder).free // SHARE_OF_FREE // RECORD_BYTES)


def _key(folder: Path, io: str) -> str:
    return f"{cache_key(folder)} {io}"


def measure_device(folder: Path, io: str) -> StorageRates:
    """Measure reads, writes, and reads and writes at the same time. The measurement takes a few seconds, and needs up
    to 1 GiB of scratch space."""
    records = _scratch_records(folder)
    if records < MIN_SCRATCH_RECORDS:
        return ASSUMED
    with scratch_store(folder, records * RECORD_BYTES, io) as (store, handle):
        if not store.direct:
            _require_dropped(store, handle, folder)
        row_bytes, shape = 4 * WHOLE.x1, (records, 1, WHOLE.x1)  # each plane has one row, which fills a record
        grid = Problem("transfer", (0, 0, 0), shape, "float32", 1, row_bytes, row_bytes, RECORD_BYTES)
        executor = _core.make_executor(
            grid,
            Sizes(1, 1, 1),
            # the measurement does not use the second ring
            rings=((RING_RECORDS, RECORD_BYTES, False), (1, RECORD_BYTES, False)),
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
            if not store.direct:
                drop_from_page_cache(handle)
            start = time.perf_counter()
            executor.run(one_pass, [0], [0], [], 0, records, fringe_rows=0, scalars=b"")
            return time.perf_counter() - start

        ring = min(RING_RECORDS, records)
        noise = _noise()
        for z in range(ring):  # fills the ring with noise, which all later writes transfer
            store.write_from(0, z * RECORD_BYTES, noise)
        fill: list[Action] = [Read(0, ring, WHOLE)]
        total = records * RECORD_BYTES
        first_write = seconds([*fill, Write(0, records, 0, WHOLE)])
        write = min(seconds([*fill, Write(0, records, 0, WHOLE)]) for _ in range(2))
        read = min(seconds([Read(0, records, WHOLE)]) for _ in range(2))
        # Reads and writes happen at the same time. The slots of the writes are always half a ring away from the slots
        # of the reads.
        first = records // 2 + (ring // 2 - records // 2) % ring
        both: list[Action] = []
        for z in range(records - first):
            both += [Read(z, z + 1, WHOLE), Write(first + z, first + z + 1, 0, WHOLE)]
        with _busy_processor():
            mixed = min(seconds(both) for _ in range(2))
        flush = min(seconds([*fill, Write(0, 1, 0, WHOLE)]) for _ in range(3))
    both_bytes = 2 * (records - first) * RECORD_BYTES
    return StorageRates(total / read, total / write, both_bytes / mixed, flush, "measured", total / first_write)


@contextmanager
def _busy_processor() -> Iterator[None]:
    """Keep all cores and the memory busy until the `with` block ends. In a run, updates keep the cores and the memory
    busy, and thus make transfers slower."""
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


# --- checksums -------------------------------------------------------------------------------------------------------


CHECKSUMS = "checksums.json"
CHECKSUM_PLANE_BYTES, MAX_CHECKSUM_BYTES, CHECKSUM_REPEATS = 1 << 20, 64 << 20, 3


@dataclass(frozen=True)
class KeptChecksumRate:
    """A rate of checksums in the user's cache, and the time of the measurement in seconds since 1970."""

    checksum_bytes_per_second: float
    seconds_measured: float


def checksum_rate(threads: int, budget_bytes: int, is_alone: bool = True) -> float:
    """Return the rate of the checksums of all threads together, in bytes per second. The measurement uses at least 1
    MiB of memory for each thread. Apart from this minimum, the measurement uses at most 64 MiB and at most
    `budget_bytes`.

    A short measurement varies much if other programs use the cores. Therefore the result is the best rate of several
    measurements. The rate stays in the user's cache for 30 days, so that two plans of the same run agree. `is_alone` is
    false if other ranks measure at the same time. If `is_alone` is false, the rate is measured in each run, because it
    depends on the number of ranks on the cores."""
    size = min(budget_bytes, MAX_CHECKSUM_BYTES)
    if not is_alone:
        return _core.measure_checksum_rate(threads, CHECKSUM_PLANE_BYTES, size)
    key = key_of(f"checksums {processor_name()} {available_cores()} {threads} {size // CHECKSUM_PLANE_BYTES}")
    kept = load_figures(CHECKSUMS, KeptChecksumRate).get(key)
    if kept is not None and 0 <= time.time() - kept.seconds_measured < SECONDS_KEPT:
        return kept.checksum_bytes_per_second
    rate = max(_core.measure_checksum_rate(threads, CHECKSUM_PLANE_BYTES, size) for _ in range(CHECKSUM_REPEATS))
    keep_figures(CHECKSUMS, {key: KeptChecksumRate(rate, time.time())})
    return rate


# --- factors of later runs -------------------------------------------------------------------------------------------


FACTORS = "runs.json"
SECONDS_KEPT = 30 * 24 * 3600.0
"""The time after which a factor is no longer used."""
MIN_FACTOR, MAX_FACTOR = 0.2, 2.0
"""The limits of a factor. A run that was stopped for a while must not make all later predictions useless. If the factor
of a disk is below MIN_FACTOR or above MAX_FACTOR, the rates are probably the rates of another disk, and are removed
(run/speeds.py)."""


@dataclass(frozen=True)
class KeptFactor:
    """A factor in the user's cache, and a time: the end of the run that measured the factor, in seconds since 1970. A
    factor is valid only for rates with the same `epoch`."""

    factor: float
    seconds_measured: float
    epoch: int = 0


def kept_factor(what: str) -> KeptFactor:
    """Return the factor of the kernel or disk that the text `what` identifies. If no factor is known, return the factor
    1. If the factor is too old, return the factor 1 of the next epoch."""
    now = time.time()
    kept = load_figures(FACTORS, KeptFactor).get(key_of(what))
    if kept is None:
        return KeptFactor(1.0, now)
    if not 0 <= now - kept.seconds_measured < SECONDS_KEPT:
        return KeptFactor(1.0, now, kept.epoch + 1)
    return replace(kept, factor=min(MAX_FACTOR, max(MIN_FACTOR, kept.factor)))


def factor_of(what: str) -> float:
    """Return the factor of the kernel or disk that the text `what` identifies, or 1 if there is no recent factor."""
    return kept_factor(what).factor


def keep_factor(what: str, factor: float, epoch: int = 0) -> None:
    """Keep a factor, and replace the earlier factor. If a factor is above the upper limit or below the lower limit,
    keep this limit as the factor."""
    bounded = min(MAX_FACTOR, max(MIN_FACTOR, factor))
    keep_figures(FACTORS, {key_of(what): KeptFactor(bounded, time.time(), epoch)})
