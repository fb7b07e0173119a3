"""Input arrays from files that other packages read: NetCDF (xarray), SEG-Y (segyio) and Zarr (zarr). Objects of xarray
are also accepted.

xarray uses h5netcdf for NetCDF of version 4, which is HDF5, and SciPy for classic files. The values of an xarray object
are read only when Outcrop needs them: through Dask, from the file, or from memory.

In SEG-Y, traces are columns of the grid. The samples of a trace, in depth or time, lie along z. The axes of a volume
are (samples, inlines, crosslines) = (z, y, x). The axes of a section are (samples, traces) = (z, x). The traces have
the order of the file. Format: SEG-Y rev 1, Society of Exploration Geophysicists 2002. In SEG-Y rev 1, the numbers of
inlines and crosslines are at bytes 189 and 193 of the trace headers.

Zarr arrays can have version 2 or 3 and any chunks. The directory of a run is also a Zarr group.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outcrop.errors import InputError
from outcrop.paths import open_regular, require_regular
from outcrop.run.inputs.formats.binary import READ_BYTES
from outcrop.run.inputs.input_array import Array, InputArray, from_chunks, named_axes

if TYPE_CHECKING:
    import xarray

_INSTALL = "pip install 'outcrop[netcdf]'"
_CLASSIC = b"CDF"
_ENGINES = {_CLASSIC: ("scipy",), b"\x89HDF": ("h5netcdf", "netCDF4")}
"""Maps the first bytes of a file to the packages that can read the file. xarray's engines have the same names in lower
case. netCDF4 is not used for classic files, because it returns zeros for the missing part of a file that was cut
short."""

MAX_METADATA_BYTES = 64 << 20
"""The maximum size of a metadata file of Zarr, in bytes."""

MAX_CHUNK_GROWTH_BYTES = 1 << 20
"""The maximum number of bytes by which a stored chunk may be larger than its values. Codecs and the index of a shard
need additional bytes."""


def open_netcdf(path: Path, variable: str, cache_bytes: int) -> InputArray:
    """Return a variable, NAME or GROUP/NAME, of a NetCDF file. The scale factor in the attributes of the variable is
    applied, and missing values become NaN. Raises InputError if the file is not a NetCDF file, or if a necessary
    package is not installed."""
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
    except Exception as error:  # these packages raise many types of errors for damaged files
        with _deletions_are_silent():
            traceback.clear_frames(error.__traceback__)
        what = f"group {group!r} of it" if group else "it"
        raise InputError(f"{path}: {what} cannot be opened as NetCDF: {' '.join(str(error).split())}") from None
    chosen = choose_data_array(str(path), dataset, wanted, f"name one as {path}:NAME")
    return from_xarray(f"{path}:{variable}" if variable else str(path), chosen, cache_bytes)


@contextmanager
def _deletions_are_silent() -> Iterator[None]:
    """Suppress the tracebacks that destructors of h5netcdf print if h5netcdf cannot open a file."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _find_engine(path: Path) -> str:
    """Return the name of an installed package with which xarray can read the file."""
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
    """Return True if `values` is an object of xarray. This function does not import xarray."""
    package = sys.modules.get("xarray")
    return package is not None and isinstance(values, (package.DataArray, package.Dataset))


def from_xarray(name: str, values: xarray.DataArray | xarray.Dataset, cache_bytes: int) -> InputArray:
    """Return the input array for a DataArray, or for the only variable of a Dataset. If the names of the axes are among
    z, y and x, the result has these names."""
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
    """Return the variable `wanted`. If `wanted` is "", return the only variable that has axes. Raises InputError if
    `wanted` is the name of no variable. Also raises InputError if `wanted` is "" and the number of variables with axes
    is not 1. The message lists the variables."""
    several = sorted(str(key) for key, variable in dataset.data_vars.items() if variable.ndim > 0)
    there = f"there are: {', '.join(several) or 'none'}"
    if wanted and wanted not in dataset.variables:
        raise InputError(f"{name} has no variable {wanted!r}; {there}")
    if not wanted and len(several) != 1:
        raise InputError(f"{name} does not hold one variable alone; {remedy} ({there})")
    return dataset[wanted or several[0]]


def _without_single_axes(variable: xarray.Variable) -> xarray.Variable:
    """If a variable has more than three axes, remove axes with one sample, beginning with the first axis, until three
    axes are left. If the variable has too few axes with one sample, the result still has more than three axes."""
    for axis, size in variable.sizes.items():
        if variable.ndim > 3 and size == 1:
            variable = variable.isel({axis: 0})
    return variable


class _LazyVariable:
    """A variable of xarray with the interface of a chunked array."""

    def __init__(self, variable: xarray.Variable) -> None:
        self._variable = variable
        self.shape, self.dtype = variable.shape, variable.dtype
        stored = variable.encoding.get("chunksizes") or variable.encoding.get("chunks")
        self.chunks: Any = variable.chunks or (stored if stored and len(stored) == len(self.shape) else None)

    def __getitem__(self, wanted: slice) -> Array:
        return np.asarray(self._variable[wanted].values)


