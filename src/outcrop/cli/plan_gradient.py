"""`outcrop plan --gradient`: compare the ways in which an adjoint run can get the states of the forward run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.cli import options
from outcrop.units import counted

if TYPE_CHECKING:
    from outcrop.plan.gradient import JudgedWay, WayChoice
    from outcrop.plan.machine import DeclaredMachine
    from outcrop.run.ways import GradientTask


def plan_gradient(
    given: dict[str, Any], declared: DeclaredMachine | None, wrt: Sequence[str], json: Path | None, quiet: bool
) -> None:
    """Compare all ways for the gradients with respect to `wrt`. Print a table, and write it as JSON if `json` is given.
    Raises InputError for a stencil without such an adjoint, and if no way is possible."""
    from outcrop.plan.gradient import described
    from outcrop.run.ways import history_of

    task, choice = _choose(given, declared, tuple(wrt) or None)
    if json is not None:
        ways = [_as_json(one, choice) for one in choice.ways]
        options.write_json(json, "--json", {"wrt": task.derived.names, "steps": task.problem.steps, "ways": ways})
    if not quiet:
        one = task.problem
        size = " x ".join(map(str, one.own_shape[::-1]))
        steps, names = counted(one.steps, "step"), ", ".join(task.derived.names)
        print(f"gradient of {one.stencil} {size} {one.dtype}, {steps}, with respect to {names}")
        print("\n".join(described(choice)))
    history_of(choice)


def _choose(
    given: Mapping[str, Any], declared: DeclaredMachine | None, wrt: object
) -> tuple[GradientTask, WayChoice]:
    from outcrop.run.setup import set_up, set_up_elsewhere
    from outcrop.run.ways import choose_elsewhere, choose_here, task_elsewhere, task_of

    if declared is not None:
        one = set_up_elsewhere(declared, options.run_options(given, needs_directory=False))
        task = task_elsewhere(one, wrt)
        return task, choose_elsewhere(task, one)
    chosen = options.run_options(given, or_else=", or another machine with --machine")
    setup = set_up(replace(chosen, force=True, unstable=True))
    assert setup.steps is not None
    task = task_of(setup, setup.steps, wrt)
    return task, choose_here(task, setup, is_plan=True)


def _as_json(one: JudgedWay, choice: WayChoice) -> dict[str, Any]:
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
