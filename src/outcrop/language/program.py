"""The lowered form of expressions: operations in one fixed order, each using earlier ones, and the stages they make up.

The order of operations is the definition of a stencil's bits. The C generator and the NumPy oracle follow it operation
by operation, every operation rounds once to the field's dtype, and nothing is contracted or reassociated.

A kernel reads and writes by the numbers in a program alone, without asking, so each of them is compared here with what
there is. The messages of ValueError are parts of sentences that the caller begins with which stencil it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from outcrop.axes import NAMES, PLACES
from outcrop.errors import shown
from outcrop.language.schema import (
    MAX_FIELDS,
    MAX_OFFSET,
    MAX_OPERANDS,
    MAX_OPERATIONS,
    MAX_SCALARS,
    MAX_SPAN,
    read_hexadecimal,
    read_list,
    read_members,
    read_offset,
    read_whole,
)

OPERATORS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "neg": 1, "sqrt": 1, "abs": 1, "min": 2, "max": 2}
"""The number of operands of each operator. min and max are `a < b ? a : b` and `a > b ? a : b`."""


@dataclass(frozen=True)
class Load:
    """The value of field number `field` at `offset` (z, y, x): the newest one if `age` is 0, or the one before the
    field's latest update if `age` is 1."""

    field: int
    offset: tuple[int, int, int]
    age: int = 0


@dataclass(frozen=True)
class Scalar:
    """Scalar number `index`, rounded to the dtype. Parameters are counted first, then signals."""

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
    """Operations in order, and the positions of the results, one for each field that is updated."""

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

    def require_sound(self, fields: int, scalars: int) -> None:
        """Raise ValueError if the program is too long, loads what does not exist, or loads from too far away."""
        if len(self.operations) > MAX_OPERATIONS:
            raise ValueError(f"{len(self.operations)} operations, at most {MAX_OPERATIONS} are possible")
        for operation in self.operations:
            match operation:
                case Load(field, offset, _):
                    if not 0 <= field < fields:
                        raise ValueError(f"field number {field} is read; there are {fields}")
                    if max(map(abs, offset)) > MAX_OFFSET:
                        raise ValueError(f"offset {offset} reaches farther than {MAX_OFFSET} cells")
                case Scalar(index) if not 0 <= index < scalars:
                    raise ValueError(f"scalar number {index} is read; there are {scalars}")

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
        """The program that `to_json` described. Raises ValueError if it is none. The caller has to check that its
        fields and scalars exist (`require_sound`)."""
        members = read_members(data, "a program", "operations", "results")
        rows = read_list(members["operations"], "operations", MAX_OPERATIONS, minimum=1)
        operations = tuple(_read_operation(row, place) for place, row in enumerate(rows))
        results = read_list(members["results"], "results", MAX_FIELDS, minimum=1)
        return cls(operations, tuple(read_whole(place, "the place of a result", len(operations)) for place in results))


def _read_operation(row: object, place: int) -> Operation:
    """The operation that a row of `to_json` describes, which is number `place`."""
    match row:
        case ["load", field, dz, dy, dx, age]:
            return Load(
                read_whole(field, "the number of a field", MAX_FIELDS),
                read_offset([dz, dy, dx]),
                read_whole(age, "the age of a value", 2),
            )
        case ["scalar", index]:
            return Scalar(read_whole(index, "the number of a scalar", MAX_SCALARS))
        case ["constant", text]:
            return Constant(read_hexadecimal(text, "a constant"))
        case [str(operator), *operands] if OPERATORS.get(operator) == len(operands):
            earlier = tuple(i for i in operands if type(i) is int and 0 <= i < place)
            if len(earlier) == len(operands):
                return Apply(operator, earlier)
            raise ValueError(f"operation {place}, {shown(row)}, uses one that is not before it")
    raise ValueError(f"operation {place}, {shown(row)}, is unknown")


