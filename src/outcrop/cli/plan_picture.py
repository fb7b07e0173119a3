"""The picture of `outcrop plan --draw`: one pass in space and time, its blocks, the cache tiles of a slab, and a time
line. The first lines contain the same texts as the output of `outcrop plan`.

Each colour has one meaning. Slabs are blue, blocks are brown, and tiles are violet and green. The time line has the
colours of the benchmarks (bench/figures.py). Two shades of a colour only separate neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outcrop.bench.figures import COLORS
from outcrop.plan.cost import Span
from outcrop.plan.description import describe_scheme
from outcrop.plan.draw import Patch, block_patches, drawn_zeta, regions_of, slab_patches, tile_patches, time_line
from outcrop.plan.schemes import EVERY_SCHEME
from outcrop.units import counted, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from outcrop.plan.plan import Sizes
    from outcrop.plan.planner import Planned
    from outcrop.plan.problem import Problem

SLABS = ("#d5e2ee", "#a3bfd9")
BLOCKS = ("#efe3cd", "#d8bf95")
TILES = ("#d9cfe8", "#c5e0d0")
"""The colours of tiles. Neighbouring tiles of one colour can be updated at the same time."""
LANES = {what: COLORS[color] for what, color in
         {"read": "read", "update": "update", "write": "write", "flush": "commit"}.items()}  # fmt: skip
RANK_LANES = {what: COLORS[what] for what in ("send", "receive")}
"""The colours of the rows of the time line that show exchanges with neighbouring ranks."""
TILES_SHOWN = 6
"""The maximum number of tiles that the picture shows in each direction. More tiles would show nothing new, because all
tiles have the same shape."""
MIN_EDGE = 1 / 300
"""Bars of the time line that are shorter than this part of the time line have no edges, because edges would hide
them."""


def draw(planned: Planned) -> Figure:
    from matplotlib.figure import Figure

    problem, plan, one = planned.problem, planned.plan, planned.plan.passes[0]
    sizes = plan.sizes
    blocks, is_shared = block_patches(problem, one), EVERY_SCHEME[plan.scheme].shared_levels is not None
    has_blocks = len(blocks) > 1
    heights = (3, 2, 3, 1.2) if has_blocks else (3, 3, 1.2)
    figure = Figure(figsize=(10, 12 if has_blocks else 10), layout="constrained")
    space, *rest = figure.subplots(len(heights), 1, height_ratios=heights)
    tiles, line = rest[-2:]

    is_flat = problem.ndim == 2
    slabs = counted(one.slab, "row" if is_flat else "plane")
    _patches(space, slab_patches(problem, one), SLABS)
    space.set(
        xlabel="row y" if is_flat else "plane z",
        ylabel="level",
        xlim=(0, problem.planes),
        ylim=(0, one.levels + 1),
        title=f"slabs of {slabs}, from left to right; levels in a pass: {one.levels}",
    )
    if has_blocks:
        cut = rest[0]
        _patches(cut, blocks, BLOCKS)
        low, high = problem.halo(sizes.levels)
        order = "from right to left" if _begins(blocks[0]) > _begins(blocks[-1]) else "from left to right"
        what = f"{len(blocks)} regions of rows" if is_shared else f"{plan.blocks_per_pass} blocks, {order}"
        cut.set(
            xlabel="row y", ylabel="level", xlim=(-low, problem.shape[1] + high), ylim=(0, one.levels + 1), title=what
        )

    levels = min(one.levels, TILES_SHOWN * max(1, sizes.diamond))
    regions = regions_of(one) if is_shared else regions_of(one)[:1] if has_blocks else ()
    shown = tile_patches(problem, sizes, levels, regions)
    _patches(tiles, shown, TILES)
    tiles.set(ylabel="level", ylim=(0, levels + 1))
    (_label_chunks if sizes.chunk else _label_rows)(tiles, problem, sizes, levels)
    if has_blocks and not sizes.chunk and not is_shared:
        first = min((_begins(patch) for patch in shown), default=0)
        width = 2 * problem.skew_y * sizes.diamond or sizes.sweep_rows
        tiles.set_xlim(first, first + TILES_SHOWN * width)
    if is_shared and not sizes.chunk:
        tiles.set_xlim(left=0)  # the rank holds no rows of its lower neighbour, so the picture begins at row 0

    for axes in (space, *rest[:-1]):
        axes.yaxis.get_major_locator().set_params(integer=True)
    lanes = {**LANES, **RANK_LANES} if problem.is_part else LANES
    spans = time_line(plan, one, planned.machine)
    _lanes(line, spans, lanes)
    seconds = format_seconds(max((span.end for span in spans), default=0.0))
    run = format_seconds(plan.predicted.seconds)
    line.set(xlabel="seconds", title=f"one pass takes about {seconds}, and the whole run about {run}")
    head = f"{problem.stencil} {' x '.join(map(str, problem.own_shape[::-1]))} {problem.dtype}, {problem.steps} steps"
    figure.suptitle(f"{head}\n{describe_scheme(plan)}", fontsize="medium")
    return figure


def _begins(patch: Patch) -> float:
    """Return the lowest row of a patch."""
    return min(x for x, _ in patch.corners)


def _label_rows(axes: Axes, problem: Problem, sizes: Sizes, _: int) -> None:
    rows = 2 * problem.skew_y * sizes.diamond if sizes.diamond else sizes.sweep_rows
    low, high = problem.halo(sizes.levels)
    first = -low
    height = f"diamonds of {2 * sizes.diamond} levels and {rows} rows"
    axes.set(
        xlabel="row y",
        xlim=(first, min(problem.shape[1] + high, first + TILES_SHOWN * rows)),
        title=f"a slab cut for the cache: {height if sizes.diamond else f'sweeps of {rows} rows'}",
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


def _patches(axes: Axes, patches: Sequence[Patch], shades: Sequence[str]) -> None:
    from matplotlib.collections import PolyCollection

    colors = [shades[patch.wave % len(shades)] for patch in patches]
    corners = [patch.corners for patch in patches]
    axes.add_collection(PolyCollection(corners, facecolors=colors, edgecolors="white", lw=0.6))


def _lanes(axes: Axes, spans: tuple[Span, ...], lanes: dict[str, str]) -> None:
    end = max((span.end for span in spans), default=0.0)
    for lane, (what, color) in enumerate(lanes.items()):
        bars = [(span.start, span.end - span.start) for span in spans if span.what == what]
        is_fine = any(length < MIN_EDGE * end for _, length in bars)
        axes.broken_barh(bars, (lane - 0.4, 0.8), facecolors=color, edgecolors=color if is_fine else "white", lw=0.3)
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.invert_yaxis()
