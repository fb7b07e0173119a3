"""The links of a rank: one connected socket to each neighbour, over which passes send and receive faces.

    rank 0 ── rank 1 ── rank 2          a row of ranks
      └───────────────────┘             a ring, if y is periodic: two ranks then have two links

Links are made anew for each call of `run`, so that no bytes of a pass that was stopped are left in them.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from outcrop.errors import CommunicationError
from outcrop.run.ranks.group import JOIN_SECONDS, RankGroup
from outcrop.run.ranks.wire import Listener, connect

Link = tuple[socket.socket, int]
"""A connected socket, and the number of the rank at its other end."""


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
            accepted = other.submit(_accepted, stack, listener, below, deadline) if below is not None else None
            high = _connected(stack, addresses[above], token, rank, above, deadline) if above is not None else None
            low = accepted.result() if accepted else None
        yield low, high


def _connected(
    stack: contextlib.ExitStack, address: dict[str, object], token: str, rank: int, neighbour: int, deadline: float
) -> Link:
    try:
        connection = connect(address, token, rank, deadline)
    except OSError as error:
        raise _unreachable(neighbour, str(error)) from None
    stack.callback(connection.close)
    return connection, neighbour


def _accepted(stack: contextlib.ExitStack, listener: Listener, neighbour: int, deadline: float) -> Link:
    try:
        connection, rank = listener.accept(deadline)
    except TimeoutError:
        raise _unreachable(neighbour, f"no connection within {JOIN_SECONDS:.0f} s") from None
    stack.callback(connection.close)
    assert rank == neighbour, "only the neighbour below connects"
    return connection, rank


def _unreachable(neighbour: int, reason: str) -> CommunicationError:
    return CommunicationError(
        f"the neighbour rank {neighbour} cannot be reached ({reason}); name the network interface of the nodes in "
        "OUTCROP_NETWORK, such as ib0"
    )
