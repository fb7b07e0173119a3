"""The ways to one file that are measured beside each other.

outcrop     this library; what is declared once is a plan
mpi-io      the MPI's own: one view of all variables, one collective call; OMPIO or ROMIO, which it says itself
posix       each rank its own runs, one pwrite or pread for each

declare ─► create or open ─► write or read ─► close     all collective; only write and read are on the clock

The file view of a kernel is an MPI datatype, made by the calls of MPI that count in 32 bits: mpi4py makes datatypes by
those of 64 bits where MPI has them, and ROMIO of MPICH 4.0 ends the program when it is given such a one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import outcrop.aggregate as agg
from outcrop import _aggregate
from outcrop.aggregate.mpi_library import loaded_library
from outcrop.bench.aggregate.kernel import Kernel, Variable

Memory = NDArray[np.uint8]
WAYS = ("outcrop", "mpi-io", "posix")
OPEN_MPI_CHOICE = "OMPI_MCA_io"
"""The variable by which mpirun hands on which MPI-IO its users have chosen."""


class Way(Protocol):
    """One of them, for one kernel on all ranks."""

    def create(self, path: Path, durable: bool) -> None:
        """Make the file, of its full size. `durable`: writes will end with their bytes on the device."""

    def open(self, path: Path) -> None:
        """For reading."""

    def write(self, memory: Memory) -> dict[str, float]:
        """All variables of this rank; what this rank knows about the time it took."""

    def read(self, memory: Memory) -> dict[str, float]:
        """The same, the other way."""

    def close(self) -> None:
        """The file."""

    def end(self) -> None:
        """Give back what was declared."""


class OutcropWay:
    """By a plan."""

    def __init__(self, world: Any, kernel: Kernel, folder: Path) -> None:
        self._kernel = kernel
        self.plan = agg.declare(world, [extent_of(one) for one in kernel.variables], target=folder)

    def create(self, path: Path, durable: bool) -> None:
        """See Way."""
        self._file = agg.create(path, self.plan, durable=durable, size_bytes=self._kernel.file_bytes)

    def open(self, path: Path) -> None:
        """See Way."""
        self._file = agg.open(path, self.plan)

    def write(self, memory: Memory) -> dict[str, float]:
        """See Way."""
        return _known(self._file.write(self._kernel.arrays(memory)))

    def read(self, memory: Memory) -> dict[str, float]:
        """See Way."""
        return _known(self._file.read(self._kernel.arrays(memory)))

    def close(self) -> None:
        """See Way."""
        self._file.close()

    def end(self) -> None:
        """See Way."""
        self.plan.close()


class MpiIo:
    """By collective calls of MPI."""

    def __init__(self, world: Any, kernel: Kernel, folder: Path) -> None:
        from mpi4py import MPI

        self._mpi, self._world, self._kernel = MPI, world, kernel
        self._view = view_of(MPI, kernel)
        self.implementation = ""
        """OMPIO or ROMIO, as far as that is known, once a file has been open."""

    def create(self, path: Path, durable: bool) -> None:
        """See Way."""
        self._durable = durable
        self._open(path, self._mpi.MODE_CREATE | self._mpi.MODE_WRONLY)
        self._file.Set_size(self._kernel.file_bytes)

    def open(self, path: Path) -> None:
        """See Way."""
        self._open(path, self._mpi.MODE_RDONLY)

    def _open(self, path: Path, mode: int) -> None:
        self._file = self._mpi.File.Open(self._world, os.fspath(path), mode)
        self._file.Set_view(0, self._mpi.BYTE, self._view)
        hints = self._file.Get_info()
        is_romio = any("romio" in key for key in hints)
        hints.Free()
        self.implementation = "ROMIO" if is_romio else implementation_of_open_mpi(os.environ.get(OPEN_MPI_CHOICE, ""))

    def write(self, memory: Memory) -> dict[str, float]:
        """See Way."""
        self._file.Write_at_all(0, [memory, memory.nbytes, self._mpi.BYTE])
        if self._durable:
            self._file.Sync()
        return {}

    def read(self, memory: Memory) -> dict[str, float]:
        """See Way."""
        self._file.Read_at_all(0, [memory, memory.nbytes, self._mpi.BYTE])
        return {}

    def close(self) -> None:
        """See Way."""
        self._file.Close()

    def end(self) -> None:
        """See Way."""
        self._view.Free()


class Posix:
    """By system calls of each rank, through the page cache."""

    def __init__(self, world: Any, kernel: Kernel, folder: Path) -> None:
        self._world, self._kernel = world, kernel
        self._extents = [[extent_of(one)] for one in kernel.variables]

    def create(self, path: Path, durable: bool) -> None:
        """See Way."""
        self._durable = durable
        if self._world.Get_rank() == 0:
            with path.open("wb") as file:
                file.truncate(self._kernel.file_bytes)
        self._world.Barrier()
        self._file = _aggregate.PlainRuns(os.fspath(path), self._extents, True)

    def open(self, path: Path) -> None:
        """See Way."""
        self._file = _aggregate.PlainRuns(os.fspath(path), self._extents, False)

    def write(self, memory: Memory) -> dict[str, float]:
        """See Way."""
        self._file.write(self._kernel.arrays(memory))
        if self._durable:
            self._file.flush()
        return {}

    def read(self, memory: Memory) -> dict[str, float]:
        """See Way."""
        self._file.read(self._kernel.arrays(memory))
        return {}

    def close(self) -> None:
        """See Way."""
        del self._file

    def end(self) -> None:
        """See Way."""


MAKERS: dict[str, Callable[[Any, Kernel, Path], Way]] = {"outcrop": OutcropWay, "mpi-io": MpiIo, "posix": Posix}


def implementation_of_open_mpi(chosen: str) -> str:
    """By what its users choose; files tell nothing of it."""
    if not chosen:
        return "MPI-IO that Open MPI prefers"
    return "ROMIO" if chosen.startswith("romio") else chosen.upper()


def extent_of(variable: Variable) -> agg.Extent:
    """For a plan."""
    items = f"V{variable.item_bytes}"
    return agg.subarray(variable.shape, variable.box, variable.starts, items, offset=variable.offset)


def _known(timing: agg.Timing) -> dict[str, float]:
    return {
        "seconds": timing.seconds,
        "seconds_copying": timing.seconds_copying,
        "seconds_filling": timing.seconds_filling,
        "seconds_storage": timing.seconds_storage,
        "seconds_messages": timing.seconds_messages,
        "bytes_storage": timing.bytes_storage,
    }


def view_of(mpi: Any, kernel: Kernel) -> Any:
    """All variables of a rank, committed. `mpi` is mpi4py.MPI."""
    library = ctypes.CDLL(str(loaded_library(mpi).path))
    parts = [_part(mpi, library, one) for one in kernel.variables]
    handles: list[Any] = [_handle(mpi, part).value for part in parts]
    view = mpi.Datatype()
    _call(
        library.MPI_Type_create_struct,
        ctypes.c_int(len(parts)),
        _numbers([1] * len(parts)),
        (ctypes.c_ssize_t * len(parts))(*(one.offset for one in kernel.variables)),
        (_handle_type(mpi) * len(parts))(*handles),
        ctypes.c_void_p(mpi._addressof(view)),
    )
    for part in parts:
        part.Free()
    return view.Commit()


def _part(mpi: Any, library: ctypes.CDLL, variable: Variable) -> Any:
    """A rank's box of an array, of bytes along the last axis."""
    sizes = [(*some[:-1], some[-1] * variable.item_bytes) for some in (variable.shape, variable.box, variable.starts)]
    part = mpi.Datatype()
    _call(
        library.MPI_Type_create_subarray,
        ctypes.c_int(len(variable.shape)),
        *map(_numbers, sizes),
        ctypes.c_int(mpi.ORDER_C),
        _handle(mpi, mpi.BYTE),
        ctypes.c_void_p(mpi._addressof(part)),
    )
    return part


def _handle_type(mpi: Any) -> type[ctypes.c_int] | type[ctypes.c_void_p]:
    """MPI_Datatype: a number in MPICH, a pointer in Open MPI."""
    return ctypes.c_int if mpi._sizeof(mpi.Datatype) == ctypes.sizeof(ctypes.c_int) else ctypes.c_void_p


def _handle(mpi: Any, datatype: Any) -> ctypes.c_int | ctypes.c_void_p:
    return _handle_type(mpi).from_address(mpi._addressof(datatype))


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * len(values))(*values)


def _call(function: Any, *arguments: object) -> None:
    code = function(*arguments)
    assert code == 0, f"{function.__name__} returned {code}"
