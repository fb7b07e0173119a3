"""This module skips repetitions of actions in the proof of a plan (validate.py).

A period is a group of actions that is repeated. Each repetition applies to planes that are a fixed number of planes
higher than the planes of the previous repetition. The proof performs one period after the other, until two successive
periods have the same effect:

    actions   |  begin  | period | period | period | ... | period |  end  |
    planes              |--------|
                            |--------|         each period equals the previous one, but is `distance` planes higher

A period depends only on the planes in a certain range, which is called the window of the period. Assume that the
windows of two successive periods have the same contents, `distance` planes apart. Also assume that all planes above the
window have the same contents as the highest `distance` planes in the window. Under these two conditions, every later
period has the same effect, but `distance` planes higher. Each period leaves the same contents below its window, and
makes no other changes. So the proof can compute the state at the beginning of a later period without performing the
earlier periods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from outcrop.plan.actions import EVERYTHING, Action, Check, Copy, Read, Update, Write
from outcrop.plan.contents import Runs

if TYPE_CHECKING:
    from outcrop.plan.validate import Proof

_State: TypeAlias = list[list[tuple[int, int, object]]]
MAX_UPDATES = 2
"""The maximum number of Updates in a period."""
MIN_PERIODS = 4
"""The minimum number of periods of a series. In a shorter series, the proof performs all periods."""


@dataclass(frozen=True)
class _Series:
    """A series of periods: the actions with the numbers from `begin` to `end` - 1. A period has `length` actions. After
    the first period, each action equals the action that comes `length` actions earlier, but its planes are `distance`
    planes higher."""

    begin: int
    end: int
    length: int
    distance: int


class Repeats:
    """Finds the repetitions in the actions of a pass. `proof` is the proof of this pass."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._series = _Series(0, 0, 1, 0)
        self._last: tuple[int, _State] = -1, []

    def skip(self, index: int) -> int:
        """Skip the repetitions of actions that begin with the Update number `index`. Set the proof to the state after
        the skipped repetitions, and return the number of skipped actions."""
        proof, series = self._proof, self._series
        if index + series.length > series.end:
            series = self._series = self._series_from(index)
        if (index - series.begin) % series.length:  # no period begins with this action
            return 0
        if (series.end - index) // series.length < 2:
            return 0
        low, high = self._window(proof.actions[index : index + series.length])
        block, problem = proof.block, proof.problem
        if low < max(problem.first_plane, block.own_z0) or high > min(problem.end_plane, block.own_z1):
            return 0
        state, (last, before) = self._state(low, high), self._last
        self._last = index, state
        if last != index - series.length or before != state:
            return 0
        # The planes above the window must have the same contents as the highest planes in the window, because later
        # periods read these planes.
        planes_left, distance = min(problem.end_plane, block.own_z1) - high, series.distance
        for runs, _, end, is_kept in self._parts(low, high):
            if is_kept:
                planes_left = min(planes_left, runs.over(end - distance, end + problem.planes)[0][1] - end)
            elif runs.ends[1] > end - distance:
                return 0
        times = max(0, min((series.end - index) // series.length, planes_left // distance))
        for runs, first, end, _ in list(self._parts(low, high)) if times else ():
            for z0, z1, content in runs.over(first - distance, end):
                if proof.is_of_others(content):  # later actions must not use contents that were not compared
                    runs.put(z0, z1, None)
            runs.advance(first, end, distance, times)
        return times * series.length

    def _series_from(self, index: int) -> _Series:
        """Return the longest series of repetitions that begins with the Update number `index`. The first period of the
        series ends before the next Update of the same region. All actions of the series belong to one block."""
        actions = self._proof.actions
        end = first = _end_of_period(actions, index)
        for _ in range(1, MAX_UPDATES):
            if end < len(actions) and type(actions[end]) is Update and not _distance(actions[index], actions[end]):
                end = _end_of_period(actions, end)
        if end == len(actions) or (distance := _distance(actions[index], actions[end])) is None or distance <= 0:
            return _Series(index, first, first - index, 0)
        length = end - index
        while end < len(actions) and _distance(actions[end - length], actions[end]) == distance:
            end += 1
        return _Series(index, end if end - index >= MIN_PERIODS * length else index + length, length, distance)

    def _window(self, actions: tuple[Action, ...]) -> tuple[int, int]:
        """Return the window of a period: the range of planes on which the actions of the period depend."""
        skew, lows, highs = self._proof.problem.skew_z, [], []
        for action in actions:
            if isinstance(action, Update):
                lows.append(action.zeta0 - skew * action.levels)
                highs.append(action.zeta1 + skew)
            elif isinstance(action, Read | Copy | Write | Check):
                lows.append(action.z0)
                highs.append(action.z1)
        return min(lows), max(highs)

    def _state(self, low: int, high: int) -> _State:
        """Return the contents of all rings and arrays in a window. Planes are counted from the lower end of the window.
        A content that belongs to another block is replaced by None."""
        proof, state = self._proof, []
        for runs, first, end, _ in self._parts(low, high):
            found = runs.over(first, end)
            state.append([(z0 - first, z1 - first, None if proof.is_of_others(one) else one) for z0, z1, one in found])
        return state

    def _parts(self, low: int, high: int) -> Iterator[tuple[Runs[Any], int, int, bool]]:
        """Yield all rings and arrays, each with the range of planes of a window. Each result also has a flag. The flag
        is false for a ring that has fewer slots than the grid has planes. In a ring of n slots, plane z then replaces
        plane z - n."""
        proof = self._proof
        for slots in proof.rings:
            planes, shift = slots.ring.planes, 0 if slots.ring.resident else proof.block.shift
            is_kept = planes >= proof.problem.planes and shift == 0
            yield slots.runs, low + shift - (0 if is_kept else planes), high + shift, is_kept
        targets = [] if proof.problem.in_place else proof.targets
        arrays: list[Runs[Any]] = [*proof.sources, *targets, proof.other, *proof.fringes.values()]
        arrays += [proof.source_sums, proof.target_sums, proof.written, proof.sealed]
        for runs in arrays:
            yield runs, low, high, True


def _end_of_period(actions: Sequence[Action], index: int) -> int:
    """Return the number of the Update that follows the Update number `index`. If an earlier action ends the series,
    return the number of this action."""
    end = index + 1
    while end < len(actions) and isinstance(actions[end], Read | Copy | Write | Check):
        end += 1
    return end


def _distance(one: Action, other: Action) -> int | None:
    """Compare two actions that differ at most in their planes. Return the number of planes by which `other` is higher
    than `one`. Return None if the two actions differ in another way."""
    match one, other:
        case (Update(), Update()):
            is_free = one.region.z_low == EVERYTHING.z_low and one.region.z_high == EVERYTHING.z_high
            is_alike = one.levels == other.levels and one.region == other.region and is_free
            first, end = other.zeta0 - one.zeta0, other.zeta1 - one.zeta1
        case (Read(), Read()):
            is_alike = one.area == other.area and one.array == other.array and one.level == other.level
            first, end = other.z0 - one.z0, other.z1 - one.z1
        case (Write(), Write()):
            is_alike = one.area == other.area and one.array == other.array and one.level == other.level
            first, end = other.z0 - one.z0, other.z1 - one.z1
        case (Check(), Check()):
            is_alike = one.area == other.area and one.array == other.array
            first, end = other.z0 - one.z0, other.z1 - one.z1
        case (Copy(), Copy()):
            is_alike = one.area == other.area and one.own == other.own and one.recomputed == other.recomputed
            first, end = other.z0 - one.z0, other.z1 - one.z1
        case _:
            return None
    return first if is_alike and first == end else None
