"""This module has the parts that benchmarks share: folders for files, the description of the machine, tables, and
pictures."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.errors import InputError
from outcrop.paths import made_directory, make_directory, nearest_existing
from outcrop.tiers import discover, measure
from outcrop.tiers.storage_tiers import mount_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from outcrop.language.stencil import Stencil

COLORS = {
    "update": "#e07b39", "read": "#4c8c6b", "write": "#6c757d", "copy": "#c9b458", "checksum": "#8e6c8a",
    "commit": "#333333", "send": "#8a6fae", "receive": "#d16ba5",
}  # fmt: skip
"""The colours of the kinds of work, in the pictures of benchmarks and plans. Nothing else has these colours."""


@contextmanager
def first_figures(name: str, small: bool, directory: Path, has_plans: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the first figures of a benchmark: the name of the benchmark and the machine. If `directory` is missing,
    `first_figures` makes this directory.

    A benchmark with plans (`has_plans`) that is not `small` first measures the device again, because the speed of a
    device can change from day to day.
    """
    with made_directory(directory):
        if has_plans and not small:
            measure.measure_afresh(directory)
        machine = describe_machine(directory, discover.available_cores())
        figures = {"benchmark": name, "small": small, "machine": machine}
        print(machine_line(figures))
        yield figures


@contextmanager
def new_folder(directory: Path) -> Iterator[Path]:
    """Make a new folder in `directory`. At the end of the `with` block, the new folder is removed."""
    with tempfile.TemporaryDirectory(prefix="outcrop-bench-", dir=directory) as folder:
        yield Path(folder)


def require_updates(stencil: Stencil, shape: Sequence[int], what: str = "") -> None:
    """Raise InputError if the grid of `shape` has no cells inside its fixed rim, so that there is nothing to measure.
    `what` is a text that is added to the name of the stencil."""
    radii = [*stencil.radii[: stencil.ndim - 1], stencil.radii[2]]  # a grid of two axes has no y
    if any(n <= 2 * radius for n, radius in zip(shape, radii, strict=True)):
        grid, least = (" x ".join(map(str, reversed(one))) for one in (shape, [2 * radius + 1 for radius in radii]))
        raise InputError(
            f"-n: {stencil.name}{what} updates no cell of a grid of {grid} cells; give at least {least} cells"
        )


def describe_machine(directory: Path, threads: int) -> dict[str, Any]:
    """Return a description of the processor, memory and storage of this machine."""
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
    return ", ".join(f"{key} {value}" for key, value in figures["machine"].items())


def table_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table_head(heads: Iterable[str], numbers: bool = True) -> list[str]:
    """Return the first two lines of a Markdown table: the names of the columns, and the line below. If `numbers` is
    true, all columns except the first column are right-aligned."""
    every = list(heads)
    return [table_row(every), "|---|" + ("--:|" if numbers else "---|") * (len(every) - 1)]


def new_picture(width: float, height: float) -> Figure:
    """Return an empty picture. `width` and `height` are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_picture(picture: Figure, output: Path, dpi: int = 120) -> None:
    """Write a picture to `output` as PNG, and make the directory of `output` if it is missing."""
    make_directory(output.absolute().parent)
    picture.savefig(output, dpi=dpi, format="png")
