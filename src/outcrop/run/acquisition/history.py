"""The history of a run: the values of all updated fields, kept at step 0 and after every k-th step. Some stencils also
read the previous values of a field. With `recompute=True`, the history also keeps the previous values of such fields.

A history is stored in the same form as snapshots, with the reserved name HISTORY. A pass writes the states that it
computes to files, and computes the checksums of these files. The commit of the pass makes the written states valid. A
history differs from other snapshots in these ways:

    begin       run(history=...) adds the entry to the manifest of a run at step 0 (`history_entry`, `begin_history`)
    reversed    threads read the older states ahead, and compare checksums (`HistoryView.reversed`)
    free        the entry is removed from the manifest; then the files are deleted (`HistoryView.free`)

If the size limit of a history is too small for all states, an adjoint run repeats parts of the forward run
(plan/history.py). The repeated steps are computed by the replay, a copy of the forward run in a directory beside it.
The replay has its own history. Together, the histories of the run and of its replay have at most `slots` states. A
state has the same number in the history of the run and in the history of the replay."""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle, islice
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.durable import Directory
from outcrop.errors import CorruptionError, InputError, OutcropError, StorageError, os_errors_as, shown
from outcrop.language.hoist import extends
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.paths import nearest_existing
from outcrop.plan.history import first_states, repeated_segments
from outcrop.run.acquisition.views import SnapshotView
from outcrop.run.disk.acquisition_files import read_rows, snapshot_name
from outcrop.run.disk.contents import ACQUISITION, RESERVED
from outcrop.run.disk.creation import clear
from outcrop.run.disk.entries import HISTORY, ArrayEntry, SnapshotsEntry, StatesEntry
from outcrop.run.disk.layout import snapshot_index
from outcrop.run.disk.manifest import MANIFEST, Description, Manifest, read_manifest
from outcrop.run.disk.planes import FileBeneath, PlaneSource
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder
from outcrop.run.options import History
from outcrop.run.user_values import as_flag, as_whole_number
from outcrop.units import format_bytes, parse_bytes

DIRECT_BYTES, PAGE_BYTES = 1 << 20, 4096
"""States of at least DIRECT_BYTES bytes bypass the page cache, and are read in whole pages of PAGE_BYTES bytes."""

STATES_IN_MEMORY = 4
"""The number of states in memory during `reversed`: the state that was yielded, and three states that threads read
ahead."""

_PART_BYTES = 4 << 20


def as_history(given: object) -> History:
    """Return `given` as an `oc.History`. `given` is an `oc.History`, or the value of the first argument of
    `oc.History`. Raises InputError for other values."""
    if isinstance(given, History):
        return given
    if isinstance(given, (str, Integral)):
        return History(given)  # type: ignore[arg-type]
    raise InputError(f"history {shown(given)} is not an oc.History; write for example history='all'")


def history_entry(given: History, description: Description, step: int) -> SnapshotsEntry:
    """Return the manifest entry for the history `given` of a run at step `step`. Raises InputError if the run cannot
    keep this history."""
    if given.wrt is not None:
        raise InputError("history: wrt is only for 'auto'; leave it out")
    if isinstance(given.every, str) and given.every != "all":
        raise InputError(f"history: {shown(given.every)} must be 'all', 'auto' or a number of steps")
    every = 1 if given.every == "all" else as_whole_number(given.every, "history: every")
    recompute = as_flag(given.recompute, "history: recompute")
    if recompute and every == 1:
        raise InputError(
            f"history: recompute=True, but with {shown(given.every)} every state is kept and none is left to "
            "recompute; keep every 2 steps or more, or leave recompute out"
        )
    entry = as_entry(every, recompute, description.state, description.shape)
    kept = description.taps.history
    if kept is not None and replace(kept, slots=0, kept=()) != entry:
        options = f"every={kept.every}{', recompute=True' if kept.recompute else ''}"
        raise InputError(f"this run keeps a history with {options}; go on without history=, or free it first")
    if kept is None and step > 0:
        raise InputError(f"a history begins with step 0, but this run is at step {step}; start a new run")
    return entry if kept is None else kept


