"""The machine that the ranks run on, as placement knows it: made of what each rank knows, the same on all.

every rank: Known ──► gathered ──► distances, tiers of all nodes, target ──► AtHand, with where each figure is from
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from outcrop import _core
from outcrop.aggregate.distances import find_distances
from outcrop.aggregate.here import Facts, facts_here, surroundings_of
from outcrop.aggregate.machine import BufferTier, Floats, Machine, Medium, Network, Target
from outcrop.aggregate.machine_text import name_of, text_of_this_node
from outcrop.aggregate.ping_pong import NODES_MOST
from outcrop.tiers.tier import Persistence
from outcrop.units import format_rate


@dataclass(frozen=True)
class Known:
    """What a rank knows. What the node is like, the text of a machine file, only its first rank says."""

    node: int
    facts: Facts
    text: str = ""


@dataclass(frozen=True)
class AtHand:
    """The machine, what each tier is made of on each node, the nodes' hosts, and lines that say where figures are
    from. `node` is that of this rank. `wants_ping_pong` where nobody knows how far nodes are from each other, but
    measuring would tell."""

    machine: Machine
    media: tuple[tuple[Medium, ...], ...]
    hosts: tuple[str, ...]
    lines: tuple[str, ...]
    wants_ping_pong: bool = False

    def media_of(self, rank: int) -> tuple[Medium, ...]:
        """Of all tiers, on that rank's node."""
        return self.media[int(self.machine.node_of_rank[rank])]


def known_here(rank: int, node: int, machine: Path | None, target: Path) -> Known:
    """That of this process; `machine` is the machine file, if there is one. Raises InputError for one that is wrong."""
    return Known(node, facts_here(), text_of_this_node(machine, target) if rank == node else "")


def leaders_of(known: Sequence[Known]) -> list[int]:
    """The first ranks of all nodes, ascending."""
    return sorted({one.node for one in known})


def at_hand(
    known: Sequence[Known],
    machine: Path | None,
    target: Path,
    topology: Path | None,
    reading: bool,
    ping_pong: Floats | None = None,
) -> AtHand:
    """Of what all ranks know, in their order; files will be at `target`. `ping_pong` is what has been measured between
    nodes, if anything has. Raises InputError for a wrong `topology`."""
    numbers = {lowest: number for number, lowest in enumerate(leaders_of(known))}
    node_of_rank = [numbers[one.node] for one in known]
    measured = None if ping_pong is None else lambda: ping_pong
    around = surroundings_of([one.facts for one in known], node_of_rank, topology, measured)
    found = find_distances(around)
    nodes = _core.aggregate_join_nodes([known[lowest].text for lowest in numbers], name_of(machine))
    write, read = Target(*nodes.target_write), Target(*nodes.target_read)
    tiers = tuple(
        BufferTier(name, latency, fill, empty, Persistence(lasts), files)
        for name, latency, fill, empty, lasts, files in nodes.tiers
    )
    made = Machine(
        np.asarray(node_of_rank, np.uint32),
        found.distances,
        np.ones(len(numbers)),
        tiers,
        np.asarray(nodes.room_bytes, np.uint64),
        Network(*nodes.network),
        read if reading else write,
        target_read=read,
    )
    rate = format_rate(made.target.bytes_per_second)
    lines = [f"target {target.absolute()}: {rate}B/s, {nodes.target_text}", *nodes.lines]
    if len(numbers) > 1:
        lines.append(str(found))
    media = tuple(tuple(Medium(tier, tuple(numa), folder) for tier, numa, folder in node) for node in nodes.media)
    wants = found.provider == "node" and ping_pong is None and 2 < len(numbers) <= NODES_MOST
    return AtHand(made, media, tuple(around.hosts), tuple(lines), wants)
