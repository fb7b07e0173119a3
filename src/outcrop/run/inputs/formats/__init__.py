"""The sources of input arrays: files of the formats in FORMATS, arrays, and objects of Zarr, Dask and xarray."""

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
from outcrop.run.disk.values import PlanesView
from outcrop.run.inputs.formats import binary, packages
from outcrop.run.inputs.formats.run import from_view, open_run_array, run_at
from outcrop.run.inputs.input_array import InputArray, arrange, from_array, from_chunks
from outcrop.run.user_values import require_unmasked

Opener: TypeAlias = Callable[[Path, str, int], InputArray]
"""A function that takes a path, the name of a variable or "", and `cache_bytes`. The function returns an input array
with the shape that the array has in the file."""


@dataclass(frozen=True)
class Format:
    """A file format. The name of each file of the format ends in one of `suffixes`. `form` shows users how to write the
    name of a file, with NAME if a file can hold several arrays."""

    form: str
    suffixes: tuple[str, ...]
    open: Opener


ZARR = Format("FILE.zarr[/NAME]", (".zarr",), packages.open_zarr)
NETCDF = Format("FILE.nc[:NAME]", (".nc", ".nc4", ".cdf"), packages.open_netcdf)
FORMATS = (
    Format("FILE.npy", (".npy",), binary.open_npy),
    Format("FILE.npy.xz", (".npy.xz", ".npy.gz"), binary.open_packed_npy),
    Format("FILE.npz[:NAME]", (".npz",), binary.open_npz),
    ZARR,
    NETCDF,
    Format("FILE.sgy", (".sgy", ".segy"), packages.open_segy),
)
FORMS = ", ".join([*(kind.form for kind in FORMATS), "RUN[/NAME]", "raw:FILE:DTYPE:NX,NY,NZ"])


def open_file(text: str, cache_bytes: int) -> InputArray:
    """Return the array that `text` names, such as vp.npy, model.nc:vp or raw:vp.bin:float32:401,1601. The array has the
    shape that it has in the file. Raises InputError when the file is missing, has an unknown suffix, or does not have
    the format of its suffix."""
    if text.startswith(binary.RAW):
        return binary.open_raw(text, cache_bytes)
    path, variable = _split_variable(text)
    if found := run_at(path / variable if variable else path):
        return open_run_array(*found)
    if not is_there(path):
        raise InputError(f"{text}: no such file; there are {FORMS}")
    name = path.name.lower()
    kind = ZARR if path.is_dir() else next((kind for kind in FORMATS if name.endswith(kind.suffixes)), None)
    if kind is None:
        raise InputError(f"{path}: files of this name are not known; there are {FORMS}")
    if variable and "NAME" not in kind.form:
        raise InputError(f"{text}: {kind.form} holds one array, leave out :{variable}")
    return kind.open(path, variable, cache_bytes)


def names_array(text: str) -> bool:
    """Return True if the text has one of two forms: an array in an existing file, such as model.nc:vp, or a file
    without a header, such as raw:vp.bin:float32:401,1601."""
    path, variable = _split_variable(text)
    return text.startswith(binary.RAW) or (variable != "" and is_there(path))


def _split_variable(text: str) -> tuple[Path, str]:
    """Split PATH:NAME into the path and the name of a variable. The name of the variable is "" if the text has no colon
    before a name, or if the whole text is the name of a file."""
    match = re.fullmatch(r"(.+?\.\w+):([^:]+)", text)
    if match is None or is_there(text):
        return Path(text), ""
    return Path(match[1]), match[2]


def open_values(values: object, axes: str, cache_bytes: int) -> InputArray:
    """Return the input array for a file, an array or another object with samples. The axes of the input array are in
    the order z, y, x.

    `axes` contains the letters of the axes of `values`, slowest first, such as "xz" for an array of shape (nx, nz). If
    `axes` is "", the axes have the names that the file or object gives. Axes without names keep their order. Raises
    InputError if `values` is a function or a single number. Also raises InputError if `axes` does not name each axis of
    `values` once."""
    array = open_as_stored(values, cache_bytes)
    return arrange(array, array.axes if isinstance(axes, str) and not axes else axes, cache_bytes)


def open_as_stored(values: object, cache_bytes: int) -> InputArray:
    """Return the input array for `values`. The axes of the result have the stored order and the stored names."""
    if isinstance(values, InputArray):
        return values
    if isinstance(values, (str, os.PathLike)):
        return open_file(str(as_path(values, "file")), cache_bytes)
    if isinstance(values, PlanesView):
        return from_view("the field of another run", values)
    if packages.is_xarray(values):
        named: Any = values
        return packages.from_xarray("the xarray object", named, cache_bytes)
    require_unmasked(values, "the array")
    if hasattr(values, "chunks") and hasattr(values, "shape"):
        return from_chunks("the array", values, cache_bytes)
    if callable(values) or np.isscalar(values):
        raise InputError(f"{shown(values)} has no samples of its own; give a file or an array")
    try:
        array = np.asarray(values)
    except Exception as error:  # NumPy and user classes raise many types of errors
        raise InputError(f"the values are not an array: {error}") from None
    return from_array("the array", array)
