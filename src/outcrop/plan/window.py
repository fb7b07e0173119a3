"""The memory of a plan: rings of slots for the copies of all fields (core/outcrop/exec/window.hpp)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outcrop.plan.geometry import Cut, round_up
from outcrop.plan.problem import Problem

GUARD_BYTES = 4096
"""Readable memory before, between and behind the rings."""
RINGS_IN_STEP, SHIFT_BYTES = 8, 512
"""Of more rings than this, each begins so much further into its page than the one before (window.hpp)."""


@dataclass(frozen=True)
class Ring:
    """`planes` slots of `slot_bytes`; `is_resident`: one for every plane of the grid, whole and for good."""

    planes: int
    slot_bytes: int
    is_resident: bool = False


@dataclass(frozen=True)
class Window:
    """`ring_planes` slots of `slot_bytes` in the rings of first and of second copies of what is updated, and of fields
    that are only read; `copies` says how many rings of each there are. Those of `resident` fields that are only read
    have a size of their own."""

    ring_planes: tuple[int, int, int]
    slot_bytes: int
    copies: tuple[int, int, int] = (1, 1, 0)
    resident: tuple[Ring, ...] = ()

    @property
    def bytes(self) -> int:
        """All of it; the core allocates exactly this."""
        slots = sum(planes * copies for planes, copies in zip(self.ring_planes, self.copies, strict=True))
        others = sum(ring.planes * ring.slot_bytes for ring in self.resident)
        return slots * self.slot_bytes + others + gaps_bytes(sum(self.copies) + len(self.resident))

    def rings(self, problem: Problem) -> Iterator[Ring]:
        """First copies of all fields, then second ones."""
        resident = list(self.resident)
        for one in problem.fields:
            if one.is_static and resident:
                yield resident.pop()
            else:
                yield Ring(self.ring_planes[2 if one.is_static else 0], self.slot_bytes)
        for _ in range(problem.doubles):
            yield Ring(self.ring_planes[1], self.slot_bytes)

    def holds(self, other: Window) -> bool:
        """Whether a pass that needs `other` can do with this one."""
        return self.slot_bytes >= other.slot_bytes and all(
            have >= need for have, need in zip(self.ring_planes, other.ring_planes, strict=True)
        )


def make_window(
    problem: Problem, ring_planes: tuple[int, int, int], slot: int, keeps_statics: bool = False
) -> Window:
    """Rings of `ring_planes` slots for first and second copies and for what is only read, which with `keeps_statics`
    stays."""
    kept = (Ring(problem.planes, problem.record_bytes, True),) * (problem.statics if keeps_statics else 0)
    copies = len(problem.fields) - problem.statics, problem.doubles, problem.statics - len(kept)
    return Window(ring_planes, slot, copies, kept)


def whole_window(problem: Problem) -> Window:
    """All planes of all copies of all fields: the largest one that is of any use."""
    return make_window(problem, (problem.planes,) * 3, problem.record_bytes, keeps_statics=True)


def slot_bytes(problem: Problem, frame: Cut) -> int:
    """Bytes of a slot that holds the cells `frame` of a plane and a record's tail."""
    return round_up(frame.cells * problem.item_bytes + problem.tail_bytes, 4096)


def slots_within(problem: Problem, slot: int, budget_bytes: int) -> int:
    """How many slots of `slot` bytes in all the rings may have under a budget."""
    return max(0, budget_bytes - gaps_bytes(problem.rings)) // slot


def gaps_bytes(rings: int) -> int:
    """Bytes of a window before, between and behind so many rings."""
    return GUARD_BYTES + rings * (GUARD_BYTES + (SHIFT_BYTES if rings > RINGS_IN_STEP else 0))
