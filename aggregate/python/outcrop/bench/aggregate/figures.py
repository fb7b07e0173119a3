"""Compute medians, spreads and comparisons of ways from measured times. Show the results as tables and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from outcrop.bench.aggregate.job import MODES
from outcrop.paths import make_directory
from outcrop.units import counted, format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS = "outcrop"
MAX_COLD_SHARE = 0.01
"""A file counts as cold if at most this share of its pages is in the page cache."""
TEXTS = {mode.name: mode.text for mode in MODES}
NOTES = (
    "Times are those of the slowest rank, from barrier to barrier. The ways are measured alternately. Each write makes "
    "a file of its full size. A durable write includes the flush.",
    "All ways read the same file, which each rank has written with its own calls. Before a cold read, the file's pages "
    "are dropped from the page cache. Before a warm read, the same way has read the file once.",
    "The times do not include declaring, opening and closing. All bytes read were compared with the bytes written.",
)
COLORS = {"outcrop": "#e07b39", "posix": "#7f9db9"}
OTHERS = ("#4c8c6b", "#c9b458", "#8e6c8a", "#333333")
"""The colors of the implementations of MPI-IO, in the order in which a picture shows them."""


def of_programs(programs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures of each workload. `programs` has the figures of all programs that share a schedule."""
    return [_of_workload([program["workloads"][i] for program in programs], programs)
            for i in range(len(programs[0]["workloads"]))]  # fmt: skip


