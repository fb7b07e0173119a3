"""`Recorder` prepares the acquisition before each pass, and writes the results before the pass is committed.

Each pass has these steps:

before(first, steps)        make snapshot files, read values of sources ──► Acquisition for Engine.run_pass
after(first, results)       add corners of receivers ──► write and flush rows of traces, norms and checksums
commit                      makes these rows valid, and the snapshots visible

Snapshot files, with the indices of their planes, are made in full size before the pass that fills them. Readers do not
see them, because the metadata counts snapshots up to the manifest's step. The core fills and flushes them and computes
their checksums. A repeated pass fills them again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import inside
from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError, os_errors_as
from outcrop.language.sparse import Cells, Injection, Weights
from outcrop.language.stencil import PREVIOUS
from outcrop.run.acquisition.definitions import NOTHING_DEFINED, mapped_values, read_definitions
from outcrop.run.acquisition.pass_acquisition import (
    NO_ACQUISITION,
    Acquisition,
    AcquisitionResults,
    PointInjection,
    PointSamples,
    SnapshotFile,
    SumRequest,
)
from outcrop.run.disk.acquisition_files import NORMS, check_records, continued, snapshot_name, write_rows
from outcrop.run.disk.layout import snapshot_index
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.state import State
from outcrop.units import format_bytes

DIRECT_BYTES = 1 << 20
"""A snapshot of at least this size bypasses the page cache. For smaller snapshots, direct transfers are inefficient."""


class Recorder:
    """Records the acquisition of one run, beginning with its committed step. The constructor evaluates the scales of
    sources."""

    def __init__(self, state: State, fields: Sequence[str], io: str = "auto") -> None:
        self._state, self._fields = state, list(fields)
        self._io = io
        self._snapshot_records: list[tuple[str, int]] = []  # the file and the row of the checksum of each snapshot
        self._last_step = 0  # the step at which the current pass ends
        self._definitions = NOTHING_DEFINED
        if state.manifest.taps:  # a run on devices without an acquisition has no folder of records
            check_records(state.records, state.manifest)
            self._definitions = read_definitions(state.records, state.manifest)
        self._sources = tuple(self._resolved(one) for one in self._definitions.injections)
        self._samples = tuple(
            PointSamples(self._fields.index(one.field), one.cells.reshape(-1, 3), one.before)
            for one in self._definitions.samplings
        )

    def before(self, first_step: int, steps: int) -> Acquisition:
        """Return the acquisition of the next pass. Raises StorageError if its snapshots do not fit."""
        manifest = self._state.manifest
        if not manifest.taps:
            return NO_ACQUISITION
        with os_errors_as(StorageError, f"cannot make snapshots in {self._state.records.path}"):
            made = list(make_files(self._state.records, manifest, self._fields, first_step, steps))
        sources = self.injections(first_step, steps)
        self._snapshot_records = [(name, number) for name, number, _ in made]
        self._last_step = first_step + steps
        sums = self._sums(manifest, self._last_step)
        return Acquisition(sources, self._samples, tuple(file for _, _, file in made), sums)

    def injections(self, first_step: int, steps: int) -> tuple[PointInjection, ...]:
        """Return the values that all sources add in these steps."""
        return tuple(self._injection(number, first_step, steps) for number in range(len(self._sources)))

    def after(self, first_step: int, results: AcquisitionResults) -> dict[str, int]:
        """Write the results of a pass. Return the new checksum of each file with records, for the commit. Raises
        StorageError."""
        manifest = self._state.manifest
        if not manifest.taps:
            return manifest.sums
        traces: dict[str, NDArray[np.float64]] = {}
        for one, values in zip(self._definitions.samplings, results.samples, strict=True):
            seen = values.reshape(len(values), *one.weights.shape)
            total = traces.setdefault(one.name, np.zeros(seen.shape[:2]))
            total += _interpolated(seen, one.weights)
        new: dict[str, NDArray[Any]] = {f"trace-{name}": rows for name, rows in traces.items()}
        if manifest.taps.norms:
            for field, sums in zip(manifest.taps.norms.fields, results.sums, strict=True):
                rows = [(one.step, one.sum, one.squares, one.minimum, one.maximum) for one in sums]
                new[f"norms-{field}"] = np.array(rows, NORMS)
        for entry in manifest.taps.snapshots:
            first_row, end_row = entry.count(first_step), entry.count(self._last_step)
            new |= {entry.record(field): np.zeros(end_row - first_row, "<u4") for field in entry.fields}
        firsts = {name: row for name, (_, row) in manifest.taps.records(first_step).items()}
        for (name, number), checksum in zip(self._snapshot_records, results.snapshot_sums, strict=True):
            new[name][number - firsts[name]] = checksum
        checksums = dict(manifest.sums)
        for name, (_, first_row) in manifest.taps.records(first_step).items():
            added = new.get(name)
            if added is not None and len(added):
                write_rows(self._state.records, name, first_row, added)
                checksums[name] = continued(checksums[name], added)
        return checksums

    def _sums(self, manifest: Manifest, last: int) -> tuple[SumRequest, ...]:
        entry = manifest.taps.norms
        if entry is None:
            return ()
        return tuple(SumRequest(self._fields.index(name), entry.steps(last)) for name in entry.fields)

    def _resolved(self, source: Injection) -> Injection:
        """Return `source` with its weights multiplied by its scale. Raises InputError when the scale is not finite."""
        whole = source.resolved(self._read_cells)
        if not np.isfinite(whole.weights).all():
            point = int(np.argmax(~np.isfinite(whole.weights).all(axis=1)))
            raise InputError(f"a source in {source.field!r}: the scale of point {point} is not a finite number")
        return whole

    def _injection(self, number: int, first_step: int, steps: int) -> PointInjection:
        """Return the values that a source adds to each corner in each step of a pass. After the last value of the
        source, it adds 0. The file with the values is mapped again for each pass: a single mapping would keep in memory
        all pages that were read."""
        source = self._sources[number]
        values = np.zeros((steps, source.weights.size), self._state.manifest.dtype)
        given = mapped_values(self._state.records, self._state.manifest, number)[first_step : first_step + steps]
        for row, of_points in zip(values, given, strict=False):
            row[:] = (of_points[:, None] * source.weights).reshape(-1)
        return PointInjection(self._fields.index(source.field), source.cells.reshape(-1, 3), values, first_step)

    def _read_cells(self, field: str, cells: Cells) -> Weights:
        """Return the committed values of `field` at `cells`."""
        if ((cells < 0) | (cells >= np.array(self._state.layout.shape))).any():
            raise InputError(f"the scale of a source reads {field} outside the grid; move the source inwards")
        return self._state.cells_of(field, cells, self._io)


def _interpolated(seen: NDArray[np.float64], weights: Weights) -> NDArray[np.float64]:
    """Return interpolated values of shape (steps, points): the weighted sums over the corners, which are added in the
    same order as in the oracle."""
    total: NDArray[np.float64] = np.zeros(seen.shape[:2])
    for corner in range(seen.shape[2]):
        total += weights[:, corner] * seen[:, :, corner]
    return total


def require_space(directory: Directory, manifest: Manifest, last_step: int) -> None:
    """Raise InputError if the storage has too little space for the snapshots up to `last_step`."""
    if not manifest.taps.snapshots:
        return
    times = needed = 0
    for entry in manifest.taps.snapshots:
        more = len(entry.numbers(last_step, manifest.step))
        each = math.prod(entry.shape) * np.dtype(manifest.dtype).itemsize + len(snapshot_index(entry.shape, 1))
        times, needed = times + more, needed + more * len(entry.fields) * each
    room = os.statvfs(directory.handle)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        raise InputError(
            f"no space: {times} snapshots need {format_bytes(needed)} in {directory.path}, {format_bytes(free)} are "
            "free; make room, or start again with fewer of them or a smaller box"
        )


def make_files(
    directory: Directory, manifest: Manifest, fields: list[str], first: int, steps: int
) -> Iterator[tuple[str, int, SnapshotFile]]:
    """Make the files for the snapshots of the pass that begins with step `first`. For each snapshot, yield three
    values: the name of the file for the checksum of the snapshot, the number of the snapshot, and its `SnapshotFile`.
    `fields` has the names of the stencil's fields. Raises OSError and StorageError."""
    itemsize = np.dtype(manifest.dtype).itemsize
    for entry in manifest.taps.snapshots:
        size, index = math.prod(entry.shape) * itemsize, snapshot_index(entry.shape, itemsize)
        begins, ends = zip(*entry.box, strict=True)
        z, y, x = zip(inside(begins, 0), inside(ends, 1), strict=True)
        for number in entry.numbers(first + steps, first):
            for array in entry.fields:
                name = snapshot_name(entry, array, number)
                folder = name.rpartition("/")[0]
                directory.make_folder(folder)
                directory.remove(name)  # an earlier pass that was killed may have left this file
                directory.create(name, size=size + len(index))
                directory.write(name, size, index)
                parts = folder.split("/")
                for count in range(len(parts), len(parts) - len(entry.box) - 2, -1):
                    directory.flush("/".join(parts[:count]))
                file = SnapshotFile(
                    fields.index(array.removesuffix(PREVIOUS)), entry.step_of(number), (z, y, x), name,
                    direct=size >= DIRECT_BYTES, folder=directory.handle, age=int(array.endswith(PREVIOUS)),
                )
                yield entry.record(array), number, file
