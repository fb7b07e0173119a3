"""`outcrop bench kernel`: compare generated kernels with loops written by hand. Also compare the inner loops of
generated kernels with each other.

    `cache`    One thread updates arrays that fit into the second-level cache.
    `sweeps`   All threads sweep over arrays in memory, in blocks of rows. The generated kernel updates planes of a
               window, as in a run, and the hand-written loop updates arrays of NumPy. Both are measured equally often,
               with the same sizes of blocks, and the shortest times count.
    `tiles`    All threads update a slab in memory in tiles. Each inner loop of a kernel uses the tiles that are best
               for this loop. Each loop is measured without and with prefetches.

Generated kernels and hand-written loops are measured alternately, and medians are compared. The hand-written loops are
in `handwritten.c`. The results of hand-written loops must equal the results of generated kernels, except for rounding.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.bench import rates
from outcrop.bench.figures import first_figures, new_folder, table_head, table_row
from outcrop.errors import InputError
from outcrop.language.boundary import FIXED
from outcrop.language.compile import compile_kernel
from outcrop.language.library import find_stencil
from outcrop.plan.actions import EVERYTHING
from outcrop.plan.plan import Sizes
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from outcrop.run.engine import pack_scalars
from outcrop.shared_object import find_compiler
from outcrop.tiers import discover
from outcrop.units import format_rate

FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
"""The usual compiler flags for hand-written loops. With these flags, the compiler may fuse multiplications and
additions. In generated kernels, the compiler must not fuse multiplications and additions."""
SOURCE = Path(__file__).parent / "handwritten.c"
Array32 = NDArray[np.float32]
LOOPS: dict[str, tuple[float, ...]] = {"heat7": (0.0, 1.0), "acoustic8": (1.0, 1.0, 2000.0)}
"""The stencils with a loop in `handwritten.c`. For each stencil, the mean values of its arrays: first the array that is
written, then the array with the newest values, then the read-only arrays."""
LIBRARY = ("heat7", "heat4", "heat8", "acoustic2", "acoustic4", "acoustic8", "elastic4", "maxwell", "gray_scott")
"""The stencils whose inner loops are compared with each other."""
TILES = (4, 8, 16)
SHARE_OF_CACHE = 0.75
MAX_ROUNDING = 1e-5


@dataclass(frozen=True)
class KernelScale:
    """The scale of the benchmark: the grid (nz, ny, nx) of sweeps, and the number of measurements."""

    sweep_shape: tuple[int, int, int]
    updates_per_turn: int
    turns: int
    slab_shape: tuple[int, int, int]
    """The grid (nz, ny, nx) of slabs that are updated in tiles."""
    levels: int
    """The number of levels of each slab that is updated in tiles."""


FULL = KernelScale((72, 512, 1024), 20_000_000, turns=30, slab_shape=(64, 256, 1024), levels=32)
SMALL = KernelScale((18, 32, 64), 20_000, turns=3, slab_shape=(8, 32, 64), levels=4)


def bench(directory: Path, small: bool = False) -> dict[str, Any]:
    """Run the benchmark, print the figures, and return them as plain data. Raises InputError if no C compiler with
    OpenMP is found."""
    scale, threads = SMALL if small else FULL, discover.available_cores()
    with first_figures("kernel", small, directory, has_plans=False) as figures, new_folder(directory) as folder:
        figures["loops"] = [
            {"stencil": name, **_in_cache(name, scale, folder), **_sweeps(name, scale, folder, threads)}
            for name in LOOPS
        ]
        figures["rows_at_once"] = {name: _loops(name, scale, threads) for name in LIBRARY}
    for one in figures["loops"]:
        for place in ("cache", "sweep"):
            rate = one[f"{place}_cells_per_second"]
            print(f"{one['stencil']} {place}: generated {format_rate(rate['generated'])}cell/s, by hand "
                  f"{format_rate(rate['handwritten'])}cell/s, ratio {one[f'{place}_ratio']:.2f}")  # fmt: skip
    print(_table(figures["rows_at_once"]))
    return figures


def _loops(name: str, scale: KernelScale, threads: int) -> dict[str, dict[str, float]]:
    """For each inner loop of a kernel, return three rates of all threads together: for data in second-level caches, for
    tiles in memory without prefetches, and for tiles in memory with prefetches. The loops are measured alternately."""
    stencil = find_stencil(name)
    kernel, scalars = compile_kernel(stencil, "float32"), pack_scalars(stencil, {}, "float32")
    levels = scale.levels - scale.levels % len(stencil.stages)
    problem = as_problem(stencil, make_layout(scale.slab_shape, "float32"), levels, FIXED, False)
    slab = scale.slab_shape[0]
    meter = _core.UpdateMeter(
        problem, problem.fields, kernel.calls, scalars, threads, _core.UpdateMeter.planes_needed(problem, levels, slab)
    )
    every = product(rates.ROWS_AT_ONCE, (False, True), TILES)
    tiles = {one: list[float]() for one in every}
    for _ in range(max(1, scale.turns // 6)):
        for (rows, prefetch, diamond), found in tiles.items():
            sizes = Sizes(levels, slab, diamond, rows_at_once=rows, prefetch=prefetch)
            found.append(median(meter.measure(sizes, problem.whole_plane, EVERYTHING, 2)))
    cache_bytes = discover.caches().second_bytes
    cache = {
        rows: rates.kernel_rate(problem, kernel.calls, scalars, threads, cache_bytes, 10 * scale.turns, (rows,))
        for rows in rates.ROWS_AT_ONCE
    }
    return {
        str(rows): {
            "cache_cells_per_second": cache[rows],
            "tiles_cells_per_second": max(median(tiles[rows, False, diamond]) for diamond in TILES),
            "prefetch_cells_per_second": max(median(tiles[rows, True, diamond]) for diamond in TILES),
        }
        for rows in rates.ROWS_AT_ONCE
    }


def _table(figures: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return a Markdown table with rates in Gcell/s: in the second-level cache, in tiles, and in tiles with prefetches.
    For each kind of rate, the table has a column for each number of rows that an inner loop updates together."""
    places = ("cache", "tiles", "prefetch")
    heads = [f"{place}, {rows} at once" for place in places for rows in rates.ROWS_AT_ONCE]
    lines = table_head(["Gcell updates/s", *heads])
    for name, loops in figures.items():
        found = (loops[str(rows)][f"{place}_cells_per_second"] for place in places for rows in rates.ROWS_AT_ONCE)
        lines.append(table_row([name, *(f"{rate / 1e9:.2f}" for rate in found)]))
    return "\n".join(lines)


