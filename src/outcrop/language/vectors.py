"""The innermost expressions of a kernel: loads, lanes and operations, with vectors or for single cells.

For each row that is read at other cells than the updated one, the vectors around the current one stay in registers and
move along; neighbours in x are lanes shifted out of two of them, never unaligned loads:

    row (dz, dy):   | w[-1] | w[0] | w[1] |          value at dx = -1: last lane of w[-1], all but the last of w[0]
                            x ──►                    then w[-1] = w[0], w[0] = w[1], w[1] = next load

Vectors are those of GCC and clang (`vector_size`, `__builtin_shufflevector`); with one lane the same expressions are
written for single cells, in plain C. What does not depend on the cell is computed as a scalar, before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from outcrop.language.program import Apply, Constant, Load, Program, Scalar

Operand: TypeAlias = tuple[int, int]
"""A field and the age of its value."""
Row: TypeAlias = tuple[Operand, int, int]
"""A row that is read: of which operand, dz, dy."""


def rows_of(program: Program) -> dict[Row, list[int]]:
    """The rows that a program reads, each with its offsets in x."""
    rows: dict[Row, list[int]] = {}
    for load in program.loads:
        dz, dy, dx = load.offset
        rows.setdefault(((load.field, load.age), dz, dy), []).append(dx)
    return rows


@dataclass(frozen=True)
class Lanes:
    """Writes the expressions of one program; every method yields lines of C.

    Names: `r<i>` row number i, `w<i>_<k>` its vector k vectors from the current one, `u<j>` and `t<j>` operation j as a
    scalar and as a vector.
    """

    program: Program
    c_type: str
    item_bytes: int
    lanes: int

    @cached_property
    def rows(self) -> dict[Row, list[int]]:
        """The rows that are read, in the order of their numbers."""
        return rows_of(self.program)

    def type_definitions(self) -> Iterator[str]:
        """`v`, a vector of cells, and `m`, its comparison masks."""
        if self.lanes == 1:
            yield f"typedef {self.c_type} v;"
            return
        integer = {4: "int", 8: "long"}[self.item_bytes]
        size = self.lanes * self.item_bytes
        yield f"typedef {self.c_type} v __attribute__((vector_size({size}), may_alias));"
        yield f"typedef {integer} m __attribute__((vector_size({size})));"

    def uniforms(self) -> Iterator[str]:
        """What is the same for every cell: as scalars, and as vectors where the cells need it."""
        uniform = self.program.uniform
        needed = set(self.program.results)
        for place, operation in enumerate(self.program.operations):
            if isinstance(operation, Apply) and not uniform[place]:
                needed.update(operation.operands)
        for place, operation in enumerate(self.program.operations):
            if not uniform[place]:
                continue
            match operation:
                case Scalar(index):
                    yield f"  const {self.c_type} u{place} = s[{index}];"
                case Constant(value):
                    yield f"  const {self.c_type} u{place} = ({self.c_type}){value.hex()};"
                case Apply(operator, operands):
                    yield f"  {self._scalar_apply(place, 'u', operator, [f'u{i}' for i in operands])}"
                case Load():
                    raise AssertionError("a load depends on the cell")
            yield f"  (void)u{place};"
            if place in needed:
                yield f"  const v t{place} = {self._splat(f'u{place}')};"
                yield f"  (void)t{place};"

    def _splat(self, scalar: str) -> str:
        return scalar if self.lanes == 1 else "{" + ", ".join([scalar] * self.lanes) + "}"

    def reach(self, row: Row) -> tuple[int, int]:
        """First and last vector, counted from the current one, that the row's loads touch."""
        offsets = self.rows[row]
        return min(min(offsets) // self.lanes, 0), max(-(-max(offsets) // self.lanes), 0)

    def first_vectors(self) -> Iterator[str]:
        """Before the loop."""
        for number, row in enumerate(self.rows):
            first, last = self.reach(row)
            for i in range(first, last) if self.lanes > 1 else ():
                yield f"  v w{number}_{_index(i)} = *(const v *)(r{number} + b->x0 + {i * self.lanes});"

    def next_vectors(self) -> Iterator[str]:
        """At the beginning of its body."""
        for number, row in enumerate(self.rows) if self.lanes > 1 else ():
            _, last = self.reach(row)
            yield f"    v w{number}_{_index(last)} = *(const v *)(r{number} + x + {last * self.lanes});"

    def move_along(self) -> Iterator[str]:
        """At its end."""
        for number, row in enumerate(self.rows) if self.lanes > 1 else ():
            first, last = self.reach(row)
            for i in range(first, last):
                yield f"    w{number}_{_index(i)} = w{number}_{_index(i + 1)};"

    def operations(self) -> Iterator[str]:
        """All that depends on the cell, for a vector of cells at x."""
        numbers = {row: number for number, row in enumerate(self.rows)}
        for place, operation in self._of_cells():
            match operation:
                case Load(field, (dz, dy, dx), age):
                    yield f"    const v t{place} = {self._load(numbers[(field, age), dz, dy], dx)};"
                case Apply(operator, operands):
                    yield from self._apply(place, operator, [f"t{i}" for i in operands])

    def cell_operations(self, column: Callable[[int], str]) -> Iterator[str]:
        """The same for one cell; `column(dx)` is the place in its row of the cell dx from it."""
        numbers = {row: number for number, row in enumerate(self.rows)}
        uniform = self.program.uniform
        for place, operation in self._of_cells():
            match operation:
                case Load(field, (dz, dy, dx), age):
                    yield f"  const {self.c_type} c{place} = r{numbers[(field, age), dz, dy]}[{column(dx)}];"
                case Apply(operator, operands):
                    names = [f"{'u' if uniform[i] else 'c'}{i}" for i in operands]
                    yield f"  {self._scalar_apply(place, 'c', operator, names)}"

    def _of_cells(self) -> Iterator[tuple[int, Load | Apply]]:
        uniform = self.program.uniform
        for place, operation in enumerate(self.program.operations):
            if not uniform[place]:
                assert isinstance(operation, Load | Apply)
                yield place, operation

    def _load(self, number: int, dx: int) -> str:
        if self.lanes == 1:
            return f"r{number}[x + {dx}]"
        vector, shift = divmod(dx, self.lanes)
        low = f"w{number}_{_index(vector)}"
        if shift == 0:
            return low
        lanes = ", ".join(str(shift + lane) for lane in range(self.lanes))
        return f"__builtin_shufflevector({low}, w{number}_{_index(vector + 1)}, {lanes})"

    def _scalar_apply(self, place: int, prefix: str, operator: str, operands: list[str]) -> str:
        a, b = operands[0], operands[-1]
        if operator in _COMPARISON:
            value = f"{a} {_COMPARISON[operator]} {b} ? {a} : {b}"
        elif operator == "neg":
            value = f"-{a}"
        else:
            value = f"{a} {_INFIX[operator]} {b}" if operator in _INFIX else f"{self._function(operator)}({a})"
        return f"const {self.c_type} {prefix}{place} = {value};"

    def _apply(self, place: int, operator: str, operands: list[str]) -> Iterator[str]:
        a, b = operands[0], operands[-1]
        if self.lanes == 1:
            yield "    " + self._scalar_apply(place, "t", operator, operands)
        elif operator in _INFIX:
            yield f"    const v t{place} = {a} {_INFIX[operator]} {b};"
        elif operator == "neg":
            yield f"    const v t{place} = -{a};"
        elif operator in _COMPARISON:
            yield f"    const m k{place} = {a} {_COMPARISON[operator]} {b};"
            yield f"    const v t{place} = (v)(((m){a} & k{place}) | ((m){b} & ~k{place}));"
        else:
            yield f"    v t{place};"
            yield f"    for (int i = 0; i < {self.lanes}; i++) t{place}[i] = {self._function(operator)}({a}[i]);"

    def _function(self, operator: str) -> str:
        return {"sqrt": "sqrt", "abs": "fabs"}[operator] + ("f" if self.c_type == "float" else "")


_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARISON = {"min": "<", "max": ">"}


def _index(vector: int) -> str:
    return f"m{-vector}" if vector < 0 else str(vector)
