"""The file view of a kernel, as an MPI datatype.

Made by the calls of MPI that count in 32 bits: mpi4py makes datatypes by those of 64 bits where MPI has them, and ROMIO
of MPICH 4.0 ends the program when it is given such a one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from outcrop.aggregate.mpi_library import loaded_library
from outcrop.bench.aggregate.kernel import Kernel, Variable


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
