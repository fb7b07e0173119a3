"""Gradients that are computed when they are read: `Computed`, and `Corrected`, which adds values in a few cells.

Both are indexed like arrays. They read planes of a run, so a gradient is never in memory as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcrop.language.derivative import Tape
from outcrop.language.linearised import HERE
from outcrop.language.program import Load, Program, evaluate
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.run.disk.values import FieldView, PlanesView
from outcrop.run.forward import GROUP_BYTES

if TYPE_CHECKING:
    from outcrop.run.simulation import Simulation


class Computed(PlanesView):
    """A view of values that a program computes in each cell from the values of a run's fields in this cell."""

    def __init__(
        self, simulation: Simulation, stencil: Stencil, program: Program, scalars: Sequence[float], held: str
    ) -> None:
        """`held` is the field of the adjoint. The result is 0 in cells in which this field is 0."""
        self._program, self._scalars, self._held = program, scalars, held
        self._loads = {
            load: simulation[stencil.fields[load.field].name + PREVIOUS * load.age] for load in program.loads
        }
        first: FieldView = next(iter(self._loads.values()))
        self.shape, self.dtype = first.shape, first.dtype

    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        for _, units in _groups(self, wanted):

            def load(one: Load, units: Any = units) -> NDArray[Any]:
                values: NDArray[Any] = self._loads[one][units]
                return values

            values: NDArray[Any] = evaluate(self._program, load, self._scalars, self.dtype.type)[0]
            held = [load(one) for one in self._loads if self._loads[one].name.removesuffix(PREVIOUS) == self._held]
            yield np.where(
                np.logical_and.reduce([one == 0 for one in held]), 0, values
            )  # a factor in the rim may be NaN


class Corrected(PlanesView):
    """A view of another view, or of an array, with values added in some cells."""

    def __init__(self, base: Any, cells: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """`cells` has the shape (cells, axes), and `values` has the shape (cells,). Values of the same cell are added
        in float64, in the order of `cells`."""
        self.shape, self.dtype, self._base = base.shape, base.dtype, base
        self._cells, place = np.unique(cells, axis=0, return_inverse=True)
        self._values: NDArray[np.float64] = np.zeros(len(self._cells))
        np.add.at(self._values, place.reshape(-1), values)

    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        for part, units in _groups(self, wanted):
            block: NDArray[Any] = np.array(self._base[units])  # a slice of an array is a view
            here = np.isin(self._cells[:, 0], part)
            first, *rest = self._cells[here].T
            place = ((first - part.start) // part.step, *rest)
            block[place] = block[place].astype(np.float64) + self._values[here]
            yield block


def weighted(simulation: Simulation, field: str, weight: int) -> Computed:
    """Return a view of a field in which each value is multiplied by `weight`."""
    stencil, tape = simulation.stencil, Tape()
    number = [one.name for one in stencil.fields].index(field)
    product = tape.multiply(tape.constant(float(weight)), tape.append(Load(number, HERE)))
    return Computed(simulation, stencil, tape.program([product]), (), field)


def _groups(view: PlanesView, wanted: range) -> Iterator[tuple[range, slice]]:
    """Divide the planes `wanted` of a view into groups of at most GROUP_BYTES. Yield the numbers of the planes of each
    group, and the slice that selects them."""
    unit_bytes = max(1, math.prod(view.shape[1:]) * view.dtype.itemsize)
    group = max(1, GROUP_BYTES // unit_bytes)
    for first in range(0, len(wanted), group):
        part = wanted[first : first + group]
        yield part, slice(part.start, part.stop if part.stop >= 0 else None, part.step)
