"""`outcrop run`: a simulation from its initial values to a report."""

from __future__ import annotations

from typing import Any

from outcrop.cli import options
from outcrop.cli.output import RunOutput
from outcrop.cli.plan import describe


@options.takes_run_options()
def run(
    given: dict[str, Any],
    json: options.Json = None,
    quiet: options.Quiet = False,
    save: options.Save = None,
) -> None:
    """Run a simulation and leave its result in WHERE, in a directory as a Zarr array."""
    from outcrop.run.options_file import write_options
    from outcrop.run.progress import stage
    from outcrop.run.simulation import Simulation

    options.check_output(json, "--json")
    options.check_output(save, "--save")
    output = RunOutput(quiet)
    chosen = options.run_options(given)
    simulation = Simulation(chosen)
    values = simulation.initial_values
    simulation.require_fields(values)
    if save is not None:
        write_options(chosen, save)
    progress = "none" if quiet else "lines"
    with stage("compiling the kernel and measuring this machine", progress):
        prepared = simulation.prepare()
    names = ", ".join(source.name for source in values.values()) or "zeros"
    if chosen.check_finite:
        with stage(f"checking {names}", progress):
            simulation.check_values()
    output.print(describe(prepared))
    with stage(f"writing initial values ({names})", progress):
        simulation.fill()
    output.finish(simulation.run(progress=progress), json)