def open_segy(path: Path, variable: str, cache_bytes: int) -> InputArray:
    """Return the section or the volume in a SEG-Y file. The values of one plane of the grid are in all traces: one
    sample of each trace. Therefore the whole SEG-Y file is read several times: approximately (file size /
    `cache_bytes`) times. Raises InputError if the file is not a SEG-Y file, is cut short, or has unstacked traces."""
    try:
        import segyio
    except ImportError:
        raise InputError(f"{path}: reading SEG-Y needs segyio: pip install 'outcrop[segy]'") from None
    require_regular(path)
    try:
        file = segyio.open(str(path), "r", strict=False)
        traces = _Traces(file)
    except MemoryError:
        raise
    except Exception as error:  # segyio does not check headers, so wrong headers raise many types of errors
        raise InputError(f"{path} cannot be read as SEG-Y, or is cut short: {error}") from None
    if not file.unstructured and len(file.offsets) > 1:
        raise InputError(f"{path} has {len(file.offsets)} offsets at each place; only stacked traces are a model")
    return from_chunks(str(path), traces, cache_bytes)


class _Traces:
    """An open SEG-Y file of shape (samples, traces) or (samples, inlines, crosslines). The class has the interface of a
    chunked array. The only chunk is the whole array."""

    def __init__(self, file: Any) -> None:
        import segyio

        self._file = file
        samples, traces = len(file.samples), file.tracecount
        self._order: tuple[int, ...] = (traces,)
        self._crosslines_first = False
        lines = () if file.unstructured else (len(file.ilines), len(file.xlines))
        if lines and lines[0] * lines[1] == traces and min(lines) > 1:
            self._crosslines_first = file.sorting == segyio.TraceSortingFormat.CROSSLINE_SORTING
            self._order = lines[::-1] if self._crosslines_first else lines
        self.shape = (samples, *(self._order[::-1] if self._crosslines_first else self._order))
        self.dtype, self.chunks = np.dtype(file.dtype), self.shape

    def __del__(self) -> None:
        self._file.close()

    def __getitem__(self, wanted: slice) -> Array:
        samples, traces = self.shape[0], self._file.tracecount
        columns = np.empty((traces, len(range(samples)[wanted])), self.dtype)
        group = max(1, READ_BYTES // (samples * self.dtype.itemsize))
        for first in range(0, traces, group):
            last = min(first + group, traces)
            columns[first:last] = self._file.trace.raw[first:last][:, wanted]
        planes = columns.reshape(*self._order, -1)
        if self._crosslines_first:
            planes = planes.swapaxes(0, 1)
        return np.moveaxis(planes, -1, 0)


def open_zarr(path: Path, variable: str, cache_bytes: int) -> InputArray:
    """Return the Zarr array at `path`. If `path` is a Zarr group, return its array `variable`. If `variable` is "",
    return the only array of the group. The directory of a run is also a Zarr group. The Zarr arrays of a run have the
    values of the current state."""
    try:
        import zarr
    except ImportError:
        raise InputError(f"{path}: reading Zarr needs zarr (Python 3.11 or later): pip install zarr") from None
    if variable:
        path = path / variable
    store = _regular_files(path)
    try:
        node = zarr.open(store, mode="r")
        if isinstance(node, zarr.Group):
            arrays = {name: array for name, array in node.arrays()}
            if len(arrays) != 1:
                names = ", ".join(sorted(arrays)) or "none"
                raise InputError(f"{path} is a Zarr group; name one of its arrays as {path}/NAME (there are: {names})")
            node = next(iter(arrays.values()))
    except InputError:
        raise
    except Exception as error:  # zarr raises many types of errors for files of other formats
        raise InputError(f"{path} cannot be opened as Zarr: {' '.join(str(error).split())}") from None
    store.max_bytes = 2 * math.prod(node.shards or node.chunks) * node.dtype.itemsize + MAX_CHUNK_GROWTH_BYTES
    return from_chunks(str(path), node, cache_bytes, named_axes(_dimension_names(node)))


def _dimension_names(array: Any) -> tuple[str | None, ...]:
    """Return the names of the axes of a Zarr array. In version 3 of Zarr, the metadata contains the names of the axes.
    In version 2 of Zarr, the names of the axes are in an attribute that xarray stores."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS", ())
    return tuple(names)


def _regular_files(path: Path) -> Any:
    """Return a Zarr store for a folder. The store reads only regular files, and at most `max_bytes` in one call. Zarr's
    own store would wait forever for data from a pipe. For a sparse file of a terabyte, Zarr's own store would allocate
    a terabyte of memory."""
    from zarr.storage import LocalStore

    class RegularFiles(LocalStore):
        max_bytes = MAX_METADATA_BYTES

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            self._check(key, byte_range)
            return await super().get(key, prototype, byte_range)

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
            asked = list(key_ranges)
            for key, byte_range in asked:
                self._check(key, byte_range)
            return await super().get_partial_values(prototype, asked)

        def _check(self, key: str, byte_range: Any) -> None:
            file = self.root / key
            if not file.exists() or file.is_dir():
                return
            require_regular(file)
            if byte_range is None and (size := file.stat().st_size) > self.max_bytes:
                raise InputError(f"{file} has {size} bytes; at most {self.max_bytes} were expected there")

    return RegularFiles(path, read_only=True)
