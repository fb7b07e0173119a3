"""The parts of ranks: their directories and descriptions, the checks that all parts belong together, and the search for
parts on disk.

    -d DIR                  rank 3 has DIR/rank-3           one file system for all ranks, or a disk in each node
    -d /disk/{rank}/run     {rank} becomes 3, and {node} the name of its host

An interrupted move (move.py) can leave parts whose names end in a suffix such as .moving. `scan` also finds these
parts, and `choose` chooses the valid parts. A run of one process is treated like a run of one rank, which has only one
part:

    path                  part of rank 2         its new part             one process      its new run
    /disk/run.oc          /disk/run.oc/rank-2    .../rank-2.moving        /disk/run.oc     /disk/run.oc/whole.moving
    /disk{rank}/run.oc    /disk2/run.oc          /disk2/run.oc.moving     /disk0/run.oc    /disk0/run.oc.moving
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from outcrop.errors import InputError, StorageError, by_caller, shown
from outcrop.run.disk.entries import PartEntry
from outcrop.run.disk.layout import make_layout, stripe_planes
from outcrop.run.disk.manifest import MANIFEST, Description, Manifest, resume_command
from outcrop.run.disk.replacement import finish, staged_run
from outcrop.run.disk.storage import RunFolder
from outcrop.run.ranks.group import RankGroup

RANK, NODE = "{rank}", "{node}"

LINEAR_CORNERS = 8
"""The number of cells around a point of `oc.Source` or `oc.Receivers`. All cells around a point are in two adjacent
rows."""

LATER = ("in_place", "raw_device", "records")
"""Options that runs of several ranks do not have yet."""

MADE, LEFT = ".moving", ".moved"
"""The suffixes of the names of new parts before step 4 of a move, and of old parts after step 3."""

_NAME = re.compile(r"rank-(\d{1,6})(\.moving|\.moved|)")
_WHOLE = "whole"


def directory_text(directory: object, group: RankGroup) -> str:
    """Return the directory of a run as text. The function replaces {node} by the name of the host, but does not replace
    {rank}. Raises InputError for several directories."""
    if isinstance(directory, Sequence) and not isinstance(directory, str) and len(directory) == 1:
        (directory,) = directory
    if not isinstance(directory, (str, Path)):
        raise InputError(
            f"directory {shown(directory)}: a run of several ranks has one directory for each rank; give one, such as "
            "/disk/run.oc or /disk/{rank}/run.oc"
        )
    return str(directory).replace(NODE, group.places[group.rank].host.partition(".")[0])


def part_directory(directory: object, group: RankGroup, is_new: bool = False) -> Path | str:
    """Return the directory of this rank. Raises InputError for several directories. If `is_new` is true, also raises
    InputError if the directory of all parts holds a run of one process, because the Zarr group of the new parts would
    replace files of this run."""
    text = directory_text(directory, group)
    if RANK in text:
        return text.replace(RANK, str(group.rank))
    if is_new and text and os.path.lexists(Path(text) / MANIFEST):
        raise InputError(f"directory {text} holds a run of one process; remove this run, or give another directory")
    return str(Path(text) / f"rank-{group.rank}") if text else text


def refuse_options(options: Mapping[str, Any]) -> None:
    """Raise InputError for options that runs of several ranks do not have yet."""
    for name in LATER:
        value = options.get(name)
        if value is None or value is False or (isinstance(value, (tuple, list)) and not value):
            continue
        raise InputError(f"{name}: runs of several ranks cannot do this yet; leave it out, or run one process")


def refuse_whole(manifest: Manifest, place: Path) -> None:
    """Raise InputError if several ranks cannot compute the run of one process in `place`. Several ranks cannot compute
    a run with a feature that runs of several ranks do not have yet."""
    names = [one.name for one in manifest.taps.samplings]
    corners = [one.corners for one in manifest.taps.samplings] + [one.corners for one in manifest.taps.sources]
    wrong = {
        "a run in place": manifest.in_place,
        "records in another directory": manifest.records,
        "several directories": len(manifest.directories) > 1,
        "a history": manifest.taps.history,
        "states of another run": manifest.states,
        "a halo or padding": manifest.rim,
        "a grid of fewer than three axes": len(manifest.shape) < 3,
        "points of Devito": len(set(names)) < len(names) or max(corners, default=0) > LINEAR_CORNERS,
    }
    if found := [what for what, is_there in wrong.items() if is_there]:
        raise InputError(f"{place}: runs of several ranks cannot have {found[0]} yet; go on without mpirun")


def require_equal(group: RankGroup, values: Mapping[str, Any]) -> None:
    """Raise InputError on all ranks if a value differs between ranks. The values are plain data."""
    every = group.allgather(dict(values))
    for rank, other in enumerate(every):
        for name, value in every[0].items():
            if other.get(name) != value:
                raise InputError(
                    f"{name} differs between ranks: rank {rank} has {shown(other.get(name), 80)}, and rank 0 has "
                    f"{shown(value, 80)}; start all ranks with the same program and options"
                )


def version() -> str:
    """Return the version of the installed package Outcrop."""
    return metadata.version("outcrop")


def common_identity(group: RankGroup) -> str:
    """Return a new random name of a run, which is the same on all ranks."""
    return str(group.allgather(uuid.uuid4().hex if group.rank == 0 else "")[0])


def as_part(whole: Description, part: PartEntry) -> Description:
    """Return the description of one part of the run `whole`. The axes of parts have the names of the stencil's axes."""
    nz, _, nx = whole.shape
    (first, end), (low, high) = part.rows, part.own_planes or (0, nz)
    shape = high - low, end - first, nx
    layout = make_layout(shape, whole.dtype)
    where = whole.coordinates
    if where is not None:
        z, y, x = where.origin
        where = replace(where, origin=(z + low * where.spacing[0], y + first * where.spacing[1], x))
    planes = stripe_planes(layout.shape, whole.dtype, len(whole.directories))
    return replace(whole, shape=shape, shard_planes=planes, coordinates=where, part=part, axes=())


