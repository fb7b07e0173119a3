"""`RankPeers`: how the acquisition of a part exchanges values with other ranks.

    everyone   records of all ranks, for `sim.traces` and `sim.norms`     over the sockets of the group, in pieces
    pass_up    samples near a cut, once in each pass before its commit    over the links, after the rows of the pass
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.wire import MAX_FRAME_BYTES

Links = tuple["_core.Link | None", "_core.Link | None"]


class RankPeers:
    """The other ranks in `group`. `links` are the links to the neighbours below and above, which only `pass_up`
    needs."""

    def __init__(self, group: RankGroup, links: Links = (None, None)) -> None:
        self._group, self._links = group, links

    def everyone(self, read: Callable[[], bytes]) -> list[bytes]:
        """Return what `read` returns on each rank. All ranks must call this method. Raises the error of `read` on all
        ranks, and CommunicationError if a rank is gone."""
        group = self._group
        with group.together():
            own = read()
        most = max(group.allgather(len(own)))
        # one message has the pieces of all ranks, as text of base64
        piece_bytes = max(1, MAX_FRAME_BYTES // 4 // group.size)
        found = [bytearray() for _ in range(group.size)]
        for begin in range(0, most, piece_bytes):
            text = base64.b64encode(own[begin : begin + piece_bytes]).decode()
            for whole, piece in zip(found, group.allgather(text), strict=True):
                whole += base64.b64decode(piece)
        return [bytes(one) for one in found]

    def pass_up(self, sent: NDArray[np.float64], received: NDArray[np.float64]) -> None:
        """Send an array to the neighbour above, and fill the other array from the neighbour below. Empty arrays are not
        transferred. Raises CommunicationError, CorruptionError or InterruptedRun."""
        low, high = self._links
        with ThreadPoolExecutor(1) as other:  # in a ring, all ranks send at the same time
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
                    high.cancel()  # so that the other thread ends
                raise
            if sending is not None:
                sending.result()
