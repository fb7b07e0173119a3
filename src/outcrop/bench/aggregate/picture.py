"""The figures of `outcrop agg bench` as a picture: a row for each number of ranks, a column for each workload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.bench.aggregate.table import TEXTS
from outcrop.paths import make_directory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {"outcrop": "#e07b39", "posix": "#7f9db9"}
OTHERS = ("#4c8c6b", "#c9b458", "#8e6c8a", "#333333")
"""Of implementations of MPI-IO, one after the other."""


def draw(every: list[dict[str, Any]], output: Path) -> None:
    """Write the picture to `output` as PNG."""
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
