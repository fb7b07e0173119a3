"""When a process is killed, power fails, a call goes wrong, or another process goes on; all of it from one seed.

Processes are threads; only one of them runs at a time. They hand over to each other at system calls, and only where the
seed says so, so that a seed gives the same history every time.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from random import Random
from typing import Any

CALLS_MOST = 100_000
"""A process that makes more calls than that has gone astray."""


class Killed(BaseException):
    """Raised by system calls of a process that is no more, so that its code comes to an end."""


class Process:
    """A process. `result` is what its function returned, `error` what it raised; both None while it runs, and when it
    was killed."""

    def __init__(self, name: str, function: Callable[[], Any], exit: Callable[[Process], None]) -> None:
        self.name, self.function, self.exit = name, function, exit
        self.handles: set[int] = set()
        self.is_dead = False
        self.result: Any = None
        self.error: Exception | None = None
        self.turn = _thread.allocate_lock()
        self.turn.acquire()

    def work(self) -> None:
        """Run to the end."""
        try:
            self.result = self.function()
        except Killed:
            assert self.is_dead
        except Exception as error:
            if not self.is_dead:
                self.error = error
        self.exit(self)


class Chance:
    """What befalls the processes of one history. Rates are per call."""

    def __init__(self, seed: object) -> None:
        self.random = Random(seed)
        self.kills = self.crashes = self.faults = self.switches = 0.0
        self.count = {"kill": 0, "crash": 0, "fault": 0, "switch": 0}

    def rates(self, kills: float = 0.0, crashes: float = 0.0, faults: float = 0.0, switches: float = 0.0) -> None:
        """Set how often things happen from here on."""
        self.kills, self.crashes, self.faults, self.switches = kills, crashes, faults, switches

    def next(self, calls: int) -> tuple[int, str]:
        """Return the number of the next call at which something happens, after `calls` of them, and what."""
        rates = (("kill", self.kills), ("crash", self.crashes), ("fault", self.faults), ("switch", self.switches))
        when = [(calls + 1 + int(self.random.expovariate(rate)), what) for what, rate in rates if rate]
        return min(when, default=(1 << 60, ""))


class Turns:
    """Processes of which one runs at a time."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.current: Process | None = None
        self._running: list[Process] = []
        self._all_done = _thread.allocate_lock()

    def run(self, processes: list[Process]) -> None:
        """Run processes until all have come to an end."""
        if len(processes) == 1:  # as always, but without a thread
            self.current = processes[0]
            processes[0].work()
            self.current = None
            return
        self._running = list(processes)
        threads = [threading.Thread(target=self._body, args=(one,)) for one in processes]
        for thread in threads:
            thread.start()
        self._all_done.acquire()
        self._wake(self._random.choice(processes))
        self._all_done.acquire()
        self._all_done.release()
        for thread in threads:
            thread.join()

    def hand_over(self) -> None:
        """Let another process go on, until it is this one's turn again."""
        own = self.current
        others = [one for one in self._running if one is not own]
        if own is not None and others:
            self._wake(self._random.choice(others))
            own.turn.acquire()

    def running(self) -> list[Process]:
        """Those that have not come to an end."""
        return self._running or [one for one in [self.current] if one is not None]

    def _wake(self, process: Process) -> None:
        self.current = process
        process.turn.release()

    def _body(self, process: Process) -> None:
        process.turn.acquire()
        process.work()
        self._running.remove(process)
        if self._running:
            self._wake(self._random.choice(self._running))
        else:
            self.current = None
            self._all_done.release()
