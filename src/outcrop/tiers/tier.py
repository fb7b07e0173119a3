"""A tier: a place bytes can live, what fits, how fast it is, and how long what was stored there lasts.

    persistence     what was stored lasts until            primitive that gets it there
    PROCESS         the process ends (DRAM, HBM, CXL)      none
    REBOOT          the machine goes down (tmpfs)          none
    JOB             the batch job ends (its scratch)       that of the file system
    PERMANENT       someone removes it                     MAP_SYNC + cache-line write-back (DAX), else msync, fdatasync
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

MEMORY_KINDS = ("hbm", "dram", "cxl", "nvm")
"""Memory that processors address: NUMA nodes. `nvm` is non-volatile memory used as plain memory, which forgets."""
STORAGE_KINDS = ("dax", "nvme", "ssd", "hdd", "disk", "tmpfs", "pfs")
"""File systems: on persistent memory, on flash behind NVMe or not, on what turns, on a disk that does not tell, in
memory, across a network."""
KINDS = (*MEMORY_KINDS, *STORAGE_KINDS)


class Persistence(IntEnum):
    """What is stored lasts until the process ends, the machine goes down, the batch job ends, or it is removed."""

    PROCESS = 0
    REBOOT = 1
    JOB = 2
    PERMANENT = 3


@dataclass(frozen=True)
class Figures:
    """What is measured of a tier, and kept between runs. Bytes, bytes per second and seconds; None is not measured.

    Sequential figures are of the large requests that runs make (of all threads in memory, of a queue in files); random
    ones of 4 KiB in files and of a cache line in memory, many at once. Latencies are of one access at a time.
    Bandwidths of memory count a byte read as one and a byte written as one, as STREAM does.
    """

    origin: str
    """"measured", "cached", "firmware", "declared", or "not measured"."""
    read_bytes_per_second: float | None = None
    write_bytes_per_second: float | None = None
    random_read_bytes_per_second: float | None = None
    random_write_bytes_per_second: float | None = None
    triad_bytes_per_second: float | None = None
    """STREAM's triad with all threads; of memory only."""
    latency_seconds_read: float | None = None
    latency_seconds_write: float | None = None
    """In files, past the page cache; whether the device has it safe is another matter. None of memory: stores do not
    wait."""
    latency_seconds_flush: float | None = None
    """Until a few bytes just written are as safe as `persistence` says; 0 where nothing makes them so."""


@dataclass(frozen=True, kw_only=True)
class Tier(Figures):
    """A place for bytes, with its figures; `note` says why some are not measured."""

    name: str
    """Unique, stable and typeable: "dram", "hbm", "cxl0", "nvme0", "tmpfs-dev-shm", or as declared."""
    kind: str
    """One of KINDS."""
    where: str
    """A directory, or "node 2", "nodes 0,1"."""
    capacity_bytes: int
    """What the tier holds: within the limit of the cgroup for memory, within a declared quota."""
    free_bytes: int
    """What may still be taken of it, now."""
    persistence: Persistence
    primitive: str
    """What makes stored bytes last so long: "none", "msync", "MAP_SYNC + cache-line write-back"."""
    source: str = ""
    """What it is made of: a device, a server, a processor's memory."""
    note: str = ""
    is_declared: bool = False
    """Whether the user says that it is there, in a TOML file."""

    @property
    def is_memory(self) -> bool:
        """Whether it is addressed, not opened."""
        return self.kind in MEMORY_KINDS

    @property
    def directory(self) -> Path | None:
        """Where its files go; None for memory."""
        return None if self.is_memory else Path(self.where)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The system's numbers of its NUMA nodes; none for files."""
        return tuple(int(number) for number in re.findall(r"\d+", self.where)) if self.is_memory else ()

    def to_json(self) -> dict[str, Any]:
        """As plain data, persistence by name."""
        return {"name": self.name, **asdict(self), "persistence": self.persistence.name.lower()}


def with_figures(tier: Tier, figures: Figures) -> Tier:
    """The tier with those of the figures that are known; what the user has declared stays."""
    known = {name: value for name, value in asdict(figures).items() if value is not None}
    if tier.origin == "declared":
        known = {name: value for name, value in known.items() if getattr(tier, name) is None}
    return replace(tier, **known)