@dataclass(frozen=True)
class Stage:
    """A part of a time step: it gives the fields numbered `targets` new values, from the values before the stage.

    `program` has one result for each target.
    """

    targets: tuple[int, ...]
    program: Program

    @cached_property
    def radii(self) -> tuple[int, int, int]:
        """The largest offset along z, y and x."""
        offsets = [load.offset for load in self.program.loads]
        return tuple(max((abs(offset[axis]) for offset in offsets), default=0) for axis in range(3))  # type: ignore[return-value]

    @cached_property
    def operands(self) -> tuple[tuple[int, int], ...]:
        """Pairs (field, age) that its kernel takes: the newest values of its targets, then what it loads."""
        targets = [(field, 0) for field in self.targets]
        return tuple(dict.fromkeys([*targets, *((load.field, load.age) for load in self.program.loads)]))

    @cached_property
    def reaches(self) -> dict[tuple[int, int], bool]:
        """For each pair (field, age) that it reads, whether it reads neighbours."""
        found: dict[tuple[int, int], bool] = {}
        for load in self.program.loads:
            key = load.field, load.age
            found[key] = found.get(key, False) or load.offset != (0, 0, 0)
        return found

    @property
    def span(self) -> int:
        """The cells of all rows that it reads to update one cell, from the first to the last in each row."""
        rows: dict[tuple[int, int, int, int], list[int]] = {}
        for load in self.program.loads:
            dz, dy, dx = load.offset
            rows.setdefault((load.field, load.age, dz, dy), [0]).append(dx)
        return sum(max(row) - min(row) + 1 for row in rows.values())

    def require_sound(self, fields: int, scalars: int, ndim: int) -> None:
        """Raise ValueError unless a kernel of the stage reads and writes only what exists in a stencil with so many
        fields and scalars, on a grid of `ndim` axes."""
        if len(self.targets) != len(self.program.results) or len(set(self.targets)) != len(self.targets):
            raise ValueError("a stage needs one result for each of its fields, and each field once")
        for field in self.targets:
            if not 0 <= field < fields:
                raise ValueError(f"field number {field} is updated; there are {fields}")
        if len(self.operands) > MAX_OPERANDS:
            raise ValueError(
                f"a stage reads and updates {len(self.operands)} values of fields, at most {MAX_OPERANDS} are "
                "possible; split it into several stages"
            )
        if self.span > MAX_SPAN:
            raise ValueError(
                f"the rows that a stage reads for one cell have {self.span} cells, at most {MAX_SPAN} are possible; "
                "split it into several stages"
            )
        missing = [axis for axis in range(3) if axis not in PLACES[ndim]]
        if any(self.radii[axis] for axis in missing):
            raise ValueError(f"offsets along {' and '.join(NAMES[3][axis] for axis in missing)} with ndim={ndim}")
        self.program.require_sound(fields, scalars)

    def to_json(self) -> dict[str, Any]:
        """Plain data from which `from_json` makes an equal stage."""
        return {"targets": list(self.targets), "program": self.program.to_json()}

    @classmethod
    def from_json(cls, data: object) -> Stage:
        """The stage that `to_json` described. Raises ValueError if it is none. The caller has to check that its fields
        exist (`require_sound`)."""
        members = read_members(data, "a stage", "targets", "program")
        targets = read_list(members["targets"], "targets of a stage", MAX_FIELDS, minimum=1)
        numbers = tuple(read_whole(field, "the number of a field", MAX_FIELDS) for field in targets)
        return cls(numbers, Program.from_json(members["program"]))


@dataclass(frozen=True)
class Storage:
    """How the values of one field are stored, as required by its stages.

    `is_static`: nothing updates it. `is_double`: an update may not overwrite the value it replaces, because neighbours
    or later stages still read that; the field then has two copies that take turns. `history`: values that have to be
    known before a step, the newest and maybe the one before it.
    """

    is_static: bool
    is_double: bool
    history: int


def storage_of(stages: Sequence[Stage], field: int) -> Storage:
    """The storage that the stages require for a field."""
    is_double, history, is_updated = False, 1, False
    for stage in stages:
        updates = field in stage.targets
        if (field, 1) in stage.reaches:
            is_double = True
            if updates and stage.reaches[field, 1]:
                raise ValueError("reads its previous value at neighbours in its own update")
            history = history if is_updated else 2
        if updates and stage.reaches.get((field, 0)):
            is_double = True
        is_updated = is_updated or updates
    if not is_updated and is_double:
        raise ValueError("has no previous value, because nothing updates it")
    return Storage(not is_updated, is_double, history)
