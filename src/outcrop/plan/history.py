"""This module handles problems whose updates read the states of another run, the forward run. Only an adjoint run has a
problem whose updates read the states of another run. A pass of the adjoint run goes back through the steps of the
forward run, and is called a reverse pass. If a step of a reverse pass computes time t, the step reads the states of the
forward run at times near t:

    forward run     state t-2 ──► state t-1 ──► state t ──► state t+1
    reverse pass                    step 2  ◄──  step 1  ◄──  step 0        step j reads states near t - j
    rings            u, state 3    u, state 2   u, state 1    u, state 0    `state` counts from the newest state

If the history has only every k-th state, only every k-th step of the reverse pass reads a state. A step that reads a
state adds terms to the sums of a gradient. The updates of all other steps leave the sums of a gradient out
(`Problem.plain_updates`). The number of steps of a reverse pass is a multiple of k. So the steps that read a state are
at the same places in each pass.

Different steps read different states, so each step of a pass has its own updates. The function `listed` lists the
updates of all steps of a pass. Each state becomes a separate field, which only a few levels use. So the ring of a state
holds only a few planes. The planes of a state are read later than the planes of other fields (`FieldPlan.ahead`).

A history that has every state takes much space on the disk. With recomputation, the history has only every k-th state.
The first levels of a pass recompute the states between two kept states. These levels are called the lead. Then the pass
goes back through k steps:

    history   state t - k                                              state t
                  |                                                        |
    lead          └─► step 1 ──► step 2 ──► ... ──► step k                 levels 1, 2, ..., lead
    adjoint       adjoint t - k ◄── ... ◄── step 2 ◄── step 1 ◄── adjoint t    the levels that follow

The levels of the lead and of the adjoint belong to one wavefront, so every plane is read once and written once. The
values that the lead computes stay in memory. For each value that the adjoint reads, there is a separate field. Each of
these fields has one copy in memory, and only one level writes this copy. Late steps of the adjoint run read values of
early steps of the forward run, so the rings of these values are long:

    level
     2k  |              adjoint: the last step reads the state t - k + 1 ...
      :  |
    k+1  |  adjoint: the first step reads the state t - 1        The rings of all states together hold about
     k   |  lead: the state t                                    r k^2 planes for a radius r.
      :  |
      1  |  lead: the state t - k + 1, which is kept for 2 k levels

The recomputed values have the same bits as in the forward run, because the same kernels compute these values from the
same input. If the memory has room for P planes and the radius is r, the interval k can be sqrt(P / r). The disk then
holds 1 / k words for each cell and step.

If no adjoint step reads a value, the value is needed only until the lead replaces it. As in the forward run, two rings
are enough for all values of a field that no adjoint step reads. One ring has the results of updates with even numbers,
and the other ring has the results of updates with odd numbers. For example, some adjoints read only sums of values of u
(language/hoist.py). For such adjoints, all values of u share two rings, and only the sums have long rings.

If the disk has no room for every k-th state, the forward run keeps fewer states. If the forward run keeps fewer states,
the adjoint run repeats parts of the forward run (`first_states`, `sweep`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import TypeAlias

from outcrop.errors import InputError
from outcrop.plan.actions import round_up
from outcrop.plan.problem import FieldPlan, Operand, Problem, StagePlan

STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""The numbers of steps that the tuner tries for a pass that reads a history."""
MAX_LEVELS = 8192
"""The maximum number of levels of a pass. A plan with more levels would take minutes to make and to prove. Even with a
radius of 1, a pass of MAX_LEVELS levels needs tens of millions of planes in memory."""

Operands: TypeAlias = tuple[tuple[int, int], ...]
Calls: TypeAlias = tuple[tuple[int, Operands, Operands], ...]
"""The kernel calls of successive levels, in the format of `Kernel.calls` (language/compile.py)."""
Value: TypeAlias = tuple[int, int]
"""A value of the forward run. The first number is the number of its field, and the second number is its time. Without
recomputation, the time is the number of steps from the value to the newest state. With recomputation, the field is a
field of the forward problem. The time is then the number of updates of this field after the kept state with which the
pass begins. The time -1 means the previous value in this state."""


@dataclass(frozen=True)
class ForwardCall:
    """The kernel of a stage of the forward run. `reads` contains a pair (field, age) for each operand of the kernel."""

    address: int
    reads: Operands
    targets: tuple[int, ...]


