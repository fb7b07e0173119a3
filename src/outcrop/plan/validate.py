"""Prove a plan legal without touching data, before the first byte moves: pass by pass, and in a pass action by action,
but what repeats only as often as it takes to see that it does.

    actions   |  begin  | period | period | period | ... | period |  end  |
    planes              |--------|
                            |--------|         each period is the one before it, `distance` planes further

A period looks at the planes of its own window and at no others. If the state in the window of one period is that in the
window of the one before, so many planes further, and the planes above are all alike, then every further period does
what this one does: what it leaves below its window repeats, too, and nothing else changes. So the state at the
beginning of a later period follows without performing those between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from outcrop.plan.actions import Action, Copy, Read, Update, Write
from outcrop.plan.contents import IllegalPlan, Runs
from outcrop.plan.geometry import EVERYTHING
from outcrop.plan.plan import Pass, Plan
from outcrop.plan.problem import Problem
from outcrop.plan.proof import Proof
from outcrop.plan.window import Window

__all__ = ["IllegalPlan", "validate", "validate_one_layer", "validate_pass"]

_State: TypeAlias = list[list[tuple[int, int, object]]]
PERIODS_LEAST = 4
"""Fewer are performed one by one."""


def validate(plan: Plan, budget_bytes: int | None = None) -> None:
    """Raise IllegalPlan unless every pass of `plan` is legal, the passes add up to the steps, and memory stays
    in budget."""
    problem = plan.problem
    if sum(one.levels for one in plan.passes) != problem.levels:
        raise IllegalPlan(f"passes advance {sum(p.levels for p in plan.passes)} levels, not {problem.levels}")
    if any(one.levels % problem.stages for one in plan.passes):
        raise IllegalPlan(f"a pass ends in the middle of a step of {problem.stages} stages")
    if budget_bytes is not None and plan.memory_bytes > budget_bytes:
        raise IllegalPlan(f"window of {plan.memory_bytes} bytes exceeds the budget of {budget_bytes} bytes")
    if plan.predicted.memory_bytes != plan.memory_bytes:
        raise IllegalPlan(f"plan claims {plan.predicted.memory_bytes} bytes, its rings take {plan.memory_bytes}")
    proved: set[tuple[int, bool]] = set()
    for number, one in enumerate(plan.passes):
        keeps = plan.sizes.keeps_statics and number > 0
        if (id(one), keeps) in proved:  # most passes of a plan are one and the same
            continue
        proved.add((id(one), keeps))
        if keeps and any(_reads_statics(action) for action in one.actions):
            raise IllegalPlan(f"pass {number} reads again what stays in memory")
        try:
            _validate(problem, one, plan.window, has_statics=keeps)
        except IllegalPlan as error:
            raise IllegalPlan(f"pass {number}, {error}") from None


def validate_pass(problem: Problem, one: Pass, window: Window) -> None:
    """Raise IllegalPlan unless `one`, as the first pass of a plan, brings every cell to the last level and has it on
    disk when it commits."""
    _validate(problem, one, window, has_statics=False)


def validate_one_layer(problem: Problem, one: Pass, window: Window) -> None:
    """Raise IllegalPlan unless `one` brings every cell to the last level inside the window, which holds all planes at
    level 0, and the rim at every level, when it begins."""
    proof = Proof(problem, one, window, has_statics=False)
    proof.fill(0, 0)
    proof.fill(1, 0, only_rim=True)
    _perform_all(proof)
    proof.require_final()


def _validate(problem: Problem, one: Pass, window: Window, has_statics: bool) -> None:
    proof = Proof(problem, one, window, has_statics)
    _perform_all(proof)
    if not proof.committed:
        raise IllegalPlan("no commit")


def _reads_statics(action: Action) -> bool:
    return isinstance(action, Read) and action.array == "statics"


def _perform_all(proof: Proof) -> None:
    """Perform the actions of a pass, or what they repeat once; an error names the action."""
    repeats, index, actions = _Repeats(proof), 0, proof.actions
    while index < len(actions):
        if type(actions[index]) is Update:
            index += repeats.skip(index)
        try:
            proof.perform(actions[index])
        except IllegalPlan as error:
            raise IllegalPlan(f"action {index}, {actions[index]}: {error}") from None
        index += 1


@dataclass(frozen=True)
class _Run:
    """Actions `begin` to before `end`. Each equals the action `length` before it, moved by `distance` planes."""

    begin: int
    end: int
    length: int
    distance: int


class _Repeats:
    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._run = _Run(0, 0, 1, 0)
        self._last: tuple[int, _State] = -1, []

    def skip(self, index: int) -> int:
        """How many actions from the Update `index` on need not be performed; the proof then has their state."""
        proof, run = self._proof, self._run
        if index + run.length > run.end:
            run = self._run = self._run_from(index)
        if (run.end - index) // run.length < 2:
            return 0
        low, high = self._window(proof.actions[index : index + run.length])
        block, problem = proof.block, proof.problem
        if low < max(problem.first_plane, block.own_z0) or high > min(problem.end_plane, block.own_z1):
            return 0
        state, (last, before) = self._state(low, high), self._last
        self._last = index, state
        if last != index - run.length or before != state:
            return 0
        most = min(problem.end_plane, block.own_z1) - high
        for runs, _, end, is_kept in self._parts(low, high):
            if is_kept:
                most = min(most, runs.over(end, end + problem.planes)[0][1] - end)
            elif runs.ends[1] > end:
                return 0
        times = min((run.end - index) // run.length, most // run.distance)
        for runs, first, end, _ in list(self._parts(low, high)) if times else ():
            runs.advance(first, end, run.distance, times)
        return times * run.length

    def _run_from(self, index: int) -> _Run:
        """The actions from an Update on that repeat what is before the next one, without any about other blocks."""
        actions = self._proof.actions
        length = 1
        while index + length < len(actions) and isinstance(actions[index + length], Read | Copy | Write):
            length += 1
        end = index + length
        if end == len(actions) or (distance := _distance(actions[index], actions[end])) is None or distance <= 0:
            return _Run(index, end, length, 0)
        while end < len(actions) and _distance(actions[end - length], actions[end]) == distance:
            end += 1
        return _Run(index, end if end - index >= PERIODS_LEAST * length else index + length, length, distance)

    def _window(self, actions: tuple[Action, ...]) -> tuple[int, int]:
        """The planes that a period looks at."""
        skew, lows, highs = self._proof.problem.skew_z, [], []
        for action in actions:
            if isinstance(action, Update):
                lows.append(action.zeta0 - skew * action.levels)
                highs.append(action.zeta1 + skew)
            elif isinstance(action, Read | Copy | Write):
                lows.append(action.z0)
                highs.append(action.z1)
        return min(lows), max(highs)

    def _state(self, low: int, high: int) -> _State:
        """What all rings and arrays have in a window, by planes from its lower end on, but for what is of other
        blocks."""
        proof, state = self._proof, []
        for runs, first, end, _ in self._parts(low, high):
            found = runs.over(first, end)
            state.append([(z0 - first, z1 - first, None if proof.is_of_others(one) else one) for z0, z1, one in found])
        return state

    def _parts(self, low: int, high: int) -> Iterator[tuple[Runs[Any], int, int, bool]]:
        """All rings and arrays, each with the places of a window; and whether what is there stays: slots that planes
        take in turn lose what lies a ring below."""
        proof = self._proof
        for slots in proof.rings:
            planes, shift = slots.ring.planes, 0 if slots.ring.is_resident else proof.block.shift
            is_kept = planes >= proof.problem.planes and shift == 0
            yield slots.runs, low + shift - (0 if is_kept else planes), high + shift, is_kept
        targets = [] if proof.problem.in_place else proof.targets
        arrays: list[Runs[Any]] = [*proof.sources, *targets, proof.other, *proof.faces.values()]
        arrays += [proof.source_sums, proof.target_sums, proof.written, proof.sealed]
        for runs in arrays:
            yield runs, low, high, True


def _distance(one: Action, other: Action) -> int | None:
    """How many planes further `other` does what `one` does; None where it does something else."""
    match one, other:
        case (Update(), Update()):
            is_free = one.region.z_low == EVERYTHING.z_low and one.region.z_high == EVERYTHING.z_high
            is_alike = one.levels == other.levels and one.region == other.region and is_free
            first, end = other.zeta0 - one.zeta0, other.zeta1 - one.zeta1
        case (Read(), Read()):
            is_alike = one.cut == other.cut and one.array == other.array and one.level == other.level
            first, end = other.z0 - one.z0, other.z1 - one.z1
        case (Write(), Write()):
            is_alike = one.cut == other.cut and one.array == other.array and one.level == other.level
            first, end = other.z0 - one.z0, other.z1 - one.z1
        case (Copy(), Copy()):
            is_alike = one.cut == other.cut and one.own == other.own
            first, end = other.z0 - one.z0, other.z1 - one.z1
        case _:
            return None
    return first if is_alike and first == end else None
