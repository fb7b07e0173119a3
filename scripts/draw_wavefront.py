"""Draw docs/wavefront.svg: one pass of the wavefront scheme in space (planes z) and time (levels).

    python scripts/draw_wavefront.py TARGET.svg

scripts/screens.py calls this program."""

import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

# With a fixed salt, the identifiers in the SVG file are the same in each call of this script.
matplotlib.rcParams["svg.hashsalt"] = "outcrop"
matplotlib.rcParams["svg.fonttype"] = "none"

LEVELS = 6
SLAB = 4  # number of planes in a slab
PLANES = 26
CURRENT = 3  # number of the slab that is being updated
DONE, NOW, LATER, DISK = "#b7c9d9", "#e07b39", "#eeeeee", "#6c757d"


def draw_cells(axes: Axes) -> None:
    """Draw one square for each plane at each level. The colour of a square shows whether its slab was updated, is being
    updated, or will be updated."""
    for level in range(1, LEVELS + 1):
        for z in range(PLANES):
            slab = (z + level - 1) // SLAB
            colour = DONE if slab < CURRENT else NOW if slab == CURRENT else LATER
            axes.add_patch(plt.Rectangle((z, level), 0.92, 0.86, facecolor=colour, edgecolor="none"))


def draw_disk(axes: Axes) -> None:
    """Draw the two copies on disk. In the picture, the pass reads the copy below level 1, and writes the copy above the
    last level."""
    read_to = (CURRENT + 2) * SLAB + 1
    written_to = CURRENT * SLAB - LEVELS + 1
    for z in range(PLANES):
        axes.add_patch(plt.Rectangle((z, -0.3), 0.92, 0.7, facecolor=DISK, alpha=1.0 if z < read_to else 0.3))
        alpha = 1.0 if z < written_to else 0.3
        axes.add_patch(plt.Rectangle((z, LEVELS + 1.5), 0.92, 0.7, facecolor=DISK, alpha=alpha))
    arrow = {"arrowstyle": "-|>", "color": "black", "lw": 1.3}
    axes.annotate("", (read_to - SLAB / 2, 1.0), (read_to - SLAB / 2, 0.35), arrowprops=arrow)
    axes.text(read_to + 0.2, 0.72, "read ahead", va="center")
    end = written_to + SLAB / 2
    axes.annotate("", (end, LEVELS + 1.6), (end, LEVELS + 0.9), arrowprops=arrow)
    axes.text(end + 0.5, LEVELS + 1.22, "written behind", va="center")


def draw_window(axes: Axes) -> None:
    """Draw the bracket over the planes that are in memory."""
    first, end = CURRENT * SLAB - LEVELS, (CURRENT + 2) * SLAB + 1
    axes.annotate("", (first, -0.85), (end, -0.85), arrowprops={"arrowstyle": "<->", "color": NOW, "lw": 1.6})
    axes.text((first + end) / 2, -1.35, "window: the planes in memory", ha="center", va="center", color=NOW)


def main() -> None:
    figure, axes = plt.subplots(figsize=(9, 3.9))
    draw_cells(axes)
    draw_disk(axes)
    draw_window(axes)
    for level in range(1, LEVELS + 1):
        axes.text(-0.5, level + 0.43, f"level {level}", ha="right", va="center", fontsize=9)
    axes.text(-0.5, 0.05, "disk, step n", ha="right", va="center", fontsize=9)
    axes.text(-0.5, LEVELS + 1.85, f"disk, step n + {LEVELS}", ha="right", va="center", fontsize=9)
    axes.text(PLANES, -0.85, "planes z \u2192", ha="right", va="center")
    axes.text((CURRENT + 1) * SLAB - 1.5, 4.43, "slab being updated", color=NOW, va="center")
    axes.set_xlim(-4.6, PLANES + 0.2)
    axes.set_ylim(-1.8, LEVELS + 2.5)
    axes.set_axis_off()
    figure.savefig(sys.argv[1], bbox_inches="tight", metadata={"Date": None})


main()
