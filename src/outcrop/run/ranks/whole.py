"""This module reads cells of the whole grid from a run of several ranks. One process reads the cells alone, or all
ranks read together.

    PartsView   one process reads all cells from the directories of all parts
    GroupView   each rank reads its own rows on its own disk, and gets other rows from the ranks that have them

`PartsSnapshots` reads snapshots with one process, and `GroupSnapshots` reads snapshots with all ranks. The four classes
of views read only the selected cells. A view needs memory for the selected cells, and for a group of planes of one
part.

After an interruption, parts can have different generations, g and g + 1. Parts with generation g + 1 still have g in
their other copies on disk, so `PartsView` reads the state of generation g (agreement.py).
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import Shape
from outcrop.errors import CorruptionError, InputError, OutcropError, StorageError
from outcrop.plan.schemes import RANK_SCHEMES
from outcrop.run.acquisition.views import SnapshotView, mapped, require_intact_snapshot
from outcrop.run.disk.entries import PartEntry, SnapshotsEntry
from outcrop.run.disk.layout import stripe_planes
from outcrop.run.disk.manifest import MANIFEST, Description, Manifest
from outcrop.run.disk.state import State, manifest_before
from outcrop.run.disk.storage import RunFolder
from outcrop.run.disk.values import READ_ATTEMPTS, PlanesView, as_ranges, split_index
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.links import end_together, streams
from outcrop.run.ranks.part import RANK, listed, was_interrupted

SENT_AT_ONCE = 2
"""The maximum number of ranks to which a rank sends at the same time. For each rank that receives, the sender needs
memory for a group of planes."""


class Selection(NamedTuple):
    """The positions of the selected cells along each axis."""

    z: range
    y: range
    x: range

    @classmethod
    def of(cls, index: Any, shape: Shape) -> tuple[Selection, tuple[int, ...]]:
        """Return the `Selection` of the cells that `array[index]` selects, and the axes that the index removes. Raises
        IndexError."""
        first, rest = split_index(index, 3)
        chosen, axes = as_ranges((first, *rest), shape)
        return cls(*chosen), axes

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.z), len(self.y), len(self.x)

    def places(self, planes: tuple[int, int], rows: tuple[int, int]) -> tuple[range, range]:
        """Return two ranges. The first range has the positions in `self.z` of the planes with planes[0] <= z <
        planes[1]. The second range has the positions in `self.y` of the rows with rows[0] <= y < rows[1]. If no cell in
        the given planes and rows is selected, both ranges are empty."""
        found = _places(self.z, planes), _places(self.y, rows)
        return found if all(found) and self.x else (range(0), range(0))


def _places(chosen: range, ends: tuple[int, int]) -> range:
    """Select the numbers n in `chosen` with ends[0] <= n < ends[1], and return their positions in `chosen`. The
    positions of the selected numbers are a range."""
    up = chosen if chosen.step > 0 else chosen[::-1]
    first, end = (min(max(-((up.start - edge) // up.step), 0), len(up)) for edge in ends)
    return range(first, end) if chosen.step > 0 else range(len(up) - end, len(up) - first)


def read_rows(state: State, name: str, chosen: Selection) -> Iterator[NDArray[np.floating]]:
    """Yield one array of shape (rows, x) for each plane, with the selected cells of the part whose state is `state`.
    Each array is valid until the next array is yielded. Raises CorruptionError and StorageError."""
    part, rows = state.manifest.planes, state.manifest.rows
    here, places = chosen.places(part, rows)
    if not places:
        return
    cells = _as_slice(chosen.y[places.start : places.stop], rows[0]), _as_slice(chosen.x)
    first, own = part[0], chosen.z[here.start : here.stop]
    is_group = own.step == 1
    ends = [(own.start - first, own.stop - first)] if is_group else [(z - first, z - first + 1) for z in own]
    with state.planes_of(name) as planes:
        for z0, z1 in ends:
            for _, block in planes.groups(z0, z1):
                yield from block[(slice(None), *cells)]


def _as_slice(chosen: range, first: int = 0) -> slice:
    """Return the slice that selects the positions `chosen` from an array. The first entry of that array has the
    position `first`."""
    end = chosen.stop - first
    return slice(chosen.start - first, end if end >= 0 else None, chosen.step)


class WholeView(PlanesView):
    """A view of the array `name` of the whole grid. The view has the methods of an array. `first` is the manifest of a
    part."""

    def __init__(self, first: Manifest, name: str) -> None:
        self.name, self.shape, self.dtype = name, first.whole_shape, np.dtype(first.dtype)

    @property
    @abstractmethod
    def generation(self) -> int:
        """The generation of the values that were read last."""

    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        for z in wanted:
            yield self[z : z + 1]


def holds_parts(place: Path) -> bool:
    """Return True if `place` is the directory of all parts: `place` contains rank-0, rank-1, ..., or has the form
    /disk{rank}/run.oc."""
    if RANK in str(place):
        return (_part_path(place, 0) / MANIFEST).exists() and not holds_whole(_part_path(place, 0))
    return not (place / MANIFEST).exists() and any((one / MANIFEST).exists() for one in place.glob("rank-*"))


def holds_whole(place: Path) -> bool:
    """Return True if `place` is the directory of a run of one process."""
    with contextlib.suppress(InputError):
        return RunFolder(place).read().part is None
    return False


def whole_place(place: Path) -> Path:
    """Return the directory of the run of one process that `place` names. A name such as /disk{rank}/run.oc means the
    directory of rank 0."""
    return _part_path(place, 0) if RANK in str(place) and holds_whole(_part_path(place, 0)) else place


def find_parts(places: Sequence[Path]) -> list[Path]:
    """Return the directories of all parts, in the order of ranks. `places` has the directories of all parts, or one
    directory for which `holds_parts` is true. Raises InputError if the directories are not all parts of one run."""
    found: dict[int, Path] = {}
    first: PartEntry | None = None
    given = places
    if len(places) == 1 and holds_parts(places[0]):
        places = _parts_in(places[0])
    remedy = f"its rows were moving to other ranks: outcrop resume {given[0]}, or with mpirun, completes this"
    if not places:
        raise InputError(f"{given[0]} holds no part; {remedy}")
    for place in places:
        manifest = RunFolder(place).read()
        part = manifest.part
        if part is None:
            raise InputError(f"{place} is not a part of a run of several ranks")
        first = first or part
        if (part.run, part.cut, part.planes) != (first.run, first.cut, first.planes):
            raise InputError(f"{place} belongs to another run than {places[0]}")
        if part.rank in found:
            raise InputError(f"{place} and {found[part.rank]} are both the part of rank {part.rank}; name one of them")
        found[part.rank] = place
    assert first is not None
    if missing := [rank for rank in range(first.ranks) if rank not in found]:
        are = "parts of ranks" if len(missing) > 1 else "part of rank"
        moved = len(given) == 1 and was_interrupted(given[0])
        remedy = remedy if moved else "copy all parts to one computer, and make one run of them: outcrop gather"
        raise InputError(
            f"the {are} {listed(missing)} of {first.ranks} {'are' if len(missing) > 1 else 'is'} missing; {remedy}"
        )
    return [found[rank] for rank in range(first.ranks)]


def _part_path(place: Path, rank: int) -> Path:
    return Path(str(place).replace(RANK, str(rank))) if RANK in str(place) else place / f"rank-{rank}"


def _parts_in(place: Path) -> list[Path]:
    """Return the directories of parts in `place`. An older run with more ranks may have left further directories."""
    with contextlib.suppress(InputError):
        if part := RunFolder(_part_path(place, 0)).read().part:
            paths = [_part_path(place, rank) for rank in range(part.ranks)]
            return [one for one in paths if (one / MANIFEST).exists()]
    names = {one.name for one in place.glob("rank-*") if (one / MANIFEST).exists()}
    return [place / name for name in sorted(names) if name[5:].isdecimal()]


class AllParts:
    """All parts of a run, in the order of ranks, for one process that reads them. Each state in `states` has the newest
    generation that all parts have."""

    def __init__(self, states: Sequence[State]) -> None:
        self.states = tuple(states)
        self.refresh()

    def refresh(self) -> int:
        """Read the manifests again, and return the generation that all parts have. Raises InputError if the parts have
        no common generation."""
        for state in self.states:
            state.refresh()
        return to_one_generation(self.states)

    @property
    def whole(self) -> Manifest:
        """The manifest that the run would have as a run of one process."""
        return as_whole(self.states[0].manifest)

    def reader(self) -> AllParts:
        """Return a second object for the same parts, with its own file descriptors."""
        return AllParts([state.reader() for state in self.states])

    def read(self, name: str, chosen: Selection) -> NDArray[Any]:
        """Return the values of selected cells of the array `name`. The result has three axes, even if an axis has only
        one selected cell. Raises CorruptionError and StorageError, and InputError if the array has no values."""
        result: NDArray[Any] = np.empty(chosen.shape, dtype=self.whole.dtype)
        for state in self.states:
            planes, places = chosen.places(state.manifest.planes, state.manifest.rows)
            for plane, block in zip(planes, read_rows(state, name, chosen), strict=True):
                result[plane, places.start : places.stop] = block
        return result


def to_one_generation(states: Sequence[State]) -> int:
    """Give each part the manifest of the newest generation that all parts have. Return the number of the newest common
    generation. Raises InputError if the parts have no common generation."""
    generations = [state.manifest.generation for state in states]
    for state in states:
        if state.manifest.generation > min(generations):
            before = manifest_before(state.manifest)
            if before is None or before.generation > min(generations):
                behind = states[generations.index(min(generations))].path
                raise InputError(
                    f"{state.path} has generation {state.manifest.generation}, and {behind} has "
                    f"{min(generations)}: these parts do not belong to one state; put back the directory that was "
                    "exchanged"
                )
            state.manifest = before
    return min(generations)


def as_whole(first: Manifest) -> Manifest:
    """Return the manifest of the whole run. `first` is the manifest of rank 0, which has the first row of the grid."""
    planes = stripe_planes(first.whole_layout.shape, first.dtype, 1)
    return replace(first, shape=first.whole_shape, part=None, before=None, shard_planes=planes)


def whole_description(first: Manifest, place: Path) -> Description:
    """Return the description of the whole run in `place`. `first` is the manifest of rank 0. If one process cannot use
    the scheme of the run, the result has the scheme "auto"."""
    whole = as_whole(first)
    is_for_ranks = whole.settings.scheme in RANK_SCHEMES
    plain = Description(**{one.name: getattr(whole, one.name) for one in fields(Description)})
    settings = replace(whole.settings, scheme="auto") if is_for_ranks else whole.settings
    return replace(plain, settings=settings, directories=(str(place.absolute()),))


class PartsView(WholeView):
    """The committed values of an array of the whole grid, from the directories of all parts."""

    def __init__(self, parts: AllParts, name: str) -> None:
        super().__init__(parts.states[0].manifest, name)
        self._parts = parts

    def __getitem__(self, index: Any) -> Any:
        """Return the selected cells of one generation, even while ranks compute the run."""
        chosen, axes = Selection.of(index, self.shape)
        for _ in range(READ_ATTEMPTS):
            generation = self._parts.refresh()
            try:
                result = self._parts.read(self.name, chosen)
            except CorruptionError:
                if self._parts.refresh() == generation:
                    raise
                continue
            if self._parts.refresh() == generation:
                return np.squeeze(result, axes)[()]
        path = self._parts.states[0].path.parent
        raise InputError(f"{path} changes faster than it can be read: other processes are running it")

    @property
    def generation(self) -> int:
        return self._parts.states[0].manifest.generation

    def __repr__(self) -> str:
        step = self._parts.states[0].manifest.step
        return f"<field {self.name!r} {self.shape} {self.dtype} of all parts at step {step}>"


class PartsSnapshots(SnapshotView):
    """The snapshots of one field in the whole box, from the directories of all parts."""

    def __init__(self, parts: AllParts, entry: SnapshotsEntry, field: str) -> None:
        super().__init__(parts.states[0], entry, field)
        self._parts = parts

    def _numbers(self) -> Sequence[int]:
        self._parts.refresh()
        return self._entry.numbers(self._state.manifest.step)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Return the selected cells as an array. Raises IndexError outside the array, and StorageError when a file is
        missing."""
        request, axes = _Request.of_snapshots(self._name, self, index)
        result = request.empty(self.dtype)
        for state in self._parts.states:
            planes, places = request.places(state.manifest, state.manifest.planes, state.manifest.rows)
            for plane, block in zip(planes, request.blocks(state), strict=True):
                result[plane, places.start : places.stop] = block
        found: NDArray[Any] = request.shaped(result, axes)
        return found

    def require_intact(self, time: int) -> None:
        for state in self._parts.states:
            own = [one for one in state.manifest.own_taps.snapshots if one.name == self._entry.name]
            if own:  # a part without rows of the box has no snapshots
                require_intact_snapshot(state, own[0], self._field, own[0].numbers(self._state.manifest.step)[time])


