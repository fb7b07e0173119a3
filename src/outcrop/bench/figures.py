"""What benchmarks share in what they print, write and draw: the machine, Markdown tables, pictures."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.paths import make_directory, nearest_existing
from outcrop.tiers import discover
from outcrop.tiers.storage_tiers import mount_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def describe_machine(directory: Path, threads: int) -> dict[str, Any]:
    """The processor, memory and storage that figures are of."""
    mount = mount_of(nearest_existing(directory))
    caches = discover.caches()
    return {
        "processor": discover.processor_name(),
        "threads": threads,
        "second_level_cache_bytes": caches.second_bytes,
        "last_level_cache_bytes": caches.last_bytes,
        "memory_bytes": discover.memory_bytes(),
        "storage": f"{mount.source} {mount.type} on {mount.point}",
        "system": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
    }


def machine_line(figures: dict[str, Any]) -> str:
    """The machine of figures in one line."""
    return ", ".join(f"{key} {value}" for key, value in figures["machine"].items())


def table_row(cells: Iterable[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def table_head(heads: Iterable[str], numbers: bool = True) -> list[str]:
    """The first two lines of a Markdown table; `numbers` are aligned to the right, but for the first column."""
    every = list(heads)
    return [table_row(every), "|---|" + ("--:|" if numbers else "---|") * (len(every) - 1)]


def new_picture(width: float, height: float) -> Figure:
    """An empty picture, in inches, that needs no display."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_picture(picture: Figure, output: Path, dpi: int = 120) -> None:
    """Write a picture to `output` as PNG, and make its directory."""
    make_directory(output.absolute().parent)
    picture.savefig(output, dpi=dpi, format="png")
