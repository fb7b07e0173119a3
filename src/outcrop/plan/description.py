"""Describe a plan in a few rows of text, and in shapes. `outcrop plan` and `print(sim.plan())` show the same rows.

The second half of this module computes the shapes that `outcrop plan --draw` shows. The shapes are lists of numbers,
so this module needs no graphics library.

`slabs`       The planes of each Update. One axis of the drawing is z, and the other axis is the level. At each level,
              the planes are one skew lower than at the previous level.
`blocks`      The rows that each block updates. One axis of the drawing is y, and the other axis is the level.
`tiles`       The cache tiles of a slab. One axis of the drawing is y, or z for grids with few rows. The other axis is
              the level.
`time line`   Transfers and updates over time, as plan/cost.py predicts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from outcrop.axes import NAMES, x_first
from outcrop.display import as_text
from outcrop.plan.actions import FAR, Bound, Update, UpdateRegion
from outcrop.plan.cost import Span, aside_seconds, cell_updates, timeline, work_of, works_of
from outcrop.plan.machine import Machine
from outcrop.plan.plan import Pass, Plan, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import EVERY_SCHEME
from outcrop.plan.staging import NO_WRITES, snapshots_of
from outcrop.units import counted, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from outcrop.plan.plan import Plan, Prediction
    from outcrop.plan.planner import Planned
    from outcrop.plan.problem import Problem


def title(problem: Problem, axes: Sequence[str] = ()) -> str:
    """Return a line with the stencil, the size of the grid, the number of steps and the boundary. `axes` contains the
    names of the axes if these differ from the names in Outcrop."""
    names = axes or NAMES[problem.ndim]
    size, steps = " x ".join(map(str, x_first(problem.own_shape, names))), counted(problem.steps, "step")
    return f"{problem.stencil} {size} {problem.dtype}, {steps}, boundary {problem.boundary_along(names)}"


def planned_rows(planned: Planned) -> list[tuple[str, str]]:
    """Return rows about a plan, a row with the speed of updates, and a row with the speed of the storage. The rows with
    speeds also name the origin of the speed."""
    plan, device = planned.plan, planned.machine.device
    seconds = plan.predicted.seconds_update
    rate = format_rate(_cells_updated(plan) / seconds if seconds else 0.0)
    reads, writes = format_rate(device.read_bytes_per_second), format_rate(device.write_bytes_per_second)
    return [
        *plan_rows(plan, f" of {format_bytes(planned.budget_bytes)}", f", {planned.thread_layout}", planned.axes),
        ("updates", f"{planned.updates_origin}: {rate}cell/s with these sizes{_because(planned, 'updates')}"),
        ("storage", f"{device.origin}: reads {reads}B/s, writes {writes}B/s{_because(planned, 'storage')}"),
    ]


def planned_text(
    planned: Planned, whole: Problem | None = None, before: Iterable[tuple[str, str]] = (),
    after: Iterable[tuple[str, str]] = (),
) -> str:  # fmt: skip
    """Return the title and all rows of a plan as text. If the plan is for one of several ranks, `whole` is the problem
    of the whole grid. The rows `before` and `after` are shown before and after the other rows."""
    return as_text(title(whole or planned.problem, planned.axes), [*before, *planned_rows(planned), *after])


def plan_rows(plan: Plan, budget: str = "", threads: str = "", axes: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return rows about a plan alone. The texts `budget` and `threads` become parts of the row about memory. `axes` has
    the same meaning as in `title`."""
    guess, fields, periodic = plan.predicted, _fields(plan.problem), _periodic(plan, axes)
    kept = f", and {format_bytes(plan.snapshot_bytes)} of snapshots" if plan.snapshot_bytes else ""
    return [
        *([("fields", fields)] if fields else []),
        *([("once", computed)] if (computed := "; ".join(plan.problem.computed_once)) else []),
        ("scheme", describe_scheme(plan)),
        ("memory", f"{format_bytes(plan.memory_bytes)}{budget}{_resident(plan)}{threads}"),
        *([("periodic", periodic)] if periodic else []),
        ("disk", _disk(plan) + kept),
        ("read", format_bytes(guess.bytes_read)),
        ("written", format_bytes(guess.bytes_written) + kept),
        (
            "time",
            f"about {format_seconds(guess.seconds)}: updates {format_seconds(guess.seconds_update)}"
            f"{_checksums(guess)}, meanwhile "
            f"reading {format_seconds(guess.seconds_read)} and writing {format_seconds(guess.seconds_write)}"
            f"{_commits(guess)}",
        ),
    ]


