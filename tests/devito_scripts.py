"""Functions for tests with Devito. The functions make grids, values and points, and compare results of Devito in memory
with our oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from oracle import record_fields

dv = pytest.importorskip("devito")
from outcrop.language.devito import Lowered, from_devito  # noqa: E402

dv.configuration["log-level"] = "ERROR"

DTYPES = {np.float32: 1e-5, np.float64: 1e-12}
"""The largest allowed difference for each dtype, relative to the largest value."""
Arrays = dict[str, np.ndarray[Any, Any]]


def make_grid(shape: tuple[int, ...], dtype: Any, spacing: float = 10.0) -> Any:
    """Return a grid of Devito whose axes have different origins."""
    extent = tuple(spacing * (n - 1) for n in shape)
    return dv.Grid(shape=shape, extent=extent, origin=tuple(5.0 * i for i in range(len(shape))), dtype=dtype)


def fill(function: Any, low: float = 0.0, high: float = 1.0) -> None:
    """Fill a function with random values. If the function depends on time, the values differ between time steps. The
    halo stays zero.
    """
    rng = np.random.default_rng(sum(map(ord, function.name)))
    function.data[:] = low + (high - low) * rng.random(function.data.shape)


def ours(lowered: Lowered, steps: int) -> tuple[Arrays, Arrays]:
    """Run our oracle, beginning with the values in Devito's functions. Return the fields without padding, and the
    traces."""
    state = {}
    for name in lowered.state_names:
        given = lowered.initial(name)
        state[name] = np.zeros(lowered.shape, lowered.dtype) if given is None else given
    done = record_fields(
        lowered.stencil, state, {}, steps, lowered.boundary, lowered.signals, 0, lowered.injections, lowered.samplings
    )  # fmt: skip
    return {name: array[lowered.inside] for name, array in done.state.items()}, done.traces


def check(equations: Sequence[Any], dt: float, steps: int, dtype: Any) -> Lowered:
    """Check that Devito in memory and our oracle agree on each field and each receiver."""
    lowered = from_devito(equations, dt=dt)
    fields, traces = ours(lowered, steps)
    first, direction = lowered.first_time, lowered.direction
    times = first + direction * np.arange(steps)
    dv.Operator(equations, opt="noop").apply(dt=dt, time_m=int(times.min()), time_M=int(times.max()))
    for name, function in lowered.functions.items():
        if name not in lowered.static_fields:
            rows = function.shape_allocated[0]
            want = function.data[(first + direction * steps) % rows] if function.is_TimeFunction else function.data
            close(name, fields[name], np.asarray(want).reshape(fields[name].shape), dtype)
    for operation in equations:
        if type(operation).__name__ == "Interpolation":
            receivers = operation.interpolator.sfunction
            close(receivers.name, traces[receivers.name], np.asarray(receivers.data)[times], dtype)
    return lowered


def close(name: str, got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], dtype: Any) -> None:
    scale = np.abs(want).max()
    assert scale > 0, f"{name}: nothing happens, so nothing is compared"
    assert np.abs(got - want).max() <= DTYPES[dtype] * scale, name


def wavelet(name: str, grid: Any, steps: int, points: Sequence[Sequence[float]], **options: Any) -> Any:
    """Return a source of Devito. Each point of the source has a Ricker wavelet."""
    source = dv.SparseTimeFunction(name=name, grid=grid, npoint=len(points), nt=steps + 3, **options)
    source.coordinates.data[:] = points
    argument = (np.pi * 0.08 * (np.arange(steps + 3) - 9.0)) ** 2
    source.data[:] = ((1 - 2 * argument) * np.exp(-argument))[:, None] * np.arange(1, len(points) + 1)
    return source


def receivers(name: str, grid: Any, steps: int, points: Sequence[Sequence[float]]) -> Any:
    return dv.SparseTimeFunction(name=name, grid=grid, npoint=len(points), nt=steps + 3, coordinates=np.array(points))
