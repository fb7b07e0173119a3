"""Details of a plan: the tables of `outcrop plan --explain`, the advice below a plan, and the picture of
`outcrop plan --draw`.

The tables show the best candidates of the tuner, and the place (memory or disk) of each field that is only read. Each
row says why a candidate or a place was chosen, or why it was not chosen.

The advice below a plan is a plan of the same run with the longest axis of the grid as the streaming axis. The advice is
shown only if this order of the axes saves much time. The reason why a longer streaming axis can save time is as
follows. If the streaming axis is longer, the planes are smaller. Each level keeps a fixed number of planes in memory,
so more levels fit into memory if planes are smaller. If a pass has more levels, the run needs fewer passes, and reads
and writes the grid less often.

The picture shows one pass in space and time, the blocks of the pass, the cache tiles of a slab, and a time line. The
first lines of the picture contain the same texts as the output of `outcrop plan`. Each colour has one meaning. Slabs
are blue, blocks are brown, and tiles are violet and green. The time line has the same colours as the pictures of
benchmarks (bench/figures.py). Neighbouring slabs, blocks and tiles have different shades of one colour. The shade has
no other meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from outcrop.bench.figures import COLORS
from outcrop.plan.cost import Span, works_of
from outcrop.plan.description import (
    Patch,
    block_patches,
    describe_scheme,
    drawn_zeta,
    regions_of,
    slab_patches,
    tile_patches,
    time_line,
)
from outcrop.plan.machine import edge_factor
from outcrop.plan.placement import EQUALLY_FAST, PlacementRow, explained, place_of, table
from outcrop.plan.planner import make_plan, schemes_for
from outcrop.plan.schemes import EVERY_SCHEME
from outcrop.plan.tuner import estimate
from outcrop.run.disk.layout import make_layout
from outcrop.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from outcrop.plan.plan import Candidate, Plan, Sizes
    from outcrop.plan.planner import Planned
    from outcrop.plan.problem import Problem


SHOWN = 10
HEAD = ("scheme", "passes", "steps", "slab", "blocks", "D", "read", "written", "memory", "only read in", "time", "")

WAITING = 1.2
"""Another order of the axes is tried only if the plan takes more than WAITING times as long as its updates alone."""
WORTH_SAYING = 0.8
"""Another order of the axes is shown only if its time is at most this fraction of the plan's time."""


def show_candidates(planned: Planned) -> None:
    """Print the chosen plan, the best other candidates, the sizes that the user has given, and the fields that are only
    read."""
    considered, problem = planned.considered, planned.problem
    rows = [HEAD, *(_candidate_row(one, considered[0], problem) for one in considered[:SHOWN])]
    columns = [i for i in range(len(HEAD)) if problem.statics or HEAD[i] != "only read in"]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    for row in rows:
        cells = [row[i].ljust(widths[i]) if i in (0, len(HEAD) - 1) else row[i].rjust(widths[i]) for i in columns]
        print("  ".join(cells).rstrip())
    if planned.given:
        print(f"given, not chosen: {planned.given}")
    if found := only_read(planned):
        print("\n".join(["", *table("only read", found)]))


def only_read(planned: Planned) -> list[PlacementRow]:
    """Return a row for each field that is only read: its place (memory or disk), and the reason for this place.
    """
    considered = planned.considered
    may_stay = any(EVERY_SCHEME[one.scheme].keeps_statics for one in considered)
    return explained(planned.plan, considered, planned.machine, may_stay)


def _candidate_row(one: Candidate, chosen: Candidate, problem: Problem) -> tuple[str, ...]:
    sizes, guess = one.sizes, one.predicted
    blocks = "x".join(str(size) for size in (sizes.block_z, sizes.block_y, sizes.block_x) if size) or "-"
    numbers = one.passes, problem.steps_of(sizes.levels), sizes.slab, blocks, sizes.diamond or "-"
    sums = (format_bytes(count) for count in (guess.bytes_read, guess.bytes_written, guess.memory_bytes))
    seconds, why = format_seconds(guess.seconds), _why_not_chosen(one, chosen)
    return (one.scheme, *map(str, numbers), *sums, place_of(sizes), seconds, why)


