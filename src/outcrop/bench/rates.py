"""This module measures the rates of the kernel in the second-level cache, of plain sweeps, and of whole runs.

The rate of the kernel and the rate of plain sweeps are measured with the loops of a run. The measurements of these two
rates use no storage, and update no planes at the ends of the streaming axis. A whole run is a separate process, so that
its memory can be measured and limited separately:

    python -m outcrop.bench.rates DIRECTORY STEPS BUDGET_BYTES SIZES BIND     # prints the report as JSON
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.bench.memory import run_limited
from outcrop.errors import StorageError
from outcrop.language.compile import Calls
from outcrop.plan.actions import EVERYTHING
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.tuner import with_tiles
from outcrop.run.engine import Engine, Seeds
from outcrop.run.places import open_state
from outcrop.run.simulation import open as open_simulation

ROW_BYTES = 4096
SHARE_OF_CACHE = 0.7
"""The share of the second-level cache for the data. The rest of the cache is for the stack and the code of the
kernel."""
OVERHEAD_BYTES = 150 << 20
"""The resident memory that a process may have in addition to the budget of its run."""
SWEEP_ROWS, SWEEP_REPEATS = (4, 8, 16, 32, 64, 128), 2
SPARE_PLANES = 4
"""Additional planes of a window, for the gaps between slots."""
CALL_PLANES = (1, 2)
ROWS_AT_ONCE = (1, 2, 4)

Planes: TypeAlias = Callable[[int, int], NDArray[np.float32]]
"""A function of z0 and z1 that returns the values of the planes z0 <= z < z1 of a field."""


@dataclass(frozen=True)
class SweepRate:
    """The cell updates per second of plain sweeps, and the sizes of the measured sweeps."""

    cells_per_second: float
    sweep_rows: int
    rows_at_once: int


def kernel_rate(
    problem: Problem,
    calls: Calls,
    scalars: bytes,
    threads: int,
    cache_bytes: int,
    repeats: int,
    rows_at_once: Sequence[int] = ROWS_AT_ONCE,
) -> float:
    """Return the number of cells that all threads together update per second. Each thread updates its own planes, which
    are in its second-level cache. `rows_at_once` contains the numbers of rows that an inner loop of the kernel may
    update together. The rate is the rate of the fastest of these inner loops.

    The returned rate is the sum over all threads. For each thread, the fastest of `repeats` short measurements is used.
    """
    levels, slab = 2, 4
    planes = problem.rings * (slab + problem.skew_z * (levels + 1) + 2 * problem.radius_z)
    ny = max(2 * problem.radius_y + 2, int(SHARE_OF_CACHE * cache_bytes) // (planes * ROW_BYTES))
    small = replace(
        problem,
        shape=(problem.planes, ny, ROW_BYTES // problem.item_bytes),
        pitch_bytes=ROW_BYTES,
        plane_bytes=ny * ROW_BYTES,
        record_bytes=ny * ROW_BYTES + ROW_BYTES,
    )

    def one_thread(_: int) -> float:
        meter = _core.UpdateMeter(
            small, small.fields, calls, scalars, 1, _core.UpdateMeter.planes_needed(small, levels, slab) + SPARE_PLANES
        )
        every = (
            Sizes(levels, slab, 0, ny, call_planes, rows_at_once=rows)
            for call_planes, rows in product(CALL_PLANES, rows_at_once)
        )
        return max(max(meter.measure(sizes, small.whole_plane, EVERYTHING, repeats, shifted=True)) for sizes in every)

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(one_thread, range(threads)))


def sweep_rate(problem: Problem, calls: Calls, scalars: bytes, threads: int, planes: int) -> SweepRate:
    """Return the best rate of plain sweeps over `planes` planes in memory. Each stage reads one array and writes a
    second array. The stages run one after another.

    The rate counts whole steps. In a step, each stage passes over the planes once.
    """
    levels = problem.stages
    meter = _core.UpdateMeter(
        problem, problem.fields, calls, scalars, threads, _core.UpdateMeter.planes_needed(problem, levels, planes)
    )
    found = [
        SweepRate(
            max(meter.measure(sizes, problem.whole_plane, EVERYTHING, SWEEP_REPEATS)) / levels,
            sizes.sweep_rows,
            sizes.rows_at_once,
        )
        for rows, at_once in product(sweep_rows(problem.shape[1]), ROWS_AT_ONCE)
        for sizes in [with_tiles(problem, Sizes(levels, planes, 0, rows, rows_at_once=at_once), 0, threads)]
    ]
    return max(found, key=lambda one: one.cells_per_second)


def sweep_rows(ny: int) -> list[int]:
    """Return the numbers of rows of a block that are tried for plain sweeps over planes of `ny` rows."""
    return [rows for rows in SWEEP_ROWS if rows <= ny or rows == SWEEP_ROWS[0]]


def in_one_slab(problem: Problem) -> dict[str, int]:
    """Return the sizes of a plan that reads the whole grid before the first update. In a run with these sizes, no
    transfer slows the updates down, so the report shows the time of the updates alone."""
    return {"bt": problem.steps, "slab": problem.planes, **({"by": problem.shape[1]} if problem.ndim == 3 else {})}


def advance(
    directory: Path,
    steps: int,
    budget_bytes: int,
    limit_bytes: int | None,
    sizes: Mapping[str, int] | None = None,
    bind: str = "auto",
) -> dict[str, Any]:
    """Advance the run in `directory` by `steps` steps within `budget_bytes`, and return the report of the run. If
    `sizes` is given, the plan of the run has these sizes. `bind` says how threads are bound to cores.

    `limit_bytes` limits all memory of the child process, including its page cache. The report contains
    `cgroup_limit_bytes`, which is None if this process may not make a control group. Raises StorageError if the child
    fails. The message is the last line that the child printed.
    """
    words = str(directory), str(steps), str(budget_bytes), json.dumps(dict(sizes or {})), bind
    try:
        output = run_limited(["-m", "outcrop.bench.rates", *words], limit_bytes)
    except StorageError as error:
        raise StorageError(f"a measured run of {steps} steps failed: {error}") from None
    report: dict[str, Any] = json.loads(output.text)
    report["cgroup_limit_bytes"] = limit_bytes if output.is_limited else None
    return report


def checksum_cost(directory: Path, steps: int, budget_bytes: int, pairs: int) -> float:
    """Return how much longer the first pass of a run takes if the pass computes checksums, as a share of its time. The
    run has `steps` steps within `budget_bytes`. The function measures `pairs` pairs of passes: one pass of a pair
    computes checksums, and the other pass does not. For each pair, the time with checksums is divided by the time
    without checksums. The returned share is the median of these ratios, minus 1. A counter cannot measure the time of
    checksums, because the checksums of planes are computed together with the updates.

    Each measured pass reads the current copy of the run in `directory` and writes the other copy. The written copy is
    never committed.
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


