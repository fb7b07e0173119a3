"""The ways to one file that are measured beside each other.

outcrop     this library; what is declared once is a plan
mpi-io      the MPI's own: one view of all variables, one collective call; OMPIO or ROMIO, which it says itself
posix       each rank its own runs, one pwrite or pread for each

declare ─► create or open ─► write or read ─► close     all collective; only write and read are on the clock
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import outcrop.aggregate as agg
from outcrop.bench.aggregate_kernel import Kernel, Variable

Memory = NDArray[np.uint8]
WAYS = ("outcrop", "mpi-io", "posix")


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


class Outcrop:
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
        return vars(self._file.write(self._kernel.arrays(memory)))

    def read(self, memory: Memory) -> dict[str, float]:
        """See Way."""
        return vars(self._file.read(self._kernel.arrays(memory)))

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
        """OMPIO or ROMIO, once a file has been open."""

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
        self.implementation = "ROMIO" if any("romio" in key for key in hints) else "OMPIO"
        hints.Free()

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
    """By system calls of each rank."""

    def __init__(self, world: Any, kernel: Kernel, folder: Path) -> None:
        self._world, self._kernel = world, kernel

    def create(self, path: Path, durable: bool) -> None:
        """See Way."""
        self._durable = durable
        if self._world.Get_rank() == 0:
            with path.open("wb") as file:
                file.truncate(self._kernel.file_bytes)
        self._world.Barrier()
        self._handle = os.open(path, os.O_WRONLY)

    def open(self, path: Path) -> None:
        """See Way."""
        self._handle = os.open(path, os.O_RDONLY)

    def write(self, memory: Memory) -> dict[str, float]:
        """See Way."""
        for offset, run in self._runs(memory):
            done = os.pwrite(self._handle, run, offset)
            while done < len(run):
                done += os.pwrite(self._handle, run[done:], offset + done)
        if self._durable:
            os.fsync(self._handle)
        return {}

    def read(self, memory: Memory) -> dict[str, float]:
        """See Way."""
        for offset, run in self._runs(memory):
            done = os.preadv(self._handle, [run], offset)
            while 0 < done < len(run):
                done += os.preadv(self._handle, [run[done:]], offset + done)
        return {}

    def close(self) -> None:
        """See Way."""
        os.close(self._handle)

    def end(self) -> None:
        """See Way."""

    def _runs(self, memory: Memory) -> Iterator[tuple[int, memoryview]]:
        for variable, array in zip(self._kernel.variables, self._kernel.arrays(memory), strict=True):
            view, length = array.data, variable.box[-1] * variable.item_bytes
            for number, offset in enumerate(run_offsets(variable)):
                yield offset, view[number * length : (number + 1) * length]


MAKERS: dict[str, Callable[[Any, Kernel, Path], Way]] = {"outcrop": Outcrop, "mpi-io": MpiIo, "posix": Posix}


def extent_of(variable: Variable) -> agg.Extent:
    """For a plan."""
    items = f"V{variable.item_bytes}"
    return agg.subarray(variable.shape, variable.box, variable.starts, items, offset=variable.offset)


def view_of(mpi: Any, kernel: Kernel) -> Any:
    """The MPI datatype of all variables of a rank in the file."""
    parts = []
    for variable in kernel.variables:
        item = mpi.BYTE.Create_contiguous(variable.item_bytes)
        part = item.Create_subarray(list(variable.shape), list(variable.box), list(variable.starts))
        item.Free()
        parts.append(part)
    view = mpi.Datatype.Create_struct([1] * len(parts), [one.offset for one in kernel.variables], parts)
    for part in parts:
        part.Free()
    view.Commit()
    return view


def run_offsets(variable: Variable) -> Iterator[int]:
    """Where in the file each run of a rank's box begins, along the last axis, in the order of memory."""
    strides = [prod(variable.shape[axis + 1 :]) * variable.item_bytes for axis in range(len(variable.shape))]
    first = variable.offset + sum(start * stride for start, stride in zip(variable.starts, strides, strict=True))
    for place in product(*map(range, variable.box[:-1])):
        yield first + sum(at * stride for at, stride in zip(place, strides, strict=False))