def is_unfinished_start(group: RankGroup, place: Path) -> bool:
    """Return True if the directories of the ranks hold one run at generation 0, and the initial values are missing on
    at least one rank. A run without all initial values contains no results, so a new run may replace it."""
    found = _manifest_at(place)
    part = found.part if found else None
    mine = None if found is None else [part.run if part else "", part.ranks if part else 1, found.generation,
                                       found.has_values]  # fmt: skip
    every = group.allgather(mine)
    there = [one for one in every if one is not None]
    complete = all(one is not None and one[3] for one in every)
    same = {(run, ranks) for run, ranks, _, _ in there}
    return not complete and len(same) == 1 and all(run and ranks == group.size for run, ranks in same) and not any(
        generation for _, _, generation, _ in there
    )


def finish_parts(group: RankGroup, path: object) -> None:
    """If a killed program has replaced an old run on some ranks only, replace it on all ranks. The program was killed
    after the new parts were complete on all ranks (run/first_values.py). `path` is the directory of the run. All ranks
    must call this function together. Raises InputError and StorageError."""
    with group.together():
        place = Path(part_directory(path, group))
        finish(place)
        found, staged = _manifest_at(place), staged_run(place)
    runs = [one.part.run if one and one.part and one.has_values else "" for one in (found, staged)]
    begun = {run for run, _ in group.allgather(runs)} - {""}
    with group.together():
        if runs[1] in begun:
            finish(place, is_begun=True)


def _manifest_at(place: Path) -> Manifest | None:
    try:
        return RunFolder(place).read()
    except (InputError, StorageError):
        return None


def require_part(group: RankGroup, manifest: Manifest, place: Path) -> None:
    """Check that the directories of all ranks hold all parts of one run, in the order of ranks. If a directory does not
    hold its part, raise InputError on all ranks."""
    part = manifest.part
    with group.together():
        if part is None:
            raise InputError(
                f"{place} holds a run of one process; go on without mpirun"
                + by_caller(f": outcrop resume {place}", ", or with ranks=1")
            )
        if part.ranks != group.size:
            raise InputError(
                f"{place} holds a part of a run of {part.ranks} ranks, but {group.size} were started; start as many: "
                f"mpirun -n {part.ranks} ..., or make one run of the parts: outcrop gather"
            )
        if part.rank != group.rank:
            raise InputError(
                f"{place} holds the part of rank {part.rank}, not of rank {group.rank}; start the ranks on the nodes "
                "on which they were before, or move the directories"
            )
        if not manifest.has_values:
            raise InputError(
                f"{place} has no values yet: the run was interrupted before its initial values were complete; start it "
                "again with outcrop run"
            )
    assert part is not None
    require_equal(
        group,
        {"the run": part.run, "the cut": [*part.cut, *part.planes], "the stencil": manifest.stencil,
         "parameters": manifest.parameters, "boundary": manifest.boundary, "the dtype": manifest.dtype},
    )  # fmt: skip


