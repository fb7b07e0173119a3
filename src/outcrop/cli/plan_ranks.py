"""`outcrop plan --ranks`: plan a run of several ranks without starting the ranks. The plan assumes that each rank has
its own machine. Each machine of a rank has the properties of this machine, or of the machine that `--machine` declares.

The module `plan_ranks` measures update rates on this machine. To measure the rates, the module plans a run of one
process on a grid with as many rows as the largest part.

`outcrop plan --ranks N --simulate` also simulates the time line of all ranks. The module also returns the time line of
all ranks as text, as JSON and as a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from outcrop.bench.figures import COLORS as WORK
from outcrop.cli.plan_details import update_rate_of
from outcrop.errors import InputError, shown
from outcrop.plan.machine import ASSUMED_NETWORK, edge_factor
from outcrop.plan.planner import Planned, choose
from outcrop.plan.problem import AcquisitionDemand
from outcrop.plan.rank_planner import ChosenRanks, choose_ranks
from outcrop.plan.rank_timeline import Disturbance, RankTimeline, simulate
from outcrop.plan.ranks import RankPlans, cut_planes, cut_problem, part_of, ranks_of, rows_of, validate_ranks
from outcrop.plan.schemes import RANK_SCHEMES
from outcrop.run.disk.entries import MAX_RANKS
from outcrop.units import counted, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from outcrop.plan.machine import DeclaredMachine, UpdateRate
    from outcrop.plan.plan import Plan, Sizes
    from outcrop.plan.problem import Problem
    from outcrop.plan.ranks import Cut
    from outcrop.run.definition import Definition
    from outcrop.run.options import RunOptions

MAX_JITTER = 0.5
DRAWN_RANKS = 16
"""The number of ranks in the picture of the time line."""
COLORS = {"update": WORK["update"], "faces": WORK["receive"], "disk": WORK["read"], "flush": WORK["commit"],
          "commit": "#5b7fbf"}  # fmt: skip
"""The colours of the bars in the picture. A wait has the colour of the work for which the rank waits. The wait for
commits of other ranks has a separate colour, because the flush of the rank itself has the colour of commits."""
LOST = {
    "twice": "updates of rows of neighbours",
    "faces": "waits for neighbours",
    "disk": "waits for the disk",
    "commit": "waits for commits of other ranks",
    "finished": "time after a rank is finished",
}
"""A text about each share of the time in `RankTimeline.shares`, except the useful share."""


def counts_of(ranks: object) -> tuple[int, int]:
    """Return the number of ranks that the option `ranks` gives, and the number of parts along z. Without this option,
    both numbers are 1. Raises InputError for other values."""
    from outcrop.run.ranks.launch import as_ranks

    found = as_ranks(ranks)
    if (found.count or 1) > MAX_RANKS:
        raise InputError(f"ranks {found}: plans have at most {MAX_RANKS} ranks")
    return found.count or 1, found.along_z


def plan_ranks(
    chosen: RunOptions, declared: DeclaredMachine | None, ranks: int, parts_z: int
) -> tuple[ChosenRanks, Planned]:
    """Return the plans of `ranks` ranks, with `parts_z` parts along z. Also return the plan of the slowest rank, with
    the figures of its machine. Raises the errors of `choose_ranks`, and InputError for options that runs of several
    ranks cannot have."""
    from outcrop.run.ranks.part import LATER

    for name in LATER:
        if getattr(chosen, name):
            raise InputError(f"ranks {ranks}: runs of several ranks cannot have {name} yet; leave it out")
    if declared is None:
        return _plan_here(chosen, ranks, parts_z)
    from outcrop.run.setup import set_up_elsewhere

    one = set_up_elsewhere(declared, chosen)
    problem, demands = _with_acquisition(one.problem, one.definition)
    found = choose_ranks(
        problem, ranks, one.machine, one.budget_bytes, one.scheme, one.update_rate, one.given, parts_z, demands
    )
    planned = Planned(
        found.plan.problem, one.machine, one.budget_bytes, one.given, found.plan, found.considered,
        declared.device.origin, assumed={},
    )  # fmt: skip
    return found, planned


def _plan_here(chosen: RunOptions, ranks: int, parts_z: int) -> tuple[ChosenRanks, Planned]:
    from outcrop.axes import grid_shape
    from outcrop.run.definition import definition_of, problem_of
    from outcrop.run.setup import as_sizes, as_steps
    from outcrop.run.simulation import Simulation

    if chosen.shape is None:
        raise InputError(f"ranks {ranks}: give the size of the grid with -n")
    what = definition_of(replace(chosen, init=None), None)
    shape = grid_shape(what.shape)
    problem, demands = _with_acquisition(problem_of(what, as_steps(chosen.steps)), what)
    rows = max(rows_of(cut_problem(problem, ranks // parts_z)))
    planes = max(rows_of(cut_planes(problem, parts_z)), default=shape[0])
    # The plan of a single rank leaves out points, because points of the whole grid can lie outside the grid of the
    # rank. The plan of a single rank also cannot have a scheme that divides updates between ranks, and not always the
    # blocks of the ranks.
    given = as_sizes(chosen.sizes)
    sizes = replace(given, by=None).to_dict()
    bare = replace(chosen, init=None, sources=(), receivers=(), snapshots=None, norms=None, sizes=sizes)
    if chosen.scheme in RANK_SCHEMES:
        bare = replace(bare, scheme="auto")
    if ranks > parts_z:  # the kernels of ranks with neighbours along y have fixed sides
        bare = replace(bare, boundary=replace(what.boundary, y=("fixed", "fixed")))
    alike = Simulation(replace(bare, shape=(planes, rows, shape[2]))).plan()

    def rate_of(part: Problem) -> UpdateRate:
        thick = update_rate_of(alike.plan) * edge_factor(alike.problem, alike.plan.sizes)

        def rate(sizes: Sizes) -> float:
            return thick / edge_factor(part, sizes)

        return rate

    found = choose_ranks(
        problem, ranks, alike.machine, alike.budget_bytes, chosen.scheme, rate_of, given, parts_z, demands
    )
    planned = Planned(
        found.plan.problem, alike.machine, alike.budget_bytes, given, found.plan, found.considered,
        alike.updates_origin, alike.assumed,
    )  # fmt: skip
    return found, planned


def _with_acquisition(
    problem: Problem, what: Definition
) -> tuple[Problem, Callable[[Cut, Cut], Sequence[AcquisitionDemand]] | None]:
    """Return the problem of the whole grid, and a function for `choose_ranks` that returns the acquisition of each
    rank. The problem has the groups of cells that a cut must not divide. Without sources, receivers, snapshots and
    norms, return None instead of the function."""
    from outcrop.run.acquisition.parts import owners
    from outcrop.run.acquisition.pass_acquisition import demand_of, undivided_groups
    from outcrop.run.disk.entries import PartEntry

    entries = what.acquisition.entries

    def demands(cut: Cut, planes: Cut) -> list[AcquisitionDemand]:
        ranks, found = ranks_of(cut, planes), list[AcquisitionDemand]()
        owner = owners(what.acquisition.samplings, (cut, planes))
        points = {name: np.bincount(of_point, minlength=ranks).tolist() for name, of_point in owner.items()}
        for rank in range(ranks):
            traces = {name: counts[rank] for name, counts in points.items()}
            own = entries.of_part(PartEntry("", rank, cut, traces, planes))
            found.append(replace(demand_of(own, what.dtype), ends=entries.intervals))
        return found

    return replace(problem, acquisition=undivided_groups(entries)), demands if entries else None


def prove(found: ChosenRanks, planned: Planned) -> None:
    """Prove that the plans of all ranks together are legal. Raises IllegalPlan, a kind of AssertionError."""
    validate_ranks(found.every, planned.budget_bytes)


def rows_about(found: ChosenRanks, planned: Planned) -> list[tuple[str, str]]:
    """Return rows of text about all ranks. Each row is a pair (name, text)."""
    network, problem, rows = planned.machine.network, found.every.problem, rows_of(found.every.cut)
    parts = " and ".join(
        f"{min(each)} {what}" if min(each) == max(each) else f"{min(each)} to {max(each)} {what}"
        for each, what in ((rows, "rows"), (rows_of(found.every.planes), "planes")) if each
    )  # fmt: skip
    steps = counted(problem.steps_of(found.plan.passes[0].levels), "step")
    origin = "assumed" if network is ASSUMED_NETWORK else network.origin
    speed = f"about {format_seconds(found.seconds)} with {found.every.ranks} ranks"
    if found.seconds_single is None or found.speed_up is None:
        speed += "; one rank does not have enough memory for the whole grid"
    else:
        speed += f", {found.speed_up:.1f} times as fast as one rank ({format_seconds(found.seconds_single)})"
    halo = " and ".join(counted(count, what) for count, what in ((found.halo, "row"), (found.halo_planes, "plane"))
                        if count or (what == "row" and not found.halo_planes))  # fmt: skip
    halo = f"{halo} of each neighbour for {steps}; {100 * found.twice:.1f} % more updates than "
    halo, to_each = halo + "without halos", f"{format_bytes(found.link_bytes)} to each neighbour"
    if found.shares_updates:
        halo = f"{counted(found.halo, 'row')} of the upper neighbour for {steps}; no cell is updated twice"
        to_each = f"at most {format_bytes(found.link_bytes)} to a neighbour"
    return [
        ("ranks", f"{found.every.ranks} parts of {parts}"),
        ("halo", halo),
        ("network", f"{origin}: {format_rate(network.bytes_per_second)}B/s in each direction; a pass sends {to_each}"),
        ("speed", speed),
        ("slowest", f"rank {found.slowest}, whose plan follows"),
    ]


def as_json(found: ChosenRanks) -> Mapping[str, Any]:
    return {
        "ranks": found.every.ranks,
        "cut": list(found.every.cut),
        "cut_planes": list(found.every.planes),
        "halo_rows": found.halo,
        "halo_planes": found.halo_planes,
        "computed_twice": found.twice,
        "bytes_per_pass_and_link": found.link_bytes,
        "slowest_rank": found.slowest,
        "seconds": found.seconds,
        "seconds_single": found.seconds_single,
        "speed_up": found.speed_up,
    }


@dataclass(frozen=True)
class Simulated:
    """The simulated time line of all ranks. For comparison, `alone` is the plan of one rank without neighbours. The
    grid of `alone` has the mean number of rows of all ranks."""

    timeline: RankTimeline
    disturbance: Disturbance
    alone: Plan

    @property
    def efficiency(self) -> float:
        """The efficiency of weak scaling: the time of one rank alone, divided by the time of all ranks together."""
        return self.alone.predicted.seconds / self.timeline.seconds


def as_disturbance(jitter: str | None, stall: float | None, seed: int) -> Disturbance:
    """Return the disturbance that the options `--jitter`, `--stall` and `--seed` describe. `jitter` is a percentage
    such as "5%". Raises InputError for other texts and for numbers out of range."""
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
    """Simulate the plans of all ranks on the machine of `planned`. All simulated ranks have the update rate of the
    slowest plan."""
    cells_per_second = update_rate_of(found.plan)
    timeline = simulate(found.every, planned.machine, lambda _: cells_per_second, disturbance, DRAWN_RANKS)
    part = _without_neighbours(found.every)
    alone = choose(part, planned.machine, planned.budget_bytes, "auto", lambda _: cells_per_second)
    return Simulated(timeline, disturbance, alone.plan)


def _without_neighbours(every: RankPlans) -> Problem:
    """Cut the grid into equal parts. Return the problem of one part, with the boundaries of the whole grid."""
    whole, parts_z = every.problem, max(1, len(every.planes) - 1)
    part = part_of(whole, cut_problem(whole, every.ranks // parts_z), 0, cut_planes(whole, parts_z))
    return replace(part, sides=whole.sides, max_halo=0, mean_rows=0, is_ring=False, max_halo_z=0)


def rows_about_simulation(one: Simulated) -> list[tuple[str, str]]:
    """Return rows of text about the simulation. Each row is a pair (name, text)."""
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


def simulation_as_json(one: Simulated) -> dict[str, Any]:
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


def draw_simulation(one: Simulated) -> Figure:
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
