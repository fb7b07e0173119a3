"""Choose the plans of all ranks for a grid that is divided among ranks, without the ranks. Each rank has a machine of
its own, with equal figures.

The tuner chooses a plan for each kind of part: the first, the last, and the parts between them. The slowest of these
plans decides. All ranks take its sizes, because neighbours must exchange the same planes. If another part needs more
memory for these sizes, the slabs of all ranks are thinner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from outcrop.errors import BudgetError
from outcrop.plan.actions import FACES, HIGH, LOW, Update, Write
from outcrop.plan.cost import cell_updates, transfer_bytes
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.memory import min_acquisition_memory
from outcrop.plan.plan import Candidate, Plan
from outcrop.plan.planner import choose, find_scheme
from outcrop.plan.problem import Problem
from outcrop.plan.ranks import RankPlans, cut_problem, part_of, plan_ranks
from outcrop.plan.tuner import TunedPlan


@dataclass(frozen=True)
class ChosenRanks:
    """The plans of all ranks, the number of the slowest rank, and the candidates that the tuner considered for this
    rank. `single` is the plan of one rank for the whole grid, or None if its window does not fit the memory."""

    every: RankPlans
    slowest: int
    considered: tuple[Candidate, ...]
    single: TunedPlan | None

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
        return None if self.single is None else self.single.plan.predicted.seconds / self.seconds

    @property
    def halo(self) -> int:
        """The number of rows that a pass needs from each neighbour."""
        return max(self.plan.problem.halo(self.plan.passes[0].levels))

    @property
    def link_bytes(self) -> int:
        """The bytes that a rank sends to one neighbour in the first pass, the maximum over both sides."""
        problem, one = self.plan.problem, self.plan.passes[0]
        sent = {LOW: 0, HIGH: 0}
        for action in one.actions:
            if isinstance(action, Write) and action.array in FACES:
                sent[action.level] += transfer_bytes(problem, action)
        return max(sent.values())

    @property
    def twice(self) -> float:
        """The number of updates of rows of neighbours, relative to the updates of the rank's own rows. The neighbours
        update these rows, too."""
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
    cut = cut_problem(problem, ranks, given.bt or 1)
    parts = [part_of(problem, cut, rank) for rank in range(ranks)]
    kinds = {part: rank for rank, part in reversed(list(enumerate(parts)))}
    choices = {
        rank: choose(part, machine, budget_bytes, scheme, update_rate(part), given) for part, rank in kinds.items()
    }
    slowest = max(choices, key=lambda rank: (choices[rank].plan.predicted.seconds, -rank))
    sizes, chosen = choices[slowest].plan.sizes, find_scheme(choices[slowest].plan.scheme)
    steps = problem.steps_of(sizes.levels)
    window_bytes = budget_bytes - min_acquisition_memory(problem.acquisition, steps).bytes(steps)
    largest = max(kinds, key=lambda part: chosen.window(part, sizes.levels, sizes).bytes)
    while sizes.slab > 1 and chosen.window(largest, sizes.levels, sizes).bytes > window_bytes:
        sizes = replace(sizes, slab=sizes.slab - 1)
    if chosen.window(largest, sizes.levels, sizes).bytes > window_bytes:
        sizes = choices[kinds[largest]].plan.sizes
    every = plan_ranks(problem, cut, chosen, sizes, machine, update_rate(parts[slowest]))
    slowest = max(range(ranks), key=lambda rank: (every.plans[rank].predicted.seconds, -rank))
    considered = choices[kinds[parts[slowest]]].considered
    try:
        single = choose(problem, machine, budget_bytes, scheme, update_rate(problem), given)
    except BudgetError:
        single = None
    return ChosenRanks(every, slowest, considered, single)
