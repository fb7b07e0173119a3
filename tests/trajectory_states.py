"""Make states of trajectories, and a trajectory with committed states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import outcrop as oc

SHAPES = {"u": (3, 10, 11), "p": (7,)}
BLOCKS = 2 * 4096
"""The bytes that the files of a state take."""


def state_of(number: int, shapes: Any = SHAPES, dtype: str = "float32") -> dict[str, Any]:
    """Return the state with this number. The number is the seed of the random values in the state."""
    noise = np.random.default_rng(number)
    return {name: noise.random(shape).astype(dtype) for name, shape in shapes.items()}


def same(state: Any, number: int, shapes: Any = SHAPES) -> bool:
    """Return True if a state has the values of the state with this number."""
    expected = state_of(number, shapes)
    return list(state) == list(expected) and all(np.array_equal(state[name], expected[name]) for name in expected)


def made(folder: Path) -> Path:
    """Make a trajectory with three committed states. State 2 is in a further directory. Return the first directory."""
    path = folder / "a"
    with oc.Trajectory(path, SHAPES, "float32", states=3, limit=2 * BLOCKS, overflow=[folder / "b"]) as history:
        for number in range(3):
            history.push(state_of(number))
        history.commit()
    return path
