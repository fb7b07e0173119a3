"""The acquisition of one pass, in the form that the core reads (core/outcrop/exec/acquisition.hpp).

Steps are counted from 0. Each step has this order:

    samples with `before`  ►  stages; a field's injections come right after the last stage that updates it  ►
    samples, sums and snapshots

"After k steps" means the state after k updates. For sums and snapshots, k = 0 means the initial values. `field` is the
number of a field in the stencil's order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import grid_shape, inside
from outcrop.errors import InputError
from outcrop.language.boundary import Boundary
from outcrop.plan.memory import Staging
from outcrop.plan.plan import Plan
from outcrop.plan.problem import AcquisitionDemand, Problem, SnapshotDemand
from outcrop.plan.schemes import EVERY_SCHEME
from outcrop.run.disk.entries import AcquisitionEntries, SnapshotsEntry, StatesEntry

Points: TypeAlias = NDArray[np.int64]
"""An array of shape (points, 3) with z, y and x of cells of the grid."""
Box: TypeAlias = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""The half-open ranges of a box along z, y and x."""
CORNER_BYTES = 120
"""The number of bytes of memory for one corner of a point. Python keeps the cell and the weight of the corner. The core
keeps the cell and an entry in a table."""
TRACE_BYTES = 32
"""The number of bytes of memory for one point of a trace in one step. The memory is needed while the values of the
corners are added up, and while the rows of the trace are written."""

UNSEEN = np.array([0x7FF8_0000_5EED_0001], np.int64).view(np.float64)[0]
"""The value of a sample that the core has not taken: a NaN with bits that no computation produces. If several ranks
compute a run, such samples exist on each rank, because other ranks take the samples of some cells (parts.py)."""

RawSum: TypeAlias = tuple[bytes, float, bytes, float, float, float]
"""Six values. The first two are the sum of the finite values, and the sum of all other values. The next two are the
same sums for the squares of the values. The last two are the minimum and the maximum, or inf and -inf if all values are
NaN."""


@dataclass(frozen=True, eq=False)
class PointInjection:
    """A source. In step t, `values[t - first_step, i]` is added to `field[cells[i]]` for each point i. The values of an
    injection are added point by point, in the order of its points. The injections of a step are added one after
    another, in their order.

    `values` has the shape (steps, points) and the field's dtype. The rim never changes, so a point in the rim is
    refused if one of its values is not 0."""

    field: int
    cells: Points
    values: NDArray[np.floating]
    first_step: int = 0

    def __post_init__(self) -> None:
        assert self.values.ndim == 2 and self.cells.shape == (self.values.shape[1], 3)


@dataclass(frozen=True, eq=False)
class PointSamples:
    """Cells whose values are recorded at the end of each step. If `before` is true, the values are recorded before the
    first stage of each step instead."""

    field: int
    cells: Points
    before: bool = False

    def __post_init__(self) -> None:
        assert self.cells.ndim == 2 and self.cells.shape[1] == 3


@dataclass(frozen=True)
class SnapshotFile:
    """A file into which a pass writes a box of a field after `step` steps. The values are in C order, and begin at byte
    `offset_bytes`. The file already has its full size. If `age` is 1, the previous values of the field are written, and
    the state must have an array of previous values.

    If `direct` is true and the file system allows direct I/O, writes of the box bypass the page cache. If the
    descriptor `folder` is given, `path` is a regular file beneath this folder, and links are not followed. The
    descriptor `folder` must stay open until the pass has ended. `label` names the file in messages.

    If `group` has more than one cell, the pass writes the means of groups of cells. `group` contains the number of
    cells of a group along z, y and x. core/outcrop/exec/snapshots.hpp defines the order of the additions."""

    field: int
    step: int
    box: Box
    path: Path | str
    offset_bytes: int = 0
    direct: bool = True
    folder: int = -1
    label: str = ""
    age: int = 0
    group: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True, eq=False)
class SumRequest:
    """A request for the sums over all cells of a field after each step in `steps`. Step 0 means the initial values."""

    field: int
    steps: Sequence[int]


@dataclass(frozen=True, eq=False)
class Acquisition:
    """The acquisition of a whole run."""

    injections: tuple[PointInjection, ...] = ()
    samples: tuple[PointSamples, ...] = ()
    snapshots: tuple[SnapshotFile, ...] = ()
    sums: tuple[SumRequest, ...] = ()


NO_ACQUISITION = Acquisition()


@dataclass(frozen=True)
class FieldSum:
    """Sums in float64 over all cells of a field after `step` steps. The cells of the rim are included. `squares` is the
    sum of squares.

    First, each group of 64 bytes along x is summed. To sum a group, the second half of the group is added to the first
    half. This step is repeated until one number is left. The sums of the groups are then added without rounding. So the
    bits of the result do not depend on the plan or on the number of threads. `minimum` and `maximum` ignore NaN. If
    every cell is NaN, `minimum` and `maximum` are NaN."""

    step: int
    sum: float
    squares: float
    minimum: float
    maximum: float


