"""Predict the cost of a plan. The predicted bytes and the predicted memory are exact. The predicted seconds come from a
simulated time line.

One thread executes the actions of a pass in order. The thread starts transfers, but does not wait for the end of the
transfers. So reads and writes are in progress while the thread updates cells. An update waits until the planes that it
needs have arrived:

    read    |0 |1 |2 |3
    update     |0  |1  |2  |3         nothing is updated during the first read; later updates wait only if
    write          |0  |1  |2  |3     transfers take longer than updates

If the grid is divided among ranks, a rank also exchanges rows with its neighbours. The transfers of the exchanged rows
use the network and not the storage device. The time line assumes that all ranks have the same plan and the same speed.
So the neighbours send rows at the same times as this rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, repeat
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.plan.actions import (
    EVERYTHING,
    FACES,
    SIDES,
    Block,
    Bound,
    Check,
    Commit,
    Copy,
    Read,
    Update,
    UpdateRegion,
    Write,
    side_of,
)
from outcrop.plan.machine import Machine, NetworkRates, StorageRates, UpdateRate
from outcrop.plan.memory import NO_ACQUISITION_MEMORY, AcquisitionMemory, Window
from outcrop.plan.plan import Pass, Prediction, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.staging import NO_WRITES, SnapshotWrites, snapshots_of

SLAB_SECONDS = 3e-4
"""The time in seconds that is lost in each slab, when the update of the slab begins and ends. At these times, threads
wait for each other, and reads wait for free slots."""
MEMORY_BYTES_PER_SECOND = 1e10
"""The rate at which cores read data that a device has just transferred. The measured update rates do not include the
time of these reads. The reason is that update rates are measured without transfers. In these measurements, the window
may also fit into the last-level cache."""
REQUEST_SECONDS = 1e-5
"""The CPU time that the operating system needs to transfer a plane or a part of a plane. Updates wait during this time.
"""
MEAN_CELLS_PER_SECOND = 1e9
"""The number of cells per second that a core adds to the means of snapshots (core/outcrop/exec/snapshots.cpp)."""
SNAPSHOT_WRITE_SECONDS = 5e-5
"""The additional time that each write of a snapshot takes on the device and on a core. During this time, the file
system records which part of the file is in use, and the I/O thread wakes up."""
COPIES = 2
"""The number of copies of each byte of a snapshot: one to the staging, and one to the device."""
COPY, UPDATE, TRIANGLE, CHECK, COMMIT = range(5)
TOGETHER_BYTES = 1 << 20
"""Transfers of short planes that are adjacent in an array are joined into transfers of at most this number of bytes."""
TOGETHER_MESSAGES = 64
"""The maximum number of short messages to a neighbour that one system call transfers."""


def transfer_bytes(problem: Problem, action: Read | Write) -> int:
    """Return the number of bytes that a Read or Write transfers between the memory and the disk, or between two ranks.
    """
    area = action.area
    if action.array == "history":
        return (action.z1 - action.z0) * (area.y1 - area.y0) * problem.shape[2] * problem.item_bytes
    tail_bytes = problem.tail_bytes if has_tail(problem, action) else 0
    each = (action.z1 - action.z0) * (area.cells * problem.item_bytes + tail_bytes)
    return each * arrays_moved(problem, action)


def has_tail(problem: Problem, action: Read | Write) -> bool:
    """Return True if a Read or Write also moves the tails of the records. The tail of a record is its last part, with
    the checksum and the seal. A Read moves the tail of a record with the last cell of the plane. A Write moves the tail
    with the last written part of the plane."""
    area = action.area
    if action.array not in ("source", "target", "statics"):
        return False
    if problem.block_order < 0 and isinstance(action, Write):
        return area.y0 == 0 and area.x0 == 0
    return area.y1 == problem.shape[1] and area.x1 == problem.pitch_cells


def arrays_moved(problem: Problem, action: Read | Write) -> int:
    if action.array in ("history", "recomputed", "other"):
        return 1
    if action.array == "fringes":
        updated = sum(one.is_state for one in problem.fields)
        return problem.doubles if action.level % 2 else updated
    if action.array == "stairs" and action.level > 0:
        return len(problem.updates[(action.level - 1) % len(problem.updates)].targets)
    return problem.statics if action.array in ("statics", "static_faces") else problem.state_arrays


def cell_updates(problem: Problem, action: Update) -> int:
    """Return the number of cells that an Update updates, summed over its levels. The rim in x is included, because
    kernels also update the rim in x."""
    if action.region is EVERYTHING or action.region == EVERYTHING:
        below = updates_below(problem, action.levels, action.zeta0)
        planes = updates_below(problem, action.levels, action.zeta1) - below
        return planes * (problem.own_rows[1] - problem.own_rows[0]) * problem.shape[2]
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
    """Return the number of plane updates in a pass of `levels` levels. If n levels update a plane, these are n plane
    updates. A plane update counts only if the number of the plane plus the skew of the level is below `zeta`."""
    planes = problem.end_plane - problem.first_plane
    # At level t, the number of planes below `zeta` is zeta - problem.first_plane - skew * (t - 1), limited to the range
    # from 0 to `planes`. The sum of the numbers of planes over t consists of a constant part and an arithmetic series.
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
    """For each level, return how many cells of a plane lie within the region in y and x."""
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
    """A period of the time line, from `start` to `end` in seconds. `what` is the kind of work in this period: "read",
    "update", "write", "flush", "send" or "receive"."""

    what: str
    start: float
    end: float


NOT_SENT = (0,) * len(SIDES)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a pass. An event is a Copy, an Update, a Check or the commit, together with the transfers that start
    after the previous event. The event begins when these data have arrived: the first `needed` bytes of all reads of
    the pass, and the first `needed_faces` bytes of all messages of the pass. An event that is an Update updates `cells`
    cells. `phase` is the place of the event within a slab: COPY, UPDATE, TRIANGLE (the second Update of a slab, in
    split tiling), CHECK or COMMIT. `block` is the number of the block. `sent` has one number of bytes for the neighbour
    at each side (SIDES)."""

    phase: int
    read: int
    written: int
    needed: float
    cells: int
    sent: tuple[int, ...] = NOT_SENT
    received: int = 0
    needed_faces: float = 0.0
    block: int = 0

    @property
    def is_update(self) -> bool:
        return self.phase in (UPDATE, TRIANGLE)