def _of_workload(parts: Sequence[dict[str, Any]], programs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    declared = {way: part["declared"][way] for part, one in zip(parts, programs, strict=True) for way in one["own"]}
    records = [record for part in parts for record in part["measured"]]
    ways = list(dict.fromkeys(way for one in programs for way in one["own"]))
    first = parts[0]
    return {
        "ranks": programs[0]["ranks"],
        "nodes": programs[0]["nodes"],
        "library": programs[0]["library"],
        "workload": first["workload"],
        "text": first["text"],
        "file_bytes": first["file_bytes"],
        "ways": {way: _of_way(way, declared[way], records) for way in ways},
        "cells": [
            cell(mode.name, [record for record in records if record["mode"] == mode.name], first["file_bytes"])
            for mode in MODES
            if any(record["mode"] == mode.name for record in records)
        ],
    }


def _of_way(way: str, declared: dict[str, Any], records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    own = [record for record in records if record["way"] == way]
    kinds = {"create": [one for one in own if one["mode"].startswith("write")],
             "open": [one for one in own if one["mode"].startswith("read")]}  # fmt: skip
    return {
        **declared,
        "name": name_of(way, declared["implementation"]),
        **{f"seconds_{kind}": spread(one["seconds_set_up"] for one in some) for kind, some in kinds.items() if some},
        "seconds_close": spread(one["seconds_close"] for one in own),
    }


def cell(mode: str, records: Sequence[dict[str, Any]], file_bytes: int) -> dict[str, Any]:
    """Return the figures of all ways for one mode of a workload. `gain` is the median speed of Outcrop divided by the
    median speed of the fastest other way. `gain_collective` compares Outcrop only with the fastest MPI-IO. A gain is
    None if one of the two compared speeds was not measured.
    """
    ways = list(dict.fromkeys(sorted(record["way"] for record in records)))
    by_way = {way: [record for record in records if record["way"] == way] for way in ways}
    seconds = {way: spread(record["seconds"] for record in some) for way, some in by_way.items()}
    medians = {way: one["median"] for way, one in seconds.items()}
    ours = medians.pop(OURS, None)
    collective = [seconds_way for way, seconds_way in medians.items() if way.startswith("mpi-io")]
    cached = [record["cached_before"] for record in records if record["cached_before"] is not None]
    return {
        "mode": mode,
        "file_bytes": file_bytes,
        "seconds": seconds,
        "best_other": min(medians, key=medians.__getitem__, default=None),
        "gain": min(medians.values()) / ours if ours and medians else None,
        "gain_collective": min(collective) / ours if ours and collective else None,
        "cached_most": max(cached, default=None),
        "cached_least": min(cached, default=None),
        "known": _medians([record["known"] for record in by_way.get(OURS, [])]),
    }


def spread(values: Iterable[float]) -> dict[str, Any]:
    """Return the minimum, the median and the maximum of `values`, and all values in the given order."""
    every = list(values)
    return {"min": min(every), "median": median(every), "max": max(every), "all": every}


def name_of(way: str, implementation: str | None) -> str:
    """Return the name of a way as tables show it. The name of an MPI-IO way contains the implementation of MPI-IO."""
    return f"{implementation} ({way})" if implementation else way


def _medians(known: Sequence[dict[str, float]]) -> dict[str, float]:
    names = known[0] if known else {}
    return {name: median(one[name] for one in known) for name in names}


def head(figures: dict[str, Any]) -> Iterator[str]:
    """Yield lines that describe the measurement."""
    nodes = counted(len(figures["nodes"]), "node")
    yield f"{counted(figures['ranks'], 'rank')} on {nodes}, {figures['library']}"
    yield f"{figures['text']}: {format_bytes(figures['file_bytes'])}"


def table(figures: dict[str, Any]) -> Iterator[str]:
    """Yield a table in Markdown, with a row for each mode and a column for each way. The last rows show the memory, and
    the times that do not belong to the measured speeds.
    """
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
    yield f"| {' | '.join(['additional memory of a rank: mean (maximum)', *memory, '', ''])} |"
    yield ""


def remarks(figures: dict[str, Any]) -> Iterator[str]:
    """Yield a remark for each table cell in which Outcrop is slower than another way. Also yield a remark for each cold
    read of a file that was partly in the page cache.
    """
    for cell in figures["cells"]:
        if cell["gain"] is not None and cell["gain"] < 1:
            yield not_faster(figures, cell)
        if cell["mode"] == "read-cold" and cell["cached_most"] is None:
            yield f"{_where(figures, cell)}: the system does not report whether the file was in the page cache."
        elif cell["mode"] == "read-cold" and cell["cached_most"] > MAX_COLD_SHARE:
            yield f"{_where(figures, cell)}: up to {cell['cached_most']:.0%} of the file were still in the page cache."


def not_faster(figures: dict[str, Any], cell: dict[str, Any]) -> str:
    """Return a remark about a table cell in which Outcrop is slower than another way. The remark contains the ratio of
    the speeds, and says whether the spreads overlap. The remark also says which shares of a rank's time storage and
    copying take.
    """
    ours, other = cell["seconds"][OURS], cell["seconds"][cell["best_other"]]
    inside = ours["min"] <= other["max"] and other["min"] <= ours["max"]
    name = figures["ways"][cell["best_other"]]["name"]
    text = f"{_where(figures, cell)}: {cell['gain']:.2f} of the speed of {name}"
    text += ", within the spread of the turns" if inside else ""
    known = cell["known"]
    if known.get("seconds"):
        storage, copying = known["seconds_storage"] / known["seconds"], known["seconds_copying"] / known["seconds"]
        text += f"; storage takes up to {storage:.0%} of the time of a rank, and copying up to {copying:.0%}"
    return text + "."


def summary(every: list[dict[str, Any]]) -> str:
    """Return a line that says in how many table cells Outcrop is at least as fast as the other ways."""
    parts = []
    for key, others in (("gain_collective", "MPI-IO"), ("gain", "all others")):
        gains = [cell[key] for figures in every for cell in figures["cells"] if cell[key] is not None]
        if gains:
            faster = sum(gain >= 1 for gain in gains)
            parts.append(f"than {others} in {faster} of {counted(len(gains), 'cell')}, the minimum is {min(gains):.2f}")
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


def draw(every: list[dict[str, Any]], output: Path) -> None:
    """Draw the figures as bars, and write the picture to the PNG file `output`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    ranks = list(dict.fromkeys(one["ranks"] for one in every))
    workloads = list(dict.fromkeys(one["workload"] for one in every))
    figure = Figure(figsize=(5 * len(workloads) + 1, 3.2 * len(ranks)), layout="constrained")
    grid = figure.subplots(len(ranks), len(workloads), squeeze=False)
    for figures in every:
        axes = grid[ranks.index(figures["ranks"])][workloads.index(figures["workload"])]
        _bars(axes, figures)
        axes.set(title=f"{figures['workload']}, ranks: {figures['ranks']}", ylabel="GB/s: median, min to max")
    figure.suptitle(every[0]["library"], fontsize=9)
    make_directory(output.absolute().parent)
    figure.savefig(output, dpi=120, format="png")


def _bars(axes: Axes, figures: dict[str, Any]) -> None:
    cells, ways = figures["cells"], list(figures["ways"])
    width, others = 0.8 / len(ways), iter(OTHERS)
    for number, way in enumerate(ways):
        color = COLORS.get(way) or next(others)
        for place, cell in enumerate(cells):
            seconds = cell["seconds"][way]
            least, middle, most = (cell["file_bytes"] / seconds[key] / 1e9 for key in ("max", "median", "min"))
            axes.bar(
                place + (number - (len(ways) - 1) / 2) * width, middle, width, color=color, capsize=2,
                yerr=([middle - least], [most - middle]), label=figures["ways"][way]["name"] if place == 0 else None,
            )  # fmt: skip
    axes.set_xticks(range(len(cells)), [TEXTS[cell["mode"]].replace(", ", ",\n") for cell in cells], fontsize=8)
    axes.legend(frameon=False, fontsize=7)
