"""The ladder as text: one line while it is measured, and Markdown tables of the figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outcrop.bench.ladder.entry import Entry
from outcrop.bench.ladder.job import COMPONENTS
from outcrop.units import format_bytes, format_rate, format_seconds

HEADS = {"update": "updates", "read_wait": "reads", "write_wait": "writes", "copy": "copies", "checksum": "checksums",
         "commit": "commits"}  # fmt: skip


def line_of(entry: Entry) -> str:
    """What is known of a bar so far, by its last run."""
    where = "in core" if entry.is_in_core else f"in {format_bytes(entry.budget_bytes)}"
    head = f"{entry.column.number:>2} {entry.column.name:<10} {where:<12}"
    if not entry.runs:
        return f"{head} {entry.trouble}"
    last = entry.runs[-1].measured
    said = f"{head} {format_seconds(last.seconds)} for {last.steps} steps, "
    said += f"{format_rate(last.cells_updated / last.seconds)}cell/s"
    return "; ".join([said, *(note for note in entry.notes if "scaled" not in note)])


def tables(figures: dict[str, Any]) -> Iterator[str]:
    """All tables, line by line."""
    both = figures["both_arrays_bytes"]
    share = f"{format_bytes(figures['memory_budget_bytes'])} ({100 * figures['memory_budget_bytes'] / both:.3g} %)"
    nz, ny, nx = figures["shape"]
    yield ""
    yield f"heat7 {nx} x {ny} x {nz} float32, {figures['steps']} steps; both arrays {format_bytes(both)}; out of core "
    yield f"in {share}. Times are against the fastest column in core, {figures['fastest_in_core_seconds']:.3g} s."
    yield ""
    yield from _ladder(figures)
    for key, title in (("in_core", "in core"), ("out_of_core", "out of core")):
        yield ""
        yield from _components(figures[key], title)
    yield ""
    yield from _shares(figures)
    yield ""
    yield "All columns give the same bits." if figures["same_bits"] else "THE COLUMNS DO NOT GIVE THE SAME BITS."


def _ladder(figures: dict[str, Any]) -> Iterator[str]:
    """Figure 4."""
    heads = "in core | out of core | grows | moved, GiB (predicted) | swapped, GiB | bx by bz, bt | notes"
    yield f"| # | column | layers | {heads} |"
    yield "|--:|---|--:|--:|--:|--:|--:|--:|---|---|"
    for inside, outside in zip(figures["in_core"], figures["out_of_core"], strict=True):
        times = [_relative(inside), _relative(outside), _growth(inside, outside)]
        notes = [f"in core: {note}" for note in inside["notes"]] + outside["notes"]
        cells = [str(inside["number"]), inside["name"], str(inside["layers"]), *times, *_moved(outside)]
        yield f"| {' | '.join([*cells, '; '.join(notes)])} |"


def _relative(row: dict[str, Any]) -> str:
    return "–" if row["seconds"] is None else f"{row['relative_time']:.2f}"


def _growth(inside: dict[str, Any], outside: dict[str, Any]) -> str:
    if inside["seconds"] is None or outside["seconds"] is None:
        return "–"
    return f"{outside['seconds'] / inside['seconds']:.2f}"


def _moved(row: dict[str, Any]) -> list[str]:
    """Bytes between memory and flash, swap, and sizes: of the first run, since all move the same."""
    if not row["runs"]:
        return ["–", "–", "–"]
    one = row["runs"][0]["measured"]
    gib = 1 << 30
    if row["layers"] == 2:
        moved = f"{(one['bytes_read'] + one['bytes_written']) / gib:.2f} "
        moved += f"({(one['predicted_bytes_read'] + one['predicted_bytes_written']) / gib:.2f})"
    else:
        moved = f"{(one['device_bytes_read'] + one['device_bytes_written']) / gib:.2f} (by the system)"
    swapped = (one["swapped_in_bytes"] + one["swapped_out_bytes"]) / gib
    block = " ".join(map(str, one["block"]))
    return [moved, f"{swapped:.2f}" if swapped >= 0.005 else "0", f"{block}, {one['levels']}"]


def _components(rows: list[dict[str, Any]], title: str) -> Iterator[str]:
    """Figures 8 and 9."""
    yield f"| seconds {title} | all | {' | '.join(HEADS[name] for name in COMPONENTS)} |"
    yield "|---|--:|" + "--:|" * len(COMPONENTS)
    for row in rows:
        if row["seconds"] is not None:
            parts = [f"{row[f'seconds_{name}']:.2f}" for name in COMPONENTS]
            yield f"| {row['number']} {row['name']} | {row['seconds']:.2f} | {' | '.join(parts)} |"


def _shares(figures: dict[str, Any]) -> Iterator[str]:
    """Figure 10: speed against the fastest in core, over memory."""
    rows = figures["over_shares"]
    budgets = sorted({row["memory_budget_bytes"] for row in rows}, reverse=True)
    names = list(dict.fromkeys(row["name"] for row in rows))
    shares = [f"{100 * one / figures['both_arrays_bytes']:.3g} %" for one in budgets]
    yield f"| memory against both arrays | {' | '.join(shares)} |"
    yield "|---|" + "--:|" * len(budgets)
    for name in names:
        of = {row["memory_budget_bytes"]: row for row in rows if row["name"] == name}
        speeds = [f"{1 / of[one]['relative_time']:.2f}" if of[one]["seconds"] else "–" for one in budgets]
        yield f"| {name}, speed | {' | '.join(speeds)} |"