@dataclass(frozen=True)
class PassWork:
    """The work of a pass. The work does not depend on the speed of the machine. `requests` is the number of system
    calls of all transfers. `bytes_sent` and `bytes_received` count the rows that a rank exchanges with its neighbours.
    `events` contains the events of the pass in order."""

    bytes_read: int
    bytes_written: int
    requests: int
    cells: int
    updates: int
    window_bytes: int
    events: tuple[Event, ...]
    bytes_sent: int = 0
    bytes_received: int = 0


def work_of(problem: Problem, one: Pass) -> PassWork:
    histories = [field for field in problem.fields if field.is_history]
    computed = [problem.fields[number] for number in problem.computed]
    events, asked, asked_faces, finished = list[Event](), list[_Asked](), list[_Asked](), list[_Asked]()
    read = written = received = requests = cells = updates = shift = 0
    sent, sent_in_event = 0, [*NOT_SENT]
    before = 0, 0, 0  # the numbers of bytes that have been read, written and received at the last event
    block, blocks, planes = 0, dict[Block, int](), problem.planes + problem.halo_z(one.levels)[1]

    def add(phase: int, needed: float, faces: float, count: int = 0) -> None:
        nonlocal before
        sent_now = tuple(sent_in_event) if any(sent_in_event) else NOT_SENT
        new = read - before[0], written - before[1], received - before[2]
        events.append(Event(phase, new[0], new[1], needed, count, sent_now, new[2], faces, block))
        before, sent_in_event[:] = (read, written, received), NOT_SENT

    moves: dict[tuple[object, ...], tuple[int, int]] = {}

    def moved(action: Read | Write) -> tuple[int, int]:
        """Return the number of bytes and the number of requests of a transfer. Results are cached, because most
        transfers of a pass differ only in their planes."""
        key = type(action), action.array, action.level, id(action.area), action.z1 - action.z0
        if key not in moves:
            moves[key] = transfer_bytes(problem, action), _requests(problem, action)
        return moves[key]

    for action in one.actions:
        match action:
            case Read() if action.array in FACES:
                (count, calls), is_static = moved(action), action.array == "static_faces"
                # An update that needs rows of level p in plane z also needs rows of level 0 in plane z + p * skew_z.
                first = action.z0 + shift + (problem.skew_z * action.level if action.array == "stairs" else 0)
                each = finished if action.array == "finished" else asked_faces
                each.append((first, first + action.z1 - action.z0, is_static, received, count))
                received += count
                requests += calls
            case Write() if action.array in FACES:
                count, calls = moved(action)
                sent += count
                sent_in_event[side_of(action)] += count
                requests += calls
            case Read():
                # An update that needs plane z of a history also needs plane z + `later` of the static fields.
                later = problem.statics_z - histories[action.level].ahead if action.array == "history" else 0
                later = problem.lead_planes if action.array == "source" else later
                if action.array == "recomputed":  # an update also needs planes that are up to one skew higher
                    later = problem.skew_z - computed[action.level].ahead
                (count, calls), is_static = moved(action), action.array in ("statics", "history")
                first = action.z0 + shift + later
                asked.append((first, first + action.z1 - action.z0, is_static, read, count))
                read += count
                requests += calls
            case Block():
                shift = action.shift
                if not action.only_sends:
                    block = blocks.setdefault(action, len(blocks))
            case Write():
                count, calls = moved(action)
                written += count
                requests += calls
            case Copy() if action.recomputed < 0:
                end = action.z1 + shift + problem.lead_planes
                add(COPY, _needed(asked, end, end), _needed(asked_faces, end, end))
            case Update():
                end = min(planes + problem.lead_planes, action.zeta1 + problem.skew_z) + shift
                end_static = min(planes, action.zeta1 + problem.statics_z) + shift
                count, end_faces = cell_updates(problem, action), action.zeta1 + problem.skew_z + shift
                faces = _needed(asked_faces, end_faces, end_static) if _uses_neighbours(problem, action) else 0.0
                phase = TRIANGLE if action.region.y_low.slope < 0 < action.region.y_high.slope else UPDATE
                add(phase, _needed(asked, end, end_static), faces, count)
                cells += count
                updates += 1
            case Check() if action.array == "target":
                add(CHECK, 0.0, _needed(finished, action.z1 + shift, action.z1 + shift))
            case Commit():
                add(COMMIT, read, received)
            case _:
                pass
    window_bytes, listed = one.window.bytes, tuple(events)
    return PassWork(read, written, requests, cells, updates, window_bytes, listed, sent, received)


