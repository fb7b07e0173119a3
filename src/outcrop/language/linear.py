"""The linear part of a program: how much each value that it reads counts in each result.

    result = constant + sum of slope * load

For linear updates this is the whole of them. Others are taken at a uniform state, one value for each field, and the
slopes are their derivatives there. What depends on a value that is not known becomes NaN.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from outcrop.language.program import Apply, Constant, Load, Program, Scalar


@dataclass(frozen=True)
class Linear:
    """The value at the uniform state, and its derivative by each load of a field that changes."""

    value: float
    slopes: dict[Load, float] = field(default_factory=dict)

    def scaled(self, factor: float, value: float) -> Linear:
        """All slopes multiplied, and another value."""
        return Linear(value, {load: factor * slope for load, slope in self.slopes.items()})


def linearise(
    program: Program, scalars: Sequence[float], state: Sequence[float], fixed: Collection[int] = ()
) -> list[Linear]:
    """The linear part of each result, where field number f has the value `state[f]` in all cells.

    Fields numbered in `fixed` do not change, so nothing is derived by them. NaN stands for values that are not known:
    results that are linear have finite slopes nevertheless, those of all others are NaN. Where something known is
    divided by zero there are infinite ones.
    """
    found: list[Linear] = []
    for operation in program.operations:
        match operation:
            case Load(number, _, _):
                found.append(Linear(state[number], {} if number in fixed else {operation: 1.0}))
            case Scalar(index):
                found.append(Linear(scalars[index]))
            case Constant(value):
                found.append(Linear(value))
            case Apply(operator, (i,)):
                found.append(_of_one(operator, found[i]))
            case Apply(operator, (i, j)):
                found.append(_of_two(operator, found[i], found[j]))
    return [found[place] for place in program.results]


def _of_one(operator: str, a: Linear) -> Linear:
    if operator == "neg":
        return a.scaled(-1.0, -a.value)
    if operator == "sqrt":
        root = math.sqrt(a.value) if a.value >= 0 else math.nan
        return a.scaled(0.5 / root if root else math.nan, root)
    sign = math.copysign(1.0, a.value) if a.value else math.nan  # abs; it has no derivative at 0
    return a.scaled(sign if sign == sign and a.value == a.value else math.nan, abs(a.value))


def _of_two(operator: str, a: Linear, b: Linear) -> Linear:
    if operator == "add":
        return _sum(a.value + b.value, a, b)
    if operator == "sub":
        return _sum(a.value - b.value, a, b.scaled(-1.0, -b.value))
    if operator == "mul":
        value = a.value * b.value
        return _sum(value, a.scaled(b.value, value), b.scaled(a.value, value))
    if operator == "div":
        value = _quotient(a.value, b.value)
        return _sum(value, a.scaled(_quotient(1.0, b.value), value), b.scaled(-_quotient(value, b.value), value))
    if a.value < b.value or a.value > b.value:
        return a if (a.value < b.value) == (operator == "min") else b
    same = Linear(a.value if a.value == b.value else math.nan)
    return _sum(same.value, a.scaled(math.nan, 0.0), b.scaled(math.nan, 0.0)) if a.slopes or b.slopes else same


def _sum(value: float, a: Linear, b: Linear) -> Linear:
    slopes = dict(a.slopes)
    for load, slope in b.slopes.items():
        slopes[load] = slopes.get(load, 0.0) + slope
    return Linear(value, slopes)


def _quotient(a: float, b: float) -> float:
    if b or not a:
        return a / b if b else math.nan
    return math.copysign(math.inf, a) if a == a else math.nan
