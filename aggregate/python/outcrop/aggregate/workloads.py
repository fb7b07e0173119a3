"""The files that known programs write together, for any number of ranks.

    s3d        S3D-IO: 16 components of float64, one after the other, on a grid divided along x, y and z
    hacc-aos   HACC-IO, array of structures: particles of 38 bytes, first those of rank 0, then those of rank 1, ...
    hacc-soa   HACC-IO, structure of arrays: nine variables, one after the other, each in the order of ranks

For a place in the file, a pattern computes how many bytes each rank has before this place. The number of bytes of a
rank between two places is the difference of the numbers for the two places. Therefore a pattern needs no list of all
parts of the file.

`outcrop agg bench` writes and reads the variables of these programs. The variables of s3d are mass (11 components),
velocity (3), pressure and temperature. hacc-aos has only one variable, which contains all particles. In the file, every
variable is an array in C order. Each rank has a box of the cells of each array. In memory, the boxes of a rank follow
each other without gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outcrop.aggregate.placement import Tallies
from outcrop.aggregate.topologies import near_equal
from outcrop.errors import InputError

Counts = NDArray[np.int64]

HACC_BYTES = {"xx": 4, "yy": 4, "zz": 4, "vx": 4, "vy": 4, "vz": 4, "phi": 4, "pid": 8, "mask": 2}
"""The number of bytes of each variable of a particle. A particle has 38 bytes."""
HACC_PARTICLES = 100_000
"""The default number of particles of a rank."""
S3D_COMPONENTS = 11 + 1 + 1 + 3
"""The number of components of all variables: species, temperature, pressure and velocity."""
S3D_CELLS = 50
"""The default number of cells along each axis of the box of a rank."""
ALIGNMENT_BYTES = 1 << 20
"""If domains are larger than this size, they begin at multiples of this size, because file systems store files in
stripes or blocks.
"""


class Pattern(Protocol):
    """Describes where the bytes of all ranks are in a file without holes."""

    @property
    def text(self) -> str:
        """A description of the pattern."""

    @property
    def ranks(self) -> int: ...

    @property
    def file_bytes(self) -> int: ...

    def bytes_before(self, place: int) -> Counts:
        """Return the number of bytes that each rank has in the first `place` bytes of the file."""


@dataclass(frozen=True)
class S3d:
    """Components of float64 on a grid. Each rank has a box of `cells` (z, y, x). `ranks_along` has the number of ranks
    along (z, y, x). Rank numbers increase fastest along x.
    """

    ranks_along: tuple[int, int, int]
    cells: tuple[int, int, int]
    components: int = S3D_COMPONENTS
    item_bytes: int = 8

    @property
    def text(self) -> str:
        box, along = ("x".join(map(str, reversed(sizes))) for sizes in (self.cells, self.ranks_along))
        return f"S3D-IO, {self.components} components of {box} float64 a rank, ranks {along}"

    @property
    def ranks(self) -> int:
        return int(np.prod(self.ranks_along))

    @property
    def file_bytes(self) -> int:
        return self.ranks * self.components * self._box_bytes

    @property
    def _box_bytes(self) -> int:
        return self.item_bytes * self.cells[0] * self.cells[1] * self.cells[2]

    @cached_property
    def _places(self) -> tuple[NDArray[np.intp], ...]:
        """The positions of all ranks in the box of ranks, along each axis."""
        return tuple(np.unravel_index(np.arange(self.ranks), self.ranks_along))

    def bytes_before(self, place: int) -> Counts:
        component_bytes = self.ranks * self._box_bytes
        components, rest = divmod(place, component_bytes)
        row_bytes = self.item_bytes * self.cells[2] * self.ranks_along[2]
        row, in_row = divmod(rest, row_bytes)
        plane, in_plane = divmod(row, self.cells[1] * self.ranks_along[1])
        z, y, x = self._places
        planes, is_cut = _within(plane, z, self.cells[0])
        rows, is_row_cut = _within(in_plane, y, self.cells[1])
        x_bytes = self.item_bytes * self.cells[2]
        last_row = np.clip(in_row - x * x_bytes, 0, x_bytes)
        last_plane = rows * x_bytes + np.where(is_row_cut, last_row, 0)
        counts: Counts = planes * self.cells[1] * x_bytes + np.where(is_cut, last_plane, 0)
        return counts + components * self._box_bytes


@dataclass(frozen=True)
class Hacc:
    """A file of particles. Each rank has `particles` particles. Each part of the file contains first the bytes of rank
    0, then the bytes of rank 1, and so on. An array of structures has one part with 38 bytes for each particle. A
    structure of arrays has one part for each variable.
    """

    ranks: int
    particles: int
    parts: tuple[int, ...]

    @property
    def text(self) -> str:
        layout = "array of structures" if len(self.parts) == 1 else "structure of arrays"
        return f"HACC-IO, {layout}, {self.particles} particles a rank"

    @property
    def file_bytes(self) -> int:
        return self.ranks * self.particles * sum(self.parts)

    def bytes_before(self, place: int) -> Counts:
        counts = np.zeros(self.ranks, np.int64)
        for size in self.parts:
            own = self.particles * size
            counts += np.clip(place - np.arange(self.ranks) * own, 0, own)
            place -= own * self.ranks
        return counts


def make_patterns(name: str, ranks: int, bytes_of_rank: int | None = None) -> list[Pattern]:
    """Return the patterns of the workload `name`, with about `bytes_of_rank` bytes for each rank. Raises InputError for
    an unknown name.
    """
    if name not in WORKLOADS:
        raise InputError(f"--workload {name} is unknown; there are {', '.join(WORKLOADS)}")
    return WORKLOADS[name](ranks, bytes_of_rank)


def s3d(ranks: int, bytes_of_rank: int | None = None) -> S3d:
    """Return the pattern of S3D-IO. Each rank has a cube of cells. The ranks form a box that is nearly a cube."""
    cells = S3D_CELLS if bytes_of_rank is None else round((bytes_of_rank / 8 / S3D_COMPONENTS) ** (1 / 3))
    along = near_equal(ranks, 3)
    return S3d((along[0], along[1], along[2]), (max(1, cells),) * 3)


def hacc(ranks: int, bytes_of_rank: int | None, parts: tuple[int, ...]) -> Hacc:
    """Return the pattern of HACC-IO. `parts` has one number for each part of the file: the number of bytes of one
    particle in this part.
    """
    size = sum(HACC_BYTES.values())
    return Hacc(ranks, HACC_PARTICLES if bytes_of_rank is None else max(1, bytes_of_rank // size), parts)


_AOS, _SOA = (sum(HACC_BYTES.values()),), tuple(HACC_BYTES.values())
WORKLOADS: dict[str, Callable[[int, int | None], list[Pattern]]] = {
    "s3d": lambda ranks, size: [s3d(ranks, size)],
    "hacc": lambda ranks, size: [hacc(ranks, size, _AOS), hacc(ranks, size, _SOA)],
    "hacc-aos": lambda ranks, size: [hacc(ranks, size, _AOS)],
    "hacc-soa": lambda ranks, size: [hacc(ranks, size, _SOA)],
}
"""The function that makes the patterns of each workload. Its arguments are the number of ranks, and the number of bytes
of each rank (None for the default).
"""


def tally(pattern: Pattern, domains: int) -> tuple[Tallies, int]:
    """Divide the file into at most `domains` equal domains. Return the tallies of the ranks, and the number of
    domains."""
    size = -(-pattern.file_bytes // domains)
    if size > ALIGNMENT_BYTES:
        size = -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    count = -(-pattern.file_bytes // size)
    parts = []
    before = pattern.bytes_before(0)
    for domain in range(count):
        here = pattern.bytes_before(min((domain + 1) * size, pattern.file_bytes))
        (ranks,) = np.nonzero(here - before)
        parts.append((np.full(len(ranks), domain), ranks, (here - before)[ranks]))
        before = here
    return Tallies.of(*(np.concatenate(column) for column in zip(*parts, strict=True))), count


def _within(place: int, block: NDArray[np.intp], length: int) -> tuple[Counts, NDArray[np.bool_]]:
    """Return two values for each rank, for one axis. The first value is the number of the rank's cells before `place`
    along the axis. The second value says whether `place` is within the rank's cells. Each rank has `length` cells along
    the axis.
    """
    begin = block * length
    counts: Counts = np.clip(place - begin, 0, length)
    return counts, (begin <= place) & (place < begin + length)


# --- the variables of a rank, for the benchmark ----------------------------------------------------------------------


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
    """The variables that a rank writes. All `ranks` ranks together fill a file of `file_bytes` bytes without holes."""

    name: str
    text: str
    ranks: int
    file_bytes: int
    variables: tuple[Variable, ...]

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.variables)

    def arrays(self, memory: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Divide the memory of a rank among the variables. Return the part of each variable."""
        ends = np.cumsum([one.nbytes for one in self.variables])
        return [memory[end - one.nbytes : end] for one, end in zip(self.variables, ends, strict=True)]


