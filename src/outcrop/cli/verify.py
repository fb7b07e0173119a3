"""`outcrop verify`: test every checksum of a committed state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outcrop.errors import CorruptionError


def verify(
    where: Annotated[Path, typer.Argument(metavar="WHERE", help="directory or device of a run")],
    quiet: Annotated[bool, typer.Option("--quiet", help="print nothing but errors")] = False,
) -> None:
    """Test every checksum of the committed state in WHERE: all planes and the indices of the shards."""
    from outcrop.run.disk.verify import find_damage

    damage, checked, step = find_damage(where)
    for line in damage:
        print(line)
    if damage:
        raise CorruptionError(f"{where}: {len(damage)} of {checked} checksums are wrong")
    if not quiet:
        print(f"{where}: all {checked} checksums of step {step} are right")