class Values:
    """The values of the forward run for a pass of `steps` steps. With recomputation, the pass goes back from state
    `steps` to state 0. States are counted from the kept state with which the pass begins.

    `lead` is the number of levels of the forward run that are computed again. `levels` contains the values that each
    level of the forward run reads and writes. `fields` contains the fields of the listed problem (see `listed`) that
    store no values of the forward run. `numbers` maps each value to the number of its field in the listed problem.
    """

    def __init__(self, problem: Problem, steps: int) -> None:
        assert problem.listed_steps == 1 and steps >= 1
        self.problem, self.forward, self.steps = problem, problem.forward, steps
        self.fields, self.numbers = [one for one in problem.fields if not one.history], dict[Value, int]()
        self.lead, self.levels = 0, list[tuple[list[tuple[Value, bool]], list[Value]]]()
        histories = range(len(self.fields), len(problem.fields))
        if self.forward is not None:
            self._plan_lead(self.forward, histories)
            return
        self.names = [one.history for one in problem.fields]
        for step in filter(self.reads, range(steps)):
            for field in histories:
                self.numbers.setdefault(self.read(field, step), len(self.fields) + len(self.numbers))

    def _plan_lead(self, forward: Problem, histories: range) -> None:
        stages = list(enumerate(forward.updates))
        self.names = [one.name for one in forward.fields]
        self._updates = [sum(number in stage.targets for _, stage in stages) for number in range(len(self.names))]
        loaded = {one.field for _, stage in stages for one in stage.reads}
        self._companions = {
            (number, target): next(one.field for one in stage.reads if self._updates[one.field])
            for number, stage in stages
            for target in stage.targets
            if target not in loaded
        }
        read = {self.read(field, step) for field in histories for step in range(self.steps)}
        levels = list(self._levels(forward))
        self.lead = max((level for level, (_, targets) in enumerate(levels, 1) if read & set(targets)), default=0)
        self.levels = levels[: self.lead]
        begun = dict.fromkeys(one for reads, _ in self.levels for one, _ in reads
                              if one[1] <= 0 and self._updates[one[0]])  # fmt: skip
        begun |= dict.fromkeys(sorted(one for one in read if one[1] <= 0))
        known = {one.name for one in self.fields}
        self.fields += [one for one in forward.fields if one.is_static and one.name not in known]
        self._statics = {one.name: number for number, one in enumerate(self.fields)}
        for one in [*begun, *(one for _, targets in self.levels for one in targets)]:
            field, count = one
            older = field, count - 1 - forward.fields[field].is_double
            new = len(self.fields) + len(set(self.numbers.values()))
            self.numbers[one] = new if older in read else self.numbers.get(older, new)

    def reads(self, step: int) -> bool:
        """Return True if step `step` of the pass reads values of the forward run."""
        return self.forward is not None or (step - self.problem.phase) % self.problem.every == 0

    def read(self, field: int, step: int) -> Value:
        """Return the value that field number `field` represents in step `step` of the pass."""
        one = self.problem.fields[field]
        number = self.names.index(one.history)
        if self.forward is None:
            return number, one.state + step
        return number, (self.steps - one.state - step) * self._updates[number] + one.later

    def number(self, value: Value) -> int:
        """Return the number of the field in the listed problem that holds `value`. The value can belong to a static
        field."""
        found = self.numbers.get(value)
        return self._statics[self.names[value[0]]] if found is None else found

    def number_read(self, field: int, step: int) -> int:
        """Return the number of the field in the listed problem that holds, in step `step`, the values of field number
        `field` of the original problem."""
        return self.number(self.read(field, step)) if self.problem.fields[field].history else field

    def of_step(self, step: int, stage: int, field: int, age: int) -> Value:
        """Return the value of a field before a stage of a forward step. If `age` is -1, return the value after the
        stage. If no stage reads the field, the older value of the field is not kept. If the older value of the field is
        not kept, return the older value of the companion. The companion is an updated field that the stage reads.
        """
        assert self.forward is not None
        if age >= 0:
            field = self._companions.get((stage, field), field)
        before = sum(field in one.targets for one in self.forward.updates[:stage])
        return field, step * self._updates[field] + before - age

    def _levels(self, forward: Problem) -> Iterator[tuple[list[tuple[Value, bool]], list[Value]]]:
        """Yield the values that each level of the forward run reads and writes. Each read has a flag that is true if
        the level also reads the values of neighbouring cells."""
        for level in range(self.steps * forward.stages):
            step, number = divmod(level, forward.stages)
            stage = forward.updates[number]
            reads = [(self.of_step(step, number, one.field, one.age), one.beside) for one in stage.reads]
            yield reads, [self.of_step(step, number, one, -1) for one in stage.targets]


