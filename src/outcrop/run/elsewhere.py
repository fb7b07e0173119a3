"""Plan a run for a machine that is not here: nothing is compiled, measured or looked up on this one."""

from __future__ import annotations

from outcrop.axes import grid_shape
from outcrop.errors import InputError
from outcrop.plan.machine import DeclaredMachine
from outcrop.plan.planner import Planned, choose
from outcrop.run.definition import as_problem, definition_of
from outcrop.run.disk.layout import make_layout
from outcrop.run.given import as_flag
from outcrop.run.options import RunOptions
from outcrop.run.setup import DEFAULT_MEMORY, Initial, as_sizes, as_steps, as_threads, parse_memory
from outcrop.units import format_bytes, parse_bytes


def plan_elsewhere(declared: DeclaredMachine, options: RunOptions) -> Planned:
    """What a run with these options would do on the machine `declared`, and what that should cost.

    Of the options those about a machine's directories, storage and threads' places do not count. `memory` is a size, or
    a percentage of the declared memory; without it the plan may take what the machine declares usable. `threads` are at
    most the cores declared, and all of them unless given. Raises InputError for what cannot be, BudgetError with the
    smallest budget that works.
    """
    as_flag(options.in_place, "in_place")
    threads = declared.cores if options.threads is None else as_threads(options.threads)
    if threads > declared.cores:
        raise InputError(f"threads {threads}: machine {declared.name} has {declared.cores} cores; give at most as many")
    budget_bytes = budget_within(declared, options.memory)
    initial = Initial(options, budget_bytes)
    what = definition_of(options, initial.shape)
    initial.by_name(what.stencil, what.shape)
    layout = make_layout(grid_shape(what.shape), what.dtype)
    problem = as_problem(what.stencil, layout, as_steps(options.steps), what.boundary, bool(options.in_place))
    machine, rate = declared.machine(threads), declared.update_rate(problem, threads)
    given = as_sizes(options.sizes)
    choice = choose(problem, machine, budget_bytes, options.scheme, rate, given)
    return Planned(
        problem, machine, budget_bytes, given, choice.plan, choice.considered, declared.device.origin, assumed={}
    )


def budget_within(declared: DeclaredMachine, memory: str | int | None) -> int:
    """Bytes that a plan may take. Raises InputError for more than the machine has."""
    if memory is None:
        return declared.usable_bytes or min(parse_bytes(DEFAULT_MEMORY), declared.memory_bytes)
    budget_bytes = parse_memory(memory, declared.memory_bytes)
    if budget_bytes > declared.memory_bytes:
        largest = format_bytes(declared.memory_bytes)
        raise InputError(f"memory {memory} is more than machine {declared.name} has; give at most {largest}")
    return budget_bytes