def with_slots(given: History, entry: SnapshotsEntry, dtype: str, last_step: int) -> SnapshotsEntry:
    """Return the entry. If states can be computed again and the limit is too small for all states, add a schedule
    (plan/history.py) to the entry. A schedule needs room for at least two states. If there is room for fewer than two
    states, no schedule is added."""
    limit = limit_bytes(given)
    slots = 0 if limit is None else limit // state_bytes(entry, dtype)
    if not entry.recompute or not 2 <= slots < entry.count(last_step):
        return entry
    return replace(entry, slots=slots, kept=first_states(-(-last_step // entry.every), slots))


def as_entry(every: int, recompute: bool, state: Iterable[ArrayEntry], shape: Sequence[int]) -> SnapshotsEntry:
    """Return the entry of a history that keeps the initial state and the states after `every`, 2 * `every`, ... steps.
    `state` contains the arrays of the state, and `shape` is the shape of these arrays on disk. Raises InputError if an
    array has a reserved name."""
    fields = tuple(entry.name for entry in state if recompute or not entry.is_previous)
    for name in fields:
        if name in RESERVED[len(shape)] or name == HISTORY:
            raise InputError(f"history: field {name!r} has the name of a coordinate or of the history; rename it")
    box = tuple((0, n) for n in shape)  # includes the padding, which a reverse pass also reads
    return SnapshotsEntry(every, fields, box, initial=True, name=HISTORY, recompute=recompute)


def state_bytes(entry: SnapshotsEntry, dtype: str) -> int:
    """Return the size of one state of a history on disk, in bytes. The size includes the indices of its shards."""
    itemsize = np.dtype(dtype).itemsize
    return len(entry.fields) * (math.prod(entry.shape) * itemsize + len(snapshot_index(entry.shape, itemsize)))


def free_bytes(directory: Path, needed: int) -> int:
    """Return the number of free bytes on the disk of `directory`, minus the `needed` bytes that the arrays of the runs
    will use."""
    room = os.statvfs(nearest_existing(directory))
    return max(0, room.f_bavail * room.f_frsize - needed)


def limit_bytes(given: History) -> int | None:
    """Return the limit of a history in bytes, or None if it has no limit. Raises InputError for a wrong size."""
    if given.limit is None:
        return None
    try:
        return parse_bytes(given.limit)
    except InputError as error:
        raise InputError(f"history: limit: {error}") from None


def require_room(
    given: History, entry: SnapshotsEntry, dtype: str, directory: Path, needed: int, first_step: int, last_step: int
) -> None:
    """Raise InputError if the states up to `last_step` exceed the limit or the free space. The run itself needs
    `needed` bytes of the free space. The message names the smallest interval between kept states for which all states
    fit. If an adjoint run can compute states again, the message can name a sufficient limit instead."""
    each, there = state_bytes(entry, dtype), len(entry.numbers(first_step))
    free = free_bytes(directory, needed)
    limit = None if entry.slots else limit_bytes(given)
    most, why = there + free // each, f"{format_bytes(free)} are free in {directory}"
    if limit is not None and limit // each < most:
        most, why = limit // each, f"the limit is {format_bytes(limit)}"
    count = entry.slots or entry.count(last_step)
    if count > most:
        fits = f"every={last_step // most + 1} fits" if most else "not even one state fits"
        if limit is not None and entry.recompute and limit // each == most:
            fits = f"limit='{-(-2 * each // 1024)}KiB' is enough for two states, and an adjoint run computes all others"
        elif entry.slots and not there:
            fits = f"limit='{free // 1024}KiB' fits" if free // 1024 * 1024 >= 2 * each else "not even two states fit"
        raise InputError(
            f"no room for the history: {count} states of {format_bytes(each)} need {format_bytes(count * each)}, but "
            f"{why}; {fits}"
        )


def begin_history(state: State, entry: SnapshotsEntry) -> None:
    """Add a history to the manifest of a run on disk, at step 0. Raises StorageError."""
    with state.locked():
        taps = state.manifest.taps
        if taps.history is not None:
            return
        sums, directory = dict(state.manifest.sums), state.records
        with os_errors_as(StorageError, f"cannot begin a history in {directory.path}"):
            for field in entry.fields:
                name = entry.record(field)
                if directory.status(ACQUISITION) is not None:  # a killed process may have left the file
                    directory.remove(f"{ACQUISITION}/{name}")
                directory.put(f"{ACQUISITION}/{name}")
                sums[name] = state.manifest.seed(name, 0)
            directory.flush(ACQUISITION)
            directory.flush()
        state.set_acquisition(replace(taps, snapshots=(*taps.snapshots, entry)), sums)


class HistoryView(Mapping[str, SnapshotView]):
    """The history of a run up to the committed step. `history["u"]` is indexed like an array with the axes (time, z, y,
    x). State k belongs to step `history.steps[k]`. The states of Devito's equations include the halo of the fields."""

    def __init__(self, state: State, entry: SnapshotsEntry) -> None:
        self._state, self._entry = state, entry

    @property
    def every(self) -> int:
        """The number of steps from one state to the next."""
        return self._entry.every

    @property
    def steps(self) -> NDArray[np.int64]:
        """The step of each state that exists. For Devito's equations, the step is Devito's time index."""
        return self[self._entry.fields[0]].steps

    @property
    def repeated_steps(self) -> int:
        """The number of steps of this run that an adjoint run repeats. Steps are repeated if the limit of the history
        is too small for all states. The number does not include the steps between two kept states, which the passes of
        the adjoint run always compute again."""
        self._require_kept()
        return repeated_steps(self._state)

    def __getitem__(self, name: str) -> SnapshotView:
        self._require_kept()
        if name not in self._entry.fields:
            raise KeyError(f"the history has no {shown(name)}; there are: {', '.join(self._entry.fields)}")
        return SnapshotView(self._state, self._entry, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entry.fields)

    def __len__(self) -> int:
        return len(self._entry.fields)

    def __repr__(self) -> str:
        return f"<history of {', '.join(self._entry.fields)}, every {self.every} steps>"

    def reversed(self) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
        """Yield (step, fields) for each state, beginning with the newest state. `step` is counted as in `steps`.
        `fields` maps names to arrays of shape (nz, ny, nx).

        Threads read older states ahead, and at most four states are in memory. The arrays are valid until the next
        state is requested: copy values that you need longer. Raises CorruptionError for a state that differs from what
        the run has written, and StorageError if a state cannot be read."""
        self._require_kept()
        reader = _Reader(self._state, self._entry)
        first_time, way = self._state.manifest.time_line
        numbers = reversed(self._entry.numbers(self._state.manifest.step))
        states = zip(numbers, cycle(range(STATES_IN_MEMORY)), strict=False)
        waiting: deque[tuple[int, Future[dict[str, NDArray[Any]]]]] = deque()
        with ThreadPoolExecutor(STATES_IN_MEMORY - 1) as pool:

            def read_ahead(count: int) -> None:
                for number, buffer in islice(states, count):
                    waiting.append((number, pool.submit(reader.read, number, buffer)))

            try:
                read_ahead(STATES_IN_MEMORY - 1)
                while waiting:
                    number, found = waiting.popleft()
                    fields = found.result()
                    read_ahead(1)  # this read reuses the buffer of the previous state
                    yield first_time + way * self._entry.step_of(number), fields
            finally:
                pool.shutdown(cancel_futures=True)

    def free(self) -> None:
        """Remove the history from the run, and delete its files and the replay of the run. Call this method when you no
        longer need the states. Raises InputError if another process uses the run, and StorageError if a file cannot be
        changed."""
        with self._state.locked():
            taps = self._state.manifest.taps
            if taps.history is not None:
                remove_replay(self._state)
                names = {self._entry.record(field) for field in self._entry.fields}
                sums = {name: one for name, one in self._state.manifest.sums.items() if name not in names}
                kept = tuple(one for one in taps.snapshots if not one.is_history)
                self._state.set_acquisition(replace(taps, snapshots=kept), sums)

    def _require_kept(self) -> None:
        self._state.refresh()
        entry = self._state.manifest.taps.history
        if entry is None:
            raise InputError(f"the history of {self._state.path} was freed")
        self._entry = entry  # an adjoint run may have freed states since the last access


class StateFiles:
    """The files of the states that an adjoint run reads. The files are in the history of the forward run or of its
    replay. Raises InputError if the forward run has changed or keeps no history."""

    def __init__(self, state: State, states: StatesEntry, shape: tuple[int, ...], dtype: str) -> None:
        """`state` is the committed state of the forward run. `shape` and `dtype` belong to the adjoint run."""
        self._run, self._steps = states.run, states.steps
        manifest, entry = state.manifest, state.manifest.taps.history
        if manifest.identity != states.identity or manifest.step < states.steps:
            raise InputError(
                f"{states.run} is no longer the run at step {states.steps} to which this adjoint run belongs"
            )
        if entry is None or entry.every != states.every or (states.stencil is not None and not entry.recompute):
            raise InputError(f"the history of {states.run} was freed, and the adjoint run needs its states")
        whole = tuple((0, size) for size in manifest.shape)
        if not entry.initial or entry.box != whole or (manifest.shape, manifest.dtype) != (shape, dtype):
            raise InputError(f"the history of {states.run} does not have the grid or the steps of the adjoint run")
        replay = open_replay(state) if entry.slots else None
        self._every, self._kept = entry.every, [KeptStates(one) for one in (state, replay) if one]
        needed = [one.field for one in states.fields]
        if (again := states.forward) is not None:
            if not extends(again, Stencil.from_json(manifest.stencil)):
                raise InputError(f"the adjoint run computes steps again with another stencil than that of {states.run}")
            needed = [one.name for one in manifest.state]
        for name in needed:
            if name not in entry.fields:
                raise InputError(f"the history of {states.run} has no field {name}")

    def of(self, field: str, back: int, later: int = 0) -> tuple[FileBeneath, int]:
        """Return a file and its checksum. The file has the values of `field` in one state. The step of this state is
        `back` steps before the last step of the forward run. If `later` is -1, the file has the previous values of
        `field`."""
        field += PREVIOUS if later < 0 else ""
        step = self._steps - back
        if step < 0:
            raise InputError(
                f"the equations read {field} before step 0 of the saved run, and a history does not have these values; "
                "run fewer steps"
            )
        number, rest = divmod(step, self._every)
        assert rest == 0, "only steps at a kept state read states"
        for one in self._kept:
            if number in one.numbers:
                return one.file(field, number)
        raise InputError(f"the state of step {step} of {self._run} was freed; run the adjoint run with outcrop resume")


class _Reader:
    """Reads states into STATES_IN_MEMORY buffers, which are allocated only once."""

    def __init__(self, state: State, entry: SnapshotsEntry) -> None:
        manifest = state.manifest
        self._entry, self._kept = entry, KeptStates(state)
        self._dtype, self._io = np.dtype(manifest.dtype), manifest.settings.io
        self._bytes = math.prod(entry.shape) * self._dtype.itemsize
        self._buffers = [
            {field: _core.aligned_array(self._bytes) for field in entry.fields} for _ in range(STATES_IN_MEMORY)
        ]

    def read(self, number: int, buffer: int) -> dict[str, NDArray[Any]]:
        memory = self._buffers[buffer]
        files, sums = zip(*(self._kept.file(field, number) for field in memory), strict=True)
        store = _core.Store(list(files), backend=self._io, direct=self._bytes >= DIRECT_BYTES)
        try:
            whole = self._bytes - self._bytes % PAGE_BYTES
            for index, cells in enumerate(memory.values()):
                store.read_into(index, 0, cells[:whole])
                store.read_into(index, whole, cells[whole:])
                if _core.crc32c(cells) != sums[index]:
                    raise CorruptionError(f"{files[index].label} is damaged: checksum mismatch")
        finally:
            store.close()
        return {field: cells.view(self._dtype).reshape(self._entry.shape) for field, cells in memory.items()}


class KeptStates:
    """The states in the history of a run. `numbers` contains the numbers of these states, in ascending order. Raises
    StorageError and CorruptionError."""

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
        """Return a function that reads planes of a field in state `number`, on the engine's three axes. Before `planes`
        returns the function, `planes` reads the whole file once and compares the checksum. Raises StorageError and
        CorruptionError."""
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
    """Return the number of steps that an adjoint run must repeat because states are missing. The number is for an
    adjoint run that begins at the committed step of the run, with the states that exist now. The result for a replay is
    0, because a replay has no adjoint run."""
    entry, step = state.manifest.taps.history, state.manifest.step
    if entry is None or not entry.slots or step < 1:
        return 0
    runs = [one.manifest for one in (state, open_replay(state)) if one]
    numbers = {number for one in runs if one.taps.history for number in one.taps.history.numbers(one.step)}
    if 0 not in numbers:
        return 0
    return entry.every * repeated_segments(numbers, -(-step // entry.every), entry.slots)


def keep_only(state: State, numbers: Collection[int]) -> None:
    """Free the states of a history, except the states in `numbers`. Later steps keep the same states as without this
    call. The manifest is committed first. After the commit, the files of the freed states are deleted, including files
    that a killed process has left. The calling process must hold the lock of the run. Raises StorageError."""
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
    """Return the directory of the replay of a run. The name contains a part of the run's identity."""
    path = state.path.absolute()
    return path.parent / f"{path.name.removesuffix('.oc')}-replay-{state.manifest.identity[:8]}.oc"


def open_replay(state: State) -> State | None:
    """Return the replay of a run. The result is None if the replay does not exist, is damaged, or belongs to another
    run. The result is also None if the replay has no values because its creation was interrupted. If the result is
    None, all states can be computed again from state 0 of the run."""
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
    """Return the values in a manifest that must be equal in a run and in its replay."""
    one, kept = manifest, manifest.taps.history
    history = (kept.every, kept.fields, kept.box, kept.slots) if kept else ()
    return (one.stencil, one.shape, one.dtype, one.parameters, one.signals, one.boundary, one.taps.sources, history)


def remove_replay(state: State) -> None:
    """Delete the replay of a run, if the replay exists. Raises InputError if another process uses the replay, and
    StorageError if a file cannot be deleted."""
    place = replay_place(state)
    if not place.is_dir():
        return
    with os_errors_as(StorageError, f"cannot delete {place}"):
        with Directory.open(place) as directory:
            lock = directory.hold()
            try:
                with contextlib.suppress(InputError):  # raised if there is no manifest
                    clear(directory, read_manifest(directory))
                    directory.flush()
                    directory.remove(MANIFEST)
                directory.remove(f"{MANIFEST}.tmp")  # left by a process that was killed before it renamed this file
            finally:
                directory.release(lock)
        place.rmdir()
