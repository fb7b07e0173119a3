"""Where every plane of an array lies on disk.

A plane is stored as a record; a window slot in memory has the same layout, so a record moves in one transfer:

    record:  | ny rows of pitch_bytes | CRC32C | seal | zeros to a multiple of 4096 |
    shard:   | record 0 | record 1 | ... | record S-1 | index: S x (offset, length), CRC32C |

The seal (core/outcrop/storage/seal.hpp) knows which plane this is, of which array and run, and from which writing.

Shard s holds planes s*S .. s*S + S-1; the last one ends with the grid, its index keeps S entries. In Zarr terms a
shard is a chunk of shape (S, ny, pitch) and a plane an inner chunk (1, ny, pitch) whose padding sticks out of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    stripe_bytes, files_most = 4 << 20, 1024
    share = -(-shape[0] // directories)
    return max(1, min(share, stripe_bytes // layout.record_bytes), -(-shape[0] // files_most))
