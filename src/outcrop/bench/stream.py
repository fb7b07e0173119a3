"""`outcrop bench stream`: measure the bandwidth of DRAM, and of arrays on a tier.

The benchmark is the distributed STREAM of A. Jackson (EPCC). All ranks of all nodes run the four loops of McCalpin's
STREAM at the same time. The arrays of a node have four times the size of the last-level caches of the node. The
benchmark has the same modes as Jackson's benchmark:

    `dram`         Reads from DRAM and writes to DRAM.
    `none`         Reads from the tier and writes to the tier, without flushes.
    `individual`   Like `none`, but each element is flushed separately. If the tier needs msync, each page is flushed
                   separately.
    `collective`   Like `none`, but one flush covers the whole result.
    `read-only`    Reads from the tier and writes to DRAM.
    `write-only`   Reads from DRAM and writes to the tier.

All ranks of a node begin each loop at the same time. The modes take turns. In a turn, all loops of one mode are
repeated several times, and the first repeat is not counted. The benchmark checks the results of the loops.

    mpirun -n 4 outcrop bench stream -d SCRATCH        # each rank has its own files in SCRATCH
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.bench.figures import describe_machine, new_picture, save_picture, table_head, table_row
from outcrop.bench.ranks import Ranks, all_ranks
from outcrop.errors import InputError
from outcrop.paths import made_directory, nearest_existing
from outcrop.tiers import discover
from outcrop.tiers.memory_tiers import bytes_on
from outcrop.tiers.survey import find_tiers, tiers_holding
from outcrop.tiers.tier import Persistence, Tier
from outcrop.units import counted, format_bytes

CACHES, PAGE_BYTES = 4, 4096
ROUNDS, REPEATS, MAX_SECONDS = 3, 4, 5.0
SCALAR = 3.0
ITEM_BYTES = 8
PLACES = ("dram", "tier")
STARTS = {"a": 2.0, "b": 2.0, "c": 0.0}
"""The values of the arrays before a mode is measured. The value of a is 2, because McCalpin's STREAM sets a to 1 and
then doubles it."""


@dataclass(frozen=True)
class StreamLoop:
    """A loop of STREAM, with the names of its arrays. `second` is "" if the loop reads only one array."""

    name: str
    first: str
    second: str
    result: str

    @property
    def arrays(self) -> int:
        return 3 if self.second else 2

    def value(self, first: float, second: float) -> float:
        """All elements of the first input array have the value `first`, and all elements of the second input array have
        the value `second`. Return the value of each element of the result."""
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
    """A mode of the benchmark. `source` is the place of the input arrays, `target` is the place of the result, and
    `flush` says how the result is flushed."""

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
"""The benchmark uses at most 1/SHARE_OF_FREE of the free bytes."""


def find_tier(directory: Path, name: str | None) -> Tier:
    """Return the tier with the name or kind `name`. If `name` is None, return the tier of `directory`. Raises
    InputError if the tier does not exist or is DRAM."""
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
    why = "is compared with every other tier" if name == "dram" else "is not a tier of this machine"
    raise InputError(f"--tier {name} {why}; there are {known}")


def why_not_flushed(tier: Tier) -> str:
    """Return the reason why the benchmark does not measure flushes on the tier, or "" if flushes are measured."""
    if tier.is_memory:
        return f"{tier.kind} is memory: nothing there lasts longer than the process"
    if tier.persistence == Persistence.REBOOT:
        return f"{tier.kind} loses its content when the machine goes down, even after a flush"
    return ""


def check_room(tier: Tier, needed_bytes: int) -> None:
    """Raise InputError if the arrays would take more than half of the free bytes of the tier or of DRAM. The arrays
    need `needed_bytes` bytes on the tier, and as many bytes in DRAM."""
    if tier.note and not tier.free_bytes:
        raise InputError(f"tier {tier.name} ({tier.where}) cannot be used: {tier.note}")
    in_memory = 2 * needed_bytes if tier.is_memory or tier.kind == "tmpfs" else needed_bytes
    for name, free, needed in ((tier.name, tier.free_bytes, needed_bytes),
                               ("memory", discover.free_memory_bytes(), in_memory)):  # fmt: skip
        if needed > free // SHARE_OF_FREE:
            raise InputError(
                f"bench stream needs {format_bytes(needed)} of {name} for arrays of four times the last-level caches; "
                f"it may use only half of the {format_bytes(free)} that are free"
            )


# --- one rank --------------------------------------------------------------------------------------------------------

ALIGNMENT_BYTES = 2 << 20
PAGE_DOUBLES = PAGE_BYTES // ITEM_BYTES
PROBED_PAGES, PROBES = 8, 3
"""A short measurement decides how many pages the mode `individual` flushes. PROBED_PAGES is the number of pages that
each thread flushes in this measurement, and PROBES is the number of repeats."""


@dataclass(frozen=True)
class StreamScale:
    """The scale of the benchmark: the number of bytes of one array of one rank, and the numbers of repeats. The
    measurement has `rounds` rounds, and each mode has one turn in each round. In a turn, the first repeat does not
    count, and the next `repeats` repeats count. A turn that has already taken `max_seconds` ends early."""

    array_bytes: int
    rounds: int
    repeats: int
    max_seconds: float


SMALL = StreamScale(array_bytes=1 << 20, rounds=2, repeats=1, max_seconds=0.2)


@dataclass(frozen=True)
class LoopTime:
    """`begin` is the time at which a loop began, by the clock of the node. `loop` has the seconds of the loop, and
    `flush` has the seconds of the flush after the loop."""

    begin: float
    loop: float
    flush: float

    @property
    def seconds(self) -> float:
        return self.loop + self.flush


@dataclass(frozen=True)
class ModeTimes:
    """The result of the measurement of a mode on one rank. `count` is the number of values (float64) of an array.
    `times` has the times of all repeats of each loop. `is_right` is true if all results were right."""

    count: int
    times: dict[str, list[LoopTime]]
    is_right: bool

    def __add__(self, later: ModeTimes) -> ModeTimes:
        """Join the times of this turn with the times of a later turn of the same mode."""
        both = {name: of + later.times[name] for name, of in self.times.items()}
        return ModeTimes(self.count, both, self.is_right and later.is_right)


def threads_of_rank(ranks: Ranks) -> int:
    """Return the number of threads of a rank. Ranks share the processors of a node equally. But the number of threads
    of a rank is at most the number of processors that the rank may use."""
    own = os.sched_getaffinity(0)
    together: set[int] = set().union(*ranks.of_node(own))
    return max(1, min(len(own), len(together) // ranks.on_node))


class RankStream:
    """STREAM on one rank, with three arrays in DRAM and three arrays on `tier`."""

    def __init__(self, tier: Tier, scale: StreamScale, threads: int, ranks: Ranks) -> None:
        """Allocate the memory of all arrays, and write to this memory. Raises InputError or StorageError if the arrays
        do not fit on the tier or into DRAM."""
        self._scale, self._ranks, self._threads = scale, ranks, threads
        # If threads of several ranks on a node were bound here, they would be bound to the same cores. So the benchmark
        # binds threads only if the node has one rank. With several ranks on a node, the user can let mpirun bind the
        # ranks.
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
        """The number of bytes that a single flush of the mode `individual` writes back. If the tier has no files, this
        property is None."""
        return None if self._mapping is None else _core.Stream.flushed_at_once(self._mapping)

    def measure(self, mode: StreamMode) -> ModeTimes:
        """Run one turn of `mode` on all ranks at the same time, and check the results."""
        count = self._count_of(mode)
        values = {(place, name): value for place in mode.places for name, value in STARTS.items()}
        for place in mode.places:
            self._start(place, count)
        if self._mapping is not None:  # without this flush, the system could write data back during the measurement
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
        """Return the number of values (float64) of an array in the mode `mode`. With individual flushes, arrays have
        fewer values, so that even the slowest rank finishes the measurement of the mode in time."""
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


# --- the benchmark ----------------------------------------------------------------------------------------------------


def bench(
    directory: Path, small: bool = False, png: Path | None = None, tier: str | None = None, threads: int | None = None
) -> dict[str, Any]:
    """Run the benchmark on all ranks. The first rank prints the figures and returns them as plain data. All other ranks
    print nothing, and return an empty dictionary.

    The arrays on the tier are in unnamed files on `tier`. If no tier is given, the unnamed files are in `directory`.
    The unnamed files disappear when the process ends. `threads` is the number of threads of each rank. Raises
    InputError if the tier does not exist or does not have enough room. Raises StorageError if a file cannot be made or
    flushed.
    """
    with all_ranks() as ranks:
        place, thread_count = find_tier(directory, tier), threads or threads_of_rank(ranks)
        scale = SMALL if small else full(ranks)
        check_room(place, 3 * scale.array_bytes * ranks.on_node)
        with nullcontext() if tier else _made_on_each_node(directory, ranks):
            rank = RankStream(place, scale, thread_count, ranks)
            why_not = why_not_flushed(place)
            modes = [mode for mode in MODES if mode.flush == "none" or not why_not]
            left_out = [mode for mode in MODES if mode not in modes]
            figures: dict[str, Any] = {
                "benchmark": "stream",
                "small": small,
                "machine": describe_machine(directory, thread_count),
                "tier": place.to_json(),
                "ranks": ranks.size,
                "nodes": list(dict.fromkeys(ranks.of_all(ranks.node))),
                "threads": thread_count,
                "array_bytes": scale.array_bytes,
                "repeats": scale.rounds * scale.repeats,
                "primitive": place.primitive if why_not else rank.primitive,
                "flushed_at_once_bytes": rank.flushed_at_once_bytes,
                "not_measured": [{"mode": mode.name, "text": mode.text, "why": why_not} for mode in left_out],
            }
            if ranks.rank == 0:
                print("\n".join(head(figures)), flush=True)
            found = measure(rank, modes, scale.rounds, ranks)
            if ranks.rank != 0:
                return {}
    figures["modes"] = [mode_figures(mode, found) for mode in modes]
    figures["results_are_right"] = all(mode["is_right"] for mode in figures["modes"])
    print("\n".join(["", *table(figures), *remarks(figures)]))
    if png is not None:
        draw(figures, png)
    return figures


@contextmanager
def _made_on_each_node(directory: Path, ranks: Ranks) -> Iterator[None]:
    """The first rank of each node makes the directory. When all ranks have finished, the first rank removes the
    directory."""
    is_first = ranks.rank == ranks.of_node(ranks.rank)[0]
    with made_directory(directory) if is_first else nullcontext():
        ranks.wait_for_node()
        yield
        ranks.wait_for_all()


def full(ranks: Ranks) -> StreamScale:
    """Return the scale of a full measurement. The arrays of each rank consist of whole pages."""
    share = -(-CACHES * discover.last_level_bytes() // ranks.on_node)
    return StreamScale(-(-share // PAGE_BYTES) * PAGE_BYTES, ROUNDS, REPEATS, MAX_SECONDS)


def measure(rank: RankStream, modes: list[StreamMode], rounds: int, ranks: Ranks) -> list[RankFigures]:
    """Measure all modes on all ranks. The modes are measured alternately, because the speed of a machine varies."""
    own = {mode.name: rank.measure(mode) for mode in modes}
    for _ in range(rounds - 1):
        own = {mode.name: own[mode.name] + rank.measure(mode) for mode in modes}
    return ranks.of_all(RankFigures(ranks.rank, ranks.node, own))


# --- from seconds to bandwidths --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankFigures:
    """The times that a rank has measured. `modes` maps the name of each mode to the times of the mode."""

    rank: int
    node: str
    modes: dict[str, ModeTimes]


def mode_figures(mode: StreamMode, ranks: Sequence[RankFigures]) -> dict[str, Any]:
    """Return the bandwidths of a mode as plain data, in bytes per second."""
    counts = [one.modes[mode.name].count for one in ranks]
    return {
        "mode": mode.name,
        "text": mode.text,
        "array_bytes": [count * ITEM_BYTES for count in counts] if len(set(counts)) > 1 else counts[0] * ITEM_BYTES,
        "is_right": all(one.modes[mode.name].is_right for one in ranks),
        "loops": {loop.name: _loop_figures(mode, loop, ranks) for loop in LOOPS},
    }


def _loop_figures(mode: StreamMode, loop: StreamLoop, ranks: Sequence[RankFigures]) -> dict[str, Any]:
    by_rank: list[dict[str, Any]] = [
        {
            "rank": one.rank,
            "node": one.node,
            **_spread([_moved(mode, loop, [one]) / timed.seconds for timed in _times(mode, loop, one)]),
        }
        for one in ranks
    ]
    by_node: list[dict[str, Any]] = []
    for node in dict.fromkeys(one.node for one in ranks):
        members = [one for one in ranks if one.node == node]
        repeats = zip(*(_times(mode, loop, one) for one in members), strict=True)
        # A span is the time of a loop on one node. A span begins when the first rank begins the loop, and ends when the
        # last rank ends the loop.
        spans = [max(one.begin + one.seconds for one in each) - min(one.begin for one in each) for each in repeats]
        rates = [_moved(mode, loop, members) / seconds for seconds in spans]
        by_node.append({"node": node, **_spread(rates)})
    figures = {
        "repeats": len(_times(mode, loop, ranks[0])),
        "rank": _overall(by_rank),
        "node": _overall(by_node),
        "slowest_node": min(by_node, key=lambda one: one["median"])["node"],
        "by_rank": by_rank,
        "by_node": by_node,
    }
    if mode.flush == "collective":
        flushes = [(one.modes[mode.name].count, timed.flush) for one in ranks for timed in _times(mode, loop, one)]
        figures["flush"] = _spread([count * ITEM_BYTES / seconds for count, seconds in flushes])
    return figures


def _times(mode: StreamMode, loop: StreamLoop, rank: RankFigures) -> list[LoopTime]:
    return rank.modes[mode.name].times[loop.name]


def _moved(mode: StreamMode, loop: StreamLoop, ranks: Sequence[RankFigures]) -> int:
    """Return the number of bytes that all `ranks` together move in one repeat of a loop."""
    return sum(one.modes[mode.name].count for one in ranks) * ITEM_BYTES * loop.arrays


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": median(values), "max": max(values)}


def _overall(spreads: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Each entry of `spreads` has a minimum, a median and a maximum. Return the smallest minimum, the median of the
    medians, and the largest maximum."""
    return {
        "min": min(one["min"] for one in spreads),
        "median": median(one["median"] for one in spreads),
        "max": max(one["max"] for one in spreads),
    }


