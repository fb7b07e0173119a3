"""Turn Devito's equations into updates of fields.

An equation computes all cells of the grid, or the cells of a box. The box comes from a SubDomain, or from numbers in
the equation, such as u[t + 1, 0, y]. Most equations compute u.forward from values at t and before. An Operator that
runs backward in time computes u.backward from values at t and after. Outcrop counts the steps of such an Operator
backward. Therefore the rest of the package can assume that each equation computes the next step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import sympy
from devito.ir.equations.algorithms import lower_exprs
from devito.symbolics import Cast
from devito.types import Indexed

from outcrop.errors import InputError
from outcrop.language.devito.expression import shown

MAX_ROWS = 16
"""The maximum number of rows of cells for which an equation with mirrored indices is written out."""
MAX_ORDER = 3
"""The maximum `time_order` of a TimeFunction. With 4, `u.forward` is u(t + 2 dt)."""

Box: TypeAlias = tuple[tuple[int, int], ...]
"""A half-open range of cells along each axis of Devito's grid."""


@dataclass(frozen=True)
class Cell:
    """The cell that an equation computes. `base` contains the cell's index along each axis of Devito, without the halo:
    a dimension, or the number of a cell. `direction` is 1, or -1 if the equations run backward in time."""

    grid: Any
    direction: int
    base: tuple[Any, ...]


@dataclass(frozen=True)
class Access:
    """A value that an expression reads. `shift` is the number of steps after the beginning of the step, or 0 for a
    value that does not depend on time. `offset` is in cells along the grid's axes, or () for a value that all cells
    share. `version` is the number of updates of the field that the step computes before the access."""

    function: Any
    shift: int
    offset: tuple[int, ...]
    version: int = 0

    @property
    def field(self) -> str:
        return str(self.function.name)

    @property
    def near(self) -> bool:
        """True if the access reads the value of a neighbouring cell."""
        return any(self.offset)


@dataclass(frozen=True)
class OlderValues:
    """A field that keeps older values of `function`. The kept values are `steps` steps older than the beginning of the
    current step. A stencil keeps only one previous value of a field, and the update of the field cannot read this value
    at neighbours. An update that needs other older values reads a field of this class."""

    function: Any
    steps: int
    is_TimeFunction = True
    save = None

    @property
    def name(self) -> str:
        return f"{self.function.name}_before_{self.steps}"

    @property
    def dimensions(self) -> tuple[Any, ...]:
        return tuple(self.function.dimensions)


@dataclass(frozen=True)
class FieldUpdate:
    """An update of the field `function` in one step. `expression` gives the values at the end of the step in the cells
    of `box`, or in all cells if `box` is None. `reads` describes each Indexed of the expression. An update can continue
    an earlier update of the same field. Then the update reads, in each cell, the result of the earlier update in this
    cell. `earlier` is the earlier update, or None. `version` numbers the updates of a field in one step, from 1 on. If
    `copied` is given, the update has no expression, and copies the value that `copied` describes. `direction` is 1, or
    -1 if the equations run backward in time. `base` is the index of the computed cell along each axis (`Cell`)."""

    where: str
    position: int
    function: Any
    expression: Any
    reads: Mapping[Any, Access]
    direction: int = 1
    box: Box | None = None
    earlier: FieldUpdate | None = None
    version: int = 1
    copied: Access | None = None
    base: tuple[Any, ...] = ()

    @property
    def field(self) -> str:
        return str(self.function.name)

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The values that this update reads. If this update continues earlier updates, `accesses` also contains the
        values that the earlier updates read."""
        own = [one for one in self.reads.values() if not self.continues(one)]
        return (*own, *([self.copied] if self.copied else ()), *(self.earlier.accesses if self.earlier else ()))

    def continues(self, access: Access) -> bool:
        """Return True if `access` reads the result of the earlier update that this update continues."""
        return self.earlier is not None and access.field == self.field and access.shift == 1

    def at(self, access: Access) -> str:
        """Return a text such as u(t - dt) for messages: the name of the field and the time of an access."""
        if not getattr(access.function, "is_TimeFunction", False):
            return access.field
        steps = access.shift * self.direction
        time = "t" if not steps else f"t {'+' if steps > 0 else '-'} {'' if abs(steps) == 1 else f'{abs(steps)}*'}dt"
        return f"{access.field}({time})"


@dataclass(frozen=True)
class LoweredEquation:
    """The equations that Devito makes from one Eq or Inc: one equation for each component of a vector or tensor.
    `position` is the index of the equation in the user's list."""

    position: int
    where: str
    equations: tuple[Any, ...]


def lines_of(equation: Any, position: int) -> LoweredEquation:
    """Lower an Eq or Inc. Raises InputError if Devito cannot evaluate the equation."""
    where = _where(position, str(equation.lhs))  # messages show the left side as the user has written it
    if equation.is_Reduction and type(equation).__name__ != "Inc":
        raise InputError(f"{where}: {type(equation).__name__} is not available; there are Eq and Inc")
    if equation.implicit_dims:
        raise InputError(f"{where}: implicit_dims are not available")
    try:
        flat = lower_exprs(equation._evaluate(expand=True)._flatten)
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise InputError(f"{where}: Devito cannot evaluate it: {' '.join(str(error).split())}") from None
    return LoweredEquation(position, where, tuple(flat))


