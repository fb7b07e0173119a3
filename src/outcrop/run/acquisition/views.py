"""The results of acquisition up to the last commit: `sim.traces`, `sim.norms` and `sim.snapshots`.

A program that watches a run reads the new rows of traces and norms while the run writes them. Each row is read once,
and the memory does not grow with the number of rows:

    file    | rows read earlier | new rows | rows after the commit: not valid, not read |
                                 ──────────► checksum continued, compared with the manifest at the end
                                 ──────────► Envelope or NormRows, which keep a limited number of values

A large record is read in several portions, so that the program uses only a small part of the disk's bandwidth.
"""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.axes import x_first
from outcrop.display import as_html, joined
from outcrop.errors import CorruptionError, StorageError, os_errors_as, shown
from outcrop.run.acquisition.definitions import read_definitions
from outcrop.run.acquisition.parts import Everyone, cuts_of, joined_trace, owners, rounded_norms
from outcrop.run.disk.acquisition_files import (
    NORMS,
    damage_of,
    read_rows,
    read_some_rows,
    snapshot_damage,
    snapshot_name,
)
from outcrop.run.disk.contents import ACQUISITION
from outcrop.run.disk.entries import SnapshotsEntry
from outcrop.run.disk.manifest import Description
from outcrop.run.disk.state import State
from outcrop.units import counted

Parts = Callable[[], Sequence[State]]
"""A function that returns all parts of a run at one step."""


