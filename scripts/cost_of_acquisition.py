"""Measure the cost of sources, of receivers, and of snapshots every 50 steps, for an acoustic wave of order 8 out of
core.

    .venv/bin/python scripts/cost_of_acquisition.py DIRECTORY [REPEATS]

The script measures several runs alternately. The machine must have no other work. Each snapshot contains the whole
field, so it is as large as possible. The device needs time to write the bytes of the snapshots. Apart from this time, a
run may take at most 5 % longer than the run without acquisition.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import outcrop as oc
from outcrop.bench.rates import advance
from outcrop.paths import made_directory
from outcrop.tiers import measure

SHAPE, STEPS, EVERY = (2730, 128, 512), 100, 50
SPACING = 10.0
BUDGET_BYTES = math.prod(SHAPE) * 4 * 4 // 16  # 1/16 of the size of four arrays: u, its previous values, v and damp
ALLOWED = 1.05


def make(where: Path, **kept: Any) -> None:
    """Make a run whose initial values are 0 except for a box in the middle."""
    stencil = oc.stencils.acoustic(order=8, ndim=3, sponge=True)
    sim = oc.Simulation(stencil, SHAPE, directory=where, dt=0.001, spacing=SPACING, params={"h": SPACING}, **kept)
    start = np.zeros(SHAPE, np.float32)
    start[1300:1324, 56:72, 244:268] = 1.0
    sim.assign({"u": start, "v": 2000.0, "damp": oc.stencils.sponge(SHAPE, 20, velocity=2000.0, spacing=SPACING)})


def points() -> dict[str, Any]:
    """Return the keywords of a run that define one source and a line of 221 receivers."""
    middle = [n * SPACING / 2 for n in SHAPE]
    line = [(place, *middle[1:]) for place in np.linspace(500.0, SHAPE[0] * SPACING - 500.0, 221)]
    source = oc.Source("u", middle, np.sin(np.arange(40 * STEPS) / 9))
    return {"sources": [source], "receivers": [oc.Receivers("line", "u", line)]}


def main() -> None:
    """Print a line for each run: the median of its seconds, and the median ratio to the run without acquisition."""
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    snapshots = oc.Snapshots(EVERY, initial=False)
    runs = {"nothing": {}, "points": points(), "both": {**points(), "snapshots": snapshots}}
    directory = Path(sys.argv[1])
    with made_directory(directory), tempfile.TemporaryDirectory(prefix="outcrop-acquisition-", dir=directory) as folder:
        for name, each in runs.items():
            make(Path(folder) / name, **each)
        device = measure.measure_afresh(Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(repeats):
            for name, column in seconds.items():
                column.append(advance(Path(folder) / name, STEPS, BUDGET_BYTES, None)["seconds"])
    own_bytes = STEPS // EVERY * math.prod(SHAPE) * 4
    for name, column in seconds.items():
        own = own_bytes / device.write_bytes_per_second if name == "both" else 0.0
        whole, left = (
            median((mine - less) / plain for mine, plain in zip(column, seconds["nothing"], strict=True))
            for less in (0.0, own)
        )
        print(
            f"{name:8} {median(column):6.2f} s ({min(column):.2f} to {max(column):.2f})  {whole:5.3f} of nothing's; "
            f"without {own:.2f} s for their own bytes {left:5.3f}: {'met' if left <= ALLOWED else 'missed'}"
        )


if __name__ == "__main__":
    main()
