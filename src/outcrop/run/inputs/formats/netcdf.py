"""Objects of xarray, and NetCDF files through it: version 4 (which is HDF5) with h5netcdf, classic ones with SciPy.

Values are read lazily: through Dask, through the file that is behind them, or from memory.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outcrop.errors import InputError
from outcrop.paths import open_regular
from outcrop.run.inputs.input_array import Array, InputArray, from_chunks, named_axes

if TYPE_CHECKING:
    import xarray

_INSTALL = "pip install 'outcrop[netcdf]'"
_CLASSIC = b"CDF"
_ENGINES = {_CLASSIC: ("scipy",), b"\x89HDF": ("h5netcdf", "netCDF4")}
"""Packages that read files which begin with these bytes. xarray's engines have the same names in small letters.

netCDF4 reads classic files too, but gives zeros for what is missing at the end of one that was cut short.
"""


def open_netcdf(path: Path, variable: str, cache_bytes: int) -> InputArray:
    """One variable of a NetCDF file, scaled and with missing values as NaN, as its attributes say.

    `variable` may lie in a group: GROUP/NAME. Raises InputError for files that are none, and without the packages.
    """
    engine = _find_engine(path)
    try:
        import xarray
    except ImportError:
        raise InputError(f"{path}: reading NetCDF needs xarray: {_INSTALL}") from None
    group, _, wanted = variable.rpartition("/")
    try:
        dataset = xarray.open_dataset(path, engine=engine, group=group or None, decode_times=False, cache=False)
    except ImportError as error:  # h5netcdf without h5py
        raise InputError(f"{path}: {' '.join(str(error).split())}; reading NetCDF needs it: {_INSTALL}") from None
    except MemoryError:
        raise
    except Exception as error:  # the engines raise many kinds for what is damaged
        with _deletions_are_silent():
            traceback.clear_frames(error.__traceback__)
        what = f"group {group!r} of it" if group else "it"
        raise InputError(f"{path}: {what} cannot be opened as NetCDF: {' '.join(str(error).split())}") from None
    chosen = choose_data_array(str(path), dataset, wanted, f"name one as {path}:NAME")
    return from_xarray(f"{path}:{variable}" if variable else str(path), chosen, cache_bytes)


@contextmanager
def _deletions_are_silent() -> Iterator[None]:
    """h5netcdf prints a traceback when a file that it could not open is deleted."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _find_engine(path: Path) -> str:
    """The name of xarray's engine that reads the file here."""
    with open_regular(path) as file:
        begin = file.read(4)
    for magic, packages in _ENGINES.items():
        if begin.startswith(magic):
            found = [package for package in packages if find_spec(package)]
            if found:
                return found[0].lower()
            if magic == _CLASSIC:
                raise InputError(f"{path} is a classic NetCDF file; reading it needs SciPy: pip install xarray scipy")
            raise InputError(f"{path}: reading NetCDF needs xarray and h5netcdf: {_INSTALL}")
    raise InputError(f"{path} is not a NetCDF file: it begins with {begin!r}")


def is_xarray(values: object) -> bool:
    """Whether `values` is a DataArray or a Dataset; xarray is not loaded for the question."""
    package = sys.modules.get("xarray")
    return package is not None and isinstance(values, (package.DataArray, package.Dataset))


def from_xarray(name: str, values: xarray.DataArray | xarray.Dataset, cache_bytes: int) -> InputArray:
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
    return from_chunks(name, _LazyVariable(variable), cache_bytes, axes)


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
