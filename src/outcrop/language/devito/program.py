"""Turn a list of Devito objects into an object of the class Lowered. The list is the program of one time step. A
Lowered has a stencil and all other data that a run needs.

Devito reads sources, coordinates, Constants and functions of time each time an operator is applied. Outcrop reads these
values only once. A later change would have no effect, so Outcrop detects and reports it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import sympy
from devito.operations.interpolators import Injection as Inject
from devito.operations.interpolators import Interpolation, UnevaluatedSparseOperation
from devito.symbolics import retrieve_functions
from devito.types import Eq
from numpy.typing import NDArray

from outcrop.axes import grid_shape, inside
from outcrop.errors import InputError, shown
from outcrop.language.boundary import FIXED, Boundary, as_boundary
from outcrop.language.devito.equation import Access, FieldUpdate, SymbolValues, age, assign, convert, merge, updates_of
from outcrop.language.devito.points import PointOperation, Points, check_order
from outcrop.language.library.differences import as_size
from outcrop.language.schema import as_finite, as_number
from outcrop.language.sparse import Injection, Sampling
from outcrop.language.stencil import PREVIOUS, Field, Stencil
from outcrop.language.symbols import Signal

_MAX_DEPTH = 20
_MAX_TIME = 2**40
_MAX_TEXT = 1000
"""The maximum number of characters in the text of a stencil's equations. Only users read this text."""


class ReadValues:
    """Checksums of the values that were read from Constants, functions of time and sparse functions. The data of
    receivers are not included. An object that is both a source and a receiver counts as a receiver."""

    def __init__(
        self, constants: Mapping[str, Any], signals: Mapping[str, Any], sources: Sequence[Any], receivers: Sequence[Any]
    ) -> None:
        parts = [(name, one, "data") for name, one in {**constants, **signals}.items()]
        parts += [(one.name, one, "data") for one in sources if not any(one is other for other in receivers)]
        for one in (*sources, *receivers):
            if hasattr(one, "interpolation_coeffs"):  # precomputed
                parts += [(one.name, one, "gridpoints_data"), (one.name, one, "interpolation_coeffs.data")]
            else:
                parts.append((one.name, one, "coordinates.data"))
        self._readers = {f"{name}.{part}": partial(attrgetter(part), one) for name, one, part in parts}
        self._before = {name: _digest(read()) for name, read in self._readers.items()}

    def changed(self) -> str | None:
        """Return the first name whose values have changed, or None if no values have changed."""
        return next((name for name, read in self._readers.items() if _digest(read()) != self._before[name]), None)


def _digest(values: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(values).data)


