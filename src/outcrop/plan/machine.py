"""The machine as planning sees it: a few measured or declared figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from outcrop.plan.plan import Sizes

UpdateRate: TypeAlias = Callable[[Sizes], float]
"""Cell updates per second of all threads together for given sizes, with nothing else going on."""


@dataclass(frozen=True)
class Device:
    """Bandwidths of the storage, in bytes per second: reading, writing, and the sum of both at once half and half."""

    read_bytes_per_second: float
    write_bytes_per_second: float
    mixed_bytes_per_second: float
    seconds_flush: float
    origin: str  # "measured", "cached" or "assumed"


@dataclass(frozen=True)
class Machine:
    """`checksum_bytes_per_second` is for all threads together; caches are per core (second level) and in all
    (last level)."""

    threads: int
    memory_bytes: int
    cache_bytes: int
    last_cache_bytes: int
    checksum_bytes_per_second: float
    device: Device
