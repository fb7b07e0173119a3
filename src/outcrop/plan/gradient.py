"""Choose how the adjoint run of a gradient gets the states of the forward run. All ways give the same, exact gradient:

    no history              for an adjoint that reads no states
    all states              both runs transfer a word for each cell, step and updated field
    every k-th state        both runs transfer 1/k of the data, but the adjoint run computes all other states again,
                            and its window needs about r k^2 planes of each updated field (history.py)
    some of these states    if the disk does not have room for every k-th state, the forward run keeps fewer states, and
                            parts of the forward run are repeated (history.py)

For each way, formulas predict the times of the forward run and of the adjoint run (`estimate`). Unless the runs are
short, `choose_way` also makes plans for the ways whose time is close to the shortest time. For ways with plans, the
times from the plans replace the times from the formulas. Outcrop chooses the way with the shortest predicted time. If
the history has only every k-th state, a larger k needs fewer transfers in both runs, but more memory in the adjoint
run. So the budget of the adjoint run limits k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from outcrop.errors import by_caller
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.history import first_states, listed, repeated_segments, steps_of_pass
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.memory import min_acquisition_memory
from outcrop.plan.placement import EQUALLY_FAST, aligned
from outcrop.plan.plan import Scheme
from outcrop.plan.planner import best_steps, choose, schemes_for, smallest_budget_bytes
from outcrop.plan.problem import Problem
from outcrop.plan.tuner import estimate, rate_in_thick_slabs
from outcrop.units import format_bytes, format_seconds

INTERVALS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""The intervals that are tried. An interval is the number of steps from one kept state to the next."""
CLOSE, PLANNED = 1.25, 3
"""Plans are made for at most PLANNED ways. The formulas predict that each of these ways takes at most CLOSE times as
long as the fastest way."""


