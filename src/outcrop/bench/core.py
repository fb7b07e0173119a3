"""`outcrop bench core`: compare a run out of core with the same run in memory.

The benchmark measures four rates for float32 and for float64, on one grid, with the same generated kernel:

    `kernel`   All data are in the second-level cache. So only the arithmetic limits this rate.
    `(a)`      In memory: plain sweeps, one step after another, with the best size of blocks in y.
    `(b)`      In memory: temporal blocking for the cache. The window holds the whole grid. Only the updates are timed.
    `(c)`      Out of core: whole runs with all reads, waits, flushes and commits. A run has two arrays on disk. The
               budgets are shares of the size of both arrays.

The speed of a machine varies, so (a), (b) and (c) are measured alternately, and medians are compared. Each measurement
takes place in a new process, which continues the run that is stored on disk.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from outcrop.bench import rates
from outcrop.bench.figures import first_figures, new_folder, require_updates, table_head, table_row
from outcrop.bench.rates import OVERHEAD_BYTES, smooth_planes
from outcrop.errors import InputError
from outcrop.language.compile import compile_kernel
from outcrop.language.library import heat7
from outcrop.plan.planner import largest_useful_bytes, smallest_budget_bytes
from outcrop.plan.problem import Problem
from outcrop.run.engine import pack_scalars
from outcrop.run.simulation import Simulation
from outcrop.tiers import discover
from outcrop.units import format_bytes, format_rate

SHARES = (0.25, 0.0625, 0.0156)
"""The memory budgets of (c), as shares of the size of both arrays."""
MAX_CHECKSUM_SHARE = 0.03
MAX_PREDICTION_ERROR = 0.15


@dataclass(frozen=True)
class CoreScale:
    """The scale of the benchmark: the grid (nz, ny, nx) in float32, and the numbers of repeats. In float64, the grid
    has half as many planes, so that the arrays need as many bytes as in float32."""

    shape: tuple[int, int, int]
    steps: int
    repeats: int
    kernel_repeats: int
    sweep_planes: int
    settle_seconds: float
    """The pause after a run with the whole grid in memory. A virtual machine needs time to give this memory back to its
    host."""
    shares: tuple[float, ...] = SHARES


FULL = CoreScale((4096, 512, 1024), steps=96, repeats=3, kernel_repeats=20_000, sweep_planes=256, settle_seconds=20)
SMALL = CoreScale((64, 48, 64), steps=6, repeats=1, kernel_repeats=5, sweep_planes=16, settle_seconds=0)


def bench(
    directory: Path,
    small: bool = False,
    size: tuple[int, int, int] | None = None,
    memory: str | None = None,
    steps: int | None = None,
    turns: int | None = None,
) -> dict[str, Any]:
    """Run the benchmark, print the figures, and return the figures as plain data. `size` is (nx, ny, nz). If `memory`
    is given, only runs with this share of the size of both arrays are measured. `turns` is the number of repeats.

    The two arrays of the run are stored in files in a new folder inside `directory`. The folder with the arrays is
    removed at the end. Raises InputError if the memory or the disk is too small even for a small grid. Raises
    StorageError if a run fails.
    """
    scale = SMALL if small else FULL
    shape, shares = size[::-1] if size else scale.shape, (share_of(memory),) if memory is not None else scale.shares
    repeats = turns or scale.repeats
    scale = replace(scale, shape=shape, shares=shares, steps=steps or scale.steps, repeats=repeats)
    scale = scale if small else fitting(scale, directory)
    require_updates(heat7(), shape_of(scale, "float64"), " in float64, with half of the planes,")
    with first_figures("core", small, directory) as figures:
        figures["shares"] = scale.shares
        for dtype in ("float32", "float64"):
            figures[dtype] = bench_dtype(directory, scale, dtype, discover.available_cores())
        print(table(figures))
        return figures


def table(figures: dict[str, Any]) -> str:
    """Return the Markdown table for the README: medians in Gcell/s, and the ratios of (c) to (b)."""
    dtypes = ("float32", "float64")
    heads = [f"{dtype} {figures[dtype]['shape']}" for dtype in dtypes]
    lines = table_head(["Gcell updates/s", *heads], numbers=False)
    for name, key in (
        ("kernel, everything in the second-level cache", "kernel_cells_per_second"),
        ("(a) in memory, plain sweeps, best blocking in y", "sweep_cells_per_second"),
        ("(b) in memory, temporal blocking for the cache", "in_memory_cells_per_second"),
    ):
        lines.append(table_row([name, *(f"{figures[dtype][key] / 1e9:.2f}" for dtype in dtypes)]))
    for share in figures["shares"]:
        name, cells = name_of(share), []
        for dtype in dtypes:
            ratio = figures[dtype]["ratios"][f"{name}_to_b"]
            cells.append(f"{ratio * figures[dtype]['in_memory_cells_per_second'] / 1e9:.2f} ({ratio:.2f} of b)")
        lines.append(table_row([f"(c) out of core, memory = {100 * share:g} % of both arrays", *cells]))
    return "\n".join(lines)


def fitting(scale: CoreScale, directory: Path) -> CoreScale:
    """Return `scale`, with a smaller grid if necessary. The number of planes is halved until both arrays fit on the
    disk and into memory. Both arrays must fit into memory, because rate (b) is measured in memory."""
    room = min(0.75 * discover.memory_bytes(), 0.9 * discover.free_disk_bytes(directory))
    nz, ny, nx = scale.shape
    while 2 * nz * ny * nx * 4 > room:
        nz //= 2
    if nz < min(256, scale.shape[0]):
        raise InputError(f"bench core needs {format_bytes(2 * 256 * ny * nx * 4)} of memory and of disk in {directory}")
    return replace(scale, shape=(nz, ny, nx))


def bench_dtype(directory: Path, scale: CoreScale, dtype: str, threads: int) -> dict[str, Any]:
    nz, ny, nx = shape = shape_of(scale, dtype)
    stencil = heat7()
    kernel, scalars = compile_kernel(stencil, dtype), pack_scalars(stencil, {}, dtype)
    with new_folder(directory) as folder:
        where = folder / "run.oc"
        simulation = Simulation(stencil, shape=shape, dtype=dtype, directory=where)
        simulation["u"] = lambda z0, z1: smooth_planes(z0, z1, shape)
        problem = simulation.prepare(scale.steps).problem
        del simulation  # the directory is locked until `simulation` is deleted
        budgets = budgets_of(problem, scale.shares)
        cache_bytes = discover.caches().second_bytes
        l2 = rates.kernel_rate(problem, kernel.calls, scalars, threads, cache_bytes, scale.kernel_repeats)
        print(f"{dtype} {nx} x {ny} x {nz}, {scale.steps} steps; kernel {kernel.isa} in the second-level cache: "
              f"{format_rate(l2)}cell/s", flush=True)  # fmt: skip
        sweeps: list[rates.SweepRate] = []
        reports: dict[str, list[dict[str, Any]]] = {name: [] for name in budgets}
        largest = max(budget_bytes for name, budget_bytes in budgets.items() if name != "in_memory")
        for _ in range(scale.repeats):
            swept = rates.sweep_rate(problem, kernel.calls, scalars, threads, scale.sweep_planes)
            sweeps.append(swept)
            print(f"  (a) sweeps of {swept.sweep_rows} rows  {format_rate(swept.cells_per_second)}cell/s", flush=True)
            for name, budget_bytes in budgets.items():
                limit = None if name == "in_memory" else budget_bytes + OVERHEAD_BYTES
                sizes = rates.in_one_slab(problem) if name == "in_memory" else None
                reports[name].append(rates.advance(where, scale.steps, budget_bytes, limit, sizes))
                print(f"  {line_of(name, reports[name][-1])}", flush=True)
                if name == "in_memory":
                    # The short run out of core brings the memory into the same state before each measured run.
                    time.sleep(scale.settle_seconds)
                    rates.advance(where, max(1, scale.steps // 4), largest, None)
        middle = scale.shares[len(scale.shares) // 2]
        cost = rates.checksum_cost(where, scale.steps, budgets[name_of(middle)], scale.repeats)
        print(f"  checksums lengthen a pass at {100 * middle:g} % by {100 * cost:.1f} %", flush=True)
    return summary(shape, scale, kernel.isa, l2, sweeps, reports, cost)


def shape_of(scale: CoreScale, dtype: str) -> tuple[int, int, int]:
    nz, ny, nx = scale.shape
    return (nz if dtype == "float32" else nz // 2), ny, nx


def name_of(share: float) -> str:
    return f"out_of_core_{100 * share:g}_percent"


def share_of(memory: str) -> float:
    """Convert a text such as "6.25%" to a share. Raises InputError for any other text."""
    try:
        share = float(memory.removesuffix("%")) / 100 if memory.endswith("%") else 0.0
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InputError(f"--memory {memory} must be a share of both arrays, such as 1%")
    return share


def budgets_of(problem: Problem, shares: tuple[float, ...]) -> dict[str, int]:
    """Return a dictionary that maps the names of the runs to their memory budgets in bytes. The first run holds the
    whole grid in memory, and the other runs hold a share of the grid. No budget is smaller than the minimum budget of
    the problem."""
    both = 2 * problem.cells * problem.item_bytes
    budgets = {"in_memory": largest_useful_bytes(problem)}
    for share in shares:
        budgets[name_of(share)] = max(math.ceil(share * both), smallest_budget_bytes(problem))
    return budgets


def update_rate(report: dict[str, Any]) -> float:
    return float(report["cells_updated"] / report["seconds_update"])


def line_of(name: str, report: dict[str, Any]) -> str:
    if name == "in_memory":
        return f"(b) in memory, updates alone  {format_rate(update_rate(report))}cell/s"
    limit = "" if report["cgroup_limit_bytes"] is None else ", within a memory limit of budget + 150 MiB"
    parts = ("update", "read_wait", "write_wait", "checksum", "copy", "commit")
    seconds = " + ".join(f"{part.replace('_', ' ')} {report[f'seconds_{part}']:.2f}" for part in parts)
    return (
        f"(c) {name.split('_')[3]} %: {format_bytes(report['memory_budget_bytes'])}  "
        f"{format_rate(report['cell_updates_per_second'])}cell/s; {report['plan']['levels']} levels; "
        f"{report['seconds']:.2f} s (predicted {report['predicted']['seconds']:.2f}) = {seconds}; "
        f"read {format_bytes(report['bytes_read'])}, written {format_bytes(report['bytes_written'])}, "
        f"peak {format_bytes(report['memory_peak_bytes'])}{limit}"
    )


def summary(
    shape: tuple[int, int, int],
    scale: CoreScale,
    isa: str,
    kernel_rate: float,
    sweeps: list[rates.SweepRate],
    reports: dict[str, list[dict[str, Any]]],
    checksum_cost: float,
) -> dict[str, Any]:
    """Print the ratios of the rates. Return the medians, the ratios, the checks, and all measurements."""
    a = median(one.cells_per_second for one in sweeps)
    b = median(update_rate(report) for report in reports["in_memory"])
    ratios = {"b_to_a": b / a}
    for name, every in reports.items():
        if name != "in_memory":
            ratios[f"{name}_to_b"] = median(report["cell_updates_per_second"] for report in every) / b
    print("  medians: " + ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items()), flush=True)
    return {
        "shape": list(shape),
        "steps": scale.steps,
        "isa": isa,
        "kernel_cells_per_second": kernel_rate,
        "sweep_cells_per_second": a,
        "in_memory_cells_per_second": b,
        "ratios": ratios,
        "checksum_cost": checksum_cost,
        "checksum_within_3_percent": checksum_cost <= MAX_CHECKSUM_SHARE,
        "checks": {name: checks(every) for name, every in reports.items() if name != "in_memory"},
        "sweeps": [asdict(one) for one in sweeps],
        "runs": reports,
    }


def checks(every: list[dict[str, Any]]) -> dict[str, bool | float]:
    """Check the runs of one budget. Return a dictionary with the measured values, and with True or False for each
    check."""
    prediction = median(report["predicted"]["seconds"] / report["seconds"] for report in every)
    above = max(report["memory_peak_bytes"] - report["memory_budget_bytes"] for report in every)
    return {
        "bytes_as_predicted": all(
            report[key] == report["predicted"][key] for report in every for key in ("bytes_read", "bytes_written")
        ),
        "predicted_to_measured_seconds": prediction,
        "prediction_within_15_percent": abs(prediction - 1) <= MAX_PREDICTION_ERROR,
        "peak_bytes_above_budget": above,
        "memory_within_budget_and_150_mib": above <= OVERHEAD_BYTES,
        "survived_memory_limit": all(report["cgroup_limit_bytes"] is not None for report in every),
    }
