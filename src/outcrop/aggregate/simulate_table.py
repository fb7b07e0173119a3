"""What a simulation has found, as text."""

from __future__ import annotations

import math
from collections.abc import Iterator

from outcrop.aggregate.machine import Target
from outcrop.aggregate.simulate import Row, Scenario, Simulated
from outcrop.units import counted, format_bytes

HEADS = ("placement", "aggregators", "nodes", "tier", "messages", "predicted", "GB/s", "merge", "latency", "transfer",
         "copy", "target", "overlapped")  # fmt: skip


def head(scenario: Scenario) -> Iterator[str]:
    """What is simulated, with all figures that it goes by."""
    nodes, network = scenario.topology.nodes, scenario.network
    yield f"{scenario.topology.text}; {nodes} x {scenario.ranks_per_node} = {scenario.ranks} ranks"
    cards = counted(network.cards_on_node, "card")
    yield (
        f"network: {cards} of {_rate(network.card_bytes_per_second)} a node, "
        f"{_time(network.latency_seconds)} a link; target: {_target(scenario.target)}"
    )
    for one in scenario.tiers.tiers:
        yield (
            f"{one.tier.name}: {format_bytes(one.room_bytes)} free on a node, filled at "
            f"{_rate(one.tier.fill_bytes_per_second)}, emptied at {_rate(one.tier.empty_bytes_per_second)}, "
            f"{_time(one.tier.latency_seconds)}, lasts for {one.tier.persistence.name.lower()}; {one.origin}"
        )


def table(simulated: Simulated) -> Iterator[str]:
    """A row for each way to gather; then why the chosen one, by its slowest domain."""
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


def _target(target: Target) -> str:
    if math.isinf(target.bytes_per_second):
        return "limited by the network alone"
    return f"{_rate(target.bytes_per_second)} for all together, {_time(target.latency_seconds)}"


def _rate(bytes_per_second: float) -> str:
    return "no limit" if math.isinf(bytes_per_second) else f"{bytes_per_second / 1e9:.4g} GB/s"


def _time(seconds: float) -> str:
    if seconds == 0:
        return "0"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
