"""What is to be computed, in the numbers that planning needs: grid, steps, fields and stages, and what depends on what.

Planes are counted by their positions in the order in which the window meets them (core/outcrop/exec/problem.hpp): on a
periodic axis they are taken from both ends in turn, so that neighbours across the ends are near each other, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from outcrop.axes import NAMES, PLACES
from outcrop.plan.actions import Rectangle

VECTOR_BYTES = 64
"""Kernels update whole vectors of this many bytes at most, so blocks are cut in x at multiples of it."""
DIRECT_BYTES = 4096
"""Offsets and lengths that direct I/O needs are multiples of this at most."""


@dataclass(frozen=True)
class FieldPlan:
    """A field, as planning sees it.

    `is_static`: nothing updates it. `is_double`: it has two copies in memory that take turns. `has_previous`: the value
    before the newest is part of the state. `flips`: a step leaves the newest value in the other copy. `name` is what
    users call it.
    """

    is_static: bool = False
    is_double: bool = True
    has_previous: bool = False
    flips: bool = True
    name: str = ""


@dataclass(frozen=True)
class Operand:
    """A value that a stage reads: the newest value of a field, or with `age` 1 the one before. If `beside`, it is read
    at neighbouring cells, too."""

    field: int
    age: int = 0
    beside: bool = True


@dataclass(frozen=True)
class StagePlan:
    """One stage: it makes new values of the fields `targets` from `reads`."""

    reads: tuple[Operand, ...]
    targets: tuple[int, ...]


PLAIN_FIELDS = (FieldPlan(),)
PLAIN_UPDATES = (StagePlan((Operand(0),), (0,)),)
"""One field that is updated from its neighbours, as by a heat equation."""


@dataclass(frozen=True)
class AcquisitionDemand:
    """Memory that sources, receivers and snapshots want: `snapshot_bytes` that are kept of one step, `point_bytes` for
    the places of sources and receivers, and `step_bytes` for their values in each step of a pass."""

    snapshot_bytes: int = 0
    point_bytes: int = 0
    step_bytes: int = 0


NO_DEMAND = AcquisitionDemand()


@dataclass(frozen=True)
class Problem:
    """Fields on a grid, to be advanced `steps` steps; a level is one stage of a step.

    `shape` is (nz, ny, nx) in cells and `radii` the stencil's reach along the same axes. Rows are `pitch_bytes`
    apart, a plane is `plane_bytes`, and a plane with its checksum and padding, as it lies on disk and in
    memory, `record_bytes`. `sides` are what lies below and above the grid along z, y and x: "fixed", "mirror" or
    "periodic". `ndim` axes are the user's own: y has one cell on grids of two, z and y have on grids of one.
    `acquisition` is the memory that sources, receivers and snapshots want beside the window.
    """

    stencil: str
    radii: tuple[int, int, int]
    shape: tuple[int, int, int]
    dtype: str
    steps: int
    pitch_bytes: int
    plane_bytes: int
    record_bytes: int
    sides: tuple[tuple[str, str], ...] = (("fixed", "fixed"),) * 3
    in_place: bool = False
    fields: tuple[FieldPlan, ...] = PLAIN_FIELDS
    updates: tuple[StagePlan, ...] = PLAIN_UPDATES
    ndim: int = 3
    acquisition: AcquisitionDemand = NO_DEMAND

    @property
    def stages(self) -> int:
        """Levels of a step."""
        return len(self.updates)

    @property
    def levels(self) -> int:
        """Levels of all steps."""
        return self.steps * self.stages

    @property
    def radius_z(self) -> int:
        """Planes that the stencil reaches along the streaming axis."""
        return self.radii[0]

    @property
    def radius_y(self) -> int:
        """Rows that it reaches."""
        return self.radii[1]

    @property
    def periodic(self) -> tuple[bool, bool, bool]:
        """Whether z, y and x are."""
        z, y, x = (sides[0] == "periodic" for sides in self.sides)
        return z, y, x

    @property
    def skew_z(self) -> int:
        """Positions along z by which a dependency may move per level; at least 1, so that slabs have a slope."""
        return max(1, self.radius_z * (2 if self.periodic[0] else 1))

    @property
    def skew_y(self) -> int:
        """Rows, in the order in which tiles take them, by which a dependency may move per level; at least 1."""
        return max(1, self.radius_y * (2 if self.periodic[1] else 1))

    @property
    def rim_z(self) -> tuple[int, int]:
        """Planes at both ends that keep their values."""
        return self._rim(0)

    @property
    def rim_y(self) -> tuple[int, int]:
        """Rows at both ends that do."""
        return self._rim(1)

    def _rim(self, axis: int) -> tuple[int, int]:
        low, high = (self.radii[axis] if side == "fixed" else 0 for side in self.sides[axis])
        return low, high

    @property
    def planes(self) -> int:
        """Number of planes nz."""
        return self.shape[0]

    @property
    def item_bytes(self) -> int:
        """Bytes of one cell."""
        return {"float32": 4, "float64": 8}[self.dtype]

    @property
    def first_plane(self) -> int:
        """First plane that is updated."""
        return min(self.rim_z[0], self.planes)

    @property
    def end_plane(self) -> int:
        """One past the last plane that is updated; not below `first_plane`."""
        return max(self.first_plane, self.planes - self.rim_z[1])

    @property
    def first_row(self) -> int:
        """First row that is updated."""
        return min(self.rim_y[0], self.shape[1])

    @property
    def end_row(self) -> int:
        """One past the last row that is updated; not below `first_row`."""
        return max(self.first_row, self.shape[1] - self.rim_y[1])

    @property
    def has_updates(self) -> bool:
        """Whether there is anything but rim."""
        return self.first_plane < self.end_plane and self.first_row < self.end_row

    @property
    def statics(self) -> int:
        """Fields that nothing updates; each is an array."""
        return sum(one.is_static for one in self.fields)

    @property
    def statics_z(self) -> int:
        """How many planes away updates read fields that nothing updates: none where it is at their own cell alone."""
        operands = (operand for update in self.updates for operand in update.reads)
        is_beside = any(one.beside and self.fields[one.field].is_static for one in operands)
        return self.skew_z if is_beside else 0

    @property
    def doubles(self) -> int:
        """Fields with two copies in memory."""
        return sum(one.is_double for one in self.fields)

    @property
    def state_arrays(self) -> int:
        """Arrays that a pass reads and writes."""
        return sum(0 if one.is_static else 2 if one.has_previous else 1 for one in self.fields)

    @property
    def rings(self) -> int:
        """Rings of the window: one for each copy of a field."""
        return len(self.fields) + self.doubles

    @property
    def plain(self) -> bool:
        """Whether there is one stage, and whatever is updated has two copies of which only the newest counts."""
        updated = [one for one in self.fields if not one.is_static]
        return self.stages == 1 and all(one.is_double and not one.has_previous for one in updated)

    @property
    def single(self) -> bool:
        """Whether one field is updated, plainly."""
        return self.plain and self.state_arrays == 1

    @property
    def boundary(self) -> str:
        """The sides of the user's own axes in words."""
        own = [self.sides[place] for place in PLACES[self.ndim]]
        words = {side for sides in own for side in sides}
        if len(words) == 1:
            return words.pop()
        return ", ".join(
            f"{axis} {low}" if low == high else f"{axis} {low} and {high}"
            for axis, (low, high) in zip(NAMES[self.ndim], own, strict=True)
        )

    @property
    def own_shape(self) -> tuple[int, ...]:
        """Cells along the user's own axes: (nz, ny, nx), (ny, nx) or (nx,)."""
        return tuple(self.shape[place] for place in PLACES[self.ndim])

    @property
    def cells(self) -> int:
        """Cells of the grid, rim included."""
        nz, ny, nx = self.shape
        return nz * ny * nx

    @property
    def grid_bytes(self) -> int:
        """Bytes of all records of one array."""
        return self.planes * self.record_bytes

    @property
    def pitch_cells(self) -> int:
        """Cells from one row to the next, padding included."""
        return self.pitch_bytes // self.item_bytes

    @property
    def tail_bytes(self) -> int:
        """Bytes of a record behind its last row: the checksum and zeros."""
        return self.record_bytes - self.plane_bytes

    @property
    def whole_plane(self) -> Rectangle:
        """All cells of a plane, padding included."""
        return Rectangle(0, self.shape[1], 0, self.pitch_cells)

    @property
    def vector_cells(self) -> int:
        """Cells of the longest vector a kernel uses."""
        return VECTOR_BYTES // self.item_bytes

    @property
    def row_group(self) -> int:
        """Rows that belong together so that direct I/O can begin and end between them; 1 where there are no such
        groups of reasonable size, and transfers of some rows go through the page cache."""
        group = DIRECT_BYTES // gcd(DIRECT_BYTES, self.pitch_bytes)
        return group if 8 * group <= self.shape[1] else 1


