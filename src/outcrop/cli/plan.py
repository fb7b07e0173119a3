"""`outcrop plan`: show the plan of a run and its predicted cost, without running it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from outcrop.cli import options
from outcrop.errors import InputError
from outcrop.units import counted, format_seconds

if TYPE_CHECKING:
    from outcrop.plan.gradient import JudgedWay, WayChoice
    from outcrop.plan.machine import DeclaredMachine
    from outcrop.plan.planner import Planned
    from outcrop.plan.problem import Problem
    from outcrop.run.options import RunOptions

THIS_MACHINE = {"directory": "-d", "io": "--io", "raw_device": "--raw-device", "bind": "--bind"}
"""Options about the machine on which the command runs. These options are not allowed in a plan for another machine."""


@options.takes_run_options()
def plan(
    given: dict[str, Any],
    json: options.Json = None,
    quiet: options.Quiet = False,
    machine: options.Machine = None,
    draw: Annotated[Path | None, Option(metavar="PNG", help="draw slabs, cache tiles and a time line")] = None,
    explain: Annotated[bool, Option("--explain", help="list the best candidates, and why each was not chosen")] = False,
    check: Annotated[
        bool, Option("--check", help="prove the plan legal, as run does, and show how long the proof takes")
    ] = False,
    gradient: Annotated[bool, Option("--gradient", help="compare the ways to keep states for a gradient")] = False,
    wrt: Annotated[
        list[str] | None, Option("--wrt", metavar="NAME", help="with --gradient: an input or field; repeat for several")
    ] = None,
    simulate: Annotated[
        bool, Option("--simulate", help="simulate the time line of all ranks of --ranks; --draw then shows it")
    ] = False,
    jitter: Annotated[
        str | None,
        Option(metavar="PERCENT", help="with --simulate: random changes of the time of each slab, such as 5%"),
    ] = None,
    stall: Annotated[
        float | None, Option(metavar="SECONDS", help="with --simulate: pauses of this length in one of 200 slabs")
    ] = None,
    seed: Annotated[
        int | None, Option(metavar="N", help="with --simulate: the seed of --jitter and --stall (default 0)")
    ] = None,
) -> None:
    """Show what `outcrop run` would do with the same arguments, and predict its cost. Nothing is changed."""
    options.check_output(json, "--json")
    options.check_picture(draw, "--draw")
    is_gradient = gradient or bool(wrt)
    of_one_run = {
        "--draw": draw is not None, "--explain": explain, "--check": check, "--simulate": simulate,
        "--jitter": jitter is not None, "--stall": stall is not None, "--seed": seed is not None,
    }  # fmt: skip
    if is_gradient and any(of_one_run.values()):
        wrong = " and ".join(flag for flag, is_given in of_one_run.items() if is_given)
        raise InputError(f"--gradient plans two runs; leave out {wrong}")
    from outcrop.cli import plan_ranks

    if machine is None:
        or_else = " (the plan depends on its disk), or another machine with --machine"
        declared, chosen = None, replace(options.run_options(given, or_else=or_else), force=True)
    else:
        declared, chosen = declared_machine(given, machine), options.run_options(given, needs_directory=False)
    (ranks, parts_z), chosen = plan_ranks.counts_of(chosen.ranks), replace(chosen, ranks="auto")
    if is_gradient:
        if ranks > 1:
            raise InputError("--gradient plans runs of one process; leave out --ranks")
        plan_gradient(chosen, declared, tuple(wrt) if wrt else None, json, quiet)
        return
    if not simulate and (jitter is not None or stall is not None or seed is not None):
        raise InputError("--jitter, --stall and --seed are for a simulation; give --simulate, too")
    if simulate and ranks == 1:
        raise InputError("--simulate is about several ranks; give --ranks N, too")
    disturbance = plan_ranks.as_disturbance(jitter, stall, seed or 0)
    several = plan_ranks.plan_ranks(chosen, declared, ranks, parts_z) if ranks > 1 else None
    simulated = plan_ranks.simulate_ranks(*several, disturbance) if several and simulate else None
    planned = make_plan(chosen, declared) if several is None else several[1]
    start = time.perf_counter()
    if check and several is not None:
        plan_ranks.prove(*several)
    elif check:
        planned.require_legal()
    seconds_proving = time.perf_counter() - start
    if json is not None:
        from outcrop.cli.plan_details import only_read

        report = {
            **planned.plan.to_json(),
            "numa_nodes": planned.numa_nodes,
            "given": planned.given.to_dict(),
            "machine": asdict(planned.machine),
            "assumed": dict(planned.assumed),
            "predicted": vars(planned.plan.predicted),
            "considered": [asdict(one) for one in planned.considered],
            "only_read": [asdict(one) for one in only_read(planned)],
            **({"seconds_proving": seconds_proving} if check else {}),
            **({"several_ranks": plan_ranks.as_json(several[0])} if several else {}),
            **({"simulated": plan_ranks.simulation_as_json(simulated)} if simulated else {}),
        }
        options.write_json(json, "--json", report)
    if draw is not None:
        from outcrop.cli.plan_details import draw as draw_plan

        picture = plan_ranks.draw_simulation(simulated) if simulated else draw_plan(planned)
        options.write_picture(draw, "--draw", picture, dpi=120)
    if not quiet:
        what = "every pass is legal" if several is None else "every pass of every rank is legal"
        proved = [("proved", f"{what}, in {format_seconds(seconds_proving)}")] if check else []
        if several is None:
            print(describe(planned, more=proved))
        else:
            about = plan_ranks.rows_about(*several) + (plan_ranks.rows_about_simulation(simulated) if simulated else [])
            print(describe(planned, several[0].every.problem, about, proved))
        for text in _missing_here(chosen, planned) if declared is None else ():
            print(f"note: {text}", file=sys.stderr)
    if explain and not quiet:
        from outcrop.cli.plan_details import show_candidates

        show_candidates(planned)


def _missing_here(chosen: RunOptions, planned: Planned) -> Iterator[str]:
    """Yield a text for each reason why `outcrop run` would refuse the planned run on this machine."""
    from outcrop.run.definition import as_stencil
    from outcrop.run.disk.entries import static_fields
    from outcrop.run.inputs.initial import values_by_name
    from outcrop.run.joint_plan import beyond_memory

    if text := beyond_memory(planned.budget_bytes):
        yield f"run refuses this plan here: {text}"
    stencil = as_stencil(chosen.stencil)
    given = values_by_name(chosen.init, stencil)
    if missing := [name for name in static_fields(stencil) if name not in given]:
        yield f"run needs values of {' and '.join(missing)}: --init {missing[0]}=NUMBER or {missing[0]}=FILE"


def declared_machine(given: Mapping[str, Any], name: str) -> DeclaredMachine:
    """Return the machine that the file `name` declares. Raises InputError if `given` has an option about the machine on
    which the command runs."""
    from outcrop.tiers.declarations import load_machine

    for option, flag in THIS_MACHINE.items():
        if given.get(option) not in (None, False, "auto"):
            raise InputError(f"{flag} is about this machine, --machine {name} about another; leave out one of the two")
    return load_machine(name)


def make_plan(chosen: RunOptions, declared: DeclaredMachine | None) -> Planned:
    """Return the plan of a run on the declared machine. If `declared` is None, plan a run on this machine."""
    from outcrop.run.inputs.initial import constant_ranges
    from outcrop.run.setup import plan_elsewhere
    from outcrop.run.simulation import Simulation
    from outcrop.run.stable import refuse_unstable

    if declared is not None:
        return plan_elsewhere(declared, chosen)
    simulation = Simulation(chosen)
    refuse_unstable(
        simulation.stencil, simulation.setup.description, constant_ranges(simulation.initial_values)
    )
    return simulation.plan()


def plan_gradient(
    chosen: RunOptions, declared: DeclaredMachine | None, wrt: tuple[str, ...] | None, json: Path | None, quiet: bool
) -> None:
    """Compare the ways in which an adjoint run can get the states of the forward run. Print a table of the ways, and
    write the table as JSON if `json` is given. Raises InputError if no adjoint run can compute the gradient, or if no
    way to get the states is possible."""
    from outcrop.plan.gradient import described
    from outcrop.run.setup import set_up, set_up_elsewhere
    from outcrop.run.ways import choose_elsewhere, choose_here, history_of, task_elsewhere, task_of

    if declared is None:
        setup = set_up(chosen)
        assert setup.steps is not None
        task = task_of(setup, setup.steps, wrt)
        choice = choose_here(task, setup, is_plan=True)
    else:
        elsewhere = set_up_elsewhere(declared, chosen)
        task = task_elsewhere(elsewhere, wrt)
        choice = choose_elsewhere(task, elsewhere)
    problem, names = task.problem, task.derived.names
    ways = [_way_as_json(one, choice) for one in choice.ways]
    options.write_json(json, "--json", {"wrt": names, "steps": problem.steps, "ways": ways})
    if not quiet:
        size = " x ".join(map(str, problem.own_shape[::-1]))
        head = f"gradient of {problem.stencil} {size} {problem.dtype}, {counted(problem.steps, 'step')}"
        print("\n".join([f"{head}, with respect to {', '.join(names)}", *described(choice)]))
    history_of(choice)


def _way_as_json(one: JudgedWay, choice: WayChoice) -> dict[str, Any]:
    return {
        "way": one.way.name,
        "every": one.way.every,
        "chosen": one is choice.chosen,
        "why": one.why,
        "states": one.way.states,
        "bytes_history": one.way.history_bytes,
        "bytes_memory_needed": one.smallest_bytes,
        "forward": asdict(one.forward) if one.forward else None,
        "adjoint": asdict(one.adjoint) if one.adjoint else None,
    }


def describe(
    planned: Planned, whole: Problem | None = None, about_ranks: Sequence[tuple[str, str]] = (),
    more: Sequence[tuple[str, str]] = (),
) -> str:  # fmt: skip
    """Return the plan in a few lines of text. If the plan is for one of several ranks, `whole` is the problem of the
    whole grid, and `about_ranks` contains rows about all ranks. In the text, the rows in `more` come after all other
    rows."""
    from outcrop.cli.plan_details import advice
    from outcrop.plan.description import planned_text

    note = advice(planned) if whole is None else ""
    return planned_text(planned, whole, about_ranks, [*([("note", note)] if note else []), *more])
