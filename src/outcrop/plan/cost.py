"""Predict the cost of a plan. The predicted bytes and the predicted memory are exact. The predicted seconds come from a
simulated time line.

One thread executes the actions of a pass in order. It starts transfers, but does not wait until they end. So reads and
writes are in progress while the thread updates cells. Only an update waits, for the planes that it reads:

    read    |0 |1 |2 |3
    update     |0  |1  |2  |3         nothing hides the first read; later updates wait only if transfers take
    write          |0  |1  |2  |3     longer than updates
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from outcrop.plan.actions import EVERYTHING, Block, Bound, Commit, Copy, Read, Update, UpdateRegion, Write
from outcrop.plan.machine import Machine, StorageRates, UpdateRate
from outcrop.plan.memory import NO_ACQUISITION_MEMORY, AcquisitionMemory, Staging, Window
from outcrop.plan.plan import Pass, Prediction, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.staging import NO_WRITES, SnapshotWrites, snapshot_writes

SLAB_SECONDS = 3e-4
"""The time to begin and end the update of a slab: threads wait for each other, and planes wait for free slots."""
MEMORY_BYTES_PER_SECOND = 1e10
"""The rate at which cores read data that a device has just transferred. Update rates do not include this time, because
they are measured without a device, in a window that may fit the last-level cache."""
REQUEST_SECONDS = 1e-5
"""The system's CPU time for the transfer of a plane or of a part of a plane. Updates wait while the system uses this
time."""
SNAPSHOT_WRITE_SECONDS = 5e-5
"""The additional time of each write of a snapshot, of the device and of a core. The file system must note which part of
the file is in use, and the I/O thread must wake up."""
COPIES = 2
"""The number of times that the bytes of a snapshot move between a core and memory: once to the staging, and once to the
device."""
TOGETHER_BYTES = 1 << 20
"""Transfers of short planes that are adjacent in an array are joined into transfers of at most this number of bytes."""


def transfer_bytes(problem: Problem, action: Read | Write) -> int:
    """Return the bytes that a Read or Write moves. A transfer that includes the last cell of a plane also includes the
    tail of the record."""
    area, has_records = action.area, action.array in ("source", "target", "statics")
    if action.array == "history":
        return (action.z1 - action.z0) * (area.y1 - area.y0) * problem.shape[2] * problem.item_bytes
    last = area.y1 == problem.shape[1] and area.x1 == problem.pitch_cells and has_records
    each = (action.z1 - action.z0) * (area.cells * problem.item_bytes + (problem.tail_bytes if last else 0))
    return each * arrays_moved(problem, action)


def arrays_moved(problem: Problem, action: Read | Write) -> int:
    if action.array == "fringes":
        updated = sum(one.is_state for one in problem.fields)
        return problem.doubles if action.level % 2 else updated
    return {"source": problem.state_arrays, "target": problem.state_arrays, "statics": problem.statics}.get(
        action.array, 1
    )


def cell_updates(problem: Problem, action: Update) -> int:
    """Return the number of cells that an Update updates, summed over its levels. The rim in x is included, because
    kernels also update the rim in x."""
    if action.region is EVERYTHING or action.region == EVERYTHING:
        below = updates_below(problem, action.levels, action.zeta0)
        planes = updates_below(problem, action.levels, action.zeta1) - below
        return planes * (problem.end_row - problem.first_row) * problem.shape[2]
    region = action.region
    free = region.z_low == EVERYTHING.z_low and region.z_high == EVERYTHING.z_high
    deepest = action.zeta0 - problem.skew_z * (action.levels - 1)
    if free and deepest >= problem.first_plane and action.zeta1 <= problem.end_plane:
        return (action.zeta1 - action.zeta0) * _cells_of_planes(problem, region, action.levels)
    level = np.arange(1, action.levels + 1)
    back = problem.skew_z * (level - 1)
    low = np.maximum(np.maximum(problem.first_plane, action.zeta0 - back), _at(region.z_low, level))
    high = np.minimum(np.minimum(problem.end_plane, action.zeta1 - back), _at(region.z_high, level))
    return int((np.maximum(0, high - low) * _cells(problem, region, level)).sum())


def updates_below(problem: Problem, levels: int, zeta: int) -> int:
    """Return the number of updates of whole planes in a pass, summed over all levels. Updates are counted only if their
    skewed coordinate is below `zeta`."""
    planes = problem.end_plane - problem.first_plane
    # At level t, clamp(zeta - first - skew*(t-1), 0, planes) planes are below `zeta`. The sum over t consists of a
    # constant part and an arithmetic series.
    ahead, skew = zeta - problem.first_plane, problem.skew_z
    whole = max(0, min(levels, (ahead - planes) // skew + 1))
    partly = max(0, min(levels, -(-ahead // skew)))
    if partly <= whole:
        return whole * planes
    series = (partly * (partly - 1) - whole * (whole - 1)) // 2
    return whole * planes + (partly - whole) * ahead - skew * series


@lru_cache(maxsize=4096)
def _cells_of_planes(problem: Problem, region: UpdateRegion, levels: int) -> int:
    return int(_cells(problem, region, np.arange(1, levels + 1)).sum())


def _cells(problem: Problem, region: UpdateRegion, level: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each level, return the number of cells of a plane that lie within the region in y and x."""
    first, end = problem.first_row, problem.end_row
    rows = np.minimum(end, _at(region.y_high, level)) - np.maximum(first, _at(region.y_low, level))
    nx = problem.shape[2]
    columns = np.clip(_at(region.x_high, level), 0, nx) - np.clip(_at(region.x_low, level), 0, nx)
    cells: NDArray[np.int64] = np.maximum(0, rows) * np.maximum(0, columns)
    return cells


