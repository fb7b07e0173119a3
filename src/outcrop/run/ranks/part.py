"""The part of one rank: its directory, its description, and the checks that all parts belong together.

    -d DIR                  rank 3 has DIR/rank-3           one file system for all ranks, or a disk in each node
    -d /disk/{rank}/run     {rank} becomes 3, and {node} the name of its host
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from outcrop.errors import InputError, StorageError, shown
from outcrop.run.disk.entries import PartEntry
from outcrop.run.disk.layout import make_layout, stripe_planes
from outcrop.run.disk.manifest import Description, Manifest, resume_command
from outcrop.run.disk.storage import RunFolder
from outcrop.run.ranks.group import RankGroup

RANK, NODE = "{rank}", "{node}"

LINEAR_CORNERS = 8
"""The number of cells around a point of `oc.Source` or `oc.Receivers`. All of them are in two adjacent rows."""

LATER = ("in_place", "raw_device", "records")
"""Options that runs of several ranks do not have yet."""


def directory_text(directory: object, group: RankGroup) -> str:
    """Return the directory of a run. Only {rank} is not replaced in it. Raises InputError for several directories."""
    if isinstance(directory, Sequence) and not isinstance(directory, str) and len(directory) == 1:
        (directory,) = directory
    if not isinstance(directory, (str, Path)):
        raise InputError(
            f"directory {shown(directory)}: a run of several ranks has one directory for each rank; give one, such as "
            "/disk/run.oc or /disk/{rank}/run.oc"
        )
    return str(directory).replace(NODE, group.places[group.rank].host.partition(".")[0])


def part_directory(directory: object, group: RankGroup) -> Path | str:
    """Return the directory of this rank. Raises InputError for several directories."""
    text = directory_text(directory, group)
    if RANK in text:
        return text.replace(RANK, str(group.rank))
    return str(Path(text) / f"rank-{group.rank}") if text else text


def refuse(options: Mapping[str, Any]) -> None:
    """Raise InputError for options that runs of several ranks do not have yet."""
    for name in LATER:
        value = options.get(name)
        if value is None or value is False or (isinstance(value, (tuple, list)) and not value):
            continue
        raise InputError(f"{name}: runs of several ranks cannot do this yet; leave it out, or run one process")


def refuse_whole(manifest: Manifest, place: Path) -> None:
    """Raise InputError if several ranks cannot compute the run of one process in `place`, because it has something that
    runs of several ranks do not have yet."""
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
    """Return the version of the installed package."""
    return metadata.version("outcrop")


def common_identity(group: RankGroup) -> str:
    """Return a new random name of a run, which is the same on all ranks."""
    return str(group.allgather(uuid.uuid4().hex if group.rank == 0 else "")[0])


def as_part(whole: Description, part: PartEntry) -> Description:
    """Return the description of one part of the run `whole`."""
    nz, _, nx = whole.shape
    first, end = part.rows
    shape = nz, end - first, nx
    layout = make_layout(shape, whole.dtype)
    where = whole.coordinates
    if where is not None:
        z, y, x = where.origin
        where = replace(where, origin=(z, y + first * where.spacing[1], x))
    planes = stripe_planes(layout.shape, whole.dtype, len(whole.directories))
    return replace(whole, shape=shape, shard_planes=planes, coordinates=where, part=part)


def is_unfinished_start(group: RankGroup, place: Path) -> bool:
    """Return True if the directories of all ranks hold a run whose initial values are not complete on all ranks. Such a
    run has nothing to lose, and a new run may replace it."""
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


def _manifest_at(place: Path) -> Manifest | None:
    try:
        return RunFolder(place).read()
    except (InputError, StorageError):
        return None


def require_part(group: RankGroup, manifest: Manifest, place: Path) -> None:
    """Raise InputError on all ranks unless the directories hold all parts of one run, in the order of ranks, with the
    same arrays."""
    part = manifest.part
    with group.together():
        if part is None:
            raise InputError(
                f"{place} holds a run of one process; go on without mpirun: outcrop resume {place}, or in Python with "
                "ranks=1"
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
        {"the run": part.run, "the cut": list(part.cut), "the stencil": manifest.stencil,
         "parameters": manifest.parameters, "boundary": manifest.boundary, "the dtype": manifest.dtype,
         "the arrays with values": [one.name for one in manifest.arrays
                                    if one.name in manifest.filled and not one.is_previous]},
    )  # fmt: skip


def refuse_alone(manifest: Manifest, place: Path) -> None:
    """Raise InputError if `manifest` belongs to a part, which one process cannot run."""
    if manifest.part is not None:
        part = manifest.part
        raise InputError(
            f"{place} holds the part of rank {part.rank} of {part.ranks}; go on with "
            f"{resume_command(manifest, place)}, or make one run of all parts: outcrop gather"
        )