BLOCK_UNITS = {3: ("plane", "row", "column"), 2: ("row", "", "column"), 1: ("", "", "cell")}
"""The units of the sizes of a block along z, y and x, for each number of axes of the user's grid. The unit is "" if the
user's grid does not have the axis."""
SHARE_SHOWN = 0.03
"""The times of checksums and of commits are shown if they are at least this share of the time of a run."""


def _checksums(guess: Prediction) -> str:
    is_large = guess.seconds_checksum >= SHARE_SHOWN * guess.seconds > 0
    return f" and checksums {format_seconds(guess.seconds_checksum)}" if is_large else ""


def _commits(guess: Prediction) -> str:
    is_large = guess.seconds_commit >= SHARE_SHOWN * guess.seconds > 0
    return f", and commits {format_seconds(guess.seconds_commit)}" if is_large else ""


def describe_scheme(plan: Plan) -> str:
    """Return the scheme and the sizes of a plan in one line."""
    problem, sizes = plan.problem, plan.sizes
    first, last = (problem.steps_of(one.levels) for one in (plan.passes[0], plan.passes[-1]))
    passes = f"{counted(len(plan.passes), 'pass', 'es')} of {counted(first, 'step')}"
    if last != first:
        passes += f" (the last of {last})"
    slabs = counted(sizes.slab, "row" if problem.ndim == 2 else "plane")
    tiles = "bands" if sizes.chunk else "diamonds"
    blocking = f"{tiles} of {2 * sizes.diamond} levels" if sizes.diamond else "plain sweeps"
    if sizes.columns:
        blocking += f", ranges of {sizes.columns} columns"
    return f"{plan.scheme}: {passes}, {_blocks(plan)}slabs of {slabs}, {blocking}"


def _because(planned: Planned, figure: str) -> str:
    return f" ({planned.assumed[figure]})" if figure in planned.assumed else ""


def _fields(problem: Problem) -> str:
    if len(problem.fields) == 1 and problem.stages == 1 and problem.state_arrays == 1:
        return ""
    updated = sum(one.is_state for one in problem.fields)  # without the values of the forward run of an adjoint run
    older = problem.state_arrays - updated
    parts = [f"{updated} updated", f"{older} with previous values" * (older > 0)]
    parts += [f"{problem.statics} only read" * (problem.statics > 0), f"{problem.stages} stages" * (problem.stages > 1)]
    return ", ".join(part for part in parts if part)


def _resident(plan: Plan) -> str:
    """Return a text about the part of the window in which fields stay for the whole run, or "" if no such part
    exists."""
    if not plan.window.resident:
        return ""
    size = sum(ring.planes * ring.slot_bytes for ring in plan.window.resident)
    return f" ({format_bytes(size)} for all fields that are only read)"


def _periodic(plan: Plan, axes: Sequence[str]) -> str:
    """Return a text about the extra planes that a periodic streaming axis needs in the window, or "" if this axis is
    not periodic."""
    problem, sizes = plan.problem, plan.sizes
    if not problem.periodic[0] or not problem.radius_z:
        return ""
    mirrored = replace(problem, sides=(("mirror", "mirror"), *problem.sides[1:]))
    other = EVERY_SCHEME[plan.scheme].window(mirrored, sizes.levels, sizes)
    pairs = zip(plan.window.ring_planes, other.ring_planes, plan.window.copies, strict=True)
    more = sum((own - less) * copies for own, less, copies in pairs)
    axis, planes = (axes or NAMES[problem.ndim])[0], counted(more, "row" if problem.ndim == 2 else "plane")
    cost = f"{planes} more in the window ({format_bytes(plan.window.bytes - other.bytes)})"
    return f"{axis}, read from both ends alternately: {cost if more else 'the window holds the whole grid'}"


def _cells_updated(plan: Plan) -> float:
    """Return the number of cell updates of a run, counted as in the report of a run (`Engine.sample` in
    run/engine.py). A cell counts once for each step. The rim in y and z does not count. If the plan updates cells
    twice, for example rows of other ranks, these cells count twice."""
    problem = plan.problem
    cells = sum(work.cells for _, work in works_of(problem, plan.passes))
    return cells * problem.steps / max(1, problem.levels)


def _disk(plan: Plan) -> str:
    problem = plan.problem
    arrays = problem.state_arrays * (1 if problem.in_place else 2) + problem.statics + problem.unread_statics
    text = f"{format_bytes(arrays * problem.grid_bytes)} ({counted(arrays, 'array')})"
    return text + (f", and {format_bytes(plan.scratch_bytes)} during a pass" if plan.scratch_bytes else "")


