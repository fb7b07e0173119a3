"""Simulate aggregation on a described machine. The results are placements and their predicted times, for any number of
ranks.

    topology ──► distances ─┐                       ┌─► chosen: aggregators, their number and tier
    tiers, network, target ─┼─► machine ─► core ────┼─► round robin: the same number, on one node after the other
    workload ──► tallies ───┘                       └─► as ROMIO: one aggregator on each node, one buffer

The same model predicts the times of all placements. Therefore two predicted times differ only because the placements
differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.aggregate.nodes import NodeTiers
from outcrop.aggregate.placement import (
    Machine,
    Network,
    Placement,
    PlacementOptions,
    Tallies,
    Target,
    place,
    place_best,
    predict,
)  # fmt: skip
from outcrop.aggregate.topologies import Topology
from outcrop.aggregate.workloads import Pattern, tally
from outcrop.errors import InputError
from outcrop.tiers.tier import Persistence
from outcrop.units import counted, format_bytes

MAX_RANKS, MAX_COSTS_ASKED = 1 << 17, 1 << 27
MAX_COSTS, MIN_AGGREGATORS = 1 << 22, 512
"""By default, the number of aggregators has two limits. The first limit is the number of network cards. The second
limit is MIN_AGGREGATORS or MAX_COSTS / nodes, whichever is larger. The option --aggregators can set a number above both
limits.
"""
HEADS = ("placement", "aggregators", "nodes", "tier", "messages", "predicted", "GB/s", "merge", "latency", "transfer",
         "copy", "target", "overlapped")  # fmt: skip
ROMIO_BUFFER_BYTES = 16 << 20
"""The default of ROMIO's cb_buffer_size."""


@dataclass(frozen=True)
class Scenario:
    """The simulated machine and options. If `aggregators` is None, the simulation chooses the number of aggregators
    with the shortest time."""

    topology: Topology
    ranks_per_node: int
    tiers: NodeTiers
    network: Network
    target: Target
    options: PlacementOptions = field(default_factory=PlacementOptions)
    aggregators: int | None = None

    @property
    def ranks(self) -> int:
        return self.topology.nodes * self.ranks_per_node

    def machine(self) -> Machine:
        tiers = self.tiers.tiers
        nodes = self.topology.node_of_rank
        return Machine(
            np.repeat(np.arange(self.topology.nodes), self.ranks_per_node) if nodes is None else nodes,
            self.topology.distances,
            self.topology.to_target,
            tuple(one.tier for one in tiers),
            np.tile(np.asarray([one.room_bytes for one in tiers], np.uint64), (self.topology.nodes, 1)),
            self.network,
            self.target,
        )


@dataclass(frozen=True)
class Row:
    """A placement and its predicted cost."""

    name: str
    placement: Placement
    tiers: tuple[str, ...]
    """The names of the tiers that hold buffers."""
    nodes: int
    """The number of nodes with aggregators."""
    bytes_per_second: float

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON data. `seconds_by_term` has the terms of the slowest domain's cost."""
        cost = self.placement.choices[self.placement.slowest].cost
        return {
            "name": self.name,
            "aggregators": len(self.placement.choices),
            "nodes": self.nodes,
            "tiers": list(self.tiers),
            "merged": self.placement.merged,
            "seconds": self.placement.seconds,
            "bytes_per_second": self.bytes_per_second,
            "seconds_by_term": cost.terms,
            "notes": list(self.placement.notes),
            "choices": [
                {"rank": one.rank, "node": one.node, "tier": one.tier, "bytes": one.bytes, "seconds": one.cost.total}
                for one in self.placement.choices
            ],
        }


@dataclass(frozen=True)
class Simulated:
    """The placements of one pattern. `rows[0]` is the chosen placement."""

    pattern: Pattern
    rows: tuple[Row, ...]
    note: str = ""
    """A remark that more aggregators may be faster but were not tried. The value "" means that there is no remark."""

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.pattern.text,
            "file_bytes": self.pattern.file_bytes,
            "placements": [row.to_json() for row in self.rows],
            "note": self.note,
            "explanation": self.rows[0].placement.explain().splitlines(),
        }


