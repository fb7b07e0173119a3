"""What kernels get besides fields: parameters, and signals, which have another value in every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.language.stencil import Stencil

Signal: TypeAlias = "Sequence[float] | NDArray[np.float64]"
"""A value for every step, counted from the first one of a simulation."""


class Scalars:
    """Parameters and signals of a stencil, rounded to `dtype`, in the order in which kernels read them."""

    def __init__(
        self, stencil: Stencil, parameters: Mapping[str, float], signals: Mapping[str, Signal], dtype: str
    ) -> None:
        """`parameters` are those that differ from their defaults; `signals` have a value for every step."""
        self._parameters = np.array(stencil.scalars(parameters), dtype)
        self._names, self._dtype = stencil.signals, np.dtype(dtype)
        self._signals = [np.asarray(signals.get(name, ()), dtype) for name in self._names]

    @property
    def bytes_per_step(self) -> int:
        """Bytes from the scalars of one step to those of the next; 0 when all steps have the same."""
        return (len(self._parameters) + len(self._signals)) * self._dtype.itemsize if self._signals else 0

    def of_steps(self, first: int, count: int) -> bytes:
        """Those of `count` steps from step `first` on; of any step when there are no signals. Steps beyond the end of a
        signal have 0, for measurements."""
        rows = np.zeros(
            (max(1, count) if self._signals else 1, len(self._parameters) + len(self._signals)), self._dtype
        )
        rows[:, : len(self._parameters)] = self._parameters
        for column, signal in enumerate(self._signals, len(self._parameters)):
            values = signal[first : first + len(rows)]
            rows[: len(values), column] = values
        return rows.tobytes()
