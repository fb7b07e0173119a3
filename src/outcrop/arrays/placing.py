"""`oc.array`, `oc.open_array` and `oc.place`: plan and show the places of arrays on the tiers of a machine, and make
the arrays.

For each array and each possible tier, the plan depends on the bytes that the array takes on the tier. The plan also
depends on the time of the array's transfers in one step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike

from outcrop.arrays.array import Array, check_name, check_path, make_storage, stored_bytes
from outcrop.arrays.committed import holds_array, slots_bytes, spec_of
from outcrop.arrays.spec import ArraySpec, Persist, amount, possible_tiers
from outcrop.arrays.storage import HEADER_BYTES, read_npy_header, subtract_reserved
from outcrop.display import Shown, as_html
from outcrop.errors import InputError, shown
from outcrop.paths import as_path, nearest_existing
from outcrop.plan import placement
from outcrop.plan.placement import Assignment, Choice, Demand, PlacementRow
from outcrop.tiers.survey import MAIN_MEMORY, Measuring, SharedRoom, find_tiers, shared_rooms
from outcrop.tiers.tier import Tier
from outcrop.units import format_bytes, format_seconds, parse_bytes


def array(
    shape: int | tuple[int, ...],
    dtype: DTypeLike = "float64",
    tier: str = "auto",
    access: str = "update",
    persist: Persist = "never",
    path: str | os.PathLike[str] | None = None,
    *,
    working: str = "tier",
    bytes_read_per_step: float | None = None,
    bytes_written_per_step: float | None = None,
    seconds_per_step: float = 0.0,
) -> Array:
    """Make an array of zeros on a tier. If there is already an array at `path` with the same shape and dtype, open this
    array instead.

    `tier` is the name or kind of a tier ("dram", "nvme", "tmpfs", see `outcrop tiers`), or "auto". With tier "auto", an
    array that is updated goes to the fastest tier with room. An array that is only read goes to the slowest tier that
    does not delay a step. A tier does not delay a step if the transfers of the array take at most `seconds_per_step`,
    the computing time of a step. An array with commits needs a `path`.

    See `ArraySpec` for the other arguments. Raises InputError if the tier does not exist, has no room, or does not keep
    values long enough. Also raises InputError if the file system of the path is not the file system of the tier, or if
    other files are at the path. A call that raises InputError makes no file. Raises StorageError if a device fails, and
    CorruptionError if no commit at `path` is intact.
    """
    spec = ArraySpec(shape, dtype, tier, access, persist, path, working, bytes_read_per_step, bytes_written_per_step)
    if spec.is_committed and spec.path is None:
        # If the tier does not keep values, `possible_tiers` raises InputError and gives this reason. If the tier keeps
        # values, the line after `possible_tiers` raises an error about the missing path.
        possible_tiers("array", spec, find_tiers())
        raise InputError(f"persist={persist!r} needs a path, by which the array is found again")
    return _make(spec, seconds_per_step)


def open_array(path: str | os.PathLike[str], access: str | None = None, persist: Persist | None = None) -> Array:
    """Open the array at `path`. The opened array gets the values of its last intact commit, or of its .npy file.

    By default, `access` and `persist` have the values with which the array was made. By default, a .npy file is opened
    for reading only. If `access` is "update", the program can change the values of the file. If the last commit is
    damaged, the previous commit is opened, and Python shows a RuntimeWarning. Raises InputError if `path` holds no
    array. Raises StorageError if a device fails, and CorruptionError if no commit is intact.
    """
    where = as_path(path, "path")
    check_name(where)
    if not os.path.lexists(where):
        raise InputError(f"there is no array at {where}; make one with oc.array")
    if os.path.isdir(where):
        if not holds_array(where):
            raise InputError(f"{where} holds no array")
        return _make(spec_of(where, access, persist), 0.0)
    if persist not in (None, "never"):
        raise InputError(f"{where} is a .npy file, which has no commits: leave out persist={persist!r}")
    shape, dtype, _ = read_npy_header(where)
    return _make(ArraySpec(shape, dtype, access=access or "read", path=where), 0.0)


def _make(spec: ArraySpec, seconds_per_step: float) -> Array:
    return place({"array": spec}, seconds_per_step).make()["array"]


@dataclass(frozen=True)
class PlacedArray:
    """The planned place of one array. `takes` has a pair for each tier that the array uses: the name of the tier, and
    the number of bytes on this tier. `transfer_seconds` is the time of the array's transfers in one step."""

    name: str
    spec: ArraySpec
    tier: Tier
    working: Tier
    takes: tuple[tuple[str, int], ...]
    transfer_seconds: float
    why: str


