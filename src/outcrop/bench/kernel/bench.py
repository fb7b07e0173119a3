"""`outcrop bench kernel`: is what the generator writes as fast as a loop written by hand?

    cache    one thread, all arrays within the second-level cache
    sweeps   plain sweeps over arrays in memory, all threads, each side with its best blocks of rows

Both sides take turns, and medians are compared. The loops are in `handwritten/`; their results must be the generated
ones up to rounding.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from outcrop.bench import rates
from outcrop.bench.core import describe_machine
from outcrop.bench.kernel.handwritten_loops import LOOPS, Loop, Timer, set_threads
from outcrop.language.boundary import FIXED
from outcrop.language.compile import compile_kernel
from outcrop.language.library import find_stencil
from outcrop.paths import made_directory
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from outcrop.run.engine import pack_scalars
from outcrop.tiers import discover
from outcrop.units import format_rate

ROWS = (8, 16, 32, 64)
"""Of blocks in sweeps."""
SHARE_OF_CACHE = 0.75
ROUNDING_MOST = 1e-5


@dataclass(frozen=True)
class Scale:
    """Grids (nz, ny, nx) of sweeps, and how often everything is measured."""

    sweep_shape: tuple[int, int, int]
    updates_per_turn: int
    turns: int


FULL = Scale((72, 512, 1024), updates_per_turn=20_000_000, turns=30)
SMALL = Scale((18, 32, 64), updates_per_turn=20_000, turns=3)


def bench(directory: Path, small: bool = False) -> dict[str, Any]:
    """Measure and print; the figures as plain data. Raises InputError when there is no C compiler with OpenMP."""
    scale, threads = SMALL if small else FULL, discover.available_cores()
    figures: dict[str, Any] = {"benchmark": "kernel", "small": small}
    with made_directory(directory), tempfile.TemporaryDirectory(prefix="outcrop-bench-", dir=directory) as folder:
        figures["machine"] = describe_machine(directory, threads)
        print(", ".join(f"{key} {value}" for key, value in figures["machine"].items()))
        figures["loops"] = [
            {
                "stencil": loop.name,
                **_in_cache(loop, scale, Path(folder)),
                **_sweeps(loop, scale, Path(folder), threads),
            }
            for loop in LOOPS
        ]
    for one in figures["loops"]:
        for place in ("cache", "sweep"):
            rate = one[f"{place}_cells_per_second"]
            print(f"{one['stencil']} {place}: generated {format_rate(rate['generated'])}cell/s, by hand "
                  f"{format_rate(rate['handwritten'])}cell/s, ratio {one[f'{place}_ratio']:.2f}")  # fmt: skip
    return figures


def cache_shape(loop: Loop, cache_bytes: int) -> tuple[int, int, int]:
    """A grid all of whose arrays fit the second-level cache: 256 cells a row, about as many planes as rows."""
    cells = SHARE_OF_CACHE * cache_bytes / (4 * loop.arrays * 256)
    side = max(2 * loop.radius + 2, int(cells**0.5))
    return side, side, 256


def _in_cache(loop: Loop, scale: Scale, folder: Path) -> dict[str, Any]:
    shape = cache_shape(loop, discover.caches().second_bytes)
    timer = Timer(loop, shape, folder)
    repeats = max(1, scale.updates_per_turn // timer.updates)
    difference = timer.largest_difference()
    set_threads(1)
    turns = [(timer.generated(shape[1], repeats), timer.handwritten(shape[1], repeats)) for _ in range(scale.turns)]
    rate = _rates(turns, timer.updates * repeats)
    return {
        "cache_shape": list(shape),
        "largest_difference": difference,
        "same_up_to_rounding": difference <= ROUNDING_MOST,
        "cache_cells_per_second": rate,
        "cache_ratio": rate["generated"] / rate["handwritten"],
    }


def _sweeps(loop: Loop, scale: Scale, folder: Path, threads: int) -> dict[str, Any]:
    timer, stencil = Timer(loop, scale.sweep_shape, folder), find_stencil(loop.name)
    kernel = compile_kernel(stencil, "float32")
    problem = as_problem(stencil, make_layout(scale.sweep_shape, "float32"), 1, FIXED, False)
    scalars, turns = pack_scalars(stencil, {}, "float32"), []
    set_threads(threads)
    for _ in range(max(1, scale.turns // 6)):
        found = rates.sweep_rate(problem, kernel.calls, scalars, threads, scale.sweep_shape[0], 2)
        by_hand = min(timer.handwritten(rows, 1) for rows in ROWS for _ in range(3))
        turns.append((timer.updates / found.cells_per_second, by_hand))
    rate = _rates(turns, timer.updates)
    return {
        "sweep_shape": list(scale.sweep_shape),
        "sweep_cells_per_second": rate,
        "sweep_ratio": rate["generated"] / rate["handwritten"],
    }


def _rates(turns: list[tuple[float, float]], updates: int) -> dict[str, float]:
    """Medians of both sides."""
    return {
        name: updates / median(turn[place] for turn in turns) for place, name in enumerate(("generated", "handwritten"))
    }
