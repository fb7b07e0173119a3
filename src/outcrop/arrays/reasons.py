"""Why an array is where it is, and why it cannot be anywhere, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from outcrop.arrays.spec import ArraySpec
from outcrop.plan.placement import (
    FASTEST,
    FASTEST_WITH_ROOM,
    HIDDEN,
    SLOWEST,
    SLOWEST_FOR_NOTHING,
    Assignment,
    Choice,
    Demand,
    because,
    cost,
    fits,
    has_no_room,
    takes_longer,
)
from outcrop.units import format_bytes


def why(
    spec: ArraySpec,
    number: int,
    demands: Sequence[Demand],
    found: Assignment,
    free_bytes: Mapping[str, int],
    computing_seconds: float,
) -> str:
    """Why demand `number` of a placement is where it is; `free_bytes` of the places, the fastest first."""
    demand, chosen = demands[number], found.chosen[number]
    if spec.path is not None:
        return "its path is there"
    if spec.tier not in ("auto", chosen.place) and len(demand.choices) > 1:
        return f"the best {spec.tier}"
    if len(demand.choices) == 1:
        return "as asked" if spec.tier != "auto" else "no other tier could"
    places = list(free_bytes)
    rank = places.index(chosen.place)
    others = [one for one in demand.choices if one is not chosen]
    passed = [one for one in others if (places.index(one.place) < rank) == demand.updated]
    if not passed:
        is_hidden = chosen.transfer_seconds <= computing_seconds
        return FASTEST if demand.updated else f"{SLOWEST}, {HIDDEN}" if is_hidden else SLOWEST
    objections = _objections(passed, number, demands, found, free_bytes, computing_seconds)
    return because(FASTEST_WITH_ROOM if demand.updated else SLOWEST_FOR_NOTHING, objections)


def _objections(
    passed: Sequence[Choice],
    number: int,
    demands: Sequence[Demand],
    found: Assignment,
    free_bytes: Mapping[str, int],
    computing_seconds: float,
) -> Iterator[str]:
    """What speaks against other choices for one demand, all others staying where they are."""
    places = tuple(free_bytes)
    now = cost(demands, found.chosen, places, computing_seconds)[0]
    for one in passed:
        instead = [*found.chosen[:number], one, *found.chosen[number + 1 :]]
        longer = cost(demands, instead, places, computing_seconds)[0] - now
        if not fits(instead, free_bytes):
            yield has_no_room(one.place)
        elif longer > 0:
            yield takes_longer(one.place, "a step", longer / 1e9)


def no_room(demands: Sequence[Demand], free_bytes: Mapping[str, int]) -> str:
    """The array that fits nowhere, or that all together do not; what there is, alone and shared."""
    for demand in demands:
        if not any(fits([one], free_bytes) for one in demand.choices):
            needs = "; ".join(_lacks(one, free_bytes) for one in demand.choices)
            return f"{demand.name}: no room: {needs}; use another tier or a smaller array"
    free = ", ".join(f"{format_bytes(count)} of {place}" for place, count in free_bytes.items())
    return f"no room for {', '.join(one.name for one in demands)} together; free are {free}: use smaller arrays"


def _lacks(one: Choice, free_bytes: Mapping[str, int]) -> str:
    short = [(place, count) for place, count in one.takes if count > free_bytes[place]]
    return " and ".join(
        f"it takes {format_bytes(count)} of {place}, where {format_bytes(free_bytes[place])} are free"
        for place, count in short
    )
