"""Where planes of initial values come from: a name, a shape, and a function that gives planes on request.

Shapes are those of the values themselves, of one to three axes; `lift` knows the three axes inside.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from outcrop.axes import Shape
from outcrop.errors import InputError, shown
from outcrop.units import ADDRESSABLE_BYTES

Array: TypeAlias = np.ndarray[Any, Any]

CACHE_BYTES = 8 << 20
"""Planes that may be kept of what is not stored plane by plane, so that it is not read and decoded for each plane."""


@dataclass(frozen=True)
class Source:
    """`planes(z0, z1)` returns an array of shape (z1 - z0, *shape[1:]) of any real dtype.

    Of two axes these are rows, of one axis cells. It is asked in ascending order, and gives the same values however the
    planes are grouped. `axes` are the letters of the axes, slowest first, where they are known: a section may be "xz",
    which is not the order of a grid yet.
    """

    name: str
    shape: Shape
    planes: Callable[[int, int], Array]
    axes: str = ""


def array_source(name: str, array: Array) -> Source:
    """Planes of an array in memory, of one to three axes."""
    require_real(name, array.dtype)
    return Source(name, require_solid(name, array.shape), lambda z0, z1: array[z0:z1])


def chunked_source(name: str, array: Any, cache_bytes: int, axes: str = "") -> Source:
    """Planes of a chunked array; a group of planes is decoded together and kept while its planes are asked for."""
    try:
        dtype = np.dtype(array.dtype)
    except TypeError:
        raise InputError(f"{name} has dtype {shown(array.dtype)}, which NumPy does not know") from None
    require_real(name, dtype)
    shape = require_solid(name, array.shape)
    chunk_planes = min(_chunk_planes(array), shape[0])
    chunk_bytes = chunk_planes * math.prod(shape[1:]) * dtype.itemsize
    depth = max(1, -(-chunk_planes // -(-chunk_bytes // max(1, cache_bytes))))
    cached: dict[int, Array] = {}

    def decoded(first: int) -> Array:
        if first not in cached:
            cached.clear()
            try:
                with _one_chunk_at_a_time():
                    cached[first] = np.asarray(array[first : min(first + depth, shape[0])])
            except MemoryError:
                raise
            except Exception as error:  # libraries raise many kinds for what is damaged
                reason = str(error) or type(error).__name__
                raise InputError(f"{name} cannot be read at plane {first}: {reason}") from error
        return cached[first]

    def planes(z0: int, z1: int) -> Array:
        parts = [decoded(first)[max(z0 - first, 0) : z1 - first] for first in range(z0 // depth * depth, z1, depth)]
        if z1 == shape[0]:
            cached.clear()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return Source(name, shape, planes, axes)


def _chunk_planes(array: Any) -> int:
    """Planes that are stored together: Zarr and HDF5 give one size for each axis, Dask the sizes of all chunks."""
    chunks = getattr(array, "chunks", None)
    if not chunks:
        return 1 if len(array.shape) > 1 else int(array.shape[0])  # one by one cells would take long
    return max(chunks[0]) if isinstance(chunks[0], tuple) else int(chunks[0])


@contextlib.contextmanager
def _one_chunk_at_a_time() -> Iterator[None]:
    """Keep Zarr and Dask, where they are loaded, from decoding many chunks in memory at once."""
    with contextlib.ExitStack() as settings:
        if zarr := sys.modules.get("zarr"):
            settings.enter_context(zarr.config.set({"async.concurrency": 1}))
        if dask := sys.modules.get("dask"):
            settings.enter_context(dask.config.set(scheduler="synchronous"))
        yield


def require_solid(name: str, sizes: tuple[int, ...]) -> Shape:
    """The sizes as a shape; InputError unless they are one to three of at least 1, and not beyond all disks."""
    shape = tuple(sizes)
    if not 1 <= len(shape) <= 3 or not all(size >= 1 for size in shape):  # Dask has sizes NaN
        raise InputError(f"{name} has shape {shown(shape)}; one to three axes (nz, ny, nx) of at least 1 are needed")
    if math.prod(shape) >= ADDRESSABLE_BYTES // 16:
        raise InputError(f"{name} has shape {shown(shape)}, which is more than any disk can hold")
    return tuple(int(size) for size in shape)


def named_axes(names: Sequence[str | None]) -> str:
    """The letters of axes whose names are all z, y or x, such as "xz"; "" when they have other names."""
    letters = [str(name).lower() for name in names]
    return "".join(letters) if set(letters) <= set("zyx") and len(set(letters)) == len(letters) else ""


def require_real(name: str, dtype: np.dtype[Any]) -> None:
    """Raise InputError unless numbers of `dtype` are real."""
    if dtype.kind not in "buif":
        raise InputError(f"{name} has dtype {dtype}; only real numbers can be initial values")


def plane_groups(shape: Shape, itemsize: int, group_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges (z0, z1) that cover the planes of a shape in ascending order, of about `group_bytes` each."""
    count = max(1, group_bytes // (math.prod(shape[1:]) * itemsize))
    for z0 in range(0, shape[0], count):
        yield z0, min(z0 + count, shape[0])
