"""Memory beside the window for what a pass does besides updating: part of the budget, and of what a plan predicts.

    budget:  | window                       | staging: slots, open pages | points | values of the steps of a pass |

Snapshots wait in slots on their way to files (core/outcrop/exec/staging.hpp), and pages of which only some bytes have
come stay open (open_pages.hpp). Sources and receivers have values for each point and step of a pass (points.hpp). The
least of both counts in the smallest budget; of what a budget has beyond that, each gets up to an eighth. More staging
hides a slower device, and more values allow passes of more steps.
"""

from __future__ import annotations

from dataclasses import dataclass

PAGE_BYTES = 4096
SLOT_BYTES = 256 << 10
"""Of the largest slots."""
SLOTS, SLOTS_LEAST = 64, 8
OPEN_PAGES, OPEN_PAGES_LEAST = 1024, 2
SHARE = 8
"""One part in so many of what there is beyond the smallest budget."""


@dataclass(frozen=True)
class TapDemand:
    """What a run asks for: `snapshot_bytes` that are kept of one step, `point_bytes` for where sources and receivers
    are, and `step_bytes` for their values in each step of a pass."""

    snapshot_bytes: int = 0
    point_bytes: int = 0
    step_bytes: int = 0


@dataclass(frozen=True)
class Staging:
    """`slots` of `slot_bytes`, and pages that may be open."""

    slots: int = 0
    slot_bytes: int = 0
    open_pages: int = 0

    @property
    def bytes(self) -> int:
        """All of it; the core allocates exactly this."""
        return self.slots * self.slot_bytes + self.open_pages * PAGE_BYTES


LEAST_STAGING = Staging(SLOTS_LEAST, PAGE_BYTES, OPEN_PAGES_LEAST)
MOST_STAGING = Staging(SLOTS, SLOT_BYTES, OPEN_PAGES)


@dataclass(frozen=True)
class TapMemory:
    """What a plan sets aside: passes of `steps_most` steps at most fit."""

    staging: Staging = Staging()
    point_bytes: int = 0
    step_bytes: int = 0
    steps_most: int = 0

    def bytes(self, steps: int) -> int:
        """Of passes of so many steps."""
        return self.staging.bytes + self.point_bytes + self.step_bytes * steps


NO_DEMAND, NO_TAP_MEMORY = TapDemand(), TapMemory()


def least_tap_memory(demand: TapDemand, steps: int) -> TapMemory:
    """What taps cannot do without in passes of so many steps."""
    staging = LEAST_STAGING if demand.snapshot_bytes else Staging()
    return TapMemory(staging, demand.point_bytes, demand.step_bytes, steps)


def tap_memory(demand: TapDemand, steps: int, steps_most: int, spare_bytes: int) -> TapMemory:
    """The same where a budget has `spare_bytes` beyond the smallest one; a run has `steps_most` steps."""
    room = max(0, spare_bytes) // SHARE
    most = min(steps_most, steps + room // demand.step_bytes) if demand.step_bytes else steps_most
    return TapMemory(_staging(demand, room), demand.point_bytes, demand.step_bytes, most)


def _staging(demand: TapDemand, room_bytes: int) -> Staging:
    """Slots shrink before they become fewer: each tile of a slab fills its own."""
    if not demand.snapshot_bytes:
        return Staging()
    total = min(MOST_STAGING.bytes, demand.snapshot_bytes, LEAST_STAGING.bytes + room_bytes)
    total = max(total, LEAST_STAGING.bytes)
    pages = max(OPEN_PAGES_LEAST, total // 5 // PAGE_BYTES)
    rest = total - pages * PAGE_BYTES
    slot_bytes = min(SLOT_BYTES, max(PAGE_BYTES, rest // SLOTS // PAGE_BYTES * PAGE_BYTES))
    return Staging(min(SLOTS, rest // slot_bytes), slot_bytes, pages)
