"""Which bytes of a file a rank has, and where they lie in its memory. As aggregate/decision/extent.hpp in core says.

    contiguous   one run of bytes
    strided      blocks of equal size, a stride apart
    subarray     a part of an array in C order
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import DTypeLike

from outcrop import _aggregate
from outcrop.errors import InputError, shown

Extent = _aggregate.Extent
"""Made by `contiguous`, `strided` and `subarray`; has `nbytes`, `begin` and `end` in the file, `memory_nbytes`."""

LARGEST = 2**64 - 1


def contiguous(offset: int, nbytes: int, *, memory_offset: int = 0) -> Extent:
    """`nbytes` bytes of the file from byte `offset` on; in the variable's memory from byte `memory_offset` on.

    Raises InputError for numbers that cannot be.
    """
    return _aggregate.contiguous(
        _whole("offset", offset), _whole("nbytes", nbytes), _whole("memory_offset", memory_offset)
    )


def strided(
    offset: int,
    count: int,
    block_bytes: int,
    stride_bytes: int,
    *,
    memory_stride_bytes: int = 0,
    memory_offset: int = 0,
) -> Extent:
    """`count` blocks, a stride apart in the file; in memory, too, or one after the other where that stride is 0.

    Raises InputError for numbers that cannot be, and for blocks that lie on each other.
    """
    return _aggregate.strided(
        _whole("offset", offset),
        _whole("count", count),
        _whole("block_bytes", block_bytes),
        _whole("stride_bytes", stride_bytes),
        _whole("memory_stride_bytes", memory_stride_bytes),
        _whole("memory_offset", memory_offset),
    )


def subarray(
    shape: Sequence[int], subshape: Sequence[int], starts: Sequence[int], dtype: DTypeLike, *, offset: int = 0
) -> Extent:
    """The part of an array of `shape` in C order that begins at the indices `starts` and has `subshape` items.

    The whole array begins at byte `offset` of the file; in memory the part is an array of its own. Raises InputError
    for a part that is not inside.
    """
    try:
        item_bytes = np.dtype(dtype).itemsize
    except TypeError:
        raise InputError(f"dtype {dtype!r} is none of NumPy's") from None
    lists = {"shape": shape, "subshape": subshape, "starts": starts}
    for name, values in lists.items():
        if not isinstance(values, Iterable):
            raise InputError(f"{name} = {shown(values)} must be a list of whole numbers, one for each axis")
    whole = {name: [_whole(name, one) for one in values] for name, values in lists.items()}
    return _aggregate.subarray(
        whole["shape"], whole["subshape"], whole["starts"], item_bytes, _whole("offset", offset)
    )


def _whole(name: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= LARGEST:
        raise InputError(f"{name} = {value!r} must be a whole number from 0 on, of at most 64 bits")
    return number
