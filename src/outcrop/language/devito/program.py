"""Turn a list of Devito objects into an object of the class Lowered. The list of objects describes one time step. A
Lowered has a stencil and all other data that a run needs.

An Operator of Devito does not keep the equations from which it was built. An Operator keeps only the loops of the
generated code. The loops of the generated code contain the equations in another form. Operators that are built inside
`with keep_equations():` also keep their equations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import devito
import numpy as np
import sympy
from devito.operations.interpolators import Injection as Inject
from devito.operations.interpolators import Interpolation, UnevaluatedSparseOperation
from devito.symbolics import retrieve_functions
from devito.types import Eq

from outcrop.axes import NAMES, PLACES, grid_shape, inside
from outcrop.errors import InputError, shown
from outcrop.language.boundary import FIXED, as_boundary, boundary_on_grid, with_own_names
from outcrop.language.devito.computed import StaticFields
from outcrop.language.devito.equation import (
    Access,
    Box,
    FieldUpdate,
    OlderValues,
    direction_of,
    is_saved,
    lines_of,
    updates_of,
)
from outcrop.language.devito.expression import Conversion, SymbolValues
from outcrop.language.devito.lowered import Lowered, ReadValues, SavedRead
from outcrop.language.devito.points import CellOperation, Points, check_order
from outcrop.language.devito.snapshots import Kept, is_kept, kept_of, saved_steps
from outcrop.language.devito.stages import Stages, stages_of
from outcrop.language.library.differences import as_size
from outcrop.language.lower import Position
from outcrop.language.schema import MAX_EXACT, as_finite, as_number
from outcrop.language.sparse import Injection, Sampling
from outcrop.language.stencil import Field, Stencil
from outcrop.language.symbols import Signal, t

_MAX_DEPTH = 20
_MAX_TIME = 2**40
_MAX_TEXT = 1000
"""The maximum number of characters in the text of a stencil's equations. Only users read this text."""


_KEPT = "_outcrop_equations"
"""The attribute of an Operator with the equations and the substitutions from which the Operator was built."""


@contextlib.contextmanager
def keep_equations() -> Iterator[None]:
    """Inside this context, Devito's Operators keep their equations:

        with keep_equations():
            operator = solver.op_fwd()
        sim = oc.Simulation(operator, dt=solver.dt, directory="shot.oc")

    Devito builds the Operators as usual. The code of an Operator is compiled only if `apply` is called."""
    build = devito.Operator.__new__

    def build_and_keep(cls: type, expressions: Any, **options: Any) -> Any:
        built = build(cls, expressions, **options)
        if expressions is not None:
            setattr(built, _KEPT, (expressions, dict(options.get("subs") or {})))
        return built

    devito.Operator.__new__ = staticmethod(build_and_keep)
    try:
        yield
    finally:
        devito.Operator.__new__ = build


def equations_of(operator: Any) -> tuple[Any, dict[Any, float]]:
    """Return the equations of an Operator, and a mapping from symbols to the numbers that replace these symbols. Raises
    InputError if the Operator does not keep its equations, or if it replaces a symbol by something that is not a
    number."""
    kept = getattr(operator, _KEPT, None)
    if kept is None:
        raise InputError(
            f"the Operator {operator.name} does not keep its equations; build it inside "
            "`with outcrop.language.devito.keep_equations():`, or give the list of its equations"
        )
    equations, substitutions = kept
    numbers = {}
    for symbol, value in substitutions.items():
        try:
            numbers[symbol] = float(value)
        except (TypeError, ValueError):
            raise InputError(f"the Operator {operator.name} replaces {shown(str(symbol))} by {shown(str(value))}; "
                             "only numbers are possible") from None  # fmt: skip
    return equations, numbers