def steps_of_pass(problem: Problem, steps: int) -> int:
    """Return the number of steps of a pass that reads a history. The number of steps is at least `steps`, and a
    multiple of the interval of the history. A pass that computes states again goes back from one state of the history
    to the next. Raises InputError if a pass that computes states again has more than MAX_LEVELS levels."""
    if problem.forward is None:
        return round_up(max(1, steps), problem.every)
    steps, stages = min(problem.every, problem.steps), problem.forward.stages + problem.stages
    if steps * stages > MAX_LEVELS:
        most = MAX_LEVELS // stages
        raise InputError(
            f"the history has a state every {problem.every} steps, and a pass of the adjoint run can compute at most "
            f"{most} steps again; run forward again with history=oc.History({most}, recompute=True)"
        )
    return steps


def listed(problem: Problem, steps: int) -> Problem:
    """Return the problem that lists all levels of a pass of `steps` steps. The levels that compute states of the
    forward run again come first. The levels of the `steps` steps follow. `problem` must have the updates of one step
    that reads the history. The history fields (`FieldPlan.is_history`) must come last in `problem`."""
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
        for stage in problem.updates if values.reads(step) else problem.plain_updates:
            found = tuple(
                use(values.number_read(one.field, step), one.beside) if problem.fields[one.field].history else one
                for one in stage.reads
            )
            updates.append(StagePlan(found, stage.targets))
    writers = dict[int, int]()  # for each value that the lead writes, the first level that writes it
    for level, stage in enumerate(updates[: values.lead], 1):
        for target in stage.targets:
            uses.setdefault(target, []).append(level)
            writers.setdefault(target, level)
    first = {number: one for one, number in reversed(values.numbers.items())}
    follows = dict[int, int]()
    if problem.forward is not None:
        for number, (field, count) in first.items():
            # If the field has an earlier value, the level also copies the rim from this earlier value.
            if count > 0:
                place = divmod(min(uses[number]) - 1, problem.forward.stages)
                follows[number] = values.number(values.of_step(*place, field, 0))
    seen |= set(follows.values())  # updates copy the rim from planes that are one skew higher or lower
    fields = [
        _field(values, one, number not in writers, uses[number], number in seen, follows.get(number, -1))
        for number, one in sorted(first.items())
    ]
    return replace(
        problem, fields=(*values.fields, *fields), updates=tuple(updates), listed_steps=steps, lead=values.lead,
        lead_stages=problem.forward.stages if problem.forward else 1, forward=None,
    )  # fmt: skip


def _field(values: Values, first: Value, is_static: bool, levels: list[int], is_seen: bool, follows: int) -> FieldPlan:
    """Return a field that stores successive values of the forward run. The value `first` is read from the history, or
    is computed by the first level in `levels`. `levels` are all levels that read or write the field. `is_seen` is true
    if updates also read the field at neighbouring cells."""
    (field, time), skew = first, values.problem.skew_z
    name, reach = values.names[field], skew if is_seen else 0
    what, state, later = ("state", time, 0) if values.forward is None else ("update", values.steps, time)
    return FieldPlan(
        is_static=is_static, is_double=False, flips=False, name=f"{name}, {what} {time}", history=name, state=state,
        later=later, behind=reach + skew * (max(levels) - 1),
        ahead=(reach if follows < 0 else 0) - skew * (min(levels) - 1), follows=follows,
    )  # fmt: skip


def listed_calls(
    problem: Problem, calls: Calls, plain: Calls, steps: int, forward: Sequence[ForwardCall] = ()
) -> Calls:
    """Return the kernel calls of all levels of a pass. `problem` contains the updates of one step. `calls` contains the
    calls of an even step and of an odd step of `problem`. `plain` contains the calls of steps that do not read the
    history. The calls in `calls` and in `plain` use the field numbers of `problem`. If passes compute steps of the
    forward run again, `forward` contains the calls of one step of the forward run."""
    values, found = Values(problem, steps), []
    for level in range(values.lead):
        step, number = divmod(level, len(forward))
        one = forward[number]
        reads = tuple((values.number(values.of_step(step, number, field, age)), 0) for field, age in one.reads)
        targets = tuple((values.number(values.of_step(step, number, field, -1)), 0) for field in one.targets)
        found.append((one.address, reads, targets))
    for step in range(steps):
        of_two_steps = calls if values.reads(step) else plain
        for address, sources, written in of_two_steps[step % 2 * problem.stages :][: problem.stages]:
            moved = tuple((values.number_read(field, step), copy) for field, copy in sources)
            found.append((address, moved, written))
    return tuple(found)


