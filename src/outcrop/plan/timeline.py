"""What goes on when, during a pass: the model behind predicted seconds, and the time line that is drawn.

One thread takes the actions in order. Transfers are only begun by it; they go on, reads and writes side by side, while
it updates. An update waits for the planes it reads:

    read    |0 |1 |2 |3
    update     |0  |1  |2  |3         the first has nothing to hide behind; later ones are late only where
    write          |0  |1  |2  |3     transfers take longer than updates
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from outcrop.plan.actions import Block, Commit, Copy, Read, Update, Write
from outcrop.plan.machine import Device, Machine
from outcrop.plan.plan import Pass
from outcrop.plan.problem import Problem
from outcrop.plan.volume import cell_updates, transfer_bytes


@dataclass(frozen=True, slots=True)
class Span:
    """Something that goes on from `start` to `end` (seconds): "read", "update", "write" or "flush"."""

    what: str
    start: float
    end: float


def timeline(
    problem: Problem, one: Pass, machine: Machine, cells_per_second: float, seconds_aside: float = 0.0
) -> Iterator[Span]:
    """Spans of one pass in order of their ends. Updates share `seconds_aside` of the processors' time equally, which is
    for what goes with their planes: where updates wait for a device, that hides behind the waiting, too."""
    transfers, shift = _Transfers(machine.device), 0
    each_aside = seconds_aside / max(1, sum(isinstance(action, Update) for action in one.actions))
    for action in one.actions:
        match action:
            case Read():
                planes = _Planes(action.z0 + shift, action.z1 + shift, action.array == "statics")
                transfers.begin_read(planes, transfer_bytes(problem, action))
            case Block():
                shift = action.shift
            case Write():
                transfers.begin_write(transfer_bytes(problem, action))
            case Copy():
                yield from transfers.wait_for(action.z1 + shift, action.z1 + shift)
            case Update():
                ends = (
                    min(problem.planes, action.zeta1 + more) + shift for more in (problem.skew_z, problem.statics_z)
                )
                yield from transfers.wait_for(*ends)
                start = transfers.now
                yield from transfers.go_on(cell_updates(problem, action) / cells_per_second + each_aside)
                yield Span("update", start, transfers.now)
            case Commit():
                yield from transfers.finish()
                yield Span("flush", transfers.now, transfers.now + machine.device.seconds_flush)
            case _:
                pass


@dataclass(frozen=True, slots=True)
class _Planes:
    """Planes from `z0`, a part of one perhaps, to before `z1`, of what is updated or of what is only read."""

    z0: float
    z1: int
    are_static: bool

    def share_below(self, z_end: int) -> float:
        """Of them, those below a plane."""
        return min(1.0, max(0.0, (z_end - self.z0) / (self.z1 - self.z0)))


class _Transfers:
    """What has been asked of the device and is not done yet; `now` is the time of the thread that asks."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._reads: deque[tuple[_Planes, float]] = deque()  # with the bytes left of them, in order
        self._read = self._written = 0.0  # bytes left of each
        self.now = 0.0

    def begin_read(self, planes: _Planes, count: int) -> None:
        self._reads.append((planes, count))
        self._read += count

    def begin_write(self, count: int) -> None:
        self._written += count

    def wait_for(self, z_end: int, z_end_static: int) -> Iterator[Span]:
        """Until planes below `z_end`, of what is only read those below `z_end_static`, have arrived, and with them all
        that was asked for before."""
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
        """Let transfers go on for so long."""
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
        """Let everything end."""
        while self._read > 0 or self._written > 0:
            step, _, _ = self._step(float("inf"))
            yield from self.go_on(step)

    def _step(self, seconds: float) -> tuple[float, float, float]:
        """The time until one of both directions ends, at most `seconds`, and what both move meanwhile."""
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
        self._written = _rest(self._written, written)
        while self._reads and read > 0:
            planes, count = self._reads.popleft()
            if count > read * (1 + 1e-9):
                rest = (planes.z1 - planes.z0) * (count - read) / count
                self._reads.appendleft((replace(planes, z0=planes.z1 - rest), count - read))
                return
            read -= count


def _rest(whole: float, part: float) -> float:
    """`whole` - `part`, and nothing where only rounding is left."""
    return whole - part if whole - part > 1e-6 * part else 0.0
