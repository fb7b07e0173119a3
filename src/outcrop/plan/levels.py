"""What each level of a pass is about: which parts of planes it writes and reads, in which rings, and which levels must
have written what it finds there.

What lies beyond a side that is not fixed is folded back: periodic axes go on at the other end, mirrors show what is
near them, which is within reach anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from outcrop.plan.actions import Block, Commit, Copy, Update
from outcrop.plan.contents import Span, require
from outcrop.plan.fields import Operand, versions
from outcrop.plan.geometry import Bound, Cut, Region
from outcrop.plan.plan import Pass
from outcrop.plan.problem import Problem

Ranges: TypeAlias = list[tuple[int, int]]


@dataclass(frozen=True)
class Part:
    """What a level updates of a plane, and the parts of it and its neighbours that it looks at."""

    cut: Span
    seen: tuple[Span, ...]

    @cached_property
    def cuts(self) -> tuple[Span, ...]:
        """What is updated, as a tuple of one."""
        return (self.cut,)


class Places:
    """Where anything along one axis begins or ends, and the place of each among them."""

    def __init__(self, coordinates: set[int]) -> None:
        self.coordinates = sorted(coordinates)
        self.of = {coordinate: place for place, coordinate in enumerate(self.coordinates)}


class Parts:
    """The parts of planes that a pass is about, by places along rows and columns."""

    def __init__(self, problem: Problem, one: Pass) -> None:
        self._problem, self._levels = problem, one.levels
        self.rows, self.columns = (Places(found) for found in _coordinates(problem, one))
        self._regions: dict[Region, list[Part | None]] = {}

    def span(self, cut: Cut) -> Span:
        """A part of a plane by places."""
        rows, columns = self.rows.of, self.columns.of
        return rows[cut.y0], rows[cut.y1], columns[cut.x0], columns[cut.x1]

    def of_levels(self, region: Region) -> list[Part | None]:
        """What each level updates of a plane, beginning with level 1 at 1."""
        if region not in self._regions:
            cuts = cuts_of(self._problem, region, self._levels)
            known = {cut: self._part(cut) for cut in dict.fromkeys(cuts)}
            self._regions[region] = [None, *(known[cut] for cut in cuts)]
        return self._regions[region]

    def _part(self, cut: Cut | None) -> Part | None:
        if cut is None:
            return None
        rows, columns = rows_seen(self._problem, cut), columns_seen(self._problem, cut)
        seen = tuple(self.span(Cut(*ys, *xs)) for ys in rows for xs in columns)
        return Part(self.span(cut), seen)


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


def cuts_of(problem: Problem, region: Region, levels: int) -> list[Cut | None]:
    """What each level updates of a plane, None where that is nothing."""
    bounds = region.y_low, region.y_high, region.x_low, region.x_high
    flat = all(bound.slope == 0 for bound in bounds)
    found = [_cut_at(problem, bounds, level) for level in range(1, 2 if flat else levels + 1)]
    return found * levels if flat else found


def _cut_at(problem: Problem, bounds: tuple[Bound, ...], level: int) -> Cut | None:
    y0, y1, x0, x1 = (bound.at(level) for bound in bounds)
    cut = Cut(max(problem.first_row, y0), min(problem.end_row, y1), max(0, x0), min(problem.pitch_cells, x1))
    return cut if cut.cells else None


def _coordinates(problem: Problem, one: Pass) -> tuple[set[int], set[int]]:
    """Rows and columns at which anything in a pass begins or ends."""
    _, ny, nx = problem.shape
    low, high = (problem.radii[2] if side == "fixed" else 0 for side in problem.sides[2])
    first = min(low, nx)
    rows = {0, ny, problem.first_row, problem.end_row}
    columns = {0, nx, problem.pitch_cells, first, max(first, nx - high)}
    whole, cuts, regions = problem.whole_plane, set(), {}
    for action in one.actions:
        kind = type(action)
        if kind is Update:
            regions[id(action.region)] = action.region  # type: ignore[union-attr]
        elif kind is Block:
            cuts |= {action.frame, action.own}  # type: ignore[union-attr]
        elif kind is not Commit:
            cuts.add(action.cut)  # type: ignore[union-attr]
            if kind is Copy:
                cuts.add(action.own)  # type: ignore[union-attr]
    for cut in cuts:
        rows |= {cut.y0, cut.y1, max(0, min(cut.y0, whole.y1)), max(0, min(cut.y1, whole.y1))}
        columns |= {cut.x0, cut.x1, max(0, min(cut.x0, whole.x1)), max(0, min(cut.x1, whole.x1))}
    for region in dict.fromkeys(regions.values()):
        for updated in dict.fromkeys(cuts_of(problem, region, one.levels)):
            if updated is not None:
                rows.update(y for ys in [(updated.y0, updated.y1), *rows_seen(problem, updated)] for y in ys)
                columns.update(x for xs in [(updated.x0, updated.x1), *columns_seen(problem, updated)] for x in xs)
    return rows, columns


@dataclass(frozen=True)
class Use:
    """A level reads a ring: cells that level `wanted` wrote. If it `moves`, a level that does the same later reads
    what was written as many levels later. `beside`: it reads neighbours, too."""

    field: int
    ring: int
    wanted: int
    moves: bool
    beside: bool


@dataclass(frozen=True)
class LevelUses:
    """What a level reads, and of each of its targets the rings of the newest values and of the ones it writes."""

    reads: tuple[Use, ...]
    targets: tuple[tuple[int, int], ...]


class Uses:
    """Those of all levels. Copies take turns, so levels a `turn` apart do the same, but for those of the first turn,
    which find what was there before the pass."""

    def __init__(self, problem: Problem, levels: int) -> None:
        self._problem, self._levels = problem, levels
        self.turn = 2 * problem.stages
        self._versions = versions(problem.fields, problem.updates, min(levels, 2 * self.turn))
        self._known: dict[int, LevelUses] = {}
        doubles = [f for f, one in enumerate(problem.fields) if one.is_double]
        self.second = {f: len(problem.fields) + place for place, f in enumerate(doubles)}

    def ring(self, field: int, copy: int) -> int:
        """The ring of a copy of a field."""
        return self.second[field] if copy else field

    def copies(self, level: int) -> list[int]:
        """The rings of first (even `level`) or second copies of what is updated."""
        if level % 2:
            return list(self.second.values())
        return [field for field, one in enumerate(self._problem.fields) if not one.is_static]

    def final(self, field: int, age: int) -> tuple[int, int]:
        """The ring that holds an array's values after the last level, and the level that wrote them."""
        alike = self._alike(self._levels)
        version = self._versions[alike].of(Operand(field, age))
        return self.ring(field, version.copy), version.level + self._levels - alike

    def of(self, level: int) -> tuple[LevelUses, int]:
        """What a level reads and writes, said of one that does the same, and how many levels later it is than that."""
        alike = self._alike(level)
        if alike not in self._known:
            self._known[alike] = self._uses(alike)
        return self._known[alike], level - alike

    def _alike(self, level: int) -> int:
        return level if level <= 2 * self.turn else self.turn + 1 + (level - 1) % self.turn

    def _uses(self, level: int) -> LevelUses:
        problem = self._problem
        stage = problem.updates[(level - 1) % problem.stages]
        before, after = self._versions[level - 1], self._versions[level]
        reads = []
        for one in stage.reads:
            found, moves = before.of(one), not problem.fields[one.field].is_static
            reads.append(Use(one.field, self.ring(one.field, found.copy), found.level, moves, one.beside))
        targets = [tuple(self.ring(f, now.newest[f].copy) for now in (before, after)) for f in stage.targets]
        overwritten = {target for _, target in targets}
        is_apart = all(use.ring not in overwritten for use in reads if use.beside)
        require(is_apart, "a stage reads at neighbours what it overwrites")
        return LevelUses(tuple(reads), tuple((centre, target) for centre, target in targets))
