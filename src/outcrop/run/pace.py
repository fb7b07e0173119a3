"""The progress of a run. A run commits its progress together with its values, and programs that watch the run read the
progress.

A program that watches a run takes no lock. A lock could stop a process that wants to continue the run. So a program
that watches a run finds out from the manifest whether the run is still being computed:

    process     a mark of the process that computes the steps: the computer, the process and its start
    is_stopped  the run was interrupted, and the process had time to say so

`is_alive` compares the mark with the processes of this computer. The process that runs can be on another computer or in
another container. Then only the time since the last commit shows whether the process still runs.
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
    """Return a `PaceEntry` for a call of `run` that begins now. `cells` is the number of cells that a step updates."""
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
    `not_finite` has the fields with NaN or infinity. `not_finite` maps the name of a field to a step: the last step of
    the pass in which NaN or infinity was found."""
    if pace is None:
        return None
    begun, seconds = round(max(0.0, time.time() - seconds), 3), round(seconds, 6)
    return replace(
        pace, begun=begun, seconds=seconds, bytes_read=bytes_read, bytes_written=bytes_written,
        not_finite=dict(not_finite),
    )  # fmt: skip


def tell_stopped(state: State) -> None:
    """Write to the manifest that the run has stopped before its last step. If the manifest cannot be written, the error
    is ignored, because the run is already ending with another error."""
    pace = state.manifest.pace
    if pace is not None and state.manifest.step < pace.last_step:
        with suppress(OutcropError, OSError):
            state.change(pace=replace(pace, is_stopped=True))


def process_mark(number: int | None = None) -> str:
    """Return a text that identifies a process among all processes of all computers. The default of `number` is the
    number of this process. Return "" if the process has ended, or if Linux does not show the process."""
    number = os.getpid() if number is None else number
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = Path("/proc/self/ns/pid").readlink()
        # In /proc/PID/stat, the name of the program is in parentheses and can contain spaces. Field 22 is the time at
        # which the process started.
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        state, started = fields[0], fields[19]
    except (OSError, IndexError, ValueError):
        return ""
    return "" if state in ("Z", "X") else f"{boot} {space} {number} {started}"


def is_alive(mark: str) -> bool | None:
    """Return True if the process that `mark` identifies still exists. Return False if the process has ended. Return
    None if the function cannot find out whether the process exists, for example for a process of another computer."""
    own, words = process_mark().split(), mark.split()
    if len(own) != 4 or len(words) != 4 or own[:2] != words[:2] or not words[2].isdecimal():
        return None
    return process_mark(int(words[2][:10])) == mark


def has_ended(pace: PaceEntry) -> bool:
    """Return True if the process of a call of `run` has ended, or has stopped before its last step."""
    return pace.is_stopped or is_alive(pace.process) is False


def is_locked(directory: Path) -> bool:
    """Return True if a process of this computer holds the exclusive lock of a directory. The function reads the list of
    locks in /proc. The function takes no lock, because its lock could stop a process that wants to continue the run.
    Return False if Linux does not show the locks."""
    try:
        found = directory.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    return any("->" not in words and {"FLOCK", "WRITE", place} <= set(words) for words in map(str.split, lines))
