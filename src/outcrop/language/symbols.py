"""What expressions of a stencil are made of: fields at offsets, parameters, and signals."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import sympy

from outcrop.errors import InputError

PREVIOUS = ".previous"
"""Behind the name of a field: its value before the latest update."""


@dataclass(frozen=True)
class Field:
    """A quantity with one value per cell.

    `u[dz, dy, dx]` is its newest value at an offset, for use in expressions: `u[dy, dx]` and `u[dx]` on grids of two
    axes and of one. `u.previous[...]` is the value before the latest update.
    """

    name: str

    def __post_init__(self) -> None:
        _require_identifier(self.name, "field")

    def __getitem__(self, offset: tuple[int, ...] | int) -> sympy.Expr:
        return _at(self.name, offset)

    @property
    def previous(self) -> PreviousField:
        """The values before the latest update."""
        return PreviousField(self)


@dataclass(frozen=True)
class PreviousField:
    """The values that a field had before its latest update."""

    field: Field

    def __getitem__(self, offset: tuple[int, ...] | int) -> sympy.Expr:
        return _at(self.field.name + PREVIOUS, offset)


class Parameter(sympy.Symbol):  # type: ignore[misc]
    """A scalar of a stencil that can be set for each run. Use it in expressions like any SymPy symbol."""

    default: float

    def __new__(cls, name: str, default: float) -> Parameter:
        """A parameter called `name`, `default` unless a run sets it."""
        _require_identifier(name, "parameter")
        try:
            number = float(default)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise InputError(f"parameter {name}: default {default!r} must be a finite number")
        parameter: Parameter = sympy.Symbol.__xnew__(cls, name, real=True)
        parameter.default = number
        return parameter

    def _hashable_content(self) -> tuple[Any, ...]:
        # SymPy's cache hands out any symbol that compares equal: without the default, that of another stencil.
        return (*super()._hashable_content(), self.default)


@dataclass(frozen=True)
class ParameterValue:
    """Name and default of a parameter as a Stencil keeps them."""

    name: str
    default: float


class Signal(sympy.Symbol):  # type: ignore[misc]
    """A scalar with a value of its own in every step: a wavelet, a coefficient that depends on time."""

    def __new__(cls, name: str) -> Signal:
        """A signal called `name`; a run gives its values."""
        _require_identifier(name, "signal")
        signal: Signal = sympy.Symbol.__xnew__(cls, name, real=True)
        return signal


def _require_identifier(name: object, what: str) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"{what} name {name!r} is not an identifier")


def _at(name: str, offset: tuple[int, ...] | int) -> sympy.Expr:
    try:
        steps = tuple(operator.index(step) for step in (offset if isinstance(offset, tuple) else (offset,)))
    except TypeError:
        steps = ()
    if not 1 <= len(steps) <= 3:
        raise InputError(f"{name}[{offset}]: an offset is one to three whole numbers, (z, y, x), (y, x) or x")
    return sympy.Function(name, real=True)(*steps)
