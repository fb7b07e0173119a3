"""Choose a place in memory or on storage for each thing. A thing is an array of a user or a field of a run. Each thing
has several possible places. Some places do not have room for all things.

    demand: image ─┬─ choice: dram    takes 8 GiB of dram    0.1 s of transfers a step
                   └─ choice: nvme0   takes 8 GiB of nvme0   2.7 s
    demand: result ── choice: dram    ...

Transfers take place during the computation. One transfer follows another, because the same cores perform all transfers.
So the time of a step is the longer of two times: the time of the computation, and the time of all transfers together.
The best placement has the following properties. The first property is the most important, and the last is the least
important:

1. The shortest step.
2. The shortest time for transfers of updated things. So updated things are in the fastest place that has room, even if
   slower transfers would not delay a step.
3. The fewest bytes of read-only things in the fastest place, then in the second fastest place, and so on. So read-only
   things are in the slowest place that does not delay a step.

The search is exact and depth first. The search skips every branch that cannot contain a better placement than the best
placement found so far. After MAX_BRANCHES branches, the search stops and returns the best placement found so far. In
this case, `is_best` is false.

No stage updates the static fields of a run. These fields have two possible places:

    `memory`   Only the first pass reads the static fields. After the first pass, the static fields stay in memory, so
               less memory is left for other fields.
    `disk`     The window holds only the planes of static fields that the current updates need. Each pass reads all
               planes again.

All static fields are in the same place, because they all need the same amount of memory and are read equally often. The
place of the static fields determines how much memory remains for slabs and levels. The remaining memory affects the
cost of the run. So the tuner predicts the cost of whole plans for both places of the static fields, and the function
`taken` chooses one of these plans. The places of static fields are shown in a table of the same form as the places of
arrays.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from outcrop.plan.actions import Read
from outcrop.plan.cost import transfer_bytes
from outcrop.plan.machine import Machine
from outcrop.plan.plan import Candidate, Pass, Plan, Sizes
from outcrop.plan.problem import Problem
from outcrop.units import format_bytes, format_seconds

MAX_BRANCHES = 30_000


@dataclass(frozen=True)
class Choice:
    """A possible place of a thing. `takes` lists places, with the number of bytes that the thing needs in each place.
    `transfer_seconds` is the time that the transfers of the thing take in each step."""

    place: str
    takes: tuple[tuple[str, int], ...]
    transfer_seconds: float

    @cached_property
    def nanoseconds(self) -> int:
        """The transfer time as a whole number, so that a sum of times does not depend on the order of its terms."""
        return round(self.transfer_seconds * 1e9)


@dataclass(frozen=True)
class Demand:
    """A thing to be placed, and its possible places."""

    name: str
    choices: tuple[Choice, ...]
    updated: bool


@dataclass(frozen=True)
class Assignment:
    """The result of a search: the choice for each demand, in the order of the demands. `is_best` is false if the search
    stopped early."""

    chosen: tuple[Choice, ...]
    seconds_per_step: float
    is_best: bool


Cost: TypeAlias = "tuple[int, int, tuple[int, ...]]"


def assign(demands: Sequence[Demand], free_bytes: Mapping[str, int], computing_seconds: float) -> Assignment | None:
    """Return the best placement, or None if the places do not have room for all demands. `free_bytes` contains the
    number of free bytes of each place, with the fastest place first."""
    search = _Search(demands, free_bytes, computing_seconds)
    search.place(0, {})
    if search.best is None:
        return None
    chosen = tuple(search.best[number] for number in range(len(demands)))
    seconds = cost(demands, chosen, tuple(free_bytes), computing_seconds)[0] / 1e9
    return Assignment(chosen, seconds, search.branches_left > 0)


def cost(demands: Sequence[Demand], chosen: Sequence[Choice], places: Sequence[str], computing_seconds: float) -> Cost:
    """Return the cost of a placement as a tuple of numbers. The search minimises the cost. The first number is the time
    of a step in nanoseconds. The second number is the time of the transfers of updated things. The other numbers are
    the bytes of read-only things in each of `places`, with the fastest place first. Two costs are compared number by
    number. The first different number decides which cost is lower."""
    pairs = list(zip(demands, chosen, strict=True))
    step = max(round(computing_seconds * 1e9), sum(one.nanoseconds for one in chosen))
    updated = sum(one.nanoseconds for demand, one in pairs if demand.updated)
    read = dict.fromkeys(places, 0)
    for demand, one in pairs:
        if not demand.updated:
            for place, count in one.takes:
                read[place] += count
    return step, updated, tuple(read.values())


def fits(chosen: Sequence[Choice], free_bytes: Mapping[str, int]) -> bool:
    """Return True if the places have room for all choices together."""
    left = dict(free_bytes)
    for one in chosen:
        for place, count in one.takes:
            left[place] -= count
    return min(left.values(), default=0) >= 0


class _Search:
    """A depth-first search for the best placement. The search begins with the largest demands. For each demand, the
    search tries the most promising choice first."""

    def __init__(self, demands: Sequence[Demand], free_bytes: Mapping[str, int], computing_seconds: float) -> None:
        self._demands, self._places, self._computing = demands, tuple(free_bytes), computing_seconds
        self._left = dict(free_bytes)
        self._order = sorted(range(len(demands)), key=lambda number: -_bytes(demands[number]))
        speed = {place: rank for rank, place in enumerate(self._places)}
        self._choices = [
            sorted(
                demand.choices,
                key=lambda one: (one.nanoseconds,) if demand.updated else (-speed[one.place], one.nanoseconds),
            )
            for demand in demands
        ]
        # Entry n of `_least` is the minimum cost of the demands that remain after the first n demands in the order of
        # the search.
        self._least = [(0, 0)]
        for number in reversed(self._order):
            least = min((one.nanoseconds for one in demands[number].choices), default=0)
            step, updated = self._least[0]
            self._least.insert(0, (step + least, updated + least * demands[number].updated))
        self.best: dict[int, Choice] | None = None
        self._best_cost: Cost | None = None
        self.branches_left = MAX_BRANCHES

    def place(self, depth: int, chosen: dict[int, Choice]) -> None:
        """Try all choices for the remaining demands. The first `depth` demands in the order of the search already have
        a choice."""
        bound = self._bound(depth, chosen)
        self.branches_left -= 1
        if self.branches_left <= 0 or (self._best_cost is not None and bound >= self._best_cost):
            return
        if depth == len(self._order):
            self.best, self._best_cost = dict(chosen), bound
            return
        number = self._order[depth]
        for one in self._choices[number]:
            if all(self._left[place] >= count for place, count in one.takes):
                self._take(one, 1)
                chosen[number] = one
                self.place(depth + 1, chosen)
                del chosen[number]
                self._take(one, -1)

    def _take(self, one: Choice, sign: int) -> None:
        for place, count in one.takes:
            self._left[place] -= sign * count

    def _bound(self, depth: int, chosen: Mapping[int, Choice]) -> Cost:
        """Return a lower bound of the cost of all placements that include `chosen`. If `chosen` has a choice for every
        demand, return the exact cost."""
        demands = [self._demands[number] for number in chosen]
        so_far = sum(one.nanoseconds for one in chosen.values())
        least_step, least_updated = self._least[depth]
        _, updated, read = cost(demands, list(chosen.values()), self._places, 0)
        step = max(round(self._computing * 1e9), so_far + least_step)
        return step, updated + least_updated, read


def _bytes(demand: Demand) -> int:
    return min((sum(count for _, count in one.takes) for one in demand.choices), default=0)


FASTEST, FASTEST_WITH_ROOM = "the fastest", "the fastest with room"
SLOWEST, SLOWEST_FOR_NOTHING, HIDDEN = "the slowest", "the slowest that delays nothing", "hidden behind the computing"

MIN_SHOWN_SECONDS = 0.001
"""The shortest time that the table of places shows, in seconds. The table shows each shorter time as "less than"
MIN_SHOWN_SECONDS."""


@dataclass(frozen=True)
class PlacementRow:
    """A row of the table of places. `takes` gives the number of bytes that the thing needs in each place. `why` gives
    the reason for `place`."""

    name: str
    nbytes: int
    place: str
    takes: tuple[tuple[str, int], ...]
    transfer_seconds: float
    why: str


def table(what: str, every: Sequence[PlacementRow]) -> list[str]:
    """Return the lines of a table. The first line is the header. In the header, `what` is the title of the column of
    names."""
    rows = [(what, "bytes", "tier", "takes", "transfers", "why")]
    for one in every:
        takes = ", ".join(f"{format_bytes(count)} of {place}" for place, count in one.takes if count) or "nothing"
        seconds = format_seconds(one.transfer_seconds)
        rows.append((one.name, format_bytes(one.nbytes), one.place, takes, seconds, one.why))
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]], on_the_right: Container[int] = ()) -> list[str]:
    """Return the lines of a table. The columns with the numbers `on_the_right` are aligned to the right, and the other
    columns to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    kinds = [f"{'>' if column in on_the_right else '<'}{width}" for column, width in enumerate(widths)]
    return ["  ".join(map(format, row, kinds)).rstrip() for row in rows]


