"""This module performs a pass symbolically: every action is performed on every cell, with levels in place of values.

Each cell of the rings and of the arrays on disk holds the number of the level that wrote the cell. The code is slow and
simple, and it defines which plans are legal. Tests compare `plan/validate.py` with this code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatchmethod
from itertools import product

import numpy as np
from numpy.typing import NDArray

from outcrop.plan.actions import (
    ABOVE,
    BELOW,
    EVERY_CELL,
    FACES,
    FAR,
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
from outcrop.plan.contents import IllegalPlan, require
from outcrop.plan.memory import Window, slot_bytes
from outcrop.plan.plan import Pass
from outcrop.plan.problem import Operand, Problem, Versions
from outcrop.plan.stairs import Stairs

Levels = NDArray[np.int16]
NOTHING = -9
RIM = 9999
"""The level of rim cells, which are correct at every level."""
BEFORE = -1
"""The level of the previous value of a cell at the start of a pass."""


@dataclass
class _Slot:
    """One slot of a ring. A slot holds one plane, with the level of each cell inside the frame of the block."""

    frame: Rectangle
    owner: Block | None
    plane: int
    levels: Levels

    def part(self, area: Rectangle) -> Levels:
        """Return a view of the levels of the cells in `area`. The area must lie in the frame."""
        frame = self.frame
        inside = frame.y0 <= area.y0 <= area.y1 <= frame.y1 and frame.x0 <= area.x0 <= area.x1 <= frame.x1
        require(inside, f"cells {area} are not all inside the frame {frame}")
        return self.levels[area.y0 - frame.y0 : area.y1 - frame.y0, area.x0 - frame.x0 : area.x1 - frame.x0]

    def at(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Levels:
        """Return the levels of the cells in `rows` and `columns`, which must lie in the frame."""
        frame = self.frame
        inside = frame.y0 <= rows.min() and rows.max() < frame.y1
        inside = inside and frame.x0 <= columns.min() and columns.max() < frame.x1
        require(bool(inside), f"rows {rows.min()} to {rows.max()} are not all inside the frame {frame}")
        return self.levels[np.ix_(rows - frame.y0, columns - frame.x0)]


@dataclass(frozen=True)
class _Entry:
    """One array on disk. `field` is the number of its field. `age` is 1 for previous values, otherwise 0."""

    field: int
    age: int


class CellRun:
    """The window and the arrays of one pass. Each cell holds a level.

    If `has_statics` is true, the window already holds the static fields before the first action.
    """

    def __init__(self, problem: Problem, one: Pass, window: Window, has_statics: bool) -> None:
        self.problem, self.levels, self.window, self.grid = problem, one.levels, window, CellGrid(problem)
        self.fringe_rows, self.uses_other = one.fringe_rows, one.uses_other
        self.recomputed_rows = one.recomputed_rows
        self.versions = Versions(problem.fields, problem.updates, one.levels)
        updated = [f for f, one in enumerate(problem.fields) if one.is_state]
        self.state = [_Entry(f, age) for f in updated for age in range(1 + problem.fields[f].has_previous)]
        static = [(f, one) for f, one in enumerate(problem.fields) if one.is_static]
        self.statics = [_Entry(f, 0) for f, one in static if not one.is_history]
        self.histories = [f for f, one in enumerate(problem.fields) if one.is_history]
        doubles = [f for f, one in enumerate(problem.fields) if one.is_double]
        self.second = {f: len(problem.fields) + place for place, f in enumerate(doubles)}
        self.ring_sizes = list(window.rings(problem))
        self.rings: list[dict[int, _Slot]] = [{} for _ in self.ring_sizes]
        self.block = self.former_block = Block(problem.whole_plane)
        source = self.grid.source
        self.sources = [
            np.where(source == RIM, RIM, BEFORE if entry.age else 0).astype(np.int16) for entry in self.state
        ]
        self.targets = self.sources if problem.in_place else [np.full_like(source, NOTHING) for _ in self.state]
        self.other = np.full_like(source, NOTHING)
        self.fringes: dict[tuple[int, int], tuple[Rectangle, Levels]] = {}
        self.reads_statics = any(isinstance(action, Read) and action.array == "statics" for action in one.actions)
        # `source_sums` marks the cells whose checksum at level 0 has been computed. `target_sums` marks the cells whose
        # checksum at the last level has been computed. `sealed` marks the planes of the target whose checksum has been
        # written. `written` marks the cells that have been written.
        # a damaged pass may compute checksums of planes of a neighbour along z
        self.beyond = 4 * problem.max_halo_z + 8
        shape = source.shape[0] + 2 * self.beyond, *source.shape[1:]
        self.source_sums = np.zeros(shape, bool)
        self.target_sums = np.zeros(shape, bool)
        # the planes of the source and the statics that a block has read only to send them, and has not checked yet
        self.unchecked: set[tuple[str, int]] = set()
        self.sealed = np.zeros(problem.planes, bool)
        self.written = np.zeros(source.shape, bool)
        self.committed = False
        for entry in self.statics if has_statics else ():
            for z in range(problem.planes):
                self._slot(entry.field, z).levels[:] = source[z]

    def perform_all(self, actions: Sequence[Action]) -> None:
        """Perform all actions in order. The message of an error names the action that caused the error."""
        for index, action in enumerate(actions):
            try:
                self.perform(action)
            except IllegalPlan as error:
                raise IllegalPlan(f"action {index}, {action}: {error}") from None

    def fill(self, ring: int, z: int, levels: Levels) -> None:
        """Set the levels of plane z in a ring."""
        self._slot(ring, z).levels[:] = levels

    def require_final(self, z: int) -> None:
        """Raise IllegalPlan unless the window holds plane z at the last level."""
        for entry in self.state:
            ring, level = self._final(entry)
            cells = self._there(ring, z).levels
            require(bool(((cells == level) | (cells == RIM)).all()), f"plane {z} is not at the last level")

    @singledispatchmethod
    def perform(self, action: Action) -> None:
        """Perform one action, or raise IllegalPlan if the action is not allowed."""
        raise IllegalPlan("unknown action")

    @perform.register
    def _block(self, action: Block) -> None:
        frame, whole = action.frame, self.problem.whole_plane
        first, end = (FAR if is_neighbour else 0 for is_neighbour in self.problem.neighbours)
        inside = -first <= frame.y0 < frame.y1 <= whole.y1 + end and 0 <= frame.x0 < frame.x1 <= whole.x1
        require(inside, "a frame beyond the plane")
        require(slot_bytes(self.problem, frame) <= self.window.slot_bytes, "a frame larger than a slot")
        if action != self.block:
            self.former_block, self.block = self.block, action

    @perform.register
    def _carry(self, action: Carry) -> None:
        old_frame, frame = self.former_block.frame, self.block.frame
        can_move = (old_frame.x0, old_frame.x1) == (frame.x0, frame.x1) and old_frame.y0 <= frame.y0
        require(can_move, f"rows of the frame {old_frame} cannot be moved to {frame}")
        for z in self._planes(action.z0, action.z1):
            for ring in self._copies(action.level):
                old = self.rings[ring].get((z + self.former_block.shift) % self.ring_sizes[ring].planes)
                require(self.former_block.shift == self.block.shift, "a slot that planes have left")
                there = old is not None and (old.owner, old.plane) == (self.former_block, z)
                require(there, f"plane {z} is not there to be carried")
                assert old is not None
                self._slot(ring, z).part(action.area)[:] = old.part(action.area)

    @perform.register
    def _read(self, action: Read) -> None:
        if action.array in FACES:
            self._require_face(action)
        else:
            self._require_own(action)
        if self.block.only_sends and action.array not in FACES:
            self.unchecked |= self._sent(action)
        for z in self._planes(action.z0, action.z1):
            for ring, cells in self._stored(action, z):
                self._slot(ring, z).part(action.area)[:] = cells

    def _stored(self, action: Read, z: int) -> Iterator[tuple[int, Levels]]:
        """Yield each ring that a Read fills, and the levels of the cells that the Read gets."""
        area = action.area
        part = np.s_[z, area.y0 : area.y1, area.x0 : area.x1]
        if action.array == "source":
            for entry, array in zip(self.state, self.sources, strict=True):
                yield self._ring(entry.field, entry.age), array[part]
        elif action.array == "statics":
            for entry in self.statics:
                yield entry.field, self.grid.source[part]
        elif action.array in FACES:
            for ring, level, end in self._exchanged(action):
                rows = np.tile(self.grid.row_of_neighbour(z), (area.y1 - area.y0, 1))
                if side_of(action) in (BELOW, ABOVE):  # a whole plane, with its rim along y
                    inner = slice(*self.problem.own_rows) if self.problem.has_updates else slice(0)
                    rows[[y not in range(area.y1)[inner] for y in range(area.y1)]] = RIM
                levels = np.where(rows == RIM, RIM, level)
                levels[max(0, end - area.y0) :] = NOTHING
                yield ring, levels
        elif action.array == "history":
            yield self.histories[action.level], self.grid.source[part]
        elif action.array in ("fringes", "recomputed"):
            for ring in self._carried(action):
                kept, cells = self.fringes.get((z, ring), (None, None))
                require(kept == area, f"fringes of plane {z} are those of {kept}")
                assert cells is not None
                yield ring, cells
        else:
            yield self._ring(self.state[0].field, action.level & 1), self._single(action.array)[part]

    @perform.register
    def _copy(self, action: Copy) -> None:
        if action.recomputed >= 0:
            self._copy_recomputed(action)
            return
        for z in self._planes(action.z0, action.z1):
            firsts = [self._there(self._ring(entry.field, 0), z) for entry in self.state]
            for rim in self._rims(z, action.area):
                for first in firsts:
                    require(bool((first.part(rim) == RIM).all()), f"the rim of plane {z} is not in the first copy")
                for field in self.second:
                    self._slot(self._ring(field, 1), z).part(rim)[:] = RIM
                if self.block.own_z0 <= z < self.block.own_z1:
                    self._require_statics(z, rim, action.own)
                    self._sum(self.source_sums, z, rim, action.own)
                    self._sum(self.target_sums, z, rim, action.own)
            for field in self.second:
                self._slot(self._ring(field, 1), z)

    def _copy_recomputed(self, action: Copy) -> None:
        require(action.recomputed < len(self.problem.recomputed), "a field that the pass does not compute again")
        field = self.problem.recomputed[action.recomputed]
        for z in self._planes(action.z0, action.z1):
            for rim in self._rims(z, action.area):
                before = self._there(self.problem.fields[field].follows, z).part(rim)
                require(bool((before == RIM).all()), f"the rim of plane {z} is not there to be copied")
                self._slot(field, z).part(rim)[:] = RIM
            self._slot(field, z)

    def _computed(self, number: int) -> int:
        require(0 <= number < len(self.problem.computed), "a field that the pass does not compute again")
        return self.problem.computed[number]

    def _carried(self, action: Read | Write) -> list[int]:
        """Return the rings of the fringes that an action transfers."""
        return self._copies(action.level) if action.array == "fringes" else [self._computed(action.level)]

    @perform.register
    def _update(self, action: Update) -> None:
        require(1 <= action.levels <= self.levels, f"a pass of {self.levels} levels")
        require(action.zeta0 < action.zeta1, "an empty range")
        problem, region = self.problem, action.region
        for zeta in range(action.zeta0, action.zeta1):
            for level in range(1, action.levels + 1):
                z = zeta - problem.skew_z * (level - 1)
                low = max(problem.first_plane, region.z_low.at(level))
                high = min(problem.end_plane, region.z_high.at(level))
                y = max(problem.first_row, region.y_low.at(level)), min(problem.end_row, region.y_high.at(level))
                x = max(0, region.x_low.at(level)), min(problem.pitch_cells, region.x_high.at(level))
                if low <= z < high and Rectangle(*y, *x).cells:
                    self._update_plane(z, level, Rectangle(*y, *x))

    def _update_plane(self, z: int, level: int, area: Rectangle) -> None:
        stage = self.problem.updates[(level - 1) % len(self.problem.updates)]
        rows, columns = self.grid.rows_around(area.y0, area.y1), self.grid.columns_around(area.x0, area.x1)
        for operand in stage.reads:
            if operand.beside:
                for other in self.grid.planes_around(z):
                    cells = self._read_slot(operand, level, other).at(rows, columns)
                    self._require_version(operand, level, other, cells)
            self._require_version(operand, level, z, self._read_slot(operand, level, z).part(area))
        for field in stage.targets:
            follows = self.problem.fields[field].follows
            newest = self._ring(field, self.versions.newest(field, level - 1).copy)
            centre = self._there(newest if follows < 0 else follows, z).part(area) == RIM
            target = self._there(self._ring(field, self.versions.newest(field, level).copy), z)
            target.part(area)[:] = np.where(centre, RIM, level)
        if level == self.problem.lead + 1 and self.block.own_z0 <= z < self.block.own_z1:
            self._require_statics(z, area, self.block.own)
            self._sum(self.source_sums, z, area, self.block.own)
        if level == self.levels:
            self._sum(self.target_sums, z, area, EVERY_CELL)

    def _read_slot(self, operand: Operand, level: int, z: int) -> _Slot:
        return self._there(self._ring(operand.field, self.versions.of(operand, level - 1).copy), z)

    def _require_version(self, operand: Operand, level: int, z: int, cells: Levels) -> None:
        wanted = self.versions.of(operand, level - 1).level
        good = bool(((cells == wanted) | (cells == RIM)).all())
        require(good, f"level {level} needs of plane {z} what level {wanted} wrote of field {operand.field}")

    @perform.register
    def _write(self, action: Write) -> None:
        if action.array in FACES:
            self._send(action)
            return
        area = action.area
        self._require_own(action)
        require(not self.block.only_sends, "a block that only sends writes")
        part = np.s_[area.y0 : area.y1, area.x0 : area.x1]
        for z in self._planes(action.z0, action.z1):
            if action.array in ("fringes", "recomputed"):
                rings = self._carried(action)
                most = self.fringe_rows if action.array == "fringes" else self.recomputed_rows[action.level]
                require(area.y1 - area.y0 <= most, "more rows than fringes keep")
                for ring in rings:
                    self.fringes[z, ring] = (area, self._there(ring, z).part(area).copy())
            elif action.array == "target":
                for entry, array in zip(self.state, self.targets, strict=True):
                    array[z][part] = self._there(self._final(entry)[0], z).part(area)
                self.written[z][part] = True
                descends = self.problem.block_order < 0
                corner = (0, 0) if descends else (self.problem.shape[1], self.problem.pitch_cells)
                last = corner == ((area.y0, area.x0) if descends else (area.y1, area.x1))
                self.sealed[z] = last and self.target_sums[z + self.beyond].all() if last else self.sealed[z]
            else:
                self._single(action.array)[z][part] = self._there(
                    self._ring(self.state[0].field, action.level & 1), z
                ).part(area)

    def _send(self, action: Write) -> None:
        self._require_face(action)
        for z in self._planes(action.z0, action.z1):
            for ring, level, end in self._exchanged(action):
                cells = self._there(ring, z).part(action.area)[: max(0, end - action.area.y0)]
                good = (cells == level) | (cells == RIM)
                require(bool(good.all()), f"rows of plane {z} that a neighbour expects are not at level {level}")

    def _exchanged(self, action: Read | Write) -> Iterator[tuple[int, int, int]]:
        """Yield three values for each ring whose rows are exchanged: the ring, the level of the rows, and the row after
        the last exchanged row."""
        if action.array == "finished":
            yield from ((*self._final(entry), FAR) for entry in self.state)
        elif action.array == "stairs" and action.level > 0:
            stairs, cut = Stairs(self.problem, self.levels), self.problem.shape[1] * isinstance(action, Read)
            for field in self.problem.updates[(action.level - 1) % len(self.problem.updates)].targets:
                ring = self._ring(field, self.versions.newest(field, action.level).copy)
                yield ring, action.level, cut + stairs.end(field, action.level)
        else:
            for entry in self.statics if action.array == "static_faces" else self.state:
                yield self._ring(entry.field, entry.age), BEFORE if entry.age else 0, FAR

    @perform.register
    def _check(self, action: Check) -> None:
        self._require_own(action)
        if self.block.only_sends:
            self.unchecked -= self._sent(action)
            entries = self.state if action.array == "source" else self.statics
            for z, entry in product(range(action.z0, action.z1), entries):
                level, slot = BEFORE if entry.age else 0, self._there(self._ring(entry.field, entry.age), z)
                require(bool(np.isin(slot.levels, (level, RIM)).all()), f"plane {z} has changed since it was read")
            return
        require(action.array in ("source", "target"), "an array without checksums")
        for z in self._planes(action.z0, action.z1):
            for entry in self.state:
                ring, level = self._ring(entry.field, entry.age), BEFORE if entry.age else 0
                if action.array == "target":
                    ring, level = self._final(entry)
                cells = self._there(ring, z).part(action.area)
                require(bool(((cells == level) | (cells == RIM)).all()), f"rows of plane {z} are not at level {level}")
            if action.array == "source":
                self._require_statics(z, action.area, EVERY_CELL)
            sums = self.source_sums if action.array == "source" else self.target_sums
            self._sum(sums, z, action.area, EVERY_CELL)

    def _sent(self, action: Read | Check) -> set[tuple[str, int]]:
        """Return (array, number) for each plane that `action` reads or checks. The block only sends planes."""
        is_whole = action.area == self.problem.whole_plane and action.array in ("source", "statics")
        require(is_whole, "a part of a plane that is sent")
        return {(action.array, z) for z in range(action.z0, action.z1)}

    def _require_face(self, action: Read | Write) -> None:
        """Raise IllegalPlan unless `action` transfers whole rows or planes of the rank, or of its neighbour."""
        problem, area, (nz, ny, _) = self.problem, action.area, self.problem.shape
        every, side = (*problem.neighbours, *problem.neighbours_z), side_of(action)
        sides = {side for side, is_neighbour in enumerate(every) if is_neighbour}
        require(side in sides, "no neighbour at this side")
        if side in (BELOW, ABOVE):
            low, most = {BELOW: -problem.max_halo_z, ABOVE: nz}[side], problem.max_halo_z
            low, high = (low, low + most) if isinstance(action, Read) else (0, nz)
            is_whole = area == problem.whole_plane and action.array in ("faces", "static_faces")
            require(is_whole and low <= action.z0 < action.z1 <= high, "planes that neither rank can give")
            return
        begin, count = 0, ny
        if isinstance(action, Read) != (action.array == "finished"):
            begin, count = (-problem.max_halo, ny)[side], problem.max_halo
        require(action.array != "finished" or action.level == self.levels, "rows that are not finished")
        require(action.array != "stairs" or 0 <= action.level < self.levels, "stairs of another pass")
        if action.array in ("stairs", "finished") and (action.array == "finished" or action.level):
            are_updated = problem.first_plane <= action.z0 and action.z1 <= problem.end_plane and problem.has_updates
            require(are_updated, "planes that keep their values")
        is_whole = area.x0 == 0 and area.x1 == problem.pitch_cells
        require(begin <= area.y0 < area.y1 <= begin + count and is_whole, "rows that neither rank can give")

    def _require_own(self, action: Read | Write | Check) -> None:
        whole, area = self.problem.whole_plane, action.area
        is_own = 0 <= area.y0 <= area.y1 <= whole.y1 and 0 <= area.x0 <= area.x1 <= whole.x1
        require(is_own and 0 <= action.z0 < action.z1 <= self.problem.planes, f"cells {area} are not on disk")

    @perform.register
    def _commit(self, action: Commit) -> None:
        require(not self.committed, "a second commit")
        for entry, target in zip(self.state, self.targets, strict=True):
            level = self._final(entry)[1]
            wrong = np.argwhere((target != level) & (target != RIM) | ~self.written)
            require(len(wrong) == 0, f"cell {wrong[:1].tolist()} is not written at the last level")
        missing = np.argwhere(~self.source_sums[self.beyond : self.beyond + self.problem.planes])
        require(len(missing) == 0, f"the checksum of cell {missing[:1].tolist()} is not compared")
        require(not self.unchecked, "the checksum of a plane that was sent is not compared")
        require(bool(self.sealed.all()), f"the checksum of plane {np.argmin(self.sealed)} is not written")
        self.committed = True

    def _require_statics(self, z: int, area: Rectangle, own: Rectangle) -> None:
        """Raise IllegalPlan unless the window holds the given part of the static fields. The checksums of static fields
        are computed together with the checksums of the sources.
        """
        part = Rectangle(max(area.y0, own.y0), min(area.y1, own.y1), max(area.x0, own.x0), min(area.x1, own.x1))
        for entry in self.statics if self.reads_statics and part.y0 < part.y1 and part.x0 < part.x1 else ():
            there = bool((self._there(entry.field, z).part(part) != NOTHING).all())
            require(there, f"of plane {z} field {entry.field} is not there when its checksum is taken")

    def _sum(self, summed: NDArray[np.bool_], z: int, area: Rectangle, own: Rectangle) -> None:
        """Record that an action computes the checksums of the block's own cells. No cell may be added twice."""
        rows = slice(max(0, area.y0, own.y0), max(0, min(area.y1, own.y1)))
        columns = slice(max(0, area.x0, own.x0), max(0, min(area.x1, own.x1)))
        cells = summed[z + self.beyond, rows, columns]
        require(not cells.any(), f"the checksum of cells of plane {z} is taken twice")
        cells[:] = True

    def _rims(self, z: int, area: Rectangle) -> list[Rectangle]:
        """Return the parts of `area` that no update of plane z changes."""
        problem = self.problem
        if not problem.first_plane <= z < problem.end_plane or problem.first_row >= problem.end_row:
            return [area]
        parts = (
            Rectangle(area.y0, min(area.y1, problem.first_row), area.x0, area.x1),
            Rectangle(max(area.y0, problem.end_row), area.y1, area.x0, area.x1),
        )
        return [part for part in parts if part.cells]

    def _planes(self, z0: int, z1: int) -> range:
        low, high = (self.problem.max_halo_z * is_neighbour for is_neighbour in self.problem.neighbours_z)
        require(-low <= z0 < z1 <= self.problem.planes + high, "planes that neither rank has")
        require(z0 + self.block.shift >= 0, "a slot before the first")
        return range(z0, z1)

    def _ring(self, field: int, copy: int) -> int:
        return self.second[field] if copy else field

    def _copies(self, level: int) -> list[int]:
        """Return the rings of the updated fields. For an even level, return the rings of the first copies. For an odd
        level, return the rings of the second copies."""
        if level % 2:
            return list(self.second.values())
        return [field for field, one in enumerate(self.problem.fields) if one.is_state]

    def _final(self, entry: _Entry) -> tuple[int, int]:
        """Return the ring that holds the values of an array after the last level, and the level that wrote these
        values.
        """
        version = self.versions.of(Operand(entry.field, entry.age), self.levels)
        return self._ring(entry.field, version.copy), version.level

    def _single(self, name: str) -> Levels:
        """Return the array for unfinished levels. Only a problem with a single field has such an array."""
        require(self.problem.single, "unfinished levels of several fields")
        require(name != "other" or self.uses_other, "an array that the pass does not name")
        return self.other if name == "other" else self.targets[0]

    def _slot(self, ring: int, z: int) -> _Slot:
        """Return the slot of plane z. If the slot holds another plane than plane z, empty the slot first."""
        place = self._place(ring, z)
        resident = self.ring_sizes[ring].resident
        owner, frame = (None, self.problem.whole_plane) if resident else (self.block, self.block.frame)
        found = self.rings[ring].get(place)
        if found is None or (found.owner, found.plane) != (owner, z):
            levels = np.full((frame.y1 - frame.y0, frame.x1 - frame.x0), NOTHING, np.int16)
            found = self.rings[ring][place] = _Slot(frame, owner, z, levels)
        return found

    def _there(self, ring: int, z: int) -> _Slot:
        """Return the slot of plane z. The slot must hold plane z."""
        found = self.rings[ring].get(self._place(ring, z))
        owner = None if self.ring_sizes[ring].resident else self.block
        require(found is not None and (found.owner, found.plane) == (owner, z), f"plane {z} is not in ring {ring}")
        assert found is not None
        return found

    def _place(self, ring: int, z: int) -> int:
        one = self.ring_sizes[ring]
        return z if one.resident else (z + self.block.shift) % one.planes


class CellGrid:
    """The cells of the grid at the start of a pass. A plane is named by its position, as in plans. On a periodic axis,
    the position of a plane differs from its number in the grid."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @cached_property
    def rim(self) -> Levels:
        """The whole grid, with padding. Cells of rim and padding are RIM, and all other cells are NOTHING."""
        problem = self.problem
        nz, ny, nx = problem.shape
        cells = np.full((nz, ny, problem.pitch_cells), RIM, np.int16)
        low, high = (problem.radii[2] * (side == "fixed") for side in problem.sides[2])
        columns = slice(min(low, nx), max(min(low, nx), nx - high))
        cells[problem.first_plane : problem.end_plane, problem.first_row : problem.end_row, columns] = NOTHING
        return cells

    @cached_property
    def source(self) -> Levels:
        """The levels of the newest values on disk when a pass begins. Cells of the rim are RIM, and all other cells are
        at level 0."""
        return np.where(self.rim == RIM, RIM, 0).astype(np.int16)

    def planes_around(self, position: int) -> list[int]:
        """Return the positions of the planes that an update at `position` can read."""
        count, is_periodic, (below, above) = self.problem.planes, self.problem.periodic[0], self.problem.neighbours_z
        z = _unfold(position, count) if is_periodic else position
        every = [z + step for step in range(-self.problem.radius_z, self.problem.radius_z + 1)]
        seen = (one if (below and one < 0) or (above and one >= count) else _seen(one, count, is_periodic)
                for one in every)  # fmt: skip
        return sorted({_fold(one, count) if is_periodic else one for one in seen})

    def rows_around(self, y0: int, y1: int) -> NDArray[np.intp]:
        """Return the numbers of the rows that an update of rows y0 <= y < y1 can read. Rows beyond a side with a
        neighbour are rows of the neighbour."""
        reach, ny, (low, high) = self.problem.radius_y, self.problem.shape[1], self.problem.neighbours
        every = range(y0 - reach, y1 + reach)
        beyond = {row for row in every if (row < 0 and low) or (row >= ny and high)}
        inside = {_seen(row, ny, self.problem.periodic[1]) for row in every if row not in beyond}
        return np.array(sorted(beyond | inside), np.intp)

    def row_of_neighbour(self, z: int) -> Levels:
        """Return the cells of one row of plane z. The given row is not in the rim along y."""
        problem = self.problem
        low, high = (problem.radii[2] * (side == "fixed") for side in problem.sides[2])
        cells = np.full(problem.pitch_cells, RIM, np.int16)
        if problem.first_plane <= z < problem.end_plane:
            first = min(low, problem.shape[2])
            cells[first : max(first, problem.shape[2] - high)] = NOTHING
        return cells

    def columns_around(self, x0: int, x1: int) -> NDArray[np.intp]:
        """Return the cells of a row that an update of the cells x0 <= x < x1 can read."""
        reach, nx = self.problem.radii[2], self.problem.shape[2]
        if self.problem.sides[2] == ("fixed", "fixed"):
            return np.arange(max(0, x0 - reach), min(self.problem.pitch_cells, x1 + reach))
        return self._seen_from(x0 - reach, min(x1, nx) + reach, nx, self.problem.periodic[2])

    def _seen_from(self, first: int, end: int, extent: int, is_periodic: bool) -> NDArray[np.intp]:
        return np.unique([_seen(place, extent, is_periodic) for place in range(first, end)]).astype(np.intp)


def _seen(place: int, extent: int, is_periodic: bool) -> int:
    """Return the coordinate of the cell whose value a read at `place` gets. `place` may be outside the grid."""
    if is_periodic:
        return place % extent
    folded = place % (2 * extent)
    return folded if folded < extent else 2 * extent - 1 - folded


def _fold(place: int, count: int) -> int:
    return 2 * place if place < (count + 1) // 2 else 2 * (count - 1 - place) + 1


def _unfold(position: int, count: int) -> int:
    return position // 2 if position % 2 == 0 else count - 1 - position // 2


def run_pass(problem: Problem, one: Pass, window: Window, has_statics: bool = False) -> None:
    """Raise IllegalPlan unless the pass `one` updates each cell up to the last level and writes the cell before the
    commit.
    """
    run = CellRun(problem, one, window, has_statics)
    run.perform_all(one.actions)
    require(run.committed, "no commit")


def run_one_layer(problem: Problem, one: Pass, window: Window) -> None:
    """Raise IllegalPlan unless the pass `one` updates each cell in the window up to the last level.

    Before the first action, the window holds all planes at level 0. The window also holds the cells of the rim, which
    are correct at every level."""
    run = CellRun(problem, one, window, has_statics=False)
    for z, plane in enumerate(run.grid.source):
        run.fill(0, z, plane)
        run.fill(1, z, np.where(plane == RIM, RIM, NOTHING))
    run.perform_all(one.actions)
    for z in range(problem.planes):
        run.require_final(z)
