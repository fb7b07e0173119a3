"""`Recorder` prepares the acquisition before each pass, and writes the results before the pass is committed.

Each pass has these steps:

before(first, steps)        make snapshot files, read values of sources ──► Acquisition for Engine.run_pass
after(first, results)       [exchange values of receivers near the cut between ranks: parts.py]
                            add the cells around each receiver ──► write and flush rows of traces, norms and checksums
commit                      makes these rows valid, and the snapshots visible

Snapshot files are made in full size before the pass that fills them. The new files already include the index of their
planes. Readers do not see the new files yet, because the metadata counts only snapshots up to the manifest's step. The
core fills and flushes the files and computes their checksums. A repeated pass fills the files again."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import inside
from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError, os_errors_as
from outcrop.language.sparse import Cells, Injection, Weights
from outcrop.language.stencil import PREVIOUS
from outcrop.run.acquisition.definitions import NOTHING_DEFINED, mapped_values, read_definitions
from outcrop.run.acquisition.parts import (
    GridSampling,
    PartRows,
    PartSampling,
    Peers,
    owners,
    part_norms,
    read_of_all,
)
from outcrop.run.acquisition.pass_acquisition import (
    NO_ACQUISITION,
    Acquisition,
    AcquisitionResults,
    PointInjection,
    Points,
    PointSamples,
    SnapshotFile,
    SumRequest,
)
from outcrop.run.disk.acquisition_files import NORMS, check_records, continued, snapshot_name, write_rows
from outcrop.run.disk.contents import snapshot_end
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.state import State
from outcrop.units import format_bytes

DIRECT_BYTES = 1 << 20
"""A snapshot of at least this size bypasses the page cache. For smaller snapshots, direct transfers would be
inefficient."""


class Recorder:
    """Records the acquisition of one run, beginning with its committed step. The constructor evaluates the scales of
    sources.

    If the run is a part, `peers` are the other ranks, and `rows` describes the rows that the passes of this part
    update. All ranks must make the object together, and must call `after` together."""

    def __init__(
        self, state: State, fields: Sequence[str], io: str = "auto", peers: Peers | None = None,
        rows: PartRows | None = None,
    ) -> None:  # fmt: skip
        self._state, self._fields = state, list(fields)
        self._io, self._peers, self._rows = io, peers, rows
        self._snapshot_records: list[tuple[str, int]] = []  # for each snapshot, the file and the row of its checksum
        self._last_step = 0  # the step at which the current pass ends
        self._definitions = NOTHING_DEFINED
        if state.manifest.taps:  # a run on devices without an acquisition has no folder of records
            check_records(state.records, state.manifest)
            self._definitions = read_definitions(state.records, state.manifest)
        self._sources = tuple(self._resolved(one) for one in self._definitions.injections)
        # for each source, the indices and the cells of the corners to which this run adds values
        self._corners = tuple(self._updated(one.cells.reshape(-1, 3)) for one in self._sources)
        self._parts: list[PartSampling | GridSampling] = []
        if rows is not None:
            part = rows.part
            owned = owners(self._definitions.samplings, (part.cut, part.planes))
            self._parts = [
                GridSampling(one, owned[one.name], part) if part.planes else PartSampling(one, owned[one.name], rows)
                for one in self._definitions.samplings
            ]
        cells = [one.cells for one in self._parts] or [one.cells.reshape(-1, 3) for one in self._definitions.samplings]
        self._samples = tuple(
            PointSamples(self._fields.index(one.field), each, one.before)
            for one, each in zip(self._definitions.samplings, cells, strict=True)
        )

    def before(self, first_step: int, steps: int) -> Acquisition:
        """Return the acquisition of the next pass. Raises StorageError if the files for the snapshots of the pass
        cannot be made, for example because the disk is full."""
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
        return tuple(self._injection(number, first_step, steps) for number in range(len(self._sources)))

    def after(self, first_step: int, results: AcquisitionResults) -> dict[str, int]:
        """Write the results of a pass. Return the checksums of the files of acquisition, for the commit. Raises
        StorageError."""
        manifest, taps = self._state.manifest, self._state.manifest.own_taps
        if not manifest.taps:
            return manifest.sums
        traces: dict[str, NDArray[np.float64]] = {}
        for name, (seen, weights) in zip([one.name for one in taps.samplings], self._seen(results), strict=True):
            total = traces.setdefault(name, np.zeros(seen.shape[:2]))
            total += _interpolated(seen, weights)
        new: dict[str, NDArray[Any]] = {f"trace-{name}": rows for name, rows in traces.items()}
        for place, field in enumerate(taps.norms.fields if taps.norms else ()):
            sums = results.sums[place]
            rows = [(one.step, one.sum, one.squares, one.minimum, one.maximum) for one in sums]
            new[f"norms-{field}"] = np.array(rows, NORMS)
            if manifest.part is not None:
                new[f"norms-{field}"] = part_norms([one.step for one in sums], results.raw_sums[place])
        for entry in taps.snapshots:
            first_row, end_row = entry.count(first_step), entry.count(self._last_step)
            new |= {entry.record(field): np.zeros(end_row - first_row, "<u4") for field in entry.fields}
        firsts = {name: row for name, (_, row) in taps.records(first_step).items()}
        for (name, number), checksum in zip(self._snapshot_records, results.snapshot_sums, strict=True):
            new[name][number - firsts[name]] = checksum
        checksums = dict(manifest.sums)
        for name, (_, first_row) in taps.records(first_step).items():
            added = new.get(name)
            if added is not None and len(added):
                write_rows(self._state.records, name, first_row, added)
                checksums[name] = continued(checksums[name], added)
        return checksums

    def _seen(self, results: AcquisitionResults) -> Iterator[tuple[NDArray[np.float64], Weights]]:
        """Yield two arrays for each `Sampling`: the values of all corners, of shape (steps, points, corners), and the
        weights of the corners."""
        if self._rows is None:
            for one, values in zip(self._definitions.samplings, results.samples, strict=True):
                yield values.reshape(len(values), *one.weights.shape), one.weights
            return
        known: list[NDArray[np.float64]] = list(results.samples)
        divided = [one for one in self._parts if isinstance(one, GridSampling)]
        if divided:
            sent = [one.for_above_z(values) for one, values in zip(divided, known, strict=True)]
            received = self._passed_up(sent, [one.received_z for one in divided], along_z=True)
            known = [np.concatenate(both, axis=1) for both in zip(known, received, strict=True)]
        sent = [one.for_above(values) for one, values in zip(self._parts, known, strict=True)]
        received = self._passed_up(sent, [one.received for one in self._parts])
        for part, values, got in zip(self._parts, known, received, strict=True):
            yield part.seen(values, got), part.weights

    def _passed_up(
        self, sent: Sequence[NDArray[np.float64]], counts: Sequence[int], along_z: bool = False
    ) -> Iterator[NDArray[np.float64]]:
        """Send values of each `Sampling` to the neighbour above, and yield the values that the neighbour below sends.
        For each `Sampling`, `counts` has the number of values that this rank receives in each step."""
        assert self._peers is not None
        every = np.empty((len(sent[0]) if sent else 0, sum(counts)))
        self._peers.pass_up(np.concatenate(sent, axis=1) if sent else np.empty((0, 0)), every, along_z)
        yield from np.split(every, np.cumsum(counts)[:-1], axis=1) if counts else ()

    def _sums(self, manifest: Manifest, last: int) -> tuple[SumRequest, ...]:
        entry = manifest.taps.norms
        if entry is None:
            return ()
        return tuple(SumRequest(self._fields.index(name), entry.steps(last)) for name in entry.fields)

    def _resolved(self, source: Injection) -> Injection:
        """Return a copy of `source`, in which the weights are multiplied by the scale. Raises InputError when the scale
        is not finite."""
        whole = source.resolved(self._read_cells)
        if not np.isfinite(whole.weights).all():
            point = int(np.argmax(~np.isfinite(whole.weights).all(axis=1)))
            raise InputError(f"a source in {source.field!r}: the scale of point {point} is not a finite number")
        return whole

    def _injection(self, number: int, first_step: int, steps: int) -> PointInjection:
        """Return the values that a source adds to each corner in each step of a pass. After its last value, the source
        adds 0. The file with the values is mapped again for each pass, because a single mapping would keep in memory
        all pages that were read."""
        source, (places, cells) = self._sources[number], self._corners[number]
        points, weights = places // source.weights.shape[1], source.weights.reshape(-1)[places]
        values = np.zeros((steps, len(places)), self._state.manifest.dtype)
        given = mapped_values(self._state.records, self._state.manifest, number)[first_step : first_step + steps]
        for row, of_points in zip(values, given, strict=False):
            row[:] = of_points[points] * weights
        return PointInjection(self._fields.index(source.field), cells, values, first_step)

    def _updated(self, cells: Points) -> tuple[NDArray[np.int64], Points]:
        if self._rows is not None:
            return self._rows.images(cells)
        return np.arange(len(cells)), cells

    def _read_cells(self, field: str, cells: Cells) -> Weights:
        manifest = self._state.manifest
        if ((cells < 0) | (cells >= np.array(manifest.whole_layout.shape))).any():
            raise InputError(f"the scale of a source reads {field} outside the grid; move the source inwards")
        if manifest.part is None:
            return self._state.cells_of(field, cells, self._io)
        assert self._peers is not None
        return read_of_all(field, cells, manifest.part, self._peers, partial(self._state.cells_of, io=self._io))


def _interpolated(seen: NDArray[np.float64], weights: Weights) -> NDArray[np.float64]:
    """Return the interpolated values, of shape (steps, points). Each value is a weighted sum over the corners of a
    point. The corners are added in the same order as in the oracle."""
    total: NDArray[np.float64] = np.zeros(seen.shape[:2])
    for corner in range(seen.shape[2]):
        total += weights[:, corner] * seen[:, :, corner]
    return total


def require_space(directory: Directory, manifest: Manifest, last_step: int) -> None:
    """Raise InputError if the storage has too little space for the snapshots up to `last_step`."""
    if not manifest.own_taps.snapshots:
        return
    times = needed = 0
    for entry in manifest.own_taps.snapshots:
        more = len(entry.numbers(last_step, manifest.step))
        each = math.prod(entry.shape) * np.dtype(manifest.dtype).itemsize + len(snapshot_end(manifest, entry))
        times, needed = times + more, needed + more * len(entry.fields) * each
    room = os.statvfs(directory.handle)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        raise InputError(
            f"no space: {times} snapshots need {format_bytes(needed)} in {directory.path}, {format_bytes(free)} are "
            "free; make room, or start again with fewer snapshots or a smaller box"
        )


def make_files(
    directory: Directory, manifest: Manifest, fields: list[str], first: int, steps: int
) -> Iterator[tuple[str, int, SnapshotFile]]:
    """Make the files for the snapshots of the pass that begins with step `first`. For each snapshot, yield three
    values: the name of the file for the checksum of the snapshot, the number of the snapshot, and its `SnapshotFile`.
    `fields` contains the names of the stencil's fields. Raises OSError and StorageError."""
    itemsize = np.dtype(manifest.dtype).itemsize
    for entry in manifest.own_taps.snapshots:
        size, end = math.prod(entry.shape) * itemsize, snapshot_end(manifest, entry)
        begins, ends = zip(*entry.box, strict=True)
        z, y, x = zip(inside(begins, 0), inside(ends, 1), strict=True)
        group = inside(entry.group, 1)
        for number in entry.numbers(first + steps, first):
            for array in entry.fields:
                name = snapshot_name(entry, array, number)
                folder = name.rpartition("/")[0]
                directory.make_folder(folder)
                directory.remove(name)  # an earlier pass that was killed may have left this file
                directory.create(name, size=size + len(end))
                directory.write(name, size, end)
                parts = folder.split("/")
                for count in range(len(parts), len(parts) - len(entry.box) - 2, -1):
                    directory.flush("/".join(parts[:count]))
                file = SnapshotFile(
                    fields.index(array.removesuffix(PREVIOUS)), entry.step_of(number), (z, y, x), name,
                    direct=size >= DIRECT_BYTES, folder=directory.handle, age=int(array.endswith(PREVIOUS)),
                    group=group,
                )
                yield entry.record(array), number, file