def _uses_neighbours(problem: Problem, action: Update) -> bool:
    """Return True if an Update reads rows of a neighbour at level 1. An Update that reads such rows at level 1 also
    reads such rows at all other levels. If the grid is divided along z, return True for every Update."""
    if problem.is_part_z:
        return True
    low, high = problem.neighbours
    reads_below = low and action.region.y_low.at(1) < problem.radius_y
    return reads_below or (high and action.region.y_high.at(1) > problem.shape[1] - problem.radius_y)


_Asked: TypeAlias = tuple[int, int, bool, int, int]
"""A read of planes z0 <= z < z1. The tuple contains z0, z1, and a flag that is true for static fields. The last two
numbers are the bytes of all earlier reads, and the bytes of this read."""


def _needed(asked: Sequence[_Asked], z_end: int, z_end_static: int) -> float:
    """Return the number of bytes that must have arrived before an update can begin. The update needs the planes of
    updated fields below `z_end` and the planes of static fields below `z_end_static`. Planes arrive in the order of
    their requests."""
    for z0, z1, is_static, before, count in reversed(asked):
        end = z_end_static if is_static else z_end
        if end > z0:
            return before + count * min(1.0, (end - z0) / (z1 - z0))
    return 0.0


def timeline(
    problem: Problem,
    one: Pass,
    machine: Machine,
    cells_per_second: float,
    seconds_aside: float = 0.0,
    snapshots: SnapshotWrites = NO_WRITES,
) -> Sequence[Span]:
    """Return the spans of one pass, sorted by the ends of the spans. `seconds_aside` is the time that the cores need
    for all work except updates. Each update gets an equal share of `seconds_aside`. During each update, an equal share
    of `snapshots` is written."""
    spans = list[Span]()
    _simulate(work_of(problem, one), machine, cells_per_second, seconds_aside, snapshots, spans)
    return spans


