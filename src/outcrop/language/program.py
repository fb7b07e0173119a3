"""Define the lowered form of expressions. A program is a list of operations in a fixed order. A stage has one program.

The order of operations defines the bits of a stencil. The C generator and the NumPy oracle follow the order of the
program, operation by operation. Each operation rounds once to the field's dtype. No operations are contracted or
reassociated. Functions such as exp are also lists of elementary operations.

A kernel does not check the field numbers and offsets in a program. So this file checks each field number and each
offset. The caller puts the name of the stencil before the message of a ValueError.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

from outcrop.axes import NAMES, PLACES
from outcrop.errors import shown
from outcrop.language import schema
from outcrop.language.functions import FUNCTIONS, call

OPERATORS = {
    **{"add": 2, "sub": 2, "mul": 2, "div": 2, "neg": 1, "sqrt": 1, "abs": 1, "min": 2, "max": 2},
    **{"where": 4, "where_equal": 4},
    **FUNCTIONS,
}
"""The number of operands of each operator. min(a, b) is `a < b ? a : b`, max(a, b) is `a > b ? a : b`,
where(a, b, c, d) is `a > b ? c : d`, and where_equal(a, b, c, d) is `a == b ? c : d`."""


@dataclass(frozen=True)
class Load:
    """A load reads the value of field number `field` at `offset` (z, y, x). If `age` is 0, the load reads the newest
    value. If `age` is 1, the load reads the value before the field's latest update."""

    field: int
    offset: tuple[int, int, int]
    age: int = 0


@dataclass(frozen=True)
class Scalar:
    """A parameter or a signal: scalar number `index`, rounded to the dtype. The parameters have the first numbers. The
    signals have the next numbers."""

    index: int


@dataclass(frozen=True)
class Constant:
    """A number, rounded to the dtype."""

    value: float


@dataclass(frozen=True)
class CellIndex:
    """The index of the updated cell along an axis of the engine. Axis 0 is z. The first cell of the grid has the index
    0. On a rank, indices are also counted from the first cell of the whole grid."""

    axis: int


@dataclass(frozen=True)
class CellCount:
    """The number of cells of the whole grid along an axis of the engine."""

    axis: int


@dataclass(frozen=True)
class Apply:
    """An operator applied to the results of earlier operations. `operands` are the positions of these operations."""

    operator: str
    operands: tuple[int, ...]


Operation: TypeAlias = Load | Scalar | Constant | CellIndex | CellCount | Apply


def is_uniform(operation: Operation, earlier: Sequence[bool]) -> bool:
    """Return True if the value of an operation is the same for every cell. `earlier` contains the results of this
    function for the earlier operations."""
    if isinstance(operation, Apply):
        return all(earlier[i] for i in operation.operands)
    return not isinstance(operation, Load | CellIndex)


@dataclass(frozen=True)
class Program:
    """Operations in order. `results` are the positions of the new values, one for each field that is updated."""

    operations: tuple[Operation, ...]
    results: tuple[int, ...]

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        return tuple(operation for operation in self.operations if isinstance(operation, Load))

    @cached_property
    def uniform(self) -> tuple[bool, ...]:
        """One flag for each operation: True if the value of the operation is the same for every cell."""
        found: list[bool] = []
        for operation in self.operations:
            found.append(is_uniform(operation, found))
        return tuple(found)

    @cached_property
    def is_constant_in_row(self) -> tuple[bool, ...]:
        """One flag for each operation: True if the value of the operation is the same for every cell of a row."""
        found: list[bool] = []
        for operation in self.operations:
            match operation:
                case Apply(_, operands):
                    found.append(all(found[i] for i in operands))
                case CellIndex(axis):
                    found.append(axis != 2)
                case _:
                    found.append(not isinstance(operation, Load))
        return tuple(found)

    @cached_property
    def positions(self) -> frozenset[int]:
        """The axes of the engine along which the program reads the index of the cell or the number of cells."""
        return frozenset(one.axis for one in self.operations if isinstance(one, CellIndex | CellCount))

    def require_sound(self, fields: int, scalars: int) -> None:
        """Raise ValueError if the program is too long, if it reads a field or scalar that does not exist, or if an
        offset is too large."""
        if len(self.operations) > schema.MAX_OPERATIONS:
            raise ValueError(f"{len(self.operations)} operations, at most {schema.MAX_OPERATIONS} are possible")
        for operation in self.operations:
            match operation:
                case Load(field, offset, _):
                    if not 0 <= field < fields:
                        raise ValueError(f"field number {field} is read; there are {fields}")
                    if max(map(abs, offset)) > schema.MAX_OFFSET:
                        raise ValueError(f"offset {offset} reaches farther than {schema.MAX_OFFSET} cells")
                case Scalar(index) if not 0 <= index < scalars:
                    raise ValueError(f"scalar number {index} is read; there are {scalars}")

    def to_json(self) -> dict[str, Any]:
        """Describe the program as plain data: one list for each operation. Floats are hexadecimal and thus exact."""
        rows: list[list[Any]] = []
        for operation in self.operations:
            match operation:
                case Load(field, offset, age):
                    rows.append(["load", field, *offset, age])
                case Scalar(index):
                    rows.append(["scalar", index])
                case Constant(value):
                    rows.append(["constant", value.hex()])
                case CellIndex(axis):
                    rows.append(["index", axis])
                case CellCount(axis):
                    rows.append(["count", axis])
                case Apply(operator, operands):
                    rows.append([operator, *operands])
        return {"operations": rows, "results": list(self.results)}

    @classmethod
    def from_json(cls, data: object) -> Program:
        """Make the program that `to_json` described. Raises ValueError for other data. The caller must then check that
        the fields and scalars of the program exist (`require_sound`)."""
        members = schema.read_members(data, "a program", "operations", "results")
        rows = schema.read_list(members["operations"], "operations", schema.MAX_OPERATIONS, minimum=1)
        operations = tuple(_read_operation(row, place) for place, row in enumerate(rows))
        places = schema.read_list(members["results"], "results", schema.MAX_FIELDS, minimum=1)
        results = tuple(schema.read_whole(place, "the place of a result", len(operations)) for place in places)
        return cls(operations, results)


