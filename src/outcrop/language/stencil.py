"""What one step does to a grid: fields, parameters, and an update in a form that C and NumPy follow alike.

    u, k = Field("u"), Parameter("k", 0.1)
    smooth = Stencil("smooth", {u: u[0, 0, 0] + k * (u[0, 0, 1] - 2 * u[0, 0, 0] + u[0, 0, -1])})

Offsets are (z, y, x) in cells. A Stencil holds no SymPy: it is lowered at once to a Program, which is plain
data, goes into the run's manifest and comes back from it without the user's script.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from outcrop.errors import InputError
from outcrop.language.program import Load, Program, Scalar


@dataclass(frozen=True)
class Field:
    """A quantity with one value per cell. `u[dz, dy, dx]` is its value at an offset, for use in expressions."""

    name: str

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise InputError(f"field name {self.name!r} is not an identifier")

    def __getitem__(self, offset: tuple[int, int, int]) -> sympy.Expr:
        if not (isinstance(offset, tuple) and len(offset) == 3 and all(isinstance(step, int) for step in offset)):
            raise InputError(f"{self.name}[{offset}]: an offset is three whole numbers, (z, y, x)")
        return sympy.Function(self.name, real=True)(*offset)


class Parameter(sympy.Symbol):  # type: ignore[misc]
    """A scalar of a stencil that can be set for each run. Use it in expressions like any SymPy symbol."""

    default: float

    def __new__(cls, name: str, default: float) -> Parameter:
        """A parameter called `name`, `default` unless a run sets it."""
        if not name.isidentifier():
            raise InputError(f"parameter name {name!r} is not an identifier")
        parameter: Parameter = sympy.Symbol.__xnew__(cls, name, real=True)
        parameter.default = float(default)
        return parameter

    def _hashable_content(self) -> tuple[Any, ...]:
        # SymPy's cache hands out any symbol that compares equal: without the default, that of another stencil.
        return (*super()._hashable_content(), self.default)


@dataclass(frozen=True)
class ParameterValue:
    """Name and default of a parameter as a Stencil keeps them."""

    name: str
    default: float


@dataclass(frozen=True, init=False)
class Stencil:
    """One explicit update of one field. Equal stencils compute the same bits.

    `program` computes the new value of a cell from the old values around it; `parameters` are in the order
    kernels expect them.
    """

    name: str
    fields: tuple[Field, ...]
    parameters: tuple[ParameterValue, ...]
    program: Program
    equation: str

    def __init__(self, name: str, updates: Mapping[Field, Any], equation: str = "") -> None:
        from outcrop.language.lower import lower  # SymPy's walk is only needed for new stencils

        if not updates or len(updates) > 1:
            raise InputError(f"stencil {name!r} updates {len(updates)} fields; exactly one is possible")
        (target, expression), *_ = updates.items()
        try:
            lowered = sympy.sympify(expression, strict=True)  # strict: text would be evaluated as a program
        except sympy.SympifyError:
            raise InputError(
                f"stencil {name!r}: {expression!r} is not an expression of fields and parameters"
            ) from None
        symbols = sorted(lowered.free_symbols, key=str)
        for symbol in symbols:
            if not isinstance(symbol, Parameter):
                raise InputError(f"stencil {name!r}: {symbol} is neither a Parameter nor a field at an offset")
        parameters = tuple(ParameterValue(symbol.name, symbol.default) for symbol in symbols)
        if len({parameter.name for parameter in parameters}) != len(parameters):
            raise InputError(f"stencil {name!r}: two parameters have the same name")
        program = lower(name, lowered, (target.name,), tuple(parameter.name for parameter in parameters))
        self._set(name, (target,), parameters, program, equation or f"{target.name}' = {expression}")

    def _set(
        self,
        name: str,
        fields: tuple[Field, ...],
        parameters: tuple[ParameterValue, ...],
        program: Program,
        equation: str,
    ) -> None:
        for key, value in zip(
            ("name", "fields", "parameters", "program", "equation"),
            (name, fields, parameters, program, equation),
            strict=True,
        ):
            object.__setattr__(self, key, value)

    @property
    def radii(self) -> tuple[int, int, int]:
        """The largest offset along z, y and x: the thickness of the fixed rim."""
        offsets = [load.offset for load in self.program.loads]
        return tuple(max((abs(offset[axis]) for offset in offsets), default=0) for axis in range(3))  # type: ignore[return-value]

    @property
    def radius(self) -> int:
        """The largest offset along any axis."""
        return max(self.radii)

    def scalars(self, values: Mapping[str, float]) -> tuple[float, ...]:
        """Parameter values in kernel order: from `values`, else defaults. Raises InputError for a name there is
        not."""
        known = {parameter.name for parameter in self.parameters}
        for name in values:
            if name not in known:
                there = ", ".join(sorted(known)) or "none"
                raise InputError(f"stencil {self.name!r} has no parameter {name!r}; there are: {there}")
        return tuple(float(values.get(parameter.name, parameter.default)) for parameter in self.parameters)

    def to_json(self) -> dict[str, Any]:
        """Plain data from which `from_json` makes an equal stencil."""
        return {
            "name": self.name,
            "fields": [field.name for field in self.fields],
            "parameters": [[parameter.name, parameter.default] for parameter in self.parameters],
            "program": self.program.to_json(),
            "equation": self.equation,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Stencil:
        """The stencil that `to_json` described. Raises InputError when the data is not that."""
        stencil = cls.__new__(cls)
        try:
            fields = tuple(Field(name) for name in data["fields"])
            parameters = tuple(ParameterValue(str(name), float(default)) for name, default in data["parameters"])
            program = Program.from_json(data["program"])
            stencil._set(str(data["name"]), fields, parameters, program, str(data["equation"]))
            for operation in program.operations:
                if isinstance(operation, Load) and not 0 <= operation.field < len(fields):
                    raise ValueError(f"no field {operation.field}")
                if isinstance(operation, Scalar) and not 0 <= operation.index < len(parameters):
                    raise ValueError(f"no parameter {operation.index}")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not the description of a stencil: {error}") from None
        return stencil

    def digest(self) -> str:
        """A short name of the content: fields, parameters and program."""
        content = {key: value for key, value in self.to_json().items() if key not in ("name", "equation")}
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