def _at(bound: Bound, level: NDArray[np.int64]) -> NDArray[np.int64]:
    return bound.at_zero + bound.slope * level


@dataclass(frozen=True, slots=True)
class Span:
    """A period of the time line, from `start` to `end` in seconds. Its kind is "read", "update", "write" or "flush"."""

    what: str
    start: float
    end: float


def timeline(
    problem: Problem,
    one: Pass,
    machine: Machine,
    cells_per_second: float,
    seconds_aside: float = 0.0,
    snapshots: SnapshotWrites = NO_WRITES,
) -> Iterator[Span]:
    """Yield the spans of one pass, sorted by the times at which they end. `seconds_aside` is the time of the cores for
    all work except updates. An equal share of this time is added to each update, and an equal share of `snapshots` is
    written during each update."""
    transfers, shift = _Transfers(machine.device), 0
    histories = [one for one in problem.fields if one.is_history]
    updates = max(1, sum(isinstance(action, Update) for action in one.actions))
    each_aside, each_snapshots = seconds_aside / updates, _like_writes(snapshots, machine.device) / updates
    waiting = snapshots.waiting_bytes * updates * each_snapshots / max(1, snapshots.bytes)
    for action in one.actions:
        match action:
            case Read():
                # planes of a history are needed as late as static planes that are `later` planes higher
                later = problem.statics_z - histories[action.level].ahead if action.array == "history" else 0
                first, end = action.z0 + shift + later, action.z1 + shift + later
                if action.array == "source":
                    first, end = first + problem.lead_planes, end + problem.lead_planes
                planes = _Planes(first, end, action.array in ("statics", "history"))
                transfers.begin_read(planes, transfer_bytes(problem, action))
            case Block():
                shift = action.shift
            case Write():
                transfers.begin_write(transfer_bytes(problem, action))
            case Copy() if action.recomputed < 0:
                end = action.z1 + shift + problem.lead_planes
                yield from transfers.wait_for(end, end)
            case Update():
                end = min(problem.planes + problem.lead_planes, action.zeta1 + problem.skew_z) + shift
                end_static = min(problem.planes, action.zeta1 + problem.statics_z) + shift
                yield from transfers.wait_for(end, end_static)
                start = transfers.now
                transfers.begin_snapshots(each_snapshots * (1 - snapshots.late))
                yield from transfers.go_on(cell_updates(problem, action) / cells_per_second + each_aside)
                transfers.begin_snapshots(each_snapshots * snapshots.late)
                yield from transfers.wait_for_snapshots(waiting)
                yield Span("update", start, transfers.now)
            case Commit():
                yield from transfers.finish()
                yield Span("flush", transfers.now, transfers.now + machine.device.seconds_flush)
            case _:
                pass


@dataclass(frozen=True, slots=True)
class _Planes:
    """Planes z0 <= z < z1 of updated or static fields. If only a part of a plane has arrived, z0 is not a whole
    number."""

    z0: float
    z1: int
    are_static: bool

    def share_below(self, z_end: int) -> float:
        """Return the share of these planes that lies below `z_end`, from 0 to 1."""
        return min(1.0, max(0.0, (z_end - self.z0) / (self.z1 - self.z0)))


