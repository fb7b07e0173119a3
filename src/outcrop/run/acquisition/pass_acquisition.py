"""What passes do besides updating: point sources, receivers, sums and snapshots (core/outcrop/exec/acquisition.hpp).

Steps count from 0, and each is

    samples with `before`  ►  stages; a field's injections come right after the last stage that updates it  ►
    samples, sums and snapshots

"After k steps" is the state that k updates have made; for snapshots k may be 0, what the first pass finds. Fields are
numbers in the stencil's order.
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

from outcrop.errors import InputError
from outcrop.plan.memory import Staging
from outcrop.plan.plan import Plan
from outcrop.plan.problem import AcquisitionDemand, Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.run.disk.entries import AcquisitionEntries

Points: TypeAlias = NDArray[np.int64]
"""Shape (points, 3): z, y and x of cells of the grid."""
Box: TypeAlias = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Half open ranges along z, y and x."""
CORNER_BYTES = 120
"""Of a corner of a point: its cell and weight here, its cell and its place in a table in the core."""
TRACE_BYTES = 32
"""Of a point in each step, while its corners are added up to a row of a trace and written."""

RawSum: TypeAlias = tuple[bytes, float, bytes, float, float, float]


@dataclass(frozen=True, eq=False)
class PointInjection:
    """field[cells[i]] += values[t - first_step, i] in step t, in the order of the points and then of the injections.

    `values` are of shape (steps, points) and of the field's dtype, for steps from `first_step` on. Points may not lie
    in the rim, which keeps its values, unless all their values are 0.
    """

    field: int
    cells: Points
    values: NDArray[np.floating]
    first_step: int = 0

    def __post_init__(self) -> None:
        assert self.values.ndim == 2 and self.cells.shape == (self.values.shape[1], 3)


@dataclass(frozen=True, eq=False)
class PointSamples:
    """Cells whose values are wanted at the end of every step, or with `before` ahead of its first stage."""

    field: int
    cells: Points
    before: bool = False

    def __post_init__(self) -> None:
        assert self.cells.ndim == 2 and self.cells.shape[1] == 3


@dataclass(frozen=True)
class SnapshotFile:
    """A box of a field after `step` steps, in C order from byte `offset_bytes` of a file on that has its full size.

    With `direct` it bypasses the page cache where the file system allows it; what lies around it may not.

    With `folder`, a descriptor, `path` is that of a regular file beneath this folder, and no link on it is followed.
    `label` names the file in messages. The descriptor must be open until the pass has ended.
    """

    field: int
    step: int
    box: Box
    path: Path | str
    offset_bytes: int = 0
    direct: bool = True
    folder: int = -1
    label: str = ""


@dataclass(frozen=True, eq=False)
class SumRequest:
    """Sums over all cells of a field after each of `steps` steps, 0 for the initial values; a range will do."""

    field: int
    steps: Sequence[int]


@dataclass(frozen=True, eq=False)
class Acquisition:
    """All of it, for a whole run."""

    injections: tuple[PointInjection, ...] = ()
    samples: tuple[PointSamples, ...] = ()
    snapshots: tuple[SnapshotFile, ...] = ()
    sums: tuple[SumRequest, ...] = ()


NO_ACQUISITION = Acquisition()


@dataclass(frozen=True)
class FieldSum:
    """Sums over all cells of a field, the rim included, after `step` steps: of values and of their squares, in float64.

    Groups of 64 bytes along x are added up first, each half onto the other until one number is left; the groups'
    sums are then added as if without rounding. So no bit depends on plan or threads. `minimum` and `maximum` are those
    of the cells that are numbers; infinities where none is.
    """

    step: int
    sum: float
    squares: float
    minimum: float
    maximum: float


@dataclass(frozen=True, eq=False)
class AcquisitionResults:
    """What a pass has seen: for each PointSamples an array of shape (steps of the pass, points) in float64, for each
    SumRequest its sums in the order of steps, and for each SnapshotFile that the pass has written, in the order of
    `Acquisition.snapshots`, the CRC32C of the bytes of its box in the file."""

    samples: tuple[NDArray[np.float64], ...]
    sums: tuple[tuple[FieldSum, ...], ...]
    snapshot_sums: tuple[int, ...] = ()


def check_injections(acquisition: Acquisition, problem: Problem) -> None:
    """Raises InputError for the first source that lies where values are fixed."""
    for one in acquisition.injections:
        bad = _in_rim(one.cells, problem) & one.values.any(axis=0)
        if bad.any():
            z, y, x = one.cells[int(np.argmax(bad))]
            raise InputError(
                f"a source at cell (z={z}, y={y}, x={x}) lies in the rim of field {one.field}, which keeps its values; "
                f"move it inward, {_widths(problem)} cells from a fixed boundary at least"
            )


