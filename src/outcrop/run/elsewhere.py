"""Plan a run for a machine that is not here: nothing is compiled, measured or looked up on this one."""

from __future__ import annotations

from collections.abc import Mapping

from outcrop.axes import Shape, grid_shape
from outcrop.errors import InputError
from outcrop.language.stencil import Stencil
from outcrop.plan.machine import DeclaredMachine
from outcrop.plan.planner import Planned, choose
from outcrop.run import arguments
from outcrop.run.disk.layout import make_layout
from outcrop.run.given import require_flags
from outcrop.units import format_bytes, parse_bytes

USUAL_MEMORY = "1GiB"


def plan_elsewhere(
    declared: DeclaredMachine,
    stencil: Stencil | str,
    shape: Shape,
    steps: int,
    dtype: str = "float32",
    memory: str | int | None = None,
    threads: int | None = None,
    scheme: str = "auto",
    boundary: object = "fixed",
    params: Mapping[str, float] | None = None,
    in_place: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> Planned:
    """What the run would do on the machine `declared`, and what that should cost.

    `shape` has the stencil's axes, as (nz, ny, nx). `memory` is a size, or a percentage of the declared memory; without
    it the plan may take what the machine declares usable. `threads` are at most the cores declared, and
    all of them unless given. Raises InputError for what cannot be, BudgetError with the smallest budget that works.
    """
    stencil = arguments.as_stencil(stencil)
    require_flags(in_place=in_place)
    arguments.as_parameters(stencil, params or {})
    count = declared.cores if threads is None else arguments.as_threads(threads)
    if count > declared.cores:
        raise InputError(f"threads {count}: machine {declared.name} has {declared.cores} cores; give at most as many")
    budget_bytes = budget_within(declared, memory)
    layout = make_layout(grid_shape(arguments.as_shape(shape, stencil)), arguments.as_dtype_name(dtype))
    steps = arguments.as_steps(steps)
    sides = arguments.as_grid_boundary(boundary, stencil)
    problem = arguments.as_problem(stencil, layout, steps, sides, in_place)
    machine, rate, given = declared.machine(count), declared.update_rate(problem, count), arguments.as_sizes(sizes)
    choice = choose(problem, machine, budget_bytes, scheme, rate, given)
    return Planned(
        problem, machine, budget_bytes, given, choice.plan, choice.considered, declared.device.origin, assumed={}
    )


def budget_within(declared: DeclaredMachine, memory: str | int | None) -> int:
    """Bytes that a plan may take. Raises InputError for more than the machine has."""
    if memory is None:
        return declared.usable_bytes or min(parse_bytes(USUAL_MEMORY), declared.memory_bytes)
    budget_bytes = arguments.parse_memory(memory, declared.memory_bytes)
    if budget_bytes > declared.memory_bytes:
        most = format_bytes(declared.memory_bytes)
        raise InputError(f"memory {memory} is more than machine {declared.name} has; give at most {most}")
    return budget_bytes
