"""Check the schedules of adjoint runs: they repeat the minimum number of segments, and each state exists when it is
used."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest

from outcrop.plan.history import first_states, repeated_segments, sweep, usable

COUNTS = {
    1: (1, 1, 1, 1, 1, 1),
    2: (3, 3, 3, 3, 3, 3),
    3: (6, 5, 5, 5, 5, 5),
    5: (15, 11, 10, 9, 9, 9),
    10: (55, 30, 25, 24, 23, 22),
    20: (210, 85, 65, 59, 53, 52),
    50: (1275, 335, 230, 194, 172, 164),
    100: (5050, 945, 590, 474, 416, 380),
}
"""The number of all forward steps of checkpoint_schedules 1.0.4 for n steps and 1 to 6 checkpoints:

    from checkpoint_schedules import EndReverse, Forward, MultistageCheckpointSchedule
    total = 0
    for one in MultistageCheckpointSchedule(n, 0, checkpoints):
        if isinstance(one, Forward): total += len(one)
        if isinstance(one, EndReverse): break
"""


@cache
def best(segments: int, slots: int) -> float:
    """Return how many segments an adjoint run over `segments` segments computes forward, with the best schedule. A
    segment counts each time it is computed. The function compares all ways to divide the segments. The state of the
    first segment uses one of the slots."""
    if segments == 1:
        return 0
    if slots == 1:
        return math.inf
    return min(m + best(segments - m, slots - 1) + best(m, slots) for m in range(1, segments))


def schedule(segments: int, slots: int) -> Iterator[tuple[str, int, int]]:
    """Yield what `run/replay.py` does in a forward run over `segments` segments and in its adjoint run: ("advance",
    begin, end), ("keep", n, n), ("back", n, n) and ("free", n, n). State 0 is never freed."""
    states = list(first_states(segments, slots))
    for begin, end in pairwise(states):
        yield from (("advance", begin, end), ("keep", end, end))
    yield "advance", states[-1], segments
    for number in reversed(range(segments)):
        while states[-1] > number:
            yield "free", states[-1], states.pop()
        if states[-1] < number:
            while len(states) > usable(states, slots):
                yield "free", states[-1], states.pop()
            for end in sweep(states, number, slots):
                yield from (("advance", states[-1], end), ("keep", end, end))
                states.append(end)
        yield "back", number, number
    for one in states[1:]:
        yield "free", one, one


def repeated(segments: int, slots: int) -> int:
    return repeated_segments(first_states(segments, slots), segments, slots)


def as_counted_elsewhere(total: int, segments: int) -> int:
    """Convert a number of steps of checkpoint_schedules to the number of repeated segments. checkpoint_schedules also
    counts the steps of the first forward run. In all segments except the last, it also counts the steps that an adjoint
    pass of Outcrop computes again."""
    return total - segments - (segments - 1)


def test_schedules_repeat_as_few_segments_as_possible() -> None:
    """Checks the number of repeated segments against the minimum from `best`. That minimum also counts the
    `segments - 1` segments of the first forward run."""
    for segments in range(1, 21):
        for slots in range(2, 7):
            assert repeated(segments, slots) == best(segments, slots) - (segments - 1), (segments, slots)


@pytest.mark.parametrize("slots", range(2, 8))
def test_states_exist_when_they_are_used(slots: int) -> None:
    """Follows each schedule. The forward run must continue from its current position or from a kept state. At most
    `slots` states may exist. The adjoint run must process the segments from the last to the first."""
    for segments in range(1, 21):
        kept, position, passed, ended = {0}, 0, [], False
        for what, begin, end in schedule(segments, slots):
            match what:
                case "advance":
                    assert begin < end and (begin == position or begin in kept)
                    position, ended = end, ended or end == segments
                case "keep":
                    assert end == position and (end == 0 or end not in kept)
                    kept.add(end)
                    assert len(kept) <= slots
                case "back":
                    assert ended and end in kept
                    passed.append(end)
                case "free":
                    kept.remove(end)
        assert passed == list(range(segments))[::-1] and kept == {0}


def test_all_states_fit() -> None:
    assert first_states(6, 6) == first_states(6, 60) == (0, 1, 2, 3, 4, 5) and repeated(6, 6) == 0
    assert first_states(1, 1) == (0,) and first_states(6, 2) == (0, 5)
    assert len(first_states(100_000, 3)) == 3


def test_an_adjoint_run_may_begin_with_any_states() -> None:
    """Checks adjoint runs that begin with state 0 alone, or with all slots in use. If all slots are in use, the newest
    states are freed first."""
    for segments in range(2, 15):
        for slots in (2, 3, 4):
            assert repeated_segments([0], segments, slots) == best(segments, slots)
    assert usable([0, 1, 2], 3) == 2 and sweep([0, 1], 5, 3) == (5,)


def test_counts_are_those_of_checkpoint_schedules() -> None:
    """Checks the counts against checkpoint_schedules. The number of slots is the number of checkpoints plus one,
    because Outcrop also counts the state of the current segment."""
    for segments, counts in COUNTS.items():
        for checkpoints, total in enumerate(counts, 1):
            assert repeated(segments, checkpoints + 1) == as_counted_elsewhere(total, segments)


def test_counts_are_those_of_the_installed_checkpoint_schedules() -> None:
    other = pytest.importorskip("checkpoint_schedules")
    for segments in range(1, 101):
        for checkpoints in (1, 2, 3, 5, 8):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                total = 0
                for one in other.MultistageCheckpointSchedule(segments, 0, checkpoints):
                    total += len(one) if isinstance(one, other.Forward) else 0
                    if isinstance(one, other.EndReverse):
                        break
            assert repeated(segments, checkpoints + 1) == as_counted_elsewhere(total, segments)
