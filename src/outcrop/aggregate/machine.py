"""What placement knows of a machine, and what is asked of it: network, tiers of nodes, target, ranks, wishes.

Nodes are numbered from 0. Bandwidths are in bytes per second, times in seconds; `inf` is what limits nothing. What the
figures mean, and how a cost follows from them, is in docs/explanation/aggregation-cost.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.tiers.tier import Persistence

Floats = NDArray[np.float64]


class Distances(Protocol):
    """How far nodes are from each other, in the unit that the network's latency is of."""

    def row(self, node: int) -> Floats:
        """From a node to every node; 0 to itself."""


@dataclass(frozen=True)
class Network:
    """Between nodes, and to a target that all share. The latency is of a message, for each unit of distance."""

    latency_seconds: float = 1e-6
    card_bytes_per_second: float = math.inf
    cards_on_node: int = 1


@dataclass(frozen=True)
class BufferTier:
    """A tier of nodes that can hold buffers. `fill` is for what comes into a buffer, `empty` for what leaves it."""

    name: str
    latency_seconds: float
    fill_bytes_per_second: float
    empty_bytes_per_second: float = math.inf
    persistence: Persistence = Persistence.PROCESS
    holds_files: bool = False
    """It is a file system of each node, on which steps can be staged."""


@dataclass(frozen=True)
class Medium:
    """What a tier is made of on one node: memory of its NUMA nodes, where any are named; a folder, in which files are
    mapped; else ordinary memory."""

    tier: str
    numa_nodes: tuple[int, ...] = ()
    folder: str = ""


@dataclass(frozen=True)
class Target:
    """Where the file is: on something that all nodes share, with its bandwidth for all of them together; or, where
    `is_shared` is false, on a device of each node, with that of one."""

    latency_seconds: float = 0.0
    bytes_per_second: float = math.inf
    is_shared: bool = True


@dataclass(frozen=True)
class SharedMemory:
    """Through which the ranks of a node put their bytes together."""

    latency_seconds: float = 1e-6
    bytes_per_second: float = 10e9


@dataclass(frozen=True)
class Machine:
    """Ranks on nodes. `room_bytes` has a row for each node and a column for each tier: what buffers may take there."""

    node_of_rank: NDArray[np.uint32]
    distances: Distances
    distance_to_target: Floats
    tiers: tuple[BufferTier, ...]
    room_bytes: NDArray[np.uint64]
    network: Network = field(default_factory=Network)
    target: Target = field(default_factory=Target)
    shared_memory: SharedMemory = field(default_factory=SharedMemory)
    target_read: Target | None = None
    """The target with its figures for reading, where `target` has those for writing; None where it is the same."""

    def __post_init__(self) -> None:
        nodes = len(self.distance_to_target)
        assert self.tiers and nodes and len(self.node_of_rank)
        assert int(self.node_of_rank.max()) < nodes, "every rank is on a node"
        room = np.asarray(self.room_bytes, np.uint64).reshape(nodes, len(self.tiers))
        for name, array, dtype in (
            ("node_of_rank", self.node_of_rank, np.uint32),
            ("distance_to_target", self.distance_to_target, np.float64),
            ("room_bytes", room.ravel(), np.uint64),
        ):
            object.__setattr__(self, name, np.ascontiguousarray(array, dtype))

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.distance_to_target)


@dataclass(frozen=True)
class Wishes:
    """How to gather: `buffers` of `buffer_bytes` for each aggregator, on a tier that keeps what it holds at least as
    long as `persistence`, or on the `tier` of that name. With `merged`, ranks of a node send one message together.
    `most_on_node` limits the aggregators of each node; empty where nothing does."""

    buffer_bytes: int = 16 << 20
    buffers: int = 2
    persistence: Persistence = Persistence.PROCESS
    tier: str = ""
    merged: bool = True
    most_on_node: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.buffer_bytes < 1 or self.buffers < 1:
            raise InputError(f"{self.buffers} buffers of {self.buffer_bytes} bytes: there must be some, of some size")


@dataclass(frozen=True)
class Tallies:
    """How many bytes of which domain each rank has: arrays of one length. Pairs that are not there have none."""

    domains: NDArray[np.uint32]
    ranks: NDArray[np.uint32]
    bytes: NDArray[np.uint64]

    @staticmethod
    def of(domains: Any, ranks: Any, counts: Any) -> Tallies:
        """From anything that NumPy makes arrays of."""
        return Tallies(
            np.ascontiguousarray(domains, np.uint32),
            np.ascontiguousarray(ranks, np.uint32),
            np.ascontiguousarray(counts, np.uint64),
        )
