"""What checksums cost: the same pass with and without them, in turns.

They are taken inside the updates, so no counter shows their time.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from outcrop.run.disk.state import open_state
from outcrop.run.engine import Engine, Seeds
from outcrop.run.simulation import open as open_simulation


def checksum_cost(directory: Path, steps: int, budget_bytes: int, pairs: int) -> float:
    """Share by which checksums lengthen the first pass of `steps` steps within `budget_bytes`; median of `pairs` pairs.

    Every pass goes from the current array of the run in `directory` to the other one and is never committed.
    """
    prepared = open_simulation(directory, memory=budget_bytes).prepare(steps)
    state = open_state(directory)
    arrays = state.files(0), state.files(1), state.static_files()

    def seconds(checksum: bool) -> float:
        with Engine(prepared, *arrays, state.layout, checksum=checksum, scratch=state.scratch) as engine:
            start = time.perf_counter()
            engine.run_pass(0, state.manifest.current, seeds=Seeds(*state.seeds()))
            return time.perf_counter() - start

    return median(seconds(True) / seconds(False) for _ in range(pairs)) - 1
