"""The committed results of a run as named arrays, for export and for xarray.

    group             arrays                      axes                coordinates
    ""                u, v, u.previous, ...       z, y, x             z, y, x
    snapshots         u, ...                      time, z, y, x       step, time, z, y, x
    snapshots/side    u, ...                      time, z, y, x       step, time, z, y, x
    traces            line, ...                   step, line_point    step, time

An array is read in parts, when it is needed. Each read opens the files of the run itself, so several threads can read
at the same time. The objects can be pickled, so that other processes can read, too.

The arrays of the group "" belong to one generation. If the run goes on, later reads raise InputError. Snapshots and
traces do not change when a run goes on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import __version__
from outcrop.axes import NAMES, Shape
from outcrop.errors import InputError, shown
from outcrop.language.boundary import as_boundary, boundary_text
from outcrop.paths import as_path
from outcrop.run.acquisition.views import Traces
from outcrop.run.disk.contents import box_coordinates
from outcrop.run.disk.entries import SnapshotsEntry
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.state import State
from outcrop.run.opening import open_run
from outcrop.run.setup import Setup
from outcrop.run.simulation import Simulation

BLOCK_BYTES = 8 << 20
"""The maximum size in bytes of the values that are read together. A plane is always read as a whole."""

Attributes: TypeAlias = Mapping[str, "str | float | int"]

Index: TypeAlias = tuple[Any, ...]
"""An index of an array: whole numbers and slices."""

SNAPSHOTS, TRACES = "snapshots", "traces"
"""The names of groups."""


class OpenedRun:
    """The run at `path`, opened for reading. `identity` and `generation` are those of the run when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        manifest = self.manifest
        self.identity, self.generation = manifest.identity, manifest.generation

    @property
    def setup(self) -> Setup:
        """The setup of the run. Raises InputError if another run is now at the path."""
        if self._setup is None:
            found = open_run(self.path, {}, reads_only=True)
            assert found.state is not None
            if getattr(self, "identity", found.state.manifest.identity) != found.state.manifest.identity:
                raise InputError(f"{self.path} now holds another run; open it again")
            self._setup = found
        return self._setup

    _setup: Setup | None = None

    @property
    def simulation(self) -> Simulation:
        return Simulation(self.setup)

    @property
    def states(self) -> tuple[State, ...]:
        """The state of the run, or the states of all its parts in the order of ranks."""
        setup = self.setup
        assert setup.state is not None
        return setup.parts.states if setup.parts is not None else (setup.state,)

    @property
    def manifest(self) -> Manifest:
        """The manifest of the whole run."""
        setup = self.setup
        assert setup.state is not None
        return setup.parts.whole if setup.parts is not None else setup.state.manifest

    def require_generation(self, generation: int) -> None:
        """Raise InputError if `generation` is not the generation of the run when it was opened."""
        if generation != self.generation:
            raise InputError(f"{self.path} has changed since it was opened: another pass was committed; open it again")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_setup"}


@dataclass(frozen=True)
class ReadField:
    """A function that reads selected cells of one array of the state, or of an array that is only read."""

    run: OpenedRun
    name: str

    def __call__(self, index: Index) -> NDArray[Any]:
        view = self.run.simulation[self.name]
        found = np.asarray(view[index])
        self.run.require_generation(view.generation)
        return found


@dataclass(frozen=True)
class ReadSnapshots:
    """A function that reads selected cells of the first `count` snapshots `name`, such as "side/u"."""

    run: OpenedRun
    name: str
    count: int

    def __call__(self, index: Index) -> NDArray[Any]:
        times, *cells = index if index else (slice(None),)
        wanted = range(self.count)[times]  # if the run has gone on, there are more snapshots now
        if isinstance(wanted, range):
            times = slice(wanted.start, wanted.stop if wanted.stop >= 0 else None, wanted.step)
        found = self.run.simulation.snapshots[self.name][(times, *cells)]
        return np.array(found) if isinstance(found, np.memmap) else np.asarray(found)


