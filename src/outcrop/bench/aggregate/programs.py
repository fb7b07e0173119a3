"""Starts the programs of MPI that measure `outcrop agg bench`: one, or where MPI-IO is chosen at the start, one each.

Open MPI   mpirun --mca io ompio       outcrop, mpi-io:ompio, posix   ─┐ taking turns, task by task
           mpirun --mca io romio321    mpi-io:romio321                ─┘
others     mpirun                      outcrop, mpi-io, posix
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outcrop.aggregate.mpi_launcher import Launcher
from outcrop.bench.aggregate.job import Job, to_text
from outcrop.errors import StorageError

SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_TO_END = 10.0


@dataclass(frozen=True)
class Program:
    """Ways of a program, and the options of mpirun that it needs for them."""

    ways: tuple[str, ...]
    options: tuple[str, ...] = ()


def programs_for(ways: Sequence[str], mpi_io: Sequence[str]) -> list[Program]:
    """That measure these ways, where `mpi_io` are the implementations to choose from, if any."""
    if "mpi-io" not in ways or not mpi_io:
        return [Program(tuple(ways))]
    first, *others = mpi_io
    own = tuple(f"mpi-io:{first}" if way == "mpi-io" else way for way in ways)
    return [
        Program(own, ("--mca", "io", first)),
        *(Program((f"mpi-io:{name}",), ("--mca", "io", name)) for name in others),
    ]


def run_programs(launcher: Launcher, ranks: int, programs: Sequence[Program], job: Job) -> list[dict[str, Any]]:
    """What the programs have measured on so many ranks. Raises StorageError with what a program said that failed."""
    ways = tuple(way for program in programs for way in program.ways)
    with tempfile.TemporaryDirectory(prefix="turns-", dir=job.folder) as folder:
        baton = Path(folder) / "baton"
        baton.touch()
        running, outputs = [], []
        try:
            for number, program in enumerate(programs):
                outputs.append(Path(folder) / f"{number}.json")
                asked = Path(folder) / f"{number}.job"
                shared = str(baton) if len(programs) > 1 else ""
                asked.write_text(
                    to_text(replace(job, ways=ways, own=program.ways, output=str(outputs[-1]), baton=shared))
                )
                starts = launcher.command(ranks, *program.options)
                command = [*starts, sys.executable, "-m", "outcrop.bench.aggregate.job", str(asked)]
                said = (Path(folder) / f"{number}.said").open("w+")
                process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=_environment())
                running.append((process, said))
            _wait(running)
        finally:
            for process, said in running:
                _end(process)
                said.close()
        return [json.loads(output.read_text()) for output in outputs]


def _wait(running: Sequence[tuple[subprocess.Popen[bytes], Any]]) -> None:
    """Until all have ended. The first that fails is told; others would wait for it."""
    while any(process.poll() is None for process, _ in running):
        if any(process.returncode for process, _ in running):
            break
        time.sleep(SECONDS_BETWEEN_LOOKS)
    for process, said in running:
        if process.returncode:
            said.seek(0)
            lines = [line.strip() for line in said.read().splitlines() if line.strip()]
            own = [line for line in lines if line.startswith("outcrop: ")]
            text = own[0].removeprefix("outcrop: ") if own else (lines or ["it said nothing"])[-1]
            raise StorageError(f"a program of MPI has failed ({process.returncode}): {text}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """mpirun ends its ranks when it is asked to end."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    """More ranks than cores compute nothing here: threads of NumPy's libraries would only take memory."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
