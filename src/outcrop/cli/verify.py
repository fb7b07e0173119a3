"""`outcrop verify`: compare all checksums of a committed state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from outcrop.errors import CorruptionError


def verify(
    where: Annotated[Path, Argument(metavar="WHERE", help="directory or device of a run")],
    mend: Annotated[
        bool, Option("--repair", help="write links and metadata again, and accept damaged traces and norms")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", help="print errors only")] = False,
) -> None:
    """Compare all checksums of the committed state in WHERE: planes, indices, traces, norms, points, snapshots.

    Links and metadata for readers of Zarr are compared, too. For an adjoint run, so are the states of its forward run
    that it will read. Nothing is changed without --repair.
    """
    from outcrop.run.disk.verify import find_damage, repair
    from outcrop.run.places import open_state
    from outcrop.run.replay import damaged_states

    for line in repair(open_state(where, check=False)) if mend else ():
        print(line)
    state = open_state(where)
    found = find_damage(state)
    in_states, states_checked = damaged_states(state)
    for line in (*found.damage, *in_states, *found.untidy):
        print(line)
    if wrong := len(found.damage) + len(in_states):
        raise CorruptionError(f"{where}: {wrong} of {found.checked + states_checked} checksums are wrong")
    if found.untidy:
        raise CorruptionError(f"{where}: all {found.checked} checksums are right, but {len(found.untidy)} links or "
                              f"metadata files are not; mend them with: outcrop verify --repair {where}")  # fmt: skip
    if not quiet:
        text = f"{where}: all {found.checked} checksums of step {found.step} are right"
        if state.manifest.states and states_checked:
            text += f", and so are {states_checked} of the states of {state.manifest.states.run} that it will read"
        print(text)
