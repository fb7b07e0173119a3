"""Where planes of initial values come from: a name, a shape, and a function that gives planes on request."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from outcrop.errors import InputError
from outcrop.run.axes import Shape

__all__ = ["CACHE_BYTES", "Array", "Shape", "Source", "array_source", "chunked_source", "require_real", "require_solid"]

Array: TypeAlias = np.ndarray[Any, Any]

CACHE_BYTES = 8 << 20
"""Planes that may be kept of what is not stored plane by plane, so that it is not read and decoded for each plane."""


@dataclass(frozen=True)
class Source:
    """`planes(z0, z1)` returns an array of shape (z1 - z0, *shape[1:]) of any real dtype.

    Of a grid of two axes these are rows, of one axis cells, of which it is asked for all at once.
    """

    name: str
    shape: Shape
    planes: Callable[[int, int], Array]


def array_source(name: str, array: Array) -> Source:
    """Planes of an array in memory."""
    return Source(name, require_solid(name, array.shape), lambda z0, z1: array[z0:z1])


def chunked_source(name: str, array: Any, cache_bytes: int) -> Source:
    """Planes of a chunked array; a group of planes is decoded together and kept while its planes are asked for."""
    require_real(name, np.dtype(array.dtype))
    shape = require_solid(name, array.shape)
    chunks = getattr(array, "chunks", None)
    chunk_planes = int(chunks[0]) if chunks and not isinstance(chunks[0], tuple) else 1
    chunk_bytes = chunk_planes * math.prod(shape[1:]) * np.dtype(array.dtype).itemsize
    depth = max(1, -(-chunk_planes // -(-chunk_bytes // cache_bytes)))
    cached: dict[int, Array] = {}

    def decoded(first: int) -> Array:
        if first not in cached:
            cached.clear()
            try:
                with _one_chunk_at_a_time():
                    cached[first] = np.asarray(array[first : min(first + depth, shape[0])])
            except (ValueError, OSError) as error:
                reason = " ".join(str(error).split())
                raise InputError(f"{name} cannot be read at plane {first}: {reason}") from error
        return cached[first]

    def planes(z0: int, z1: int) -> Array:
        parts = [decoded(first)[max(z0 - first, 0) : z1 - first] for first in range(z0 // depth * depth, z1, depth)]
        if z1 == shape[0]:
            cached.clear()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return Source(name, shape, planes)


@contextlib.contextmanager
def _one_chunk_at_a_time() -> Iterator[None]:
    """Keep Zarr, where it is loaded, from decoding many chunks in memory at once."""
    if zarr := sys.modules.get("zarr"):
        with zarr.config.set({"async.concurrency": 1}):
            yield
    else:
        yield


def require_solid(name: str, shape: tuple[int, ...]) -> Shape:
    """The shape itself; InputError unless it has one to three axes of at least 1."""
    if not 1 <= len(shape) <= 3 or min(shape) < 1:
        raise InputError(f"{name} has shape {tuple(shape)}; one to three axes (nz, ny, nx) of at least 1 are needed")
    return tuple(int(size) for size in shape)


def require_real(name: str, dtype: np.dtype[Any]) -> None:
    """Raise InputError unless numbers of `dtype` are real."""
    if dtype.kind not in "buif":
        raise InputError(f"{name} has dtype {dtype}; only real numbers can be initial values")
