"""The machine that the ranks run on, as placement knows it: made of what each rank knows, the same on all.

    every rank: Known ──► gathered ──► distances, tiers of all nodes, target ──► AtHand, with where each figure is from

Buffers lie in ordinary memory: of the tiers of a node only that is offered.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from outcrop.aggregate.distances import find_distances
from outcrop.aggregate.here import Facts, facts_here, surroundings_of
from outcrop.aggregate.machine import Machine, Network, Target
from outcrop.aggregate.node_tiers import SHARED, TYPICAL, NodeTier, node_tier
from outcrop.errors import InputError
from outcrop.tiers.mounts import mount_of, nearest_existing
from outcrop.tiers.storage_tiers import mounted_tier
from outcrop.tiers.survey import find_tiers
from outcrop.tiers.tier import Tier
from outcrop.units import format_rate

CARD_BYTES_PER_SECOND = 12.5e9
"""Of a network card, assumed."""
CARDS = ("sys/class/infiniband", "sys/class/cxi")


@dataclass(frozen=True)
class Known:
    """What a rank knows. Of a node only its first rank looks for tiers and cards."""

    node: int
    facts: Facts
    memory: NodeTier | None = None
    cards: int = 1


@dataclass(frozen=True)
class AtHand:
    """The machine, the hosts of its nodes, and lines that say where figures are from."""

    machine: Machine
    hosts: tuple[str, ...]
    lines: tuple[str, ...]


def known_here(rank: int, node: int) -> Known:
    """That of this process."""
    if rank != node:
        return Known(node, facts_here())
    return Known(node, facts_here(), _memory(find_tiers()), _cards())


def at_hand(known: Sequence[Known], target: Path, topology: Path | None, reading: bool) -> AtHand:
    """Of what all ranks know, in their order; files will be at `target`. Raises InputError for a wrong `topology`."""
    numbers = {lowest: number for number, lowest in enumerate(sorted({one.node for one in known}))}
    node_of_rank = [numbers[one.node] for one in known]
    first = [known[lowest] for lowest in numbers]
    around = surroundings_of([one.facts for one in known], node_of_rank, topology)
    found = find_distances(around)
    memory = [one.memory for one in first]
    assert all(memory), "every node has memory"
    room = np.asarray([[one.room_bytes if one else 0] for one in memory], np.uint64)
    tier = next(one for one in memory if one)
    cards = max(1, min(one.cards for one in first))
    place, line = _target(target, reading)
    machine = Machine(
        np.asarray(node_of_rank, np.uint32),
        found.distances,
        np.ones(len(first)),
        (tier.tier,),
        room,
        Network(card_bytes_per_second=CARD_BYTES_PER_SECOND, cards_on_node=cards),
        place,
    )
    rate = format_rate(tier.tier.fill_bytes_per_second)
    lines = [line, f"{tier.tier.name}: {rate}B/s, {tier.origin}"]
    if len(first) > 1:
        lines += [str(found), f"network: {cards} x {format_rate(CARD_BYTES_PER_SECOND)}B/s a node, assumed"]
    return AtHand(machine, tuple(around.hosts), tuple(lines))


def _memory(tiers: Sequence[Tier]) -> NodeTier:
    """That which a program gets when it asks for memory: DRAM, or HBM where there is nothing else."""
    memory = [tier for tier in tiers if tier.is_memory]
    ordinary = [tier for tier in memory if tier.kind == "dram"] or memory
    return node_tier(ordinary[0])


def _target(folder: Path, reading: bool) -> tuple[Target, str]:
    """What is at `folder`, with figures that `outcrop tiers` has measured, or those of its kind."""
    try:
        tier = mounted_tier(mount_of(nearest_existing(folder)))
    except OSError as error:
        raise InputError(f"target {folder}: {error.strerror}") from None
    tier = next((one for one in find_tiers() if one.name == tier.name), tier)
    rate = tier.read_bytes_per_second if reading else tier.write_bytes_per_second
    latency = tier.latency_seconds_read if reading else tier.latency_seconds_write
    typical = TYPICAL[tier.kind]
    origin = tier.origin if rate else f"assumed for {tier.kind}"
    rate, latency = rate or typical.bytes_per_second, typical.latency_seconds if latency is None else latency
    line = f"target {folder.absolute()}: {tier.name}, {format_rate(rate)}B/s, {origin}"
    return Target(latency, rate, tier.kind == SHARED), line


def _cards(root: Path = Path("/")) -> int:
    """Network cards of this node; at least one."""
    found = 0
    for folder in CARDS:
        if (root / folder).is_dir():
            found += len(os.listdir(root / folder))
    return max(1, found)
