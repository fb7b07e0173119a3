"""The memory of a plan: two rings of slots, one for even and one for odd levels (core/outcrop/exec/window.hpp)."""

from __future__ import annotations

from dataclasses import dataclass

from outcrop.plan.geometry import Cut, round_up
from outcrop.plan.problem import Problem

GUARD_BYTES = 4096
"""Readable memory before, between and behind the rings."""


@dataclass(frozen=True)
class Window:
    """`ring_planes` slots of the even and the odd ring, of `slot_bytes` each."""

    ring_planes: tuple[int, int]
    slot_bytes: int

    @property
    def bytes(self) -> int:
        """All of it; the core allocates exactly this."""
        return sum(self.ring_planes) * self.slot_bytes + 3 * GUARD_BYTES


def slot_bytes(problem: Problem, frame: Cut) -> int:
    """Bytes of a slot that holds the cells `frame` of a plane and a record's tail."""
    return round_up(frame.cells * problem.item_bytes + problem.tail_bytes, 4096)


def slots_within(slot: int, budget_bytes: int) -> int:
    """How many slots of `slot` bytes in all the rings may have under a budget."""
    return max(0, budget_bytes - 3 * GUARD_BYTES) // slot