class _Request(NamedTuple):
    """The cells that a rank reads. If `times` is None, the request is for cells of the array `name`. If `times` is
    given, `name` is a name of snapshots, such as "side/u", and `times` contains the numbers of the snapshots. Cells of
    snapshots are counted from the first cell of the box. The cells of coarse snapshots are groups of cells of the
    grid."""

    name: str
    chosen: Selection
    times: range | None = None

    @classmethod
    def of_snapshots(cls, name: str, view: SnapshotView, index: Any) -> tuple[_Request, tuple[int, ...]]:
        """Return a request for the cells that `view[index]` selects, and the axes that the index removes. Raises
        IndexError outside the array."""
        first, rest = split_index(index, 4)
        times = view.places(first)
        chosen, axes = Selection.of(rest, view.entry.shape)
        is_one = isinstance(times, int)
        axes = (*((0,) if is_one else ()), *(axis + 1 for axis in axes))
        return cls(name, chosen, range(times, times + 1) if isinstance(times, int) else times), axes

    @classmethod
    def of_plain(cls, plain: list[Any]) -> _Request:
        name, times, *ends = plain
        return cls(name, Selection(*(range(*one) for one in ends)), None if times is None else range(*times))

    @property
    def plain(self) -> list[Any]:
        """The request as a list of plain values, which can be sent to another rank."""
        ends = [[one.start, one.stop, one.step] for one in self.chosen]
        return [self.name, None if self.times is None else [self.times.start, self.times.stop, self.times.step], *ends]

    def empty(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an uninitialised array for the values of the requested cells. For a request of snapshots, the first
        axis of the array has the planes of all requested snapshots, one snapshot after the other."""
        planes, rows, cells = self.chosen.shape
        return np.empty((planes * (1 if self.times is None else len(self.times)), rows, cells), dtype)

    def shaped(self, result: NDArray[Any], axes: tuple[int, ...]) -> Any:
        """Return the values in the form of `array[index]`, without the axes that the index removes. `axes` contains the
        axes that the index removes."""
        if self.times is not None:
            result = result.reshape(len(self.times), *self.chosen.shape)
        return np.squeeze(result, axes)[()]

    def places(
        self, manifest: Manifest, planes: tuple[int, int], rows: tuple[int, int]
    ) -> tuple[Sequence[int], range]:
        """Return the positions of the requested cells with planes[0] <= z < planes[1] and rows[0] <= y < rows[1]. The
        first returned value has the positions of the cells' planes in the result of `empty`. The second returned value
        has the positions of the cells' rows in `chosen.y`."""
        if self.times is None:
            return self.chosen.places(planes, rows)
        entry, _ = self._entry(manifest)
        found, places = self.chosen.places(entry.values_in(0, planes), entry.values_in(1, rows))
        return [time * len(self.chosen.z) + z for time in range(len(self.times)) for z in found], places

    def blocks(self, state: State) -> Iterator[NDArray[Any]]:
        """Yield the selected cells of a part, as one array of shape (rows, x) for each plane. Raises CorruptionError
        and StorageError."""
        if self.times is None:
            yield from read_rows(state, self.name, self.chosen)
            return
        (entry, field), manifest = self._entry(state.manifest), state.manifest
        planes, places = self.places(manifest, manifest.planes, manifest.rows)
        if not places:
            return
        # in the files of the part, planes and rows are counted from the first value of the box that the part has
        low, first = entry.values_in(0, manifest.planes)[0], entry.values_in(1, manifest.rows)[0]
        cells = _as_slice(self.chosen.y[places.start : places.stop], first), _as_slice(self.chosen.x)
        numbers = entry.numbers(manifest.step)
        for time in self.times:
            values = mapped(state, entry.of_rows(*manifest.rows, manifest.planes), field, numbers[time])
            for z in planes[: len(planes) // len(self.times)]:
                yield values[(self.chosen.z[z] - low, *cells)]

    def _entry(self, manifest: Manifest) -> tuple[SnapshotsEntry, str]:
        return next((one, field) for one in manifest.taps.snapshots for field in one.fields
                    if one.prefix + field == self.name)  # fmt: skip


class GroupView(WholeView):
    """The committed values of an array of the whole grid. All ranks of `group` read the values together. `state` is the
    state of the part of this rank."""

    def __init__(self, group: RankGroup, state: State, name: str) -> None:
        super().__init__(state.manifest, name)
        self._group, self._state = group, state

    def __getitem__(self, index: Any) -> Any:
        """Return the selected cells. All ranks must make this call. Different ranks can select different cells, arrays
        or snapshots."""

        def select() -> tuple[_Request, tuple[int, ...]]:
            chosen, axes = Selection.of(index, self.shape)
            return _Request(self.name, chosen), axes

        return _read_together(self._group, self._state, self.name, self.dtype, select)

    @property
    def generation(self) -> int:
        return self._state.manifest.generation

    def __repr__(self) -> str:
        return f"<field {self.name!r} {self.shape} {self.dtype} of all ranks at step {self._state.manifest.step}>"


class GroupSnapshots(SnapshotView):
    """The snapshots of one field in the whole box. All ranks of `group` read the snapshots together. `state` is the
    state of the part of this rank."""

    def __init__(self, group: RankGroup, state: State, entry: SnapshotsEntry, field: str) -> None:
        super().__init__(state, entry, field)
        self._group = group

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Return the selected cells as an array. All ranks must make this call. Different ranks can select different
        cells, snapshots or arrays."""

        def select() -> tuple[_Request, tuple[int, ...]]:
            return _Request.of_snapshots(self._name, self, index)

        found: NDArray[Any] = _read_together(self._group, self._state, self._name, self.dtype, select)
        return found


def _read_together(
    group: RankGroup, state: State, name: str, dtype: np.dtype[Any],
    select: Callable[[], tuple[_Request, tuple[int, ...]]],
) -> Any:  # fmt: skip
    """Return the values of the cells that `select` selects on this rank. All ranks must call this function together. If
    `select` raises an error on one rank, the other ranks raise InputError."""
    wrong: Exception | None = None
    try:
        request, axes = select()
        result = request.empty(dtype)
        sent: Any = request.plain
    except (IndexError, TypeError, ValueError, MemoryError, OutcropError) as error:
        wrong, sent = error, str(error) or type(error).__name__
    requests = group.allgather(sent)
    if wrong is not None:
        raise wrong
    for rank, one in enumerate(requests):
        if isinstance(one, str):
            refused = InputError(f"rank {rank} reads {name}: {one}")
            refused.is_told_elsewhere = True
            raise refused
    wanted = [_Request.of_plain(one) for one in requests]
    for _ in range(READ_ATTEMPTS):
        before = _generations(group, state, request)
        failure: Exception | None = None
        try:
            _receive(group, state, result, wanted)
        except Exception as error:
            failure = error
        after = _generations(group, state, request) if failure is None or group.end is None else before
        if before == after:
            end_together(group, failure)
            return request.shaped(result, axes)
    raise InputError(f"{state.path} changes faster than it can be read: other processes are running it")


def _generations(group: RankGroup, state: State, request: _Request) -> list[int]:
    """Return the generations of all ranks. Raises StorageError if ranks have different generations."""
    with group.together():
        state.refresh()
        if request.times is None:
            state.current_files_of(request.name)  # raises InputError if the array has no values
    found = group.allgather(state.manifest.generation)
    if min(found) < max(found):
        path = state.path
        raise StorageError(f"the ranks have the generations {found}: other processes change {path}; wait for them")
    return found


def _receive(group: RankGroup, state: State, result: NDArray[Any], wanted: Sequence[_Request]) -> None:
    """Write the values of the cells that this rank has requested to `result`. `wanted` has the requests of all
    ranks."""
    manifest, request = state.manifest, wanted[group.rank]
    part = manifest.part
    assert part is not None
    targets = {
        rank: partial(one.blocks, state)
        for rank, one in enumerate(wanted)
        if rank != group.rank and one.places(manifest, manifest.planes, manifest.rows)[1]
    }
    # Each rank first requests rows from the rank with the next higher number. If all ranks began with rank 0, they
    # would request rows from the same rank at the same time.
    others = [(group.rank + ahead) % group.size for ahead in range(1, group.size)]
    every = [replace(part, rank=rank) for rank in range(group.size)]
    found = [request.places(manifest, one.own_planes or manifest.planes, one.rows) for one in every]
    sources = [rank for rank in others if found[rank][1]]
    with streams(group, sources, targets, SENT_AT_ONCE) as open_stream:
        planes, own = found[group.rank]
        for plane, block in zip(planes, request.blocks(state), strict=True):
            result[plane, own.start : own.stop] = block
        for rank in sources:
            stream, (planes, places) = open_stream(rank), found[rank]
            for number in planes:
                stream.receive(result[number, places.start : places.stop])
