"""The lowered form of expressions: operations in one fixed order, each using earlier ones.

This order is the definition of a stencil's bits. The C generator and the NumPy oracle follow it operation by
operation, every operation rounds once to the field's dtype, and nothing is contracted or reassociated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from outcrop.errors import shown
from outcrop.language.schema import (
    FIELDS_MOST,
    OPERATIONS_MOST,
    SCALARS_MOST,
    read_hexadecimal,
    read_list,
    read_members,
    read_offset,
    read_whole,
)

OPERATORS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "neg": 1, "sqrt": 1, "abs": 1, "min": 2, "max": 2}
"""Operators and how many operands they take. min and max are `a < b ? a : b` and `a > b ? a : b`."""


@dataclass(frozen=True)
class Load:
    """The value of field number `field` at `offset` (z, y, x): the newest one, or with `age` 1 the one before the
    field's latest update."""

    field: int
    offset: tuple[int, int, int]
    age: int = 0


@dataclass(frozen=True)
class Scalar:
    """Scalar number `index`, rounded to the dtype: a parameter, or behind all parameters a signal."""

    index: int


@dataclass(frozen=True)
class Constant:
    """A number, rounded to the dtype."""

    value: float


@dataclass(frozen=True)
class Apply:
    """An operator on the results of earlier operations, named by their positions."""

    operator: str
    operands: tuple[int, ...]


Operation: TypeAlias = Load | Scalar | Constant | Apply


@dataclass(frozen=True)
class Program:
    """Operations in order, and the positions of those that are results, one for each field that is updated."""

    operations: tuple[Operation, ...]
    results: tuple[int, ...]

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """All loads, in order."""
        return tuple(operation for operation in self.operations if isinstance(operation, Load))

    @cached_property
    def uniform(self) -> tuple[bool, ...]:
        """For each operation, whether its value is the same for every cell."""
        found: list[bool] = []
        for operation in self.operations:
            match operation:
                case Load():
                    found.append(False)
                case Apply(_, operands):
                    found.append(all(found[i] for i in operands))
                case _:
                    found.append(True)
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """One list per operation; floats as hexadecimal, so that they come back exactly."""
        rows: list[list[Any]] = []
        for operation in self.operations:
            match operation:
                case Load(field, offset, age):
                    rows.append(["load", field, *offset, age])
                case Scalar(index):
                    rows.append(["scalar", index])
                case Constant(value):
                    rows.append(["constant", value.hex()])
                case Apply(operator, operands):
                    rows.append([operator, *operands])
        return {"operations": rows, "results": list(self.results)}

    @classmethod
    def from_json(cls, data: object) -> Program:
        """The program that `to_json` described; ValueError when it is not one. Whether its fields and scalars exist,
        the caller knows."""
        members = read_members(data, "a program", "operations", "results")
        rows = read_list(members["operations"], "operations", OPERATIONS_MOST, least=1)
        operations = tuple(_read_operation(row, place) for place, row in enumerate(rows))
        results = read_list(members["results"], "results", FIELDS_MOST, least=1)
        return cls(operations, tuple(read_whole(place, "the place of a result", len(operations)) for place in results))


def _read_operation(row: object, place: int) -> Operation:
    """The operation that a row of `to_json` describes, which is number `place`."""
    match row:
        case ["load", field, dz, dy, dx, age]:
            return Load(
                read_whole(field, "the number of a field", FIELDS_MOST),
                read_offset([dz, dy, dx]),
                read_whole(age, "the age of a value", 2),
            )
        case ["scalar", index]:
            return Scalar(read_whole(index, "the number of a scalar", SCALARS_MOST))
        case ["constant", text]:
            return Constant(read_hexadecimal(text, "a constant"))
        case [str(operator), *operands] if OPERATORS.get(operator) == len(operands):
            earlier = tuple(i for i in operands if type(i) is int and 0 <= i < place)
            if len(earlier) == len(operands):
                return Apply(operator, earlier)
            raise ValueError(f"operation {place}, {shown(row)}, uses one that is not before it")
    raise ValueError(f"operation {place}, {shown(row)}, is unknown")
