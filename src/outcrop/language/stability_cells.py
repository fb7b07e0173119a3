"""Find the cells of a grid in which the stability of a stencil with positions or boxes is examined.

A box is a condition on indices, such as `x > 9`. All cells in which the conditions of a stage have the same outcomes
have the same equation, so one of these cells is enough:

    index along x:    0 ......... 9 | 10 .................... 19 | 20 ......... 59
    x > 9, 20 > x:    false, true   | true, true                 | true, false       one cell of each: 0, 10, 20

An equation can also compute with an index, for example exp(-x / 9). An equation that computes with an index is
different in each cell. Such an equation is examined at both ends and in the middle of the axis, and on both sides of
each number in its conditions. For an equation that computes with an index, the result is an estimate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from outcrop.axes import GridShape
from outcrop.language.program import Apply, CellIndex, Program
from outcrop.language.stencil import Stencil

MAX_CELLS = 1024
"""The maximum number of cells with different equations."""
_MAX_OPERATIONS = 1 << 22
"""The maximum number of operations in all cells whose equations are compared. The comparison of so many operations
takes about two seconds."""


@dataclass(frozen=True)
class _Condition:
    """A condition `index > number`, `number > index` or `index == number`, for an index along an axis."""

    axis: int
    number: float
    is_equal: bool
    is_index_first: bool

    def holds(self, index: int) -> bool:
        if self.is_equal:
            return index == self.number
        return index > self.number if self.is_index_first else self.number > index


_Conditions = tuple[tuple[int, _Condition], ...]
"""The conditions of a program, each with the position of its operation."""


def sampled_cells(
    stencil: Stencil, uniform: Sequence[Sequence[float | None]], shape: GridShape
) -> Sequence[GridShape] | None:
    """Return the cells in which the growth is computed. For each operation of each stage, `uniform` contains the value
    of the operation, or None if the value can differ between cells. The result is None if there are too many different
    cells."""
    conditions = tuple(_conditions(one.program, values) for one, values in zip(stencil.stages, uniform, strict=True))
    return _cells(tuple(stage.program for stage in stencil.stages), conditions, shape)


def _conditions(program: Program, values: Sequence[float | None]) -> _Conditions:
    found = []
    for place, operation in enumerate(program.operations):
        match operation:
            case Apply("where" | "where_equal" as operator, (a, b, _, _)):
                for index, number, is_first in ((a, b, True), (b, a, False)):
                    match program.operations[index], values[number]:
                        case CellIndex(axis), float(value) if not math.isnan(value):
                            found.append((place, _Condition(axis, value, operator == "where_equal", is_first)))
    return tuple(found)


@lru_cache(maxsize=64)  # a search for the largest stable step asks for the same cells many times
def _cells(
    programs: tuple[Program, ...], conditions: tuple[_Conditions, ...], shape: GridShape
) -> tuple[GridShape, ...] | None:
    computed = {axis for one, known in zip(programs, conditions, strict=True) for axis in _computed(one, dict(known))}
    every = [condition for known in conditions for _, condition in known]
    along = []
    for axis, cells in enumerate(shape):
        own = [one for one in every if one.axis == axis]
        floors = {math.floor(one.number) for one in own if math.isfinite(one.number)}
        if axis in computed:
            near = {floor + step for floor in floors for step in (-1, 0, 1)} | {0, cells // 2, cells - 1}
            along.append(sorted(one for one in near if 0 <= one < cells))
        else:
            near = {0, *(floor + step for floor in floors for step in (0, 1))}
            inside = sorted(one for one in near if 0 <= one < cells)
            along.append([*{tuple(one.holds(index) for one in own): index for index in reversed(inside)}.values()])
    if math.prod(map(len, along)) * sum(len(one.operations) for one in programs) > _MAX_OPERATIONS:
        return None
    different: dict[object, GridShape] = {}
    equations = [_Equations(one, dict(known)) for one, known in zip(programs, conditions, strict=True)]
    for z, y, x in itertools.product(*along):
        different.setdefault(tuple(one.of_cell((z, y, x)) for one in equations), (z, y, x))
    return tuple(sorted(different.values())) if len(different) <= MAX_CELLS else None


def _computed(program: Program, conditions: Mapping[int, _Condition]) -> set[int]:
    """Return the axes whose indices the program uses in other operations than comparisons with numbers."""
    used = set(program.results)
    for place, operation in enumerate(program.operations):
        if isinstance(operation, Apply):
            used.update(operation.operands[2:] if place in conditions else operation.operands)
    indices = [(place, one) for place, one in enumerate(program.operations) if isinstance(one, CellIndex)]
    return {one.axis for place, one in indices if place in used}


class _Equations:
    """Gives numbers to the equations of cells. In two cells with the same numbers, the results of a program are the
    same functions of the values around the cell."""

    def __init__(self, program: Program, conditions: Mapping[int, _Condition]) -> None:
        self._program, self._conditions = program, conditions
        self._numbers: dict[object, int] = {}

    def of_cell(self, cell: GridShape) -> tuple[int, ...]:
        """Return one number for each result of the program. Equal operations with equal operands have equal numbers. A
        condition on an index selects one of its operands, and has the number of the selected operand."""
        found: list[int] = []
        for place, operation in enumerate(self._program.operations):
            key: object = place
            if isinstance(operation, CellIndex):
                key = operation.axis, cell[operation.axis]
            elif isinstance(operation, Apply):
                condition = self._conditions.get(place)
                if condition is not None:
                    found.append(found[operation.operands[2 if condition.holds(cell[condition.axis]) else 3]])
                    continue
                key = operation.operator, *(found[one] for one in operation.operands)
            found.append(self._numbers.setdefault(key, len(self._numbers)))
        return tuple(found[one] for one in self._program.results)
