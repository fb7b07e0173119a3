"""The parts of gradients that come from the scales of sources.

In step t, a source adds weight * scale * value[t] to its field at each corner of a point. If the scale depends on an
input m, the gradient with respect to m gets for each corner:

    derivative of the scale by m  *  weight  *  sum over t of  adjoint[t] * value[t]

The adjoint run records adjoint[t] at the corners, before or after its step, in the order in which it goes back. After
the run, the sums are computed in this order, in float64. So no plan changes their bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.language.adjoint import Adjoint
from outcrop.language.sparse import Injection, Sampling, SourceFactor
from outcrop.language.stencil import Stencil
from outcrop.run.disk.entries import SourceEntry
from outcrop.run.forward import Forward


def scaled_sources(stencil: Stencil, sources: Sequence[SourceEntry], inputs: Sequence[str]) -> tuple[int, ...]:
    """Return the numbers of the sources whose scale depends on one of these inputs. An earlier version stored scales
    without the names of their parameters. Raises InputError if a source has such a scale and an input is a
    parameter."""
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
    """Return the receivers that record the adjoint at all corners of source `number`. Each corner is a point. The trace
    has the shape (steps, points * corners). It is 0 at corners that no step updates."""
    source = forward.definitions.injections[number]
    field, inside = adjoint.sources[source.field], forward.inside(source.cells)
    factor = np.where(inside, forward.factor_at(adjoint, source.field, source.cells), 1.0)
    weights = np.where(inside, 1.0, 0.0) / factor
    is_before = field == adjoint.adjoints[source.field]
    return Sampling(corner_trace(number), field, source.cells.reshape(-1, 1, 3), weights.reshape(-1, 1), is_before)


def corner_trace(number: int) -> str:
    return f"source_{number}_corners"


def scale_terms(
    forward: Forward, traces: Mapping[str, NDArray[np.float64]], name: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the contributions of all scales to the gradient with respect to the input `name`: cells of the arrays, of
    shape (contributions, 3), and values. `traces` are the traces of the adjoint run. The gradient with respect to a
    parameter is the sum of all values."""
    cells, values = [np.zeros((0, 3), np.int64)], [np.zeros(0)]
    for number in scaled_sources(forward.stencil, forward.manifest.taps.sources, [name]):
        source = forward.definitions.injections[number]
        assert source.scale is not None
        sums = source.weights * _sums(source, traces[corner_trace(number)])
        inside = forward.inside(source.cells)
        for offset, slope in source.scale.derivatives(name).items():
            slopes = np.where(inside, slope.at(source.cells, forward.read), 0.0)  # it may be NaN in the rim
            cells.append((source.cells + np.array(offset, np.int64)).reshape(-1, 3))
            values.append((slopes * sums).reshape(-1))
    return np.concatenate(cells), np.concatenate(values)


def _sums(source: Injection, trace: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of adjoint[t] * value[t] at each corner. `trace` begins with the last step."""
    found: NDArray[np.float64] = np.zeros(source.weights.shape)
    last = len(trace) - 1
    for back, row in enumerate(trace):
        if last - back < source.steps:
            found += row.reshape(found.shape) * source.values[last - back][:, None]
    return found


def with_parameters(source: Injection, parameters: Mapping[str, Any]) -> Injection:
    """Return the source with a scale that has these values of parameters. Parameters that are not in `parameters` keep
    their values."""
    if (scale := source.scale) is None or not scale.names:
        return source
    pairs = zip(scale.names, scale.scalars, strict=True)
    scalars = tuple(float(parameters.get(name, value)) for name, value in pairs)
    return replace(source, scale=replace(scale, scalars=scalars))
