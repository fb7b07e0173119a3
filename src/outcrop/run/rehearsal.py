"""Execute a plan with NumPy: slow, obviously right, and the meaning of every action written down once more.

The rings are arrays, a transfer is an assignment, and a plane is updated by stepping the stack of planes its
stencil reaches: with a fixed boundary only the middle one changes. What no action has brought is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from outcrop.language.stencil import Stencil
from outcrop.plan.actions import Action, Block, Carry, Commit, Copy, Read, Update, Write
from outcrop.plan.geometry import Cut
from outcrop.plan.plan import Pass, Plan
from outcrop.plan.problem import Problem
from outcrop.run.oracle import advance

Cells = NDArray[np.floating]


def rehearse(plan: Plan, stencil: Stencil, scalars: Mapping[str, float], initial: Cells) -> Cells:
    """The grid after all passes of `plan`, starting from `initial` of shape (nz, ny, nx)."""
    grid = initial
    for one in plan.passes:
        grid = rehearse_pass(plan, one, stencil, scalars, grid)
    return grid


def rehearse_pass(plan: Plan, one: Pass, stencil: Stencil, scalars: Mapping[str, float], source: Cells) -> Cells:
    """The grid after one pass; what no action writes stays NaN."""
    rehearsal = _Rehearsal(plan, stencil, scalars, source)
    for action in one.actions:
        rehearsal.perform(action)
    return rehearsal.arrays["target"]


def rehearse_one_layer(plan: Plan, stencil: Stencil, scalars: Mapping[str, float], initial: Cells) -> Cells:
    """The grid after all passes of a plan whose window is both arrays: planes stay in it from pass to pass."""
    grid = initial
    for one in plan.passes:
        rehearsal = _Rehearsal(plan, stencil, scalars, grid)
        for z in range(len(grid)):
            rehearsal.fill(0, z, grid[z])
            rehearsal.fill(1, z, initial[z])  # the rim; the rest must not matter
        for action in one.actions:
            rehearsal.perform(action)
        grid = np.stack([rehearsal.plane(one.levels, z) for z in range(len(grid))])
    return grid


class _Rehearsal:
    """Rings hold whole planes, whatever the frame: cells outside it stay NaN. A slot belongs to a plane of a block."""

    def __init__(self, plan: Plan, stencil: Stencil, scalars: Mapping[str, float], source: Cells) -> None:
        self.problem, self.stencil, self.scalars = plan.problem, stencil, scalars
        self.ring_planes = plan.window.ring_planes
        self.block = self.former_block = Block(self.problem.whole_plane)
        self.rings: list[dict[int, tuple[Block, int, Cells]]] = [{}, {}]
        self.former = self.rings
        other, target = np.full_like(source, np.nan), np.full_like(source, np.nan)
        self.arrays = {"source": source, "target": target, "other": other}
        self.faces: dict[tuple[int, int], Cells] = {}

    def perform(self, action: Action) -> None:
        """Do what the action says."""
        match action:
            case Block() if action != self.block:
                self.former_block, self.block = self.block, action
                self.former = [dict(ring) for ring in self.rings]
            case Block():
                pass
            case Carry(z0, z1, cut, level):
                for z in range(z0, z1):
                    block, plane, cells = self.former[level & 1][self._place(level, z)]
                    assert (block, plane) == (self.former_block, z), "a slot that holds something else"
                    _cells(self._slot(level, z), cut)[:] = _cells(cells, cut)
            case Read(z0, z1, cut, array, level):
                for z in range(z0, z1):
                    stored = self.faces[z, level & 1] if array == "faces" else self.arrays[array][z]
                    _cells(self._slot(level, z), cut)[:] = _cells(stored, cut)
            case Copy(z0, z1, cut):
                for z in range(z0, z1):
                    _copy_rim(self.problem, z, cut, self._slot(0, z), self._slot(1, z))
            case Update():
                self._update(action)
            case Write(z0, z1, level, cut, array):
                for z in range(z0, z1):
                    slot = self._slot(level, z)
                    if array == "faces":
                        self.faces[z, level & 1] = slot.copy()
                    else:
                        _cells(self.arrays[array][z], cut)[:] = _cells(slot, cut)
            case Commit():
                pass

    def fill(self, level: int, z: int, cells: Cells) -> None:
        """Say what plane z is."""
        self._slot(level, z)[:] = cells

    def plane(self, level: int, z: int) -> Cells:
        """What plane z is now."""
        return self._slot(level, z)

    def _place(self, level: int, z: int) -> int:
        return (z + self.block.shift) % self.ring_planes[level & 1]

    def _slot(self, level: int, z: int) -> Cells:
        ring, place = self.rings[level & 1], self._place(level, z)
        if place not in ring or ring[place][:2] != (self.block, z):
            ring[place] = (self.block, z, np.full_like(self.arrays["source"][z], np.nan))
        return ring[place][2]

    def _update(self, action: Update) -> None:
        problem, region = self.problem, action.region
        first, end = problem.radius_y, problem.shape[1] - problem.radius_y
        for zeta in range(action.zeta0, action.zeta1):
            for level in range(1, action.levels + 1):
                z = zeta - problem.skew * (level - 1)
                low, high = region.z_low.at(level), region.z_high.at(level)
                if max(problem.first_plane, low) <= z < min(problem.end_plane, high):
                    rows = slice(max(first, region.y_low.at(level)), max(0, min(end, region.y_high.at(level))))
                    columns = slice(max(0, region.x_low.at(level)), max(0, region.x_high.at(level)))
                    self._update_plane(z, level, rows, columns)

    def _update_plane(self, z: int, level: int, rows: slice, columns: slice) -> None:
        problem, nx = self.problem, self.problem.shape[2]
        reach = range(z - problem.radius_z, z + problem.radius_z + 1)
        stack = np.stack([self._slot(level - 1, other) for other in reach])
        after = advance(self.stencil, stack, self.scalars, 1)[problem.radius_z]
        # Kernels carry the rim in x along with every row they update.
        rim = min(problem.radii[2], nx)
        before = self._slot(level - 1, z)
        after[:, :rim], after[:, nx - rim :] = before[:, :rim], before[:, nx - rim :]
        self._slot(level, z)[rows, columns] = after[rows, columns]


def _cells(plane: Cells, cut: Cut) -> Cells:
    part: Cells = plane[cut.y0 : cut.y1, cut.x0 : cut.x1]
    return part


def _copy_rim(problem: Problem, z: int, cut: Cut, source: Cells, target: Cells) -> None:
    interior = range(problem.radius_y, len(source) - problem.radius_y)
    for y in range(cut.y0, cut.y1):
        if y not in interior or not problem.first_plane <= z < problem.end_plane:
            target[y, cut.x0 : cut.x1] = source[y, cut.x0 : cut.x1]
