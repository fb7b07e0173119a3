"""Streams of rows between any two ranks, outside of passes: for reads of the whole grid, and when rows move.

    rank 0 ◄── rows ── rank 1       the receiver connects, and the sender sends all rows that the receiver has asked for
    rank 0 ◄── rows ── rank 2

All ranks know all requests, so both ends know which streams there are. Rows go from the rank that has them to the rank
that needs them, and not through rank 0.

A stream that ends too early has one of three reasons. If its sender has failed, the sender tells its error
(`end_together`). If its receiver has failed, the receiver closes the stream. Otherwise a rank is gone, and the group
finds out which.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import CommunicationError, OutcropError
from outcrop.run.ranks.group import JOIN_SECONDS, RankGroup
from outcrop.run.ranks.wire import Listener, connect

Blocks: TypeAlias = Callable[[], Iterable[NDArray[np.floating]]]
"""A function that yields the blocks that a stream sends, one after the other."""

_POLL_SECONDS = 0.2


class RowStream:
    """The receiving end of a stream from `rank`."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self._socket, self._rank = connection, rank

    def receive(self, target: NDArray[np.floating]) -> None:
        """Fill `target`, which is contiguous, with the next values. Raises EOFError(rank) if the stream has ended."""
        view = memoryview(target.reshape(-1).view("u1").data)
        while view:
            try:
                count = self._socket.recv_into(view)
            except OSError:
                count = 0
            if not count:
                raise EOFError(self._rank)
            view = view[count:]


@contextlib.contextmanager
def streams(
    group: RankGroup, sources: Sequence[int], targets: Mapping[int, Blocks], at_once: int
) -> Iterator[Callable[[int], RowStream]]:
    """Yield a function that connects this rank to one of `sources`, the ranks from which it receives. In the meantime,
    other threads send the blocks of `targets` to the ranks that are their keys. At most `at_once` streams are sent at
    the same time. A rank that connects to several sources before it receives needs senders with a thread for each
    stream.

    All ranks must call this function together, with the same streams. It ends when this rank has sent everything.
    Raises the error of the first stream that this rank cannot send, and EOFError. The caller must then call
    `end_together`."""
    token = hmac.new(group.token.encode(), b"rows", hashlib.sha256).hexdigest()
    with contextlib.ExitStack() as stack:
        sender = stack.enter_context(_Sender(group, token, targets, at_once))
        addresses = group.allgather(sender.address)
        opened: dict[int, socket.socket] = {}

        def open_stream(rank: int) -> RowStream:
            deadline = time.monotonic() + JOIN_SECONDS
            while True:
                try:
                    opened[rank] = connect(addresses[rank], token, group.rank, time.monotonic() + _POLL_SECONDS)
                    return RowStream(opened[rank], rank)
                except OSError as error:
                    if group.end is not None:
                        raise group.error() from None
                    if time.monotonic() > deadline:
                        raise CommunicationError(
                            f"rank {rank} cannot be reached ({error}); name the network interface of the nodes in "
                            "OUTCROP_NETWORK, such as ib0"
                        ) from None

        def stop() -> None:
            for connection in list(opened.values()):
                _shut(connection)
            sender.stop()

        stack.enter_context(group.watching(stop))
        sender.start()
        try:
            yield open_stream
        except Exception:
            if group.end is None:
                for rank in sources:  # the senders wait for all their receivers
                    if rank not in opened:
                        with contextlib.suppress(CommunicationError):
                            open_stream(rank)
            raise
        finally:
            for connection in list(opened.values()):
                connection.close()
        sender.finish()


def end_together(group: RankGroup, failure: Exception | None) -> None:
    """End a collective call on all ranks. `failure` is the error of this rank, EOFError if a stream has ended early, or
    None. If a rank has an error, raise it on all ranks. If a rank is gone, raise CommunicationError."""
    with group.together():
        if failure is not None and not isinstance(failure, EOFError):
            raise failure
    if isinstance(failure, EOFError):  # no rank knows a reason
        group.lost(failure.args[0])
        raise group.error()


class _Sender:
    """Accepts the connections of the receivers in `targets`, and sends the blocks of each."""

    def __init__(self, group: RankGroup, token: str, targets: Mapping[int, Blocks], at_once: int) -> None:
        self._targets, self._is_stopped = targets, False
        self._listener = Listener(token) if targets else None
        self._pool = ThreadPoolExecutor(max(1, min(at_once, len(targets))), "outcrop-rows")
        self._acceptor = threading.Thread(target=self._accept, name="outcrop-accept", daemon=True)
        self._open: set[socket.socket] = set()
        self._errors: list[Exception] = []

    @property
    def address(self) -> dict[str, object] | None:
        return self._listener.address if self._listener else None

    def start(self) -> None:
        if self._targets:
            self._acceptor.start()

    def finish(self) -> None:
        """Wait until everything is sent. Raises the first error of a stream."""
        if self._targets:
            self._acceptor.join()
        self._pool.shutdown()
        if self._errors:
            raise self._errors[0]

    def stop(self) -> None:
        self._is_stopped = True
        for connection in list(self._open):
            _shut(connection)

    def __enter__(self) -> _Sender:
        return self

    def __exit__(self, *error: object) -> None:
        if self._acceptor.is_alive():
            self._acceptor.join()
        self._pool.shutdown()
        if self._listener is not None:
            self._listener.close()

    def _accept(self) -> None:
        assert self._listener is not None
        waiting = set(self._targets)
        while waiting and not self._is_stopped:
            with contextlib.suppress(TimeoutError):
                connection, rank = self._listener.accept(time.monotonic() + _POLL_SECONDS)
                waiting.discard(rank)
                self._open.add(connection)
                self._pool.submit(self._send, connection, self._targets[rank])

    def _send(self, connection: socket.socket, blocks: Blocks) -> None:
        try:
            for block in blocks():
                try:
                    connection.sendall(memoryview(np.ascontiguousarray(block).reshape(-1).view("u1").data))
                except OSError:
                    return  # the receiver has failed, or is gone
        except (OutcropError, OSError) as error:
            self._errors.append(error)
        finally:
            self._open.discard(connection)
            connection.close()


def _shut(connection: socket.socket) -> None:
    """End a connection that another thread may be using."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