def has_no_room(place: str) -> str:
    return f"{place} has no room"


def takes_longer(place: str, what: str, seconds: float) -> str:
    """Return a text for messages, such as "disk makes a step 2 s longer". In this example, `what` is "a step"."""
    shown = format_seconds(max(seconds, MIN_SHOWN_SECONDS))
    longer = shown if seconds >= MIN_SHOWN_SECONDS else f"less than {shown}"
    return f"{place} makes {what} {longer} longer"


def because(kind: str, objections: Iterable[str]) -> str:
    """Return a text with the reason why a place was chosen. The text contains the kind of the reason, and the reasons
    against the other places."""
    every = ", ".join(objections)
    return f"{kind}: {every}" if every else kind


MEMORY, DISK = "memory", "disk"
EQUALLY_FAST = 1.01
"""Plans whose time is within this factor of the fastest plan count as equally fast."""


def possible(problem: Problem, budget_bytes: int) -> tuple[bool, ...]:
    """Return the possible values of `Sizes.keeps_statics`. True is possible if the budget is large enough for all
    planes of all static fields. A rank always reads its static fields again, because a rank does not keep the rows of
    its neighbours in memory between passes."""
    if problem.is_part:
        return (False,)
    return (False, True) if 0 < problem.statics * problem.grid_bytes <= budget_bytes else (False,)


