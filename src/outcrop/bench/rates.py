"""Update rates in memory with the generated kernel: everything in the second-level cache, and plain sweeps.

Neither touches storage; both call the traversal that runs use, on an endless grid.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product

from outcrop import _core
from outcrop.language.compile import Calls
from outcrop.plan.actions import EVERYTHING
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.tuner import with_tiles

ROW_BYTES = 4096
SHARE_OF_CACHE = 0.7
"""Of the second-level cache; the rest is for the stack, the kernel's code and what else runs."""
SWEEP_ROWS = (4, 8, 16, 32, 64, 128)
CALL_PLANES = (1, 2)


@dataclass(frozen=True)
class SweepRate:
    """Cell updates per second of plain sweeps, and the blocking in y that reached it."""

    cells_per_second: float
    sweep_rows: int
    planes_per_call: int


def kernel_rate(problem: Problem, calls: Calls, scalars: bytes, threads: int, cache_bytes: int, repeats: int) -> float:
    """Cell updates per second of all threads, each with planes of its own inside its second-level cache.

    Each thread's best of `repeats` short measurements, added up.
    """
    levels, slab = 2, 4
    # Of both rings, as the measurement takes them.
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
            small, small.fields, calls, scalars, 1, _core.UpdateMeter.planes_needed(small, levels, slab)
        )
        every = (Sizes(levels, slab, 0, ny, call_planes) for call_planes in CALL_PLANES)
        return max(max(meter.measure(sizes, small.whole_plane, EVERYTHING, repeats)) for sizes in every)

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(one_thread, range(threads)))


def sweep_rate(problem: Problem, calls: Calls, scalars: bytes, threads: int, planes: int, repeats: int) -> SweepRate:
    """The best plain sweep, one stage after the other, over `planes` planes from one array in memory to another.

    Its rate is that of whole steps: every stage of a step passes over the planes once.
    """
    levels = problem.stages
    meter = _core.UpdateMeter(
        problem, problem.fields, calls, scalars, threads, _core.UpdateMeter.planes_needed(problem, levels, planes)
    )
    found = [
        SweepRate(
            max(meter.measure(sizes, problem.whole_plane, EVERYTHING, repeats)) / levels,
            sizes.sweep_rows,
            sizes.planes_per_call,
        )
        for rows, call_planes in product(SWEEP_ROWS, CALL_PLANES)
        if rows <= problem.shape[1] or rows == SWEEP_ROWS[0]
        for sizes in [with_tiles(problem, Sizes(levels, planes, 0, rows, call_planes), 0, threads)]
    ]
    return max(found, key=lambda one: one.cells_per_second)
