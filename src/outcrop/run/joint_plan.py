"""Choose the plan of a run. The ranks of one run choose together, because neighbours must exchange the same planes.

Each rank measures its own machine and chooses a plan. The rank with the slowest plan decides: all ranks take its steps
of a pass and its slab, as far as the memory of each rank allows. The cache tiles of ranks may differ. Rank 0 then
proves that the plans of all ranks fit together: each face that a rank receives is sent by its neighbour in the same
order, and no rank waits forever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from outcrop.errors import BudgetError
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.planner import choose, find_scheme, smallest_budget_bytes
from outcrop.plan.problem import Problem
from outcrop.plan.ranks import plan_ranks, validate_ranks
from outcrop.plan.tuner import TunedPlan
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.part import require_equal
from outcrop.run.setup import Setup


@dataclass(frozen=True)
class _Wish:
    """The plan that a rank would choose alone: its predicted time, its scheme, the steps of a pass, and its slab."""

    seconds: float
    scheme: str
    steps: int
    slab: int


def choose_together(
    setup: Setup, problem: Problem, machine: Machine, budget_bytes: int, rate: UpdateRate
) -> TunedPlan:
    """Return the plan of this process or of this rank for `problem`. Raises the errors of `choose`."""
    settings, group = setup.description.settings, setup.group
    choice = choose(problem, machine, budget_bytes, settings.scheme, rate, settings.given)
    if group is None:
        return choice
    plan, part = choice.plan, setup.description.part
    assert part is not None
    # The slab of a plan may have more planes than the grid, but a given slab must not.
    slab = min(plan.sizes.slab, problem.planes)
    wish = _Wish(plan.predicted.seconds, plan.scheme, plan.sizes.levels // problem.stages, slab)
    decided = _decided(group, setup, problem, budget_bytes, wish)
    choice = choose(problem, machine, budget_bytes, decided.scheme, rate, _given(setup, decided))
    plan = choice.plan
    passes = [[one.levels, one.slab] for one in plan.passes[-2:]]
    require_equal(group, {"the plan": [problem.steps, plan.scheme, len(plan.passes), passes]})
    with group.together():
        if group.rank == 0:
            first_step = problem.acquisition.first_step
            whole, scheme = setup.whole_problem(problem.steps, first_step), find_scheme(plan.scheme)
            validate_ranks(plan_ranks(whole, part.cut, scheme, plan.sizes, machine, rate))
    return choice


def _decided(group: RankGroup, setup: Setup, problem: Problem, budget_bytes: int, wish: _Wish) -> _Wish:
    """Return the sizes that all ranks take: those of the slowest rank, with a thinner slab if a rank has too little
    memory for them. If not even a slab of one plane fits on all ranks, try the sizes with the fewest steps. Raises
    BudgetError."""
    wishes = [_Wish(*one) for one in group.allgather(list(vars(wish).values()))]
    slowest = max(wishes, key=lambda one: one.seconds)
    for one in dict.fromkeys((slowest, *sorted(wishes, key=lambda one: one.steps))):
        slabs = group.allgather(_largest_slab(setup, problem, budget_bytes, one))
        if min(slabs):
            return replace(one, slab=min(slabs))
    raise BudgetError("no plan fits the memory of all ranks; give all ranks the same memory, or more")


def _largest_slab(setup: Setup, problem: Problem, budget_bytes: int, wish: _Wish) -> int:
    """Return the largest slab, at most that of `wish`, with which the memory of this rank is large enough, or 0."""

    def fits(slab: int) -> bool:
        return smallest_budget_bytes(problem, wish.scheme, _given(setup, replace(wish, slab=slab))) <= budget_bytes

    if fits(wish.slab):
        return wish.slab
    fitting, beyond = 0, wish.slab
    while beyond - fitting > 1:
        middle = (fitting + beyond) // 2
        fitting, beyond = (middle, beyond) if fits(middle) else (fitting, middle)
    return fitting


def _given(setup: Setup, wish: _Wish) -> Any:
    """Return the sizes that the user has given, and the sizes in `wish` that its scheme has."""
    sizes = find_scheme(wish.scheme).sizes
    more = {name: value for name, value in (("bt", wish.steps), ("slab", wish.slab)) if name in sizes}
    return replace(setup.description.settings.given, **more)
