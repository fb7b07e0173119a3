"""The table of `outcrop plan --explain`: the best candidates of the tuner, and why each lost."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from outcrop.plan.tuner import EQUALLY_FAST, Considered
from outcrop.units import format_bytes, format_seconds

SHOWN = 10


def show(considered: Sequence[Considered]) -> None:
    """Print the chosen plan and the best of the others."""
    table = Table(box=None, pad_edge=False)
    for name in ("scheme", "passes", "levels", "slab", "blocks", "D"):
        table.add_column(name, justify="left" if name == "scheme" else "right", no_wrap=True)
    for name in ("read", "written", "memory", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    chosen = considered[0]
    for one in considered[:SHOWN]:
        sizes, guess = one.sizes, one.predicted
        blocks = "x".join(str(size) for size in (sizes.block_z, sizes.block_y, sizes.block_x) if size) or "-"
        table.add_row(
            one.scheme, str(one.passes), str(sizes.levels), str(sizes.slab), blocks, str(sizes.diamond or "-"),
            format_bytes(guess.bytes_read), format_bytes(guess.bytes_written), format_bytes(guess.memory_bytes),
            format_seconds(guess.seconds), why_it_lost(one, chosen),
        )  # fmt: skip
    Console(soft_wrap=True, highlight=False).print(table)


def why_it_lost(one: Considered, chosen: Considered) -> str:
    """The largest reason for which a candidate was not taken; of two equally fast ones the smaller is."""
    if one is chosen:
        return "chosen"
    more = one.predicted.seconds - chosen.predicted.seconds
    if one.predicted.seconds <= EQUALLY_FAST * chosen.predicted.seconds:
        memory = one.predicted.memory_bytes - chosen.predicted.memory_bytes
        return f"as fast, but takes {format_bytes(memory)} more memory" if memory > 0 else "as fast"
    updates = one.predicted.seconds_update - chosen.predicted.seconds_update
    reasons = [
        (updates, f"updates take {format_seconds(updates)} more"),
        (more - updates, f"waits {format_seconds(more - updates)} more for the disk"),
    ]
    return max(reasons)[1]
