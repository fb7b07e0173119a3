"""This module plans the writes of snapshots. This module also plans the staging, the memory that holds snapshots until
the device has written them.

A tile has only a few rows of each plane. If a snapshot keeps a level, each tile copies its rows of this level to slots
of the staging (core/outcrop/exec/snapshots.hpp). A slot of the staging holds a contiguous part of a file. A slot is
open from the copy of its first row to the copy of its last row. After the last row, the slot is written to the file:

    file of a box   | plane 0               | plane 1               | plane 2               |
    slots           |█████|█████|▒▒▒  |     |█████|█████|▒▒▒  |     |█████|█████|▒▒▒  |     |    ▒ open   █ written

Each write takes some time in addition to the time for its bytes, so slots should be large. But many slots are open at
the same time, in each plane of a slab and at each level that a snapshot keeps. If the open slots do not all fit into
the staging, incomplete slots are written in many short pieces. So `fit_staging` chooses the largest size of slots with
which all open slots fit into the staging. A slot can be larger than a plane of the box. But if a plan divides planes
into blocks, each block needs at least one write for each plane, so the writes are shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from outcrop.plan.memory import MIN_STAGING, PAGE_BYTES, Staging
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem, SnapshotDemand

MAX_SLOT_BYTES = 1 << 20
MAX_SLOTS = 2048
LARGE_DIAMOND = 16
"""The staging has enough memory for tiles of at most this half height, in levels."""
EDGES_OF_PIECE = 2
"""The number of additional writes for a piece of a slot. Usually, a piece begins in the middle of a page and ends in
the middle of another page. So the first page and the last page of a piece are written separately. If rows consist of
whole pages, no additional writes are necessary."""


@dataclass(frozen=True)
class SnapshotWrites:
    """The snapshots of a pass. `bytes` is the size of all snapshots together, and `writes` is the number of their
    writes.

    `late` is a fraction from 0 to 1: the part of the bytes whose slots are complete only at the end of a slab.
    `waiting_bytes` is the memory for complete slots that wait to be written. If the complete slots need more memory
    than `waiting_bytes`, updates wait. `mean_cells` is the number of cells whose means are computed.
    """

    bytes: int = 0
    writes: float = 0.0
    late: float = 0.0
    waiting_bytes: int = 0
    mean_cells: int = 0


NO_WRITES = SnapshotWrites()


def fit_staging(problem: Problem, sizes: Sizes, threads: int, room_bytes: int) -> Staging:
    """Among the stagings that fit into `room_bytes`, return the staging with the longest writes. If no staging fits,
    return the smallest staging. If memory remains, the staging gets more slots. The maximum number of slots is twice
    the number of slots that are open at the same time. With the maximum number of slots, half of the slots can wait for
    the device."""
    whole = (_longest_bytes(problem, sizes, one) for one, count in _boxes(problem, sizes) if count)
    largest = max(whole, default=0)
    if not largest:
        return MIN_STAGING if problem.acquisition.snapshots else Staging()
    slot_bytes = MAX_SLOT_BYTES
    while slot_bytes > PAGE_BYTES:
        is_useful = slot_bytes < 2 * largest
        if is_useful and _needed_slots(_open_slots(problem, sizes, slot_bytes, threads)) * slot_bytes <= room_bytes:
            break
        slot_bytes //= 2
    useful = max(MIN_STAGING.slots, 2 * _open_slots(problem, sizes, slot_bytes, threads))
    return Staging(max(MIN_STAGING.slots, min(MAX_SLOTS, useful, room_bytes // slot_bytes)), slot_bytes)


def snapshot_writes(
    problem: Problem, sizes: Sizes, staging: Staging, threads: int, first_step: int, steps: int
) -> SnapshotWrites:
    """Return the `SnapshotWrites` of one pass. The pass has `steps` steps and begins after step `first_step` of the
    run."""
    total, writes, late, mean_cells = 0, 0.0, 0.0, 0
    opened = _open_slots(problem, sizes, staging.slot_bytes, threads) if staging.slots else 0
    has_room = _needed_slots(opened) <= staging.slots
    for one in problem.acquisition.snapshots:
        count = one.boxes(first_step, steps)
        part = _part_bytes(problem, sizes, one)
        progress = min(part, _rows_in_progress(problem, sizes, threads) * one.row_bytes)
        if has_room:
            each = _writes_of_box(problem, sizes, one, staging.slot_bytes)
        else:
            tile = problem.skew_y * min(sizes.levels, LARGE_DIAMOND) if not sizes.chunk else 1
            each = (1 + _edges(one)) * one.box_bytes / min(part, tile * one.row_bytes)
        total += count * one.box_bytes
        mean_cells += count * one.mean_cells
        writes += count * each
        late += count * one.box_bytes * (0.0 if sizes.chunk else min(1.0, (progress + staging.slot_bytes / 2) / part))
    waiting = max(staging.slots // 4, staging.slots - opened) * staging.slot_bytes
    return SnapshotWrites(total, writes, late / total, waiting, mean_cells) if total else NO_WRITES


def snapshots_of(
    problem: Problem, levels: Iterable[int], sizes: Sizes, threads: int, staging: Staging
) -> Iterator[SnapshotWrites]:
    """Yield the snapshots of each pass. `levels` contains the number of levels of each pass."""
    kinds, step = problem.acquisition.snapshots if staging.slots else (), problem.acquisition.first_step
    known: dict[tuple[int, ...], SnapshotWrites] = {}  # passes with equal numbers of boxes have equal writes
    for one in levels:
        steps = problem.steps_of(one)
        boxes = tuple([kind.boxes(step, steps) for kind in kinds])
        if boxes not in known:
            known[boxes] = snapshot_writes(problem, sizes, staging, threads, step, steps) if kinds else NO_WRITES
        yield known[boxes]
        step += steps


def _boxes(problem: Problem, sizes: Sizes) -> Iterator[tuple[SnapshotDemand, int]]:
    """Yield each kind of snapshots, together with the maximum number of boxes of this kind in a pass."""
    demand, steps = problem.acquisition, min(problem.steps_of(sizes.levels), problem.steps)
    for one in demand.snapshots:
        yield one, max(one.boxes(demand.first_step, steps), one.fields * -(-steps // one.every))


def _open_slots(problem: Problem, sizes: Sizes, slot_bytes: int, threads: int) -> int:
    """Return the maximum number of slots that are open at the same time."""
    return sum(
        count * _open_slots_of_box(problem, sizes, one, slot_bytes, threads) for one, count in _boxes(problem, sizes)
    )


def _needed_slots(opened: int) -> int:
    """Return the number of slots that a staging needs to keep `opened` slots open. The core reserves a quarter of the
    slots for transfers."""
    return max(MIN_STAGING.slots, -(-opened * 4 // 3) + 1)


def _open_slots_of_box(problem: Problem, sizes: Sizes, one: SnapshotDemand, slot_bytes: int, threads: int) -> int:
    if sizes.chunk:  # bands fill one plane after another; in a sweep, each thread fills its own planes
        return 2 if sizes.diamond else 1 + threads
    planes, part = min(sizes.slab, one.planes), _part_bytes(problem, sizes, one)
    progress = min(part, _rows_in_progress(problem, sizes, threads) * one.row_bytes)
    each = -(-progress // slot_bytes) + 1
    if part == one.rows * one.row_bytes:
        return min(planes * each, -(-planes * part // slot_bytes) + 1)
    return planes * min(each, -(-part // slot_bytes) + 1)


def _longest_bytes(problem: Problem, sizes: Sizes, one: SnapshotDemand) -> int:
    """Return the number of bytes of the contiguous part of a box that one block computes."""
    part = _part_bytes(problem, sizes, one)
    return part if part < one.rows * one.row_bytes else one.box_bytes


def _part_bytes(problem: Problem, sizes: Sizes, one: SnapshotDemand) -> int:
    """For one plane of a box, return the number of bytes that belong to one block."""
    return min(one.rows, sizes.block_y or one.rows) * one.row_bytes


def _writes_of_box(problem: Problem, sizes: Sizes, one: SnapshotDemand, slot_bytes: int) -> float:
    part = _part_bytes(problem, sizes, one)
    if part == one.rows * one.row_bytes:
        return max(1.0, one.box_bytes / slot_bytes)
    return one.box_bytes / part * (part / slot_bytes + 1 + _edges(one))


def _edges(one: SnapshotDemand) -> int:
    return EDGES_OF_PIECE if one.row_bytes % PAGE_BYTES else 0


def _rows_in_progress(problem: Problem, sizes: Sizes, threads: int) -> int:
    """Return the number of rows between the first incomplete row of a plane and the last row that a tile has updated.
    The diamonds at a level have their centres at two different levels. The update of diamonds with the higher centre
    lags behind the update of diamonds with the lower centre (lean_of in core/outcrop/exec/tiles.cpp). The result
    assumes large diamonds, so that the memory of a plan does not depend on the size of its diamonds."""
    diamond = min(sizes.levels, LARGE_DIAMOND)
    distance = -(-2 * threads // (sizes.levels // diamond + 1))
    return problem.skew_y * diamond * (1 + 2 * distance + 2 + distance)
