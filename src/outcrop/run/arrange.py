"""Axes in another order: a Source whose planes are cut out of those of another one, in little memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from outcrop.errors import InputError
from outcrop.run.source import Array, Source, chunked_source, plane_groups

LETTERS = "zyx"
SWEEP_BYTES = 4 << 20
"""About how much of a Source is read at a time while all of it is gone through for a few planes."""


def arrange(source: Source, axes: str, cache_bytes: int) -> Source:
    """The Source of shape (nz, ny, nx) for one whose own axes are called `axes`, slowest first; "" changes nothing.

    Two letters are for values with two axes (a section), one is for a profile; the axes that are not named have one
    sample. Where planes lie across those of `source`, it is read about size / `cache_bytes` times.
    Raises InputError for letters that are no axes, and for too few.
    """
    if not axes:
        return source
    if not isinstance(axes, str) or not set(axes) <= set(LETTERS) or len(set(axes)) != len(axes):
        raise InputError(f"axes {axes!r} of {source.name} are not understood; write different letters of z, y and x")
    own = {3: (0, 1, 2), 2: (0, 2), 1: (2,)}[len(axes)]
    single = [axis for axis in range(3) if axis not in own]
    if any(source.shape[axis] != 1 for axis in single):
        raise InputError(f"axes {axes!r} of {source.name}: it has shape {source.shape}, give a letter for each axis")
    places = dict(zip(axes, own, strict=True))
    order = tuple(places[letter] if letter in places else single.pop(0) for letter in LETTERS)
    if order == (0, 1, 2):
        return replace(source, axes="")
    shape = (source.shape[order[0]], source.shape[order[1]], source.shape[order[2]])
    if order[0] == 0:
        return Source(source.name, shape, lambda z0, z1: source.planes(z0, z1).transpose(order))
    return chunked_source(source.name, _Across(source, order), cache_bytes)


class _Across:
    """A Source with its axes in another `order`, as an array of one chunk."""

    def __init__(self, source: Source, order: tuple[int, ...]) -> None:
        self._source, self._order = source, order
        nz, ny, nx = (source.shape[axis] for axis in order)
        self.shape = self.chunks = (nz, ny, nx)
        self.dtype = np.asarray(source.planes(0, 1)).dtype

    def __getitem__(self, wanted: slice) -> Array:
        """Planes of a slice of z."""
        source, cut = self._source, [slice(None)] * 3
        cut[self._order[0]] = wanted
        sizes = [len(range(size)[part]) for size, part in zip(source.shape, cut, strict=True)]
        result = np.empty(sizes, self.dtype)
        for z0, z1 in plane_groups(source.shape, self.dtype.itemsize, SWEEP_BYTES):
            result[z0:z1] = source.planes(z0, z1)[:, cut[1], cut[2]]
        return result.transpose(self._order)
