"""The layout of the planes of an array on disk, and the Zarr v3 metadata that let any Zarr library read the planes.

A plane is stored as a record. A slot of the window has the same layout as a record, so a record moves in one transfer:

    record:  | chunk_rows rows of pitch_bytes | CRC32C | seal | zeros to a multiple of 4096 |
    shard:   | record 0 | record 1 | ... | record S-1 | index: S x (offset, length), CRC32C |

The seal (core/outcrop/storage/checksums.hpp) identifies the plane, its array, its run, and the operation that wrote it.

Shard s holds planes s*S .. s*S + S-1. The last shard can have fewer planes, but its index also has S entries. In terms
of Zarr, a shard is a chunk of shape (S, chunk_rows, pitch). A plane is an inner chunk of shape (1, chunk_rows, pitch).
Chunks are wider than the array, because rows have padding. Usually, a chunk has the ny rows of the array. But the last
part of a run of several ranks can have fewer rows than a chunk (plan/ranks.py). In the chunks of such a part, rows of
zeros follow the ny rows of the part.

On a grid of two axes, each row of the grid is stored as a plane. On a grid of one axis, the array has a single inner
chunk.

    run.oc/zarr.json          group; contains the metadata of its arrays, so readers need not list the folder
    run.oc/u/zarr.json        array: shards, inner chunk = one plane, codecs bytes (little) + crc32c, index at the end
    run.oc/u/c/S/0/0          shard S; c/S/0 on two axes, c/0 on one axis
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outcrop import _core
from outcrop.axes import PLACES
from outcrop.errors import InputError

PITCH_BYTES = 64
"""Rows start at multiples of PITCH_BYTES. PITCH_BYTES is the size of a cache line, and of the widest vectors that
kernels use."""

RECORD_BYTES = 4096
"""Records start at multiples of RECORD_BYTES, because direct I/O requires such places."""

CHECKSUM_BYTES = 4

MAX_PLANES = 1 << 28
"""The maximum number of planes of a grid. Tables in memory have an entry for each plane, so their size needs a
limit."""

DTYPES = ("float32", "float64")
"""The dtypes of fields."""

_NO_CHUNK = 2**64 - 1
"""If an inner chunk does not exist, its offset and its length in the index have the value _NO_CHUNK."""

_PART_PLANES = 1 << 16
"""The maximum number of index entries in one part that `index_parts` yields."""

_BYTES: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
_CHECKSUM: dict[str, Any] = {"name": "crc32c"}


def round_up(count: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is at least `count`."""
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class PlaneLayout:
    """The layout of an array of shape (nz, ny, nx) that is stored in shards of `shard_planes` planes. On disk, a plane
    has `chunk_rows` rows, of which the first ny belong to the array. Readers of Zarr do not see the outermost `hidden`
    cells at both ends of each axis."""

    shape: tuple[int, int, int]
    dtype: str
    pitch_bytes: int
    plane_bytes: int
    record_bytes: int
    shard_planes: int
    chunk_rows: int
    hidden: tuple[int, int, int] = (0, 0, 0)

    @property
    def shown(self) -> tuple[int, int, int]:
        """The shape of the array that readers of Zarr see."""
        nz, ny, nx = (size - 2 * hidden for size, hidden in zip(self.shape, self.hidden, strict=True))
        return nz, ny, nx

    @property
    def shards(self) -> int:
        return -(-self.shape[0] // self.shard_planes)

    @property
    def pitch_cells(self) -> int:
        """The number of cells from the beginning of a row to the beginning of the next row."""
        return self.pitch_bytes // np.dtype(self.dtype).itemsize

    @property
    def index_bytes(self) -> int:
        """The number of bytes of the index at the end of each shard."""
        return 16 * self.shard_planes + CHECKSUM_BYTES

    @property
    def array_bytes(self) -> int:
        """The number of bytes of all shards of one array together."""
        return self.shape[0] * self.record_bytes + self.shards * self.index_bytes

    def records(self, shard: int) -> int:
        return min(self.shard_planes, self.shape[0] - shard * self.shard_planes)

    def shard_bytes(self, shard: int) -> int:
        return self.records(shard) * self.record_bytes + self.index_bytes

    def locate(self, z: int) -> tuple[int, int]:
        """Return the shard that holds plane z, and the byte offset of the plane's record in this shard."""
        return z // self.shard_planes, z % self.shard_planes * self.record_bytes


def make_layout(
    shape: tuple[int, int, int], dtype: str, shard_planes: int | None = None, chunk_rows: int | None = None,
    hidden: tuple[int, int, int] = (0, 0, 0),
) -> PlaneLayout:  # fmt: skip
    """Return the layout of an array. By default, one shard holds all planes, and a plane has only the rows of the
    array. Raises InputError for sizes below 1, for a dtype that is not in DTYPES, and for a grid that is too large for
    files."""
    if dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r} is not supported; there are {' and '.join(DTYPES)}")
    if len(shape) != 3 or any(size < 1 for size in shape):
        raise InputError(f"grid {' x '.join(map(str, shape))} (nz, ny, nx) must have three sizes of at least 1")
    nz, ny, nx = (int(size) for size in shape)
    pitch_bytes = round_up(nx * np.dtype(dtype).itemsize, PITCH_BYTES)
    rows = max(chunk_rows or ny, ny)
    plane_bytes = rows * pitch_bytes
    record_bytes = round_up(plane_bytes + CHECKSUM_BYTES, RECORD_BYTES)
    if nz * record_bytes >= 2**62 or nz > MAX_PLANES:
        raise InputError(f"grid {nz} x {ny} x {nx} (nz, ny, nx) is beyond what files can hold")
    planes = min(shard_planes or nz, nz)
    return PlaneLayout((nz, ny, nx), dtype, pitch_bytes, plane_bytes, record_bytes, planes, rows, hidden)


