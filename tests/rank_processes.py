"""Start processes that form a `RankGroup` without MPI, for tests."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from outcrop.errors import OutcropError
from outcrop.run.ranks.group import RankGroup

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["numpy", "outcrop.run.simulation", "outcrop.language.library", "rank_processes"])
SECONDS_MOST = 120


class RankProcesses:
    """The processes of `size` ranks. Each process calls `program(group, *arguments)`.

    `results` waits until all processes have ended, and returns a list. An entry is the result of `program`, or None if
    the process was killed. An OutcropError becomes the tuple (name of the type, message, whether another rank prints
    the message)."""

    def __init__(self, size: int, program: Callable[..., Any], *arguments: Any) -> None:
        to_others = [SPAWN.Pipe() for _ in range(size - 1)]
        self._answers: list[Connection] = []
        self.processes: list[ForkServerProcess] = []
        for rank in range(size):
            ends = [far for far, _ in to_others] if rank == 0 else [to_others[rank - 1][1]]
            answer, give = SPAWN.Pipe(duplex=False)
            process = SPAWN.Process(target=_main, args=(rank, size, ends, give, program, arguments))
            process.start()
            give.close()
            self._answers.append(answer)
            self.processes.append(process)
        for near, far in to_others:
            near.close()
            far.close()

    def kill(self, rank: int) -> None:
        self.processes[rank].kill()

    @property
    def results(self) -> list[Any]:
        found = []
        for process, answer in zip(self.processes, self._answers, strict=True):
            try:
                found.append(answer.recv() if answer.poll(SECONDS_MOST) else "no answer")
            except (EOFError, OSError):  # the process was killed, perhaps while it sent its result
                found.append(None)
            process.join(SECONDS_MOST)
            if process.exitcode is None and process.pid is not None:
                os.kill(process.pid, signal.SIGUSR1)  # print where all threads of the process are
                process.join(1)
                process.kill()
                found[-1] = "it did not end"
        return found


def ranks(size: int, program: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return the results of `program(group, *arguments)` on `size` ranks."""
    return RankProcesses(size, program, *arguments).results


def die() -> None:
    """End this process without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(kind: Any, name: str, count: int, before: bool = False, later: float | None = None) -> None:
    """Replace a function so that this process is killed after call number `count` of the function. Calls are counted
    from 0. If `later` is given, the kill happens `later` seconds after the start of this call. If `before` is true, the
    process waits for `later` seconds and is then killed before the call."""
    original: Callable[..., Any] = getattr(kind, name)
    calls = iter(range(count))

    def call(*given: Any, **named: Any) -> Any:
        is_last = next(calls, None) is None
        if is_last and before:
            time.sleep(later or 0)
            die()
        if is_last and later is not None:
            threading.Timer(later, die).start()
        result = original(*given, **named)
        if is_last and later is None:
            die()
        return result

    setattr(kind, name, call)


def _main(
    rank: int, size: int, ends: list[Connection], give: Connection, program: Callable[..., Any], arguments: Any
) -> None:
    def spread(text: str | None) -> str:
        if text is None:
            return str(ends[0].recv())
        for end in ends:
            end.send(text)
        return text

    faulthandler.register(signal.SIGUSR1)
    try:
        group = RankGroup(rank, size, spread)
        result = program(group, *arguments)
        give.send(result)
        group.close()
    except OutcropError as error:
        give.send((type(error).__name__, str(error), error.is_told_elsewhere))
    except BaseException:
        give.send(traceback.format_exc())
        raise
