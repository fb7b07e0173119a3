"""Fields, and parameters as stencils keep them. SymPy is imported when expressions are written, not before."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outcrop.errors import InputError, shown
from outcrop.language.schema import OFFSET_MOST, require_name

if TYPE_CHECKING:
    import sympy

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
        require_name(self.name, "field")

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


@dataclass(frozen=True)
class ParameterValue:
    """Name and default of a parameter as a Stencil keeps them."""

    name: str
    default: float


def _at(name: str, offset: tuple[int, ...] | int) -> sympy.Expr:
    import sympy

    try:
        steps = tuple(operator.index(step) for step in (offset if isinstance(offset, tuple) else (offset,)))
    except TypeError:
        steps = ()
    if not 1 <= len(steps) <= 3:
        raise InputError(f"{name}[{shown(offset)}]: an offset is one to three whole numbers, (z, y, x), (y, x) or x")
    if any(abs(step) > OFFSET_MOST for step in steps):
        raise InputError(f"{name}[{shown(offset)}]: an offset reaches at most {OFFSET_MOST} cells along an axis")
    return sympy.Function(name, real=True)(*steps)
