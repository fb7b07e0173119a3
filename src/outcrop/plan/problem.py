"""This module describes a run for planning: the grid, the steps, the fields, the stages, and the fields that each stage
reads.

Planes are numbered in the order in which the window reaches them (core/outcrop/exec/problem.hpp). If the streaming axis
is periodic, the first plane and the last plane of the grid are neighbours. On a periodic axis, the window reaches
planes from both ends of the axis alternately. So the numbers of neighbouring planes are close to each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import TypeAlias

from outcrop.axes import PLACES
from outcrop.plan.actions import FAR, Rectangle, round_up

VECTOR_BYTES = 64
"""The bytes of the longest vector of a kernel. Along x, blocks begin and end at multiples of VECTOR_BYTES."""
DIRECT_BYTES = 4096
"""In direct I/O, offsets and lengths must be multiples of DIRECT_BYTES bytes."""


def chunk_rows(rows: Sequence[int]) -> int:
    """Return the number of rows of a chunk, if each part can be one chunk of a Zarr array. Return 0 if a part cannot be
    one chunk. `rows` has the numbers of rows of all parts. All chunks of an array have the same number of rows. Only
    the last chunk can have rows beyond the end of the array. So only the last part can have fewer rows than the other
    parts."""
    first, last = rows[0], rows[-1]
    return first if last <= first and all(one == first for one in rows[:-1]) else 0


Groups: TypeAlias = tuple[tuple[int, int, int], ...]
"""Groups of neighbouring cells along one axis. A cut between ranks must not divide a group. Each entry has the first
cell of a box, the cell after the box, and the number of cells of a group in this box."""


def divides(place: int, groups: Groups) -> bool:
    """Return True if a cut at `place` divides a group."""
    return any(begin < place < end and (place - begin) % cells for begin, end, cells in groups)


@dataclass(frozen=True)
class FieldPlan:
    """The properties of a field that affect a plan.

    `is_static`: no stage updates the field. `is_double`: the field has two copies in memory, which are written
    alternately. `has_previous`: the previous value of the field is part of the state. `flips`: after each step, the
    other copy holds the newest value. `name`: the user's name for the field.

    `history`: the name of the field in the forward run, or "" if the values do not come from a forward run
    (history.py). If `history` is not "", the values of the field belong to one state of the history. `state`: the
    number of steps from this state to the newest state that a pass reads. `later`: the number of updates of the field
    `history` from this state to the values; -1 means the previous values of this state. `behind`, `ahead`: an update of
    the slab zeta0 <= zeta < zeta1 needs the planes from zeta0 - `behind` to zeta1 + `ahead` of this state.

    `follows`: the number of the field from which the rim is copied, if levels of the pass compute the values of this
    field again. For all other fields, `follows` is -1. A recomputed field has no array on disk.
    """

    is_static: bool = False
    is_double: bool = True
    has_previous: bool = False
    flips: bool = True
    name: str = ""
    history: str = ""
    state: int = 0
    ahead: int = 0
    behind: int = 0
    later: int = 0
    follows: int = -1

    @property
    def is_history(self) -> bool:
        """True if the field is a history field: passes read its values from the history of a forward run."""
        return bool(self.history) and not self.is_recomputed

    @property
    def is_recomputed(self) -> bool:
        return self.follows >= 0

    @property
    def is_state(self) -> bool:
        """True if passes read the values of this field from disk and write them to disk."""
        return not self.is_static and not self.history


@dataclass(frozen=True)
class Operand:
    """A value that a stage reads. If `age` is 0, the stage reads the newest value of a field. If `age` is 1, the stage
    reads the previous value. If `beside` is true, the stage also reads the values of neighbouring cells."""

    field: int
    age: int = 0
    beside: bool = True


@dataclass(frozen=True)
class StagePlan:
    """A stage of a step. The stage computes new values of the fields `targets` from the values `reads`."""

    reads: tuple[Operand, ...]
    targets: tuple[int, ...]


PLAIN_FIELDS = (FieldPlan(),)
PLAIN_UPDATES = (StagePlan((Operand(0),), (0,)),)
"""The fields and the stages of a problem with one field whose update reads neighbours, such as a heat equation."""


@dataclass(frozen=True)
class SnapshotDemand:
    """Describes snapshots that have the same box and the same interval. After every `every` steps, a run keeps one box
    for each of `fields` fields. A box has `planes` planes. A plane of the box has `rows` rows of `row_bytes`. If
    `initial` is true, the run also keeps the initial values. If `steps` is given, the run keeps boxes only after these
    steps. `steps` is in ascending order. If a box has means of groups of cells, `mean_cells` is the number of cells
    whose means are computed. `planes`, `rows` and `row_bytes` then describe the means. `offset` is less than `every`.
    The first box is kept after step `offset`, or after step `every` if `offset` is 0."""

    every: int
    fields: int
    planes: int
    rows: int
    row_bytes: int
    initial: bool = False
    steps: tuple[int, ...] | None = None
    mean_cells: int = 0
    offset: int = 0

    @property
    def box_bytes(self) -> int:
        return self.planes * self.rows * self.row_bytes

    def boxes(self, first_step: int, steps: int) -> int:
        """Return the number of boxes of all fields that are kept in the `steps` steps after step `first_step`."""
        if self.steps is not None:
            first = bisect_right(self.steps, first_step) if first_step else 0
            return self.fields * (bisect_right(self.steps, first_step + steps) - first)
        before = first_step + -self.offset % self.every
        kept = (before + steps) // self.every - before // self.every
        return self.fields * (kept + (self.initial and first_step == 0))


@dataclass(frozen=True)
class AcquisitionDemand:
    """The memory and the transfers that sources, receivers and snapshots need. The positions of sources and receivers
    take `point_bytes`. The values of sources and receivers take `step_bytes` for each step. `first_step` is the number
    of steps before the first pass of the plan.

    `ends` lists the intervals of all snapshots of a grid that is divided among ranks. If ranks share the updates at
    their cuts, a rank has the values of all its rows only at the end of a pass. If ranks share updates, a pass must end
    at each step with a snapshot. `groups_z` and `groups_y` are the groups of cells that a cut must not divide."""

    snapshots: tuple[SnapshotDemand, ...] = ()
    point_bytes: int = 0
    step_bytes: int = 0
    first_step: int = 0
    ends: tuple[int, ...] = ()
    groups_z: Groups = ()
    groups_y: Groups = ()

    def steps_to_end(self, step: int) -> int:
        """Return the number of steps from step `step` to the next end of a pass."""
        return min((every - step % every for every in self.ends), default=FAR)


NO_DEMAND = AcquisitionDemand()


@dataclass(frozen=True)
class Problem:
    """Describes a run for the planner. The run advances fields on a grid by `steps` steps. A level is one stage of a
    step.

    `shape` is (nz, ny, nx) in cells, and `radii` is the radius of the stencil along the same axes. The distance between
    rows is `pitch_bytes`. On disk, a plane has `plane_bytes` bytes. If the part of a rank is shorter than a chunk
    (ranks.py), `plane_bytes` includes the zeros after the rows. A record has `record_bytes` bytes: a plane with its
    checksum and padding. `sides` are the boundaries below and above the grid along z, y and x: "fixed", "mirror" or
    "periodic". The user's grid has `ndim` axes. If the user's grid has two axes, y has one cell in `shape`. If the
    user's grid has one axis, z and y have one cell each.

    If the grid is divided among ranks (ranks.py), the problem of a rank has only the rows and planes of this rank. A
    side along y or z is "neighbour" if another rank has the rows or planes beyond this side. A pass may use at most
    `max_halo` rows of a neighbour along y, and at most `max_halo_z` planes of a neighbour along z. `mean_rows` is the
    mean number of rows of all ranks, or 0 if y is not divided among ranks. `block_order` is 0 if a pass does not divide
    the rows of a rank into blocks, 1 if the first block has the lowest rows, and -1 if it has the highest rows. In a
    ring of ranks (`is_ring`), the last rank along y is the lower neighbour of the first rank.

    `acquisition` describes the memory and transfers of sources, receivers and snapshots. The window does not include
    the memory of the acquisition. `updates` lists the stages of `listed_steps` steps. Usually, `listed_steps` is 1, and
    all steps have the same stages. If the problem has history fields, `updates` lists all steps of the longest pass,
    because different steps read different states. The history can have only every `every`-th state. Step j of a pass
    reads the history only if (j - `phase`) is a multiple of `every`. Other steps have the updates `plain_updates`.

    If passes compute steps of a forward run again, `forward` is the problem of the forward run, with the updates of one
    step. Each pass then has `every` steps, and its first `lead` levels belong to steps of the forward run. A step of
    the forward run has `lead_stages` levels. `computed_once` contains texts about the computed fields
    (language/static_terms.py). `unread_statics` is the number of static fields that only these fields read.

    The properties are cached, because the tuner and the proof read some of them hundreds of thousands of times.
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
    listed_steps: int = 1
    plain_updates: tuple[StagePlan, ...] = ()
    every: int = 1
    phase: int = 0
    forward: Problem | None = None
    lead: int = 0
    lead_stages: int = 1
    max_halo: int = 0
    mean_rows: int = 0
    is_ring: bool = False
    block_order: int = 1
    max_halo_z: int = 0
    computed_once: tuple[str, ...] = ()
    unread_statics: int = 0

    @cached_property
    def stages(self) -> int:
        """The number of levels in a step."""
        return (len(self.updates) - self.lead) // self.listed_steps

    @cached_property
    def levels(self) -> int:
        """The number of levels of the run, including the levels that are computed again."""
        return self.steps * self.stages + self.steps // self.listed_steps * self.lead

    def steps_of(self, levels: int) -> int:
        """Return the number of steps of a pass with `levels` levels."""
        return max(0, levels - self.lead) // self.stages

    @cached_property
    def lead_planes(self) -> int:
        """The number of planes by which the first level that uses the state is behind level 1. The first `lead` levels
        of a pass belong to a forward run and do not use the state. If `lead` is 0, `lead_planes` is 0."""
        return self.skew_z * self.lead

    @cached_property
    def radius_z(self) -> int:
        """The radius of the stencil along the streaming axis, in planes."""
        return self.radii[0]

    @cached_property
    def radius_y(self) -> int:
        return self.radii[1]

    @cached_property
    def periodic(self) -> tuple[bool, bool, bool]:
        """Three flags for the axes z, y and x. A flag is true if the grid is periodic along its axis."""
        z, y, x = (sides[0] == "periodic" for sides in self.sides)
        return z, y, x

    @cached_property
    def skew_z(self) -> int:
        """The skew: the distance from an updated plane to the farthest plane that the update reads. The distance is the
        difference of the numbers of the two planes. The skew is at least 1."""
        return max(1, self.radius_z * (2 if self.periodic[0] else 1))

    @cached_property
    def skew_y(self) -> int:
        """The skew along y: the distance from an updated row to the farthest row that the update reads. The distance
        counts rows in the order in which tiles use the rows. The skew along y is at least 1."""
        return max(1, self.radius_y * (2 if self.periodic[1] else 1))

    @cached_property
    def skew_x(self) -> int:
        """The number of cells by which a range of columns moves with each level: the radius along x, rounded up to a
        multiple of 64 bytes. If x is periodic, the value is 0, and ranges of columns are not possible."""
        return 0 if self.periodic[2] else round_up(max(1, self.radii[2]), self.vector_cells)

    @cached_property
    def rim_z(self) -> tuple[int, int]:
        """The numbers of rim planes at the lower and the upper end of the streaming axis."""
        return self._rim(0)

    @cached_property
    def rim_y(self) -> tuple[int, int]:
        return self._rim(1)

    def _rim(self, axis: int) -> tuple[int, int]:
        low, high = (_rim_of_side(side, self.radii[axis]) for side in self.sides[axis])
        return low, high

    @cached_property
    def neighbours(self) -> tuple[bool, bool]:
        """Two flags, which are true if another rank has the rows below the grid and the rows above the grid."""
        low, high = (side == "neighbour" for side in self.sides[1])
        return low, high

    @cached_property
    def neighbours_z(self) -> tuple[bool, bool]:
        """Two flags, which are true if another rank has the planes below the grid and the planes above the grid."""
        low, high = (side == "neighbour" for side in self.sides[0])
        return low, high

    @cached_property
    def is_part(self) -> bool:
        """True if the grid is divided among several ranks."""
        return any(self.neighbours) or self.is_part_z

    @cached_property
    def is_part_z(self) -> bool:
        """True if the grid is divided among several ranks along z."""
        return any(self.neighbours_z)

    @cached_property
    def kernel_sides(self) -> tuple[tuple[str, str], ...]:
        """The sides for which kernels are compiled. A side with a neighbouring rank is compiled as a fixed side. The
        results are still correct, because no update uses the values that the kernel computes at a side with a
        neighbouring rank."""
        return tuple((_kernel_side(low), _kernel_side(high)) for low, high in self.sides)

    @cached_property
    def max_levels(self) -> int:
        """The maximum number of levels of a pass. The maximum is a multiple of the number of levels in a step. The
        levels are limited only if the grid is divided among ranks. Each level of a pass needs r more rows or planes of
        a neighbour, where r is the radius."""
        halos = (self.neighbours, self.radius_y, self.max_halo), (self.neighbours_z, self.radius_z, self.max_halo_z)
        return min(most // (radius * self.stages) * self.stages if any(sides) and radius else FAR
                   for sides, radius, most in halos)  # fmt: skip

    def halo(self, levels: int) -> tuple[int, int]:
        """Return the numbers of rows that a pass of `levels` levels needs from the lower and the upper neighbour."""
        low, high = (self.radius_y * levels * is_neighbour for is_neighbour in self.neighbours)
        return low, high

    def halo_z(self, levels: int) -> tuple[int, int]:
        """Return the numbers of planes that a pass of `levels` levels needs from the neighbours below and above."""
        low, high = (self.radius_z * levels * is_neighbour for is_neighbour in self.neighbours_z)
        return low, high

    def frame(self, levels: int) -> Rectangle:
        """Return the cells of a plane that a pass of `levels` levels holds in a slot, if the pass does not divide y."""
        low, high = self.halo(levels)
        return self.frame_of((-low, self.shape[1] + high))

    def frame_of(self, rows: tuple[int, int]) -> Rectangle:
        """Return the cells of a slot that holds a range of rows. The number of rows below row 0 is rounded up to whole
        groups, so that row 0 begins at a multiple of DIRECT_BYTES."""
        first, end = rows
        return Rectangle(first if first >= 0 else -round_up(-first, self.row_group), end, 0, self.pitch_cells)

    @cached_property
    def planes(self) -> int:
        return self.shape[0]

    @cached_property
    def item_bytes(self) -> int:
        return {"float32": 4, "float64": 8}[self.dtype]

    @cached_property
    def first_plane(self) -> int:
        """The number of the first plane that steps update. If the planes below plane 0 belong to a neighbouring rank,
        the number is -FAR."""
        return min(self.rim_z[0], self.planes)

    @cached_property
    def end_plane(self) -> int:
        """The number of the plane after the last updated plane. If no plane is updated, return `first_plane`."""
        return max(self.first_plane, self.planes - self.rim_z[1])

    @cached_property
    def own_planes(self) -> tuple[int, int]:
        """The range of the problem's own planes that steps update, without planes of neighbouring ranks."""
        first = max(0, self.first_plane)
        return first, max(first, min(self.planes, self.end_plane))

    @cached_property
    def first_row(self) -> int:
        """The number of the first row that steps update. If a neighbouring rank has the rows below row 0, the number is
        -FAR, and only the region of an update limits the updated rows."""
        return min(self.rim_y[0], self.shape[1])

    @cached_property
    def end_row(self) -> int:
        return max(self.first_row, self.shape[1] - self.rim_y[1])

    @cached_property
    def own_rows(self) -> tuple[int, int]:
        """The range of the problem's own rows that steps update. Rows of neighbouring ranks are not in the range."""
        first = max(0, self.first_row)
        return first, max(first, min(self.shape[1], self.end_row))

    @cached_property
    def has_updates(self) -> bool:
        """True if the run updates any cell. False if all cells belong to the rim."""
        return self.first_plane < self.end_plane and self.first_row < self.end_row

    @cached_property
    def statics(self) -> int:
        """The number of static fields, which no stage updates. Each static field is an array on disk. History fields
        are not counted."""
        return sum(one.is_static and not one.is_history for one in self.fields)

    @cached_property
    def histories(self) -> int:
        """The number of history fields. A pass reads the values of each history field from a separate file."""
        return sum(one.is_history for one in self.fields)

    @cached_property
    def has_values(self) -> bool:
        """True if passes read or compute values of a forward run."""
        return any(one.history for one in self.fields)

    @cached_property
    def recomputed(self) -> tuple[int, ...]:
        """The numbers of the fields that a pass computes again, in the order in which they are computed."""
        return tuple(number for number, one in enumerate(self.fields) if one.is_recomputed)

    @cached_property
    def computed(self) -> tuple[int, ...]:
        """The numbers of the fields with values of a forward run that levels of a pass compute. The numbers belong to
        the recomputed fields, and to the fields whose first values are read from the history."""
        return tuple(number for number, one in enumerate(self.fields) if one.history and not one.is_static)

    @cached_property
    def history_bytes(self) -> int:
        """The size of a state of one field in a history, in bytes. A state in a history has no padding."""
        return self.cells * self.item_bytes

    @cached_property
    def statics_z(self) -> int:
        """The maximum distance, in planes, at which an update reads static fields. The distance is 0 if updates read
        static fields only at the updated cell."""
        operands = (operand for update in self.updates for operand in update.reads)
        statics = [one.is_static and not one.is_history for one in self.fields]
        is_beside = any(one.beside and statics[one.field] for one in operands)
        return self.skew_z if is_beside else 0

    @cached_property
    def doubles(self) -> int:
        """The number of fields with two copies in memory."""
        return sum(one.is_double for one in self.fields)

    @cached_property
    def state_arrays(self) -> int:
        """The number of arrays that a pass reads and writes."""
        return sum((2 if one.has_previous else 1) for one in self.fields if one.is_state)

    @cached_property
    def rings(self) -> int:
        """The number of rings of the window. The window has one ring for each copy of a field."""
        return len(self.fields) + self.doubles

    @cached_property
    def plain(self) -> bool:
        """True if a step has one stage, and if each updated field has two copies in memory and no previous value in the
        state."""
        updated = [one for one in self.fields if one.is_state]
        return self.stages == 1 and all(one.is_double and not one.has_previous for one in updated)

    @cached_property
    def single(self) -> bool:
        """True if `plain` is true and only one field is updated."""
        return self.plain and self.state_arrays == 1

    def boundary_along(self, names: Sequence[str]) -> str:
        """Return a text with the boundaries along the axes of the user's grid. The axes have the names `names`."""
        own = [self.sides[place] for place in PLACES[self.ndim]]
        words = {side for sides in own for side in sides}
        if len(words) == 1:
            return words.pop()
        return ",".join(
            f"{axis}={low}" if low == high else f"{axis}={low}:{high}"
            for axis, (low, high) in zip(names, own, strict=True)
        )

    @cached_property
    def own_shape(self) -> tuple[int, ...]:
        """The numbers of cells along the axes of the user's grid: (nz, ny, nx), (ny, nx) or (nx,)."""
        return tuple(self.shape[place] for place in PLACES[self.ndim])

    @cached_property
    def cells(self) -> int:
        """The number of cells, including the rim."""
        nz, ny, nx = self.shape
        return nz * ny * nx

    @cached_property
    def grid_bytes(self) -> int:
        """The size of one array on disk, in bytes."""
        return self.planes * self.record_bytes

    @cached_property
    def pitch_cells(self) -> int:
        return self.pitch_bytes // self.item_bytes

    @cached_property
    def tail_bytes(self) -> int:
        """A record has `tail_bytes` bytes after the plane: the checksum, the seal and zeros."""
        return self.record_bytes - self.plane_bytes

    @cached_property
    def whole_plane(self) -> Rectangle:
        return Rectangle(0, self.shape[1], 0, self.pitch_cells)

    @cached_property
    def vector_cells(self) -> int:
        """The number of cells in the longest vector of a kernel."""
        return VECTOR_BYTES // self.item_bytes

    @cached_property
    def row_group(self) -> int:
        """The number of rows in a group. The length of a group in bytes is a multiple of DIRECT_BYTES, so direct I/O
        can begin and end between groups. If a group would be too large for the grid, a group has one row, and transfers
        of a part of a plane use the page cache. All ranks have the same blocks, so the number is equal on all ranks."""
        group = DIRECT_BYTES // gcd(DIRECT_BYTES, self.pitch_bytes)
        return group if 8 * group <= (self.mean_rows or self.shape[1]) else 1


