"""Explanations of a plan: the tables of `outcrop plan --explain`, and the advice below a plan.

The tables show the best candidates of the tuner, and the place (memory or disk) of each field that is only read. Each
row gives the reason why the candidate or the place was chosen or not.

The advice is a plan of the same run with the longest axis of the grid as the streaming axis. The advice is shown only
if this order of the axes saves much time. A longer streaming axis can save time for the following reason. If the
streaming axis is longer, the planes are smaller. Each level keeps a fixed number of planes in memory, so smaller planes
let more levels fit into memory. With more levels, fewer passes are necessary, and the grid is read and written less
often.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from outcrop.plan.machine import edge_factor
from outcrop.plan.placement import EQUALLY_FAST, PlacementRow, explained, place_of, table
from outcrop.plan.planner import make_plan, schemes_for
from outcrop.plan.schemes import EVERY_SCHEME
from outcrop.plan.tuner import estimate
from outcrop.run.disk.layout import make_layout
from outcrop.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from outcrop.plan.plan import Candidate
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
    """Return, for each field that is only read, the place of the field (memory or disk) and the reason for this place.
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
    """Return the main reason why a candidate was not chosen. If several candidates are equally fast, the candidate that
    needs the least memory is chosen."""
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


def advice(planned: Planned) -> str:
    """Return one line about an order of the axes that is much faster, or "" if no order is much faster. A plan for
    several ranks gets no advice, because ranks divide the y axis."""
    problem, plan, guess = planned.problem, planned.plan, planned.plan.predicted
    is_waiting = guess.seconds > WAITING * guess.seconds_update > 0
    if planned.given or problem.is_part or not is_waiting or problem.ndim == 1 or max(problem.shape) == problem.planes:
        return ""
    # the update rate of the plan in cells per second, without the additional time at the edges of slabs and blocks
    rate = problem.cells * problem.levels / guess.seconds_update * edge_factor(problem, plan.sizes)

    def roughly(one: Problem) -> float:
        schemes = schemes_for(one, plan.scheme)
        return estimate(one, schemes, planned.machine, planned.budget_bytes, rate)

    seconds, best = min(((roughly(one), one) for one in _reordered(problem)), key=lambda pair: pair[0])
    if not seconds < WORTH_SAYING * roughly(problem):  # the condition is also false if both times are infinite
        return ""
    other = make_plan(
        best, planned.machine, planned.budget_bytes, plan.scheme, lambda sizes: rate / edge_factor(best, sizes)
    )
    if other.predicted.seconds > WORTH_SAYING * guess.seconds:
        return ""
    size, time = " x ".join(map(str, best.own_shape[::-1])), format_seconds(other.predicted.seconds)
    return f"another order of the axes is faster: as {size}, the run would take about {time}"


def _reordered(problem: Problem) -> Iterator[Problem]:
    """Yield the problem with its axes in another order. In each of these orders, the first axis has the maximum
    length."""
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