@dataclass(frozen=True)
class ReadTrace:
    """A function that reads selected values of the trace `name`. It does not test the checksum of the trace."""

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
class Variable:
    """An array with named axes. `read` returns the values that an index selects. `unit_axes` is the number of axes,
    counted from the last axis, that `blocks` does not divide. `check` raises CorruptionError if stored values are
    damaged that `read` does not test."""

    name: str
    axes: tuple[str, ...]
    shape: Shape
    dtype: np.dtype[Any]
    read: Callable[[Index], NDArray[Any]]
    unit_axes: int
    attributes: Attributes = field(default_factory=dict)
    check: Callable[[Index], None] | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def blocks(self, max_bytes: int = BLOCK_BYTES) -> Iterator[tuple[Index, NDArray[Any]]]:
        """Yield all values in parts, in C order, each with its index. A part has at most `max_bytes`, or is one
        unit."""
        for index in block_indices(self.shape, self.dtype.itemsize, self.unit_axes, max_bytes):
            yield index, self.read_checked(index)

    def read_checked(self, index: Index) -> NDArray[Any]:
        """Return the values that an index selects, after `check`."""
        if self.check is not None:
            self.check(index)
        return self.read(index)


def block_indices(
    shape: Shape, itemsize: int, unit_axes: int, max_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[slice, ...]]:
    """Yield indices that divide an array of this shape into parts of at most `max_bytes`, in C order. The last
    `unit_axes` axes are not divided. Each index has a slice for each axis, so that its part keeps all axes."""
    if 0 in shape:
        return
    free = len(shape) - unit_axes
    sizes = [math.prod(shape[axis + 1 :]) * itemsize for axis in range(free)]
    # `cut` is the first axis whose entries are small enough to read several of them together
    cut = next((axis for axis in range(free) if sizes[axis] <= max_bytes), free - 1)
    whole = [slice(0, size) for size in shape]
    if free == 0:
        yield tuple(whole)
        return
    count = max(1, max_bytes // sizes[cut])
    for outer in product(*(range(size) for size in shape[:cut])):
        for first in range(0, shape[cut], count):
            last = min(first + count, shape[cut])
            yield (*(slice(one, one + 1) for one in outer), slice(first, last), *whole[cut + 1 :])


@dataclass(frozen=True)
class Coordinate:
    """The values of a coordinate along one axis."""

    name: str
    axis: str
    values: NDArray[Any]
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True)
class ResultGroup:
    """A group of arrays with the same coordinates. The group of the fields has the path ""."""

    path: str
    variables: tuple[Variable, ...]
    coordinates: tuple[Coordinate, ...]
    attributes: Attributes

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.variables)

    def require_names(self) -> None:
        """Raise InputError if a variable has the name of an axis or a coordinate. Other formats use these names for
        coordinates."""
        for one in self.variables:
            if one.name in {*self.sizes, *(coordinate.name for coordinate in self.coordinates)}:
                raise InputError(f"{one.name} has the name of an axis or of a coordinate; leave it out")

    @property
    def sizes(self) -> dict[str, int]:
        """The number of cells along each axis of the arrays and coordinates."""
        found = {axis: size for one in self.variables for axis, size in zip(one.axes, one.shape, strict=True)}
        return found | {one.axis: len(one.values) for one in self.coordinates}


@contextmanager
def held(run: OpenedRun) -> Iterator[OpenedRun]:
    """Lock a run, so that no process can change it, and yield the run, opened again. Raises InputError if a process is
    running it."""
    with ExitStack() as stack:
        for state in run.states:
            stack.enter_context(state.locked(shared=True))
        yield OpenedRun(run.path)