def from_devito(
    equations: Any, dt: float, name: str = "devito", boundary: object = None, first_time: int | None = None
) -> Lowered:
    """Lower the time step that Devito's `Operator(equations)` computes. `dt` is the length of the step.

    `equations` are `Eq`, `Inc`, and the results of `SparseTimeFunction.inject` and `.interpolate`, also in nested
    lists, or an `Operator` that keeps its equations (`keep_equations`). If `boundary` is None, the grid has Devito's
    boundary, which is a halo (see Lowered). In a given `boundary`, the axes have Devito's names. `first_time` is
    Devito's `time_m`, or `time_M` if the equations run backward in time, and has the same default. The function
    allocates no arrays of the grid's size.

    Raises InputError if a part of the time step cannot be lowered. The message contains the equation, the term and the
    reason.
    """
    given: dict[Any, float] = {}
    operations = _flatten(equations, given)
    if not operations:
        raise InputError("the list of equations is empty; a run needs at least one Eq for u.forward")
    grid = _grid(operations)
    named = with_own_names(boundary, [str(dimension.name) for dimension in grid.dimensions])
    sides = None if named is None else boundary_on_grid(as_boundary(named), grid.dim)
    if not isinstance(dt, int | float | np.number) or as_number(dt, "dt =") <= 0 or not np.isfinite(float(dt)):
        raise InputError(f"dt={dt!r} is not a time step; give a positive number")
    if first_time is not None and (type(first_time) is not int or not 0 <= first_time <= _MAX_TIME):
        raise InputError(f"first_time {shown(first_time)} must be a whole number of at least 0")
    values = SymbolValues(grid, float(dt), given=given)
    lines = [lines_of(one, position) for position, one in enumerate(operations) if isinstance(one, Eq)]
    direction = direction_of(lines, grid)
    updates = [one for part in lines if not is_kept(part) for one in updates_of(part, grid, direction)]
    if not updates:
        raise InputError("the list contains no equation; a run needs at least one Eq for u.forward")
    kept = [one for part in lines if is_kept(part) for one in kept_of(part, grid, direction)]
    stages = stages_of(updates)
    text = "; ".join(" ".join(str(one).split()) for one in operations if isinstance(one, Eq))
    text = text if len(text) < _MAX_TEXT else text[:_MAX_TEXT] + "..."
    statics = StaticFields(values, frozenset(one.field for one in updates), _names(stages), sides is None)
    start = _first_time(updates, operations, direction) if first_time is None else first_time
    origin = _Origin((0, 0, 0), start, direction)
    stencil, left_out = _stencil(name, stages, statics, text, sides is None, origin)
    if stencil.step_signal and grid.dtype == np.float32 and start > MAX_EXACT:
        raise InputError(
            f"the equations read {grid.time_dim}, which is {start} in the first step; float32 has exact numbers of up "
            f"to {MAX_EXACT}: use float64"
        )
    padding = (0, 0, 0) if left_out is None else _padding(stencil, left_out)
    if stencil.positions and any(padding):
        moved = replace(origin, padding=padding)
        stencil, _ = _stencil(name, stages, statics, text, sides is None, moved)
    stencil = _with_last(stencil, list(statics.states.values()))
    points = Points(grid, values, padding, start, direction, statics.changing)
    saved = saved_steps(kept, updates, start, direction)
    injections, samplings, extra = _points(operations, updates, kept, points)
    functions = {read.field: read.function for update in updates for read in update.reads.values()} | extra
    functions |= {update.field: update.function for update in updates}
    older = {one.field: one.function for one in stages.updates if isinstance(one.function, OlderValues)}
    receivers = _receivers(operations)
    sources = [one.interpolator.sfunction for one in operations if isinstance(one, Inject)]
    signals = {name: functions[name] for name in stencil.given_signals}
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
        signals={name: points.from_start(name, one.data) for name, one in signals.items()},
        static_fields=tuple(n for n, kept in zip(names, stencil.storage, strict=True) if kept.is_static),
        functions={name: one for name, one in functions.items() if name in names},
        receivers=receivers,
        first_time=start,
        direction=direction,
        older=older,
        computed={one.name: one for one in statics.computed.values() if one.name in names},
        regions={name: box for box, name in statics.regions.items()},
        boxes=_boxes(stages),
        saved=saved,
        reads=tuple(SavedRead(name, one, shift) for (one, shift), name in statics.states.items()),
        fixed_parameters={one.name: values.fixed[one.name] for one in stencil.parameters if one.name in values.fixed},
        read_values=ReadValues(values.constants, signals, sources, list(receivers.values())),
    )


def _flatten(equations: Any, given: dict[Any, float], depth: int = 0) -> list[Any]:
    """Return one list with the operations of nested lists and of Operators. The numbers by which Operators replace
    symbols are added to `given`."""
    if depth > _MAX_DEPTH:
        raise InputError(f"equations are nested in more than {_MAX_DEPTH} lists; give them in one")
    found: list[Any] = []
    for one in equations if isinstance(equations, list | tuple) else (equations,):
        if isinstance(one, list | tuple):
            found += _flatten(one, given, depth + 1)
        elif isinstance(one, devito.Operator):
            kept, numbers = equations_of(one)
            given |= numbers
            found += _flatten(kept, given, depth + 1)
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


