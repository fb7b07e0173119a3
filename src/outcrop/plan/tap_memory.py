"""Memory beside the window for what a pass does besides updating: part of the budget, and of what a plan predicts.

    budget:  | window                       | staging: slots | points | values of the steps of a pass |

Snapshots come together in slots, and wait there on their way to files (core/outcrop/exec/staging.hpp). Sources and
receivers have values for each point and step of a pass (points.hpp). The least of both counts in the smallest budget;
of what a budget has beyond that, each gets up to an eighth. More staging makes longer writes and hides a slower device,
and more values allow passes of more steps.
"""

from __future__ import annotations

from dataclasses import dataclass

PAGE_BYTES = 4096
SLOT_BYTES = 256 << 10
"""Of the largest slots."""
SLOTS_LEAST, SLOTS, SLOTS_MOST = 8, 64, 128
"""Below SLOTS, slots stay small; beyond, they grow before there are more."""
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
    """`slots` of `slot_bytes`."""

    slots: int = 0
    slot_bytes: int = 0

    @property
    def bytes(self) -> int:
        """All of it; the core allocates exactly this."""
        return self.slots * self.slot_bytes


LEAST_STAGING = Staging(SLOTS_LEAST, PAGE_BYTES)
MOST_STAGING = Staging(SLOTS_MOST, SLOT_BYTES)


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
    """Slots shrink before they become fewer: a slab has many planes, each of which is open somewhere."""
    if not demand.snapshot_bytes:
        return Staging()
    total = max(LEAST_STAGING.bytes, min(MOST_STAGING.bytes, demand.snapshot_bytes, LEAST_STAGING.bytes + room_bytes))
    slot_bytes = PAGE_BYTES
    while slot_bytes < SLOT_BYTES and 2 * slot_bytes * SLOTS <= total:
        slot_bytes *= 2
    return Staging(min(SLOTS_MOST, total // slot_bytes), slot_bytes)
