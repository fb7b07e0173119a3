"""The classes of this module represent the processes of a measurement: this process alone, or all processes that mpirun
has started. Several processes use mpi4py."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outcrop.errors import InputError, OutcropError, without_mpi

COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
"""Environment variables in which Open MPI, MPICH and similar libraries store the number of processes."""
LAUNCHERS = (*COUNTS, "PMIX_RANK")
FAILED = 2
SECONDS_TO_BE_HEARD = 1.0
"""The pause before an abort. During this pause, the launcher can still print the last output of this rank."""


class Ranks:
    """The ranks of a program without MPI: a single process, which is the only rank. `on_node` is the number of ranks on
    the node of this rank."""

    rank, size, on_node = 0, 1, 1

    @property
    def node(self) -> str:
        """The name of the node on which this rank runs."""
        return os.uname().nodename

    def wait_for_node(self) -> None:
        """Wait until all ranks of the node of this rank have called this method."""

    def wait_for_all(self) -> None:
        """Wait until all ranks have called this method."""

    def of_node(self, value: Any) -> list[Any]:
        """Return a list with the `value` of each rank on the node of this rank."""
        return [value]

    def of_all(self, value: Any) -> list[Any]:
        """Return a list with the `value` of each rank, in the order of ranks."""
        return [value]


class MpiRanks(Ranks):
    """The processes of an MPI program, which are the ranks. `mpi` is the module mpi4py.MPI."""

    def __init__(self, mpi: Any) -> None:
        self._mpi, self._world, self._name = mpi, mpi.COMM_WORLD, mpi.Get_processor_name()
        self._node = self._world.Split_type(mpi.COMM_TYPE_SHARED)
        self.rank, self.size, self.on_node = self._world.Get_rank(), self._world.Get_size(), self._node.Get_size()

    @property
    def library(self) -> str:
        """The name and version of the MPI library in one line."""
        return str(self._mpi.Get_library_version()).strip("\0 \n").splitlines()[0]

    @property
    def communicator(self) -> Any:
        """mpi4py's communicator of all ranks."""
        return self._world

    @property
    def node(self) -> str:
        return str(self._name)

    def wait_for_node(self) -> None:
        self._node.Barrier()

    def wait_for_all(self) -> None:
        self._world.Barrier()

    def of_node(self, value: Any) -> list[Any]:
        return list(self._node.allgather(value))

    def of_all(self, value: Any) -> list[Any]:
        return list(self._world.allgather(value))


@contextmanager
def all_ranks() -> Iterator[Ranks]:
    """Yield the ranks of this program. If one of several ranks raises an exception, all ranks end, because the other
    ranks would wait forever.

    Raises InputError if mpirun has started this process, but mpi4py is missing or uses another MPI library.
    """
    if not any(name in os.environ for name in LAUNCHERS):
        yield Ranks()
        return
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise without_mpi(error) from None
    ranks = MpiRanks(MPI)
    started = max((int(os.environ[name]) for name in COUNTS if os.environ.get(name, "").isdecimal()), default=1)
    if ranks.size == 1 < started:  # without this error, each process would act as rank 0
        other = f"an mpirun that does not belong to the MPI of mpi4py, {ranks.library}"
        raise InputError(f"{started} ranks were started by {other}; use the mpirun of this MPI")
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
