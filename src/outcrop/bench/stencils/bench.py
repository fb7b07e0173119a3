"""`outcrop bench stencils`: every family of the library in memory, out of core, and beside Devito in memory.

    sweeps       in memory, one step after the other, the best blocking in y
    in memory    temporal blocking for the cache: the updates alone of a run whose window holds the grid
    out of core  whole runs with all reads, waits, flushes and commits, at a sixteenth of what the grid takes in memory
    Devito       the same equations in memory, tuned by Devito itself (`devito_run`), where Devito has them, on
                 fewer planes of the same size

All figures are cells of the grid times steps per second, however many fields and stages a step has. Machines are noisy,
so the four take turns and medians are compared. Runs go on from where the last one stopped, each in a process of its
own.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from outcrop.bench import one_run, rates
from outcrop.bench.core import OVERHEAD_BYTES, describe_machine
from outcrop.bench.stencils import devito_run
from outcrop.bench.stencils.cases import CASES, Case
from outcrop.errors import InputError
from outcrop.language.compile import compile_kernel
from outcrop.paths import made_directory
from outcrop.plan.planner import largest_useful_bytes, smallest_budget_bytes
from outcrop.plan.problem import Problem
from outcrop.run.engine import pack_scalars
from outcrop.run.simulation import Simulation
from outcrop.tiers import discover, measure
from outcrop.units import format_bytes, format_rate

SHARE = 0.0625
"""Of all copies of all fields, which is what a run in memory takes."""
SWEEP_BYTES = 400 << 20
"""Memory that plain sweeps go over: much more than caches hold."""
DEVITO_STEPS, DEVITO_BYTES = 32, 1 << 30
"""Sweeps in memory take as long for each step and plane, however many; more than these are scaled up. Its tuner tries
whole runs."""
COLUMNS = ("sweeps", "in_memory", "out_of_core", "devito")


@dataclass(frozen=True)
class Scale:
    """`grid_bytes` is what all copies of all fields are to take, `steps_most` cuts the steps of the cases down."""

    grid_bytes: int
    repeats: int
    settle_seconds: float
    """After what held the whole grid: virtual machines spend a while giving so much memory back."""
    plane_divisor: int = 1
    steps_most: int = 1 << 30
    devito_for: tuple[str, ...] | None = None
    """The stencils that Devito is asked for; None: all it has. It takes seconds to compile each."""


FULL = Scale(grid_bytes=1 << 32, repeats=3, settle_seconds=10)
SMALL = Scale(grid_bytes=1 << 20, repeats=1, settle_seconds=0, plane_divisor=8, steps_most=4, devito_for=("heat2",))


def bench(
    directory: Path,
    small: bool = False,
    size: tuple[int, int, int] | None = None,
    steps: int | None = None,
    only: str | None = None,
) -> dict[str, Any]:
    """Measure and print; the figures as plain data. `size` is nx, ny, nz (grids of two axes get ny nz rows of nx
    cells), `only` names of stencils with commas between them.

    Files are made in a new folder inside `directory` and removed. Raises InputError for stencils that are not measured
    and grids that fit neither memory nor disk, StorageError when a run fails.
    """
    scale, cases = SMALL if small else FULL, chosen_cases(only)
    grids = [(case, shape_of(case, scale, size), steps or min(case.steps, scale.steps_most)) for case in cases]
    for case, shape, _ in grids:
        require_room(case, shape, directory)
    threads = discover.available_cores()
    has_devito = importlib.util.find_spec("devito") is not None
    figures: dict[str, Any] = {"benchmark": "stencils", "small": small, "share": SHARE, "has_devito": has_devito}
    with made_directory(directory):
        if not small:  # what the device does now, not on the day when it was first used
            measure.measure_afresh(directory)
        figures["machine"] = describe_machine(directory, threads)
        print(", ".join(f"{key} {value}" for key, value in figures["machine"].items()))
        if not has_devito:
            print("Devito is not installed, so its column stays empty; pip install 'outcrop[devito]' gives it")
        figures["stencils"] = [measured(directory, scale, case, shape, count, threads) for case, shape, count in grids]
    print(table(figures))
    return figures


def chosen_cases(only: str | None) -> list[Case]:
    """The cases of these names; InputError for one that is none."""
    known = {case.name: case for case in CASES}
    names = list(known) if only is None else [name.strip() for name in only.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"--only {name!r} is not measured; there are {', '.join(known)}")
    return [known[name] for name in names]


def copies_of(case: Case) -> int:
    """Arrays that a run of a case takes in memory: its fields, and second copies of some of them."""
    return sum(2 if storage.is_double else 1 for storage in case.stencil.storage)


def shape_of(case: Case, scale: Scale, size: tuple[int, int, int] | None) -> tuple[int, ...]:
    """The grid of a case: `size`, or as many planes of its own as fill the bytes of the scale."""
    if size is not None:
        nx, ny, nz = size
        return (nz, ny, nx) if len(case.plane) == 2 else (nz * ny, nx)
    plane = tuple(max(32, n // scale.plane_divisor) for n in case.plane)
    return max(32, scale.grid_bytes // (copies_of(case) * math.prod(plane) * 4)), *plane


def require_room(case: Case, shape: tuple[int, ...], directory: Path) -> None:
    """Raise InputError when the copies of all fields would fit neither memory nor, in both turns, the disk."""
    in_memory = copies_of(case) * math.prod(shape) * 4
    on_disk = 2 * sum(storage.history for storage in case.stencil.storage) * math.prod(shape) * 4
    if in_memory > 0.75 * discover.memory_bytes() or on_disk > 0.9 * discover.free_disk_bytes(directory):
        raise InputError(
            f"bench stencils needs {format_bytes(in_memory)} of memory and {format_bytes(on_disk)} in {directory} for "
            f"{case.name}; give a smaller grid with -n"
        )


def measured(
    directory: Path, scale: Scale, case: Case, shape: tuple[int, ...], steps: int, threads: int
) -> dict[str, Any]:
    """All figures of one stencil."""
    stencil, updates = case.stencil, math.prod(shape) * steps
    kernel, scalars = compile_kernel(stencil, "float32"), pack_scalars(stencil, {}, "float32")
    seconds: dict[str, list[float]] = {name: [] for name in COLUMNS}
    reports: dict[str, list[dict[str, Any]]] = {"in_memory": [], "out_of_core": []}
    sweeps: list[rates.SweepRate] = []
    with tempfile.TemporaryDirectory(prefix="outcrop-bench-", dir=directory) as folder:
        where = Path(folder) / "run.oc"
        problem = make_run(where, case, shape, steps)
        budget = max(math.ceil(SHARE * problem.rings * problem.grid_bytes), smallest_budget_bytes(problem))
        print(f"{case.name} on {' x '.join(map(str, reversed(shape)))}, {steps} steps, {problem.rings} arrays of "
              f"{format_bytes(problem.grid_bytes)}; out of core within {format_bytes(budget)}", flush=True)  # fmt: skip
        planes = max(16, min(SWEEP_BYTES, 4 * scale.grid_bytes) // (problem.rings * problem.record_bytes))
        for turn in range(scale.repeats):
            reports["out_of_core"].append(one_run.advance(where, steps, budget, budget + OVERHEAD_BYTES))
            seconds["out_of_core"].append(reports["out_of_core"][-1]["seconds"])
            sweeps.append(rates.sweep_rate(problem, kernel.calls, scalars, threads, planes, 2))
            seconds["sweeps"].append(updates / sweeps[-1].cells_per_second)
            whole, sizes = largest_useful_bytes(problem), one_run.in_one_slab(problem)
            reports["in_memory"].append(one_run.advance(where, steps, whole, None, sizes))
            seconds["in_memory"].append(reports["in_memory"][-1]["seconds_update"])
            if devito_run.has_equivalent(case.name) and case.name in (scale.devito_for or {case.name}):
                seconds["devito"].append(devito_seconds(case.name, problem, shape, steps, threads))
            print(f"  turn {turn + 1}: " + _line(seconds, updates), flush=True)
            time.sleep(scale.settle_seconds)
    rate = {name: updates / median(every) if every else None for name, every in seconds.items()}
    return {
        "stencil": case.name,
        "shape": list(shape),
        "steps": steps,
        "arrays_in_memory": problem.rings,
        "budget_bytes": budget,
        "cells_per_second": rate,
        "ratios": ratios(rate),
        "seconds": seconds,
        "sweeps": [asdict(one) for one in sweeps],
        "runs": reports,
    }


def devito_seconds(name: str, problem: Problem, shape: tuple[int, ...], steps: int, threads: int) -> float:
    """What Devito takes for the grid and steps, from fewer planes and steps where there are many."""
    planes = min(shape[0], max(32, DEVITO_BYTES // (problem.rings * problem.plane_bytes)))
    fewer = min(steps, DEVITO_STEPS)
    seconds = devito_run.seconds(name, (planes, *shape[1:]), fewer, threads)
    return seconds * steps / fewer * shape[0] / planes


def make_run(where: Path, case: Case, shape: tuple[int, ...], steps: int) -> Problem:
    """A run with initial values in a new directory; what it is to compute."""
    simulation = Simulation(case.stencil, shape=shape, dtype="float32", directory=where)
    simulation.assign(case.values(shape))
    return simulation.prepare(steps).problem


def ratios(rate: dict[str, float | None]) -> dict[str, float | None]:
    """In memory beside sweeps, out of core beside in memory, out of core beside Devito in memory."""

    def ratio(one: str, other: str) -> float | None:
        above, below = rate[one], rate[other]
        return above / below if above and below else None

    pairs = (("in_memory", "sweeps"), ("out_of_core", "in_memory"), ("out_of_core", "devito"))
    return {f"{one}_to_{other}": ratio(one, other) for one, other in pairs}


def _line(seconds: dict[str, list[float]], updates: int) -> str:
    parts = (f"{name.replace('_', ' ')} {format_rate(updates / every[-1])}cell/s" for name, every in seconds.items()
             if every)  # fmt: skip
    return ", ".join(parts)


def table(figures: dict[str, Any]) -> str:
    """The figures as a Markdown table: medians in Gcell/s."""
    lines = [
        "| stencil | grid | plain sweeps | in memory | out of core | of in memory | Devito in memory | of Devito |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in figures["stencils"]:
        rate, ratio = one["cells_per_second"], one["ratios"]
        grid = " x ".join(map(str, reversed(one["shape"])))
        cells = [f"{rate[name] / 1e9:.3g}" if rate[name] else "" for name in COLUMNS]
        own, devito = (f"{value:.2f}" if value else "" for value in list(ratio.values())[1:])
        lines.append(f"| `{one['stencil']}` | {grid} | {' | '.join(cells[:3])} | {own} | {cells[3]} | {devito} |")
    return "\n".join(lines)
