"""Divide a grid among ranks along y, and plan for all ranks.

Rank j has the rows eta[j] <= y < eta[j + 1] of the grid, its part. The places eta are the cut:

    rows     0            eta[1]          eta[2]           ny
             |   rank 0   |    rank 1     |    rank 2      |

In the problem of a rank, rows are counted from the first row of its part, and a side beyond which another rank has rows
is a "neighbour". A rank whose lower side is a neighbour exchanges rows with the next lower rank. If y is periodic, the
ranks form a ring: the lower neighbour of the first rank is the last rank.

Passes of all ranks have the same numbers of levels and the same slabs, so that neighbours exchange the same planes in
the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from outcrop.errors import InputError
from outcrop.plan.actions import HIGH, LOW, round_up
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.plan import Plan, Scheme, Sizes
from outcrop.plan.problem import DIRECT_BYTES, Problem
from outcrop.plan.tuner import build

Cut: TypeAlias = tuple[int, ...]
"""The first rows of all ranks, followed by the number of rows of the grid."""

CHECKSUM_BYTES = 4
"""The size of the checksum of a plane on disk (run/disk/layout.py)."""
MIN_GROUPS = 8
"""Parts begin at multiples of a group of rows if each part has at least this number of groups."""


def rows_needed(problem: Problem, steps: int = 1) -> int:
    """Return the minimum number of rows of a rank for passes of `steps` steps, if the grid is divided."""
    return max(1, problem.radius_y * problem.stages * steps)


def cut_rows(ny: int, ranks: int, group: int = 1, least: int = 1) -> Cut:
    """Divide `ny` rows into parts for `ranks` ranks. If parts are large, all parts except the last begin and end at
    multiples of `group` rows. The numbers of rows differ by at most one group and the rest of the division by groups.

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
    unit = group if ny // ranks >= MIN_GROUPS * group else 1
    cut = _cut_by(ny, ranks, unit)
    return cut if min(rows_of(cut)) >= least else _cut_by(ny, ranks, 1)


def _cut_by(ny: int, ranks: int, unit: int) -> Cut:
    units = ny // unit
    return (*(unit * (rank * units // ranks) for rank in range(ranks)), ny)


def rows_of(cut: Cut) -> list[int]:
    """Return the number of rows of each rank."""
    return [end - first for first, end in pairwise(cut)]


def cut_problem(problem: Problem, ranks: int, steps: int = 1) -> Cut:
    """Divide the grid of a whole problem among `ranks` ranks, whose passes have at least `steps` steps.

    Raises InputError if the grid has no axis y, or too few rows. The message has the largest number of ranks that
    works.
    """
    if ranks > 1 and problem.ndim < 3:
        raise InputError(f"ranks {ranks}: ranks divide y of a grid of three axes, but this grid has {problem.ndim}")
    steps = max(1, min(steps, problem.steps))
    return cut_rows(problem.shape[1], ranks, problem.row_group, rows_needed(problem, steps))


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
    plane_bytes = rows[rank] * problem.pitch_bytes
    low, high = (
        side if neighbour_of(problem, cut, rank, place) is None else "neighbour"
        for place, side in zip((LOW, HIGH), problem.sides[1], strict=True)
    )
    return replace(
        problem,
        shape=(problem.shape[0], rows[rank], problem.shape[2]),
        plane_bytes=plane_bytes,
        record_bytes=round_up(plane_bytes + CHECKSUM_BYTES, DIRECT_BYTES),
        sides=(problem.sides[0], (low, high), problem.sides[2]),
        max_halo=min(rows),
    )


@dataclass(frozen=True)
class RankPlans:
    """The plans of all ranks for a grid. `problem` is the problem of the whole grid. `plans` has the plan of each rank.
    Ranks with equal problems can share a plan."""

    problem: Problem
    cut: Cut
    plans: tuple[Plan, ...]

    @property
    def ranks(self) -> int:
        return len(self.plans)


def plan_ranks(
    problem: Problem, cut: Cut, scheme: Scheme, sizes: Sizes | Sequence[Sizes], machine: Machine, rate: UpdateRate
) -> RankPlans:
    """Return the plans of all ranks with the given sizes. If ranks have different cache tiles, `sizes` has the sizes of
    each rank."""
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
