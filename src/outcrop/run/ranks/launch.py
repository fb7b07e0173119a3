"""This module finds out whether a launcher such as mpirun has started this process as one of several ranks. A process
that is one of several ranks joins the other ranks.

If there is no launcher, mpi4py is not imported. If there is a launcher, mpi4py gives the number of this rank and
broadcasts the address of rank 0. After the broadcast, all messages go over the sockets of the `RankGroup`.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import re
import signal
from dataclasses import dataclass
from typing import Any

from outcrop.errors import InputError, by_caller, shown, without_mpi
from outcrop.run.ranks.group import RankGroup, together

COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS", "FLUX_JOB_SIZE")
"""Environment variables in which launchers store the number of processes."""

END_SECONDS = 10
"""The time in which MPI must end after a rank is gone. Without this limit, it is possible that MPI waits forever for a
rank that is gone."""

_groups: list[tuple[Any, RankGroup]] = []
"""The communicators that this process has joined. A communicator that is freed becomes equal to COMM_NULL."""


def started_ranks() -> int:
    """Return the number of processes that a launcher has started together, or 1 without a launcher."""
    return max((int(os.environ[name]) for name in COUNTS if os.environ.get(name, "").isdecimal()), default=1)


def join(ranks: object = "auto", comm: Any = None) -> RankGroup | None:
    """Return the group of all ranks, or None if this process runs alone.

    `ranks` is "auto", the number of ranks, or (py, pz), the numbers of parts along y and z. If `ranks` is 1, this
    process runs alone, even under a launcher. `comm` is None, an mpi4py communicator or a `RankGroup`. A process joins
    the ranks of a communicator only once. Raises InputError for wrong values. Also raises InputError if the launcher
    has started a number of ranks that is different from `ranks`. Also raises InputError if mpi4py is missing, or
    belongs to another MPI than the launcher."""
    if isinstance(comm, RankGroup):
        return _checked(ranks, comm)
    if comm is None and started_ranks() == 1:
        return _checked(ranks, None)
    with contextlib.suppress(InputError):
        if as_ranks(ranks).count == 1:
            return None
    mpi = _import_mpi()
    world = mpi.COMM_WORLD if comm is None else comm
    if not isinstance(world, mpi.Intracomm) or world == mpi.COMM_NULL:
        raise InputError(f"comm {shown(comm)} must be an intracommunicator of mpi4py, such as MPI.COMM_WORLD")
    size = int(world.Get_size())
    if size == 1:
        if comm is None:
            library = str(mpi.Get_library_version()).strip("\0 \n").splitlines()[0]
            raise InputError(
                f"the launcher has started {started_ranks()} processes, but the MPI of mpi4py ({library}) sees only "
                f"one; use the mpirun of this MPI, or give {by_caller('--ranks 1', 'ranks=1')} for runs that do not "
                "belong together"
            )
        return _checked(ranks, None)
    group = next((known for comm, known in _groups if comm == world), None)
    if group is None:
        if not _groups:
            atexit.register(_leave)
        group = RankGroup(int(world.Get_rank()), size, lambda text: str(world.bcast(text, root=0)))
        _groups.append((world, group))
    return _checked(ranks, group)


@dataclass(frozen=True)
class RankGrid:
    """`count` is the number of ranks, or None for "auto". `along_z` is the number of parts along z. `is_grid` is True
    if the user has given the numbers of parts along y and z."""

    count: int | None = None
    along_z: int = 1
    is_grid: bool = False

    def __str__(self) -> str:
        return f"{(self.count or 0) // self.along_z}x{self.along_z}" if self.is_grid else str(self.count)


def as_ranks(ranks: object) -> RankGrid:
    """Return the number of ranks. `ranks` is "auto", a number such as 4 or "4", or the numbers of parts along y and z,
    such as (4, 2) or "4x2". Raises InputError for wrong values."""
    given: Any = ranks
    if isinstance(given, str) and given == "auto":
        return RankGrid()
    if isinstance(given, str) and re.fullmatch(r"\d{1,7}(x\d{1,7})?", given):
        given = [int(one) for one in given.split("x")]
    numbers: list[int] = list(given) if isinstance(given, (list, tuple)) else [given]
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 1 for one in numbers) or not numbers:
        raise InputError(
            f"ranks {shown(ranks)} must be 'auto', a number of at least 1, or the numbers of parts along y and z, such "
            + by_caller("as 4x2", "as 4x2 or (4, 2)")
        )
    if len(numbers) > 2:
        raise InputError(f"ranks {shown(ranks)}: the grid can only be cut along y and z; give at most two numbers")
    return RankGrid(math.prod(numbers), numbers[1] if len(numbers) == 2 else 1, len(numbers) == 2)


def _checked(ranks: object, group: RankGroup | None) -> RankGroup | None:
    """Return `group`. Raises InputError if the number of ranks in the group is not `ranks`. The group is made before
    this check, so that only one of its ranks prints the error."""
    with together(group):
        wanted, size = as_ranks(ranks), group.size if group else 1
        if wanted.count == 1 and group is not None:
            return None
        if wanted.count not in (None, size):
            there = f"{size} ranks were started" if size > 1 else "this process runs alone"
            raise InputError(f"ranks {wanted}: {there}; start as many: mpirun -n {wanted.count} ...")
    return group


def _import_mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        alone = f"for runs that do not belong together give {by_caller('--ranks 1', 'ranks=1')}"
        raise InputError(f"{without_mpi(error)}; {alone}") from None
    if MPI.Is_finalized():
        raise InputError("MPI has ended in this process; make the simulation before MPI.Finalize()")
    if not MPI.Is_initialized():  # Devito imports mpi4py without initialising MPI
        MPI.Init_thread()
        atexit.register(MPI.Finalize)
    return MPI


def _leave() -> None:
    """Leave all groups at the end of the program. If a rank is gone, limit the time that MPI waits for this rank."""
    for _, group in _groups:
        if group.end is not None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(END_SECONDS)
        group.close()
