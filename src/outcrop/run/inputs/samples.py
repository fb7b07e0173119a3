"""Whatever holds samples of its own (a file, an array, an object of xarray, a Source) as a Source of its own shape."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from outcrop.errors import InputError, shown
from outcrop.paths import as_path
from outcrop.run.inputs.arrange import arrange
from outcrop.run.inputs.formats import open_file
from outcrop.run.inputs.formats.xarrays import is_xarray, xarray_source
from outcrop.run.inputs.source import Source, array_source, chunked_source


def open_values(values: object, axes: str, cache_bytes: int) -> Source:
    """The Source of `values`, with its axes in the order of a grid.

    `axes` are the letters of its axes, slowest first, such as "xz" for an array of shape (nx, nz); "" means the names
    it has itself, else "zyx", "zx" or "x". Raises InputError for what has no samples, and for axes that do not fit.
    """
    source = open_as_stored(values, cache_bytes)
    return arrange(source, source.axes if isinstance(axes, str) and not axes else axes, cache_bytes)


def open_as_stored(values: object, cache_bytes: int) -> Source:
    """The Source of `values` with its axes as they are stored; where they have names of their own, it knows them."""
    if isinstance(values, Source):
        return values
    if isinstance(values, (str, os.PathLike)):
        return open_file(str(as_path(values, "file")), cache_bytes)
    if is_xarray(values):
        named: Any = values
        return xarray_source("the xarray object", named, cache_bytes)
    if hasattr(values, "chunks") and hasattr(values, "shape"):
        return chunked_source("the array", values, cache_bytes)
    if callable(values) or np.isscalar(values):
        raise InputError(f"{shown(values)} has no samples of its own; give a file or an array")
    try:
        array = np.asarray(values)
    except Exception as error:  # what users' own classes raise, besides NumPy's kinds
        raise InputError(f"the values are no array: {error}") from None
    return array_source("the array", array)
