"""What ranks write and read in `outcrop agg bench`: the variables of S3D-IO and HACC-IO.

    s3d        mass (11 components), velocity (3), pressure, temperature: float64 on a grid cut along x, y and z
    hacc-aos   particles of 38 bytes, those of rank 0, then those of rank 1, ...
    hacc-soa   nine variables, one after the other, each with that of all particles

Every variable is an array in C order, of which a rank has a box; in memory a rank's boxes follow one another.
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
"""Components of each."""
RANK_BYTES_MOST = 1 << 30
"""MPI-IO counts the bytes of a call in 32 bits."""


@dataclass(frozen=True)
class Variable:
    """A rank's box of an array that begins at byte `offset` of the file."""

    name: str
    item_bytes: int
    shape: tuple[int, ...]
    box: tuple[int, ...]
    starts: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Of the box."""
        return prod(self.box) * self.item_bytes


@dataclass(frozen=True)
class Kernel:
    """What one of `ranks` ranks has of a file of `file_bytes` bytes without holes."""

    name: str
    text: str
    ranks: int
    file_bytes: int
    variables: tuple[Variable, ...]

    @property
    def nbytes(self) -> int:
        """Of this rank."""
        return sum(one.nbytes for one in self.variables)

    def arrays(self, memory: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Each variable's part of a rank's memory."""
        ends = np.cumsum([one.nbytes for one in self.variables])
        return [memory[end - one.nbytes : end] for one, end in zip(self.variables, ends, strict=True)]


def make_kernel(name: str, ranks: int, rank: int, bytes_of_rank: int) -> Kernel:
    """The part of a rank. Raises InputError for an unknown name and for sizes that are too small or too large."""
    if bytes_of_rank > RANK_BYTES_MOST:
        raise InputError(f"--size {bytes_of_rank}: at most 1GiB a rank, for MPI-IO to count them")
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
"""By name: what a rank of so many has, with about so many bytes."""


class Contents:
    """The bytes of a rank's variables: random, other ones for each stamp, so that what an earlier turn has left in a
    file is never taken for what this turn has written."""

    def __init__(self, kernel: Kernel, rank: int) -> None:
        self._nbytes = kernel.nbytes
        words = -(-kernel.nbytes // 8)
        self._source = np.random.default_rng(rank).integers(0, 2**64, words, np.uint64)
        self._stamped, self._found = self._source.copy(), self._source.copy()

    def stamped(self, stamp: int) -> NDArray[np.uint8]:
        """What is to be written."""
        np.bitwise_xor(self._source, np.uint64(_mixed(stamp)), out=self._stamped)
        return self._bytes(self._stamped)

    def emptied(self) -> NDArray[np.uint8]:
        """Where bytes are to be read to, with no byte as it will be."""
        np.bitwise_not(self._stamped, out=self._found)
        return self._bytes(self._found)

    @property
    def is_right(self) -> bool:
        """Whether what was read is what was stamped last."""
        return bool(np.array_equal(self._bytes(self._found), self._bytes(self._stamped)))

    def _bytes(self, words: NDArray[np.uint64]) -> NDArray[np.uint8]:
        return words.view(np.uint8)[: self._nbytes]


def _mixed(stamp: int) -> int:
    """A stamp whose bytes all differ from those of the ones before and after."""
    return (stamp + 1) * 0x9E3779B97F4A7C15 % 2**64