def _names(stages: Stages) -> set[str]:
    """Return the names of all fields that the updates read or write."""
    return {one.field for one in stages.updates} | {read.field for one in stages.updates for read in one.accesses}


def _first_time(updates: Sequence[FieldUpdate], operations: Sequence[Any], direction: int) -> int:
    """Return Devito's number of the first step in Devito's own loop. The first step is the earliest step for which all
    values exist that the equations read. A loop backward in time begins at the last time for which all sources,
    receivers and functions of time have values. If the program has no sources, receivers and functions of time, the
    loop begins at the last time of the saved functions that the equations read."""
    back = max((-read.shift for update in updates for read in update.reads.values() if read.shift < 0), default=0)
    if direction == 1:
        return back
    lengths = [one.interpolator.sfunction.shape[0] for one in operations if not isinstance(one, Eq)]
    reads = [read.function for update in updates for read in update.reads.values()]
    lengths += [one.shape[0] for one in reads if len(one.dimensions) == 1]
    lengths += [one.function.save for one in updates if type(getattr(one.function, "save", None)) is int]
    if not lengths:
        lengths = [one.save for one in reads if is_saved(one)]
    return max(0, min(map(int, lengths), default=1) - 1 - back)


@dataclass(frozen=True)
class _Origin:
    """Describes how Devito's numbers of cells and times differ from the numbers in a run. The first cell of Devito's
    grid has the index `padding` in the arrays of a run. Step k of a run has Devito's number `first_time` + k *
    `direction`."""

    padding: tuple[int, int, int]
    first_time: int
    direction: int

    def positions(self, update: FieldUpdate, grid: Any) -> dict[Any, sympy.Expr]:
        """In the expression of an update, dimensions stand for the index of the computed cell and the number of the
        time. Return the values that replace these dimensions."""
        found: dict[Any, sympy.Expr] = {grid.time_dim: self.first_time + self.direction * t}
        axes = zip(update.base, NAMES[grid.dim], PLACES[grid.dim], strict=True)
        found |= {one: Position(axis) - self.padding[place] for one, axis, place in axes if one.is_Symbol}
        return found


def _stencil(
    name: str, stages: Stages, statics: StaticFields, text: str, has_halo: bool, origin: _Origin
) -> tuple[Stencil, tuple[int, int, int] | None]:
    """Return the stencil, and for each axis the number of cells at each end that no equation computes. Cells that no
    equation computes lie in the rim. If the arrays have no padding, the second result is None."""
    grid = statics.values.grid
    edges = _edges(stages, grid) if has_halo else None
    if edges is not None and any(edges):
        free = Stages(tuple(replace(one, box=None) for one in stages.updates), stages.numbers)
        stencil = _made(name, free, statics, text, origin)
        if all(edge <= radius for edge, radius in zip(edges, stencil.radii, strict=True)):
            return stencil, edges
    return _made(name, stages, statics, text, origin), (0, 0, 0) if has_halo else None


def _with_last(stencil: Stencil, names: Sequence[str]) -> Stencil:
    """Return the stencil with its fields in another order: the static fields `names` come after all other fields."""
    if not names:
        return stencil
    data = stencil.to_json()
    order = [*(one for one in data["fields"] if one not in names), *names]
    number = [order.index(one) for one in data["fields"]]
    for stage in data["stages"]:
        stage["targets"] = [number[one] for one in stage["targets"]]
        for row in stage["program"]["operations"]:
            if row[0] == "load":
                row[1] = number[row[1]]
    return Stencil.from_json({**data, "fields": order})


def _edges(stages: Stages, grid: Any) -> tuple[int, int, int] | None:
    """Return the number of cells that all equations leave out at both ends of each axis. Return None if the equations
    compute different boxes, or if the numbers at both ends differ."""
    boxes = {part.box for one in stages.updates if one.copied is None for part in _chain(one)}
    if len(boxes) != 1:
        return None
    (box,) = boxes
    if box is None:
        return 0, 0, 0
    ends = [(first, int(n) - end) for (first, end), n in zip(box, grid.shape, strict=True)]
    return inside([low for low, _ in ends], 0) if all(low == high for low, high in ends) else None


def _padding(stencil: Stencil, left_out: tuple[int, int, int]) -> tuple[int, int, int]:
    z, y, x = (radius - edge for radius, edge in zip(stencil.radii, left_out, strict=True))
    return z, y, x