def direction_of(lines: Sequence[LoweredEquation], grid: Any) -> int:
    """Return 1 if the equations write u.forward, or -1 if they write u.backward. Raises InputError if some equations
    write u.forward and other equations write u.backward."""
    found: dict[int, str] = {}
    for one in lines:
        for equation in one.equations:
            if isinstance(equation.lhs, Indexed) and is_updatable(equation.lhs.function):
                steps = _distance(equation.lhs.indices[0], equation.lhs.function.dimensions[0])
                if steps in (-1, 1):
                    found.setdefault(steps, one.where)
    if len(found) == 2:
        raise InputError(
            f"{found[-1]}: it runs backward in time, and {found[1]} forward; use one simulation for each direction"
        )
    return next(iter(found), 1)


def updates_of(lines: LoweredEquation, grid: Any, direction: int) -> Iterator[FieldUpdate]:
    """Yield the updates of a lowered Eq or Inc. Raises InputError if a part of the equation cannot be lowered."""
    step = "u.forward" if direction == 1 else "u.backward"
    for one in [row for given in lines.equations for row in _rows(given, grid)]:
        place = lines.where if len(lines.equations) == 1 else _where(lines.position, one.lhs)
        if not isinstance(one.lhs, Indexed):
            left = str(one.lhs) if len(str(one.lhs)) < 40 else "the left side"  # Devito's weights can fill a page
            raise InputError(
                f"{lines.where}: {left} is not a TimeFunction; give Eq({step}, ...), with solve(..., {step}) if needed"
            )
        function, axes = one.lhs.function, grid.dim
        if getattr(function, "is_SparseFunction", False) or len(function.dimensions) < axes:
            raise InputError(f"{place}: equations can only assign to {step} of a TimeFunction u, or to a Function")
        check_function(place, function, grid)
        halo = [int(left) for left in function._size_nodomain.left][-axes:]
        base = tuple(sympy.Add(i, -left) for i, left in zip(one.lhs.indices[-axes:], halo, strict=True))
        base, box = _cells(place, base, grid)
        cell = Cell(grid, direction, base)
        if is_updatable(function) and _distance(one.lhs.indices[0], function.dimensions[0]) != direction:
            raise InputError(f"{place}: equations can only assign to {step} of a TimeFunction u")
        target = Access(function, 1, (0,) * axes)
        expression, reads = one.rhs, reads_of(place, one.rhs, cell)
        if one.is_Reduction:
            expression, reads = one.lhs + one.rhs, {**reads, one.lhs: target}
        yield FieldUpdate(place, lines.position, target.function, expression, reads, direction, box, base=base)


def _rows(equation: Any, grid: Any) -> list[Any]:
    """An equation for a thin SubDomain can have mirrored indices, such as u[t, x, Abs(iz - 1)] for a free surface. If
    the equation has mirrored indices, return one equation for each row of cells. In these equations, numbers replace
    the mirrored indices. Return other equations unchanged."""
    mirrored = {part for read in equation.rhs.atoms(Indexed) for index in read.indices for part in index.atoms(Cast)}
    thin = {one for part in mirrored for one in part.free_symbols if getattr(one, "is_Sub", False)}
    if len(thin) != 1:
        return [equation]
    (dimension,) = thin
    extent = int(grid.shape[grid.dimensions.index(dimension.parent)])
    first, end = _range(str(equation.lhs), dimension, dimension.parent, extent)
    if end - first > MAX_ROWS:
        return [equation]
    found = []
    for number in range(first, end):
        cell = {dimension: sympy.Integer(number)}
        numbers = {part: part.base.xreplace(cell).doit() for part in mirrored}
        found.append(equation.func(equation.lhs.xreplace(cell), equation.rhs.xreplace(numbers).xreplace(cell)))
    return found


def _where(position: int, target: Any) -> str:
    return f"equation {position + 1}, for {shown(target)}"


def _cells(where: str, base: Sequence[Any], grid: Any) -> tuple[tuple[Any, ...], Box | None]:
    """Return the index of the computed cell along each axis, and the box of all computed cells. The box is None if the
    equation computes the whole grid. Raises InputError if the computed cells are not a box inside the grid."""
    found, box = [], []
    for given, dimension, extent in zip(base, grid.dimensions, grid.shape, strict=True):
        index = given if given == dimension else _numbered(given, grid)
        box.append(_range(where, index, dimension, int(extent)))
        found.append(index)
    whole = all(one == (0, int(extent)) for one, extent in zip(box, grid.shape, strict=True))
    return tuple(found), None if whole else tuple(box)


def _numbered(index: Any, grid: Any) -> Any:
    """Replace Devito's symbols for the first and the last cell of an axis in `index` by numbers."""
    ends: dict[Any, Any] = {}
    for dimension, extent in zip(grid.dimensions, grid.shape, strict=True):
        ends |= {dimension.symbolic_min: sympy.Integer(0), dimension.symbolic_max: sympy.Integer(int(extent) - 1)}
    return sympy.sympify(index).xreplace(ends)


