"""What values come from: kinds of files, one line each in the table, arrays, and objects of Zarr, Dask and xarray."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from outcrop.errors import InputError, shown
from outcrop.paths import as_path, is_there
from outcrop.run.inputs.formats import binary, netcdf, segy, zarr_arrays
from outcrop.run.inputs.input_array import InputArray, arrange, from_array, from_chunks

Opener: TypeAlias = Callable[[Path, str, int], InputArray]
"""(path, name of a variable or "", cache_bytes) -> an input array of the file's own shape."""


@dataclass(frozen=True)
class Format:
    """Files that end in one of `suffixes`. `form` shows how to write them, also whether variables can be named."""

    form: str
    suffixes: tuple[str, ...]
    open: Opener

    @property
    def has_variables(self) -> bool:
        """Whether a file can hold several arrays."""
        return "NAME" in self.form


ZARR = Format("FILE.zarr[/NAME]", (".zarr",), zarr_arrays.open_zarr)
NPY = Format("FILE.npy", (".npy",), binary.open_npy)
FORMATS = (
    NPY,
    Format("FILE.npy.xz", (".npy.xz", ".npy.gz"), binary.open_packed_npy),
    Format("FILE.npz[:NAME]", (".npz",), binary.open_npz),
    ZARR,
    Format("FILE.nc[:NAME]", (".nc", ".nc4", ".cdf"), netcdf.open_netcdf),
    Format("FILE.sgy", (".sgy", ".segy"), segy.open_segy),
)
FORMS = ", ".join([*(kind.form for kind in FORMATS), "raw:FILE:DTYPE:NX,NY,NZ"])


def open_file(text: str, cache_bytes: int) -> InputArray:
    """The array that a text such as vp.npy, model.nc:vp or raw:vp.bin:float32:401,1601 names, of its own shape.

    Raises InputError when there is no such file, when it is of no known kind or not what its name says.
    """
    if text.startswith(binary.RAW):
        return binary.open_raw(text, cache_bytes)
    path, variable = _split_variable(text)
    if not is_there(path):
        raise InputError(f"{text}: no such file; there are {FORMS}")
    kind = ZARR if path.is_dir() else next((kind for kind in FORMATS if _ends_in(path, kind)), None)
    if kind is None:
        raise InputError(f"{path}: files of this name are not known; there are {FORMS}")
    if variable and not kind.has_variables:
        raise InputError(f"{text}: {kind.form} holds one array, leave out :{variable}")
    return kind.open(path, variable, cache_bytes)


def _split_variable(text: str) -> tuple[Path, str]:
    """The path, and what follows its last colon when it is no path with the colon."""
    match = re.fullmatch(r"(.+?\.\w+):([^:]+)", text)
    if match is None or is_there(text):
        return Path(text), ""
    return Path(match[1]), match[2]


def _ends_in(path: Path, kind: Format) -> bool:
    return path.name.lower().endswith(kind.suffixes)


def open_values(values: object, axes: str, cache_bytes: int) -> InputArray:
    """An input array of `values`: whatever has samples, with its axes in the order of a grid.

    `axes` are the letters of its axes, slowest first, such as "xz" for an array of shape (nx, nz); "" means the names
    it has itself, else "zyx", "zx" or "x". Raises InputError for what has no samples, and for axes that do not fit.
    """
    array = open_as_stored(values, cache_bytes)
    return arrange(array, array.axes if isinstance(axes, str) and not axes else axes, cache_bytes)


def open_as_stored(values: object, cache_bytes: int) -> InputArray:
    """The same with its axes as they are stored; where they have names of their own, it knows them."""
    if isinstance(values, InputArray):
        return values
    if isinstance(values, (str, os.PathLike)):
        return open_file(str(as_path(values, "file")), cache_bytes)
    if netcdf.is_xarray(values):
        named: Any = values
        return netcdf.from_xarray("the xarray object", named, cache_bytes)
    if hasattr(values, "chunks") and hasattr(values, "shape"):
        return from_chunks("the array", values, cache_bytes)
    if callable(values) or np.isscalar(values):
        raise InputError(f"{shown(values)} has no samples of its own; give a file or an array")
    try:
        array = np.asarray(values)
    except Exception as error:  # what users' own classes raise, besides NumPy's kinds
        raise InputError(f"the values are no array: {error}") from None
    return from_array("the array", array)
