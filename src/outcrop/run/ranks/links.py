"""The links of a rank: one connected socket to each neighbour, over which passes send and receive faces.

    rank 0 ── rank 1 ── rank 2          a row of ranks
      └───────────────────┘             a ring, if y is periodic: two ranks then have two links

Links are made anew for each call of `run`, so that no bytes of a pass that was stopped are left in them.
`measure_network` measures the network with links of its own, before the plan is chosen.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import hmac
import socket
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from outcrop.errors import CommunicationError
from outcrop.plan.machine import ASSUMED_NETWORK, NetworkRates
from outcrop.run.ranks.group import JOIN_SECONDS, RankGroup
from outcrop.run.ranks.wire import Listener, connect, read_exactly

Link = tuple[socket.socket, int]
"""A connected socket, and the number of the rank at its other end."""

ROUND_TRIPS = 20
MEASURED_SECONDS = 0.04
"""The time in which each rank sends to all its neighbours, to measure the network."""

PIECE_BYTES = 1 << 20
POLL_SECONDS = 0.2
"""The time after which a rank that waits for a connection checks whether another rank is gone."""

SECONDS_TO_ANSWER = 5.0
"""The time after which a measurement fails if a neighbour does not answer."""


@contextlib.contextmanager
def linked(group: RankGroup, is_ring: bool) -> Iterator[tuple[Link | None, Link | None]]:
    """Connect all neighbours. Yield the links of this rank below and above its rows, which are closed at the end. All
    ranks must call this function together. Raises CommunicationError if a neighbour cannot be reached."""
    rank, size = group.rank, group.size
    below = rank - 1 if rank else size - 1 if is_ring else None
    above = rank + 1 if rank + 1 < size else 0 if is_ring else None
    token = hmac.new(group.token.encode(), b"links", hashlib.sha256).hexdigest()
    with contextlib.ExitStack() as stack:
        listener = Listener(token)
        stack.callback(listener.close)
        addresses = group.allgather(listener.address)
        deadline = time.monotonic() + JOIN_SECONDS
        with group.together(), ThreadPoolExecutor(1) as other:  # each rank connects and accepts at the same time
            accepted = other.submit(_accepted, group, stack, listener, below, deadline) if below is not None else None
            high = _connected(group, stack, addresses[above], token, above, deadline) if above is not None else None
            low = accepted.result() if accepted else None
        yield low, high


def _connected(
    group: RankGroup, stack: contextlib.ExitStack, address: dict[str, object], token: str, neighbour: int,
    deadline: float,
) -> Link:  # fmt: skip
    while True:
        try:
            connection = connect(address, token, group.rank, min(deadline, time.monotonic() + POLL_SECONDS))
            break
        except OSError as error:
            _require_time(group, neighbour, deadline, str(error))
    stack.callback(connection.close)
    return connection, neighbour


def _accepted(
    group: RankGroup, stack: contextlib.ExitStack, listener: Listener, neighbour: int, deadline: float
) -> Link:
    while True:
        try:
            connection, rank = listener.accept(min(deadline, time.monotonic() + POLL_SECONDS))
            break
        except TimeoutError:
            _require_time(group, neighbour, deadline, f"no connection within {JOIN_SECONDS:.0f} s")
    stack.callback(connection.close)
    assert rank == neighbour, "only the neighbour below connects"
    return connection, rank


def _require_time(group: RankGroup, neighbour: int, deadline: float, reason: str) -> None:
    """Raise the error of the group if a rank is gone. Raise CommunicationError if the deadline has passed."""
    if group.end is not None:
        raise group.error() from None
    if time.monotonic() >= deadline:
        raise _unreachable(neighbour, reason) from None


def _unreachable(neighbour: int, reason: str) -> CommunicationError:
    return CommunicationError(
        f"the neighbour rank {neighbour} cannot be reached ({reason}); name the network interface of the nodes in "
        "OUTCROP_NETWORK, such as ib0"
    )


def measure_network(group: RankGroup, is_wanted: bool) -> NetworkRates:
    """Measure the links of a row of ranks, all at the same time, in about 0.1 s. The result is equal on all ranks: the
    slowest link decides. All ranks must call this function together.

    Nothing is measured unless `is_wanted` is True on a rank. In this case, and if a link gives no figures, the assumed
    figures are returned. Raises CommunicationError if a neighbour cannot be reached."""
    if not any(group.allgather(is_wanted)):
        return ASSUMED_NETWORK
    with linked(group, is_ring=False) as links, ThreadPoolExecutor(4) as threads:
        sockets = [link and link[0] for link in links]
        for one in filter(None, sockets):
            one.settimeout(SECONDS_TO_ANSWER)
        trips = [threads.submit(_round_trip, one, is_above) for is_above, one in enumerate(sockets) if one]
        seconds = [one.result() for one in trips]
        group.allgather(None)  # no rank floods a link while another rank measures short messages
        rates = [threads.submit(_receive, one) for one in sockets if one]
        for one in filter(None, sockets):
            threads.submit(_send, one)
        received = sum(one.result() for one in rates)
    every = group.allgather([len(rates), received, max(seconds)])
    most = max(sides for sides, _, _ in every)  # a rank with fewer neighbours receives a share of their network cards
    rate = min(found for sides, found, _ in every if sides == most)
    latency = max(found for _, _, found in every) / 2
    return NetworkRates(rate, latency, "measured") if rate > 0 else ASSUMED_NETWORK


def _round_trip(connection: socket.socket, begins: int) -> float:
    """Send a byte to the neighbour and back several times. Return the median time in seconds, or 0 at the end that only
    answers."""
    times = []
    with contextlib.suppress(OSError, EOFError):  # if the neighbour is gone, the group says so
        for _ in range(ROUND_TRIPS):
            start = time.perf_counter()
            if begins:
                connection.sendall(b"0")
            read_exactly(connection, 1)
            if not begins:
                connection.sendall(b"0")
            times.append(time.perf_counter() - start)
    return statistics.median(times) if begins and times else 0.0


def _send(connection: socket.socket) -> None:
    """Send for MEASURED_SECONDS, and then end the stream."""
    piece, end = bytes(PIECE_BYTES), time.monotonic() + MEASURED_SECONDS
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            connection.send(piece)
        connection.shutdown(socket.SHUT_WR)


def _receive(connection: socket.socket) -> float:
    """Receive until the end of the stream. Return the bytes per second of the second half of all bytes, because TCP
    begins slowly, or 0 if there are too few."""
    buffer, counts, times = bytearray(PIECE_BYTES), [0], [time.perf_counter()]
    with contextlib.suppress(OSError):
        while part := connection.recv_into(buffer):
            counts.append(counts[-1] + part)
            times.append(time.perf_counter())
    half = bisect.bisect_left(counts, counts[-1] / 2)
    return (counts[-1] - counts[half]) / (times[-1] - times[half]) if times[-1] > times[half] else 0.0
