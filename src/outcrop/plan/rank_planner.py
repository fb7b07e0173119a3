"""Choose the plans of all ranks for a grid that is divided among ranks, without the ranks. Each rank has a machine of
its own, with equal figures.

The tuner chooses a plan for each kind of part: the first, the last, and the parts between them. The slowest of these
plans decides. All ranks take its sizes, because neighbours must exchange the same planes. If another part needs more
memory for these sizes, the slabs of all ranks are thinner. If several schemes are possible, this is done for each of
them, and the scheme decides with which all ranks together are the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from outcrop.errors import BudgetError, InputError
from outcrop.plan.actions import FACES, HIGH, LOW, Update, Write, side_of
from outcrop.plan.cost import cell_updates, transfer_bytes
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.memory import min_acquisition_memory
from outcrop.plan.plan import Candidate, Plan, Sizes
from outcrop.plan.planner import choose, find_scheme, schemes_for, smallest_budget_bytes
from outcrop.plan.problem import Problem
from outcrop.plan.ranks import RankPlans, cut_problem, part_of, plan_ranks
from outcrop.plan.schemes import RANK_SCHEMES
from outcrop.plan.stairs import Stairs
from outcrop.plan.tuner import TunedPlan, estimate, rate_in_thick_slabs

MAX_RANKS_COMPARED = 64
"""The maximum number of ranks for which the plan of one rank is predicted action by action."""


@dataclass(frozen=True)
class ChosenRanks:
    """The plans of all ranks, the number of the slowest rank, and the candidates that the tuner considered for this
    rank. If other schemes were tried for all ranks, the slowest plan of each of them follows the first candidate.
    `seconds_single` is the time of one rank for the whole grid, or None if its window does not fit the memory."""

    every: RankPlans
    slowest: int
    considered: tuple[Candidate, ...]
    seconds_single: float | None

    @property
    def plan(self) -> Plan:
        """The plan of the slowest rank."""
        return self.every.plans[self.slowest]

    @property
    def seconds(self) -> float:
        return self.plan.predicted.seconds

    @property
    def speed_up(self) -> float | None:
        """The time of one rank for the whole grid, divided by the time of all ranks together."""
        return None if self.seconds_single is None else self.seconds_single / self.seconds

    @property
    def halo(self) -> int:
        """The number of rows that a pass needs from each neighbour, or only from the upper neighbour if ranks share
        updates."""
        problem, levels = self.plan.problem, self.plan.passes[0].levels
        if self.shares_updates:
            return Stairs(problem, levels).rim_rows[1]
        return max(problem.halo(levels))

    @property
    def shares_updates(self) -> bool:
        """True if ranks share the updates at their cuts, so that no cell is updated twice."""
        return find_scheme(self.plan.scheme).shared_levels is not None

    @property
    def link_bytes(self) -> int:
        """The bytes that a rank sends to one neighbour in the first pass, the maximum over all ranks and both sides."""
        sent = [0]
        for plan in {id(plan): plan for plan in self.every.plans}.values():
            sides = {LOW: 0, HIGH: 0}
            for action in plan.passes[0].actions:
                if isinstance(action, Write) and action.array in FACES:
                    sides[side_of(action)] += transfer_bytes(plan.problem, action)
            sent += sides.values()
        return max(sent)

    @property
    def twice(self) -> float:
        """The number of updates of rows of neighbours, relative to the updates of the rank's own rows. The neighbours
        update these rows, too. If ranks share updates, no rows are updated twice."""
        if self.shares_updates:
            return 0.0
        own, every = 0, 0
        problem = self.plan.problem
        rows = problem.own_rows[1] - problem.own_rows[0]
        for one in {id(one): one for one in self.plan.passes}.values():
            times = sum(other is one for other in self.plan.passes)
            every += times * sum(cell_updates(problem, action) for action in one.actions if isinstance(action, Update))
            own += times * (problem.end_plane - problem.first_plane) * rows * problem.shape[2] * one.levels
        return every / own - 1 if own else 0.0


def choose_ranks(
    problem: Problem,
    ranks: int,
    machine: Machine,
    budget_bytes: int,
    scheme: str,
    update_rate: Callable[[Problem], UpdateRate],
    given: GivenSizes = FREE,
) -> ChosenRanks:
    """Choose the plans of `ranks` ranks for a grid with the lowest predicted time. Each rank has `budget_bytes` of
    memory. `update_rate` returns the update rates for the problem of a rank.

    Raises InputError if a rank would have too few rows, for an unknown scheme and for impossible sizes. Raises
    BudgetError if the budget of a rank is too small. Both messages say what works.
    """
    named = None if scheme == "auto" else find_scheme(scheme)
    cut = cut_problem(problem, ranks, given.bt or 1, named)
    parts = [part_of(problem, cut, rank) for rank in range(ranks)]
    kinds = {part: rank for rank, part in reversed(list(enumerate(parts)))}
    every_choice = _choices(kinds, machine, budget_bytes, scheme, update_rate, given)
    found = []
    for choices in every_choice:
        rank = max(choices, key=lambda rank: (choices[rank].plan.predicted.seconds, -rank))
        own = choices[rank].plan
        sizes = _fitting(own, [(part, choices[other].plan.sizes) for part, other in kinds.items()], budget_bytes)
        every = plan_ranks(problem, cut, find_scheme(own.scheme), sizes, machine, update_rate(parts[rank]))
        slowest = max(range(ranks), key=lambda one: (every.plans[one].predicted.seconds, -one))
        found.append((every, slowest, choices))
    found.sort(key=lambda one: one[0].plans[one[1]].predicted.seconds)
    every, slowest, choices = found[0]
    first, *rest = choices[kinds[parts[slowest]]].considered
    slower = [others.plans[rank] for others, rank, _ in found[1:]]
    others = (Candidate(one.scheme, one.sizes, len(one.passes), one.predicted) for one in slower)
    considered = first, *others, *rest
    alone = "auto" if named is not None and named.refusal(problem) is not None else scheme
    seconds_single = _seconds_single(problem, ranks, machine, budget_bytes, alone, update_rate(problem), given)
    return ChosenRanks(every, slowest, considered, seconds_single)


def _choices(
    kinds: Mapping[Problem, int], machine: Machine, budget_bytes: int, scheme: str,
    update_rate: Callable[[Problem], UpdateRate], given: GivenSizes,
) -> list[dict[int, TunedPlan]]:  # fmt: skip
    """Return the chosen plans of all kinds of parts, once for each scheme that all ranks may have. A key is the first
    rank with a kind of part. If the scheme is "auto", these are the schemes that are chosen for some part, and the
    schemes in which ranks share updates. The best scheme of a part is not always the best scheme of all ranks."""

    def choices(name: str) -> dict[int, TunedPlan]:
        return {
            rank: choose(part, machine, budget_bytes, name, update_rate(part), given) for part, rank in kinds.items()
        }

    own = choices(scheme)
    chosen = {one.plan.scheme for one in own.values()}
    if scheme != "auto" or not any(part.is_part for part in kinds):
        return [own]
    found = [own if chosen == {name} else choices(name) for name in sorted(chosen)]
    for name in RANK_SCHEMES if chosen != set(RANK_SCHEMES) else ():
        try:
            found += [choices(name)] if name not in chosen else []
        except (BudgetError, InputError):  # too few rows or too little memory for the scheme
            continue
    return found


def _fitting(chosen: Plan, others: Sequence[tuple[Problem, Sizes]], budget_bytes: int) -> Sizes:
    """Return the sizes of a chosen plan with slabs that are thin enough for the budget of all ranks. `others` has the
    problem of each kind of part, with the sizes that were chosen for it."""
    scheme, sizes, problem = find_scheme(chosen.scheme), chosen.sizes, chosen.problem
    steps = problem.steps_of(sizes.levels)
    window_bytes = budget_bytes - min_acquisition_memory(problem.acquisition, steps).bytes(steps)
    largest, own = max(others, key=lambda one: scheme.window(one[0], sizes.levels, sizes).bytes)
    while sizes.slab > 1 and scheme.window(largest, sizes.levels, sizes).bytes > window_bytes:
        sizes = replace(sizes, slab=sizes.slab - 1)
    return own if scheme.window(largest, sizes.levels, sizes).bytes > window_bytes else sizes


def _seconds_single(
    problem: Problem, ranks: int, machine: Machine, budget_bytes: int, scheme: str, rate: UpdateRate, given: GivenSizes
) -> float | None:
    """Return the time of one rank for the whole grid, or None if the memory is too small. For many ranks, formulas give
    the time, because a plan of a very large grid in little memory has a long list of actions."""
    if budget_bytes < smallest_budget_bytes(problem, scheme, given):
        return None
    if ranks <= MAX_RANKS_COMPARED:
        return choose(problem, machine, budget_bytes, scheme, rate, given).plan.predicted.seconds
    schemes = schemes_for(problem, scheme, given)
    thick = rate_in_thick_slabs(problem, schemes, machine, budget_bytes, rate)
    seconds = estimate(problem, schemes, machine, budget_bytes, thick)
    return seconds if seconds < float("inf") else None
