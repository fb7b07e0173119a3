"""The states of a history that are on the disk, and the place of the replay of a run.

If the limit of a history does not have room for all states, an adjoint run repeats parts of the forward run
(plan/schedule.py). The replay is a run that computes these steps: a copy of the forward run beside it. The replay has a
history of its own. Both histories together have at most `slots` states, and use the same numbers for them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from outcrop import _core
from outcrop.durable import Directory
from outcrop.errors import CorruptionError, InputError, OutcropError, StorageError, os_errors_as
from outcrop.plan.schedule import repeated_segments
from outcrop.run.disk.acquisition_files import read_rows, snapshot_name
from outcrop.run.disk.creation import clear
from outcrop.run.disk.manifest import MANIFEST, Manifest, read_manifest
from outcrop.run.disk.planes import FileBeneath, PlaneSource
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder

_PART_BYTES = 4 << 20


class KeptStates:
    """The states in the history of a run. `numbers` has their numbers in ascending order. Raises StorageError and
    CorruptionError."""

    def __init__(self, state: State) -> None:
        entry, manifest = state.manifest.taps.history, state.manifest
        assert entry is not None
        self.state, self.entry, self.numbers = state, entry, entry.numbers(manifest.step)
        rows = {field: read_rows(state.records, manifest, entry.record(field)) for field in entry.fields}
        self._sums = {field: np.frombuffer(data, "<u4") for field, data in rows.items()}

    def file(self, field: str, number: int) -> tuple[FileBeneath, int]:
        """Return the file and the checksum of a field in state `number`."""
        directory, name = self.state.records, snapshot_name(self.entry, field, number)
        return FileBeneath(directory.handle, name, str(directory.path / name)), int(self._sums[field][number])

    def planes(self, field: str, number: int) -> PlaneSource:
        """Return a function that reads planes of a field in state `number`, on the engine's three axes. First read the
        whole file and compare its checksum. Raises StorageError and CorruptionError."""
        directory, (file, expected) = self.state.records, self.file(field, number)
        layout, dtype = self.state.layout, np.dtype(self.state.manifest.dtype)
        _, ny, nx = layout.shape
        plane_bytes, size = ny * nx * dtype.itemsize, math.prod(layout.shape) * dtype.itemsize
        name, checksum = snapshot_name(self.entry, field, number), 0

        def read(offset: int, count: int) -> bytes:
            with os_errors_as(StorageError, f"{file.label} cannot be read"), directory.opened(name) as handle:
                return directory.read_from(handle, offset, count)

        for offset in range(0, size, _PART_BYTES):
            checksum = _core.crc32c(read(offset, min(_PART_BYTES, size - offset)), checksum)
        if checksum != expected:
            raise CorruptionError(f"{file.label} is damaged: checksum mismatch")
        return lambda z0, z1: np.frombuffer(read(z0 * plane_bytes, (z1 - z0) * plane_bytes), dtype).reshape(-1, ny, nx)


def repeated_steps(state: State) -> int:
    """Return the number of steps that an adjoint run from the committed step of a run repeats, beginning with the
    states that exist. The result for a replay is 0, because a replay has no adjoint run."""
    entry, step = state.manifest.taps.history, state.manifest.step
    if entry is None or not entry.slots or step < 1:
        return 0
    runs = [one.manifest for one in (state, open_replay(state)) if one]
    numbers = {number for one in runs if one.taps.history for number in one.taps.history.numbers(one.step)}
    if 0 not in numbers:
        return 0
    return entry.every * repeated_segments(numbers, -(-step // entry.every), entry.slots)


def keep_only(state: State, numbers: Collection[int]) -> None:
    """Free all states of a history except `numbers` and those that later steps keep. First the manifest is committed,
    then files are deleted, including files that a killed process has left. The calling process must hold the run.
    Raises StorageError."""
    taps, step = state.manifest.taps, state.manifest.step
    entry = taps.history
    assert entry is not None
    freed = set(entry.numbers(step)).difference(numbers)
    entry = replace(entry, kept=tuple(one for one in entry.kept if one not in freed))
    if freed:
        others = (one for one in taps.snapshots if not one.is_history)
        state.set_acquisition(replace(taps, snapshots=(*others, entry)), state.manifest.sums)
    directory, kept = state.records, set(entry.kept)
    for field in entry.fields:
        # the folder of the chunks: snapshot_name is FOLDER/NUMBER/0/0/0
        folder = snapshot_name(entry, field, 0).rsplit("/", len(entry.box) + 1)[0]
        with os_errors_as(StorageError, f"cannot free states of {directory.path}"):
            names = directory.names(folder) if directory.status(folder) is not None else []
            for name in names:
                if name.isdecimal() and int(name) not in kept:
                    directory.remove(snapshot_name(entry, field, int(name)))
                    directory.remove_empty(f"{folder}/{name}")


def replay_place(state: State) -> Path:
    """Return the directory of the replay of a run. Its name has a part of the identity of the run, so that it belongs
    to no other run."""
    path = state.path.absolute()
    return path.parent / f"{path.name.removesuffix('.oc')}-replay-{state.manifest.identity[:8]}.oc"


def open_replay(state: State) -> State | None:
    """Return the replay of a run, or None if it does not exist. Also return None if it is damaged, is another run, or
    has no values because its creation was interrupted. A replay is not needed for correct results, because state 0 of
    the run is enough to compute all states again."""
    storage = RunFolder(replay_place(state))
    try:
        replay = State(storage, storage.read())
        replay.check()
    except OutcropError:
        return None
    if not replay.has_values:
        return None
    return replay if _computed(state.manifest) == _computed(replay.manifest) else None


def _computed(manifest: Manifest) -> tuple[object, ...]:
    """Return the computation of a run, and the places of its states."""
    one, kept = manifest, manifest.taps.history
    history = (kept.every, kept.fields, kept.box, kept.slots) if kept else ()
    return (one.stencil, one.shape, one.dtype, one.parameters, one.signals, one.boundary, one.taps.sources, history)


def remove_replay(state: State) -> None:
    """Delete the replay of a run, if it exists. Raises InputError if another process uses it, and StorageError."""
    place = replay_place(state)
    if not place.is_dir():
        return
    with os_errors_as(StorageError, f"cannot delete {place}"):
        with Directory.open(place) as directory:
            lock = directory.hold()
            try:
                with contextlib.suppress(InputError):  # there is no manifest
                    clear(directory, read_manifest(directory))
                    directory.flush()
                    directory.remove(MANIFEST)
                directory.remove(f"{MANIFEST}.tmp")  # a process was killed before it renamed this file
            finally:
                directory.release(lock)
        place.rmdir()