def evaluate(
    program: Program, load: Callable[[Load], Any], scalars: Sequence[float], dtype: type,
    position: Callable[[CellIndex | CellCount], Any] | None = None,
) -> list[Any]:  # fmt: skip
    """Run a program with NumPy, operation by operation. The result of each operation is rounded to `dtype`. The results
    are arrays if `load` returns arrays, otherwise NumPy scalars. `scalars` contains the values of the parameters first,
    then the values of the signals. `position` returns the indices of the cells, or an extent. `position` is needed only
    if the program reads positions."""
    import numpy as np  # `outcrop info` reads programs without NumPy, so NumPy is imported only when it is needed

    kind = np.dtype(dtype).name
    functions: dict[str, Callable[..., Any]] = {
        **{name: getattr(operators, name) for name in ("add", "sub", "mul", "neg")},
        "div": operators.truediv,
        "sqrt": np.sqrt,
        "abs": np.abs,
        "min": lambda a, b: np.where(a < b, a, b),
        "max": lambda a, b: np.where(a > b, a, b),
        "where": lambda a, b, c, d: np.where(a > b, c, d),
        "where_equal": lambda a, b, c, d: np.where(a == b, c, d),
        **{name: partial(call, name, kind) for name in FUNCTIONS},
    }
    found: list[Any] = []
    with np.errstate(all="ignore"):
        for operation in program.operations:
            match operation:
                case Load():
                    found.append(load(operation))
                case Scalar(index):
                    found.append(dtype(scalars[index]))
                case Constant(value):
                    found.append(dtype(value))
                case CellIndex() | CellCount():
                    assert position is not None, "the program reads positions"
                    found.append(np.asarray(position(operation), dtype)[()])
                case Apply(operator, operands):
                    found.append(functions[operator](*(found[i] for i in operands)))
    return [found[place] for place in program.results]


def _read_operation(row: object, place: int) -> Operation:
    """Convert a row of the result of `to_json` to an Operation. `place` is the number of this operation in the program.
    """
    match row:
        case ["load", field, dz, dy, dx, age]:
            return Load(
                schema.read_whole(field, "the number of a field", schema.MAX_FIELDS),
                schema.read_offset([dz, dy, dx]),
                schema.read_whole(age, "the age of a value", 2),
            )
        case ["scalar", index]:
            return Scalar(schema.read_whole(index, "the number of a scalar", schema.MAX_SCALARS))
        case ["constant", text]:
            return Constant(schema.read_hexadecimal(text, "a constant"))
        case ["index", axis]:
            return CellIndex(schema.read_whole(axis, "an axis", 3))
        case ["count", axis]:
            return CellCount(schema.read_whole(axis, "an axis", 3))
        case [str(operator), *operands] if OPERATORS.get(operator) == len(operands):
            earlier = tuple(i for i in operands if type(i) is int and 0 <= i < place)
            if len(earlier) == len(operands):
                return Apply(operator, earlier)
            raise ValueError(f"operation {place}, {shown(row)}, uses an operation that is not before it")
    raise ValueError(f"operation {place}, {shown(row)}, is unknown")


