"""This module computes parts of the gradients of an adjoint run. Some parts are views, whose values are computed when a
program reads these values. Other parts of the gradients come from sources whose scale depends on an input.

Objects of the classes `Computed`, `Corrected` and `Summed` are indexed like arrays. `Corrected` adds values in a few
cells of another view, and `Summed` is the sum of several views. All three classes read a few planes of a run at a time,
so a gradient is never in memory as a whole.

A point of a source can lie between cells. So a source adds its values to the cells around the point. The cells around a
point are called the corners of the point. In step t, a source adds weight * scale * value[t] to its field at each
corner. If the scale depends on an input m, each corner contributes this value to the gradient with respect to m:

    (derivative of the scale with respect to m)  *  weight  *  (sum over t of adjoint[t] * value[t])

The adjoint run records adjoint[t] at the corners, before or after each step. The adjoint run goes from the last step to
the first. After the adjoint run, the sums over t are computed in float64, also from the last step to the first. So the
bits of the sums over t do not depend on the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.language.adjoint import Adjoint
from outcrop.language.derivative import Tape
from outcrop.language.linearised import HERE
from outcrop.language.program import Load, Program, evaluate
from outcrop.language.sparse import Injection, Sampling, SourceFactor
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.run.disk.entries import SourceEntry
from outcrop.run.disk.values import PlanesView
from outcrop.run.forward import Forward
from outcrop.run.inputs.input_array import plane_groups

if TYPE_CHECKING:
    from outcrop.run.simulation import Simulation


CORNERS = "source_{}_corners"
"""A template for the name of a trace. The trace contains the adjoint at the corners of a source."""


class Computed(PlanesView):
    """A view whose values are computed by a `Program`. The value of a cell is computed from the values that the fields
    of a run have in the same cell."""

    def __init__(
        self, simulation: Simulation, stencil: Stencil, program: Program, scalars: Sequence[float], held: str
    ) -> None:
        """`held` is the name of the field that holds the adjoint. In all cells in which the adjoint is 0, the values of
        the view are 0.
        """
        self._program, self._scalars, self._held = program, scalars, held
        # a program without loads computes 0, so the adjoint is read to get the shape of a block
        loads = program.loads or (Load([one.name for one in stencil.fields].index(held), HERE),)
        self._loads = {load: simulation[stencil.fields[load.field].name + PREVIOUS * load.age] for load in loads}
        first = next(iter(self._loads.values()))
        self.shape, self.dtype = first.shape, first.dtype

    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        for _, units in _groups(self, wanted):

            def load(one: Load, units: Any = units) -> NDArray[Any]:
                values: NDArray[Any] = self._loads[one][units]
                return values

            values: NDArray[Any] = evaluate(self._program, load, self._scalars, self.dtype.type)[0]
            held = [load(one) for one in self._loads if self._loads[one].name.removesuffix(PREVIOUS) == self._held]
            is_zero = np.logical_and.reduce([one == 0 for one in held])
            yield np.where(is_zero, 0, values)  # in the rim, a factor may be NaN, so 0 is used instead


class Corrected(PlanesView):
    """A view of another view or of an array. In some cells, a `Corrected` view adds given values to the values of the
    other view or array."""

    def __init__(self, base: Any, cells: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """`cells` has the shape (cells, axes), and `values` has the shape (cells,). If a cell occurs several times in
        `cells`, its values are added in float64, in the order of `cells`."""
        self.shape, self.dtype, self._base = base.shape, base.dtype, base
        self._cells, place = np.unique(cells, axis=0, return_inverse=True)
        self._values: NDArray[np.float64] = np.zeros(len(self._cells))
        np.add.at(self._values, place.reshape(-1), values)

    def __repr__(self) -> str:
        return f"<gradient of shape {self.shape}, {self.dtype}, read from the disk when it is indexed>"

    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        for part, units in _groups(self, wanted):
            # a slice of an array shares its memory, so the block is copied before values are added
            block: NDArray[Any] = np.array(self._base[units])
            here = np.isin(self._cells[:, 0], part)
            first, *rest = self._cells[here].T
            place = ((first - part.start) // part.step, *rest)
            block[place] = block[place].astype(np.float64) + self._values[here]
            yield block


class Summed(PlanesView):
    """A view of the sum of several views of the same shape and dtype."""

    def __init__(self, parts: Sequence[PlanesView]) -> None:
        self.shape, self.dtype, self._parts = parts[0].shape, parts[0].dtype, parts

    def __repr__(self) -> str:
        return f"<gradient of shape {self.shape}, {self.dtype}, read from the disk when it is indexed>"

    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        for _, units in _groups(self, wanted):
            yield reduce(np.add, [one[units] for one in self._parts])


def by_initial_values(forward: Forward, adjoint: Adjoint, simulation: Simulation, name: str) -> PlanesView:
    """Return the gradient with respect to the initial values of the array `name`. The result includes the gradients
    with respect to the arrays that started as copies of this array. `simulation` is the adjoint run."""

    def with_copies(name: str) -> list[str]:
        pairs = forward.manifest.copied_from.items()
        return [name, *(each for copy, field in pairs if field == name for each in with_copies(copy))]

    def alone(name: str) -> PlanesView:
        if name not in adjoint.values:
            return simulation[adjoint.adjoints[name]]
        scalars = [forward.manifest.parameters[one.name] for one in adjoint.stencil.parameters]
        held = adjoint.adjoints[name.removesuffix(PREVIOUS)]
        return Computed(simulation, adjoint.stencil, adjoint.values[name], scalars, held)

    first, *copies = with_copies(name)
    # a program without loads computes 0: no step depends on the copy
    used = [one for one in copies if one not in adjoint.values or adjoint.values[one].loads]
    return Summed([alone(one) for one in (first, *used)]) if used else alone(first)


def weighted(simulation: Simulation, field: str, weight: int) -> Computed:
    """Return a view of a field in which each value is multiplied by `weight`."""
    stencil, tape = simulation.stencil, Tape()
    number = [one.name for one in stencil.fields].index(field)
    product = tape.multiply(tape.constant(float(weight)), tape.append(Load(number, HERE)))
    return Computed(simulation, stencil, tape.program([product]), (), field)


def _groups(view: PlanesView, wanted: range) -> Iterator[tuple[range, slice]]:
    """Divide the planes with the numbers in `wanted` into groups. Yield two values for each group: the numbers of its
    planes, and the slice that selects its planes from `view`."""
    for first, end in plane_groups((len(wanted), *view.shape[1:]), view.dtype.itemsize):
        part = wanted[first:end]
        yield part, slice(part.start, part.stop if part.stop >= 0 else None, part.step)


def scaled_sources(stencil: Stencil, sources: Sequence[SourceEntry], inputs: Sequence[str]) -> tuple[int, ...]:
    """Return the numbers of the sources whose scale depends on at least one name in `inputs`. Earlier versions of
    Outcrop stored the scale of a source without the names of the parameters in the scale. Raises InputError if a source
    has a scale without names of parameters, and one of the inputs is a parameter."""
    parameters = {one.name for one in stencil.parameters}
    found = []
    for number, source in enumerate(sources):
        if source.scale is None:
            continue
        scale = SourceFactor.from_json(source.scale)
        if wanted := [name for name in inputs if name in parameters and len(scale.names) < len(scale.scalars)]:
            raise InputError(
                f"wrt: an earlier version stored source {number}, without the parameters of its scale, so there is no "
                f"gradient by {wanted[0]}; start the run again"
            )
        if scale.inputs & set(inputs):
            found.append(number)
    return tuple(found)


def corner_sampling(forward: Forward, adjoint: Adjoint, number: int) -> Sampling:
    """Return receivers that record the adjoint at the corners of all points of source `number`. Each corner of the
    source is one point of the receivers, so the trace of the receivers has the shape (steps, points * corners). The
    trace is 0 at corners that no step updates."""
    source = forward.definitions.injections[number]
    field, inside = adjoint.sources[source.field], forward.inside(source.cells)
    factor = np.where(inside, forward.factor_at(adjoint, source.field, source.cells), 1.0)
    weights = np.where(inside, 1.0, 0.0) / factor
    is_before = field == adjoint.adjoints[source.field]
    return Sampling(CORNERS.format(number), field, source.cells.reshape(-1, 1, 3), weights.reshape(-1, 1), is_before)


def scale_terms(
    forward: Forward, traces: Mapping[str, NDArray[np.float64]], name: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the contributions of all scales to the gradient with respect to the input `name`. The first result, an
    array of shape (contributions, 3), contains the cell of each contribution. The second result contains the value of
    each contribution. `traces` contains the traces of the adjoint run. If `name` is a parameter, the gradient is the
    sum of the values of all contributions."""
    cells, values = [np.zeros((0, 3), np.int64)], [np.zeros(0)]
    for number in scaled_sources(forward.stencil, forward.manifest.taps.sources, [name]):
        source = forward.definitions.injections[number]
        assert source.scale is not None
        sums = source.weights * _sums(source, traces[CORNERS.format(number)])
        acts = forward.inside(source.cells) & (source.weights != 0)
        for offset, slope in source.scale.derivatives(name).items():
            # in the rim and for the weight 0, the derivative of a scale may be infinite or NaN, so 0 is used instead
            slopes = np.where(acts, slope.at(source.cells, forward.state.cells_of), 0.0)
            cells.append((source.cells + np.array(offset, np.int64)).reshape(-1, 3))
            values.append((slopes * sums).reshape(-1))
    return np.concatenate(cells), np.concatenate(values)


def _sums(source: Injection, trace: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each corner of the source, return the sum over all steps t of adjoint[t] * value[t]. The first row of `trace`
    belongs to the last step."""
    found: NDArray[np.float64] = np.zeros(source.weights.shape)
    last = len(trace) - 1
    for back, row in enumerate(trace):
        if last - back < source.steps:
            found += row.reshape(found.shape) * source.values[last - back][:, None]
    return found