def check_ranks(nodes: int, ranks_per_node: int, aggregators: int | None, name: str = "--aggregators") -> None:
    """Raise InputError if there are more ranks than Outcrop can simulate. Also raise it if there are too many
    aggregators for the ranks or the nodes. `name` is the option or setting with the number of aggregators.
    """
    ranks = nodes * ranks_per_node
    if ranks > MAX_RANKS:
        raise InputError(f"{nodes} nodes with {ranks_per_node} ranks each: the maximum is {MAX_RANKS} ranks")
    if aggregators is not None and not 0 < aggregators <= ranks:
        raise InputError(f"{name} {aggregators} must be from 1 to {ranks}, the number of ranks")
    if aggregators is not None and aggregators * nodes > MAX_COSTS_ASKED:
        raise InputError(f"{name} {aggregators}: the maximum for {nodes} nodes is {MAX_COSTS_ASKED // nodes}")


def simulate(scenario: Scenario, patterns: Sequence[Pattern]) -> Iterator[Simulated]:
    """Yield the placements of each pattern. Raises InputError if no tier has enough room for the buffers."""
    machine = scenario.machine()
    for pattern in patterns:
        rows = tuple(_rows(scenario, machine, pattern))
        limit, tried = _cards(scenario), _most_aggregators(scenario)
        is_limited = scenario.aggregators is None and tried < limit and 2 * len(rows[0].placement.choices) > tried
        note = f"at most {tried} aggregators were tried for {limit} cards; choose more with --aggregators"
        yield Simulated(pattern, rows, note if is_limited else "")


def round_robin(node_of_rank: NDArray[np.uint32], count: int) -> NDArray[np.int64]:
    """Return `count` ranks in this order: first the first rank of each node, then the second rank of each node, and so
    on."""
    order = np.argsort(node_of_rank, kind="stable")
    sorted_nodes = node_of_rank[order]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.searchsorted(sorted_nodes, sorted_nodes)
    ranks: NDArray[np.int64] = np.lexsort((node_of_rank, place))[:count]
    return ranks


