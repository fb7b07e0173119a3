"""This module describes a machine for the planner. The description has the rates of transfers and updates, and the
sizes of caches. The figures are measured on this machine, or declared for another machine.

The model of a declared machine has two limits. If the data of updates are in the caches, the declared rate limits the
updates. If the data are not in the caches, the bandwidth of the memory also limits the updates. For each cell, a plain
sweep moves three words between memory and caches. A plain sweep reads the old value, fetches the cache line of the new
value, and writes the new value. A diamond of half height D moves three words for each cell once for D levels. A band is
a tile with all rows (`Sizes.chunk`). A band of half height D moves three words for each cell once for 2 D levels. The
number of these levels is at most the number of levels of the pass. The update rate of diamonds is:

    rate(D) = min(declared rate, memory bandwidth / (3 e / D)), e bytes per cell, D = 1 for plain sweeps
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, runtime_checkable

from outcrop.errors import InputError
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem

UpdateRate: TypeAlias = Callable[[Sizes], float]
"""A function that maps sizes to cell updates per second. The rate is the sum over all threads, for a run without
transfers."""


@runtime_checkable
class ComparesSizes(Protocol):
    """The interface of an update rate that is measured. `compare` measures the rates of several sizes alternately."""

    def compare(self, several: Iterable[Sizes]) -> None: ...


def compare(rate: UpdateRate, several: Iterable[Sizes]) -> None:
    """Prepare a comparison of the rates of several sizes. If the rates are measured, this function measures the rates
    of all sizes together."""
    if isinstance(rate, ComparesSizes):
        rate.compare(several)


WORDS_PER_SWEEP = 3
"""The number of words that a plain sweep moves between memory and caches for each cell."""
THIN_SLAB_COST = 0.15
"""The cost of a plane that a tile updates only partly, relative to a plane that the tile updates fully."""
NARROW_BLOCK_COST = 0.3
"""The cost of a row in which the edge of a block cuts a tile, relative to a row that a tile updates fully."""


@dataclass(frozen=True)
class StorageRates:
    """The bandwidths of the storage in bytes per second. The mixed bandwidth is the sum of the bandwidths of reads and
    writes that take place at the same time. For the mixed bandwidth, the number of reads in progress is equal to the
    number of writes in progress. A flush takes `seconds_flush`. The first write to a part of a new file can be slower
    than later writes, because the file system must record that this part is in use. `first_write_bytes_per_second` is
    the rate of first writes, or None if this rate is unknown."""

    read_bytes_per_second: float
    write_bytes_per_second: float
    mixed_bytes_per_second: float
    seconds_flush: float
    origin: str  # "measured", "cached" or "assumed": how the figures were obtained
    first_write_bytes_per_second: float | None = None

    def seconds_transfer(self, read_bytes: int, written_bytes: int) -> float:
        """Return the time of transfers if as many reads and writes as possible take place at the same time."""
        both = min(read_bytes, written_bytes)
        alone = both / self.read_bytes_per_second + both / self.write_bytes_per_second
        rest = (read_bytes - both) / self.read_bytes_per_second + (written_bytes - both) / self.write_bytes_per_second
        return min(alone, 2 * both / self.mixed_bytes_per_second) + rest

    def shared_by(self, processes: float) -> StorageRates:
        """Return the rates for one process if `processes` processes use the storage at the same time. The time of a
        flush does not depend on the number of processes. `processes` can be a fraction, because it is only a divisor of
        the rates."""
        first_write = self.first_write_bytes_per_second
        return replace(
            self,
            read_bytes_per_second=self.read_bytes_per_second / processes,
            write_bytes_per_second=self.write_bytes_per_second / processes,
            mixed_bytes_per_second=self.mixed_bytes_per_second / processes,
            first_write_bytes_per_second=None if first_write is None else first_write / processes,
        )


@dataclass(frozen=True)
class NetworkRates:
    """The network between ranks. A rank sends at most `bytes_per_second` to all its neighbours together. While a rank
    sends data, the rank can also receive data at the same rate. `seconds_latency` is the time from the send of a short
    message to its arrival."""

    bytes_per_second: float
    seconds_latency: float
    origin: str  # "measured", "assumed", or the name of the machine whose file declares the figures


ASSUMED_NETWORK = NetworkRates(1.25e9, 1e-4, "assumed")
"""The network that planning assumes if the figures of the real network are unknown: 10 Gbit/s."""


@dataclass(frozen=True)
class Machine:
    """The figures of a machine. `checksum_bytes_per_second` is the rate of all threads together. `cache_bytes` is the
    size of one core's second-level cache. `last_cache_bytes` is the size of the last-level cache of all cores.
    `network` is used only in plans for several ranks."""

    threads: int
    memory_bytes: int
    cache_bytes: int
    last_cache_bytes: int
    checksum_bytes_per_second: float
    device: StorageRates
    network: NetworkRates = ASSUMED_NETWORK


def edge_factor(problem: Problem, sizes: Sizes, diamond: int | None = None) -> float:
    """Return the factor by which the edges of slabs and blocks make updates with the sizes `sizes` slower. If `diamond`
    is given, the value of `diamond` replaces the diamond of `sizes`.

    Let r be the radius of the stencil, and let D be the half height of the tiles. A tile of 2 D levels touches 2 r D
    planes outside its slab. Each edge of a block cuts tiles with approximately 2 r D rows.
    """
    tile = 2 * problem.skew_z * min(sizes.diamond if diamond is None else diamond, sizes.levels)
    rows = sizes.block_y or problem.shape[1]
    cut = NARROW_BLOCK_COST * tile / rows if rows < problem.shape[1] else 0.0
    return (1 + THIN_SLAB_COST * tile / max(1, sizes.slab)) * (1 + cut)


@dataclass(frozen=True)
class DeclaredMachine:
    """The figures of a machine that a machine file declares. The figures are for all `cores` cores together, except
    `cache_bytes`, which is the size of one core's cache.

    A run may use `usable_bytes` of `memory_bytes`. If `usable_bytes` is 0, the file does not declare this value.
    `updates_per_second` contains the rate of cell updates for each dtype. The declared rate is the rate with temporal
    blocking in the caches.
    """

    name: str
    cores: int
    memory_bytes: int
    usable_bytes: int
    memory_bytes_per_second: float
    cache_bytes: int
    last_cache_bytes: int
    device: StorageRates
    updates_per_second: dict[str, float]
    network: NetworkRates = ASSUMED_NETWORK

    def machine(self, threads: int) -> Machine:
        """Return the figures of this machine for a run with `threads` threads. The rate of checksums is assumed to be
        the bandwidth of the memory."""
        return Machine(
            threads=threads,
            memory_bytes=self.memory_bytes,
            cache_bytes=self.cache_bytes,
            last_cache_bytes=self.last_cache_bytes,
            checksum_bytes_per_second=self.memory_bytes_per_second,
            device=self.device,
            network=self.network,
        )

    def update_rate(self, problem: Problem, threads: int) -> UpdateRate:
        """Return a function that maps sizes to cell updates per second. Raises InputError if no rate is declared for
        the problem's dtype."""
        if problem.dtype not in self.updates_per_second:
            known = ", ".join(f"updates.{dtype}" for dtype in self.updates_per_second)
            raise InputError(
                f"machine {self.name} declares no updates.{problem.dtype}, only {known}; add it, or plan for that dtype"
            )
        most = self.updates_per_second[problem.dtype] * threads / self.cores

        def rate(sizes: Sizes) -> float:
            levels = max(1, min(sizes.levels, sizes.diamond * (2 if sizes.chunk else 1)))
            words = WORDS_PER_SWEEP / levels
            by_memory = self.memory_bytes_per_second / (words * problem.item_bytes)
            return min(most, by_memory) / edge_factor(problem, sizes)

        return rate