def stripe_planes(shape: tuple[int, int, int], dtype: str, directories: int) -> int:
    """Return the number of planes in a shard. A shard must be small, so that concurrent transfers use all
    `directories`. But a shard must not be too small, because there would be thousands of files."""
    layout = make_layout(shape, dtype)
    if directories == 1:
        return shape[0]
    stripe_bytes, max_files = 4 << 20, 1024
    share = -(-shape[0] // directories)
    return max(1, min(share, stripe_bytes // layout.record_bytes), -(-shape[0] // max_files))


def index_parts(layout: PlaneLayout, shard: int) -> Iterator[bytes]:
    """Yield the bytes of a shard's index in parts: (offset, length) of each plane, then the CRC32C of all these
    entries. If planes are hidden, the index has no entries for them. Zeros before the index fill the space of these
    entries, because readers look for the index at the end of the file."""
    if not any(layout.hidden):
        length = layout.plane_bytes + CHECKSUM_BYTES
        yield from _index(layout.shard_planes, layout.records(shard), layout.record_bytes, length)
        return
    planes, rows, _ = layout.shown
    z, y, x = layout.hidden
    itemsize = np.dtype(layout.dtype).itemsize
    first = z * layout.record_bytes + y * layout.pitch_bytes + x * itemsize
    yield bytes(16 * 2 * z)
    yield from _index(planes, planes, layout.record_bytes, rows * _shown_pitch(layout) * itemsize, first)


def _shown_pitch(layout: PlaneLayout) -> int:
    """The argument is a layout with hidden cells. Return the number of cells from the beginning of a row to the
    beginning of the next row, in the chunks that readers of Zarr see. If a plane has several rows, its chunk begins at
    the first shown cell. In the chunk of such a plane, each row ends with cells that lie beyond the array."""
    return layout.pitch_cells if layout.shown[1] > 1 else layout.shown[2]


def snapshot_index(shape: tuple[int, ...], itemsize: int, chunk_rows: int | None = None) -> bytes:
    """Return the index of a snapshot. The index has an entry for each plane. In the file, the index follows the cells.
    On grids of fewer than three axes, the index is empty.

    If a chunk has more rows than the snapshot, the inner chunk of a plane ends with the first rows of the next plane.
    Readers ignore the rows of the next plane, because these rows are beyond the end of the array. For the last plane of
    a snapshot, zeros before the index complete the chunk, because no plane follows."""
    if len(shape) < 3:
        return b""
    row_bytes, rows = shape[2] * itemsize, chunk_rows or shape[1]
    index = _index(shape[0], shape[0], shape[1] * row_bytes, rows * row_bytes)
    return b"".join([bytes((rows - shape[1]) * row_bytes), *index])


def _index(count: int, present: int, stride: int, length: int, offset: int = 0) -> Iterator[bytes]:
    """Yield the parts of an index of `count` entries. The first `present` entries describe chunks of `length` bytes at
    distances of `stride` bytes, from byte `offset` on. All entries after the first `present` entries describe chunks
    that do not exist."""
    checksum = 0
    for first in range(0, count, _PART_PLANES):
        entries = np.full((min(_PART_PLANES, count - first), 2), _NO_CHUNK, dtype="<u8")
        here = max(0, min(present - first, len(entries)))
        entries[:here, 0] = np.arange(first, first + here, dtype="<u8") * np.uint64(stride) + np.uint64(offset)
        entries[:here, 1] = length
        part = entries.tobytes()
        checksum = _core.crc32c(part, checksum)
        yield part
    yield checksum.to_bytes(CHECKSUM_BYTES, "little")


def array_metadata(
    layout: PlaneLayout, axes: Sequence[str], attributes: dict[str, Any], part_rows: int | None = None
) -> dict[str, Any]:
    """Return the metadata (zarr.json) of an array that is stored in planes, on a grid with the axes `axes`. If
    `part_rows` is given, the grid is divided into parts of `part_rows` rows, and each shard holds only rows of one
    part.

    If cells are hidden, the chunk of a plane is a part of the plane. The checksum behind the plane belongs to the whole
    plane, so the chunk has no checksum."""
    ny, ndim = part_rows or layout.chunk_rows, len(axes)

    def own(sizes: tuple[int, int, int]) -> list[int]:
        return [sizes[place] for place in PLACES[ndim]]

    chunk, inner = own((layout.shard_planes, ny, layout.pitch_cells)), own((1, ny, layout.pitch_cells))
    codecs = _sharding(inner, [_BYTES, _CHECKSUM])
    if any(layout.hidden):
        pitch = _shown_pitch(layout)
        chunk, codecs = own((*layout.shown[:2], pitch)), _sharding(own((1, layout.shown[1], pitch)), [_BYTES])
    return _array(own(layout.shown), chunk, layout.dtype, axes, codecs, attributes)


def plain_metadata(
    shape: Sequence[int], chunk: Sequence[int], dtype: str, axes: Sequence[str], attributes: dict[str, Any],
    inner: Sequence[int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the metadata (zarr.json) of an array whose chunks are plain bytes. If `inner` is given, each chunk is a
    shard. A shard has inner chunks of the shape `inner`, and an index at its end."""
    return _array(shape, chunk, dtype, axes, [_BYTES] if inner is None else _sharding(inner, [_BYTES]), attributes)


def group_metadata(arrays: dict[str, dict[str, Any]], attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata (zarr.json) of a group. `arrays` maps its arrays and groups to their metadata."""
    return {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": attributes,
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": arrays},
    }


def to_json(metadata: dict[str, Any]) -> bytes:
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
    shape: Sequence[int], chunk: Sequence[int], dtype: str, axes: Sequence[str], codecs: list[dict[str, Any]],
    attributes: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Return the metadata of an array. The order of the keys is fixed, because `verify` compares zarr.json files byte
    by byte."""
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