def _simulate(
    work: PassWork,
    machine: Machine,
    cells_per_second: float,
    seconds_aside: float,
    snapshots: SnapshotWrites,
    spans: list[Span] | None = None,
) -> float:
    """Return the time of a pass in seconds. If `spans` is given, append the spans of the pass to this list."""
    device, updates = machine.device, max(1, work.updates)
    transfers, each_aside = _Transfers(device, spans), seconds_aside / updates
    received, sent = _Messages(machine.network, "receive", spans), _Messages(machine.network, "send", spans)
    # `each_snapshots` is the number of bytes that the device writes in the time that it needs for the snapshots of one
    # update.
    each_snapshots = snapshot_seconds_device(snapshots, device) * device.write_bytes_per_second / updates
    waiting = snapshots.waiting_bytes * updates * each_snapshots / max(1, snapshots.bytes)
    for event in work.events:
        transfers.begin(event.read, event.written)
        received.begin(transfers.now, event.received)
        sent.begin(transfers.now, sum(event.sent))
        if event.phase == COMMIT:
            transfers.go_on(max(0.0, max(received.end, sent.end) - transfers.now))
            transfers.finish()
            end = transfers.now + device.seconds_flush
            if spans is not None:
                spans.append(Span("flush", transfers.now, end))
            transfers.now = end
            continue
        start = transfers.now
        transfers.wait_for(event.needed)
        arrival = received.arrival(event.needed_faces)
        if arrival and transfers.now > start:  # the neighbours also read these planes now, and then send them
            arrival = max(arrival, transfers.now + machine.network.seconds_latency)
        transfers.go_on(max(0.0, arrival - transfers.now))
        if event.is_update:
            start = transfers.now
            transfers.begin_snapshots(each_snapshots * (1 - snapshots.late))
            transfers.go_on(event.cells / cells_per_second + each_aside)
            transfers.begin_snapshots(each_snapshots * snapshots.late)
            transfers.wait_for_snapshots(waiting)
            if spans is not None:
                spans.append(Span("update", start, transfers.now))
    return transfers.now


class _Messages:
    """All messages in one direction: the messages that a rank sends, or the messages that it receives. The network
    transfers one message after the other. For each group of messages that begin together, a span with the name `what`
    is appended to `spans`."""

    def __init__(self, network: NetworkRates, what: str, spans: list[Span] | None) -> None:
        self._network, self._what, self._spans = network, what, spans
        # one entry for each group of messages that begin together: the number of bytes of all earlier groups, the time
        # at which the group begins, and the time at which it ends
        self._jobs: list[tuple[int, float, float]] = []
        self._begun = 0
        self.end = 0.0

    def begin(self, now: float, count: int) -> None:
        if not count:
            return
        start = max(now, self.end)
        self.end = start + count / self._network.bytes_per_second
        self._jobs.append((self._begun, start, self.end))
        self._begun += count
        if self._spans is not None:
            self._spans.append(Span(self._what, start, self.end))

    def arrival(self, count: float) -> float:
        """Return the time at which the first `count` bytes of all messages have arrived."""
        for before, start, _ in reversed(self._jobs) if count else ():
            if before < count:
                network = self._network
                return start + (count - before) / network.bytes_per_second + network.seconds_latency
        return 0.0