@dataclass(frozen=True)
class Placement(Shown):
    """The planned places of arrays. `print` shows the places as a table, and `make()` makes the arrays."""

    arrays: tuple[PlacedArray, ...]
    tiers: tuple[Tier, ...]
    computing_seconds: float
    seconds_per_step: float
    is_best: bool

    def bytes_on(self, tier: str) -> int:
        """Return the number of bytes that the arrays take on the tier with the name `tier`."""
        return sum(count for placed in self.arrays for name, count in placed.takes if name == tier)

    @property
    def dram_bytes(self) -> int:
        """The number of bytes of DRAM that the arrays occupy. This number includes files on tmpfs, but not pages of
        other files in the page cache."""
        return sum(self.bytes_on(tier.name) for tier in self.tiers if tier.kind in MAIN_MEMORY)

    def make(self) -> dict[str, Array]:
        """Make the arrays, and return them in a dictionary. The keys are the names of the arrays. If an array already
        exists at a path, `make` opens this array with the values of its last commit. Raises InputError, StorageError or
        CorruptionError if an array cannot be made."""
        made: dict[str, Array] = {}
        try:
            for one in self.arrays:
                made[one.name] = Array(one.spec, one.tier, make_storage(one.spec, one.tier, one.working))
        except BaseException:
            for array in made.values():
                array.abandon()
            raise
        return made

    def __str__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        rows = [
            (one.name, format_bytes(one.spec.nbytes), one.tier.name, format_seconds(one.transfer_seconds), one.why)
            for one in self.arrays
        ]
        below = f"a step: {format_seconds(self.seconds_per_step)}; {format_bytes(self.dram_bytes)} of DRAM"
        return as_html("Placement", rows, ("array", "size", "tier", "transfers of a step", "reason"), below)

    def explain(self) -> str:
        """Return a table with a row for each array: its tier, its bytes, its transfer time, and the reason for its
        place. A text below this table gives the time of a step."""
        rows = [
            PlacementRow(one.name, one.spec.nbytes, one.tier.name, one.takes, one.transfer_seconds, one.why)
            for one in self.arrays
        ]
        lines = placement.table("array", rows)
        transfers = sum(one.transfer_seconds for one in self.arrays)
        step = f"a step: {format_seconds(self.seconds_per_step)}, of {format_seconds(self.computing_seconds)} computing"
        step += f" and {format_seconds(transfers)} transfers at the same time"
        lines += ["", f"{step}; {format_bytes(self.dram_bytes)} of DRAM"]
        if not self.is_best:
            lines.append("not all possibilities were tried, because there are too many")
        return "\n".join(lines)


