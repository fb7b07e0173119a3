"""The picture of `outcrop plan --draw`: one pass in space and time, the cache tiles of a slab, and a time line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.plan.cost import Span
from outcrop.plan.draw import Patch, drawn_zeta, regions_of, slab_patches, tile_patches, time_line
from outcrop.plan.schemes import EVERY_SCHEME
from outcrop.units import counted, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from outcrop.plan.plan import Sizes
    from outcrop.plan.planner import Planned
    from outcrop.plan.problem import Problem

WAVE_COLORS = ("#b7c9d9", "#7f9db9")
LANES = {"read": "#4c8c6b", "update": "#e07b39", "write": "#6c757d", "flush": "#333333"}
RANK_LANES = {"send": "#8a6fae", "receive": "#5b7fbf"}
"""The colours of the rows of the time line that show exchanges with neighbouring ranks."""
TILES_SHOWN = 6
"""The maximum number of tiles that the picture shows in each direction. More tiles would show nothing new, because all
tiles have the same shape."""


def draw(planned: Planned) -> Figure:
    from matplotlib.figure import Figure

    problem, plan, one = planned.problem, planned.plan, planned.plan.passes[0]
    sizes = plan.sizes
    figure = Figure(figsize=(10, 10), layout="constrained")
    space, tiles, line = figure.subplots(3, 1, height_ratios=(3, 3, 1.2))

    slabs = counted(one.slab, "row" if problem.ndim == 2 else "plane")
    _patches(space, slab_patches(problem, one))
    space.set(
        xlabel="row y" if problem.ndim == 2 else "plane z",
        ylabel="level",
        xlim=(0, problem.planes),
        ylim=(0, one.levels + 1),
        title=f"{plan.scheme}: slabs of {slabs}; levels in a pass: {one.levels}, passes: {len(plan.passes)}",
    )

    levels = min(one.levels, TILES_SHOWN * max(1, sizes.diamond))
    regions = regions_of(one) if EVERY_SCHEME[plan.scheme].shared_levels is not None else ()
    _patches(tiles, tile_patches(problem, sizes, levels, regions))
    tiles.set(ylabel="level", ylim=(0, levels + 1))
    (_label_chunks if sizes.chunk else _label_rows)(tiles, problem, sizes, levels)
    if regions and not sizes.chunk:
        tiles.set_xlim(left=0)  # the rank holds no rows of its lower neighbour, so the picture begins at row 0

    for axes in (space, tiles):
        axes.yaxis.get_major_locator().set_params(integer=True)
    lanes = {**LANES, **RANK_LANES} if problem.is_part else LANES
    _lanes(line, time_line(plan, one, planned.machine), lanes)
    line.set(xlabel="seconds", title=f"one pass; the whole run takes about {format_seconds(plan.predicted.seconds)}")
    head = f"{problem.stencil} {' x '.join(map(str, problem.own_shape[::-1]))} {problem.dtype}, {problem.steps} steps"
    figure.suptitle(head)
    return figure


def _label_rows(axes: Axes, problem: Problem, sizes: Sizes, _: int) -> None:
    rows = 2 * problem.skew_y * sizes.diamond if sizes.diamond else sizes.sweep_rows
    low, high = problem.halo(sizes.levels)
    first = -low
    axes.set(
        xlabel="row y",
        xlim=(first, min(problem.shape[1] + high, first + TILES_SHOWN * rows)),
        title=f"a slab cut for the cache: diamonds of {rows} rows" if sizes.diamond else f"sweeps of {rows} rows",
    )


def _label_chunks(axes: Axes, problem: Problem, sizes: Sizes, levels: int) -> None:
    zeta, plane = drawn_zeta(problem, sizes, levels), "row" if problem.ndim == 2 else "plane"
    low = max(0, zeta - problem.skew_z * (levels - 1))
    high = min(problem.planes, zeta + min(sizes.slab, TILES_SHOWN * sizes.chunk))
    what = f"bands of {2 * sizes.diamond} levels" if sizes.diamond else "sweeps"
    axes.set(
        xlabel="row y" if problem.ndim == 2 else "plane z",
        xlim=(low, max(low + 1, high)),
        title=f"a slab cut for the cache: {what} in chunks of {counted(sizes.chunk, plane)}",
    )


def _patches(axes: Axes, patches: tuple[Patch, ...]) -> None:
    from matplotlib.collections import PolyCollection

    colors = [WAVE_COLORS[patch.wave % len(WAVE_COLORS)] for patch in patches]
    corners = [patch.corners for patch in patches]
    axes.add_collection(PolyCollection(corners, facecolors=colors, edgecolors="white", lw=0.6))


def _lanes(axes: Axes, spans: tuple[Span, ...], lanes: dict[str, str]) -> None:
    for lane, (what, color) in enumerate(lanes.items()):
        bars = [(span.start, span.end - span.start) for span in spans if span.what == what]
        axes.broken_barh(bars, (lane - 0.4, 0.8), facecolors=color, edgecolors="white", lw=0.3)
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.invert_yaxis()
