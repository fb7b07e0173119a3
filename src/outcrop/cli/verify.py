"""`outcrop verify`: compare all checksums of a committed state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outcrop.errors import CorruptionError


def verify(
    where: Annotated[Path, typer.Argument(metavar="WHERE", help="directory or device of a run")],
    mend: Annotated[
        bool,
        typer.Option("--repair", help="write links and metadata again, and accept damaged traces and norms"),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print errors only")] = False,
) -> None:
    """Compare all checksums of the committed state in WHERE: planes, indices, traces, norms, points, snapshots.

    Links and metadata for readers of Zarr are compared, too. Nothing is changed without --repair.
    """
    from outcrop.run.disk.verify import find_damage, repair
    from outcrop.run.places import open_state

    for line in repair(open_state(where, check=False)) if mend else ():
        print(line)
    found = find_damage(open_state(where))
    for line in (*found.damage, *found.untidy):
        print(line)
    if found.damage:
        raise CorruptionError(f"{where}: {len(found.damage)} of {found.checked} checksums are wrong")
    if found.untidy:
        raise CorruptionError(f"{where}: all {found.checked} checksums are right, but {len(found.untidy)} links or "
                              f"metadata files are not; mend them with: outcrop verify --repair {where}")  # fmt: skip
    if not quiet:
        print(f"{where}: all {found.checked} checksums of step {found.step} are right")