def open_results(run: str | os.PathLike[str] | Simulation) -> OpenedRun:
    """Open a run for reading: a directory, a device, the directory of all parts, or a simulation with committed values.
    Raises InputError if there are no values, and StorageError if files are missing."""
    if isinstance(run, Simulation):
        if run.setup.group is not None:
            raise InputError(
                "several ranks compute this run; export it without mpirun, from the directory of all parts"
            )
        path = run.directory
    else:
        path = as_path(run, "run")
    opened = OpenedRun(path)
    if (part := opened.manifest.part) is not None:
        raise InputError(f"{path} holds the part of rank {part.rank} of {part.ranks}; name the directory of all parts")
    if not opened.states[0].has_values:
        raise InputError(f"{path} holds no values yet; run it first")
    return opened


def field_names(run: OpenedRun) -> list[str]:
    """Return the names of the arrays that have values, without the arrays of previous values."""
    filled = run.manifest.filled
    return [entry.name for entry in run.manifest.arrays if entry.name in filled and not entry.is_previous]


def fields_group(run: OpenedRun, names: Sequence[str]) -> ResultGroup:
    """Return the group of the fields `names`. Raises InputError for unknown names and fields without values."""
    manifest, variables = run.manifest, []
    axes = NAMES[len(manifest.shape)]
    for name in dict.fromkeys(names):
        entry = manifest.entry(name)
        if name not in manifest.filled:
            raise InputError(f"{run.path} holds no values of {name}; leave it out")
        about = {"long_name": f"{entry.field} before its latest update"} if entry.is_previous else {}
        unit_axes = max(1, len(axes) - 1)
        dtype = np.dtype(manifest.dtype)
        variables.append(Variable(name, axes, manifest.own_shape, dtype, ReadField(run, name), unit_axes, about))
    where, units = manifest.own_coordinates, {}
    if where is not None and where.units:
        units = {"units": where.units}
    coordinates = [
        Coordinate(name, name, where.along(axis, size) if where else np.arange(size, dtype=np.float64), units)
        for axis, (name, size) in enumerate(zip(axes, manifest.own_shape, strict=True))
        if name not in names
    ]
    return ResultGroup("", tuple(variables), tuple(coordinates), run_attributes(manifest))


def snapshot_groups(run: OpenedRun, wanted: Sequence[str]) -> list[ResultGroup]:
    """Return the groups of snapshots that `wanted` names: "all", the name of snapshots ("side"), a field of snapshots
    ("side/u"), or a field of the snapshots without name ("u"). Raises InputError for unknown names."""
    manifest = run.manifest
    entries = [one for one in manifest.taps.snapshots if not one.is_history]
    there = [entry.prefix + name for entry in entries for name in entry.fields]
    chosen: list[str] = []
    for one in wanted:
        found = [key for key in there if one in ("all", key) or (one and key.startswith(f"{one}/"))]
        if not found:
            raise InputError(f"{run.path} has no snapshots {shown(one)}; there are: {', '.join(there) or 'none'}")
        chosen += found
    names = {entry.name: [name for name in entry.fields if entry.prefix + name in chosen] for entry in entries}
    return [_snapshot_group(run, entry, names[entry.name]) for entry in entries if names[entry.name]]


def _snapshot_group(run: OpenedRun, entry: SnapshotsEntry, names: Sequence[str]) -> ResultGroup:
    manifest = run.manifest
    axes, count = NAMES[len(manifest.shape)], entry.count(manifest.step)
    steps = entry.step_of(0) + entry.every * np.arange(count, dtype=np.int64)
    coordinates = [Coordinate("step", "time", steps)]
    if "dt" in manifest.parameters:
        units = {"units": entry.time_units} if entry.time_units else {}
        coordinates.append(Coordinate("time", "time", steps * manifest.parameters["dt"], units))
    where = manifest.coordinates
    units = {"units": where.units} if where is not None and where.units else {}
    coordinates += [Coordinate(axis, axis, values, units) for axis, values in box_coordinates(manifest, entry).items()]
    path = f"{SNAPSHOTS}/{entry.name}" if entry.name else SNAPSHOTS
    variables = []
    for name in names:
        key = entry.prefix + name
        check = _CheckSnapshots(run, key)
        variables.append(
            Variable(
                name, ("time", *axes), (count, *entry.shape), np.dtype(manifest.dtype), ReadSnapshots(run, key, count),
                max(1, len(axes) - 1), check=check,
            )
        )  # fmt: skip
    attributes = {name: value for name, value in run_attributes(manifest).items() if name not in ("step", "time")}
    return ResultGroup(path, tuple(variables), tuple(coordinates), attributes)


