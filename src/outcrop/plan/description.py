"""Describe a plan in a few rows of text. `outcrop plan` and `print(sim.plan())` show the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from outcrop.display import as_text
from outcrop.plan.cost import works_of
from outcrop.plan.schemes import EVERY_SCHEME
from outcrop.units import counted, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from outcrop.plan.plan import Plan
    from outcrop.plan.planner import Planned
    from outcrop.plan.problem import Problem


def title(problem: Problem) -> str:
    """Return a line with the stencil, the size of the grid, the number of steps and the boundary."""
    size = " x ".join(map(str, problem.own_shape[::-1]))
    return f"{problem.stencil} {size} {problem.dtype}, {counted(problem.steps, 'step')}, boundary {problem.boundary}"


def planned_rows(planned: Planned) -> list[tuple[str, str]]:
    """Return rows about a plan, the machine, and the origin of its speeds."""
    plan, device = planned.plan, planned.machine.device
    seconds = plan.predicted.seconds_update
    rate = format_rate(_cells_updated(plan) / seconds if seconds else 0.0)
    reads, writes = format_rate(device.read_bytes_per_second), format_rate(device.write_bytes_per_second)
    return [
        *plan_rows(plan, f" of {format_bytes(planned.budget_bytes)}", f", {planned.thread_layout}"),
        ("updates", f"{planned.updates_origin}: {rate}cell/s with these sizes{_because(planned, 'updates')}"),
        ("storage", f"{device.origin}: reads {reads}B/s, writes {writes}B/s{_because(planned, 'storage')}"),
    ]


def planned_text(
    planned: Planned, whole: Problem | None = None, before: Iterable[tuple[str, str]] = (),
    after: Iterable[tuple[str, str]] = (),
) -> str:  # fmt: skip
    """Return the title and all rows as text. If the plan is for one of several ranks, `whole` is the problem of the
    whole grid. The rows `before` and `after` are shown before and after the other rows."""
    return as_text(title(whole or planned.problem), [*before, *planned_rows(planned), *after])


def plan_rows(plan: Plan, budget: str = "", threads: str = "") -> list[tuple[str, str]]:
    """Return rows about a plan alone. The texts `budget` and `threads` become parts of the row about memory."""
    guess, fields, periodic = plan.predicted, _fields(plan.problem), _periodic(plan)
    return [
        *([("fields", fields)] if fields else []),
        ("scheme", describe_scheme(plan)),
        ("memory", f"{format_bytes(plan.memory_bytes)}{budget}{_resident(plan)}{threads}"),
        *([("periodic", periodic)] if periodic else []),
        ("disk", _disk(plan)),
        ("read", format_bytes(guess.bytes_read)),
        ("written", format_bytes(guess.bytes_written)),
        (
            "time",
            f"about {format_seconds(guess.seconds)}: updates {format_seconds(guess.seconds_update)}, meanwhile "
            f"reading {format_seconds(guess.seconds_read)} and writing {format_seconds(guess.seconds_write)}",
        ),
    ]


def describe_scheme(plan: Plan) -> str:
    """Return the scheme and the sizes of a plan in one line."""
    problem, sizes = plan.problem, plan.sizes
    steps = [problem.steps_of(one.levels) for one in plan.passes]
    passes = f"{counted(len(steps), 'pass', 'es')} of {counted(steps[0], 'step')}"
    if steps[-1] != steps[0]:
        passes += f" (the last of {steps[-1]})"
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
    updated = len(problem.fields) - problem.statics
    older = problem.state_arrays - updated
    parts = [f"{updated} updated", f"{older} with previous values" * (older > 0)]
    parts += [f"{problem.statics} only read" * (problem.statics > 0), f"{problem.stages} stages" * (problem.stages > 1)]
    return ", ".join(part for part in parts if part)


def _resident(plan: Plan) -> str:
    """Return a text about the part of the window that holds fields in memory for the whole run, or "" if no such part
    exists."""
    if not plan.window.resident:
        return ""
    size = sum(ring.planes * ring.slot_bytes for ring in plan.window.resident)
    return f" ({format_bytes(size)} for all fields that are only read)"


def _periodic(plan: Plan) -> str:
    """Return a text about the extra planes that a periodic streaming axis needs in the window, or "" if this axis is
    not periodic."""
    problem, sizes = plan.problem, plan.sizes
    if not problem.periodic[0] or not problem.radius_z:
        return ""
    mirrored = replace(problem, sides=(("mirror", "mirror"), *problem.sides[1:]))
    other = EVERY_SCHEME[plan.scheme].window(mirrored, sizes.levels, sizes)
    pairs = zip(plan.window.ring_planes, other.ring_planes, plan.window.copies, strict=True)
    more = sum((own - less) * copies for own, less, copies in pairs)
    axis, planes = ("y", counted(more, "row")) if problem.ndim == 2 else ("z", counted(more, "plane"))
    cost = f"{planes} more in the window ({format_bytes(plan.window.bytes - other.bytes)})"
    return f"{axis}, read from both ends alternately: {cost if more else 'the window holds the whole grid'}"


def _cells_updated(plan: Plan) -> float:
    """Return the number of cell updates of a run. A cell counts once for each step. If a rank also updates rows of
    other ranks, the cells of these rows count, too."""
    if not plan.problem.is_part:
        return plan.problem.cells * plan.problem.steps
    return sum(work.cells for _, work in works_of(plan.problem, plan.passes)) / plan.problem.stages


def _disk(plan: Plan) -> str:
    problem = plan.problem
    arrays = problem.state_arrays * (1 if problem.in_place else 2) + problem.statics
    text = f"{format_bytes(arrays * problem.grid_bytes)} ({counted(arrays, 'array')})"
    return text + (f", and {format_bytes(plan.scratch_bytes)} during a pass" if plan.scratch_bytes else "")


def _blocks(plan: Plan) -> str:
    count, sizes = plan.blocks_per_pass, plan.sizes
    if count == 1:
        return ""
    cuts = [f"{size} {cells}" for size, cells in ((sizes.block_z, "planes"), (sizes.block_y, "rows")) if size]
    return f"{count} blocks of {' x '.join(cuts)}, "
