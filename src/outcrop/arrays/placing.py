"""Several arrays placed on the tiers of a machine: planned first, shown, and made when asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outcrop.arrays.array import Array
from outcrop.arrays.choices import demand_of, is_measured, spec_on
from outcrop.arrays.find import possible_tiers
from outcrop.arrays.making import make_array
from outcrop.arrays.paths import check_name
from outcrop.arrays.reasons import no_room, why
from outcrop.arrays.spec import ArraySpec, amount
from outcrop.arrays.untouched import without_promised
from outcrop.errors import InputError, shown
from outcrop.paths import nearest_existing
from outcrop.plan.placement import Choice, Demand, PlacementRow, assign, table
from outcrop.tiers.survey import MAIN_MEMORY, SharedRoom, find_tiers, shared_rooms
from outcrop.tiers.tier import Tier
from outcrop.units import format_bytes, format_seconds, parse_bytes


@dataclass(frozen=True)
class PlacedArray:
    """Where an array goes: what it takes of which tier, how long its transfers in a step are, and why it is there."""

    name: str
    spec: ArraySpec
    tier: Tier
    working: Tier
    takes: tuple[tuple[str, int], ...]
    transfer_seconds: float
    why: str

    @property
    def placed(self) -> PlacementRow:
        """A row of the table."""
        return PlacementRow(self.name, self.spec.nbytes, self.tier.name, self.takes, self.transfer_seconds, self.why)


@dataclass(frozen=True)
class Placement:
    """Where all go. Nothing has been made: `make()` does that. `print` shows it as a table."""

    arrays: tuple[PlacedArray, ...]
    tiers: tuple[Tier, ...]
    computing_seconds: float
    seconds_per_step: float
    is_best: bool

    def bytes_on(self, tier: str) -> int:
        """Bytes that the arrays take of the tier with that name."""
        return sum(count for placed in self.arrays for name, count in placed.takes if name == tier)

    @property
    def dram_bytes(self) -> int:
        """Bytes of DRAM that the arrays hold for good, in tmpfs, too; pages of other files come and go beside them."""
        return sum(self.bytes_on(tier.name) for tier in self.tiers if tier.kind in MAIN_MEMORY)

    def make(self) -> dict[str, Array]:
        """The arrays by name; one that is at its path already is opened with its last commit. Raises InputError,
        StorageError, CorruptionError."""
        made: dict[str, Array] = {}
        try:
            for placed in self.arrays:
                made[placed.name] = make_array(placed.spec, placed.tier, placed.working)
        except BaseException:
            for array in made.values():
                array.abandon()
            raise
        return made

    def __str__(self) -> str:
        return self.explain()

    def explain(self) -> str:
        """A table: where each array is, what it takes there, how long its transfers are, and why; below it a step."""
        lines = table("array", [one.placed for one in self.arrays])
        transfers = sum(one.transfer_seconds for one in self.arrays)
        step = f"a step: {format_seconds(self.seconds_per_step)}, of {format_seconds(self.computing_seconds)} computing"
        step += f" and {format_seconds(transfers)} transfers beside it"
        lines += ["", f"{step}; {format_bytes(self.dram_bytes)} of DRAM"]
        if not self.is_best:
            lines.append("there are too many possibilities to try all: this is the best one found")
        return "\n".join(lines)


def place(
    arrays: Mapping[str, ArraySpec],
    seconds_per_step: float = 0.0,
    capacities: Mapping[str, str | int] | None = None,
    tiers: Sequence[Tier] | None = None,
) -> Placement:
    """Plan where arrays go; nothing is made or changed.

    `seconds_per_step` is how long a step computes with everything in memory: transfers of less than that cost nothing.
    Unknown, it counts as 0, and everything goes to the fastest tier with room. `capacities` are bytes of tiers, by
    name, that may be taken ("2GiB", or 0); else what is free. `tiers` are those of this machine unless given; where
    there is a choice between some that never were measured, that is done first, and takes some seconds. An array that
    is committed and has no path goes to a folder of its name in the directory of its tier.

    Raises InputError when an array cannot be anywhere, or when there is no room.
    """
    seconds_per_step = amount("seconds_per_step", seconds_per_step)
    _check_arrays(arrays)
    _check_tiers(tiers)
    here = _fastest_first(tiers if tiers is not None else without_promised(_tiers_for(arrays)))
    _check_capacities({} if capacities is None else capacities, here)
    shared = shared_rooms(here)
    here = [_limited(tier, capacities or {}) for tier in here]
    _check_paths(arrays)
    demands = [demand_of(name, spec, here) for name, spec in arrays.items()]
    free = {tier.name: tier.free_bytes for tier in here} | {room.name: room.free_bytes for room in shared}
    with_shared = [_with_shared(demand, shared) for demand in demands]
    found = assign(with_shared, free, seconds_per_step)
    if found is None:
        raise InputError(no_room(demands, free))
    named = {tier.name: tier for tier in here}
    placed = []
    for number, (name, spec) in enumerate(arrays.items()):
        chosen = found.chosen[number]
        reason = why(spec, number, with_shared, found, free, seconds_per_step)
        placed.append(_placed(name, spec, chosen, named, reason))
    return Placement(tuple(placed), tuple(here), seconds_per_step, found.seconds_per_step, found.is_best)


def _placed(name: str, spec: ArraySpec, chosen: Choice, named: Mapping[str, Tier], reason: str) -> PlacedArray:
    tier = named[chosen.place]
    takes = tuple((place, count) for place, count in chosen.takes if place in named)
    working = named[takes[-1][0]]
    spec = spec_on(tier, name, spec)
    return PlacedArray(name, spec, tier, working, takes, chosen.transfer_seconds, reason)


def _with_shared(demand: Demand, shared: Sequence[SharedRoom]) -> Demand:
    """With what each choice takes of the room that its tiers have together with others."""

    def takes(one: Choice) -> tuple[tuple[str, int], ...]:
        sums = ((room.name, sum(count for place, count in one.takes if place in room.tiers)) for room in shared)
        return (*one.takes, *((name, count) for name, count in sums if count))

    return replace(demand, choices=tuple(replace(one, takes=takes(one)) for one in demand.choices))


def _tiers_for(arrays: Mapping[str, ArraySpec]) -> list[Tier]:
    """Those of this machine and of the paths; measured if there is a choice between some that never were."""
    parents = [nearest_existing(spec.path.absolute().parent) for spec in arrays.values() if spec.path is not None]
    folders = [folder for folder in parents if folder.is_dir()]
    tiers = find_tiers(folders)
    for name, spec in arrays.items():
        possible = possible_tiers(name, spec, tiers)
        if len(possible) > 1 and not all(map(is_measured, possible)):
            return find_tiers(folders, measure=True, progress=_tell)
    return tiers


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr)


def _fastest_first(tiers: Sequence[Tier]) -> list[Tier]:
    return sorted(tiers, key=lambda tier: -(tier.read_bytes_per_second or 0.0))


def _limited(tier: Tier, capacities: Mapping[str, str | int]) -> Tier:
    if tier.name not in capacities:
        return tier
    given = capacities[tier.name]
    given = int(given) if isinstance(given, np.integer) else given
    if isinstance(given, bool) or not isinstance(given, (str, int)):
        size = f"{shown(given)} of {tier.name}"
        raise InputError(f"capacities: {size} must be a size such as '2GiB', or bytes; 0 for nothing")
    try:
        most = 0 if given in (0, "0") else parse_bytes(given, tier.capacity_bytes)
    except InputError as error:
        raise InputError(f"capacities: of {tier.name} {error}") from None
    return replace(tier, free_bytes=min(tier.free_bytes, most))


def _check_arrays(arrays: object) -> None:
    if not isinstance(arrays, Mapping):
        raise InputError(f"oc.place takes arrays by name, {{'psi': oc.ArraySpec((1000, 2000))}}, not {shown(arrays)}")
    for name, spec in arrays.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"the name {shown(name)} of an array must be text, such as 'psi'")
        if not isinstance(spec, ArraySpec):
            raise InputError(f"{name}: {shown(spec)} is no oc.ArraySpec; write for example oc.ArraySpec((1000, 2000))")
        if spec.is_committed and spec.path is None and (name in (".", "..") or "/" in name or "\0" in name):
            raise InputError(f"{name!r} is no name of a folder, where a committed array goes; give it a path")
        if spec.path is not None:
            check_name(spec.path)


def _check_tiers(tiers: object) -> None:
    if tiers is not None and (not isinstance(tiers, Sequence) or not all(isinstance(one, Tier) for one in tiers)):
        raise InputError(f"tiers must be a list of tiers, as find_tiers gives, not {shown(tiers)}")


def _check_capacities(capacities: object, tiers: Sequence[Tier]) -> None:
    if not isinstance(capacities, Mapping):
        given = shown(capacities)
        raise InputError(f"capacities must be sizes by name of a tier, such as {{'dram': '2GiB'}}, not {given}")
    names = [tier.name for tier in tiers]
    for name in capacities:
        if name not in names:
            raise InputError(f"capacities: there is no tier {shown(name)}; there are {', '.join(names)}")


def _check_paths(arrays: Mapping[str, ArraySpec]) -> None:
    seen: dict[str, str] = {}
    for name, spec in arrays.items():
        if spec.path is not None:
            other = seen.setdefault(os.path.realpath(spec.path), name)
            if other != name:
                raise InputError(f"{name}: {spec.path} is the path of {other}, too; each array needs its own")
