"""Open a run on disk: a run of one process, a part by each of several ranks, or all parts for reading.

one process, one run          ──► reopen ──────────────────────────────────► a run that goes on
one process, all parts        ──► all_parts ───────────────────────────────► the whole grid, for reading
ranks, parts of as many       ──► settle ─────────► reopen ─► share ───────► the part of each rank
ranks, parts of other ranks   ──► settle ─► move ─► reopen ─► share ───────► the part of each rank, with new rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from outcrop.errors import InputError
from outcrop.language.boundary import as_boundary
from outcrop.language.sparse import Sampling
from outcrop.paths import as_path
from outcrop.plan.ranks import cut_problem
from outcrop.run.acquisition.parts import own_traces
from outcrop.run.definition import as_problem
from outcrop.run.disk.entries import PartEntry
from outcrop.run.disk.manifest import MANIFEST, Description, Manifest
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder
from outcrop.run.ranks.group import RankGroup, together
from outcrop.run.ranks.launch import join
from outcrop.run.ranks.move import move, settle
from outcrop.run.ranks.part import as_part
from outcrop.run.ranks.shared import share
from outcrop.run.ranks.whole import AllParts, as_whole, find_parts, holds_parts
from outcrop.run.setup import MAX_STEPS, Setup, reopen, require_plan, stencil_of


def open_run(
    path: object, changes: Mapping[str, Any], ranks: object = "auto", comm: Any = None, reads_only: bool = False
) -> Setup:
    """Return the `Setup` of the run at `path`, with the arguments of `reopen`.

    If several ranks open the parts of another number of ranks, the rows are moved first. If one process opens the
    directory of all parts, the result is only for reading. Raises the errors of `reopen`, and InputError if the run
    does not work with the number of ranks, or if there is too little space to move the rows."""
    group = None if reads_only else join(ranks, comm)
    with together(group):
        place = as_path(path, "path")
        if group is None and holds_parts(place):
            return all_parts(place)
        if group is not None:
            _refuse_whole(place)
            if parts := settle(group, path):
                move(group, path, parts, partial(_description, group))
    setup = reopen(path, changes, ranks, comm, reads_only)
    if group is not None and setup.state is not None:
        with group.together(), setup.state.locked():
            share(group, setup.state)
    return setup


def all_parts(place: Path) -> Setup:
    """Return the `Setup` of the whole run in the directory of all its parts. It is only for reading."""
    storages = [RunFolder(one) for one in find_parts([place])]
    states = [State(one, one.read()) for one in storages]
    for state in states:
        state.check()
    parts = AllParts(states)
    return Setup(stencil_of(parts.whole, place), parts.whole, (place,), state=parts.states[0], parts=parts)


def _refuse_whole(place: Path) -> None:
    """Raise InputError if `place` itself is the directory of a run, and not of the parts of several ranks."""
    if (place / MANIFEST).exists():
        part = RunFolder(place).read().part
        what = "a run of one process; go on without mpirun" if part is None else "one part; name the directory above it"
        raise InputError(f"{place} holds {what}: outcrop resume {place if part is None else place.parent}")


def _description(
    group: RankGroup, first: Manifest, run: str, place: Path, samplings: Sequence[Sampling]
) -> Description:
    """Return the description of the new part of this rank in `place`. `first` is the manifest of part 0, and `run` is
    the name of the new run. Raises InputError if the run does not work with this number of ranks."""
    whole = as_whole(first)
    stencil, given = stencil_of(whole, place), whole.settings.given
    steps = max(1, first.target_step - first.step) if first.target_step > first.step else MAX_STEPS
    problem = as_problem(stencil, whole.layout, steps, as_boundary(whole.boundary), in_place=False)
    cut = cut_problem(problem, group.size, given.bt or 1)
    plain = Description(**{one.name: getattr(whole, one.name) for one in fields(Description)})
    own = PartEntry(run, group.rank, cut)
    own = replace(own, traces=own_traces(samplings, own))
    part = as_part(replace(plain, directories=(str(place.absolute()),)), own)
    require_plan(Setup(stencil, part, (place,), group=group))
    return part


def require_alone(setup: Setup, what: str) -> None:
    """Raise InputError if `setup` has the parts of several ranks, which one process can only read."""
    if setup.parts is not None:
        (place,), ranks = setup.directories, len(setup.parts.states)
        raise InputError(
            f"{what}: {place} holds the parts of {ranks} ranks, and one process can only read them; go on with mpirun "
            f"-n {ranks} outcrop resume {place}, or make one run of the parts: outcrop gather"
        )