def refuse_alone(manifest: Manifest, place: Path) -> None:
    """Raise InputError if `manifest` belongs to a part, which one process cannot run."""
    if manifest.part is not None:
        part = manifest.part
        raise InputError(
            f"{place} holds the part of rank {part.rank} of {part.ranks}; go on with "
            f"{resume_command(manifest, place)}, or make one run of all parts: outcrop gather"
        )


# --- parts on disk ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartPlace:
    """The place of a part. `final` is the directory of the part. During a move, the name of the directory is `stem`
    followed by a suffix. `final` and `stem` are equal, except for a run of one process whose directory contains the
    directories with a suffix. `may_be_whole` and `may_be_part` say whether a whole run or a part can be at this place.
    """

    final: Path
    stem: Path
    may_be_whole: bool = True
    may_be_part: bool = True

    def path(self, end: str) -> Path:
        return Path(f"{self.stem}{end}") if end else self.final

    @property
    def is_around(self) -> bool:
        """True if the directories whose names have a suffix are inside `final`."""
        return self.stem.parent == self.final


@dataclass(frozen=True)
class FoundPart:
    """A part on disk: its place, the suffix of its name, some values of its manifest, and the rank that has found it.
    It is possible that other ranks cannot read the directory of the part. `along_z` is the number of parts along z of
    its run."""

    final: str
    stem: str
    end: str
    identity: str
    run: str
    rank: int
    ranks: int
    along_z: int
    generation: int
    has_values: bool
    finder: int

    @property
    def place(self) -> PartPlace:
        return PartPlace(Path(self.final), Path(self.stem))

    @property
    def path(self) -> Path:
        return self.place.path(self.end)


def place_of(path: object, group: RankGroup, rank: int, ranks: int) -> PartPlace:
    """Return the place of a part, with the paths that this rank uses. The part belongs to `rank` in a run of `ranks`
    ranks."""
    text = directory_text(path, group)
    if RANK in text:
        there = Path(text.replace(RANK, str(rank)))
        return PartPlace(there, there)
    if ranks == 1:
        return PartPlace(Path(text), Path(text) / _WHOLE, may_be_part=False)
    there = Path(text) / f"rank-{rank}"
    return PartPlace(there, there, may_be_whole=False)


def places_of(path: object, group: RankGroup, tried: range) -> Iterator[tuple[PartPlace, int, str]]:
    """Yield (place, rank, suffix of the name) for each directory that may hold a part and that this rank can read. If
    `path` has the form /disk{rank}/run.oc, only the ranks in `tried` are tried. Symbolic links whose names have a
    suffix, such as .moving, are left out."""
    text = directory_text(path, group)
    if RANK in text:
        for rank in tried:
            place = place_of(path, group, rank, 2)
            for end in ("", MADE, LEFT):
                if place.path(end).is_dir() and not (end and place.path(end).is_symlink()):
                    yield place, rank, end
        return
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(text))
        names = [name for name in names if not (Path(name).suffix and Path(text, name).is_symlink())]
        for end in ("", MADE, LEFT):
            if (f"{_WHOLE}{end}" if end else MANIFEST) in names:
                yield place_of(path, group, 0, 1), 0, end
        for name in names:
            if match := _NAME.fullmatch(name):
                yield place_of(path, group, int(match[1]), 2), int(match[1]), match[2]


def part_at(place: PartPlace, end: str, finder: int) -> FoundPart | None:
    """Return the part at a place, or None if there is no part."""
    manifest = _manifest_at(place.path(end))
    if manifest is None:
        return None
    part = manifest.part
    if not (place.may_be_whole if part is None else place.may_be_part):
        return None
    run, rank, ranks = (part.run, part.rank, part.ranks) if part else (manifest.identity, 0, 1)
    along_z = part.along_z if part else 1
    return FoundPart(
        str(place.final), str(place.stem), end, manifest.identity, run, rank, ranks, along_z, manifest.generation,
        manifest.has_values, finder,
    )  # fmt: skip


def is_seen(part: FoundPart, rank: int) -> bool:
    """Return True if the calling rank can read the part. `rank` is the number of the calling rank."""
    found = part_at(part.place, part.end, rank)
    return found is not None and found.identity == part.identity


