"""`outcrop plan --ranks N --simulate`: the simulated time line of all ranks, as text, as JSON and as a picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from outcrop.errors import InputError, shown
from outcrop.plan.cost import works_of
from outcrop.plan.planner import Planned, choose
from outcrop.plan.rank_planner import ChosenRanks
from outcrop.plan.rank_timeline import Disturbance, RankTimeline, simulate
from outcrop.plan.ranks import cut_problem, part_of
from outcrop.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from outcrop.plan.plan import Plan
    from outcrop.plan.problem import Problem

MAX_JITTER = 0.5
DRAWN_RANKS = 16
"""The number of ranks in the picture."""
COLORS = {"update": "#e07b39", "faces": "#5b7fbf", "disk": "#4c8c6b", "flush": "#333333", "commit": "#8a6fae"}
LOST = {
    "twice": "updates of rows of neighbours",
    "faces": "waits for neighbours",
    "disk": "waits for the disk",
    "commit": "waits for commits of other ranks",
    "finished": "time after a rank is finished",
}
"""What the shares of `RankTimeline.shares` mean, without the useful share."""


@dataclass(frozen=True)
class Simulated:
    """The simulated time line of all ranks. `alone` is the plan of one rank that has as many rows as the ranks have on
    average, and no neighbours."""

    timeline: RankTimeline
    disturbance: Disturbance
    alone: Plan

    @property
    def efficiency(self) -> float:
        """The time of one rank alone, divided by the time of all ranks together. This is the efficiency of weak
        scaling."""
        return self.alone.predicted.seconds / self.timeline.seconds


def as_disturbance(jitter: str | None, stall: float | None, seed: int) -> Disturbance:
    """Return the disturbance that the options describe. `jitter` is a percentage such as "5%". Raises InputError for
    other texts and for numbers out of range."""
    share = 0.0
    if jitter is not None:
        try:
            share = float(jitter.removesuffix("%")) / 100
        except ValueError:
            share = -1.0
        if not (jitter.endswith("%") and 0 <= share <= MAX_JITTER):
            raise InputError(f"--jitter {shown(jitter)} must be a percentage from 0% to {100 * MAX_JITTER:.0f}%")
    if stall is not None and not 0 <= stall < 1e6:
        raise InputError(f"--stall {stall:g} must be a number of seconds from 0 to 1000000")
    if seed < 0:
        raise InputError(f"--seed {seed} must be at least 0")
    return Disturbance(share, stall or 0.0, seed)


def simulate_ranks(found: ChosenRanks, planned: Planned, disturbance: Disturbance) -> Simulated:
    """Simulate the plans of all ranks on the machine of `planned`. The update rate is the rate of the slowest plan."""
    one = found.plan
    cells, seconds = sum(work.cells for _, work in works_of(one.problem, one.passes)), one.predicted.seconds_update
    cells_per_second = cells / seconds if seconds else 1e9
    timeline = simulate(found.every, planned.machine, lambda _: cells_per_second, disturbance, DRAWN_RANKS)
    rows = _without_neighbours(found.every.problem, found.every.ranks)
    alone = choose(rows, planned.machine, planned.budget_bytes, "auto", lambda _: cells_per_second)
    return Simulated(timeline, disturbance, alone.plan)


def _without_neighbours(whole: Problem, ranks: int) -> Problem:
    """Return the problem of one of `ranks` equal parts, with the boundaries of the whole grid."""
    part = part_of(whole, cut_problem(whole, ranks), 0)
    return replace(part, sides=whole.sides, max_halo=0)


def rows_about(one: Simulated) -> list[tuple[str, str]]:
    """Return the rows of text about the simulation: (name, text)."""
    timeline, given = one.timeline, one.disturbance
    how = "equally fast ranks"
    if given.jitter or given.stall_seconds:
        parts = [f"jitter {100 * given.jitter:g} %"] if given.jitter else []
        parts += [f"stalls of {given.stall_seconds:g} s"] if given.stall_seconds else []
        how = f"{' and '.join(parts)}, seed {given.seed}"
    ranks, alone = len(timeline.end), one.alone.predicted.seconds
    lost = [f"{100 * share:.1f} % {LOST[what]}" for what, share in timeline.shares().items() if what in LOST]
    return [
        (
            "timeline",
            f"{format_seconds(timeline.seconds)} for {ranks} ranks with {how}; one rank alone with as many rows takes "
            f"{format_seconds(alone)}, so the efficiency is {one.efficiency:.3f}",
        ),
        ("lost", ", ".join(lost)),
    ]


def as_json(one: Simulated) -> dict[str, Any]:
    """Describe the simulation for the report."""
    given = one.disturbance
    return {
        "seconds": one.timeline.seconds,
        "seconds_alone": one.alone.predicted.seconds,
        "efficiency": one.efficiency,
        "slowest_rank": one.timeline.slowest,
        "shares": one.timeline.shares(),
        "jitter": given.jitter,
        "stall_seconds": given.stall_seconds,
        "seed": given.seed,
    }


def draw(one: Simulated) -> Figure:
    """Return the picture of the time line: a row of bars for each of the first ranks."""
    from matplotlib.figure import Figure

    ranks = min(len(one.timeline.end), DRAWN_RANKS)
    figure = Figure(figsize=(10, 1.5 + 0.35 * ranks), layout="constrained")
    axes = figure.subplots()
    for what, color in COLORS.items():
        label: str | None = what if what == "update" else {**LOST, "flush": "flushes"}[what]
        for rank in range(ranks):
            bars = [(span.start, span.end - span.start) for span in one.timeline.spans
                    if (span.what, span.rank) == (what, rank)]  # fmt: skip
            axes.broken_barh(bars, (rank - 0.4, 0.8), facecolors=color, label=label)
            label = None
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.invert_yaxis()
    axes.set(xlabel="seconds", title=f"{len(one.timeline.end)} ranks, efficiency {one.efficiency:.3f}")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure
