"""This module defines the data that the proof of a plan uses (validate.py). The data describe the contents of planes,
and the reads and writes of each level of a pass.

Each action of the pass applies to a range of rows and a range of columns. The proof divides the rows and the columns of
a plane at the ends of the ranges of all actions. All cells between two neighbouring ends were written by the same
level, so the number of this level describes these cells. Neighbouring planes with the same content are stored as one
range. Planes with equal contents share one object, so the proof checks each content only once.

If a side of the grid is not fixed, the cells beyond this side have the values of other cells of the grid. A periodic
axis continues at its other end. Beyond a mirror boundary, the cells near the boundary are repeated in reverse order. An
update of a cell reads only cells whose distance from this cell is at most the radius of the stencil.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from outcrop.plan.actions import FAR, Block, Bound, Commit, Copy, Read, Rectangle, Update, UpdateRegion, Write
from outcrop.plan.memory import Ring
from outcrop.plan.plan import Pass
from outcrop.plan.problem import Operand, Problem, Versions
from outcrop.plan.stairs import Stairs

Levels: TypeAlias = NDArray[np.int32]
PlaneSpan: TypeAlias = tuple[int, int, int, int]
"""A part of a plane: the first row, the end of the rows, the first column, the end of the columns. The four numbers are
positions in two lists. The lists contain the ends of the rows, and of the columns, of all actions."""
Ranges: TypeAlias = list[tuple[int, int]]
NOTHING = -9
"""The level of a cell that no action has filled."""
BEFORE = -1
"""The level of the previous values when a pass begins."""
RIM = 1 << 30
"""The level of a cell of the rim, which is valid at every level."""


class IllegalPlan(AssertionError):
    """The error for a plan that would compute a wrong result. The cause of an IllegalPlan is always a bug in a scheme,
    and never a wrong input of the user."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise IllegalPlan(message)


class CellLevels:
    """The levels of all cells in one part of a plane. An object of this class never changes, so many planes can share
    one object."""

    __slots__ = ("_after", "_holds", "levels", "shape")

    def __init__(self, shape: Shape, levels: Levels) -> None:
        self.shape, self.levels = shape, levels
        self._holds: dict[tuple[object, int], bool] = {}
        self._after: dict[tuple[object, ...], CellLevels] = {}

    def part(self, span: PlaneSpan) -> Levels:
        """Return the levels of the cells in the part `span` of the plane. Raises IllegalPlan if this object does not
        contain all cells of the part."""
        y0, y1, x0, x1 = self.shape.span
        require(y0 <= span[0] <= span[1] <= y1 and x0 <= span[2] <= span[3] <= x1, "cells that are not in the frame")
        return self.levels[span[0] - y0 : span[1] - y0, span[2] - x0 : span[3] - x0]

    def holds(self, spans: tuple[PlaneSpan, ...], level: int) -> bool:
        """Return True if all cells of the parts `spans` are at `level` or belong to the rim."""
        key = spans, level
        if (found := self._holds.get(key)) is None:
            parts = [self.part(span) for span in spans]
            found = self._holds[key] = all(bool(((one == level) | (one == RIM)).all()) for one in parts)
        return found

    def updated(self, span: PlaneSpan, centre: CellLevels, level: int) -> CellLevels:
        """Return a copy in which the cells of the part `span` are at `level`. A cell of this part that has the level
        RIM in `centre` also has the level RIM in the copy."""
        return self._with(span, lambda: np.where(centre.part(span) == RIM, RIM, level), centre, level)

    def pasted(self, span: PlaneSpan, other: CellLevels) -> CellLevels:
        """Return a copy in which the cells of the part `span` have the levels that they have in `other`."""
        return self._with(span, lambda: other.part(span), other)

    def filled(self, span: PlaneSpan, level: int) -> CellLevels:
        """Return a copy in which all cells of the part `span` are at `level`."""
        return self._with(span, lambda: level, level)

    def raised(self, count: int) -> CellLevels:
        """Return a copy in which all levels that were written by updates are increased by `count`."""
        levels = self.levels
        return self.shape.cells(np.where((levels > 0) & (levels != RIM), levels + count, levels).astype(np.int32))

    def _with(self, span: PlaneSpan, cells: Callable[[], Levels | int], *given: object) -> CellLevels:
        """Return a copy in which the part `span` has the levels that `cells()` returns. The result of `cells()` depends
        only on `given`, so the copy is cached."""
        key = span, *given
        if (found := self._after.get(key)) is None:
            self.part(span)
            y0, _, x0, _ = self.shape.span
            levels = self.levels.copy()
            levels[span[0] - y0 : span[1] - y0, span[2] - x0 : span[3] - x0] = cells()
            found = self._after[key] = self.shape.cells(levels)
        return found