def was_interrupted(path: Path) -> bool:
    """Return True if an interrupted move may have left directories in `path`. A move removes the directories of the
    lowest ranks last, so only the directories of the lowest ranks are tested."""
    if RANK in str(path):
        tried = [str(path).replace(RANK, str(rank)) + end for rank in (0, 1) for end in (MADE, LEFT)]
        return any(os.path.lexists(one) for one in tried)
    with contextlib.suppress(OSError):
        ends = re.compile(rf"(rank-\d{{1,6}}|{_WHOLE})({re.escape(MADE)}|{re.escape(LEFT)})")
        return any(ends.fullmatch(name) for name in os.listdir(path))
    return False


def scan(group: RankGroup, path: object, tried: range) -> list[FoundPart]:
    """Return the parts that the ranks see. The finder of a part is the lowest rank that sees the part. Only one rank of
    each node searches for parts. If rank 0 has found a part, other nodes do not list the part a second time."""
    here = group.places[group.rank].node
    is_first = all(one.node != here for one in group.places[: group.rank])
    places = places_of(path, group, tried) if is_first else ()
    seen = [(rank, part_at(place, end, group.rank)) for place, rank, end in places]
    own = [one for rank, one in seen if one is not None and one.rank == rank]
    found: list[FoundPart] = []
    for turn in (group.rank == 0, group.rank > 0):
        new = [one for one in own if one.identity not in {other.identity for other in found}] if turn else []
        for several in group.allgather([asdict(one) for one in new]):
            known = {one.identity for one in found}
            found += [FoundPart(**one) for one in several if one["identity"] not in known]
    return found


def choose(path: object, found: Sequence[FoundPart], size: int) -> list[FoundPart] | None:
    """Return all parts of the valid run, in the order of ranks, or None if no run is complete. Raises InputError if
    there is both a run of one process and a run of several ranks."""
    runs: dict[str, dict[int, FoundPart]] = {}
    for one in found:
        if one.end != LEFT and one.has_values:
            runs.setdefault(one.run, {}).setdefault(one.rank, one)
    complete = [[of[rank] for rank in sorted(of)] for of in runs.values() if len(of) == next(iter(of.values())).ranks]
    made = [one for one in complete if any(part.end for part in one)]
    final = [one for one in complete if one not in made]
    for parts in made:
        if all(is_replaced(other[0], parts) for other in final):
            return parts
    counts = {one[0].ranks for one in final}
    if size > 1 and 1 in counts and len(counts) > 1:
        raise InputError(
            f"{path} holds a run of one process, and also the parts of {max(counts)} ranks; move one of them away"
        )
    return min(final, key=lambda one: one[0].ranks != size, default=None)


def refuse_incomplete(path: object, found: Sequence[FoundPart], size: int) -> None:
    """If the run has a different number of ranks than this program, raise InputError if parts of the run are missing or
    have no values. If the numbers are equal, `require_part` reports missing parts."""
    if any(one.ranks == 1 != size and not one.has_values and not one.end for one in found):
        raise InputError(
            f"{path} has no values yet: the run was interrupted before its initial values were complete; start it "
            "again with outcrop run"
        )
    ranks = {one.ranks for one in found if one.has_values} - {size}
    if not ranks or size in {one.ranks for one in found}:
        return
    count = max(ranks)
    missing = [rank for rank in range(count) if rank not in {one.rank for one in found if one.ranks == count}]
    if not missing:  # parts of several runs
        return
    several = "s" * (len(missing) > 1)
    what = f"the part{several} of rank{several} {listed(missing)} of {count}"
    raise InputError(
        f"{path}: {what} cannot be found; start ranks on all nodes that hold parts, or copy the parts "
        "and make one run of them: outcrop gather"
    )


def listed(ranks: Sequence[int]) -> str:
    """Return the numbers of ranks for a message, which names at most eight ranks."""
    return ", ".join(map(str, ranks[:8])) + ", ..." * (len(ranks) > 8)


def name_of_move(run: str, generation: int, ranks: int, along_z: int) -> str:
    """Return the identity of the run that a move makes. The new run has `ranks` parts, and `along_z` parts along z. If
    the new run is a run of one process, the result is also the identity in its manifest."""
    return hashlib.sha256(f"{run} {generation} {ranks // along_z}x{along_z}".encode()).hexdigest()[:32]


def is_replaced(old: FoundPart, chosen: Sequence[FoundPart]) -> bool:
    """Return True if the parts `chosen` were made from the run of the part `old`. The function tries two generations,
    because `old` was possibly one generation ahead of the other parts before the move."""
    new = chosen[0]
    ahead = (0, 1) if old.ranks > 1 else (0,)
    return any(new.run == name_of_move(old.run, old.generation - one, new.ranks, new.along_z) for one in ahead)
