"""Check that SIGKILL at any moment loses no data. A run that is resumed has the same bits as a run without kills.

Child processes are forked from a server that has already imported all modules. So most kills happen while a process
makes the directory, writes planes, flushes, or renames the manifest. OUTCROP_KILLS sets the number of kills.
"""

import multiprocessing
import os
import random
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop.errors import OutcropError
from outcrop.run.places import open_state

KILLS = int(os.environ.get("OUTCROP_KILLS", "20"))
SHAPE = (61, 70, 83)
STEPS = 96
MEMORY = 1 << 20  # room for 1/5 of the two arrays; so the run has many passes, and many kills happen in a commit
GIVEN = {"memory": MEMORY, "scheme": "wavefront", "sizes": {"bt": 12, "slab": 4, "diamond": 12}}
"""The sizes are given. Otherwise, most kills would happen during the search for sizes."""

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["numpy", "outcrop.run.simulation", "outcrop.language.library", "test_kill"])


def initial_values() -> np.ndarray:
    """Return the same initial values for each run, with the shape SHAPE."""
    return np.random.default_rng(11).random(SHAPE, dtype="float32")


def run_from_start(where: Path) -> None:
    """Create the run and perform all steps."""
    simulation = oc.Simulation(
        oc.stencils.heat(ndim=3), shape=SHAPE, dtype="float32", directory=where, force=True, **GIVEN
    )
    simulation.prepare(STEPS)  # the command line also calls this before it assigns the values
    simulation["u"] = initial_values()
    simulation.run(steps=STEPS, progress="none")


def resume(where: Path) -> None:
    """Continue the run from the last committed state."""
    simulation = oc.open(where, **GIVEN)
    simulation.run(steps=simulation.remaining_steps, progress="none")


def start(target: object, where: Path) -> ForkServerProcess:
    """Start a child process that works on `where`, and return the process."""
    process = SPAWN.Process(target=target, args=(where,))
    process.start()
    return process


def committed_step(where: Path) -> int | None:
    """Return the committed step of the run in `where`, or None if the run has no initial values yet.

    All committed values must be undamaged.
    """
    try:
        if not open_state(where).has_values:
            return None
    except OutcropError:
        return None
    simulation = oc.open(where)
    _ = simulation["u"][:]  # this read checks all checksums
    return simulation.step


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, float]:
    """Return the final values of a run without kills, and the approximate lifetime of its process in seconds."""
    where = tmp_path_factory.mktemp("undisturbed") / "run.oc"
    seconds = []
    for _ in range(3):  # the first run compiles the kernel
        begin = time.perf_counter()
        process = start(run_from_start, where)
        process.join()
        seconds.append(time.perf_counter() - begin)
        assert process.exitcode == 0
    return oc.open(where)["u"][:], min(seconds)


def test_killed_runs_end_with_the_same_bits(undisturbed: tuple[np.ndarray, float], tmp_path: Path) -> None:
    """Checks kills at any moment from the creation of the directory to the last commit. No committed step may be lost.
    """
    expected, seconds = undisturbed
    chance = random.Random(int(os.environ.get("OUTCROP_SEED", "5")))
    kills = finished = 0
    while kills < KILLS:
        where, step = tmp_path / f"run{finished}.oc", None
        while True:
            left = 1.0 if not step else (STEPS - step) / STEPS
            process = start(run_from_start if step is None else resume, where)
            process.join(chance.uniform(0, 1.05) * seconds * left if kills < KILLS else None)
            if process.exitcode is None:
                process.kill()
                process.join()
                kills += 1
            else:
                assert process.exitcode in (0, -9), f"after {kills} kills a child failed with {process.exitcode}"
            reached = committed_step(where)
            if step is not None:
                assert reached is not None and reached >= step, f"kill {kills}: step {step} was lost, now {reached}"
            step = reached
            if step == STEPS:
                break
        np.testing.assert_array_equal(oc.open(where)["u"][:], expected)
        finished += 1
    assert finished >= 1
