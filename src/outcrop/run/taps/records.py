"""Traces of receivers and norms, row by row in files that grow with the run.

    run.oc/.taps/trace-line     after step k its row k - 1: float64 for every point
    run.oc/.taps/norms-u        after step k its row k / every: step, sum, squares, min, max
    run.oc/.taps/snapshots-u    a CRC32C of the cells of each snapshot of u, in four bytes

Without initial values norms begin with the row of step `every`. The rows of a pass are written and flushed before it is
committed. Rows beyond the manifest's step do not count, and a pass that is done again writes them again, so nothing is
ever there twice. The manifest has the checksum of all rows that count of each file, which begins with the identity of
the run and the name of the file: rows that are damaged, lost, misplaced or from elsewhere are found.
"""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.durable import Directory
from outcrop.errors import CorruptionError, StorageError
from outcrop.run.disk.contents import TAPS
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.state import State

NORMS = np.dtype([(name, "<f8") for name in ("step", "sum", "squares", "min", "max")])
"""A row of norms."""

_PART_BYTES = 4 << 20


def write_rows(directory: Directory, name: str, first_row: int, rows: NDArray[Any]) -> None:
    """Write rows from number `first_row` on into the file `name` below TAPS, durably. Raises StorageError."""
    data = np.ascontiguousarray(rows)
    row_bytes = data.nbytes // max(1, len(data))
    try:
        directory.write(f"{TAPS}/{name}", first_row * row_bytes, data.reshape(-1).view(np.uint8))
    except OSError as error:
        raise StorageError(f"cannot write {directory.path / TAPS / name}: {error.strerror}") from error


def continued(checksum: int, rows: NDArray[Any]) -> int:
    """The checksum of a file to which rows are added."""
    return int(_core.crc32c(np.ascontiguousarray(rows).reshape(-1).view(np.uint8), checksum))


def check_records(directory: Directory, manifest: Manifest) -> None:
    """Raise CorruptionError when a file below TAPS is not what was committed, StorageError when it cannot be read."""
    for name in manifest.taps.files:
        if damage := damage_of(directory, manifest, name):
            raise CorruptionError(
                f"{damage}; put back a copy, or keep what is there with: outcrop verify --repair {directory.path}"
            )


def check_sizes(directory: Directory, manifest: Manifest) -> None:
    """Raise StorageError when a file below TAPS is missing or too short."""
    for name, count in _counted(manifest).items():
        path = directory.path / TAPS / name
        try:
            status = directory.status(f"{TAPS}/{name}")
        except OSError as error:
            raise StorageError(f"{path} cannot be used: {error.strerror}") from None
        if status is None or not stat.S_ISREG(status.st_mode):
            raise StorageError(f"{path} is missing; put back a copy")
        if status.st_size < count:
            raise StorageError(f"{path} has {status.st_size} bytes, {count} belong there")


def damage_of(directory: Directory, manifest: Manifest, name: str) -> str:
    """What is wrong with a file below TAPS, in words; "" if nothing. Raises StorageError when it cannot be read."""
    count, path = _counted(manifest)[name], directory.path / TAPS / name
    found, checksum = checksum_of(directory, manifest, name)
    if found < count:
        return f"{path} has {found} bytes, {count} belong there"
    return "" if checksum == manifest.sums[name] else f"{path} is damaged: checksum mismatch"


def checksum_of(directory: Directory, manifest: Manifest, name: str) -> tuple[int, int]:
    """How many bytes of a file below TAPS count and are there, and their checksum."""
    count, done, checksum = _counted(manifest)[name], 0, manifest.seed(name, 0)
    try:
        with directory.opened(f"{TAPS}/{name}") as handle:
            while part := directory.read_from(handle, done, min(_PART_BYTES, count - done)):
                checksum, done = _core.crc32c(part, checksum), done + len(part)
    except OSError as error:
        raise StorageError(f"{directory.path / TAPS / name} cannot be read: {error.strerror}") from None
    return done, checksum


def _counted(manifest: Manifest) -> dict[str, int]:
    """Bytes of each file that count at the manifest's step."""
    rows = manifest.taps.records(manifest.step)
    return manifest.taps.definitions | {name: row_bytes * count for name, (row_bytes, count) in rows.items()}


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
        return _rows(state, f"trace-{name}", np.dtype("<f8")).reshape(steps, points)


class NormRecords(Records):
    """Sums of fields: a row with `step`, `sum`, `squares`, `min` and `max` for each time."""

    @staticmethod
    def _known(manifest: Manifest) -> tuple[str, ...]:
        return manifest.taps.norms.fields if manifest.taps.norms else ()

    def _empty(self, name: str) -> NDArray[Any]:
        return np.zeros(0, NORMS)

    def _read(self, state: State, name: str) -> NDArray[Any]:
        return _rows(state, f"norms-{name}", NORMS)


def _rows(state: State, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    manifest, path = state.manifest, state.records.path / TAPS / name
    try:
        data = state.records.read_file(f"{TAPS}/{name}", _counted(manifest)[name])
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) < _counted(manifest)[name]:
        raise StorageError(f"{path} has {len(data)} bytes, {_counted(manifest)[name]} belong there")
    if _core.crc32c(data, manifest.seed(name, 0)) != manifest.sums[name]:
        raise CorruptionError(f"{path} is damaged: checksum mismatch")
    return np.frombuffer(data, dtype)
