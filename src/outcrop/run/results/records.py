"""The traces, norms and sources of a run as named arrays, with the positions of receivers and sources.

    group      arrays                        axes                            coordinates
    traces     line, ...                     step, line_point                step, time; line_z, line_y, line_x
    norms      u_sum, u_squares,             step                            step, time
               u_min, u_max, ...
    sources    source_0, ...                 source_0_step, source_0_point   source_0_time; source_0_z, ...

A run stores the cells around each point and the weights of linear interpolation. `_positions` computes the position of
a point from its cells and weights. Names and attributes follow the "discrete sampling geometries" of the CF
conventions. Each point is a station with a time series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import PLACES
from outcrop.errors import CorruptionError, InputError, shown
from outcrop.language.sparse import Cells, Weights
from outcrop.run.acquisition.definitions import AcquisitionDefinitions, mapped_values, read_definitions
from outcrop.run.acquisition.views import Traces
from outcrop.run.disk.acquisition_files import damage_of
from outcrop.run.disk.manifest import Manifest
from outcrop.run.results.contents import (
    SNAPSHOTS,
    Attributes,
    Coordinate,
    Index,
    OpenedRun,
    ResultGroup,
    Variable,
    fields_group,
    run_attributes,
    snapshot_group,
    steps_and_times,
)

TRACES, NORMS, SOURCES = "traces", "norms", "sources"
"""The names of groups."""

_COLUMNS = {
    "sum": "sum of all cells of {}", "squares": "sum of the squares of all cells of {}",
    "min": "smallest value of {}", "max": "largest value of {}",
}  # fmt: skip
_NEAR = 1e-9


@dataclass(frozen=True)
class ReadTrace:
    """A function that reads selected values of the trace `name`. This function does not test the checksum of the trace.
    """

    run: OpenedRun
    name: str
    steps: int

    def __call__(self, index: Index) -> NDArray[Any]:
        rows, *points = index if index else (slice(None),)
        wanted = range(self.steps)[rows]
        chosen = range(wanted, wanted + 1) if isinstance(wanted, int) else wanted
        if not chosen:
            first, end = 0, 0
        else:
            first, end = min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1]) + 1
        values = self.traces.rows(self.name, first, end)
        if isinstance(wanted, int):
            return np.asarray(values[(0, *points)])
        return np.asarray(values[[row - first for row in chosen]][(slice(None), *points)])

    @property
    def traces(self) -> Traces:
        return self.run.simulation.traces


@dataclass(frozen=True)
class _CheckTrace:
    """A function that tests the checksum of a trace before its first rows are read."""

    read: ReadTrace

    def __call__(self, index: Index) -> None:
        if index[0].start == 0:
            self.read.traces.require_intact(self.read.name)


@dataclass(frozen=True)
class ReadNorms:
    """A function that reads one column of the norms of a field, up to row `count`. This function tests the checksum of
    the norms."""

    run: OpenedRun
    field: str
    column: str
    count: int

    def __call__(self, index: Index) -> NDArray[Any]:
        return np.asarray(self.run.simulation.norms[self.field][self.column][: self.count][index])


@dataclass(frozen=True)
class ReadSource:
    """A function that reads selected values of source `number`. `sources_group` has tested the checksum of the values.
    """

    run: OpenedRun
    number: int

    def __call__(self, index: Index) -> NDArray[Any]:
        state = self.run.states[0]  # each part has the sources of the whole grid
        return np.array(mapped_values(state.records, state.manifest, self.number)[index])


def traces_group(run: OpenedRun) -> ResultGroup:
    """Return the group of all traces. The coordinate `step` of the first row is 1. For Devito's equations, `step` is
    the number of the row in `.data` of Devito's receivers. Raises InputError if the run has no
    receivers, and CorruptionError if the file with the points of the receivers is damaged."""
    manifest = run.manifest
    if not manifest.taps.traces:
        raise InputError(f"{run.path} has no traces, because it has no receivers; leave them out")
    steps = _first_row(manifest) + np.arange(manifest.step, dtype=np.int64)
    coordinates = steps_and_times(manifest, "step", steps)
    samplings = list(enumerate(_definitions(run).samplings))
    variables = []
    for name, points in manifest.taps.traces.items():
        axis, own = f"{name}_point", [(number, one) for number, one in samplings if one.name == name]
        for number, _ in own:
            _require_intact(run, f"receivers-{number}")
        if len(own) == 1:
            coordinates += _positions(manifest, name, f"the receivers {name}", own[0][1].cells, own[0][1].weights)
        fields = " + ".join(dict.fromkeys(one.field for _, one in own))
        when = "beginning" if own[0][1].before else "end"
        about = {"long_name": f"{fields} at the {when} of each step", "field": fields}
        read, shape = ReadTrace(run, name, manifest.step), (manifest.step, points)
        variables.append(
            Variable(name, ("step", axis), shape, np.dtype("f8"), read, 1, about, check=_CheckTrace(read))
        )  # fmt: skip
    attributes = {**run_attributes(manifest), "featureType": "timeSeries"}
    return ResultGroup(TRACES, tuple(variables), tuple(coordinates), attributes)


def norms_group(run: OpenedRun) -> ResultGroup:
    """Return the group of the norms of all fields. Raises InputError if the run has no norms."""
    manifest, entry = run.manifest, run.manifest.taps.norms
    if entry is None:
        raise InputError(f"{run.path} has no norms; leave them out")
    count = entry.count(manifest.step)
    steps = np.array(entry.steps(manifest.step), np.int64)[:count]
    variables = []
    for name in entry.fields:
        for column, text in _COLUMNS.items():
            read, about = ReadNorms(run, name, column, count), {"long_name": text.format(name), "field": name}
            variables.append(Variable(f"{name}_{column}", ("step",), (count,), np.dtype("f8"), read, 1, about))
    return ResultGroup(
        NORMS, tuple(variables), tuple(steps_and_times(manifest, "step", steps)), run_attributes(manifest)
    )  # fmt: skip


def sources_group(run: OpenedRun) -> ResultGroup:
    """Return the group of all sources. Step t + 1 adds row t of a source to the field. Therefore the coordinate of row
    t is t + 1. For Devito's equations, the coordinate is the number of the row in Devito's `.data`. Raises InputError
    if the run has no sources, and CorruptionError if the file with the points and the values of a source is damaged."""
    manifest, variables, coordinates = run.manifest, [], list[Coordinate]()
    for number, one in enumerate(_definitions(run).injections):
        if not one.steps:
            continue
        _require_intact(run, f"source-{number}")
        name, read = f"source_{number}", ReadSource(run, number)
        steps = _first_row(manifest) + np.arange(one.steps, dtype=np.int64)
        coordinates += steps_and_times(manifest, f"{name}_step", steps, f"{name}_time")
        coordinates += _positions(manifest, name, f"source {number}", one.cells, one.weights)
        added = "values" if one.scale is None else "values, which are multiplied by the scale of the source and"
        about = {"long_name": f"{added} added to {one.field}", "field": one.field}
        shape, axes = (one.steps, len(one.cells)), (f"{name}_step", f"{name}_point")
        variables.append(Variable(name, axes, shape, np.dtype("f8"), read, 1, about))
    if not variables:
        raise InputError(f"{run.path} has no sources; leave them out")
    return ResultGroup(SOURCES, tuple(variables), tuple(coordinates), run_attributes(manifest))


def group_at(run: OpenedRun, path: str) -> ResultGroup:
    """Return the group with the given path and with all its arrays. Raises InputError for an unknown path."""
    path = path.strip("/")
    if not path:
        return fields_group(run, [entry.name for entry in run.manifest.arrays if entry.name in run.manifest.filled])
    if path not in (known := group_paths(run)):
        raise InputError(f"{run.path} has no group {shown(path)}; there are: {', '.join(known) or 'none'}")
    if made := {TRACES: traces_group, NORMS: norms_group, SOURCES: sources_group}.get(path):
        return made(run)
    name = path.removeprefix(SNAPSHOTS).removeprefix("/")
    (entry,) = (one for one in run.manifest.taps.snapshots if one.name == name)
    return snapshot_group(run, entry, entry.fields)


def group_paths(run: OpenedRun) -> list[str]:
    """Return the paths of all groups except the group of the fields."""
    taps = run.manifest.taps
    found = [f"{SNAPSHOTS}/{one.name}".rstrip("/") for one in taps.snapshots if not one.is_history]
    found += [TRACES] if taps.traces else []
    found += [NORMS] if taps.norms else []
    return found + ([SOURCES] if any(one.steps for one in taps.sources) else [])


def _first_row(manifest: Manifest) -> int:
    """Return the step of the first row of a trace or a source. In Devito's arrays, the values of a step are in the row
    for the time at which the step begins. In runs without Devito, the values of a step belong to the end of the
    step."""
    return 1 if manifest.first_time is None else 0


def _definitions(run: OpenedRun) -> AcquisitionDefinitions:
    state = run.states[0]  # each part has the points of the whole grid
    return read_definitions(state.records, state.manifest)


def _require_intact(run: OpenedRun, name: str) -> None:
    """Raise CorruptionError if a file with points of receivers, or with points and values of a source, is damaged."""
    state = run.states[0]
    if damage := damage_of(state.records, state.manifest, name):
        raise CorruptionError(f"{damage}; restore a copy")


def _positions(manifest: Manifest, name: str, what: str, cells: Cells, weights: Weights) -> Sequence[Coordinate]:
    """Return the coordinates of points along each axis. `cells` has the shape (points, corners, 3), and `weights` has
    the shape (points, corners). The weights of some points of Devito are not those of linear interpolation. Return an
    empty list for points with other weights, because their positions are not stored."""
    ndim, where = len(manifest.shape), manifest.coordinates
    if cells.shape[1] != 2**ndim or (np.abs(weights.sum(axis=1) - 1) > _NEAR).any():
        return []
    units: Attributes = {"units": where.units} if where is not None and where.units else {}
    found = []
    for axis, place in enumerate(PLACES[ndim]):
        along = cells[..., place]
        low = along.min(axis=1)
        positions = low + (weights * (along - low[:, None])).sum(axis=1)
        if where is None:
            positions = positions - manifest.padding[axis]
        else:
            positions = where.origin[axis] + positions * where.spacing[axis]
        title = manifest.axis_names[axis]
        about = {"long_name": f"{title} of {what}", **units}
        found.append(Coordinate(f"{name}_{title}", f"{name}_point", positions, about))
    return found
