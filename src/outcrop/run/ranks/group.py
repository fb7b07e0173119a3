"""`RankGroup`: the ranks that compute one run together, and how ranks notice that a rank has ended.

MPI is used only to start the group. Rank 0 listens on a socket. An MPI broadcast sends the address of the socket and a
random token to all ranks. Each other rank then connects to rank 0:

    rank 1 ──┐                  value     a rank's share of `allgather`      to rank 0
    rank 2 ──┼── rank 0         values    the values of all ranks            from rank 0
    rank 3 ──┘                  alive     every BEAT_SECONDS                 both ways
                                lost      "my link to rank 3 broke"          to rank 0
                                failed    "I have failed"                    to rank 0
                                end       who has failed or gone             from rank 0

On each rank, a thread reads the messages from other ranks. The thread that reads messages is called the watcher. When a
process is killed, Linux closes the socket of the process, and rank 0 notices that the socket is closed. Rank 0 also
notices if a rank has sent nothing for SILENT_SECONDS. When rank 0 notices that a rank is gone, it tells all other ranks
which rank is gone. When the group ends, each rank calls the functions that were registered with `watching`. The
functions that were registered with `watching` stop the pass of the rank. If rank 0 is killed, each other rank notices
by itself that rank 0 is gone.

A group that has ended cannot be used again. When a group ends, the program ends. The next start continues from the last
generation that all ranks have committed (agreement.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from outcrop import errors
from outcrop.errors import CommunicationError, InputError, InterruptedRun, OutcropError
from outcrop.run.ranks.wire import Frames, Listener, connect, frame_of, limit_sending, place_of_process

JOIN_SECONDS = 25.0
"""The time within which all ranks must join."""

BEAT_SECONDS = 2.0
SILENT_SECONDS = 18.0
"""A rank that has sent nothing for SILENT_SECONDS counts as gone. So a run also ends if the network stops working."""

STALL_SECONDS = 8, 20
"""A rank that does not receive a message within STALL_SECONDS counts as gone. In STALL_SECONDS, the first number is for
messages of rank 0. In STALL_SECONDS, the second number is for messages of all other ranks. The second number is larger,
because rank 0 receives nothing while it waits for a third rank that has stalled."""

JUDGE_SECONDS = 1.5
"""The time in seconds for which rank 0 collects reports of broken links, before it decides which rank is gone
(`_judge`). A rank closes its links when a third rank is gone, so the first report may name a wrong rank."""

STOP_SECONDS = 10.0
"""The time in seconds in which a rank must stop its work after another rank has gone or failed. A transfer to a disk
can take more time, or may never end."""

Spread = Callable[[str | None], str]
"""A function that sends a text from rank 0 to all ranks. The argument is the text on rank 0, and None on the other
ranks. The result is the text of rank 0."""


@dataclass(frozen=True)
class End:
    """The reason why a group has ended: the rank that is gone or has failed, and a text for users. `is_told` is True if
    the failed rank prints its message itself. `is_interrupt` is True if the user has stopped this rank."""

    rank: int
    text: str
    is_told: bool = False
    is_interrupt: bool = False


@dataclass
class _Peer:
    """The connection to another rank: the socket, and the time of the last message from that rank."""

    socket: socket.socket
    frames: Frames = field(default_factory=Frames)
    heard: float = field(default_factory=time.monotonic)
    is_open: bool = True


@dataclass(frozen=True)
class Place:
    """The place where a rank runs: the name of its host, the number of its node, and the cores that the rank may
    use."""

    host: str
    node: int
    cores: tuple[int, ...]


def together(group: RankGroup | None) -> contextlib.AbstractContextManager[None]:
    """Return `group.together()`. If `group` is None, this process runs alone, and the result is a context manager
    without effect."""
    return contextlib.nullcontext() if group is None else group.together()


class RankGroup:
    """The ranks of one run. The ranks have the numbers 0 <= `rank` < `size`. All ranks must create the object together.
    A group of one rank has no connections. One process uses a group of one rank to move the rows of a run to itself.

    `places` says where each rank runs. Raises CommunicationError on each rank that cannot join within JOIN_SECONDS."""

    def __init__(self, rank: int, size: int, spread: Spread) -> None:
        assert 0 <= rank < size
        self.rank, self.size = rank, size
        self._changed = threading.Condition()
        self._round, self._token = 0, ""
        self._values: dict[int, dict[int, Any]] = {}  # only on rank 0: the values of the ranks, for each `_round`
        self._results: dict[int, list[Any]] = {}
        self._lost: dict[int, set[int]] = {}  # only on rank 0: for each rank, the ranks that lost their link to it
        self._judge_at = float("inf")
        self._end: End | None = None
        self._is_ending = False
        self._callbacks: list[Callable[[], None]] = []
        self._raised: BaseException | None = None
        self._is_closed = False
        self._sending = threading.RLock()
        self._peers = self._join(spread) if size > 1 else {}
        for peer in self._peers.values():
            limit_sending(peer.socket, STALL_SECONDS[rank > 0])
        self._wake, self._woken = os.pipe()
        self._watcher = threading.Thread(target=self._watch, name="outcrop-ranks", daemon=True)
        self._watcher.start()
        cores = sorted(os.sched_getaffinity(0))
        found = self.allgather([place_of_process(), socket.gethostname(), cores])
        nodes = list(dict.fromkeys(place for place, _, _ in found))
        self.places = [Place(host, nodes.index(place), tuple(cores)) for place, host, cores in found]

    @property
    def token(self) -> str:
        """The random number that only the ranks of this group know."""
        return self._token

    @property
    def ranks_on_same_node(self) -> int:
        """The number of ranks on the node of this rank, including this rank."""
        return sum(one.node == self.places[self.rank].node for one in self.places)

    @property
    def ranks_on_same_cores(self) -> int:
        """The number of ranks that share the cores of this rank, including this rank."""
        return sum(one == self.places[self.rank] for one in self.places)

    def allgather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in the order of ranks. A value must be plain data that JSON can represent.
        All ranks must call this method. Raises CommunicationError if a rank is gone. If another rank has left
        `together` with an error, raises the error of that rank."""
        return self._exchange({"value": value})

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """All ranks run the body of the `with` statement. If the body raises an OutcropError on one rank, the same
        error is raised on all ranks. Ranks without an error of their own raise the error at the end of the `with`
        statement, or in their next `allgather`. If several ranks have errors, the error of the lowest rank is raised.
        Ctrl-C on one rank raises InterruptedRun on all ranks."""
        item: dict[str, Any] = {"value": None}
        try:
            yield
        except (OutcropError, OSError) as error:
            if error is self._raised or self._end is not None:  # the other ranks know this error
                raise
            kind = type(error).__name__ if isinstance(error, OutcropError) else "StorageError"
            item = {"error": kind, "text": str(error)}
        except BaseException as error:  # a bug, or Ctrl-C
            is_interrupt = isinstance(error, KeyboardInterrupt)
            self.fail("interrupted" if is_interrupt else f"{type(error).__name__}: {error}", is_interrupt)
            if is_interrupt:
                raise self.error() from None
            raise
        self._exchange(item)

    def fail(self, text: str, is_interrupt: bool = False) -> None:
        """End the group, because this rank has failed. All ranks except this rank raise CommunicationError with `text`,
        or InterruptedRun if `is_interrupt` is true."""
        end = End(self.rank, text, not is_interrupt, is_interrupt)
        if self.rank:
            self._send(0, {"kind": "failed", **vars(end)})
        self._finish(end)
        with self._changed:
            self._changed.wait_for(lambda: self._end is not None)

    def lost(self, rank: int) -> None:
        """Report a broken link to a neighbour. Wait until rank 0 has found the rank that is gone."""
        if self.rank == 0:
            with self._changed:
                self._note_lost(rank, 0)
        else:
            self._send(0, {"kind": "lost", "rank": rank})
        with self._changed:
            self._changed.wait_for(lambda: self._end is not None, timeout=4 * JUDGE_SECONDS)
        self._finish(End(rank, f"rank {rank} has gone"))  # has no effect if another reason is known
        with self._changed:
            self._changed.wait_for(lambda: self._end is not None)

    @contextlib.contextmanager
    def watching(self, callback: Callable[[], None]) -> Iterator[None]:
        """If the group ends while the body of the `with` statement runs, another thread calls `callback` at once. If
        another rank has gone or failed, and the body still runs STOP_SECONDS later, print one line and end this
        process."""
        is_left = threading.Event()
        leaving = threading.RLock()  # the thread of the body can call `stop`, too

        def stop() -> None:
            with leaving:
                if is_left.is_set():  # the objects of the callback may no longer exist
                    return
                callback()
            if self._end is not None and not self._end.is_interrupt:
                threading.Thread(target=self._require_stop, args=(is_left,), name="outcrop-stop", daemon=True).start()

        with self._changed:
            ended = self._end is not None
            self._callbacks.append(stop)
        if ended:
            stop()
        try:
            yield
        finally:
            with leaving:
                is_left.set()
            with self._changed:
                self._callbacks.remove(stop)

    def _require_stop(self, is_left: threading.Event) -> None:
        """If `is_left` is not set within STOP_SECONDS, end this process without clean-up. No committed pass is lost,
        because a run can continue after a kill at any moment."""
        if not is_left.wait(STOP_SECONDS):
            assert self._end is not None
            with contextlib.suppress(OSError):
                text = f"{self._end.text}; rank {self.rank} has not stopped its work within {STOP_SECONDS:.0f} s"
                os.write(2, f"outcrop: {text}\n".encode())
            os._exit(1)

    @property
    def end(self) -> End | None:
        """The reason why the group has ended. The value is None if the group has not ended."""
        return self._end

    def error(self, more: str = "") -> OutcropError:
        """Return the error that this rank must raise because the group has ended. `more` is added to the message.
        Only one of the remaining ranks prints the error of the group (`OutcropError.is_told_elsewhere`)."""
        end = self._end
        assert end is not None
        kind = InterruptedRun if end.is_interrupt else CommunicationError
        error = kind("; ".join(part for part in (end.text, more) if part))
        speaker = 0 if end.rank or end.is_interrupt else 1  # the lowest remaining rank
        error.is_told_elsewhere = end.is_told or self.rank != speaker
        return error

    def close(self) -> None:
        """Leave the group. If other ranks still need this rank, they raise CommunicationError."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(OSError):
            os.write(self._woken, b"x")
        self._watcher.join(timeout=5)
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                if self._end is None:
                    self._send_frame(peer, frame_of({"kind": "bye"}))
            peer.socket.close()
        os.close(self._wake)
        os.close(self._woken)

    # ---- joining

    def _join(self, spread: Spread) -> dict[int, _Peer]:
        deadline = time.monotonic() + JOIN_SECONDS
        if self.rank:
            invitation = json.loads(spread(None))
            self._token = str(invitation["token"])
            try:
                # Rank 0 sends no message before all ranks have joined. Until then, this rank does not count rank 0 as
                # silent.
                return {0: _Peer(connect(invitation["address"], self._token, self.rank, deadline), heard=deadline)}
            except OSError as error:
                host = invitation["address"]["place"].split()[0]
                raise CommunicationError(
                    f"rank {self.rank} cannot reach rank 0 on {host} ({error}); name the network interface of the "
                    "nodes in OUTCROP_NETWORK, such as ib0"
                ) from None
        self._token = secrets.token_hex(32)
        listener = Listener(self._token)
        found: dict[int, _Peer] = {}
        try:
            spread(json.dumps({"address": listener.address, "token": self._token}))
            while len(found) < self.size - 1:
                connection, rank = listener.accept(deadline)
                found[rank] = _Peer(connection)
        except TimeoutError:
            missing = next(rank for rank in range(1, self.size) if rank not in found)
            text = f"rank {missing} has not reached rank 0 on {socket.gethostname()} within {JOIN_SECONDS:.0f} s"
            for peer in found.values():  # without this message, these ranks would wait until this program ends
                with contextlib.suppress(OSError):
                    peer.socket.sendall(frame_of({"kind": "end", **vars(End(missing, text, is_told=True))}))
                peer.socket.close()
            raise CommunicationError(
                f"{text}; name the network interface of the nodes in OUTCROP_NETWORK, such as ib0"
            ) from None
        finally:
            listener.close()
        return found

    # ---- collective calls

    def _exchange(self, item: dict[str, Any]) -> list[Any]:
        items = self._gather(item)
        wrong = {rank: one for rank, one in enumerate(items) if "error" in one}
        if not wrong:
            return [one["value"] for one in items]
        rank, first = next(iter(wrong.items()))
        same = len(wrong) == self.size and len({one["text"] for one in wrong.values()}) == 1
        found = getattr(errors, first["error"], InputError)
        error = found(first["text"] if same else f"rank {rank}: {first['text']}")
        error.is_told_elsewhere = self.rank != rank
        self._raised = error
        raise error

    def _gather(self, item: dict[str, Any]) -> list[Any]:
        number, self._round = self._round, self._round + 1
        if self.rank == 0:
            self._collect(0, number, json.loads(json.dumps(item)))  # converted, so that all ranks get the same types
        else:
            self._send(0, {"kind": "value", "round": number, "value": item})
        with self._changed:
            self._changed.wait_for(lambda: number in self._results or self._end is not None)
            if number in self._results:
                return self._results.pop(number)
        raise self.error()

    def _collect(self, rank: int, number: int, item: Any) -> None:
        """Store the value of a rank. When the values of all ranks have arrived, send all values to all ranks."""
        with self._changed:
            values = self._values.setdefault(number, {})
            values[rank] = item
            if len(values) < self.size:
                return
            result = [values[one] for one in range(self.size)]
            del self._values[number]
        # Rank 0 first sends the values to all other ranks, and then uses the values itself. The program of rank 0 can
        # end directly after it has used the values.
        self._send_all({"kind": "values", "round": number, "values": result})
        with self._changed:
            self._results[number] = result
            self._changed.notify_all()

    def _send(self, rank: int, message: dict[str, Any]) -> None:
        # Only a stall is handled here. After other failures of the connection, the watcher may later read a reason that
        # the other rank has sent. A stalled rank receives no more messages, so each further message would also stall.
        peer = self._peers[rank]
        if peer.is_open:
            try:
                self._send_frame(peer, frame_of(message))
            except BlockingIOError:
                self._part(rank, f"rank {rank} on {self._host(rank)} does not receive messages any more")
            except OSError:
                pass

    def _send_all(self, message: dict[str, Any]) -> None:
        # As soon as a rank has the values, its program may end. The lock ensures that each rank gets the values before
        # it gets the message that another rank has ended.
        with self._sending:
            for rank in self._peers:
                self._send(rank, message)

    def _send_frame(self, peer: _Peer, frame: bytes) -> None:
        with self._sending:
            peer.socket.sendall(frame)

    # ---- the watcher

    def _watch(self) -> None:
        beaten = looked = time.monotonic()
        while not self._is_closed:
            poll = select.poll()
            ranks = {peer.socket.fileno(): rank for rank, peer in self._peers.items() if peer.is_open}
            for number in (self._wake, *ranks):
                poll.register(number, select.POLLIN)
            ready = poll.poll(200)
            for number, _ in ready:
                if number in ranks:
                    self._read(ranks[number])
            now = time.monotonic()
            if now - looked > BEAT_SECONDS:  # this process was stopped for a time, so the other ranks may be alive
                for peer in self._peers.values():
                    peer.heard = now
            looked = now
            if now - beaten >= BEAT_SECONDS:
                beaten = now
                self._send_all({"kind": "alive"})
            for rank, peer in self._peers.items():
                if peer.is_open and now - peer.heard > SILENT_SECONDS:
                    self._part(rank, f"rank {rank} on {self._host(rank)} has not answered for {SILENT_SECONDS:.0f} s")
            self._judge(now)

    def _host(self, rank: int) -> str:
        return self.places[rank].host if hasattr(self, "places") else "its node"

    def _read(self, rank: int) -> None:
        peer = self._peers[rank]
        try:
            part = peer.socket.recv(1 << 20)
            messages = peer.frames.add(part)
        except (OSError, ValueError):
            part, messages = b"", []
        if not part:
            self._part(rank, f"rank {rank} has gone")
            return
        peer.heard = time.monotonic()
        for message in messages:
            self._take(rank, message)

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        kind = message.pop("kind")
        if kind == "value":
            self._collect(rank, message["round"], message["value"])
        elif kind == "values":
            with self._changed:
                self._results[message["round"]] = message["values"]
                self._changed.notify_all()
        elif kind == "lost":
            with self._changed:
                self._note_lost(message["rank"], rank)
        elif kind in ("failed", "end"):
            self._finish(End(**message))
        elif kind == "bye":
            self._part(rank, f"rank {rank} has ended its program")

    def _part(self, rank: int, text: str) -> None:
        """Use the connection to `rank` no longer, because that rank is gone, and end the group."""
        self._peers[rank].is_open = False
        self._finish(End(rank, text))

    def _note_lost(self, rank: int, reporter: int) -> None:
        self._lost.setdefault(rank, set()).add(reporter)
        self._judge_at = min(self._judge_at, time.monotonic() + JUDGE_SECONDS)

    def _judge(self, now: float) -> None:
        """If links are broken and no other reason is known after JUDGE_SECONDS, find the rank that is gone. A rank that
        has reported a broken link is not gone. If other links of this rank are broken, the rank itself has closed
        them."""
        with self._changed:
            if now < self._judge_at or self._end is not None:
                return
            reporters = set().union(*self._lost.values())
            rank = next((one for one in self._lost if one not in reporters), min(self._lost))
        self._finish(End(rank, f"rank {rank} has gone"))

    def _finish(self, end: End) -> None:
        """End the group, unless it has already ended. Rank 0 sends the reason to all other ranks."""
        with self._changed:
            if self._is_ending:
                return
            self._is_ending = True
        if self.rank == 0:  # sent before `_end` is set, because this process may end as soon as `_end` is set
            self._send_all({"kind": "end", **vars(end)})
        with self._changed:
            self._end = end
            callbacks = list(self._callbacks)
            self._changed.notify_all()
        for callback in callbacks:
            callback()