@dataclass(frozen=True, eq=False)
class AcquisitionResults:
    """The results of a pass.

    `samples` contains a float64 array of shape (steps of the pass, points) for each PointSamples. `sums` contains a
    tuple for each SumRequest, in the order of steps. `raw_sums` has the same sums before they are rounded.
    `snapshot_sums` contains the CRC32C of each box that the pass has written."""

    samples: tuple[NDArray[np.float64], ...]
    sums: tuple[tuple[FieldSum, ...], ...]
    snapshot_sums: tuple[int, ...] = ()
    raw_sums: tuple[tuple[RawSum, ...], ...] = ()


def check_injections(acquisition: Acquisition, problem: Problem) -> None:
    """Raise InputError if a source adds a value other than 0 in the rim. The message names the cell."""
    for one in acquisition.injections:
        bad = _in_rim(one.cells, problem) & one.values.any(axis=0)
        if bad.any():
            z, y, x = one.cells[int(np.argmax(bad))]
            raise InputError(
                f"a source at cell (z={z}, y={y}, x={x}) lies in the rim of field {one.field}, which keeps its values; "
                f"move it inward, {', '.join(map(str, problem.radii))} cells from a fixed boundary at least"
            )


def _in_rim(cells: Points, problem: Problem) -> NDArray[np.bool_]:
    along_x = Boundary(*problem.kernel_sides).rims(problem.radii)[2]  # type: ignore[arg-type]
    low, high = np.array([problem.rim_z, problem.rim_y, along_x]).T
    found: NDArray[np.bool_] = ((cells < low) | (cells >= np.array(problem.shape) - high)).any(axis=1)
    return found


@dataclass(frozen=True, eq=False)
class _Injected:
    """The values that a source adds in one pass, in the form that the core reads."""

    field: int
    cells: Points
    bytes: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class LeadInjected:
    """The values that a source of the forward run adds in the steps that a pass computes again. In step i of the steps
    that are computed again, the values are added to field number `fields[i]` after the stage `stage`."""

    stage: int
    fields: tuple[int, ...]
    cells: Points
    bytes: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class _Sampled:
    """The array into which the core writes the samples of one pass."""

    field: int
    cells: Points
    before: bool
    values: NDArray[np.float64]


@dataclass(frozen=True)
class _Summed:
    field: int
    step: int


@dataclass(frozen=True, eq=False)
class PassAcquisition:
    """The part of `acquisition` for one pass, in the form that the core reads. Steps are counted from the beginning of
    the pass."""

    acquisition: Acquisition
    first_step: int
    steps: int
    injections: tuple[_Injected, ...]
    samples: tuple[_Sampled, ...]
    snapshots: tuple[SnapshotFile, ...]
    sums: tuple[_Summed, ...]
    staging: Staging
    only_own: bool
    only_own_rows: bool
    lead_injections: tuple[LeadInjected, ...] = ()

    @staticmethod
    def of(acquisition: Acquisition, plan: Plan, first_step: int, steps: int) -> PassAcquisition:
        """Return the part of `acquisition` for `steps` steps from `first_step` on. Raises InputError for sources in the
        rim."""
        scheme = EVERY_SCHEME[plan.scheme]
        problem, seen = plan.problem, _steps_seen(first_step, steps)
        check_injections(acquisition, problem)
        assert plan.acquisition.staging.slots or not acquisition.snapshots, "the plan reserves memory for snapshots"
        samples = [
            _Sampled(one.field, cells := np.ascontiguousarray(one.cells, np.int64), one.before,
                     np.full((steps, len(cells)), UNSEEN))
            for one in acquisition.samples
        ]  # fmt: skip
        snapshots = (one for one in acquisition.snapshots if one.step in seen)
        return PassAcquisition(
            acquisition, first_step, steps,
            tuple(_injected(one, problem, first_step, steps) for one in acquisition.injections),
            tuple(samples),
            tuple(replace(one, step=one.step - first_step, path=str(one.path)) for one in snapshots),
            tuple(_Summed(one.field, at - first_step) for one in acquisition.sums for at in seen if at in one.steps),
            plan.acquisition.staging, scheme.repeats_updates, problem.is_part and scheme.shared_levels is None,
        )  # fmt: skip

    def results(self, sums: Sequence[RawSum], snapshot_sums: Sequence[int]) -> AcquisitionResults:
        """Return the results of the core for this pass, with the sums grouped by request."""
        found = [
            FieldSum(self.first_step + one.step, _exact(*raw[:2]), _exact(*raw[2:4]), *extremes(*raw[4:]))
            for one, raw in zip(self.sums, sums, strict=True)
        ]
        in_order = zip(found, sums, strict=True)
        seen = _steps_seen(self.first_step, self.steps)
        each = [[next(in_order) for step in seen if step in one.steps] for one in self.acquisition.sums]
        return AcquisitionResults(
            tuple(one.values for one in self.samples), tuple(tuple(one for one, _ in pairs) for pairs in each),
            tuple(snapshot_sums), tuple(tuple(raw for _, raw in pairs) for pairs in each),
        )  # fmt: skip


