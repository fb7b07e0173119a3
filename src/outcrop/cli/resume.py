"""`outcrop resume`: go on with a run from its last committed state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from outcrop.cli import options
from outcrop.cli.output import RunOutput

Where = Annotated[Path, typer.Argument(metavar="WHERE", help="directory or device of a run")]
More = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("-t", "--steps", metavar="STEPS", help="steps to do from here on [default: those still missing]"),
]


@options.takes_run_options("memory", "threads", "io", "bind", unless="as before")
def resume(
    given: dict[str, Any],
    where: Where,
    steps: More = None,
    json: options.Json = None,
    quiet: options.Quiet = False,
) -> None:
    """Finish an interrupted run, or take a finished one further with -t. The bits do not depend on the interruption."""
    from outcrop.run.progress import stage
    from outcrop.run.setup import as_steps
    from outcrop.run.simulation import open as open_simulation

    options.check_output(json, "--json")
    output = RunOutput(quiet)
    steps = None if steps is None else as_steps(steps)
    simulation = open_simulation(where, **given)
    left = simulation.remaining_steps if steps is None else steps
    if left == 0:
        output.print(f"{where} is finished at step {simulation.step}; take it further with -t STEPS")
        return
    progress = "none" if quiet else "lines"
    with stage("compiling the kernel and measuring this machine", progress):
        simulation.prepare(left)
    output.finish(simulation.run(left, progress), json)
