"""STREAM on one rank: its arrays in DRAM and on a tier, and the loops over them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.bench.ranks import Ranks
from outcrop.bench.stream.modes import ITEM_BYTES, LOOPS, PLACES, STARTS, Loop, Mode
from outcrop.bench.stream.tier import Content, take
from outcrop.tiers.tier import Tier

ALIGNMENT_BYTES = 2 << 20
PAGE_DOUBLES = 4096 // ITEM_BYTES
PROBED_PAGES, PROBES = 8, 3
"""Of each thread, to find out how long flushing takes."""


@dataclass(frozen=True)
class Scale:
    """`array_bytes` of one array of one rank; modes take turns for so many `rounds`, each of `repeats` that count after
    one that does not; a turn that takes longer than `seconds_most` has fewer."""

    array_bytes: int
    rounds: int
    repeats: int
    seconds_most: float


@dataclass(frozen=True)
class Timed:
    """When a loop began, by the clock of the node, and the seconds it and the flush after it took."""

    begin: float
    loop: float
    flush: float

    @property
    def seconds(self) -> float:
        """Of both."""
        return self.loop + self.flush


@dataclass(frozen=True)
class Measured:
    """One mode on one rank: doubles of an array, each repeat of each loop, and whether results were right."""

    count: int
    times: dict[str, list[Timed]]
    is_right: bool

    def __add__(self, later: Measured) -> Measured:
        """With another turn of the same mode."""
        both = {name: of + later.times[name] for name, of in self.times.items()}
        return Measured(self.count, both, self.is_right and later.is_right)


def threads_of_rank(ranks: Ranks) -> int:
    """Its share of the processors that ranks of its node may use, and not more than it may use itself."""
    own = os.sched_getaffinity(0)
    together: set[int] = set().union(*ranks.of_node(own))
    return max(1, min(len(own), len(together) // ranks.on_node))


class RankStream:
    """Three arrays in DRAM and three on `tier`, taken and touched."""

    def __init__(self, tier: Tier, scale: Scale, threads: int, ranks: Ranks) -> None:
        """Raises InputError and StorageError when there is no room."""
        self._scale, self._ranks, self._threads = scale, ranks, threads
        # Several ranks would bind themselves to the same cores; where theirs are is mpirun's business.
        self._stream = _core.Stream(threads, may_bind=ranks.on_node == 1)
        self._pitch = -(-scale.array_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        nbytes = len(STARTS) * self._pitch
        self._contents = {"dram": Content(_core.aligned_array(nbytes), None), "tier": take(tier, nbytes)}
        for place in PLACES:
            self._start(place, self.count)
        self._affordable: int | None = None

    @property
    def count(self) -> int:
        """Doubles of a whole array."""
        return self._scale.array_bytes // ITEM_BYTES

    @property
    def primitive(self) -> str:
        """What flushes use."""
        mapping = self._contents["tier"].mapping
        if mapping is None:
            return "none"
        return "MAP_SYNC + cache-line write-back" if mapping.is_synchronous else "msync"

    @property
    def flushed_at_once_bytes(self) -> int | None:
        """By an individual flush."""
        mapping = self._contents["tier"].mapping
        return None if mapping is None else _core.Stream.flushed_at_once(mapping)

    def measure(self, mode: Mode) -> Measured:
        """One turn, and its results checked; all ranks at once."""
        count = self._count_of(mode)
        values = {(place, name): value for place in mode.places for name, value in STARTS.items()}
        for place in mode.places:
            self._start(place, count)
        self._settle()
        times: dict[str, list[Timed]] = {loop.name: [] for loop in LOOPS}
        self._ranks.wait_for_all()
        begin = time.perf_counter()
        for done in range(self._scale.repeats + 1):
            late = time.perf_counter() - begin > self._scale.seconds_most
            if done > 1 and any(self._ranks.of_all(late)):
                break
            for loop in LOOPS:
                self._ranks.wait_for_node()
                times[loop.name].append(self._run(mode, loop, count))
                sources = (values[mode.source, name] if name else 0.0 for name in (loop.first, loop.second))
                values[mode.target, loop.result] = loop.value(*sources)
        is_right = all(self._stream.holds(self._array(*key, count), value) for key, value in values.items())
        return Measured(count, {name: of[1:] for name, of in times.items()}, is_right)

    def _run(self, mode: Mode, loop: Loop, count: int) -> Timed:
        first = self._array(mode.source, loop.first, count)
        second = self._array(mode.source, loop.second or loop.first, count)
        result = self._array(mode.target, loop.result, count)
        mapping, begin = self._contents[mode.target].mapping, time.monotonic()
        return Timed(begin, *self._stream.run(loop.name, first, second, result, mode.flush, mapping))

    def _count_of(self, mode: Mode) -> int:
        """Doubles of an array: as many as the slowest rank can flush one by one in the time of a turn."""
        if mode.flush != "individual":
            return self.count
        if self._affordable is None:
            probed = min(self.count, PROBED_PAGES * self._threads * PAGE_DOUBLES)
            seconds = median(self._run(mode, LOOPS[0], probed).loop for _ in range(PROBES))
            share = self._scale.seconds_most / (len(LOOPS) * (self._scale.repeats + 1))
            pages = min(self._ranks.of_all(int(probed * share / seconds) // PAGE_DOUBLES))
            self._affordable = min(self.count, max(pages, self._threads) * PAGE_DOUBLES)
        return self._affordable

    def _start(self, place: str, count: int) -> None:
        for name, value in STARTS.items():
            self._stream.fill(self._array(place, name, count), value)

    def _settle(self) -> None:
        """What has been written so far shall not be on its way while something else is measured."""
        mapping = self._contents["tier"].mapping
        if mapping is not None:
            mapping.flush(0, len(mapping.bytes), self._threads)

    def _array(self, place: str, name: str, count: int) -> NDArray[Any]:
        begin = list(STARTS).index(name) * self._pitch
        return self._contents[place].bytes[begin : begin + count * ITEM_BYTES].view(np.float64)
