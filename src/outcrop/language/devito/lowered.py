"""What a list of Devito objects means to Outcrop, and what has been read of them.

Devito reads sources, coordinates, Constants and functions of time when an operator is applied; here they are read once,
and a change behind that would have no effect, so it is noticed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.language.boundary import Boundary
from outcrop.language.sparse import Injection, Sampling
from outcrop.language.stencil import PREVIOUS, Stencil

Reader: TypeAlias = Callable[[], Any]


class Taken:
    """Remembers checksums of values, by the names that users know, to notice changes."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = dict(readers)
        self._before = {name: _digest(read()) for name, read in self._readers.items()}

    def changed(self) -> str | None:
        """The first name whose values have changed; None if there is none."""
        return next((name for name, read in self._readers.items() if _digest(read()) != self._before[name]), None)


@dataclass(frozen=True, eq=False)
class Lowered:
    """A stencil, and what a run of it needs.

    Arrays have `shape` (nz, ny, nx): Devito's grid, its first dimension being our z and its last our x, with
    `padding` cells before and behind it along each axis. Grids of two dimensions have ny = 1, those of one nz = ny =
    1. `spacing` and `origin`, where the arrays' cell (0, 0, 0) lies, are in the grid's units and follow z, y, x, and
    so do `dimensions`, the names of Devito's ("" for axes that the grid does not have).

    Devito updates every cell of its grid and reads a halo around it that no equation changes: zeros, if the user has
    not set it. The padding is this halo, as thick as the stencil's radii, and with the boundary `fixed`, whose rim is
    just as thick, the cells that are updated are those of Devito's grid, and all of them have its values. Where
    `from_devito` was given another boundary there is no padding, and the halo does not matter.

    `first_time` is Devito's number of step 0: 1 where something reads t - dt, else 0. The values of `injections` and
    `signals` begin there. `functions` are Devito's objects by the names of fields, `receivers` those of samplings;
    `taken` knows what has been read of them.
    """

    stencil: Stencil
    shape: tuple[int, int, int]
    padding: tuple[int, int, int]
    dtype: str
    spacing: tuple[float, float, float]
    origin: tuple[float, float, float]
    dimensions: tuple[str, str, str]
    boundary: Boundary
    injections: tuple[Injection, ...]
    samplings: tuple[Sampling, ...]
    signals: Mapping[str, NDArray[np.float64]]
    static_fields: tuple[str, ...]
    functions: Mapping[str, Any]
    receivers: Mapping[str, Any]
    first_time: int
    taken: Taken

    @property
    def inside(self) -> tuple[slice, slice, slice]:
        """The part of the arrays that is Devito's grid."""
        z, y, x = (slice(pad, extent - pad) for pad, extent in zip(self.padding, self.shape, strict=True))
        return z, y, x

    @property
    def max_steps(self) -> int | None:
        """The maximum number of steps of sources, signals and receivers; None if there are none."""
        lengths = [one.steps for one in self.injections] + [len(values) for values in self.signals.values()]
        lengths += [one.shape[0] - self.first_time for one in self.receivers.values()]
        return min(lengths, default=None)

    def put_traces(self, traces: Mapping[str, NDArray[np.float64]], first_step: int = 0) -> None:
        """Put what was sampled, of shape (steps, points) by name, into the receivers' `.data`, where Devito would.

        Raises InputError, with nothing changed, when a receiver has no room for so many steps.
        """
        first = self.first_time + first_step
        for name, trace in traces.items():
            room = self.receivers[name].shape[0] - first
            if len(trace) > room:
                raise InputError(f"{name} has room for {room} of {len(trace)} steps; make its nt larger")
        for name, trace in traces.items():
            self.receivers[name].data[first : first + len(trace)] = trace

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of all initial arrays: each field, and "u.previous" if a step needs two values of u."""
        names = [field.name for field in self.stencil.fields]
        pairs = zip(names, self.stencil.storage, strict=True)
        return (*names, *(name + PREVIOUS for name, storage in pairs if storage.history == 2))

    def initial(self, name: str) -> NDArray[np.floating] | None:
        """What the user has put into a Function's `.data`, halo included, as an array of `shape`; None where `.data`
        has not been touched, which Devito takes for zeros.

        `name` is one of `state_names`. Raises InputError when the halo differs between the two times of a field, which
        Devito keeps apart and a fixed rim does not.
        """
        field = name.removesuffix(PREVIOUS)
        function = self.functions[field]
        if function._data is None and function._initializer is None:
            return None
        if field in self.static_fields:
            return self._padded(function, ())
        newest = self.first_time % function.shape_allocated[0]
        if len({self._rim(function, time).tobytes() for time in range(function.shape_allocated[0])}) > 1:
            raise InputError(
                f"{field}: its halo differs between time steps; give all of {field}.data_with_halo the same"
            )
        return self._padded(function, (newest - name.endswith(PREVIOUS),))

    def _padded(self, function: Any, time: tuple[int, ...]) -> NDArray[np.floating]:
        """One time of a function, with as much of its halo as there is padding. Cells beyond the halo, which are never
        read, are 0."""
        axes = [axis for axis in range(3) if self.dimensions[axis]]
        halo = [sizes[0] for sizes in function._size_inhalo[-len(axes) :]]
        cut: list[int | slice] = [*time]
        missing = []
        for axis, left, extent in zip(axes, halo, function.grid.shape, strict=True):
            kept = min(left, self.padding[axis])
            cut.append(slice(left - kept, left + extent + kept))
            missing.append(self.padding[axis] - kept)
        values = np.asarray(function.data_with_halo)[tuple(cut)]
        return np.pad(values, [(width, width) for width in missing]).reshape(self.shape)

    def _rim(self, function: Any, time: int) -> NDArray[np.floating]:
        array = self._padded(function, (time,))
        array[self.inside] = 0
        return array


def taken_from(
    constants: Mapping[str, Any], signals: Mapping[str, Any], sources: Sequence[Any], receivers: Sequence[Any]
) -> Taken:
    """The values that are read of Constants, functions of time, and sparse functions.

    The data of receivers is not read. An object that is a source and a receiver counts as a receiver.
    """
    readers: dict[str, Reader] = {}

    def add(name: str, one: Any, part: str) -> None:
        readers[f"{name}.{part}"] = partial(attrgetter(part), one)

    for name, one in {**constants, **signals}.items():
        add(name, one, "data")
    for one in sources:
        if not any(one is other for other in receivers):
            add(one.name, one, "data")
    for one in (*sources, *receivers):
        if hasattr(one, "interpolation_coeffs"):  # precomputed
            add(one.name, one, "gridpoints_data")
            add(one.name, one, "interpolation_coeffs.data")
        else:
            add(one.name, one, "coordinates.data")
    return Taken(readers)


def _digest(values: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(values).data)
