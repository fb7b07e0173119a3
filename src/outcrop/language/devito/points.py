"""Convert Devito's inject and interpolate operations to Injections and Samplings, and check their order within a step.

Devito executes the operations of each step in the order of the user's list. Outcrop's order is fixed. Outcrop adds
sources directly after the last update of their field. Receivers of u.forward read the field at the end of the step.
Receivers of u read the field before the first stage of the step. Outcrop refuses a list if Outcrop's fixed order gives
another result than the order of the list. For example, assume that the list has a source for a field. No equation may
read the field between its update and the source, or between the source and the field's last update. A receiver of
u.forward must not come before a source of u.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import sympy
from devito.ir.equations.algorithms import lower_exprs
from devito.operations.interpolators import LinearInterpolator, PrecomputedInterpolator, SincInterpolator
from devito.types import Indexed
from numpy.typing import NDArray
from sympy.core.function import AppliedUndef

from outcrop.axes import PLACES
from outcrop.errors import InputError
from outcrop.language.devito.equation import Access, Box, Cell, FieldUpdate, access_of
from outcrop.language.devito.expression import Conversion, SymbolValues, shown
from outcrop.language.lower import lower
from outcrop.language.sparse import Injection, Sampling, SourceFactor, linear, spread
from outcrop.language.stencil import Field
from outcrop.language.symbols import Parameter

_NEAR = 1e-6
"""Places that differ by less than this part of a cell are the same place."""


@dataclass(frozen=True)
class Points:
    """Makes Injections and Samplings for the arrays of one run. Along each axis, the arrays have `padding` cells before
    the grid and as many cells behind the grid. `first_time` is the number that Devito gives to Outcrop's step 0, and
    `direction` is -1 if the equations run backward in time. `changing` contains the names of the fields that equations
    write."""

    grid: Any
    values: SymbolValues
    padding: tuple[int, ...]
    first_time: int
    direction: int
    changing: frozenset[str]

    def from_start(self, name: str, data: Any) -> NDArray[np.float64]:
        """Return the rows of `data` that the steps use, in the order of the steps. Raises InputError if `data` has no
        row for the first step."""
        rows = np.asarray(data, np.float64)
        if self.direction == -1 and self.first_time >= len(rows):
            raise InputError(f"{name} has {len(rows)} rows, but the first step uses row {self.first_time}")
        return rows[self.first_time :: self.direction]

    def used(self, points: Injection | Sampling) -> NDArray[np.int64]:
        """Return the cells of Devito's grid in which sources or receivers have a weight other than 0. The result is an
        array of shape (cells, axes)."""
        found: NDArray[np.int64] = (points.cells - np.array(self.padding))[points.weights != 0]
        return found[:, list(PLACES[self.grid.dim])]

    def injections(self, operation: Any, position: int) -> Iterator[tuple[Injection, tuple[Any, ...]]]:
        """Yield the injections of one inject operation. Also yield, for each injection, the functions that its factor
        reads."""
        sparse = operation.interpolator.sfunction
        several = isinstance(operation.field, tuple | list) or getattr(operation.field, "is_Matrix", False)
        fields = tuple(operation.field) if several else (operation.field,)
        given = operation.expr if isinstance(operation.expr, tuple | list) else (operation.expr,)
        expressions = list(given) * len(fields) if len(given) == 1 else list(given)
        for target, expression in zip(fields, expressions, strict=True):
            where = f"operation {position + 1}, {sparse.name}.inject into {shown(str(target))}"
            self._check(where, operation, sparse)
            access = self._access(where, target)
            if access.shift != 1:
                step = "u.forward" if self.direction == 1 else "u.backward"
                raise InputError(f"{where}: sources can only be added to {step}")
            scale, functions = self._scale(where, sparse, _lowered(where, expression, target))
            cells, weights = self._corners(where, sparse, access.function)
            yield Injection(access.field, cells, weights, self.from_start(sparse.name, sparse.data), scale), functions

    def samplings(self, operation: Any, position: int) -> Iterator[tuple[Sampling, Access]]:
        """Yield the samplings of one interpolate operation, one for each field and time in its expression."""
        sparse = operation.interpolator.sfunction
        where = f"operation {position + 1}, {sparse.name}.interpolate"
        self._check(where, operation, sparse)
        if operation.increment or operation.self_subs:
            raise InputError(f"{where}: increment and p_t are not available; every step has a row of its own")
        base, weights = self._corners(where, sparse, None)
        parts: dict[tuple[str, int], list[tuple[Access, float]]] = {}
        for access, factor in self._terms(where, _lowered(where, operation.expr, sparse)):
            parts.setdefault((access.field, access.shift), []).append((access, factor))
        for (field, shift), terms in parts.items():
            cells = np.concatenate([base + spread(np.array(access.offset)) for access, _ in terms], axis=1)
            factors = np.concatenate([weights * factor for _, factor in terms], axis=1)
            self._check_cells(where, cells, factors, self.padding)
            yield Sampling(sparse.name, field, cells, factors, before=shift == 0), terms[0][0]

    def _check(self, where: str, operation: Any, sparse: Any) -> None:
        if sparse.grid is not self.grid:
            raise InputError(f"{where}: {sparse.name} is defined on another grid; all functions must share one grid")
        if not getattr(sparse, "is_SparseTimeFunction", False) or len(sparse.dimensions) != 2:
            raise InputError(f"{where}: {sparse.name} must be a SparseTimeFunction, or a precomputed one")
        if sparse.dimensions[0] is not self.grid.time_dim:
            raise InputError(
                f"{where}: {sparse.name} steps along {sparse.dimensions[0]}, not along the grid's own time"
            )
        if operation.implicit_dims:
            raise InputError(f"{where}: implicit_dims are not available")

    def _access(self, where: str, function: Any) -> Access:
        indexed = lower_exprs(function)
        if not isinstance(indexed, Indexed):
            raise InputError(f"{where}: {function} is not a field")
        return self._read(where, indexed)

    def _read(self, where: str, indexed: Any) -> Access:
        return access_of(where, indexed, Cell(self.grid, self.direction, self.grid.dimensions))

    def _corners(self, where: str, sparse: Any, target: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the cells and the weights of the corners around each point. If the target field is staggered, the
        corners are shifted relative to the grid."""
        interpolator, grid = sparse.interpolator, self.grid
        if isinstance(interpolator, LinearInterpolator) and sparse.r == 1:
            shifts = interpolator._field_shifts(target) if target is not None else ()
            moved = [
                0.5 * h if shift != 0 else 0.0 for shift, h in zip(shifts or [0] * grid.dim, grid.spacing, strict=True)
            ]
            origin = [float(o) + move for o, move in zip(grid.origin, moved, strict=True)]
            cells, weights = _linear(where, sparse, grid, origin)
        elif type(interpolator) is PrecomputedInterpolator and sparse.gridpoints_data is not None:
            cells, weights = _precomputed(sparse)
        elif isinstance(interpolator, SincInterpolator):
            cells, weights = _sinc(where, sparse, grid, target)
        else:
            raise InputError(f"{where}: only linear, sinc and precomputed interpolation, by gridpoints, are available")
        cells = cells + np.array(self.padding)
        self._check_cells(where, cells, weights, (0, 0, 0))
        return cells, weights

    def _check_cells(
        self, where: str, cells: NDArray[np.int64], weights: NDArray[np.float64], beyond: tuple[int, ...]
    ) -> None:
        """Raise InputError if a corner with a weight other than 0 lies more than `beyond` cells outside the grid. Move
        a corner with weight 0 that lies farther outside to the nearest cell that is allowed."""
        first = np.array(self.padding)
        last = first + np.maximum(spread(np.array(self.grid.shape)) - 1, 0)
        outside = ((cells < first - beyond) | (cells > last + beyond)).any(axis=2) & (weights != 0)
        if outside.any():
            point = int(np.argmax(outside.any(axis=1)))
            raise InputError(f"{where}: point {point} needs cells outside the grid; move it inwards")
        np.clip(cells, first - beyond, last + beyond, out=cells)

    def _scale(self, where: str, sparse: Any, expression: Any) -> tuple[SourceFactor | None, tuple[Any, ...]]:
        """Return the factor of the source, and the functions that the factor reads."""
        source = sympy.Dummy("source", real=True)
        functions: dict[str, Any] = {}

        def leaf(indexed: Any) -> sympy.Expr:
            if indexed.function is sparse:
                if indexed.indices[0] != self.grid.time_dim:
                    raise InputError(f"{where}: {shown(indexed)} is not the source at the step's own time")
                return source
            if indexed.function.is_SparseFunction:
                raise InputError(f"{where}: {indexed.function.name} cannot be a part of what {sparse.name} injects")
            access = self._read(where, indexed)
            if access.function.is_TimeFunction or access.field in self.changing or not access.offset:
                raise InputError(
                    f"{where}: the factor of a source may only contain fields that do not change, not {access.field}"
                )
            functions[access.field] = access.function
            return Field(access.field)[access.offset]

        converted = Conversion(where, self.values, leaf).convert(expression)
        factor = sympy.diff(converted, source)
        if factor == 0 or factor.has(source) or converted.subs(source, 0) != 0:
            raise InputError(f"{where}: {shown(expression)} is not a multiple of {sparse.name}")
        if factor == 1:
            return None, ()
        parameters = sorted(factor.atoms(Parameter), key=str)
        names = sorted(functions)
        program = lower(where, [factor], names, [one.name for one in parameters])
        defaults = tuple(one.default for one in parameters)
        scale = SourceFactor(program, tuple(names), defaults, tuple(one.name for one in parameters))
        return scale, tuple(functions[name] for name in names)

    def _terms(self, where: str, expression: Any) -> list[tuple[Access, float]]:
        """Return the accesses and factors of a linear combination of fields."""
        found: dict[Any, Access] = {}

        def leaf(indexed: Any) -> sympy.Expr:
            access = self._read(where, indexed)
            if access.field in self.changing and not access.function.is_TimeFunction:
                access = replace(access, shift=1)  # the value of a Function at the end of the step
            if access.shift not in (0, 1) or not access.offset:
                raise InputError(f"{where}: {shown(indexed)} cannot be received; there are u and u.forward")
            load = Field(f"{access.field}_at_{access.shift}")[access.offset]
            found[load] = access
            return load

        converted = sympy.expand(Conversion(where, self.values, leaf).convert(expression))
        factors = {load: sympy.diff(converted, load) for load in found}
        rest = converted.subs(dict.fromkeys(found, 0))
        if not found or rest != 0 or any(factor.has(AppliedUndef) for factor in factors.values()):
            raise InputError(f"{where}: {shown(expression)} is not a sum of fields with constant factors")
        defaults = {one: one.default for factor in factors.values() for one in factor.atoms(Parameter)}
        for one in defaults:
            self.values.fixed.setdefault(one.name, f"the factor of {where}")
        return [(found[load], float(factor.subs(defaults))) for load, factor in factors.items() if factor != 0]


