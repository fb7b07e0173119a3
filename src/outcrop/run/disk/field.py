"""`sim["u"]`: a field on disk that is indexed like an array; only the planes asked for are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcrop.axes import Shape, axes_text
from outcrop.errors import CorruptionError, InputError
from outcrop.run.disk.state import State
from outcrop.run.inputs.source import Source

READ_ATTEMPTS = 3
"""How often to read what another process overwrites meanwhile."""


class PlanesView(ABC):
    """Something of one to three axes that is indexed like an array and read along the first of them: by planes, by rows
    where there are two axes, by cells where there is one."""

    shape: Shape
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        """What `array[index]` gives for an index of whole numbers, slices and one `...`, as a new NumPy array.

        Raises IndexError outside the grid, CorruptionError for damaged planes, InputError while there are no values.
        """
        z_index, rest = _split(index, self.ndim)
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
        """The planes `wanted` in their order, a few at a time, shape (some, *shape[1:]); each array is valid until the
        next."""


class SourceView(PlanesView):
    """Initial values, before any run: a file as `--init` names it."""

    def __init__(self, source: Source) -> None:
        self._source, self.shape = source, source.shape
        self.dtype = np.asarray(source.planes(0, 1)).dtype

    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        if self.ndim == 1:  # cell by cell would read a file again for each
            yield np.asarray(self._source.planes(0, self.shape[0]))[np.arange(wanted.start, wanted.stop, wanted.step)]
            return
        for z in wanted:
            yield np.asarray(self._source.planes(z, z + 1))


class FieldView(PlanesView):
    """The committed values of the array `name`, on the user's own grid. Indexing reads planes and tests their
    checksums."""

    def __init__(self, state: State, name: str) -> None:
        self._state, self.name = state, name
        self.shape = state.manifest.own_shape
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
        return f"<field {self.name!r} {self.shape} {self.dtype} at step {manifest.step}>"

    def _read(self, wanted: range) -> Iterator[NDArray[np.floating[Any]]]:
        state = self._state
        state.current_files_of(self.name)  # raises where there are no values
        if not wanted:
            return
        first, *rest = state.manifest.padding
        inside = tuple(slice(pad, pad + n) for pad, n in zip(rest, self.shape[1:], strict=True))
        wanted = range(wanted.start + first, wanted.stop + first, wanted.step)
        with state.planes_of(self.name) as planes:
            if self.ndim == 1:  # a single plane has all cells
                yield planes.read(0, 1)[0, 0, np.arange(wanted.start, wanted.stop, wanted.step)]
                return
            pieces = [(wanted.start, wanted.stop)] if wanted.step == 1 else [(z, z + 1) for z in wanted]
            for z0, z1 in pieces:
                for _, block in planes.groups(z0, z1):
                    yield (block if self.ndim == 3 else block[:, 0])[(slice(None), *inside)]


def _split(index: Any, ndim: int) -> tuple[int | slice, tuple[int | slice, ...]]:
    """Index of the first axis, and of the others, of `array[index]` on `ndim` axes."""
    parts = list(index) if isinstance(index, tuple) else [index]
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    if dots:
        parts[dots[0] : dots[0] + 1] = [slice(None)] * (ndim - (len(parts) - 1))
    parts += [slice(None)] * (ndim - len(parts))
    whole = [part if isinstance(part, slice) else _whole_number(part) for part in parts]
    if len(whole) != ndim:
        raise IndexError(f"a field has {axes_text(ndim)} here, not {len(whole)}")
    return whole[0], tuple(whole[1:])


def _whole_number(part: Any) -> int:
    try:
        return int(part.__index__())
    except AttributeError:
        raise IndexError(f"a field is indexed by whole numbers, slices and ..., not by {part!r}") from None
