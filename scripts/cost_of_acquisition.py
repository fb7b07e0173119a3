"""Measure the cost of sources, of receivers, and of snapshots every 50 and every 10 steps. Each measured run computes
an acoustic wave of order 8 out of core.

    .venv/bin/python scripts/cost_of_acquisition.py DIRECTORY [REPEATS]

The script makes the runs in a new folder in DIRECTORY, and removes this folder at the end. The runs take 17 GB, and the
snapshots of each repeat take another 8.6 GB. With 5 repeats (the default), DIRECTORY needs 60 GB.

The script measures the runs with different acquisitions alternately, on a machine without other work. Each snapshot
contains the whole field, because such snapshots are the largest possible snapshots. The device needs some time to write
the snapshots. The script subtracts the time for writing snapshots from the time of the run. The rest of the time must
be at most 5 % longer than the time of the run without acquisition. The script also prints the seconds that the plans of
the runs predicted.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import outcrop as oc
from outcrop.bench.rates import advance
from outcrop.paths import made_directory
from outcrop.tiers import measure

SHAPE, STEPS = (2730, 128, 512), 100
EVERY = {"nothing": 0, "points": 0, "both": 50, "many": 10}
"""The runs, and the number of steps between two snapshots of each run. 0 means no snapshots."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="for the files of the runs")
    parser.add_argument("repeats", type=int, nargs="?", default=5, help="the number of runs of each kind")
    given = parser.parse_args()
    directory: Path = given.directory
    runs: dict[str, dict[str, Any]] = {name: {} if name == "nothing" else points() for name in EVERY}
    for name, every in EVERY.items():
        if every:
            runs[name]["snapshots"] = oc.Snapshots(every, initial=False)
    with made_directory(directory), tempfile.TemporaryDirectory(prefix="outcrop-acquisition-", dir=directory) as folder:
        for name, each in runs.items():
            make(Path(folder) / name, **each)
        device = measure.measure_afresh(Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        predicted: dict[str, float] = {}
        for _ in range(given.repeats):
            for name, column in seconds.items():
                report = advance(Path(folder) / name, STEPS, BUDGET_BYTES, None)
                column.append(report["seconds"])
                predicted[name] = report["predicted"]["seconds"]
    rate = device.first_write_bytes_per_second or device.write_bytes_per_second
    for name, column in seconds.items():
        own = (STEPS // EVERY[name] if EVERY[name] else 0) * math.prod(SHAPE) * 4 / rate
        whole, left = (
            median((mine - less) / plain for mine, plain in zip(column, seconds["nothing"], strict=True))
            for less in (0.0, own)
        )
        print(
            f"{name:8} {median(column):6.2f} s ({min(column):.2f} to {max(column):.2f})  {whole:5.3f} of nothing's; "
            f"without {own:.2f} s for their own bytes {left:5.3f}: {'met' if left <= ALLOWED else 'missed'}; "
            f"predicted {predicted[name]:.2f} s"
        )


if __name__ == "__main__":
    main()
