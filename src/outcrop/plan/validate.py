"""Prove a plan legal without touching data.

A symbolic run: every cell of the two rings and of the arrays on disk is represented by the level it holds. Actions
take effect at once and in order, which is stricter than the executor (a transfer that is still under way counts as
done), so what passes here cannot race there: transfers of one slot wait for each other, and nothing else touches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatchmethod

import numpy as np
from numpy.typing import NDArray

from outcrop.plan.actions import Action, Block, Carry, Commit, Copy, Read, Update, Write
from outcrop.plan.geometry import EVERY_CELL, Cut
from outcrop.plan.plan import Pass, Plan
from outcrop.plan.problem import Problem
from outcrop.plan.window import Window, slot_bytes

Levels = NDArray[np.int16]
NOTHING = -9
RIM = 9999
"""A cell of the rim, which is right at every level."""


class IllegalPlan(AssertionError):
    """A plan that would compute something else than it should: a bug in a scheme, never the user's fault."""


def validate(plan: Plan, budget_bytes: int | None = None) -> None:
    """Raise IllegalPlan unless every pass of `plan` is legal, the passes add up to the steps, and memory stays
    in budget."""
    if sum(one.levels for one in plan.passes) != plan.problem.steps:
        raise IllegalPlan(f"passes advance {sum(p.levels for p in plan.passes)} steps, not {plan.problem.steps}")
    if budget_bytes is not None and plan.memory_bytes > budget_bytes:
        raise IllegalPlan(f"window of {plan.memory_bytes} bytes exceeds the budget of {budget_bytes} bytes")
    if plan.predicted.memory_bytes != plan.memory_bytes:
        raise IllegalPlan(f"plan claims {plan.predicted.memory_bytes} bytes, its rings take {plan.memory_bytes}")
    for one in dict.fromkeys(plan.passes):
        validate_pass(plan.problem, one, plan.window)


def validate_pass(problem: Problem, one: Pass, window: Window) -> None:
    """Raise IllegalPlan unless `one` brings every cell to the last level and has it on disk when it commits."""
    run = _SymbolicRun(problem, one, window)
    run.perform_all(one.actions)
    if not run.committed:
        raise IllegalPlan("no commit")


def validate_one_layer(problem: Problem, one: Pass, window: Window) -> None:
    """Raise IllegalPlan unless `one` brings every cell to the last level inside the window, which holds all planes at
    level 0, and the rim at every level, when it begins."""
    run = _SymbolicRun(problem, one, window)
    for z, plane in enumerate(run.arrays["source"]):
        run.fill(0, z, plane)
        run.fill(1, z, np.where(plane == RIM, RIM, NOTHING))
    run.perform_all(one.actions)
    for z in range(problem.planes):
        run.require_final(z)


@dataclass
class _Slot:
    """What a block has of a plane: the cells of its frame, by level."""

    block: Block
    plane: int
    levels: Levels

    def holds(self, block: Block, plane: int) -> bool:
        """Whether it is that plane of that block."""
        return self.plane == plane and self.block == block

    def part(self, cut: Cut) -> Levels:
        """The cells `cut`, to read or to assign; they must lie in the frame."""
        frame = self.block.frame
        inside = frame.y0 <= cut.y0 and cut.y1 <= frame.y1 and frame.x0 <= cut.x0 and cut.x1 <= frame.x1
        _require(inside, f"cells {cut} are not all inside the frame {frame}")
        return self.levels[cut.y0 - frame.y0 : cut.y1 - frame.y0, cut.x0 - frame.x0 : cut.x1 - frame.x0]


