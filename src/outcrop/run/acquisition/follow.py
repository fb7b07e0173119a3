"""Follow the traces and norms of a run while they grow. Each row is read once, and memory does not grow with the rows.

    file    | rows read earlier | new rows | rows after the commit: not valid, not read |
                                 ──────────► checksum continued, compared with the manifest at the end
                                 ──────────► Envelope or NormRows, which keep a limited number of values

A large record is read in several portions, so that a program that watches a run uses little of the bandwidth of its
disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.errors import CorruptionError, StorageError, os_errors_as
from outcrop.run.acquisition.parts import rounded_norms
from outcrop.run.disk.acquisition_files import NORMS
from outcrop.run.disk.contents import ACQUISITION
from outcrop.run.disk.state import State

MAX_BINS = 256
"""The maximum number of values that an Envelope or a NormRows keeps. With more rows, each value is for several rows."""

PORTION_BYTES = 64 << 20
"""The maximum number of bytes of one record that are read at a time."""

_READ_BYTES = 1 << 20


class FollowedRecord:
    """The record `name` of one run or part. `take` gets the new bytes, which are whole numbers or whole rows."""

    def __init__(self, name: str, row_bytes: int, unit_bytes: int, take: Callable[[bytes], None]) -> None:
        self.name, self._row_bytes, self._unit_bytes, self._take = name, row_bytes, unit_bytes, take
        self._done, self._checksum = 0, -1

    @property
    def rows(self) -> int:
        """The number of complete rows that have been read."""
        return self._done // self._row_bytes

    def is_beyond(self, state: State) -> bool:
        """Return True if rows have been read that are not valid any more, because the run has gone back."""
        return self._done > self._valid_bytes(state)

    def read_on(self, state: State, max_bytes: int = PORTION_BYTES) -> bool:
        """Read at most `max_bytes` bytes of new rows. Return True if all valid rows have been read. Raises StorageError
        when the file is missing or too short, and CorruptionError when its checksum is wrong."""
        manifest, directory = state.manifest, state.records
        valid, path = self._valid_bytes(state), directory.path / ACQUISITION / self.name
        if self._checksum < 0:
            self._checksum = manifest.seed(self.name, 0)
        end = min(valid, self._done + max(max_bytes, self._unit_bytes))
        most = max(1, _READ_BYTES // self._unit_bytes) * self._unit_bytes
        with (
            os_errors_as(StorageError, f"{path} cannot be read"),
            directory.opened(f"{ACQUISITION}/{self.name}") as handle,
        ):
            while self._done < end:
                part = directory.read_from(handle, self._done, min(most, valid - self._done))
                if not part or len(part) % self._unit_bytes:
                    raise StorageError(f"{path} has {self._done + len(part)} bytes, but needs {valid}")
                self._checksum = int(_core.crc32c(part, self._checksum))
                self._take(part)
                self._done += len(part)
        if self._done == valid and self._checksum != manifest.sums[self.name]:
            raise CorruptionError(f"{path} is damaged: checksum mismatch")
        return self._done == valid

    def _valid_bytes(self, state: State) -> int:
        row_bytes, rows = state.manifest.own_taps.records(state.manifest.step)[self.name]
        return row_bytes * rows


class Envelope:
    """The largest absolute value of all points of a trace, for each of at most MAX_BINS ranges of steps. All ranges
    have the same number of steps. `first_infinite` is the first step with a value that is NaN or infinite."""

    def __init__(self, points: int) -> None:
        self._points, self._values = points, 0
        self._width, self._bins = 1, np.zeros(0)
        self.first_infinite: int | None = None

    def take(self, data: bytes) -> None:
        """Add the values that follow the values of the previous call. They need not be whole rows."""
        values = np.abs(np.frombuffer(data, "<f8"))
        row, place = divmod(self._values, self._points)
        starts = np.arange(-place, len(values), self._points)
        with np.errstate(invalid="ignore"):
            largest = np.maximum.reduceat(values, np.maximum(starts, 0))
        rows = row + np.arange(len(starts))
        self._values += len(values)
        if self.first_infinite is None and not np.isfinite(largest).all():
            self.first_infinite = int(rows[~np.isfinite(largest)][0]) + 1
        while rows[-1] // self._width >= MAX_BINS:
            self._merge_pairs()
        more = int(rows[-1]) // self._width + 1 - len(self._bins)
        self._bins = np.concatenate([self._bins, np.zeros(max(0, more))])
        with np.errstate(invalid="ignore"):  # NaN stays NaN
            np.maximum.at(self._bins, rows // self._width, largest)

    def largest(self, first: int, end: int) -> float:
        """Return the largest value of the rows first <= row < end. The result may include neighbouring rows of the same
        range."""
        found = self._bins[first // self._width : -(-end // self._width)]
        return float(found.max()) if len(found) else 0.0

    def _merge_pairs(self) -> None:
        even = np.concatenate([self._bins, np.zeros(len(self._bins) % 2)])
        with np.errstate(invalid="ignore"):
            self._bins, self._width = np.maximum(even[0::2], even[1::2]), 2 * self._width


class NormRows:
    """The rows of norms of one run or part: at most MAX_BINS rows at equal distances, and the last row."""

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes, self._every, self._count = row_bytes, 1, 0
        self._rows: dict[int, bytes] = {}
        self._last = b""

    def take(self, data: bytes) -> None:
        """Add the rows that follow the rows of the previous call."""
        for place in range(0, len(data), self._row_bytes):
            row = data[place : place + self._row_bytes]
            if self._count % self._every == 0:
                self._rows[self._count] = row
            if len(self._rows) > MAX_BINS:
                self._every *= 2
                self._rows = {number: one for number, one in self._rows.items() if number % self._every == 0}
            self._last, self._count = row, self._count + 1

    @property
    def rows(self) -> dict[int, bytes]:
        """A dictionary from the numbers of the rows that are kept to their bytes."""
        return self._rows | ({self._count - 1: self._last} if self._count else {})


def joined_envelope(parts: Sequence[Envelope], rows: int, columns: int) -> list[float]:
    """Return the largest absolute values of a trace in ranges of steps that divide `rows` rows into at most `columns`
    ranges. Each point of the trace is in one of the parts."""
    columns = min(columns, rows)
    ends = [rows * column // columns for column in range(columns + 1)] if columns else [0]
    each = [[one.largest(*pair) for pair in itertools.pairwise(ends)] for one in parts]
    found: list[float] = np.max(each, axis=0).tolist() if each and columns else []
    return found


def joined_norms(parts: Sequence[Mapping[int, bytes]], is_part: bool) -> NDArray[np.void]:
    """Return the norms of the whole grid from the rows that all parts have kept. If `is_part` is true, the sums in the
    rows are not rounded."""
    common = sorted(set.intersection(*(set(one) for one in parts)))
    if not common:
        return np.zeros(0, NORMS)
    records = [b"".join(one[number] for number in common) for one in parts]
    return rounded_norms(records) if is_part else np.frombuffer(records[0], NORMS)
