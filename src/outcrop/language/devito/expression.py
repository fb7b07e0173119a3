"""Convert expressions of Devito to expressions of Outcrop's fields and parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sympy
from devito.types import Indexed
from sympy.core.function import AppliedUndef

from outcrop.errors import InputError
from outcrop.language.lower import FUNCTIONS, SUPPORTED
from outcrop.language.symbols import Parameter

_MAX_SHOWN = 80  # characters
_KEPT = (sympy.Abs, sympy.Min, sympy.Max)
_SLOW = (sympy.atan, *FUNCTIONS)
"""Functions that kernels can compute. A run computes them only once if their value never changes
(language/static_terms.py). If such a function reads several cells, a computed field replaces it here."""


@dataclass(frozen=True)
class SymbolValues:
    """The values of symbols. The lengths of the grid, such as its spacings, become numbers. Because spacings become
    numbers, products with equal spacings are computed only once. Devito's time step and Constants become Parameters of
    Outcrop. `constants` maps names to the Constants that the expressions contain. `given` contains the numbers that the
    `subs` of an Operator set. `fixed` maps the names of Parameters that a run cannot change later to texts. A text says
    what was computed with the Parameter."""

    grid: Any
    dt: float
    constants: dict[str, Any] = field(default_factory=dict)
    given: Mapping[Any, float] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)

    @cached_property
    def _lengths(self) -> dict[Any, Any]:
        """A mapping from symbols of the grid to numbers. The symbols are the spacings, the origin, the numbers of
        cells, and the indices of the first and last cells.
        """
        grid = self.grid
        found = dict(zip(grid.spacing_symbols, grid.spacing, strict=True))
        found |= dict(zip(grid.origin_symbols, grid.origin, strict=True))
        for dimension, extent in zip(grid.dimensions, grid.shape, strict=True):
            found |= {dimension.symbolic_size: extent, dimension.symbolic_min: 0, dimension.symbolic_max: extent - 1}
        return found

    def of(self, symbol: Any) -> sympy.Expr | None:
        """Return the number or Parameter for a symbol, or None if the symbol is unknown."""
        if symbol in self.given:
            return number(sympy.Float(self.given[symbol]))
        if symbol == self.grid.time_dim.spacing:
            return Parameter(str(symbol), self.dt)
        if symbol in (lengths := self._lengths):
            return number(sympy.Float(float(lengths[symbol])))
        if getattr(symbol, "is_Constant", False):
            self.constants[str(symbol.name)] = symbol
            return Parameter(str(symbol.name), _value_of(symbol))
        return None

    def fix(self, expression: Any, what: str) -> None:
        """Record in `fixed` that `what` is computed with the values of all Parameters in `expression`."""
        for symbol in expression.free_symbols:
            if isinstance(known := self.of(symbol), Parameter):
                self.fixed.setdefault(known.name, what)


def _value_of(constant: Any) -> float:
    """Return the number in a Constant. Raises InputError if Devito cannot convert the Constant's value to a number."""
    try:
        return float(constant.data)
    except (TypeError, ValueError, OverflowError, MemoryError):
        raise InputError(f"Constant {constant.name} holds {shown(constant._value)}, which is not a number") from None


def number(value: Any) -> sympy.Expr:
    """Convert a number to the rounded value that Devito writes into its generated code. Devito writes weights with nine
    digits, and whole numbers exactly."""
    if not value.is_Float:
        return value
    decimal = float(str(value))
    return sympy.Integer(int(decimal)) if decimal.is_integer() and abs(decimal) < 2**53 else sympy.Float(decimal)


@dataclass(frozen=True)
class Conversion:
    """Converts the expressions of one equation. `leaf` returns the replacement of an Indexed. `once` returns the
    replacement of a term whose value never changes (computed.py), or None if the value changes. The second argument of
    `once` is true if a kernel can compute the term. If a kernel can compute the term, `once` returns a replacement only
    for a term that reads several cells. `positions` contains the replacements of dimensions, whose values are indices
    of cells and the number of the time. `where` names the equation in messages."""

    where: str
    values: SymbolValues
    leaf: Callable[[Any], sympy.Expr]
    once: Callable[[Any, bool], sympy.Expr | None] = lambda node, in_kernel: None
    positions: Mapping[Any, sympy.Expr] = field(default_factory=dict)

    def convert(self, node: Any) -> sympy.Expr:
        """Convert the expression `node`. Raises InputError if the expression has a term that no kernel can compute. The
        message contains this term."""
        if isinstance(node, Indexed):
            return self.leaf(node)
        if node.is_Number or node.is_NumberSymbol:
            return number(node)
        if (kept := self._in_kernel(node)) is not None:
            return kept
        known = self.positions.get(node, self.values.of(node)) if node.is_Symbol else self.once(node, False)
        if known is None:
            raise InputError(f"{self.where}: {shown(node)} {_why(node)}")
        return known

    def _in_kernel(self, node: Any) -> sympy.Expr | None:
        """Convert a term that kernels can compute. Return None for other terms."""
        if node.is_Add:
            return sympy.Add(*map(self.convert, node.args))
        if node.is_Mul:
            return _product(sympy.Mul(*map(self.convert, node.args)))
        if node.is_Pow:
            return self._power(node)
        if isinstance(node, sympy.Function) and type(node).__name__ == "sqrt":
            return sympy.sqrt(self.convert(node.args[0]))
        for kind in _KEPT:
            if isinstance(node, kind):
                return kind(*map(self.convert, node.args))
        for kind in _SLOW:
            if isinstance(node, kind):
                known = self.once(node, True)
                return kind(*map(self.convert, node.args)) if known is None else known
        return None

    def _power(self, node: Any) -> sympy.Expr:
        base, exponent = map(self.convert, node.args)
        if exponent.is_Float and float(2 * exponent).is_integer():
            exponent = sympy.Rational(int(2 * exponent), 2)
        whole = exponent.is_Integer or abs(exponent) == sympy.Rational(1, 2)
        if not whole and base.has(AppliedUndef) and (known := self.once(node, True)) is not None:
            return known
        return base**exponent


def _product(product: sympy.Expr) -> sympy.Expr:
    """Multiply out sums in which terms cancel. For example, dt**2/m * (2*m*u/dt**2 + s) becomes 2*u + dt**2/m*s.
    Devito's `solve` returns products such as dt**2/m * (2*m*u/dt**2 + s). After this change, the factor of u must be
    exactly 2. An error in the last digit of the factor of u would act on u like a force in each step, and would become
    visible in long runs."""
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


def _why(node: Any) -> str:
    if getattr(node, "is_Stepping", False):
        return "has no value; for the number of the time, write grid.time_dim"
    if getattr(node, "is_Dimension", False):
        return "is not a position of the cells that are computed here; keep what depends on it in a Function"
    if node.is_Symbol:
        return "has no value; make it a Constant"
    return f"cannot be computed for values that change; there are {SUPPORTED}"


def shown(term: Any) -> str:
    """Return a lowered term, or text, as one short line for a message. The halo is subtracted from indices: with a halo
    of 8, u[t, x + 9] is shown as u[t, x + 1]."""
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
