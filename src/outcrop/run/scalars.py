"""The parameters and signals of a run, in the form in which kernels read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.language.stencil import Stencil

Signal: TypeAlias = "Sequence[float] | NDArray[np.float64]"
"""A sequence with one value for each step. The first value is for the first step of the simulation."""


class Scalars:
    """The parameters and signals of a stencil, rounded to `dtype`, in the order in which kernels read them.

    `parameters` has the values that differ from the defaults. For each signal, `signals` has a sequence with a value
    for each step.
    """

    def __init__(
        self, stencil: Stencil, parameters: Mapping[str, float], signals: Mapping[str, Signal], dtype: str
    ) -> None:
        self._parameters = np.array(stencil.scalars(parameters), dtype)
        self._signals = [np.asarray(signals.get(name, ()), dtype) for name in stencil.signals]
        self._dtype, self._count = np.dtype(dtype), len(self._parameters) + len(self._signals)

    @property
    def bytes_per_step(self) -> int:
        """The number of bytes of scalars for each step, or 0 if all steps have the same scalars."""
        return self._count * self._dtype.itemsize if self._signals else 0

    def of_steps(self, first: int, count: int) -> bytes:
        """Return the scalars of `count` steps from step `first` on. If the stencil has no signals, all steps have the
        same scalars, and the result has these scalars once.

        In steps after the last value of a signal, the signal is 0. Measurements need this rule, because they may run
        more steps than the simulation has.
        """
        rows = np.zeros((max(1, count) if self._signals else 1, self._count), self._dtype)
        rows[:, : len(self._parameters)] = self._parameters
        for column, signal in enumerate(self._signals, len(self._parameters)):
            values = signal[first : first + len(rows)]
            rows[: len(values), column] = values
        return rows.tobytes()


def pack_scalars(stencil: Stencil, values: Mapping[str, float], dtype: str) -> bytes:
    """Return the values of the parameters in the form that the kernel reads: in the stencil's order and rounded to
    `dtype`. All signals are 0."""
    return Scalars(stencil, values, {}, dtype).of_steps(0, 0)
