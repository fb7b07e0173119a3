"""`outcrop bench stencils`: measure each family of stencils in the library, in memory and out of core. If the module
`devito` has the same equations, the benchmark also measures Devito in memory.

    `sweeps`        In memory, one step after another, with the best size of blocks in y.
    `in memory`     Temporal blocking for the cache. The window holds the whole grid. Only the updates are timed.
    `out of core`   Whole runs with all reads, waits, flushes and commits. The budget is a sixteenth of the memory that
                    the whole grid needs.
    `Devito`        The same equations in memory, if the module `devito` has them. Devito tunes itself. In place of a
                    large grid, Devito gets a grid with planes of the same size, but with fewer planes.

Each rate is the number of updated cells times the number of steps, divided by the seconds. A cell counts once in each
step, for any number of fields and stages. Outcrop updates the cells inside the rim, so cells of the rim do not count.
Devito has its rim outside the grid, so it updates all cells of the same grid. The speed of a machine varies, so the
four rates are measured alternately, and medians are compared. Each measurement of a whole run is a new process, which
continues the run that is stored on disk.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from outcrop.bench import devito, rates
from outcrop.bench.figures import first_figures, new_folder, require_updates, table_head, table_row
from outcrop.bench.rates import OVERHEAD_BYTES
from outcrop.errors import InputError, StorageError
from outcrop.language.compile import compile_kernel
from outcrop.language.library import find_stencil
from outcrop.language.stencil import Stencil
from outcrop.plan.planner import largest_useful_bytes, smallest_budget_bytes
from outcrop.plan.problem import Problem
from outcrop.run.engine import pack_scalars
from outcrop.run.simulation import Simulation
from outcrop.tiers import discover
from outcrop.units import format_bytes, format_rate

SHARE = 0.0625
"""The memory of runs out of core, as a share of the memory that all copies of all fields need."""
SWEEP_BYTES = 400 << 20
"""The memory for plain sweeps. This memory is much larger than the caches."""
DEVITO_STEPS, DEVITO_BYTES = 32, 1 << 30
"""The maximum numbers of steps and bytes of a run of Devito. The time of Devito for the whole case is calculated from
the run with these numbers, because all steps and planes take equal times."""
COLUMNS = ("sweeps", "in_memory", "out_of_core", "devito")


@dataclass(frozen=True)
class StencilCase:
    """One stencil of the library. `plane` is (ny, nx) for a grid of three axes, and (nx,) for a grid of two axes.

    The initial values of a field are smooth waves around 0, or around the value of the field in `means`. With these
    initial values, results do not grow without bound. Results also do not become denormal numbers, with which the
    processor would compute slowly.
    """

    name: str
    plane: tuple[int, ...]
    steps: int
    means: Mapping[str, float]

    @property
    def stencil(self) -> Stencil:
        return find_stencil(self.name)

    def values(self, shape: tuple[int, ...]) -> dict[str, rates.Planes]:
        """Return the initial values of all fields on a grid of `shape`."""
        return {field.name: rates.smooth(shape, self.means.get(field.name, 0.0)) for field in self.stencil.fields}


_WIDE, _LONG, _NARROW, _ROW = (256, 512), (128, 512), (128, 256), (16384,)
_VELOCITY = {"v": 2000.0}

# For each step of a pass, the window needs r more planes, where r is the radius of the stencil. So the grid of a
# stencil with a large radius has more planes than the grids of other stencils, but smaller planes.
CASES = (
    StencilCase("heat2", _WIDE, 96, {"u": 1.0}),
    StencilCase("heat4", _WIDE, 64, {"u": 1.0}),
    StencilCase("heat6", _LONG, 48, {"u": 1.0}),
    StencilCase("heat8", _LONG, 32, {"u": 1.0}),
    StencilCase("acoustic2", _WIDE, 64, _VELOCITY),
    StencilCase("acoustic4", _LONG, 48, _VELOCITY),
    StencilCase("acoustic6", _LONG, 40, _VELOCITY),
    StencilCase("acoustic8", _LONG, 32, _VELOCITY),
    StencilCase("acoustic8_sponge", _LONG, 32, {**_VELOCITY, "damp": 10.0}),
    StencilCase("elastic4", _NARROW, 16, {"lam": 5e9, "mu": 5e9, "b": 5e-4}),
    StencilCase("maxwell", _NARROW, 48, {"eps": 2.0}),
    StencilCase("gray_scott", _WIDE, 48, {"u": 0.8, "v": 0.2}),
    StencilCase("advection1", _WIDE, 96, {"u": 1.0}),
    StencilCase("stream_function", _ROW, 96, {"psi": 1.0}),
    StencilCase("sharpen", _ROW, 4, {"image": 1.0}),
    StencilCase("d2q9", _ROW, 48, {}),
    StencilCase("d3q19", _NARROW, 32, {}),
)


@dataclass(frozen=True)
class StencilScale:
    """The scale of the benchmark: the number of bytes of all arrays of a grid together, the number of repeats, and the
    maximum number of steps of a case."""

    grid_bytes: int
    repeats: int
    settle_seconds: float
    """The pause after each repeat. A virtual machine needs time to give the memory of a grid back to its host."""
    plane_divisor: int = 1
    max_steps: int = 1 << 30
    devito_for: tuple[str, ...] | None = None
    """The stencils that Devito also computes, or None for all. Devito needs seconds to compile each stencil."""


FULL = StencilScale(grid_bytes=1 << 32, repeats=3, settle_seconds=10)
SMALL = StencilScale(
    grid_bytes=1 << 20, repeats=1, settle_seconds=0, plane_divisor=8, max_steps=4, devito_for=("heat2",)
)


def bench(
    directory: Path,
    small: bool = False,
    size: tuple[int, int, int] | None = None,
    steps: int | None = None,
    only: str | None = None,
    turns: int | None = None,
) -> dict[str, Any]:
    """Run the benchmark, print the figures, and return them as plain data. `size` is (nx, ny, nz). For a stencil of two
    axes, the grid has ny * nz rows of nx cells. `only` contains names of stencils, separated by commas. `turns` is the
    number of repeats.

    The files of the benchmark are made in a new folder inside `directory`, and are removed at the end. Raises
    InputError for an unknown stencil, and for a grid that has only a rim or does not fit into memory or on the disk.
    Raises StorageError if a run fails.
    """
    scale, cases = SMALL if small else FULL, chosen_cases(only)
    scale = replace(scale, repeats=turns or scale.repeats)
    grids = [(case, shape_of(case, scale, size), steps or min(case.steps, scale.max_steps)) for case in cases]
    for case, shape, _ in grids:
        require_updates(case.stencil, shape)
        require_room(case, shape, directory)
    threads = discover.available_cores()
    has_devito = importlib.util.find_spec("devito") is not None
    with first_figures("stencils", small, directory) as figures:
        figures |= {"share": SHARE, "has_devito": has_devito}
        if not has_devito:
            print("Devito is not installed, so its column stays empty; pip install 'outcrop[devito]' gives it")
        figures["stencils"] = [measure(directory, scale, case, shape, count, threads) for case, shape, count in grids]
    print(table(figures))
    return figures


def chosen_cases(only: str | None) -> list[StencilCase]:
    """Return the cases with these names. Raises InputError for an unknown name."""
    known = {case.name: case for case in CASES}
    names = list(known) if only is None else [name.strip() for name in only.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"--only {name!r} is not measured; there are {', '.join(known)}")
    return [known[name] for name in names]


def copies_of(case: StencilCase) -> int:
    """Return the number of arrays that the case needs in memory: one or two for each field."""
    return sum(2 if storage.is_double else 1 for storage in case.stencil.storage)


def shape_of(case: StencilCase, scale: StencilScale, size: tuple[int, int, int] | None) -> tuple[int, ...]:
    """Return the shape of the grid of a case. If `size` is None, the number of planes is chosen so that all arrays
    together have `grid_bytes` bytes."""
    if size is not None:
        nx, ny, nz = size
        return (nz, ny, nx) if len(case.plane) == 2 else (nz * ny, nx)
    plane = tuple(max(32, n // scale.plane_divisor) for n in case.plane)
    return max(32, scale.grid_bytes // (copies_of(case) * math.prod(plane) * 4)), *plane


def require_room(case: StencilCase, shape: tuple[int, ...], directory: Path) -> None:
    """Raise InputError if memory is too small for all arrays, or if the disk is too small for both copies of the
    fields."""
    in_memory = copies_of(case) * math.prod(shape) * 4
    on_disk = 2 * sum(storage.history for storage in case.stencil.storage) * math.prod(shape) * 4
    if in_memory > 0.75 * discover.memory_bytes() or on_disk > 0.9 * discover.free_disk_bytes(directory):
        raise InputError(
            f"{case.name} needs {format_bytes(in_memory)} of memory and {format_bytes(on_disk)} in {directory}; give a "
            "smaller grid with -n"
        )


def measure(
    directory: Path, scale: StencilScale, case: StencilCase, shape: tuple[int, ...], steps: int, threads: int
) -> dict[str, Any]:
    stencil = case.stencil
    kernel, scalars = compile_kernel(stencil, "float32"), pack_scalars(stencil, {}, "float32")
    seconds: dict[str, list[float]] = {name: [] for name in COLUMNS}
    reports: dict[str, list[dict[str, Any]]] = {"in_memory": [], "out_of_core": []}
    sweeps: list[rates.SweepRate] = []
    with_devito = devito.has_equivalent(case.name) and case.name in (scale.devito_for or {case.name})
    with new_folder(directory) as folder:
        where = folder / "run.oc"
        problem = make_run(where, case, shape, steps)
        updates = dict.fromkeys(COLUMNS, interior_cells(problem, stencil) * steps) | {"devito": problem.cells * steps}
        budget = max(math.ceil(SHARE * problem.rings * problem.grid_bytes), smallest_budget_bytes(problem))
        print(f"{case.name} on {' x '.join(map(str, reversed(shape)))}, {steps} steps, {problem.rings} arrays of "
              f"{format_bytes(problem.grid_bytes)}; out of core within {format_bytes(budget)}", flush=True)  # fmt: skip
        planes = max(16, min(SWEEP_BYTES, 4 * scale.grid_bytes) // (problem.rings * problem.record_bytes))
        for turn in range(scale.repeats):
            reports["out_of_core"].append(rates.advance(where, steps, budget, budget + OVERHEAD_BYTES))
            seconds["out_of_core"].append(reports["out_of_core"][-1]["seconds"])
            sweeps.append(rates.sweep_rate(problem, kernel.calls, scalars, threads, planes))
            # the rate of sweeps also counts the rim along x, which lies in the updated rows
            counted = problem.shape[2] / (problem.shape[2] - 2 * stencil.radii[2])
            seconds["sweeps"].append(updates["sweeps"] * counted / sweeps[-1].cells_per_second)
            whole, sizes = largest_useful_bytes(problem), rates.in_one_slab(problem)
            reports["in_memory"].append(rates.advance(where, steps, whole, None, sizes))
            seconds["in_memory"].append(reports["in_memory"][-1]["seconds_update"])
            if with_devito:
                try:
                    seconds["devito"].append(devito_seconds(case.name, problem, shape, steps, threads))
                except StorageError as error:
                    print(f"  {error}; Devito is left out", flush=True)
                    with_devito = False
            line = (f"{name.replace('_', ' ')} {format_rate(updates[name] / every[-1])}cell/s"
                    for name, every in seconds.items() if every)  # fmt: skip
            print(f"  turn {turn + 1}: " + ", ".join(line), flush=True)
            time.sleep(scale.settle_seconds)
    rate = {name: updates[name] / median(every) if every else None for name, every in seconds.items()}
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


def interior_cells(problem: Problem, stencil: Stencil) -> int:
    """Return the number of cells inside the fixed rim, which each step updates."""
    return math.prod(n - 2 * radius for n, radius in zip(problem.shape, stencil.radii, strict=True))


def devito_seconds(name: str, problem: Problem, shape: tuple[int, ...], steps: int, threads: int) -> float:
    """Return the seconds that Devito needs for a case. For a large case, Devito computes only some of the planes and
    steps. The time for the whole case is calculated from the time for the computed planes and steps."""
    planes = min(shape[0], max(32, DEVITO_BYTES // (problem.rings * problem.plane_bytes)))
    fewer = min(steps, DEVITO_STEPS)
    seconds = devito.seconds(name, (planes, *shape[1:]), fewer, threads)
    return seconds * steps / fewer * shape[0] / planes


def make_run(where: Path, case: StencilCase, shape: tuple[int, ...], steps: int) -> Problem:
    """Make the run of a case with initial values in the new directory `where`. Return the problem of the run."""
    simulation = Simulation(case.stencil, shape=shape, dtype="float32", directory=where)
    simulation.assign(case.values(shape))
    return simulation.prepare(steps).problem


def ratios(rate: dict[str, float | None]) -> dict[str, float | None]:
    """Return three ratios of rates: (run in memory) / (sweeps), (run out of core) / (run in memory), and (run out of
    core) / (Devito)."""

    def ratio(one: str, other: str) -> float | None:
        above, below = rate[one], rate[other]
        return above / below if above and below else None

    pairs = (("in_memory", "sweeps"), ("out_of_core", "in_memory"), ("out_of_core", "devito"))
    return {f"{one}_to_{other}": ratio(one, other) for one, other in pairs}


def table(figures: dict[str, Any]) -> str:
    """Return the figures as a Markdown table: medians in Gcell/s."""
    heads = ("stencil", "grid", "plain sweeps", "in memory", "out of core", "of in memory")
    lines = table_head((*heads, "Devito in memory", "of Devito"), numbers=False)
    for one in figures["stencils"]:
        rate, ratio = one["cells_per_second"], one["ratios"]
        grid = " x ".join(map(str, reversed(one["shape"])))
        cells = [f"{rate[name] / 1e9:.3g}" if rate[name] else "" for name in COLUMNS]
        own, devito = (f"{value:.2f}" if value else "" for value in list(ratio.values())[1:])
        lines.append(table_row([f"`{one['stencil']}`", grid, *cells[:3], own, cells[3], devito]))
    return "\n".join(lines)
