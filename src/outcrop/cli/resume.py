"""`outcrop resume`: continue a run from its last committed state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from outcrop.cli import options
from outcrop.cli.run import RunOutput


@options.takes_run_options("memory", "threads", "io", "bind", unless="as before")
def resume(
    given: dict[str, Any],
    where: Annotated[Path, typer.Argument(metavar="WHERE", help="directory or device of a run")],
    steps: Annotated[
        int | None,
        typer.Option("-t", "--steps", metavar="STEPS", help="number of further steps [default: those still missing]"),
    ] = None,
    json: options.Json = None,
    quiet: options.Quiet = False,
) -> None:
    """Finish an interrupted run, or continue a finished one with -t. An interruption does not change the result."""
    from outcrop.run.progress import stage
    from outcrop.run.setup import as_steps
    from outcrop.run.simulation import open as open_simulation

    options.check_output(json, "--json")
    output = RunOutput(quiet)
    steps = None if steps is None else as_steps(steps)
    simulation = open_simulation(where, **given)
    left = simulation.remaining_steps if steps is None else steps
    if left == 0:
        output.print(f"{where} is finished at step {simulation.step}; continue it with -t STEPS")
        return
    simulation.require_fields()
    progress = "none" if quiet else "lines"
    with stage("compiling the kernel and measuring this machine", progress):
        simulation.prepare(left)
    output.finish(simulation.run(left, progress), json)
