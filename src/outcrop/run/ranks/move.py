"""Move the rows and the records of a run to another number of ranks, or to another grid of the same ranks. One process
counts as one rank.

    rank-0          rank-1          rank-2         3 parts        rows 0 .. 31 | 32 .. 63 | 64 .. 95
       │             │  │              │
    rank-0.moving ◄──┘  └──► rank-1.moving         2 new parts    rows 0 .. 47 | 48 .. 95

A rank sees a part if it can read the directory of the part. Each new rank reads its rows from the parts that it sees.
If a new rank does not see a part, another rank sends the rows of the part (links.py). If the old or the new ranks cut
the grid along z, planes move in the same way as rows. A move has five steps. All ranks complete a step before any rank
begins the next step:

    1   Write the planes and records of the new parts, and flush them.  killed: the old parts are valid
    2   Commit the new parts.                                           killed: the old parts, or the new if complete
    3   Rename the old parts to rank-0.moved, rank-1.moved, ...         killed: the new parts
    4   Rename the new parts to rank-0, rank-1, ...                     killed: the new parts
    5   Remove the old parts.                                           killed: the new parts

A run of one process is treated like a run of one rank, which has only one part (part.py). The directory run.oc of such
a run can also contain the parts rank-0, rank-1, ..., so the steps 3 to 5 cannot rename the directory. For a run of one
process, the steps 3 to 5 move files between run.oc and its subdirectories whole.moving and whole.moved. The run is
valid if its manifest is in run.oc:

    leaves    run.oc/manifest.json ──► run.oc/whole.moved/manifest.json      one rename; the other files stay in run.oc
    arrives   run.oc/whole.moving/u, .u.0, ... ──► run.oc/                   and manifest.json at last

Step 3 first removes the Zarr group of the old parts (shared.py), because the links of the group would lead to rows of
other parts. Also, a run of one process needs the names of some files of the group. After the move, the new parts form a
new Zarr group.

At each start, the ranks look for names that end in .moving or .moved (`settle`). If a complete set of new parts exists,
the ranks complete the steps 3 to 5. If the set of new parts is not complete, the ranks remove the new parts. The ranks
compute no step of the run before the move has ended, so the old parts and the new parts have the same values. The name
of the new run is computed from the name of the old run, its generation and the new numbers of parts along y and z.
Therefore new parts can replace only the parts from which they were made. Parts of two different grids never form one
set, because their names differ."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError, os_errors_as
from outcrop.language.sparse import Sampling
from outcrop.paths import nearest_existing
from outcrop.run.acquisition.definitions import definition_files, samplings_in
from outcrop.run.acquisition.parts import MovedRecords, cells_of, cuts_of, kept_bytes
from outcrop.run.disk.acquisition_files import first_sums
from outcrop.run.disk.contents import GROUP, top_names
from outcrop.run.disk.creation import check_creation, clear, created_in
from outcrop.run.disk.manifest import (
    MANIFEST,
    Description,
    Manifest,
    moved_members,
    new_manifest,
    parse_manifest,
    read_manifest,
)
from outcrop.run.disk.state import State, manifest_before
from outcrop.run.disk.storage import RunFolder
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.links import RankPeers, end_together, streams
from outcrop.run.ranks.part import (
    LEFT,
    MADE,
    RANK,
    FoundPart,
    PartPlace,
    choose,
    is_replaced,
    is_seen,
    name_of_move,
    part_at,
    place_of,
    places_of,
    refuse_incomplete,
    require_equal,
    scan,
)
from outcrop.run.ranks.shared import SharedGroup
from outcrop.run.ranks.whole import Selection, read_rows
from outcrop.units import counted, format_bytes

Describe = Callable[[Manifest, str, Path, Sequence[Sampling], int], Description]
"""A function that returns the description of the new part, or of the whole run if the group has one rank. The arguments
are the manifest of part 0, the name of the new run, the directory of this rank, the receivers, and the number of new
parts along z. The function raises InputError if the run does not work with the new ranks."""


def settle(group: RankGroup, path: object, along_z: int | None = None) -> list[FoundPart] | None:
    """Complete or undo an interrupted move in the directories `path`. If the parts of the run must move, return the
    parts in the order of ranks. If not, return None. The parts must move if the number of parts is different from the
    number of ranks. If `along_z` is given, the parts must also move if the run does not have `along_z` parts along z.
    All ranks must call this function together. Raises InputError and StorageError."""

    def is_wanted(part: FoundPart) -> bool:
        return part.ranks == group.size and along_z in (None, part.along_z)

    mine = part_at(place_of(path, group, group.rank, group.size), "", group.rank)
    is_right = mine is not None and mine.rank == group.rank and is_wanted(mine)
    places = list(places_of(path, group, range(group.rank, 2 * group.size, group.size)))
    seen = [part_at(place, end, group.rank) for place, _, end in places] if RANK in str(path) else [mine]
    is_moving = any(end or (place.is_around and group.size > 1) for place, _, end in places)
    known = group.allgather([max((one.ranks for one in seen if one), default=0), is_right, is_moving, bool(places)])
    if all(right and not moving for _, right, moving, _ in known) or not any(sees for *_, sees in known):
        return None
    limit = range(max(group.size, *(ranks for ranks, *_ in known)))
    found = scan(group, path, limit)
    chosen = choose(path, found, group.size)
    if chosen is None:
        refuse_incomplete(path, found, group.size)
        return None
    own = [one for one in found if one.finder == group.rank]
    made = [one.place for one in chosen if one.finder == group.rank and one.end == MADE]
    old = [one for one in own if is_replaced(one, chosen)]
    _leave(group, old)
    _arrive(group, made, old)
    with group.together():
        for one in own:  # remove parts of moves that were not completed, and of runs that a new run has replaced
            if one.end and one.run != chosen[0].run and not is_replaced(one, chosen):
                _remove(one.place, one.end)
        for place, _, end in places_of(path, group, limit):
            if end and part_at(place, end, group.rank) is None:
                _remove_empty(place.path(end))
    if is_wanted(chosen[0]):
        return None
    return [replace(one, end="") for one in chosen]


def move(group: RankGroup, path: object, parts: Sequence[FoundPart], along_z: int, describe: Describe) -> None:
    """Move the rows of a run from its old parts to the ranks of the group, which have `along_z` parts along z. `parts`
    has the old parts in the order of ranks. All ranks must call this function together. Raises InputError if the run
    does not work with the ranks of the group, or if there is too little space. If InputError is raised, nothing has
    been changed."""
    place, generation = place_of(path, group, group.rank, group.size), min(one.generation for one in parts)
    new, run = place.path(MADE), name_of_move(parts[0].run, generation, group.size, along_z)
    own = [one for one in parts if one.finder == group.rank]
    with contextlib.ExitStack() as stack:
        with group.together():
            states = {one.rank: _opened(stack, one, generation) for one in own}
        first, names = _described(group, states)
        files = _definitions(group, parts, states, first)
        with group.together():
            samplings = samplings_in(files, first)
            there = part_at(place, "", group.rank)
            is_own = there is not None and there.run == parts[0].run
            if not (place.is_around or is_own or _is_free(place.final)):
                raise InputError(f"{place.final} holds something that is not a part of this run; move it away")
            description = describe(first, run, place.final, samplings, along_z)
            check_creation([new], description, force=True)
            if place.is_around:
                _require_room(place, description, first)
            for rank in _overlapping(first, description):
                if rank not in states and is_seen(parts[rank], group.rank):
                    states[rank] = _at_generation(_state_at(parts[rank].path), generation)
        chosen = description.settings
        require_equal(group, {"the cut": [[*one] for one in cuts_of(description)], "scheme": chosen.scheme,
                              "sizes": chosen.sizes})  # fmt: skip
        _require_space(group, new, description, first.step)
        manifest = replace(new_manifest(description, first.target_step), ranges=first.ranges)
        if description.part is None:
            manifest = replace(manifest, identity=run)
        definitions = {name: [content] for name, content in files.items()}
        manifest = replace(manifest, sums=first_sums(manifest, definitions))
        with created_in([new], manifest, True, definitions) as state:
            failure: Exception | None = None
            sums: Mapping[str, int] = {}
            try:
                sums = _copy(group, parts, first, states, state, names, samplings)
            except Exception as error:
                failure = error
            end_together(group, failure)
            with group.together():
                state.commit(first.step, names, sums=sums)
                state.change(**moved_members(first))
        _leave(group, own)  # done here, because this process still holds the locks of the old parts
    _arrive(group, [place], own)


def _copy(
    group: RankGroup, parts: Sequence[FoundPart], first: Manifest, states: dict[int, State], target: State,
    names: Sequence[str], samplings: Sequence[Sampling],
) -> Mapping[str, int]:  # fmt: skip
    """Write the arrays `names` and the records of the new part `target`, and flush them. Return the checksums of the
    files of acquisition. `states` has the old parts that this rank sees. Send rows of these old parts to the ranks that
    do not see them."""
    manifest, nx = target.manifest, target.layout.shape[2]
    (first_plane, _), rows, needed = manifest.planes, manifest.rows, _overlapping(first, manifest)
    far = [rank for rank in needed if rank not in states]
    cuts, targets = cuts_of(manifest), {}
    for rank, (wanted, planes_of_rank, ends) in enumerate(group.allgather([far, manifest.planes, rows])):
        if sent := [states[one] for one in wanted if parts[one].finder == group.rank]:
            moved = MovedRecords(first, samplings, cuts, rank)
            chosen = Selection(range(*planes_of_rank), range(*ends), range(nx))
            targets[rank] = partial(_blocks, sent, names, chosen, moved)
    sources = sorted({parts[rank].finder for rank in far})
    far.sort(key=lambda rank: (parts[rank].finder, rank))
    with streams(group, sources, targets, len(targets)) as open_stream:
        opened = {rank: open_stream(rank) for rank in sources}
        target.begin_writing()
        for name in names:
            with contextlib.ExitStack() as stack:
                near = {rank: stack.enter_context(states[rank].planes_of(name)) for rank in needed if rank in states}

                def read(z0: int, z1: int, near: Any = near) -> NDArray[np.floating]:
                    begin, end = first_plane + z0, first_plane + z1
                    block = np.empty((z1 - z0, rows[1] - rows[0], nx), first.dtype)
                    for rank, planes in near.items():
                        (low, high), (own, theirs) = cells_of(first, rank)[0], _common_rows(first, rank, rows)
                        for z, group_of_planes in planes.groups(max(begin, low) - low, min(end, high) - low):
                            place = low + z - begin
                            block[place : place + len(group_of_planes), own] = group_of_planes[:, theirs]
                    for z, plane in enumerate(block, begin):
                        for rank in far:
                            low, high = cells_of(first, rank)[0]
                            if low <= z < high:
                                opened[parts[rank].finder].receive(plane[_common_rows(first, rank, rows)[0]])
                    return block

                planes = stack.enter_context(target.target_planes(name, 1 - target.manifest.current))
                planes.fill(read)
                planes.flush()
        moved = MovedRecords(first, samplings, cuts, group.rank)
        return moved.write(target, {
            rank: moved.blocks(states[rank]) if rank in states
            else moved.received(rank, opened[parts[rank].finder].receive)
            for rank in needed
        })  # fmt: skip


def _blocks(
    states: Sequence[State], names: Sequence[str], chosen: Selection, moved: MovedRecords
) -> Iterator[NDArray[Any]]:
    """Yield the selected cells of the parts `states`, array by array. For each array, the order is plane by plane. For
    each plane, yield the rows of each part that has the plane. After all arrays, yield the blocks of the records, part
    by part."""
    for name in names:
        rows = [read_rows(one, name, chosen) for one in states]
        for z in chosen.z:
            for state, each in zip(states, rows, strict=True):
                low, high = state.manifest.planes
                if low <= z < high:
                    yield next(each)
        assert not any(len(one) for each in rows for one in each), "all rows were sent"
    for blocks in zip(*(moved.blocks(one) for one in states), strict=True):
        yield from blocks


def _overlapping(first: Manifest, new: Description) -> list[int]:
    """Return the ranks of the old parts that have cells of the new part."""
    ranks, wanted = first.part.ranks if first.part else 1, (new.planes, new.rows)
    return [
        rank for rank in range(ranks)
        if all(low < end and high > begin
               for (low, high), (begin, end) in zip(cells_of(first, rank), wanted, strict=True))
    ]  # fmt: skip


def _common_rows(first: Manifest, rank: int, rows: tuple[int, int]) -> tuple[slice, slice]:
    """Return the rows that an old part and the new part have in common, as two slices. The first slice counts rows from
    the first row of the new part. The second slice counts rows from the first row of the old part. `rows` is the range
    of rows of the new part."""
    begin, end = cells_of(first, rank)[1]
    low, high = max(begin, rows[0]), min(end, rows[1])
    return slice(low - rows[0], high - rows[0]), slice(low - begin, high - begin)


def _described(group: RankGroup, states: dict[int, State]) -> tuple[Manifest, list[str]]:
    """Return the manifest of part 0, and the names of the arrays that have values in all parts."""
    own = {name for state in states.values() for name in state.manifest.filled}
    own = {name for name in own if all(name in state.manifest.filled for state in states.values())}
    text = states[0].manifest.to_bytes().decode() if 0 in states else ""
    every = group.allgather([text, sorted(own) if states else None])
    text = next(text for text, _ in every if text)
    first = parse_manifest(text.encode(), Path("the manifest of rank 0"))
    filled = [set(names) for _, names in every if names is not None]
    return first, [entry.name for entry in first.arrays if all(entry.name in names for names in filled)]


def _definitions(
    group: RankGroup, parts: Sequence[FoundPart], states: Mapping[int, State], first: Manifest
) -> dict[str, NDArray[np.uint8]]:
    """Return the content of the files with points and values. These files are the same in all parts. Ranks that see no
    part get the content from the rank that has found part 0."""
    if not first.taps:
        return {}
    with group.together():
        seen = next(iter(states.values()), None)
        for one in parts if seen is None else ():
            if is_seen(one, group.rank):
                seen = _state_at(one.path)
                break
        files = definition_files(seen.records, seen.manifest) if seen is not None else {}
    if not all(group.allgather(seen is not None)):
        sender = parts[0].finder
        own = files if group.rank == sender else {}
        for name in first.taps.definitions:
            sent = RankPeers(group).everyone(lambda name=name: own[name].tobytes() if own else b"")  # type: ignore[misc]
            files.setdefault(name, np.frombuffer(sent[sender], np.uint8))
    return files


def _opened(stack: contextlib.ExitStack, part: FoundPart, generation: int) -> State:
    """Return the state of a part at `generation`. The part is locked until `stack` is closed, so no other process can
    change the part."""
    state = _state_at(part.path)
    stack.enter_context(state.locked(shared=True))
    state.check()
    return _at_generation(state, generation)


def _state_at(path: Path) -> State:
    storage = RunFolder(path)
    return State(storage, storage.read())


def _at_generation(state: State, generation: int) -> State:
    if state.manifest.generation > generation:
        before = manifest_before(state.manifest)
        if before is None or before.generation > generation:
            raise StorageError(
                f"{state.path} has generation {state.manifest.generation}, but another part has {generation}: these "
                "parts do not belong to one state; put back the directory that was exchanged"
            )
        state.manifest = before
    return state


def _require_space(group: RankGroup, new: Path, description: Description, step: int) -> None:
    """Raise InputError if there is no space for the new parts in addition to the old parts. Ranks of one node can share
    a file system, so the bytes that the ranks of a node need are added."""
    existing, needed = nearest_existing(new), len(description.copies) * description.layout.array_bytes
    needed += kept_bytes(description, step)
    with group.together(), os_errors_as(StorageError, f"{existing} cannot be used"):
        room, device = os.statvfs(existing), existing.stat().st_dev
    free = room.f_bavail * room.f_frsize
    every = group.allgather([group.places[group.rank].node, device, needed, free])
    needed = sum(count for *place, count, _ in every if place == every[group.rank][:2])
    with group.together():
        if needed > free:
            raise InputError(
                f"no space: to move to {counted(group.size, 'rank')}, the run needs {format_bytes(needed)} more in "
                f"{existing} for a while, and {format_bytes(free)} are free; make room, or start the same number and "
                "the same grid of ranks as before"
            )


# --- steps 3 to 5: replace the old parts by the new parts ------------------------------------------------------------
# `made` are new parts, which are complete, and `old` are old parts. `made` and `old` contain only parts for which this
# rank is responsible. All ranks must call the functions of this section together, and can call them again after an
# interruption.


def _leave(group: RankGroup, old: Sequence[FoundPart]) -> None:
    """Do step 3: remove the Zarr group of the old parts, and rename the old parts."""
    staying = [one for one in old if one.end != LEFT]
    with group.together():
        named = [one for one in staying if one.ranks > 1 and one.place.final.name == f"rank-{one.rank}"]
        for root, one in {one.place.final.parent: one for one in named}.items():
            SharedGroup(root, RunFolder(one.path).read()).remove()
        for one in staying:
            if one.place.is_around:
                _make_folder(one.place.path(LEFT))
                _rename(one.path / MANIFEST, one.place.path(LEFT) / MANIFEST)
            else:
                _rename(one.path, one.place.path(LEFT))


def _arrive(group: RankGroup, made: Sequence[PartPlace], old: Sequence[FoundPart]) -> None:
    """Do the steps 4 and 5: rename the new parts, and remove the old parts."""
    with group.together():
        for place in made:
            if place.is_around:
                _arrive_inside(place)
            else:
                _rename(place.path(MADE), place.final)
    with group.together():
        for one in reversed(old):  # low ranks come last, because the next start looks for them first
            _remove(one.place, LEFT)


def _require_room(place: PartPlace, description: Description, old: Manifest) -> None:
    """A new run of one process needs certain names in the directory of `place`. Raise InputError if a file that is not
    a part of the run has one of these names. Files of the Zarr group of the parts are allowed, because the group is
    removed first. `old` is the manifest of an old part."""
    names = {*top_names(description), GROUP}
    if other := SharedGroup(place.final, old).something_else(names):
        raise InputError(f"{place.final / other} is something else; move it away")


def _rename(path: Path, to: Path) -> None:
    if not _is_free(to):
        raise InputError(f"{to} holds something else; move it away")
    with os_errors_as(StorageError, f"cannot rename {path} to {to}"):
        path.rename(to)
        for folder in {path.parent, to.parent}:
            _flush(folder)


def _is_free(path: Path) -> bool:
    """Return True if a directory can be renamed to `path`: `path` does not exist, or is an empty directory."""
    return not os.path.lexists(path) or (path.is_dir() and not path.is_symlink() and not any(path.iterdir()))


def _remove(place: PartPlace, end: str) -> None:
    """Remove the part at a place. The manifest is removed last, because a later start needs the manifest to remove the
    other files. Files in the directory that do not belong to the part are kept."""
    path = place.path(end)
    with os_errors_as(StorageError, f"cannot remove {path}", names_file=True), Directory.open(path) as directory:
        held = directory.hold()
        try:
            manifest = read_manifest(directory)
            clear(directory, manifest)
            if place.is_around and manifest.has_values:
                _clear_around(place.final, manifest)
            directory.flush()
            directory.remove(MANIFEST)
        finally:
            directory.release(held)
    _remove_empty(path)


def _remove_empty(path: Path) -> None:
    """Remove the directory `path`, which a killed process has left without a run."""
    with contextlib.suppress(OSError):
        (path / f"{MANIFEST}.tmp").unlink(missing_ok=True)
        path.rmdir()
        _flush(path.parent)


def _arrive_inside(place: PartPlace) -> None:
    """Move the files of a run of one process to the directory of the run. The manifest is moved last, because it makes
    the run valid."""
    made = place.path(MADE)
    with os_errors_as(StorageError, f"cannot use {made}"):
        names = {*top_names(RunFolder(made).read()), GROUP}
        there = sorted(names.intersection(os.listdir(made)))
    for name in [*there, MANIFEST]:
        _rename(made / name, place.final / name)
    _remove_empty(made)


def _clear_around(final: Path, manifest: Manifest) -> None:
    """Remove the files of a run from the directory `final`, which does not hold the run's manifest: the manifest was
    moved away, or has not arrived yet. If `final` holds another run, remove nothing."""
    with Directory.open(final) as directory:
        if directory.status(MANIFEST) is None:
            held = directory.hold()
            try:
                clear(directory, manifest)
                directory.flush()
            finally:
                directory.release(held)


def _make_folder(path: Path) -> None:
    """Make a directory. An empty directory at `path` is used, because a killed process may have left it."""
    if not _is_free(path):
        raise InputError(f"{path} holds something else; move it away")
    with os_errors_as(StorageError, f"cannot make {path}"):
        path.mkdir(exist_ok=True)
        _flush(path.parent)


def _flush(folder: Path) -> None:
    with Directory.open(folder) as directory:
        directory.flush()
