"""Turn Devito's equations into updates, assign each update to a stage of a step, and convert expressions to Outcrop's
fields and parameters.

Devito executes the equations of a step one after another, in their order. Outcrop computes all updates of a stage from
the values that exist before the stage. So an update that reads a value at t + dt must be in a later stage than the
update that computes the value. If an update overwrites a value at t - dt, the other updates that read this value must
be in the same stage or in an earlier stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
from devito.ir.equations.algorithms import lower_exprs
from devito.types import Indexed

from outcrop.errors import InputError
from outcrop.language.lower import FUNCTIONS, SUPPORTED
from outcrop.language.symbols import Parameter

ORDERS = (1, 2)
_MAX_SHOWN = 80  # characters
_KEPT = (sympy.Abs, sympy.Min, sympy.Max, sympy.atan, *FUNCTIONS)


@dataclass(frozen=True)
class Access:
    """A value that an expression reads. `shift` is the number of steps after t, or 0 for a value that does not depend
    on time. `offset` is in cells along the grid's axes, or () for a value that all cells share."""

    function: Any
    shift: int
    offset: tuple[int, ...]

    @property
    def field(self) -> str:
        return str(self.function.name)

    @property
    def near(self) -> bool:
        """True if the access reads a neighbour's value."""
        return any(self.offset)


@dataclass(frozen=True)
class FieldUpdate:
    """An update that sets `function` at t + dt to `expression`. `reads` describes each Indexed of the expression. An
    update can continue an earlier update of the same field: it reads the result of the earlier update in the same cell.
    `earlier` is the earlier update, or None."""

    where: str
    position: int
    function: Any
    expression: Any
    reads: Mapping[Any, Access]
    earlier: FieldUpdate | None = None

    @property
    def field(self) -> str:
        return str(self.function.name)

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The values that this update reads. If this update continues earlier updates, the values that those updates
        read are included."""
        own = [one for one in self.reads.values() if not self.continues(one)]
        return (*own, *(self.earlier.accesses if self.earlier else ()))

    def continues(self, access: Access) -> bool:
        """Return True if `access` reads the result of the earlier update."""
        return access.field == self.field and access.shift == 1


def updates_of(equation: Any, position: int, grid: Any) -> Iterator[FieldUpdate]:
    """Yield the updates of an Eq or Inc, one for each component of a vector or tensor. `position` is the equation's
    index in the user's list. Raises InputError if a part cannot be lowered."""
    where = _where(position, str(equation.lhs))  # the user's text, before lowering
    _check(where, equation)
    try:
        flat = lower_exprs(equation._evaluate(expand=True)._flatten)
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise InputError(f"{where}: Devito cannot evaluate it: {' '.join(str(error).split())}") from None
    for one in flat:
        place = where if len(flat) == 1 else _where(position, one.lhs)
        if not isinstance(one.lhs, Indexed):
            raise InputError(f"{place}: {one.lhs} is not a TimeFunction; equations can only assign to u.forward")
        target = access_of(place, one.lhs, grid)
        if not is_updatable(target.function) or target.shift != 1 or target.near or not target.offset:
            raise InputError(f"{place}: equations can only assign to u.forward of a TimeFunction u, in every cell")
        reads = reads_of(place, one.rhs, grid)
        expression = one.rhs
        if one.is_Reduction:
            expression, reads = one.lhs + one.rhs, {**reads, one.lhs: target}
        yield FieldUpdate(place, position, target.function, expression, reads)


def _where(position: int, target: Any) -> str:
    return f"equation {position + 1}, for {shown(target)}"


def _check(where: str, equation: Any) -> None:
    if equation.is_Reduction and type(equation).__name__ != "Inc":
        raise InputError(f"{where}: {type(equation).__name__} is not available; there are Eq and Inc")
    if equation.subdomain is not None:
        raise InputError(
            f"{where}: subdomain {equation.subdomain.name!r} is not available; leave it out, "
            "boundary= says what the rim does"
        )
    if equation.implicit_dims:
        raise InputError(f"{where}: implicit_dims are not available")


def reads_of(where: str, expression: Any, grid: Any) -> dict[Any, Access]:
    """Return a mapping from each Indexed of a lowered expression to the Access that describes it."""
    found = sorted(sympy.sympify(expression).atoms(Indexed), key=str)
    return {one: access_of(where, one, grid) for one in found}


def is_updatable(function: Any) -> bool:
    return bool(getattr(function, "is_TimeFunction", False)) and len(function.dimensions) > 1


