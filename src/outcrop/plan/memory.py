"""The memory of a plan: the window, and beside it what sources, receivers and snapshots take.

    budget:  | window: rings of slots       | staging: slots | points | values of the steps of a pass |

The window has rings of slots for the copies of all fields (core/outcrop/exec/window.hpp). Snapshots are gathered in the
slots of the staging until they are written (core/outcrop/exec/snapshots.hpp). Sources and receivers have values for
each point and step of a pass (acquisition.hpp). The smallest budget includes the minimum of both; of the memory beyond
it, each gets up to 1/SHARE. More staging makes longer writes and hides a slower device. More values allow passes of
more steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outcrop.plan.actions import Rectangle, round_up
from outcrop.plan.problem import AcquisitionDemand, Problem

GUARD_BYTES = 4096
"""Readable memory before, between and behind the rings."""
RINGS_IN_STEP, SHIFT_BYTES = 8, 512
"""With more than 8 rings, each ring starts 512 bytes further into its page, to avoid cache-set conflicts
(window.hpp)."""
PAGE_BYTES = 4096
MAX_SLOT_BYTES = 256 << 10
MIN_SLOTS, SLOTS, MAX_SLOTS = 8, 64, 128
"""Slots of the staging. Up to SLOTS, slots stay small; beyond, slots grow before there are more of them."""
SHARE = 8
"""Sources, receivers and snapshots may each use 1/SHARE of the memory above the smallest budget."""


@dataclass(frozen=True)
class Ring:
    """`planes` slots of `slot_bytes`. If `resident`, each plane of the grid has a slot of its own for the whole
    run."""

    planes: int
    slot_bytes: int
    resident: bool = False


@dataclass(frozen=True)
class Window:
    """`ring_planes` are the slots of a ring for a first copy, for a second copy, and for a field that is only read;
    `copies` are the numbers of such rings. Slots have `slot_bytes`. The `resident` rings of fields that are only read
    come on top."""

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


def make_window(problem: Problem, ring_planes: tuple[int, int, int], slot: int, keeps_statics: bool = False) -> Window:
    """The window with rings of `ring_planes` slots. With `keeps_statics`, rings of fields that are only read are
    resident instead."""
    kept = (Ring(problem.planes, problem.record_bytes, True),) * (problem.statics if keeps_statics else 0)
    copies = len(problem.fields) - problem.statics, problem.doubles, problem.statics - len(kept)
    return Window(ring_planes, slot, copies, kept)


def whole_window(problem: Problem) -> Window:
    """The window of all planes of all copies of all fields, which is the largest useful one."""
    return make_window(problem, (problem.planes,) * 3, problem.record_bytes, keeps_statics=True)


def slot_bytes(problem: Problem, frame: Rectangle) -> int:
    """Bytes of a slot that holds the cells `frame` of a plane and a record's tail."""
    return round_up(frame.cells * problem.item_bytes + problem.tail_bytes, 4096)


def slots_within(problem: Problem, slot: int, budget_bytes: int) -> int:
    """The number of slots of `slot` bytes that all rings together may have within a budget."""
    return max(0, budget_bytes - gaps_bytes(problem.rings)) // slot


def gaps_bytes(rings: int) -> int:
    """Bytes of a window before, between and behind its rings."""
    return GUARD_BYTES + rings * (GUARD_BYTES + (SHIFT_BYTES if rings > RINGS_IN_STEP else 0))


@dataclass(frozen=True)
class Staging:
    """`slots` of `slot_bytes`."""

    slots: int = 0
    slot_bytes: int = 0

    @property
    def bytes(self) -> int:
        """All of it; the core allocates exactly this."""
        return self.slots * self.slot_bytes


MIN_STAGING = Staging(MIN_SLOTS, PAGE_BYTES)
MAX_STAGING = Staging(MAX_SLOTS, MAX_SLOT_BYTES)


@dataclass(frozen=True)
class AcquisitionMemory:
    """What a plan reserves; a pass may have up to `max_steps` steps."""

    staging: Staging = Staging()
    point_bytes: int = 0
    step_bytes: int = 0
    max_steps: int = 0

    def bytes(self, steps: int) -> int:
        """All of it, for passes of `steps` steps."""
        return self.staging.bytes + self.point_bytes + self.step_bytes * steps


NO_ACQUISITION_MEMORY = AcquisitionMemory()


def min_acquisition_memory(demand: AcquisitionDemand, steps: int) -> AcquisitionMemory:
    """The minimum for passes of `steps` steps."""
    staging = MIN_STAGING if demand.snapshot_bytes else Staging()
    return AcquisitionMemory(staging, demand.point_bytes, demand.step_bytes, steps)


def acquisition_memory(demand: AcquisitionDemand, steps: int, max_steps: int, spare_bytes: int) -> AcquisitionMemory:
    """What a budget gives that is `spare_bytes` above the smallest one, to a run of `max_steps` steps. A pass has at
    least `steps` steps."""
    room = max(0, spare_bytes) // SHARE
    fitting = min(max_steps, steps + room // demand.step_bytes) if demand.step_bytes else max_steps
    return AcquisitionMemory(_staging(demand, room), demand.point_bytes, demand.step_bytes, fitting)


def _staging(demand: AcquisitionDemand, room_bytes: int) -> Staging:
    """Little memory makes slots smaller before it makes them fewer: each plane of a slab may need an open slot."""
    if not demand.snapshot_bytes:
        return Staging()
    total = max(MIN_STAGING.bytes, min(MAX_STAGING.bytes, demand.snapshot_bytes, MIN_STAGING.bytes + room_bytes))
    slot_bytes = PAGE_BYTES
    while slot_bytes < MAX_SLOT_BYTES and 2 * slot_bytes * SLOTS <= total:
        slot_bytes *= 2
    return Staging(min(MAX_SLOTS, total // slot_bytes), slot_bytes)
