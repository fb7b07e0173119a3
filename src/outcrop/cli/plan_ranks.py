"""`outcrop plan --ranks`: plans a run of several ranks without starting the ranks. The plan assumes that each rank has
its own machine. Each of these machines is like this machine, or like the machine that `--machine` declares.

To measure update rates on this machine, this module plans a run that has as many rows as the largest part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from outcrop.errors import InputError, shown
from outcrop.plan.machine import ASSUMED_NETWORK, edge_factor
from outcrop.plan.planner import Planned
from outcrop.plan.rank_planner import ChosenRanks, choose_ranks
from outcrop.plan.ranks import cut_problem, rows_of, validate_ranks
from outcrop.plan.schemes import RANK_SCHEMES
from outcrop.units import counted, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from outcrop.plan.machine import DeclaredMachine, UpdateRate
    from outcrop.plan.plan import Sizes
    from outcrop.plan.problem import Problem
    from outcrop.run.options import RunOptions

MAX_RANKS = 100_000
"""The maximum number of ranks, because the proof performs the actions of each rank."""


def count_of(ranks: object) -> int:
    """Return the number of ranks that the option `ranks` names. Without the option, the number is 1. Raises InputError
    for a value that is not "auto" or a number."""
    if isinstance(ranks, (list, tuple)) and len(ranks) == 1:
        (ranks,) = ranks
    text = str(ranks)
    if isinstance(ranks, (int, str)) and text.isdecimal() and len(text) < 8 and int(text) >= 1:
        if int(text) > MAX_RANKS:
            raise InputError(f"ranks {text}: plans have at most {MAX_RANKS} ranks")
        return int(text)
    if ranks != "auto":
        raise InputError(f"ranks {shown(ranks)} must be auto or a number of at least 1")
    return 1


def plan_ranks(chosen: RunOptions, declared: DeclaredMachine | None, ranks: int) -> tuple[ChosenRanks, Planned]:
    """Return the plans of all ranks, and the plan of the slowest rank with the figures of its machine. Raises the
    errors of `choose_ranks`, and InputError for options that runs of several ranks cannot have."""
    from outcrop.run.ranks.part import LATER

    for name in LATER:
        if getattr(chosen, name):
            raise InputError(f"ranks {ranks}: runs of several ranks cannot have {name} yet; leave it out")
    if declared is None:
        return _plan_here(chosen, ranks)
    from outcrop.run.setup import set_up_elsewhere

    one = set_up_elsewhere(declared, chosen)
    found = choose_ranks(one.problem, ranks, one.machine, one.budget_bytes, one.scheme, one.update_rate, one.given)
    planned = Planned(
        found.plan.problem, one.machine, one.budget_bytes, one.given, found.plan, found.considered,
        declared.device.origin, assumed={},
    )  # fmt: skip
    return found, planned


def _plan_here(chosen: RunOptions, ranks: int) -> tuple[ChosenRanks, Planned]:
    from outcrop.axes import grid_shape
    from outcrop.run.definition import as_problem, definition_of
    from outcrop.run.disk.layout import make_layout
    from outcrop.run.setup import as_steps
    from outcrop.run.simulation import Simulation

    if chosen.shape is None:
        raise InputError(f"ranks {ranks}: give the size of the grid with -n")
    what = definition_of(replace(chosen, init=None), None)
    shape = grid_shape(what.shape)
    layout, steps = make_layout(shape, what.dtype), as_steps(chosen.steps)
    problem = as_problem(what.stencil, layout, steps, what.boundary, in_place=False)
    rows = max(rows_of(cut_problem(problem, ranks)))
    # the points of the whole grid do not fit the grid of one rank, and one rank cannot share updates
    bare = replace(chosen, init=None, sources=(), receivers=(), snapshots=None, norms=None)
    if chosen.scheme in RANK_SCHEMES:
        bare = replace(bare, scheme="auto")
    alike = Simulation(replace(bare, shape=(shape[0], rows, shape[2]))).plan()

    def rate_of(part: Problem) -> UpdateRate:
        cells, seconds = alike.problem.cells * alike.problem.levels, alike.plan.predicted.seconds_update
        thick = cells / seconds * edge_factor(alike.problem, alike.plan.sizes) if seconds else 1e9

        def rate(sizes: Sizes) -> float:
            return thick / edge_factor(part, sizes)

        return rate

    found = choose_ranks(problem, ranks, alike.machine, alike.budget_bytes, chosen.scheme, rate_of, alike.given)
    planned = Planned(
        found.plan.problem, alike.machine, alike.budget_bytes, alike.given, found.plan, found.considered,
        alike.updates_origin, alike.assumed,
    )  # fmt: skip
    return found, planned


def prove(found: ChosenRanks, planned: Planned) -> None:
    """Prove that the plans of all ranks are legal together. Raises IllegalPlan, a kind of AssertionError."""
    validate_ranks(found.every, planned.budget_bytes)


def rows_about(found: ChosenRanks, planned: Planned) -> list[tuple[str, str]]:
    """Return the rows of the plan that are about all ranks: (name, text)."""
    network, problem, rows = planned.machine.network, found.every.problem, rows_of(found.every.cut)
    parts = f"{min(rows)} rows" if min(rows) == max(rows) else f"{min(rows)} to {max(rows)} rows"
    steps = counted(problem.steps_of(found.plan.passes[0].levels), "step")
    origin = "assumed" if network is ASSUMED_NETWORK else network.origin
    speed = f"about {format_seconds(found.seconds)} with {found.every.ranks} ranks"
    if found.seconds_single is None or found.speed_up is None:
        speed += "; one rank has not enough memory for the whole grid"
    else:
        speed += f", {found.speed_up:.1f} times as fast as one rank ({format_seconds(found.seconds_single)})"
    halo = f"{counted(found.halo, 'row')} of each neighbour for {steps}; {100 * found.twice:.1f} % more updates than "
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
    """Describe the plans of all ranks for the report."""
    return {
        "ranks": found.every.ranks,
        "cut": list(found.every.cut),
        "halo_rows": found.halo,
        "computed_twice": found.twice,
        "bytes_per_pass_and_link": found.link_bytes,
        "slowest_rank": found.slowest,
        "seconds": found.seconds,
        "seconds_single": found.seconds_single,
        "speed_up": found.speed_up,
    }
