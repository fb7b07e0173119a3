"""Make static fields that a run needs but that the user does not give.

A computed field holds the values of a term that never changes. Two kinds of terms become computed fields. The first
kind is a term that no kernel computes, such as sinh(theta). The second kind is a function that reads several cells,
such as the cosine of a mean of theta. The values of a computed field are computed once, in float64, from the values of
Devito's functions. A function of one cell that kernels can compute, such as cos(theta), does not become a computed
field here. A run computes such functions once anyway (language/static_terms.py). If the sides have a boundary of
Outcrop instead of Devito's halo, a function of several cells does not become a computed field. The values of such a
field beyond a side would not follow from the boundary. A region is a static field that is 1 in the cells of a box, and
0 in all other cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, count
from typing import Any

import numpy as np
import sympy
from devito.types import Indexed
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.language.devito.equation import Access, Box
from outcrop.language.devito.expression import SymbolValues, shown
from outcrop.language.stencil import Field

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": np.abs, "Max": np.maximum, "Min": np.minimum, "acos": np.arccos, "asin": np.arcsin, "atan": np.arctan,
    "atan2": np.arctan2, "ceiling": np.ceil, "cos": np.cos, "cosh": np.cosh, "exp": np.exp, "floor": np.floor,
    "log": np.log, "sign": np.sign, "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip


@dataclass(frozen=True)
class ComputedField:
    """A static field with the name `name`. The field holds the values of a term. `expression` is this term, with a
    symbol for each value that the term reads. `reads` maps each symbol to a pair: a function of Devito, and an offset
    in cells."""

    name: str
    expression: Any
    reads: Mapping[Any, tuple[Any, tuple[int, ...]]]
    values: SymbolValues

    @property
    def functions(self) -> dict[str, Any]:
        return {str(function.name): function for function, _ in self.reads.values()}

    @property
    def reach(self) -> int:
        """The largest offset, in cells, of the values that the term reads."""
        return max((abs(step) for _, offset in self.reads.values() for step in offset), default=0)

    def evaluate(self, read: Callable[[Any, tuple[int, ...]], NDArray[Any]]) -> NDArray[np.float64]:
        """Return the values of the computed field as a float64 array. `read` returns the values of a function at an
        offset."""
        arrays = {symbol: read(*one).astype(np.float64) for symbol, one in self.reads.items()}
        with np.errstate(all="ignore"):
            found: NDArray[np.float64] = np.asarray(_evaluate(self.expression, arrays, self.values), np.float64)
        return found


@dataclass(frozen=True)
class StaticFields:
    """Collects the computed fields and the regions of a list of equations. `states` contains the fields with the values
    that another run has saved. Each key of `states` is a pair: the name of the saved function, and the number of steps
    after the time t. `changing` contains the names of the fields that equations write. `taken` contains names that
    other fields have. `has_halo` is true if the grid has Devito's halo, and false if it has a boundary of Outcrop."""

    values: SymbolValues
    changing: frozenset[str]
    taken: set[str]
    has_halo: bool
    computed: dict[Any, ComputedField] = field(default_factory=dict)
    regions: dict[Box, str] = field(default_factory=dict)
    states: dict[tuple[str, int], str] = field(default_factory=dict)

    def term(self, where: str, node: Any, reads: Mapping[Any, Access], in_kernel: bool) -> sympy.Expr | None:
        """Return the replacement of a term: a number if the term reads no field, or the value of a computed field.
        Return None if the term's value changes during a run, or if its value cannot be computed. If a kernel can
        compute the term, also return None for a term that reads only one cell, and for a grid without halo. Raises
        InputError if a term that no kernel can compute reads several cells, and the grid has no halo."""
        loads = sorted(node.atoms(Indexed), key=str)
        accesses = [reads[one] for one in loads]
        several_cells = len({one.offset for one in accesses}) > 1
        if in_kernel and not (several_cells and self.has_halo):
            return None
        changes = any(one.field in self.changing or one.function.is_TimeFunction or not one.offset for one in accesses)
        if changes or not _is_known(node, self.values):
            return None
        if not accesses:
            self.values.fix(node, shown(node))
            return sympy.Float(float(_evaluate(node, {}, self.values)))
        if several_cells and not self.has_halo:
            raise InputError(
                f"{where}: {shown(node)} reads several cells, and boundary= gives no values of it beyond the sides; "
                "keep it in a Function, or leave out boundary="
            )
        base = accesses[0].offset
        moved = {
            load: (one.function, tuple(step - start for step, start in zip(one.offset, base, strict=True)))
            for load, one in zip(loads, accesses, strict=True)
        }
        symbols = {load: sympy.Symbol(f"{one[0].name}{one[1]}") for load, one in moved.items()}
        expression = node.xreplace(symbols)
        if expression not in self.computed:
            several = len(moved) > 1 or len(node.args) != 1 or node.args[0] not in moved
            plain = f"{type(node).__name__.lower()}_{loads[0].function.name}"
            name = self._unused(plain, always=several)
            known = {symbols[load]: one for load, one in moved.items()}
            self.computed[expression] = ComputedField(name, expression, known, self.values)
            self.values.fix(expression, f"field {name}")
        load: sympy.Expr = Field(self.computed[expression].name)[base]
        return load

    def region(self, box: Box) -> sympy.Expr:
        """Return an expression that is 1 in the cells of a box, and 0 in all other cells."""
        if box not in self.regions:
            self.regions[box] = self._unused("region", always=True)
        load: sympy.Expr = Field(self.regions[box])[(0,) * len(box)]
        return load

    def state(self, function: Any, shift: int, offset: tuple[int, ...]) -> sympy.Expr:
        """Return an expression for the value of a saved function at `shift` steps after t."""
        if (str(function.name), shift) not in self.states:
            self.states[str(function.name), shift] = self._unused(f"{function.name}_saved", always=shift != 0)
        load: sympy.Expr = Field(self.states[str(function.name), shift])[offset]
        return load

    def _unused(self, plain: str, always: bool) -> str:
        """Return a name that no other field has. The name ends in a number if `plain` is already used, or if `always`
        is true."""
        numbered = (f"{plain}_{number}" for number in count(1))
        name = next(one for one in chain(() if always else (plain,), numbered) if one not in self.taken)
        self.taken.add(name)
        return name


