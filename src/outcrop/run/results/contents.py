"""The committed results of a run as named arrays, for export and for xarray.

    group             arrays                      axes                coordinates
    ""                u, v, u.previous, ...       z, y, x             z, y, x
    snapshots         u, ...                      time, z, y, x       step, time, z, y, x
    snapshots/side    u, ...                      time, z, y, x       step, time, z, y, x

`records.py` has the groups of traces, norms and sources.

The values of an array are read in parts, when a program needs them. Each read opens its own files, so several threads
can read at the same time. Other processes can also read the results, because the objects of this module can be pickled.

The arrays of the group with the name "" belong to one generation. If the run continues, later reads of arrays in the
group "" raise InputError. Snapshots and traces do not change when a run continues.
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
from outcrop.axes import Shape
from outcrop.errors import InputError, shown
from outcrop.language.boundary import as_boundary, boundary_text
from outcrop.paths import as_path
from outcrop.run.disk.contents import axis_attributes, box_coordinates, step_attributes, time_attributes
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

SNAPSHOTS = "snapshots"
"""The name of the group of snapshots."""


class OpenedRun:
    """A run that was opened for reading. `path` is the path of the run. `identity` and `generation` are the identity
    and the generation that the run had when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        manifest = self.manifest
        self.identity, self.generation = manifest.identity, manifest.generation

    @property
    def setup(self) -> Setup:
        """The setup of the run. Raises InputError if the path now holds another run."""
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
        """Raise InputError if `generation` is not the generation that the run had when it was opened."""
        if generation != self.generation:
            raise InputError(f"{self.path} has changed since it was opened: another pass was committed; open it again")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_setup"}


@dataclass(frozen=True)
class ReadField:
    """A function that reads selected cells of one array: an array of the state, or an array that is only read. If
    `samples` is true, the function reads only the rows with selected cells, if possible, and does not test
    checksums."""

    run: OpenedRun
    name: str
    samples: bool = False

    def __call__(self, index: Index) -> NDArray[Any]:
        view = self.run.simulation[self.name]
        found = np.asarray(view.sample(index) if self.samples else view[index])
        self.run.require_generation(view.generation)
        return found


@dataclass(frozen=True)
class ReadSnapshots:
    """A function that reads selected cells of snapshots. `name` is the name of the snapshots, such as "side/u". The
    function can read only the first `count` snapshots."""

    run: OpenedRun
    name: str
    count: int

    def __call__(self, index: Index) -> NDArray[Any]:
        times, *cells = index if index else (slice(None),)
        wanted = range(self.count)[times]  # if the run has continued, it now has more snapshots than `count`
        if isinstance(wanted, range):
            times = slice(wanted.start, wanted.stop if wanted.stop >= 0 else None, wanted.step)
        found = self.run.simulation.snapshots[self.name][(times, *cells)]
        return np.array(found) if isinstance(found, np.memmap) else np.asarray(found)


@dataclass(frozen=True)
class Variable:
    """An array with named axes. `read` returns the values that an index selects. `blocks` does not divide the last
    `unit_axes` axes. `check` raises CorruptionError if stored values that `read` does not test are damaged. If `read`
    must read more than the selected values, `sample` reads fewer values, but does not test checksums."""

    name: str
    axes: tuple[str, ...]
    shape: Shape
    dtype: np.dtype[Any]
    read: Callable[[Index], NDArray[Any]]
    unit_axes: int
    attributes: Attributes = field(default_factory=dict)
    check: Callable[[Index], None] | None = None
    sample: Callable[[Index], NDArray[Any]] | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def blocks(self, max_bytes: int = BLOCK_BYTES) -> Iterator[tuple[Index, NDArray[Any]]]:
        """Yield all values part by part, in C order. Yield the index and the values of each part. A part has at most
        `max_bytes` bytes, or is one unit. A unit has all values along the last `unit_axes` axes."""
        for index in block_indices(self.shape, self.dtype.itemsize, self.unit_axes, max_bytes):
            yield index, self.read_checked(index)

    def read_checked(self, index: Index) -> NDArray[Any]:
        """Call `check`, and return the values that an index selects."""
        if self.check is not None:
            self.check(index)
        return self.read(index)


def block_indices(
    shape: Shape, itemsize: int, unit_axes: int, max_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[slice, ...]]:
    """Divide an array of the given shape into parts of at most `max_bytes`. Yield the index of each part, in C order.
    The last `unit_axes` axes are not divided. Each index has a slice for each axis, so that the indexed part has all
    axes."""
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
    """A group of arrays with the same coordinates. The group that contains the fields has the path ""."""

    path: str
    variables: tuple[Variable, ...]
    coordinates: tuple[Coordinate, ...]
    attributes: Attributes

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.variables)

    def beside(self, variable: Variable) -> str:
        """Return the attribute "coordinates" of a variable (CF conventions): a text with the names of all coordinates
        whose name is different from the name of their axis."""
        return " ".join(one.name for one in self.coordinates if one.name != one.axis and one.axis in variable.axes)

    def require_names(self) -> None:
        """Raise InputError if a variable has the name of an axis or a coordinate. In other formats, names of axes and
        coordinates are the names of arrays with coordinates."""
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
    """Lock a run, so that no process can change it. After that, open the run again, and yield the newly opened run.
    Raises InputError if a process is executing the run."""
    with ExitStack() as stack:
        for state in run.states:
            stack.enter_context(state.locked(shared=True))
        yield OpenedRun(run.path)