def fields_read(problem: Problem, levels: int) -> set[int]:
    """Return the numbers of the fields that a pass of `levels` levels reads."""
    return {one.field for stage in problem.updates[:levels] for one in stage.reads}


# --- the states that the disk keeps ----------------------------------------------------------------------------------
# The functions below compute schedules for adjoint runs whose histories lack some of the necessary states, because the
# disk is too small. A history with recomputation needs a state at the beginning of each segment of k steps. If the disk
# has room for only `slots` states, the forward run keeps only some of the necessary states. The adjoint run goes back
# over one segment after another. If the state of the next segment is missing, a part of the forward run is repeated,
# from the newest state before this segment. This repetition is called a sweep. The sweep stores other states in the
# slots that have become free:
#
#     segments        0    1    2    3    4    5         4 slots: the states 0, 3, 4 and 5 are kept
#     forward run     K──────────────►K───►K───►K───►    K: the state is kept
#     adjoint run                               ◄────    back over segment 5, then state 5 is freed
#                                          ◄────         back over 4, then 3
#                                     ◄────
#     sweep           s───►K───►K                        from state 0: the states 1 and 2 are kept
#     adjoint run               ◄────                    back over 2, 1 and 0
#                     ◄────◄────
#
# The schedules repeat the smallest possible number of segments. The schedules of `sweep` are the schedules of Revolve:
# A. Griewank and A. Walther, Algorithm 799: Revolve, ACM Transactions on Mathematical Software 26 (2000), p. 19. G.
# Aupy and J. Herrmann use the same rule for a disk whose transfers cost nothing (Optimization Methods and Software 32
# (2017), p. 594). In Revolve, the state of the current segment is in memory and needs no slot. In Outcrop, the state of
# the current segment is on the disk, and needs a slot. So `slots` slots of a schedule correspond to `slots - 1` slots
# of Revolve.
#
# A sweep depends only on the states that are kept, on the next segment and on the number of slots. So an adjoint run
# does not store its position in the schedule. After an interruption, the states on the disk determine the position in
# the schedule.


def first_states(segments: int, slots: int) -> tuple[int, ...]:
    """Return the states that a forward run over `segments` segments keeps. At most `slots` states exist at the same
    time. `slots` must be at least 2. For a single segment, `slots` may also be 1."""
    return (0, *_places(segments, slots))


def usable(states: list[int], slots: int) -> int:
    """Return the number of existing states that remain when a sweep begins. If a slot is free, all states remain. If no
    slot is free, only the oldest states remain, so that the sweep has free slots. All slots can be in use if the
    forward run has continued beyond the steps for which its states were chosen."""
    return min(len(states), slots - 1)


def sweep(states: list[int], number: int, slots: int) -> tuple[int, ...]:
    """A sweep goes from the newest of `states` to the state `number`. Return the states that the sweep keeps. The last
    kept state is the state `number`. `states` contains all states that exist. At least one slot must be free."""
    begin = states[-1]
    return tuple(begin + one for one in _places(number + 1 - begin, slots + 1 - len(states)))


def repeated_segments(kept: Iterable[int], segments: int, slots: int) -> int:
    """Return the number of segments that the sweeps of an adjoint run repeat. `kept` contains the states that exist
    when the adjoint run begins. State 0 must be in `kept`."""
    states, repeated = sorted(kept), 0
    for number in reversed(range(segments)):
        states = [one for one in states if one <= number]
        if states[-1] < number:
            states = states[: usable(states, slots)]
            repeated += number - states[-1]
            states += sweep(states, number, slots)
    return repeated


def _places(segments: int, slots: int) -> Iterator[int]:
    """Yield the states that a sweep over `segments` segments keeps, without its first state. The first state of the
    sweep also uses one of the slots. The last yielded state is the state of the last segment.

    Let G(n, s) be the smallest number of segments that sweeps repeat to go back over n segments with s + 1 slots. The
    first yielded state m divides the segments: G(n, s) = m + G(n - m, s - 1) + G(m, s). Let t be the smallest number
    for which the binomial coefficient C(s + t, s) is at least n. With this t, the function G(., s) has the slope t at
    n. So m is best if G(., s) has the slope t - 1 at m, and G(., s - 1) has the slope t at n - m. The function
    `_places` uses the largest m that is best.
    """
    assert segments == 1 or slots >= 2
    first, left, s = 0, segments, slots - 1
    while left > 1:
        t = 1 + bisect_left(range(1, left), left, key=lambda t: comb(s + t, s))
        place = min(comb(s + t - 1, s), left - comb(s + t - 2, s - 1))
        first, left, s = first + place, left - place, s - 1
        yield first
