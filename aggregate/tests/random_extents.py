"""Random patterns of access for tests of aggregation. For each byte of memory, a pattern gives the place of the byte in
the file.

Ranks that use the same seed make the same pattern. Each byte of the file belongs to at most one rank. A pattern has a
list of variables for each rank. There are three kinds of variables. A variable can be contiguous ranges of bytes in any
order, one block in each record, or a part of an array with three axes. Some ranks have variables without bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import outcrop.aggregate as agg


@dataclass(frozen=True)
class Variable:
    """A variable of one rank. Byte i of the variable in memory is the byte at the offset `places[i]` of the file."""

    extents: list[agg.Extent]
    places: NDArray[np.int64]

    def values(self, seed: int, rank: int, number: int) -> NDArray[np.uint8]:
        """Return the bytes that the rank writes for one variable. Different variables have different bytes."""
        random = np.random.default_rng([seed, rank, number])
        return random.integers(1, 256, len(self.places), dtype=np.uint8)


def runs(random: np.random.Generator, ranks: int, offset: int) -> tuple[list[list[Variable]], int]:
    """Make contiguous ranges of bytes. The lengths are random, and there are holes between some ranges.

    Each range belongs to a random rank. The ranges of a rank are in random order.
    """
    edges = offset + np.cumsum(random.integers(1, 3000, 12 * ranks))
    owners = random.integers(-1, ranks, len(edges) - 1)  # -1: a hole
    of_rank: list[list[Variable]] = []
    for rank in range(ranks):
        mine = random.permutation(np.flatnonzero(owners == rank))
        extents, places, filled = [], [np.empty(0, np.int64)], 0
        for run in mine:
            begin, end = int(edges[run]), int(edges[run + 1])
            extents.append(agg.contiguous(begin, end - begin, memory_offset=filled))
            places.append(np.arange(begin, end))
            filled += end - begin
        of_rank.append([Variable(extents, np.concatenate(places))])
    return of_rank, int(edges[-1])


def records(random: np.random.Generator, ranks: int, offset: int) -> tuple[list[list[Variable]], int]:
    """Make records. A rank has either one block of bytes in every record, or no bytes at all."""
    widths = random.integers(0, 40, ranks)
    stride = max(1, int(widths.sum() + random.integers(0, 9)))
    count = int(random.integers(1, 400))
    begins = offset + np.cumsum(widths) - widths
    of_rank = []
    for begin, width in zip(begins.tolist(), widths.tolist(), strict=True):
        places = (begin + np.arange(count)[:, None] * stride + np.arange(width)).ravel()
        of_rank.append([Variable([agg.strided(begin, count, width, stride)] if width else [], places)])
    return of_rank, offset + count * stride


def blocks(random: np.random.Generator, ranks: int, offset: int) -> tuple[list[list[Variable]], int]:
    """Cut an array with three axes along two of its axes. Each part of the array becomes a variable of a random
    rank."""
    shape = tuple(int(size) for size in random.integers(2, 20, 3))
    item = int(random.choice([1, 2, 4, 8]))
    index = offset + np.arange(np.prod(shape) * item).reshape(*shape, item)
    cuts = [[0, *sorted({int(cut) for cut in random.integers(1, size, 2)}), size] for size in shape[:2]]
    of_rank: list[list[Variable]] = [[] for _ in range(ranks)]
    for low, high in zip(cuts[0][:-1], cuts[0][1:], strict=True):
        for left, right in zip(cuts[1][:-1], cuts[1][1:], strict=True):
            subshape = (high - low, right - left, shape[2])
            part = agg.subarray(shape, subshape, (low, left, 0), f"u{item}", offset=offset)
            places = index[low:high, left:right].ravel()
            of_rank[int(random.integers(ranks))].append(Variable([part], places))
    return of_rank, offset + int(np.prod(shape)) * item


def pattern(seed: int, ranks: int) -> list[list[Variable]]:
    """Return a random pattern, which is a list of variables for each rank."""
    random = np.random.default_rng(seed)
    of_rank: list[list[Variable]] = [[] for _ in range(ranks)]
    offset = int(random.integers(0, 5000))
    for make in random.permutation([runs, records, blocks]):
        made, offset = make(random, ranks, offset)
        for mine, more in zip(of_rank, made, strict=True):
            mine.extend(more)
    return of_rank


def expected(variables: list[list[Variable]], seed: int) -> NDArray[np.uint8]:
    """Return the bytes of the file after one step has been written. The result ends with the last byte that was
    written. Holes are zeros."""
    places = [one.places for mine in variables for one in mine]
    whole = np.zeros(max((int(each.max()) + 1 for each in places if len(each)), default=0), np.uint8)
    for rank, mine in enumerate(variables):
        for number, one in enumerate(mine):
            whole[one.places] = one.values(seed, rank, number)
    return whole
