"""From a SymPy expression to a Program.

SymPy keeps sums and products as sets without an order, so one is chosen here, from the content alone: terms
nearest the centre first, then by offset. Sums are balanced trees, which keeps chains of dependent additions
short; products multiply scalars first, so that what does not depend on the cell is computed once per call.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy
from sympy.core.function import AppliedUndef

from outcrop.errors import InputError
from outcrop.language.program import Apply, Constant, Load, Operation, Program, Scalar

_LARGEST_POWER = 16


def lower(stencil: str, expression: sympy.Expr, fields: Sequence[str], parameters: Sequence[str]) -> Program:
    """The program of `expression`; InputError names the term that no kernel can compute."""
    builder = _Builder(stencil, fields, parameters)
    result = builder.visit(expression)
    if result != len(builder.operations) - 1:  # a bare load used before: cannot happen for one expression
        raise AssertionError("the result must be the last operation")
    return Program(tuple(builder.operations))


class _Builder:
    """Appends operations; equal ones are appended once."""

    def __init__(self, stencil: str, fields: Sequence[str], parameters: Sequence[str]) -> None:
        self.stencil = stencil
        self.fields, self.parameters = list(fields), list(parameters)
        self.operations: list[Operation] = []
        self._places: dict[Operation, int] = {}

    def visit(self, node: sympy.Expr) -> int:
        """The position of the operation that computes `node`."""
        if node.is_Number:
            value = float(node)
            if value != value or value in (float("inf"), float("-inf")):
                raise self._refuse(node, "is not a finite number")
            return self._append(Constant(value))
        if isinstance(node, AppliedUndef):
            return self._append(self._load(node))
        if node.is_Symbol:
            return self._append(Scalar(self.parameters.index(node.name)))
        if node.is_Add:
            return self._tree("add", [self.visit(term) for term in _ordered(node.args)])
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
        raise self._refuse(node, "cannot be computed; there are + - * / powers sqrt Abs Min Max")

    def _append(self, operation: Operation) -> int:
        if operation not in self._places:
            self._places[operation] = len(self.operations)
            self.operations.append(operation)
        return self._places[operation]

    def _load(self, node: AppliedUndef) -> Load:
        name = node.func.__name__
        if name not in self.fields:
            raise self._refuse(node, f"is not a field of this stencil; there is {', '.join(self.fields)}")
        if len(node.args) != 3 or not all(step.is_Integer for step in node.args):
            raise self._refuse(node, "needs three whole numbers as offset")
        dz, dy, dx = (int(step) for step in node.args)
        return Load(self.fields.index(name), (dz, dy, dx))

    def _tree(self, operator: str, places: list[int]) -> int:
        while len(places) > 1:
            pairs = [self._append(Apply(operator, (a, b))) for a, b in zip(places[::2], places[1::2], strict=False)]
            places = pairs + places[len(pairs) * 2 :]
        return places[0]

    def _product(self, node: sympy.Mul) -> int:
        numerator, denominator = node.as_numer_denom() if _has_division(node) else (node, sympy.S.One)
        if denominator != 1:
            return self._append(Apply("div", (self.visit(numerator), self.visit(denominator))))
        factors = _ordered(node.args)
        negative = factors[0] == -1
        places = [self.visit(factor) for factor in (factors[1:] if negative else factors)]
        result = places[0]
        for place in places[1:]:
            result = self._append(Apply("mul", (result, place)))
        return self._append(Apply("neg", (result,))) if negative else result

    def _power(self, node: sympy.Pow) -> int:
        base, exponent = node.args
        if exponent == sympy.Rational(1, 2):
            return self._append(Apply("sqrt", (self.visit(base),)))
        if exponent.could_extract_minus_sign():
            if base.is_zero:
                raise self._refuse(node, "divides by zero")
            one = self._append(Constant(1.0))
            return self._append(Apply("div", (one, self.visit(base**-exponent))))
        if not exponent.is_Integer or int(exponent) > _LARGEST_POWER:
            raise self._refuse(node, f"has an exponent other than 1/2 or a whole number up to {_LARGEST_POWER}")
        factor = self.visit(base)
        result = factor
        for _ in range(int(exponent) - 1):
            result = self._append(Apply("mul", (result, factor)))
        return result

    def _refuse(self, node: sympy.Expr, why: str) -> InputError:
        return InputError(f"stencil {self.stencil!r}: {node} {why}")


def _has_division(node: sympy.Mul) -> bool:
    return any(factor.is_Pow and factor.args[1].could_extract_minus_sign() for factor in node.args)


def _ordered(terms: Sequence[sympy.Expr]) -> list[sympy.Expr]:
    return sorted(terms, key=_key)


def _key(term: sympy.Expr) -> tuple[object, ...]:
    """Numbers, then scalars, then terms by how far from the centre and where they read, then by text."""
    loads = sorted(_offset_key(load) for load in term.atoms(AppliedUndef))
    kind = 0 if term.is_Number else 1 if not loads else 2
    return kind, len(loads), loads, str(term)


def _offset_key(load: AppliedUndef) -> tuple[object, ...]:
    offset = tuple(int(step) if step.is_Integer else 0 for step in load.args)
    return sum(map(abs, offset)), tuple(abs(step) for step in offset), offset, load.func.__name__