def _chain(update: FieldUpdate) -> list[FieldUpdate]:
    """Return an update and all earlier updates that it continues."""
    return [update, *(_chain(update.earlier) if update.earlier else ())]


def _boxes(stages: Stages) -> dict[str, tuple[Box | None, ...]]:
    found: dict[str, tuple[Box | None, ...]] = {}
    for update in stages.updates:
        if update.copied is None:
            found[update.field] = (*found.get(update.field, ()), *(part.box for part in _chain(update)))
    return found


def _made(name: str, stages: Stages, statics: StaticFields, text: str, origin: _Origin) -> Stencil:
    found: list[dict[Field, sympy.Expr]] = [{} for _ in range(max(stages.numbers) + 1)]
    for update, stage in zip(stages.updates, stages.numbers, strict=True):
        found[stage][Field(update.field)] = _expression(update, stage, stages, statics, origin)
    taken = _names(stages) | statics.values.constants.keys()
    if t.name in taken and any(term.has(t) for one in found for term in one.values()):
        raise InputError(
            f"the number of the time ({statics.values.grid.time_dim}) has the name {t.name} in the translated "
            f"equations; give the Constant or function {t.name} another name"
        )
    return Stencil(name, found, text, ndim=statics.values.grid.dim)


def _expression(
    update: FieldUpdate, stage: int, stages: Stages, statics: StaticFields, origin: _Origin
) -> sympy.Expr:
    """Convert the expression of an update in stage number `stage`. Each access of the expression becomes a read of a
    field. An access to the value before the field's latest update (`age` is 1) becomes a read of the field's
    `previous`. A function without space axes becomes a signal. Cells outside the update's box keep their value.
    """

    def load(access: Access) -> sympy.Expr:
        if not access.offset:
            return Signal(access.field)
        if update.earlier is not None and update.continues(access):
            return _expression(update.earlier, stage, stages, statics, origin)
        field = Field(access.field)
        if is_saved(access.function) and access.field not in statics.changing:
            return statics.state(access.function, access.shift * update.direction, access.offset)
        return (field.previous if stages.age(access, stage) else field)[access.offset]

    if update.copied is not None:
        return load(update.copied)
    conversion = Conversion(
        update.where, statics.values, lambda indexed: load(update.reads[indexed]),
        lambda node, in_kernel: statics.term(update.where, node, update.reads, in_kernel),
        origin.positions(update, statics.values.grid),
    )  # fmt: skip
    inner = conversion.convert(update.expression)
    if update.box is None:
        return inner
    if update.earlier is not None:
        outer = _expression(update.earlier, stage, stages, statics, origin)
    else:
        kept = Access(update.function, int(update.version > 1), (0,) * len(update.box), update.version - 1)
        outer = load(kept)
    region = statics.region(update.box)
    # The region is 0 or 1, so the products and the sum are exact. Each cell gets the value of `inner` or `outer`.
    return region * inner + (1 - region) * outer


def _points(
    operations: Sequence[Any], updates: Sequence[FieldUpdate], kept: Sequence[Kept], points: Points
) -> tuple[tuple[Injection, ...], tuple[Sampling, ...], dict[str, Any]]:
    """Return the sources, the receivers, and the functions that sources and receivers read. Raises InputError if
    Outcrop's fixed order within a step gives another result than the order of the user's list."""
    injections: list[Injection] = []
    samplings: list[Sampling] = []
    order = [CellOperation(one.position, one.where, one.field, False, None) for one in kept if one.shift == 1]
    functions: dict[str, Any] = {}
    for position, one in enumerate(operations):
        if isinstance(one, Inject):
            for injection, read in points.injections(one, position):
                injections.append(injection)
                functions |= {function.name: function for function in read}
                cells = points.used(injection)
                order.append(CellOperation(position, _text(position, one, "inject"), injection.field, True, cells))
        elif isinstance(one, Interpolation):
            for sampling, access in points.samplings(one, position):
                samplings.append(sampling)
                functions[access.field] = access.function
                if not sampling.before:
                    where, cells = _text(position, one, "interpolate"), points.used(sampling)
                    order.append(CellOperation(position, where, sampling.field, False, cells))
    check_order(order, updates)
    return tuple(injections), tuple(samplings), functions


def _receivers(operations: Sequence[Any]) -> dict[str, Any]:
    """Return a dictionary that maps the name of each receiver to the receiver. Raises InputError if two receivers have
    the same name, or if one receiver interpolates twice."""
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
