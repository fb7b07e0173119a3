"""Traces of receivers and norms, as of the last commit: `sim.traces`, `sim.norms`. Their files are those of
tap_files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import shown
from outcrop.run.disk.manifest import Description
from outcrop.run.disk.state import State
from outcrop.run.disk.tap_files import read_rows

NORMS = np.dtype([(name, "<f8") for name in ("step", "sum", "squares", "min", "max")])
"""A row of norms."""


class Records(Mapping[str, NDArray[Any]], ABC):
    """Arrays by name, read when asked for, as of the last commit. Raises KeyError for other names."""

    def __init__(self, state: State | None, manifest: Description) -> None:
        self._state, self._manifest = state, manifest
        self._names = self._known(manifest)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if not isinstance(name, str) or name not in self._names:
            raise KeyError(f"there is no {shown(name)}; there are: {', '.join(self._names) or 'none'}")
        if self._state is None:
            return self._empty(name)
        self._state.refresh()
        return self._read(self._state, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {', '.join(self._names) or 'none'}>"

    @staticmethod
    @abstractmethod
    def _known(manifest: Description) -> tuple[str, ...]:
        """The names there are."""

    @abstractmethod
    def _empty(self, name: str) -> NDArray[Any]:
        """What there is before the first step."""

    @abstractmethod
    def _read(self, state: State, name: str) -> NDArray[Any]:
        """What there is now."""


class Traces(Records):
    """What receivers recorded: float64, shape (steps so far, points)."""

    @staticmethod
    def _known(manifest: Description) -> tuple[str, ...]:
        return tuple(manifest.taps.traces)

    def _empty(self, name: str) -> NDArray[Any]:
        return np.zeros((0, self._manifest.taps.traces[name]))

    def _read(self, state: State, name: str) -> NDArray[Any]:
        points, steps = state.manifest.taps.traces[name], state.manifest.step
        return np.frombuffer(read_rows(state.records, state.manifest, f"trace-{name}"), "<f8").reshape(steps, points)


class NormRecords(Records):
    """Sums of fields: a row with `step`, `sum`, `squares`, `min` and `max` for each time."""

    @staticmethod
    def _known(manifest: Description) -> tuple[str, ...]:
        return manifest.taps.norms.fields if manifest.taps.norms else ()

    def _empty(self, name: str) -> NDArray[Any]:
        return np.zeros(0, NORMS)

    def _read(self, state: State, name: str) -> NDArray[Any]:
        return np.frombuffer(read_rows(state.records, state.manifest, f"norms-{name}"), NORMS)
