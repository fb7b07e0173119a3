"""Where fields that nothing updates are during a run: placed by the planner of placements, as arrays are.

    memory   all of their planes, read once by the first pass       the rest of the window has so much less
    disk     in the window as many planes as updates need           every pass reads all of them again

They go to one place together: all take as much and are read as often, so there are only more of them to keep or fewer.
What a place costs depends on the slabs and levels for which it leaves memory. So the planner (placement.py) says where
there is room (`possible`), the tuner costs whole plans with either, and of these the planner takes one (`taken`): the
fastest, and of those as fast as that the one with the least memory. `explained` says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from outcrop.plan.actions import Read
from outcrop.plan.candidate import Candidate
from outcrop.plan.machine import Machine
from outcrop.plan.placement import Choice, Demand, assign, fits
from outcrop.plan.placement_words import (
    HIDDEN,
    SLOWEST,
    SLOWEST_FOR_NOTHING,
    Placed,
    because,
    has_no_room,
    takes_longer,
)
from outcrop.plan.plan import Pass, Plan, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.volume import transfer_bytes

MEMORY, DISK = "memory", "disk"
EQUALLY_FAST = 1.01
"""Plans within this factor of the fastest count as equal; the one with the least memory is taken."""


def possible(problem: Problem, budget_bytes: int) -> tuple[bool, ...]:
    """The values of `Sizes.keeps_statics` that a window within the budget may have."""
    if not problem.statics:
        return (False,)
    kept = Choice(MEMORY, ((MEMORY, problem.statics * problem.grid_bytes),), 0.0)
    return (False, True) if fits([kept], {MEMORY: budget_bytes}) else (False,)


def taken(candidates: Sequence[Candidate]) -> Candidate:
    """The one to be used. All of them fit the budget."""
    choices = [Choice(place_of(one.sizes), ((MEMORY, one.predicted.memory_bytes),), one.seconds) for one in candidates]
    demand = Demand("what is only read", tuple(choices), is_updated=False)
    enough = {MEMORY: max(one.predicted.memory_bytes for one in candidates), DISK: 0}
    found = assign([demand], enough, EQUALLY_FAST * min(one.seconds for one in candidates))
    assert found is not None, "all fit"
    return candidates[choices.index(found.chosen[0])]


def place_of(sizes: Sizes) -> str:
    """Where plans of these sizes have what is only read."""
    return MEMORY if sizes.keeps_statics else DISK


def explained(plan: Plan, considered: Sequence[Candidate], machine: Machine, may_stay: bool) -> list[Placed]:
    """Each field that nothing updates: bytes of the window, seconds of a run's transfers, and why it is where it is.

    `considered` are all that were costed, the plan's own first; `may_stay`: whether their schemes can keep fields in
    memory.
    """
    problem, place = plan.problem, place_of(plan.sizes)
    statics = [(number, one) for number, one in enumerate(problem.fields) if one.is_static]
    rings = list(plan.window.rings(problem))
    seconds, why = _bytes_read(plan) / machine.device.read_bytes_per_second, _why(plan, considered, may_stay)
    found = []
    for number, one in statics:
        takes = ((MEMORY, rings[number].planes * rings[number].slot_bytes),)
        name = one.name or f"field {number}"
        found.append(Placed(name, problem.grid_bytes, place, takes, seconds / len(statics), why))
    return found


def _why(plan: Plan, considered: Sequence[Candidate], may_stay: bool) -> str:
    place, other = (MEMORY, DISK) if plan.sizes.keeps_statics else (DISK, MEMORY)
    rivals = [one for one in considered if place_of(one.sizes) == other]
    if not rivals:
        if place == MEMORY:
            return "all of the grid is in memory"
        return because(SLOWEST, [has_no_room(MEMORY)]) if may_stay else f"scheme {plan.scheme} keeps nothing in memory"
    now, instead = considered[0].seconds, min(one.seconds for one in rivals)
    objections = [takes_longer(other, "the run", instead - now)] if instead > EQUALLY_FAST * now else []
    if place == DISK:
        return because(SLOWEST, objections) if objections else f"{SLOWEST}, {HIDDEN}"
    return because(SLOWEST_FOR_NOTHING, objections or [f"with {other} the plan takes more memory"])


def _bytes_read(plan: Plan) -> int:
    """Of the arrays of all these fields, by all passes."""
    once = {id(one): one for one in plan.passes}  # most passes of a plan are one and the same
    read = {key: _bytes_of_pass(plan.problem, one) for key, one in once.items()}
    return sum(read[id(one)] for one in plan.passes)


def _bytes_of_pass(problem: Problem, one: Pass) -> int:
    reads = (action for action in one.actions if isinstance(action, Read) and action.array == "statics")
    return sum(transfer_bytes(problem, action) for action in reads)
