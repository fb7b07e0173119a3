"""The whole grid of a run of several ranks: reads of any cells, by one process or by all ranks together.

    PartsView   one process reads the directories of all parts, which it must see
    GroupView   each rank reads its own rows on its own disk, and gets other rows from the ranks that have them

Both read only the selected cells. In addition to these, they need memory for a group of planes of one part.

After an interruption, parts can have different generations, g and g + 1. The parts with g + 1 still have g in their
other copies, so `PartsView` reads the state of generation g (agreement.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import Shape
from outcrop.errors import CorruptionError, InputError, StorageError
from outcrop.run.disk.layout import stripe_planes
from outcrop.run.disk.manifest import MANIFEST, Manifest
from outcrop.run.disk.state import State, manifest_before
from outcrop.run.disk.storage import RunFolder
from outcrop.run.disk.values import READ_ATTEMPTS, PlanesView, split_index
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.part import RANK
from outcrop.run.ranks.streams import end_together, streams

SENT_AT_ONCE = 2
"""The maximum number of ranks to which a rank sends at once. Each stream needs memory for a group of planes."""


class Selection(NamedTuple):
    """The positions of the selected cells along each axis."""

    z: range
    y: range
    x: range

    @classmethod
    def of(cls, index: Any, shape: Shape) -> tuple[Selection, tuple[int, ...]]:
        """Return the cells of `array[index]`, and the axes that this expression does not have. Raises IndexError."""
        first, rest = split_index(index, 3)
        chosen = [range(count)[one] for count, one in zip(shape, (first, *rest), strict=True)]
        axes = tuple(axis for axis, one in enumerate(chosen) if isinstance(one, int))
        return cls(*(range(one, one + 1) if isinstance(one, int) else one for one in chosen)), axes

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.z), len(self.y), len(self.x)

    def places(self, rows: tuple[int, int]) -> range:
        """Return the places in `y` of the rows from rows[0] to before rows[1]. It is empty if nothing is selected."""
        if not all(self.shape):
            return range(0)
        up = self.y if self.y.step > 0 else self.y[::-1]
        first, end = (min(max(-((up.start - edge) // up.step), 0), len(up)) for edge in rows)
        return range(first, end) if self.y.step > 0 else range(len(up) - end, len(up) - first)


def read_rows(state: State, name: str, chosen: Selection, rows: tuple[int, int]) -> Iterator[NDArray[np.floating]]:
    """Yield the selected cells that are in `rows`, the rows of the part `state`: an array of shape (rows, x) for each
    plane, which is valid until the next one. Raises CorruptionError and StorageError."""
    places = chosen.places(rows)
    if not places:
        return
    cells = _as_slice(chosen.y[places.start : places.stop], rows[0]), _as_slice(chosen.x)
    is_group = chosen.z.step == 1
    ends = [(chosen.z.start, chosen.z.stop)] if is_group else [(z, z + 1) for z in chosen.z]
    with state.planes_of(name) as planes:
        for z0, z1 in ends:
            for _, block in planes.groups(z0, z1):
                yield from block[(slice(None), *cells)]


def _as_slice(chosen: range, first: int = 0) -> slice:
    """Return the slice that selects `chosen`, in an array that begins at position `first`."""
    end = chosen.stop - first
    return slice(chosen.start - first, end if end >= 0 else None, chosen.step)


class WholeView(PlanesView):
    """A view of the array `name` of the whole grid, with the methods of an array. `first` is the manifest of a part."""

    def __init__(self, first: Manifest, name: str) -> None:
        self.name, self.shape, self.dtype = name, first.whole_shape, np.dtype(first.dtype)

    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        for z in wanted:
            yield self[z : z + 1]


def holds_parts(place: Path) -> bool:
    """Return True if `place` is the directory of all parts: rank-0, rank-1, ... are in it, or it has the form
    /disk{rank}/run.oc."""
    if RANK in str(place):
        return (_part_path(place, 0) / MANIFEST).exists()
    return not (place / MANIFEST).exists() and any((one / MANIFEST).exists() for one in place.glob("rank-*"))


def find_parts(places: Sequence[Path]) -> list[Path]:
    """Return the directories of all parts, in the order of ranks. `places` has these directories, or one directory for
    which `holds_parts` is true. Raises InputError when they are not all parts of one run."""
    found: dict[int, Path] = {}
    run, given = "", places
    if len(places) == 1 and holds_parts(places[0]):
        places = _parts_in(places[0])
    remedy = f"its rows were moving to other ranks: mpirun -n N outcrop resume {given[0]} completes this"
    if not places:
        raise InputError(f"{given[0]} holds no part; {remedy}")
    for place in places:
        manifest = RunFolder(place).read()
        part = manifest.part
        if part is None:
            raise InputError(f"{place} is not a part of a run of several ranks")
        if run and part.run != run:
            raise InputError(f"{place} belongs to another run than {places[0]}")
        if part.rank in found:
            raise InputError(f"{place} and {found[part.rank]} are both the part of rank {part.rank}; name one of them")
        found[part.rank], run, ranks = place, part.run, part.ranks
    if missing := [str(rank) for rank in range(ranks) if rank not in found]:
        are = "parts of ranks" if len(missing) > 1 else "part of rank"
        moved = len(given) == 1 and any(given[0].glob("rank-*.moving"))
        raise InputError(
            f"the {are} {', '.join(missing)} of {ranks} {'are' if len(missing) > 1 else 'is'} missing"
            f"{f'; {remedy}' if moved else ''}"
        )
    return [found[rank] for rank in range(ranks)]


def _part_path(place: Path, rank: int) -> Path:
    return Path(str(place).replace(RANK, str(rank))) if RANK in str(place) else place / f"rank-{rank}"


def _parts_in(place: Path) -> list[Path]:
    """Return the directories of parts in `place`. An older run with more ranks may have left some more."""
    with contextlib.suppress(InputError):
        if part := RunFolder(_part_path(place, 0)).read().part:
            paths = [_part_path(place, rank) for rank in range(part.ranks)]
            return [one for one in paths if (one / MANIFEST).exists()]
    names = {one.name for one in place.glob("rank-*") if (one / MANIFEST).exists()}
    return [place / name for name in sorted(names) if name[5:].isdecimal()]


class AllParts:
    """All parts of a run, in the order of ranks, for reading by one process. `states` have the newest generation that
    all parts have."""

    def __init__(self, states: Sequence[State]) -> None:
        self.states = tuple(states)
        self.refresh()

    def refresh(self) -> int:
        """Read the manifests again, and return the generation that all parts have. Raises InputError if there is no
        such generation."""
        for state in self.states:
            state.refresh()
        generations = [state.manifest.generation for state in self.states]
        for state in self.states:
            if state.manifest.generation > min(generations):
                before = manifest_before(state.manifest)
                if before is None or before.generation > min(generations):
                    behind = self.states[generations.index(min(generations))].path
                    raise InputError(
                        f"{state.path} has generation {state.manifest.generation}, and {behind} has "
                        f"{min(generations)}: these parts do not belong to one state; put back the directory that was "
                        "exchanged"
                    )
                state.manifest = before
        return min(generations)

    @property
    def whole(self) -> Manifest:
        """The manifest that a run of one process would have, if it had all rows."""
        return as_whole(self.states[0].manifest)

    def reader(self) -> AllParts:
        """Return another object for reading, with its own descriptors."""
        return AllParts([state.reader() for state in self.states])

    def read(self, name: str, chosen: Selection) -> NDArray[Any]:
        """Return selected cells of the array `name`, with all axes. Raises CorruptionError and StorageError, and
        InputError if the array has no values."""
        result: NDArray[Any] = np.empty(chosen.shape, dtype=self.whole.dtype)
        for state in self.states:
            rows = own_rows_of(state)
            places = chosen.places(rows)
            for plane, block in enumerate(read_rows(state, name, chosen, rows)):
                result[plane, places.start : places.stop] = block
        return result


def as_whole(first: Manifest) -> Manifest:
    """Return the manifest of the whole run. `first` is the manifest of rank 0, whose first row is that of the grid."""
    planes = stripe_planes(first.whole_layout.shape, first.dtype, 1)
    return replace(first, shape=first.whole_shape, part=None, before=None, shard_planes=planes)


def own_rows_of(state: State) -> tuple[int, int]:
    """Return the rows of a part."""
    assert state.manifest.part is not None
    return state.manifest.part.rows


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

    def __repr__(self) -> str:
        step = self._parts.states[0].manifest.step
        return f"<field {self.name!r} {self.shape} {self.dtype} of all parts at step {step}>"


class GroupView(WholeView):
    """The committed values of an array of the whole grid, which all ranks of `group` read together. `state` is the part
    of this rank."""

    def __init__(self, group: RankGroup, state: State, name: str) -> None:
        super().__init__(state.manifest, name)
        self._group, self._state = group, state

    def __getitem__(self, index: Any) -> Any:
        """Return the selected cells. All ranks must make this call. They may select other cells, and other arrays."""
        group, state, wrong = self._group, self._state, None
        try:
            chosen, axes = Selection.of(index, self.shape)
            result: NDArray[Any] = np.empty(chosen.shape, dtype=self.dtype)
            request: Any = [self.name, *([one.start, one.stop, one.step] for one in chosen)]
        except (IndexError, TypeError, ValueError, MemoryError) as error:
            wrong, request = error, str(error) or type(error).__name__
        requests = group.allgather(request)
        if wrong is not None:
            raise wrong
        for rank, one in enumerate(requests):
            if isinstance(one, str):
                refused = InputError(f"rank {rank} reads {self.name}: {one}")
                refused.is_told_elsewhere = True
                raise refused
        wanted = [(name, Selection(*(range(*one) for one in ends))) for name, *ends in requests]
        for _ in range(READ_ATTEMPTS):
            before = self._generations()
            failure: Exception | None = None
            try:
                self._receive(result, chosen, wanted)
            except Exception as error:
                failure = error
            after = self._generations() if failure is None or group.end is None else before
            if before == after:
                end_together(group, failure)
                return np.squeeze(result, axes)[()]
        raise InputError(f"{state.path} changes faster than it can be read: other processes are running it")

    def __repr__(self) -> str:
        return f"<field {self.name!r} {self.shape} {self.dtype} of all ranks at step {self._state.manifest.step}>"

    def _generations(self) -> list[int]:
        """Return the generations of all ranks. Raises StorageError if ranks have different generations."""
        with self._group.together():
            self._state.refresh()
            self._state.current_files_of(self.name)  # raises InputError if the array has no values
        found = self._group.allgather(self._state.manifest.generation)
        if min(found) < max(found):
            path = self._state.path
            raise StorageError(f"the ranks have the generations {found}: other processes change {path}; wait for them")
        return found

    def _receive(self, result: NDArray[Any], chosen: Selection, wanted: list[tuple[str, Selection]]) -> None:
        """Fill `result`. `wanted` has the arrays and the cells that the ranks have asked for."""
        group, state, part = self._group, self._state, self._state.manifest.part
        assert part is not None
        targets = {
            rank: partial(read_rows, state, name, one, part.rows)
            for rank, (name, one) in enumerate(wanted)
            if rank != group.rank and one.places(part.rows)
        }
        # Each rank begins with the rank above it, so that not all ranks ask the same rank at once.
        others = [(group.rank + ahead) % group.size for ahead in range(1, group.size)]
        ends = {rank: (part.cut[rank], part.cut[rank + 1]) for rank in others}
        sources = [rank for rank in others if chosen.places(ends[rank])]
        with streams(group, sources, targets, SENT_AT_ONCE) as open_stream:
            own = chosen.places(part.rows)
            for plane, block in enumerate(read_rows(state, self.name, chosen, part.rows)):
                result[plane, own.start : own.stop] = block
            for rank in sources:
                stream, places = open_stream(rank), chosen.places(ends[rank])
                for plane in result:
                    stream.receive(plane[places.start : places.stop])
