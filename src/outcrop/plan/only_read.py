"""Choose the place of static fields during a run. No stage updates a static field. The module placement.py writes the
reason for the place as a text.

    `memory`   Only the first pass reads the static fields. They then stay in memory, so less memory is left for other
               fields.
    `disk`     The window holds only the planes of static fields that the current updates need. Each pass reads all
               planes again.

All static fields go to one place, because each of them takes the same amount of memory and is read equally often. The
cost of a place depends on the slabs and levels that the rest of the memory allows. So `possible` checks which places
have room, and the tuner predicts the cost of whole plans with each place. `taken` returns the fastest of these plans.
If several plans are equally fast, `taken` returns the one that needs the least memory. `explained` returns the reason
for the place.
"""

from __future__ import annotations

from collections.abc import Sequence

from outcrop.plan.actions import Read
from outcrop.plan.cost import transfer_bytes
from outcrop.plan.machine import Machine
from outcrop.plan.placement import (
    HIDDEN,
    SLOWEST,
    SLOWEST_FOR_NOTHING,
    PlacementRow,
    because,
    has_no_room,
    takes_longer,
)
from outcrop.plan.plan import Candidate, Pass, Plan, Sizes
from outcrop.plan.problem import Problem

MEMORY, DISK = "memory", "disk"
EQUALLY_FAST = 1.01
"""Plans whose time is within this factor of the fastest plan count as equally fast."""


def possible(problem: Problem, budget_bytes: int) -> tuple[bool, ...]:
    """Return the possible values of `Sizes.keeps_statics`. A value is possible if the budget is large enough for its
    window."""
    return (False, True) if 0 < problem.statics * problem.grid_bytes <= budget_bytes else (False,)


def taken(candidates: Sequence[Candidate]) -> Candidate:
    """Return the best one of `candidates`. All candidates fit the budget."""
    limit = EQUALLY_FAST * min(one.seconds for one in candidates)
    equally_fast = [one for one in candidates if one.seconds <= limit]
    return min(equally_fast, key=lambda one: (one.predicted.memory_bytes, one.sizes.keeps_statics, one.seconds))


def place_of(sizes: Sizes) -> str:
    """Return the place of static fields in a plan with these sizes."""
    return MEMORY if sizes.keeps_statics else DISK


def explained(plan: Plan, considered: Sequence[Candidate], machine: Machine, may_stay: bool) -> list[PlacementRow]:
    """Return a row of the table for each static field. A row has the bytes of the field in the window, the seconds of
    its transfers in the whole run, and the reason for its place.

    `considered` are all candidates whose costs were predicted. The first candidate belongs to the plan itself.
    `may_stay` is true if the scheme of a candidate can keep static fields in memory.
    """
    problem, place = plan.problem, place_of(plan.sizes)
    statics = [(number, one) for number, one in enumerate(problem.fields) if one.is_static and not one.is_history]
    rings = list(plan.window.rings(problem))
    # count each object once, because most passes of a plan are the same object
    once = {id(one): one for one in plan.passes}
    read = {key: _bytes_of_pass(problem, one) for key, one in once.items()}
    seconds = sum(read[id(one)] for one in plan.passes) / machine.device.read_bytes_per_second
    why, found = _why(plan, considered, may_stay), []
    for number, one in statics:
        takes = ((MEMORY, rings[number].planes * rings[number].slot_bytes),)
        name = one.name or f"field {number}"
        found.append(PlacementRow(name, problem.grid_bytes, place, takes, seconds / len(statics), why))
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


def _bytes_of_pass(problem: Problem, one: Pass) -> int:
    reads = (action for action in one.actions if isinstance(action, Read) and action.array == "statics")
    return sum(transfer_bytes(problem, action) for action in reads)
