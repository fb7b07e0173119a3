"""Move the rows and the records of a run to another number of ranks.

    rank-0          rank-1          rank-2         3 parts        rows 0 .. 31 | 32 .. 63 | 64 .. 95
       │             │  │              │
    rank-0.moving ◄──┘  └──► rank-1.moving         2 new parts    rows 0 .. 47 | 48 .. 95

Each new rank reads its rows from the parts that it sees. Other rows come from a rank that sees them (streams.py). A
move has these steps. All ranks complete a step before a rank begins the next one:

    1   Write the planes and records of the new parts, and flush them.  killed: the old parts are valid
    2   Commit the new parts.                                           killed: the old parts, or the new if complete
    3   Rename the old parts to rank-0.moved, rank-1.moved, ...         killed: the new parts
    4   Rename the new parts to rank-0, rank-1, ...                     killed: the new parts
    5   Remove the old parts.                                           killed: the new parts

At each start, the ranks look for such names (`settle`). If a complete set of new parts exists, they complete the steps
3 to 5. Otherwise they remove the new parts. No step of the run is computed in between, so both sets have the same
values. The name of the new run is computed from the name of the old run, its generation and the new number of ranks.
Therefore a set of new parts is only used in place of the parts from which it was made.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from outcrop.run.acquisition.parts import MovedRecords, kept_bytes
from outcrop.run.disk.acquisition_files import first_sums
from outcrop.run.disk.creation import check_creation, clear, created_in
from outcrop.run.disk.manifest import MANIFEST, Description, Manifest, new_manifest, parse_manifest, read_manifest
from outcrop.run.disk.state import State, manifest_before
from outcrop.run.disk.storage import RunFolder
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.part import NODE, RANK, part_directory
from outcrop.run.ranks.peers import RankPeers
from outcrop.run.ranks.streams import end_together, streams
from outcrop.run.ranks.whole import Selection, own_rows_of, read_rows
from outcrop.units import format_bytes

MADE, LEFT = ".moving", ".moved"
"""The ends of the names of new parts before step 4, and of old parts after step 3."""

Describe = Callable[[Manifest, str, Path, Sequence[Sampling]], Description]
"""A function (manifest of part 0, name of the new run, directory of this rank, receivers) that returns the description
of the new part. It raises InputError if the run does not work with this number of ranks."""

_NAME = re.compile(r"rank-(\d{1,6})(\.moving|\.moved|)")


@dataclass(frozen=True)
class FoundPart:
    """A part on disk: its path, the end of its name, some values of its manifest, and the rank that has found it. Other
    ranks may not see it."""

    path: str
    end: str
    identity: str
    run: str
    rank: int
    ranks: int
    generation: int
    has_values: bool
    finder: int


def settle(group: RankGroup, path: object) -> list[FoundPart] | None:
    """Complete or undo an interrupted move in the directories `path`. Return the parts of the run in the order of
    ranks if the run has another number of ranks than the group, otherwise None. All ranks must call this function
    together. Raises InputError and StorageError."""
    place = Path(part_directory(path, group))
    mine = _part_at(place, group.rank)
    is_right = mine is not None and (mine.rank, mine.ranks) == (group.rank, group.size)
    ends = [end for _, _, end in _names(group, path, range(group.rank, 2 * group.size, group.size))]
    known = group.allgather([mine.ranks if mine else 0, is_right, any(ends), bool(ends)])
    if all(right and not left for _, right, left, _ in known) or not any(sees for *_, sees in known):
        return None
    limit = range(max(group.size, *(ranks for ranks, *_ in known)))
    found = _scan(group, path, limit)
    chosen = _choose(found, group.size)
    if chosen is None:
        _refuse(group, path, found)
        return None
    own = [one for one in found if one.finder == group.rank]
    made = [one for one in chosen if one.finder == group.rank and one.end == MADE]
    _swap(group, [Path(one.path) for one in made], [Path(one.path) for one in own if _is_replaced(one, chosen)])
    with group.together():
        for one in own:  # of moves that were not completed, and of runs that a new run has replaced
            if one.end and one.run != chosen[0].run and not _is_replaced(one, chosen):
                _remove(Path(one.path))
        for there, _, end in _names(group, path, limit):
            if end and _part_at(there, group.rank) is None:
                _remove_empty(there)
    if chosen[0].ranks == group.size:
        return None
    return [replace(one, path=one.path.removesuffix(one.end), end="") for one in chosen]


def move(group: RankGroup, path: object, parts: Sequence[FoundPart], describe: Describe) -> None:
    """Move the rows of a run from `parts`, its parts in the order of ranks, to the ranks of the group. All ranks must
    call this function together. If the run does not work with these ranks, or if there is too little space, raises
    InputError before anything is changed."""
    place, generation = Path(part_directory(path, group)), min(one.generation for one in parts)
    new = Path(f"{place}{MADE}")
    with contextlib.ExitStack() as stack:
        with group.together():
            states = {one.rank: _opened(stack, one, generation) for one in parts if one.finder == group.rank}
        first, names = _described(group, states)
        files = _definitions(group, parts, states, first)
        with group.together():
            samplings = samplings_in(files, first)
            there = _part_at(place, group.rank)
            if not _is_free(place) and (there is None or there.run != parts[0].run):
                raise InputError(f"{place} holds something that is not a part of this run; move it away")
            description = describe(first, _name_of_move(parts[0].run, generation, group.size), place, samplings)
            check_creation([new], description, force=True)
            assert description.part is not None
            for rank in _overlapping(first, description.part.rows):
                found = _part_at(Path(parts[rank].path), group.rank)
                if rank not in states and found is not None and found.identity == parts[rank].identity:
                    states[rank] = _at_generation(_state_at(Path(parts[rank].path)), generation)
        _require_space(group, new, description, first.step)
        manifest = replace(new_manifest(description, first.target_step), ranges=first.ranges)
        definitions = {name: [content] for name, content in files.items()}
        manifest = replace(manifest, sums=first_sums(manifest, definitions))
        state = stack.enter_context(created_in([new], manifest, True, definitions))
        failure: Exception | None = None
        sums: Mapping[str, int] = {}
        try:
            sums = _copy(group, parts, first, states, state, names, samplings)
        except Exception as error:
            failure = error
        end_together(group, failure)
        with group.together():
            state.commit(first.step, names, sums=sums)
            state.change(ranges=first.ranges)
    _swap(group, [new], [Path(one.path) for one in parts if one.finder == group.rank])


def _swap(group: RankGroup, made: Sequence[Path], old: Sequence[Path]) -> None:
    """Do the steps 3 to 5 of a move. `made` and `old` are the new and the old parts for which this rank is
    responsible."""
    with group.together():
        for path in old:
            if path.suffix != LEFT:
                _rename(path, Path(f"{path}{LEFT}"))
    with group.together():
        for path in made:
            _rename(path, path.with_suffix(""))
    with group.together():
        for path in old:
            _remove(path if path.suffix == LEFT else Path(f"{path}{LEFT}"))


def _copy(
    group: RankGroup, parts: Sequence[FoundPart], first: Manifest, states: dict[int, State], target: State,
    names: Sequence[str], samplings: Sequence[Sampling],
) -> Mapping[str, int]:  # fmt: skip
    """Write the arrays `names` and the records of the new part `target`, and flush them. Return the checksums of the
    files of acquisition. `states` has the old parts that this rank sees. Send rows of them to the ranks that do not see
    them."""
    rows, (nz, _, nx), own_part = own_rows_of(target), target.layout.shape, target.manifest.part
    assert own_part is not None
    needed = _overlapping(first, rows)
    far = [rank for rank in needed if rank not in states]
    targets = {}
    for rank, (wanted, ends) in enumerate(group.allgather([far, list(rows)])):
        if sent := [states[one] for one in wanted if parts[one].finder == group.rank]:
            moved = MovedRecords(first, samplings, replace(own_part, rank=rank))
            chosen = Selection(range(nz), range(*ends), range(nx))
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
                    block = np.empty((z1 - z0, rows[1] - rows[0], nx), first.dtype)
                    for rank, planes in near.items():
                        own, theirs = _common_rows(first, rank, rows)
                        for z, group_of_planes in planes.groups(z0, z1):
                            block[z - z0 : z - z0 + len(group_of_planes), own] = group_of_planes[:, theirs]
                    for plane in block:
                        for rank in far:
                            opened[parts[rank].finder].receive(plane[_common_rows(first, rank, rows)[0]])
                    return block

                planes = stack.enter_context(target.target_planes(name, 1 - target.manifest.current))
                planes.fill(read)
                planes.flush()
        moved = MovedRecords(first, samplings, own_part)
        return moved.write(target, {
            rank: moved.blocks(states[rank]) if rank in states
            else moved.received(rank, opened[parts[rank].finder].receive)
            for rank in needed
        })  # fmt: skip


def _blocks(
    states: Sequence[State], names: Sequence[str], chosen: Selection, moved: MovedRecords
) -> Iterator[NDArray[Any]]:
    """Yield the selected rows of the parts `states`: for each array and plane, the rows of each part. Then yield the
    blocks of their records in the same way."""
    for name in names:
        for blocks in zip(*(read_rows(one, name, chosen, own_rows_of(one)) for one in states), strict=True):
            yield from blocks
    for blocks in zip(*(moved.blocks(one) for one in states), strict=True):
        yield from blocks


def _overlapping(first: Manifest, rows: tuple[int, int]) -> list[int]:
    """Return the ranks of the old parts that have some of these rows."""
    assert first.part is not None
    cut = first.part.cut
    return [rank for rank in range(len(cut) - 1) if cut[rank] < rows[1] and cut[rank + 1] > rows[0]]


def _common_rows(first: Manifest, rank: int, rows: tuple[int, int]) -> tuple[slice, slice]:
    """Return the rows that an old part and the new part `rows` have in common, counted from the first row of each
    part."""
    assert first.part is not None
    begin, end = first.part.cut[rank : rank + 2]
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
    """Return the content of the files with points and values, which are the same in all parts. The finder of part 0
    sends them to ranks that see no part."""
    if not first.taps:
        return {}
    with group.together():
        seen = next(iter(states.values()), None)
        for one in parts if seen is None else ():
            found = _part_at(Path(one.path), group.rank)
            if found is not None and found.identity == one.identity:
                seen = _state_at(Path(one.path))
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
    """Return the state of a part at `generation`. Other processes cannot change it until the end of `stack`."""
    state = _state_at(Path(part.path))
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
    """Raise InputError if the new parts do not fit the space beside the old ones. Ranks of one node can share a file
    system."""
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
                f"no space: to move to {group.size} ranks, the run needs {format_bytes(needed)} more in {existing} for "
                f"a while, and {format_bytes(free)} are free; make room, or start as many ranks as before"
            )


# ---- names


def _names(group: RankGroup, path: object, tried: range) -> Iterator[tuple[Path, int, str]]:
    """Yield the directories that parts can have and that this rank sees: path, rank, and end of the name. If `path` has
    the form /disk{rank}/run.oc, only the ranks in `tried` are tried."""
    text = str(Path(part_directory(path, group)).parent) if RANK not in str(path) else str(path)
    text = text.replace(NODE, group.places[group.rank].host.partition(".")[0])
    if RANK in text:
        for rank in tried:
            for end in ("", MADE, LEFT):
                there = Path(text.replace(RANK, str(rank)) + end)
                if there.is_dir():
                    yield there, rank, end
        return
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(text)):
            if match := _NAME.fullmatch(name):
                yield Path(text) / name, int(match[1]), match[2]


def _part_at(path: Path, finder: int) -> FoundPart | None:
    """Return the part in the directory `path`, or None."""
    try:
        manifest = RunFolder(path).read()
    except (InputError, StorageError):
        return None
    part, end = manifest.part, path.suffix if path.suffix in (MADE, LEFT) else ""
    if part is None:
        return None
    return FoundPart(
        str(path), end, manifest.identity, part.run, part.rank, part.ranks, manifest.generation, manifest.has_values,
        finder,
    )  # fmt: skip


def _scan(group: RankGroup, path: object, tried: range) -> list[FoundPart]:
    """Return the parts that the ranks see. Of the ranks that see a part, the lowest is its finder. Only one rank of
    each node looks, and ranks of other nodes do not repeat what rank 0 has found."""
    here = group.places[group.rank].node
    is_first = all(one.node != here for one in group.places[: group.rank])
    seen = [(rank, _part_at(there, group.rank)) for there, rank, _ in _names(group, path, tried)] if is_first else []
    own = [one for rank, one in seen if one is not None and one.rank == rank]
    found: list[FoundPart] = []
    for turn in (group.rank == 0, group.rank > 0):
        new = [one for one in own if one.identity not in {other.identity for other in found}] if turn else []
        for several in group.allgather([asdict(one) for one in new]):
            known = {one.identity for one in found}
            found += [FoundPart(**one) for one in several if one["identity"] not in known]
    return found


def _choose(found: Sequence[FoundPart], size: int) -> list[FoundPart] | None:
    """Return all parts of the valid run, in the order of ranks, or None if no run is complete."""
    runs: dict[str, dict[int, FoundPart]] = {}
    for one in found:
        if one.end != LEFT and one.has_values:
            runs.setdefault(one.run, {}).setdefault(one.rank, one)
    complete = [[of[rank] for rank in sorted(of)] for of in runs.values() if len(of) == next(iter(of.values())).ranks]
    made = [one for one in complete if any(part.end for part in one)]
    final = [one for one in complete if one not in made]
    for parts in made:
        if all(_is_replaced(other[0], parts) for other in final):
            return parts
    return min(final, key=lambda one: one[0].ranks != size, default=None)


def _refuse(group: RankGroup, path: object, found: Sequence[FoundPart]) -> None:
    """Raise InputError if parts of a run of another number of ranks are missing. For a run of as many ranks,
    `require_part` says what is wrong."""
    ranks = {one.ranks for one in found if one.has_values} - {group.size}
    if not ranks or group.size in {one.ranks for one in found}:
        return
    count = max(ranks)
    missing = [str(rank) for rank in range(count) if rank not in {one.rank for one in found if one.ranks == count}]
    if not missing:  # parts of several runs
        return
    several = "s" * (len(missing) > 1)
    what = f"the part{several} of rank{several} {', '.join(missing)} of {count}"
    raise InputError(
        f"{path}: {what} cannot be found; start ranks on all nodes that hold parts, or copy the parts "
        "and make one run of them: outcrop gather"
    )


def _name_of_move(run: str, generation: int, ranks: int) -> str:
    """Return the name of the run that a move makes."""
    return hashlib.sha256(f"{run} {generation} {ranks}".encode()).hexdigest()[:32]


def _is_replaced(old: FoundPart, chosen: Sequence[FoundPart]) -> bool:
    """Return True if the parts `chosen` were made from the run of `old`. A part may have been one generation ahead."""
    new = chosen[0]
    return any(new.run == _name_of_move(old.run, old.generation - ahead, new.ranks) for ahead in (0, 1))


# ---- renames and removals


def _rename(path: Path, to: Path) -> None:
    if not _is_free(to):
        raise InputError(f"{to} holds something else; move it away")
    with os_errors_as(StorageError, f"cannot rename {path} to {to}"):
        path.rename(to)
        _flush(path.parent)


def _is_free(path: Path) -> bool:
    """Return True if a directory can be renamed to `path`: there is nothing, or an empty directory."""
    return not os.path.lexists(path) or (path.is_dir() and not path.is_symlink() and not any(path.iterdir()))


def _flush(folder: Path) -> None:
    with Directory.open(folder) as directory:
        directory.flush()


def _remove(path: Path) -> None:
    """Remove a part. Its manifest goes last, so that a later start can remove the other files. Files that do not belong
    to the part are kept."""
    with os_errors_as(StorageError, f"cannot remove {path}", names_file=True), Directory.open(path) as directory:
        held = directory.hold()
        try:
            clear(directory, read_manifest(directory))
            directory.flush()
            directory.remove(MANIFEST)
        finally:
            directory.release(held)
    _remove_empty(path)


def _remove_empty(path: Path) -> None:
    """Remove a directory in which a killed process has left no run."""
    with contextlib.suppress(OSError):
        (path / f"{MANIFEST}.tmp").unlink(missing_ok=True)
        path.rmdir()
        _flush(path.parent)
