"""The oracle: steps of a stencil in NumPy, slow and simple. The oracle defines the bits of every kernel and scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.language.boundary import FIXED, Boundary, Side
from outcrop.language.program import CellCount, CellIndex, Load, Program, evaluate
from outcrop.language.sparse import Injection, Sampling
from outcrop.language.stencil import PREVIOUS, Stencil

Cells: TypeAlias = NDArray[np.floating]
Signals: TypeAlias = Mapping[str, Sequence[float]]


def advance(
    stencil: Stencil, array: Cells, values: Mapping[str, float], steps: int, boundary: Boundary = FIXED
) -> Cells:
    """Return the values of `array` after `steps` steps of a stencil with one field. The shape is (nz, ny, nx), and the
    dtype stays the same.

    `values` are the parameters that differ from their defaults.
    """
    (field,) = stencil.fields
    return advance_fields(stencil, {field.name: array}, values, steps, boundary)[field.name]


def advance_fields(
    stencil: Stencil,
    state: Mapping[str, Cells],
    values: Mapping[str, float],
    steps: int,
    boundary: Boundary = FIXED,
    signals: Signals | None = None,
    first_step: int = 0,
    injections: Sequence[Injection] = (),
) -> dict[str, Cells]:
    """Return the arrays of `state` after `steps` steps. The first of these steps has the number `first_step`. The shape
    is (nz, ny, nx), and the dtypes stay the same.

    `state` has each field of the stencil. If a step needs the previous values of a field u, `state` also has
    "u.previous". Each of `signals` has one value for each step, beginning with step 0. A signal that is missing in
    `signals` has the number of the step as its value.
    """
    return record_fields(stencil, state, values, steps, boundary, signals, first_step, injections).state


@dataclass(frozen=True)
class Recorded:
    """The result of `advance_fields`, and a dictionary with the traces of the samplings. A trace is a float64 array of
    shape (steps, points).
    """

    state: dict[str, Cells]
    traces: dict[str, NDArray[np.float64]]


def record_fields(
    stencil: Stencil,
    state: Mapping[str, Cells],
    values: Mapping[str, float],
    steps: int,
    boundary: Boundary = FIXED,
    signals: Signals | None = None,
    first_step: int = 0,
    injections: Sequence[Injection] = (),
    samplings: Sequence[Sampling] = (),
) -> Recorded:
    """Advance the fields as `advance_fields` does, and also record the traces of `samplings`."""
    run = _Run(stencil, state, values, boundary, signals or {})
    sources = [injection.resolved(run.read) for injection in injections]
    traces = {sampling.name: np.zeros((steps, len(sampling.cells))) for sampling in samplings}
    for step in range(first_step, first_step + steps):
        row = step - first_step
        run.sample([one for one in samplings if one.before], traces, row)
        for number in range(len(stencil.stages)):
            run.perform(number, step)
            for source in sources:
                if run.last_update[source.field] == number:
                    run.inject(source, step)
        run.sample([one for one in samplings if not one.before], traces, row)
    return Recorded(run.state(), traces)


class _Run:
    """The newest and the previous values of each field."""

    def __init__(
        self, stencil: Stencil, state: Mapping[str, Cells], values: Mapping[str, float], boundary: Boundary,
        signals: Signals,
    ) -> None:  # fmt: skip
        self.stencil, self.boundary, self.signals = stencil, boundary, signals
        self.names = [field.name for field in stencil.fields]
        self.newest = [state[name].copy() for name in self.names]
        self.previous = [state.get(name + PREVIOUS, np.full_like(state[name], np.nan)).copy() for name in self.names]
        self.parameters = stencil.scalars(values)
        self.last_update = {
            self.names[field]: number for number, stage in enumerate(stencil.stages) for field in stage.targets
        }
        rims = zip(boundary.rims(stencil.radii), self.newest[0].shape, strict=True)
        self.inner = tuple(slice(min(low, n), max(min(low, n), n - high)) for (low, high), n in rims)

    def perform(self, number: int, step: int) -> None:
        stage = self.stencil.stages[number]
        signals = (self.signals[name][step] if name in self.signals else step for name in self.stencil.signals)
        scalars = (*self.parameters, *signals)
        results = self._compute(stage.program, scalars)
        for field, result in zip(stage.targets, results, strict=True):
            updated = self.newest[field].copy()
            updated[self.inner] = result
            self.previous[field], self.newest[field] = self.newest[field], updated

    def read(self, field: str, cells: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the newest values of a field at `cells`, which have the shape (..., 3)."""
        z, y, x = np.moveaxis(cells, -1, 0)
        values: NDArray[np.float64] = self.newest[self.names.index(field)][z, y, x].astype(np.float64)
        return values

    def inject(self, source: Injection, step: int) -> None:
        """Add the values of a source at one step."""
        array = self.newest[self.names.index(source.field)]
        for cells, weights, value in zip(source.cells, source.weights, source.values[step], strict=True):
            for cell, weight in zip(cells, weights, strict=True):
                array[tuple(cell)] += array.dtype.type(weight * value)

    def sample(self, samplings: Sequence[Sampling], traces: Mapping[str, NDArray[np.float64]], row: int) -> None:
        """Add the current samples to one row of the traces."""
        for one in samplings:
            total = np.zeros(len(one.cells))
            for corner in range(one.cells.shape[1]):
                total += one.weights[:, corner] * self.read(one.field, one.cells[:, corner])
            traces[one.name][row] += total

    def state(self) -> dict[str, Cells]:
        """Return the newest values of each field, and the previous values that the next step needs."""
        found = dict(zip(self.names, self.newest, strict=True))
        for name, previous, storage in zip(self.names, self.previous, self.stencil.storage, strict=True):
            if storage.history == 2:
                found[name + PREVIOUS] = previous
        return found

    def _compute(self, program: Program, scalars: Sequence[float]) -> list[Any]:
        """Return the results of a program for all cells outside the rim."""
        dtype = self.newest[0].dtype.type

        def load(one: Load) -> Cells:
            return self._shifted((self.newest, self.previous)[one.age][one.field], one.offset)

        def position(one: CellIndex | CellCount) -> Any:
            if isinstance(one, CellCount):
                return self.newest[0].shape[one.axis]
            inner = self.inner[one.axis]
            shape = [1, 1, 1]
            shape[one.axis] = inner.stop - inner.start
            return np.arange(inner.start, inner.stop).reshape(shape)

        return evaluate(program, load, scalars, dtype, position)

    def _shifted(self, array: Cells, offset: tuple[int, int, int]) -> Cells:
        ranges = [range(inner.start + step, inner.stop + step) for inner, step in zip(self.inner, offset, strict=True)]
        return seen_cells(array, ranges, self.boundary.sides)