def make_kernel(name: str, ranks: int, rank: int, bytes_of_rank: int) -> Kernel:
    """Return the kernel of a rank. Raises InputError if the size of a rank's data is too large for MPI-IO."""
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
    """The random bytes of the variables of a rank. The bytes depend on a number that is called the stamp. Each write
    has its own stamp. Therefore a comparison after a read detects bytes of earlier writes.
    """

    def __init__(self, kernel: Kernel, rank: int) -> None:
        self._nbytes = kernel.nbytes
        words = -(-kernel.nbytes // 8)
        self._source = np.random.default_rng(rank).integers(0, 2**64, words, np.uint64)
        self._stamped, self._found = self._source.copy(), self._source.copy()

    def stamped(self, stamp: int) -> NDArray[np.uint8]:
        """Return the bytes to write for the stamp `stamp`."""
        np.bitwise_xor(self._source, np.uint64(_mixed(stamp)), out=self._stamped)
        return self._bytes(self._stamped)

    def emptied(self) -> NDArray[np.uint8]:
        """Return memory for a read. Before a read, each byte of the memory differs from the byte that the read must
        store there."""
        np.bitwise_not(self._stamped, out=self._found)
        return self._bytes(self._found)

    @property
    def is_right(self) -> bool:
        """True if the bytes that were read are equal to the bytes of the last call of stamped()."""
        return bool(np.array_equal(self._bytes(self._found), self._bytes(self._stamped)))

    def _bytes(self, words: NDArray[np.uint64]) -> NDArray[np.uint8]:
        return words.view(np.uint8)[: self._nbytes]


def _mixed(stamp: int) -> int:
    """Return 64 bits for a stamp. At each place, the byte differs from the bytes for the previous and the next stamp.
    """
    return (stamp + 1) * 0x9E3779B97F4A7C15 % 2**64