def _in_cache(name: str, scale: KernelScale, folder: Path) -> dict[str, Any]:
    """Return the rates on a grid whose arrays fit into the second-level cache. The numbers of planes and of rows are
    equal, and each row has 256 cells."""
    cells = SHARE_OF_CACHE * discover.caches().second_bytes / (4 * len(LOOPS[name]) * 256)
    side = max(2 * find_stencil(name).radii[0] + 2, int(cells**0.5))
    shape = (side, side, 256)
    timer = LoopTimer(name, shape, folder)
    repeats = max(1, scale.updates_per_turn // timer.updates)
    difference = timer.largest_difference()
    timer.set_threads(1)
    turns = [(timer.generated(shape[1], repeats), timer.handwritten(shape[1], repeats)) for _ in range(scale.turns)]
    rate = _rates(turns, timer.updates * repeats)
    return {
        "cache_shape": list(shape),
        "largest_difference": difference,
        "same_up_to_rounding": difference <= MAX_ROUNDING,
        "cache_cells_per_second": rate,
        "cache_ratio": rate["generated"] / rate["handwritten"],
    }


def _sweeps(name: str, scale: KernelScale, folder: Path, threads: int) -> dict[str, Any]:
    timer, stencil = LoopTimer(name, scale.sweep_shape, folder), find_stencil(name)
    kernel = compile_kernel(stencil, "float32")
    problem = as_problem(stencil, make_layout(scale.sweep_shape, "float32"), 1, FIXED, False)
    scalars, turns = pack_scalars(stencil, {}, "float32"), []
    timer.set_threads(threads)
    samples = list(product(rates.sweep_rows(scale.sweep_shape[1]), rates.ROWS_AT_ONCE, range(rates.SWEEP_REPEATS)))
    for _ in range(max(1, scale.turns // 6)):
        found = rates.sweep_rate(problem, kernel.calls, scalars, threads, scale.sweep_shape[0])
        by_hand = min(timer.handwritten(rows, 1) for rows, *_ in samples)
        turns.append((timer.updates / found.cells_per_second, by_hand))
    rate = _rates(turns, timer.updates)
    return {
        "sweep_shape": list(scale.sweep_shape),
        "sweep_cells_per_second": rate,
        "sweep_ratio": rate["generated"] / rate["handwritten"],
    }


def _rates(turns: list[tuple[float, float]], updates: int) -> dict[str, float]:
    return {
        name: updates / median(turn[place] for turn in turns) for place, name in enumerate(("generated", "handwritten"))
    }


class LoopTimer:
    """A hand-written loop and a generated kernel that compute on the same arrays. `shape` is (nz, ny, nx), and nx is a
    multiple of 16.

    The compiled loops are written to `folder`. Raises InputError if no C compiler with OpenMP is found.
    """

    def __init__(self, name: str, shape: tuple[int, int, int], folder: Path) -> None:
        stencil = find_stencil(name)
        self._name, self._shape, self._radius = name, shape, stencil.radii[0]
        self._kernel = compile_kernel(stencil, "float32").calls[0][0]
        self._scalars = pack_scalars(stencil, {}, "float32")
        self._loops = _compiled_loops(folder)
        self._arrays = [_aligned(shape, value, number) for number, value in enumerate(LOOPS[name])]

    @property
    def updates(self) -> int:
        nz, ny, nx = (n - 2 * self._radius for n in self._shape)
        return nz * ny * nx

    def set_threads(self, threads: int) -> None:
        """Set the number of threads of the hand-written loop."""
        self._loops.set_threads(threads)

    def handwritten(self, rows: int, repeats: int) -> float:
        """Run `repeats` steps in blocks of `rows` rows on all threads of OpenMP. Return the time in seconds."""
        function = getattr(self._loops, f"time_{self._name}")
        function.restype = ctypes.c_double
        sizes = [ctypes.c_long(n) for n in (*self._shape, rows)]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in self._arrays]
        return float(function(*pointers, *sizes, self._scalars, ctypes.c_long(repeats)))

    def generated(self, rows: int, repeats: int) -> float:
        """Run `repeats` steps in blocks of `rows` rows on the calling thread. Return the time in seconds."""
        radius, (nz, ny, nx) = self._radius, self._shape
        written, newest, *others = (_planes(array) for array in self._arrays)
        reads = [newest, written, *others] if others else [newest]
        sources = (ctypes.c_void_p * len(reads))(*(ctypes.addressof(one) for one in reads))
        function = self._loops.time_generated
        function.restype = ctypes.c_double
        sizes = [ctypes.c_long(n) for n in (radius, nz - radius, radius, ny - radius, nx, ny, rows, repeats)]
        kernel, count = ctypes.c_void_p(self._kernel), ctypes.c_long(len(reads))
        return float(function(kernel, sources, count, written, self._scalars, *sizes))

    def largest_difference(self) -> float:
        """Run one step of the hand-written loop and one step of the generated kernel. Return the largest difference
        between their results, relative to the largest result."""
        inside = (slice(self._radius, -self._radius),) * 3
        before, found = self._arrays[0].copy(), []
        for step in (self.handwritten, self.generated):
            self._arrays[0][:] = before
            step(self._shape[1], 1)
            found.append(self._arrays[0][inside].copy())
        self._arrays[0][:] = before
        return float(np.abs(found[0] - found[1]).max() / np.abs(found[1]).max())


def _aligned(shape: tuple[int, int, int], value: float, number: int) -> Array32:
    """Return an array whose values form waves around the mean value `value`. Each row of the array begins at a multiple
    of 64 bytes. Unused bytes lie before and after the array in memory."""
    room, cells = 1024, int(np.prod(shape))
    memory = np.empty(cells + 2 * room + 16, np.float32)
    first = room + (-memory.ctypes.data // 4) % 16
    array: Any = memory[first : first + cells].reshape(shape)
    z, y, x = np.ogrid[tuple(slice(0, n) for n in shape)]
    memory[:] = value
    array += (0.1 * max(value, 1.0) * np.sin(0.3 * z + number) * np.sin(0.2 * y) * np.cos(0.1 * x)).astype("float32")
    return array  # type: ignore[no-any-return]


def _planes(array: Array32) -> Any:
    first, size = array.ctypes.data, array[0].nbytes
    return (ctypes.c_void_p * len(array))(*(first + z * size for z in range(len(array))))


def _compiled_loops(folder: Path) -> ctypes.CDLL:
    path = folder / "handwritten.so"
    if not path.exists():
        command: Sequence[str] = [*find_compiler("C"), *FLAGS, str(SOURCE), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
            raise InputError(f"the C compiler cannot compile {SOURCE.name} with OpenMP: {reason}")
    return ctypes.CDLL(str(path))