def place(
    arrays: Mapping[str, ArraySpec],
    seconds_per_step: float = 0.0,
    capacities: Mapping[str, str | int] | None = None,
    tiers: Sequence[Tier] | None = None,
) -> Placement:
    """Plan the places of arrays. `place` neither makes nor changes files.

    `seconds_per_step` is the computing time of a step with all data in memory. Transfers of arrays that take at most
    this time do not slow down a step. If `seconds_per_step` is 0 (the default), each array goes to the fastest tier
    with room. `capacities` maps the name of a tier to the maximum number of bytes that arrays may take there, such as
    "2GiB" or 0. By default, arrays may take all free bytes of a tier. `tiers` defaults to the tiers of this machine. If
    several tiers are possible for an array, and one of these tiers was never measured, `place` first measures all
    tiers. The measurement takes some seconds. If an array has commits but no path, the array gets a folder in the
    directory of its tier. This folder has the name of the array.

    Raises InputError if no tier is possible for an array, or if the arrays do not fit.
    """
    seconds_per_step = amount("seconds_per_step", seconds_per_step)
    _check_arrays(arrays)
    if tiers is not None and (not isinstance(tiers, Sequence) or not all(isinstance(one, Tier) for one in tiers)):
        raise InputError(f"tiers must be a list of tiers, as find_tiers gives, not {shown(tiers)}")
    here = list(tiers if tiers is not None else subtract_reserved(_tiers_for(arrays)))
    # The fastest tier comes first.
    here.sort(key=lambda tier: -(tier.read_bytes_per_second or 0.0))
    _check_capacities({} if capacities is None else capacities, here)
    shared = shared_rooms(here)
    here = [_limited(tier, capacities or {}) for tier in here]
    _check_paths(arrays)
    demands = [demand_of(name, spec, here) for name, spec in arrays.items()]
    free = {tier.name: tier.free_bytes for tier in here} | {room.name: room.free_bytes for room in shared}
    with_shared = [_with_shared(demand, shared) for demand in demands]
    found = placement.assign(with_shared, free, seconds_per_step)
    if found is None:
        raise InputError(no_room(arrays, demands, here, free))
    named = {tier.name: tier for tier in here}
    placed = []
    for number, (name, spec) in enumerate(arrays.items()):
        chosen = found.chosen[number]
        tier = named[chosen.place]
        takes = tuple((place, count) for place, count in chosen.takes if place in named)
        working = named[takes[-1][0]]
        reason = why(spec, number, with_shared, found, free, seconds_per_step)
        on_tier = spec_on(tier, name, spec)
        placed.append(PlacedArray(name, on_tier, tier, working, takes, chosen.transfer_seconds, reason))
    return Placement(tuple(placed), tuple(here), seconds_per_step, found.seconds_per_step, found.is_best)


def _with_shared(demand: Demand, shared: Sequence[SharedRoom]) -> Demand:
    """Some groups of tiers, such as DRAM and tmpfs, share their free bytes. Return a copy of `demand` in which each
    choice also counts the bytes of groups of tiers that share free bytes. For each group, `takes` gets a further pair:
    the name of the group, and the number of bytes that the choice takes on its tiers."""

    def takes(one: Choice) -> tuple[tuple[str, int], ...]:
        sums = ((room.name, sum(count for place, count in one.takes if place in room.tiers)) for room in shared)
        return (*one.takes, *((name, count) for name, count in sums if count))

    return replace(demand, choices=tuple(replace(one, takes=takes(one)) for one in demand.choices))


def _tiers_for(arrays: Mapping[str, ArraySpec]) -> list[Tier]:
    """Return the tiers of this machine. A tier that contains the path of an array gets the folder of this path as its
    directory. If an array has several possible tiers, and one of these tiers was never measured, all tiers are measured
    first."""
    parents = [nearest_existing(spec.path.absolute().parent) for spec in arrays.values() if spec.path is not None]
    folders = [folder for folder in parents if folder.is_dir()]
    tiers = find_tiers(folders)
    for name, spec in arrays.items():
        possible = possible_tiers(name, spec, tiers)
        if len(possible) > 1 and not all(map(measured, possible)):
            return find_tiers(folders, measure=True, progress=_tell)
    return tiers


def _tell(measuring: Measuring) -> None:
    if sys.stderr.isatty() and not measuring.part:
        print(f"{measuring} ...", file=sys.stderr)


def _limited(tier: Tier, capacities: Mapping[str, str | int]) -> Tier:
    if tier.name not in capacities:
        return tier
    given = capacities[tier.name]
    given = int(given) if isinstance(given, np.integer) else given
    if isinstance(given, bool) or not isinstance(given, (str, int)):
        size = f"{shown(given)} of {tier.name}"
        raise InputError(f"capacities: {size} must be a size such as '2GiB', or a number of bytes")
    try:
        limit = 0 if given in (0, "0") else parse_bytes(given, tier.capacity_bytes)
    except InputError as error:
        raise InputError(f"capacities: {tier.name}: {error}") from None
    return replace(tier, free_bytes=min(tier.free_bytes, limit))


