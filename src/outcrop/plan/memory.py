"""The memory of a plan: the window, and the memory of sources, receivers and snapshots.

    budget:  | window: rings of slots       | staging: slots | points | values of the steps of a pass |

The window has rings of slots for the copies of all fields (core/outcrop/exec/window.hpp). The staging is the memory
that holds snapshots until they are written (core/outcrop/exec/snapshots.hpp). Sources and receivers have one value for
each point and step of a pass (acquisition.hpp). The smallest budget includes the minimum memory for the staging and for
the values of sources and receivers. The values of sources and receivers may also use up to 1/SHARE of the memory above
the smallest budget. With more memory for the values of sources and receivers, a pass can have more steps. The tuner
divides the remaining memory between the window and the staging (staging.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from outcrop.plan.actions import FAR, Rectangle, round_up
from outcrop.plan.problem import AcquisitionDemand, Problem

GUARD_BYTES = 4096
"""The size of the gaps before, between and after the rings, in bytes. Kernels may read these gaps."""
PAGE_BYTES = 4096
RINGS_IN_STEP = 8
"""With more than 8 rings, each ring starts 512 bytes further into its page than the previous ring, to avoid cache-set
conflicts."""
LARGE_SLOT_BYTES, SHIFT_BYTES = 512 << 10, 512
"""Each slot of more than 512 KiB starts 512 bytes further into its page than the previous slot, to avoid cache-set
conflicts. Smaller slots follow each other without a gap, so that one transfer can move several planes (window.hpp)."""
MIN_SLOTS = 8
"""The minimum number of slots of the staging."""
SHARE = 8
"""Sources and receivers may use 1/SHARE of the memory above the smallest budget."""


@dataclass(frozen=True)
class Ring:
    """A ring of `planes` slots. If `resident` is true, each plane of the grid has its own slot for the whole run."""

    planes: int
    slot_bytes: int
    resident: bool = False


@dataclass(frozen=True)
class Window:
    """The sizes of all rings. There are three kinds of rings: for first copies, for second copies, and for static
    fields. For each kind, `ring_planes` contains the number of slots of a ring, and `copies` contains the number of
    rings. `ring_planes` and `copies` do not count the `resident` rings of static fields and the rings of values of a
    forward run. For each ring of values of a forward run, `history_planes` contains the number of slots."""

    ring_planes: tuple[int, int, int]
    slot_bytes: int
    copies: tuple[int, int, int] = (1, 1, 0)
    resident: tuple[Ring, ...] = ()
    history_planes: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """The exact number of bytes that the core allocates for the window."""
        (first, second, static), (firsts, seconds, statics) = self.ring_planes, self.copies
        slots = first * firsts + second * seconds + static * statics + sum(self.history_planes)
        others = sum([ring.planes * ring.slot_bytes for ring in self.resident])
        rings = firsts + seconds + statics + len(self.resident) + len(self.history_planes)
        return slots * self.slot_bytes + others + gaps_bytes(rings)

    def rings(self, problem: Problem) -> Iterator[Ring]:
        """Yield the rings of the first copies of all fields, then the rings of the second copies."""
        resident, history_planes = list(self.resident), iter(self.history_planes)
        for one in problem.fields:
            if one.history:
                yield Ring(next(history_planes), self.slot_bytes)
            elif one.is_static and resident:
                yield resident.pop()
            else:
                yield Ring(self.ring_planes[2 if one.is_static else 0], self.slot_bytes)
        for _ in range(problem.doubles):
            yield Ring(self.ring_planes[1], self.slot_bytes)

    def holds(self, other: Window) -> bool:
        """Return True if each pass that fits the window `other` also fits this window."""
        return self.slot_bytes >= other.slot_bytes and all(
            have >= need
            for have, need in zip(
                self.ring_planes + self.history_planes, other.ring_planes + other.history_planes, strict=True
            )
        )


def make_window(
    problem: Problem,
    ring_planes: tuple[int, int, int],
    slot: int,
    keeps_statics: bool = False,
    history_planes: tuple[int, ...] = (),
) -> Window:
    """Return the window with rings of `ring_planes` slots, and rings of `history_planes` slots for the values of a
    forward run. If `keeps_statics` is true, the rings of static fields are resident."""
    kept = (Ring(problem.planes, whole_slot_bytes(problem), True),) * (problem.statics if keeps_statics else 0)
    updated = len(problem.fields) - problem.statics - len(history_planes)
    return Window(ring_planes, slot, (updated, problem.doubles, problem.statics - len(kept)), kept, history_planes)


def whole_window(problem: Problem) -> Window:
    """Return the largest useful window, which holds all planes of all copies of all fields. If the grid is divided
    among ranks, the window also holds the halos of a pass with the maximum number of levels."""
    history = (problem.planes,) * (problem.histories + len(problem.recomputed))
    levels = min(problem.levels, problem.max_levels)
    slot, planes = undivided_slot_bytes(problem, levels), max_ring_planes(problem, levels, FAR)
    return make_window(problem, (planes,) * 3, slot, not problem.is_part, history)


def planes_sent_at_once(problem: Problem, levels: int, slab: int) -> int:
    """Return the number of planes in a group that a rank sends to its neighbours along z (schemes/deep_halo.py)."""
    return min(slab, problem.radius_z * levels) * problem.is_part_z


def max_ring_planes(problem: Problem, levels: int, slab: int) -> int:
    """Return the number of slots that a ring needs to hold all planes of a pass at the same time. The planes of a pass
    are the planes of the grid, the planes of neighbours, and one group of planes that the rank sends."""
    if not problem.is_part_z:
        return problem.planes
    depth = problem.radius_z * levels
    return problem.planes + problem.halo_z(levels)[0] + depth + planes_sent_at_once(problem, levels, slab)


def undivided_slot_bytes(problem: Problem, levels: int) -> int:
    """Return the bytes of a slot for passes of `levels` levels that do not divide y into blocks."""
    return slot_bytes(problem, problem.frame(levels))


def whole_slot_bytes(problem: Problem) -> int:
    """Return the bytes of a slot that holds the record of a plane."""
    return _slot_bytes_for(problem.record_bytes)


def slot_bytes(problem: Problem, frame: Rectangle) -> int:
    """Return the bytes of a slot that holds the cells `frame` of a plane and the tail of the plane's record."""
    return _slot_bytes_for(frame.cells * problem.item_bytes + problem.tail_bytes)


