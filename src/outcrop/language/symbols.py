"""Parameters and signals, the parts of a stencil's expressions that are no fields; they are symbols of SymPy."""

from __future__ import annotations

from typing import Any

import sympy

from outcrop.language.field import PREVIOUS, Field, ParameterValue, PreviousField
from outcrop.language.schema import as_finite, require_name

__all__ = ["PREVIOUS", "Field", "Parameter", "ParameterValue", "PreviousField", "Signal"]


class Parameter(sympy.Symbol):  # type: ignore[misc]
    """A scalar of a stencil that can be set for each run. Use it in expressions like any SymPy symbol."""

    default: float

    def __new__(cls, name: str, default: float) -> Parameter:
        """A parameter called `name`, `default` unless a run sets it."""
        require_name(name, "parameter")
        number = as_finite(default, f"parameter {name}: default")
        parameter: Parameter = sympy.Symbol.__xnew__(cls, name, real=True)
        parameter.default = number
        return parameter

    def _hashable_content(self) -> tuple[Any, ...]:
        # SymPy's cache hands out any symbol that compares equal: without the default, that of another stencil.
        return (*super()._hashable_content(), self.default)


class Signal(sympy.Symbol):  # type: ignore[misc]
    """A scalar with a value of its own in every step: a wavelet, a coefficient that depends on time."""

    def __new__(cls, name: str) -> Signal:
        """A signal called `name`; a run gives its values."""
        require_name(name, "signal")
        signal: Signal = sympy.Symbol.__xnew__(cls, name, real=True)
        return signal
