"""xarray's objects, read lazily: through Dask, through the file that is behind them, or from memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from outcrop.errors import InputError
from outcrop.run.inputs.source import Array, Source, chunked_source, named_axes

if TYPE_CHECKING:
    import xarray


def is_xarray(values: object) -> bool:
    """Whether `values` is a DataArray or a Dataset; xarray is not loaded for the question."""
    package = sys.modules.get("xarray")
    return package is not None and isinstance(values, (package.DataArray, package.Dataset))


def xarray_source(name: str, values: xarray.DataArray | xarray.Dataset, cache_bytes: int) -> Source:
    """Planes of a DataArray, or of the only variable of a Dataset. Axes named z, y and x are known by their names."""
    import xarray

    if isinstance(values, xarray.Dataset):
        values = choose_data_array(name, values, "", "pick one, as in dataset[NAME]")
    variable = _without_single_axes(values.variable)
    if variable.ndim > 3:
        sizes = ", ".join(f"{axis}: {size}" for axis, size in variable.sizes.items())
        raise InputError(
            f"{name} has four or more axes ({sizes}); pick a place on all but three, as in array.isel(time=0)"
        )
    axes = named_axes(tuple(str(axis) for axis in variable.dims))
    return chunked_source(name, _LazyVariable(variable), cache_bytes, axes)


def choose_data_array(name: str, dataset: xarray.Dataset, wanted: str, remedy: str) -> xarray.DataArray:
    """The variable `wanted`, or the only one that has axes. Raises InputError that lists them."""
    several = sorted(str(key) for key, variable in dataset.data_vars.items() if variable.ndim > 0)
    there = f"there are: {', '.join(several) or 'none'}"
    if wanted and wanted not in dataset.variables:
        raise InputError(f"{name} has no variable {wanted!r}; {there}")
    if not wanted and len(several) != 1:
        raise InputError(f"{name} does not hold one variable alone; {remedy} ({there})")
    return dataset[wanted or several[0]]


def _without_single_axes(variable: xarray.Variable) -> xarray.Variable:
    """Without axes of one sample, first to last, as long as there are more than three."""
    for axis, size in variable.sizes.items():
        if variable.ndim > 3 and size == 1:
            variable = variable.isel({axis: 0})
    return variable


class _LazyVariable:
    """A variable as something chunked; a slice of its first axis is read when it is asked for."""

    def __init__(self, variable: xarray.Variable) -> None:
        self._variable = variable
        self.shape, self.dtype = variable.shape, variable.dtype
        stored = variable.encoding.get("chunksizes") or variable.encoding.get("chunks")
        self.chunks: Any = variable.chunks or (stored if stored and len(stored) == len(self.shape) else None)

    def __getitem__(self, wanted: slice) -> Array:
        return np.asarray(self._variable[wanted].values)
