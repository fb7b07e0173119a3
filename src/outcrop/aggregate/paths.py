"""Distances of nodes that hang in a tree of switches: by how much of their paths from the top is the same.

    group 0 ──┬── switch 0 ──┬── node 0       0, 0, 0
              │              └── node 1       0, 0, 1      shares (0, 0) with node 0: the same switch
              └── switch 1 ───── node 2       0, 1, 0      shares (0)
    group 1 ────── switch 0 ───── node 3      1, 0, 0      shares nothing

A unit is a link. A dragonfly's switches are connected with each other in a group, and its groups with each other; in a
fat tree the way goes up to what both paths share, and down again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outcrop.aggregate.machine import Floats

DRAGONFLY = (5.0, 3.0, 2.0, 0.0)
"""Links between nodes whose paths (group, switch, port) share none, one, two and all parts: node - switch - switch in
the group - switch in the other group - switch - node, at most."""


def tree_links(levels: int) -> tuple[float, ...]:
    """Of a tree: up to what both share, and down again."""
    return tuple(2.0 * (levels - shared) for shared in range(levels + 1))


@dataclass(frozen=True)
class PathDistances:
    """`paths` has a row for each node, of numbers from the top of the tree to the node; `links[s]` is the distance of
    two that share the first s."""

    paths: NDArray[np.int64]
    links: tuple[float, ...]

    @staticmethod
    def of(paths: Sequence[Sequence[Hashable]], links: tuple[float, ...]) -> PathDistances:
        """From parts of any kind, names for instance; all paths are of one length."""
        levels = len(links) - 1
        assert paths and all(len(path) == levels for path in paths)
        numbers = np.empty((len(paths), levels), np.int64)
        for level in range(levels):
            known: dict[Hashable, int] = {}
            numbers[:, level] = [known.setdefault(path[level], len(known)) for path in paths]
        return PathDistances(numbers, links)

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.paths)

    @property
    def farthest(self) -> float:
        """Between any two nodes."""
        return float(max(self.row(0)))

    def row(self, node: int) -> Floats:
        """From a node to every node."""
        same = np.logical_and.accumulate(self.paths == self.paths[node], axis=1)
        distances: Floats = np.asarray(self.links, np.float64)[same.sum(axis=1)]
        return distances
