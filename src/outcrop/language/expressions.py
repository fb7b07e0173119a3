"""Write the operations of a program as C expressions, for vectors of cells and for single cells.

generate.py writes the functions around these expressions. The docstring of generate.py explains the vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from outcrop.language.functions import FUNCTIONS
from outcrop.language.program import Apply, CellCount, CellIndex, Constant, Load, Operation, Program, Scalar

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARISON = {"min": "<", "max": ">"}
_SELECTION = {"where": ">", "where_equal": "=="}

Operand: TypeAlias = tuple[int, int]
"""An operand of a program: the number of a field, and the age of its value."""
Row: TypeAlias = tuple[Operand, int, int]
"""A row that an update reads: its operand, and its offsets dz and dy from the updated row."""
Place: TypeAlias = tuple[int, int]
"""The place of a row among the rows that a loop updates together: its plane and its row, counted from the first plane
and row."""

GRID_PLACE = ("first plane of the process", "its first row", "planes of the grid", "its rows", "its cells in a row")
"""The numbers that follow the parameters and signals in the scalars of a kernel, if the stencil reads positions."""


@dataclass(frozen=True)
class Expressions:
    """Writes the C expressions of one program for the rows that a loop updates together. Its methods yield lines of C.
    In the C code, `r<i>` is row number i. `w<i>_<k>` is the vector of row i that lies k vectors after the current
    vector. `u<j>` is the result of operation j as a scalar, `t<j>` as a vector, and `c<j>` for a single cell.
    `t<j>_<n>` is the vector of operation j for the place with number n. `u<j>_<n>` is a scalar of operation j for this
    place, and is the same for all cells of the row. `scalars` is the number of parameters and signals. The numbers
    `GRID_PLACE` follow them."""

    program: Program
    c_type: str
    lanes: int
    rows_at_once: int
    planes_at_once: int
    scalars: int

    @property
    def name(self) -> str:
        return f"{self.rows_at_once}x{self.planes_at_once}"

    @cached_property
    def places(self) -> list[Place]:
        return [(plane, row) for plane in range(self.planes_at_once) for row in range(self.rows_at_once)]

    @cached_property
    def rows(self) -> dict[Row, list[int]]:
        """Maps each row that the program reads to the offsets in x at which the program reads this row. The position of
        a row in this mapping is the number of the row."""
        rows: dict[Row, list[int]] = {}
        for load in self.program.loads:
            dz, dy, dx = load.offset
            for plane, row in self.places:
                rows.setdefault(((load.field, load.age), dz + plane, dy + row), []).append(dx)
        return rows

    @property
    def shares_rows(self) -> bool:
        """True if several of the updates that the loop performs together read the same row."""
        own = {((load.field, load.age), *load.offset[:2]) for load in self.program.loads}
        return len(self.rows) < len(own) * len(self.places)

    @cached_property
    def _numbers(self) -> dict[Row, int]:
        return {row: number for number, row in enumerate(self.rows)}

    def number(self, row: Row, place: Place) -> int:
        """Return the number of the row that the update of `place` reads at the offsets of `row`."""
        operand, dz, dy = row
        return self._numbers[operand, dz + place[0], dy + place[1]]

    def vector(self, operation: int, place: Place) -> str:
        """Return the C name of the vector that holds the result of an operation."""
        return f"t{operation}" if self.program.uniform[operation] else f"t{operation}_{self.places.index(place)}"

    @cached_property
    def once(self) -> dict[int, int]:
        """A mapping for functions whose operands are the same for every cell. It maps the position of such a function
        in the program to the place of the function's result in the array `once`."""
        every = zip(self.program.operations, self.program.uniform, strict=True)
        found = [
            place
            for place, (operation, is_uniform) in enumerate(every)
            if is_uniform and isinstance(operation, Apply) and operation.operator in FUNCTIONS
        ]
        return {place: number for number, place in enumerate(found)}

    def computed_once(self) -> Iterator[str]:
        """Yield C code that computes the array `once`. The code contains only the operations that this array needs."""
        needed = set(self.once)
        for place in range(len(self.program.operations) - 1, -1, -1):
            operation = self.program.operations[place]
            if place in needed and isinstance(operation, Apply):
                needed.update(operation.operands)
        yield f"  {self.c_type} once[{len(self.once)}];"
        yield f"  const {self.c_type} *s = b->scalars;"
        yield "  (void)s;"
        for place in sorted(needed):
            yield f"  {self._uniform(place, self.program.operations[place])}"
            if place in self.once:
                yield f"  once[{self.once[place]}] = u{place};"

    @cached_property
    def in_row(self) -> list[int]:
        """The positions of the operations whose value is the same for all cells of a row, but can differ between rows.
        """
        every = zip(self.program.is_constant_in_row, self.program.uniform, strict=True)
        return [place for place, (in_row, is_uniform) in enumerate(every) if in_row and not is_uniform]

    def row_values(self) -> Iterator[str]:
        """Yield C code for the operations of `in_row`. Each result is a scalar, and also a vector if other operations
        need a vector."""
        needed = set(self.program.results)
        for _, of_cell in self._of_cells():
            if isinstance(of_cell, Apply):
                needed.update(of_cell.operands)
        for place in self.in_row:
            operation = self.program.operations[place]
            for n, (plane, row) in enumerate(self.places):
                name = f"u{place}_{n}"
                match operation:
                    case CellIndex(axis):
                        here = plus("b->z + k", plane) if axis == 0 else plus("b->y + y", row)
                        first, extent = self._place(axis), self._place(axis + 2)
                        yield f"  const {self.c_type} {name} = wrapped((long){first} + {here}, (long){extent});"
                    case Apply(operator, operands):
                        yield f"  {self._scalar_apply(name, operator, [self.scalar(i, n) for i in operands])}"
                yield f"  (void){name};"
                if place in needed:
                    yield f"  const v t{place}_{n} = {self._splat(name)};"
                    yield f"  (void)t{place}_{n};"

    def _place(self, number: int) -> str:
        """Return one of the numbers `GRID_PLACE`."""
        return f"s[{self.scalars + number}]"

    def scalar(self, operation: int, place: int = 0) -> str:
        """Return the C name of the scalar that holds the result of an operation for a single cell."""
        if self.program.uniform[operation]:
            return f"u{operation}"
        return f"u{operation}_{place}" if self.program.is_constant_in_row[operation] else f"c{operation}"

    def uniforms(self) -> Iterator[str]:
        """Yield C code for the operations that do not depend on the cell. Each result is a scalar, and also a vector if
        other operations need a vector."""
        uniform = self.program.uniform
        needed = set(self.program.results)
        for place, operation in enumerate(self.program.operations):
            if isinstance(operation, Apply) and not uniform[place]:
                needed.update(operation.operands)
        for place, operation in enumerate(self.program.operations):
            if not uniform[place]:
                continue
            if place in self.once:
                yield f"  const {self.c_type} u{place} = once[{self.once[place]}];"
            else:
                yield f"  {self._uniform(place, operation)}"
            yield f"  (void)u{place};"
            if place in needed:
                yield f"  const v t{place} = {self._splat(f'u{place}')};"
                yield f"  (void)t{place};"

    def _uniform(self, place: int, operation: Operation) -> str:
        """Return the line of C code for an operation that does not depend on the cell."""
        match operation:
            case Scalar(index):
                return f"const {self.c_type} u{place} = s[{index}];"
            case Constant(value):
                return f"const {self.c_type} u{place} = ({self.c_type}){value.hex()};"
            case CellCount(axis):
                return f"const {self.c_type} u{place} = {self._place(axis + 2)};"
            case Apply(operator, operands):
                return self._scalar_apply(f"u{place}", operator, [f"u{i}" for i in operands])
        raise AssertionError("a load depends on the cell")

    def _splat(self, scalar: str) -> str:
        return scalar if self.lanes == 1 else "{" + ", ".join([scalar] * self.lanes) + "}"

    @cached_property
    def reaches(self) -> list[tuple[int, int, int]]:
        """Three numbers for each row: the number of the row, and the numbers of the first and the last vector that
        loads from the row need. The current vector has the number 0."""
        if self.lanes == 1:
            return []
        ends = [(min(0, *offsets), max(0, *offsets)) for offsets in self.rows.values()]
        return [(row, low // self.lanes, -(-high // self.lanes)) for row, (low, high) in enumerate(ends)]

    def first_vectors(self) -> Iterator[str]:
        """Yield C code that loads, before the loop begins, all vectors of each row except the last vector."""
        for row, first, last in self.reaches:
            for i in range(first, last):
                yield f"  v w{row}_{_index(i)} = *(const v *)(r{row} + b->x0 + {i * self.lanes});"

    def move_along(self) -> Iterator[str]:
        """Yield the assignments at the end of the loop's body. The assignments rename the vectors, because the next
        iteration of the loop begins one vector further along x."""
        for row, first, last in self.reaches:
            for i in range(first, last):
                yield f"    w{row}_{_index(i)} = w{row}_{_index(i + 1)};"

    def operations(self) -> Iterator[str]:
        """Yield C code for the operations that depend on the cell. Each operation is written once for each place, and
        computes a vector of cells from x on. The next vector of a row is loaded directly before its first use, so that
        the vector occupies a register only for a short time."""
        last_vectors = {row: last for row, _, last in self.reaches}
        for number, operation in self._of_cells():
            for place in self.places:
                match operation:
                    case Load(field, (dz, dy, dx), age):
                        row = self.number(((field, age), dz, dy), place)
                        if (last := last_vectors.pop(row, None)) is not None:
                            yield f"    v w{row}_{_index(last)} = *(const v *)(r{row} + x + {last * self.lanes});"
                        yield f"    const v {self.vector(number, place)} = {self._load(row, dx)};"
                    case CellIndex():
                        steps = "" if self.lanes == 1 else f" + (v){{{', '.join(map(str, range(self.lanes)))}}}"
                        yield f"    const v {self.vector(number, place)} = ({self.c_type})x{steps};"
                    case Apply(operator, operands):
                        names = [self.vector(i, place) for i in operands]
                        yield from self._apply(self.vector(number, place), operator, names)

    def cell_operations(self, column: Callable[[int], str]) -> Iterator[str]:
        """Yield C code that computes, for a single cell, the operations that depend on the cell. `column(dx)` returns
        the C expression for the column of the cell at distance dx."""
        for place, operation in self._of_cells():
            match operation:
                case Load(field, (dz, dy, dx), age):
                    yield f"  const {self.c_type} c{place} = r{self._numbers[(field, age), dz, dy]}[{column(dx)}];"
                case CellIndex():
                    yield f"  const {self.c_type} c{place} = x;"
                case Apply(operator, operands):
                    yield f"  {self._scalar_apply(f'c{place}', operator, [self.scalar(i) for i in operands])}"

    def _of_cells(self) -> Iterator[tuple[int, Load | CellIndex | Apply]]:
        """Yield the position and the operation for each operation whose value can differ between the cells of a row."""
        in_row = self.program.is_constant_in_row
        for place, operation in enumerate(self.program.operations):
            if not in_row[place]:
                assert isinstance(operation, Load | CellIndex | Apply)
                yield place, operation

    def _load(self, number: int, dx: int) -> str:
        if self.lanes == 1:
            return f"r{number}[x + {dx}]"
        vector, shift = divmod(dx, self.lanes)
        low = f"w{number}_{_index(vector)}"
        if shift == 0:
            return low
        lanes = ", ".join(str(shift + lane) for lane in range(self.lanes))
        return f"SHUFFLED({low}, w{number}_{_index(vector + 1)}, {lanes})"

    def _scalar_apply(self, name: str, operator: str, operands: list[str]) -> str:
        a, b = operands[0], operands[-1]
        if operator in _COMPARISON:
            value = f"{a} {_COMPARISON[operator]} {b} ? {a} : {b}"
        elif operator in _SELECTION:
            value = f"{a} {_SELECTION[operator]} {operands[1]} ? {operands[2]} : {b}"
        elif operator == "neg":
            value = f"-{a}"
        elif operator in FUNCTIONS:
            value = f"cell_{operator}({', '.join(operands)})"
        else:
            value = f"{a} {_INFIX[operator]} {b}" if operator in _INFIX else f"{self._function(operator)}({a})"
        return f"const {self.c_type} {name} = {value};"

    def _apply(self, name: str, operator: str, operands: list[str]) -> Iterator[str]:
        a, b = operands[0], operands[-1]
        if self.lanes == 1:
            yield "    " + self._scalar_apply(name, operator, operands)
        elif operator in _INFIX:
            yield f"    const v {name} = {a} {_INFIX[operator]} {b};"
        elif operator == "neg":
            yield f"    const v {name} = -{a};"
        elif operator in _COMPARISON:
            yield f"    const m k{name} = {a} {_COMPARISON[operator]} {b};"
            yield f"    const v {name} = (v)(((m){a} & k{name}) | ((m){b} & ~k{name}));"
        elif operator in FUNCTIONS:
            yield f"    const v {name} = vector_{operator}({', '.join(operands)});"
        elif operator in _SELECTION:
            yield f"    const m k{name} = {a} {_SELECTION[operator]} {operands[1]};"
            yield f"    const v {name} = (v)(((m){operands[2]} & k{name}) | ((m){b} & ~k{name}));"
        else:
            yield f"    v {name};"
            yield f"    for (int i = 0; i < {self.lanes}; i++) {name}[i] = {self._function(operator)}({a}[i]);"

    def _function(self, operator: str) -> str:
        return {"sqrt": "sqrt", "abs": "fabs"}[operator] + ("f" if self.c_type == "float" else "")


def _index(vector: int) -> str:
    return f"m{-vector}" if vector < 0 else str(vector)


def plus(term: str, number: int) -> str:
    return f"{term} + {number}" if number else term
