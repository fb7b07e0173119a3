"""Execute a plan with NumPy. The code is slow and simple. It defines the meaning of each action a second time,
independently of the executor.

A ring is a dictionary of whole planes. A transfer is an assignment. The program of a stage updates a plane. Cells that
no action has filled are NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from oracle import Signals, seen_cells, seen_from
from outcrop.language.boundary import Boundary
from outcrop.language.program import Load, evaluate
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.plan.actions import Action, Block, Carry, Commit, Copy, Read, Rectangle, Update, Write
from outcrop.plan.plan import Pass, Plan
from outcrop.plan.problem import Problem

Cells = NDArray[np.floating]
State = Mapping[str, Cells]


def rehearse_fields(
    plan: Plan, stencil: Stencil, parameters: Mapping[str, float], state: State, signals: Signals | None = None
) -> dict[str, Cells]:
    """Return the arrays of a state after all passes of `plan`. `state` has the form that oracle.py describes. Cells
    that no action writes are NaN."""
    found, step = dict(state), 0
    kept = _Rings()
    for one in plan.passes:
        rehearsal = _Rehearsal(plan, stencil, parameters, found, signals or {}, step, one, kept)
        for action in one.actions:
            rehearsal.perform(action)
        found.update(rehearsal.target)
        step += rehearsal.steps
    return found


def rehearse(plan: Plan, stencil: Stencil, parameters: Mapping[str, float], initial: Cells) -> Cells:
    """Return the grid of a stencil of one field after all passes of `plan`. `initial` has the shape (nz, ny, nx)."""
    (field,) = stencil.fields
    return rehearse_fields(plan, stencil, parameters, {field.name: initial})[field.name]


def rehearse_one_layer(plan: Plan, stencil: Stencil, parameters: Mapping[str, float], initial: Cells) -> Cells:
    """Return the grid after all passes of a plan whose window holds both arrays. Planes stay in the window between
    passes.
    """
    (field,) = stencil.fields
    grid = initial
    for one in plan.passes:
        rehearsal = _Rehearsal(plan, stencil, parameters, {field.name: grid}, {}, 0, one, _Rings())
        for z in range(len(grid)):
            rehearsal.slot(0, z)[:] = grid[z]
            rehearsal.slot(1, z)[:] = initial[z]  # only the rim of this array is used
        for action in one.actions:
            rehearsal.perform(action)
        grid = np.stack([rehearsal.slot(one.levels % 2, z) for z in range(len(grid))])
    return grid


class _Rings(dict[int, dict[int, tuple[Block | None, int, Cells]]]):
    """The content of all rings, a nested dictionary: ring -> slot -> (block that filled the slot, number of the plane,
    cells of the plane)."""

    def copy_of(self) -> _Rings:
        return _Rings({ring: dict(slots) for ring, slots in self.items()})


class _Rehearsal:
    """The state of one pass. A slot has room for all cells of a plane. Cells outside the block that has filled the slot
    are NaN."""

    def __init__(
        self, plan: Plan, stencil: Stencil, parameters: Mapping[str, float], state: State, signals: Signals,
        first_step: int, one: Pass, rings: _Rings,
    ) -> None:  # fmt: skip
        self.problem, self.stencil, self.boundary = plan.problem, stencil, Boundary(*plan.problem.sides)  # type: ignore[arg-type]
        self.steps, self.first_step = one.levels // plan.problem.stages, first_step
        self.parameters, self.signals = stencil.scalars(parameters), signals
        self.ring_sizes = list(plan.window.rings(plan.problem))
        self.names = [field.name for field in stencil.fields]
        storage = stencil.storage
        doubles = [number for number, kept in enumerate(storage) if kept.is_double]
        self.second = {number: len(self.names) + place for place, number in enumerate(doubles)}
        self.updated = [number for number, kept in enumerate(storage) if not kept.is_static]
        self.entries = [(f, age) for f in self.updated for age in range(storage[f].history)]
        self.source = {self._name(*entry): state[self._name(*entry)] for entry in self.entries}
        self.statics = {f: state[self.names[f]] for f, kept in enumerate(storage) if kept.is_static}
        self.target = {name: np.full_like(array, np.nan) for name, array in self.source.items()}
        self.other = np.full_like(next(iter(self.source.values())), np.nan)
        self.fringes: dict[tuple[int, int], Cells] = {}
        self.block = self.former_block = Block(self.problem.whole_plane)
        self.rings = self.former = rings
        self.copies, self.final = stencil.copies, stencil.newest_copies(self.steps)

    def _name(self, field: int, age: int) -> str:
        return self.names[field] + (PREVIOUS if age else "")

    def _ring(self, field: int, copy: int) -> int:
        return self.second[field] if copy else field

    def perform(self, action: Action) -> None:
        match action:
            case Block() if action != self.block:
                self.former_block, self.block = self.block, action
                self.former = self.rings.copy_of()
            case Block() | Commit():
                pass
            case Carry(z0, z1, area, level):
                for ring in self._kept(level):
                    for z in range(z0, z1):
                        block, plane, cells = self.former[ring][self._place(ring, z)]
                        assert (block, plane) == (self.former_block, z), "a slot that holds something else"
                        _cells(self.slot(ring, z), area)[:] = _cells(cells, area)
            case Read(z0, z1, area):
                for z in range(z0, z1):
                    for ring, stored in self._stored(action, z):
                        _cells(self.slot(ring, z), area)[:] = _cells(stored, area)
            case Copy(z0, z1, area):
                for field, ring in self.second.items():
                    for z in range(z0, z1):
                        _copy_rim(self.problem, z, area, self.slot(field, z), self.slot(ring, z))
            case Update():
                self._update(action)
            case Write(z0, z1):
                for z in range(z0, z1):
                    self._write(action, z)

    def _stored(self, action: Read, z: int) -> Iterator[tuple[int, Cells]]:
        plane = self._plane(z)
        if action.array == "source":
            for field, age in self.entries:
                yield self._ring(field, age), self.source[self._name(field, age)][plane]
        elif action.array == "statics":
            for field, array in self.statics.items():
                yield field, array[plane]
        elif action.array == "fringes":
            for ring in self._kept(action.level):
                yield ring, self.fringes[z, ring]
        else:
            array = self.other if action.array == "other" else self.target[self.names[0]]
            yield action.level & 1, array[plane]

    def _write(self, action: Write, z: int) -> None:
        area, plane = action.area, self._plane(z)
        if action.array == "fringes":
            for ring in self._kept(action.level):
                self.fringes[z, ring] = self.slot(ring, z).copy()
        elif action.array == "target":
            for field, age in self.entries:
                ring = self._ring(field, self.final[field] ^ age)
                _cells(self.target[self._name(field, age)][plane], area)[:] = _cells(self.slot(ring, z), area)
        else:
            _cells(self.other[plane], area)[:] = _cells(self.slot(action.level & 1, z), area)

    def _kept(self, level: int) -> Sequence[int]:
        """Return the rings of the first copies if `level` is even, otherwise the rings of the second copies."""
        return list(self.second.values()) if level % 2 else self.updated

    def _place(self, ring: int, z: int) -> int:
        one = self.ring_sizes[ring]
        return z if one.resident else (z + self.block.shift) % one.planes

    def slot(self, ring: int, z: int) -> Cells:
        """Return the slot of a ring that holds the plane at position z."""
        slots, place = self.rings.setdefault(ring, {}), self._place(ring, z)
        owner = None if self.ring_sizes[ring].resident else self.block
        if place not in slots or slots[place][:2] != (owner, z):
            slots[place] = (owner, z, np.full_like(self.other[0], np.nan))
        return slots[place][2]

    def _plane(self, position: int) -> int:
        if not self.problem.periodic[0]:
            return position
        return position // 2 if position % 2 == 0 else self.problem.planes - 1 - position // 2

    def _position(self, z: int) -> int:
        """Return the position of the plane inside the grid from which a read of plane z gets its values. z may be
        outside the grid."""
        count = self.problem.planes
        inside = seen_from(z, count, self.boundary.z)
        if not self.problem.periodic[0]:
            return int(inside)
        return int(2 * inside if inside < (count + 1) // 2 else 2 * (count - 1 - inside) + 1)

    def _update(self, action: Update) -> None:
        problem, region = self.problem, action.region
        for zeta in range(action.zeta0, action.zeta1):
            for level in range(1, action.levels + 1):
                z = zeta - problem.skew_z * (level - 1)
                low, high = region.z_low.at(level), region.z_high.at(level)
                if max(problem.first_plane, low) <= z < min(problem.end_plane, high):
                    y0, y1 = region.y_low.at(level), region.y_high.at(level)
                    rows = range(max(problem.first_row, y0), min(problem.end_row, y1))
                    columns = range(max(0, region.x_low.at(level)), min(problem.shape[2], region.x_high.at(level)))
                    if rows and columns:
                        self._update_plane(z, level, rows, columns)

    def _update_plane(self, position: int, level: int, rows: range, columns: range) -> None:
        step, number = divmod(level - 1, self.problem.stages)
        stage, copies = self.stencil.stages[number], self.copies[(level - 1) % len(self.copies)]
        source = dict(zip(stage.operands, copies.sources, strict=True))
        z = self._plane(position)
        low, high = self.boundary.rims(self.problem.radii)[2]
        inner = range(max(low, columns.start), min(self.problem.shape[2] - high, columns.stop))

        def load(operation: Load) -> Cells:
            dz, dy, dx = operation.offset
            plane = self.slot(self._ring(*source[operation.field, operation.age]), self._position(z + dz))
            ranges = range(rows.start + dy, rows.stop + dy), range(inner.start + dx, inner.stop + dx)
            return seen_cells(plane, ranges, (self.boundary.y, self.boundary.x))

        scalars = (*self.parameters, *(self.signals[name][self.first_step + step] for name in self.stencil.signals))
        # The copies are needed because a result may be a view of a plane that the stage updates.
        results = evaluate(stage.program, load, scalars, self.other.dtype.type) if inner else []
        results = [np.broadcast_to(result, (len(rows), len(inner))).copy() for result in results]
        for place, (field, target) in enumerate(zip(stage.targets, copies.targets, strict=True)):
            before, after = (self.slot(self._ring(*one), position) for one in (source[field, 0], target))
            # Like a kernel, this code copies the rim in x together with each row that it updates.
            after[_part(rows, columns)] = before[_part(rows, columns)]
            if inner:
                after[_part(rows, inner)] = results[place]


def _part(rows: range, columns: range) -> tuple[slice, slice]:
    return slice(rows.start, rows.stop), slice(columns.start, columns.stop)


def _cells(plane: Cells, area: Rectangle) -> Cells:
    part: Cells = plane[area.y0 : area.y1, area.x0 : area.x1]
    return part


def _copy_rim(problem: Problem, z: int, area: Rectangle, source: Cells, target: Cells) -> None:
    interior = range(problem.first_row, problem.end_row)
    for y in range(area.y0, area.y1):
        if y not in interior or not problem.first_plane <= z < problem.end_plane:
            target[y, area.x0 : area.x1] = source[y, area.x0 : area.x1]
