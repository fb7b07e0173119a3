"""Choose which process runs, and when a process is killed, the power fails, or a call fails. One seed determines all
choices.

Processes are threads, and only one of them runs at a time. A switch to another thread happens only at certain system
calls. The seed selects these calls, so the same seed always gives the same history.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from random import Random
from typing import Any

CALLS_MOST = 100_000
"""A process that makes more system calls than this number is in an endless loop."""


class Killed(BaseException):
    """The exception that ends a killed process. All system calls of the process raise it after the kill."""


class Process:
    """A process that runs a function. `result` is the result of the function, and `error` is the exception that the
    function raised. Both values are None while the process runs, and also after the process was killed.
    """

    def __init__(self, name: str, function: Callable[[], Any], exit: Callable[[Process], None]) -> None:
        self.name, self.function, self.exit = name, function, exit
        self.handles: set[int] = set()
        self.is_dead = False
        self.result: Any = None
        self.error: Exception | None = None
        self.turn = _thread.allocate_lock()
        self.turn.acquire()

    def work(self) -> None:
        """Run the function until it ends."""
        try:
            self.result = self.function()
        except Killed:
            assert self.is_dead
        except Exception as error:
            if not self.is_dead:
                self.error = error
        self.exit(self)


class Chance:
    """The random events of one history. A rate is the number of events per system call."""

    def __init__(self, seed: object) -> None:
        self.random = Random(seed)
        self.kills = self.crashes = self.faults = self.switches = 0.0
        self.count = {"kill": 0, "crash": 0, "fault": 0, "switch": 0}

    def rates(self, kills: float = 0.0, crashes: float = 0.0, faults: float = 0.0, switches: float = 0.0) -> None:
        """Set the rates of events for all later system calls."""
        self.kills, self.crashes, self.faults, self.switches = kills, crashes, faults, switches

    def next(self, calls: int) -> tuple[int, str]:
        """Choose the next event at random. Return the number of the system call in which the event happens, and the
        kind of the event. `calls` is the number of system calls so far."""
        rates = (("kill", self.kills), ("crash", self.crashes), ("fault", self.faults), ("switch", self.switches))
        when = [(calls + 1 + int(self.random.expovariate(rate)), what) for what, rate in rates if rate]
        return min(when, default=(1 << 60, ""))


class Turns:
    """Processes that take turns. Only one process runs at a time."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.current: Process | None = None
        self._running: list[Process] = []
        self._all_done = _thread.allocate_lock()

    def run(self, processes: list[Process]) -> None:
        """Run the processes until all have ended."""
        if len(processes) == 1:  # a single process needs no thread
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
        """Let another process run, and wait for the next turn of the calling process."""
        own = self.current
        others = [one for one in self._running if one is not own]
        if own is not None and others:
            self._wake(self._random.choice(others))
            own.turn.acquire()

    def running(self) -> list[Process]:
        """Return the processes that have not ended."""
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
