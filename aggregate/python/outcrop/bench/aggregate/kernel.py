"""The variables of S3D-IO and HACC-IO, which ranks write and read in `outcrop agg bench`.

    s3d        mass (11 components), velocity (3), pressure, temperature: float64 on a grid divided along x, y and z
    hacc-aos   particles of 38 bytes, first those of rank 0, then those of rank 1, ...
    hacc-soa   nine variables, one after the other, each with the values of all particles

Every variable is an array in C order. Each rank has a box of this array. In memory, the boxes of a rank are adjacent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from outcrop.aggregate.workloads import HACC_BYTES, hacc, s3d
from outcrop.errors import InputError

S3D_VARIABLES = {"mass": 11, "velocity": 3, "pressure": 1, "temperature": 1}
"""The number of components of each variable."""
MAX_RANK_BYTES = 1 << 30
"""The maximum number of bytes of a rank. MPI-IO counts the bytes of a call in 32 bits."""


@dataclass(frozen=True)
class Variable:
    """A rank's box of an array. The whole array begins at byte `offset` of the file."""

    name: str
    item_bytes: int
    shape: tuple[int, ...]
    box: tuple[int, ...]
    starts: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return prod(self.box) * self.item_bytes


@dataclass(frozen=True)
class Kernel:
    """The variables that a rank writes. Together, `ranks` ranks fill a file of `file_bytes` bytes without holes."""

    name: str
    text: str
    ranks: int
    file_bytes: int
    variables: tuple[Variable, ...]

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.variables)

    def arrays(self, memory: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Divide a rank's memory among its variables, and return the part of each variable."""
        ends = np.cumsum([one.nbytes for one in self.variables])
        return [memory[end - one.nbytes : end] for one, end in zip(self.variables, ends, strict=True)]


def make_kernel(name: str, ranks: int, rank: int, bytes_of_rank: int) -> Kernel:
    """Return the kernel of a rank. Raises InputError if the size is too large for MPI-IO."""
    if bytes_of_rank > MAX_RANK_BYTES:
        raise InputError(f"--size {bytes_of_rank}: the maximum is 1GiB for each rank, because MPI-IO counts in 32 bits")
    return KERNELS[name](ranks, rank, bytes_of_rank)


def _s3d(ranks: int, rank: int, bytes_of_rank: int) -> Kernel:
    pattern = s3d(ranks, bytes_of_rank)
    place = np.unravel_index(rank, pattern.ranks_along)
    grid = tuple(cells * along for cells, along in zip(pattern.cells, pattern.ranks_along, strict=True))
    corner = tuple(int(at) * cells for at, cells in zip(place, pattern.cells, strict=True))
    variables, offset = [], 0
    for name, components in S3D_VARIABLES.items():
        shape = (components, *grid)
        variables.append(Variable(name, pattern.item_bytes, shape, (components, *pattern.cells), (0, *corner), offset))
        offset += prod(shape) * pattern.item_bytes
    return Kernel("s3d", pattern.text, ranks, offset, tuple(variables))


def _hacc(name: str, parts: dict[str, int]) -> Callable[[int, int, int], Kernel]:
    def make(ranks: int, rank: int, bytes_of_rank: int) -> Kernel:
        pattern = hacc(ranks, bytes_of_rank, tuple(parts.values()))
        own, variables, offset = pattern.particles, [], 0
        for variable, size in parts.items():
            variables.append(Variable(variable, size, (ranks * own,), (own,), (rank * own,), offset))
            offset += size * ranks * own
        return Kernel(name, pattern.text, ranks, offset, tuple(variables))

    return make


KERNELS: dict[str, Callable[[int, int, int], Kernel]] = {
    "s3d": _s3d,
    "hacc-aos": _hacc("hacc-aos", {"particles": sum(HACC_BYTES.values())}),
    "hacc-soa": _hacc("hacc-soa", HACC_BYTES),
}
"""Functions that make a kernel from the number of ranks, the rank, and the approximate bytes of a rank."""


class Contents:
    """The random bytes of a rank's variables. The bytes depend on a number, the stamp. Each write has its own stamp, so
    a comparison detects bytes of earlier writes.
    """

    def __init__(self, kernel: Kernel, rank: int) -> None:
        self._nbytes = kernel.nbytes
        words = -(-kernel.nbytes // 8)
        self._source = np.random.default_rng(rank).integers(0, 2**64, words, np.uint64)
        self._stamped, self._found = self._source.copy(), self._source.copy()

    def stamped(self, stamp: int) -> NDArray[np.uint8]:
        """Return the bytes to write with this stamp."""
        np.bitwise_xor(self._source, np.uint64(_mixed(stamp)), out=self._stamped)
        return self._bytes(self._stamped)

    def emptied(self) -> NDArray[np.uint8]:
        """Return memory for a read. Each byte differs from the byte that the read must store at its place."""
        np.bitwise_not(self._stamped, out=self._found)
        return self._bytes(self._found)

    @property
    def is_right(self) -> bool:
        """True if the bytes read equal the bytes of the last call of stamped()."""
        return bool(np.array_equal(self._bytes(self._found), self._bytes(self._stamped)))

    def _bytes(self, words: NDArray[np.uint64]) -> NDArray[np.uint8]:
        return words.view(np.uint8)[: self._nbytes]


def _mixed(stamp: int) -> int:
    """Return 64 bits for a stamp. Each byte differs from the byte at the same place for the previous stamp and for the
    next stamp.
    """
    return (stamp + 1) * 0x9E3779B97F4A7C15 % 2**64
