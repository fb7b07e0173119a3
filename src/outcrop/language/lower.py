"""Lower SymPy expressions to a Program.

SymPy keeps sums and products as sets without an order. This file chooses an order that depends only on the content of
the expressions:

* Terms nearest to the centre come first. Terms at the same distance are ordered by offset.
* Terms of a sum with the same coefficient are added before they are multiplied.
* Sums are balanced trees, so that chains of dependent additions are short.
* In products, factors that do not depend on the cell are multiplied first. The product of these factors is computed
  only once per call of the kernel.
* Equal operations are computed once.
* A power with the exponent 3 is a product of three factors. A power with the exponent 1.5 is the base times the square
  root of the base. Other powers, such as a power with the exponent 1.3, are functions.
* A Piecewise computes all of its branches, and then selects the result.
* A sum inside a sum is computed separately. A product inside a product is also computed separately. SymPy keeps nested
  sums and nested products only with `evaluate=False`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import sympy
from sympy.core.function import AppliedUndef

from outcrop.axes import NAMES, PLACES, inside
from outcrop.errors import InputError, WrongTypeError, shown
from outcrop.language.derivative import Tape, balanced
from outcrop.language.field import BACK, PREVIOUS
from outcrop.language.program import OPERATORS, Apply, CellCount, CellIndex, Constant, Load, Program, Scalar

_LARGEST_POWER = 16
"""A power with a larger exponent is not a product but a function."""

FUNCTIONS = {
    **{sympy.exp: "exp", sympy.log: "log", sympy.sin: "sin", sympy.cos: "cos", sympy.tan: "tan"},
    **{sympy.tanh: "tanh", sympy.atan2: "atan2", sympy.sign: "sign"},
}
"""The operator for each function of SymPy. Other functions are composed of operators."""

SUPPORTED = "+ - * / powers sqrt Abs Min Max exp log sin cos tan tanh atan atan2 sign"
"""The operators and functions that an expression may contain, for error messages."""

_COMPARISONS = (sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge, sympy.Eq, sympy.Ne)


_SYMPY_NAMES = {
    "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt",
    "arctan": "atan", "arctan2": "atan2",
}  # fmt: skip
_OTHER_NAMES = (
    "arcsin", "arccos", "sinh", "cosh", "arcsinh", "arccosh", "arctanh", "exp2", "expm1", "log2", "log10", "log1p",
    "cbrt", "hypot",
)  # fmt: skip
"""Functions of NumPy. For an object that is not a number, np.sin(a) calls a.sin()."""


def as_written(expression: sympy.Basic) -> str:
    """Return the text of an expression. Values of fields have the form that users write: u[0, 1] and not u(0, 1)."""
    text = str(expression)
    for load in expression.atoms(AppliedUndef):
        name, mark, back = load.func.__name__.partition(BACK)
        text = text.replace(str(load), f"{name}{f'{mark}({back})' if mark else ''}[{', '.join(map(str, load.args))}]")
    return text


class _Undecided:
    """The base of comparisons that Python cannot decide, because both sides get their values only in a run. SymPy
    treats `_Undecided` comparisons like its own comparisons."""

    __slots__ = ()

    @property
    def func(self) -> Any:
        return _COMPARISON_OF[type(self)]

    @classmethod
    def class_key(cls) -> Any:
        return _COMPARISON_OF[cls].class_key()

    @property
    def _plain(self) -> sympy.Basic:
        return self.func(*self.args, evaluate=False)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return bool(self._plain == (other._plain if isinstance(other, _Undecided) else other))

    def __hash__(self) -> int:
        return hash(self._plain)

    def _refuse(self, *_: object) -> NoReturn:
        text = as_written(self)
        raise WrongTypeError(
            f"{text} is a condition in an equation, neither true nor false in Python: write "
            f"sympy.Piecewise((a, {text}), (b, True)) instead of if or np.where, sympy.Max and sympy.Min instead of "
            "max and min, & and | instead of and and or"
        )

    __bool__ = __neg__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _refuse


class _Greater(_Undecided, sympy.Gt):  # type: ignore[misc]
    __slots__ = ()


class _GreaterEqual(_Undecided, sympy.Ge):  # type: ignore[misc]
    __slots__ = ()


class _Less(_Undecided, sympy.Lt):  # type: ignore[misc]
    __slots__ = ()


class _LessEqual(_Undecided, sympy.Le):  # type: ignore[misc]
    __slots__ = ()


_UNDECIDED = {sympy.Gt: _Greater, sympy.Ge: _GreaterEqual, sympy.Lt: _Less, sympy.Le: _LessEqual}
_COMPARISON_OF: dict[type, Any] = {own: plain for plain, own in _UNDECIDED.items()}


def _undecided(found: Any) -> Any:
    """Convert a comparison of SymPy to an `_Undecided` comparison. Code that asks for the truth value of an
    `_Undecided` comparison gets an error with a message of one line. Return other values unchanged."""
    own = _UNDECIDED.get(type(found))
    return found if own is None else own(*found.args, evaluate=False)


class NotANumber:
    """The base of the smallest parts of equations: values of fields, parameters, signals and positions. Functions that
    compute with numbers, such as math.sin, refuse such a part. The error message names the function to use instead.
    `if`, `max` and `np.where` refuse a comparison of such a part. A larger expression, such as 2 * u[0], is an ordinary
    object of SymPy, and cannot give these messages."""

    def _refuse_number(self, *_: object) -> NoReturn:
        text = as_written(self)
        raise WrongTypeError(
            f"{text} is a part of an equation and not a number: use sympy.sin, not math.sin or np.sin, and so on"
        )

    __float__ = __int__ = __round__ = __complex__ = _refuse_number

    def _refuse(self, name: str) -> NoReturn:
        known = _SYMPY_NAMES.get(name)
        use = f"sympy.{known}" if known else "the functions of SymPy that Outcrop knows, such as sympy.exp"
        text = as_written(self)
        raise WrongTypeError(f"np.{name} cannot compute with {text}, which is a part of an equation: use {use}")

    def __gt__(self, other: object) -> Any:
        return _undecided(super().__gt__(other))  # type: ignore[misc]

    def __ge__(self, other: object) -> Any:
        return _undecided(super().__ge__(other))  # type: ignore[misc]

    def __lt__(self, other: object) -> Any:
        return _undecided(super().__lt__(other))  # type: ignore[misc]

    def __le__(self, other: object) -> Any:
        return _undecided(super().__le__(other))  # type: ignore[misc]


for _name in (*_SYMPY_NAMES, *_OTHER_NAMES):
    setattr(NotANumber, _name, lambda self, *others, name=_name: self._refuse(name))


class Position(NotANumber, sympy.Symbol):  # type: ignore[misc]
    """A symbol for a number that belongs to an axis: the index of the updated cell, such as `x`, or the number of
    cells, such as `nx`."""

    def __new__(cls, name: str) -> Position:
        position: Position = sympy.Symbol.__xnew__(cls, name, real=True)
        return position

    def operation(self, ndim: int) -> CellIndex | CellCount | None:
        """Return the operation that computes the index or the number of cells on a grid of `ndim` axes. Return None if
        the grid does not have the axis of this symbol."""
        axis = self.name[-1]
        if axis not in NAMES[ndim]:
            return None
        place = PLACES[ndim][NAMES[ndim].index(axis)]
        return CellIndex(place) if self.name == axis else CellCount(place)


_OF_CELL = (AppliedUndef, *map(Position, NAMES[3]))
"""An expression that contains one of these depends on the cell."""


def lower(
    where: str, expressions: Sequence[sympy.Expr], fields: Sequence[str], scalars: Sequence[str],
    ndim: int | None = None,
) -> Program:  # fmt: skip
    """Make the program that computes `expressions`. Raises InputError if an expression has a term that no kernel can
    compute. The message contains `where` and the term. `ndim` is the number of axes of the grid. If `ndim` is None,
    expressions cannot contain positions."""
    builder = _Builder(where, fields, scalars, ndim)
    results = tuple(builder.visit(expression) for expression in expressions)
    return Program(tuple(builder.tape.operations), results)


class _Builder:
    def __init__(self, where: str, fields: Sequence[str], scalars: Sequence[str], ndim: int | None) -> None:
        self.where, self.ndim = where, ndim
        self.fields, self.scalars = list(fields), list(scalars)
        self.tape = Tape()
        self._append = self.tape.append
        self._visited: dict[sympy.Expr, int] = {}

    def visit(self, node: sympy.Expr) -> int:
        """Return the position of the operation that computes `node`. Append this operation if the program does not have
        it yet."""
        if node not in self._visited:
            self._visited[node] = self._visit(node)
        return self._visited[node]

    def _visit(self, node: sympy.Expr) -> int:
        if node.is_Number:
            try:
                value = float(node)
            except OverflowError:
                value = math.inf
            if not math.isfinite(value):
                raise self._refuse(node, "is not a finite number")
            return self._append(Constant(value))
        if isinstance(node, AppliedUndef):
            return self._append(self._load(node))
        if isinstance(node, Position):
            return self._append(self._position(node))
        if node.is_Symbol:
            return self._append(Scalar(self.scalars.index(node.name)))
        if node.is_Add:
            return self._sum(node)
        if node.is_Mul:
            return self._product(node)
        if node.is_Pow:
            return self._power(node)
        if isinstance(node, sympy.Abs):
            return self._append(Apply("abs", (self.visit(node.args[0]),)))
        if isinstance(node, (sympy.Min, sympy.Max)):
            operator = "min" if isinstance(node, sympy.Min) else "max"
            return self._tree(operator, [self.visit(term) for term in _ordered(node.args)])
        if node.is_NumberSymbol:
            return self._append(Constant(float(node)))
        if node.func in FUNCTIONS and len(node.args) == OPERATORS[FUNCTIONS[node.func]]:
            return self._append(Apply(FUNCTIONS[node.func], tuple(map(self.visit, node.args))))
        if isinstance(node, sympy.atan):
            return self._append(Apply("atan2", (self.visit(node.args[0]), self._append(Constant(1.0)))))
        if isinstance(node, sympy.Piecewise):
            return self._piecewise(node)
        raise self._refuse(node, f"cannot be computed; there are {SUPPORTED} Piecewise")

    def _piecewise(self, node: sympy.Piecewise) -> int:
        *branches, (last, condition) = node.args
        if condition != sympy.true:
            raise self._refuse(node, "has no value where all conditions are false; end it with (value, True)")
        result = self.visit(last)
        for value, condition in reversed(branches):
            result = self._select(condition, self.visit(value), result)
        return result

    def _select(self, condition: sympy.Basic, then: int, other: int) -> int:
        """Return the position of a selection: `then` where a condition is true, and `other` elsewhere. A comparison
        with NaN is false. Ne is the only comparison that is true for NaN."""
        if condition in (sympy.true, sympy.false):
            return then if condition == sympy.true else other
        if isinstance(condition, sympy.Not):
            return self._select(condition.args[0], other, then)
        if isinstance(condition, (sympy.And, sympy.Or)):
            is_and = isinstance(condition, sympy.And)
            result = then if is_and else other
            for one in reversed(_ordered(condition.args)):
                result = self._select(one, result, other) if is_and else self._select(one, then, result)
            return result
        if not isinstance(condition, _COMPARISONS):
            raise self._refuse(condition, "is no condition; there are < <= > >= Eq Ne And Or Not")
        a, b = self.visit(condition.lhs), self.visit(condition.rhs)
        if isinstance(condition, (sympy.Lt, sympy.Le)):
            a, b = b, a
        if isinstance(condition, sympy.Ne):
            return self._append(Apply("where_equal", (a, b, other, then)))
        if isinstance(condition, (sympy.Eq, sympy.Le, sympy.Ge)):
            equal = self._append(Apply("where_equal", (a, b, then, other)))
            if isinstance(condition, sympy.Eq):
                return equal
            other = equal
        return self._append(Apply("where", (a, b, then, other)))

    def _position(self, node: Position) -> CellIndex | CellCount:
        if self.ndim is None:
            raise self._refuse(node, "is the position of the updated cell, which has no meaning here")
        if (found := node.operation(self.ndim)) is None:
            raise self._refuse(node, f"belongs to an axis that a grid of {self.ndim} axes does not have")
        return found

    def _load(self, node: AppliedUndef) -> Load:
        name = node.func.__name__
        field, age = name.removesuffix(PREVIOUS), int(name.endswith(PREVIOUS))
        if field not in self.fields:
            raise self._refuse(node, f"is not a field of this stencil; there are: {', '.join(self.fields)}")
        if not 1 <= len(node.args) <= 3 or not all(step.is_Integer for step in node.args):
            raise self._refuse(node, "needs one to three whole numbers as offset")
        return Load(self.fields.index(field), inside([int(step) for step in node.args], 0), age)

    def _tree(self, operator: str, places: list[int]) -> int:
        return balanced(places, lambda a, b: self._append(Apply(operator, (a, b))))

    def _sum(self, node: sympy.Add) -> int:
        groups: dict[sympy.Expr, list[tuple[bool, sympy.Expr]]] = {}
        for term in node.args:
            negative, coefficient, rest = _split(term)
            groups.setdefault(coefficient, []).append((negative, rest))
        terms: list[tuple[bool, sympy.Expr, sympy.Expr]] = []
        for coefficient, rests in groups.items():
            if len(rests) > 1 and coefficient != 1:
                sign = all(negative for negative, _ in rests)
                rests = [(sign, sympy.Add(*(rest if negative == sign else -rest for negative, rest in rests)))]
            terms += [(negative, coefficient, rest) for negative, rest in rests]
        terms.sort(key=lambda term: _key(term[1] * term[2]))
        places = [(self._scaled(coefficient, rest), negative) for negative, coefficient, rest in terms]
        return self._signed(*balanced(places, self._pair))

    def _signed(self, place: int, negative: bool) -> int:
        return self._append(Apply("neg", (place,))) if negative else place

    def _pair(self, a: tuple[int, bool], b: tuple[int, bool]) -> tuple[int, bool]:
        if a[1] == b[1]:
            return self._append(Apply("add", (a[0], b[0]))), a[1]
        plus, minus = (b, a) if a[1] else (a, b)
        return self._append(Apply("sub", (plus[0], minus[0]))), False

    def _product(self, node: sympy.Mul) -> int:
        negative, coefficient, rest = _split(node)
        return self._signed(self._scaled(coefficient, rest), negative)

    def _scaled(self, coefficient: sympy.Expr, rest: sympy.Expr) -> int:
        """Return the position of a product. Uniform factors (the same for all cells) are multiplied first, then the
        factors that depend on the cell. Then the product is divided by the divisors."""
        uniform = [factor for factor in sympy.Mul.make_args(coefficient) if factor != 1]
        factors = [factor for factor in sympy.Mul.make_args(rest) if factor != 1]
        below = [factor for factor in factors if _is_divisor(factor)]
        above = [factor for factor in factors if not _is_divisor(factor)]
        groups = [self._multiply(_ordered(group)) for group in (uniform, above) if group]
        result = self._tree("mul", groups) if groups else self._append(Constant(1.0))
        if below:
            result = self._append(Apply("div", (result, self._multiply(_ordered([1 / one for one in below])))))
        return result

    def _multiply(self, factors: Sequence[sympy.Expr]) -> int:
        result = self.visit(factors[0])
        for factor in factors[1:]:
            result = self._append(Apply("mul", (result, self.visit(factor))))
        return result

    def _power(self, node: sympy.Pow) -> int:
        base, exponent = node.args
        if base == sympy.E:
            return self._append(Apply("exp", (self.visit(exponent),)))
        if not exponent.is_Number:
            return self._append(Apply("pow", (self.visit(base), self.visit(exponent))))
        if exponent.is_negative:
            if base.is_zero:
                raise self._refuse(node, "divides by zero")
            one = self._append(Constant(1.0))
            return self._append(Apply("div", (one, self.visit(base**-exponent))))
        if exponent.is_zero:  # SymPy keeps this exponent with `evaluate=False`
            return self._append(Constant(1.0))
        value = float(exponent)
        if not (2 * value).is_integer() or value > _LARGEST_POWER:
            return self._append(Apply("pow", (self.visit(base), self.visit(exponent))))
        factor = self.visit(base)
        factors = [factor] * int(value) + ([] if value.is_integer() else [self._append(Apply("sqrt", (factor,)))])
        result = factors[0]
        for one in factors[1:]:
            result = self._append(Apply("mul", (result, one)))
        return result

    def _refuse(self, node: sympy.Expr, why: str) -> InputError:
        return InputError(f"{self.where}: {shown(node)} {why}")


def _split(term: sympy.Expr) -> tuple[bool, sympy.Expr, sympy.Expr]:
    """Return three parts of a term: a flag, the product of the uniform factors, and the product of all other factors.
    The flag is true if the term is subtracted. A uniform factor does not depend on the cell."""
    number, rest = term.as_coeff_Mul()
    negative = bool(number.is_negative)
    positive = term
    if negative:
        positive = rest if number == -1 else sympy.Mul(-number, *sympy.Mul.make_args(rest), evaluate=False)
    if not positive.has(*_OF_CELL):
        return negative, sympy.S.One, positive
    factors = sympy.Mul.make_args(positive)
    uniform = [factor for factor in factors if not factor.has(*_OF_CELL)]
    own = [factor for factor in factors if factor.has(*_OF_CELL)]
    return negative, sympy.Mul(*uniform), sympy.Mul(*own, evaluate=False)


def _is_divisor(factor: sympy.Expr) -> bool:
    return bool(factor.is_Pow and factor.args[1].is_Number and factor.args[1].is_negative)


def _ordered(terms: Sequence[sympy.Expr]) -> list[sympy.Expr]:
    return sorted(terms, key=_key)


def _key(term: sympy.Expr) -> tuple[object, ...]:
    """Return the sort key of a term. Numbers come before scalars, and scalars come before terms with loads. Terms with
    loads are ordered by distance and direction. If two terms have the same distance and direction, their texts decide
    the order.
    """
    loads = sorted(_offset_key(load) for load in term.atoms(AppliedUndef))
    kind = 0 if term.is_Number else 1 if not loads else 2
    return kind, len(loads), loads, _Text(term)


@dataclass(frozen=True)
class _Text:
    """Orders terms by their text. The text of a term is made only if no other rule determines the order of two terms.
    """

    term: sympy.Expr

    def __lt__(self, other: _Text) -> bool:
        return str(self.term) < str(other.term)


def _offset_key(load: AppliedUndef) -> tuple[object, ...]:
    offset = tuple(int(step) if step.is_Integer else 0 for step in load.args)
    return sum(map(abs, offset)), tuple(abs(step) for step in offset), offset, load.func.__name__
