"""The connections over which ranks exchange rows and values: links between neighbours, streams between any two ranks,
and messages of the group.

A link connects two neighbours. During a pass, neighbours send and receive rows and planes near their cut over the link:

    rank 0 ── rank 1 ── rank 2          a row of ranks
      └───────────────────┘             a ring, if y is periodic: two ranks then have two links

If the grid is cut along z, each rank also has links to its neighbours below and above.

Each call of `run` makes new links, so that links contain no bytes of an interrupted pass. `measure_network` makes
separate links to measure the network before the plan is chosen.

A stream connects any two ranks, outside of passes: for reads of the whole grid, and when rows move:

    rank 0 ◄── rows ── rank 1       the receiver connects, and the sender sends all rows that the receiver has asked for
    rank 0 ◄── rows ── rank 2

Each rank knows the requests of all ranks, so the sender and the receiver both know which streams they need. Rows go
directly from the rank that has them to the rank that needs them, and not through rank 0. A stream can end too early for
one of three reasons. If the sender has failed, the sender reports its error (`end_together`). If the receiver has
failed, the receiver closes the stream. In the third case, a rank is gone, and the group finds out which rank is gone.

The acquisition of a part exchanges values with other ranks (`RankPeers`):

    everyone   records of all ranks, for `sim.traces` and `sim.norms`     over the sockets of the group, in pieces
    pass_up    samples near a cut, once in each pass before its commit    over the links, after the rows of the pass
"""

from __future__ import annotations

import base64
import bisect
import contextlib
import hashlib
import hmac
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.errors import CommunicationError, OutcropError
from outcrop.plan.actions import BELOW, SIDES
from outcrop.plan.machine import ASSUMED_NETWORK, NetworkRates
from outcrop.run.ranks.group import JOIN_SECONDS, RankGroup
from outcrop.run.ranks.wire import MAX_FRAME_BYTES, Listener, connect, read_exactly

Link = tuple[socket.socket, int]
"""A connected socket, and the number of the rank at its other end."""
Blocks: TypeAlias = Callable[[], Iterable[NDArray[np.floating]]]
"""A function that yields the blocks that a stream sends, one after the other."""

ROUND_TRIPS = 20
MEASURED_SECONDS = 0.04
"""The time in seconds for which each rank sends to all its neighbours to measure the network."""

PIECE_BYTES = 1 << 20
POLL_SECONDS = 0.2
"""The time after which a rank that waits for a connection checks whether another rank is gone."""

SECONDS_TO_ANSWER = 5.0
"""The time after which a measurement fails if a neighbour does not answer."""


# --- links -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def linked(group: RankGroup, neighbours: Sequence[int | None]) -> Iterator[tuple[Link | None, ...]]:
    """Connect all neighbours. `neighbours` has the neighbours of this rank in the order of SIDES. For a side without a
    neighbour, the entry in `neighbours` is None. Yield the links to these neighbours. When the `with` block ends, the
    links are closed. All ranks must call this function together. Raises CommunicationError if a neighbour cannot be
    reached."""
    token = hmac.new(group.token.encode(), b"links", hashlib.sha256).hexdigest()
    lower = [one for one in neighbours[::2] if one is not None]
    with contextlib.ExitStack() as stack:
        listener = Listener(token)
        stack.callback(listener.close)
        addresses = group.allgather(listener.address)
        deadline = time.monotonic() + JOIN_SECONDS
        links: list[Link | None] = [None] * len(neighbours)
        with group.together(), ThreadPoolExecutor(1) as other:  # each rank connects and accepts at the same time
            accepted = other.submit(_accepted, group, stack, listener, lower, deadline)
            for side, above in enumerate(neighbours):
                if side % 2 and above is not None:
                    connection = _connected(group, addresses[above], token, f"the neighbour rank {above}", deadline)
                    stack.callback(connection.close)
                    links[side] = connection, above
            found = accepted.result()
            for side, below in enumerate(neighbours):
                if side % 2 == 0 and below is not None:
                    links[side] = found[below], below
        yield tuple(links)


def _accepted(
    group: RankGroup, stack: contextlib.ExitStack, listener: Listener, neighbours: Sequence[int], deadline: float
) -> dict[int, socket.socket]:
    """Accept the connections of the neighbours with lower rows or planes. Return a dictionary with one connection for
    each entry of `neighbours`. The keys are the numbers of the neighbours. All entries of `neighbours` are different
    ranks, and no other rank connects."""
    found: dict[int, socket.socket] = {}
    while waiting := [one for one in neighbours if one not in found]:
        try:
            connection, rank = listener.accept(min(deadline, time.monotonic() + POLL_SECONDS))
        except TimeoutError:
            _require_time(
                group, f"the neighbour rank {waiting[0]}", deadline, f"no connection within {JOIN_SECONDS:.0f} s"
            )
            continue
        stack.callback(connection.close)
        assert rank in waiting, "only neighbours below connect"
        found[rank] = connection
    return found


