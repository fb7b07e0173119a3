"""The lowered form of expressions: operations in one fixed order, each using earlier ones.

This order is the definition of a stencil's bits. The C generator and the NumPy oracle follow it operation by
operation, every operation rounds once to the field's dtype, and nothing is contracted or reassociated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

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

    @property
    def loads(self) -> tuple[Load, ...]:
        """All loads, in order."""
        return tuple(operation for operation in self.operations if isinstance(operation, Load))

    @property
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
    def from_json(cls, data: dict[str, Any]) -> Program:
        """The program that `to_json` described; ValueError when it is not one."""
        operations: list[Operation] = []
        for row in data["operations"]:
            match row:
                case ["load", int(field), int(dz), int(dy), int(dx), int(age)] if age in (0, 1):
                    operations.append(Load(field, (dz, dy, dx), age))
                case ["scalar", int(index)]:
                    operations.append(Scalar(index))
                case ["constant", str(text)]:
                    operations.append(Constant(float.fromhex(text)))
                case [str(operator), *operands] if OPERATORS.get(operator) == len(operands):
                    if not all(isinstance(i, int) and 0 <= i < len(operations) for i in operands):
                        raise ValueError(f"operation {row} uses one that is not before it")
                    operations.append(Apply(operator, tuple(operands)))
                case _:
                    raise ValueError(f"unknown operation {row}")
        results = tuple(data["results"])
        if not results or not all(isinstance(i, int) and 0 <= i < len(operations) for i in results):
            raise ValueError(f"results {list(results)} are not operations of the program")
        return cls(tuple(operations), results)