def access_of(where: str, indexed: Any, grid: Any) -> Access:
    """Convert an Indexed to an Access. Raises InputError if the Indexed does not read a field of the grid at a fixed
    distance."""
    function = indexed.function
    if getattr(function, "is_SparseFunction", False):
        raise InputError(f"{where}: {function.name} lies at points; only its inject and interpolate can be used")
    time = [grid.time_dim] if tuple(function.dimensions) == (grid.time_dim,) else []
    if time:
        if _distance(indexed.indices[0], grid.time_dim) != 0:
            raise InputError(f"{where}: {shown(indexed)} is not read at the step's own time")
        return Access(function, 0, ())
    check_function(where, function, grid)
    dimensions = function.dimensions
    steps = [_distance(i, d) for i, d in zip(indexed.indices, dimensions, strict=True)]
    if any(step is None for step in steps):
        raise InputError(f"{where}: {shown(indexed)} is not at a fixed distance from the cell that is computed")
    halo = [int(left) for left in function._size_nodomain.left]
    offsets = [int(step) - left for step, left in zip(steps, halo, strict=True)]  # type: ignore[arg-type]
    if not is_updatable(function):
        return Access(function, 0, tuple(offsets))
    return Access(function, offsets[0], tuple(offsets[1:]))


def _distance(index: Any, dimension: Any) -> int | None:
    """Return the number that an index adds to its dimension: 2 for x + 2. Return None if the index has another form."""
    rest = sympy.Add(*(term for term in sympy.Add.make_args(index) if term != dimension))
    has_it = dimension in sympy.Add.make_args(index)
    return int(rest) if has_it and rest.is_Integer else None


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
    if function.save is not None:
        raise InputError(
            f"{where}: {name} has save={function.save}: steps are not kept; leave it out and take snapshots"
        )
    if function.time_order not in ORDERS:
        raise InputError(f"{where}: {name} has time_order={function.time_order}; there are 1 and 2")
    if function.dimensions[0] is not grid.stepping_dim:
        raise InputError(f"{where}: {name} steps along {function.dimensions[0]}, not along the grid's own time")


def _dtype(thing: Any) -> str:
    return str(getattr(thing.dtype, "__name__", thing.dtype))


def merge(updates: Sequence[FieldUpdate]) -> list[FieldUpdate]:
    """Return one update for each field. If a field has a second update, such as an Inc, the second update continues the
    first update. Raises InputError if an update reads a value at t + dt before this value is computed, or if the order
    of equations cannot be kept."""
    found: dict[str, FieldUpdate] = {}
    read_since: dict[str, str] = {}
    for update in updates:
        name = update.field
        for access in update.reads.values():
            if access.shift == 1 and access.field not in found:
                raise InputError(f"{update.where}: reads {access.field}(t + dt), which no earlier equation writes")
            if update.continues(access) and access.near:
                raise InputError(f"{update.where}: reads {name}(t + dt) at neighbours, while it overwrites it")
            if access.shift == 1 and access.field != name:
                read_since[access.field] = update.where
        if name in found and name in read_since:
            raise InputError(f"{update.where}: writes {name}(t + dt) again after {read_since[name]} has read it")
        found[name] = replace(update, earlier=found.pop(name, None))  # `pop` moves the field to the end
    return list(found.values())


def assign(updates: Sequence[FieldUpdate]) -> dict[str, int]:
    """Return the stage of each field's update. Raises InputError if an update reads a value that an earlier stage
    overwrites."""
    stages: dict[str, int] = {}
    for number, update in enumerate(updates):
        stage = max((stages[access.field] + 1 for access in update.accesses if access.shift == 1), default=0)
        for earlier in updates[:number]:
            oldest = [read for read in earlier.accesses if (read.field, read.shift) == (update.field, -1)]
            if oldest:
                stage = max(stage, stages[earlier.field] + any(read.near for read in oldest))
        stages[update.field] = stage
    for update in updates:
        for access in update.accesses:
            _check_read(update, access, stages)
    return stages


def age(access: Access, stage: int, stages: dict[str, int]) -> int:
    """Return the age that the value of `access` has in this stage. The age is 0 for the newest value of the field, and
    1 for the value before the field's latest update."""
    if access.field not in stages:
        return 0
    return (stages[access.field] < stage) - access.shift


def _check_read(update: FieldUpdate, access: Access, stages: dict[str, int]) -> None:
    name = access.field
    if access.function.is_TimeFunction and access.offset and name not in stages:
        raise InputError(
            f"{update.where}: no equation writes {name}.forward; make {name} a Function if it does not change"
        )
    if access.shift not in (-1, 0, 1):
        raise InputError(f"{update.where}: reads {name} {access.shift} steps from t; there are t - dt, t and t + dt")
    if access.shift == -1 and access.function.time_order < 2:
        raise InputError(f"{update.where}: reads {name}(t - dt), but {name} has time_order=1")
    if access.shift != -1:
        return
    if stages[name] < stages[update.field]:
        raise InputError(
            f"{update.where}: reads {name}(t - dt), which {name}(t + dt) has replaced by then; read {name}(t)"
        )
    if access.near and stages[name] == stages[update.field]:
        raise InputError(
            f"{update.where}: reads {name}(t - dt) at neighbours while {name} is updated; "
            "only at the cell itself is possible"
        )