def _check_arrays(arrays: object) -> None:
    if not isinstance(arrays, Mapping):
        raise InputError(f"oc.place takes arrays by name, {{'psi': oc.ArraySpec((1000, 2000))}}, not {shown(arrays)}")
    for name, spec in arrays.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"the name {shown(name)} of an array must be text, such as 'psi'")
        if not isinstance(spec, ArraySpec):
            raise InputError(f"{name}: {shown(spec)} is not an oc.ArraySpec; write oc.ArraySpec((1000, 2000))")
        if spec.is_committed and spec.path is None and (name in (".", "..") or "/" in name or "\0" in name):
            raise InputError(f"{name!r} is not a valid name for the folder of a committed array; give it a path")
        if spec.path is not None:
            check_name(spec.path)


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


def demand_of(name: str, spec: ArraySpec, tiers: Sequence[Tier]) -> Demand:
    """Return the possible places of one array. The returned places include places without enough room for the array.
    Raises InputError if no tier is possible."""
    if spec.path is not None:
        check_path(spec.path, spec)
    possible = possible_tiers(name, spec, tiers)
    if len(possible) > 1:
        possible = [tier for tier in possible if measured(tier)] or possible
    working = next((tier for tier in tiers if tier.kind == "dram"), None) if spec.working == "dram" else None
    if spec.working == "dram" and working is None:
        raise InputError(f"{name}: working='dram', but there is no tier of DRAM here")
    choices = (_choice(spec_on(tier, name, spec), tier, working or tier) for tier in possible)
    return Demand(name, tuple(choices), spec.access == "update")


def spec_on(tier: Tier, name: str, spec: ArraySpec) -> ArraySpec:
    """If the array has commits but no path, return a copy of `spec` with a path. This path is a folder with the array's
    name in the directory of the tier. Otherwise return `spec`."""
    if not spec.is_committed or spec.path is not None:
        return spec
    assert tier.directory is not None, "memory keeps nothing"
    return replace(spec, path=tier.directory / name)


def measured(tier: Tier) -> bool:
    """Return True if the rates of the tier have been measured or declared."""
    return bool(tier.read_bytes_per_second and tier.write_bytes_per_second)


def _choice(spec: ArraySpec, tier: Tier, working: Tier) -> Choice:
    """Return the choice to place an array on `tier`. The returned choice has the number of bytes that the array takes
    on each tier, and the time of the array's transfers in one step. If the array has commits, its working copy is on
    `working`."""
    exists = spec.path is not None and check_path(spec.path, spec)
    takes = {tier.name: 0, working.name: 0}
    if spec.is_committed:
        takes[tier.name] += max(0, slots_bytes(spec) - (stored_bytes(spec.path) if exists else 0))
        if not (exists and spec.access == "read"):
            takes[working.name] += spec.nbytes
    elif not exists:
        takes[tier.name] += spec.nbytes + (HEADER_BYTES if spec.path is not None else 0)
    seconds = _seconds(spec.bytes_read_per_step, working.read_bytes_per_second)
    seconds += _seconds(spec.bytes_written_per_step, working.write_bytes_per_second)
    if spec.commit_every:
        seconds += _seconds(spec.nbytes / spec.commit_every, tier.write_bytes_per_second)
    return Choice(tier.name, tuple(takes.items()), seconds)


def _seconds(count: float, per_second: float | None) -> float:
    """Return the time to transfer `count` bytes, in seconds. For an unmeasured tier, the returned time is 0. The result
    0 has no effect on the choice of a tier, because an unmeasured tier is used only if no other tier is possible."""
    return count / per_second if per_second else 0.0