class _Transfers:
    """Transfers that have begun and have not ended. `now` is the current time of the thread that starts the
    transfers."""

    def __init__(self, device: StorageRates) -> None:
        self._device = device
        self._reads: deque[tuple[_Planes, float]] = deque()  # Planes, and the number of their bytes to be read.
        self._read = self._written = 0.0  # The number of bytes to be read, and to be written.
        self._snapshots = 0.0  # The part of `_written` that belongs to snapshots.
        self.now = 0.0

    def begin_read(self, planes: _Planes, count: int) -> None:
        self._reads.append((planes, count))
        self._read += count

    def begin_write(self, count: int) -> None:
        self._written += count

    def begin_snapshots(self, count: float) -> None:
        self._written += count
        self._snapshots += count

    def wait_for_snapshots(self, most: float) -> Iterator[Span]:
        """Let time pass until at most `most` bytes of snapshots wait to be written."""
        while self._snapshots > most and self._written > 0:
            # other writes take place at the same time
            left = (self._snapshots - most) * self._written / self._snapshots
            each = self._device.mixed_bytes_per_second / 2 if self._read > 0 else self._device.write_bytes_per_second
            yield from self.go_on(min(left / each, self._read / each) if self._read > 0 else left / each)
            if left <= 1e-6 * self._written:
                return

    def wait_for(self, z_end: int, z_end_static: int) -> Iterator[Span]:
        """Let time pass until all planes of updated fields below `z_end` have arrived, and all planes of static fields
        below `z_end_static`. Planes arrive in the order of their requests."""
        needed = before = 0.0
        for planes, count in self._reads:
            if share := planes.share_below(z_end_static if planes.are_static else z_end):
                needed = before + count * share
            before += count
        end = self._read - needed
        while self._read - end > 1e-9 * needed:
            fastest = self._device.read_bytes_per_second
            each = self._device.mixed_bytes_per_second / 2 if self._written > 0 else fastest
            seconds = (self._read - end) / each
            yield from self.go_on(min(seconds, self._written / each) if self._written > 0 else seconds)

    def go_on(self, seconds: float) -> Iterator[Span]:
        end = self.now + seconds
        while seconds > 0 and (self._read > 0 or self._written > 0):
            step, read, written = self._step(seconds)
            if read:
                yield Span("read", self.now, self.now + step)
            if written:
                yield Span("write", self.now, self.now + step)
            self._take(read, written)
            self.now += step
            seconds -= step
        self.now = end

    def finish(self) -> Iterator[Span]:
        while self._read > 0 or self._written > 0:
            step, _, _ = self._step(float("inf"))
            yield from self.go_on(step)

    def _step(self, seconds: float) -> tuple[float, float, float]:
        """Return the length of the next period, and the bytes that are read and written in it. The period ends when all
        reads have ended, when all writes have ended, or after `seconds`."""
        device = self._device
        if self._read > 0 and self._written > 0:
            each = device.mixed_bytes_per_second / 2
            step = min(seconds, self._read / each, self._written / each)
            return step, each * step, each * step
        if self._read > 0:
            step = min(seconds, self._read / device.read_bytes_per_second)
            return step, device.read_bytes_per_second * step, 0.0
        step = min(seconds, self._written / device.write_bytes_per_second)
        return step, 0.0, device.write_bytes_per_second * step

    def _take(self, read: float, written: float) -> None:
        self._read = _rest(self._read, read)
        if written:
            self._snapshots = _rest(self._snapshots, written * self._snapshots / self._written)
        self._written = _rest(self._written, written)
        while self._reads and read > 0:
            planes, count = self._reads.popleft()
            if count > read * (1 + 1e-9):
                rest = (planes.z1 - planes.z0) * (count - read) / count
                self._reads.appendleft((replace(planes, z0=planes.z1 - rest), count - read))
                return
            read -= count


def _rest(whole: float, part: float) -> float:
    """Return the difference `whole` - `part`, or 0 if this difference is only a rounding error."""
    return whole - part if whole - part > 1e-6 * part else 0.0


def predict(
    problem: Problem,
    passes: tuple[Pass, ...],
    sizes: Sizes,
    window: Window,
    machine: Machine,
    rate: UpdateRate,
    acquisition: AcquisitionMemory = NO_ACQUISITION_MEMORY,
) -> Prediction:
    """Predict the bytes, memory and seconds of a whole plan. The bytes do not include snapshots, but the seconds do.
    `acquisition` is added to the memory of the window."""
    cell_rate = rate(sizes)
    # predict equal passes once, because most passes of a plan are the same object
    costs: dict[tuple[int, SnapshotWrites], _PassCost] = {}
    every = []
    for one, snapshots in with_snapshots(problem, passes, sizes, machine.threads, acquisition.staging):
        key = id(one), snapshots
        if key not in costs:
            costs[key] = _pass_cost(problem, one, machine, cell_rate, snapshots)
        every.append(costs[key])
    steps = problem.steps_of(max((one.levels for one in passes), default=0))
    read, written = sum(cost.bytes_read for cost in every), sum(cost.bytes_written for cost in every)
    return Prediction(
        seconds=sum(cost.seconds for cost in every),
        bytes_read=read,
        bytes_written=written,
        memory_bytes=window.bytes + acquisition.bytes(steps),
        seconds_update=sum(cost.seconds_update for cost in every),
        seconds_read=read / machine.device.read_bytes_per_second,
        seconds_write=written / machine.device.write_bytes_per_second,
        seconds_commit=len(passes) * machine.device.seconds_flush,
    )


