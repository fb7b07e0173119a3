"""`InputArray`: a name, a shape, and a function that returns planes of values from any source.

The shape has one size for each axis of the values: one, two or three sizes. `arrange` brings the axes into the order of
a grid. `lift` maps the axes to the engine's three axes.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from outcrop.axes import NAMES, PLACES, Shape, axes_text
from outcrop.errors import InputError, shown
from outcrop.run.user_values import require_unmasked
from outcrop.units import ADDRESSABLE_BYTES

Array: TypeAlias = np.ndarray[Any, Any]

LETTERS = "".join(NAMES[3])

CACHE_BYTES = 8 << 20
"""The default size of the cache of planes for sources that are not stored plane by plane."""

GROUP_BYTES = 4 << 20
"""The approximate number of bytes of an array that each call reads."""


@dataclass(frozen=True)
class InputArray:
    """Values from any source. `planes(z0, z1)` returns an array of shape (z1 - z0, *shape[1:]) of any real dtype.

    In an array of two axes, z0 and z1 count rows. In an array of one axis, z0 and z1 count cells. Callers read planes
    in ascending order. One call can read any number of planes. `axes` contains the letters of the axes, slowest first,
    or "" if the letters are unknown. The letters of the axes can have any order: a section can have the axes "xz".
    `constant` is the value of all cells, or None if the cells may have different values. `is_apart` is True if all
    calls return the same values, even if a run has been removed from storage before the call."""

    name: str
    shape: Shape
    planes: Callable[[int, int], Array]
    axes: str = ""
    constant: float | None = None
    is_apart: bool = False


def from_array(name: str, array: Array) -> InputArray:
    """Return the input array for an array of one to three axes in memory."""
    require_real(name, array.dtype)
    return InputArray(name, require_solid(name, array.shape), lambda z0, z1: array[z0:z1], is_apart=True)


def from_chunks(name: str, array: Any, cache_bytes: int, axes: str = "") -> InputArray:
    """Return the input array for a chunked array. A group of decoded planes is cached until planes of another group are
    read."""
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
                    block = array[first : min(first + depth, shape[0])]
                    require_unmasked(block, name)
                    cached[first] = np.asarray(block)
            except MemoryError:
                raise
            except Exception as error:  # libraries raise many types of errors for damaged data
                reason = str(error) or type(error).__name__
                raise InputError(f"{name} cannot be read at plane {first}: {reason}") from error
        return cached[first]

    def planes(z0: int, z1: int) -> Array:
        parts = [decoded(first)[max(z0 - first, 0) : z1 - first] for first in range(z0 // depth * depth, z1, depth)]
        if z1 == shape[0]:
            cached.clear()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return InputArray(name, shape, planes, axes)


def _chunk_planes(array: Any) -> int:
    """Return the number of planes in a chunk. `chunks` contains one size for each axis (Zarr and HDF5), or the sizes of
    all chunks along each axis (Dask)."""
    chunks = getattr(array, "chunks", None)
    if not chunks:
        return 1 if len(array.shape) > 1 else int(array.shape[0])  # single cells would be slow to read
    return max(chunks[0]) if isinstance(chunks[0], tuple) else int(chunks[0])


@contextlib.contextmanager
def _one_chunk_at_a_time() -> Iterator[None]:
    """While the body of the `with` runs, let Zarr and Dask decode only one chunk at a time. The function does not
    import a package that is not loaded. To decode one chunk at a time saves memory."""
    with contextlib.ExitStack() as settings:
        if zarr := sys.modules.get("zarr"):
            settings.enter_context(zarr.config.set({"async.concurrency": 1}))
        if dask := sys.modules.get("dask"):
            settings.enter_context(dask.config.set(scheduler="synchronous"))
        yield


def require_solid(name: str, sizes: tuple[int, ...]) -> Shape:
    """Return the sizes as a shape. Raises InputError if the shape does not have one to three sizes, if a size is less
    than 1, or if the array is too large for a disk."""
    shape = tuple(sizes)
    if not 1 <= len(shape) <= 3 or not all(size >= 1 for size in shape):  # Dask may give NaN as a size
        raise InputError(f"{name} has shape {shown(shape)}; one to three axes (nz, ny, nx) of at least 1 are needed")
    if math.prod(shape) >= ADDRESSABLE_BYTES // 16:
        raise InputError(f"{name} has shape {shown(shape)}, which is more than any disk can hold")
    return tuple(int(size) for size in shape)


def named_axes(names: Sequence[str | None]) -> str:
    """Return the letters of the axes, such as "xz", or "" if a name is not z, y or x."""
    letters = [str(name).lower() for name in names]
    return "".join(letters) if set(letters) <= set("zyx") and len(set(letters)) == len(letters) else ""


def require_real(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "buif":
        raise InputError(f"{name} has dtype {dtype}; only real numbers can be initial values")


def plane_groups(shape: Shape, itemsize: int, group_bytes: int = GROUP_BYTES) -> Iterator[tuple[int, int]]:
    """Divide the planes of an array into groups of about `group_bytes`. Yield the range (z0, z1) of each group, in
    ascending order."""
    count = max(1, group_bytes // (math.prod(shape[1:]) * itemsize))
    for z0 in range(0, shape[0], count):
        yield z0, min(z0 + count, shape[0])


def arrange(array: InputArray, axes: str, cache_bytes: int) -> InputArray:
    """Return the array with its axes in the order z, y, x. `axes` contains the letters of the array's axes, slowest
    first, or is "" to keep the order. Raises InputError if the letters are not z, y and x, or if their number is wrong.

    If the reordering gives `array` a new first axis, all values of `array` are read approximately (bytes of `array` /
    `cache_bytes`) times."""
    if isinstance(axes, str) and not axes:
        return array
    if not isinstance(axes, str) or not set(axes) <= set(LETTERS) or len(set(axes)) != len(axes):
        raise InputError(f"axes {shown(axes)} of {array.name} are not known; write different letters of z, y and x")
    if len(axes) != len(array.shape):
        raise InputError(f"axes {axes!r} of {array.name}: it has shape {array.shape}, give a letter for each axis")
    letters = "".join(letter for letter in LETTERS if letter in axes)
    order = tuple(axes.index(letter) for letter in letters)
    if letters == axes:
        return replace(array, axes=letters)
    if order[0] == 0:
        shape = tuple(array.shape[axis] for axis in order)
        return InputArray(array.name, shape, lambda z0, z1: array.planes(z0, z1).transpose(order), letters)
    return from_chunks(array.name, _Across(array, order), cache_bytes, letters)


class _Across:
    """An input array whose axes were reordered, so that it has a new first axis. The class has the interface of a
    chunked array. The only chunk is the whole array."""

    def __init__(self, array: InputArray, order: tuple[int, ...]) -> None:
        self._array, self._order = array, order
        self.shape = self.chunks = tuple(array.shape[axis] for axis in order)
        self.dtype = np.asarray(array.planes(0, 1)).dtype

    def __getitem__(self, wanted: slice) -> Array:
        array, cut = self._array, [slice(None)] * len(self.shape)
        cut[self._order[0]] = wanted
        sizes = [len(range(size)[part]) for size, part in zip(array.shape, cut, strict=True)]
        result = np.empty(sizes, self.dtype)
        for z0, z1 in plane_groups(array.shape, self.dtype.itemsize):
            result[z0:z1] = array.planes(z0, z1)[(slice(None), *cut[1:])]
        return result.transpose(self._order)


def can_lift(array: InputArray, ndim: int) -> bool:
    """Return True if `array` fits a grid of `ndim` axes: at most `ndim` axes of `array` have more than one sample."""
    return sum(size > 1 for size in array.shape) <= ndim


def lift(array: InputArray, ndim: int) -> InputArray:
    """Return `array` on the engine's three axes, for a grid of `ndim` axes. The result has one sample along each axis
    that `array` does not have.

    If `array` has as many axes as the grid, the axes keep their order. If `array` has fewer axes than the grid, the
    letters of its axes name axes of the grid. If the letters are unknown, the axes of a section are (z, x), and the
    axis of a profile is (x). If `array` has more axes than the grid, axes of one sample are removed, beginning with the
    first. Raises InputError if more axes remain than the grid has."""
    kept = _kept_axes(array, ndim)
    letters = array.axes if len(kept) < ndim else ""
    places = [_place(letter, ndim) for letter in letters] or PLACES[len(kept)]
    sizes = [1, 1, 1]
    for axis, place in zip(kept, places, strict=True):
        sizes[place] = array.shape[axis]
    shape = (sizes[0], sizes[1], sizes[2])
    along_z = sizes[0] == array.shape[0]
    whole: list[Array] = []

    def planes(z0: int, z1: int) -> Array:
        if along_z:
            return np.asarray(array.planes(z0, z1)).reshape(z1 - z0, *shape[1:])
        if not whole:  # the first axis of the array is not the axis z of the grid, so the whole array is read
            whole.append(np.asarray(array.planes(0, array.shape[0])).reshape(shape))
        block = whole[0][z0:z1]
        if z1 == shape[0]:
            whole.clear()
        return block

    return InputArray(array.name, shape, planes)


def _kept_axes(array: InputArray, ndim: int) -> list[int]:
    if not can_lift(array, ndim):
        raise InputError(f"{array.name} has shape {array.shape}, the grid {axes_text(ndim)}; take a slice")
    kept = list(range(len(array.shape)))
    for axis, size in enumerate(array.shape):
        if len(kept) > ndim and size == 1:
            kept.remove(axis)
    return kept


def _place(letter: str, ndim: int) -> int:
    """Return the number of the engine's axis that a letter names. On a grid of two axes, both "z" and "y" name the
    first axis."""
    if ndim == 2 and letter == "z":
        letter = "y"
    return PLACES[ndim][NAMES[ndim].index(letter)]
