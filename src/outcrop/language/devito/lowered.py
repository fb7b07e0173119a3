"""`Lowered`: a stencil made from Devito's equations, and all other data that a run needs.

Devito reads all values each time an operator is applied. Outcrop reads sources, coordinates, Constants and functions of
time when a simulation is made. Outcrop reads fields when the first step of the simulation begins. If a value changes
after Outcrop has read it, the change would have no effect. Outcrop detects and reports such changes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import inside
from outcrop.errors import InputError
from outcrop.language.boundary import Boundary
from outcrop.language.devito.computed import ComputedField
from outcrop.language.devito.equation import Box, OlderValues, is_updatable
from outcrop.language.sparse import Injection, Sampling
from outcrop.language.stencil import PREVIOUS, Stencil


class ReadValues:
    """Checksums of the values that were read from Constants, functions of time and sparse functions. There are no
    checksums of the data of receivers. An object that is both a source and a receiver counts as a receiver. After a
    call of `note_fields`, this object also has checksums of the Functions that no equation changes."""

    def __init__(
        self, constants: Mapping[str, Any], signals: Mapping[str, Any], sources: Sequence[Any], receivers: Sequence[Any]
    ) -> None:
        parts = [(name, one, "data") for name, one in {**constants, **signals}.items()]
        parts += [(one.name, one, "data") for one in sources if not any(one is other for other in receivers)]
        for one in (*sources, *receivers):
            if getattr(one, "gridpoints_data", None) is not None:  # precomputed
                parts += [(one.name, one, "gridpoints_data"), (one.name, one, "interpolation_coeffs.data")]
            else:
                parts.append((one.name, one, "coordinates.data"))
        self._readers = {f"{name}.{part}": partial(attrgetter(part), one) for name, one, part in parts}
        self._before = {name: _digest(read()) for name, read in self._readers.items()}
        self._fields: dict[str, tuple[Any, int | None]] = {}

    def changed(self) -> str | None:
        """Return the name of the first values that have changed, such as "src.coordinates.data", or None if no values
        have changed."""
        return next((name for name, read in self._readers.items() if _digest(read()) != self._before[name]), None)

    def note_fields(self, functions: Mapping[str, Any]) -> None:
        """Compute and keep checksums of `functions` when the first step begins. Later calls have no effect."""
        if not self._fields:
            self._fields = {name: (one, _digest_of(one)) for name, one in functions.items()}

    def changed_field(self) -> str | None:
        """Return the name of the first Function whose values have changed since `note_fields`, or None."""
        for name, (function, before) in self._fields.items():
            now = _digest_of(function)
            if now != before and (before is not None or np.any(function.data_with_halo)):
                return name
        return None


def _digest(values: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(values).data)


def _digest_of(function: Any) -> int | None:
    """Return the checksum of a Function's values, or None if the user has not accessed the values of this Function."""
    return _digest(function.data_with_halo) if has_values(function) else None


@dataclass(frozen=True)
class SavedSteps:
    """Snapshots that the equations ask for, with `save=` or a ConditionalDimension. Values of `fields` are kept after
    the steps `offset`, `offset` + `every`, and so on. If `initial` is true, the initial values of the fields are kept,
    too."""

    name: str
    fields: tuple[str, ...]
    every: int
    offset: int
    initial: bool


@dataclass(frozen=True)
class SavedRead:
    """A static field whose values come from another run. In the step with Devito's number t, the field has the values
    of `function` at t + `shift`."""

    name: str
    function: str
    shift: int


