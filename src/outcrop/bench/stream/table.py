"""The figures of STREAM as a Markdown table, and what has to be known to read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outcrop.bench.stream.modes import LOOPS
from outcrop.units import counted, format_bytes


def head(figures: dict[str, Any]) -> Iterator[str]:
    """What is going to be measured."""
    tier, ranks, nodes = figures["tier"], figures["ranks"], len(figures["nodes"])
    where = counted(ranks, "rank") + f" on {counted(nodes, 'node')}, {counted(figures['threads'], 'thread')} each"
    yield f"STREAM, {where}, three arrays of {format_bytes(figures['array_bytes'])} of float64 a rank in each place"
    yield f"tier {tier['name']} ({tier['kind']}), {tier['where']}; flushed by {figures['primitive']}"


def table(figures: dict[str, Any]) -> Iterator[str]:
    """A row for each mode, a column for each loop; of ranks, too, where there are several."""
    for of in ("node", "rank") if figures["ranks"] > 1 else ("node",):
        heads = [f"GB/s of a {of}: median (min to max)", *(loop.name for loop in LOOPS), "triad, of DRAM's"]
        heads += ["slowest node"] if figures["ranks"] > 1 else []
        yield f"| {' | '.join(heads)} |"
        yield "|---|" + "--:|" * (len(heads) - 1)
        for mode in figures["modes"]:
            loops = mode["loops"]
            share = loops["triad"][of]["median"] / figures["modes"][0]["loops"]["triad"][of]["median"]
            cells = [mode["text"], *(_spread(loops[loop.name][of]) for loop in LOOPS), f"{share:.2g}"]
            cells += [loops["triad"]["slowest_node"]] if figures["ranks"] > 1 else []
            yield f"| {' | '.join(cells)} |"
        yield ""


def remarks(figures: dict[str, Any]) -> Iterator[str]:
    """What the table has no room for."""
    for mode in figures["modes"]:
        repeats = min(loop["repeats"] for loop in mode["loops"].values())
        said = [] if repeats == figures["repeats"] else [counted(repeats, "repeat")]
        if mode["array_bytes"] != figures["array_bytes"]:
            said.append(f"arrays of {_sizes(mode['array_bytes'])}, to end in time")
        if mode["mode"] == "individual":
            said.append(f"flushed {format_bytes(figures['flushed_at_once_bytes'])} at a time")
        if "flush" in mode["loops"]["triad"]:
            said.append(f"flush alone {mode['loops']['triad']['flush']['median'] / 1e9:.3g} GB/s a rank")
        if said:
            yield f"{mode['text']}: {'; '.join(said)}"
    for one in figures["not_measured"]:
        yield f"{one['text']}: not measured, {one['why']}"
    if figures["primitive"] == "msync":
        yield "Files are mapped through the page cache here: without a flush the figures are those of its memory."
    yield "All results are right." if figures["results_are_right"] else "RESULTS ARE WRONG."


def _spread(of: dict[str, float]) -> str:
    least, middle, most = (f"{of[key] / 1e9:.3g}" for key in ("min", "median", "max"))
    return f"{middle} ({least} to {most})"


def _sizes(array_bytes: int | list[int]) -> str:
    """One size, or the least and the most."""
    if isinstance(array_bytes, int):
        return format_bytes(array_bytes)
    return f"{format_bytes(min(array_bytes))} to {format_bytes(max(array_bytes))}"