def smooth(shape: tuple[int, ...], mean: float) -> Planes:
    """Return a function that computes the planes of a field. The values of the field are waves around `mean` along
    every axis. The amplitude of the waves is 10 % of `mean`, or 0.01 if `mean` is 0."""
    size = 0.1 * abs(mean) if mean else 0.01

    def planes(z0: int, z1: int) -> NDArray[np.float32]:
        axes: list[NDArray[Any]] = list(np.ogrid[tuple(slice(0, n) for n in (z1 - z0, *shape[1:]))])
        axes[0] = axes[0] + z0
        waves = [np.sin(0.02 * (number + 1) * axis + 0.5).astype("float32") for number, axis in enumerate(axes)]
        product = waves[0]
        for wave in waves[1:]:
            product = product * wave
        return (np.float32(mean) + np.float32(size) * product).astype("float32")

    return planes


def smooth_planes(z0: int, z1: int, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    """Return the planes z0 <= z < z1 of the initial values of heat7. The initial values are smooth and quick to
    compute."""
    _, ny, nx = shape
    z, y, x = np.ogrid[z0:z1, 0:ny, 0:nx]
    waves = np.sin(0.01 * z), np.cos(0.02 * y), np.sin(0.03 * x)
    product: NDArray[np.float32] = (waves[0] * waves[1]).astype("float32") * waves[2].astype("float32")
    return product


def main() -> None:
    directory, steps, budget_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sizes = json.loads(sys.argv[4])
    scheme = "wavefront" if sizes else "auto"  # the sizes alone do not determine the scheme
    simulation = open_simulation(directory, memory=budget_bytes, scheme=scheme, sizes=sizes, bind=sys.argv[5])
    print(json.dumps(simulation.run(steps, progress="none").to_json()))


if __name__ == "__main__":
    main()