class Records(Mapping[str, NDArray[Any]], ABC):
    """A mapping with named arrays, which have the values up to the last commit. `view[name]` reads an array, and raises
    KeyError for an unknown name.

    If several ranks read the records together, `everyone` collects the records of all ranks. If one process reads all
    parts of a run, `parts` returns all parts."""

    kind: str
    """The first part of the names of the files."""
    title: str
    """What a notebook shows as title."""
    dtype: np.dtype[Any]

    def __init__(
        self, state: State | None, manifest: Description, everyone: Everyone | None = None, parts: Parts | None = None
    ) -> None:
        self._state, self._shapes, self._everyone, self._parts = state, self._known(manifest), everyone, parts

    def __getitem__(self, name: str) -> NDArray[Any]:
        if not isinstance(name, str) or name not in self._shapes:
            raise KeyError(f"there is no {shown(name)}; there are: {', '.join(self._shapes) or 'none'}")
        state, record = self._state, f"{self.kind}-{name}"
        if state is None:
            return np.empty((0, *self._shapes[name]), self.dtype)
        if self._parts is not None:
            every = self._parts()
            return self._joined(every[0], name, [read_rows(one.records, one.manifest, record) for one in every])

        def read() -> bytes:
            state.refresh()
            return read_rows(state.records, state.manifest, record)

        if state.manifest.part is not None:
            parts = self._everyone(read) if self._everyone else [read()]
            return self._joined(state, name, parts)
        return np.frombuffer(read(), self.dtype).reshape(-1, *self._shapes[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __repr__(self) -> str:
        return f"<{self.title.lower()} {joined(list(self._shapes)) or 'none'}>"

    def _repr_html_(self) -> str:
        step = self._state.manifest.step if self._state else 0
        rows = [(name, " x ".join(map(str, shape)) or "1") for name, shape in self._shapes.items()]
        return as_html(f"{self.title} up to step {step}", rows, ("name", "values at each step"))

    @staticmethod
    @abstractmethod
    def _known(manifest: Description) -> dict[str, tuple[int, ...]]:
        """Return a dictionary that maps the name of each array to the shape of a row."""

    @abstractmethod
    def _joined(self, state: State, name: str, parts: Sequence[bytes]) -> NDArray[Any]:
        """Make an array from the records of all parts, or from the records of one part."""


class Traces(Records):
    """A mapping with the traces of all receivers. Each key is the name of receivers. Each trace is a float64 array of
    shape (committed steps, points). If a part of a run is opened alone, a trace has only the points of this part."""

    kind, title, dtype = "trace", "Traces", np.dtype("<f8")

    @staticmethod
    def _known(manifest: Description) -> dict[str, tuple[int, ...]]:
        return {name: (points,) for name, points in manifest.taps.traces.items()}

    def rows(self, name: str, first: int, end: int) -> NDArray[np.float64]:
        """Return the rows first <= row < end of a trace, without a test of the checksum. If several ranks have opened
        the run together, this method cannot be used."""
        every = self._every_state()
        parts = [read_some_rows(one.records, one.manifest, f"{self.kind}-{name}", first, end) for one in every]
        return self._joined(every[0], name, parts)

    def require_intact(self, name: str) -> None:
        """Raise CorruptionError if a file of a trace is damaged, and StorageError if it cannot be read."""
        for one in self._every_state():
            if damage := damage_of(one.records, one.manifest, f"{self.kind}-{name}"):
                raise CorruptionError(f"{damage}; restore a copy")

    def _every_state(self) -> Sequence[State]:
        assert self._state is not None and self._everyone is None
        if self._parts is not None:
            return self._parts()
        self._state.refresh()
        return [self._state]

    def _joined(self, state: State, name: str, parts: Sequence[bytes]) -> NDArray[Any]:
        manifest = state.manifest
        if len(parts) == 1:
            return np.frombuffer(parts[0], self.dtype).reshape(-1, manifest.own_taps.traces[name])
        assert manifest.part is not None
        owner = owners(read_definitions(state.records, manifest).samplings, cuts_of(manifest))[name]
        return joined_trace(owner, parts)


class NormRecords(Records):
    """A mapping with the norms of fields. Each key is the name of a field. Each array has a row with `step`, `sum`,
    `squares`, `min` and `max` for each recorded step. If a part of a run is opened alone, the norms include only the
    cells that the rank of this part has counted."""

    kind, title, dtype = "norms", "Norms", NORMS

    @staticmethod
    def _known(manifest: Description) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(manifest.taps.norms.fields, ()) if manifest.taps.norms else {}

    def _joined(self, state: State, name: str, parts: Sequence[bytes]) -> NDArray[Any]:
        return rounded_norms(parts)


class SnapshotView:
    """The snapshots of one field up to the committed step. Indexing reads only the selected cells: `view[3]` is the
    fourth snapshot as a memory map. `view[-1, 20]` is plane 20 of the last snapshot. `view[::2, :, 5]` has row 5 of
    each plane of every second snapshot."""

    def __init__(self, state: State, entry: SnapshotsEntry, field: str) -> None:
        self._state, self._entry, self._field = state, entry, field

    @property
    def entry(self) -> SnapshotsEntry:
        """The box, the interval and the groups of cells of these snapshots."""
        return self._entry

    @property
    def _name(self) -> str:
        return self._entry.prefix + self._field

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (times, nz, ny, nx), without the axes that the grid does not have."""
        return (len(self), *self._entry.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._state.manifest.dtype)

    @property
    def ndim(self) -> int:
        """The number of axes, including time."""
        return len(self.shape)

    @property
    def steps(self) -> NDArray[np.int64]:
        """The step of each snapshot. For Devito's equations, the step is Devito's time index: u.data[t] has the index
        t."""
        steps = np.array([self._entry.step_of(number) for number in self._numbers()], np.int64)
        first, way = self._state.manifest.time_line
        return first + way * steps

    def __len__(self) -> int:
        return len(self._numbers())

    def _numbers(self) -> Sequence[int]:
        self._state.refresh()
        return self._entry.numbers(self._state.manifest.step)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Return the values that a NumPy array would return for this index. Raises IndexError for an index outside the
        array, and StorageError when a file is missing."""
        first, *rest = (index if isinstance(index, tuple) else (index,)) or (Ellipsis,)
        if first is Ellipsis:
            first, rest = slice(None), [Ellipsis, *rest]
        places, every = self.places(first), self._entry.numbers(self._state.manifest.step)
        if isinstance(places, int):
            one: NDArray[Any] = mapped(self._state, self._entry, self._field, every[places])[tuple(rest)]
            return one
        parts = [mapped(self._state, self._entry, self._field, every[place])[tuple(rest)] for place in places]
        return np.stack(parts) if parts else np.empty((0, *self._entry.shape), self.dtype)[(slice(None), *rest)]

    def places(self, index: Any) -> int | range:
        """Return the positions of the snapshots that `index` selects among the committed snapshots. `index` is a whole
        number or a slice. Raises IndexError if `index` is outside the committed snapshots."""
        numbers = self._numbers()
        try:
            found: int | range = range(len(numbers))[index]
            return found
        except IndexError:
            raise IndexError(self._missing(index, numbers)) from None
        except TypeError:
            what = f"index {shown(index)} of {self._name}"
            raise IndexError(f"{what}: snapshots are selected by a whole number or a slice") from None

    def _missing(self, index: object, numbers: Sequence[int]) -> str:
        """Return the message for an index outside the snapshots that exist."""
        entry, what = self._entry, f"index {shown(index)}: {self._state.path} has"
        if not entry.slots:
            return f"{what} {counted(len(numbers), 'snapshot')} of {self._name}"
        return (
            f"{what} {counted(len(numbers), 'state')} of {self._field} (history.steps): an adjoint run has freed the "
            "other states, or the limit had no room for them; run again with a history without a limit"
        )

    def require_intact(self, time: int) -> None:
        """Raise CorruptionError if the file of snapshot `time` is damaged, and StorageError if the file is missing.
        Indexing does not test checksums."""
        require_intact_snapshot(self._state, self._entry, self._field, self._numbers()[time])

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[number] for number in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("snapshots on disk cannot become an array without a copy")
        return np.asarray(self[:], dtype=dtype)

    def __repr__(self) -> str:
        # no file is read here, so that the text also works for a removed run
        shape = (len(self._entry.numbers(self._state.manifest.step)), *self._entry.shape)
        return f"<snapshots of {self._name!r} {shape} {self.dtype}>"


def new_snapshots(state: State, first: int, last: int) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    """Yield (step, snapshots) for each committed step with first < step <= last that has snapshots. `snapshots` maps
    names to arrays. The names are the keys of `SnapshotViews`. For Devito's equations, `step` is Devito's time index.
    """
    first_time, way = state.manifest.time_line
    found: dict[int, list[tuple[SnapshotsEntry, int]]] = {}
    for entry in state.manifest.own_taps.snapshots:
        if entry.is_history:
            continue
        for number in range(entry.count(first), entry.count(last)):
            found.setdefault(entry.step_of(number), []).append((entry, number))
    for step, kept in sorted(found.items()):
        names = [(entry, number, name) for entry, number in kept for name in entry.fields]
        arrays = {entry.prefix + name: mapped(state, entry, name, number) for entry, number, name in names}
        yield first_time + way * step, arrays


def mapped(state: State, entry: SnapshotsEntry, field: str, number: int) -> NDArray[Any]:
    """Return snapshot `number` of a field, as a memory map of its file. Raises StorageError."""
    name = snapshot_name(entry, field, number)
    if 0 in entry.shape:  # this part has no rows of the box
        return np.empty(entry.shape, state.manifest.dtype)
    try:
        with state.records.opened(name) as handle, os.fdopen(os.dup(handle), "rb") as file:
            return np.memmap(file, state.manifest.dtype, "r", 0, entry.shape)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StorageError(f"{state.records.path / name} cannot be read: {reason}") from None


def own_entry(state: State, entry: SnapshotsEntry) -> tuple[SnapshotsEntry, tuple[slice, ...]] | None:
    """Return the entry for the files of a run or of one of its parts. Also return slices of the box of `entry`. The
    slices select the cells that the files of the run or part have. Return None for a part that has no cells of the box.
    """
    manifest = state.manifest
    if manifest.part is None:
        return entry, tuple(slice(0, count) for count in entry.shape)
    own = entry.of_rows(*manifest.rows, manifest.planes)
    if 0 in own.shape:
        return None
    first = entry.values_in(0, manifest.planes)[0], entry.values_in(1, manifest.rows)[0], 0
    return own, tuple(slice(begin, begin + count) for begin, count in zip(first, own.shape, strict=True))


def require_intact_snapshot(state: State, entry: SnapshotsEntry, field: str, number: int) -> None:
    """Raise CorruptionError if snapshot `number` of a field is damaged. `entry` is the entry of this run or part."""
    if damage := snapshot_damage(state.records, state.manifest, entry, field, number):
        raise CorruptionError(f"{damage}; restore a copy")


class SnapshotViews(Mapping[str, SnapshotView]):
    """A mapping with the snapshots of all fields. A key is the name of a field, such as "u". If the snapshots have a
    name, such as "side", the key is "side/u".

    If several ranks compute the run, `whole` makes the views of the whole box. If one part is opened alone, the
    snapshots of this part have only the rows of the box that are in the part, and possibly none."""

    def __init__(
        self, state: State | None, manifest: Description,
        whole: Callable[[SnapshotsEntry, str], SnapshotView] | None = None,
    ) -> None:  # fmt: skip
        self._state, self._whole, self._axis_names = state, whole, manifest.axis_names
        entries = [one for one in manifest.taps.snapshots if not one.is_history] if state else []
        if manifest.part is not None and whole is None:
            entries = [one.of_rows(*manifest.rows, manifest.planes) for one in entries]
        self._places = {entry.prefix + field: (entry, field) for entry in entries for field in entry.fields}

    def __getitem__(self, name: str) -> SnapshotView:
        if self._state is None or not isinstance(name, str) or name not in self._places:
            of_group = [one for one in self._places if isinstance(name, str) and one.startswith(f"{name}/")]
            if self._state is not None and of_group:
                raise KeyError(f"the snapshots {shown(name)} have the keys {', '.join(map(repr, of_group))}")
            raise KeyError(f"there are no snapshots of {shown(name)}; there are: {', '.join(self._places) or 'none'}")
        if self._whole is not None:
            return self._whole(*self._places[name])
        return SnapshotView(self._state, *self._places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __repr__(self) -> str:
        return f"<snapshots {joined(list(self._places)) or 'none'}>"

    def _repr_html_(self) -> str:
        step, rows = self._state.manifest.step if self._state else 0, []
        for name, (entry, _) in self._places.items():
            times, box = entry.numbers(step), " x ".join(map(str, x_first(entry.shape, self._axis_names)))
            rows.append((name, str(len(times)), str(entry.every), box))
        return as_html(f"Snapshots up to step {step}", rows, ("name", "times", "every", "cells (x first)"))

    def __len__(self) -> int:
        return len(self._places)


# --- records that grow -----------------------------------------------------------------------------------------------


MAX_BINS = 256
"""The maximum number of values that an Envelope or a NormRows keeps. With more rows, each value is for several rows."""

PORTION_BYTES = 64 << 20
"""The maximum number of bytes of one record that are read at a time."""

_READ_BYTES = 1 << 20


class FollowedRecord:
    """Reads the new rows of the record `name` of one run or part. The function `take` is called with the new bytes, and
    the number of these bytes is a multiple of `unit_bytes`."""

    def __init__(self, name: str, row_bytes: int, unit_bytes: int, take: Callable[[bytes], None]) -> None:
        self.name, self._row_bytes, self._unit_bytes, self._take = name, row_bytes, unit_bytes, take
        self._done, self._checksum = 0, -1

    @property
    def rows(self) -> int:
        """The number of complete rows that have been read."""
        return self._done // self._row_bytes

    def is_beyond(self, state: State) -> bool:
        """Return True if some rows that have been read are no longer valid, because the run has gone back to an earlier
        step."""
        return self._done > self._valid_bytes(state)

    def read_on(self, state: State, max_bytes: int = PORTION_BYTES) -> bool:
        """Read at most `max_bytes` bytes of new rows. Return True if all valid rows have been read. Raises StorageError
        when the file is missing or too short, and CorruptionError when the checksum of the file is wrong."""
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
        """Add the values that follow the values of the previous call. The values can end in the middle of a row."""
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
        """Return the largest value of the rows first <= row < end. The result can include neighbouring rows of the same
        range of steps."""
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
        """A dictionary that maps the number of each kept row to the bytes of the row."""
        return self._rows | ({self._count - 1: self._last} if self._count else {})


def joined_envelope(parts: Sequence[Envelope], rows: int, columns: int) -> list[float]:
    """Divide the rows of a trace into at most `columns` ranges of steps. `rows` is the number of rows. Return the
    largest absolute value in each range. Each point of the trace is in one of `parts`."""
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
