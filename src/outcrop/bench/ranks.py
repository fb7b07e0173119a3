"""The processes that measure together: this one alone, or all that mpirun has started, by mpi4py."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outcrop.errors import InputError, OutcropError

COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
"""Variables that Open MPI, MPICH and their relatives set for the processes they start: how many they are."""
LAUNCHERS = (*COUNTS, "PMIX_RANK")
FAILED = 2
SECONDS_TO_BE_HEARD = 1.0
"""The launcher passes on what a rank has printed; once the rank has ended all, it may not."""


class Ranks:
    """One process, which is all ranks there are: nothing to wait for, nobody to ask."""

    rank, size = 0, 1
    on_node = 1
    """Ranks on this rank's node."""

    @property
    def node(self) -> str:
        """The name of this rank's node."""
        return os.uname().nodename

    def wait_for_node(self) -> None:
        """Until all ranks of the node are here."""

    def wait_for_all(self) -> None:
        """Until all ranks are here."""

    def of_node(self, value: Any) -> list[Any]:
        """The values of all ranks of the node."""
        return [value]

    def of_all(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order."""
        return [value]


class MpiRanks(Ranks):
    """All processes of an MPI program."""

    def __init__(self, mpi: Any) -> None:
        """`mpi` is mpi4py.MPI."""
        self._mpi, self._world, self._name = mpi, mpi.COMM_WORLD, mpi.Get_processor_name()
        self._node = self._world.Split_type(mpi.COMM_TYPE_SHARED)
        self.rank, self.size, self.on_node = self._world.Get_rank(), self._world.Get_size(), self._node.Get_size()

    @property
    def library(self) -> str:
        """What the MPI says it is, in a line."""
        return str(self._mpi.Get_library_version()).strip("\0 \n").splitlines()[0]

    @property
    def communicator(self) -> Any:
        """mpi4py's, of all ranks."""
        return self._world

    @property
    def node(self) -> str:
        """See Ranks."""
        return str(self._name)

    def wait_for_node(self) -> None:
        """See Ranks."""
        self._node.Barrier()

    def wait_for_all(self) -> None:
        """See Ranks."""
        self._world.Barrier()

    def of_node(self, value: Any) -> list[Any]:
        """See Ranks."""
        return list(self._node.allgather(value))

    def of_all(self, value: Any) -> list[Any]:
        """See Ranks."""
        return list(self._world.allgather(value))


@contextmanager
def all_ranks() -> Iterator[Ranks]:
    """The ranks of this program. What goes wrong in one of several ends all: the others would wait for it forever.

    Raises InputError when mpirun has started this process and mpi4py is not there, or of another MPI.
    """
    if not any(name in os.environ for name in LAUNCHERS):
        yield Ranks()
        return
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(f"several ranks need mpi4py and its MPI: pip install 'outcrop[mpi]' ({error})") from None
    ranks = MpiRanks(MPI)
    started = max((int(os.environ[name]) for name in COUNTS if os.environ.get(name, "").isdecimal()), default=1)
    if ranks.size == 1 < started:  # each would measure as if it were alone
        other = f"the mpirun of another MPI than that of mpi4py, {ranks.library}"
        raise InputError(f"{started} ranks were started by {other}; use its own")
    try:
        yield ranks
    except BaseException as error:
        if ranks.size == 1:
            raise
        if isinstance(error, OutcropError | OSError):
            print(f"outcrop: rank {ranks.rank} on {ranks.node}: {error}", file=sys.stderr, flush=True)
        else:
            traceback.print_exc()
        time.sleep(SECONDS_TO_BE_HEARD)
        MPI.COMM_WORLD.Abort(FAILED)