class Shape:
    """A part of a plane, and all contents that this part has had so far. One object represents all equal contents."""

    def __init__(self, span: PlaneSpan) -> None:
        self.span = span
        self._known: dict[bytes, CellLevels] = {}
        self.empty = self.cells(np.full((span[1] - span[0], span[3] - span[2]), NOTHING, np.int32))

    def cells(self, levels: Levels) -> CellLevels:
        key = levels.tobytes()
        if (found := self._known.get(key)) is None:
            found = self._known[key] = CellLevels(self, levels)
        return found


class Frame:
    """The part of a plane that a block holds in a slot. The contents of different blocks are different objects, even if
    their levels are equal."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._known: dict[CellLevels, SlotContent] = {}
        self.empty = self.content(shape.empty)

    def content(self, cells: CellLevels) -> SlotContent:
        """Return the content of a slot that holds the cells `cells`. Equal `cells` always give the same object."""
        if (found := self._known.get(cells)) is None:
            found = self._known[cells] = SlotContent(self, cells)
        return found


@dataclass(frozen=True, eq=False, slots=True)
class SlotContent:
    """The levels of the cells that a block holds in a slot."""

    frame: Frame
    cells: CellLevels


Value = TypeVar("Value")


class Runs(Generic[Value]):
    """One value for each plane, stored as ranges of planes with the same value. At the beginning, all planes have the
    value `value`."""

    def __init__(self, value: Value) -> None:
        self._starts, self._values = [-FAR], [value]

    def over(self, z0: int, z1: int) -> list[tuple[int, int, Value]]:
        """Return the ranges of equal values in the planes z0 <= z < z1. Each range is a tuple: its first plane, its
        end, and its value. The ranges are in ascending order."""
        starts, values = self._starts, self._values
        first, end = bisect_right(starts, z0) - 1, bisect_left(starts, z1)
        if end == first + 1:
            return [(z0, z1, values[first])]
        edges = [z0, *starts[first + 1 : end], z1]
        return list(zip(edges, edges[1:], values[first:end], strict=False))

    def single(self, z0: int, z1: int) -> Value | None:
        """Return the value of planes z0 <= z < z1 if all these planes have the same value. If the planes have different
        values, return None."""
        starts = self._starts
        after = bisect_right(starts, z0)
        return self._values[after - 1] if after == len(starts) or starts[after] >= z1 else None

    def put(self, z0: int, z1: int, value: Value) -> None:
        starts, values = self._starts, self._values
        first, end = bisect_left(starts, z0), bisect_right(starts, z1)
        after = values[end - 1]
        new = [] if first and values[first - 1] is value else [(z0, value)]
        new += [] if after is value else [(z1, after)]
        starts[first:end] = [z for z, _ in new]
        values[first:end] = [one for _, one in new]

    @property
    def ends(self) -> tuple[int, int]:
        """The plane at which the first range ends, and the plane at which the last range begins."""
        return self._starts[min(1, len(self._starts) - 1)], self._starts[-1]

    def advance(self, z0: int, z1: int, distance: int, times: int) -> None:
        """Move the values of planes z0 <= z < z1 up by `distance` planes. Perform this move `times` times. After each
        move, the planes that have become free get the values of planes z0 - `distance` <= z < z0."""
        window, left = self.over(z0, z1), self.over(z0 - distance, z0)
        for moves in range(1, times + 1) if len(left) > 1 else ():
            for first, end, value in left:
                self.put(first + moves * distance, end + moves * distance, value)
        if len(left) == 1:
            self.put(z0, z0 + times * distance, left[0][2])
        for first, end, value in window:
            self.put(first + times * distance, end + times * distance, value)


def together(
    one: Sequence[tuple[int, int, Value]], other: Sequence[tuple[int, int, Value]]
) -> Iterator[tuple[int, int, Value, Value]]:
    """Combine two lists of ranges. Both lists cover the same planes. If a range ends at a plane in one of the lists, a
    range of the result also ends at this plane. Yield each range with its value in the first list and its value in the
    second list."""
    if len(one) == len(other) == 1:
        yield (*one[0], other[0][2])
        return
    second = iter(other)
    _, end_of_other, beside = next(second)
    for z0, end, value in one:
        while z0 < end:
            z1 = min(end, end_of_other)
            yield z0, z1, value, beside
            z0 = z1
            if z1 == end_of_other:
                _, end_of_other, beside = next(second, (z1, FAR, beside))


def common(one: PlaneSpan, other: PlaneSpan) -> PlaneSpan | None:
    """Return the intersection of two parts of a plane, or None if the two parts share no cell."""
    y0, y1 = max(one[0], other[0]), min(one[1], other[1])
    x0, x1 = max(one[2], other[2]), min(one[3], other[3])
    return (y0, y1, x0, x1) if y0 < y1 and x0 < x1 else None


class Slots:
    """The slots of one ring. Plane z of a block is in slot (z + shift) modulo the number of slots. `shift` is an
    attribute of the Block action. A resident ring has one slot for each plane. All blocks share the slots of a resident
    ring, and these slots have the frame `disk`."""

    def __init__(self, ring: Ring, number: int, disk: Frame) -> None:
        self.ring, self._number, self._disk = ring, number, disk
        self.runs: Runs[SlotContent | None] = Runs(None)

    def place(self, frame: Frame, shift: int, z0: int, z1: int, spans: Sequence[PlaneSpan], cells: CellLevels) -> None:
        """For planes z0 <= z < z1 of a block, store the parts `spans` in the slots of these planes. If a slot holds
        another plane, the other plane is removed from the slot."""
        if self.ring.resident:
            frame, shift = self._disk, 0
        runs, first, end = self.runs, z0 + shift, z1 + shift
        for a, b, old in runs.over(first, end):
            new = old.cells if old is not None and old.frame is frame else frame.shape.empty
            for span in spans:
                new = new.pasted(span, cells)
            runs.put(a, b, frame.content(new))
        if self.ring.resident:
            return
        planes = self.ring.planes
        first = max(first, end - planes)
        low, high = runs.ends
        for times in range(1, (end - low) // planes + 1):
            runs.put(first - times * planes, end - times * planes, None)
        for times in range(1, (high - first) // planes + 1):
            runs.put(first + times * planes, end + times * planes, None)

    def there(self, frame: Frame, shift: int, z0: int, z1: int) -> list[tuple[int, int, CellLevels]]:
        """Return the cells that a block holds in the slots of planes z0 <= z < z1. Raises IllegalPlan if a plane is not
        in its slot."""
        if self.ring.resident:
            frame, shift = self._disk, 0
        content = self.runs.single(z0 + shift, z1 + shift)
        if content is not None and content.frame is frame:
            return [(z0, z1, content.cells)]
        found = []
        for first, end, content in self.runs.over(z0 + shift, z1 + shift):
            if content is None or content.frame is not frame:
                raise IllegalPlan(f"plane {first - shift} is not in ring {self._number}")
            found.append((first - shift, end - shift, content.cells))
        return found

    def change(self, frame: Frame, shift: int, z0: int, z1: int, cells: CellLevels) -> None:
        """Set the cells of planes z0 <= z < z1 of a block. The caller has checked that these planes are in their slots.
        """
        if self.ring.resident:
            frame, shift = self._disk, 0
        self.runs.put(z0 + shift, z1 + shift, frame.content(cells))


@dataclass(frozen=True)
class Part:
    """The cells that a level updates, and the cells that the level reads. `area` is the part of a plane that the level
    updates. `seen` contains the parts of planes that the level reads."""

    area: PlaneSpan
    seen: tuple[PlaneSpan, ...]

    @cached_property
    def areas(self) -> tuple[PlaneSpan, ...]:
        return (self.area,)

    @cached_property
    def sees_itself(self) -> bool:
        """True if one of the parts `seen` includes the whole part `area`."""
        y0, y1, x0, x1 = self.area
        return any(a <= y0 and y1 <= b and c <= x0 and x1 <= d for a, b, c, d in self.seen)


class Parts:
    """The parts of planes that the actions of a pass use. `rows` and `columns` map each coordinate to its position in
    the sorted list of coordinates."""

    def __init__(self, problem: Problem, one: Pass) -> None:
        self._problem, self._levels = problem, one.levels
        places = ({at: place for place, at in enumerate(sorted(found))} for found in _coordinates(problem, one))
        self.rows, self.columns = places
        # the part of a plane that contains the rows of all actions, including rows of neighbouring ranks
        self.all_rows: PlaneSpan = 0, len(self.rows) - 1, self.columns[0], self.columns[problem.pitch_cells]
        self._regions: dict[UpdateRegion, list[Part | None]] = {}

    def span(self, area: Rectangle) -> PlaneSpan:
        """Convert the coordinates of a part of a plane to positions in the sorted lists of coordinates."""
        rows, columns = self.rows, self.columns
        return rows[area.y0], rows[area.y1], columns[area.x0], columns[area.x1]

    def of_levels(self, region: UpdateRegion) -> list[Part | None]:
        """Return a list of parts of a plane. Entry n is the part that level n updates, or None if level n updates no
        cells. Entry 0 is None."""
        if region not in self._regions:
            areas = areas_of(self._problem, region, self._levels)
            known = {area: self._part(area) for area in dict.fromkeys(areas)}
            self._regions[region] = [None, *(known[area] for area in areas)]
        return self._regions[region]

    def _part(self, area: Rectangle | None) -> Part | None:
        if area is None:
            return None
        rows, columns = rows_seen(self._problem, area), columns_seen(self._problem, area)
        seen = tuple(self.span(Rectangle(*ys, *xs)) for ys in rows for xs in columns)
        return Part(self.span(area), seen)


def planes_seen(problem: Problem, z0: int, z1: int) -> Ranges:
    """Return ranges of positions that contain all planes that an update of the positions z0 <= z < z1 reads."""
    reach, count, (low, high) = problem.radius_z, problem.planes, problem.neighbours_z
    if not problem.periodic[0]:
        return [(z0 - reach if low else max(0, z0 - reach), z1 + reach if high else min(count, z1 + reach))]
    # On a periodic axis, two successive positions belong to opposite ends of the grid. So an update of two or more
    # positions reads all positions up to a distance of 2 * `reach`.
    if z1 - z0 > 1:
        return [(max(0, z0 - 2 * reach), min(count, z1 + 2 * reach))]
    plane = z0 // 2 if z0 % 2 == 0 else count - 1 - z0 // 2
    seen = {(plane + step) % count for step in range(-reach, reach + 1)}
    positions = (2 * one if one < (count + 1) // 2 else 2 * (count - 1 - one) + 1 for one in seen)
    return [(one, one + 1) for one in sorted(positions)]


def rows_seen(problem: Problem, area: Rectangle) -> Ranges:
    """Return the ranges of rows that an update of the part `area` of a plane reads. Beyond a side with a neighbouring
    rank, the update reads rows that belong to the neighbouring rank."""
    seen = _seen(area.y0, area.y1, problem.radius_y, problem.shape[1], problem.periodic[1])
    if not any(problem.neighbours):
        return seen
    ((first, end),), (low, high), reach = seen, problem.neighbours, problem.radius_y
    return [(area.y0 - reach if low else first, area.y1 + reach if high else end)]


def columns_seen(problem: Problem, area: Rectangle) -> Ranges:
    """Return the ranges of columns that an update of the part `area` of a plane reads. If both sides in x are fixed,
    kernels also read the padding of the rows."""
    nx, reach = problem.shape[2], problem.radii[2]
    if problem.sides[2] == ("fixed", "fixed"):
        return _seen(area.x0, area.x1, reach, problem.pitch_cells, False)
    return _seen(area.x0, min(area.x1, nx), reach, nx, problem.periodic[2])


def _seen(first: int, end: int, reach: int, extent: int, is_periodic: bool) -> Ranges:
    low, high = first - reach, end + reach
    if high - low >= extent and is_periodic:
        return [(0, extent)]
    if low < 0 and is_periodic:
        return [(0, high), (low + extent, extent)]
    if high > extent and is_periodic:
        return [(0, high - extent), (low, extent)]
    return [(max(0, low), max(0, low, min(extent, high)))]


def areas_of(problem: Problem, region: UpdateRegion, levels: int) -> list[Rectangle | None]:
    """Return a list with one entry for each level: the area of a plane that the level updates, or None if the level
    updates no cells."""
    bounds = region.y_low, region.y_high, region.x_low, region.x_high
    flat = all(bound.slope == 0 for bound in bounds)
    found = [_area_at(problem, bounds, level) for level in range(1, 2 if flat else levels + 1)]
    return found * levels if flat else found


def _area_at(problem: Problem, bounds: tuple[Bound, ...], level: int) -> Rectangle | None:
    y0, y1, x0, x1 = (bound.at(level) for bound in bounds)
    area = Rectangle(max(problem.first_row, y0), min(problem.end_row, y1), max(0, x0), min(problem.pitch_cells, x1))
    return area if area.cells else None


def _coordinates(problem: Problem, one: Pass) -> tuple[set[int], set[int]]:
    """Return the rows and the columns at which the ranges of the actions of a pass begin or end."""
    _, ny, nx = problem.shape
    low, high = (problem.radii[2] if side == "fixed" else 0 for side in problem.sides[2])
    first = min(low, nx)
    rows = {0, ny, problem.first_row, problem.end_row}
    columns = {0, nx, problem.pitch_cells, first, max(first, nx - high)}
    whole, areas, regions, levels = problem.whole_plane, set(), {}, set[int]()
    for action in one.actions:
        kind = type(action)
        if kind is Update:
            regions[id(action.region)] = action.region  # type: ignore[union-attr]
        elif kind is Block:
            areas |= {action.frame, action.own}  # type: ignore[union-attr]
        elif kind is not Commit:
            areas.add(action.area)  # type: ignore[union-attr]
            if kind is Copy:
                areas.add(action.own)  # type: ignore[union-attr]
            elif kind in (Read, Write) and action.array == "stairs" and action.level not in levels:  # type: ignore[union-attr]
                levels.add(action.level)  # type: ignore[union-attr]
    for area in areas:
        rows |= {area.y0, area.y1, max(0, min(area.y0, whole.y1)), max(0, min(area.y1, whole.y1))}
        columns |= {area.x0, area.x1, max(0, min(area.x0, whole.x1)), max(0, min(area.x1, whole.x1))}
    stairs = Stairs(problem, one.levels)
    for level in levels:
        if 0 <= level < one.levels:
            ends = {stairs.end(field, level) for field in stairs.fields(level)}
            rows |= ends | {ny + end for end in ends}
    for region in dict.fromkeys(regions.values()):
        for updated in dict.fromkeys(areas_of(problem, region, one.levels)):
            if updated is not None:
                rows.update(y for ys in [(updated.y0, updated.y1), *rows_seen(problem, updated)] for y in ys)
                columns.update(x for xs in [(updated.x0, updated.x1), *columns_seen(problem, updated)] for x in xs)
    return rows, columns


@dataclass(frozen=True)
class Use:
    """Describes the cells that one level reads from a ring. The last level that has written the read cells must be the
    level `wanted`. If `moves` is true, `wanted` grows with the number of the level: the equivalent level that comes n
    levels later reads cells that level `wanted + n` has written. If `beside` is true, the level also reads neighbouring
    cells."""

    field: int
    ring: int
    wanted: int
    moves: bool
    beside: bool


@dataclass(frozen=True)
class LevelUses:
    """The values that a level reads and writes. `targets` contains two rings for each field that the level writes.
    Before the level writes a field, the first ring of the field holds the newest values. The level writes the second
    ring."""

    reads: tuple[Use, ...]
    targets: tuple[tuple[int, int], ...]


class Uses:
    """The reads and writes of each level. The copies of a field are written alternately, so each level is equivalent to
    the level that comes `cycle` levels earlier. Only the first `cycle` levels have no equivalent level, because they
    read values from before the pass."""

    def __init__(self, problem: Problem, levels: int) -> None:
        self._problem, self._levels = problem, levels
        self.cycle = 2 * len(problem.updates)
        self._versions = Versions(problem.fields, problem.updates, min(levels, 2 * self.cycle))
        self._known: dict[int, LevelUses] = {}
        doubles = [f for f, one in enumerate(problem.fields) if one.is_double]
        self.second = {f: len(problem.fields) + place for place, f in enumerate(doubles)}

    def ring(self, field: int, copy: int) -> int:
        return self.second[field] if copy else field

    def copies(self, level: int) -> list[int]:
        """Return a list of rings of updated fields: the rings of first copies if `level` is even, and the rings of
        second copies if `level` is odd."""
        if level % 2:
            return list(self.second.values())
        return [field for field, one in enumerate(self._problem.fields) if one.is_state]

    def final(self, field: int, age: int) -> tuple[int, int]:
        """Return the ring with the values of a field after the last level, and the level that wrote these values. If
        `age` is 1, the returned ring has the field's previous values."""
        alike = self._alike(self._levels)
        version = self._versions.of(Operand(field, age), alike)
        return self.ring(field, version.copy), version.level + self._levels - alike

    def of(self, level: int) -> tuple[LevelUses, int]:
        """Return the reads and writes of the level `level`, or of an earlier level that is equivalent to this level.
        Also return the difference between the numbers of the two levels."""
        alike = self._alike(level)
        if alike not in self._known:
            self._known[alike] = self._uses(alike)
        return self._known[alike], level - alike

    def _alike(self, level: int) -> int:
        return level if level <= 2 * self.cycle else self.cycle + 1 + (level - 1) % self.cycle

    def _centre(self, field: int, level: int) -> int:
        """Return the ring from which an update copies the rim of a field."""
        follows = self._problem.fields[field].follows
        return self.ring(field, self._versions.newest(field, level - 1).copy) if follows < 0 else follows

    def _uses(self, level: int) -> LevelUses:
        problem, versions = self._problem, self._versions
        stage = problem.updates[(level - 1) % len(problem.updates)]
        reads = []
        for one in stage.reads:
            found, moves = versions.of(one, level - 1), not problem.fields[one.field].is_static
            reads.append(Use(one.field, self.ring(one.field, found.copy), found.level, moves, one.beside))
        targets = [(self._centre(f, level), self.ring(f, versions.newest(f, level).copy)) for f in stage.targets]
        overwritten = {target for _, target in targets}
        is_apart = all(use.ring not in overwritten for use in reads if use.beside)
        require(is_apart, "a stage overwrites values that it reads at neighbours")
        return LevelUses(tuple(reads), tuple(targets))
