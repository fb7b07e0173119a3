"""`sim.snapshots["u"]`: the snapshots of a field, indexed like one array (time, z, y, x)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import StorageError
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.state import State
from outcrop.run.taps.entries import SnapshotsEntry
from outcrop.run.taps.snapshot_files import snapshot_path


class SnapshotView:
    """Snapshots of one field up to the committed step; only what is indexed is read.

    `view[3]` is the fourth one, mapped from its file; `view[-1, 20]` a plane of the latest, `view[::2, :, 5]` a stack.
    """

    def __init__(self, state: State, field: str) -> None:
        self._state, self._field = state, field

    @property
    def shape(self) -> tuple[int, ...]:
        """(times, nz, ny, nx), or fewer axes as the grid."""
        return (len(self), *self._entry.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the field."""
        return np.dtype(self._state.manifest.dtype)

    @property
    def ndim(self) -> int:
        """Axes, time included."""
        return len(self.shape)

    @property
    def steps(self) -> NDArray[np.int64]:
        """After which steps they were taken."""
        return np.array([self._entry.step_of(number) for number in range(len(self))], np.int64)

    def __len__(self) -> int:
        self._state.refresh()
        return self._entry.count(self._state.manifest.step)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """As of an array. Raises IndexError, and StorageError when a file is missing."""
        first, *rest = index if isinstance(index, tuple) else (index,)
        if first is Ellipsis:
            first, rest = slice(None), [Ellipsis, *rest]
        numbers = range(len(self))[first]
        if isinstance(numbers, int):
            one: NDArray[Any] = mapped(self._state, self._field, numbers)[tuple(rest)]
            return one
        parts = [mapped(self._state, self._field, number)[tuple(rest)] for number in numbers]
        return np.stack(parts) if parts else np.empty((0, *self._entry.shape), self.dtype)[(slice(None), *rest)]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[number] for number in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("snapshots on disk cannot become an array without a copy")
        return np.asarray(self[:], dtype=dtype)

    def __repr__(self) -> str:
        return f"<snapshots of {self._field!r} {self.shape} {self.dtype}>"

    @property
    def _entry(self) -> SnapshotsEntry:
        entry = self._state.manifest.taps.snapshots
        assert entry is not None
        return entry


def new_snapshots(state: State, first: int, last: int) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    """Snapshots of steps first < step <= last, all committed: the step, and what was kept of each field."""
    entry = state.manifest.taps.snapshots
    if entry is not None:
        for number in range(entry.count(first), entry.count(last)):
            yield entry.step_of(number), {name: mapped(state, name, number) for name in entry.fields}


def mapped(state: State, field: str, number: int) -> NDArray[Any]:
    """Snapshot `number` of a field, mapped from its file. Raises StorageError."""
    entry, path = state.manifest.taps.snapshots, snapshot_path(state.records_path, state.manifest, field, number)
    assert entry is not None
    try:
        return np.memmap(path, state.manifest.dtype, "r", 0, entry.shape)
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from None


class SnapshotViews(Mapping[str, SnapshotView]):
    """Those of all fields, by name."""

    def __init__(self, state: State | None, manifest: Manifest) -> None:
        self._state = state
        self._fields = manifest.taps.snapshots.fields if manifest.taps.snapshots else ()

    def __getitem__(self, name: str) -> SnapshotView:
        if name not in self._fields or self._state is None:
            there = ", ".join(self._fields) if self._state else ""
            raise KeyError(f"there are no snapshots of {name!r}; there are: {there or 'none'}")
        return SnapshotView(self._state, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields if self._state else ())

    def __len__(self) -> int:
        return len(self._fields) if self._state else 0
