"""In which order `outcrop agg bench` measures what: all ways take turns, so that none has the machine at a better time.

    for each workload:  prepare the file to be read
                        turn 0    write: a b c    durable write: b c a    cold read: c a b    warm read: a b c
                        turn 1    write: b c a    ...

Several programs of MPI may share a schedule, each with ways of its own, which the others have not (Open MPI decides
when it starts whether its MPI-IO is OMPIO or ROMIO). Then one does a task while the others sleep (`Baton`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from outcrop.errors import StorageError

SECONDS_BETWEEN_LOOKS = 0.02
SECONDS_MOST = 900.0


@dataclass(frozen=True)
class Mode:
    """What is on the clock."""

    name: str
    text: str
    is_write: bool
    is_durable: bool = False
    is_warm: bool = False


MODES = (
    Mode("write", "write", True),
    Mode("write-durable", "write, durable", True, is_durable=True),
    Mode("read-cold", "read, cold", False),
    Mode("read-warm", "read, warm", False, is_warm=True),
)


@dataclass(frozen=True)
class Task:
    """One measurement, or, without a mode, the preparation of a workload."""

    number: int
    workload: str
    mode: Mode | None
    way: str
    turn: int


def schedule(workloads: Sequence[str], modes: Sequence[Mode], ways: Sequence[str], turns: int) -> Iterator[Task]:
    """All tasks; the first way prepares."""
    number = 0
    for workload in workloads:
        yield Task(number, workload, None, ways[0], 0)
        number += 1
        for turn in range(turns):
            for place, mode in enumerate(modes):
                first = (turn + place) % len(ways)
                for way in (*ways[first:], *ways[:first]):
                    yield Task(number, workload, mode, way, turn)
                    number += 1


class Baton:
    """A file with a byte for each task that has been done. One program alone needs none."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def wait_for(self, number: int) -> None:
        """Until all tasks before that one have been done. Raises StorageError when that takes forever."""
        if self._path is None:
            return
        end = time.monotonic() + SECONDS_MOST
        while os.stat(self._path).st_size < number:
            if time.monotonic() > end:
                raise StorageError(f"{self._path}: the other program of MPI has not done its turn in {SECONDS_MOST} s")
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def pass_on(self) -> None:
        """A task has been done. By one rank."""
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(b".")
