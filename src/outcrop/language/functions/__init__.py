"""The functions of values that expressions may use, such as exp and sin, with the same bits on every machine.

The C libraries of two systems give different bits for exp. So Outcrop has its own functions. A function is a fixed list
of elementary operations (its recipe), like the program of a stage:

    recipe (exponential.py, circular.py) ──┬─► NumPy: arrays     the oracle
                                           └─► text: C           the kernels
    arithmetic.py: both kinds of operations        coefficients.py: constants, which a script computes

`docs/reference/functions.md` has the largest errors of all functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outcrop.language.functions import circular, exponential
from outcrop.language.functions.arithmetic import Arithmetic, Arrays, Value


def sign(m: Arithmetic, x: Value) -> Value:
    zero = m.number(0.0)
    return m.where(x, zero, m.number(1.0), m.where(zero, x, m.number(-1.0), x))


_OF_ONE: dict[str, Callable[..., Value]] = {
    "exp": exponential.exp,
    "log": exponential.log,
    "tanh": exponential.tanh,
    "sin": circular.sin,
    "cos": circular.cos,
    "tan": circular.tan,
    "sign": sign,
}
_OF_TWO: dict[str, Callable[..., Value]] = {"atan2": circular.atan2, "pow": exponential.power}

RECIPES = {**_OF_ONE, **_OF_TWO}
"""The recipe of each function. After the arithmetic, a recipe gets the arguments of the function."""

FUNCTIONS = {**dict.fromkeys(_OF_ONE, 1), **dict.fromkeys(_OF_TWO, 2)}
"""The number of arguments of each function."""


def call(name: str, dtype: str, *arguments: Any) -> Any:
    """Return the values of a function, computed with NumPy. The arguments are arrays or scalars of this dtype, with the
    same shape or with shapes that can be broadcast."""
    import numpy as np  # imported here, because `outcrop info` reads programs without NumPy

    with np.errstate(all="ignore"):
        return RECIPES[name](Arrays(dtype), *arguments)
