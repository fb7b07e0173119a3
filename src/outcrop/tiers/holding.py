"""Which tiers hold a path, and which of them have one room together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outcrop.tiers.mounts import device_of
from outcrop.tiers.tier import Tier

IN_MEMORY = ("dram", "tmpfs")
"""Files of tmpfs are main memory, too."""


def tiers_holding(path: Path, tiers: Sequence[Tier]) -> list[Tier]:
    """Those on the file system of an existing path, best first: one that is declared for a folder around it, the
    innermost; then the others."""
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
    """Bytes that are free for several tiers together, each of which says that all are its own."""

    name: str
    tiers: frozenset[str]
    free_bytes: int


def shared_rooms(tiers: Sequence[Tier]) -> list[SharedRoom]:
    """Memory, where there is tmpfs beside it, and each file system with several tiers, by their names."""
    groups: dict[str, list[Tier]] = {}
    for tier in tiers:
        if tier.kind in IN_MEMORY:
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
