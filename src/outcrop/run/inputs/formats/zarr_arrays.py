"""Zarr arrays, of versions 2 and 3 and of any chunks; a run's directory is one too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outcrop.errors import InputError
from outcrop.paths import is_there, require_regular
from outcrop.run.inputs.source import Source, chunked_source, named_axes

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
"""What is read when an array or a group is opened, in versions 3 and 2."""


def zarr_source(path: Path, variable: str, cache_bytes: int) -> Source:
    """A Zarr array, or a group of one array, or a run directory (its current state)."""
    try:
        import zarr
    except ImportError:
        raise InputError(f"{path}: reading Zarr needs zarr (Python 3.11 or later): pip install zarr") from None
    if variable:
        path = path / variable
    for name in METADATA:
        if is_there(path / name):
            require_regular(path / name)
    try:
        node = zarr.open(str(path), mode="r")
        if isinstance(node, zarr.Group):
            arrays = {name: array for name, array in node.arrays()}
            if len(arrays) != 1:
                names = ", ".join(sorted(arrays)) or "none"
                raise InputError(f"{path} is a Zarr group; name one of its arrays as {path}/NAME (there are: {names})")
            node = next(iter(arrays.values()))
    except InputError:
        raise
    except Exception as error:  # zarr raises many kinds for what is not Zarr
        raise InputError(f"{path} cannot be opened as Zarr: {' '.join(str(error).split())}") from None
    return chunked_source(str(path), node, cache_bytes, named_axes(_dimension_names(node)))


def _dimension_names(array: Any) -> tuple[str | None, ...]:
    """Names of the axes as version 3 has them, or as xarray writes them for version 2."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS", ())
    return tuple(names)
