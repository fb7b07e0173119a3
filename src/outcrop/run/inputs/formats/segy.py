"""SEG-Y files, through segyio: traces are columns of the grid, their samples (of depth or time) lie along z.

A volume is (samples, inlines, crosslines) = (z, y, x); a section is (samples, traces) = (z, x), traces in the order of
the file. Format: SEG-Y rev 1, Society of Exploration Geophysicists 2002; inline and crossline numbers are expected at
bytes 189 and 193 of the trace headers, as there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from outcrop.errors import InputError
from outcrop.paths import require_regular
from outcrop.run.inputs.formats.binary import PIECE_BYTES
from outcrop.run.inputs.input_array import Array, InputArray, from_chunks


def open_segy(path: Path, variable: str, cache_bytes: int) -> InputArray:
    """A section or a volume. A plane takes one sample of every trace, so the file is read about size / `cache_bytes`
    times, a few traces at a time.

    Raises InputError for files that are none, that are cut short, and for traces that are not stacked.
    """
    try:
        import segyio
    except ImportError:
        raise InputError(f"{path}: reading SEG-Y needs segyio: pip install 'outcrop[segy]'") from None
    require_regular(path)
    try:
        file = segyio.open(str(path), "r", strict=False)
        traces = _Traces(file)
    except MemoryError:
        raise
    except Exception as error:  # headers are believed, so wrong ones fail in many ways
        raise InputError(f"{path} cannot be read as SEG-Y, or is cut short: {error}") from None
    if not file.unstructured and len(file.offsets) > 1:
        raise InputError(f"{path} has {len(file.offsets)} offsets at each place; only stacked traces are a model")
    return from_chunks(str(path), traces, cache_bytes)


class _Traces:
    """An open file as an array of one chunk, of shape (samples, traces) or (samples, inlines, crosslines)."""

    def __init__(self, file: Any) -> None:
        import segyio

        self._file = file
        samples, traces = len(file.samples), file.tracecount
        self._order: tuple[int, ...] = (traces,)
        self._crosslines_first = False
        lines = () if file.unstructured else (len(file.ilines), len(file.xlines))
        if lines and lines[0] * lines[1] == traces and min(lines) > 1:
            self._crosslines_first = file.sorting == segyio.TraceSortingFormat.CROSSLINE_SORTING
            self._order = lines[::-1] if self._crosslines_first else lines
        self.shape = (samples, *(self._order[::-1] if self._crosslines_first else self._order))
        self.dtype, self.chunks = np.dtype(file.dtype), self.shape

    def __del__(self) -> None:
        self._file.close()

    def __getitem__(self, wanted: slice) -> Array:
        """Planes of a slice of samples."""
        samples, traces = self.shape[0], self._file.tracecount
        columns = np.empty((traces, len(range(samples)[wanted])), self.dtype)
        group = max(1, PIECE_BYTES // (samples * self.dtype.itemsize))
        for first in range(0, traces, group):
            last = min(first + group, traces)
            columns[first:last] = self._file.trace.raw[first:last][:, wanted]
        planes = columns.reshape(*self._order, -1)
        if self._crosslines_first:
            planes = planes.swapaxes(0, 1)
        return np.moveaxis(planes, -1, 0)