def _range(where: str, index: Any, dimension: Any, extent: int) -> tuple[int, int]:
    """Return the range (first, end) of the cells that an equation computes along one axis."""
    if index == dimension:
        return 0, extent
    if getattr(index, "is_Integer", False):
        first, end = int(index), int(index) + 1
    elif getattr(index, "is_Sub", False) and index.parent == dimension:
        low, high = (None if one is None or one.value is None else int(one.value) for one in index.thickness)
        first, end = low or 0, extent - (high or 0)
        if index.is_left:
            first, end = 0, low or 0
        elif index.is_right:
            first, end = extent - (high or 0), extent
    else:
        raise InputError(
            f"{where}: an equation computes the whole grid, a box of a SubDomain, or cells with fixed numbers, "
            f"not {shown(index)} along {dimension}"
        )
    if not 0 <= first < end <= extent:
        raise InputError(
            f"{where}: cells {first} to {end - 1} along {dimension} are not in the grid, of {extent} cells"
        )
    return first, end


def reads_of(where: str, expression: Any, cell: Cell) -> dict[Any, Access]:
    """Return a mapping from each Indexed of a lowered expression to the Access that describes this Indexed."""
    found = sorted(sympy.sympify(expression).atoms(Indexed), key=str)
    return {one: access_of(where, one, cell) for one in found}


def is_updatable(function: Any) -> bool:
    return bool(getattr(function, "is_TimeFunction", False)) and len(function.dimensions) > 1


def is_saved(function: Any) -> bool:
    """Return True for a TimeFunction with `save=nt`, which keeps the values of all steps."""
    return is_updatable(function) and type(function.save) is int


def access_of(where: str, indexed: Any, cell: Cell) -> Access:
    """Convert an Indexed to an Access. Raises InputError if the Indexed is not a value of the grid at a fixed distance
    from the computed cell."""
    function, grid = indexed.function, cell.grid
    if getattr(function, "is_SparseFunction", False):
        raise InputError(f"{where}: {function.name} lies at points; only its inject and interpolate can be used")
    if tuple(function.dimensions) == (grid.time_dim,):
        if _distance(indexed.indices[0], grid.time_dim) != 0:
            raise InputError(f"{where}: {shown(indexed)} is not read at the step's own time")
        return Access(function, 0, ())
    check_function(where, function, grid)
    time = function.dimensions[:1] if is_updatable(function) else ()
    steps = [_distance(i, d) for i, d in zip(indexed.indices, (*time, *cell.base), strict=True)]
    if None in steps:
        numbered = [_numbered(index, grid) for index in indexed.indices]
        steps = [_distance(i, d) for i, d in zip(numbered, (*time, *cell.base), strict=True)]
    if any(step is None for step in steps):
        raise InputError(f"{where}: {shown(indexed)} is not at a fixed distance from the cell that is computed")
    halo = [int(left) for left in function._size_nodomain.left]
    offsets = [int(step) - left for step, left in zip(steps, halo, strict=True)]  # type: ignore[arg-type]
    if not time:
        return Access(function, 0, tuple(offsets))
    return Access(function, offsets[0] * cell.direction, tuple(offsets[1:]))


def _distance(index: Any, base: Any) -> int | None:
    """Return the number that `index` adds to `base`: 2 for the index x + 2 and the base x. Return None if `index` is
    not `base` plus a number."""
    rest = sympy.Add(index, sympy.Mul(-1, base))
    return int(rest) if rest.is_Integer else None


def check_function(where: str, function: Any, grid: Any) -> None:
    """Raise InputError if a run cannot store the function as a field."""
    name = function.name
    if function.grid is not None and function.grid is not grid:
        kind = "a SubDomain" if getattr(function.grid, "is_SubDomain", False) else "another grid"
        raise InputError(f"{where}: {name} is defined on {kind}; all functions must share one grid")
    if getattr(function, "space_dimensions", None) != grid.dimensions:
        axes = ", ".join(map(str, function.dimensions))
        raise InputError(f"{where}: {name} spans ({axes}), not the grid; use a Function(grid=...) or one of time alone")
    if function.dtype != grid.dtype:
        raise InputError(f"{where}: {name} is {_dtype(function)}, the grid {_dtype(grid)}; give both the same dtype")
    if not is_updatable(function):
        if len(function.dimensions) != len(grid.dimensions):
            raise InputError(f"{where}: {name} has more dimensions than the grid; use one Function for each component")
        return
    if not 0 < function.time_order <= MAX_ORDER:
        raise InputError(f"{where}: {name} has time_order={function.time_order}; there are 1 to {MAX_ORDER}")
    if not any(function.dimensions[0] is one for one in (grid.stepping_dim, grid.time_dim)):
        raise InputError(f"{where}: {name} steps along {function.dimensions[0]}, not along the grid's own time")


def _dtype(thing: Any) -> str:
    return str(getattr(thing.dtype, "__name__", np.dtype(thing.dtype).name))
