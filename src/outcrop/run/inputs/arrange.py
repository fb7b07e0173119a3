"""Axes in another order: a Source whose planes are cut out of those of another one, in little memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from outcrop.axes import NAMES
from outcrop.errors import InputError, shown
from outcrop.run.inputs.source import Array, Source, chunked_source, plane_groups

LETTERS = "".join(NAMES[3])
SWEEP_BYTES = 4 << 20
"""About how much of a Source is read at a time while all of it is gone through for a few planes."""


def arrange(source: Source, axes: str, cache_bytes: int) -> Source:
    """The Source with its axes in the order z, y, x, whose own are called `axes`, slowest first; "" changes nothing.

    Where planes lie across those of `source`, it is read about size / `cache_bytes` times.
    Raises InputError for letters that are no axes, and unless there is one for each axis.
    """
    if isinstance(axes, str) and not axes:
        return source
    if not isinstance(axes, str) or not set(axes) <= set(LETTERS) or len(set(axes)) != len(axes):
        raise InputError(f"axes {shown(axes)} of {source.name} are not known; write different letters of z, y and x")
    if len(axes) != len(source.shape):
        raise InputError(f"axes {axes!r} of {source.name}: it has shape {source.shape}, give a letter for each axis")
    letters = "".join(letter for letter in LETTERS if letter in axes)
    order = tuple(axes.index(letter) for letter in letters)
    if letters == axes:
        return replace(source, axes=letters)
    if order[0] == 0:
        shape = tuple(source.shape[axis] for axis in order)
        return Source(source.name, shape, lambda z0, z1: source.planes(z0, z1).transpose(order), letters)
    return chunked_source(source.name, _Across(source, order), cache_bytes, letters)


class _Across:
    """A Source with its axes in another `order`, as an array of one chunk."""

    def __init__(self, source: Source, order: tuple[int, ...]) -> None:
        self._source, self._order = source, order
        self.shape = self.chunks = tuple(source.shape[axis] for axis in order)
        self.dtype = np.asarray(source.planes(0, 1)).dtype

    def __getitem__(self, wanted: slice) -> Array:
        """Planes of a slice of the first axis."""
        source, cut = self._source, [slice(None)] * len(self.shape)
        cut[self._order[0]] = wanted
        sizes = [len(range(size)[part]) for size, part in zip(source.shape, cut, strict=True)]
        result = np.empty(sizes, self.dtype)
        for z0, z1 in plane_groups(source.shape, self.dtype.itemsize, SWEEP_BYTES):
            result[z0:z1] = source.planes(z0, z1)[(slice(None), *cut[1:])]
        return result.transpose(self._order)