def open_results(run: str | os.PathLike[str] | Simulation) -> OpenedRun:
    """Open a run for reading. `run` is a directory, a device, the directory of all parts, or a simulation with
    committed values. Raises InputError if the run has no values, and StorageError if files of the run are missing."""
    if isinstance(run, Simulation):
        if run.setup.group is not None:
            raise InputError(
                "several ranks compute this run; export it without mpirun, from the directory of all parts"
            )
        path = run.directory
    elif isinstance(run, (str, os.PathLike)):
        path = as_path(run, "run")
    else:
        raise InputError(f"run {shown(run)} is not a run; give a directory, a device or a Simulation")
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
    """Return the group that contains the fields `names`. Raises InputError for unknown names and fields without
    values."""
    manifest, variables = run.manifest, []
    axes = manifest.axis_names
    for name in dict.fromkeys(names):
        entry = manifest.entry(name)
        if name not in manifest.filled:
            raise InputError(f"{run.path} holds no values of {name}; leave it out")
        about = {"long_name": f"{entry.field} before its latest update"} if entry.is_previous else {}
        unit_axes = max(1, len(axes) - 1)
        dtype = np.dtype(manifest.dtype)
        read, sample = ReadField(run, name), ReadField(run, name, samples=True)
        variables.append(Variable(name, axes, manifest.own_shape, dtype, read, unit_axes, about, sample=sample))
    where = manifest.own_coordinates
    coordinates = [
        Coordinate(name, name, where.along(axis, size) if where else np.arange(size, dtype=np.float64),
                   axis_attributes(manifest, name))
        for axis, (name, size) in enumerate(zip(axes, manifest.own_shape, strict=True))
        if name not in names
    ]  # fmt: skip
    return ResultGroup("", tuple(variables), tuple(coordinates), run_attributes(manifest))


def snapshot_groups(run: OpenedRun, wanted: Sequence[str]) -> list[ResultGroup]:
    """Return the groups of snapshots that `wanted` names. Each entry of `wanted` is "all", the name of snapshots
    ("side"), a field of named snapshots ("side/u"), or a field of snapshots without a name ("u"). The group of the
    snapshots without a name comes first. The group without a name contains the other groups, so h5netcdf must make it
    before them. Raises InputError for unknown names."""
    manifest = run.manifest
    entries = sorted((one for one in manifest.taps.snapshots if not one.is_history), key=lambda one: one.name != "")
    there = [entry.prefix + name for entry in entries for name in entry.fields]
    chosen: list[str] = []
    for one in wanted:
        found = [key for key in there if one in ("all", key) or (one and key.startswith(f"{one}/"))]
        if not found:
            raise InputError(f"{run.path} has no snapshots {shown(one)}; there are: {', '.join(there) or 'none'}")
        chosen += found
    names = {entry.name: [name for name in entry.fields if entry.prefix + name in chosen] for entry in entries}
    return [snapshot_group(run, entry, names[entry.name]) for entry in entries if names[entry.name]]


def snapshot_group(run: OpenedRun, entry: SnapshotsEntry, names: Sequence[str]) -> ResultGroup:
    """Return a group for some snapshots: `entry` describes the snapshots, and `names` contains the fields."""
    manifest = run.manifest
    axes, count = manifest.axis_names, entry.count(manifest.step)
    steps = entry.step_of(0) + entry.every * np.arange(count, dtype=np.int64)
    coordinates = steps_and_times(manifest, "time", steps, time_units=entry.time_units)
    coordinates += [
        Coordinate(axis, axis, values, axis_attributes(manifest, axis))
        for axis, values in box_coordinates(manifest, entry).items()
    ]
    path = f"{SNAPSHOTS}/{entry.name}" if entry.name else SNAPSHOTS
    about: Attributes = {"cell_methods": f"{': '.join(axes)}: mean"} if entry.coarsen else {}
    variables = []
    for name in names:
        key = entry.prefix + name
        check = _CheckSnapshots(run, key)
        variables.append(
            Variable(
                name, ("time", *axes), (count, *entry.shape), np.dtype(manifest.dtype), ReadSnapshots(run, key, count),
                max(1, len(axes) - 1), about, check=check,
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


def steps_and_times(
    manifest: Manifest, axis: str, steps: NDArray[np.int64], time: str = "time", time_units: str | None = None
) -> list[Coordinate]:
    """Return the coordinates of an axis whose entries belong to steps. The coordinate with the steps has the name of
    the axis. If `axis` is "time", the coordinate with the steps has the name "step". For Devito's equations, `steps`
    becomes Devito's time index. If the stencil has a parameter dt, there is also a coordinate of the times, with the
    name `time`. If all snapshots have the same unit of time, it is the default of the unit."""
    name = "step" if axis == "time" else axis
    first, way = manifest.time_line
    steps = first + way * steps
    found = [Coordinate(name, axis, steps, step_attributes(manifest))]
    if "dt" in manifest.parameters:
        every = {one.time_units for one in manifest.taps.snapshots if one.time_units}
        units = time_units if time_units is not None else every.pop() if len(every) == 1 else ""
        found.append(Coordinate(time, axis, steps * manifest.parameters["dt"], time_attributes(manifest, units)))
    return found


def run_attributes(manifest: Manifest) -> dict[str, str | float | int]:
    """Return the attributes of a run. Each attribute is a text or a number, because NetCDF has no other attributes.
    Each parameter has its own attribute, `parameter_NAME`. `time` is the step, or Devito's time index, multiplied by
    the parameter dt, if there is one."""
    found: dict[str, str | float | int] = {
        "source": f"Outcrop {__version__}",
        "stencil": str(manifest.stencil.get("name", "")),
        "boundary": boundary_text(as_boundary(manifest.boundary), len(manifest.shape), manifest.axis_names),
        "step": manifest.step,
    }
    if "dt" in manifest.parameters:
        first, way = manifest.time_line
        found["time"] = (first + way * manifest.step) * manifest.parameters["dt"]
    return found | {f"parameter_{name}": value for name, value in manifest.parameters.items()}
