"""Run a stencil on two arrays where they lie: in plain memory, or in a file mapped into memory. For comparison.

There is no transaction, no checksum and no budget here: the system's paging decides what is in memory, and limiting
that is the business of whoever starts the process.

    memory:  | guard | array of even levels | guard | array of odd levels | guard |     (core/outcrop/exec/window.hpp)
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.language.compile import Calls
from outcrop.plan.plan import Plan
from outcrop.plan.validate import validate_one_layer
from outcrop.plan.window import GUARD_BYTES
from outcrop.run.rings import ring_specs

Source: TypeAlias = Callable[[int, int], NDArray[Any]]
"""Planes a <= z < b of the initial values, of shape (b - a, ny, nx)."""


@dataclass(frozen=True)
class ArrayMemory:
    """Memory for both arrays, guards included; `mapping` is the file's when there is one."""

    bytes: NDArray[np.uint8]
    mapping: mmap.mmap | None = None

    @staticmethod
    def plain(size_bytes: int) -> ArrayMemory:
        """Anonymous memory, which the system may swap out. Raises InputError when there is none."""
        return ArrayMemory(_core.aligned_array(size_bytes))

    @staticmethod
    def mapped(path: Path, size_bytes: int) -> ArrayMemory:
        """A new file of that size, mapped shared. Raises StorageError when it cannot be made."""
        _core.create_file(str(path), size_bytes)
        with path.open("r+b") as file:
            mapping = mmap.mmap(file.fileno(), size_bytes)
        return ArrayMemory(np.frombuffer(mapping, np.uint8), mapping)

    def flush(self) -> None:
        """Wait until the file has what memory has; nothing without a file."""
        if self.mapping is not None:
            self.mapping.flush()


class OneLayerRun:
    """A plan of `plan/schemes/one_layer.py`, its memory, and the executor that updates in it.

    `seconds_flush`: time spent waiting for the file.
    """

    def __init__(self, plan: Plan, calls: Calls, scalars: bytes, threads: int, memory: ArrayMemory) -> None:
        """`calls` are those of a compiled kernel, `scalars` its parameters as it reads them. The plan is proved
        legal first, or IllegalPlan is raised."""
        for one in {id(one): one for one in plan.passes}.values():
            validate_one_layer(plan.problem, one, plan.window)
        self._plan, self._memory, self._scalars = plan, memory, scalars
        self._current = 0
        self.seconds_flush = 0.0
        self._executor = _core.make_executor(
            plan.problem,
            plan.sizes,
            rings=ring_specs(plan),
            fields=plan.problem.fields,
            calls=calls,
            scalars_bytes=0,
            levels_max=max(one.levels for one in plan.passes),
            threads=threads,
            checksum=False,
            store=None,
            memory=memory.bytes,
        )

    def fill(self, source: Source, planes: int) -> None:
        """Write initial values, `planes` planes at a time, to both arrays: the second one needs their rim."""
        nz = self._plan.problem.planes
        for z0 in range(0, nz, planes):
            z1 = min(nz, z0 + planes)
            self.array(0)[z0:z1] = self.array(1)[z0:z1] = source(z0, z1)

    def run_pass(self, index: int) -> None:
        """Run pass `index` of the plan, and wait for the file where there is one. Raises InterruptedRun."""
        one = self._plan.passes[index]
        self._executor.run(
            one.actions, one.levels, [], [], [], 0, planes_per_file=1, faces_rows=0, scalars=self._scalars
        )
        if one.levels % 2:
            self._executor.swap_rings()
            self._current = 1 - self._current
        start = time.perf_counter()
        self._memory.flush()
        self.seconds_flush += time.perf_counter() - start

    def array(self, which: int) -> NDArray[Any]:
        """One of the arrays, of shape (nz, ny, nx), as a view."""
        problem, slot_bytes = self._plan.problem, self._plan.window.slot_bytes
        first = GUARD_BYTES + which * (problem.planes * slot_bytes + GUARD_BYTES)
        strides = (slot_bytes, problem.pitch_bytes, problem.item_bytes)
        return np.ndarray(problem.shape, problem.dtype, self._memory.bytes, first, strides)

    @property
    def current(self) -> NDArray[Any]:
        """The array with the newest values, as a view."""
        return self.array(self._current)

    def counters(self) -> dict[str, float]:
        """Cells updated and seconds by component, since the beginning."""
        return self._executor.counters()