def with_snapshots(
    problem: Problem, passes: Iterable[Pass], sizes: Sizes, threads: int, staging: Staging
) -> Iterator[tuple[Pass, SnapshotWrites]]:
    """Yield each pass with its snapshots."""
    step = problem.acquisition.first_step
    for one in passes:
        steps = problem.steps_of(one.levels)
        has_any = problem.acquisition.snapshots and staging.slots
        yield one, snapshot_writes(problem, sizes, staging, threads, step, steps) if has_any else NO_WRITES
        step += steps


@dataclass(frozen=True)
class _PassCost:
    bytes_read: int
    bytes_written: int
    seconds: float
    seconds_update: float


def _pass_cost(
    problem: Problem, one: Pass, machine: Machine, cell_rate: float, snapshots: SnapshotWrites
) -> _PassCost:
    read = sum(transfer_bytes(problem, action) for action in one.actions if isinstance(action, Read))
    written = sum(transfer_bytes(problem, action) for action in one.actions if isinstance(action, Write))
    aside = aside_seconds(problem, one, machine) + snapshot_seconds_aside(snapshots, machine)
    spans = timeline(problem, one, machine, cell_rate, aside, snapshots)
    seconds = max((span.end for span in spans), default=0.0)
    updates = sum(cell_updates(problem, action) for action in one.actions if isinstance(action, Update))
    return _PassCost(read, written, seconds, updates / cell_rate)


def aside_seconds(problem: Problem, one: Pass, machine: Machine) -> float:
    """Return the time of the cores in a pass for all work except updates: checksums, requests, cache misses, and the
    begin and end of each slab."""
    moves = [action for action in one.actions if isinstance(action, Read | Write)]
    moved = sum(transfer_bytes(problem, move) for move in moves)
    missed = moved * min(1.0, machine.last_cache_bytes / one.window.bytes) / MEMORY_BYTES_PER_SECOND
    requests = sum(_requests(problem, move) for move in moves) * REQUEST_SECONDS / machine.threads
    checksums = moved / machine.checksum_bytes_per_second
    return missed + checksums + requests + SLAB_SECONDS * sum(isinstance(action, Update) for action in one.actions)


def snapshot_seconds_aside(snapshots: SnapshotWrites, machine: Machine) -> float:
    """Return the time of the cores for snapshots in a pass: copies, checksums and writes."""
    copies = snapshots.bytes * (COPIES / MEMORY_BYTES_PER_SECOND + 1 / machine.checksum_bytes_per_second)
    return copies + snapshots.writes * SNAPSHOT_WRITE_SECONDS / machine.threads


def snapshot_seconds_device(snapshots: SnapshotWrites, device: StorageRates) -> float:
    """Return the time of the device for the snapshots of a pass, without other transfers."""
    rate = device.first_write_bytes_per_second or device.write_bytes_per_second
    return snapshots.bytes / rate + snapshots.writes * SNAPSHOT_WRITE_SECONDS


def _like_writes(snapshots: SnapshotWrites, device: StorageRates) -> float:
    """Return the number of bytes that other writes transfer in the time that the device needs for snapshots."""
    return snapshot_seconds_device(snapshots, device) * device.write_bytes_per_second


def _requests(problem: Problem, move: Read | Write) -> int:
    """Return the number of system calls that a Read or Write needs. One call may transfer several whole planes that are
    adjacent in a file (transfers.cpp)."""
    if move.array == "history" and problem.shape[2] * problem.item_bytes != problem.pitch_bytes:
        return (move.z1 - move.z0) * (move.area.y1 - move.area.y0)  # rows are padded in memory, but not in the file
    are_adjacent = move.area == problem.whole_plane and move.array != "fringes" and not problem.periodic[0]
    together = max(1, TOGETHER_BYTES // problem.record_bytes) if are_adjacent else 1
    return -(-(move.z1 - move.z0) // together) * arrays_moved(problem, move)
