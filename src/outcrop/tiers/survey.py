"""This module finds all tiers of this machine. The module also finds the tiers to which a path belongs, and the tiers
that share their free space.

A tier is memory or a file system. Users can also declare tiers. The figures of a tier are declared, cached, or
measured:

    NUMA nodes ──► memory_tiers ──┐
    mounts ──────► storage_tiers ─┼──► Tier ──► figures: declared, cached for its device, or measured now and kept
    TOML file ───► declared_tiers ┘
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outcrop import _core
from outcrop.errors import InputError, OutcropError, by_caller
from outcrop.paths import nearest_existing
from outcrop.tiers import discover
from outcrop.tiers.declarations import declared_tiers
from outcrop.tiers.measure import MAX_MEMORY_SECONDS, MAX_STORAGE_SECONDS, measure_memory, measure_storage
from outcrop.tiers.memory_tiers import MemoryNode, believable_nodes, memory_nodes, memory_tiers, with_measured_kind
from outcrop.tiers.storage_tiers import cache_key, device_of, holds_no_files, is_folder, mount_of, storage_tiers
from outcrop.tiers.tier import Figures, Tier, with_figures
from outcrop.user_cache import keep_figures, load_figures

CACHE = "tiers.json"
MAIN_MEMORY = ("dram", "tmpfs")
"""The kinds of tiers that use main memory. The list contains "tmpfs", because the files of a tmpfs are in main
memory."""


@dataclass(frozen=True)
class Measuring:
    """The progress of measurements. `count` is the number of tiers that are measured. The tiers are numbered from 1.
    The tier with the number `number` is being measured. `part` is the part of this measurement that begins now, or ""
    at the beginning of the measurement. `seconds_left` is the expected maximum time of all measurements that are
    left."""

    tier: Tier
    number: int
    count: int
    part: str
    seconds_left: float

    def __str__(self) -> str:
        which = f", {self.number} of {self.count}" if self.count > 1 else ""
        part = f": {self.part}" if self.part else ""
        left = f"at most about {max(1, round(self.seconds_left))} s left"
        return f"measuring {self.tier.name} ({self.tier.where}){which}{part}, {left}"


def find_tiers(
    directories: Sequence[Path] = (),
    declared: Path | None = None,
    *,
    measure: bool = False,
    refresh: bool = False,
    progress: Callable[[Measuring], object] = lambda measuring: None,
) -> list[Tier]:
    """Return all tiers of this machine, with unique names. Tiers of memory come first.

    If a file system contains one of `directories`, its tier uses this directory. If the directory does not exist, the
    tier uses the closest parent directory that exists. `declared` is a file with the user's tiers. If `measure` is
    true, unknown figures are measured. If `refresh` is true, the figures in the user's cache are not used, and the
    tiers are measured again. `progress` is called before each measurement, and before each part of it. Raises
    InputError for directories and files that cannot be used.
    """
    directories = [nearest_existing(folder) for folder in directories]
    for folder in directories:
        if not is_folder(folder):
            option = by_caller("-d", "directory")
            raise InputError(f"{option} {folder} is a file, or cannot be searched; name a directory")
        if holds_no_files(mount := mount_of(folder)):
            raise InputError(f"{folder} is on {mount.type}, which cannot store files; name another directory")
    own = declared_tiers(declared)
    taken = {tier.name for tier in own}
    memory = memory_of_this_machine()
    found = [tier for tier in [*memory, *storage_tiers(directories)] if tier.name not in taken]
    known = load_figures(CACHE, Figures)
    tiers = [_with_known(tier, {} if refresh else known) for tier in [*found, *own]]
    if measure:
        memory_tiers_here = sum(tier.is_memory for tier in tiers)
        if not _core.is_this_system():
            other = "not measured: the memory of another machine"
            tiers = [replace(one, note=other) if one.is_memory and _needs_figures(one) else one for one in tiers]
        seconds = [_expected_seconds(tier) for tier in tiers]
        count, number = sum(one > 0 for one in seconds), 0
        for place, tier in enumerate(tiers):
            if seconds[place] > 0:
                number += 1
                begin = Measuring(tier, number, count, "", sum(seconds[place:]))
                tiers[place] = _measured(tier, memory_tiers_here, begin, progress)
    return [with_measured_kind(tier, tiers) for tier in tiers]


def memory_of_this_machine() -> list[Tier]:
    """Return the tiers of this machine's memory. If environment variables of hwloc describe another machine, return the
    tiers of all memory of that machine."""
    nodes = memory_nodes()
    if not _core.is_this_system():
        return memory_tiers(nodes, sum(node.size_bytes for node in nodes), lambda node: node.size_bytes)
    whole, free = discover.memory_bytes(), discover.free_memory_bytes()
    believed = believable_nodes(nodes, discover.machine_bytes(), discover.memory_nodes_of_machine())
    is_reported = believed == nodes

    def free_of(node: MemoryNode) -> int:
        counted = discover.free_node_bytes(node.number) if is_reported else None
        return min(free, node.size_bytes if counted is None else counted)

    tiers = memory_tiers(believed, whole, free_of)
    return [replace(tier, free_bytes=min(tier.free_bytes, free)) for tier in tiers]


def _with_known(tier: Tier, known: Mapping[str, Figures]) -> Tier:
    """Return a copy of `tier` with the figures in the user's cache. If the cache has no figures of the tier, return the
    tier unchanged."""
    if tier.is_memory and not _core.is_this_system():
        return tier
    try:
        figures = known[_key(tier)]
    except (KeyError, OSError):  # the tier has no measured figures, or its directory does not exist on this machine
        return tier
    return with_figures(tier, replace(figures, origin="cached"))


def _expected_seconds(tier: Tier) -> float:
    """Return the expected maximum time of the measurement of a tier, or 0 if the tier is not measured."""
    if not _needs_figures(tier):
        return 0.0
    return MAX_MEMORY_SECONDS if tier.is_memory else MAX_STORAGE_SECONDS


def _needs_figures(tier: Tier) -> bool:
    return not tier.note and (tier.origin == "firmware" or not _is_known(tier))


def _measured(tier: Tier, memory_tiers_here: int, begin: Measuring, progress: Callable[[Measuring], object]) -> Tier:
    """Return a copy of `tier` with measured figures. If the tier cannot be measured, the copy has a note."""
    later = begin.seconds_left - _expected_seconds(tier)
    progress(begin)
    try:
        if tier.is_memory:
            figures = measure_memory(() if memory_tiers_here == 1 else tier.nodes, tier.free_bytes)
        else:
            figures = measure_storage(
                Path(tier.where),
                tier.free_bytes,
                tell=lambda part, seconds: progress(replace(begin, part=part, seconds_left=seconds + later)),
            )
    except (OutcropError, OSError) as error:
        return replace(tier, note=str(error))
    figures = replace(figures, measured_at_seconds=time.time())
    keep_figures(CACHE, {_key(tier): figures})
    return with_figures(tier, figures)


def _is_known(tier: Tier) -> bool:
    sequential = tier.read_bytes_per_second, tier.write_bytes_per_second
    return None not in (*sequential, tier.random_read_bytes_per_second, tier.random_write_bytes_per_second,
                        tier.latency_seconds_read)  # fmt: skip


def _key(tier: Tier) -> str:
    """Return the key of the tier's figures in the user's cache. All tiers on one file system have the same key."""
    if tier.is_memory:
        return f"{discover.processor_name()} {discover.available_cores()} {tier.where}"
    return cache_key(Path(tier.where))


def tiers_holding(path: Path, tiers: Sequence[Tier]) -> list[Tier]:
    """Return the tiers on the file system of an existing path. Tiers that users have declared for folders above the
    path come first, beginning with the innermost folder."""
    device = device_of(path)
    if device is None:
        return []
    there = [tier for tier in tiers if tier.directory is not None and device_of(tier.directory) == device]
    return sorted(there, key=lambda tier: _rank(tier, path.resolve()), reverse=True)


def _rank(tier: Tier, path: Path) -> tuple[bool, int]:
    where = Path(tier.where).resolve()
    return (tier.is_declared, len(where.parts)) if path.is_relative_to(where) else (False, 0)


@dataclass(frozen=True)
class SharedRoom:
    """Free space that several tiers share. Each tier that shares free space reports the whole shared space as its own
    free space."""

    name: str
    tiers: frozenset[str]
    free_bytes: int


def shared_rooms(tiers: Sequence[Tier]) -> list[SharedRoom]:
    """Return the free spaces that several tiers share. Tiers share free space if they are on the same file system. Main
    memory and a tmpfs also share free space."""
    groups: dict[str, list[Tier]] = {}
    for tier in tiers:
        if tier.kind in MAIN_MEMORY:
            groups.setdefault("memory", []).append(tier)
        elif tier.directory is not None and (device := device_of(tier.directory)) is not None:
            groups.setdefault(device, []).append(tier)
    return [
        SharedRoom(
            name if name == "memory" else group[0].source,
            frozenset(tier.name for tier in group),
            max(tier.free_bytes for tier in group),
        )
        for name, group in groups.items()
        if len(group) > 1
    ]
