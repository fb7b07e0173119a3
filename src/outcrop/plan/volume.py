"""How much an action does: cells an update updates, bytes a transfer moves. Exact; no measurement enters."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from outcrop.plan.actions import Read, Update, Write
from outcrop.plan.geometry import EVERYTHING, Bound, Region
from outcrop.plan.problem import Problem


def transfer_bytes(problem: Problem, action: Read | Write) -> int:
    """Bytes that a Read or Write moves; a record's tail goes along with the last cell of source and target."""
    cut, has_records = action.cut, action.array in ("source", "target", "statics")
    last = cut.y1 == problem.shape[1] and cut.x1 == problem.pitch_cells and has_records
    each = (action.z1 - action.z0) * (cut.cells * problem.item_bytes + (problem.tail_bytes if last else 0))
    return each * arrays_moved(problem, action)


def arrays_moved(problem: Problem, action: Read | Write) -> int:
    """How many arrays a Read or Write is about."""
    if action.array == "faces":
        return problem.doubles if action.level % 2 else len(problem.fields) - problem.statics
    return {"source": problem.state_arrays, "target": problem.state_arrays, "statics": problem.statics}.get(
        action.array, 1
    )


def cell_updates(problem: Problem, action: Update) -> int:
    """Cells that an Update updates, over all its levels; the rim in x, which kernels carry along, counts."""
    if action.region is EVERYTHING or action.region == EVERYTHING:
        below = updates_below(problem, action.levels, action.zeta0)
        planes = updates_below(problem, action.levels, action.zeta1) - below
        return planes * _rows(problem) * problem.shape[2]
    region = action.region
    free = region.z_low == EVERYTHING.z_low and region.z_high == EVERYTHING.z_high
    deepest = action.zeta0 - problem.skew_z * (action.levels - 1)
    if free and deepest >= problem.first_plane and action.zeta1 <= problem.end_plane:
        return (action.zeta1 - action.zeta0) * _cells_of_planes(problem, region, action.levels)
    level = _levels(action.levels)
    back = problem.skew_z * (level - 1)
    low = np.maximum(np.maximum(problem.first_plane, action.zeta0 - back), _at(region.z_low, level))
    high = np.minimum(np.minimum(problem.end_plane, action.zeta1 - back), _at(region.z_high, level))
    return int((np.maximum(0, high - low) * _cells(problem, region, level)).sum())


def updates_below(problem: Problem, levels: int, zeta: int) -> int:
    """Plane updates of a pass whose skewed coordinate is below `zeta`: the sum over levels of the planes passed."""
    planes = problem.end_plane - problem.first_plane
    # Level t has passed clamp(zeta - first - skew*(t-1), 0, planes) planes: a constant, then an arithmetic series.
    ahead, skew = zeta - problem.first_plane, problem.skew_z
    whole = max(0, min(levels, (ahead - planes) // skew + 1))
    partly = max(0, min(levels, -(-ahead // skew)))
    if partly <= whole:
        return whole * planes
    series = (partly * (partly - 1) - whole * (whole - 1)) // 2
    return whole * planes + (partly - whole) * ahead - skew * series


def _rows(problem: Problem) -> int:
    return problem.end_row - problem.first_row


@lru_cache(maxsize=4096)
def _cells_of_planes(problem: Problem, region: Region, levels: int) -> int:
    """Cells of one plane at each level, summed up."""
    return int(_cells(problem, region, _levels(levels)).sum())


def _cells(problem: Problem, region: Region, level: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cells of a plane at each level, as far as the region goes in y and x."""
    first, end = problem.first_row, problem.end_row
    rows = np.minimum(end, _at(region.y_high, level)) - np.maximum(first, _at(region.y_low, level))
    nx = problem.shape[2]
    columns = np.clip(_at(region.x_high, level), 0, nx) - np.clip(_at(region.x_low, level), 0, nx)
    cells: NDArray[np.int64] = np.maximum(0, rows) * np.maximum(0, columns)
    return cells


def _at(bound: Bound, level: NDArray[np.int64]) -> NDArray[np.int64]:
    return bound.at_zero + bound.slope * level


def _levels(levels: int) -> NDArray[np.int64]:
    return np.arange(1, levels + 1, dtype=np.int64)
