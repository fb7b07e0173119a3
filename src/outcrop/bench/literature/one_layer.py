"""Run the program with one layer: the program updates both arrays in place, in plain memory or in a mapped file. A
program with one layer does not read, write or copy planes. The benchmark `ladder` compares this program with programs
that have two layers. Programs with two layers copy blocks between the arrays and a separate memory.

The window of this program consists of the two arrays. Each ring has a slot for each plane. The even ring is the array
with the even levels, and the odd ring is the array with the odd levels. In this program, the operating system moves
pages between memory and a disk. The program can use temporal blocking with the blocks of AL-NR (module `skewed`). In a
block of AL-NR, the cells of each level lie slightly lower than the cells of the previous level. Without temporal
blocking, each step sweeps over all planes.

    array of even levels   | plane 0 | plane 1 | ...            level 0, 2, ...
    array of odd levels    | plane 0 | plane 1 | ...            level 1, 3, ...; both arrays have the same rim

    memory:  | guard | array of even levels | guard | array of odd levels | guard |     (core/outcrop/exec/window.hpp)

The blocks need no copies of their fringe: the values of the fringe at lower levels are still in the two arrays. After a
pass with an odd number of levels, the two arrays exchange their roles. The program with one layer has no transactions,
no checksums and no budget. The operating system decides which pages are in memory. The caller of the program limits the
number of pages in memory.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.language.compile import Calls
from outcrop.plan.actions import Action, Bound, UpdateRegion, round_up
from outcrop.plan.cost import predict, works_of
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.memory import GUARD_BYTES, Window, make_window
from outcrop.plan.plan import Pass, Plan, Sizes
from outcrop.plan.problem import DIRECT_BYTES, VECTOR_BYTES, Problem
from outcrop.plan.schemes.literature import blocked, skewed
from outcrop.plan.validate import validate_one_layer
from outcrop.run.engine import ring_specs, translated

NAME = "one-layer"
PLANE_LINES = 5
"""The number of cache lines that a padded plane has in addition to whole pages. The number is odd, so that neighbouring
planes use different cache sets."""

InitialPlanes: TypeAlias = Callable[[int, int], NDArray[Any]]
"""A function of a and b that returns the planes a <= z < b of the initial values."""


def in_memory(problem: Problem, padded: bool) -> Problem:
    """Return a copy of `problem` that has the layout of arrays in memory. In memory, planes are contiguous and have no
    checksums.

    If `padded` is true, the distance between neighbouring rows is an odd number of cache lines. The distance between
    neighbouring planes is then an odd number of pages plus PLANE_LINES cache lines. With such odd distances,
    neighbouring rows and planes do not compete for the same sets of a cache or a translation buffer.
    """
    _, ny, nx = problem.shape
    pitch = round_up(nx * problem.item_bytes, VECTOR_BYTES)
    if padded and pitch // VECTOR_BYTES % 2 == 0:
        pitch += VECTOR_BYTES
    plane = ny * pitch
    record = plane
    if padded:
        pages = round_up(plane, DIRECT_BYTES) // DIRECT_BYTES
        record = (pages + 1 - pages % 2) * DIRECT_BYTES + PLANE_LINES * VECTOR_BYTES
    return replace(problem, pitch_bytes=pitch, plane_bytes=plane, record_bytes=record)


def window(problem: Problem) -> Window:
    """Return the window that holds both arrays. `problem` must be a result of `in_memory`."""
    return make_window(problem, (problem.planes,) * 3, problem.record_bytes)


def make_pass(problem: Problem, levels: int, sizes: Sizes) -> Pass:
    """Return one pass over all blocks. The only actions of the pass are Updates."""
    cut = skewed.cuts(problem, levels, sizes)
    end_zeta = problem.end_plane + problem.skew_z * (levels - 1)
    actions: list[Action] = []
    for z, x, y in product(cut.z.blocks, cut.x.blocks, cut.y.blocks):
        (y_low, y_high), (x_low, x_high) = y.bounds(), x.bounds()
        if x.is_last:  # the padding may be updated, because no update reads it
            x_high = Bound(round_up(problem.shape[2], problem.vector_cells))
        region = UpdateRegion(y_low=y_low, y_high=y_high, x_low=x_low, x_high=x_high)
        # Along z, the limits of blocks are values of zeta. For plane z and a level, zeta is z + (skew times level).
        first, end = max(problem.first_plane, z.own()[0]), min(end_zeta, z.own()[1])
        for zeta0 in range(first, end, sizes.slab) if problem.first_plane < problem.end_plane else ():
            actions += blocked.updates(problem, zeta0, min(end, zeta0 + sizes.slab), levels, region)
    return Pass(levels, sizes.slab, window(problem), tuple(actions))


def make_plan(problem: Problem, sizes: Sizes, machine: Machine, rate: UpdateRate) -> Plan:
    """Return the plan for `problem`, which must be a result of `in_memory`. Each pass has `sizes.levels` levels. The
    last pass may have fewer levels.

    The prediction contains only the seconds of updates. The predicted bytes are 0, because the number of pages that the
    system moves is unknown.
    """
    full, rest = divmod(problem.steps, sizes.levels)
    passes = [make_pass(problem, sizes.levels, sizes)] * full if full else []
    if rest:
        passes.append(make_pass(problem, rest, sizes))
    both = window(problem)
    predicted = predict(problem, works_of(problem, passes), sizes, both, machine, rate)
    return Plan(problem, NAME, sizes, tuple(passes), both, predicted)


@dataclass(frozen=True)
class ArrayMemory:
    """The memory of both arrays, and of the guards around these arrays. `mapping` is None for plain memory."""

    bytes: NDArray[np.uint8]
    mapping: mmap.mmap | None = None

    @staticmethod
    def plain(size_bytes: int) -> ArrayMemory:
        """Allocate plain memory, which the system may swap out. Raises InputError if the machine does not have enough
        memory."""
        return ArrayMemory(_core.aligned_array(size_bytes))

    @staticmethod
    def mapped(path: Path, size_bytes: int) -> ArrayMemory:
        """Make a new file of `size_bytes` bytes, and map it. Raises StorageError if the file cannot be made or
        mapped."""
        _core.create_file(str(path), size_bytes)
        with path.open("r+b") as file:
            mapping = mmap.mmap(file.fileno(), size_bytes)
        return ArrayMemory(np.frombuffer(mapping, np.uint8), mapping)

    def flush(self) -> None:
        """Wait until the content of the memory is in the file. Does nothing for plain memory."""
        if self.mapping is not None:
            self.mapping.flush()


class OneLayerRun:
    """Executes a plan that `make_plan` has made. The arrays of the plan are in `memory`. `seconds_flush` is the total
    time for which passes have waited until the mapped file was written."""

    def __init__(self, plan: Plan, calls: Calls, scalars: bytes, threads: int, memory: ArrayMemory) -> None:
        """Check the plan and make an executor for the plan. `scalars` are the kernel's parameters in binary form.

        Raises IllegalPlan if the plan is wrong.
        """
        for one in {id(one): one for one in plan.passes}.values():
            validate_one_layer(plan.problem, one, plan.window)
        self._plan, self._memory, self._scalars = plan, memory, scalars
        self._passes = translated(plan)
        self._current = 0
        self.seconds_flush = 0.0
        self._executor = _core.make_executor(
            plan.problem,
            plan.sizes,
            rings=ring_specs(plan),
            fields=plan.problem.fields,
            calls=calls,
            scalars_bytes=0,
            max_levels=max(one.levels for one in plan.passes),
            threads=threads,
            checksum=False,
            store=None,
            memory=memory.bytes,
        )

    def fill(self, source: InitialPlanes, planes: int) -> None:
        """Write the initial values to both arrays, `planes` planes at a time. In the second array, only the rim needs
        initial values, because the first level overwrites all other cells."""
        nz = self._plan.problem.planes
        for z0 in range(0, nz, planes):
            z1 = min(nz, z0 + planes)
            self.array(0)[z0:z1] = self.array(1)[z0:z1] = source(z0, z1)

    def run_pass(self, index: int) -> None:
        """Run pass number `index` of the plan. If the arrays are in a mapped file, wait until the file is written.
        Raises InterruptedRun if the user interrupts the pass."""
        self._executor.run(self._passes[index], [], [], [], 0, planes_per_file=1, fringe_rows=0, scalars=self._scalars)
        if self._plan.passes[index].levels % 2:
            self._executor.swap_rings()
            self._current = 1 - self._current
        start = time.perf_counter()
        self._memory.flush()
        self.seconds_flush += time.perf_counter() - start

    def array(self, which: int) -> NDArray[Any]:
        """Return a view of array number `which` (0 or 1), of shape (nz, ny, nx)."""
        problem, slot_bytes = self._plan.problem, self._plan.window.slot_bytes
        first = GUARD_BYTES + which * (problem.planes * slot_bytes + GUARD_BYTES)
        strides = (slot_bytes, problem.pitch_bytes, problem.item_bytes)
        return np.ndarray(problem.shape, problem.dtype, self._memory.bytes, first, strides)

    @property
    def current(self) -> NDArray[Any]:
        """A view of the array with the newest values."""
        return self.array(self._current)

    def counters(self) -> dict[str, float]:
        """Return the number of updated cells and the seconds of each component, counted since the OneLayerRun was
        made."""
        return self._executor.counters()
