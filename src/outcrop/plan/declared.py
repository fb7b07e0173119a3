"""A machine that is not here, by the figures declared for it.

Updates that find their cells in caches go at the declared rate; others cannot be faster than the memory. A plain sweep
moves three words for a cell (the old value, the line to be written, which is fetched first, and its way back), a
diamond of half height D moves them once for D levels, a band of so many once for 2 D:

    rate(D) = min(declared, memory bandwidth / (3 e / D)),  e bytes per cell, D = 1 for plain sweeps
"""

from __future__ import annotations

from dataclasses import dataclass

from outcrop.errors import InputError
from outcrop.plan.machine import Device, Machine, UpdateRate
from outcrop.plan.model import edge_factor
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem

WORDS_PER_SWEEP = 3
"""Words that a plain sweep moves between memory and caches for a cell."""


@dataclass(frozen=True)
class DeclaredMachine:
    """All figures are for all `cores` together, but for `cache_bytes`, the second-level cache of one.

    `usable_bytes` of `memory_bytes` are what a run may take (0: not declared); `updates_per_second` are cell updates,
    by dtype, with temporal blocking for the caches.
    """

    name: str
    cores: int
    memory_bytes: int
    usable_bytes: int
    memory_bytes_per_second: float
    cache_bytes: int
    last_cache_bytes: int
    device: Device
    updates_per_second: dict[str, float]

    def machine(self, threads: int) -> Machine:
        """The machine as planning sees it, with so many threads; checksums are taken at the speed of memory."""
        return Machine(
            threads=threads,
            memory_bytes=self.memory_bytes,
            cache_bytes=self.cache_bytes,
            last_cache_bytes=self.last_cache_bytes,
            checksum_bytes_per_second=self.memory_bytes_per_second,
            device=self.device,
        )

    def update_rate(self, problem: Problem, threads: int) -> UpdateRate:
        """Cell updates per second by sizes. Raises InputError when none is declared for the problem's dtype."""
        if problem.dtype not in self.updates_per_second:
            known = ", ".join(f"updates.{dtype}" for dtype in self.updates_per_second)
            raise InputError(
                f"machine {self.name} declares no updates.{problem.dtype}, only {known}; add it, or plan for that dtype"
            )
        most = self.updates_per_second[problem.dtype] * threads / self.cores

        def rate(sizes: Sizes) -> float:
            words = WORDS_PER_SWEEP / max(1, sizes.diamond * (2 if sizes.chunk else 1))
            by_memory = self.memory_bytes_per_second / (words * problem.item_bytes)
            return min(most, by_memory) / edge_factor(problem, sizes)

        return rate