def _rows(scenario: Scenario, machine: Machine, pattern: Pattern) -> Iterator[Row]:
    tallies, domains = tally(pattern, scenario.aggregators or _most_aggregators(scenario))
    chosen = _choose(scenario, machine, tallies, domains)
    yield _row("chosen", chosen, machine, pattern)
    count = len(chosen.choices)
    joined = next(1 << power for power in range(64) if -(-domains >> power) == count)  # domains in each group
    fewer = replace(tallies, domains=(tallies.domains // joined).astype(np.uint32))
    tier = int(np.bincount([one.tier for one in chosen.choices]).argmax())
    options = scenario.options.sending_merged(chosen.merged)
    ranks = round_robin(machine.node_of_rank, count)
    yield _row("round robin", predict(machine, fewer, options, list(ranks), [tier] * count), machine, pattern)
    yield _row("as ROMIO", _as_romio(machine, pattern), machine, pattern)
    yield from _staged(scenario, machine, pattern, tallies, domains)


def _cards(scenario: Scenario) -> int:
    """Return the number of aggregators for which each aggregator has its own network card and its own rank."""
    return min(scenario.ranks, scenario.topology.nodes * scenario.network.cards_on_node)


def _most_aggregators(scenario: Scenario) -> int:
    """Return the maximum number of aggregators that Outcrop tries by default."""
    return min(_cards(scenario), max(MIN_AGGREGATORS, MAX_COSTS // scenario.topology.nodes))


def _choose(scenario: Scenario, machine: Machine, tallies: Tallies, domains: int) -> Placement:
    if scenario.aggregators is None:
        return place_best(machine, tallies, domains, scenario.options)
    ways = (True, False) if scenario.ranks_per_node > 1 else (False,)
    both = [place(machine, tallies, domains, scenario.options.sending_merged(merged)) for merged in ways]
    return min(both, key=lambda placement: placement.seconds)


def _as_romio(machine: Machine, pattern: Pattern) -> Placement:
    """Return ROMIO's default placement: one aggregator on each node, with a buffer of 16 MiB in memory. Each rank sends
    its own messages.
    """
    tallies, count = tally(pattern, machine.nodes)
    options = PlacementOptions(ROMIO_BUFFER_BYTES, 1, merged=False)
    names = [tier.name for tier in machine.tiers]
    tier = names.index("dram") if "dram" in names else 0
    return predict(machine, tallies, options, list(round_robin(machine.node_of_rank, count)), [tier] * count)


def _staged(scenario: Scenario, machine: Machine, pattern: Pattern, tallies: Tallies, domains: int) -> Iterator[Row]:
    """Yield a row for staging. The stage is on the fastest tier that keeps its files at least until the end of the job.
    The predicted time does not include the copy from the stage to the target. Yields nothing if no tier is suitable, or
    if the nodes do not share the target.
    """
    lasting = [one.tier for one in scenario.tiers.tiers if one.tier.persistence >= Persistence.JOB]
    if not lasting or not scenario.target.is_shared:
        return
    stage = max(lasting, key=lambda tier: tier.fill_bytes_per_second)
    target = Target(stage.latency_seconds, stage.fill_bytes_per_second, is_shared=False)
    staged = replace(scenario, target=target)
    placement = _choose(staged, replace(machine, target=target), tallies, domains)
    yield _row(f"staged on {stage.name}", placement, machine, pattern)


def _row(name: str, placement: Placement, machine: Machine, pattern: Pattern) -> Row:
    numbers = sorted({one.tier for one in placement.choices})
    return Row(
        name,
        placement,
        tuple(machine.tiers[number].name for number in numbers),
        len({one.node for one in placement.choices}),
        pattern.file_bytes / placement.seconds if placement.seconds else math.inf,
    )


def head(scenario: Scenario) -> Iterator[str]:
    """Yield lines that describe the simulated machine with all its figures."""
    nodes, network = scenario.topology.nodes, scenario.network
    yield f"{scenario.topology.text}; {nodes} x {scenario.ranks_per_node} = {scenario.ranks} ranks"
    cards = counted(network.cards_on_node, "card")
    yield (
        f"network: {cards} of {_rate(network.card_bytes_per_second)} a node, "
        f"{_time(network.latency_seconds)} a link; target: {_target_text(scenario.target)}"
    )
    for one in scenario.tiers.tiers:
        yield (
            f"{one.tier.name}: {format_bytes(one.room_bytes)} free on a node, filled at "
            f"{_rate(one.tier.fill_bytes_per_second)}, emptied at {_rate(one.tier.empty_bytes_per_second)}, "
            f"{_time(one.tier.latency_seconds)}, lasts for {one.tier.persistence.name.lower()}; {one.origin}"
        )


def table(simulated: Simulated) -> Iterator[str]:
    """Yield a table with a row for each placement. After the table, yield the reasons for the chosen placement."""
    yield ""
    yield f"{simulated.pattern.text}: {format_bytes(simulated.pattern.file_bytes)}"
    rows = [HEADS, *(_cells(row) for row in simulated.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, 3, 4) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
    if simulated.note:
        yield simulated.note
    yield ""
    yield from simulated.rows[0].placement.explain().splitlines()


def _cells(row: Row) -> tuple[str, ...]:
    placement = row.placement
    cost = placement.choices[placement.slowest].cost
    return (
        row.name,
        str(len(placement.choices)),
        str(row.nodes),
        "+".join(row.tiers),
        "of nodes" if placement.merged else "of ranks",
        _time(placement.seconds),
        f"{row.bytes_per_second / 1e9:.3g}",
        *map(_time, (cost.merge, cost.messages, cost.transfer, cost.copy, cost.target_latency + cost.target_transfer)),
        _time(-cost.hidden),
    )


def _target_text(target: Target) -> str:
    if math.isinf(target.bytes_per_second):
        return "limited only by the network"
    return f"{_rate(target.bytes_per_second)} for all nodes together, {_time(target.latency_seconds)}"


def _rate(bytes_per_second: float) -> str:
    return "no limit" if math.isinf(bytes_per_second) else f"{bytes_per_second / 1e9:.4g} GB/s"


def _time(seconds: float) -> str:
    if seconds == 0:
        return "0"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
