"""Check commits of a process that is killed at any moment. The last commit must be complete, and must not be a mixture
of steps.
"""

from __future__ import annotations

import os
import random
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import outcrop as oc

KILLS = int(os.environ.get("OUTCROP_KILLS", "15"))
SHAPE = (6, 1 << 18)  # the array has six tiles of 1 MiB each
SPAWN = get_context("forkserver")
SPAWN.set_forkserver_preload(["numpy", "outcrop.arrays.placing", "test_array_kill"])


def update_for_ever(path: Path, told: Connection) -> None:
    """Commit steps in an endless loop. In each step, write the number of the step into random rows. Send each committed
    step to the parent.
    """
    chance = random.Random(time.time_ns())
    with oc.array(SHAPE, "int32", persist="step", path=path) as array:
        told.send(array.steps)
        while True:
            step = array.steps + 1
            array[0] = step
            for row in range(1, len(array)):
                if chance.random() < 0.5:
                    array[row] = step
            array[:, 0] = step
            array.step()
            told.send(step)


def last_told(reading: Connection) -> int:
    """Return the last step that the child has reported as committed."""
    step = 0
    try:
        while True:
            step = reading.recv()
    except (EOFError, OSError):  # the last message may be incomplete
        return step


def test_killed_at_any_moment_the_last_commit_is_whole(tmp_path: Path) -> None:
    """Checks the array after each kill. The array must be at the last step that the child reported, or at the next
    step.

    Each row has the values of one step, and no row belongs to a later step than the array.
    """
    path, chance = tmp_path / "a", random.Random(int(os.environ.get("OUTCROP_SEED", "7")))
    known = 0
    for kill in range(KILLS):
        reading, told = SPAWN.Pipe(duplex=False)
        child = SPAWN.Process(target=update_for_ever, args=(path, told))
        child.start()
        told.close()
        if kill % 3 == 0:
            time.sleep(chance.uniform(0.0, 0.08))  # the child first opens the array
        else:
            assert reading.recv() == known, f"kill {kill}: the child did not go on from the last commit"
            begin = time.perf_counter()
            known = reading.recv()
            # the kill may happen at any moment of a step
            time.sleep(chance.uniform(0.0, 2.0) * (time.perf_counter() - begin))
        child.kill()
        child.join()
        known = max(known, last_told(reading))
        reading.close()
        assert child.exitcode == -9, "killed, not failed"
        if not (path / "commit.1.json").exists():
            assert known == 0, f"kill {kill}: commits are gone"
            continue
        with oc.open_array(path, access="read") as array:  # a warning makes the test fail
            step = array.steps
            assert known <= step <= known + 1, f"kill {kill}: step {step}, {known} was committed"
            assert (array[:, 0] == step).all(), f"kill {kill}: a mixture of steps"
            rows = np.asarray(array[:, 1:])
            assert (rows == rows[:, :1]).all() and rows.max() <= step and (rows[0] == step).all()
            known = step
    assert known >= KILLS // 2, "most children have committed"