def _connected(group: RankGroup, address: dict[str, object], token: str, name: str, deadline: float) -> socket.socket:
    """Connect to the rank with the given name and address. Raises the error of the group if a rank is gone, and
    CommunicationError when the deadline has passed."""
    while True:
        try:
            return connect(address, token, group.rank, min(deadline, time.monotonic() + POLL_SECONDS))
        except OSError as error:
            _require_time(group, name, deadline, str(error))


def _require_time(group: RankGroup, name: str, deadline: float, reason: str) -> None:
    """Raise the error of the group if a rank is gone. Raise CommunicationError if the deadline has passed."""
    if group.end is not None:
        raise group.error() from None
    if time.monotonic() >= deadline:
        raise CommunicationError(
            f"{name} cannot be reached ({reason}); name the network interface of the nodes in OUTCROP_NETWORK, such as "
            "ib0"
        ) from None


# --- the speed of the network ----------------------------------------------------------------------------------------


def measure_network(group: RankGroup, is_wanted: bool) -> NetworkRates:
    """Measure the links between each rank and the ranks with the next lower and the next higher number. All links are
    measured at the same time, in about 0.1 s. The result has the rate of the slowest link, and is the same on all
    ranks. All ranks must call this function together.

    If `is_wanted` is False on all ranks, nothing is measured, and the result has the assumed figures. If a link gives
    no figures, the result has the assumed figures. Raises CommunicationError if a neighbour cannot be reached."""
    if not any(group.allgather(is_wanted)):
        return ASSUMED_NETWORK
    row = [group.rank - 1 if group.rank else None, group.rank + 1 if group.rank + 1 < group.size else None]
    with linked(group, row) as links, ThreadPoolExecutor(4) as threads:
        sockets = [link and link[0] for link in links]
        for one in filter(None, sockets):
            one.settimeout(SECONDS_TO_ANSWER)
        trips = [threads.submit(_round_trip, one, is_above) for is_above, one in enumerate(sockets) if one]
        seconds = [one.result() for one in trips]
        group.allgather(None)  # no rank sends large messages while another rank measures short messages
        rates = [threads.submit(_receive, one) for one in sockets if one]
        for one in filter(None, sockets):
            threads.submit(_send, one)
        received = sum(one.result() for one in rates)
    every = group.allgather([len(rates), received, max(seconds)])
    # If some ranks have two neighbours, the rates of ranks with only one neighbour are not used. A rank with one
    # neighbour receives bytes at a lower rate, because its neighbour also sends to another rank.
    most = max(sides for sides, _, _ in every)
    rate = min(found for sides, found, _ in every if sides == most)
    latency = max(found for _, _, found in every) / 2
    return NetworkRates(rate, latency, "measured") if rate > 0 else ASSUMED_NETWORK


def _round_trip(connection: socket.socket, begins: int) -> float:
    """Send a byte to the neighbour and back several times. If this rank sends first (`begins`), return the median time
    in seconds. If this rank only answers, return 0."""
    times = []
    with contextlib.suppress(OSError, EOFError):  # if the neighbour is gone, the group reports this
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
    """Receive until the end of the stream. Return the rate, in bytes per second, at which the second half of all bytes
    was received. The rate does not include the first half of the bytes, because TCP begins slowly. Return 0 if too few
    bytes were received."""
    buffer, counts, times = bytearray(PIECE_BYTES), [0], [time.perf_counter()]
    with contextlib.suppress(OSError):
        while part := connection.recv_into(buffer):
            counts.append(counts[-1] + part)
            times.append(time.perf_counter())
    half = bisect.bisect_left(counts, counts[-1] / 2)
    return (counts[-1] - counts[half]) / (times[-1] - times[half]) if times[-1] > times[half] else 0.0


# --- streams ---------------------------------------------------------------------------------------------------------


