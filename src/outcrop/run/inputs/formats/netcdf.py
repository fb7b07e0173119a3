"""NetCDF files, through xarray: version 4 (which is HDF5) with h5netcdf, classic ones with SciPy."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from outcrop.errors import InputError
from outcrop.paths import open_regular
from outcrop.run.inputs.formats.xarrays import choose_data_array, xarray_source
from outcrop.run.inputs.source import Source

_INSTALL = "pip install 'outcrop[netcdf]'"
_CLASSIC = b"CDF"
_ENGINES = {_CLASSIC: ("scipy",), b"\x89HDF": ("h5netcdf", "netCDF4")}
"""Packages that read files which begin with these bytes. xarray's engines have the same names in small letters.

netCDF4 reads classic files too, but gives zeros for what is missing at the end of one that was cut short.
"""


def netcdf_source(path: Path, variable: str, cache_bytes: int) -> Source:
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
    return xarray_source(f"{path}:{variable}" if variable else str(path), chosen, cache_bytes)


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
