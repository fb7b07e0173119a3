"""`sim["u"]`: a field on disk that is indexed like an array; only the planes asked for are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcrop.errors import CorruptionError, InputError
from outcrop.run.planes import Planes
from outcrop.run.source import Source
from outcrop.run.state import State

READ_ATTEMPTS = 3
"""How often to read what another process overwrites meanwhile."""


class PlanesView(ABC):
    """Something of shape (nz, ny, nx) that is indexed like an array and read by planes."""

    ndim = 3
    shape: tuple[int, int, int]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        """What `array[index]` gives for an index of whole numbers, slices and one `...`, as a new NumPy array.

        Raises IndexError outside the grid, CorruptionError for damaged planes, InputError while there are no values.
        """
        z_index, rest = _split(index)
        planes = range(self.shape[0])[z_index]  # raises IndexError, understands negative numbers
        one = isinstance(planes, int)
        wanted = range(planes, planes + 1) if isinstance(planes, int) else planes
        inside = np.empty(self.shape[1:], dtype=[])[rest].shape  # of no bytes: only the shape of the result
        result: NDArray[Any] = np.empty((len(wanted), *inside), dtype=self.dtype)
        done = 0
        for block in self._read(wanted):
            result[done : done + len(block)] = block[(slice(None), *rest)]
            done += len(block)
        return result[0] if one else result

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a field on disk cannot become an array without a copy")
        return np.asarray(self[...], dtype=dtype)

    @abstractmethod
    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        """The planes `wanted` in their order, a few at a time; each array is valid until the next."""


class SourceView(PlanesView):
    """Initial values, before any run: a file as `--init` names it."""

    def __init__(self, source: Source) -> None:
        self._source, self.shape = source, source.shape
        self.dtype = np.asarray(source.planes(0, 1)).dtype

    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        for z in wanted:
            yield np.asarray(self._source.planes(z, z + 1))


class FieldView(PlanesView):
    """The committed values of a field, shape (nz, ny, nx). Indexing reads planes and tests their checksums."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.shape = state.manifest.shape
        self.dtype = np.dtype(state.manifest.dtype)

    def __getitem__(self, index: Any) -> Any:
        """As for every view, and of one generation even while another process goes on with the run.

        A pass that follows a commit overwrites what is being read here, so what was read across a commit is read again.
        """
        state = self._state
        for _ in range(READ_ATTEMPTS):
            state.refresh()
            generation = state.manifest.generation
            try:
                result = super().__getitem__(index)
            except CorruptionError:
                state.refresh()
                if state.manifest.generation == generation:
                    raise
                continue
            state.refresh()
            if state.manifest.generation == generation:
                return result
        raise InputError(f"{state.path} changes faster than it can be read: another process is running it")

    def __repr__(self) -> str:
        manifest = self._state.manifest
        return f"<field {manifest.field_name!r} {self.shape} {self.dtype} at step {manifest.step}>"

    def _read(self, wanted: range) -> Iterator[NDArray[np.floating[Any]]]:
        state = self._state
        if not state.has_values:
            raise InputError(f"{state.path} holds no values yet; assign sim[{state.manifest.field_name!r}] first")
        if not wanted:
            return
        with Planes(state.current_files(), state.layout) as planes:
            pieces = [(wanted.start, wanted.stop)] if wanted.step == 1 else [(z, z + 1) for z in wanted]
            for z0, z1 in pieces:
                for _, block in planes.groups(z0, z1):
                    yield block


def _split(index: Any) -> tuple[int | slice, tuple[int | slice, ...]]:
    """Index of z, and of (y, x), of `array[index]` on three axes."""
    parts = list(index) if isinstance(index, tuple) else [index]
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    if dots:
        parts[dots[0] : dots[0] + 1] = [slice(None)] * (3 - (len(parts) - 1))
    parts += [slice(None)] * (3 - len(parts))
    whole = [part if isinstance(part, slice) else _whole_number(part) for part in parts]
    if len(whole) != 3:
        raise IndexError(f"a field has three axes (z, y, x), not {len(whole)}")
    return whole[0], tuple(whole[1:])


def _whole_number(part: Any) -> int:
    try:
        return int(part.__index__())
    except AttributeError:
        raise IndexError(f"a field is indexed by whole numbers, slices and ..., not by {part!r}") from None
