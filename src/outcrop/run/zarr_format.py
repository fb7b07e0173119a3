"""The Zarr v3 metadata and shard indices that make a run directory readable by any Zarr library.

run.oc/zarr.json          group, with the metadata of its one array inlined (readers need not list the folder)
run.oc/u/zarr.json        array: shards, inner chunk = one plane, codecs bytes (little) + crc32c, index at the end
run.oc/u/c/S/0/0          shard S
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from outcrop import _core
from outcrop.run.layout import CHECKSUM_BYTES, PlaneLayout

_EMPTY = 2**64 - 1
"""Offset and length of an inner chunk that a shard does not have."""

_BYTES: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
_CHECKSUM: dict[str, Any] = {"name": "crc32c"}


def array_metadata(layout: PlaneLayout, attributes: dict[str, Any]) -> dict[str, Any]:
    """Content of an array's zarr.json."""
    _, ny, _ = layout.shape
    sharding = {
        "chunk_shape": [1, ny, layout.pitch_cells],
        "codecs": [_BYTES, _CHECKSUM],
        "index_codecs": [_BYTES, _CHECKSUM],
        "index_location": "end",
    }
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(layout.shape),
        "data_type": layout.dtype,
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": [layout.shard_planes, ny, layout.pitch_cells]},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "attributes": attributes,
        "dimension_names": ["z", "y", "x"],
        "storage_transformers": [],
    }


def group_metadata(arrays: dict[str, dict[str, Any]], attributes: dict[str, Any]) -> dict[str, Any]:
    """Content of the group's zarr.json; `arrays` maps names to their metadata."""
    return {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": attributes,
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": arrays},
    }


def to_text(metadata: dict[str, Any]) -> str:
    """JSON as it is written to disk."""
    return json.dumps(metadata, indent=2) + "\n"


def shard_name(shard: int) -> str:
    """Path of a shard below its array's folder."""
    return f"c/{shard}/0/0"


def index_bytes(layout: PlaneLayout, shard: int) -> bytes:
    """The index of a shard: (offset, length) of each plane with its checksum, then the CRC32C of all that."""
    entries = np.full((layout.shard_planes, 2), _EMPTY, dtype="<u8")
    count = layout.records(shard)
    entries[:count, 0] = np.arange(count, dtype="<u8") * np.uint64(layout.record_bytes)
    entries[:count, 1] = layout.plane_bytes + CHECKSUM_BYTES
    body = entries.tobytes()
    return body + _core.crc32c(body).to_bytes(CHECKSUM_BYTES, "little")
