"""From Devito's expressions to those of our stencils, and how terms are shown in messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sympy
from devito.types import Indexed
from sympy.core.function import AppliedUndef

from outcrop.errors import InputError
from outcrop.language.symbols import Parameter

_MAX_SHOWN = 80  # characters
_KEPT = (sympy.Abs, sympy.Min, sympy.Max)


@dataclass(frozen=True)
class SymbolValues:
    """The values of symbols: the grid's spacings become numbers, so that equal ones share products; the time step and
    Constants become Parameters. `constants` are those that were met, by name."""

    grid: Any
    dt: float
    constants: dict[str, Any] = field(default_factory=dict)

    def of(self, symbol: Any) -> sympy.Expr | None:
        """The number or Parameter for a symbol; None when it is unknown."""
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
    """The number in a Constant, which Devito converts when it is asked for and not before."""
    try:
        return float(constant.data)
    except (TypeError, ValueError, OverflowError, MemoryError):
        raise InputError(f"Constant {constant.name} holds {shown(constant._value)}, which is no number") from None


def number(value: Any) -> sympy.Expr:
    """A number as Devito would print it into its code: weights have nine digits there, and whole numbers are exact."""
    if not value.is_Float:
        return value
    decimal = float(str(value))
    return sympy.Integer(int(decimal)) if decimal.is_integer() and abs(decimal) < 2**53 else sympy.Float(decimal)


def convert(where: str, node: Any, values: SymbolValues, leaf: Callable[[Any], sympy.Expr]) -> sympy.Expr:
    """`node` with every Indexed replaced by what `leaf` gives for it. Raises InputError with the term that no kernel
    can compute."""
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
        return _power(where, node, *arguments)
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
    """The same with sums multiplied out as far as something cancels: dt**2/m * (2*m*u/dt**2 + s) is 2*u + dt**2/m*s.

    That is how `solve` leaves its solutions. A factor of exactly 2 matters in long runs: one that is off in its last
    digit is a force on u that never ends.
    """
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
    """Whether both have powers of the same thing, one above and one below the line."""
    powers = term.as_powers_dict()
    return any(
        not base.is_Number and exponent.could_extract_minus_sign() != powers[base].could_extract_minus_sign()
        for base, exponent in factor.as_powers_dict().items()
        if base in powers
    )


def _power(where: str, node: Any, base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr:
    if exponent.is_Float and float(2 * exponent).is_integer():
        exponent = sympy.Rational(int(2 * exponent), 2)
    whole = exponent.is_Integer or abs(exponent) == sympy.Rational(1, 2)
    if not whole and base.has(AppliedUndef):
        raise InputError(f"{where}: {shown(node)} has an exponent other than 1/2 or a whole number")
    return base**exponent


def _why(node: Any) -> str:
    if getattr(node, "is_Dimension", False):
        return "is a position in the grid or a time; keep what depends on it in a Function"
    if node.is_Symbol:
        return "has no value; make it a Constant"
    reads = node.atoms(Indexed)
    changes = any(one.function.is_TimeFunction for one in reads)
    remedy = "; its values can be kept in a Function" if reads and not changes else ""
    return f"cannot be computed; there are + - * / powers sqrt Abs Min Max{remedy}"


def shown(term: Any) -> str:
    """A lowered term, or text, on one line and not too long, with indices that do not count the halo: u[t, x + 1] for
    u[t, x + 9]."""
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
