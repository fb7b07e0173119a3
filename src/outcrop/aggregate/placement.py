"""Which rank gathers which domain, in buffers on which tier. As core/outcrop/aggregate/placement/placement.hpp says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outcrop import _core
from outcrop.aggregate.machine import Machine, Tallies, Wishes


@dataclass(frozen=True)
class Cost:
    """A prediction by its terms, in seconds."""

    merge: float
    """Ranks of a node put their bytes together, in the nodes that send."""
    messages: float
    """Latency of all messages to the aggregator."""
    transfer: float
    """Bytes of other nodes."""
    copy: float
    """Bytes of the aggregator's own node."""
    target_latency: float
    target_transfer: float
    hidden: float
    """What overlap of filling and emptying buffers saves of the sum of the others."""

    @property
    def total(self) -> float:
        """Until the domain is where it belongs."""
        fill = self.merge + self.messages + self.transfer + self.copy
        return fill + self.target_latency + self.target_transfer - self.hidden


@dataclass(frozen=True)
class Choice:
    """Of one domain. `node` and `tier` are numbers of the machine's."""

    rank: int
    node: int
    tier: int
    bytes: int
    cost: Cost


@dataclass(frozen=True)
class Placement:
    """The choice for each domain. All gather at the same time: `seconds` are those of the slowest."""

    choices: tuple[Choice, ...]
    seconds: float
    slowest: int
    most_on_node: int
    merged: bool
    is_least: bool
    """No other placement has a lower sum of costs."""
    notes: tuple[str, ...]
    """What was left out or taken instead, and why."""
    _core: _core.AggregatePlacement

    def explain(self, domains_most: int = 1) -> str:
        """In words: the whole, then the domains that take longest, with what other places would have cost."""
        return self._core.explain(domains_most)


def place(machine: Machine, tallies: Tallies, domains: int, wishes: Wishes) -> Placement:
    """The placement of so many domains whose costs have the least sum. Raises InputError where they find no room."""
    _check(machine, tallies, domains)
    return _placement(_core.aggregate_place(machine, tallies, domains, wishes))


def place_best(machine: Machine, tallies: Tallies, domains: int, wishes: Wishes, *, try_both: bool = True) -> Placement:
    """The one of those with `domains` domains, or 2, 4, 8, ... neighbours made one, that is done first.

    With `try_both`, ranks of a node send together or not, whichever is sooner. Raises InputError where none finds room.
    """
    _check(machine, tallies, domains)
    return _placement(_core.aggregate_place_best(machine, tallies, domains, wishes, try_both))


def predict(
    machine: Machine, tallies: Tallies, wishes: Wishes, ranks: Sequence[int], tiers: Sequence[int]
) -> Placement:
    """What it costs where the ranks and tiers of the domains are given."""
    _check(machine, tallies, len(ranks))
    assert len(ranks) == len(tiers) and len(set(ranks)) == len(ranks), "a rank gathers one domain"
    assert not len(ranks) or (max(ranks) < len(machine.node_of_rank) and max(tiers) < len(machine.tiers))
    return _placement(
        _core.aggregate_predict(machine, tallies, wishes, np.asarray(ranks, np.uint32), np.asarray(tiers, np.uint32))
    )


def _check(machine: Machine, tallies: Tallies, domains: int) -> None:
    """The core does not look twice at what it is given."""
    assert len(tallies.domains) == len(tallies.ranks) == len(tallies.bytes)
    if len(tallies.domains):
        assert int(tallies.domains.max()) < domains, "of a domain that is none"
        assert int(tallies.ranks.max()) < len(machine.node_of_rank), "of a rank that is none"


def _placement(made: _core.AggregatePlacement) -> Placement:
    choices = tuple(Choice(rank, node, tier, size, Cost(*seconds)) for rank, node, tier, size, *seconds in made.choices)
    return Placement(
        choices, made.seconds, made.slowest, made.most_on_node, made.merged, made.is_least, tuple(made.notes), made
    )
