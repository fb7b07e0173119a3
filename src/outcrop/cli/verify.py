"""`outcrop verify`: compare all checksums of a committed state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from outcrop.errors import CorruptionError
from outcrop.units import counted

if TYPE_CHECKING:
    from outcrop.run.disk.verify import Findings


def verify(
    where: Annotated[
        Path, Argument(metavar="WHERE", help="directory or device of a run, or the directory with all its parts")
    ],
    mend: Annotated[
        bool, Option("--repair", help="write links and metadata again, and accept damaged traces and norms")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", help="print errors only")] = False,
) -> None:
    """Test all checksums of the committed state in WHERE: planes, indices, traces, norms, points, snapshots.

    The command also tests the links and metadata for other Zarr programs. An adjoint run will read states of its
    forward run: the command also tests the checksums of these states. Nothing is changed without --repair.
    """
    from outcrop.run.disk.verify import find_damage, repair
    from outcrop.run.places import check_files, open_state
    from outcrop.run.ranks.whole import holds_parts
    from outcrop.run.replay import damaged_states

    if holds_parts(where):
        _tell(where, _verify_parts(where, mend), quiet, mend)
        return
    for line in repair(open_state(where, check=False)) if mend else ():
        print(line)
    state = open_state(where, check=False)
    if not state.has_values:
        check_files(state)
    found = find_damage(state)
    in_states, states_checked = damaged_states(state)
    more = ""
    if state.manifest.states and states_checked:
        more = f", and so are {states_checked} of the states of {state.manifest.states.run} that it will read"
    _tell(where, found, quiet, mend, in_states, states_checked, more)


def _tell(
    where: Path, found: Findings, quiet: bool, mend: bool, in_states: Sequence[str] = (), states_checked: int = 0,
    more: str = "",
) -> None:  # fmt: skip
    """Print the result of a verification. If `mend` is true, a repair came before the verification. Raises
    CorruptionError if something is wrong."""
    for line in (*found.damage, *in_states, *found.untidy):
        print(line)
    if found.damage or in_states:
        wrong = len(found.damage) - found.lost + len(in_states)
        files = f"{counted(found.lost, 'file')} cannot be used, and " if found.lost else ""
        left = "; --repair cannot mend the files above: restore them from a copy" if mend else ""
        raise CorruptionError(f"{where}: {files}{wrong} of {found.checked + states_checked} checksums are wrong{left}")
    if found.untidy:
        several = len(found.untidy) > 1
        what = f"{len(found.untidy)} links or other files are" if several else "1 link or other file is"
        raise CorruptionError(f"{where}: all {found.checked} checksums are right, but {what} not; repair "
                              f"{'them' if several else 'it'} with: outcrop verify --repair {where}")  # fmt: skip
    if not quiet:
        print(f"{where}: all {found.checked} checksums of step {found.step} are right{more}")


def _verify_parts(where: Path, mend: bool) -> Findings:
    """Verify all parts of a run of several ranks, and the Zarr group above them. Return the findings of all parts as
    one object. Its `step` is the step that all parts have."""
    from outcrop.run.disk.verify import Findings, find_damage, repair
    from outcrop.run.places import open_state
    from outcrop.run.ranks.shared import group_of
    from outcrop.run.ranks.whole import AllParts, find_parts

    places = find_parts([where])
    for line in (line for place in places for line in repair(open_state(place, check=False))) if mend else ():
        print(line)
    states = [open_state(place, check=False) for place in places]
    found = [find_damage(state) for state in states]
    first = AllParts(states).states[0].manifest
    group, untidy = group_of(where, first), [line for one in found for line in one.untidy]
    if group is not None and (wrong := group.untidy(first)):
        if mend:
            group.repair(first)
            print("\n".join(f"{line}: mended" for line in wrong))
        untidy += group.untidy(first)
    damage = [line for one in found for line in one.damage]
    checked, lost = (sum(getattr(one, name) for one in found) for name in ("checked", "lost"))
    return Findings(damage, untidy, checked, first.step, lost)