def _lowered(where: str, expression: Any, target: Any) -> Any:
    """Return the lowered form of an expression that is evaluated at the position of `target`. Derivatives in the
    expression are evaluated, too. Raises InputError if Devito cannot evaluate the expression."""
    try:
        at = expression._eval_at(target).evaluate if hasattr(expression, "_eval_at") else expression
        return lower_exprs(at)
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise InputError(f"{where}: Devito cannot evaluate it: {' '.join(str(error).split())}") from None


def _linear(
    where: str, sparse: Any, grid: Any, origin: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the corners of points, for linear interpolation. Devito computes the position of a point, in cells, in the
    dtype of the grid. If the dtype is float32 and the grid is large, the weights have relative errors of about 1e-5. A
    source adds values with these errors to the field. Outcrop rounds in the same way as Devito, so that Outcrop's
    results agree with Devito's results."""
    points, spacing = np.asarray(sparse.coordinates.data, np.float64), [float(h) for h in grid.spacing]
    linear(where, points, grid.shape, spacing, origin)  # this call checks the points; its messages show coordinates
    dtype = np.dtype(grid.dtype).type
    cells = (points.astype(dtype) - np.asarray(origin, dtype)) / np.asarray(spacing, dtype)
    return linear(where, cells, grid.shape, [1.0] * grid.dim, [0.0] * grid.dim)


def _precomputed(sparse: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the corners of the points of a precomputed sparse function. The corners of a point lie around the point's
    own cell. The weight of each corner is the product of the coefficients along all axes."""
    coefficients = np.asarray(sparse.interpolation_coeffs.data, np.float64)  # (points, axes, 2 r)
    return _around(np.asarray(sparse.gridpoints_data, np.int64), coefficients)


def _sinc(where: str, sparse: Any, grid: Any, target: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the corners of points, for windowed sinc interpolation. Devito computes the weights for cells at multiples
    of the spacing. Raises InputError if the cells of the field are not at multiples of the spacing, because Devito's
    weights would be wrong for these cells."""
    interpolator, spacing = sparse.interpolator, np.asarray(grid.spacing, np.float64)
    shifts = (interpolator._field_shifts(target) if target is not None else ()) or (0,) * grid.dim
    moved = [0.5 * float(h) if shift != 0 else 0.0 for shift, h in zip(shifts, spacing, strict=True)]
    start = (np.asarray(grid.origin, np.float64) + moved) / spacing
    if (np.abs(start - np.round(start)) > _NEAR).any():
        raise InputError(
            f"{where}: with sinc interpolation, the cells of the field must be at multiples of the spacing; "
            "use linear interpolation"
        )
    points = np.asarray(sparse.coordinates.data)
    tables = interpolator._arg_defaults(coords=points, sfunc=sparse)
    coefficients = np.stack([tables[one.name] for one in interpolator.interpolation_coeffs], axis=1).astype(np.float64)
    low = np.floor(points / np.array(grid.spacing)) - np.round(start)  # Devito computes its weights with the same floor
    return _around(low.astype(np.int64), coefficients)


def _around(
    points: NDArray[np.int64], coefficients: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the cells around the cells `points`, and the weights of these cells. The shape of `points` is (points,
    axes). A weight is a product of factors, one for each axis. `coefficients` contains these factors, and has the shape
    (points, axes, 2 r)."""
    axes, radius = points.shape[1], coefficients.shape[2] // 2
    numbers = np.array(list(product(range(coefficients.shape[2]), repeat=axes)))
    weights = np.ones((len(points), len(numbers)))
    for axis in range(axes):
        weights *= coefficients[:, axis, :][:, numbers[:, axis]]
    return spread(points[:, None, :] + numbers - radius + 1), weights


@dataclass(frozen=True)
class CellOperation:
    """An operation on `field` at t + dt: a source, a receiver, or an equation that keeps values of this field.
    `position` is its place in the user's list. `cells` contains the cells of Devito's grid that the operation uses, in
    an array of shape (cells, axes). None means all cells."""

    position: int
    where: str
    field: str
    is_source: bool
    cells: NDArray[np.int64] | None

    def is_disturbed(self, update: FieldUpdate) -> bool:
        """Return True if `update` overwrites cells of this operation, or reads the values of these cells at t + dt."""
        offsets: list[Any] = [one.offset for one in update.reads.values() if (one.field, one.shift) == (self.field, 1)]
        offsets += [0] if update.field == self.field else []
        if update.box is None or self.cells is None:
            return bool(offsets)
        return any(bool(_are_in(self.cells, update.box, one).any()) for one in offsets)

    def cell_outside(self, boxes: Sequence[Box | None]) -> list[int] | None:
        """Return the first cell of this operation that lies outside all boxes, or None if no cell lies outside."""
        if self.cells is None or None in boxes:
            return None
        covered = np.any([_are_in(self.cells, box, 0) for box in boxes if box is not None], axis=0)
        outside: list[list[int]] = self.cells[~covered].tolist()
        return outside[0] if outside else None


def _are_in(cells: NDArray[np.int64], box: Box, offset: Any) -> NDArray[np.bool_]:
    """Return a boolean array: True for each cell that lies in the box shifted by `offset`."""
    low, end = np.array(box).T + np.array(offset)
    found: NDArray[np.bool_] = ((cells >= low) & (cells < end)).all(axis=1)
    return found


def check_order(operations: Sequence[CellOperation], updates: Sequence[FieldUpdate]) -> None:
    """Raise InputError if Outcrop's fixed order within a step gives another result than the order of the user's list.
    Also raise InputError for a source in a cell that no equation computes. In a cell that no equation computes, Devito
    adds the source to an older value."""
    step = "backward" if any(update.direction == -1 for update in updates) else "forward"
    for one in operations:
        name, new = one.field, f"{one.field}.{step}"
        written = [number for number, update in enumerate(updates) if update.field == name]
        if not written or updates[written[0]].position > one.position:
            raise InputError(f"{one.where}: {new} has no value yet; put it behind the equation that computes it")
        later = [update for update in updates if update.position > one.position]
        if any(update.field == name and one.is_disturbed(update) for update in later):
            raise InputError(f"{one.where}: a later equation overwrites {new}; put it behind all equations")
        if not one.is_source:
            continue
        if any(update.position < one.position and _reads_new(update, name) for update in updates):
            raise InputError(
                f"{one.where}: an equation before it reads {new}; put it right behind the update of {name}"
            )
        for update in updates[: written[-1]]:
            if update.position > one.position and one.is_disturbed(update):
                raise InputError(
                    f"{update.where}: it reads {new} between {one.where}, and the last update of {name}; put it behind"
                    " that update"
                )
        if (cell := one.cell_outside([updates[number].box for number in written])) is not None:
            place = f"({', '.join(map(str, cell))})"
            raise InputError(
                f"{one.where}: no equation computes {new} in its cell {place}; move the source, or compute this cell"
            )
        for other in operations:
            if other.field == name and not other.is_source and other.position < one.position:
                raise InputError(f"{other.where}: a later source is added to {new}; put it behind all sources")


def _reads_new(update: FieldUpdate, field: str) -> bool:
    return update.field != field and any(read.field == field and read.shift == 1 for read in update.reads.values())
