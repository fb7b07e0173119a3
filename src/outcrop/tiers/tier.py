"""A tier is a memory or a file system. A tier has a size, a speed, and a persistence (how long stored bytes last).

    `PROCESS`     Bytes last until the process ends (DRAM, HBM, CXL). No call makes these bytes durable.
    `REBOOT`      Bytes last until the machine goes down (tmpfs). No call makes these bytes durable.
    `JOB`         Bytes last until the batch job ends (job scratch). The file system decides how these bytes become
                  durable.
    `PERMANENT`   Bytes last until a user removes them. With DAX, MAP_SYNC and cache-line write-back make bytes durable.
                  Without DAX, msync or fdatasync makes bytes durable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from outcrop.display import Described
from outcrop.units import format_bytes, format_rate

MEMORY_KINDS = ("hbm", "dram", "cxl", "nvm")
"""Kinds of memory in NUMA nodes. `nvm` is non-volatile memory that is used like volatile memory."""
STORAGE_KINDS = ("dax", "nvme", "ssd", "hdd", "disk", "tmpfs", "pfs")
"""Kinds of file systems, in this order: on persistent memory, on NVMe, on other flash, on a rotating disk, on an
unknown disk, in memory, on a network."""
KINDS = (*MEMORY_KINDS, *STORAGE_KINDS)


class Persistence(IntEnum):
    """Says how long stored bytes last. The table at the top of this file explains the values."""

    PROCESS = 0
    REBOOT = 1
    JOB = 2
    PERMANENT = 3


LASTS = ("process ends", "reboot", "job ends", "removed")
"""For each value of Persistence, the event that destroys the stored data."""


@dataclass(frozen=True)
class Figures:
    """The measured figures of a tier, which Outcrop keeps between runs. A figure that is not measured is None.

    Figures of sequential access are for requests that have the size of a run's requests. In the measurement of a
    memory, all threads make requests at the same time. In the measurement of a file system, several requests are in
    flight. Figures of random access are for many accesses at the same time. A random access reads or writes 4 KiB of a
    file, or one cache line of memory. Latencies are for one access at a time. As in STREAM, a bandwidth of memory
    counts each byte that is read, and each byte that is written.
    """

    origin: str
    """The origin of the figures: "measured", "cached", "firmware", "declared", or "not measured"."""
    read_bytes_per_second: float | None = None
    write_bytes_per_second: float | None = None
    random_read_bytes_per_second: float | None = None
    random_write_bytes_per_second: float | None = None
    triad_bytes_per_second: float | None = None
    """The bandwidth of STREAM's triad with all threads. The value is None for a file system."""
    latency_seconds_read: float | None = None
    latency_seconds_write: float | None = None
    """The latency of a write that bypasses the page cache and need not be durable. The value is None for memory."""
    latency_seconds_flush: float | None = None
    """The time in seconds until a few new bytes are as durable as `persistence` says. The time is 0 if no flush is
    needed."""
    measured_at_seconds: float | None = None
    """The time of the measurement in seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class Tier(Described, Figures):
    """A memory or a file system, with its figures. `note` says why some figures are not measured."""

    name: str
    """A unique, stable name, such as "dram", "cxl0", "nvme0" or "tmpfs-dev-shm", or the declared name."""
    kind: str
    """The kind of the tier, which is one of KINDS."""
    where: str
    """The directory of the tier. For memory, a text that names the NUMA nodes of the tier, such as "node 2" or "nodes
    0,1"."""
    capacity_bytes: int
    """The size of the tier in bytes. For memory, the size is at most the limit of the control group. For a declared
    tier, the size is at most the declared quota."""
    free_bytes: int
    """The number of bytes that are free on the tier now."""
    persistence: Persistence
    primitive: str
    """The call that makes stored bytes durable: "none", "msync or fdatasync", "MAP_SYNC + cache-line write-back"."""
    source: str = ""
    """The device, server or kind of memory that stores the tier's bytes."""
    note: str = ""
    is_declared: bool = False
    """True if the user declared the tier in a TOML file."""

    @property
    def is_memory(self) -> bool:
        """True if the tier is memory, and False if the tier is a file system."""
        return self.kind in MEMORY_KINDS

    @property
    def directory(self) -> Path | None:
        """The directory of the tier's files. The value is None for memory."""
        return None if self.is_memory else Path(self.where)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers that the operating system gives to the NUMA nodes of the tier. For a file system, the tuple is
        empty."""
        return tuple(int(number) for number in re.findall(r"\d+", self.where)) if self.is_memory else ()

    def _title(self) -> str:
        return f"tier {self.name}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "kind", f"{self.kind}{', declared' if self.is_declared else ''}"
        yield "where", self.where
        yield "capacity", f"{format_bytes(self.capacity_bytes)}, {format_bytes(self.free_bytes)} free"
        rates = [
            (self.read_bytes_per_second, "read"), (self.write_bytes_per_second, "write"),
            (self.random_read_bytes_per_second, "random read"), (self.random_write_bytes_per_second, "random write"),
        ]  # fmt: skip
        known = [f"{what} {format_rate(rate)}B/s" for rate, what in rates if rate is not None]
        yield "speed", f"{', '.join(known)} ({self.origin})" if known else "not measured"
        durable = "" if self.primitive == "none" else f", made durable by {self.primitive}"
        yield "lasts until", f"{LASTS[self.persistence]}{durable}"
        if self.note:
            yield "note", self.note

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self), "persistence": self.persistence.name.lower()}


def with_figures(tier: Tier, figures: Figures) -> Tier:
    """Return a copy of the tier with the values of `figures`. A value of `figures` that is None does not replace a
    value of the tier. Values that the user has declared are not replaced."""
    known = {name: value for name, value in asdict(figures).items() if value is not None}
    if tier.origin == "declared":
        known = {name: value for name, value in known.items() if getattr(tier, name) is None}
    return replace(tier, **known)
