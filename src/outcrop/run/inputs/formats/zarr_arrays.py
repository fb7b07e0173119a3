"""Zarr arrays, of versions 2 and 3 and of any chunks; a run's directory is one too."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from outcrop.errors import InputError
from outcrop.paths import require_regular
from outcrop.run.inputs.input_array import InputArray, from_chunks, named_axes

MAX_METADATA_BYTES = 64 << 20
"""A file of metadata that is larger is none."""

MAX_CODED_BYTES_MORE = 1 << 20
"""A chunk that a codec cannot shrink becomes a little larger, and a shard has an index of its chunks."""


def open_zarr(path: Path, variable: str, cache_bytes: int) -> InputArray:
    """A Zarr array, or a group of one array, or a run directory (its current state)."""
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
    except Exception as error:  # zarr raises many kinds for what is not Zarr
        raise InputError(f"{path} cannot be opened as Zarr: {' '.join(str(error).split())}") from None
    store.max_bytes = 2 * math.prod(node.shards or node.chunks) * node.dtype.itemsize + MAX_CODED_BYTES_MORE
    return from_chunks(str(path), node, cache_bytes, named_axes(_dimension_names(node)))


def _dimension_names(array: Any) -> tuple[str | None, ...]:
    """Names of the axes as version 3 has them, or as xarray writes them for version 2."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS", ())
    return tuple(names)


def _regular_files(path: Path) -> Any:
    """Zarr's store of a folder, which reads regular files only, and none of more than `max_bytes` at once: a pipe would
    be waited for, and a sparse file of a terabyte would become a terabyte of memory."""
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
