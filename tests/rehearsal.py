"""Execute a plan with slow and simple NumPy code. This code defines the meaning of each action independently of the
executor.

A ring is a dictionary of whole planes. A transfer copies cells by an assignment. The program of a stage updates a whole
plane. Cells that no action has filled are NaN.

If the grid is divided among ranks, the ranks take turns, and each rank performs one action in its turn. A connection to
a neighbour is a queue of messages. The turn of a rank is skipped if its next action must receive rows that the
neighbour has not sent yet.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle import Signals, seen_cells, seen_from
from outcrop.language.boundary import Boundary
from outcrop.language.program import Load, evaluate
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.plan.actions import (
    ABOVE,
    FACES,
    SIDES,
    Action,
    Block,
    Carry,
    Check,
    Commit,
    Copy,
    Read,
    Rectangle,
    Update,
    Write,
    side_of,
)
from outcrop.plan.plan import Pass, Plan
from outcrop.plan.ranks import RankPlans

Cells = NDArray[np.floating]
State = Mapping[str, Cells]
Link: TypeAlias = "deque[tuple[tuple[str, int, str, int], Cells]]"
"""The messages that a neighbour has not received yet. A message has the name of the array, the number of the plane, the
name of the field, the number of rows, and the rows."""


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


def rehearse_ranks(
    every: RankPlans, stencil: Stencil, parameters: Mapping[str, float], state: State, signals: Signals, seed: int
) -> dict[str, Cells]:
    """Return the arrays of the whole grid after all passes of all ranks. The next action is always an action of a
    random rank. Raises AssertionError if ranks wait for each other, or if messages are left at the end."""
    rng, links = random.Random(seed), defaultdict[tuple[int, int], Link](deque)
    parts, ranks = [], []
    for rank, plan in enumerate(every.plans):
        part = {name: array[every.cells(rank)] for name, array in state.items()}
        # the key of a queue: the number of the sender, and the side of the receiver at which the sender is
        outgoing = [links[rank, side ^ 1] for side in SIDES]
        incoming = [links[-1 if other is None else other, side] for side, other in enumerate(every.neighbours(rank))]
        parts.append(part)
        ranks.append(_rank(plan, stencil, parameters, part, signals, outgoing, incoming))
    waiting: set[int] = set()
    going = set(range(every.ranks))
    while going:
        assert waiting < going, f"ranks {sorted(waiting)} wait for each other"
        rank = rng.choice(sorted(going - waiting))
        is_waiting = next(ranks[rank], None)
        if is_waiting is None:
            going.remove(rank)
        waiting = waiting | {rank} if is_waiting else set()
    assert not any(links.values()), "messages that no rank has received"
    found = {name: np.empty_like(array) for name, array in state.items()}
    for rank, part in enumerate(parts):
        for name, array in part.items():
            found[name][every.cells(rank)] = array
    return found


def _rank(
    plan: Plan, stencil: Stencil, parameters: Mapping[str, float], state: dict[str, Cells], signals: Signals,
    outgoing: Sequence[Link], incoming: Sequence[Link],
) -> Iterator[bool]:  # fmt: skip
    """Perform all passes of a rank, one action at a time, and change `state`. Yield False after each action, and True
    while the next action waits for messages."""
    step, kept = 0, _Rings()
    for one in plan.passes:
        rehearsal = _Rehearsal(plan, stencil, parameters, state, signals, step, one, kept, outgoing, incoming)
        for action in one.actions:
            while not rehearsal.can_perform(action):
                yield True
            rehearsal.perform(action)
            yield False
        state.update(rehearsal.target)
        step += rehearsal.steps


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
    """The contents of all rings, as rings[ring][slot]. An entry has the block that filled the slot, the number of the
    plane, and the cells of the plane."""

    def copy_of(self) -> _Rings:
        return _Rings({ring: dict(slots) for ring, slots in self.items()})


class _Rehearsal:
    """The state of one pass. A slot has room for all cells of a plane, including the rows of neighbours. Cells outside
    the block that has filled the slot are NaN. `outgoing` has the messages to the neighbours at all sides, and
    `incoming` has the messages from them."""

    def __init__(
        self, plan: Plan, stencil: Stencil, parameters: Mapping[str, float], state: State, signals: Signals,
        first_step: int, one: Pass, rings: _Rings, outgoing: Sequence[Link] = (), incoming: Sequence[Link] = (),
    ) -> None:  # fmt: skip
        self.problem, self.stencil, self.boundary = plan.problem, stencil, Boundary(*plan.problem.kernel_sides)  # type: ignore[arg-type]
        self.outgoing, self.incoming = outgoing, incoming
        frames = [action.frame for action in one.actions if isinstance(action, Block)]
        # the frames of a rank may have rows of neighbours
        self.frame = plan.problem.whole_plane
        for frame in frames:
            self.frame = replace(self.frame, y0=min(self.frame.y0, frame.y0), y1=max(self.frame.y1, frame.y1))
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
            case Block() | Commit() | Check():  # this code computes no checksums
                pass
            case Carry(z0, z1, area, level):
                for ring in self._kept(level):
                    for z in range(z0, z1):
                        block, plane, cells = self.former[ring][self._place(ring, z)]
                        assert (block, plane) == (self.former_block, z), "a slot that holds something else"
                        _cells(self.slot(ring, z), area)[:] = _cells(cells, area)
            case Read(z0, z1, area) if action.array in FACES:
                for z in range(z0, z1):
                    for name, ring in self._exchanged(action):
                        about, rows = self.incoming[side_of(action)].popleft()
                        assert about == (action.array, self._from_cut(action, z), name, area.y1 - area.y0), "another"
                        self._part(ring, z, area)[:] = rows
            case Read(z0, z1, area):
                for z in range(z0, z1):
                    for ring, stored in self._stored(action, z):
                        first = self.frame.y0 if action.array == "fringes" else 0
                        rows = replace(area, y0=area.y0 - first, y1=area.y1 - first)
                        self._part(ring, z, area)[:] = _cells(stored, rows)
            case Copy(z0, z1, area):
                rows = replace(area, y0=area.y0 - self.frame.y0, y1=area.y1 - self.frame.y0)
                interior = range(self.problem.first_row - self.frame.y0, self.problem.end_row - self.frame.y0)
                for field, ring in self.second.items():
                    for z in range(z0, z1):
                        is_rim = not self.problem.first_plane <= z < self.problem.end_plane
                        _copy_rim(range(0) if is_rim else interior, rows, self.slot(field, z), self.slot(ring, z))
            case Update():
                self._update(action)
            case Write(z0, z1, _, area) if action.array in FACES:
                for z in range(z0, z1):
                    for name, ring in self._exchanged(action):
                        about = action.array, self._from_cut(action, z), name, area.y1 - area.y0
                        self.outgoing[side_of(action)].append((about, self._part(ring, z, area).copy()))
            case Write(z0, z1):
                for z in range(z0, z1):
                    self._write(action, z)

    def _from_cut(self, action: Read | Write, z: int) -> int:
        """Return the number of plane z in a message. If the action exchanges planes along z, planes are counted from
        the cut."""
        return z - self.problem.planes if side_of(action) == ABOVE else z

    def can_perform(self, action: Action) -> bool:
        """Return False if the action waits for messages of a neighbour."""
        if not isinstance(action, Read) or action.array not in FACES:
            return True
        return len(self.incoming[side_of(action)]) >= (action.z1 - action.z0) * len(self._exchanged(action))

    def _exchanged(self, action: Read | Write) -> list[tuple[str, int]]:
        """Return the name and the ring of each array whose cells an action exchanges with a neighbour."""
        if action.array == "static_faces":
            return [(self.names[field], field) for field in self.statics]
        if action.array == "finished":
            return [(self._name(f, age), self._ring(f, self.final[f] ^ age)) for f, age in self.entries]
        if action.array == "stairs" and action.level > 0:
            targets = self.copies[(action.level - 1) % len(self.copies)].targets
            return [(self.names[field], self._ring(field, copy)) for field, copy in targets]
        return [(self._name(*entry), self._ring(*entry)) for entry in self.entries]

    def _part(self, ring: int, z: int, area: Rectangle) -> Cells:
        """Return the cells `area` of a slot."""
        first = self.frame.y0
        return _cells(self.slot(ring, z), replace(area, y0=area.y0 - first, y1=area.y1 - first))

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
                _cells(self.target[self._name(field, age)][plane], area)[:] = self._part(ring, z, area)
        else:
            _cells(self.other[plane], area)[:] = _cells(self.slot(action.level & 1, z), area)

    def _kept(self, level: int) -> Sequence[int]:
        """Return the rings of the first copies if `level` is even, or the rings of the second copies if `level` is
        odd."""
        return list(self.second.values()) if level % 2 else self.updated

    def _place(self, ring: int, z: int) -> int:
        one = self.ring_sizes[ring]
        return z if one.resident else (z + self.block.shift) % one.planes

    def slot(self, ring: int, z: int) -> Cells:
        """Return the slot of a ring that holds the plane at position z."""
        slots, place = self.rings.setdefault(ring, {}), self._place(ring, z)
        owner = None if self.ring_sizes[ring].resident else self.block
        if place not in slots or slots[place][:2] != (owner, z):
            rows = max(self.frame.y1 - self.frame.y0, self.problem.shape[1])
            slots[place] = (owner, z, np.full((rows, self.problem.shape[2]), np.nan, self.other.dtype))
        return slots[place][2]

    def _plane(self, position: int) -> int:
        if not self.problem.periodic[0]:
            return position
        return position // 2 if position % 2 == 0 else self.problem.planes - 1 - position // 2

    def _position(self, z: int) -> int:
        """Return the position of the plane that a read of plane z gets. If plane z is outside the grid, the boundary
        determines a plane inside the grid."""
        count, (below, above) = self.problem.planes, self.problem.neighbours_z
        if (below and z < 0) or (above and z >= count):
            return z
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
        rows = range(rows.start - self.frame.y0, rows.stop - self.frame.y0)
        inner = range(max(low, columns.start), min(self.problem.shape[2] - high, columns.stop))

        def load(operation: Load) -> Cells:
            dz, dy, dx = operation.offset
            plane = self.slot(self._ring(*source[operation.field, operation.age]), self._position(z + dz))
            ranges = range(rows.start + dy, rows.stop + dy), range(inner.start + dx, inner.stop + dx)
            return seen_cells(plane, ranges, (self.boundary.y, self.boundary.x))

        scalars = (*self.parameters, *(self.signals[name][self.first_step + step] for name in self.stencil.signals))
        # Results are copied, because they may be views of planes that the stage updates.
        results = evaluate(stage.program, load, scalars, self.other.dtype.type) if inner else []
        results = [np.broadcast_to(result, (len(rows), len(inner))).copy() for result in results]
        for place, (field, target) in enumerate(zip(stage.targets, copies.targets, strict=True)):
            before, after = (self.slot(self._ring(*one), position) for one in (source[field, 0], target))
            # A kernel copies the rim in x together with each updated row. This code does the same.
            after[_part(rows, columns)] = before[_part(rows, columns)]
            if inner:
                after[_part(rows, inner)] = results[place]


def _part(rows: range, columns: range) -> tuple[slice, slice]:
    return slice(rows.start, rows.stop), slice(columns.start, columns.stop)


def _cells(plane: Cells, area: Rectangle) -> Cells:
    part: Cells = plane[area.y0 : area.y1, area.x0 : area.x1]
    return part


def _copy_rim(interior: range, area: Rectangle, source: Cells, target: Cells) -> None:
    for y in range(area.y0, area.y1):
        if y not in interior:
            target[y, area.x0 : area.x1] = source[y, area.x0 : area.x1]
