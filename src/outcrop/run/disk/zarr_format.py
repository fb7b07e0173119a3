"""The Zarr v3 metadata and shard indices that make a run directory readable by any Zarr library.

run.oc/zarr.json          group, with the metadata of its arrays inlined (readers need not list the folder)
run.oc/u/zarr.json        array: shards, inner chunk = one plane, codecs bytes (little) + crc32c, index at the end
run.oc/u/c/S/0/0          shard S; of two axes c/S/0, of one c/0

On two axes a row takes the place of a plane; on one there is a single inner chunk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from outcrop import _core
from outcrop.axes import NAMES, PLACES
from outcrop.run.disk.layout import CHECKSUM_BYTES, PlaneLayout

_EMPTY = 2**64 - 1
"""Offset and length of an inner chunk that a shard does not have."""

_PART_PLANES = 1 << 16
"""Entries of an index that are made at once."""

_BYTES: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
_CHECKSUM: dict[str, Any] = {"name": "crc32c"}


def array_metadata(layout: PlaneLayout, ndim: int, attributes: dict[str, Any]) -> dict[str, Any]:
    """Content of the zarr.json of an array of `ndim` axes."""
    ny = layout.shape[1]
    sharding = {
        "chunk_shape": _own((1, ny, layout.pitch_cells), ndim),
        "codecs": [_BYTES, _CHECKSUM],
        "index_codecs": [_BYTES, _CHECKSUM],
        "index_location": "end",
    }
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": _own(layout.shape, ndim),
        "data_type": layout.dtype,
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": _own((layout.shard_planes, ny, layout.pitch_cells), ndim)},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "attributes": attributes,
        "dimension_names": list(NAMES[ndim]),
        "storage_transformers": [],
    }


def plain_codecs(inner: tuple[int, ...] | None = None) -> list[dict[str, Any]]:
    """Codecs of values as they lie in memory; with `inner` the chunk is a shard of such chunks, index at the end."""
    if inner is None:
        return [_BYTES]
    sharding = {
        "chunk_shape": list(inner),
        "codecs": [_BYTES],
        "index_codecs": [_BYTES, _CHECKSUM],
        "index_location": "end",
    }
    return [{"name": "sharding_indexed", "configuration": sharding}]


def group_metadata(arrays: dict[str, dict[str, Any]], attributes: dict[str, Any]) -> dict[str, Any]:
    """Content of the group's zarr.json; `arrays` maps names to their metadata."""
    return {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": attributes,
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": arrays},
    }


def to_json(metadata: dict[str, Any]) -> bytes:
    """JSON as it is written to disk."""
    return (json.dumps(metadata, indent=2) + "\n").encode()


def index_parts(layout: PlaneLayout, shard: int) -> Iterator[bytes]:
    """The index of a shard, piece by piece: (offset, length) of each plane, then the CRC32C of all that."""
    checksum, count = 0, layout.records(shard)
    for first in range(0, layout.shard_planes, _PART_PLANES):
        entries = np.full((min(_PART_PLANES, layout.shard_planes - first), 2), _EMPTY, dtype="<u8")
        here = max(0, min(count - first, len(entries)))
        entries[:here, 0] = np.arange(first, first + here, dtype="<u8") * np.uint64(layout.record_bytes)
        entries[:here, 1] = layout.plane_bytes + CHECKSUM_BYTES
        part = entries.tobytes()
        checksum = _core.crc32c(part, checksum)
        yield part
    yield checksum.to_bytes(CHECKSUM_BYTES, "little")


def _own(sizes: tuple[int, int, int], ndim: int) -> list[int]:
    """Those of (z, y, x) that belong to a grid of `ndim` axes."""
    return [sizes[place] for place in PLACES[ndim]]
