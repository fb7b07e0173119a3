"""What planning has to know of an array: where it could be, what it takes there, how long a step's transfers are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outcrop.arrays.find import possible_tiers
from outcrop.arrays.folder import slots_bytes
from outcrop.arrays.npy_file import HEADER_BYTES
from outcrop.arrays.paths import check_path, stored_bytes
from outcrop.arrays.spec import ArraySpec
from outcrop.errors import InputError
from outcrop.plan.placement import Choice, Demand
from outcrop.tiers.tier import Tier


def demand_of(name: str, spec: ArraySpec, tiers: Sequence[Tier]) -> Demand:
    """The places for one array. Raises InputError when it cannot be made on any of `tiers`, whatever room there is."""
    if spec.path is not None:
        check_path(spec.path, spec)
    possible = possible_tiers(name, spec, tiers)
    if len(possible) > 1:
        possible = [tier for tier in possible if is_measured(tier)] or possible
    working = _dram(name, tiers) if spec.working == "dram" else None
    choices = (_choice(spec_on(tier, name, spec), tier, working or tier) for tier in possible)
    return Demand(name, tuple(choices), spec.access == "update")


def spec_on(tier: Tier, name: str, spec: ArraySpec) -> ArraySpec:
    """The same with a path, if it needs one: a folder of its name in the directory of the tier."""
    if not spec.is_committed or spec.path is not None:
        return spec
    assert tier.directory is not None, "memory keeps nothing"
    return replace(spec, path=tier.directory / name)


def is_measured(tier: Tier) -> bool:
    """Whether it is known how fast a tier is."""
    return bool(tier.read_bytes_per_second and tier.write_bytes_per_second)


def _dram(name: str, tiers: Sequence[Tier]) -> Tier:
    for tier in tiers:
        if tier.kind == "dram":
            return tier
    raise InputError(f"{name}: working='dram', but there is no tier of DRAM here")


def _choice(spec: ArraySpec, tier: Tier, working: Tier) -> Choice:
    """`working` is where the bytes are that the program works on."""
    is_there = spec.path is not None and check_path(spec.path, spec)
    takes = {tier.name: 0, working.name: 0}
    if spec.is_committed:
        takes[tier.name] += max(0, slots_bytes(spec) - (stored_bytes(spec.path) if is_there else 0))
        if not (is_there and spec.access == "read"):
            takes[working.name] += spec.nbytes
    elif not is_there:
        takes[tier.name] += spec.nbytes + (HEADER_BYTES if spec.path is not None else 0)
    seconds = _seconds(spec.bytes_read_per_step, working.read_bytes_per_second)
    seconds += _seconds(spec.bytes_written_per_step, working.write_bytes_per_second)
    if spec.commit_every:
        seconds += _seconds(spec.nbytes / spec.commit_every, tier.write_bytes_per_second)
    return Choice(tier.name, tuple(takes.items()), seconds)


def _seconds(count: float, per_second: float | None) -> float:
    """0 where it is not known how fast a tier is: there was no choice then."""
    return count / per_second if per_second else 0.0
