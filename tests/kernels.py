"""Call a compiled kernel as the executor does. Each plane has its own memory, with padded rows and with NaN before and
after the plane."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from outcrop.language.compile import Kernel
from outcrop.language.stencil import Stencil

GUARD_BYTES = 4096
LINE_BYTES = 64


class Block(ctypes.Structure):
    """The C structure `struct outcrop_block` of kernel.h."""

    _fields_ = [
        ("target", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("planes", "y0", "y1", "x0", "x1", "nx", "ny", "pitch")),
        ("scalars", ctypes.c_void_p),
        ("rows_at_once", ctypes.c_long),
        ("prefetch", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("prefetch_rows", "z", "y")),
    ]


class Plane:
    """One plane of shape (ny, nx) with padded rows. Kernels may read the memory around the plane, but the values there
    must not change the result.
    """

    def __init__(self, ny: int, nx: int, dtype: str, fill: float) -> None:
        item = np.dtype(dtype).itemsize
        self.pitch = -(-nx * item // LINE_BYTES) * LINE_BYTES // item
        memory = np.full(2 * GUARD_BYTES + LINE_BYTES + ny * self.pitch * item, 0xFF, np.uint8)  # all ones: NaN
        first = GUARD_BYTES + -(memory.ctypes.data + GUARD_BYTES) % LINE_BYTES
        self.memory = memory
        self.rows: NDArray[np.floating] = memory[first:][: ny * self.pitch * item].view(dtype).reshape(ny, self.pitch)
        self.rows[:] = fill


def call(
    kernel: Kernel,
    stencil: Stencil,
    scalars: Mapping[str, float],
    array: NDArray[np.floating],
    rows: tuple[int, int],
    lines: tuple[int, int] | None = None,
) -> NDArray[np.floating]:
    """Call the kernel once with each of its inner loops. Each call updates all planes of `array` that can be updated:
    the given rows of each plane, and the given 64-byte `lines` of each row.

    Without `lines`, a call updates whole rows. Return the target planes as an array of shape (planes, ny, pitch).
    Cells that the kernel did not write are -7. The padding of the source planes is 5. The kernel sets the padding of
    the target planes to 0. This function also asserts that all loops give the same bits, and that the kernel has
    changed no byte outside the target planes.
    """
    first, *others = (call_loop(kernel, stencil, scalars, array, rows, lines, at_once) for at_once in (1, 2, 4))
    assert all(same_bits(first, one) for one in others)
    return first


def call_loop(
    kernel: Kernel,
    stencil: Stencil,
    scalars: Mapping[str, float],
    array: NDArray[np.floating],
    rows: tuple[int, int],
    lines: tuple[int, int] | None,
    rows_at_once: int,
) -> NDArray[np.floating]:
    """Call the kernel as `call` does, but only with the inner loop that updates `rows_at_once` rows together."""
    dtype = str(array.dtype)
    nz, ny, nx = array.shape
    radius = stencil.radii[0]
    sources = [Plane(ny, nx, dtype, 5.0) for _ in range(nz)]
    targets = [Plane(ny, nx, dtype, -7.0) for _ in range(nz - 2 * radius)]
    for plane, values in zip(sources, array, strict=True):
        plane.rows[:, :nx] = values
    before = [plane.memory.copy() for plane in sources]
    pitch = sources[0].pitch
    per_line = LINE_BYTES // array.itemsize
    x0, x1 = (0, pitch) if lines is None else (lines[0] * per_line, lines[1] * per_line)
    source = (ctypes.c_void_p * nz)(*(plane.rows.ctypes.data for plane in sources))
    target = (ctypes.c_void_p * len(targets))(*(plane.rows.ctypes.data for plane in targets))
    source_of_field = (ctypes.c_void_p * 1)(ctypes.addressof(source) + radius * ctypes.sizeof(ctypes.c_void_p))
    target_of_field = (ctypes.c_void_p * 1)(ctypes.addressof(target))
    values = np.array(stencil.scalars(scalars), dtype)
    block = Block(
        ctypes.addressof(target_of_field), ctypes.addressof(source_of_field),
        len(targets), *rows, x0, x1, nx, ny, pitch, values.ctypes.data, rows_at_once,
        ctypes.addressof(source), min(nz, 2),  # the first two loops prefetch, and the others do not
    )  # fmt: skip
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kernel.calls[0][0])(ctypes.addressof(block))
    for plane, old in zip(sources, before, strict=True):
        assert (plane.memory == old).all(), "a kernel must not write to its sources"
    for plane in targets:
        around = plane.memory.copy()
        first = plane.rows.ctypes.data - plane.memory.ctypes.data
        around[first : first + plane.rows.nbytes] = 0xFF
        assert (around == 0xFF).all(), "a kernel must not write outside of the plane"
    return np.stack([plane.rows for plane in targets])


def expected(
    stencil: Stencil,
    array: NDArray[np.floating],
    updated: NDArray[np.floating],
    rows: tuple[int, int],
    lines: tuple[int, int] | None = None,
) -> NDArray[np.floating]:
    """Return the array that `call` must return. `updated` is the whole grid after one step of the oracle."""
    nz, ny, nx = array.shape
    radius = stencil.radii[0]
    pitch = Plane(1, nx, str(array.dtype), 0.0).pitch
    per_line = LINE_BYTES // array.itemsize
    x0, x1 = (0, pitch) if lines is None else (lines[0] * per_line, lines[1] * per_line)
    full = np.zeros((nz - 2 * radius, ny, pitch), array.dtype)
    full[:, :, :nx] = updated[radius : nz - radius]
    result = np.full_like(full, -7.0)
    result[:, rows[0] : rows[1], x0:x1] = full[:, rows[0] : rows[1], x0:x1]
    return result


def same_bits(a: NDArray[np.floating], b: NDArray[np.floating]) -> bool:
    """Return True if two arrays hold the same bytes."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
