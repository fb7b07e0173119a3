"""From seconds to bandwidths: per rank, per node, and over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from outcrop.bench.stream.modes import ITEM_BYTES, LOOPS, Loop, Mode
from outcrop.bench.stream.rank import Measured, Timed


@dataclass(frozen=True)
class RankFigures:
    """What one rank has measured, by the names of modes."""

    rank: int
    node: str
    modes: dict[str, Measured]


def of_mode(mode: Mode, ranks: Sequence[RankFigures]) -> dict[str, Any]:
    """Bandwidths of a mode as plain data, bytes per second."""
    counts = [one.modes[mode.name].count for one in ranks]
    return {
        "mode": mode.name,
        "text": mode.text,
        "array_bytes": [count * ITEM_BYTES for count in counts] if len(set(counts)) > 1 else counts[0] * ITEM_BYTES,
        "is_right": all(one.modes[mode.name].is_right for one in ranks),
        "loops": {loop.name: _of_loop(mode, loop, ranks) for loop in LOOPS},
    }


def _of_loop(mode: Mode, loop: Loop, ranks: Sequence[RankFigures]) -> dict[str, Any]:
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
        rates = [_moved(mode, loop, members) / _span(together) for together in repeats]
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


def _times(mode: Mode, loop: Loop, rank: RankFigures) -> list[Timed]:
    return rank.modes[mode.name].times[loop.name]


def _moved(mode: Mode, loop: Loop, ranks: Sequence[RankFigures]) -> int:
    """Bytes of one repeat of all of them."""
    return sum(one.modes[mode.name].count for one in ranks) * ITEM_BYTES * loop.arrays


def _span(together: Sequence[Timed]) -> float:
    """Seconds from when the first rank of a node began to when the last one was ready."""
    return max(one.begin + one.seconds for one in together) - min(one.begin for one in together)


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": median(values), "max": max(values)}


def _overall(spreads: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The least, the median of medians, the most."""
    return {
        "min": min(one["min"] for one in spreads),
        "median": median(one["median"] for one in spreads),
        "max": max(one["max"] for one in spreads),
    }
