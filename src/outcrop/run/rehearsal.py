"""Execute a plan with NumPy: slow, obviously right, and the meaning of every action written down once more.

The rings are arrays, a transfer is an assignment, and a plane is updated by stepping the stack of planes its
stencil reaches: with a fixed boundary only the middle one changes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from outcrop.language.stencil import Stencil
from outcrop.plan.actions import Commit, Copy, Read, Update, Write
from outcrop.plan.plan import Pass, Plan
from outcrop.plan.problem import Problem
from outcrop.run.oracle import advance


def rehearse(
    plan: Plan, stencil: Stencil, scalars: Mapping[str, float], initial: NDArray[np.floating]
) -> NDArray[np.floating]:
    """The grid after all passes of `plan`, starting from `initial` of shape (nz, ny, nx)."""
    grid = initial
    for one in plan.passes:
        grid = rehearse_pass(plan.problem, one, plan.ring_planes, stencil, scalars, grid)
    return grid


def rehearse_pass(
    problem: Problem,
    one: Pass,
    ring_planes: tuple[int, int],
    stencil: Stencil,
    scalars: Mapping[str, float],
    source: NDArray[np.floating],
) -> NDArray[np.floating]:
    """The grid after one pass; what no action writes stays NaN."""
    plane = source.shape[1:]
    rings = [np.full((count, *plane), np.nan, source.dtype) for count in ring_planes]
    target = np.full_like(source, np.nan)

    def slot(level: int, z: int) -> NDArray[np.floating]:
        ring = rings[level & 1]
        plane_slot: NDArray[np.floating] = ring[z % len(ring)]
        return plane_slot

    def update(z: int, level: int) -> None:
        reach = range(z - problem.radius_z, z + problem.radius_z + 1)
        stack = np.stack([slot(level - 1, other) for other in reach])
        inner = tuple(slice(min(r, n), max(r, n - r)) for r, n in zip(problem.radii[1:], plane, strict=True))
        slot(level, z)[inner] = advance(stencil, stack, scalars, 1)[problem.radius_z][inner]
        # Kernels carry the rim in x along with every row they update.
        rows, cells = inner
        for rim in (slice(0, cells.start), slice(cells.stop, plane[1])):
            slot(level, z)[rows, rim] = slot(level - 1, z)[rows, rim]

    for action in one.actions:
        match action:
            case Read(z0, z1):
                for z in range(z0, z1):
                    slot(0, z)[:] = source[z]
            case Copy(z0, z1):
                for z in range(z0, z1):
                    _copy_rim(problem, z, slot(0, z), slot(1, z))
            case Update(zeta0, zeta1, levels):
                for zeta in range(zeta0, zeta1):
                    for level in range(1, levels + 1):
                        z = zeta - problem.skew * (level - 1)
                        if problem.first_plane <= z < problem.end_plane:
                            update(z, level)
            case Write(z0, z1, level):
                for z in range(z0, z1):
                    target[z] = slot(level, z)
            case Commit():
                pass
    return target


def _copy_rim(problem: Problem, z: int, source: NDArray[np.floating], target: NDArray[np.floating]) -> None:
    target[:] = np.nan
    if not problem.first_plane <= z < problem.end_plane:
        target[:] = source
        return
    rows = min(problem.radius_y, len(source))
    target[:rows] = source[:rows]
    target[len(source) - rows :] = source[len(source) - rows :]