class _SymbolicRun:
    """The window and the arrays of one pass, by content."""

    def __init__(self, problem: Problem, one: Pass, window: Window) -> None:
        self.problem, self.levels, self.window = problem, one.levels, window
        self.faces_rows, self.uses_other = one.faces_rows, one.uses_other
        self.rings: list[dict[int, _Slot]] = [{}, {}]
        self.block = self.former_block = Block(problem.whole_plane)
        self.former: list[dict[int, _Slot]] = [{}, {}]
        source = self._rim()
        source[source != RIM] = 0
        target = source if problem.in_place else np.full_like(source, NOTHING)
        self.arrays = {"source": source, "target": target, "other": np.full_like(source, NOTHING)}
        self.faces: dict[tuple[int, int], tuple[Cut, Levels]] = {}
        self.summed = [np.zeros(source.shape, bool) for _ in range(2)]  # source's and target's cells in checksums
        self.sealed = np.zeros(problem.planes, bool)  # planes of the target whose checksum is written
        self.written = np.zeros(source.shape, bool)  # cells of the target
        self.committed = False

    def _rim(self) -> Levels:
        """The whole grid, padding included: RIM or NOTHING."""
        problem = self.problem
        nz, ny, nx = problem.shape
        cells = np.full((nz, ny, problem.pitch_cells), RIM, np.int16)
        inner = [slice(min(r, n), max(min(r, n), n - r)) for r, n in zip(problem.radii, (nz, ny, nx), strict=True)]
        cells[tuple(inner)] = NOTHING
        return cells

    def perform_all(self, actions: Sequence[Action]) -> None:
        """One after the other; an error names the action."""
        for index, action in enumerate(actions):
            try:
                self.perform(action)
            except IllegalPlan as error:
                raise IllegalPlan(f"action {index}, {action}: {error}") from None

    def fill(self, parity: int, z: int, levels: Levels) -> None:
        """Say what a ring holds of plane z."""
        self._slot(parity, z).levels[:] = levels

    def require_final(self, z: int) -> None:
        """Plane z is in the window at the last level."""
        cells = self._there(self.levels, z).levels
        _require(bool(((cells == self.levels) | (cells == RIM)).all()), f"plane {z} is not at the last level")

    @singledispatchmethod
    def perform(self, action: Action) -> None:
        raise IllegalPlan("unknown action")

    @perform.register
    def _block(self, action: Block) -> None:
        frame, whole = action.frame, self.problem.whole_plane
        inside = 0 <= frame.y0 < frame.y1 <= whole.y1 and 0 <= frame.x0 < frame.x1 <= whole.x1
        _require(inside, "a frame beyond the plane")
        _require(slot_bytes(self.problem, frame) <= self.window.slot_bytes, "a frame larger than a slot")
        if action != self.block:
            self.former = [dict(ring) for ring in self.rings]
            self.former_block, self.block = self.block, action

    @perform.register
    def _carry(self, action: Carry) -> None:
        for z in self._planes(action.z0, action.z1):
            parity = action.level & 1
            old = self.former[parity].get((z + self.former_block.shift) % self.window.ring_planes[parity])
            _require(self.former_block.shift == self.block.shift, "a slot that planes have left")
            _require(old is not None and old.holds(self.former_block, z), f"plane {z} is not there to be carried")
            assert old is not None
            self._slot(parity, z).part(action.cut)[:] = old.part(action.cut)

    @perform.register
    def _read(self, action: Read) -> None:
        cut = action.cut
        for z in self._planes(action.z0, action.z1):
            if action.array == "faces":
                kept, cells = self.faces.get((z, action.level & 1), (None, None))
                _require(kept == cut, f"faces of plane {z} are those of {kept}")
                assert cells is not None
            else:
                cells = self._array(action.array)[z, cut.y0 : cut.y1, cut.x0 : cut.x1]
            self._slot(action.level, z).part(cut)[:] = cells

    @perform.register
    def _copy(self, action: Copy) -> None:
        for z in self._planes(action.z0, action.z1):
            even = self._there(0, z)
            for rim in self._rims(z, action.cut):
                _require(bool((even.part(rim) == RIM).all()), f"the rim of plane {z} is not in the even ring")
                self._slot(1, z).part(rim)[:] = RIM
                if self.block.own_z0 <= z < self.block.own_z1:
                    self._sum(0, z, rim, self.block.own)
                    self._sum(1, z, rim, self.block.own)
            self._slot(1, z)

    @perform.register
    def _update(self, action: Update) -> None:
        _require(1 <= action.levels <= self.levels, f"a pass of {self.levels} levels")
        _require(action.zeta0 < action.zeta1, "an empty range")
        problem, region = self.problem, action.region
        first, end = problem.radius_y, problem.shape[1] - problem.radius_y
        for zeta in range(action.zeta0, action.zeta1):
            for level in range(1, action.levels + 1):
                z = zeta - problem.skew * (level - 1)
                low, high = (
                    max(problem.first_plane, region.z_low.at(level)),
                    min(problem.end_plane, region.z_high.at(level)),
                )
                y = max(first, region.y_low.at(level)), min(end, region.y_high.at(level))
                x = max(0, region.x_low.at(level)), min(problem.pitch_cells, region.x_high.at(level))
                if low <= z < high and Cut(*y, *x).cells:
                    self._update_plane(z, level, Cut(*y, *x))

    def _update_plane(self, z: int, level: int, cut: Cut) -> None:
        problem = self.problem
        radius_z, radius_y, radius_x = problem.radii
        around = Cut(cut.y0 - radius_y, cut.y1 + radius_y, max(0, cut.x0 - radius_x),
                     min(problem.pitch_cells, cut.x1 + radius_x))  # fmt: skip
        for other in range(z - radius_z, z + radius_z + 1):
            cells = self._there(level - 1, other).part(around)
            good = (cells == level - 1) | (cells == RIM)
            _require(bool(good.all()), f"level {level} of plane {z} needs level {level - 1} of plane {other}")
        target = self._there(level, z).part(cut)
        centre = self._there(level - 1, z).part(cut)
        target[:] = np.where(centre == RIM, RIM, level)
        if level == 1 and self.block.own_z0 <= z < self.block.own_z1:
            self._sum(0, z, cut, self.block.own)
        if level == self.levels:
            self._sum(1, z, cut, EVERY_CELL)

    @perform.register
    def _write(self, action: Write) -> None:
        cut = action.cut
        for z in self._planes(action.z0, action.z1):
            cells = self._there(action.level, z).part(cut)
            if action.array == "faces":
                _require(cut.y1 - cut.y0 <= self.faces_rows, "more rows than faces keep")
                self.faces[z, action.level & 1] = (cut, cells.copy())
            else:
                self._array(action.array)[z, cut.y0 : cut.y1, cut.x0 : cut.x1] = cells
            if action.array == "target":
                self.written[z, cut.y0 : cut.y1, cut.x0 : cut.x1] = True
                last = cut.y1 == self.problem.shape[1] and cut.x1 == self.problem.pitch_cells
                self.sealed[z] = last and self.summed[1][z].all() if last else self.sealed[z]

    @perform.register
    def _commit(self, action: Commit) -> None:
        _require(not self.committed, "a second commit")
        target = self.arrays["target"]
        wrong = np.argwhere((target != self.levels) & (target != RIM) | ~self.written)
        _require(len(wrong) == 0, f"cell {wrong[:1].tolist()} is not written at the last level")
        missing = np.argwhere(~self.summed[0])
        _require(len(missing) == 0, f"the checksum of cell {missing[:1].tolist()} is not compared")
        _require(bool(self.sealed.all()), f"the checksum of plane {np.argmin(self.sealed)} is not written")
        self.committed = True

    def _sum(self, which: int, z: int, cut: Cut, own: Cut) -> None:
        """Take the checksum of those of the cells that are the block's own, for the first and only time."""
        rows = slice(max(cut.y0, own.y0), max(0, min(cut.y1, own.y1)))
        columns = slice(max(cut.x0, own.x0), max(0, min(cut.x1, own.x1)))
        cells = self.summed[which][z, rows, columns]
        _require(not cells.any(), f"the checksum of cells of plane {z} is taken twice")
        cells[:] = True

    def _rims(self, z: int, cut: Cut) -> list[Cut]:
        """The parts of `cut` that no update touches."""
        problem = self.problem
        first, end = problem.radius_y, problem.shape[1] - problem.radius_y
        if not problem.first_plane <= z < problem.end_plane or first >= end:
            return [cut]
        parts = (
            Cut(cut.y0, min(cut.y1, first), cut.x0, cut.x1),
            Cut(max(cut.y0, end), cut.y1, cut.x0, cut.x1),
        )
        return [part for part in parts if part.cells]

    def _planes(self, z0: int, z1: int) -> range:
        _require(0 <= z0 < z1 <= self.problem.planes, f"planes outside 0 .. {self.problem.planes - 1}")
        return range(z0, z1)

    def _array(self, name: str) -> Levels:
        _require(name != "other" or self.uses_other, "an array that the pass does not name")
        return self.arrays[name]

    def _slot(self, level: int, z: int) -> _Slot:
        """The slot of plane z, emptied if it held another one."""
        ring, place = self.rings[level & 1], self._place(level, z)
        if place not in ring or not ring[place].holds(self.block, z):
            frame = self.block.frame
            levels = np.full((frame.y1 - frame.y0, frame.x1 - frame.x0), NOTHING, np.int16)
            ring[place] = _Slot(self.block, z, levels)
        return ring[place]

    def _there(self, level: int, z: int) -> _Slot:
        """The slot of plane z, which must hold it."""
        found = self.rings[level & 1].get(self._place(level, z))
        _require(found is not None and found.holds(self.block, z), f"plane {z} is not in the ring of level {level}")
        assert found is not None
        return found

    def _place(self, level: int, z: int) -> int:
        return (z + self.block.shift) % self.window.ring_planes[level & 1]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise IllegalPlan(message)
