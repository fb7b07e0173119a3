"""`outcrop run`, `outcrop resume` and `outcrop gather`: run a simulation, continue a run, or make one run from the
parts of several ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from outcrop.cli import discard_output, options
from outcrop.cli.plan import describe
from outcrop.errors import InputError, InterruptedRun, StorageError
from outcrop.units import counted, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from outcrop.plan.problem import Problem
    from outcrop.run.engine import Prepared
    from outcrop.run.options import RunOptions
    from outcrop.run.report import Report
    from outcrop.run.simulation import Simulation


@options.takes_run_options()
def run(
    given: dict[str, Any],
    json: options.Json = None,
    quiet: options.Quiet = False,
    save: options.Save = None,
    values: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE,...",
               help="a sweep: run each value, such as params.c1=0.05,0.1, in its own directory; repeat for all "
               "combinations"),
    ] = None,
    go_on: Annotated[
        bool, Option("--continue", help="with --set: leave out finished runs, and resume interrupted ones")
    ] = False,
) -> None:  # fmt: skip
    """Run a simulation and store its result in WHERE. If WHERE is a directory, the result is a Zarr group."""
    if values:
        _run_sweep(given, values, go_on, json, quiet, save)
        return
    if go_on:
        raise InputError("--continue is for sweeps with --set; continue a run with: outcrop resume WHERE")
    from outcrop.run.options_file import SUFFIX, write_options
    from outcrop.run.ranks.group import together
    from outcrop.run.ranks.launch import join
    from outcrop.run.simulation import Simulation

    # Outcrop connects the ranks before it checks the options, so that an error of all ranks is printed once. If the
    # options are in a file, the file decides whether the ranks are connected.
    is_in_file = given["stencil"].endswith(SUFFIX) and "ranks" not in given
    with together(None if is_in_file else join(given.get("ranks", "auto"))):
        options.check_output(json, "--json")
        options.check_output(save, "--save")
        chosen = options.run_options(given)
        simulation = Simulation(chosen)
        simulation.require_fields(simulation.initial_values)
        quiet = quiet or simulation.rank > 0
        if save is not None and not simulation.rank:
            write_options(chosen, save)
    output = RunOutput(quiet)
    report = _run_new(simulation, chosen, output, quiet)
    if quiet and not simulation.rank:
        _print_not_finite(str(simulation.directory), report.not_finite_text)
    output.finish(report, None if simulation.rank else json)


def _run_new(simulation: Simulation, chosen: RunOptions, output: RunOutput, quiet: bool) -> Report:
    """Run a new simulation, print its plan, and return its report."""
    from outcrop.run.progress import stage

    progress = "none" if quiet else "lines"
    with stage("compiling the kernel and measuring this machine", progress):
        prepared = simulation.prepare()
    names = ", ".join(source.name for source in simulation.initial_values.values()) or "zeros"
    if chosen.check_finite:
        with stage(f"checking {names}", progress):
            simulation.check_values()
    output.print(describe(prepared, *_about_ranks(simulation, prepared)))
    if not chosen.sources and not any(one in simulation.initial_values for one in _updated(simulation)):
        output.print("  note: all updated fields start with zeros; --init gaussian, for example, gives them values")
    with stage(f"writing initial values ({names})", progress):
        simulation.fill()
    with _naming_command(simulation, simulation.remaining_steps):
        return simulation.run(progress=progress)


def _print_not_finite(name: str, text: str) -> None:
    """If `text` says that NaN or infinity was found in the run `name`, print `text` on standard error. A run with
    --quiet prints no report. Without this line, a run with NaN would look like a success."""
    if text:
        with suppress(OSError):  # standard error may be closed
            print(f"outcrop: note: {name}: {text}", file=sys.stderr, flush=True)


def _updated(simulation: Simulation) -> list[str]:
    """Return the names of the updated fields, and then the names of their previous values."""
    stencil = simulation.stencil
    updated = [one.name for one, stored in zip(stencil.fields, stencil.storage, strict=True) if not stored.is_static]
    return [*updated, *(f"{name}.previous" for name in updated)]


def _run_sweep(
    given: dict[str, Any], texts: list[str], go_on: bool, json: Path | None, quiet: bool, save: Path | None
) -> None:
    """Run all combinations of the values of --set. With `go_on`, leave out finished runs, and resume interrupted runs.
    Check all runs before the first run begins."""
    from outcrop.cli import sweeps
    from outcrop.run.ranks.launch import join
    from outcrop.run.report import not_finite_text
    from outcrop.run.simulation import Simulation

    if save is not None:
        raise InputError("--save writes the options of one run; leave out --set, and give --set again with the file")
    options.check_output(json, "--json")
    if join(given.get("ranks", "auto")) is not None:
        raise InputError("--set computes its runs one after the other, without mpirun; give --ranks 1, or leave it out")
    found = sweeps.variants(given, texts)
    every = sweeps.chosen_options(found)
    # With --continue, the directory of a run can already hold this run. With `force`, the check accepts the existing
    # run. Nothing is removed.
    simulations, there = [], []
    known_ranges: sweeps.Ranges = {}
    for variant, chosen in zip(found, every, strict=True):
        with sweeps.naming(variant):
            one = Simulation(replace(chosen, force=True) if go_on else chosen)
            known = sweeps.reopened(one) if go_on else None
            if known is None:
                one.require_fields(one.initial_values)
                sweeps.require_stable(one, chosen, known_ranges)
        simulations.append(one)
        there.append(known)
    output, rows, reports = RunOutput(quiet), [], []
    for number, (variant, chosen, one, known) in enumerate(zip(found, every, simulations, there, strict=True), start=1):
        output.print(f"{number} of {len(found)}: {variant.text}, in {one.directory}")
        report = None
        with sweeps.naming(variant):
            if known is None:
                report = _run_new(Simulation(chosen), chosen, output, quiet)
            elif known.remaining_steps:
                report = known.run(known.remaining_steps, "none" if quiet else "lines")
        if report is not None:
            output.print(f"{report}\n")
        reports.append({"set": dict(variant.values), "directory": str(one.directory),
                        "report": report.to_json() if report else None})  # fmt: skip
        if report is not None:
            result = f"{format_seconds(report.seconds)}, {format_rate(report.cell_updates_per_second)}cell/s"
            bad = report.not_finite_text
        else:
            result = "finished earlier"
            pace = known.setup.state.manifest.pace if known and known.setup.state else None
            bad = not_finite_text({name: f"step {step}" for name, step in pace.not_finite.items()} if pace else {})
        if quiet:
            _print_not_finite(variant.text, bad)
        rows.append((variant.text, str(one.directory), f"{result}; {bad}" if bad else result))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    output.print("\n".join(f"{text:<{widths[0]}}  {place:<{widths[1]}}  {result}" for text, place, result in rows))
    options.write_json(json, "--json", {"runs": reports})
    output.require_printed("the runs themselves are complete")


def _about_ranks(simulation: Simulation, prepared: Prepared) -> tuple[Problem | None, list[tuple[str, str]]]:
    """For a run of several ranks, return the problem of the whole grid, and rows of text about all ranks. For a run of
    one process, return (None, [])."""
    from outcrop.plan.planner import find_scheme
    from outcrop.plan.stairs import Stairs

    part, plan = simulation.setup.description.part, prepared.plan
    if part is None:
        return None, []
    texts = []
    for cut, what in ((part.cut, "rows"), (part.planes, "planes")):
        if counts := [end - first for first, end in pairwise(cut)]:
            some = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
            texts.append(f"{some} {what}")
    parts = " and ".join(texts)
    levels, sent = plan.passes[0].levels, plan.predicted.bytes_sent // len(plan.passes)
    halos = (max(plan.problem.halo(levels)), "row"), (max(plan.problem.halo_z(levels)), "plane")
    wanted = [counted(count, what) for count, what in halos if count] or ["nothing"]
    halo = f"{' and '.join(wanted)} of each neighbour"
    if find_scheme(plan.scheme).shared_levels is not None:
        halo = f"{counted(Stairs(plan.problem, levels).rim_rows[1], 'row')} of the upper neighbour"
    return simulation.setup.whole_problem(plan.problem.steps), [
        ("ranks", f"{part.ranks} parts of {parts}; the plan of rank {part.rank} follows"),
        ("halo", f"{halo}; a pass sends {format_bytes(sent)}"),
    ]


@options.takes_run_options("memory", "threads", "io", "bind", "ranks", unless="the value that the run has stored")
def resume(
    given: dict[str, Any],
    where: Annotated[Path, Argument(metavar="WHERE", help="directory or device of a run")],
    steps: Annotated[
        int | None,
        Option("-t", "--steps", metavar="STEPS",
               help="number of further steps, instead of the steps that are left of an earlier command [default: all "
               "steps that are left]"),
    ] = None,
    json: options.Json = None,
    quiet: options.Quiet = False,
) -> None:  # fmt: skip
    """Finish an interrupted run, or continue a finished run with -t. An interruption does not change the result. If the
    number or the grid of ranks has changed, Outcrop first moves the rows of the run to the new ranks."""
    from outcrop.run.progress import stage
    from outcrop.run.ranks.group import together
    from outcrop.run.ranks.launch import join
    from outcrop.run.setup import as_steps
    from outcrop.run.simulation import open as open_simulation

    with together(join(given.get("ranks", "auto"))):
        options.check_output(json, "--json")
        steps = None if steps is None else as_steps(steps)
        simulation = open_simulation(where, **given)
    quiet = quiet or simulation.rank > 0
    output = RunOutput(quiet)
    left = simulation.remaining_steps if steps is None else steps
    if left == 0:
        output.print(f"{where} is finished at step {simulation.step}; continue it with -t STEPS")
        return
    simulation.require_fields()
    progress = "none" if quiet else "lines"
    with _naming_command(simulation, left):
        with stage("compiling the kernel and measuring this machine", progress):
            simulation.prepare(left)
        state = simulation.setup.state
        with state.locked() if state else nullcontext():  # the text is wrong if another process computes the run
            if text := _about_steps(simulation, left):
                output.print(text)
        report = simulation.run(left, progress)
    if quiet and not simulation.rank:
        _print_not_finite(str(where), report.not_finite_text)
    output.finish(report, None if simulation.rank else json)


@contextmanager
def _naming_command(simulation: Simulation, steps: int) -> Iterator[None]:
    """If a Ctrl-C ends the body of the `with` before the first pass begins, raise InterruptedRun with the command that
    computes the `steps` steps. At this time, the manifest does not always contain the requested steps."""
    last = simulation.step + steps
    try:
        yield
    except KeyboardInterrupt:
        # The interrupted command reads nothing from disk, because the system can soon send a second signal.
        step, left = simulation.step, simulation.remaining_steps
        if simulation.setup.group is not None or step >= last:
            raise
        command = f"outcrop resume {simulation.directory}" + (f" -t {last - step}" if step + left != last else "")
        raise InterruptedRun(f"stopped before the first pass: step {step} is intact; go on with: {command}") from None


def _about_steps(simulation: Simulation, steps: int) -> str:
    """If an earlier command has asked for another last step than this command, return a text about the two last steps.
    Otherwise return ""."""
    step, last = simulation.step, simulation.step + steps
    asked = step + simulation.remaining_steps
    if not step < asked != last:
        return ""
    text = f"continuing from step {step} to step {last}; an earlier command asked for step {asked}"
    if last < asked and not simulation.setup.description.max_step:  # an adjoint run always ends at its last step
        text += f", and steps after {last} are no longer requested"
    return text


class RunOutput:
    """Prints the output of a run. The run continues even if its output cannot be printed.

    After the first text that cannot be printed, nothing more is printed. A pipe that its reader has closed, as in
    `outcrop run ... | head -1`, is not an error. If output fails for another reason, such as a full disk, `finish`
    raises StorageError when the run is complete.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._problem: OSError | None = None

    def print(self, text: str) -> None:
        """Print `text`, unless the user wants no output or an earlier text could not be printed."""
        if self._quiet or self._problem is not None:
            return
        try:
            print(text, flush=True)
        except OSError as error:
            self._problem = error
            discard_output()

    def finish(self, report: Report, json: Path | None) -> None:
        """Print the report, and write the report to `json`. Raises InputError if `json` cannot be written, and
        StorageError if a text could not be printed. The messages of these errors say that the run is complete."""
        self.print(str(report))
        if json is not None:
            report.save(json)
        self.require_printed(report.standing)

    def require_printed(self, standing: str) -> None:
        """Raise StorageError if a text could not be printed. The message ends with the text `standing`, which says that
        the run is complete."""
        if self._problem is not None and not isinstance(self._problem, BrokenPipeError):
            raise StorageError(f"standard output: {self._problem.strerror}; {standing}")


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