@dataclass(frozen=True, eq=False)
class Lowered:
    """A stencil, and all other data that a run needs.

    Arrays have `shape` (nz, ny, nx): Devito's grid, with `padding` cells before and behind it along each axis. Devito's
    first dimension is z and its last is x. A grid of two dimensions has ny = 1. For a grid of one dimension, nz and ny
    are 1. `spacing`, `origin` and `dimensions` are in the order z, y, x. `origin` is the position of the arrays' cell
    (0, 0, 0), in the grid's units. `dimensions` contains the names of Devito's dimensions, and "" for an axis that
    Devito's grid does not have.

    Devito updates every cell of its grid, and also reads a halo around the grid. No equation changes the halo, whose
    values are 0 unless the user has assigned other values. The padding of the arrays holds this halo. The boundary is
    `fixed`. The rim of this boundary and the padding are both as thick as the stencil's radii. So exactly the cells of
    Devito's grid are updated, and these cells get the same values as in Devito. If the caller of `from_devito` has
    given another boundary, the arrays have no padding, and the halo is not used.

    `first_time` is the number that Devito gives to Outcrop's step 0. It is 1 if an equation reads t - dt, otherwise 0.
    The values of `injections` and `signals` begin with this step. `functions` maps names of fields to Devito's objects,
    and `receivers` maps names of samplings to Devito's objects. `read_values` detects whether a user has changed values
    after Outcrop read them.
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
    read_values: ReadValues

    @property
    def inside(self) -> tuple[slice, slice, slice]:
        """The slices of the arrays that select Devito's grid."""
        z, y, x = (slice(pad, extent - pad) for pad, extent in zip(self.padding, self.shape, strict=True))
        return z, y, x

    @property
    def max_steps(self) -> int | None:
        """The maximum number of steps for which all sources, signals and receivers have values or room. None if the
        program has no sources, signals and receivers."""
        lengths = [one.steps for one in self.injections] + [len(values) for values in self.signals.values()]
        lengths += [one.shape[0] - self.first_time for one in self.receivers.values()]
        return min(lengths, default=None)

    def put_traces(self, traces: Mapping[str, NDArray[np.float64]], first_step: int = 0) -> None:
        """Copy each trace to `.data` of the receiver with the same name, in the rows that Devito uses. A trace has the
        shape (steps, points).

        Raises InputError if a receiver does not have room for these steps. In this case, no receiver is changed.
        """
        first = self.first_time + first_step
        for name, trace in traces.items():
            room = self.receivers[name].shape[0] - first
            if len(trace) > room:
                raise InputError(f"{name} has room for {room} of {len(trace)} steps; make its nt larger")
        for name, trace in traces.items():
            self.receivers[name].data[first : first + len(trace)] = trace

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of all initial arrays: "u" for each field u, and also "u.previous" if a step needs two values of
        u."""
        names = [field.name for field in self.stencil.fields]
        pairs = zip(names, self.stencil.storage, strict=True)
        return (*names, *(name + PREVIOUS for name, storage in pairs if storage.history == 2))

    def initial(self, name: str) -> NDArray[np.floating] | None:
        """Return the values in a Function's `.data`, with its halo, as an array of `shape`. Return None if the user has
        not accessed `.data`. In this case, Devito's values are 0.

        `name` is one of `state_names`. Raises InputError if the halo differs between the times of a field. Devito
        stores a halo for each time, but the cells of a fixed rim have only one value.
        """
        field = name.removesuffix(PREVIOUS)
        function = self.functions[field]
        if function._data is None and function._initializer is None:
            return None
        if field in self.static_fields:
            return self._padded(function, ())
        newest = self.first_time % function.shape_allocated[0]
        if len({self._rim(function, time).tobytes() for time in range(function.shape_allocated[0])}) > 1:
            raise InputError(
                f"{field}: its halo differs between time steps; give all of {field}.data_with_halo the same"
            )
        return self._padded(function, (newest - name.endswith(PREVIOUS),))

    def _padded(self, function: Any, time: tuple[int, ...]) -> NDArray[np.floating]:
        """Return the values of a function at one time, extended by the padding. The padding has the values of the halo.
        Cells of the padding beyond the halo are zero. No equation reads these cells."""
        axes = [axis for axis in range(3) if self.dimensions[axis]]
        halo = [sizes[0] for sizes in function._size_inhalo[-len(axes) :]]
        index: list[int | slice] = [*time]
        missing = []
        for axis, left, extent in zip(axes, halo, function.grid.shape, strict=True):
            kept = min(left, self.padding[axis])
            index.append(slice(left - kept, left + extent + kept))
            missing.append(self.padding[axis] - kept)
        values = np.asarray(function.data_with_halo)[tuple(index)]
        return np.pad(values, [(width, width) for width in missing]).reshape(self.shape)

    def _rim(self, function: Any, time: int) -> NDArray[np.floating]:
        array = self._padded(function, (time,))
        array[self.inside] = 0
        return array


def from_devito(
    equations: Sequence[Any], dt: float, name: str = "devito", boundary: object = None, first_time: int | None = None
) -> Lowered:
    """Lower the time step that Devito's `Operator(equations)` computes. `dt` is the length of the step.

    `equations` are `Eq`, `Inc`, and the results of `SparseTimeFunction.inject` and `.interpolate`, also in nested
    lists. If `boundary` is None, the grid has Devito's boundary, which is a halo (see Lowered). `first_time` is
    Devito's `time_m` and has the same default. The function allocates no arrays of the grid's size.

    Raises InputError if a part cannot be lowered. The message contains the equation, the term and the reason.
    """
    sides = None if boundary is None else as_boundary(boundary)
    operations = _flatten(equations)
    if not operations:
        raise InputError("the list of equations is empty; a run needs at least one Eq for u.forward")
    grid = _grid(operations)
    if not isinstance(dt, int | float | np.number) or as_number(dt, "dt =") <= 0 or not np.isfinite(float(dt)):
        raise InputError(f"dt={shown(dt)} is not a time step; give a positive number")
    if first_time is not None and (type(first_time) is not int or not 0 <= first_time <= _MAX_TIME):
        raise InputError(f"first_time {shown(first_time)} must be a whole number of at least 0")
    values = SymbolValues(grid, float(dt))
    updates = [
        update
        for position, one in enumerate(operations)
        if isinstance(one, Eq)
        for update in updates_of(one, position, grid)
    ]
    if not updates:
        raise InputError("the list contains no equation; a run needs at least one Eq for u.forward")
    merged = merge(updates)
    stages = assign(merged)
    text = "; ".join(" ".join(str(one).split()) for one in operations if isinstance(one, Eq))
    stencil = _stencil(name, merged, stages, values, text if len(text) < _MAX_TEXT else text[:_MAX_TEXT] + "...")
    padding = stencil.radii if sides is None else (0, 0, 0)
    start = _first_time(updates) if first_time is None else first_time
    points = Points(grid, values, padding, start)
    injections, samplings, extra = _points(operations, updates, points)
    functions = {read.field: read.function for update in updates for read in update.reads.values()} | extra
    functions |= {update.field: update.function for update in updates}
    receivers = _receivers(operations)
    sources = [one.interpolator.sfunction for one in operations if isinstance(one, Inject)]
    signals = {name: functions[name] for name in stencil.signals}
    _require_fields(stencil, injections, samplings)
    names = [field.name for field in stencil.fields]
    return Lowered(
        stencil=stencil,
        **_arrays(grid, padding),
        padding=padding,
        dtype=np.dtype(grid.dtype).name,
        boundary=sides or FIXED,
        injections=injections,
        samplings=samplings,
        signals={name: np.asarray(one.data, np.float64)[start:] for name, one in signals.items()},
        static_fields=tuple(n for n, kept in zip(names, stencil.storage, strict=True) if kept.is_static),
        functions={name: one for name, one in functions.items() if name in names},
        receivers=receivers,
        first_time=start,
        read_values=ReadValues(values.constants, signals, sources, list(receivers.values())),
    )


def _flatten(equations: Any, depth: int = 0) -> list[Any]:
    if depth > _MAX_DEPTH:
        raise InputError(f"equations are nested in more than {_MAX_DEPTH} lists; give them in one")
    found: list[Any] = []
    for one in equations if isinstance(equations, list | tuple) else (equations,):
        if isinstance(one, list | tuple):
            found += _flatten(one, depth + 1)
        elif isinstance(one, Eq | Inject | Interpolation):
            found.append(one)
        else:
            what = "sparse operation" if isinstance(one, UnevaluatedSparseOperation) else type(one).__name__
            raise InputError(f"{shown(one)} is a {what}; there are Eq, Inc, inject and interpolate")
    return found


def _grid(operations: Sequence[Any]) -> Any:
    """Return the grid of all functions. Raises InputError if the functions have different grids, or if a run cannot use
    the grid."""
    functions = [
        function
        for one in operations
        for function in ([one.interpolator.sfunction] if not isinstance(one, Eq) else retrieve_functions(one.lhs))
    ]
    grids = {id(function.grid): function.grid for function in functions if function.grid is not None}
    if len(grids) != 1:
        names = ", ".join(dict.fromkeys(str(function.name) for function in functions))
        raise InputError(f"the functions {names} lie on {len(grids)} grids; a run has only one grid")
    (grid,) = grids.values()
    if getattr(grid, "is_SubDomain", False):
        raise InputError(f"functions on the SubDomain {grid.name} are not available; define them on the grid")
    if not 1 <= grid.dim <= 3:
        raise InputError(f"the grid has {grid.dim} dimensions; there are 1, 2 and 3")
    if grid.dtype not in (np.float32, np.float64):
        raise InputError(f"the grid's dtype is {grid.dtype.__name__}; there are float32 and float64")
    for extent in grid.shape:
        as_size(extent, f"the grid's shape {shown(grid.shape)}: size")
    for h, o in zip(grid.spacing, grid.origin, strict=True):
        if as_finite(h, "the grid's spacing") <= 0:
            raise InputError(f"the grid's spacing {shown(h)} must be above 0")
        as_finite(o, "the grid's origin")
    if grid.distributor.nprocs > 1:
        raise InputError(f"the grid is distributed over {grid.distributor.nprocs} MPI processes; use one process")
    return grid


def _first_time(updates: Sequence[FieldUpdate]) -> int:
    """Return the number of the first step of Devito's own loop. In this step, all values that the equations read exist
    for the first time."""
    return max((-read.shift for update in updates for read in update.reads.values() if read.shift < 0), default=0)


def _stencil(
    name: str, updates: Sequence[FieldUpdate], stages: dict[str, int], values: SymbolValues, text: str
) -> Stencil:
    found: list[dict[Field, sympy.Expr]] = [{} for _ in range(max(stages.values()) + 1)]
    for update in updates:
        stage = stages[update.field]
        found[stage][Field(update.field)] = _expression(update, stage, stages, values)
    return Stencil(name, found, text, ndim=values.grid.dim)


def _expression(update: FieldUpdate, stage: int, stages: dict[str, int], values: SymbolValues) -> sympy.Expr:
    """Convert the expression of an update in stage number `stage`. An access becomes a read of a field. If the stage
    needs the value before the field's latest update (`age` is 1), the access becomes a read of the field's `previous`.
    A function without space axes becomes a signal."""

    def leaf(indexed: Any) -> sympy.Expr:
        access: Access = update.reads[indexed]
        if not access.offset:
            return Signal(access.field)
        if update.earlier is not None and update.continues(access):
            return _expression(update.earlier, stage, stages, values)
        field = Field(access.field)
        return (field.previous if age(access, stage, stages) else field)[access.offset]

    return convert(update.where, update.expression, values, leaf)


def _points(
    operations: Sequence[Any], updates: Sequence[FieldUpdate], points: Points
) -> tuple[tuple[Injection, ...], tuple[Sampling, ...], dict[str, Any]]:
    """Return the sources, the receivers, and the functions that they read."""
    injections: list[Injection] = []
    samplings: list[Sampling] = []
    order: list[PointOperation] = []
    functions: dict[str, Any] = {}
    for position, one in enumerate(operations):
        if isinstance(one, Inject):
            for injection, read in points.injections(one, position):
                injections.append(injection)
                functions |= {function.name: function for function in read}
                order.append(PointOperation(position, _text(position, one, "inject"), injection.field, True))
        elif isinstance(one, Interpolation):
            for sampling, access in points.samplings(one, position):
                samplings.append(sampling)
                functions[access.field] = access.function
                if not sampling.before:
                    order.append(PointOperation(position, _text(position, one, "interpolate"), sampling.field, False))
    check_order(order, updates)
    return tuple(injections), tuple(samplings), functions


def _receivers(operations: Sequence[Any]) -> dict[str, Any]:
    """Return a dictionary from names to receivers. Raises InputError if two receivers have the same name, or if one
    receiver interpolates twice."""
    found: dict[str, Any] = {}
    for position, one in enumerate(operations):
        if isinstance(one, Interpolation):
            receiver = one.interpolator.sfunction
            if receiver.name in found:
                raise InputError(f"{_text(position, one, 'interpolate')}: two receivers have the name {receiver.name}")
            found[str(receiver.name)] = receiver
    return found


def _text(position: int, operation: Any, what: str) -> str:
    return f"operation {position + 1}, {operation.interpolator.sfunction.name}.{what}"


def _require_fields(stencil: Stencil, injections: Sequence[Injection], samplings: Sequence[Sampling]) -> None:
    """Raise InputError if sources or receivers read a function that is not a field of the stencil."""
    fields = {field.name for field in stencil.fields}
    read = [one.field for one in samplings] + [name for one in injections if one.scale for name in one.scale.fields]
    for name in read:
        if name not in fields:
            raise InputError(
                f"sources or receivers read {name}, but no equation reads it; a run keeps only what equations use"
            )


def _arrays(grid: Any, padding: tuple[int, int, int]) -> dict[str, Any]:
    """Return the shape, spacing, origin and dimensions of the arrays of a run."""
    spacing = inside([float(h) for h in grid.spacing], 1.0)
    origin = inside([float(o) for o in grid.origin], 0.0)
    return {
        "shape": tuple(int(extent) + 2 * pad for extent, pad in zip(grid_shape(grid.shape), padding, strict=True)),
        "spacing": spacing,
        "origin": tuple(o - pad * h for o, pad, h in zip(origin, padding, spacing, strict=True)),
        "dimensions": inside([str(dimension.name) for dimension in grid.dimensions], ""),
    }
