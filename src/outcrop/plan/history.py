"""Problems whose updates read the states of another run. The reverse pass of a gradient is such a problem: it goes back
through the steps of a forward run, and each of its steps reads states of the forward run near this step.

    forward run     state t-2 ──► state t-1 ──► state t ──► state t+1
    reverse pass                    step 2  ◄──  step 1  ◄──  step 0        step j reads states near t - j
    rings            u, state 3    u, state 2   u, state 1    u, state 0    `state` counts from the newest state

If the history has only every k-th state, only every k-th step reads it. Such a step adds to the sums of a gradient. The
other steps have updates without these sums (`Problem.plain_updates`). Passes have a multiple of k steps, so that all
passes have the same pattern.

A state that one step reads is not the state that another step reads, so the updates of a pass cannot repeat after one
step. `listed` lists the updates of all steps of a pass. Each state becomes a field of its own that is only read. This
field is used at a few levels only. So its ring holds only a few planes, which are read later than the planes of other
fields (`FieldPlan.ahead`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from outcrop.plan.actions import round_up
from outcrop.plan.problem import FieldPlan, Problem, StagePlan
from outcrop.plan.recompute import Calls, ForwardCall, recomputed, recomputed_calls, steps_again

STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""The numbers of steps of a pass that are tried if passes read a history."""


def listed(problem: Problem, steps: int) -> Problem:
    """Return the problem with the updates of `steps` steps. `problem` must have the updates of one step that reads the
    history. Its fields that are a history must be the last fields."""
    assert problem.listed_steps == 1 and steps >= 1
    if problem.forward is not None:
        return recomputed(problem, steps)
    states = _states(problem, steps)
    kept = problem.fields[: len(problem.fields) - problem.histories]
    numbers = {key: len(kept) + place for place, key in enumerate(states)}
    updates, levels = list[StagePlan](), dict[int, list[tuple[int, bool]]]()
    for step in range(steps):
        for stage in problem.updates if _reads(problem, step) else problem.plain_updates:
            reads = []
            for one in stage.reads:
                number = _number(problem, numbers, one.field, step)
                reads.append(replace(one, field=number))
                levels.setdefault(number, []).append((len(updates) + 1, one.beside))
            updates.append(StagePlan(tuple(reads), stage.targets))
    fields = [_field(problem, *key, levels[number]) for key, number in numbers.items()]
    return replace(problem, fields=(*kept, *fields), updates=tuple(updates), listed_steps=steps)


def steps_of_pass(problem: Problem, steps: int) -> int:
    """Return the number of steps of a pass that reads a history: at least `steps`, and a multiple of the interval of
    the history. A pass that computes states again goes back from one state of the history to the next. Raises
    InputError if this pass has too many levels."""
    if problem.forward is not None:
        return steps_again(problem)
    return round_up(max(1, steps), problem.every)


def listed_calls(
    problem: Problem, calls: Calls, plain: Calls, steps: int, forward: Sequence[ForwardCall] = ()
) -> Calls:
    """Return the kernel calls of all steps of a pass. `calls` has the calls of an even step and of an odd step of
    `problem`, which has the updates of one step. `plain` has the calls of steps that do not read the history. All these
    calls have the field numbers of `problem`. `forward` has the calls of a step of the other run if passes compute
    these steps again."""
    if problem.forward is not None:
        return recomputed_calls(problem, calls, forward, steps)
    states = _states(problem, steps)
    kept = len(problem.fields) - problem.histories
    numbers = {key: kept + place for place, key in enumerate(states)}
    found = []
    for step in range(steps):
        of_two_steps = calls if _reads(problem, step) else plain
        for address, sources, targets in of_two_steps[step % 2 * problem.stages :][: problem.stages]:
            moved = tuple((_number(problem, numbers, field, step), copy) for field, copy in sources)
            found.append((address, moved, targets))
    return tuple(found)


def _reads(problem: Problem, step: int) -> bool:
    return (step - problem.phase) % problem.every == 0


def fields_read(problem: Problem, levels: int) -> set[int]:
    """Return the numbers of the fields that a pass of `levels` levels reads."""
    return {one.field for stage in problem.updates[:levels] for one in stage.reads}


def states_read(problem: Problem) -> Iterator[tuple[str, int]]:
    """Yield the field and the state for each field of `problem` that is a history, in the order of the fields."""
    return ((one.history, one.state) for one in problem.fields if one.is_history)


def _states(problem: Problem, steps: int) -> list[tuple[str, int]]:
    """Return the fields and states that `steps` steps read. States that are used first are first."""
    reading = (step for step in range(steps) if _reads(problem, step))
    return list(dict.fromkeys((name, state + step) for step in reading for name, state in states_read(problem)))


def _number(problem: Problem, numbers: dict[tuple[str, int], int], field: int, step: int) -> int:
    one = problem.fields[field]
    return numbers[one.history, one.state + step] if one.is_history else field


def _field(problem: Problem, name: str, state: int, levels: list[tuple[int, bool]]) -> FieldPlan:
    """Return a state as a field. `levels` has the levels that read the state, and says whether they read neighbours."""
    skew, every = problem.skew_z, [level for level, _ in levels]
    beside = skew if any(is_beside for _, is_beside in levels) else 0
    return FieldPlan(
        is_static=True, is_double=False, flips=False, name=f"{name}, state {state}", history=name, state=state,
        ahead=beside - skew * (min(every) - 1), behind=beside + skew * (max(every) - 1),
    )  # fmt: skip
