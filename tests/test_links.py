"""Check the Python interface of links. The errors of links must be exceptions of the package. Other Python threads must
run while a call waits.

The tests in tests/core check messages, damage and neighbours that have ended.
"""

import socket
import threading

import numpy as np
import pytest

from outcrop import _core
from outcrop.errors import CommunicationError, CorruptionError, InputError, InterruptedRun


def linked() -> tuple[_core.Link, _core.Link]:
    """Return both ends of a connection."""
    low, high = socket.socketpair()
    with low, high:  # each link has its own duplicate of the descriptor
        return _core.Link(low.fileno(), "rank 1"), _core.Link(high.fileno(), "rank 0")


def test_messages_arrive_whole() -> None:
    low, high = linked()
    sent = np.random.default_rng(1).integers(0, 256, 3_000_000, dtype=np.uint8)
    sender = threading.Thread(target=low.send, args=(sent,))
    sender.start()
    received = np.zeros_like(sent)
    high.receive(received)
    sender.join()
    assert np.array_equal(received, sent)
    high.send(b"back")
    low.receive(answer := bytearray(4))
    assert answer == b"back"
    assert (low.name, low.bytes_sent, low.bytes_received) == ("rank 1", sent.size, 4)
    assert (high.name, high.bytes_sent, high.bytes_received) == ("rank 0", 4, sent.size)


def test_a_damaged_message_is_an_error() -> None:
    low, high = socket.socketpair()
    with low, high:
        link = _core.Link(low.fileno(), "rank 1")
        high.sendall(b"message" + _core.crc32c(b"messages").to_bytes(4, "little"))
        with pytest.raises(CorruptionError, match="a message from rank 1 is damaged: checksum mismatch"):
            link.receive(bytearray(7))


def test_a_neighbour_that_has_gone_is_an_error() -> None:
    low, high = linked()
    del high
    with pytest.raises(CommunicationError, match=r"^rank 1 has gone$"):
        low.receive(bytearray(1))


def test_cancel_ends_a_call_that_waits() -> None:
    low, _high = linked()
    threading.Timer(0.05, low.cancel).start()
    with pytest.raises(InterruptedRun, match="the connection to rank 1 was cancelled"):
        low.receive(bytearray(1))


def test_other_descriptors_are_refused() -> None:
    with socket.socket() as unconnected, pytest.raises(InputError, match="no connected stream socket"):
        _core.Link(unconnected.fileno(), "rank 1")
    with pytest.raises(InputError, match="descriptor -1 is no connected stream socket"):
        _core.Link(-1, "rank 1")
    low, high = socket.socketpair(type=socket.SOCK_DGRAM)
    with low, high, pytest.raises(InputError, match="no connected stream socket"):
        _core.Link(low.fileno(), "rank 1")
