"""Which rank gathers which domain, in buffers on which tier, for a machine that is described: the core decides.

    Machine (network, tiers of nodes, target, ranks), Tallies (who has how many bytes), PlacementOptions
        ──► place, place_best, predict ──► Placement: the rank of each domain, and the seconds that are predicted

Nodes are numbered from 0. Bandwidths are in bytes per second, times in seconds; `inf` limits nothing. What the figures
mean, and how a cost follows from them, is in docs/explanation/aggregation-cost.md.
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


def place(machine: Machine, tallies: Tallies, domains: int, options: PlacementOptions) -> Placement:
    """The placement of `domains` domains whose costs have the least sum. Raises InputError where they find no room."""
    _check(machine, tallies, domains)
    return _aggregate.place(machine, tallies, domains, options)


def place_best(
    machine: Machine, tallies: Tallies, domains: int, options: PlacementOptions, *, try_both: bool = True
) -> Placement:
    """The placement that finishes first, of those with `domains` domains, or with 2, 4, 8, ... neighbours made one.

    With `try_both`, ranks of a node send together or not, whichever is sooner. Raises InputError where none finds room.
    """
    _check(machine, tallies, domains)
    return _aggregate.place_best(machine, tallies, domains, options, try_both)


def predict(
    machine: Machine, tallies: Tallies, options: PlacementOptions, ranks: Sequence[int], tiers: Sequence[int]
) -> Placement:
    """What it costs where the ranks and tiers of the domains are given."""
    _check(machine, tallies, len(ranks))
    assert len(ranks) == len(tiers) and len(set(ranks)) == len(ranks), "a rank gathers one domain"
    assert not len(ranks) or (max(ranks) < len(machine.node_of_rank) and max(tiers) < len(machine.tiers))
    return _aggregate.predict(
        machine, tallies, options, np.asarray(ranks, np.uint32), np.asarray(tiers, np.uint32)
    )


def _check(machine: Machine, tallies: Tallies, domains: int) -> None:
    """The core does not check again what it is given."""
    assert len(tallies.domains) == len(tallies.ranks) == len(tallies.bytes)
    if len(tallies.domains):
        assert int(tallies.domains.max()) < domains, "there is no such domain"
        assert int(tallies.ranks.max()) < len(machine.node_of_rank), "there is no such rank"