@dataclass(frozen=True)
class Way:
    """A way to get the states of the forward run. The history has every `every`-th state. If `every` is 0, there is no
    history.

    `forward` is the problem of the forward run. The last entry of `forward.acquisition.snapshots` is the history.
    `adjoint` is the problem of the adjoint run, with the updates of one step. The history has `states` states, which
    take `history_bytes` on the disk. If the history does not have all necessary states, `repeated_steps` steps of the
    forward run are repeated. `refusal` is the reason why the adjoint run cannot use this history, or "" if the adjoint
    run can use it.
    """

    every: int
    forward: Problem
    adjoint: Problem
    states: int = 0
    history_bytes: int = 0
    refusal: str = ""
    repeated_steps: int = 0

    @property
    def limit_bytes(self) -> int | None:
        """The maximum size of a history that keeps only some of its states. The value is None if the history keeps all
        its states."""
        return self.history_bytes if self.repeated_steps else None

    @property
    def name(self) -> str:
        """The Python expression for the history, or "no history"."""
        if not self.every:
            return "no history"
        limit = f"limit={self.limit_bytes}, " if self.repeated_steps else ""
        return 'History("all")' if self.every == 1 else f"History({self.every}, {limit}recompute=True)"

    def within(self, disk_bytes: int) -> Way:
        """Return this way with the maximum number of states that fit into `disk_bytes`. Return this way unchanged if
        fewer than two states fit, or if all states fit."""
        each = self.history_bytes // max(1, self.states)
        slots = disk_bytes // max(1, each)
        if self.every < 2 or self.refusal or slots < 2 or slots >= self.states:
            return self
        segments = -(-self.forward.steps // self.every)
        kept = first_states(segments, slots)
        repeated = repeated_segments(kept, segments, slots) * self.every
        acquisition = self.forward.acquisition
        *others, history = acquisition.snapshots
        history = replace(history, steps=tuple(one * self.every for one in kept))
        forward = replace(self.forward, acquisition=replace(acquisition, snapshots=(*others, history)))
        return replace(self, forward=forward, states=slots, history_bytes=slots * each, repeated_steps=repeated)


@dataclass(frozen=True)
class RunCost:
    """The cost of the forward run or of the adjoint run. `bytes_read` and `bytes_written` include the history.
    `bytes_read` and `bytes_written` are None if only formulas have predicted the time."""

    seconds: float
    memory_bytes: int
    bytes_read: int | None = None
    bytes_written: int | None = None


@dataclass(frozen=True)
class JudgedWay:
    """A way, together with the reason why Outcrop chooses or rejects the way. The adjoint run needs at least
    `smallest_bytes` of memory. `forward` and `adjoint` are None if the way is impossible."""

    way: Way
    why: str
    smallest_bytes: int = 0
    forward: RunCost | None = None
    adjoint: RunCost | None = None

    @property
    def seconds(self) -> float:
        """The predicted time of both runs, or infinity if the way is impossible."""
        return self.forward.seconds + self.adjoint.seconds if self.forward and self.adjoint else float("inf")


@dataclass(frozen=True)
class WayChoice:
    """The result of `choose_way`: all ways, in the order of the caller's list. `chosen` is the fastest possible way, or
    None if all ways are impossible."""

    ways: tuple[JudgedWay, ...]
    chosen: JudgedWay | None

    @property
    def refusal(self) -> str:
        """The error message if all ways are impossible. The message gives the reasons why two of the histories are
        impossible: the first history, and the history that needs the least memory or disk. If the adjoint run reads no
        states, the message gives the reason why the only way is impossible."""
        kept = [one for one in self.ways if one.way.every]
        if not kept:
            (only,) = self.ways
            return f"no gradient is possible: {only.why}; give a larger {by_caller('--memory', 'memory=')}"

        def needs(one: JudgedWay) -> tuple[bool, bool, int]:
            is_large = _OVER_DISK in one.why
            return bool(one.way.refusal), is_large, one.way.history_bytes if is_large else one.smallest_bytes

        nearest = min(kept, key=needs)
        named = list(dict.fromkeys([kept[0], nearest]))
        return "no history is possible: " + "; ".join(f"{one.way.name}: {one.why}" for one in named)


@dataclass(frozen=True)
class Limits:
    """The limits of the memory and the disk for a gradient. `memory_forward_bytes` and `memory_adjoint_bytes` are the
    budgets of the two runs. The plan of the forward run has the scheme `scheme` and the sizes `given`. The history may
    take `disk_bytes`. `disk_why` is the reason for this limit, such as "12 GiB are free". If parts of the forward run
    are repeated, the replay also needs space, and the history may take only `replay_disk_bytes`. A limit that is not
    known is None."""

    memory_forward_bytes: int
    memory_adjoint_bytes: int
    disk_bytes: int | None = None
    disk_why: str = ""
    replay_disk_bytes: int | None = None
    scheme: str = "auto"
    given: GivenSizes = FREE


Rates = Callable[[Problem], UpdateRate]
"""A function that returns the update rates for a problem. A problem that reads a history must have the updates of all
steps of a pass."""

_OVER_DISK, _OVER_MEMORY = "on the disk", "of memory"
TOO_MANY_SLABS = "little memory leaves only thin slabs, so the list of actions would be too long"


def intervals(steps: int) -> tuple[int, ...]:
    """Return the intervals between kept states that are tried for a run of `steps` steps."""
    return tuple(one for one in INTERVALS if one <= steps) or INTERVALS[:1]


def choose_way(
    ways: Sequence[Way], machine: Machine, limits: Limits, rates: Rates, is_rough: bool = False
) -> WayChoice:
    """Choose the way with the shortest predicted time. For each way, the result gives the reason why the way is chosen
    or rejected. If two ways take the same time, the way with the smaller history is chosen. If `is_rough` is true, no
    plans are made, and the times come from formulas.
    """
    if limits.disk_bytes is not None and limits.replay_disk_bytes is not None:
        most, less = limits.disk_bytes, limits.replay_disk_bytes
        ways = [one.within(less) if one.history_bytes > most else one for one in ways]
    refused = {one.every: _refused(one, limits) for one in ways}
    possible = [one for one in ways if not refused[one.every].why]
    rough = {one.every: _roughly(one, machine, limits, rates) for one in possible}
    shortest = min((one.seconds for one in rough.values()), default=0.0)
    if isfinite(shortest):
        for every in [every for every, one in rough.items() if not isfinite(one.seconds)]:
            refused[every] = replace(refused[every], why=TOO_MANY_SLABS)
            del rough[every]
    ranked = sorted((one for one in possible if one.every in rough), key=lambda one: rough[one.every].seconds)
    close = [one for one in ranked[:PLANNED] if rough[one.every].seconds <= CLOSE * shortest]
    planned = rough if is_rough else {one.every: _planned(one, machine, limits, rates) for one in close}
    fastest = min((one.seconds for one in planned.values()), default=0.0)
    equal = [one for one in planned.values() if one.seconds <= EQUALLY_FAST * fastest]
    if not equal:
        return WayChoice(tuple(refused.values()), None)
    best = min(equal, key=lambda one: (one.way.history_bytes, one.seconds))
    found = [
        replace(one, why=one.why or _why_not(one, best), smallest_bytes=refused[one.way.every].smallest_bytes)
        for one in (refused | rough | planned).values()
    ]
    return WayChoice(tuple(found), next(one for one in found if one.way is best.way))


def _refused(way: Way, limits: Limits) -> JudgedWay:
    """Return the way together with the reason why the way is impossible. If the way is possible, the reason is ""."""
    if way.refusal:
        return JudgedWay(way, way.refusal)
    smallest = max(smallest_budget_bytes(one) for one in _parts(way.adjoint, 1))
    forward, needs = smallest_budget_bytes(way.forward, limits.scheme, limits.given), list[str]()
    if limits.disk_bytes is not None and way.history_bytes > limits.disk_bytes:
        needs.append(f"needs {format_bytes(way.history_bytes)} {_OVER_DISK}, {limits.disk_why}")
    if smallest > limits.memory_adjoint_bytes:
        given = format_bytes(limits.memory_adjoint_bytes)
        who = "" if way.every else "the adjoint run "  # the text "needs ..." follows the name of a history in messages
        needs.append(f"{who}needs {format_bytes(smallest)} {_OVER_MEMORY}, the budget is {given}")
    elif forward > limits.memory_forward_bytes:
        given = format_bytes(limits.memory_forward_bytes)
        needs.append(f"the forward run needs {format_bytes(forward)} {_OVER_MEMORY}, the budget is {given}")
    return JudgedWay(way, " and ".join(needs), smallest)


@dataclass(frozen=True)
class _Task:
    """A problem to plan, with the budget, the scheme and the sizes."""

    problem: Problem
    budget_bytes: int
    scheme: str = "auto"
    given: GivenSizes = FREE

    @property
    def _schemes(self) -> list[Scheme]:
        return schemes_for(self.problem, self.scheme, self.given)

    def rate_in_thick_slabs(self, machine: Machine, rates: Rates) -> float:
        return rate_in_thick_slabs(self.problem, self._schemes, machine, self._window_bytes, rates(self.problem))

    def seconds(self, machine: Machine, rates: Rates) -> float:
        """Return the time in seconds that the formulas predict for the run."""
        rate = self.rate_in_thick_slabs(machine, rates)
        return estimate(self.problem, self._schemes, machine, self._window_bytes, rate)

    @property
    def _window_bytes(self) -> int:
        steps = self.problem.listed_steps if self.problem.lead else 1
        return self.budget_bytes - min_acquisition_memory(self.problem.acquisition, steps).bytes(steps)


def _tasks(way: Way, machine: Machine, limits: Limits, rates: Rates) -> tuple[_Task, list[_Task]]:
    """Return the task of the forward run, and a list with the tasks of the parts of the adjoint run. If the adjoint run
    reads all states, formulas determine the number of steps of its passes. The formulas for the number of steps use the
    update rate of the forward run."""
    forward = _Task(way.forward, limits.memory_forward_bytes, limits.scheme, limits.given)
    steps, budget_bytes = 1, limits.memory_adjoint_bytes
    if way.every == 1:
        rate = forward.rate_in_thick_slabs(machine, rates)
        steps = best_steps(way.adjoint, machine, budget_bytes, "auto", FREE, rate)
    return forward, [_Task(one, budget_bytes) for one in _parts(way.adjoint, steps)]


def _roughly(way: Way, machine: Machine, limits: Limits, rates: Rates) -> JudgedWay:
    """Return the way, together with the times that the formulas predict for both runs."""
    forward, parts = _tasks(way, machine, limits, rates)
    there = RunCost(forward.seconds(machine, rates), 0)
    back = RunCost(sum(one.seconds(machine, rates) for one in parts), 0)
    return JudgedWay(way, "", 0, there, _with_repeats(back, there, way))


def _with_repeats(adjoint: RunCost, forward: RunCost, way: Way) -> RunCost:
    """Add the time of the repeated steps of the forward run to the cost of an adjoint run. A repeated step takes as
    long as a step of the forward run."""
    share = way.repeated_steps / way.forward.steps
    return replace(adjoint, seconds=adjoint.seconds + share * forward.seconds)


def _planned(way: Way, machine: Machine, limits: Limits, rates: Rates) -> JudgedWay:
    """Make the plans of both runs. Return the way with the costs that the plans of both runs predict."""

    def run(tasks: Sequence[_Task], kept: int = 0) -> RunCost:
        plans = [
            choose(one.problem, machine, one.budget_bytes, one.scheme, rates(one.problem), one.given).plan
            for one in tasks
        ]
        every = [one.predicted for one in plans]
        return RunCost(
            sum(one.seconds for one in every),
            max(one.memory_bytes for one in plans),
            sum(one.bytes_read for one in every),
            sum(one.bytes_written for one in every) + kept,
        )

    forward, parts = _tasks(way, machine, limits, rates)
    there = run([forward], way.history_bytes)
    return JudgedWay(way, "", 0, there, _with_repeats(run(parts), there, way))


def _parts(problem: Problem, steps: int) -> Iterator[Problem]:
    """Yield one or two problems of an adjoint run. Each problem has the updates of all steps of a pass. There are two
    problems only if passes compute states again. The first problem has only one pass, with fewer steps. The pass of the
    first problem ends at the newest state of the history. The second problem has all other passes.
    """
    if problem.forward is None:
        yield listed(problem, steps) if problem.histories else problem
        return
    first = problem.steps % problem.every
    for part in (first, problem.steps - first):
        if part:
            one = replace(problem, steps=part)
            yield listed(one, steps_of_pass(one, 1))


def _why_not(one: JudgedWay, chosen: JudgedWay) -> str:
    """Return the reason why Outcrop chooses or rejects a possible way."""
    assert one.forward and one.adjoint and chosen.forward and chosen.adjoint
    if one.way.every == chosen.way.every:
        return "chosen"
    more = one.way.history_bytes - chosen.way.history_bytes
    if one.seconds <= EQUALLY_FAST * chosen.seconds and more > 0:
        return f"as fast, but keeps {format_bytes(more)} more"
    forward = one.forward.seconds - chosen.forward.seconds
    adjoint = one.adjoint.seconds - chosen.adjoint.seconds
    if forward <= 0 >= adjoint:  # Only the fastest ways have plans. For other ways, formulas can be too optimistic.
        return "slower than others by formulas, so it is not planned"
    name, seconds = ("forward", forward) if forward > adjoint else ("adjoint", adjoint)
    return f"slower: the {name} run takes {format_seconds(seconds)} more"


def described(choice: WayChoice) -> list[str]:
    """Return the lines of a table with all ways. The mark "~" means that a time comes from formulas, without a plan."""
    head = ("way", "states on disk", "memory needed", "forward", "adjoint", "sum", "why")
    return aligned([head, *map(_row, _worth_showing(choice))], range(1, len(head) - 1))


def _worth_showing(choice: WayChoice) -> Iterator[JudgedWay]:
    """Yield the ways for a table. If several ways recompute states and need too much memory, yield only the first of
    these ways. The later ways have larger intervals and need even more memory."""
    too_large = 0
    for one in choice.ways:
        too_large += one.way.every > 1 and _OVER_MEMORY in one.why
        if too_large <= 1:
            yield one


def _row(one: JudgedWay) -> tuple[str, ...]:
    kept = f"{one.way.states} x {format_bytes(one.way.history_bytes // one.way.states)}" if one.way.states else "-"
    why = one.why + (f"; repeats {one.way.repeated_steps} steps" if one.way.repeated_steps else "")
    memory = format_bytes(one.smallest_bytes) if one.smallest_bytes else "-"
    if one.forward is None or one.adjoint is None:
        return one.way.name, kept, memory, "-", "-", "-", why
    mark = "" if one.adjoint.memory_bytes else "~"
    times = (f"{mark}{format_seconds(each)}" for each in (one.forward.seconds, one.adjoint.seconds, one.seconds))
    return one.way.name, kept, memory, *times, why