@dataclass(frozen=True)
class _CheckSnapshots:
    """Tests the checksum of a snapshot when the first cells of this snapshot are read."""

    run: OpenedRun
    name: str

    def __call__(self, index: Index) -> None:
        times, *cells = index
        if any(one.start for one in cells):
            return
        view = self.run.simulation.snapshots[self.name]
        for number in range(times.start, times.stop):
            view.require_intact(number)


@dataclass(frozen=True)
class _CheckTrace:
    """Tests the checksum of a trace before its first rows are read."""

    read: ReadTrace

    def __call__(self, index: Index) -> None:
        if index[0].start == 0:
            self.read.traces.require_intact(self.read.name)


def traces_group(run: OpenedRun) -> ResultGroup:
    """Return the group of all traces. The coordinate `step` of the first row is 1. Raises InputError if the run has no
    receivers."""
    manifest = run.manifest
    if not manifest.taps.traces:
        raise InputError(f"{run.path} has no traces, because it has no receivers; leave them out")
    steps = np.arange(1, manifest.step + 1, dtype=np.int64)
    coordinates = [Coordinate("step", "step", steps)]
    if "dt" in manifest.parameters:
        coordinates.append(Coordinate("time", "step", steps * manifest.parameters["dt"]))
    variables = []
    for name, points in manifest.taps.traces.items():
        read = ReadTrace(run, name, manifest.step)
        axes, shape = ("step", f"{name}_point"), (manifest.step, points)
        variables.append(Variable(name, axes, shape, np.dtype("f8"), read, 1, check=_CheckTrace(read)))
    return ResultGroup(TRACES, tuple(variables), tuple(coordinates), run_attributes(manifest))


def group_at(run: OpenedRun, path: str) -> ResultGroup:
    """Return the complete group with this path. Raises InputError for an unknown path."""
    path = path.strip("/")
    if not path:
        return fields_group(run, [entry.name for entry in run.manifest.arrays if entry.name in run.manifest.filled])
    if path not in (known := group_paths(run)):
        raise InputError(f"{run.path} has no group {shown(path)}; there are: {', '.join(known) or 'none'}")
    if path == TRACES:
        return traces_group(run)
    name = path.removeprefix(SNAPSHOTS).removeprefix("/")
    (entry,) = (one for one in run.manifest.taps.snapshots if one.name == name)
    return _snapshot_group(run, entry, entry.fields)


def group_paths(run: OpenedRun) -> list[str]:
    """Return the paths of all groups except the group of the fields."""
    taps = run.manifest.taps
    found = [f"{SNAPSHOTS}/{one.name}".rstrip("/") for one in taps.snapshots if not one.is_history]
    return found + ([TRACES] if taps.traces else [])


def run_attributes(manifest: Manifest) -> dict[str, str | float | int]:
    """Return the attributes of a run: text and numbers, as NetCDF needs them. Each parameter has its own attribute,
    `parameter_NAME`. `time` is the step multiplied by the parameter dt, if there is one."""
    found: dict[str, str | float | int] = {
        "source": f"Outcrop {__version__}",
        "stencil": str(manifest.stencil.get("name", "")),
        "boundary": boundary_text(as_boundary(manifest.boundary), len(manifest.shape)),
        "step": manifest.step,
    }
    if "dt" in manifest.parameters:
        found["time"] = manifest.step * manifest.parameters["dt"]
    return found | {f"parameter_{name}": value for name, value in manifest.parameters.items()}
