"""Traces of receivers and norms, row by row in files that grow with the run.

    run.oc/.taps/trace-line    after step k its row k - 1: float64 for every point
    run.oc/.taps/norms-u       after step k its row k / every: step, sum, squares, min, max

Without initial values norms begin with the row of step `every`. The rows of a pass are written and flushed before it is
committed. Rows beyond the manifest's step do not count, and a pass that is done again writes them again, so nothing is
ever there twice.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import StorageError
from outcrop.run.disk.directory import TAPS
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.state import State

NORMS = np.dtype([(name, "<f8") for name in ("step", "sum", "squares", "min", "max")])
"""A row of norms."""


def create_records(directory: Path, manifest: Manifest) -> None:
    """Make the files, without rows. Raises OSError."""
    norms = manifest.taps.norms.fields if manifest.taps.norms else ()
    paths = [trace_path(directory, name) for name in manifest.taps.traces]
    for path in paths + [norms_path(directory, name) for name in norms]:
        path.touch()


def write_rows(path: Path, first_row: int, rows: NDArray[Any]) -> None:
    """Write rows from number `first_row` on, durably. Raises StorageError."""
    data = np.ascontiguousarray(rows)
    row_bytes = data.nbytes // max(1, len(data))
    try:
        with open(path, "r+b") as file:
            file.seek(first_row * row_bytes)
            file.write(data.tobytes())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def trace_path(directory: Path, name: str) -> Path:
    """The file of a trace."""
    return directory / TAPS / f"trace-{name}"


def norms_path(directory: Path, field: str) -> Path:
    """The file of a field's norms."""
    return directory / TAPS / f"norms-{field}"


class Records(Mapping[str, NDArray[Any]], ABC):
    """Arrays by name, read when asked for, as of the last commit. Raises KeyError for other names."""

    def __init__(self, state: State | None, manifest: Manifest) -> None:
        self._state, self._manifest = state, manifest
        self._names = self._known(manifest)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(f"there is no {name!r}; there are: {', '.join(self._names) or 'none'}")
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
    def _known(manifest: Manifest) -> tuple[str, ...]:
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
    def _known(manifest: Manifest) -> tuple[str, ...]:
        return tuple(manifest.taps.traces)

    def _empty(self, name: str) -> NDArray[Any]:
        return np.zeros((0, self._manifest.taps.traces[name]))

    def _read(self, state: State, name: str) -> NDArray[Any]:
        points, steps = state.manifest.taps.traces[name], state.manifest.step
        return _rows(trace_path(state.records_path, name), steps * points, np.dtype("<f8")).reshape(steps, points)


class NormRecords(Records):
    """Sums of fields: a row with `step`, `sum`, `squares`, `min` and `max` for each time."""

    @staticmethod
    def _known(manifest: Manifest) -> tuple[str, ...]:
        return manifest.taps.norms.fields if manifest.taps.norms else ()

    def _empty(self, name: str) -> NDArray[Any]:
        return np.zeros(0, NORMS)

    def _read(self, state: State, name: str) -> NDArray[Any]:
        entry = state.manifest.taps.norms
        assert entry is not None
        return _rows(norms_path(state.records_path, name), entry.count(state.manifest.step), NORMS)


def _rows(path: Path, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        found = np.fromfile(path, dtype, count)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from None
    if len(found) < count:
        raise StorageError(f"{path} has {len(found)} values, {count} belong there")
    return found
