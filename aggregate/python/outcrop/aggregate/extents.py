"""An extent describes bytes of a file, and the places of these bytes in the memory of a rank. The core defines extents
in aggregate/decision/extent.hpp.

    contiguous   one range of bytes without gaps
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
"""The type of an extent. `nbytes`, `begin` and `end` describe bytes of the file, and `memory_nbytes` describes the
memory.
"""

LARGEST = 2**64 - 1


def contiguous(offset: int, nbytes: int, *, memory_offset: int = 0) -> Extent:
    """Return an extent of `nbytes` bytes. The extent begins at byte `offset` of the file and at byte `memory_offset` of
    the variable's memory.

    Raises InputError for impossible numbers, such as negative ones.
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
    """Return an extent of `count` blocks of `block_bytes` bytes. In the file, a block begins every `stride_bytes`
    bytes. In memory, a block begins every `memory_stride_bytes` bytes. With a memory stride of 0, the blocks are
    adjacent in memory.

    Raises InputError for impossible numbers, such as negative ones, and for blocks that overlap.
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
    """Return an extent for a part of an array of `shape` in C order. The part begins at the indices `starts` and has
    the shape `subshape`.

    The whole array begins at byte `offset` of the file. In memory, the part is contiguous. Raises InputError if the
    part is not inside the array.
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