@dataclass(frozen=True)
class Stage:
    """A part of a time step. The stage updates the fields whose numbers are `targets`. The stage reads only values that
    exist before the stage begins. `program` has one result for each target."""

    targets: tuple[int, ...]
    program: Program

    @cached_property
    def radii(self) -> tuple[int, int, int]:
        """The largest offsets along z, y and x at which the stage reads."""
        offsets = [load.offset for load in self.program.loads]
        return tuple(max((abs(offset[axis]) for offset in offsets), default=0) for axis in range(3))  # type: ignore[return-value]

    @cached_property
    def operands(self) -> tuple[tuple[int, int], ...]:
        """The pairs (field, age) that the kernel receives: the newest values of the targets, then the values that the
        program loads."""
        targets = [(field, 0) for field in self.targets]
        return tuple(dict.fromkeys([*targets, *((load.field, load.age) for load in self.program.loads)]))

    @cached_property
    def reaches(self) -> dict[tuple[int, int], bool]:
        """A mapping from each pair (field, age) that the stage reads to a flag. The flag is True if the stage also
        reads this pair in neighbouring cells."""
        found: dict[tuple[int, int], bool] = {}
        for load in self.program.loads:
            key = load.field, load.age
            found[key] = found.get(key, False) or load.offset != (0, 0, 0)
        return found

    @property
    def span(self) -> int:
        """The number of cells that the stage reads to update one cell. In each row, all cells from the first to the
        last cell that is read are counted."""
        rows: dict[tuple[int, int, int, int], list[int]] = {}
        for load in self.program.loads:
            dz, dy, dx = load.offset
            rows.setdefault((load.field, load.age, dz, dy), [0]).append(dx)
        return sum(max(row) - min(row) + 1 for row in rows.values())

    def require_sound(self, fields: int, scalars: int, ndim: int) -> None:
        """Raise ValueError if a kernel of the stage reads or writes a field, scalar or cell that does not exist. The
        stencil has `fields` fields and `scalars` scalars, and the grid has `ndim` axes."""
        if len(self.targets) != len(self.program.results) or len(set(self.targets)) != len(self.targets):
            raise ValueError("a stage needs one result for each of its fields, and each field once")
        for field in self.targets:
            if not 0 <= field < fields:
                raise ValueError(f"field number {field} is updated; there are {fields}")
        if len(self.operands) > schema.MAX_OPERANDS:
            raise ValueError(
                f"a stage reads and updates {len(self.operands)} values of fields, at most {schema.MAX_OPERANDS} are "
                "possible; split it into several stages"
            )
        if self.span > schema.MAX_SPAN:
            raise ValueError(
                f"the rows that a stage reads for one cell have {self.span} cells, at most {schema.MAX_SPAN} are "
                "possible; split it into several stages"
            )
        missing = [axis for axis in range(3) if axis not in PLACES[ndim]]
        if any(self.radii[axis] for axis in missing):
            raise ValueError(f"offsets along {' and '.join(NAMES[3][axis] for axis in missing)} with ndim={ndim}")
        if self.program.positions & {*missing}:
            raise ValueError(f"positions along an axis that does not exist with ndim={ndim}")
        self.program.require_sound(fields, scalars)

    def to_json(self) -> dict[str, Any]:
        return {"targets": list(self.targets), "program": self.program.to_json()}

    @classmethod
    def from_json(cls, data: object) -> Stage:
        """Make the stage that `to_json` described. Raises ValueError for other data. The caller must then check that
        the fields of the stage exist (`require_sound`)."""
        members = schema.read_members(data, "a stage", "targets", "program")
        targets = schema.read_list(members["targets"], "targets of a stage", schema.MAX_FIELDS, minimum=1)
        numbers = tuple(schema.read_whole(field, "the number of a field", schema.MAX_FIELDS) for field in targets)
        return cls(numbers, Program.from_json(members["program"]))


@dataclass(frozen=True)
class Storage:
    """Describes how the values of one field are stored.

    `is_static` is true if no stage updates the field. `is_double` is true if the field has two copies, which are
    written alternately. Two copies are needed if the old value of a cell is still read after the update of the cell.
    For example, the update of a neighbour or a later stage can read the old value. `history` is the number of values
    that a step needs: 1 for only the newest value, 2 for the newest and the previous value.
    """

    is_static: bool
    is_double: bool
    history: int


def storage_of(stages: Sequence[Stage], field: int, name: str) -> Storage:
    """Return the storage that the stages require for field number `field`. Raises ValueError if no storage can provide
    a previous value that a stage reads."""
    is_double, history, is_updated = False, 1, False
    for stage in stages:
        updates = field in stage.targets
        if (field, 1) in stage.reaches:
            is_double = True
            if updates and stage.reaches[field, 1]:
                raise ValueError(f"field {name!r} reads its previous value at neighbours in its own update")
            history = history if is_updated else 2
        if updates and stage.reaches.get((field, 0)):
            is_double = True
        is_updated = is_updated or updates
    if not is_updated and is_double:
        raise ValueError(f"field {name!r} has no previous value, because nothing updates it")
    return Storage(not is_updated, is_double, history)
