"""Divide a grid among ranks along y, and plan for all ranks.

Rank j has the rows eta[j] <= y < eta[j + 1] of the grid. These rows are the part of the rank, and the places eta are
the cut:

    rows     0            eta[1]          eta[2]           ny
             |   rank 0   |    rank 1     |    rank 2      |

In the problem of a rank, rows are counted from the first row of the part. A side of a rank is called "neighbour" if
another rank has the rows beyond this side. The two ranks then exchange rows. If y is periodic,
the ranks form a ring: the lower neighbour of the first rank is the last rank.

Passes of all ranks have the same numbers of levels and the same slabs, so that neighbours exchange the same planes in
the same order.

If all ranks share a directory, the parts are one Zarr array, and each part is a chunk of this array. All chunks have
equally many rows. So all parts have equally many rows, except that the last part may have fewer (`cut_rows`). On
disk, zeros then follow the rows of the last part, so that its planes are complete chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from outcrop.errors import InputError
from outcrop.plan.actions import HIGH, LOW, round_up
from outcrop.plan.contents import IllegalPlan
from outcrop.plan.exchanges import RECEIVE, SEND, Message, Step, messages, require_progress, steps_of
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.plan import Pass, Plan, Scheme, Sizes
from outcrop.plan.problem import DIRECT_BYTES, Problem, chunk_rows
from outcrop.plan.tuner import build
from outcrop.plan.validate import validate

Cut: TypeAlias = tuple[int, ...]
"""The first rows of all ranks, followed by the number of rows of the grid."""

CHECKSUM_BYTES = 4
"""The size of the checksum of a plane on disk (run/disk/layout.py)."""
MIN_GROUPS = 8
"""Parts begin at multiples of a group of rows if each part has at least this number of groups."""
CHUNK_SHARE = 32
"""To begin parts at multiples of a group of rows, chunks may be longer than necessary by 1/CHUNK_SHARE."""


def rows_needed(problem: Problem, steps: int = 1, scheme: Scheme | None = None) -> int:
    """Return the minimum number of rows of a rank for passes of `steps` steps, if the grid is divided among ranks. A
    scheme in which ranks share the updates at their cuts needs twice as many rows as a scheme with halos. If `scheme`
    is None, return the number for halos."""
    cuts = 1 if scheme is None or scheme.shared_levels is None else 2
    return max(1, cuts * problem.radius_y * problem.stages * steps)


def cut_rows(ny: int, ranks: int, group: int = 1, least: int = 1, for_chunks: bool = False) -> Cut:
    """Divide `ny` rows into parts for `ranks` ranks. If parts are large, all parts except the last begin and end at
    multiples of `group` rows. The numbers of rows of two ranks differ by at most one group. Rows at the end of the grid
    that do not fill a group are not counted.

    With `for_chunks`, all parts have equally many rows, and the last part may have fewer rows, but at least half of
    them. If this is not possible, the parts are those without `for_chunks`.

    Raises InputError if a rank would have fewer than `least` rows. The message has the largest number of ranks that
    works.
    """
    if ranks < 1:
        raise InputError(f"ranks {ranks}: give at least 1")
    if ranks > 1 and ny // ranks < least:
        raise InputError(
            f"ranks {ranks}: each rank needs at least {least} rows of y, but {ny} rows give some ranks only "
            f"{ny // ranks}; use at most {max(1, ny // least)}"
        )
    if for_chunks and (cut := _cut_for_chunks(ny, ranks, group, least)):
        return cut
    unit = group if ny // ranks >= MIN_GROUPS * group else 1
    cut = _cut_by(ny, ranks, unit)
    return cut if min(rows_of(cut)) >= least else _cut_by(ny, ranks, 1)


def _cut_by(ny: int, ranks: int, unit: int) -> Cut:
    units = ny // unit
    return (*(unit * (rank * units // ranks) for rank in range(ranks)), ny)


def _cut_for_chunks(ny: int, ranks: int, group: int, least: int) -> Cut | None:
    """Return a cut into equal parts and a last part that may be shorter, or None. The slowest rank has the most rows.
    So a part has more rows than necessary only if direct I/O gains more."""
    even = -(-ny // ranks)
    for unit in (group, 1):
        rows = min(round_up(even, unit), ny)
        last = ny - (ranks - 1) * rows
        if rows <= even + even // CHUNK_SHARE and last >= max(least, rows - rows // 2):
            return (*range(0, ranks * rows, rows), ny)
    return None


def rows_of(cut: Cut) -> list[int]:
    """Return the number of rows of each rank."""
    return [end - first for first, end in pairwise(cut)]


def cut_problem(
    problem: Problem, ranks: int, steps: int = 1, scheme: Scheme | None = None, for_chunks: bool = False
) -> Cut:
    """Divide the grid of a whole problem among `ranks` ranks, whose passes have at least `steps` steps. If `scheme` is
    given, the passes have this scheme. `for_chunks` has the meaning that it has in `cut_rows`.

    Raises InputError if the grid has no axis y, or too few rows. The message names the largest possible number of
    ranks.
    """
    if ranks > 1 and problem.ndim < 3:
        raise InputError(f"ranks {ranks}: ranks divide y of a grid of three axes, but this grid has {problem.ndim}")
    steps = max(1, min(steps, problem.steps))
    least = rows_needed(problem, steps, scheme)
    return cut_rows(problem.shape[1], ranks, problem.row_group, least, for_chunks)


def balanced_cut(problem: Problem, cut: Cut, scheme: Scheme, levels: int) -> Cut:
    """Return a cut that gives all ranks equal work in passes of `levels` levels. The parts of `cut` must have
    equal numbers of rows.

    If ranks share updates, the lower rank at a place of the cut also updates rows above this place: r(L+1)/2 rows, on
    average over the levels. So a rank with two neighbours takes over as many updates as it gives away. If y is not
    periodic, the lowest rank only takes over updates, and the highest rank only gives updates away. So all places are
    moved down by r(L+1)/2 rows, rounded so that they stay at the beginning of a group of rows. If ranks do not share
    updates, return `cut`."""
    if scheme.shared_levels is None or problem.periodic[1] or len(cut) == 2:
        return cut
    unit = problem.row_group if all(place % problem.row_group == 0 for place in cut[1:-1]) else 1
    wanted = problem.radius_y * (levels + 1) // 2
    most = cut[1] - rows_needed(problem, levels // problem.stages, scheme)
    shift = max(0, min((wanted + unit // 2) // unit, most // unit)) * unit
    return (0, *(place - shift for place in cut[1:-1]), cut[-1])


def neighbour_of(problem: Problem, cut: Cut, rank: int, side: int) -> int | None:
    """Return the rank that has the rows beyond the side LOW or HIGH of `rank`, or None if the side is a boundary of
    the grid. `problem` is the problem of the whole grid."""
    ranks = len(cut) - 1
    if ranks == 1:
        return None
    other = rank + (1 if side == HIGH else -1)
    if problem.periodic[1]:
        return other % ranks
    return other if 0 <= other < ranks else None


def part_of(problem: Problem, cut: Cut, rank: int) -> Problem:
    """Return the problem of a rank. `problem` is the problem of the whole grid. If there is only one rank, the problem
    of this rank is the whole problem."""
    if len(cut) == 2:
        return problem
    rows = rows_of(cut)
    plane_bytes = (chunk_rows(rows) or rows[rank]) * problem.pitch_bytes
    low, high = (
        side if neighbour_of(problem, cut, rank, place) is None else "neighbour"
        for place, side in zip((LOW, HIGH), problem.sides[1], strict=True)
    )
    ranks = len(rows)
    # neighbours must reach the cut between them at the same time (schemes/deep_halo.py)
    order = 0 if problem.periodic[1] and ranks % 2 else (-1) ** (ranks - 1 - rank)
    return replace(
        problem,
        shape=(problem.shape[0], rows[rank], problem.shape[2]),
        plane_bytes=plane_bytes,
        record_bytes=round_up(plane_bytes + CHECKSUM_BYTES, DIRECT_BYTES),
        sides=(problem.sides[0], (low, high), problem.sides[2]),
        max_halo=min(rows),
        block_order=order,
    )


@dataclass(frozen=True)
class RankPlans:
    """The plans of all ranks for a grid. `problem` is the problem of the whole grid. `plans` contains the plan of each
    rank. Ranks with equal problems can share a plan."""

    problem: Problem
    cut: Cut
    plans: tuple[Plan, ...]

    @property
    def ranks(self) -> int:
        return len(self.plans)


def plan_ranks(
    problem: Problem, cut: Cut, scheme: Scheme, sizes: Sizes | Sequence[Sizes], machine: Machine, rate: UpdateRate
) -> RankPlans:
    """Return the plans of all ranks with the given sizes. If ranks have different cache tiles, `sizes` contains the
    sizes of each rank."""
    ranks = len(cut) - 1
    each = [sizes] * ranks if isinstance(sizes, Sizes) else list(sizes)
    made: dict[tuple[Problem, Sizes], Plan] = {}
    plans = []
    for rank in range(ranks):
        key = part_of(problem, cut, rank), each[rank]
        if key not in made:
            made[key] = build(key[0], scheme, each[rank], machine, rate)
        plans.append(made[key])
    return RankPlans(problem, cut, tuple(plans))


def validate_ranks(every: RankPlans, budget_bytes: int | None = None) -> None:
    """Raise IllegalPlan if the plans of all ranks are not legal together, or if a plan exceeds the budget. The proof
    needs no data. The proof shows four things:

    1. The plan of each rank is legal, if its neighbours send the rows that it receives.
    2. All ranks have passes with the same levels.
    3. In each pass, a rank receives exactly the rows and planes that its neighbour sends, in the same order.
    4. The ranks never block each other forever.

    Equal plans and equal passes are proved only once.
    """
    ranks, proved = every.ranks, list[Plan]()
    if ranks != len(every.cut) - 1:
        raise IllegalPlan(f"{ranks} plans for {len(every.cut) - 1} ranks")
    for rank, plan in enumerate(every.plans):
        part = part_of(every.problem, every.cut, rank)
        if (plan.problem.shape, plan.problem.sides) != (part.shape, part.sides):
            raise IllegalPlan(f"the plan of rank {rank} is not for rows {every.cut[rank]} .. {every.cut[rank + 1] - 1}")
        if plan.problem.max_halo > part.max_halo:
            raise IllegalPlan(f"rank {rank} may use more rows of a neighbour than the {part.max_halo} that it has")
        if any(plan is one for one in proved) or plan in proved:
            continue
        try:
            validate(plan, budget_bytes)
        except IllegalPlan as error:
            raise IllegalPlan(f"rank {rank}, {error}") from None
        proved.append(plan)
    levels = [[one.levels for one in plan.passes] for plan in every.plans]
    for rank, own in enumerate(levels):
        if own != levels[0]:
            raise IllegalPlan(f"the passes of rank {rank} have the levels {own}, not {levels[0]}")
    neighbours = [
        (neighbour_of(every.problem, every.cut, rank, LOW), neighbour_of(every.problem, every.cut, rank, HIGH))
        for rank in range(ranks)
    ]
    known, done = _Exchanges(), set[tuple[int, ...]]()
    for number, passes in enumerate(zip(*(plan.passes for plan in every.plans), strict=True)):
        key = tuple(map(id, passes))
        if key in done:
            continue
        done.add(key)
        try:
            for rank, (_, above) in enumerate(neighbours):
                if above is not None:
                    known.require_equal(every.plans[rank], passes[rank], every.plans[above], passes[above], rank, above)
            steps = [known.steps(plan.problem, one) for plan, one in zip(every.plans, passes, strict=True)]
            require_progress(steps, neighbours)
        except IllegalPlan as error:
            raise IllegalPlan(f"pass {number}, {error}") from None


class _Exchanges:
    """Computes the messages and the steps of passes. Ranks can share a pass, so the result for each pass is kept."""

    def __init__(self) -> None:
        self._messages: dict[tuple[int, int, int], list[Message]] = {}
        self._steps: dict[tuple[int, int], list[Step]] = {}

    def steps(self, problem: Problem, one: Pass) -> list[Step]:
        key = id(problem), id(one)
        if key not in self._steps:
            self._steps[key] = steps_of(problem, one)
        return self._steps[key]

    def require_equal(self, low: Plan, low_pass: Pass, high: Plan, high_pass: Pass, rank: int, above: int) -> None:
        """Raise IllegalPlan unless each of two neighbours receives what the other neighbour sends. `high` is the plan
        of the upper rank."""
        ways = [(rank, low, low_pass, HIGH, above, high, high_pass, LOW)]
        ways += [(above, high, high_pass, LOW, rank, low, low_pass, HIGH)]
        for sender, one, one_pass, side, receiver, other, other_pass, other_side in ways:
            sent: list[Message | None] = [*self._of(one, one_pass, SEND + side), None]
            received: list[Message | None] = [*self._of(other, other_pass, RECEIVE + other_side), None]
            if sent != received:
                first = next(pair for pair in zip(sent, received, strict=False) if pair[0] != pair[1])
                raise IllegalPlan(f"rank {sender} sends {first[0]}, but rank {receiver} receives {first[1]}")

    def _of(self, plan: Plan, one: Pass, direction: int) -> list[Message]:
        key = id(plan.problem), id(one), direction
        if key not in self._messages:
            self._messages[key] = messages(plan.problem, one, direction)
        return self._messages[key]
