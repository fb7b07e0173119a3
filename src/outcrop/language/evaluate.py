"""Run a Program on whole arrays of NumPy, operation by operation, each rounded to the dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from outcrop.language.program import Apply, Constant, Load, Program, Scalar


def evaluate(program: Program, load: Callable[[Load], Any], scalars: Sequence[float], dtype: type) -> list[Any]:
    """The results of a program: arrays as `load` gives them, or NumPy scalars, of `dtype`.

    `scalars` are in the order that the program counts them in.
    """
    found: list[Any] = []
    with np.errstate(all="ignore"):
        for operation in program.operations:
            match operation:
                case Load():
                    found.append(load(operation))
                case Scalar(index):
                    found.append(dtype(scalars[index]))
                case Constant(value):
                    found.append(dtype(value))
                case Apply(operator, operands):
                    found.append(_OPERATORS[operator](*(found[i] for i in operands)))
    return [found[place] for place in program.results]


_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "min": lambda a, b: np.where(a < b, a, b),
    "max": lambda a, b: np.where(a > b, a, b),
}
