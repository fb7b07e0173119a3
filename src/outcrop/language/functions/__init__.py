"""Functions such as exp and sin, which expressions may use. The results of these functions have the same bits on every
machine.

The C libraries of different systems can give different bits for exp. So Outcrop has its own functions. A function is a
fixed list of elementary operations (its recipe), like the program of a stage:

    recipe (recipes.py) ──┬─► NumPy: arrays (call)          the oracle
                          └─► text: C (definitions)         the kernels
    arithmetic.py: both kinds of operations        coefficients.py: constants, which a script computes

In C, each function has a version for one cell, `cell_exp`, and a version for a vector, `vector_exp`. In the versions
for one cell, `cell` is the type of a number, and `word` is the type of its bits. The vectors `v` of numbers and the
masks `m` have the types that generate.py defines. `n` is a vector of words.

`docs/reference/functions.md` has the largest errors of all functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from outcrop.language.functions import recipes
from outcrop.language.functions.arithmetic import Arithmetic, Arrays, Lines, Text, Value


def sign(m: Arithmetic, x: Value) -> Value:
    zero = m.number(0.0)
    return m.where(x, zero, m.number(1.0), m.where(zero, x, m.number(-1.0), x))


_OF_ONE: dict[str, Callable[..., Value]] = {
    "exp": recipes.exp,
    "log": recipes.log,
    "tanh": recipes.tanh,
    "sin": recipes.sin,
    "cos": recipes.cos,
    "tan": recipes.tan,
    "sign": sign,
}
_OF_TWO: dict[str, Callable[..., Value]] = {"atan2": recipes.atan2, "pow": recipes.power}

RECIPES = {**_OF_ONE, **_OF_TWO}
"""The recipe of each function. After the arithmetic, a recipe gets the arguments of the function."""

FUNCTIONS = {**dict.fromkeys(_OF_ONE, 1), **dict.fromkeys(_OF_TWO, 2)}
"""The number of arguments of each function."""


def call(name: str, dtype: str, *arguments: Any) -> Any:
    """Compute a function with NumPy, and return its values. The arguments are arrays or scalars of the dtype `dtype`.
    The shapes of the arguments are equal or can be broadcast."""
    import numpy as np  # `outcrop info` reads programs without NumPy, so NumPy is imported only when it is needed

    with np.errstate(all="ignore"):
        return RECIPES[name](Arrays(dtype), *arguments)


_TYPES = {"float32": ("float", "unsigned int"), "float64": ("double", "unsigned long")}


def definitions(names: Sequence[str], dtype: str, lanes: int) -> Iterator[str]:
    """Yield C code that defines the functions `names`. The vectors have `lanes` numbers. If `lanes` is 1, only the
    versions for one cell are defined."""
    cell, word = _TYPES[dtype]
    yield f"typedef {cell} cell;"
    yield f"typedef {word} word;"
    yield "static inline word word_of(cell x) { word i; __builtin_memcpy(&i, &x, sizeof i); return i; }"
    yield "static inline cell cell_of(word i) { cell x; __builtin_memcpy(&x, &i, sizeof x); return x; }"
    if lanes > 1:
        yield f"typedef word n __attribute__((vector_size({lanes} * sizeof(word))));"
        yield "static inline int any(m k) {"
        half = lanes // 2
        while half:
            order = ", ".join(str((i + half) % lanes) for i in range(lanes))
            yield f"  k |= SHUFFLED(k, k, {order});"
            half //= 2
        yield "  return k[0] != 0;"
        yield "}"
    for name in names:
        for width in sorted({1, lanes}):
            yield from _definition(name, dtype, width)


def _definition(name: str, dtype: str, lanes: int) -> Iterator[str]:
    lines, arguments = Lines(dtype, lanes), [f"x{place}" for place in range(FUNCTIONS[name])]
    result = RECIPES[name](lines, *(Text(lines, one) for one in arguments))
    kind, prefix = ("cell", "cell") if lanes == 1 else ("v", "vector")
    parameters = ", ".join(f"{kind} {one}" for one in arguments)
    yield f"static inline {kind} {prefix}_{name}({parameters}) {{"
    for values, table in lines.tables.items():
        yield f"  static const cell {table}[] = {{{values}}};"
    yield from lines.lines
    yield f"  return {result.name};"
    yield "}"


@cache
def operations_of(name: str) -> int:
    """Return the approximate number of operations that a function performs for one value. Conversions to bits are not
    counted."""
    lines = Lines("float32", 1)
    RECIPES[name](lines, *(Text(lines, f"a{number}") for number in range(FUNCTIONS[name])))
    # the operations inside `rarely` have a deeper indent
    return sum(one.startswith("  const") and "_of(" not in one for one in lines.lines)