class _Transfers:
    """The transfers that are in progress. `now` is the current time of the thread that starts the transfers. Each
    period of transfers is appended to `spans`."""

    def __init__(self, device: StorageRates, spans: list[Span] | None) -> None:
        self._device, self._spans = device, spans
        self._begun = 0  # The number of bytes of all reads that have begun.
        self._read = self._written = 0.0  # The numbers of bytes that remain to be read and written.
        self._snapshots = 0.0  # The part of `_written` that belongs to snapshots.
        self.now = 0.0

    def begin(self, read: int, written: int) -> None:
        self._begun += read
        self._read += read
        self._written += written

    def begin_snapshots(self, count: float) -> None:
        self._written += count
        self._snapshots += count

    def wait_for_snapshots(self, max_bytes: float) -> None:
        """Advance the time until at most `max_bytes` bytes of snapshots remain to be written."""
        while self._snapshots > max_bytes and self._written > 0:
            # Snapshots have only a part of the bandwidth, because other writes are in progress at the same time.
            left = (self._snapshots - max_bytes) * self._written / self._snapshots
            each = self._device.mixed_bytes_per_second / 2 if self._read > 0 else self._device.write_bytes_per_second
            self.go_on(min(left / each, self._read / each) if self._read > 0 else left / each)
            if left <= 1e-6 * self._written:
                return

    def wait_for(self, arrived: float) -> None:
        """Advance the time until the first `arrived` bytes of all reads have arrived."""
        end = self._begun - arrived  # the number of bytes of reads that may still be in progress
        needed = self._read - end
        rounding = max(1e-9 * needed, 1e-12 * self._read)
        while self._read - end > rounding:
            fastest = self._device.read_bytes_per_second
            each = self._device.mixed_bytes_per_second / 2 if self._written > 0 else fastest
            seconds = (self._read - end) / each
            self.go_on(min(seconds, self._written / each) if self._written > 0 else seconds)

    def go_on(self, seconds: float) -> None:
        end = self.now + seconds
        while seconds > 0 and (self._read > 0 or self._written > 0):
            step, read, written = self._step(seconds)
            if self._spans is not None:
                if read:
                    self._spans.append(Span("read", self.now, self.now + step))
                if written:
                    self._spans.append(Span("write", self.now, self.now + step))
            self._take(read, written)
            self.now += step
            seconds -= step
        self.now = end

    def finish(self) -> None:
        while self._read > 0 or self._written > 0:
            step, _, _ = self._step(float("inf"))
            self.go_on(step)

    def _step(self, seconds: float) -> tuple[float, float, float]:
        """Return the length of the next period, and the bytes that are read and written in this period. The period ends
        when all reads have ended, when all writes have ended, or after `seconds`."""
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


def _rest(whole: float, part: float) -> float:
    """Return the difference `whole` - `part`, or 0 if this difference is only a rounding error."""
    return whole - part if whole - part > 1e-6 * part else 0.0


def works_of(problem: Problem, passes: Iterable[Pass]) -> list[tuple[int, PassWork]]:
    """Return one pair for each pass: the number of levels, and the work."""
    # The pair of each Pass object is made only once, because most passes of a plan are the same object.
    known, found = dict[int, tuple[int, PassWork]](), list[tuple[int, PassWork]]()
    for one in passes:
        if id(one) not in known:
            known[id(one)] = one.levels, work_of(problem, one)
        found.append(known[id(one)])
    return found