def _is_known(node: Any, values: SymbolValues) -> bool:
    """Return True if `_evaluate` can compute the term `node`."""
    if isinstance(node, Indexed) or node.is_Number or node.is_NumberSymbol:
        return True
    if node.is_Symbol:
        return values.of(node) is not None
    known = node.is_Add or node.is_Mul or node.is_Pow or type(node).__name__ in {*_FUNCTIONS, "SafeInv"}
    return known and all(_is_known(one, values) for one in node.args)


def _evaluate(node: Any, arrays: Mapping[Any, NDArray[np.float64]], values: SymbolValues) -> Any:
    if node in arrays:
        return arrays[node]
    if node.is_Symbol:
        known: Any = values.of(node)
        return float(known if known.is_Number else known.default)
    if node.is_Number or node.is_NumberSymbol:
        return float(node)
    parts = [_evaluate(one, arrays, values) for one in node.args]
    if node.is_Add:
        return sum(parts)
    if node.is_Mul:
        return reduce(np.multiply, parts)
    if node.is_Pow:
        return np.power(*parts)
    if type(node).__name__ == "SafeInv":  # 1/a, or 0 where an argument is less than `limit`, as in Devito
        limit = np.finfo(values.grid.dtype).resolution ** 2
        return np.where((parts[0] < limit) | (parts[1] < limit), 0.0, 1.0 / np.where(parts[0] == 0, 1.0, parts[0]))
    function = _FUNCTIONS[type(node).__name__]
    return function(*parts) if len(parts) == 1 else reduce(function, parts)