def taken(candidates: Sequence[Candidate]) -> Candidate:
    """Return the fastest candidate. If several candidates are equally fast, return the candidate that needs the least
    memory."""
    limit = EQUALLY_FAST * min(one.seconds for one in candidates)
    equally_fast = [one for one in candidates if one.seconds <= limit]
    return min(equally_fast, key=lambda one: (one.predicted.memory_bytes, one.sizes.keeps_statics, one.seconds))


def place_of(sizes: Sizes) -> str:
    """Return the place of static fields in a plan with the sizes `sizes`."""
    return MEMORY if sizes.keeps_statics else DISK


def explained(plan: Plan, considered: Sequence[Candidate], machine: Machine, may_stay: bool) -> list[PlacementRow]:
    """Return a row of the table for each static field. The transfer time in a row is the total time of the field's
    transfers in the whole run.

    `considered` are all candidates whose costs were predicted. The first candidate belongs to the plan itself.
    `may_stay` is true if the scheme of a candidate can keep static fields in memory.
    """
    problem, place = plan.problem, place_of(plan.sizes)
    statics = [(number, one) for number, one in enumerate(problem.fields) if one.is_static and not one.is_history]
    rings = list(plan.window.rings(problem))
    # each Pass object is counted only once, because most passes of a plan are the same object
    once = {id(one): one for one in plan.passes}
    read = {key: _bytes_of_pass(problem, one) for key, one in once.items()}
    seconds = sum(read[id(one)] for one in plan.passes) / machine.device.read_bytes_per_second
    why, found = _why(plan, considered, may_stay), []
    for number, one in statics:
        takes = ((MEMORY, rings[number].planes * rings[number].slot_bytes),)
        name = one.name or f"field {number}"
        found.append(PlacementRow(name, problem.grid_bytes, place, takes, seconds / len(statics), why))
    return found


def _why(plan: Plan, considered: Sequence[Candidate], may_stay: bool) -> str:
    place, other = (MEMORY, DISK) if plan.sizes.keeps_statics else (DISK, MEMORY)
    rivals = [one for one in considered if place_of(one.sizes) == other]
    if not rivals:
        if place == MEMORY:
            return "all of the grid is in memory"
        return because(SLOWEST, [has_no_room(MEMORY)]) if may_stay else f"scheme {plan.scheme} keeps nothing in memory"
    now, instead = considered[0].seconds, min(one.seconds for one in rivals)
    objections = [takes_longer(other, "the run", instead - now)] if instead > EQUALLY_FAST * now else []
    if place == DISK:
        return because(SLOWEST, objections) if objections else f"{SLOWEST}, {HIDDEN}"
    return because(SLOWEST_FOR_NOTHING, objections or [f"with {other} the plan takes more memory"])


def _bytes_of_pass(problem: Problem, one: Pass) -> int:
    reads = (action for action in one.actions if isinstance(action, Read) and action.array == "statics")
    return sum(transfer_bytes(problem, action) for action in reads)