# --- table -----------------------------------------------------------------------------------------------------------


def head(figures: dict[str, Any]) -> Iterator[str]:
    """Yield lines of text about the ranks, the arrays and the tier."""
    tier, ranks, nodes = figures["tier"], figures["ranks"], len(figures["nodes"])
    where = counted(ranks, "rank") + f" on {counted(nodes, 'node')}, {counted(figures['threads'], 'thread')} each"
    yield f"STREAM, {where}, three arrays of {format_bytes(figures['array_bytes'])} of float64 a rank in each place"
    yield f"tier {tier['name']} ({tier['kind']}), {tier['where']}; flushed by {figures['primitive']}"


def table(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table with a row for each mode and a column for each loop. If there are several ranks, also
    yield the lines of a second table, with figures for each rank."""
    for of in ("node", "rank") if figures["ranks"] > 1 else ("node",):
        heads = [f"GB/s of a {of}: median (min to max)", *(loop.name for loop in LOOPS), "triad, of DRAM's"]
        heads += ["slowest node"] if figures["ranks"] > 1 else []
        yield from table_head(heads)
        for mode in figures["modes"]:
            loops = mode["loops"]
            share = loops["triad"][of]["median"] / figures["modes"][0]["loops"]["triad"][of]["median"]
            cells = [mode["text"], *(_range(loops[loop.name][of]) for loop in LOOPS), f"{share:.2g}"]
            cells += [loops["triad"]["slowest_node"]] if figures["ranks"] > 1 else []
            yield table_row(cells)
        yield ""


def remarks(figures: dict[str, Any]) -> Iterator[str]:
    """Yield lines about modes that were measured in another way or not at all, and about the check of the results."""
    for mode in figures["modes"]:
        repeats = min(loop["repeats"] for loop in mode["loops"].values())
        notes = [] if repeats == figures["repeats"] else [counted(repeats, "repeat")]
        if (size := mode["array_bytes"]) != figures["array_bytes"]:
            sizes = [size] if isinstance(size, int) else [min(size), max(size)]
            notes.append(f"arrays of {' to '.join(map(format_bytes, sizes))}, to end in time")
        if mode["mode"] == "individual":
            notes.append(f"flushed {format_bytes(figures['flushed_at_once_bytes'])} at a time")
        if "flush" in mode["loops"]["triad"]:
            notes.append(f"flush alone {mode['loops']['triad']['flush']['median'] / 1e9:.3g} GB/s a rank")
        if notes:
            yield f"{mode['text']}: {'; '.join(notes)}"
    for one in figures["not_measured"]:
        yield f"{one['text']}: not measured, {one['why']}"
    if figures["primitive"] == "msync":
        yield "Files are mapped through the page cache here: figures without a flush are figures of memory."
    yield "All results are right." if figures["results_are_right"] else "RESULTS ARE WRONG."


def _range(of: dict[str, float]) -> str:
    low, middle, high = (f"{of[key] / 1e9:.3g}" for key in ("min", "median", "max"))
    return f"{middle} ({low} to {high})"


# --- picture ---------------------------------------------------------------------------------------------------------

COLORS = ("#7f9db9", "#4c8c6b", "#c9b458", "#e07b39")
"""The color of each loop in the picture."""
BAR = 0.2


def draw(figures: dict[str, Any], output: Path) -> None:
    """Write a picture to `output` as PNG: a group of bars for each mode, with error bars for the range over all
    nodes."""
    picture = new_picture(10, 5)
    axes = picture.subplots()
    modes = figures["modes"]
    for number, (loop, color) in enumerate(zip(LOOPS, COLORS, strict=True)):
        of = [mode["loops"][loop.name]["node"] for mode in modes]
        medians = [one["median"] / 1e9 for one in of]
        below = [(one["median"] - one["min"]) / 1e9 for one in of]
        above = [(one["max"] - one["median"]) / 1e9 for one in of]
        places = [place + (number - 1.5) * BAR for place in range(len(modes))]
        bars = axes.bar(places, medians, BAR, yerr=(below, above), color=color, capsize=2, label=loop.name)
        axes.bar_label(bars, [f"{value:.3g}" for value in medians], fontsize=6, padding=2)
    axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.set_xticks(range(len(modes)), [mode["text"].replace(", ", ",\n") for mode in modes], fontsize=8)
    tier = figures["tier"]
    axes.set(ylabel="GB/s of a node: median, min to max", title=f"STREAM on tier {tier['name']} ({tier['kind']}), "
             f"ranks: {figures['ranks']}, nodes: {len(figures['nodes'])}")  # fmt: skip
    axes.legend(ncols=len(LOOPS), frameon=False)
    save_picture(picture, output)