def _slot_bytes_for(needed_bytes: int) -> int:
    whole = round_up(needed_bytes, PAGE_BYTES)
    return whole + SHIFT_BYTES if whole > LARGE_SLOT_BYTES else whole


def slots_within(problem: Problem, slot: int, budget_bytes: int) -> int:
    """Return the maximum number of slots of `slot` bytes that all rings together can have within a budget."""
    return max(0, budget_bytes - gaps_bytes(problem.rings)) // slot


def largest_within(bytes_of: Callable[[int], int], most: int, budget_bytes: int) -> int:
    """Return the largest number n from 1 to `most` for which `bytes_of(n)` is at most `budget_bytes`, or 0 if no such
    number exists. `bytes_of(n)` must not decrease if n increases. `bytes_of` is usually almost linear, so the search
    uses linear interpolation for most of its guesses."""
    low, below, high, above = 1, bytes_of(1), most, bytes_of(most)
    if above <= budget_bytes:
        return most
    if below > budget_bytes:
        return 0
    tries = 0
    while high - low > 1:
        tries += 1
        on_line = low + (budget_bytes - below) * (high - low) // (above - below)
        guess = (low + high) // 2 if tries % 3 == 0 else max(low + 1, min(high - 1, on_line))
        found = bytes_of(guess)
        if found <= budget_bytes:
            low, below = guess, found
        else:
            high, above = guess, found
    return low


def gaps_bytes(rings: int) -> int:
    """Return the number of bytes that a window has before, between and after its rings."""
    return GUARD_BYTES + rings * (GUARD_BYTES + (PAGE_BYTES if rings > RINGS_IN_STEP else 0))


@dataclass(frozen=True)
class Staging:
    """The memory in which planes of snapshots wait to be written."""

    slots: int = 0
    slot_bytes: int = 0

    @property
    def bytes(self) -> int:
        """The exact number of bytes that the core allocates for the staging."""
        return self.slots * self.slot_bytes


MIN_STAGING = Staging(MIN_SLOTS, PAGE_BYTES)


@dataclass(frozen=True)
class AcquisitionMemory:
    """The memory that a plan reserves for sources, receivers and snapshots. The reserved memory is large enough for
    passes with up to `max_steps` steps."""

    staging: Staging = Staging()
    point_bytes: int = 0
    step_bytes: int = 0
    max_steps: int = 0

    def bytes(self, steps: int) -> int:
        return self.staging.bytes + self.point_bytes + self.step_bytes * steps


NO_ACQUISITION_MEMORY = AcquisitionMemory()


def min_acquisition_memory(demand: AcquisitionDemand, steps: int) -> AcquisitionMemory:
    staging = MIN_STAGING if demand.snapshots else Staging()
    return AcquisitionMemory(staging, demand.point_bytes, demand.step_bytes, steps)


def acquisition_memory(demand: AcquisitionDemand, steps: int, max_steps: int, spare_bytes: int) -> AcquisitionMemory:
    """Return the memory for sources, receivers and snapshots, with the smallest staging. `spare_bytes` is the part of
    the budget above the smallest budget. A pass has at least `steps` steps. A pass has at most `max_steps` steps, the
    number of steps of the run."""
    room = max(0, spare_bytes) // SHARE
    fitting = min(max_steps, steps + room // demand.step_bytes) if demand.step_bytes else max_steps
    return replace(min_acquisition_memory(demand, steps), max_steps=fitting)
