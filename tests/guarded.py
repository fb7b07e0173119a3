"""Run kernels on a small grid with forbidden pages around each plane. The tests start this program as a process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

from kernels import Block
from oracle import advance_fields
from outcrop.language.boundary import as_boundary
from outcrop.language.compile import compile_kernel
from outcrop.language.stencil import Stencil

PAGE = mmap.PAGESIZE
GUARD_BYTES = 4096
"""The number of bytes that a kernel may read before and after a plane (core/outcrop/exec/window.hpp)."""
SHAPE = (5, 6, 21)
_libc = ctypes.CDLL(None, use_errno=True)


class Fenced:
    """Memory for cells of shape (ny, pitch). Kernels may read, but not write, the bytes just before and just after the
    cells. Kernels must not access the pages beyond these bytes.
    """

    def __init__(self, ny: int, pitch: int, dtype: str) -> None:
        inner = ny * pitch * np.dtype(dtype).itemsize
        room = -(-(inner + 2 * GUARD_BYTES) // PAGE) * PAGE
        self._map = mmap.mmap(-1, room + 2 * PAGE)
        memory = np.frombuffer(self._map, np.uint8)
        for first in (0, room + PAGE):
            assert _libc.mprotect(ctypes.c_void_p(memory.ctypes.data + first), PAGE, 0) == 0
        readable = memory[PAGE : PAGE + room]
        readable[:] = 0xFF
        end = room - GUARD_BYTES  # the last cell lies as close to the forbidden page as a window allows
        self.rows = readable[end - inner : end].view(dtype).reshape(ny, pitch)
        self._around = [readable[: end - inner], readable[end:]]

    @property
    def is_whole(self) -> bool:
        """True if nothing was written outside the cells."""
        return all((part == 0xFF).all() for part in self._around)


def check(data: Any, seed: int) -> None:
    """Check that two steps of a stencil give the same bits as the oracle, and write nothing outside the cells. `data`
    is the JSON form of the stencil."""
    stencil = Stencil.from_json(data)
    rng = np.random.default_rng(seed)
    dtype, sides = ("float32", "float64")[seed % 2], as_boundary(("periodic", "fixed", "mirror")[seed % 3])
    nz, ny, nx = (n if axis in {1: (2,), 2: (0, 2), 3: (0, 1, 2)}[stencil.ndim] else 1 for axis, n in enumerate(SHAPE))
    radius = max(stencil.radii[0], 1)
    state = {
        name: rng.uniform(1, 2, (nz, ny, nx)).astype(dtype)
        for field in stencil.fields
        for name in (field.name, field.name + ".previous")
    }
    signals = {name: [0.5, 0.25] for name in stencil.signals}
    want = advance_fields(stencil, state, {}, 2, sides, signals)
    kernel = compile_kernel(stencil, dtype, boundary=sides)
    pitch = -(-nx * np.dtype(dtype).itemsize // 64) * 64 // np.dtype(dtype).itemsize
    copies = {
        (number, copy): [Fenced(ny, pitch, dtype) for _ in range(nz)]
        for number, storage in enumerate(stencil.storage)
        for copy in range(1 + storage.is_double)
    }
    for (number, copy), planes in copies.items():
        values = state[stencil.fields[number].name + ".previous" * copy]
        for plane, cells in zip(planes, values, strict=True):
            plane.rows[:], plane.rows[:, :nx] = 0, cells
    # As in the window, a plane beyond the grid has the values of a plane of the grid. Both planes use the same memory.
    z = np.arange(-radius, nz + radius)
    folded = z % (2 * nz)
    seen = z % nz if sides.z[0] == "periodic" else np.where(folded < nz, folded, 2 * nz - 1 - folded)
    rims = [(low, n - high) for (low, high), n in zip(sides.rims(stencil.radii), (nz, ny, nx), strict=True)]
    for step in range(2):
        scalars = np.array([*stencil.scalars({}), *(signals[name][step] for name in stencil.signals)], dtype)
        count = len(stencil.stages)
        for address, sources, targets in kernel.calls[step % 2 * count :][:count]:
            run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
            _keep_rims(copies, sources, targets, rims, nz, ny)
            (z0, z1), (y0, y1) = rims[:2]
            if z1 <= z0 or y1 <= y0:
                continue
            lists = [
                (ctypes.c_void_p * len(seen))(*(copies[one][place].rows.ctypes.data for place in seen))
                for one in sources
            ]
            written = [(ctypes.c_void_p * nz)(*(plane.rows.ctypes.data for plane in copies[one])) for one in targets]
            item = ctypes.sizeof(ctypes.c_void_p)
            source = (ctypes.c_void_p * len(lists))(*(ctypes.addressof(one) + (radius + z0) * item for one in lists))
            target = (ctypes.c_void_p * len(written))(*(ctypes.addressof(one) + z0 * item for one in written))
            block = Block(
                ctypes.addressof(target), ctypes.addressof(source), z1 - z0, y0, y1, 0, pitch, nx, ny, pitch,
                scalars.ctypes.data,
            )  # fmt: skip
            run(ctypes.addressof(block))
    newest = {(f, c): flips for f, c, flips in _newest(stencil)}
    for (number, copy), is_newest in newest.items():
        if is_newest:
            got = np.stack([plane.rows[:, :nx] for plane in copies[number, copy]])
            wanted = want[stencil.fields[number].name]
            assert np.array_equal(got, wanted, equal_nan=True), (data, stencil.fields[number].name)
    assert all(plane.is_whole for planes in copies.values() for plane in planes), data


def _newest(stencil: Stencil) -> list[tuple[int, int, bool]]:
    last = stencil.newest_copies(2)
    return [(n, copy, copy == last[n]) for n, one in enumerate(stencil.storage) for copy in range(1 + one.is_double)]


def _keep_rims(copies: Any, sources: Any, targets: Any, rims: Any, nz: int, ny: int) -> None:
    """Copy the rows and planes of a fixed rim from the sources to the targets, because kernels update only cells inside
    the rim.
    """
    (z0, z1), (y0, y1) = rims[:2]
    # the first sources are the newest values of the targets, in the same order
    for source, target in zip(sources, targets, strict=False):
        for z in range(nz):
            for y in range(ny):
                if not (z0 <= z < z1 and y0 <= y < y1):
                    copies[target][z].rows[y] = copies[source][z].rows[y]
