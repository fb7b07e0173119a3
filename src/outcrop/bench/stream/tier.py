"""The tier that STREAM is measured on: the one that the user names, or the file system of a directory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.errors import InputError
from outcrop.paths import nearest_existing
from outcrop.tiers import discover
from outcrop.tiers.memory_tiers import bytes_on
from outcrop.tiers.survey import find_tiers, tiers_holding
from outcrop.tiers.tier import Persistence, Tier
from outcrop.units import format_bytes

SHARE_OF_FREE = 2
"""At most half of what is free is taken."""


@dataclass(frozen=True)
class Content:
    """Bytes on a tier; `mapping` is the file's where they are one's."""

    bytes: NDArray[np.uint8]
    mapping: _core.MappedFile | None


def find_tier(directory: Path, name: str | None) -> Tier:
    """The tier of that name, or the one of that kind; without a name that of `directory`. Raises InputError when there
    is none, or it is DRAM itself."""
    tiers = find_tiers((directory,))
    if name is None:
        found = tiers_holding(nearest_existing(directory), tiers)
        if not found:
            raise InputError(f"-d {directory} is on no file system that outcrop tiers knows; give --tier")
        return replace(found[0], where=str(directory.resolve()))
    others = [tier for tier in tiers if tier.kind != "dram"]
    named = [tier for tier in others if tier.name == name] or [tier for tier in others if tier.kind == name]
    if len(named) == 1:
        return named[0]
    if named:
        raise InputError(f"--tier {name}: there are several; name one of {', '.join(tier.name for tier in named)}")
    known = ", ".join(tier.name for tier in others) or "none besides DRAM"
    why = "is what tiers are compared with" if name == "dram" else "is not a tier of this machine"
    raise InputError(f"--tier {name} {why}; there are {known}")


def why_not_flushed(tier: Tier) -> str:
    """Why results cannot be made to last there; "" when they can."""
    if tier.is_memory:
        return f"{tier.kind} is memory: nothing there lasts longer than the process"
    if tier.persistence == Persistence.REBOOT:
        return f"{tier.kind} forgets when the machine goes down, flushed or not"
    return ""


def check_room(tier: Tier, needed_bytes: int) -> None:
    """`needed_bytes` are those on the tier; as many again are in DRAM. Raises InputError."""
    if tier.note and not tier.free_bytes:
        raise InputError(f"tier {tier.name} ({tier.where}) cannot be used: {tier.note}")
    in_memory = 2 * needed_bytes if tier.is_memory or tier.kind == "tmpfs" else needed_bytes
    for name, free, needed in ((tier.name, tier.free_bytes, needed_bytes),
                               ("memory", discover.free_memory_bytes(), in_memory)):  # fmt: skip
        if needed > free // SHARE_OF_FREE:
            raise InputError(
                f"bench stream takes {format_bytes(needed)} of {name} for arrays of four times the last-level caches; "
                f"half of the {format_bytes(free)} that are free is less"
            )


def take(tier: Tier, nbytes: int) -> Content:
    """Memory of its nodes, or a file without a name, mapped so that cache lines can be flushed where that is possible.

    Raises InputError, StorageError.
    """
    if tier.directory is None:
        return Content(bytes_on(tier, nbytes), None)
    mapping = _core.MappedFile.scratch(str(tier.directory), nbytes, tries_sync=True)
    return Content(mapping.bytes, mapping)
