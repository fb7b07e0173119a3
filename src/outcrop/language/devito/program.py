"""Turn a list of Devito objects, the program of a time step, into a Lowered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy
from devito.operations.interpolators import Injection as Inject
from devito.operations.interpolators import Interpolation, UnevaluatedSparseOperation
from devito.symbolics import retrieve_functions
from devito.types import Eq
from numpy.typing import NDArray

from outcrop.axes import PLACES
from outcrop.errors import InputError, shown
from outcrop.language.boundary import FIXED, Boundary, as_boundary
from outcrop.language.devito.equation import Access, FieldUpdate, SymbolValues, age, assign, convert, merge, updates_of
from outcrop.language.devito.lowered import Lowered, Taken, taken_from
from outcrop.language.devito.points import PointOperation, Points, check_order
from outcrop.language.library.differences import as_size
from outcrop.language.schema import as_finite, as_number
from outcrop.language.sparse import Injection, Sampling, spread
from outcrop.language.stencil import Field, Stencil
from outcrop.language.symbols import Signal

_MAX_DEPTH = 20
_MAX_TIME = 2**40
_MAX_TEXT = 1000
"""The maximum number of characters of the equations in a stencil, which are for people to read."""


def from_devito(
    equations: Sequence[Any], dt: float, name: str = "devito", boundary: object = None, first_time: int | None = None
) -> Lowered:
    """What Devito's Operator of `equations` does in each step, with the time step `dt`.

    `equations` are `Eq`, `Inc`, and what `SparseTimeFunction.inject` and `.interpolate` return, also in nested lists.
    Without a `boundary` the grid has Devito's own, a halo (see Lowered); else those of `boundary`, in our terms.
    `first_time` is Devito's `time_m`, by default the same as there. Nothing of the grid's size is allocated.

    Raises InputError naming the equation, the term and why, for what cannot be lowered.
    """
    sides = None if boundary is None else as_boundary(boundary)
    operations = _flatten(equations)
    if not operations:
        raise InputError("there is nothing among what was given; a run needs at least one Eq for u.forward")
    grid = _grid(operations)
    if not isinstance(dt, int | float | np.number) or as_number(dt, "dt =") <= 0 or not np.isfinite(float(dt)):
        raise InputError(f"dt={shown(dt)} is no time step; give a positive number")
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
        raise InputError("there is no equation among what was given; a run needs at least one Eq for u.forward")
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
    taken = taken_from(values.constants, signals, sources, list(receivers.values()))
    return _lowered(grid, stencil, padding, sides or FIXED, injections, samplings, functions, receivers, start, taken)


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
    """The grid of all functions. Raises InputError if they have several grids, or one that cannot be used."""
    functions = [
        function
        for one in operations
        for function in ([one.interpolator.sfunction] if not isinstance(one, Eq) else retrieve_functions(one.lhs))
    ]
    grids = {id(function.grid): function.grid for function in functions if function.grid is not None}
    if len(grids) != 1:
        names = ", ".join(dict.fromkeys(str(function.name) for function in functions))
        raise InputError(f"the functions {names} lie on {len(grids)} grids; a run has one")
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
        raise InputError(f"the grid is distributed over {grid.distributor.nprocs} MPI processes; use one")
    return grid


def _first_time(updates: Sequence[FieldUpdate]) -> int:
    """The first step of Devito's own loop: the first one whose reads all exist."""
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
    """The expression of an update, as seen from its stage."""

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
    """Sources, receivers, and the functions that only these read."""
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
    """The receivers, by name. Raises InputError if two have the same name, or one interpolates twice."""
    found: dict[str, Any] = {}
    for position, one in enumerate(operations):
        if isinstance(one, Interpolation):
            receiver = one.interpolator.sfunction
            if receiver.name in found:
                raise InputError(f"{_text(position, one, 'interpolate')}: another one has the name {receiver.name}")
            found[str(receiver.name)] = receiver
    return found


def _text(position: int, operation: Any, what: str) -> str:
    return f"operation {position + 1}, {operation.interpolator.sfunction.name}.{what}"


def _lowered(
    grid: Any, stencil: Stencil, padding: tuple[int, int, int], boundary: Boundary, injections: tuple[Injection, ...],
    samplings: tuple[Sampling, ...], functions: Mapping[str, Any], receivers: Mapping[str, Any], first_time: int,
    taken: Taken,
) -> Lowered:  # fmt: skip
    axes = PLACES[grid.dim]
    shape = spread(np.array(grid.shape)) + [0 if axis in axes else 1 for axis in range(3)]
    spacing, origin, names = [1.0] * 3, [0.0] * 3, [""] * 3
    for axis, dimension, h, o in zip(axes, grid.dimensions, grid.spacing, grid.origin, strict=True):
        spacing[axis], names[axis] = float(h), str(dimension.name)
        origin[axis] = float(o) - padding[axis] * float(h)
    fields = {field.name for field in stencil.fields}
    read = [one.field for one in samplings] + [name for one in injections if one.scale for name in one.scale.fields]
    for name in read:
        if name not in fields:
            raise InputError(
                f"sources or receivers read {name}, but no equation does; a run keeps only what equations use"
            )
    static = tuple(f.name for f, kept in zip(stencil.fields, stencil.storage, strict=True) if kept.is_static)
    nz, ny, nx = (int(extent + 2 * pad) for extent, pad in zip(shape, padding, strict=True))
    return Lowered(
        stencil=stencil, shape=(nz, ny, nx), padding=padding, dtype=np.dtype(grid.dtype).name,
        spacing=(spacing[0], spacing[1], spacing[2]), origin=(origin[0], origin[1], origin[2]),
        dimensions=(names[0], names[1], names[2]), boundary=boundary, injections=injections, samplings=samplings,
        signals=_signals(stencil, functions, first_time), static_fields=static,
        functions={name: functions[name] for name in functions if name in fields}, receivers=receivers,
        first_time=first_time, taken=taken,
    )  # fmt: skip


def _signals(stencil: Stencil, functions: Mapping[str, Any], first_time: int) -> dict[str, NDArray[np.float64]]:
    return {name: np.asarray(functions[name].data, np.float64)[first_time:] for name in stencil.signals}