@dataclass(frozen=True)
class SymbolValues:
    """The values of symbols. The grid's spacings become numbers. Therefore products with equal spacings are computed
    only once. The time step and Constants become Parameters. `constants` maps names to the Constants that the
    expressions contain."""

    grid: Any
    dt: float
    constants: dict[str, Any] = field(default_factory=dict)

    def of(self, symbol: Any) -> sympy.Expr | None:
        """Return the number or Parameter for a symbol, or None if the symbol is unknown."""
        if symbol == self.grid.time_dim.spacing:
            return Parameter(str(symbol), self.dt)
        spacings = dict(zip(self.grid.spacing_symbols, self.grid.spacing, strict=True))
        if symbol in spacings:
            return number(sympy.Float(float(spacings[symbol])))
        if getattr(symbol, "is_Constant", False):
            self.constants[str(symbol.name)] = symbol
            return Parameter(str(symbol.name), _value_of(symbol))
        return None


def _value_of(constant: Any) -> float:
    """Return the number in a Constant. Raises InputError if Devito cannot convert the Constant's value to a number."""
    try:
        return float(constant.data)
    except (TypeError, ValueError, OverflowError, MemoryError):
        raise InputError(f"Constant {constant.name} holds {shown(constant._value)}, which is not a number") from None


def number(value: Any) -> sympy.Expr:
    """Convert a number to the value that Devito prints into its code. Devito prints weights with nine digits, and whole
    numbers exactly."""
    if not value.is_Float:
        return value
    decimal = float(str(value))
    return sympy.Integer(int(decimal)) if decimal.is_integer() and abs(decimal) < 2**53 else sympy.Float(decimal)


def convert(where: str, node: Any, values: SymbolValues, leaf: Callable[[Any], sympy.Expr]) -> sympy.Expr:
    """Convert the expression `node`. Each Indexed is replaced by the result of `leaf`. Raises InputError if no kernel
    can compute a term. The message contains this term."""
    if isinstance(node, Indexed):
        return leaf(node)
    if node.is_Number or node.is_NumberSymbol:
        return number(node)
    arguments = [convert(where, one, values, leaf) for one in node.args] if not node.is_Symbol else []
    if node.is_Add:
        return sympy.Add(*arguments)
    if node.is_Mul:
        return _product(sympy.Mul(*arguments))
    if node.is_Pow:
        return _power(*arguments)
    if isinstance(node, sympy.Function) and type(node).__name__ == "sqrt":
        return sympy.sqrt(arguments[0])
    for kind in _KEPT:
        if isinstance(node, kind):
            return kind(*arguments)
    known = values.of(node) if node.is_Symbol else None
    if known is None:
        raise InputError(f"{where}: {shown(node)} {_why(node)}")
    return known


def _product(product: sympy.Expr) -> sympy.Expr:
    """Multiply out sums in which terms cancel: dt**2/m * (2*m*u/dt**2 + s) becomes 2*u + dt**2/m*s. Devito's `solve`
    returns solutions of the first form. The factor of u must be exactly 2. An error in the last digit of this factor
    would act on u like a force in each step, and would become visible in long runs."""
    factors = sympy.Mul.make_args(product)
    for number, factor in enumerate(factors):
        rest = sympy.Mul(*factors[:number], *factors[number + 1 :])
        terms = sympy.Add.make_args(factor)
        cancelled = [term for term in terms if len(terms) > 1 and _cancels(rest, term)]
        if cancelled:
            left = sympy.Add(*(term for term in terms if term not in cancelled))
            return sympy.Add(*(_product(rest * term) for term in cancelled), _product(rest * left))
    return product


def _cancels(factor: sympy.Expr, term: sympy.Expr) -> bool:
    """Return True if the numerator of one expression and the denominator of the other expression have a common
    factor."""
    powers = term.as_powers_dict()
    return any(
        not base.is_Number and exponent.could_extract_minus_sign() != powers[base].could_extract_minus_sign()
        for base, exponent in factor.as_powers_dict().items()
        if base in powers
    )


def _power(base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr:
    if exponent.is_Float and float(2 * exponent).is_integer():
        exponent = sympy.Rational(int(2 * exponent), 2)
    return base**exponent


def _why(node: Any) -> str:
    if getattr(node, "is_Dimension", False):
        return "is a position in the grid or a time; keep what depends on it in a Function"
    if node.is_Symbol:
        return "has no value; make it a Constant"
    reads = node.atoms(Indexed)
    changes = any(one.function.is_TimeFunction for one in reads)
    remedy = "; its values can be kept in a Function" if reads and not changes else ""
    return f"cannot be computed; there are {SUPPORTED}{remedy}"


def shown(term: Any) -> str:
    """Return a lowered term, or text, as one short line for a message. Indices are shown without the halo: u[t, x + 1]
    for u[t, x + 9] with a halo of 8."""
    if not isinstance(term, sympy.Basic):
        return _cut(str(term))
    return _cut(str(term.xreplace({one: sympy.Symbol(_without_halo(one)) for one in term.atoms(Indexed)})))


def _without_halo(indexed: Any) -> str:
    halo = indexed.function._size_nodomain.left
    indices = [index - int(left) for index, left in zip(indexed.indices, halo, strict=True)]
    return f"{indexed.function.name}[{', '.join(map(str, indices))}]"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 3] + "..."