@dataclass(frozen=True)
class FieldVersion:
    """A value of a field: the level that wrote it (0: there when the pass began, -1: the one before that), and the copy
    it lies in."""

    level: int
    copy: int


@dataclass(frozen=True)
class LevelVersions:
    """The newest value of each field and the one before it, after some level."""

    newest: tuple[FieldVersion, ...]
    previous: tuple[FieldVersion, ...]

    def of(self, operand: Operand) -> FieldVersion:
        """The value that a stage reads."""
        return (self.newest, self.previous)[operand.age][operand.field]


def versions(fields: tuple[FieldPlan, ...], updates: tuple[StagePlan, ...], levels: int) -> list[LevelVersions]:
    """Those after level 0, 1, ..., `levels` of a pass."""
    found = [LevelVersions((FieldVersion(0, 0),) * len(fields), (FieldVersion(-1, 1),) * len(fields))]
    for level in range(1, levels + 1):
        newest, previous = list(found[-1].newest), list(found[-1].previous)
        for field in updates[(level - 1) % len(updates)].targets:
            if fields[field].is_double:
                previous[field] = newest[field]
                newest[field] = FieldVersion(level, 1 - newest[field].copy)
            else:
                newest[field] = FieldVersion(level, 0)
        found.append(LevelVersions(tuple(newest), tuple(previous)))
    return found


def one_of_each(
    fields: tuple[FieldPlan, ...], updates: tuple[StagePlan, ...]
) -> tuple[tuple[FieldPlan, ...], tuple[StagePlan, ...]]:
    """The same with one field of each kind: of fields that are kept alike and updated by the same stages. A stage reads
    of one what it reads of any of its kind."""
    kinds = [(replace(one, name=""), tuple(f in stage.targets for stage in updates)) for f, one in enumerate(fields)]
    number = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    new = [number[kind] for kind in kinds]
    stages = []
    for stage in updates:
        beside: dict[tuple[int, int], bool] = {}
        for one in stage.reads:
            key = new[one.field], one.age
            beside[key] = beside.get(key, False) or one.beside
        reads = tuple(Operand(field, age, far) for (field, age), far in beside.items())
        stages.append(StagePlan(reads, tuple(dict.fromkeys(new[f] for f in stage.targets))))
    return tuple(kind for kind, _ in number), tuple(stages)
