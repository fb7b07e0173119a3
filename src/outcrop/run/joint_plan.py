"""Choose the plan of a pass. The ranks of one run choose together, because neighbours must exchange the same planes.

Each rank measures its own machine and chooses a plan. The rank with the slowest plan decides: all ranks take its steps
of a pass and its slab. The cache tiles of ranks may differ. Rank 0 then proves that the plans of all ranks fit
together: each face that a rank receives is sent by its neighbour in the same order, and no rank waits forever.
"""

from __future__ import annotations

from dataclasses import replace

from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.planner import choose, find_scheme
from outcrop.plan.problem import Problem
from outcrop.plan.ranks import plan_ranks, validate_ranks
from outcrop.plan.tuner import TunedPlan
from outcrop.run.ranks.part import require_equal
from outcrop.run.setup import Setup


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
    every = group.allgather([plan.predicted.seconds, plan.scheme, plan.sizes.levels // problem.stages, plan.sizes.slab])
    _, name, steps, slab = max(every, key=lambda one: float(one[0]))
    scheme = find_scheme(name)
    # The slab of a tuner may have more planes than the grid.
    decided = {size: value for size, value in (("bt", steps), ("slab", min(slab, problem.planes)))
               if size in scheme.sizes}  # fmt: skip
    choice = choose(problem, machine, budget_bytes, name, rate, replace(settings.given, **decided))
    plan = choice.plan
    require_equal(group, {"the plan": [problem.steps, plan.scheme, [[one.levels, one.slab] for one in plan.passes[-2:]],
                                       len(plan.passes)]})  # fmt: skip
    with group.together():
        if group.rank == 0:
            whole = setup.whole_problem(problem.steps)
            validate_ranks(plan_ranks(whole, part.cut, scheme, plan.sizes, machine, rate))
    return choice