def _blocks(plan: Plan) -> str:
    count, sizes = plan.blocks_per_pass, plan.sizes
    if count == 1:
        return ""
    along = zip((sizes.block_z, sizes.block_y, sizes.block_x), BLOCK_UNITS[plan.problem.ndim], strict=True)
    cuts = [counted(size, unit) for size, unit in along if size and unit]
    return f"{count} blocks of {' x '.join(cuts)}, "


# --- shapes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patch:
    """A patch of the drawing: the outline of a set of points (cell, level). The outline is a list of corners. Each
    corner is connected with the next corner. In the drawing, level t extends from t - 1/2 to t + 1/2.

    Patches with the same number `wave` can be updated at the same time.
    """

    corners: tuple[tuple[float, float], ...]
    wave: int


def slab_patches(problem: Problem, one: Pass) -> tuple[Patch, ...]:
    """Return one patch for each Update of a pass, in the coordinates (z, level). The patch shows which planes the
    Update updates at each level. If several blocks have Updates of the same planes, these Updates have only one patch.
    Each patch has its own value of `wave`."""
    patches: list[Patch] = []
    drawn: set[tuple[object, ...]] = set()
    for action in one.actions:
        if isinstance(action, Update):
            along_z = (action.zeta0, action.zeta1, action.levels, action.region.z_low, action.region.z_high)
            if along_z in drawn:  # an Update of another block already has a patch with these planes
                continue
            drawn.add(along_z)

            def planes(level: int, slab: Update = action) -> tuple[int, int]:
                back, region = problem.skew_z * (level - 1), slab.region
                low = max(problem.first_plane, slab.zeta0 - back, region.z_low.at(level))
                return low, min(problem.end_plane, slab.zeta1 - back, region.z_high.at(level))

            patches += _outline(range(1, action.levels + 1), planes, wave=len(patches))
    return tuple(patches)


def block_patches(problem: Problem, one: Pass) -> tuple[Patch, ...]:
    """Return one patch for each block of a pass, in the coordinates (y, level). The patch shows which rows the block
    updates at each level. Blocks that differ only in their planes or columns have only one patch. Each patch has its
    own value of `wave`."""
    bounds = dict.fromkeys((region.y_low, region.y_high) for region in regions_of(one))
    patches: list[Patch] = []
    for y_low, y_high in bounds:

        def rows(level: int, low: Bound = y_low, high: Bound = y_high) -> tuple[int, int]:
            return max(problem.first_row, low.at(level)), min(problem.end_row, high.at(level))

        patches += _outline(range(1, one.levels + 1), rows, wave=len(patches))
    return tuple(patches)


def regions_of(one: Pass) -> tuple[UpdateRegion, ...]:
    """Return the regions of the Updates of a pass. Equal regions are returned only once."""
    return tuple(dict.fromkeys(action.region for action in one.actions if isinstance(action, Update)))


def tile_patches(
    problem: Problem, sizes: Sizes, levels: int, regions: Sequence[UpdateRegion] = ()
) -> tuple[Patch, ...]:
    """Return one patch for each tile of a slab. The tiles are equal to the tiles of core/outcrop/exec/tiles.hpp.
    Usually, a tile has a part of the rows of each plane, and the patches are in the coordinates (y, level). If
    `Sizes.chunk` is not 0, a tile has all rows of some of the planes, and the patches are in the coordinates (z,
    level). These patches show the slab that begins at `drawn_zeta`. If ranks share updates, `regions` contains the
    regions that a rank updates."""
    if sizes.chunk:
        return _chunk_patches(problem, sizes, levels)
    if regions:
        return tuple(patch for region in regions for patch in _row_patches(problem, sizes, levels, region))
    halo_low, halo_high = problem.halo(sizes.levels)
    radius, rows = problem.radius_y, problem.shape[1]
    region = UpdateRegion(
        y_low=Bound(-halo_low, radius * (halo_low > 0)), y_high=Bound(rows + halo_high, -radius * (halo_high > 0))
    )
    return _row_patches(problem, sizes, levels, region)


