"""Run one case in a separate process with limits, and describe how this process ended."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .jail import limit

TERM_SECONDS = 3.0
"""The time in which a process must end after SIGTERM."""


@dataclass(frozen=True)
class Ended:
    """Describes how a case ended. `code` is the exit code. It is negative if a signal ended the process, and None if
    the process did not end in time.
    """

    code: int | None
    heeds_sigterm: bool
    peak_bytes: int
    out: str
    err: str
    seconds: float


def apart(act: Callable[[], object]) -> None:
    """Run a function in a child process, so that this process gets no threads. Raise RuntimeError if the child fails.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(f"preparing {act} failed with status {status}")


def run_case(act: Callable[[], int], here: Path, folder: Path, stdout: str, seconds: float) -> Ended:
    """Run `act` in a child process whose working directory is `here`, and describe how the process ended. The output is
    written to files in `folder`.

    `stdout` is "file", "full" (a full device), "closed" or "broken" (a pipe without a reader).
    """
    texts = folder / "out", folder / "err"
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_case(act, here, texts, stdout, seconds)
    status, peak, hung, heeds = _wait(child, seconds)
    with suppress(OSError):
        os.killpg(child, signal.SIGKILL)  # this ends child processes that still run after the case
    out, err = (text.read_bytes()[:200_000].decode(errors="replace") for text in texts)
    code = None if hung else os.waitstatus_to_exitcode(status)
    return Ended(code, heeds, peak, out, err, time.monotonic() - begin)


def _wait(child: int, seconds: float) -> tuple[int, int, bool, bool]:
    """Wait for the child. Return the wait status and the peak memory of the child, and two flags. The first flag is
    True if the child did not end in time. The second flag is False if only SIGKILL ended the child."""
    begin, pause = time.monotonic(), 0.001
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            return status, usage.ru_maxrss * 1024, False, True
        if time.monotonic() - begin > seconds:
            break
        time.sleep(pause)
        pause = min(0.02, pause * 1.2)
    os.kill(child, signal.SIGTERM)
    begin = time.monotonic()
    while time.monotonic() - begin < TERM_SECONDS:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            return status, usage.ru_maxrss * 1024, True, True
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return status, usage.ru_maxrss * 1024, True, False


def _be_the_case(act: Callable[[], int], here: Path, texts: tuple[Path, Path], stdout: str, seconds: float) -> NoReturn:
    code = 1
    try:
        os.setsid()
        os.chdir(here)
        out, err = (os.open(text, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) for text in texts)
        os.dup2(err, 2)
        if stdout == "full":
            out = os.open("/dev/full", os.O_WRONLY)
        elif stdout == "broken":
            reading, out = os.pipe()
            os.close(reading)
        os.dup2(out, 1)
        if stdout == "closed":
            os.close(1)
            sys.stdout = None  # type: ignore[assignment]  # as the interpreter does it
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.closerange(3, 64)
        os.umask(0o022)
        limit(seconds)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = act()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        code = _flush(code)
        os._exit(code)


def _flush(code: int) -> int:
    """Flush the output as the Python interpreter does when it ends. Return 120 if the output cannot be written,
    otherwise `code`."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            code = 120
    return code
