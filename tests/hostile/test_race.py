"""Check that exactly one process continues if several processes start the same run at the same time.

OUTCROP_TRIALS sets the number of trials.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc

TRIALS = int(os.environ.get("OUTCROP_TRIALS", "6"))
PROCESSES = 3
SHAPE, STEPS = (40, 36, 50), 8
MAX_SECONDS = 100.0

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["numpy", "outcrop.cli.app", "outcrop.run.simulation", "outcrop.language.library",
    __name__])


def start_command(where: Path) -> int:
    """Start the run by the command line, and return the exit code."""
    from outcrop.cli.main import call

    size = [str(n) for n in reversed(SHAPE)]
    return call(["run", "heat7", "-n", *size, "-t", str(STEPS), "-d", str(where), "--memory", "512KiB", "--threads",
    "1",
                 "--init", "random:3", "--quiet"])  # fmt: skip


def start_call(where: Path) -> int:
    """Start the run by Python, and return the same exit code as the command."""
    from outcrop.errors import OutcropError

    try:
        sim = oc.Simulation("heat7", SHAPE, directory=where, memory="512KiB", threads=1)
        sim["u"] = "random:3"
        sim.run(STEPS, progress="none")
    except OutcropError as error:
        print(f"outcrop: {error}", file=sys.stderr)
        return 2
    return 0


def take_part(start: Any, where: Path, barrier: Any, delay: float, told: Path) -> None:
    """Wait until all processes are ready and `delay` seconds have passed. Then start the run, and end this process."""
    handle = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    barrier.wait(MAX_SECONDS)
    time.sleep(delay)
    code = start(where)
    sys.stderr.flush()
    os._exit(code)


@pytest.mark.parametrize("start", [start_command, start_call])
def test_one_of_several_processes_goes_on(start: Any, tmp_path: Path) -> None:
    """Check that one process completes the run. The other processes must print an error of one line, and must not
    damage the run."""
    chance = random.Random(int(os.environ.get("OUTCROP_SEED", "4")))
    expected, wrong = None, []
    for trial in range(-(-TRIALS // 2)):
        where, barrier = tmp_path / f"run{trial}.oc", SPAWN.Barrier(PROCESSES)
        told = [tmp_path / f"told{trial}-{number}" for number in range(PROCESSES)]
        delays = [chance.choice([0.0, chance.uniform(0, 0.002), chance.uniform(0, 0.05)]) for _ in told]
        started = [
            SPAWN.Process(target=take_part, args=(start, where, barrier, delay, path))
            for delay, path in zip(delays, told, strict=True)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join(MAX_SECONDS)
            process.kill()  # a process that still runs counts as failed
            process.join()
        codes = sorted(process.exitcode for process in started)
        lines = [path.read_text().strip() for path in told]
        fine = codes == [0] + [2] * (PROCESSES - 1) and all(line.count("\n") == 0 for line in lines)
        if fine:
            values = np.asarray(oc.open(where)["u"][:])
            expected = values if expected is None else expected
            fine = bool((values == expected).all())
        if not fine:
            wrong.append(f"trial {trial}: exit codes {codes}: {lines}")
    assert not wrong, f"{len(wrong)} of {-(-TRIALS // 2)} trials: " + "\n".join(wrong[:3])
