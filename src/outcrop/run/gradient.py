"""`Simulation.gradient`: the value and the gradient of a misfit.

    check all arguments ──► forward run ──► misfit ──► residuals ──► adjoint run ──► gradients

The forward run and the adjoint run are kept on disk. After an interruption, another call continues them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from outcrop.errors import InputError
from outcrop.language.boundary import as_boundary
from outcrop.plan.planner import require_budget
from outcrop.run.adjoint import derive, find_place
from outcrop.run.definition import as_problem
from outcrop.run.disk.entries import StatesEntry
from outcrop.run.forward import Derived
from outcrop.run.misfit import MisfitFunction, check, evaluate
from outcrop.run.options import History
from outcrop.run.setup import as_steps, as_threads, parse_memory
from outcrop.run.simulation import Simulation
from outcrop.run.ways import choose_here, history_of, task_of
from outcrop.tiers import discover


def gradient(
    simulation: Simulation,
    steps: int,
    misfit: MisfitFunction,
    wrt: str | Sequence[str],
    directory: str | os.PathLike[str] | None,
    memory: str | int | None,
    threads: int | None,
    progress: str,
    force: bool,
    resume: bool,
) -> tuple[float, dict[str, Any]]:
    """Return the value of a misfit and its gradients. `Simulation.gradient` describes the arguments and errors."""
    steps, derived = as_steps(steps), require_gradients(simulation, wrt)
    if simulation.step > steps:
        raise InputError(f"{simulation.directory} is at step {simulation.step}, past step {steps}; start a new run")
    check(misfit, simulation, steps)
    find_place(simulation, directory, force, resume)
    if threads is not None:
        as_threads(threads)
    budget_bytes = None if memory is None else parse_memory(memory, discover.memory_bytes())
    begins_history = bool(derived.states) and simulation.step < steps and not _keeps_history(simulation)
    history = History("all") if begins_history else None  # refused if the run has steps without a history
    if begins_history and simulation.step == 0:
        task = task_of(simulation.setup, steps, derived.names)
        history = history_of(choose_here(task, simulation.setup, memory_bytes=budget_bytes))
    else:
        _require_memory(simulation, derived, budget_bytes)
    if simulation.step < steps:
        simulation.run(steps - simulation.step, progress, history=history)
    value, residuals = evaluate(misfit, simulation)
    run = simulation.adjoint(residuals, derived.names, directory, memory, threads, force, resume)
    if run.remaining_steps:
        run.run(progress)
    if begins_history:
        simulation.history.free()
    return value, run.gradients


def require_gradients(simulation: Simulation, wrt: object) -> Derived:
    """Return the adjoint with the gradients in `wrt`. Raises InputError if an adjoint run cannot compute them."""
    return derive(simulation.stencil, simulation.setup.description, wrt)


def _keeps_history(simulation: Simulation) -> bool:
    reader = simulation.reader()
    if reader is None:
        return False
    reader.refresh()
    return reader.manifest.taps.history is not None


def _require_memory(simulation: Simulation, derived: Derived, memory_bytes: int | None) -> None:
    """Raise BudgetError if the memory is too small for the updates of the adjoint run."""
    description, made = simulation.setup.description, derived.adjoint.stencil
    budget_bytes = description.settings.memory_bytes if memory_bytes is None else memory_bytes
    states = StatesEntry(str(simulation.directory), "0", 1, derived.states) if derived.states else None
    boundary = as_boundary(description.boundary)
    require_budget(as_problem(made, description.layout, 1, boundary, in_place=False, states=states), budget_bytes)
