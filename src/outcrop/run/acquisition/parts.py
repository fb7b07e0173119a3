"""The acquisition of one part of a run that several ranks compute together.

Each part stores the points of the whole grid. Each rank that updates a cell of a source adds the values of the source
to this cell. The value of a receiver at a point depends on several cells. A point belongs to the part that has the
highest row of the point's cells. The part to which a point belongs records the values of the point. The other cells of
the point can belong to the rank below the cut. With split tiling, the rank below can also update the highest row:

    part of rank j + 1     ▲ point p, with the cells a, b, c, d
      ...                  │
      row cut              a   b      with split tiling, rank j updates these rows at some levels
    ───────────────────────────────
      row cut - 1          c   d      rank j owns and updates these rows
      ...
    part of rank j

So after each pass, rank j sends some of its sampled values to rank j + 1: the values of the cells near the cut. The
receiving rank uses the values from rank j for the cells that it has not sampled itself. Then the receiving rank adds up
the values of the cells of each point, in the same order as the oracle. After these additions, the records of a part are
complete for its points, so a commit of the part needs no other rank. If the grid is also divided along z, values are
first sent to the upper neighbour along z. Then values are sent to the upper neighbour along y (`GridSampling`).

The norms of a part are exact sums over the cells that its rank updates. `rounded_norms` adds the sums of all parts, and
rounds the result.

`MovedRecords` makes the records of new parts when the number or the grid of ranks changes. `MovedRecords` treats a run
of one process like a run of one rank, which has only one part.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.errors import CorruptionError, StorageError, os_errors_as
from outcrop.language.boundary import as_boundary
from outcrop.language.sparse import Cells, Sampling, Weights
from outcrop.plan.actions import FAR
from outcrop.plan.plan import Plan
from outcrop.plan.schemes import EVERY_SCHEME
from outcrop.run.acquisition.pass_acquisition import UNSEEN, Points, RawSum, extremes, rounded
from outcrop.run.disk.acquisition_files import NORMS, PART_NORMS, continued, read_rows, snapshot_name, write_rows
from outcrop.run.disk.contents import SNAPSHOTS, snapshot_end
from outcrop.run.disk.entries import EXACT_BYTES, PartEntry, SnapshotsEntry
from outcrop.run.disk.manifest import Description, Manifest
from outcrop.run.disk.state import State


class Peers(Protocol):
    """The interface to the other ranks."""

    def everyone(self, read: Callable[[], bytes]) -> list[bytes]:
        """Call `read` on each rank, and return the results of all ranks. All ranks must call this method. If `read`
        raises an error on one rank, all ranks raise this error."""

    def pass_up(self, sent: NDArray[np.float64], received: NDArray[np.float64], along_z: bool = False) -> None:
        """Send the array `sent` to the neighbour above, and fill the array `received` with values from the neighbour
        below, along y or along z. Empty arrays are not transferred. Raises CommunicationError, CorruptionError or
        InterruptedRun."""


Everyone = Callable[[Callable[[], bytes]], "list[bytes]"]
"""The type of `Peers.everyone`."""


Cuts: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""The cut along y and the cut along z (plan/ranks.py)."""


def cuts_of(manifest: Description) -> Cuts:
    """Return the cuts of a run. For a run of one process, return the cuts of a run with a single rank."""
    return manifest.cut, manifest.part.planes if manifest.part else ()