@dataclass(frozen=True, eq=False)
class Lowered:
    """A stencil, and all other data that a run needs.

    The arrays have `shape` (nz, ny, nx). They contain Devito's grid, and `padding` cells before and behind the grid
    along each axis. Devito's first dimension becomes z, and Devito's last dimension becomes x. A grid of two dimensions
    has ny = 1. For a grid of one dimension, nz and ny are 1. `spacing`, `origin` and `dimensions` are in the order z,
    y, x. `origin` is the position of the arrays' cell (0, 0, 0), in the grid's units. `dimensions` contains the names
    of Devito's dimensions, and "" for an axis that Devito's grid does not have.

    Devito updates every cell of its grid, and also reads a halo around the grid. No equation changes the values of the
    halo. The halo contains zeros unless the user has assigned other values. The padding of the arrays holds Devito's
    halo. The boundary is `fixed`. The rim and the padding are as thick as the radii of the stencil. Therefore a run
    updates exactly the cells of Devito's grid, and computes the same values in these cells as Devito. If all equations
    leave out n cells at both ends of an axis, the padding along this axis is thinner by n cells. If the caller of
    `from_devito` has given another boundary, the arrays have no padding, and the halo is not used.

    `first_time` is the number that Devito gives to Outcrop's step 0. For example, `first_time` is 1 if the equations
    run forward in time and one of them reads t - dt. Outcrop's step k has Devito's number `first_time` + k *
    `direction`. `direction` is -1 if the equations run backward in time. The first values in `injections` and `signals`
    belong to step 0. `functions` maps names of fields to Devito's objects, and `receivers` maps names of samplings to
    Devito's objects. `older`, `computed` and `regions` describe fields that Devito does not have. `saved` contains the
    snapshots that the equations ask for. `reads` contains the fields whose values another run has saved. The fields in
    `reads` are the last fields of the stencil. `boxes` contains the boxes in which the equations compute each field, or
    None for the whole grid. `fixed_parameters` maps the parameters that a run cannot change later to texts. A text says
    what was computed with the parameter. `read_values` detects whether a user has changed values after Outcrop read
    them.
    """

    stencil: Stencil
    shape: tuple[int, int, int]
    padding: tuple[int, int, int]
    dtype: str
    spacing: tuple[float, float, float]
    origin: tuple[float, float, float]
    dimensions: tuple[str, str, str]
    boundary: Boundary
    injections: tuple[Injection, ...]
    samplings: tuple[Sampling, ...]
    signals: Mapping[str, NDArray[np.float64]]
    static_fields: tuple[str, ...]
    functions: Mapping[str, Any]
    receivers: Mapping[str, Any]
    first_time: int
    direction: int
    older: Mapping[str, OlderValues]
    computed: Mapping[str, ComputedField]
    regions: Mapping[str, Box]
    boxes: Mapping[str, tuple[Box | None, ...]]
    saved: tuple[SavedSteps, ...]
    reads: tuple[SavedRead, ...]
    fixed_parameters: Mapping[str, str]
    read_values: ReadValues

    @property
    def inside(self) -> tuple[slice, slice, slice]:
        """The slices that select the cells of Devito's grid in the arrays."""
        z, y, x = (slice(pad, extent - pad) for pad, extent in zip(self.padding, self.shape, strict=True))
        return z, y, x

    @property
    def max_steps(self) -> int | None:
        """The maximum number of steps for which all sources and signals have values, and all receivers have rows.
        `max_steps` is None if the program has no sources, no signals and no receivers."""
        lengths = [one.steps for one in self.injections] + [len(values) for values in self.signals.values()]
        lengths += [self._room(one, 0) for one in self.receivers.values()]
        return min(lengths, default=None)

    def _room(self, receiver: Any, step: int) -> int:
        """Return the number of a receiver's rows that belong to step `step` and later steps."""
        first = self.first_time + self.direction * step
        return int(receiver.shape[0]) - first if self.direction == 1 else first + 1

    def put_traces(self, traces: Mapping[str, NDArray[np.float64]], first_step: int = 0) -> None:
        """Copy each trace to `.data` of the receiver with the same name, in the rows that Devito uses. A trace has the
        shape (steps, points).

        Raises InputError if a receiver has too few rows for the steps of its trace. If one receiver has too few rows,
        no receiver is changed.
        """
        first = self.first_time + self.direction * first_step
        for name, trace in traces.items():
            room = self._room(self.receivers[name], first_step)
            if len(trace) > room:
                raise InputError(f"{name} has room for {room} of {len(trace)} steps; make its nt larger")
        for name, trace in traces.items():
            low = first if self.direction == 1 else first - len(trace) + 1
            self.receivers[name].data[low : low + len(trace)] = trace[:: self.direction]

    @property
    def fixed_fields(self) -> dict[str, str]:
        """A mapping of each static field that an equation reads and from which `computed` makes another field. The
        value is the name of the other field."""
        pairs = [(name, one.name) for one in self.computed.values() for name in one.functions]
        return {name: other for name, other in pairs if name in self.static_fields}

    def functions_of(self, names: Collection[str]) -> dict[str, Any]:
        """Return the Functions of Devito from which the static fields in `names` get their values."""
        static = [name for name in self.static_fields if name in names]
        found = {name: self.functions[name] for name in static if name in self.functions}
        for name in static:
            found |= self.computed[name].functions if name in self.computed else {}
        return found

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of all initial arrays: "u" for each field u, and also "u.previous" if a step needs two values of
        u."""
        reads = {one.name for one in self.reads}
        names = [field.name for field in self.stencil.fields if field.name not in reads]
        pairs = zip(names, self.stencil.storage, strict=False)  # the fields in `reads` are the last fields
        return (*names, *(name + PREVIOUS for name, storage in pairs if storage.history == 2))

    def planes(self, name: str) -> Callable[[int, int], NDArray[Any]] | None:
        """Return a function that reads planes of an array's initial values. Return None if `initial` returns None for
        this array."""
        if name in self.regions:
            return lambda z0, z1: self._region(self.regions[name], z0, z1)
        array = self.initial(name)
        return None if array is None else lambda z0, z1: array[z0:z1]

    def initial(self, name: str) -> NDArray[np.floating] | None:
        """Return the values in a Function's `.data`, with its halo, as an array of `shape`. Return None if the user has
        not accessed `.data`. In Devito, all values of a Function are 0 until the user accesses `.data`.

        `name` is one of `state_names`. No equation computes some of the cells, such as the cells of the halo. For a
        cell that no equation computes, Devito stores a value for each time, but Outcrop stores only one value. Raises
        InputError if the values of such a cell differ between the times that a run uses.
        """
        field = name.removesuffix(PREVIOUS)
        if field in self.regions:
            return self._region(self.regions[field], 0, self.shape[0])
        if field in self.computed:
            return self._computed(self.computed[field])
        kept = self.older.get(field)
        function = self.functions[field if kept is None else str(kept.function.name)]
        if not has_values(function):
            return None
        if not is_updatable(function):
            return self._padded(function, (), self.padding)
        back = kept.steps if kept else int(name.endswith(PREVIOUS))
        self._require_same_outside(field, function)
        return self._padded(function, (self._row(function, back),), self.padding)

    def _row(self, function: Any, back: int) -> int:
        """Return the index in `.data` of the values at the time that is `back` steps before the first step."""
        return int((self.first_time - self.direction * back) % function.shape_allocated[0])

    def _require_same_outside(self, field: str, function: Any) -> None:
        """Raise InputError if a cell that no equation computes has different values at the times that the steps use."""
        rows = range(function.shape_allocated[0])
        if type(function.save) is int:
            oldest = self.first_time - self.direction * (function.time_order - 1)
            rows = rows[max(0, oldest) :] if self.direction == 1 else rows[: oldest + 1]
        boxes = self.boxes.get(field, (None,))
        is_outside = np.ones(self.shape, bool)
        for box in boxes:
            is_outside[self.inside if box is None else self._cells(box)] = False
        values, missing = self._stored(function, self.padding)
        own = is_outside.reshape([n for n, name in zip(self.shape, self.dimensions, strict=True) if name])
        own = own[tuple(slice(width, n - width) for width, n in zip(missing, own.shape, strict=True))]
        if any(values[row][own].tobytes() != values[rows[0]][own].tobytes() for row in rows[1:]):
            where = "its halo differs" if None in boxes else "cells without an equation differ"
            raise InputError(f"{field}: {where} between time steps; give all of {field}.data_with_halo the same")

    def _cells(self, box: Box) -> tuple[slice, ...]:
        """Return the slices that select the cells of a box in the arrays."""
        ranges = inside(box, (0, 1))
        return tuple(slice(first + pad, end + pad) for (first, end), pad in zip(ranges, self.padding, strict=True))

    def _region(self, box: Box, z0: int, z1: int) -> NDArray[np.floating]:
        z, y, x = self._cells(box)
        planes = np.zeros((z1 - z0, *self.shape[1:]), self.dtype)
        planes[max(0, z.start - z0) : max(0, z.stop - z0), y, x] = 1
        return planes

    def _computed(self, one: ComputedField) -> NDArray[np.floating] | None:
        if not all(map(has_values, one.functions.values())):
            return None
        around = tuple(pad + one.reach * bool(name) for pad, name in zip(self.padding, self.dimensions, strict=True))

        def read(function: Any, offset: tuple[int, ...]) -> NDArray[Any]:
            wide = self._padded(function, (), around)
            starts = [
                more - pad + step for more, pad, step in zip(around, self.padding, inside(offset, 0), strict=True)
            ]
            return wide[tuple(slice(a, a + n) for a, n in zip(starts, self.shape, strict=True))]

        found: NDArray[np.floating] = np.broadcast_to(one.evaluate(read), self.shape).astype(self.dtype)
        return found

    def _padded(self, function: Any, time: tuple[int, ...], padding: tuple[int, ...]) -> NDArray[np.floating]:
        """Return the values of a function at one time, extended by the padding. The padding contains the values of
        Devito's halo. Cells of the padding beyond the halo are zero. No equation reads these cells."""
        values, missing = self._stored(function, padding)
        whole = [n + 2 * (more - pad) for n, more, pad in zip(self.shape, padding, self.padding, strict=True)]
        return np.pad(values[time], [(width, width) for width in missing]).reshape(whole)

    def _stored(self, function: Any, padding: tuple[int, ...]) -> tuple[NDArray[np.floating], list[int]]:
        """Return the stored values of a function at all times, with the part of the halo that lies in the padding. This
        array is a view. Also return, for each axis of Devito, the number of cells by which the padding is thicker than
        the halo."""
        axes = [axis for axis in range(3) if self.dimensions[axis]]
        halo = [sizes[0] for sizes in function._size_inhalo[-len(axes) :]]
        index: list[Any] = [...]
        missing = []
        for axis, left, extent in zip(axes, halo, function.grid.shape, strict=True):
            kept = min(left, padding[axis])
            index.append(slice(left - kept, left + extent + kept))
            missing.append(padding[axis] - kept)
        return np.asarray(function.data_with_halo)[tuple(index)], missing


def has_values(function: Any) -> bool:
    """Return True if the user has given values to a function of Devito. For a function without values, an access to
    `.data` would allocate the function's array."""
    return function._data is not None or function._initializer is not None
