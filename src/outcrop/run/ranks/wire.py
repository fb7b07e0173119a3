"""Sockets between two ranks. This module defines the addresses of sockets, the proof that both ends know the same
token, and the frames of messages in JSON.

    Listener ◄── connect()        on one node by a Unix socket, otherwise by TCP
    frame:   | length, 4 bytes, big endian | JSON |

Each process in the network can connect to a listener. Therefore each end of a connection proves that it knows the
token. The token is a random number that only the ranks of one group know. The token itself is not sent over these
sockets:

    listener                 connecting rank
    16 random bytes a  ──►
                       ◄──   number of the rank, 16 random bytes b, HMAC(token, "in" a b number)
    HMAC(token, "out" b) ──►
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import time
from pathlib import Path
from typing import Any

MAX_FRAME_BYTES = 64 << 20
PROOF_SECONDS = 5.0
"""The time in seconds in which one end of a new connection must prove that it knows the token."""

SEND_SECONDS = 20
"""A connection over TCP fails if the other machine does not acknowledge sent bytes within SEND_SECONDS."""

NETWORK = "OUTCROP_NETWORK"
"""The environment variable that names the network interface of the ranks, such as ib0."""

_HEAD = struct.Struct(">I")
_RANDOM_BYTES, _PROOF_BYTES = 16, 32
_SIOCGIFADDR = 0x8915


def place_of_process() -> str:
    """Return a text that is equal for processes of one machine and one network namespace. Processes with the same text
    can use the same abstract Unix sockets."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{socket.gethostname()} {boot.read_text().strip()} {os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return f"{socket.gethostname()} {secrets.token_hex(8)}"


def network_addresses() -> list[str]:
    """Return the IPv4 addresses of this machine. The address of the fastest network interface comes first, and the
    loopback address comes last."""
    wanted, found = os.environ.get(NETWORK, ""), []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            if wanted and name != wanted:
                continue
            with contextlib.suppress(OSError):
                asked = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                address = socket.inet_ntoa(asked[20:24])
                found.append((address.startswith("127."), -_megabits(name), address))
    return [address for _, _, address in sorted(found)]


def _megabits(interface: str) -> int:
    """Return the speed of a network interface, or 0 if Linux does not report the speed."""
    try:
        return int(Path(f"/sys/class/net/{interface}/speed").read_text())
    except (OSError, ValueError):
        return 0


class Listener:
    """Accepts the connections of other ranks that know `token`. `address` is plain data for `connect`."""

    def __init__(self, token: str) -> None:
        self._token = token
        name = f"outcrop-{secrets.token_hex(16)}"
        self._near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._near.bind(f"\0{name}")  # an abstract name, which leaves no file
        self._near.listen(4096)
        self._far = socket.create_server(("", 0), backlog=4096)
        self.address = {
            "place": place_of_process(), "name": name, "hosts": network_addresses(),
            "port": self._far.getsockname()[1],
        }  # fmt: skip

    def accept(self, deadline: float) -> tuple[socket.socket, int]:
        """Accept a connection. Return the connection, and the number of the rank at its other end. If the other end
        does not prove that it knows the token, the connection is closed. Raises TimeoutError at the time `deadline` of
        `time.monotonic`."""
        for one in (self._near, self._far):
            one.setblocking(False)
        while time.monotonic() < deadline:
            for one in (self._near, self._far):
                with contextlib.suppress(BlockingIOError, InterruptedError):
                    connection, _ = one.accept()
                    try:
                        return connection, self._prove(connection)
                    except (OSError, ValueError, EOFError):
                        connection.close()
            time.sleep(0.002)
        raise TimeoutError

    def _prove(self, connection: socket.socket) -> int:
        connection.settimeout(PROOF_SECONDS)
        mine = secrets.token_bytes(_RANDOM_BYTES)
        connection.sendall(mine)
        answer = read_exactly(connection, _HEAD.size + _RANDOM_BYTES + _PROOF_BYTES)
        number, theirs, proof = answer[: _HEAD.size], answer[_HEAD.size : -_PROOF_BYTES], answer[-_PROOF_BYTES:]
        if not hmac.compare_digest(proof, _proof(self._token, b"in", mine + theirs + number)):
            raise ValueError("wrong token")
        connection.sendall(_proof(self._token, b"out", theirs))
        prepare_socket(connection)
        return int(_HEAD.unpack(number)[0])

    def close(self) -> None:
        self._near.close()
        self._far.close()


def connect(address: dict[str, Any], token: str, rank: int, deadline: float) -> socket.socket:
    """Connect as rank number `rank` to the listener at `address`, and prove that both ends know `token`. Raises OSError
    with the last reason if no try succeeds before `deadline`, a time of `time.monotonic`."""
    places: list[Any] = [(host, address["port"]) for host in address["hosts"]]
    if address["place"] == place_of_process():
        places.insert(0, f"\0{address['name']}")
    problem: Exception = OSError(f"no network interface {os.environ.get(NETWORK, '')}".rstrip())
    while True:
        for place in places:
            try:
                return _connected(place, token, rank)
            except (OSError, ValueError, EOFError) as error:
                problem = error
        if time.monotonic() >= deadline:
            raise OSError(str(problem))
        time.sleep(0.05)


def _connected(place: Any, token: str, rank: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.settimeout(PROOF_SECONDS)
        connection.connect(place)
        number, mine = _HEAD.pack(rank), secrets.token_bytes(_RANDOM_BYTES)
        theirs = read_exactly(connection, _RANDOM_BYTES)
        connection.sendall(number + mine + _proof(token, b"in", theirs + mine + number))
        if not hmac.compare_digest(read_exactly(connection, _PROOF_BYTES), _proof(token, b"out", mine)):
            raise ValueError("another program listens there")
        prepare_socket(connection)
        return connection
    except BaseException:
        connection.close()
        raise


def _proof(token: str, purpose: bytes, content: bytes) -> bytes:
    return hmac.new(token.encode(), purpose + content, hashlib.sha256).digest()


def prepare_socket(connection: socket.socket) -> None:
    """Make a socket blocking. Also set options of the socket so that the socket fails within half a minute if the
    network fails."""
    connection.settimeout(None)
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 8), ("TCP_KEEPINTVL", 4), ("TCP_KEEPCNT", 3)):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SEND_SECONDS * 1000)


def limit_sending(connection: socket.socket, seconds: int) -> None:
    """Set a time limit: sending a message fails with BlockingIOError if the other end receives nothing for `seconds`.
    The failure can take up to 2 * `seconds`. If Linux has sent some bytes, it first reports their number, and sending
    fails at the next try."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", seconds, 0))


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """Return the next `count` bytes. Raises EOFError if the other end of the connection has closed it."""
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def frame_of(message: dict[str, Any]) -> bytes:
    content = json.dumps(message).encode()
    return _HEAD.pack(len(content)) + content


class Frames:
    """Collects bytes of a connection, and returns the messages that are complete."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, part: bytes) -> list[dict[str, Any]]:
        """Add received bytes, and return the messages that are now complete. Raises ValueError for other content."""
        self._bytes += part
        found = []
        while len(self._bytes) >= _HEAD.size:
            (count,) = _HEAD.unpack(self._bytes[: _HEAD.size])
            if count > MAX_FRAME_BYTES:
                raise ValueError("not a message of a rank")
            if len(self._bytes) < _HEAD.size + count:
                break
            message = json.loads(self._bytes[_HEAD.size : _HEAD.size + count])
            del self._bytes[: _HEAD.size + count]
            found.append(message)
        return found
