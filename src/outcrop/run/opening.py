"""Open a run on disk. One process can open a run of one process. In a run of several ranks, each rank can open its
part, or one process can open all parts for reading.

one process, one run          ──► reopen ──────────────────────────────────► a run that continues
one process, all parts        ──► all_parts ───────────────────────────────► the whole grid, for reading
                                      └──────► take_parts ─► move ─► reopen ► a run that continues when it takes a step
ranks, their own parts        ──► settle ─────────► reopen ─► share ───────► the part of each rank
ranks, parts of other ranks   ──► settle ─► move ─► reopen ─► share ───────► the part of each rank, with new rows
ranks, a run of one process   ──► settle ─► move ─► reopen ─► share ───────► the part of each rank

If an interrupted move of rows has left new parts (ranks/move.py), one process can also complete or undo the move. The
process ends an interrupted move before it changes the run. The process also ends the move when it opens a run that can
be read only after the move.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from outcrop.errors import InputError
from outcrop.language.boundary import as_boundary
from outcrop.language.sparse import Sampling
from outcrop.paths import as_path
from outcrop.plan.planner import schemes_for
from outcrop.plan.ranks import cut_planes, cut_problem
from outcrop.run.acquisition.parts import own_traces
from outcrop.run.acquisition.pass_acquisition import undivided_groups
from outcrop.run.definition import as_problem, stencil_of
from outcrop.run.disk.entries import PartEntry
from outcrop.run.disk.manifest import MANIFEST, Description, Manifest
from outcrop.run.disk.replacement import finish
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder
from outcrop.run.places import check_files
from outcrop.run.ranks.group import RankGroup, together
from outcrop.run.ranks.launch import as_ranks, join
from outcrop.run.ranks.move import move, settle
from outcrop.run.ranks.part import as_part, finish_parts, refuse_whole, require_equal, was_interrupted
from outcrop.run.ranks.shared import share, will_share
from outcrop.run.ranks.whole import (
    AllParts,
    as_whole,
    find_parts,
    holds_parts,
    holds_whole,
    whole_description,
    whole_place,
)
from outcrop.run.setup import MAX_STEPS, Setup, changed_settings, reopen, require_plan


def open_run(
    path: object, changes: Mapping[str, Any], ranks: object = "auto", comm: Any = None, reads_only: bool = False
) -> Setup:
    """Return the `Setup` of the run at `path`. The arguments have the same meaning as in `reopen`.

    If several ranks open the run, and the run does not have a part for each of these ranks, the rows are first moved to
    these ranks. The rows also move if `ranks` gives a number of parts along z that is different from the number in the
    run. If one process opens the directory of all parts, the result is only for reading (`take_parts`). If a killed
    process has begun to replace the run by a new run, the replacement is completed first. Raises the errors of
    `reopen`. Raises InputError if the run does not work with the number of ranks, or if there is too little space to
    move the rows."""
    group = None if reads_only else join(ranks, comm)
    with together(group):
        place = as_path(path, "path")
        if changes.get("params") is not None and (group is not None or holds_parts(place)):
            raise InputError(
                "params cannot change in a run of several ranks; make one run of its parts with outcrop gather, and "
                "start another run from that run: oc.Simulation(...) with the new params and init= its directory"
            )
        if group is not None:
            _refuse_part(place)
            grid = as_ranks(ranks)
            require_equal(group, {"ranks": str(grid) if grid.is_grid else "auto"})
            finish_parts(group, path)
            if parts := settle(group, path, grid.along_z if grid.is_grid else None):
                move(group, path, parts, grid.along_z, partial(_description, group, changes))
        else:
            if not reads_only and was_interrupted(place) and not _is_readable(place):
                with _alone() as alone:
                    settle(alone, place)
            if holds_parts(place):
                return all_parts(place, changes)
            path = whole_place(place)
            if not reads_only:
                finish(as_path(path, "path"))
    setup = replace(reopen(path, changes, ranks, comm, reads_only), changes=changes)
    if group is not None and setup.state is not None:
        with group.together(), setup.state.locked():
            share(group, setup.state)
    return setup


def needs_to_move(setup: Setup) -> bool:
    """Return True if one process must call `take_parts` before it changes the run. The result is True if the process
    has opened the parts of several ranks, or if an interrupted move has left new parts."""
    is_alone = setup.group is None and setup.state is not None
    return is_alone and (setup.parts is not None or was_interrupted(setup.directories[0]))


def take_parts(setup: Setup) -> Setup:
    """Complete or undo an interrupted move. Then make a run of one process from the parts in `setup`, and return the
    `Setup` of the new run. Raises the errors of `open_run`."""
    place = setup.directories[0]
    with _alone() as group:
        if parts := settle(group, place):
            move(group, place, parts, 1, partial(_description, group, setup.changes))
    return open_run(place, setup.changes, ranks=1)


@contextlib.contextmanager
def _alone() -> Iterator[RankGroup]:
    """Yield a group that contains only this process. The functions that move rows between ranks also work with a group
    of one process."""
    group = RankGroup(0, 1, str)
    try:
        yield group
    finally:
        group.close()


def all_parts(place: Path, changes: Mapping[str, Any]) -> Setup:
    """Return the `Setup` of the whole run in the directory of all its parts. The `Setup` is only for reading.
    `take_parts` uses `changes` later."""
    storages = [RunFolder(one) for one in find_parts([place])]
    states = [State(one, one.read()) for one in storages]
    for state in states:
        check_files(state)
    parts = AllParts(states)
    first, stencil = parts.states[0], stencil_of(parts.whole, place)
    return Setup(stencil, parts.whole, (place,), state=first, parts=parts, changes=changes)


def _is_readable(place: Path) -> bool:
    """Return True if a run can be read although a move of its rows was interrupted or is in progress."""
    with contextlib.suppress(InputError):
        return bool(find_parts([place])) if holds_parts(place) else holds_whole(place)
    return False


def _refuse_part(place: Path) -> None:
    """Raise InputError if `place` itself is the directory of one part."""
    if (place / MANIFEST).exists() and RunFolder(place).read().part is not None:
        raise InputError(f"{place} holds one part; name the directory above it: outcrop resume {place.parent}")


def _description(
    group: RankGroup, changes: Mapping[str, Any], first: Manifest, run: str, place: Path, samplings: Sequence[Sampling],
    along_z: int,
) -> Description:  # fmt: skip
    """Return the description of the new part of this rank in `place`. If the group has one rank, return the description
    of the whole run. The new run has `along_z` parts along z. `first` is the manifest of part 0, and `run` is the name
    of the new run. Raises InputError if the run does not work with the ranks of the group."""
    if first.part is None:
        refuse_whole(first, place)
        changes = _of_rank(group, first, changes)
    whole = as_whole(first)
    stencil = stencil_of(whole, place)
    whole = replace(whole, settings=changed_settings(whole, stencil, changes))
    if group.size == 1:
        one = whole_description(whole, place)
        require_plan(Setup(stencil, one, (place,)))
        return one
    steps = max(1, first.target_step - first.step) if first.target_step > first.step else MAX_STEPS
    kernel = Setup(stencil, whole, (place,)).kernel_stencil
    problem = as_problem(kernel, whole.layout, steps, as_boundary(whole.boundary), in_place=False)
    problem = replace(problem, acquisition=undivided_groups(whole.taps))
    least, for_chunks = whole.settings.given.bt or 1, along_z == 1 and will_share(group, place)
    cut = cut_problem(problem, group.size // along_z, least, for_chunks=for_chunks)
    plain = Description(**{one.name: getattr(whole, one.name) for one in fields(Description)})
    own = PartEntry(run, group.rank, cut, planes=cut_planes(problem, along_z, least))
    own = replace(own, traces=own_traces(samplings, own))
    part = as_part(replace(plain, directories=(str(place.absolute()),)), own)
    setup = Setup(stencil, part, (place,), group=group)
    schemes_for(setup.problem(whole.settings.given.bt or 1), whole.settings.scheme, whole.settings.given)
    require_plan(setup)
    return part


def _of_rank(group: RankGroup, whole: Manifest, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that change if several ranks continue a run of one process. The ranks that run on the same
    cores divide the threads of the process among themselves."""
    settings, sharing = whole.settings, group.ranks_on_same_cores
    own: dict[str, Any] = {"threads": max(1, settings.threads // sharing)}
    if settings.bind == "auto" and sharing > 1:
        own["bind"] = "none"
    return own | {name: value for name, value in changes.items() if value is not None}


def require_alone(setup: Setup, what: str) -> None:
    """Raise InputError if the run in `setup` consists of parts. Before `what` is possible, one process must make one
    run of the parts."""
    if setup.parts is not None:
        (place,), ranks = setup.directories, len(setup.parts.states)
        raise InputError(
            f"{what}: {place} holds the parts of {ranks} ranks; make one run of them first: outcrop gather, or go on "
            f"without mpirun: outcrop resume {place}"
        )