def _why_not_chosen(one: Candidate, chosen: Candidate) -> str:
    """Return the main reason why a candidate was not chosen. If several candidates are equally fast, the tuner chooses
    the candidate that needs the least memory."""
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


def update_rate_of(plan: Plan) -> float:
    """Return the update rate that the prediction of a plan contains, in cells per second. If the plan updates no cell,
    return a large number. Cells of the rim in y and z are not updated, so they do not count."""
    cells, seconds = sum(work.cells for _, work in works_of(plan.problem, plan.passes)), plan.predicted.seconds_update
    return cells / seconds if seconds else 1e9


def advice(planned: Planned) -> str:
    """Return one line about an order of the axes with which the run is much faster, or "" if no such order exists. A
    plan for several ranks gets no advice, because ranks divide the y axis."""
    problem, plan, guess = planned.problem, planned.plan, planned.plan.predicted
    is_waiting = guess.seconds > WAITING * guess.seconds_update > 0
    if planned.given or problem.is_part or not is_waiting or problem.ndim == 1 or max(problem.shape) == problem.planes:
        return ""
    # the update rate of the plan in cells per second, without the additional time at the edges of slabs and blocks
    rate = update_rate_of(plan) * edge_factor(problem, plan.sizes)

    def roughly(one: Problem) -> float:
        schemes = schemes_for(one, plan.scheme)
        return estimate(one, schemes, planned.machine, planned.budget_bytes, rate)

    seconds, best = min(((roughly(one), one) for one in _reordered(problem)), key=lambda pair: pair[0])
    if not seconds < WORTH_SAYING * roughly(problem):  # the comparison is also false if both times are infinite
        return ""
    other = make_plan(
        best, planned.machine, planned.budget_bytes, plan.scheme, lambda sizes: rate / edge_factor(best, sizes)
    )
    if other.predicted.seconds > WORTH_SAYING * guess.seconds:
        return ""
    size, time = " x ".join(map(str, best.own_shape[::-1])), format_seconds(other.predicted.seconds)
    return f"another order of the axes is faster: as {size}, the run would take about {time}"


def _reordered(problem: Problem) -> Iterator[Problem]:
    """Yield the problem with its axes in each other order whose first axis is a longest axis."""
    own = [place for place in range(3) if problem.ndim == 3 or place != 1]
    for order in permutations(own):
        z, y, x = order if problem.ndim == 3 else (order[0], 1, order[-1])
        if problem.shape[z] < max(problem.shape):
            continue
        layout = make_layout((problem.shape[z], problem.shape[y], problem.shape[x]), problem.dtype)
        yield replace(
            problem,
            radii=(problem.radii[z], problem.radii[y], problem.radii[x]),
            sides=(problem.sides[z], problem.sides[y], problem.sides[x]),
            shape=layout.shape,
            pitch_bytes=layout.pitch_bytes,
            plane_bytes=layout.plane_bytes,
            record_bytes=layout.record_bytes,
        )


# --- picture ---------------------------------------------------------------------------------------------------------


SLABS = ("#d5e2ee", "#a3bfd9")
BLOCKS = ("#efe3cd", "#d8bf95")
TILES = ("#d9cfe8", "#c5e0d0")
"""The colours of tiles. Neighbouring tiles of one colour can be updated at the same time."""
LANES = {what: COLORS[color] for what, color in
         {"read": "read", "update": "update", "write": "write", "flush": "commit"}.items()}  # fmt: skip
LANE_LABELS = {"update": "update,\nchecksums"}
"""The texts of rows of the time line, if they differ from the kind of work. The cores compute the checksums, too."""
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
    """Return the lowest row that a patch of the picture covers."""
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
    axes.set_yticks(range(len(lanes)), [LANE_LABELS.get(what, what) for what in lanes])
    axes.invert_yaxis()
