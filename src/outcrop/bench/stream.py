"""`outcrop bench stream`: measure the bandwidth of DRAM, and of arrays on a tier.

The benchmark is the distributed STREAM of A. Jackson (EPCC). It runs the four loops of McCalpin on all ranks of all
nodes at the same time. The arrays of a node have four times the size of its last-level caches. Some modes make the
results durable (see `stream_rank`). All ranks of a node begin each loop at the same time. The first repeat of a turn is
not counted. The results of the loops are checked.

    mpirun -n 4 outcrop bench stream -d SCRATCH        # each rank has its own files in SCRATCH
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from outcrop.bench.figures import describe_machine, new_picture, save_picture, table_head, table_row
from outcrop.bench.ranks import Ranks, all_ranks
from outcrop.bench.stream_rank import (
    ITEM_BYTES,
    LOOPS,
    MODES,
    LoopTime,
    ModeTimes,
    RankStream,
    StreamLoop,
    StreamMode,
    StreamScale,
    check_room,
    find_tier,
    threads_of_rank,
    why_not_flushed,
)
from outcrop.paths import made_directory
from outcrop.tiers.discover import last_level_bytes
from outcrop.units import counted, format_bytes

CACHES, PAGE_BYTES = 4, 4096
ROUNDS, REPEATS, MAX_SECONDS = 3, 4, 5.0
SMALL = StreamScale(array_bytes=1 << 20, rounds=2, repeats=1, max_seconds=0.2)


def bench(
    directory: Path,
    small: bool = False,
    png: Path | None = None,
    tier: str | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Run the benchmark on all ranks. The first rank prints the figures and returns them as plain data. All other ranks
    print and return nothing.

    The arrays are in unnamed files on `tier`. If no tier is given, these files are in `directory`. The files disappear
    when the process ends. `threads` is the number of threads of each rank. Raises InputError if the tier does not exist
    or does not have enough room. Raises StorageError if a file cannot be made or flushed.
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
    """Make a directory on the first rank of each node, and remove it when all ranks have finished."""
    is_first = ranks.rank == ranks.of_node(ranks.rank)[0]
    with made_directory(directory) if is_first else nullcontext():
        ranks.wait_for_node()
        yield
        ranks.wait_for_all()


def full(ranks: Ranks) -> StreamScale:
    """Return the scale of a full measurement. The arrays of each rank have whole pages."""
    share = -(-CACHES * last_level_bytes() // ranks.on_node)
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
    """The times that one rank has measured. `modes` is a dictionary from the name of each mode to its times."""

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
        # A span begins when the first rank of the node begins, and ends when the last rank of the node ends.
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
    """Return the number of bytes that all `ranks` together move in one repeat."""
    return sum(one.modes[mode.name].count for one in ranks) * ITEM_BYTES * loop.arrays


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": median(values), "max": max(values)}


def _overall(spreads: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the minimum, the median of the medians, and the maximum of all `spreads`."""
    return {
        "min": min(one["min"] for one in spreads),
        "median": median(one["median"] for one in spreads),
        "max": max(one["max"] for one in spreads),
    }


# --- table -----------------------------------------------------------------------------------------------------------


def head(figures: dict[str, Any]) -> Iterator[str]:
    """Yield lines about the ranks, the arrays and the tier."""
    tier, ranks, nodes = figures["tier"], figures["ranks"], len(figures["nodes"])
    where = counted(ranks, "rank") + f" on {counted(nodes, 'node')}, {counted(figures['threads'], 'thread')} each"
    yield f"STREAM, {where}, three arrays of {format_bytes(figures['array_bytes'])} of float64 a rank in each place"
    yield f"tier {tier['name']} ({tier['kind']}), {tier['where']}; flushed by {figures['primitive']}"


def table(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table with a row for each mode and a column for each loop, for nodes and, of several ranks,
    for ranks."""
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
    """Yield lines about special modes, modes that were not measured, and the check of the results."""
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
        yield "Files are mapped through the page cache here: without a flush the figures are those of its memory."
    yield "All results are right." if figures["results_are_right"] else "RESULTS ARE WRONG."


def _range(of: dict[str, float]) -> str:
    low, middle, high = (f"{of[key] / 1e9:.3g}" for key in ("min", "median", "max"))
    return f"{middle} ({low} to {high})"


# --- picture ---------------------------------------------------------------------------------------------------------

COLORS = ("#7f9db9", "#4c8c6b", "#c9b458", "#e07b39")
"""One color for each loop."""
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
