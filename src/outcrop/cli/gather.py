"""`outcrop gather`: make one run from the parts of several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option


def gather(
    parts: Annotated[
        list[Path],
        Argument(
            metavar="PARTS...", help="directories of all parts, or the directory that contains rank-0, rank-1, ..."
        ),
    ],
    directory: Annotated[Path, Option("-d", "--directory", metavar="WHERE", help="directory of the new run")],
    force: Annotated[bool, Option("--force", help="replace the run in WHERE")] = False,
) -> None:
    """Make one run from the parts of several ranks. One process can continue this run. The parts are kept."""
    from outcrop.paths import as_place
    from outcrop.run.ranks.gather import gather as gather_parts

    state = gather_parts(parts, as_place(directory, "directory"), force)
    manifest = state.manifest
    size = " x ".join(map(str, reversed(manifest.shape)))
    print(f"{directory} holds {manifest.stencil.get('name', 'a run')} {size} at step {manifest.step}")
