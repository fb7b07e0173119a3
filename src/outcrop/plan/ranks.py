"""Divide a grid among ranks along y and z, and plan for all ranks.

Rank j has the rows eta[j] <= y < eta[j + 1] of the grid, and the part of rank j consists of these rows. The numbers eta
are the cut:

    rows     0            eta[1]          eta[2]           ny
             |   rank 0   |    rank 1     |    rank 2      |

A second cut can divide the planes. If the planes are divided, the ranks with the first planes have the lowest numbers.
With 3 parts along y and 2 parts along z, the ranks are:

    planes   zeta[1] .. nz     |   rank 3   |    rank 4     |    rank 5      |
             0 .. zeta[1]      |   rank 0   |    rank 1     |    rank 2      |

In the problem of a rank, rows and planes are counted from the first row and plane of the part. A side is a "neighbour"
if another rank has the rows or planes beyond this side. A rank whose lower side is a neighbour exchanges rows with the
next lower rank. If y or z is periodic, the ranks form a ring along this axis. For example, the lower neighbour of the
first rank along y is the last rank.

Passes of all ranks have the same numbers of levels and the same slabs, so that neighbours exchange the same planes in
the same order.

If all ranks share a directory, the parts are one Zarr array, and each part is a chunk of this array. All chunks have
the same number of rows. Therefore all parts have the same number of rows, but the last part can have fewer rows
(`cut_rows`). If the last part has fewer rows, rows of zeros follow this part on disk, so that the planes of the part
are complete chunks.

Coarse snapshots have means of groups of cells. A cut never divides a group of a coarse snapshot, so each rank computes
the means of its groups without the other ranks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from outcrop.errors import InputError
from outcrop.plan.actions import ABOVE, BELOW, HIGH, LOW, SIDES, round_up
from outcrop.plan.contents import IllegalPlan
from outcrop.plan.exchanges import RECEIVE, SEND, ExchangeStep, Message, messages, require_progress, steps_of
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.plan import Pass, Plan, Scheme, Sizes
from outcrop.plan.problem import DIRECT_BYTES, Groups, Problem, chunk_rows, divides
from outcrop.plan.tuner import build
from outcrop.plan.validate import validate

Cut: TypeAlias = tuple[int, ...]
"""The first rows of all parts, followed by the number of rows of the grid. A cut along z has the first planes of all
parts, followed by the number of planes of the grid. If the planes are not divided, the cut along z is empty."""

CHECKSUM_BYTES = 4
"""The size of the checksum of a plane on disk (run/disk/layout.py)."""
MIN_GROUPS = 8
"""If each part has at least this number of groups of rows, parts begin at multiples of a group."""
CHUNK_SHARE = 32
"""To begin parts at multiples of a group of rows, chunks may be longer than necessary by 1/CHUNK_SHARE."""


def rows_needed(problem: Problem, steps: int = 1, scheme: Scheme | None = None) -> int:
    """Return the minimum number of rows of a rank in passes of `steps` steps, for a grid that is divided among ranks. A
    scheme in which ranks share the updates at their cuts needs twice as many rows as a scheme with halos. If `scheme`
    is None, return the number for a scheme with halos."""
    cuts = 1 if scheme is None or scheme.shared_levels is None else 2
    return max(1, cuts * problem.radius_y * problem.stages * steps)


def cut_rows(
    ny: int, ranks: int, group: int = 1, least: int = 1, for_chunks: bool = False, groups: Groups = ()
) -> Cut:
    """Divide `ny` rows into parts for `ranks` ranks. If parts are large, all parts except the last begin and end at
    multiples of `group` rows. The numbers of rows of two ranks differ by at most one group. In addition, the last rank
    gets the rows at the end of the grid that do not fill a group.

    If `for_chunks` is true, all parts except the last part have the same number of rows. The last part has at most as
    many rows as each of the other parts, and at least half as many. If no cut into such parts exists, `for_chunks` has
    no effect.

    The cut divides none of `groups`, so the numbers of rows can differ by more than one group of rows.

    Raises InputError if a rank would have fewer than `least` rows. The message names the largest possible number of
    ranks.
    """
    if ranks < 1:
        raise InputError(f"ranks {ranks}: give at least 1")
    if ranks > 1 and ny // ranks < least:
        raise InputError(
            f"ranks {ranks}: each rank needs at least {least} rows of y, but {ny} rows give some ranks only "
            f"{ny // ranks}; use at most {max(1, ny // least)}"
        )
    if for_chunks and (cut := _cut_for_chunks(ny, ranks, group, least, groups)):
        return cut
    return _cut_beside(groups, ny, ranks, group if ny // ranks >= MIN_GROUPS * group else 1, least, "rows of y")


def _cut_by(ny: int, ranks: int, unit: int) -> Cut:
    units = ny // unit
    return (*(unit * (rank * units // ranks) for rank in range(ranks)), ny)


def _cut_beside(groups: Groups, count: int, parts: int, unit: int, least: int, what: str) -> Cut:
    """Divide `count` rows or planes into parts. Each part has at least `least` rows or planes. The places of the cut
    divide no group, and are multiples of `unit` if possible. First, this function tries the places that are closest to
    equal parts. If a part would be too small with these places, the smallest part gets as many rows as possible. Raises
    InputError if no cut exists."""
    for each in dict.fromkeys((unit, 1)):
        cut = _cut_by(count, parts, each)
        if groups:
            cut = (0, *(_closest(rank * count / parts, each, count, groups) for rank in range(1, parts)), count)
        if parts == 1 or min(rows_of(cut)) >= least:
            return cut
    sizes = range(least, count // parts + 1)
    number = bisect_left(sizes, True, key=lambda size: _cut_from_below(groups, count, parts, size) is None)
    found = _cut_from_below(groups, count, parts, sizes[number - 1]) if number else None
    if found is None:
        cells = max(cells for _, _, cells in groups)
        raise InputError(
            f"ranks: {parts} parts of {count} {what} would be too small, because no part ends inside a group of "
            f"{cells} of a coarse snapshot; use fewer ranks, or a smaller coarsen"
        )
    return found


def _closest(wanted: float, unit: int, count: int, groups: Groups) -> int:
    """Return the place closest to `wanted` that is a multiple of `unit` and not inside a group. Return 0 if there is
    none."""
    middle = round(wanted / unit) * unit
    near = (one for distance in range(0, count, unit) for one in (middle - distance, middle + distance))
    return next((one for one in near if 0 < one < count and not divides(one, groups)), 0)


def _cut_from_below(groups: Groups, count: int, parts: int, size: int) -> Cut | None:
    """Return a cut whose parts have at least `size` rows each. Each part except the last part has as few rows as
    possible. So if the function returns None, no cut has parts of at least `size` rows."""
    found = [0]
    for _ in range(parts - 1):
        places = range(found[-1] + size, count)
        found.append(next((place for place in places if not divides(place, groups)), count))
    return (*found, count) if count - found[-1] >= size else None


def _cut_for_chunks(ny: int, ranks: int, group: int, least: int, groups: Groups) -> Cut | None:
    """Return a cut in which all parts are equal, except the last part, which can be shorter. The rank with the most
    rows is the slowest rank. So a cut with larger parts than necessary is good enough only if the additional rows need
    less time than direct I/O saves. Return None if no cut is good enough."""
    even = -(-ny // ranks)
    for unit in (group, 1):
        for rows in range(min(round_up(even, unit), ny), even + even // CHUNK_SHARE + 1, unit):
            places, last = range(0, ranks * rows, rows), ny - (ranks - 1) * rows
            if last < max(least, rows - rows // 2):
                break
            if not any(divides(place, groups) for place in places):
                return (*places, ny)
    return None


def cut_planes(problem: Problem, parts: int, steps: int = 1) -> Cut:
    """Divide the planes of a whole problem into `parts` parts. The numbers of planes of two parts differ by at most 1.
    Passes have at least `steps` steps. If `parts` is 1, return an empty cut.

    Raises InputError if a part would have too few planes, or if the grid has fewer than three axes."""
    if parts == 1:
        return ()
    if problem.ndim < 3:
        raise InputError(f"ranks: {parts} parts along z need a grid of three axes, but this grid has {problem.ndim}")
    nz, steps = problem.planes, max(1, min(steps, problem.steps))
    least = max(1, problem.radius_z * problem.stages * steps + _planes_between(problem))
    if nz // parts < least:
        raise InputError(
            f"ranks: {parts} parts along z: each needs at least {least} planes, but {nz} planes give some parts only "
            f"{nz // parts}; use at most {max(1, nz // least)} parts along z"
        )
    return _cut_beside(problem.acquisition.groups_z, nz, parts, 1, least, "planes")


def _planes_between(problem: Problem) -> int:
    """Return the minimum number of planes between the halos of a part. Static fields are read and exchanged up to one
    radius later than updated fields. The rank must send all planes for the neighbour above before planes arrive from
    this neighbour. So the part needs as many additional planes as the radius."""
    return problem.radius_z if problem.statics else 0


def rows_of(cut: Cut) -> list[int]:
    """Return the number of rows of each rank."""
    return [end - first for first, end in pairwise(cut)]


def ranks_of(cut: Cut, planes: Cut = ()) -> int:
    """Return the number of ranks among which the cuts along y and z divide a grid."""
    return (len(cut) - 1) * max(1, len(planes) - 1)


def place_in_cuts(cut: Cut, rank: int) -> tuple[int, int]:
    """Return the position of a rank along y, and its position along z."""
    row, plane = rank % (len(cut) - 1), rank // (len(cut) - 1)
    return row, plane


def cut_problem(
    problem: Problem, ranks: int, steps: int = 1, scheme: Scheme | None = None, for_chunks: bool = False
) -> Cut:
    """Divide the grid of a whole problem among `ranks` ranks, whose passes have at least `steps` steps. If `scheme` is
    given, the passes have this scheme. `cut_rows` describes `for_chunks`.

    Raises InputError if the grid has no axis y, or too few rows. The message names the largest possible number of
    ranks.
    """
    if ranks > 1 and problem.ndim < 3:
        raise InputError(f"ranks {ranks}: ranks divide y of a grid of three axes, but this grid has {problem.ndim}")
    steps = max(1, min(steps, problem.steps))
    least = rows_needed(problem, steps, scheme)
    return cut_rows(problem.shape[1], ranks, problem.row_group, least, for_chunks, problem.acquisition.groups_y)


def balanced_cut(problem: Problem, cut: Cut, scheme: Scheme, levels: int) -> Cut:
    """Return a cut that gives all ranks equal work in passes of `levels` levels. The parts of `cut` must have
    equal numbers of rows.

    If ranks share updates, each rank also updates rows of its upper neighbour. With the radius r and L levels, a level
    updates r(L+1)/2 rows of the upper neighbour on average. A rank with two neighbours therefore takes over as many
    updates as it gives away. If y is not periodic, the lowest rank only takes over updates, and the highest rank only
    gives updates away. So all cuts between ranks are moved down by r(L+1)/2 rows. The number r(L+1)/2 is rounded to
    whole groups of rows. If a moved cut would divide a group of cells of a snapshot, all cuts are moved by another
    number of rows. If ranks do not share updates, return `cut`."""
    if scheme.shared_levels is None or problem.periodic[1] or len(cut) == 2:
        return cut
    unit = problem.row_group if all(place % problem.row_group == 0 for place in cut[1:-1]) else 1
    wanted = problem.radius_y * (levels + 1) // 2
    most = cut[1] - rows_needed(problem, levels // problem.stages, scheme)
    nearest = max(0, min((wanted + unit // 2) // unit, most // unit)) * unit
    shifts = sorted(range(0, max(0, most) + 1, unit), key=lambda one: abs(one - nearest))
    groups = problem.acquisition.groups_y
    shift = next(one for one in shifts if not any(divides(place - one, groups) for place in cut[1:-1]))
    return (0, *(place - shift for place in cut[1:-1]), cut[-1])


def neighbour_of(problem: Problem, cut: Cut, rank: int, side: int, planes: Cut = ()) -> int | None:
    """Return the rank that has the rows or planes beyond a side of `rank`, or None if the side is a boundary of the
    grid. `problem` is the problem of the whole grid."""
    is_along_z = side in (BELOW, ABOVE)
    axis = planes if is_along_z else cut
    parts, place = len(axis) - 1, place_in_cuts(cut, rank)[is_along_z]
    if parts < 2:
        return None
    other = place + (1 if side in (HIGH, ABOVE) else -1)
    if problem.periodic[0 if is_along_z else 1]:
        other %= parts
    if not 0 <= other < parts:
        return None
    return rank + (other - place) * (len(cut) - 1 if is_along_z else 1)


def part_of(problem: Problem, cut: Cut, rank: int, planes: Cut = ()) -> Problem:
    """Return the problem of a rank. `problem` is the problem of the whole grid, and `planes` is the cut along z. If
    there is only one rank, return `problem`."""
    return parts_of(problem, cut, planes, (rank,))[0]


def parts_of(problem: Problem, cut: Cut, planes: Cut = (), ranks: Iterable[int] | None = None) -> list[Problem]:
    """Return the problems of `ranks`, or of all ranks if `ranks` is None. Equal problems are one object, because there
    can be many ranks, and most of them have equal problems."""
    if ranks_of(cut, planes) == 1:
        return [problem]
    rows, counts = rows_of(cut), rows_of(planes)
    is_cut, chunk = len(rows) > 1, 0 if planes else chunk_rows(rows)
    of_all = replace(
        problem,
        max_halo=min(rows) if is_cut else 0,
        mean_rows=cut[-1] // len(rows) if is_cut else 0,
        is_ring=is_cut and problem.periodic[1],
        max_halo_z=max(0, min(counts) - _planes_between(problem)) if counts else 0,
    )
    known: dict[Hashable, Problem] = {}
    found = []
    for rank in range(ranks_of(cut, planes)) if ranks is None else ranks:
        row, plane = place_in_cuts(cut, rank)
        shape = counts[plane] if counts else problem.shape[0], rows[row], problem.shape[2]
        sides = [
            side if neighbour_of(problem, cut, rank, place, planes) is None else "neighbour"
            for place, side in zip(SIDES, (*problem.sides[1], *problem.sides[0]), strict=True)
        ]
        # The blocks of two neighbours must reach the cut between the two ranks at the same time (schemes/deep_halo.py).
        order = 0 if counts or (problem.periodic[1] and len(rows) % 2) else (-1) ** (len(rows) - 1 - row)
        key = shape, *sides, order
        if key not in known:
            plane_bytes = (chunk or rows[row]) * problem.pitch_bytes
            known[key] = replace(
                of_all,
                shape=shape,
                plane_bytes=plane_bytes,
                record_bytes=round_up(plane_bytes + CHECKSUM_BYTES, DIRECT_BYTES),
                sides=((sides[BELOW], sides[ABOVE]), (sides[LOW], sides[HIGH]), problem.sides[2]),
                block_order=order,
            )
        found.append(known[key])
    return found


@dataclass(frozen=True)
class RankPlans:
    """The plans of all ranks for a grid. `problem` is the problem of the whole grid. `plans` has the plan of each rank.
    Ranks with equal problems can share a plan. `planes` is the cut along z."""

    problem: Problem
    cut: Cut
    plans: tuple[Plan, ...]
    planes: Cut = ()

    @property
    def ranks(self) -> int:
        return len(self.plans)

    def neighbours(self, rank: int) -> tuple[int | None, ...]:
        """Return the neighbour of a rank at each side (SIDES)."""
        return tuple(neighbour_of(self.problem, self.cut, rank, side, self.planes) for side in SIDES)

    def cells(self, rank: int) -> tuple[slice, slice]:
        """Return the planes and the rows of a rank."""
        row, plane = place_in_cuts(self.cut, rank)
        planes = slice(*self.planes[plane : plane + 2]) if self.planes else slice(None)
        return planes, slice(*self.cut[row : row + 2])


def plan_ranks(
    problem: Problem, cut: Cut, scheme: Scheme, sizes: Sizes | Sequence[Sizes], machine: Machine, rate: UpdateRate,
    planes: Cut = (),
) -> RankPlans:  # fmt: skip
    """Return the plans of all ranks. `sizes` has the sizes for all ranks. If ranks have different cache tiles, `sizes`
    has one entry for each rank. `planes` is the cut along z."""
    ranks = ranks_of(cut, planes)
    each = [sizes] * ranks if isinstance(sizes, Sizes) else list(sizes)
    made: dict[tuple[Problem, Sizes], Plan] = {}
    plans = []
    for key in zip(parts_of(problem, cut, planes), each, strict=True):
        if key not in made:
            made[key] = build(key[0], scheme, key[1], machine, rate)
        plans.append(made[key])
    return RankPlans(problem, cut, tuple(plans), planes)


def validate_ranks(every: RankPlans, budget_bytes: int | None = None) -> None:
    """Raise IllegalPlan if the plans of all ranks are not legal together, or if a plan exceeds the budget. The proof
    needs no data. The proof shows four things:

    1. The plan of each rank is legal, if the neighbours send the rows that the rank receives.
    2. All ranks have passes with the same levels.
    3. In each pass, a rank receives exactly the rows and planes that its neighbour sends, in the same order.
    4. The ranks never block each other forever.

    Equal plans and equal passes are proved only once.
    """
    ranks, proved = every.ranks, list[Plan]()
    if ranks != ranks_of(every.cut, every.planes):
        raise IllegalPlan(f"{ranks} plans for {ranks_of(every.cut, every.planes)} ranks")
    parts = parts_of(every.problem, every.cut, every.planes)
    for rank, (plan, part) in enumerate(zip(every.plans, parts, strict=True)):
        if (plan.problem.shape, plan.problem.sides) != (part.shape, part.sides):
            first, end = every.cut[row := place_in_cuts(every.cut, rank)[0]], every.cut[row + 1]
            raise IllegalPlan(f"the plan of rank {rank} is not for rows {first} .. {end - 1} of {part.planes} planes")
        if plan.problem.max_halo > part.max_halo:
            raise IllegalPlan(f"rank {rank} may use more rows of a neighbour than the {part.max_halo} that it has")
        if plan.problem.max_halo_z > part.max_halo_z:
            raise IllegalPlan(f"rank {rank} may use more planes of a neighbour than the {part.max_halo_z} that it has")
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
    neighbours = [every.neighbours(rank) for rank in range(ranks)]
    known, done = _Exchanges(), set[tuple[int, ...]]()
    for number, passes in enumerate(zip(*(plan.passes for plan in every.plans), strict=True)):
        key = tuple(map(id, passes))
        if key in done:
            continue
        done.add(key)
        try:
            for rank, others in enumerate(neighbours):
                for side in SIDES:
                    if (other := others[side]) is not None:
                        ends = (every.plans[rank], passes[rank]), (every.plans[other], passes[other])
                        known.require_received(*ends, side, (rank, other))
            steps = [known.steps(plan.problem, one) for plan, one in zip(every.plans, passes, strict=True)]
            require_progress(steps, neighbours)
        except IllegalPlan as error:
            raise IllegalPlan(f"pass {number}, {error}") from None


class _Exchanges:
    """Computes the messages and the exchange steps of passes. Ranks can share a pass, so the results are kept."""

    def __init__(self) -> None:
        self._messages: dict[tuple[int, int, int], list[Message]] = {}
        self._steps: dict[tuple[int, int], list[ExchangeStep]] = {}

    def steps(self, problem: Problem, one: Pass) -> list[ExchangeStep]:
        key = id(problem), id(one)
        if key not in self._steps:
            self._steps[key] = steps_of(problem, one)
        return self._steps[key]

    def require_received(
        self, sender: tuple[Plan, Pass], receiver: tuple[Plan, Pass], side: int, ranks: tuple[int, int]
    ) -> None:
        """Raise IllegalPlan unless the sender sends exactly the messages that the receiver receives. The receiver is
        the neighbour of the sender at the side `side`. `ranks` are the numbers of the sender and of the receiver."""
        sent: list[Message | None] = [*self._of(*sender, SEND + side), None]
        received: list[Message | None] = [*self._of(*receiver, RECEIVE + (side ^ 1)), None]
        if sent != received:
            first = next(pair for pair in zip(sent, received, strict=False) if pair[0] != pair[1])
            raise IllegalPlan(f"rank {ranks[0]} sends {first[0]}, but rank {ranks[1]} receives {first[1]}")

    def _of(self, plan: Plan, one: Pass, direction: int) -> list[Message]:
        key = id(plan.problem), id(one), direction
        if key not in self._messages:
            self._messages[key] = messages(plan.problem, one, direction)
        return self._messages[key]