def _in_rim(cells: Points, problem: Problem) -> NDArray[np.bool_]:
    low = np.array([radius if side[0] == "fixed" else 0 for radius, side in _axes(problem)])
    high = np.array([radius if side[1] == "fixed" else 0 for radius, side in _axes(problem)])
    found: NDArray[np.bool_] = ((cells < low) | (cells >= np.array(problem.shape) - high)).any(axis=1)
    return found


def _axes(problem: Problem) -> list[tuple[int, tuple[str, str]]]:
    return list(zip(problem.radii, problem.sides, strict=True))


def _widths(problem: Problem) -> str:
    return ", ".join(str(radius) for radius in problem.radii)


@dataclass(frozen=True, eq=False)
class _Injected:
    """Values of the steps of one pass, as the core reads them."""

    field: int
    cells: Points
    bytes: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class _Sampled:
    """Where the core writes samples of one pass."""

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
    """The part of `acquisition` that one pass does, in the form that the core takes; its steps begin with 0."""

    acquisition: Acquisition
    first_step: int
    steps: int
    injections: tuple[_Injected, ...]
    samples: tuple[_Sampled, ...]
    snapshots: tuple[SnapshotFile, ...]
    sums: tuple[_Summed, ...]
    staging: Staging
    only_own: bool

    @staticmethod
    def of(acquisition: Acquisition, plan: Plan, first_step: int, steps: int) -> PassAcquisition:
        """For steps first_step <= t < first_step + steps of a run. Raises InputError for sources in the rim."""
        problem, seen = plan.problem, _steps_seen(first_step, steps)
        check_injections(acquisition, problem)
        assert plan.acquisition.staging.slots or not acquisition.snapshots, "the plan sets memory aside for snapshots"
        return PassAcquisition(
            acquisition,
            first_step,
            steps,
            tuple(_injected(one, problem, first_step, steps) for one in acquisition.injections),
            tuple(_sampled(one, steps) for one in acquisition.samples),
            tuple(_shifted(one, first_step) for one in acquisition.snapshots if one.step in seen),
            tuple(_Summed(one.field, at - first_step) for one in acquisition.sums for at in seen if at in one.steps),
            plan.acquisition.staging,
            SCHEMES[plan.scheme].repeats_updates,
        )

    def results(self, sums: Sequence[RawSum], snapshot_sums: Sequence[int]) -> AcquisitionResults:
        """The core's results, with sums sorted by request."""
        found = [
            FieldSum(self.first_step + one.step, _exact(*raw[:2]), _exact(*raw[2:4]), raw[4] + 0.0, raw[5] + 0.0)
            for one, raw in zip(self.sums, sums, strict=True)
        ]
        in_order = iter(found)
        seen = _steps_seen(self.first_step, self.steps)
        sorted_sums = (tuple(next(in_order) for step in seen if step in one.steps) for one in self.acquisition.sums)
        return AcquisitionResults(tuple(one.values for one in self.samples), tuple(sorted_sums), tuple(snapshot_sums))


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


def _sampled(one: PointSamples, steps: int) -> _Sampled:
    values = np.full((steps, len(one.cells)), np.nan)
    return _Sampled(one.field, np.ascontiguousarray(one.cells, np.int64), one.before, values)


def _steps_seen(first_step: int, steps: int) -> range:
    """After which steps a pass of so many sees all values; initial ones are seen by the first pass."""
    return range(first_step + 1 if first_step else 0, first_step + steps + 1)


def _shifted(one: SnapshotFile, first_step: int) -> SnapshotFile:
    return replace(one, step=one.step - first_step, path=str(one.path))


def _exact(integer: bytes, special: float) -> float:
    """The double next to a sum in units of the smallest one; inf and nan take precedence."""
    if special != 0:
        return special
    value = int.from_bytes(integer, "little", signed=True)
    try:
        return float(Fraction(value, 1 << 1074))
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def demand_of(entries: AcquisitionEntries, dtype: str) -> AcquisitionDemand:
    """The memory that these acquisition want beside the window on arrays of `dtype`, for planning."""
    item_bytes = np.dtype(dtype).itemsize
    sources = sum(one.points * one.corners for one in entries.sources)
    samplings = sum(one.points * one.corners for one in entries.samplings)
    return AcquisitionDemand(
        snapshot_bytes=sum(math.prod(one.shape) * len(one.fields) for one in entries.snapshots) * item_bytes,
        point_bytes=(sources + samplings) * CORNER_BYTES,
        step_bytes=sources * item_bytes + samplings * 8 + sum(one.points for one in entries.samplings) * TRACE_BYTES,
    )