def _kernel_side(side: str) -> str:
    return "fixed" if side == "neighbour" else side


def _rim_of_side(side: str, radius: int) -> int:
    if side == "neighbour":
        return -FAR
    return radius if side == "fixed" else 0


@dataclass(frozen=True)
class FieldVersion:
    """Identifies a value of a field during a pass. `level` is the level that wrote the value. `copy` is 0 if the first
    copy holds the value, and 1 if the second copy holds it. At the start of the pass, the newest value has level 0, and
    the previous value has level -1."""

    level: int
    copy: int


class Versions:
    """The versions of all fields during the levels 1 to `levels` of a pass."""

    def __init__(self, fields: tuple[FieldPlan, ...], updates: tuple[StagePlan, ...], levels: int) -> None:
        self._are_double = [one.is_double for one in fields]
        # for each field, the list of the levels that write the field
        self._written: list[list[int]] = [[] for _ in fields]
        for level in range(1, levels + 1):
            for field in updates[(level - 1) % len(updates)].targets:
                self._written[field].append(level)

    def newest(self, field: int, level: int) -> FieldVersion:
        return self._version(field, bisect_right(self._written[field], level))

    def of(self, operand: Operand, level: int) -> FieldVersion:
        """Return the version of a field after the level `level`. The field is the field of `operand`. If the age of
        `operand` is 1, the version is the previous value, otherwise the newest value."""
        if not operand.age:
            return self.newest(operand.field, level)
        if not self._are_double[operand.field]:
            return FieldVersion(-1, 1)
        return self._version(operand.field, bisect_right(self._written[operand.field], level) - 1)

    def _version(self, field: int, count: int) -> FieldVersion:
        """Return the version of a field after `count` updates."""
        if count < 0:
            return FieldVersion(-1, 1)
        return FieldVersion(self._written[field][count - 1] if count else 0, count % 2 * self._are_double[field])