def predict(
    problem: Problem,
    works: Sequence[tuple[int, PassWork]],
    sizes: Sizes,
    window: Window,
    machine: Machine,
    rate: UpdateRate,
    acquisition: AcquisitionMemory = NO_ACQUISITION_MEMORY,
    counts: Sequence[int] = (),
) -> Prediction:
    """Predict the bytes, memory and seconds of a plan. `works` contains the number of levels and the work of each pass
    (`works_of`). If `counts` is given, each entry of `works` stands for this number of successive passes. The predicted
    bytes do not include snapshots, but the predicted seconds include the time of snapshots. The predicted memory is the
    sum of the window and `acquisition`."""
    cell_rate, device, counts = rate(sizes), machine.device, counts or [1] * len(works)
    known, seconds = dict[tuple[int, SnapshotWrites], float](), 0.0
    levels, has_snapshots = [levels for levels, _ in works], bool(problem.acquisition.snapshots)
    levels_of_passes = chain.from_iterable(map(repeat, levels, counts))
    writes = snapshots_of(problem, levels_of_passes, sizes, machine.threads, acquisition.staging)
    each = [(count, work) for count, (_, work) in zip(counts, works, strict=True)]
    for count, work in each:
        for snapshots, times in (Counter(islice(writes, count)) if has_snapshots else {NO_WRITES: count}).items():
            key = id(work), snapshots
            if key not in known:
                known[key] = _simulate(work, machine, cell_rate, aside_seconds(work, machine, snapshots), snapshots)
            seconds += times * known[key]
    read, written = sum(n * work.bytes_read for n, work in each), sum(n * work.bytes_written for n, work in each)
    sent, received = sum(n * work.bytes_sent for n, work in each), sum(n * work.bytes_received for n, work in each)
    return Prediction(
        seconds=seconds,
        bytes_read=read,
        bytes_written=written,
        memory_bytes=window.bytes + acquisition.bytes(problem.steps_of(max(levels, default=0))),
        seconds_update=sum(n * work.cells for n, work in each) / cell_rate,
        seconds_read=read / device.read_bytes_per_second,
        seconds_write=written / device.write_bytes_per_second,
        seconds_transfer=device.seconds_transfer(read, written),
        seconds_commit=sum(counts) * device.seconds_flush,
        bytes_sent=sent,
        bytes_received=received,
        seconds_checksum=(read + written + sent + received) / machine.checksum_bytes_per_second,
    )


def aside_seconds(work: PassWork, machine: Machine, snapshots: SnapshotWrites) -> float:
    """Return the time that the cores need in a pass for all work except updates. The work that is not an update
    consists of checksums, requests, cache misses, snapshots, and the start and end of each slab."""
    moved = work.bytes_read + work.bytes_written + work.bytes_sent + work.bytes_received
    missed = moved * min(1.0, machine.last_cache_bytes / work.window_bytes) / MEMORY_BYTES_PER_SECOND
    requests = work.requests * REQUEST_SECONDS / machine.threads
    checksums = moved / machine.checksum_bytes_per_second
    return missed + checksums + requests + SLAB_SECONDS * work.updates + snapshot_seconds_aside(snapshots, machine)


def snapshot_seconds_aside(snapshots: SnapshotWrites, machine: Machine) -> float:
    """Return the time that the cores need for the snapshots of a pass: copies, checksums and writes."""
    copies = snapshots.bytes * (COPIES / MEMORY_BYTES_PER_SECOND + 1 / machine.checksum_bytes_per_second)
    means = snapshots.mean_cells / (MEAN_CELLS_PER_SECOND * machine.threads)
    return copies + means + snapshots.writes * SNAPSHOT_WRITE_SECONDS / machine.threads


def snapshot_seconds_device(snapshots: SnapshotWrites, device: StorageRates) -> float:
    """Return the time that the device needs for the snapshots of a pass if the device makes no other transfers."""
    rate = device.first_write_bytes_per_second or device.write_bytes_per_second
    return snapshots.bytes / rate + snapshots.writes * SNAPSHOT_WRITE_SECONDS


def _requests(problem: Problem, move: Read | Write) -> int:
    """Return the number of system calls that a Read or Write needs. One system call can transfer several whole planes
    that are adjacent in a file (transfers.cpp). If the action exchanges rows with a neighbour, the result is the number
    of messages. Short messages that are sent together count as one message."""
    if move.array == "history" and problem.shape[2] * problem.item_bytes != problem.pitch_bytes:
        # rows have padding in memory, but not in the file, so each row needs a call
        return (move.z1 - move.z0) * (move.area.y1 - move.area.y0)
    is_kept = move.array not in ("fringes", "recomputed", *FACES)
    are_adjacent = move.area == problem.whole_plane and is_kept and not problem.periodic[0]
    together = max(1, TOGETHER_BYTES // problem.record_bytes) if are_adjacent else 1
    calls = -(-(move.z1 - move.z0) // together) * arrays_moved(problem, move)
    if move.array in ("stairs", "finished"):
        return max(-(-calls // TOGETHER_MESSAGES), -(-transfer_bytes(problem, move) // TOGETHER_BYTES))
    return calls
