"""The ranks that perform aggregation together: all ranks of an mpi4py communicator, or only this process.

    mpi4py communicator ──► running MPI, its headers ──► mpi_transport.cpp, compiled and cached by content
                                                                 │ by one process of each node
                                                                 ▼
                                 address of the table of functions of transport.h, for the core

The core is compiled without MPI, because there are many implementations of MPI. Only the transport depends on MPI. The
transport is compiled when it is first used, as kernels are (`outcrop.language.compile`).
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from outcrop import _aggregate
from outcrop.aggregate.mpi_library import MpiLibrary, find_headers, import_mpi, loaded_library
from outcrop.aggregate.placement import Floats
from outcrop.aggregate.surroundings import measure_ping_pong
from outcrop.errors import CommunicationError, InputError
from outcrop.shared_object import compiler_identity, find_compiler, load_library, run_compiler, shared_object

FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-pthread")
ERROR_BYTES = 1024
PROBE_SECONDS = 20.0

Value = TypeVar("Value")
_GATHER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)
_GATHER_SIZES = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_void_p
)


class _Table(ctypes.Structure):
    """The first members of struct outcrop_transport (aggregate/core/outcrop/aggregate/transport/transport.h)."""

    _fields_ = (
        ("self", ctypes.c_void_p),
        ("rank", ctypes.c_int),
        ("size", ctypes.c_int),
        ("node", ctypes.c_int),
        ("host", ctypes.c_char * 256),
        ("name", ctypes.c_char * 128),
        ("unread", ctypes.c_void_p * 4),
        ("gather_all", _GATHER),
        ("gather_all_sizes", _GATHER_SIZES),
        ("unread_either", ctypes.c_void_p * 2),
        ("error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)),
        ("free", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("seconds_most", ctypes.c_double),
    )


class Ranks:
    """All ranks of an mpi4py intracommunicator, or only this process. A `Ranks` object owns a duplicate of the
    communicator.

    All ranks must create their `Ranks` objects together, and must close them together. `node` is the lowest rank on
    this rank's node. `host` is the name of the node. `library` is the name of the MPI library that transports the
    bytes.
    """

    def __init__(self, communicator: Any) -> None:
        """`communicator` is an mpi4py intracommunicator. If `communicator` is None, this process is the only rank.
        When Outcrop first uses an MPI library, it compiles the transport for this library. This takes some seconds.

        Raises InputError on all ranks in two cases: mpi4py, a C++ compiler or the headers of the running MPI are
        missing, or `communicator` is not an intracommunicator.
        """
        self._users = communicator
        self._table: ctypes._Pointer[_Table] | None = None
        self.rank, self.size, self.node, self.host, self.library = 0, 1, 0, "", "one process"
        if communicator is None:
            return
        mpi = import_mpi()
        if not isinstance(communicator, mpi.Intracomm) or communicator == mpi.COMM_NULL:
            raise InputError(f"communicator {communicator!r} must be an intracommunicator, such as MPI.COMM_WORLD")
        self._functions = _functions_of_all(mpi, communicator)
        open_transport = self._functions.outcrop_open_mpi_transport
        made, error = ctypes.POINTER(_Table)(), ctypes.create_string_buffer(ERROR_BYTES)
        users = ctypes.c_void_p(mpi._addressof(communicator))
        if open_transport(users, ctypes.c_size_t(0), ctypes.byref(made), error, ctypes.c_size_t(ERROR_BYTES)) != 0:
            raise InputError(f"the communicator cannot be used: {error.value.decode(errors='replace')}")
        self._table, table = made, made.contents
        self.rank, self.size, self.node = int(table.rank), int(table.size), int(table.node)
        self.host, self.library = table.host.decode(), table.name.decode()

    @property
    def address(self) -> int:
        """The address of the table of functions (struct outcrop_transport). The address is 0 if this process is the
        only rank. The address is valid until `close`.
        """
        return 0 if self._users is None else ctypes.addressof(self._open_table())

    def _open_table(self) -> _Table:
        assert self._table is not None, "the communicator has been closed"
        return self._table.contents

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all ranks, sorted by rank. All ranks must call this function. Raises CommunicationError
        if MPI fails, or if a rank does not call `gather` within the time limit (setting `seconds_most`).
        """
        if self._users is None:
            return [value]
        table, content = self._open_table(), pickle.dumps(value)
        sizes = (ctypes.c_uint64 * self.size)()
        mine = ctypes.c_uint64(len(content))
        self._check(table.gather_all(table.self, bytes(mine), ctypes.sizeof(mine), ctypes.addressof(sizes)))
        every = ctypes.create_string_buffer(max(1, sum(sizes)))
        self._check(table.gather_all_sizes(table.self, content, sizes, ctypes.addressof(every)))
        ends = accumulate(sizes)
        return [pickle.loads(every.raw[end - size : end]) for size, end in zip(sizes, ends, strict=True)]

    def _check(self, outcome: int) -> None:
        if outcome != 0:
            table = self._open_table()
            raise CommunicationError(table.error(table.self).decode(errors="replace"))

    def use_rma(self) -> str:
        """Test one-sided communication. If one-sided communication works, all later messages use it, except for short
        messages. All ranks must call `use_rma` before other communication.

        Returns "" on all ranks if one-sided communication works. Otherwise returns the reason on all ranks. If a call
        of MPI never returns, the program prints a line and ends. Raises CommunicationError.
        """
        if self._users is None:
            return "there is only one process"
        why = ctypes.create_string_buffer(ERROR_BYTES)
        usual, seconds, room = ctypes.c_size_t(0), ctypes.c_double(PROBE_SECONDS), ctypes.c_size_t(ERROR_BYTES)
        outcome = self._functions.outcrop_use_one_sided(ctypes.c_void_p(self.address), usual, seconds, why, room)
        text = why.value.decode(errors="replace")
        if outcome > 1:
            raise CommunicationError(text)
        return text if outcome else ""

    def ping_pong(self, leaders: Sequence[int]) -> Floats:
        """Return the result of measure_ping_pong() for the ranks `leaders`. All ranks must call this function."""
        return np.zeros((1, 1)) if self._users is None else measure_ping_pong(self._users, leaders)

    def close(self) -> None:
        """Free the duplicate of the communicator. All ranks must call this function."""
        if self._table is not None:
            table, self._table = self._table.contents, None
            table.free(table.self)


