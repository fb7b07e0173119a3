"""The figures of `outcrop agg bench` as Markdown tables, with a sentence for each cell that is not faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outcrop.bench.aggregate.figures import COLD_SHARE_MOST, OURS
from outcrop.bench.aggregate.schedule import MODES
from outcrop.units import counted, format_bytes

TEXTS = {mode.name: mode.text for mode in MODES}
NOTES = (
    "By the seconds of the slowest rank, from barrier to barrier, ways in turns. Every write makes a new file, of its "
    "full size from the start; durable: flushed within the time.",
    "Reads are of one file for all ways, written by every rank's own calls; cold: its pages dropped before, warm: read "
    "before by the same way.",
    "Not in the time: declaring, making or opening a file with its view, closing it. All bytes have been compared.",
)


def head(figures: dict[str, Any]) -> Iterator[str]:
    """What was measured."""
    nodes = counted(len(figures["nodes"]), "node")
    yield f"{counted(figures['ranks'], 'rank')} on {nodes}, {figures['library']}"
    yield f"{figures['text']}: {format_bytes(figures['file_bytes'])}"


def table(figures: dict[str, Any]) -> Iterator[str]:
    """A row for each mode, a column for each way; below it what is not on the clock."""
    ways = figures["ways"]
    names = " | ".join(one["name"] for one in ways.values())
    yield f"| GB/s: median (min to max) | {names} | {OURS} is faster than MPI-IO by | than all by |"
    yield "|---|" + "--:|" * (len(ways) + 2)
    for cell in figures["cells"]:
        rates = [_rates(cell["seconds"].get(way), cell["file_bytes"]) for way in ways]
        gains = ["" if cell[key] is None else f"{cell[key]:.2f}" for key in ("gain_collective", "gain")]
        yield f"| {' | '.join([TEXTS[cell['mode']], *rates, *gains])} |"
    for text, key in (
        ("declare, ms", "seconds_declare"),
        ("create, set size and view, ms", "seconds_create"),
        ("open and set view, ms", "seconds_open"),
        ("close, ms", "seconds_close"),
    ):
        if any(key in one for one in ways.values()):
            yield f"| {' | '.join([text, *(_milliseconds(one.get(key)) for one in ways.values()), '', ''])} |"
    memory = [_memory(one) for one in ways.values()]
    yield f"| {' | '.join(['memory of a rank beside its data: mean (most)', *memory, '', ''])} |"
    yield ""


def remarks(figures: dict[str, Any]) -> Iterator[str]:
    """Cells that are not faster, and reads that were not as cold as they should be."""
    for cell in figures["cells"]:
        if cell["gain"] is not None and cell["gain"] < 1:
            yield not_faster(figures, cell)
        if cell["mode"] == "read-cold" and cell["cached_most"] is None:
            yield f"{_where(figures, cell)}: the system does not say whether the file was cold."
        elif cell["mode"] == "read-cold" and cell["cached_most"] > COLD_SHARE_MOST:
            yield f"{_where(figures, cell)}: up to {cell['cached_most']:.0%} of the file were still in the page cache."


def not_faster(figures: dict[str, Any], cell: dict[str, Any]) -> str:
    """By how much, whether the spreads overlap, and what held it back, by its own clocks."""
    ours, other = cell["seconds"][OURS], cell["seconds"][cell["best_other"]]
    inside = ours["min"] <= other["max"] and other["min"] <= ours["max"]
    name = figures["ways"][cell["best_other"]]["name"]
    text = f"{_where(figures, cell)}: {cell['gain']:.2f} of the speed of {name}"
    text += ", within the spread of the turns" if inside else ""
    known = cell["known"]
    if known.get("seconds"):
        storage, copying = known["seconds_storage"] / known["seconds"], known["seconds_copying"] / known["seconds"]
        text += f"; of its time storage has {storage:.0%} and copying {copying:.0%} at the rank with most of it"
    return text + "."


def summary(every: list[dict[str, Any]]) -> str:
    """In how many cells it is faster."""
    parts = []
    for key, others in (("gain_collective", "MPI-IO"), ("gain", "all others")):
        gains = [cell[key] for figures in every for cell in figures["cells"] if cell[key] is not None]
        if gains:
            faster = sum(gain >= 1 for gain in gains)
            parts.append(f"than {others} in {faster} of {counted(len(gains), 'cell')}, the least {min(gains):.2f}")
    return f"{OURS} is as fast or faster {'; '.join(parts)}." if parts else "Nothing was compared."


def _where(figures: dict[str, Any], cell: dict[str, Any]) -> str:
    return f"{figures['workload']}, {counted(figures['ranks'], 'rank')}, {TEXTS[cell['mode']]}"


def _rates(seconds: dict[str, Any] | None, file_bytes: int) -> str:
    if seconds is None:
        return ""
    middle, least, most = (file_bytes / seconds[key] / 1e9 for key in ("median", "max", "min"))
    return f"{middle:.3g} ({least:.3g} to {most:.3g})"


def _milliseconds(seconds: dict[str, Any] | float | None) -> str:
    if seconds is None:
        return ""
    return f"{(seconds if isinstance(seconds, float) else seconds['median']) * 1e3:.3g}"


def _memory(way: dict[str, Any]) -> str:
    mean, most = way["memory_mean_bytes"], way["memory_max_bytes"]
    return "not known" if mean is None else f"{format_bytes(mean)} ({format_bytes(most)})"
