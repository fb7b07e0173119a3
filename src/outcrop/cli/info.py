"""`outcrop info`: what a run directory holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outcrop.units import format_bytes


def info(where: Annotated[Path, typer.Argument(metavar="WHERE", help="directory or device of a run")]) -> None:
    """Say what WHERE holds: grid, stencil, parameters, step."""
    from outcrop.run.homes import find_home
    from outcrop.run.manifest import IN_FLIGHT, NEW

    home = find_home(where)
    run = home.read()
    nz, ny, nx = run.shape
    if run.phase == NEW:
        state = "no values yet"
    elif home.is_held():
        state = f"step {run.step} of {run.target_step}, being run now"
    elif run.phase == IN_FLIGHT:
        state = f"lost: a pass in place was interrupted after step {run.step}"
    elif run.step < run.target_step:
        state = f"step {run.step} of {run.target_step}, unfinished: outcrop resume {where}"
    else:
        state = f"step {run.step}, finished"
    chosen = ", ".join(f"{name} = {value:g}" for name, value in run.parameters.items())
    rows = [
        ("stencil", f"{run.stencil.get('name', '?')}{f' with {chosen}' if chosen else ''}, boundary {run.boundary}"),
        ("grid", f"{nx} x {ny} x {nz} cells (x, y, z), {run.dtype}"),
        ("state", f"{state} (generation {run.generation})"),
        (
            "disk",
            f"{format_bytes(run.arrays * run.layout.array_bytes)}, {run.arrays} array{'s' * (run.arrays - 1)}, "
            f"{run.layout.shards} shard{'s' * (run.layout.shards > 1)} each",
        ),
        ("memory", f"{format_bytes(run.settings.memory_bytes)}, {run.settings.threads} threads"),
    ]
    if run.settings.sizes:
        rows.append(("given", str(run.settings.given)))
    if len(run.directories) > 1:
        rows.append(("over", ", ".join(run.directories)))
    print("\n".join([str(where), *(f"  {name:<9}{text}" for name, text in rows)]))