def one_of_each(
    fields: tuple[FieldPlan, ...], updates: tuple[StagePlan, ...]
) -> tuple[tuple[FieldPlan, ...], tuple[StagePlan, ...]]:
    """Reduce the fields and stages of a problem to one field of each kind. Two fields are of the same kind if their
    properties are equal and the same stages update both fields. If a stage reads any field of a kind, the reduced stage
    reads the field that represents this kind."""
    updating: list[list[int]] = [[] for _ in fields]  # for each field, the list of the stages that update the field
    for place, stage in enumerate(updates):
        for f in stage.targets:
            updating[f].append(place)
    kinds = [(replace(one, name=""), tuple(updating[f])) for f, one in enumerate(fields)]
    number = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    new = [number[kind] for kind in kinds]
    reduced = [replace(one, follows=new[one.follows]) if one.is_recomputed else one for one, _ in number]
    stages = []
    for stage in updates:
        beside: dict[tuple[int, int], bool] = {}
        for one in stage.reads:
            key = new[one.field], one.age
            beside[key] = beside.get(key, False) or one.beside
        reads = tuple(Operand(field, age, far) for (field, age), far in beside.items())
        stages.append(StagePlan(reads, tuple(dict.fromkeys(new[f] for f in stage.targets))))
    return tuple(reduced), tuple(stages)