def group_means(cells: Cells, group: Sequence[int]) -> Cells:
    """Return the means of groups of cells. Each group has group[0] x group[1] x group[2] cells along z, y and x. The
    last group along an axis may have fewer cells. The cells of a group are added along x, then along z, and then along
    y, in ascending order and in float64."""
    sums, count = cells.astype(np.float64), np.ones(cells.shape)
    for axis in (2, 0, 1):
        sums, count = (_group_sums(array, axis, group[axis]) for array in (sums, count))
    found: Cells = (sums / count).astype(cells.dtype)
    return found


def _group_sums(array: Cells, axis: int, size: int) -> Cells:
    every = np.moveaxis(array, axis, 0)
    sums = every[::size].copy()
    for place in range(1, size):
        more = every[place::size]
        sums[: len(more)] += more
    return np.moveaxis(sums, 0, axis)


def seen_cells(array: Cells, ranges: Sequence[range], sides: Sequence[tuple[Side, Side]]) -> Cells:
    """Return the values at these ranges of indices, as a stencil reads them. The ranges may extend beyond the grid. The
    result may be a view of the array, because NumPy reads a slice much faster than a list of indices."""
    for axis, (wanted, extent, along) in enumerate(zip(ranges, array.shape, sides, strict=True)):
        if wanted.start >= 0 and wanted.stop <= extent:
            array = array[(slice(None),) * axis + (slice(wanted.start, wanted.stop),)]
        else:
            array = array.take(seen_from(np.arange(wanted.start, wanted.stop), extent, along), axis)
    return array


def seen_from(index: Any, extent: int, sides: tuple[Side, Side]) -> Any:
    """Convert indices to indices inside the grid. A read at an index outside the grid gets the value at the converted
    index."""
    if sides[0] == "periodic":
        return index % extent
    folded = index % (2 * extent)  # with mirrors on both sides, the grid and its mirror image alternate
    return np.minimum(folded, 2 * extent - 1 - folded)