def _row_patches(problem: Problem, sizes: Sizes, levels: int, region: UpdateRegion) -> tuple[Patch, ...]:
    lows, highs = ([bound.at(level) for level in (0, levels)] for bound in (region.y_low, region.y_high))
    lowest = 0 if region.y_low.at_zero == -FAR else min(lows)
    highest = problem.shape[1] if region.y_high.at_zero == FAR else max(highs)

    def updated(level: int, y0: int, y1: int) -> tuple[int, int]:
        """Return the rows that a level updates among the rows y0 <= y < y1."""
        first, end = max(problem.first_row, region.y_low.at(level)), min(problem.end_row, region.y_high.at(level))
        return max(first, y0), min(end, y1)

    patches: list[Patch] = []
    if sizes.diamond == 0:
        for level in range(1, levels + 1):
            for low in range(lowest, highest, sizes.sweep_rows):

                def block(level: int, low: int = low) -> tuple[int, int]:
                    return updated(level, low, low + sizes.sweep_rows)

                patches += _outline(range(level, level + 1), block, wave=level)
        return tuple(patches)
    half = problem.skew_y * sizes.diamond
    # If an edge of the region has the slope of the tiles, a tile begins at the edge (rows_down in exec/traverse.cpp).
    edge = region.y_low if region.y_low.slope else region.y_high
    anchor = edge.at_zero - half if edge.slope == -problem.skew_y else lowest
    for wave in range((levels - 1) // sizes.diamond + 2):
        middle = wave * sizes.diamond
        span = range(max(1, middle - sizes.diamond + 1), min(levels, middle + sizes.diamond - 1) + 1)
        begin = anchor + half * (wave % 2)
        begin -= -(-(begin - lowest) // (2 * half)) * 2 * half  # the last tile centre that is not above row `lowest`
        for y in range(begin, min(highest, problem.end_row) + half, 2 * half):

            def rows_at(level: int, y: int = y, middle: int = middle) -> tuple[int, int]:
                reach = half - problem.skew_y * abs(level - middle)
                return updated(level, y - reach, y + reach)

            patches += _outline(span, rows_at, wave)
    return tuple(patches)


def drawn_zeta(problem: Problem, sizes: Sizes, levels: int) -> int:
    """Return the value of zeta at which the drawn slab begins. The drawn slab is the first slab that updates planes of
    the grid at the last level, `levels`."""
    return max(0, problem.first_plane) + problem.skew_z * (levels - 1) // sizes.slab * sizes.slab


def _chunk_patches(problem: Problem, sizes: Sizes, levels: int) -> tuple[Patch, ...]:
    patches: list[Patch] = []
    height, begin = max(1, 2 * sizes.diamond), drawn_zeta(problem, sizes, levels)
    for band, low in enumerate(range(1, levels + 1, height)):
        for chunk, zeta in enumerate(range(begin, begin + sizes.slab, sizes.chunk)):

            def planes(level: int, zeta: int = zeta) -> tuple[int, int]:
                back, zeta_end = problem.skew_z * (level - 1), min(zeta + sizes.chunk, begin + sizes.slab)
                return max(problem.first_plane, zeta - back), min(problem.end_plane, zeta_end - back)

            span = range(low, min(levels + 1, low + height))
            patches += _outline(span, planes, band + chunk if sizes.diamond else band)
    return tuple(patches)


def time_line(plan: Plan, one: Pass, machine: Machine) -> tuple[Span, ...]:
    """Return the time line that the model predicts for one pass of `plan`."""
    problem = plan.problem
    times = Counter(map(id, plan.passes))
    cells = sum(
        times[id(each)] * cell_updates(problem, action)
        for each in plan.different_passes for action in each.actions if isinstance(action, Update)
    )  # fmt: skip
    rate = cells / plan.predicted.seconds_update if plan.predicted.seconds_update else 1.0
    levels = (other.levels for other in plan.passes)
    writes = snapshots_of(problem, levels, plan.sizes, machine.threads, plan.acquisition.staging)
    snapshots = next((found for other, found in zip(plan.passes, writes, strict=True) if other is one), NO_WRITES)
    aside = aside_seconds(work_of(problem, one), machine, snapshots)
    return tuple(_merged(timeline(problem, one, machine, rate, aside, snapshots)))


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans of a time line. Successive reads without a gap are joined into one span. Successive writes
    without a gap are also joined."""
    last: dict[str, Span] = {}
    for span in spans:
        before = last.get(span.what)
        if before is not None and span.what in ("read", "write") and span.start - before.end < 1e-9:
            last[span.what] = Span(span.what, before.start, span.end)
            continue
        if before is not None:
            yield before
        last[span.what] = span
    yield from last.values()


def _outline(levels: range, bounds: Callable[[int], tuple[int, int]], wave: int) -> list[Patch]:
    """Return a list with one patch. For each level, `bounds` returns a range of positions. The range may be empty. The
    patch has the levels at which the range of `bounds` is not empty. The levels of the patch must follow each other
    without a gap. If the range is empty at all levels, return an empty list."""
    full = [(level, *bounds(level)) for level in levels]
    full = [(level, low, high) for level, low, high in full if low < high]
    right = [corner for level, _, high in full for corner in ((high, level - 0.5), (high, level + 0.5))]
    left = [corner for level, low, _ in reversed(full) for corner in ((low, level + 0.5), (low, level - 0.5))]
    return [Patch((*right, *left), wave)] if full else []
