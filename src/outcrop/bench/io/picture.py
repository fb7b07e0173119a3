"""The figures of `outcrop bench io` as a picture: bandwidth over access size, over queue depth, and beyond memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.bench.io.table import TITLES, Figures, memory_of, pattern_of
from outcrop.paths import make_directory
from outcrop.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PATTERNS = ("sequential read", "sequential write", "random read", "random write")
COLORS = {"io_uring": "#e07b39", "libaio": "#c9b458", "threads": "#4c8c6b", "buffered": "#7f9db9", "mmap": "#8e6c8a",
          "load/store": "#333333"}  # fmt: skip
DASHED = ("device",)
XLABELS = {"sizes": "access", "depths": "in flight", "cached": "access", "raw": "access", "beyond": ""}


def draw(figures: dict[str, Any], output: Path) -> None:
    """Write the picture to `output` as PNG: a row for each part, a column for each pattern."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    parts = [part for part in TITLES if part in figures]
    figure = Figure(figsize=(16, 3.6 * len(parts)), layout="constrained")
    grid = figure.subplots(len(parts), len(PATTERNS), squeeze=False)
    for part, row in zip(parts, grid, strict=True):
        for pattern, axes in zip(PATTERNS, row, strict=True):
            chosen = [one for one in figures[part] if pattern_of(one) == pattern]
            if not chosen:
                axes.set_axis_off()
                continue
            if part == "beyond":
                _bars(axes, chosen)
            else:
                _lines(axes, chosen, "depth" if part == "depths" else "request_bytes")
            axes.set(title=f"{part}: {pattern}", ylabel="MB/s", xlabel=XLABELS[part])
    machine = figures["machine"]
    figure.suptitle(f"{machine['storage']}; {machine['processor']}, {machine['threads']} threads")
    make_directory(output.absolute().parent)
    figure.savefig(output, dpi=100, format="png")


def _lines(axes: Axes, chosen: Figures, key: str) -> None:
    """One line for each interface, of the device itself dashed."""
    lines = {(one["interface"], one.get("of", "")) for one in chosen}
    for name, of in sorted(lines, key=lambda line: (list(COLORS).index(line[0]), line[1])):
        line = [one for one in chosen if (one["interface"], one.get("of", "")) == (name, of)]
        axes.plot(
            [one[key] for one in line],
            [one["bytes_per_second"] / 1e6 for one in line],
            marker="o",
            color=COLORS[name],
            linestyle="--" if of in DASHED else "-",
            label=f"{name}, {of}" if of else name,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    places = sorted({one[key] for one in chosen})
    axes.set_xticks(places, [format_bytes(one) if key == "request_bytes" else str(one) for one in places], rotation=45)
    axes.legend(frameon=False, fontsize=7)


def _bars(axes: Axes, chosen: Figures) -> None:
    """Two bars for each interface: with memory for all, and with less (hatched), or not, where none can be limited."""
    names = list(dict.fromkeys(one["interface"] for one in chosen))
    for one in chosen:
        is_limited = one["wanted_limit_bytes"] is not None
        place = names.index(one["interface"]) + (0.2 if is_limited else -0.2)
        axes.bar(place, one["bytes_per_second"] / 1e6, 0.4, color=COLORS[one["interface"]], edgecolor="white",
                 hatch="//" if is_limited else None, label=memory_of(one))  # fmt: skip
    axes.set_yscale("log")
    axes.margins(y=0.25)
    axes.set_xticks(range(len(names)), names)
    handles, labels = axes.get_legend_handles_labels()
    each = dict(zip(labels, handles, strict=True))  # of all bars with one label the last
    axes.legend(each.values(), each.keys(), frameon=False, fontsize=7, loc="upper left")
