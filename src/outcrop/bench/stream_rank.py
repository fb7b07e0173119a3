"""STREAM on one rank: run the loops on arrays in DRAM or on a tier, and measure the times.

    `dram`         Reads from DRAM and writes to DRAM.
    `none`         Reads from the tier and writes to the tier, without flushes.
    `individual`   Like `none`, but each element is flushed separately. If the tier needs msync, each page is flushed
                   separately.
    `collective`   Like `none`, but the whole result is flushed at once.
    `read-only`    Reads from the tier and writes to DRAM.
    `write-only`   Reads from DRAM and writes to the tier.

The names of the modes come from A. Jackson, and the loops come from McCalpin. The user can name the tier. If the user
names no tier, the tier is the file system of a directory.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.bench.ranks import Ranks
from outcrop.errors import InputError
from outcrop.paths import nearest_existing
from outcrop.tiers import discover
from outcrop.tiers.memory_tiers import bytes_on
from outcrop.tiers.survey import find_tiers, tiers_holding
from outcrop.tiers.tier import Persistence, Tier
from outcrop.units import format_bytes

SCALAR = 3.0
ITEM_BYTES = 8
PLACES = ("dram", "tier")
STARTS = {"a": 2.0, "b": 2.0, "c": 0.0}
"""The values of the arrays at the start of a turn. McCalpin sets a to 1 and then doubles its values."""


@dataclass(frozen=True)
class StreamLoop:
    """A loop, with the names of its arrays. `second` is "" if the loop reads only one array."""

    name: str
    first: str
    second: str
    result: str

    @property
    def arrays(self) -> int:
        return 3 if self.second else 2

    def value(self, first: float, second: float) -> float:
        """Return the value of each element of the result, for the values of all elements of the input arrays."""
        if not self.second:
            return SCALAR * first if self.name == "scale" else first
        return first + (SCALAR * second if self.name == "triad" else second)


LOOPS = (
    StreamLoop("copy", "a", "", "c"),
    StreamLoop("scale", "c", "", "b"),
    StreamLoop("add", "a", "b", "c"),
    StreamLoop("triad", "b", "c", "a"),
)


@dataclass(frozen=True)
class StreamMode:
    """The place of the input arrays (`source`), the place of the result (`target`), and the way to flush the result."""

    name: str
    source: str
    target: str
    flush: str
    text: str

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(place for place in PLACES if place in (self.source, self.target))


MODES = (
    StreamMode("dram", "dram", "dram", "none", "arrays in DRAM"),
    StreamMode("none", "tier", "tier", "none", "arrays on the tier, no flush"),
    StreamMode("individual", "tier", "tier", "individual", "arrays on the tier, individual flush"),
    StreamMode("collective", "tier", "tier", "collective", "arrays on the tier, collective flush"),
    StreamMode("read-only", "tier", "dram", "none", "read from the tier, written to DRAM"),
    StreamMode("write-only", "dram", "tier", "none", "read from DRAM, written to the tier"),
)

# --- the tier --------------------------------------------------------------------------------------------------------

SHARE_OF_FREE = 2
"""At most 1/SHARE_OF_FREE of the free bytes is used."""


def find_tier(directory: Path, name: str | None) -> Tier:
    """Return the tier with this name or kind, or by default the tier of `directory`. Raises InputError if it does not
    exist or is DRAM."""
    tiers = find_tiers((directory,))
    if name is None:
        found = tiers_holding(nearest_existing(directory), tiers)
        if not found:
            raise InputError(f"-d {directory} is on no file system that outcrop tiers knows; give --tier")
        return replace(found[0], where=str(directory.resolve()))
    others = [tier for tier in tiers if tier.kind != "dram"]
    named = [tier for tier in others if tier.name == name] or [tier for tier in others if tier.kind == name]
    if len(named) == 1:
        return named[0]
    if named:
        raise InputError(f"--tier {name}: there are several; name one of {', '.join(tier.name for tier in named)}")
    known = ", ".join(tier.name for tier in others) or "none besides DRAM"
    why = "is what tiers are compared with" if name == "dram" else "is not a tier of this machine"
    raise InputError(f"--tier {name} {why}; there are {known}")


def why_not_flushed(tier: Tier) -> str:
    """Return the reason why flushes are not measured on a tier, or "" if they are measured."""
    if tier.is_memory:
        return f"{tier.kind} is memory: nothing there lasts longer than the process"
    if tier.persistence == Persistence.REBOOT:
        return f"{tier.kind} forgets when the machine goes down, flushed or not"
    return ""


def check_room(tier: Tier, needed_bytes: int) -> None:
    """Raise InputError if the tier or DRAM has less room than `needed_bytes`."""
    if tier.note and not tier.free_bytes:
        raise InputError(f"tier {tier.name} ({tier.where}) cannot be used: {tier.note}")
    in_memory = 2 * needed_bytes if tier.is_memory or tier.kind == "tmpfs" else needed_bytes
    for name, free, needed in ((tier.name, tier.free_bytes, needed_bytes),
                               ("memory", discover.free_memory_bytes(), in_memory)):  # fmt: skip
        if needed > free // SHARE_OF_FREE:
            raise InputError(
                f"bench stream takes {format_bytes(needed)} of {name} for arrays of four times the last-level caches; "
                f"half of the {format_bytes(free)} that are free is less"
            )


# --- one rank --------------------------------------------------------------------------------------------------------

ALIGNMENT_BYTES = 2 << 20
PAGE_DOUBLES = 4096 // ITEM_BYTES
PROBED_PAGES, PROBES = 8, 3
"""The number of pages for each thread, and the number of repeats, in the measurement of individual flushes."""


@dataclass(frozen=True)
class StreamScale:
    """The bytes of one array of one rank, and the number of measurements. The measurement has `rounds` rounds, and each
    mode has one turn in each round. A turn has one repeat that does not count, and then `repeats` repeats that count. A
    turn that has already taken `max_seconds` ends early."""

    array_bytes: int
    rounds: int
    repeats: int
    max_seconds: float


@dataclass(frozen=True)
class LoopTime:
    """The time at which a loop began, by the clock of the node, and the seconds of the loop and of the flush after
    it."""

    begin: float
    loop: float
    flush: float

    @property
    def seconds(self) -> float:
        return self.loop + self.flush


@dataclass(frozen=True)
class ModeTimes:
    """The measurement of a mode on one rank: the number of values (float64) of an array, the times of all repeats of
    each loop, and whether all results were right."""

    count: int
    times: dict[str, list[LoopTime]]
    is_right: bool

    def __add__(self, later: ModeTimes) -> ModeTimes:
        """Return the times of two turns of the same mode as one object."""
        both = {name: of + later.times[name] for name, of in self.times.items()}
        return ModeTimes(self.count, both, self.is_right and later.is_right)


def threads_of_rank(ranks: Ranks) -> int:
    """Return the number of threads of a rank. It is the rank's share of the processors of its node, and at most the
    number that the rank may use."""
    own = os.sched_getaffinity(0)
    together: set[int] = set().union(*ranks.of_node(own))
    return max(1, min(len(own), len(together) // ranks.on_node))


class RankStream:
    """STREAM on one rank, with three arrays in DRAM and three arrays on `tier`."""

    def __init__(self, tier: Tier, scale: StreamScale, threads: int, ranks: Ranks) -> None:
        """Allocate all memory and write it. Raises InputError or StorageError if the arrays do not fit."""
        self._scale, self._ranks, self._threads = scale, ranks, threads
        # Ranks that bind their own threads all choose the same cores. So if a node has several ranks, only mpirun may
        # bind these ranks.
        self._stream = _core.Stream(threads, may_bind=ranks.on_node == 1)
        self._pitch = -(-scale.array_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        nbytes = len(STARTS) * self._pitch
        self._mapping = None
        if tier.directory is not None:  # the arrays are in an unnamed file, mapped synchronously if possible
            self._mapping = _core.MappedFile.scratch(str(tier.directory), nbytes, tries_sync=True)
        on_tier = bytes_on(tier, nbytes) if self._mapping is None else self._mapping.bytes
        self._bytes = {"dram": _core.aligned_array(nbytes), "tier": on_tier}
        for place in PLACES:
            self._start(place, self.count)
        self._affordable: int | None = None

    @property
    def count(self) -> int:
        return self._scale.array_bytes // ITEM_BYTES

    @property
    def primitive(self) -> str:
        if self._mapping is None:
            return "none"
        return "MAP_SYNC + cache-line write-back" if self._mapping.is_synchronous else "msync"

    @property
    def flushed_at_once_bytes(self) -> int | None:
        """The bytes of one individual flush. None if the tier has no file."""
        return None if self._mapping is None else _core.Stream.flushed_at_once(self._mapping)

    def measure(self, mode: StreamMode) -> ModeTimes:
        """Run one turn of `mode` on all ranks at once, and check the results."""
        count = self._count_of(mode)
        values = {(place, name): value for place in mode.places for name, value in STARTS.items()}
        for place in mode.places:
            self._start(place, count)
        if self._mapping is not None:  # without this flush, the system may write the data back during the measurement
            self._mapping.flush(0, len(self._mapping.bytes), self._threads)
        times: dict[str, list[LoopTime]] = {loop.name: [] for loop in LOOPS}
        self._ranks.wait_for_all()
        begin = time.perf_counter()
        for done in range(self._scale.repeats + 1):
            is_late = time.perf_counter() - begin > self._scale.max_seconds
            if done > 1 and any(self._ranks.of_all(is_late)):
                break
            for loop in LOOPS:
                self._ranks.wait_for_node()
                times[loop.name].append(self._run(mode, loop, count))
                sources = (values[mode.source, name] if name else 0.0 for name in (loop.first, loop.second))
                values[mode.target, loop.result] = loop.value(*sources)
        is_right = all(self._stream.holds(self._array(*key, count), value) for key, value in values.items())
        return ModeTimes(count, {name: of[1:] for name, of in times.items()}, is_right)

    def _run(self, mode: StreamMode, loop: StreamLoop, count: int) -> LoopTime:
        first = self._array(mode.source, loop.first, count)
        second = self._array(mode.source, loop.second or loop.first, count)
        result = self._array(mode.target, loop.result, count)
        mapping, begin = self._mapping if mode.target == "tier" else None, time.monotonic()
        return LoopTime(begin, *self._stream.run(loop.name, first, second, result, mode.flush, mapping))

    def _count_of(self, mode: StreamMode) -> int:
        """Return the number of values (float64) of an array. It is limited for individual flushes, so that even the
        slowest rank ends its turn in time."""
        if mode.flush != "individual":
            return self.count
        if self._affordable is None:
            probed = min(self.count, PROBED_PAGES * self._threads * PAGE_DOUBLES)
            seconds = median(self._run(mode, LOOPS[0], probed).loop for _ in range(PROBES))
            share = self._scale.max_seconds / (len(LOOPS) * (self._scale.repeats + 1))
            pages = min(self._ranks.of_all(int(probed * share / seconds) // PAGE_DOUBLES))
            self._affordable = min(self.count, max(pages, self._threads) * PAGE_DOUBLES)
        return self._affordable

    def _start(self, place: str, count: int) -> None:
        for name, value in STARTS.items():
            self._stream.fill(self._array(place, name, count), value)

    def _array(self, place: str, name: str, count: int) -> NDArray[Any]:
        begin = list(STARTS).index(name) * self._pitch
        return self._bytes[place][begin : begin + count * ITEM_BYTES].view(np.float64)
