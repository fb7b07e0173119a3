"""Choose the aggregator of each domain on a described machine. Also choose the tier of the aggregator's buffers. The
core makes the choice.

    Machine (network, tiers of nodes, target, ranks), Tallies (the bytes of each rank), PlacementOptions
        ──► place, place_best, predict ──► Placement: the rank of each domain, and the predicted seconds

Nodes are numbered from 0. Bandwidths are in bytes per second, and times are in seconds. A bandwidth of `inf` means no
limit. docs/explanation/aggregation-cost.md explains the figures and the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outcrop import _aggregate
from outcrop.tiers.tier import Persistence

Floats = NDArray[np.float64]
Placement = _aggregate.Placement
PlacementOptions = _aggregate.PlacementOptions


class Distances(Protocol):
    """The distances between nodes. `Network.latency_seconds` is the latency of a message for one unit of distance."""

    def row(self, node: int) -> Floats:
        """Return the distances from `node` to all nodes. The distance of `node` to itself is 0."""


@dataclass(frozen=True)
class Network:
    """The network that connects the nodes to each other and to a shared target."""

    latency_seconds: float = 1e-6
    card_bytes_per_second: float = math.inf
    cards_on_node: int = 1


@dataclass(frozen=True)
class BufferTier:
    """A tier on which nodes can have buffers. Buffers on this tier are filled at one rate and emptied at another
    rate."""

    name: str
    latency_seconds: float
    fill_bytes_per_second: float
    empty_bytes_per_second: float = math.inf
    persistence: Persistence = Persistence.PROCESS
    holds_files: bool = False
    """True if the tier is a file system of the node. Only such a tier can hold a stage."""


@dataclass(frozen=True)
class Target:
    """The storage of the file. If `is_shared` is true, all nodes share the storage and the bandwidth. If `is_shared` is
    false, each node has its own device with this bandwidth.
    """

    latency_seconds: float = 0.0
    bytes_per_second: float = math.inf
    is_shared: bool = True


@dataclass(frozen=True)
class SharedMemory:
    """The memory in which the ranks of a node merge their bytes into one message."""

    latency_seconds: float = 1e-6
    bytes_per_second: float = 10e9


@dataclass(frozen=True)
class Machine:
    """The ranks, nodes, tiers and network. `room_bytes` has the number of bytes that buffers may use, with a row for
    each node and a column for each tier.
    """

    node_of_rank: NDArray[np.uint32]
    distances: Distances
    distance_to_target: Floats
    tiers: tuple[BufferTier, ...]
    room_bytes: NDArray[np.uint64]
    network: Network = field(default_factory=Network)
    target: Target = field(default_factory=Target)
    shared_memory: SharedMemory = field(default_factory=SharedMemory)
    target_read: Target | None = None
    """The target with its latency and bandwidth for reading. None means that these are the same as for writing."""

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
        return len(self.distance_to_target)


@dataclass(frozen=True)
class Tallies:
    """The number of bytes of each rank in each domain. For each i, rank `ranks[i]` has `bytes[i]` bytes in domain
    `domains[i]`. Entries with 0 bytes may be left out.
    """

    domains: NDArray[np.uint32]
    ranks: NDArray[np.uint32]
    bytes: NDArray[np.uint64]

    @staticmethod
    def of(domains: Any, ranks: Any, counts: Any) -> Tallies:
        """Make tallies from values that NumPy can convert to arrays."""
        domains, ranks = np.ascontiguousarray(domains, np.uint32), np.ascontiguousarray(ranks, np.uint32)
        return Tallies(domains, ranks, np.ascontiguousarray(counts, np.uint64))


def place(machine: Machine, tallies: Tallies, domains: int, options: PlacementOptions) -> Placement:
    """Return the placement of `domains` domains with the smallest sum of costs. Raises InputError if no tier has enough
    room for the buffers.
    """
    _check(machine, tallies, domains)
    return _aggregate.place(machine, tallies, domains, options)


def place_best(
    machine: Machine, tallies: Tallies, domains: int, options: PlacementOptions, *, try_both: bool = True
) -> Placement:
    """Return the fastest placement. The function tries `domains` domains. Then it joins groups of 2, 4, 8, ...
    neighbouring domains, and tries these smaller numbers of domains.

    If `try_both` is true, the function compares two ways of sending: the ranks of a node send one common message, or
    each rank sends its own message. Raises InputError if no tier has enough room for the buffers.
    """
    _check(machine, tallies, domains)
    return _aggregate.place_best(machine, tallies, domains, options, try_both)


def predict(
    machine: Machine, tallies: Tallies, options: PlacementOptions, ranks: Sequence[int], tiers: Sequence[int]
) -> Placement:
    """Return the placement in which rank `ranks[i]` is the aggregator of domain i, with buffers on the tier `tiers[i]`.
    The placement contains the predicted cost.
    """
    _check(machine, tallies, len(ranks))
    assert len(ranks) == len(tiers) and len(set(ranks)) == len(ranks), "a rank is the aggregator of one domain"
    assert not len(ranks) or (max(ranks) < len(machine.node_of_rank) and max(tiers) < len(machine.tiers))
    return _aggregate.predict(machine, tallies, options, np.asarray(ranks, np.uint32), np.asarray(tiers, np.uint32))


def _check(machine: Machine, tallies: Tallies, domains: int) -> None:
    """Check the arguments here, because the core does not check them."""
    assert len(tallies.domains) == len(tallies.ranks) == len(tallies.bytes)
    if len(tallies.domains):
        assert int(tallies.domains.max()) < domains, "there is no such domain"
        assert int(tallies.ranks.max()) < len(machine.node_of_rank), "there is no such rank"