def lead_injected(one: PointInjection, problem: Problem, steps: int, stage: int, fields: Sequence[int]) -> LeadInjected:
    """Return the values that the source `one` of the forward run adds in the `steps` steps that a pass computes again.
    """
    found = _injected(one, problem, one.first_step, steps)
    return LeadInjected(stage, tuple(fields), found.cells, found.bytes)


def _injected(one: PointInjection, problem: Problem, first_step: int, steps: int) -> _Injected:
    begin = first_step - one.first_step
    assert 0 <= begin <= begin + steps <= len(one.values), "a value for every step"
    assert one.values.dtype == np.dtype(problem.dtype)
    inside = ~_in_rim(one.cells, problem)
    values, cells = one.values[begin : begin + steps], one.cells
    if not inside.all():
        values, cells = values[:, inside], cells[inside]
    values = np.ascontiguousarray(values)
    return _Injected(one.field, np.ascontiguousarray(cells, np.int64), values.reshape(-1).view(np.uint8))


def _steps_seen(first_step: int, steps: int) -> range:
    """Return the steps after which a pass can record sums and snapshots. The first pass can also record the initial
    values, as step 0."""
    return range(first_step + 1 if first_step else 0, first_step + steps + 1)


def _exact(integer: bytes, special: float) -> float:
    return rounded(int.from_bytes(integer, "little", signed=True), special)


def extremes(low: float, high: float) -> tuple[float, float]:
    """Return the minimum and the maximum of a field. A zero in the result is positive. If `low` is inf and `high` is
    -inf, all values are NaN, and the result is NaN."""
    return (low + 0.0, high + 0.0) if low <= high else (math.nan, math.nan)


def rounded(value: int, special: float) -> float:
    """Return `value` * 2**-1074, rounded to the closest double. If `special` is infinite or NaN, return `special`."""
    if special != 0:
        return special
    try:
        return float(Fraction(value, 1 << 1074))
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def demand_of(
    entries: AcquisitionEntries, dtype: str, states: StatesEntry | None = None, first_step: int = 0
) -> AcquisitionDemand:
    """Return the memory and the transfers that the acquisition `entries` needs in addition to the window. `dtype` is
    the dtype of the fields. If passes compute steps of a forward run again, `states.source_cells` is the number of
    cells of the forward run's sources. The plan begins after step `first_step`."""
    item_bytes = np.dtype(dtype).itemsize
    sources = sum(one.points * one.corners for one in entries.sources) + (states.source_cells if states else 0)
    points = [entries.traces.get(one.name, 0) for one in entries.samplings]  # a part has only some of the points
    samplings = sum(count * one.corners for count, one in zip(points, entries.samplings, strict=True))
    # A pass of k steps has at most k / every + 1 snapshots of a field, and possibly the initial values.
    coarse = [(one, len(one.fields) * coarse_bytes(one)) for one in entries.snapshots if one.coarsen]
    coarse_step_bytes = sum(-(-size // one.every) for one, size in coarse)
    return AcquisitionDemand(
        snapshots=tuple(_snapshot_demand(one, item_bytes) for one in entries.snapshots),
        point_bytes=(sources + samplings) * CORNER_BYTES + sum((1 + one.initial) * size for one, size in coarse),
        step_bytes=sources * item_bytes + samplings * 8 + sum(points) * TRACE_BYTES + coarse_step_bytes,
        first_step=first_step,
    )


def undivided_groups(entries: AcquisitionEntries) -> AcquisitionDemand:
    """Return the groups of cells that a cut of the grid must not divide."""
    return AcquisitionDemand(groups_z=entries.groups(0), groups_y=entries.groups(1))


def coarse_bytes(entry: SnapshotsEntry) -> int:
    """Return the bytes of memory that the core (exec/snapshots.cpp) reserves for the means of one snapshot.
    For each row of cells, the core reserves a total, sums for the planes of a group, and sums for the next group."""
    planes, rows, _ = inside([end - begin for begin, end in entry.box], 1)
    return rows * (min(planes, inside(entry.group, 1)[0]) + 2) * grid_shape(entry.shape)[2] * 8


def _snapshot_demand(entry: SnapshotsEntry, item_bytes: int) -> SnapshotDemand:
    planes, rows, cells = grid_shape(entry.shape)
    steps = tuple(map(entry.step_of, entry.kept)) if entry.slots else None
    means = math.prod(end - begin for begin, end in entry.box) if entry.coarsen else 0
    return SnapshotDemand(
        entry.every, len(entry.fields), planes, rows, cells * item_bytes, entry.initial, steps, means, entry.offset
    )
