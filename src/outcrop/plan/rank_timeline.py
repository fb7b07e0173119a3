"""Simulate the time line of many ranks. Each rank runs a part of a grid.

All ranks update the same list of slabs (ranks.py). The simulation computes one slab of all ranks at a time, so a
simulation of 1024 ranks takes only seconds:

    rank j      read s+1 ──► send s+1 ──┐     update s        write s-1
                                        ▼
    rank j+1                     receive s+1  ──►  update s+1

A rank begins to update a slab after the update of the previous slab. In addition, the planes of the slab must have
arrived from the disk and from both neighbours. Reads and writes share the disk as in cost.py. The network card of a
rank transfers one message after the other. The network stores no bytes, so a message ends when the neighbour has
received the whole message. Before a rank overwrites the older generation, all ranks must have committed the newer
generation.

`Disturbance` makes the times of updates random, because the speed of real ranks varies from moment to moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.plan.actions import SIDES
from outcrop.plan.cost import COMMIT, COPY, NOT_SENT, TRIANGLE, UPDATE, Event, PassWork, aside_seconds, works_of
from outcrop.plan.machine import Machine, StorageRates, UpdateRate
from outcrop.plan.plan import Plan
from outcrop.plan.ranks import RankPlans, neighbour_of
from outcrop.plan.staging import NO_WRITES

Numbers = NDArray[np.float64]
"""An array with one number for each rank."""

SLABS_PER_STALL = 200
"""The mean number of slabs from one stall of a rank to the next."""
DRAWN_SPANS = 20_000
"""The maximum number of spans that are kept for a picture."""


@dataclass(frozen=True)
class Disturbance:
    """Random delays of updates.

    The update of each slab takes the predicted time multiplied by 1 + `jitter` * n. The random number n has the
    standard normal distribution, limited to the range from -3 to 3. In addition, each slab of each rank can stall: with
    the probability 1 / SLABS_PER_STALL, the slab is delayed by `stall_seconds`. The same `seed` gives the same delays.
    """

    jitter: float = 0.0
    stall_seconds: float = 0.0
    seed: int = 0


NO_DISTURBANCE = Disturbance()


@dataclass(frozen=True)
class RankSpan:
    """A period in the time line of the rank `rank`, from `start` to `end` in seconds. `what` says what the rank does in
    this period: "update", "faces" (waits for messages), "disk" (waits for reads), "flush" or "commit" (waits for the
    commits of other ranks)."""

    rank: int
    what: str
    start: float
    end: float


@dataclass(frozen=True)
class RankTimeline:
    """The simulated times of all ranks. Each array has one number of seconds for each rank.

    `end` is the time at which the rank has committed its last pass. `update` is the time of updates, with their random
    delays. `twice` is the part of `update` that the rank needs for rows of its neighbours. `faces`, `disk` and `commit`
    are times of waiting. A rank waits for messages of neighbours (`faces`), for reads and flushes of the disk (`disk`),
    and for the commits of other ranks (`commit`). `spans` has the periods of the first ranks, for a picture."""

    end: Numbers
    update: Numbers
    twice: Numbers
    faces: Numbers
    disk: Numbers
    commit: Numbers
    spans: tuple[RankSpan, ...]

    @property
    def seconds(self) -> float:
        """The time at which the last rank has finished."""
        return float(self.end.max())

    @property
    def slowest(self) -> int:
        """The rank that is finished last."""
        return int(self.end.argmax())

    def shares(self) -> dict[str, float]:
        """Return the shares of the time of all ranks. There are shares for useful updates, for updates of rows of
        neighbours, for each kind of waiting, and for the time after a rank has finished. The sum of all shares is 1."""
        whole = self.seconds * len(self.end)
        times = {"faces": self.faces, "disk": self.disk, "commit": self.commit, "finished": self.seconds - self.end}
        shares = {what: float(one.sum()) / whole for what, one in times.items()}
        twice = max(0.0, float(self.twice.sum())) / whole
        return {"useful": 1 - twice - sum(shares.values()), "twice": twice, **shares}


def simulate(
    ranks: RankPlans,
    machine: Machine,
    rate: UpdateRate,
    disturbance: Disturbance = NO_DISTURBANCE,
    drawn_ranks: int = 0,
) -> RankTimeline:
    """Simulate all passes of all ranks. All ranks have the figures `machine` and `rate`. The spans of the first
    `drawn_ranks` ranks are kept."""
    return _Simulation(ranks, machine, rate, disturbance, drawn_ranks).run()


class _Events:
    """The events of one pass of all ranks. Each attribute has the shape (events, ranks).

    Before event e, a rank begins to read `read` bytes, to write `written` bytes, and to send `sent[side]` bytes to the
    neighbour at each side. The event begins when two conditions are true: `needed` bytes of all reads have arrived, and
    all messages that began at event `faces_of[e]` or earlier have arrived. If `faces_of[e]` is -1, the event waits for
    no messages. Ranks can have different values of `faces_of[e]`.

    With split tiling, the lowest and the highest rank lack some events of the other ranks. Ranks can also have
    different numbers of blocks. An event without work replaces each missing event."""

    def __init__(self, works: Sequence[PassWork], kinds: NDArray[np.intp]) -> None:
        slabs = max(map(_slabs_of_last_block, works))
        keyed = [dict(_keyed(one, slabs)) for one in works]
        keys = sorted(set().union(*keyed))
        events = [_filled(one, keys) for one in keyed]
        self.is_update = [key[2] in (UPDATE, TRIANGLE) for key in keys]

        def of(name: str) -> Numbers:
            return np.array([[getattr(event, name) for event in one] for one in events], float)[kinds].T

        self.read, self.written = of("read"), of("written")
        sent = np.array([[event.sent for event in one] for one in events], float)
        self.sent: Sequence[Numbers] = list(sent[kinds].T)
        self.needed, self.cells = of("needed"), of("cells")
        self.begun = np.cumsum(self.read, axis=0)
        received, wanted = np.cumsum(of("received"), axis=0), of("needed_faces")
        self.faces_of = np.full(wanted.shape, -1)
        for rank in _few(kinds):
            reached = np.searchsorted(received[:, rank], wanted[:, rank])
            self.faces_of[:, kinds == kinds[rank]] = np.where(wanted[:, rank] > 0, reached, -1)[:, np.newaxis]


_Key: TypeAlias = tuple[int, int, int, int]
"""The key of an event. The four numbers are the block, the number of slabs of the block up to this event, the phase,
and a counter. The counter is the number of earlier events with the same first three numbers. The last blocks of all
ranks have the same number. Ranks perform their events in the order of these keys."""
LAST_BLOCK = 1 << 30


def _slabs_of_last_block(work: PassWork) -> int:
    last = max((event.block for event in work.events), default=0)
    return sum(event.block == last and event.phase == UPDATE for event in work.events)


def _keyed(work: PassWork, max_slabs: int) -> Iterator[tuple[_Key, Event]]:
    """Yield the events with their keys. `max_slabs` is the largest number of slabs that a rank has in its last block.

    If the grid is cut along z, the lowest ranks have fewer slabs. During their first slabs, the lowest ranks send
    planes to the neighbours above. During their last slabs, the lowest ranks need planes from the neighbours above. So
    the slabs that the lowest ranks lack are in the middle of the pass."""
    slabs, counts = dict[int, int](), dict[tuple[int, int, int], int]()
    last, own = max((event.block for event in work.events), default=0), _slabs_of_last_block(work)
    for event in work.events:
        block = LAST_BLOCK if event.block == last else event.block
        before = slabs[block] = slabs.get(block, 0) + (event.phase == UPDATE)
        if block == LAST_BLOCK and before > own // 2:
            before += max_slabs - own
        number = counts.get((block, before, event.phase), 0)
        counts[block, before, event.phase] = number + 1
        # a Copy belongs to the next slab, and the commit comes after all other events
        later = {COPY: 1, COMMIT: 2}.get(event.phase, 0)
        yield (block, before + later, event.phase, number), event


def _filled(events: dict[_Key, Event], keys: Sequence[_Key]) -> list[Event]:
    """Return the events of all `keys`. In place of a missing event, the result has an event without work. This event
    without work also begins the transfers of the next event, because these transfers directly follow the previous
    event."""
    found = list[Event]()
    begun = dict(events)
    left = sorted(events)
    for key in keys:
        if not left:
            found.append(Event(key[2], 0, 0, 0.0, 0))
        elif key == left[0]:
            found.append(begun[left.pop(0)])
        else:
            later = begun[left[0]]
            found.append(replace(later, phase=key[2], needed=0.0, cells=0, needed_faces=0.0))
            begun[left[0]] = replace(later, read=0, written=0, sent=NOT_SENT, received=0)
    return found


def _few(kinds: NDArray[np.intp]) -> list[int]:
    """Return one rank of each kind. Ranks of the same kind have equal plans."""
    return [int(np.argmax(kinds == kind)) for kind in np.unique(kinds)]


class _Simulation:
    """The current state of the simulation: arrays with one number for each rank."""

    def __init__(
        self, ranks: RankPlans, machine: Machine, rate: UpdateRate, disturbance: Disturbance, drawn_ranks: int
    ) -> None:
        count = ranks.ranks
        different = {id(plan): plan for plan in ranks.plans}
        numbers = {key: number for number, key in enumerate(different)}
        self._plans: list[Plan] = list(different.values())
        self._kinds = np.array([numbers[id(plan)] for plan in ranks.plans])
        sides = [
            [neighbour_of(ranks.problem, ranks.cut, rank, side, ranks.planes) for rank in range(count)]
            for side in SIDES
        ]
        self._other = [np.array([rank if one is None else one for rank, one in enumerate(side)]) for side in sides]
        self._machine, self._rates = machine, [rate(plan.sizes) for plan in self._plans]
        self._disturbance, self._random = disturbance, np.random.default_rng(disturbance.seed)
        self._network, self._disk = machine.network, _Disk(machine.device, count)
        self._count, self._drawn = count, drawn_ranks
        self._spans: list[RankSpan] = []
        zeros = np.zeros(count)
        self._now, self._card_free, self._committed = zeros.copy(), zeros.copy(), zeros.copy()
        self._update, self._twice, self._faces = zeros.copy(), zeros.copy(), zeros.copy()
        self._waited_disk, self._waited_commit = zeros.copy(), zeros.copy()

    def run(self) -> RankTimeline:
        works = [works_of(plan.problem, plan.passes) for plan in self._plans]
        known: dict[tuple[int, ...], _Events] = {}
        for number in range(len(works[0])):
            of_pass = [one[number][1] for one in works]
            key = tuple(map(id, of_pass))
            if key not in known:
                known[key] = _Events(of_pass, self._kinds)
            self._run_pass(known[key], of_pass, works[0][number][0])
        return RankTimeline(
            self._now, self._update, self._twice, self._faces, self._waited_disk, self._waited_commit,
            tuple(self._spans),
        )  # fmt: skip

    def _run_pass(self, events: _Events, works: Sequence[PassWork], levels: int) -> None:
        # an update takes the time for its cells, plus a share of the time of all other work of the cores
        rates = np.array(self._rates)[self._kinds]
        asides = [aside_seconds(work, self._machine, NO_WRITES) / max(1, work.updates) for work in works]
        aside = np.array(asides)[self._kinds]
        own = np.array([_own_cells(plan, levels) for plan in self._plans], float)[self._kinds]
        # With split tiling, the lowest rank updates more rows than it owns, and the highest rank updates fewer rows
        # than it owns.
        self._twice += (events.cells.sum(axis=0) - own) / rates
        arrivals = np.zeros(events.read.shape)  # the times at which all messages of an event have been transferred
        every_rank = np.arange(self._count)
        has_written = False
        for event, is_update in enumerate(events.is_update):
            # the first write of a pass overwrites the older generation, so all ranks must have committed the newer
            # generation
            if not has_written and events.written[event].any():
                has_written = True
                self._wait(self._committed, self._waited_commit, "commit")
            self._disk.begin(events.read[event], events.written[event])
            arrivals[event] = self._send([sent[event] for sent in events.sent])
            self._wait_for_reads(events.begun[event] - events.needed[event])
            awaited = events.faces_of[event]
            self._wait(np.where(awaited >= 0, arrivals[awaited, every_rank], 0.0), self._faces, "faces")
            if is_update:
                has_work = events.cells[event] > 0  # an update of no cells has no share of the other work of the cores
                seconds = np.where(has_work, events.cells[event] / rates + aside, 0.0) * self._factors()
                self._spend(seconds, self._update, "update")
        self._wait(self._card_free, self._faces, "faces")
        before = self._now.copy()
        self._now = self._disk.finish(self._now) + self._machine.device.seconds_flush
        self._waited_disk += self._now - before
        self._keep("flush", before, self._now)
        # The ranks agree on the committed generation by a reduction in a tree. The tree has one level for each doubling
        # of the number of ranks. Each level needs one message up and one message down.
        hops = 2 * ceil(log2(self._count)) if self._count > 1 else 0
        self._committed = np.full(self._count, float(self._now.max()) + hops * self._network.seconds_latency)

    def _send(self, sent: Sequence[Numbers]) -> Numbers:
        """Begin to send bytes to the neighbour at each side (SIDES). For each rank, return the time at which all
        messages that the rank receives and sends are complete."""
        ready = np.maximum(self._disk.seconds_until_read(self._now), self._card_free)
        come, gone = self._now.copy(), self._now.copy()
        for count, other in zip(sent, self._other, strict=True):
            has = count > 0
            each = count / self._network.bytes_per_second
            end = np.where(has, np.maximum(ready, self._now[other]) + each, ready)
            arrived = np.where(has, end + self._network.seconds_latency, 0.0)
            gone = np.maximum(gone, np.where(has, end, 0.0))
            np.maximum.at(come, other, arrived)
            ready = end
        self._card_free = np.where(np.any(np.array(sent) > 0, axis=0), ready, self._card_free)
        latest: Numbers = np.maximum(come, gone)
        return latest

    def _factors(self) -> Numbers:
        given = self._disturbance
        if not given.jitter and not given.stall_seconds:
            return np.ones(self._count)
        normal = np.clip(self._random.standard_normal(self._count), -3, 3)
        if given.stall_seconds:
            is_stalled = self._random.random(self._count) < 1 / SLABS_PER_STALL
            self._spend(np.where(is_stalled, given.stall_seconds, 0.0), self._update, "update")
        factors: Numbers = np.maximum(0.0, 1 + given.jitter * normal)
        return factors

    def _wait_for_reads(self, left: Numbers) -> None:
        """Wait until at most `left` bytes of all reads are in progress."""
        before = self._now
        self._now = self._disk.until_read(self._now, left)
        self._waited_disk += self._now - before
        self._keep("disk", before, self._now)

    def _wait(self, until: Numbers, waited: Numbers, what: str) -> None:
        self._spend(np.maximum(0.0, until - self._now), waited, what)

    def _spend(self, seconds: Numbers, counter: Numbers, what: str) -> None:
        before = self._now
        self._disk.go_on(seconds)
        self._now = self._now + seconds
        counter += seconds
        self._keep(what, before, self._now)

    def _keep(self, what: str, start: Numbers, end: Numbers) -> None:
        for rank in range(min(self._drawn, self._count)):
            if end[rank] > start[rank] and len(self._spans) < DRAWN_SPANS:
                self._spans.append(RankSpan(rank, what, float(start[rank]), float(end[rank])))


def _own_cells(plan: Plan, levels: int) -> int:
    """Return the number of cell updates of a pass, without the updates in the halo."""
    problem = plan.problem
    (first, end), (low, high) = problem.own_rows, problem.own_planes
    return levels * (high - low) * (end - first) * problem.shape[2]


class _Disk:
    """The bytes that each rank must still read and write. Reads and writes that are in progress at the same time share
    the mixed bandwidth equally, as in cost.py."""

    def __init__(self, rates: StorageRates, ranks: int) -> None:
        self._rates = rates
        self._read, self._written = np.zeros(ranks), np.zeros(ranks)

    def begin(self, read: Numbers, written: Numbers) -> None:
        self._read = self._read + read
        self._written = self._written + written

    def go_on(self, seconds: Numbers) -> None:
        """Transfer for the given seconds. Reads and writes share the disk until all reads or all writes are complete.
        When all reads or all writes are complete, the remaining transfers use the whole bandwidth."""
        each = self._rates.mixed_bytes_per_second / 2
        both = np.minimum(seconds, np.minimum(self._read, self._written) / each)
        alone = seconds - both
        read = self._read - both * each
        written = self._written - both * each
        self._read = np.maximum(0.0, read - np.where(written > 0, 0.0, alone) * self._rates.read_bytes_per_second)
        self._written = np.maximum(0.0, written - np.where(read > 0, 0.0, alone) * self._rates.write_bytes_per_second)

    def seconds_until_read(self, now: Numbers, left: Numbers | float = 0.0) -> Numbers:
        """Return the times at which at most `left` bytes of reads remain, if no other transfers begin."""
        each = self._rates.mixed_bytes_per_second / 2
        needed = np.maximum(0.0, self._read - left)
        both = np.minimum(needed, self._written)
        result: Numbers = now + both / each + (needed - both) / self._rates.read_bytes_per_second
        return result

    def until_read(self, now: Numbers, left: Numbers) -> Numbers:
        """Transfer until at most `left` bytes of reads remain, and return the times at which these transfers have
        ended."""
        end = self.seconds_until_read(now, left)
        self.go_on(end - now)
        return end

    def finish(self, now: Numbers) -> Numbers:
        """Transfer all bytes, and return the times at which all transfers have ended."""
        each = self._rates.mixed_bytes_per_second / 2
        both = np.minimum(self._read, self._written)
        rest = (self._read - both) / self._rates.read_bytes_per_second
        rest = rest + (self._written - both) / self._rates.write_bytes_per_second
        end: Numbers = now + both / each + rest
        self._read, self._written = np.zeros_like(now), np.zeros_like(now)
        return end
