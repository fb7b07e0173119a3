"""The progress that a run commits together with its values, for programs that watch the run.

A program that watches a run takes no lock, because its lock could stop a process that wants to continue the run. So
the manifest tells such a program whether the run is still computed:

    process     a mark of the process that computes the steps: the computer, the process and its start
    is_stopped  the run was interrupted, and the process had time to say so

`is_alive` compares the mark with the processes of this computer. If the process is on another computer or in another
container, only the time since the last commit shows whether the process still runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from outcrop.errors import OutcropError
from outcrop.plan.plan import Plan
from outcrop.run.disk.entries import PaceEntry
from outcrop.run.disk.state import State


def new_pace(plan: Plan, first_step: int, cells: int) -> PaceEntry:
    """Return the progress of a call of `run` that begins now. `cells` is the number of cells that a step updates."""
    steps, guess = plan.problem.steps, plan.predicted
    return PaceEntry(
        begun=round(time.time(), 3),
        first_step=first_step,
        last_step=first_step + steps,
        pass_steps=max(1, plan.problem.steps_of(plan.passes[0].levels)),
        cells=cells,
        predicted_seconds=round(guess.seconds, 6),
        predicted_bytes_read=guess.bytes_read,
        predicted_bytes_written=guess.bytes_written,
        process=process_mark(),
    )


def with_measured(
    pace: PaceEntry | None, seconds: float, bytes_read: int, bytes_written: int, not_finite: Mapping[str, int]
) -> PaceEntry | None:
    """Return `pace` with the figures that were measured from the first pass until now, or None if `pace` is None.
    `not_finite` has the fields with NaN or infinity. The value of each field is a step: the last step of the pass in
    which this was found."""
    if pace is None:
        return None
    begun, seconds = round(max(0.0, time.time() - seconds), 3), round(seconds, 6)
    return replace(
        pace, begun=begun, seconds=seconds, bytes_read=bytes_read, bytes_written=bytes_written,
        not_finite=dict(not_finite),
    )  # fmt: skip


def tell_stopped(state: State) -> None:
    """Write to the manifest that the run has stopped before its last step. An error is ignored, because the run is
    already ending with another error."""
    pace = state.manifest.pace
    if pace is not None and state.manifest.step < pace.last_step:
        with suppress(OutcropError, OSError):
            state.change(pace=replace(pace, is_stopped=True))


def process_mark(number: int | None = None) -> str:
    """Return a text that identifies a process among all processes of all computers. The default is this process. Return
    "" if the process has ended, or if the system cannot tell."""
    number = os.getpid() if number is None else number
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = Path("/proc/self/ns/pid").readlink()
        # The name of the program is in parentheses and can contain spaces. Field 22 is the start of the process.
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        state, started = fields[0], fields[19]
    except (OSError, IndexError, ValueError):
        return ""
    return "" if state in ("Z", "X") else f"{boot} {space} {number} {started}"


def is_alive(mark: str) -> bool | None:
    """Return True if the process with this mark still exists, and False if it has ended. Return None if this cannot be
    found out, for example for a process of another computer."""
    own, words = process_mark().split(), mark.split()
    if len(own) != 4 or len(words) != 4 or own[:2] != words[:2] or not words[2].isdecimal():
        return None
    return process_mark(int(words[2][:10])) == mark


def has_ended(pace: PaceEntry) -> bool:
    """Return True if the process of a call of `run` has ended, or has stopped before its last step."""
    return pace.is_stopped or is_alive(pace.process) is False


def is_locked(directory: Path) -> bool:
    """Return True if a process of this computer holds the exclusive lock of a directory. Only the list of locks is
    read, because a lock of the caller could stop a process that wants to continue the run. Return False if the system
    cannot tell."""
    try:
        found = directory.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    return any("->" not in words and {"FLOCK", "WRITE", place} <= set(words) for words in map(str.split, lines))
