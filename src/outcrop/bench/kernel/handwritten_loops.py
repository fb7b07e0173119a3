"""Loops in C written by hand (`handwritten/`), and generated kernels on the same arrays, timed alike."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.language.compile import c_compiler, compile_kernel
from outcrop.language.library import find_stencil
from outcrop.run.engine import pack_scalars

FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
"""As one compiles one's own loops; unlike generated ones they may fuse multiplications with additions."""
SOURCES = Path(__file__).parent / "handwritten"
Array32 = NDArray[np.float32]


@dataclass(frozen=True)
class Loop:
    """What is written by hand: the stencil `name`, its radius, and how many arrays its step takes."""

    name: str
    radius: int
    arrays: int
    values: tuple[float, ...]
    """Of the arrays, about: the one that is written, the newest values, and what is only read."""


LOOPS = (Loop("heat7", 1, 2, (0.0, 1.0)), Loop("acoustic8", 4, 3, (1.0, 1.0, 2000.0)))


class Timer:
    """A hand-written loop and the generated kernel on the same arrays, of `shape` (nz, ny, nx), nx a multiple of 16.

    `folder` takes the compiled loops. Raises InputError when there is no C compiler with OpenMP.
    """

    def __init__(self, loop: Loop, shape: tuple[int, int, int], folder: Path) -> None:
        self.loop, self.shape = loop, shape
        stencil = find_stencil(loop.name)
        self._kernel = compile_kernel(stencil, "float32").calls[0][0]
        self._scalars = pack_scalars(stencil, {}, "float32")
        self._sweep = ctypes.cast(_library(loop.name, folder).sweep, ctypes.c_void_p)
        self._clock = _library("clock", folder)
        self._arrays = [_aligned(shape, value, number) for number, value in enumerate(loop.values)]

    @property
    def updates(self) -> int:
        """Cells that a step updates."""
        nz, ny, nx = (n - 2 * self.loop.radius for n in self.shape)
        return nz * ny * nx

    def handwritten(self, rows: int, repeats: int) -> float:
        """Seconds of `repeats` steps in blocks of `rows`, on as many threads as OpenMP takes."""
        function = getattr(self._clock, f"time_{self.loop.name}")
        function.restype = ctypes.c_double
        sizes = [ctypes.c_long(n) for n in (*self.shape, rows)]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in self._arrays]
        return float(function(self._sweep, *pointers, *sizes, self._scalars, ctypes.c_long(repeats)))

    def generated(self, rows: int, repeats: int) -> float:
        """Seconds of `repeats` steps in blocks of `rows`, on this thread."""
        radius, (nz, ny, nx) = self.loop.radius, self.shape
        written, newest, *others = (_planes(array) for array in self._arrays)
        reads = [newest, written, *others] if self.loop.arrays > 2 else [newest]
        sources = (ctypes.c_void_p * len(reads))(*(ctypes.addressof(one) for one in reads))
        function = self._clock.time_generated
        function.restype = ctypes.c_double
        sizes = [ctypes.c_long(n) for n in (radius, nz - radius, radius, ny - radius, nx, ny, rows, repeats)]
        kernel, count = ctypes.c_void_p(self._kernel), ctypes.c_long(len(reads))
        return float(function(kernel, sources, count, written, self._scalars, *sizes))

    def largest_difference(self) -> float:
        """Between one step of both from the same values, over the largest value; cells that are updated."""
        inside = (slice(self.loop.radius, -self.loop.radius),) * 3
        before, found = self._arrays[0].copy(), []
        for step in (self.handwritten, self.generated):
            self._arrays[0][:] = before
            step(self.shape[1], 1)
            found.append(self._arrays[0][inside].copy())
        self._arrays[0][:] = before
        return float(np.abs(found[0] - found[1]).max() / np.abs(found[1]).max())


def set_threads(threads: int) -> None:
    """On how many threads hand-written loops run from now on."""
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(threads)


def _aligned(shape: tuple[int, int, int], value: float, number: int) -> Array32:
    """An array whose rows begin at multiples of 64 bytes, with some room around it, and waves around a value."""
    room, cells = 1024, int(np.prod(shape))
    memory = np.empty(cells + 2 * room + 16, np.float32)
    first = room + (-memory.ctypes.data // 4) % 16
    array: Any = memory[first : first + cells].reshape(shape)
    z, y, x = np.ogrid[tuple(slice(0, n) for n in shape)]
    memory[:] = value
    array += (0.1 * max(value, 1.0) * np.sin(0.3 * z + number) * np.sin(0.2 * y) * np.cos(0.1 * x)).astype("float32")
    return array  # type: ignore[no-any-return]


def _planes(array: Array32) -> Any:
    """Pointers to all planes."""
    first, size = array.ctypes.data, array[0].nbytes
    return (ctypes.c_void_p * len(array))(*(first + z * size for z in range(len(array))))


def _library(name: str, folder: Path) -> ctypes.CDLL:
    path = folder / f"{name}.so"
    if not path.exists():
        command: Sequence[str] = [*c_compiler(), *FLAGS, str(SOURCES / f"{name}.c"), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
            raise InputError(f"the C compiler cannot compile {name}.c with OpenMP: {reason}")
    return ctypes.CDLL(str(path))
