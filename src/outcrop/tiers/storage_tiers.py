"""File systems as tiers: what they hold, and how long what is stored there lasts."""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from outcrop.tiers import discover
from outcrop.tiers.mounts import (
    IN_MEMORY,
    Mount,
    all_mounts,
    kind_of,
    mount_of,
    name_of,
    storage_mounts,
    writable_directory,
)
from outcrop.tiers.scratch import PREFIX
from outcrop.tiers.tier import Persistence, Tier

MAP_SHARED_VALIDATE, MAP_SYNC = 0x03, 0x80000
"""Linux's numbers: only with both does the kernel refuse what it cannot do (man 2 mmap)."""
BY_WRITE_BACK, BY_FLUSH, BY_NOTHING = "MAP_SYNC + cache-line write-back", "msync or fdatasync", "none"


def storage_tiers(directories: Sequence[Path] = ()) -> list[Tier]:
    """One tier for each file system on which this user may write, those of `directories` first to be asked."""
    every = all_mounts()
    mounts = storage_mounts(every)
    known = {mount.device for mount in mounts}
    unlisted = [] if any(mount.point == Path("/") for mount in every) else [Path("/")]  # in a chroot
    asked = [mount for mount in map(mount_of, [*unlisted, *directories]) if mount.device not in known]
    return _named_apart(mounted_tier(mount, directories) for mount in [*mounts, *_distinct(asked)])


def mounted_tier(mount: Mount, directories: Sequence[Path] = (), name: str = "") -> Tier:
    """The tier of a mount, in the first of `directories` that lies there, or in a usual place."""
    folder = writable_directory(mount, directories)
    kind = kind_of(mount) or ("tmpfs" if mount.type in {*IN_MEMORY, "devtmpfs"} else "disk")
    where = folder or mount.point
    space = os.statvfs(where)
    capacity, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    if kind == "tmpfs":  # files there are memory, and count as such within limits
        capacity, free = min(capacity, discover.memory_bytes()), min(free, discover.free_memory_bytes())
    return Tier(
        name=name or name_of(mount),
        kind=kind,
        where=str(where),
        capacity_bytes=capacity,
        free_bytes=free if folder else 0,
        persistence=Persistence.REBOOT if kind == "tmpfs" else Persistence.PERMANENT,
        primitive=_primitive(kind, folder),
        origin="not measured",
        source=f"{mount.source} ({mount.type})",
        note="" if folder else "no directory there that this user may write in",
    )


def _primitive(kind: str, folder: Path | None) -> str:
    if kind == "tmpfs":
        return BY_NOTHING
    return BY_WRITE_BACK if kind == "dax" and folder and can_map_sync(folder) else BY_FLUSH


def can_map_sync(folder: Path) -> bool:
    """Whether files there can be mapped so that stores are durable once their cache lines are written back."""
    try:
        with tempfile.TemporaryFile(prefix=PREFIX, dir=folder) as file:
            file.truncate(mmap.PAGESIZE)
            mmap.mmap(file.fileno(), mmap.PAGESIZE, flags=MAP_SHARED_VALIDATE | MAP_SYNC).close()
    except OSError:
        return False
    return True


def _named_apart(tiers: Iterable[Tier]) -> list[Tier]:
    """With other names for those that are called as one before: of two devices, or of places that read alike."""
    found: dict[str, Tier] = {}
    for tier in tiers:
        name = tier.name
        for number in itertools.count(2):
            if name not in found:
                break
            name = f"{tier.name}-{number}"
        found[name] = replace(tier, name=name)
    return list(found.values())


def _distinct(mounts: Iterable[Mount]) -> list[Mount]:
    return list({mount.device: mount for mount in mounts}.values())