class RowStream:
    """The receiving end of a stream from `rank`."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self._socket, self._rank = connection, rank

    def receive(self, target: NDArray[np.floating]) -> None:
        """Fill `target` with the next values. `target` must be contiguous. Raises EOFError(rank) if the stream has
        ended."""
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
    """`sources` are the ranks from which this rank receives. Yield a function that connects this rank to one of
    `sources`. `targets` has a key for each rank to which this rank sends. The value of a key is a function that yields
    the blocks for the rank with this number. While the body of the `with` statement runs, other threads send the
    blocks. At most `at_once` streams are sent at the same time. If ranks connect to several sources before they
    receive, `at_once` must be at least the number of targets, so that each stream has its own thread.

    All ranks must call this function together, and the arguments of all ranks must describe the same streams. The
    `with` statement ends when this rank has sent everything. Raises EOFError if a stream ends too early, and the error
    of the first stream that this rank cannot send. The caller must then call `end_together`."""
    token = hmac.new(group.token.encode(), b"rows", hashlib.sha256).hexdigest()
    with contextlib.ExitStack() as stack:
        sender = _Sender(token, targets, at_once)
        opened: dict[int, socket.socket] = {}

        def open_stream(rank: int) -> RowStream:
            deadline = time.monotonic() + JOIN_SECONDS
            opened[rank] = _connected(group, addresses[rank], token, f"rank {rank}", deadline)
            if group.end is not None:  # `stop` may have been called before this connection was in `opened`
                _shut(opened[rank])
            return RowStream(opened[rank], rank)

        def stop() -> None:
            for connection in list(opened.values()):
                _shut(connection)
            sender.stop()

        # `group.watching` must be active until the sender has ended. If a rank is gone, its stream ends before the
        # group knows that the rank is gone. At that time, the sender still waits for the rank.
        stack.enter_context(group.watching(stop))
        stack.enter_context(sender)
        addresses = group.allgather(sender.address)
        sender.start()
        try:
            yield open_stream
        except Exception:
            if group.end is None:
                for rank in sources:  # connect anyway, because each sender waits until all its receivers have connected
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
    None. If a rank has an error, all ranks raise the error of that rank. If a rank is gone, raise
    CommunicationError."""
    with group.together():
        if failure is not None and not isinstance(failure, EOFError):
            raise failure
    if isinstance(failure, EOFError):  # no rank knows the reason
        group.lost(failure.args[0])
        raise group.error()


class _Sender:
    """Accepts the connections of the receivers in `targets`, and sends each receiver its blocks."""

    def __init__(self, token: str, targets: Mapping[int, Blocks], at_once: int) -> None:
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
        """Accept no more connections, and end all streams. Any thread may call this method."""
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
                connection, rank = self._listener.accept(time.monotonic() + POLL_SECONDS)
                waiting.discard(rank)
                self._open.add(connection)
                if self._is_stopped:  # `stop` may have been called before this connection was in `_open`
                    _shut(connection)
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
    """End a connection, even if another thread is using the connection."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


# --- values of the acquisition ---------------------------------------------------------------------------------------


class RankPeers:
    """The other ranks in `group`. `links` has the links to the neighbours at all SIDES. Only `pass_up` needs these
    links."""

    def __init__(self, group: RankGroup, links: tuple[_core.Link | None, ...] = (None,) * len(SIDES)) -> None:
        self._group, self._links = group, links

    def everyone(self, read: Callable[[], bytes]) -> list[bytes]:
        """Call `read` on each rank, and return the results of all ranks. All ranks must call this method. If `read`
        raises an error on one rank, all ranks raise the same error. Raises CommunicationError if a rank is gone."""
        group = self._group
        with group.together():
            own = read()
        most = max(group.allgather(len(own)))
        # one message contains a piece from each rank, as base64 text
        piece_bytes = max(1, MAX_FRAME_BYTES // 4 // group.size)
        found = [bytearray() for _ in range(group.size)]
        for begin in range(0, most, piece_bytes):
            text = base64.b64encode(own[begin : begin + piece_bytes]).decode()
            for whole, piece in zip(found, group.allgather(text), strict=True):
                whole += base64.b64decode(piece)
        return [bytes(one) for one in found]

    def pass_up(self, sent: NDArray[np.float64], received: NDArray[np.float64], along_z: bool = False) -> None:
        """Send the array `sent` to the neighbour above, and fill the array `received` with values from the neighbour
        below. The two neighbours are neighbours along the same axis, y or z. Empty arrays are not transferred. Raises
        CommunicationError, CorruptionError or InterruptedRun."""
        low, high = self._links[BELOW:] if along_z else self._links[:BELOW]
        with ThreadPoolExecutor(1) as other:  # another thread sends, because in a ring all ranks send at the same time
            sending = None
            try:
                if sent.size:
                    assert high is not None
                    sending = other.submit(high.send, np.ascontiguousarray(sent))
                if received.size:
                    assert low is not None
                    low.receive(received)
            except BaseException:
                if high is not None:
                    high.cancel()  # this call lets the other thread end
                raise
            if sending is not None:
                sending.result()
