"""Values with fewer axes than a grid has, among the three axes inside."""

from __future__ import annotations

import numpy as np

from outcrop.axes import NAMES, PLACES, axes_text
from outcrop.errors import InputError
from outcrop.run.inputs.source import Array, Source


def can_lift(source: Source, ndim: int) -> bool:
    """Whether `source` has no more axes than `ndim`, not counting those of one sample."""
    return sum(size > 1 for size in source.shape) <= ndim


def lift(source: Source, ndim: int) -> Source:
    """`source` on the three axes inside of a grid of `ndim` axes, with one sample along those it does not have.

    With as many axes as the grid they correspond in their order. With fewer they go where their letters say, without
    letters a section is (z, x), a profile (x). With more, those of one sample are left out, first to last.
    Raises InputError when that leaves too many.
    """
    kept = _kept_axes(source, ndim)
    letters = source.axes if len(kept) < ndim else ""
    places = [_place(letter, ndim) for letter in letters] or PLACES[len(kept)]
    sizes = [1, 1, 1]
    for axis, place in zip(kept, places, strict=True):
        sizes[place] = source.shape[axis]
    shape = (sizes[0], sizes[1], sizes[2])
    along_z = sizes[0] == source.shape[0]
    whole: list[Array] = []

    def planes(z0: int, z1: int) -> Array:
        if along_z:
            return np.asarray(source.planes(z0, z1)).reshape(z1 - z0, *shape[1:])
        if not whole:  # what lies along z is a single plane of the source
            whole.append(np.asarray(source.planes(0, source.shape[0])).reshape(shape))
        block = whole[0][z0:z1]
        if z1 == shape[0]:
            whole.clear()
        return block

    return Source(source.name, shape, planes)


def _kept_axes(source: Source, ndim: int) -> list[int]:
    if not can_lift(source, ndim):
        raise InputError(f"{source.name} has shape {source.shape}, the grid {axes_text(ndim)}; take a slice")
    kept = list(range(len(source.shape)))
    for axis, size in enumerate(source.shape):
        if len(kept) > ndim and size == 1:
            kept.remove(axis)
    return kept


def _place(letter: str, ndim: int) -> int:
    """The axis inside that a grid of `ndim` axes calls by a letter; of two axes the first is z as well as y."""
    if ndim == 2 and letter == "z":
        letter = "y"
    return PLACES[ndim][NAMES[ndim].index(letter)]
