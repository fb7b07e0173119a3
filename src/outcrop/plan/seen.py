"""Which planes, rows and columns an update reads: those it updates and the stencil's reach around them.

What lies beyond a side that is not fixed is folded back: periodic axes go on at the other end, mirrors show what is
near them, which is within reach anyway.
"""

from __future__ import annotations

from typing import TypeAlias

from outcrop.plan.geometry import Cut
from outcrop.plan.problem import Problem

Ranges: TypeAlias = list[tuple[int, int]]


def planes_seen(problem: Problem, z0: int, z1: int) -> Ranges:
    """Positions of the planes that updates at positions z0 <= z < z1 read."""
    reach, count = problem.radius_z, problem.planes
    if not problem.periodic[0]:
        return [(max(0, z0 - reach), min(count, z1 + reach))]
    if z1 - z0 > 1:  # neighbouring positions are at the two ends in turn, so two of them see all between
        return [(max(0, z0 - 2 * reach), min(count, z1 + 2 * reach))]
    plane = z0 // 2 if z0 % 2 == 0 else count - 1 - z0 // 2
    seen = {(plane + step) % count for step in range(-reach, reach + 1)}
    positions = (2 * one if one < (count + 1) // 2 else 2 * (count - 1 - one) + 1 for one in seen)
    return [(one, one + 1) for one in sorted(positions)]


def rows_seen(problem: Problem, cut: Cut) -> Ranges:
    """Rows that updates of a part of a plane read."""
    return _seen(cut.y0, cut.y1, problem.radius_y, problem.shape[1], problem.periodic[1])


def columns_seen(problem: Problem, cut: Cut) -> Ranges:
    """Cells of a row that they read; of padding only what kernels carry along between fixed sides."""
    nx, reach = problem.shape[2], problem.radii[2]
    if problem.sides[2] == ("fixed", "fixed"):
        return _seen(cut.x0, cut.x1, reach, problem.pitch_cells, False)
    return _seen(cut.x0, min(cut.x1, nx), reach, nx, problem.periodic[2])


def _seen(first: int, end: int, reach: int, extent: int, is_periodic: bool) -> Ranges:
    low, high = first - reach, end + reach
    if high - low >= extent and is_periodic:
        return [(0, extent)]
    if low < 0 and is_periodic:
        return [(0, high), (low + extent, extent)]
    if high > extent and is_periodic:
        return [(0, high - extent), (low, extent)]
    return [(max(0, low), max(0, low, min(extent, high)))]
