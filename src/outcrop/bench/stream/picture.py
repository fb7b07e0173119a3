"""The figures of STREAM as a picture: a group of bars for each mode, from the least to the most of all nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outcrop.bench.stream.modes import LOOPS
from outcrop.paths import make_directory

COLORS = ("#7f9db9", "#4c8c6b", "#c9b458", "#e07b39")
"""One for each loop."""
BAR = 0.2


def draw(figures: dict[str, Any], output: Path) -> None:
    """Write the picture to `output` as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    modes = figures["modes"]
    for number, (loop, color) in enumerate(zip(LOOPS, COLORS, strict=True)):
        of = [mode["loops"][loop.name]["node"] for mode in modes]
        medians = [one["median"] / 1e9 for one in of]
        below = [(one["median"] - one["min"]) / 1e9 for one in of]
        above = [(one["max"] - one["median"]) / 1e9 for one in of]
        places = [place + (number - 1.5) * BAR for place in range(len(modes))]
        bars = axes.bar(places, medians, BAR, yerr=(below, above), color=color, capsize=2, label=loop.name)
        axes.bar_label(bars, [f"{value:.3g}" for value in medians], fontsize=6, padding=2)
    axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.set_xticks(range(len(modes)), [mode["text"].replace(", ", ",\n") for mode in modes], fontsize=8)
    tier = figures["tier"]
    axes.set(ylabel="GB/s of a node: median, min to max", title=f"STREAM on tier {tier['name']} ({tier['kind']}), "
             f"ranks: {figures['ranks']}, nodes: {len(figures['nodes'])}")  # fmt: skip
    axes.legend(ncols=len(LOOPS), frameon=False)
    make_directory(output.absolute().parent)
    figure.savefig(output, dpi=120, format="png")
