"""The ranks that make a plan together: those of an mpi4py communicator, or this process by itself."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from outcrop.aggregate.communicator import Communicator
from outcrop.aggregate.machine import Floats
from outcrop.aggregate.ping_pong import measure

Value = TypeVar("Value")


class Ranks:
    """`rank` of `size`; `node` is the lowest rank on this rank's node. Making and closing it is collective."""

    def __init__(self, communicator: Any) -> None:
        """Of an mpi4py intracommunicator; None for this process by itself, without MPI. Raises InputError."""
        self._users = communicator
        self._own = None if communicator is None else Communicator(communicator)
        self.rank = self._own.rank if self._own else 0
        self.size = self._own.size if self._own else 1
        self.node = self._own.node if self._own else 0
        self.library = self._own.library if self._own else "one process"

    @property
    def address(self) -> int:
        """Of the core's table of functions between ranks; 0 where there are none to be reached."""
        return self._own.address if self._own else 0

    def limit_waiting(self, seconds_most: float) -> None:
        """Not collective: calls of this rank that wait for others fail after so long; 0 for never."""
        if self._own:
            self._own.limit_waiting(seconds_most)

    def use_rma(self) -> str:
        """Collective: see `Communicator.use_rma`."""
        return "there is one process" if self._own is None else self._own.use_rma()

    def ping_pong(self, leaders: Sequence[int]) -> Floats:
        """Collective: seconds of a small message between nodes, whose first ranks are `leaders`; a row for each."""
        return np.zeros((1, 1)) if self._own is None else measure(self._users, leaders)

    def gather(self, value: Value) -> list[Value]:
        """Collective: the values of all ranks, in their order. Raises CommunicationError."""
        if self._own is None:
            return [value]
        return [pickle.loads(each) for each in self._own.gather(pickle.dumps(value))]

    def close(self) -> None:
        """Give back what was made."""
        if self._own:
            self._own.close()
