"""How long a small message takes between all nodes, measured by the first rank of each.

    round 0    0 ◄─► 3    1 ◄─► 2        every node meets every other once, and all pairs of a round
    round 1    0 ◄─► 1    2 ◄─► 3        measure at the same time
    round 2    0 ◄─► 2    1 ◄─► 3
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from outcrop.aggregate.machine import Floats

NODES_MOST = 64
"""Of more it would take too long: every node meets every other."""
MESSAGES = 10
"""There and back, of which the fastest counts."""


def measure(communicator: Any, leaders: Sequence[int]) -> Floats:
    """Seconds of a message, a row for each node; `leaders` are the first ranks of the nodes, ascending. Collective over
    an mpi4py communicator, on which nothing is sent."""
    over = communicator.Dup()
    try:
        rank, row = over.Get_rank(), np.zeros(len(leaders))
        if rank in leaders:
            own = leaders.index(rank)
            for partner in partners(own, len(leaders)):
                if partner is None:
                    continue
                seconds = _there_and_back(over, leaders[partner], is_first=own < partner) / 2
                row[partner] = seconds if own < partner else 0
        rows = over.allgather(row)
    finally:
        over.Free()
    table = np.stack([rows[leader] for leader in leaders])
    both_ways: Floats = table + table.T
    return both_ways


def partners(own: int, nodes: int) -> Iterator[int | None]:
    """Whom a node meets, round by round: those whose numbers add up to that of the round, modulo the number of rounds;
    the last node meets who would meet itself. Of an odd number of nodes one has a rest in each round: None."""
    rounds = nodes - 1 + nodes % 2
    for number in range(rounds):
        if own == rounds:
            partner = number * (rounds + 1) // 2 % rounds
        else:
            partner = (number - own) % rounds
            partner = rounds if partner == own else partner
        yield partner if partner < nodes else None


def _there_and_back(over: Any, other: int, *, is_first: bool) -> float:
    message, fastest = bytearray(8), float("inf")
    for _ in range(MESSAGES):
        begin = time.perf_counter()
        if is_first:
            over.Send(message, other)
            over.Recv(message, other)
        else:
            over.Recv(message, other)
            over.Send(message, other)
        fastest = min(fastest, time.perf_counter() - begin)
    return fastest
