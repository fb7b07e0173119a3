"""The benchmark compares several ways to write and read one file.

outcrop     this library, with a plan that is declared once
mpi-io      MPI-IO of the running MPI (OMPIO or ROMIO): one view of all variables, one collective call
posix       each rank transfers its own contiguous ranges of bytes, with one pwrite or pread for each range

declare ─► create or open ─► write or read ─► close     all calls are collective; only write and read are measured

The file view of a kernel is an MPI datatype. When mpi4py makes a datatype, mpi4py calls functions of MPI with counts of
64 bits. When ROMIO of MPICH 4.0 gets such a datatype, it ends the program. Therefore this module makes the datatype
itself, with functions that use counts of 32 bits.
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
from outcrop.aggregate.workloads import Kernel, Variable

Memory = NDArray[np.uint8]
WAYS = ("outcrop", "mpi-io", "posix")
OPEN_MPI_CHOICE = "OMPI_MCA_io"
"""An environment variable with the user's choice of MPI-IO. mpirun passes the variable to the ranks."""


class Way(Protocol):
    """A way in which all ranks write and read the variables of one kernel."""

    def create(self, path: Path, durable: bool) -> None:
        """Create the file with its final size. If `durable` is true, a write ends only when its bytes are durable."""

    def open(self, path: Path) -> None:
        """Open the file to read it."""

    def write(self, memory: Memory) -> dict[str, float]:
        """Write all variables of this rank. Returns figures of this rank that only this way can measure."""

    def read(self, memory: Memory) -> dict[str, float]:
        """Read all variables of this rank. Returns figures of this rank that only this way can measure."""

    def close(self) -> None:
        """Close the file."""

    def end(self) -> None:
        """Free everything that the way has declared before."""


class OutcropWay:
    """The way `outcrop`. The way `outcrop` writes and reads with a plan of this library."""

    def __init__(self, world: Any, kernel: Kernel, folder: Path) -> None:
        self._kernel = kernel
        self.plan = agg.declare(world, [extent_of(one) for one in kernel.variables], target=folder)

    def create(self, path: Path, durable: bool) -> None:
        self._file = agg.create(path, self.plan, durable=durable, size_bytes=self._kernel.file_bytes)

    def open(self, path: Path) -> None:
        self._file = agg.open(path, self.plan)

    def write(self, memory: Memory) -> dict[str, float]:
        return _known(self._file.write(self._kernel.arrays(memory)))

    def read(self, memory: Memory) -> dict[str, float]:
        return _known(self._file.read(self._kernel.arrays(memory)))

    def close(self) -> None:
        self._file.close()

    def end(self) -> None:
        self.plan.close()


class MpiIo:
    """The way `mpi-io`. The way `mpi-io` writes and reads with collective calls of MPI."""

    def __init__(self, world: Any, kernel: Kernel, folder: Path) -> None:
        from mpi4py import MPI

        self._mpi, self._world, self._kernel = MPI, world, kernel
        self._view = view_of(MPI, kernel)
        self.implementation = ""
        """The implementation of MPI-IO, such as OMPIO or ROMIO. It is "" until the first file is opened."""

    def create(self, path: Path, durable: bool) -> None:
        self._durable = durable
        self._open(path, self._mpi.MODE_CREATE | self._mpi.MODE_WRONLY)
        self._file.Set_size(self._kernel.file_bytes)

    def open(self, path: Path) -> None:
        self._open(path, self._mpi.MODE_RDONLY)

    def _open(self, path: Path, mode: int) -> None:
        self._file = self._mpi.File.Open(self._world, os.fspath(path), mode)
        self._file.Set_view(0, self._mpi.BYTE, self._view)
        hints = self._file.Get_info()
        is_romio = any("romio" in key for key in hints)
        hints.Free()
        self.implementation = "ROMIO" if is_romio else implementation_of_open_mpi(os.environ.get(OPEN_MPI_CHOICE, ""))

    def write(self, memory: Memory) -> dict[str, float]:
        self._file.Write_at_all(0, [memory, memory.nbytes, self._mpi.BYTE])
        if self._durable:
            self._file.Sync()
        return {}

    def read(self, memory: Memory) -> dict[str, float]:
        self._file.Read_at_all(0, [memory, memory.nbytes, self._mpi.BYTE])
        return {}

    def close(self) -> None:
        self._file.Close()

    def end(self) -> None:
        self._view.Free()


class Posix:
    """The way `posix`. In the way `posix`, each rank writes and reads through the page cache with its own system
    calls."""

    def __init__(self, world: Any, kernel: Kernel, folder: Path) -> None:
        self._world, self._kernel = world, kernel
        self._extents = [[extent_of(one)] for one in kernel.variables]

    def create(self, path: Path, durable: bool) -> None:
        self._durable = durable
        if self._world.Get_rank() == 0:
            with path.open("wb") as file:
                file.truncate(self._kernel.file_bytes)
        self._world.Barrier()
        self._file = _aggregate.PlainRuns(os.fspath(path), self._extents, True)

    def open(self, path: Path) -> None:
        self._file = _aggregate.PlainRuns(os.fspath(path), self._extents, False)

    def write(self, memory: Memory) -> dict[str, float]:
        self._file.write(self._kernel.arrays(memory))
        if self._durable:
            self._file.flush()
        return {}

    def read(self, memory: Memory) -> dict[str, float]:
        self._file.read(self._kernel.arrays(memory))
        return {}

    def close(self) -> None:
        del self._file

    def end(self) -> None:
        pass


MAKERS: dict[str, Callable[[Any, Kernel, Path], Way]] = {"outcrop": OutcropWay, "mpi-io": MpiIo, "posix": Posix}


def implementation_of_open_mpi(chosen: str) -> str:
    """Return the name of the implementation of MPI-IO in Open MPI. `chosen` is the user's choice: an open file does not
    report the name.
    """
    if not chosen:
        return "MPI-IO that Open MPI prefers"
    return "ROMIO" if chosen.startswith("romio") else chosen.upper()


def extent_of(variable: Variable) -> agg.Extent:
    """Return the extent of a variable in a plan."""
    items = f"V{variable.item_bytes}"
    return agg.subarray(variable.shape, variable.box, variable.starts, items, offset=variable.offset)


TIMES = ("seconds", "seconds_copying", "seconds_filling", "seconds_storage", "seconds_messages", "bytes_storage")


def _known(timing: agg.Timing) -> dict[str, float]:
    return {name: getattr(timing, name) for name in TIMES}


def view_of(mpi: Any, kernel: Kernel) -> Any:
    """Return the datatype of all variables of a rank. The datatype is committed. `mpi` is mpi4py.MPI."""
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
    """Return the datatype for a rank's box of an array. The last axis counts bytes."""
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
    """Return the C type of an MPI_Datatype. The type is a number in MPICH, and a pointer in Open MPI."""
    return ctypes.c_int if mpi._sizeof(mpi.Datatype) == ctypes.sizeof(ctypes.c_int) else ctypes.c_void_p


def _handle(mpi: Any, datatype: Any) -> ctypes.c_int | ctypes.c_void_p:
    return _handle_type(mpi).from_address(mpi._addressof(datatype))


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * len(values))(*values)


def _call(function: Any, *arguments: object) -> None:
    code = function(*arguments)
    assert code == 0, f"{function.__name__} returned {code}"
