"""The ladder as a picture: times of all columns, where their time goes, and speed over memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.bench.figures import new_picture, save_picture
from outcrop.bench.literature.ladder import HEADS
from outcrop.bench.literature.ladder_columns import COMPONENTS
from outcrop.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IN_CORE, OUT_OF_CORE = "#7f9db9", "#e07b39"
COLORS = ("#e07b39", "#4c8c6b", "#7f9db9", "#c9b458", "#8e6c8a", "#333333")
"""One for each of COMPONENTS."""
BAR = 0.38
"""Width of a bar; two of them stand beside each other."""


def draw(figures: dict[str, Any], output: Path) -> None:
    """Write the picture to `output` as PNG."""
    picture = new_picture(11, 13)
    times, parts, speed = picture.subplots(3, 1, height_ratios=(3, 3, 2))
    _times(times, figures)
    _parts(parts, figures)
    _speed(speed, figures)
    nz, ny, nx = figures["shape"]
    both, budget = figures["both_arrays_bytes"], figures["memory_budget_bytes"]
    picture.suptitle(
        f"heat7 {nx} x {ny} x {nz} float32, {figures['steps']} steps; both arrays {format_bytes(both)}, "
        f"out of core in {format_bytes(budget)}"
    )
    save_picture(picture, output)


def _times(axes: Axes, figures: dict[str, Any]) -> None:
    """Figure 4: two bars a column, against the fastest one in core; scaled ones hatched."""
    for offset, key, color in ((-BAR / 2, "in_core", IN_CORE), (BAR / 2, "out_of_core", OUT_OF_CORE)):
        for place, row in enumerate(figures[key]):
            if row["seconds"] is None:
                axes.annotate("not\nmeasured", (place + offset, 1), ha="center", va="bottom", fontsize=6, rotation=90)
                continue
            hatch = "//" if row["is_scaled"] else "xx" if not row["is_comparable"] else None
            bars = axes.bar(place + offset, row["relative_time"], BAR, color=color, hatch=hatch, edgecolor="white")
            axes.bar_label(bars, [f"{row['relative_time']:.3g}"], fontsize=7)
    axes.set_yscale("log")
    axes.margins(y=0.15)
    _name(axes, figures)
    axes.set(ylabel="time against the fastest in core", title="in core (left) and out of core (right); // scaled, "
             "xx memory not limited")  # fmt: skip


def _parts(axes: Axes, figures: dict[str, Any]) -> None:
    """Figures 8 and 9: the same bars by what their time went to, as shares of it."""
    for offset, key in ((-BAR / 2, "in_core"), (BAR / 2, "out_of_core")):
        for place, row in enumerate(figures[key]):
            below = 0.0
            for name, color in zip(COMPONENTS, COLORS, strict=True):
                share = (row[f"seconds_{name}"] or 0.0) / row["seconds"] if row["seconds"] else 0.0
                axes.bar(place + offset, share, BAR, below, color=color, edgecolor="white", linewidth=0.3)
                below += share
    _name(axes, figures)
    from matplotlib.patches import Patch

    handles = [Patch(color=color, label=HEADS[name]) for name, color in zip(COMPONENTS, COLORS, strict=True)]
    axes.legend(handles=handles, ncols=len(handles), loc="upper center", bbox_to_anchor=(0.5, -0.08), frameon=False)
    axes.set(ylabel="share of the time", ylim=(0, 1.02), title="where the time goes (one layer: in updates)")


def _speed(axes: Axes, figures: dict[str, Any]) -> None:
    """Figure 10: speed against the fastest in core, over memory."""
    rows = [row for row in figures["over_shares"] if row["seconds"]]
    for name in dict.fromkeys(row["name"] for row in rows):
        of = [row for row in rows if row["name"] == name]
        shares = [100 * row["memory_budget_bytes"] / figures["both_arrays_bytes"] for row in of]
        axes.plot(shares, [1 / row["relative_time"] for row in of], marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.invert_xaxis()
    shares = sorted({100 * row["memory_budget_bytes"] / figures["both_arrays_bytes"] for row in rows})
    axes.set_xticks(shares, [f"{share:.3g} %" for share in shares])
    axes.set(xlabel="memory against both arrays", ylabel="speed against the fastest in core", ylim=(0, None))
    axes.legend(frameon=False)


def _name(axes: Axes, figures: dict[str, Any]) -> None:
    names = [f"{row['number']}\n{row['name']}" for row in figures["in_core"]]
    axes.set_xticks(range(len(names)), names, fontsize=8)