@lru_cache
def compile_transport(library: MpiLibrary) -> Path:
    """Return the path of the compiled transport for the MPI library `library`. The function compiles the transport if
    the cache does not contain it. Raises InputError if a C++ compiler or the headers of this MPI library are missing.
    """
    compiler = find_compiler("C++")
    headers = find_headers(library, compiler)
    folder = source_folder()
    files = sorted((folder / "outcrop" / "aggregate").glob("*/*.*"))
    flags = (*FLAGS, f"-I{folder}", *headers.flags)
    texts = [file.read_text() for file in files]
    content = [*compiler_identity(compiler), *flags, str(library.path), library.text, *texts]

    def build(beside: Path) -> None:
        # The command gives the path of the library. Therefore the compiler links with the library that is already
        # loaded. An option such as -lmpi could refer to another library.
        sources = [str(file) for file in files if file.suffix == ".cpp"]
        command = [*compiler, *flags, *sources, str(library.path), "-o", str(beside)]
        run_compiler(command, f"the transport over {library.version}")

    return shared_object("transports", content, build)


def source_folder() -> Path:
    """Return the folder with the source files of the transport. The folder is inside the folder of the compiled
    extension."""
    return Path(_aggregate.__file__).parent / "native"


def _functions_of_all(mpi: Any, communicator: Any) -> ctypes.CDLL:
    """Compile the transport on the first rank of each node, and load it on every rank. If an error occurs on one rank,
    all ranks raise this error.
    """
    node = communicator.Split_type(mpi.COMM_TYPE_SHARED)
    try:
        path, problem = node.bcast(_compiled(mpi) if node.Get_rank() == 0 else None)
    finally:
        node.Free()
    functions = None
    try:
        functions = None if problem else load_library(Path(path))
    except InputError as error:
        problem = str(error)
    problems = [(rank, each) for rank, each in enumerate(communicator.allgather(problem)) if each]
    if problems:
        rank, first = problems[0]
        raise InputError(first if len(problems) == communicator.Get_size() else f"rank {rank}: {first}")
    assert functions is not None
    return functions


def _compiled(mpi: Any) -> tuple[str, str]:
    """Return two texts: the path of the compiled transport, and "". After an error, the texts are "" and the message of
    the error."""
    try:
        return str(compile_transport(loaded_library(mpi))), ""
    except (InputError, OSError) as error:
        return "", str(error)
