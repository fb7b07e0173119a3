"""Write functions in C, for the generated kernels.

Each function has a version for one cell, `cell_exp`, and a version for a vector, `vector_exp`. In the versions for one
cell, `cell` is the type of a number and `word` the type of its bits. The vectors `v` of numbers and the masks `m` have
the types that generate.py defines. `n` is a vector of words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outcrop.language.functions import FUNCTIONS, RECIPES
from outcrop.language.functions.arithmetic import Lines, Text

_TYPES = {"float32": ("float", "unsigned int"), "float64": ("double", "unsigned long")}


def definitions(names: Sequence[str], dtype: str, lanes: int) -> Iterator[str]:
    """Yield C code that defines the functions `names`. The vectors have `lanes` numbers. If `lanes` is 1, there are no
    vectors."""
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
            yield f"  k |= __builtin_shufflevector(k, k, {order});"
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
