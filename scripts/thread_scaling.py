"""Measure how the speed of runs grows with the number of cores, on a machine without other work.

    .venv/bin/python scripts/thread_scaling.py DIRECTORY [--only NAME,...] [--turns N] [--gigabytes G]

For 1, 2, 4, ... cores, the script measures three speeds of each stencil in float32. Each core has one thread:

    L2            the kernel, with all data in the second-level caches
    in memory     the updates alone of a run whose grid is in memory
    out of core   a whole run with 6.25 % of the memory, with all reads, waits, flushes and commits

Measurements with different numbers of cores are made alternately. The script prints the medians of the rates in
Gcell/s. Cells of the rim do not count, because no step updates them. In a run, all copies of all fields together take G
GB (4 by default). DIRECTORY needs at most twice as much space.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from outcrop.bench import rates
from outcrop.bench.stencils import FULL, SHARE, StencilCase, chosen_cases, interior_cells, make_run, shape_of
from outcrop.errors import InputError
from outcrop.language.compile import compile_kernel
from outcrop.plan.planner import largest_useful_bytes, smallest_budget_bytes
from outcrop.run.engine import pack_scalars
from outcrop.tiers import discover

NAMES = "heat2,acoustic8,maxwell,d3q19"
L2_REPEATS = 2000
COLUMNS = "L2", "in memory", "out of core"


@contextmanager
def some_cores(cores: int) -> Iterator[None]:
    """Bind this process and the processes that it starts to the first `cores` of its cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(case: StencilCase, shape: tuple[int, ...], counts: list[int], turns: int, where: Path) -> None:
    """Measure a stencil with all numbers of cores and print its table."""
    problem = make_run(where, case, shape, case.steps)
    kernel, scalars = compile_kernel(case.stencil, "float32"), pack_scalars(case.stencil, {}, "float32")
    budget = max(math.ceil(SHARE * problem.rings * problem.grid_bytes), smallest_budget_bytes(problem))
    updates = interior_cells(problem, case.stencil) * case.steps
    found: dict[tuple[int, str], list[float]] = {(cores, name): [] for cores in counts for name in COLUMNS}
    for _ in range(turns):
        for cores in counts:
            with some_cores(cores):
                cache = discover.caches().second_bytes
                l2 = rates.kernel_rate(problem, kernel.calls, scalars, cores, cache, L2_REPEATS)
                whole = rates.advance(
                    where, case.steps, largest_useful_bytes(problem), None, rates.in_one_slab(problem)
                )
                window = rates.advance(where, case.steps, budget, None)
            found[cores, "L2"].append(l2)
            found[cores, "in memory"].append(updates / whole["seconds_update"])
            found[cores, "out of core"].append(updates / window["seconds"])
    grid = " x ".join(map(str, reversed(shape)))
    print(f"{case.name}, {grid} cells, {case.steps} steps, {problem.rings} arrays of {problem.grid_bytes >> 20} MiB\n")
    print("| cores | " + " | ".join(COLUMNS) + " | in memory / one core | out of core / in memory |")
    print("|" + "---|" * (len(COLUMNS) + 3))
    for cores in counts:
        l2, inside, outside = (median(found[cores, name]) for name in COLUMNS)
        one = median(found[counts[0], "in memory"])
        rates_found = f"{l2 / 1e9:.3g} | {inside / 1e9:.3g} | {outside / 1e9:.3g}"
        print(f"| {cores} | {rates_found} | {inside / one:.2f} | {outside / inside:.2f} |", flush=True)
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default=NAMES, metavar="NAME,...")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    given = parser.parse_args()
    if not given.directory.is_dir():
        parser.error(f"{given.directory} is not a directory; make it first")
    try:
        cases = chosen_cases(given.only)
    except InputError as error:
        parser.error(str(error))
    most = discover.available_cores()
    counts = sorted({2**power for power in range(most.bit_length())} | {most})
    for case in cases:
        shape = shape_of(case, FULL, None)
        planes = max(32, int(shape[0] * given.gigabytes * 1e9 / FULL.grid_bytes))
        with tempfile.TemporaryDirectory(prefix="outcrop-scaling-", dir=given.directory) as folder:
            measure(case, (planes, *shape[1:]), counts, given.turns, Path(folder) / "run.oc")


if __name__ == "__main__":
    main()
