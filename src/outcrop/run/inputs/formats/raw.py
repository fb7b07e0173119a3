"""Raw binary files: numbers and nothing else, so the text that names one says what they are.

    raw:FILE:DTYPE:SIZES[:OFFSET]        raw:vp.bin:float32:401,1601        raw:head.img:>i2:256,256,109:1024

SIZES are NX,NY,NZ, NX,NZ or NX, the axis along which neighbours lie side by side first, as for `-n`. DTYPE is NumPy's
name; "<" and ">" before a short one choose the order of bytes. OFFSET is the number of bytes before the first cell.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import numpy as np

from outcrop.errors import InputError, shown
from outcrop.paths import open_regular
from outcrop.run.inputs.formats.cells import PlainCells, cells_source
from outcrop.run.inputs.source import Source, require_real, require_solid

PREFIX = "raw:"
_FORM = re.compile(r"raw:(?P<path>.+):(?P<dtype>[^:,\d][^:,]*):(?P<sizes>[0-9]{1,19}(?:,[0-9]{1,19}){0,2})"
                   r"(?::(?P<offset>[0-9]{1,19}))?")  # fmt: skip


def raw_source(text: str, cache_bytes: int) -> Source:
    """The array that `text` describes. Raises InputError when it does not, or the file is missing or too small."""
    match = _FORM.fullmatch(text)
    if not match:
        raise InputError(
            f"{shown(text)} is not understood; write raw:FILE:DTYPE:NX,NY,NZ[:OFFSET], as in "
            "raw:vp.bin:float32:401,1601"
        )
    path, offset = Path(match["path"]), int(match["offset"] or 0)
    shape = tuple(int(size) for size in reversed(match["sizes"].split(",")))
    try:
        dtype = np.dtype(match["dtype"])
    except Exception:  # NumPy raises many kinds for what is none
        raise InputError(
            f"{text}: dtype {match['dtype']!r} is unknown; write for example float32, >f4 or int16"
        ) from None
    require_real(str(path), dtype)
    require_solid(text, shape)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
    needed = offset + dtype.itemsize * math.prod(shape)
    if size < needed:
        raise InputError(f"{text}: {path} is cut short, or the sizes are wrong: it has {size} bytes, not {needed}")
    if size > needed:
        raise InputError(f"{text}: {path} has {size} bytes, {size - needed} more than offset and sizes need ({needed})")
    return cells_source(str(path), PlainCells(path), offset, shape, dtype, False, cache_bytes)