def why(
    spec: ArraySpec,
    number: int,
    demands: Sequence[Demand],
    found: Assignment,
    free_bytes: Mapping[str, int],
    computing_seconds: float,
) -> str:
    """Return the reason why `demands[number]` has its place in `found`. `free_bytes` contains the number of free bytes
    of each place, beginning with the fastest place."""
    demand, chosen = demands[number], found.chosen[number]
    if spec.path is not None:
        return "its path is there"
    if spec.tier not in ("auto", chosen.place) and len(demand.choices) > 1:
        return f"the best {spec.tier}"
    if len(demand.choices) == 1:
        return "as asked" if spec.tier != "auto" else "the only possible tier"
    places = list(free_bytes)
    rank = places.index(chosen.place)
    others = [one for one in demand.choices if one is not chosen]
    passed = [one for one in others if (places.index(one.place) < rank) == demand.updated]
    if not passed:
        if demand.updated:
            return placement.FASTEST
        hidden = chosen.transfer_seconds <= computing_seconds
        return f"{placement.SLOWEST}, {placement.HIDDEN}" if hidden else placement.SLOWEST
    objections = _objections(passed, number, demands, found, free_bytes, computing_seconds)
    kind = placement.FASTEST_WITH_ROOM if demand.updated else placement.SLOWEST_FOR_NOTHING
    return placement.because(kind, objections)


def _objections(
    passed: Sequence[Choice],
    number: int,
    demands: Sequence[Demand],
    found: Assignment,
    free_bytes: Mapping[str, int],
    computing_seconds: float,
) -> Iterator[str]:
    """`demands[number]` uses none of the choices in `passed`. For each choice in `passed`, yield the reason why it is
    not used. In each reason, all other demands keep their places.
    """
    places = tuple(free_bytes)
    now = placement.cost(demands, found.chosen, places, computing_seconds)[0]
    for one in passed:
        instead = [*found.chosen[:number], one, *found.chosen[number + 1 :]]
        longer = placement.cost(demands, instead, places, computing_seconds)[0] - now
        if not placement.fits(instead, free_bytes):
            yield placement.has_no_room(one.place)
        elif longer > 0:
            yield placement.takes_longer(one.place, "a step", longer / 1e9)


def no_room(
    arrays: Mapping[str, ArraySpec], demands: Sequence[Demand], tiers: Sequence[Tier], free_bytes: Mapping[str, int]
) -> str:
    """Return the error message for arrays that do not fit on the tiers. The message names an array that fits on no
    tier, or says that the arrays do not fit together. The message also says how many bytes are free."""
    for demand in demands:
        if not any(placement.fits([one], free_bytes) for one in demand.choices):
            needs = "; ".join(_lacks(one, free_bytes) for one in demand.choices)
            remedy = _remedy(demand.name, arrays[demand.name], tiers, free_bytes)
            return f"{demand.name}: no room: {needs}; use {remedy}"
    free = ", ".join(f"{format_bytes(count)} of {place}" for place, count in free_bytes.items())
    return f"no room for {', '.join(one.name for one in demands)} together; free are {free}: use smaller arrays"


def _remedy(name: str, spec: ArraySpec, tiers: Sequence[Tier], free_bytes: Mapping[str, int]) -> str:
    """The array `name` fits on no tier. Return a text that says what the user can use instead."""
    if spec.is_committed and spec.working == "tier" and any(tier.kind == "dram" for tier in tiers):
        in_dram = demand_of(name, replace(spec, working="dram"), tiers)
        if any(placement.fits([one], free_bytes) for one in in_dram.choices):
            exists = spec.path is not None and os.path.lexists(spec.path)
            return "oc.array(..., working='dram')" + (", or access='read'" if exists else "")
    return "another tier or a smaller array"


def _lacks(one: Choice, free_bytes: Mapping[str, int]) -> str:
    short = [(place, count) for place, count in one.takes if count > free_bytes[place]]
    return " and ".join(
        f"it takes {format_bytes(count)} of {place}, where {format_bytes(free_bytes[place])} are free"
        for place, count in short
    )
