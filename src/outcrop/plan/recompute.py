"""Passes that compute the states of the forward run again. A history with every state needs a large part of the disk.
With recomputation, the history has only every k-th state of the run, and each pass goes back through k steps:

    history   state t - k                                              state t
                  |                                                        |
    lead          └─► step 1 ──► step 2 ──► ... ──► step k                 levels 1, 2, ..., lead
    adjoint       adjoint t - k ◄── ... ◄── step 2 ◄── step 1 ◄── adjoint t    the levels that follow

All these levels belong to one wavefront, so every plane is read once and written once. The values that the lead
computes stay in memory. Each value that the adjoint reads is a field of its own, with one copy, which one level writes.
The value of an early step of the forward run is used by a late step of the adjoint run, so the ring of this field is
long:

    level
     2k  |              adjoint: the last step reads the state t - k + 1 ...
      :  |
    k+1  |  adjoint: the first step reads the state t - 1        The rings of all states together hold about
     k   |  lead: the state t                                    r k^2 planes for a radius r.
      :  |
      1  |  lead: the state t - k + 1, which is kept for 2 k levels

The recomputed values have the same bits as in the forward run, because the same kernels compute them from the same
values. With memory for P planes, k can be sqrt(P / r), and the disk has 1 / k words for each cell and step.

A value that no adjoint step reads is needed only until the forward run replaces it. Such values share a ring, as in the
forward run: updates 0, 2, 4, ... are in the first ring, and updates 1, 3, 5, ... in the second ring. So if the adjoint
reads only sums of u (language/hoist.py), all values of u take two rings, and only the sums have long rings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from outcrop.errors import InputError
from outcrop.plan.problem import FieldPlan, Operand, Problem, StagePlan

MAX_LEVELS = 8192
"""The maximum number of levels of a pass. A plan with more levels takes minutes to make and to prove. With a radius of
1, the window of this number of levels has tens of millions of planes."""

Operands: TypeAlias = tuple[tuple[int, int], ...]
Calls: TypeAlias = tuple[tuple[int, Operands, Operands], ...]
"""The kernel calls of successive levels, as `Kernel.calls` has them (language/compile.py)."""
Value: TypeAlias = tuple[int, int]
"""A field of the forward problem, and how often it was updated since the state with which the pass begins. -1 means the
previous value of this state."""


@dataclass(frozen=True)
class ForwardCall:
    """The kernel of a stage of the forward run. `reads` has the pairs (field, age) of its operands."""

    address: int
    reads: Operands
    targets: tuple[int, ...]


class Values:
    """The values of the forward run that a pass of `steps` steps uses. The pass goes back from state `steps` to state
    0, counted from the state with which it begins.

    `lead` is the number of levels of the forward run that are computed again. `numbers` maps each value to the number
    of its field in the listed problem.
    """

    def __init__(self, problem: Problem, steps: int) -> None:
        assert problem.forward is not None and problem.listed_steps == 1 and steps >= 1
        self.problem, self.forward, self.steps = problem, problem.forward, steps
        self._names = {one.name: number for number, one in enumerate(self.forward.fields)}
        self._updates = [
            sum(number in stage.targets for stage in self.forward.updates) for number in range(len(self._names))
        ]
        loaded = {one.field for stage in self.forward.updates for one in stage.reads}
        self._companions = {
            (number, target): next(one.field for one in stage.reads if self._updates[one.field])
            for number, stage in enumerate(self.forward.updates)
            for target in stage.targets
            if target not in loaded
        }
        read = {self.read(field, step) for field in self._histories() for step in range(steps)}
        levels = list(self._levels(steps * self.forward.stages))
        self.lead = max((level for level, (_, targets) in enumerate(levels, 1) if read & set(targets)), default=0)
        levels = levels[: self.lead]
        begun = dict.fromkeys(one for reads, _ in levels for one, _ in reads if one[1] <= 0 and self.is_updated(one[0]))
        begun |= dict.fromkeys(sorted(one for one in read if one[1] <= 0))
        own = [one for one in self.problem.fields if not one.history]
        known = {one.name for one in own}
        self.fields = [*own, *(one for one in self.forward.fields if one.is_static and one.name not in known)]
        self._statics = {one.name: number for number, one in enumerate(self.fields)}
        self.levels, self.numbers = levels, dict[Value, int]()
        for one in [*begun, *(one for _, targets in levels for one in targets)]:
            field, count = one
            older = field, count - 1 - self.forward.fields[field].is_double
            new = len(self.fields) + len(set(self.numbers.values()))
            self.numbers[one] = new if older in read else self.numbers.get(older, new)

    def _histories(self) -> list[int]:
        return [number for number, one in enumerate(self.problem.fields) if one.history]

    def is_updated(self, field: int) -> bool:
        return self._updates[field] > 0

    def read(self, field: int, step: int) -> Value:
        """Return the value that adjoint step `step` of the pass reads as its field number `field`."""
        one = self.problem.fields[field]
        number = self._names[one.history]
        return number, (self.steps - one.state - step) * self._updates[number] + one.later

    def number(self, value: Value) -> int:
        """Return the number of a field in the listed problem. The value may belong to a static field."""
        field = value[0]
        return self.numbers[value] if self.is_updated(field) else self._statics[self.forward.fields[field].name]

    def of_step(self, step: int, stage: int, field: int, age: int) -> Value:
        """Return the value of a field before a stage of a forward step. With the age -1, return the value after the
        stage. If no stage reads the field, its older value is not kept. In this case, return the older value of its
        companion, which is another target of the stage."""
        if age >= 0:
            field = self._companions.get((stage, field), field)
        before = sum(field in one.targets for one in self.forward.updates[:stage])
        return field, step * self._updates[field] + before - age

    def before_level(self, level: int, field: int) -> Value:
        """Return the value from which cells of the rim are copied when a level computes a new value of a field."""
        step, stage = divmod(level - 1, self.forward.stages)
        return self.of_step(step, stage, field, 0)

    def _levels(self, count: int) -> Iterator[tuple[list[tuple[Value, bool]], list[Value]]]:
        """Yield the values that each level of the forward run reads and writes. Each read has a flag that is true if
        the level also reads the values of neighbouring cells."""
        for level in range(count):
            step, number = divmod(level, self.forward.stages)
            stage = self.forward.updates[number]
            reads = [(self.of_step(step, number, one.field, one.age), one.beside) for one in stage.reads]
            yield reads, [self.of_step(step, number, one, -1) for one in stage.targets]


def steps_again(problem: Problem) -> int:
    """Return the number of steps of a pass: the steps from one state of the history to the next, but at most the steps
    of the run. Raises InputError if a pass would have more than MAX_LEVELS levels."""
    assert problem.forward is not None
    steps, stages = min(problem.every, problem.steps), problem.forward.stages + problem.stages
    if steps * stages > MAX_LEVELS:
        most = MAX_LEVELS // stages
        raise InputError(
            f"the history has a state every {problem.every} steps, and a pass of the adjoint run can compute at most "
            f"{most} steps again; run forward again with history=oc.History({most}, recompute=True)"
        )
    return steps


def recomputed(problem: Problem, steps: int) -> Problem:
    """Return the problem with the levels of a pass of `steps` steps: first the levels that compute the states of the
    forward run again, then the levels of the steps. `problem` must have the updates of one step, and its fields that
    are a history must be the last fields."""
    values = Values(problem, steps)
    updates, uses, seen = list[StagePlan](), dict[int, list[int]](), set[int]()

    def use(number: int, beside: bool) -> Operand:
        uses.setdefault(number, []).append(len(updates) + 1)
        if beside:
            seen.add(number)
        return Operand(number, 0, beside)

    for reads, targets in values.levels:
        found = tuple(use(values.number(one), beside) for one, beside in reads)
        updates.append(StagePlan(found, tuple(map(values.number, targets))))
    for step in range(steps):
        for stage in problem.updates:
            found = tuple(
                use(values.number(values.read(one.field, step)), one.beside)
                if problem.fields[one.field].history
                else one
                for one in stage.reads
            )
            updates.append(StagePlan(found, stage.targets))
    written = set[int]()
    for level, stage in enumerate(updates[: values.lead], 1):
        for target in stage.targets:
            uses.setdefault(target, []).append(level)
            written.add(target)
    first = {number: one for one, number in reversed(values.numbers.items())}
    follows = {
        number: values.number(values.before_level(min(uses[number]), field))
        for number, (field, count) in first.items()
        if count > 0
    }
    seen |= set(follows.values())  # the rim is copied from planes that are one skew higher or lower
    fields = [
        _field(values, one, number not in written, sorted(uses[number]), number in seen, follows.get(number, -1))
        for number, one in sorted(first.items())
    ]
    return replace(
        problem, fields=(*values.fields, *fields), updates=tuple(updates), listed_steps=steps, lead=values.lead,
        lead_stages=values.forward.stages, forward=None,
    )  # fmt: skip


def recomputed_calls(problem: Problem, calls: Calls, forward: Sequence[ForwardCall], steps: int) -> Calls:
    """Return the kernel calls of all levels of a pass. `calls` has the calls of an even step and of an odd step of
    `problem`, which has the updates of one step. `forward` has the calls of a step of the forward run."""
    values, found = Values(problem, steps), []
    for level in range(values.lead):
        step, number = divmod(level, len(forward))
        one = forward[number]
        reads = tuple((values.number(values.of_step(step, number, field, age)), 0) for field, age in one.reads)
        targets = tuple((values.number(values.of_step(step, number, field, -1)), 0) for field in one.targets)
        found.append((one.address, reads, targets))
    for step in range(steps):
        for address, sources, written in calls[step % 2 * problem.stages :][: problem.stages]:
            moved = tuple(
                (values.number(values.read(field, step)), 0) if problem.fields[field].history else (field, copy)
                for field, copy in sources
            )
            found.append((address, moved, written))
    return tuple(found)


def _field(
    values: Values, first: Value, is_static: bool, levels: list[int], is_seen: bool, follows: int
) -> FieldPlan:
    """Return a field that holds values of the forward run, one after the other. Passes read the value `first` from the
    history, or the first of the `levels` computes it. `levels` read or write the field. `is_seen` is true if neighbours
    are also read."""
    (field, count), skew = first, values.problem.skew_z
    name, reach = values.forward.fields[field].name, skew if is_seen else 0
    return FieldPlan(
        is_static=is_static, is_double=False, flips=False, name=f"{name}, update {count}", history=name,
        state=values.steps, later=count, behind=reach + skew * (levels[-1] - 1),
        ahead=(reach if follows < 0 else 0) - skew * (levels[0] - 1), follows=follows,
    )  # fmt: skip
