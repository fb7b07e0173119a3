"""Protects commits from a process that dies: killed at any moment, the last whole commit is there, never a mixture."""

from __future__ import annotations

import os
import random
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import outcrop as oc

KILLS = int(os.environ.get("OUTCROP_KILLS", "50"))
SHAPE = (6, 1 << 18)  # six tiles of a MiB


def update_for_ever(path: Path, told: int) -> None:
    """Steps that make every cell of a random choice of rows the number of the step; what was committed is told."""
    chance = random.Random(time.time_ns())
    with oc.array(SHAPE, "int32", persist="step", path=path) as array:
        while True:
            step = array.steps + 1
            array[0] = step
            for row in range(1, len(array)):
                if chance.random() < 0.5:
                    array[row] = step
            array[:, 0] = step
            array.step()
            os.write(told, step.to_bytes(8, "little"))


def last_told(pipe: int) -> int:
    """The last step that the child had committed for sure."""
    content = b""
    while piece := os.read(pipe, 1 << 16):
        content += piece
    whole = len(content) // 8 * 8
    return int.from_bytes(content[whole - 8 : whole], "little") if whole else 0


def test_killed_at_any_moment_the_last_commit_is_whole(tmp_path: Path) -> None:
    """The step that is found is the last one told, or one more; every row is of one step, none later than that."""
    path, chance = tmp_path / "a", random.Random(int(os.environ.get("OUTCROP_SEED", "7")))
    known = 0
    for kill in range(KILLS):
        reading, told = os.pipe()
        child = get_context("fork").Process(target=update_for_ever, args=(path, told))
        child.start()
        os.close(told)
        time.sleep(chance.uniform(0.0, 0.12))
        child.kill()
        child.join()
        known = max(known, last_told(reading))
        os.close(reading)
        assert child.exitcode == -9, "killed, not failed"
        if not (path / "commit.1.json").exists():
            assert known == 0, f"kill {kill}: commits are gone"
            continue
        with oc.open_array(path, access="read") as array:  # any warning fails the test
            step = array.steps
            assert known <= step <= known + 1, f"kill {kill}: step {step}, {known} was committed"
            assert (array[:, 0] == step).all(), f"kill {kill}: a mixture of steps"
            rows = np.asarray(array[:, 1:])
            assert (rows == rows[:, :1]).all() and rows.max() <= step and (rows[0] == step).all()
            known = step
    assert known > KILLS // 10, "kills fell between commits, too"
