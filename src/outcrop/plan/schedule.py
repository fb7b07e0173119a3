"""This module computes schedules for adjoint runs whose history lacks some of the necessary states, because the disk is
too small.

A history with recomputation needs a state at the beginning of each segment of k steps. If the disk has room for only
`slots` states, the forward run keeps only some of the necessary states. The adjoint run goes back over one segment
after another. If the state of the next segment is missing, a sweep repeats a part of the forward run, from the newest
state before this segment. The sweep stores other states in the slots that have become free:

    segments        0    1    2    3    4    5         4 slots: the states 0, 3, 4 and 5 are kept
    forward run     K──────────────►K───►K───►K───►    K: the state is kept
    adjoint run                               ◄────    back over segment 5, then state 5 is freed
                                         ◄────         back over 4, then 3
                                    ◄────
    sweep           s───►K───►K                        from state 0: the states 1 and 2 are kept
    adjoint run               ◄────                    back over 2, 1 and 0
                    ◄────◄────

The schedules of this module repeat the smallest possible number of segments. They are those of Revolve: A. Griewank and
A. Walther, Algorithm 799: Revolve, ACM Transactions on Mathematical Software 26 (2000), p. 19. G. Aupy and J. Herrmann
use the same rule for a disk whose transfers cost nothing (Optimization Methods and Software 32 (2017), p. 594). In
Revolve, the state of the current segment is in memory and needs no slot. In Outcrop, this state is on the disk. So
`slots` slots in this module correspond to `slots - 1` slots of Revolve.

A sweep depends only on the states that are kept, on the next segment and on the number of slots. So an adjoint run does
not store its position in the schedule: after an interruption, the states on the disk determine this position.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from math import comb


def first_states(segments: int, slots: int) -> tuple[int, ...]:
    """Return the states that a forward run over `segments` segments keeps. At most `slots` states exist at the same
    time. `slots` must be at least 2. For a single segment, `slots` may also be 1."""
    return (0, *_places(segments, slots))


def usable(states: list[int], slots: int) -> int:
    """Return the number of existing states that remain when a sweep begins. If a slot is free, all states remain.
    Otherwise, only the oldest states remain, so that the sweep has free slots. All slots can be in use if the forward
    run has continued beyond the steps for which its states were chosen."""
    return min(len(states), slots - 1)


def sweep(states: list[int], number: int, slots: int) -> tuple[int, ...]:
    """Return the states that a sweep from the newest of `states` to the state `number` keeps. The last state that the
    sweep keeps is `number`. `states` has all states that exist. At least one slot must be free."""
    begin = states[-1]
    return tuple(begin + one for one in _places(number + 1 - begin, slots + 1 - len(states)))


def repeated_segments(kept: Iterable[int], segments: int, slots: int) -> int:
    """Return the number of segments that the sweeps of an adjoint run repeat. `kept` has the states that exist when the
    adjoint run begins. State 0 must be in `kept`."""
    states, repeated = sorted(kept), 0
    for number in reversed(range(segments)):
        states = [one for one in states if one <= number]
        if states[-1] < number:
            states = states[: usable(states, slots)]
            repeated += number - states[-1]
            states += sweep(states, number, slots)
    return repeated


def _places(segments: int, slots: int) -> Iterator[int]:
    """Yield the states that a sweep over `segments` segments keeps after its first state, which uses one of the slots.
    The last kept state is the state of the last segment.

    Let G(n, s) be the smallest number of segments that sweeps repeat to go back over n segments with s + 1 slots. The
    first place m divides the segments: G(n, s) = m + G(n - m, s - 1) + G(m, s). Let t be the smallest number for which
    the binomial coefficient C(s + t, s) is at least n. Then G(., s) has the slope t at n. So m is best if G(., s) has
    the slope t - 1 at m, and G(., s - 1) has the slope t at n - m. The function uses the largest m with this property.
    """
    assert segments == 1 or slots >= 2
    first, left, s = 0, segments, slots - 1
    while left > 1:
        t = 1 + bisect_left(range(1, left), left, key=lambda t: comb(s + t, s))
        place = min(comb(s + t - 1, s), left - comb(s + t - 2, s - 1))
        first, left, s = first + place, left - place, s - 1
        yield first
