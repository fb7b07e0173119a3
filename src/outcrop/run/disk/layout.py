"""Where every plane of an array lies on disk, and the Zarr v3 metadata by which any Zarr library reads it.

A plane is stored as a record; a window slot in memory has the same layout, so a record moves in one transfer:

    record:  | ny rows of pitch_bytes | CRC32C | seal | zeros to a multiple of 4096 |
    shard:   | record 0 | record 1 | ... | record S-1 | index: S x (offset, length), CRC32C |

The seal (core/outcrop/storage/checksums.hpp) knows which plane this is, of which array and run, and from which writing.

Shard s holds planes s*S .. s*S + S-1; the last one ends with the grid, its index keeps S entries. In Zarr terms a
shard is a chunk of shape (S, ny, pitch) and a plane an inner chunk (1, ny, pitch) whose padding sticks out of it. On
two axes a row takes the place of a plane; on one there is a single inner chunk.

    run.oc/zarr.json          group, with the metadata of its arrays inlined (readers need not list the folder)
    run.oc/u/zarr.json        array: shards, inner chunk = one plane, codecs bytes (little) + crc32c, index at the end
    run.oc/u/c/S/0/0          shard S; of two axes c/S/0, of one c/0
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outcrop import _core
from outcrop.axes import NAMES, PLACES
from outcrop.errors import InputError

PITCH_BYTES = 64
"""Rows start at multiples of this: one vector of the widest kernels, one cache line."""

RECORD_BYTES = 4096
"""Records start at multiples of this, so that direct I/O reaches them."""

CHECKSUM_BYTES = 4

MAX_PLANES = 1 << 28
"""Of a grid: tables have an entry for each."""

DTYPES = ("float32", "float64")
"""The types a field may have."""

_NO_CHUNK = 2**64 - 1
"""Offset and length of an inner chunk that a shard does not have."""

_PART_PLANES = 1 << 16
"""Entries of an index that are made at once."""

_BYTES: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
_CHECKSUM: dict[str, Any] = {"name": "crc32c"}


def round_up(count: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `count`."""
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class PlaneLayout:
    """Layout of one array of `shape` (nz, ny, nx) in shards of `shard_planes` planes."""

    shape: tuple[int, int, int]
    dtype: str
    pitch_bytes: int
    plane_bytes: int
    record_bytes: int
    shard_planes: int

    @property
    def shards(self) -> int:
        """Number of shard files of one array."""
        return -(-self.shape[0] // self.shard_planes)

    @property
    def pitch_cells(self) -> int:
        """Cells from one row to the next."""
        return self.pitch_bytes // np.dtype(self.dtype).itemsize

    @property
    def index_bytes(self) -> int:
        """Bytes of the index at the end of every shard."""
        return 16 * self.shard_planes + CHECKSUM_BYTES

    @property
    def array_bytes(self) -> int:
        """Bytes of all shard files of one array."""
        return self.shape[0] * self.record_bytes + self.shards * self.index_bytes

    def records(self, shard: int) -> int:
        """Records that shard number `shard` really has."""
        return min(self.shard_planes, self.shape[0] - shard * self.shard_planes)

    def shard_bytes(self, shard: int) -> int:
        """Size of that shard's file."""
        return self.records(shard) * self.record_bytes + self.index_bytes

    def locate(self, z: int) -> tuple[int, int]:
        """Shard number and byte offset of the record of plane z."""
        return z // self.shard_planes, z % self.shard_planes * self.record_bytes


def make_layout(shape: tuple[int, int, int], dtype: str, shard_planes: int | None = None) -> PlaneLayout:
    """The layout for a grid; one shard holds it all unless `shard_planes` says otherwise.

    Raises InputError for sizes below 1, a dtype that is not in DTYPES, or a grid beyond what one can address.
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r} is not supported; there are {' and '.join(DTYPES)}")
    if len(shape) != 3 or any(size < 1 for size in shape):
        raise InputError(f"grid {' x '.join(map(str, shape))} (nz, ny, nx) must have three sizes of at least 1")
    nz, ny, nx = (int(size) for size in shape)
    pitch_bytes = round_up(nx * np.dtype(dtype).itemsize, PITCH_BYTES)
    plane_bytes = ny * pitch_bytes
    record_bytes = round_up(plane_bytes + CHECKSUM_BYTES, RECORD_BYTES)
    if nz * record_bytes >= 2**62 or nz > MAX_PLANES:
        raise InputError(f"grid {nz} x {ny} x {nx} (nz, ny, nx) is beyond what files can hold")
    return PlaneLayout((nz, ny, nx), dtype, pitch_bytes, plane_bytes, record_bytes, min(shard_planes or nz, nz))


def stripe_planes(shape: tuple[int, int, int], dtype: str, directories: int) -> int:
    """Planes per shard so that transfers in flight reach all `directories` at once, without thousands of files."""
    layout = make_layout(shape, dtype)
    if directories == 1:
        return shape[0]
    stripe_bytes, max_files = 4 << 20, 1024
    share = -(-shape[0] // directories)
    return max(1, min(share, stripe_bytes // layout.record_bytes), -(-shape[0] // max_files))


def index_parts(layout: PlaneLayout, shard: int) -> Iterator[bytes]:
    """The index of a shard, piece by piece: (offset, length) of each plane, then the CRC32C of all that."""
    length = layout.plane_bytes + CHECKSUM_BYTES
    yield from _index(layout.shard_planes, layout.records(shard), layout.record_bytes, length)


def snapshot_index(shape: tuple[int, ...], itemsize: int) -> bytes:
    """What follows the rows of a snapshot of this shape: the index of its planes; nothing on fewer than three axes."""
    if len(shape) < 3:
        return b""
    plane_bytes = shape[1] * shape[2] * itemsize
    return b"".join(_index(shape[0], shape[0], plane_bytes, plane_bytes))


def _index(count: int, present: int, stride: int, length: int) -> Iterator[bytes]:
    """`count` entries, of which the first `present` are chunks of `length` bytes that begin every `stride` bytes."""
    checksum = 0
    for first in range(0, count, _PART_PLANES):
        entries = np.full((min(_PART_PLANES, count - first), 2), _NO_CHUNK, dtype="<u8")
        here = max(0, min(present - first, len(entries)))
        entries[:here, 0] = np.arange(first, first + here, dtype="<u8") * np.uint64(stride)
        entries[:here, 1] = length
        part = entries.tobytes()
        checksum = _core.crc32c(part, checksum)
        yield part
    yield checksum.to_bytes(CHECKSUM_BYTES, "little")


def array_metadata(layout: PlaneLayout, ndim: int, attributes: dict[str, Any]) -> dict[str, Any]:
    """Content of the zarr.json of an array of planes that has `ndim` axes of its own."""
    ny = layout.shape[1]

    def own(sizes: tuple[int, int, int]) -> list[int]:
        return [sizes[place] for place in PLACES[ndim]]

    chunk, inner = own((layout.shard_planes, ny, layout.pitch_cells)), own((1, ny, layout.pitch_cells))
    codecs = _sharding(inner, [_BYTES, _CHECKSUM])
    return _array(own(layout.shape), chunk, layout.dtype, NAMES[ndim], codecs, attributes)


def plain_metadata(
    shape: Sequence[int],
    chunk: Sequence[int],
    dtype: str,
    axes: Sequence[str],
    attributes: dict[str, Any],
    inner: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Content of the zarr.json of an array whose values lie in the chunks as in memory; with `inner` a chunk is a shard
    of such chunks, with its index at the end."""
    return _array(shape, chunk, dtype, axes, [_BYTES] if inner is None else _sharding(inner, [_BYTES]), attributes)


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


def _sharding(inner: Sequence[int], codecs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    configuration = {
        "chunk_shape": list(inner),
        "codecs": codecs,
        "index_codecs": [_BYTES, _CHECKSUM],
        "index_location": "end",
    }
    return [{"name": "sharding_indexed", "configuration": configuration}]


def _array(
    shape: Sequence[int],
    chunk: Sequence[int],
    dtype: str,
    axes: Sequence[str],
    codecs: list[dict[str, Any]],
    attributes: dict[str, Any],
) -> dict[str, Any]:
    """In the order in which files were always written: they are compared byte by byte."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0 if dtype == "int64" else 0.0,
        "codecs": codecs,
        "attributes": attributes,
        "dimension_names": list(axes),
        "storage_transformers": [],
    }