def cells_of(manifest: Description, rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the range of planes and the range of rows of the part of `rank`. `manifest` describes any part of the same
    run. If `manifest` describes a run of one process, return all planes and rows."""
    if manifest.part is None:
        return manifest.planes, manifest.rows
    part = replace(manifest.part, rank=rank)
    return part.own_planes or manifest.planes, part.rows


def owners(samplings: Sequence[Sampling], cuts: Cuts) -> dict[str, NDArray[np.int64]]:
    """Return a dictionary that maps the name of each trace to an array. For each point of the trace, the array has the
    rank to which the point belongs."""
    highest: dict[str, NDArray[np.int64]] = {}
    for one in samplings:
        cells = one.cells.max(axis=1)
        highest[one.name] = np.maximum(highest.get(one.name, cells), cells)
    return {name: ranks_with(cells, cuts) for name, cells in highest.items()}


def ranks_with(cells: NDArray[np.int64], cuts: Cuts) -> NDArray[np.int64]:
    """For each cell, return the rank to which the cell belongs. `cells` has the shape (..., 3), and each cell is (z, y,
    x)."""
    cut, planes = cuts
    ranks = np.searchsorted(cut, cells[..., 1], side="right") - 1
    if planes:
        ranks = ranks + (len(cut) - 1) * (np.searchsorted(planes, cells[..., 0], side="right") - 1)
    return ranks


def own_traces(samplings: Sequence[Sampling], part: PartEntry) -> dict[str, int]:
    """Return a dictionary that maps the name of each trace to the number of the trace's points in a part.
    """
    owner = owners(samplings, (part.cut, part.planes))
    return {name: int(np.count_nonzero(one == part.rank)) for name, one in owner.items()}


@dataclass(frozen=True)
class PartRows:
    """The rows that the passes of a part update: the rows of the part, and rows of neighbours. At each side with a
    neighbour, passes update at most `halo` rows of the neighbour. If the grid is also divided along z, passes update at
    most `halo_z` planes of a neighbour. Receivers also sample `shared` rows beyond the upper cut, which belong to the
    neighbour above. If `is_ring` is true, the last rank is the lower neighbour of the first rank. If `is_ring_z` is
    true, the ranks also form a ring along z."""

    part: PartEntry
    halo: int
    shared: int
    is_ring: bool
    halo_z: int = 0
    is_ring_z: bool = False

    @staticmethod
    def of(description: Description, plan: Plan) -> PartRows:
        assert description.part is not None
        levels = max(one.levels for one in plan.passes)
        halo, part = plan.problem.radius_y * levels, description.part
        shared = halo if EVERY_SCHEME[plan.scheme].shared_levels is not None else 0
        along_z, along_y, _ = (low == "periodic" for low, _ in as_boundary(description.boundary).sides)
        halo_z = plan.problem.radius_z * levels if part.planes else 0
        return PartRows(part, halo, shared, along_y and len(part.cut) > 2, halo_z, along_z and bool(part.planes))

    @property
    def above(self) -> int | None:
        """The rank above this part, or None if there is no such rank."""
        rank = self.part.rank + 1
        return rank if rank < self.part.ranks else 0 if self.is_ring else None

    @property
    def has_below(self) -> bool:
        return self.part.rank > 0 or self.is_ring

    def images(self, cells: Points) -> tuple[NDArray[np.int64], Points]:
        """Select the cells that passes of this part update. Return the indices of the selected cells in `cells`, and
        the selected cells. In the returned cells, planes and rows are counted from the first plane and row of the part.
        In a ring of few ranks, the same cell can be both below and above the part. The result contains such a cell
        twice."""
        planes, cuts = self.part.own_planes or (0, FAR), (self.part.planes or (0,), self.part.cut)
        halos, rings, places, found = (self.halo_z, self.halo), (self.is_ring_z, self.is_ring), [], []
        shifts = ((-cut[-1], 0, cut[-1]) if is_ring else (0,) for is_ring, cut in zip(rings, cuts, strict=True))
        for shift in itertools.product(*shifts):
            moved, is_inside = cells.copy(), np.ones(len(cells), bool)
            for axis, (first, end) in enumerate((planes, self.part.rows)):
                moved[:, axis] += shift[axis] - first
                is_inside &= (moved[:, axis] >= -halos[axis]) & (moved[:, axis] < end - first + halos[axis])
            places.append(np.flatnonzero(is_inside))
            found.append(moved[is_inside])
        return np.concatenate(places), np.concatenate(found)


class PartSampling:
    """The cells that a `Sampling` (receivers of one field) reads on a rank. The cells of the rank's own points come
    first. Then come the cells of points that belong to the rank above. `owner` contains the rank to which each point
    belongs.

    For each step of a pass, this rank sends `sent` values to the rank above, and receives `received` values from the
    rank below."""

    def __init__(self, one: Sampling, owner: NDArray[np.int64], rows: PartRows) -> None:
        part, own = rows.part, owner == rows.part.rank
        first, end = part.rows
        self._weights: Weights = one.weights[own]
        mine = one.cells[own].reshape(-1, 3)
        self._here = (mine[:, 1] >= first) & (mine[:, 1] < end)
        self._below = _may_be_below(mine, first, rows.shared) if rows.has_below else np.zeros(len(mine), bool)
        local, above = mine[self._here] - [0, first, 0], np.empty((0, 3), np.int64)
        if rows.above is not None:
            begin = part.cut[rows.above]
            theirs = one.cells[owner == rows.above].reshape(-1, 3)
            wrapped = part.cut[-1] if begin < first else 0
            above = theirs[_may_be_below(theirs, begin, rows.shared)] + [0, wrapped - first, 0]
        assert (self._here | self._below).all(), "the cells of a point belong to at most two ranks"
        self.cells: Points = np.concatenate([local, above])
        self.sent, self.received = len(above), int(np.count_nonzero(self._below))

    def for_above(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sampled values that the rank above needs. `values` contains all sampled values, in the shape
        (steps, cells)."""
        return values[:, len(self.cells) - self.sent :]

    def seen(self, values: NDArray[np.float64], received: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return an array of shape (steps, points, corners): the values at the corners of this part's points."""
        found = np.full((len(values), len(self._here)), UNSEEN)
        found[:, self._here] = values[:, : len(self.cells) - self.sent]
        mine = found[:, self._below]
        found[:, self._below] = np.where(_is_unseen(mine), received, mine)
        assert not _is_unseen(found).any(), "a rank has sampled each cell"
        return found.reshape(len(values), *self._weights.shape)

    @property
    def weights(self) -> Weights:
        return self._weights


class GridSampling:
    """This class replaces PartSampling if the grid is divided along z. Each rank samples its own cells. A point belongs
    to the rank with the highest plane and the highest row of the point's cells. The other cells of the point can belong
    to three other ranks: the lower neighbour along y, the lower neighbour along z, and the rank that is lower along
    both axes. After each pass, each rank first sends values to the upper neighbour along z. Then each rank sends its
    own values and the received values to the upper neighbour along y."""

    def __init__(self, one: Sampling, owner: NDArray[np.int64], part: PartEntry) -> None:
        parts_y, corners = len(part.cut) - 1, one.cells.shape[1]
        rank, below, low = part.rank, part.rank - parts_y, part.rank - 1 if part.rank % parts_y else -1
        cells: Points = one.cells.reshape(-1, 3)
        owner = np.repeat(owner, corners)
        has = ranks_with(cells, (part.cut, part.planes))
        same_row, next_row = (owner % parts_y == rank % parts_y + ahead for ahead in (0, 1))
        self._weights: Weights = one.weights[owner[::corners] == rank]
        here, is_of_plane = np.flatnonzero(has == rank), owner // parts_y == rank // parts_y
        begin = np.array([part.own_planes[0] if part.own_planes else 0, part.rows[0], 0], np.int64)
        self.cells: Points = cells[here] - begin
        self._sent_z = np.flatnonzero((owner // parts_y == rank // parts_y + 1)[here])
        from_below = np.flatnonzero((has == below) & is_of_plane)
        self._known = np.concatenate([here, from_below])  # the cells whose values `for_above` gets
        self.received_z = len(from_below)
        passed_on = np.isin(np.arange(len(cells)), self._known) & is_of_plane & next_row
        order = np.argsort(self._known)
        self._sent = order[passed_on[self._known[order]]]
        mine = is_of_plane & same_row
        # these cells belong to the lower neighbour along y, or to the rank that is lower along both axes
        self._from_low = np.flatnonzero(mine & ((has == low) | (has == low - parts_y))) if low >= 0 else here[:0]
        self._mine, self.received = np.flatnonzero(mine), len(self._from_low)

    def for_above_z(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sampled values that the neighbour above along z needs. `values` has all sampled values, in the
        shape (steps, cells)."""
        return values[:, self._sent_z]

    def for_above(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values that the upper neighbour along y needs. `values` has the sampled values, followed by the
        `received_z` values from the neighbour below along z."""
        return values[:, self._sent]

    def seen(self, values: NDArray[np.float64], received: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return an array of shape (steps, points, corners): the values at the corners of this part's points."""
        known = {cell: place for place, cell in enumerate([*self._known.tolist(), *self._from_low.tolist()])}
        every = np.concatenate([values, received], axis=1)
        found = every[:, [known[cell] for cell in self._mine.tolist()]]
        assert not _is_unseen(found).any(), "a rank has sampled each cell"
        return found.reshape(len(values), *self._weights.shape)

    @property
    def weights(self) -> Weights:
        return self._weights


def _may_be_below(cells: Points, first: int, shared: int) -> NDArray[np.bool_]:
    """Return an array with a flag for each cell. The flag is True if the rank below the row `first` can sample this
    cell."""
    found: NDArray[np.bool_] = cells[:, 1] < first + shared
    return found


def _is_unseen(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.ascontiguousarray(values).view(np.int64) == UNSEEN.view(np.int64)
    return found


def read_of_all(
    field: str, cells: Cells, part: PartEntry, peers: Peers, read: Callable[[str, Cells], Weights]
) -> Weights:
    """Return the values of a field at cells of the whole grid. `read` returns the values at cells of this part. `read`
    counts rows and planes from the first row and plane of the part. All ranks must call this function together."""
    owner = ranks_with(cells, (part.cut, part.planes))
    mine = cells[owner == part.rank] - [part.own_planes[0] if part.own_planes else 0, part.rows[0], 0]
    found = np.empty(cells.shape[:-1])
    for rank, data in enumerate(peers.everyone(lambda: read(field, mine).tobytes())):
        found[owner == rank] = np.frombuffer(data)
    return found


def joined_trace(owner: NDArray[np.int64], parts: Sequence[bytes]) -> NDArray[np.float64]:
    """Return a trace of shape (steps, points) from the records of all parts. `owner` contains the rank of each
    point."""
    steps = sum(map(len, parts)) // (8 * len(owner))
    whole = np.empty((steps, len(owner)))
    for rank, data in enumerate(parts):
        own = owner == rank
        whole[:, own] = np.frombuffer(data).reshape(steps, np.count_nonzero(own))
    return whole


def part_norms(steps: Sequence[int], sums: Sequence[RawSum]) -> NDArray[np.void]:
    rows = np.zeros(len(sums), PART_NORMS)
    for row, step, (total, special, squares, special_squares, low, high) in zip(rows, steps, sums, strict=True):
        row["step"], row["sum"], row["squares"], row["min"], row["max"] = step, special, special_squares, low, high
        row["exact_sum"], row["exact_squares"] = total, squares
    return rows


def exact_norms(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Convert rows of norms from the form of a whole run to the form of a part. `rounded_norms` converts the result
    back to the same rows."""
    found = np.zeros(len(rows), PART_NORMS)
    found["step"] = rows["step"]
    is_seen = rows["min"] <= rows["max"]  # false if all values are NaN
    found["min"], found["max"] = np.where(is_seen, rows["min"], np.inf), np.where(is_seen, rows["max"], -np.inf)
    for one, row in zip(found, rows, strict=True):
        for name in ("sum", "squares"):
            value = float(row[name])
            if math.isfinite(value):
                one[f"exact_{name}"] = int(Fraction(value) * (1 << 1074)).to_bytes(EXACT_BYTES, "little", signed=True)
            else:
                one[name] = value
    return found


def rounded_norms(parts: Sequence[bytes]) -> NDArray[np.void]:
    """Return the norms of the whole grid from the records of all parts. The exact sums of the parts are added and then
    rounded once."""
    records = [np.frombuffer(data, PART_NORMS) for data in parts]
    rows = np.zeros(len(records[0]), NORMS)
    for number, row in enumerate(rows):
        each = [one[number] for one in records]
        low, high = min(float(one["min"]) for one in each), max(float(one["max"]) for one in each)
        row["step"], (row["min"], row["max"]) = each[0]["step"], extremes(low, high)
        for name in ("sum", "squares"):
            exact = sum(_whole(one[f"exact_{name}"]) for one in each)
            row[name] = rounded(exact, sum(float(one[name]) for one in each))
    return rows


def _append(whole: State, sums: dict[str, int], record: str, rows: NDArray[Any]) -> None:
    write_rows(whole.records, record, 0, rows)
    sums[record] = continued(sums[record], rows)


def _write_snapshot(target: State, own: SnapshotsEntry, field: str, number: int, planes: Iterable[bytes]) -> int:
    """Write a snapshot of a run or a part, plane by plane, and return its checksum. `own` is the entry with the rows of
    this run or part."""
    item_bytes, records = np.dtype(target.manifest.dtype).itemsize, target.records
    size, end = math.prod(own.shape) * item_bytes, snapshot_end(target.manifest, own)
    name = snapshot_name(own, field, number)
    checksum, offset = 0, 0
    with os_errors_as(StorageError, f"cannot write {records.path / name}"):
        records.make_folder(name.rpartition("/")[0])
        records.create(name, size=size + len(end))
        with records.opened(name, os.O_RDWR) as handle:
            for plane in planes:
                checksum = _core.crc32c(plane, checksum)
                offset += records.write_to(handle, offset, plane)
            records.write_to(handle, offset, end)
            records.flush_file(handle)
        records.flush_all(SNAPSHOTS)
    return checksum


class _PartSnapshot:
    """Reads a snapshot of one part, plane by plane. After the last plane, `check` compares the checksum of all planes
    with the stored checksum."""

    def __init__(self, state: State, own: SnapshotsEntry, field: str, number: int, handle: int) -> None:
        self._state, self._handle = state, handle
        self._name, self._checksum = snapshot_name(own, field, number), 0
        is_empty = 0 in own.shape
        self._plane_bytes = 0 if is_empty else math.prod(own.shape[1:]) * np.dtype(state.manifest.dtype).itemsize
        checksums = read_rows(state.records, state.manifest, own.record(field)) if self._plane_bytes else b""
        self._expected = int(np.frombuffer(checksums, "<u4")[number]) if checksums else 0

    @staticmethod
    @contextlib.contextmanager
    def opened(state: State, entry: SnapshotsEntry, field: str, number: int) -> Iterator[_PartSnapshot]:
        own = entry.of_rows(*state.manifest.rows, state.manifest.planes)
        if 0 in own.shape:
            yield _PartSnapshot(state, own, field, number, -1)
            return
        with state.records.opened(snapshot_name(own, field, number)) as handle:
            yield _PartSnapshot(state, own, field, number, handle)

    def plane(self, z: int) -> bytes:
        if not self._plane_bytes:
            return b""
        data = self._state.records.read_from(self._handle, z * self._plane_bytes, self._plane_bytes)
        self._checksum = _core.crc32c(data, self._checksum)
        return data

    def check(self) -> None:
        """Raise CorruptionError if the planes that were read differ from the planes that were written."""
        if self._checksum != self._expected:
            raise CorruptionError(f"{self._state.path / self._name} is damaged: checksum mismatch")


class MovedRecords:
    """Makes the records of one new part from the records of all old parts, when the number or the grid of ranks
    changes. `rank` is the number of the new part. `cuts` has the cuts of the new run. `first` is the manifest of the
    old part 0 at the step of the move. A run of one process is called a whole run. A whole run can be the only old part
    or the only new part.

    Each old part that has cells of the new part yields a sequence of blocks of values. The n-th blocks of all sequences
    are joined:

        traces       for each trace, the points that the old and the new part have in common
        norms        for each field, the sums of the old part, if its first cell is in the new part, or else nothing
        snapshots    for each plane, the cells that the old and the new part have in common

    The first cell of an old part is in exactly one new part, so the exact sums move to exactly one new part. The sums
    of a new part can include cells that now belong to other parts, but the sum over all parts does not change. A whole
    run stores only rounded sums. The rounded sums of a whole run are used as if they were exact."""

    def __init__(self, first: Manifest, samplings: Sequence[Sampling], cuts: Cuts, rank: int) -> None:
        self._first, self._taps = first, first.taps
        self._step, self._dtype = first.step, np.dtype(first.dtype)
        (cut, planes), parts_y = cuts, len(cuts[0]) - 1
        row, plane = rank % parts_y, rank // parts_y
        self._rows = cut[row], cut[row + 1]
        self._own_planes = (planes[plane], planes[plane + 1]) if planes else (0, first.whole_shape[0])
        self._is_whole = parts_y == 1 and not planes
        before, after = owners(samplings, cuts_of(first)), owners(samplings, cuts)
        # for each trace, the old rank of each point of the new part
        self._points = {name: before[name][after[name] == rank] for name in self._taps.traces}
        self._taken = {name: (before[name], after[name] == rank) for name in self._taps.traces}

    def blocks(self, old: State) -> Iterator[NDArray[Any]]:
        """Yield the blocks that the new part gets from an old part. Raises CorruptionError and StorageError."""
        part, own_rows = old.manifest.part, old.manifest.rows
        rank = 0 if part is None else part.rank
        for name, (owner, is_new) in self._taken.items():
            rows = np.frombuffer(read_rows(old.records, old.manifest, f"trace-{name}"), "<f8")
            yield rows.reshape(self._step, np.count_nonzero(owner == rank))[:, is_new[owner == rank]]
        for name in self._norms:
            norms = np.empty(0, PART_NORMS)
            if self._takes_norms(rank):
                data = read_rows(old.records, old.manifest, f"norms-{name}")
                norms = np.frombuffer(data, PART_NORMS) if part else exact_norms(np.frombuffer(data, NORMS))
            yield norms
        for entry, field, number in self._snapshots():
            with _PartSnapshot.opened(old, entry, field, number) as source:
                shape, wanted = entry.of_rows(*own_rows).shape[1:], self._box_planes(entry)
                first = entry.values_in(0, old.manifest.planes)[0]
                for z in range(entry.shape[0]):  # all planes of the old part, because one checksum is for all planes
                    if self._has_plane(entry, rank, z):
                        plane = np.frombuffer(source.plane(z - first), self._dtype).reshape(shape)
                        if z in wanted:
                            yield plane[self._common(entry, rank)[0]]
                    elif z in wanted:
                        yield np.empty((0, shape[1]), self._dtype)
                source.check()

    def received(self, rank: int, receive: Callable[[NDArray[Any]], None]) -> Iterator[NDArray[Any]]:
        """Yield the blocks of an old part that is on another rank. The blocks have the same order as the blocks that
        the method `blocks` yields on the other rank. `receive` fills one block after the other."""

        def block(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
            found = np.empty(shape, dtype)
            receive(found)
            return found

        for owner in self._points.values():
            yield block((self._step, int(np.count_nonzero(owner == rank))), np.dtype("<f8"))
        for _ in self._norms:
            yield block((self._norm_count * self._takes_norms(rank),), PART_NORMS)
        for entry, _, _ in self._snapshots():
            _, rows = self._common(entry, rank)
            for z in self._box_planes(entry):
                count = (rows.stop - rows.start) * self._has_plane(entry, rank, z)
                yield block((count, entry.shape[2]), self._dtype)

    def write(self, target: State, sources: Mapping[int, Iterator[NDArray[Any]]]) -> dict[str, int]:
        """Write and flush the records of the new part `target`. `sources` maps the ranks of old parts to their blocks.
        Return the checksums of the files of acquisition, for the commit."""
        sums = dict(target.manifest.sums)
        for name, owner in self._points.items():
            rows = np.empty((self._step, len(owner)))
            for rank, blocks in sources.items():
                rows[:, owner == rank] = next(blocks)
            _append(target, sums, f"trace-{name}", rows)
        for name in self._norms:
            each = [next(blocks) for blocks in sources.values()]
            norms = self._added_norms([one for one in each if len(one)])
            _append(target, sums, f"norms-{name}", rounded_norms([norms.tobytes()]) if self._is_whole else norms)
        checksums: dict[str, list[int]] = {}
        for entry, field, number in self._snapshots():
            own = self._own(entry)
            checksum = _write_snapshot(target, own, field, number, self._planes(entry, own, sources))
            checksums.setdefault(entry.record(field), []).append(checksum)
        for record, values in checksums.items():
            _append(target, sums, record, np.array(values, "<u4"))
        for blocks in sources.values():
            assert next(blocks, None) is None, "all blocks were joined"  # this also checks the last checksum
        return sums

    def _planes(
        self, entry: SnapshotsEntry, own: SnapshotsEntry, sources: Mapping[int, Iterator[NDArray[Any]]]
    ) -> Iterator[bytes]:
        for _ in self._box_planes(entry):
            plane = np.empty(own.shape[1:], self._dtype)
            for rank, blocks in sources.items():
                block = next(blocks)
                if len(block):
                    plane[self._common(entry, rank)[1]] = block
            yield plane.tobytes()

    def _snapshots(self) -> Iterator[tuple[SnapshotsEntry, str, int]]:
        for entry in self._taps.snapshots:
            if 0 not in self._own(entry).shape:
                for field in entry.fields:
                    for number in entry.numbers(self._step):
                        yield entry, field, number

    def _own(self, entry: SnapshotsEntry) -> SnapshotsEntry:
        """Return a copy of `entry` that has only the cells in the new part."""
        return entry.of_rows(*self._rows, self._own_planes)

    def _box_planes(self, entry: SnapshotsEntry) -> range:
        """Return the numbers of the snapshot's planes that lie in the new part."""
        return range(*entry.values_in(0, self._own_planes))

    def _has_plane(self, entry: SnapshotsEntry, rank: int, z: int) -> bool:
        """Return True if the old part `rank` has plane z of the snapshots."""
        low, high = entry.values_in(0, cells_of(self._first, rank)[0])
        return low <= z < high

    def _common(self, entry: SnapshotsEntry, rank: int) -> tuple[slice, slice]:
        """Return the rows of the snapshots that the old part `rank` and the new part have in common, as two slices. In
        the first slice, rows are counted from the first row of the snapshots in the old part. In the second slice, rows
        are counted from the first row of the snapshots in the new part."""
        old, new = (entry.values_in(1, rows) for rows in (cells_of(self._first, rank)[1], self._rows))
        low, high, begins = max(old[0], new[0]), min(old[1], new[1]), (old[0], new[0])
        return tuple(slice(low - one, high - one) if low < high else slice(0, 0) for one in begins)  # type: ignore[return-value]

    @property
    def _norms(self) -> Sequence[str]:
        return self._taps.norms.fields if self._taps.norms else ()

    @property
    def _norm_count(self) -> int:
        return self._taps.norms.count(self._step) if self._taps.norms else 0

    def _takes_norms(self, rank: int) -> bool:
        (plane, _), (row, _) = cells_of(self._first, rank)
        return self._own_planes[0] <= plane < self._own_planes[1] and self._rows[0] <= row < self._rows[1]

    def _added_norms(self, parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
        """Add the exact sums of several parts, and return the result as rows of one part. If `parts` is empty, the
        result has the sums of an empty set of cells."""
        assert self._taps.norms is not None
        rows = np.zeros(self._norm_count, PART_NORMS)
        rows["step"] = self._taps.norms.steps(self._step)[: len(rows)]
        rows["min"], rows["max"] = np.inf, -np.inf
        for row, each in zip(rows, zip(*parts, strict=True), strict=True) if parts else ():
            row["min"], row["max"] = min(one["min"] for one in each), max(one["max"] for one in each)
            for name in ("sum", "squares"):
                row[name] = sum(float(one[name]) for one in each)
                row[f"exact_{name}"] = sum(_whole(one[f"exact_{name}"]) for one in each).to_bytes(
                    EXACT_BYTES, "little", signed=True
                )
        return rows


def _whole(exact: Any) -> int:
    """Return an exact sum as a whole number of units of 2**-1074."""
    return int.from_bytes(bytes(exact), "little", signed=True)


def kept_bytes(description: Description, step: int) -> int:
    """Return the size of the files of acquisition after `step` steps, in bytes. The files belong to a run or a part."""
    taps, item_bytes = description.own_taps, np.dtype(description.dtype).itemsize
    records = sum(row_bytes * count for row_bytes, count in taps.records(step).values())
    snapshots = sum(
        len(one.fields) * len(one.numbers(step))
        * (math.prod(one.shape) * item_bytes + len(snapshot_end(description, one)))
        for one in taps.snapshots
    )  # fmt: skip
    return records + sum(taps.definitions.values()) + snapshots
