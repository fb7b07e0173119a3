"""Measure runs that compute a function of a static field once, and runs that compute this function in each step.

    .venv/bin/python scripts/static_functions.py DIRECTORY [TURNS]      # DIRECTORY needs 1.1 GB

The equation of the runs is a heat equation of order 2. The rate of diffusion is a function of theta, multiplied by 1 -
theta. The updates also read theta itself, so a computed field is an additional array. Runs with and without a computed
field are measured alternately. The script prints the shortest times, because other programs can only make a run slower.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import sympy

import outcrop as oc
from outcrop.paths import made_directory

SHAPE, STEPS, BUDGETS = (256, 256, 512), 40, ("48MiB", "400MiB")
U, THETA = oc.Field("u"), oc.Field("theta")
HERE, ANGLE = U[0, 0, 0], THETA[0, 0, 0]
NEAR = sum(U[offset] for offset in ((0, 0, 1), (0, 0, -1), (0, 1, 0), (0, -1, 0), (1, 0, 0), (-1, 0, 0)))
FUNCTIONS: dict[str, Any] = {
    "sign": sympy.sign(ANGLE), "exp": sympy.exp(-ANGLE), "log": sympy.log(1 + ANGLE), "cos": sympy.cos(ANGLE),
    "pow": ANGLE**1.7,
}  # fmt: skip


def seconds(function: Any, when: str, memory: str, place: Path) -> float:
    rate = 0.1 * function * (1 - ANGLE)
    stencil = oc.Stencil("static_function", {U: HERE + rate * (NEAR - 6 * HERE)})
    sim = oc.Simulation(stencil, SHAPE, directory=place, memory=memory, functions=when, force=True)
    rng = np.random.default_rng(1)
    sim.assign({"u": 1.0, "theta": lambda z0, z1: 0.3 + 0.1 * rng.random((z1 - z0, *SHAPE[1:]), np.float32)})
    return sim.run(STEPS, progress="none").seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="for the files of the runs")
    parser.add_argument("turns", type=int, nargs="?", default=3, help="the number of runs of each kind")
    given = parser.parse_args()
    with (
        made_directory(given.directory),
        tempfile.TemporaryDirectory(prefix="outcrop-functions-", dir=given.directory) as folder,
    ):
        for memory, (name, function) in itertools.product(BUDGETS, FUNCTIONS.items()):
            found = [
                [seconds(function, when, memory, Path(folder) / "run.oc") for when in ("steps", "once")]
                for _ in range(given.turns)
            ]
            steps, once = (min(one) for one in zip(*found, strict=True))
            text = f"in each step {steps:.2f} s, once {once:.2f} s: {steps / once:.2f} times"
            print(f"{memory:7} {name:5} {text}", flush=True)


if __name__ == "__main__":
    main()
