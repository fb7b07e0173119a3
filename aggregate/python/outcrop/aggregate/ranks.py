"""The ranks that aggregate together: an mpi4py communicator as the core knows it, or this process by itself.

    mpi4py communicator ──► MPI that runs, its headers ──► mpi_transport.cpp compiled, kept by content
                                                                 │ one process of each node does that
                                                                 ▼
                                 address of the table of functions of transport.h, for the core

The core is compiled without MPI, since there are many. What has to know one is compiled against it when it is first
used, as kernels are (`outcrop.language.compile`).
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from outcrop import _aggregate
from outcrop.aggregate.mpi_library import MpiLibrary, find_headers, loaded_library
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
    """struct outcrop_transport of aggregate/core/outcrop/aggregate/transport/transport.h, as far as Python reads it."""

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


class Communicator:
    """A duplicate of an mpi4py intracommunicator, for the core.

    Making and closing one is collective. `rank` of `size`; `node` is the lowest rank on this rank's node, `host` that
    node's name, `library` the MPI that carries the bytes.
    """

    def __init__(self, communicator: Any) -> None:
        """Of an mpi4py intracommunicator; compiles for some seconds where that has never been done for this MPI.

        Raises InputError, on all ranks: mpi4py is missing; this is no intracommunicator; there is no C++ compiler, or
        there are no headers of the MPI that runs.
        """
        mpi = _mpi()
        if not isinstance(communicator, mpi.Intracomm) or communicator == mpi.COMM_NULL:
            raise InputError(f"communicator {communicator!r} is no intracommunicator of mpi4py; give MPI.COMM_WORLD")
        self._functions = _functions_of_all(mpi, communicator)
        open_transport = self._functions.outcrop_open_mpi_transport
        made, error = ctypes.POINTER(_Table)(), ctypes.create_string_buffer(ERROR_BYTES)
        users = ctypes.c_void_p(mpi._addressof(communicator))
        if open_transport(users, ctypes.c_size_t(0), ctypes.byref(made), error, ctypes.c_size_t(ERROR_BYTES)) != 0:
            raise InputError(f"the communicator cannot be used: {error.value.decode(errors='replace')}")
        table = made.contents
        self._table: ctypes._Pointer[_Table] | None = made
        self.rank, self.size, self.node = int(table.rank), int(table.size), int(table.node)
        self.host, self.library = table.host.decode(), table.name.decode()

    @property
    def address(self) -> int:
        """Where the table of functions is (struct outcrop_transport), until `close`."""
        assert self._table is not None, "the communicator has been closed"
        return ctypes.addressof(self._table.contents)

    def gather(self, content: bytes) -> list[bytes]:
        """Collective: the bytes of every rank, in their order.

        Raises CommunicationError, also where a rank does not come within the setting seconds_most.
        """
        assert self._table is not None, "the communicator has been closed"
        table = self._table.contents
        sizes = (ctypes.c_uint64 * self.size)()
        mine = ctypes.c_uint64(len(content))
        self._check(table.gather_all(table.self, bytes(mine), ctypes.sizeof(mine), ctypes.addressof(sizes)))
        every = ctypes.create_string_buffer(max(1, sum(sizes)))
        self._check(table.gather_all_sizes(table.self, content, sizes, ctypes.addressof(every)))
        ends = list(accumulate(sizes))
        return [every.raw[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    def _check(self, outcome: int) -> None:
        if outcome != 0:
            assert self._table is not None
            table = self._table.contents
            raise CommunicationError(table.error(table.self).decode(errors="replace"))

    def use_rma(self) -> str:
        """Collective, before anything uses it: longer messages by one-sided communication, where that works.

        Nothing where it does from now on; else why not, the same on all ranks, and messages go on to be sent. It is
        tried first: an MPI that hangs then ends the program, with a line. Raises CommunicationError.
        """
        why = ctypes.create_string_buffer(ERROR_BYTES)
        usual, seconds, room = ctypes.c_size_t(0), ctypes.c_double(PROBE_SECONDS), ctypes.c_size_t(ERROR_BYTES)
        outcome = self._functions.outcrop_use_one_sided(ctypes.c_void_p(self.address), usual, seconds, why, room)
        text = why.value.decode(errors="replace")
        if outcome > 1:
            raise CommunicationError(text)
        return text if outcome else ""

    def close(self) -> None:
        """Collective: frees the duplicate. Nothing may use it any more."""
        if self._table is not None:
            table, self._table = self._table.contents, None
            table.free(table.self)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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

    def use_rma(self) -> str:
        """Collective: see `Communicator.use_rma`."""
        return "there is one process" if self._own is None else self._own.use_rma()

    def ping_pong(self, leaders: Sequence[int]) -> Floats:
        """Collective: seconds of a small message between nodes, whose first ranks are `leaders`; a row for each."""
        return np.zeros((1, 1)) if self._own is None else measure_ping_pong(self._users, leaders)

    def gather(self, value: Value) -> list[Value]:
        """Collective: the values of all ranks, in their order. Raises CommunicationError."""
        if self._own is None:
            return [value]
        return [pickle.loads(each) for each in self._own.gather(pickle.dumps(value))]

    def close(self) -> None:
        """Give back what was made."""
        if self._own:
            self._own.close()


@lru_cache
def compile_transport(library: MpiLibrary) -> Path:
    """The transport compiled against this MPI, or what is kept of an earlier time; looked for once in a process.

    Raises InputError where there is no C++ compiler, or there are no headers of this MPI.
    """
    compiler = find_compiler("C++")
    headers = find_headers(library, compiler)
    folder = source_folder()
    files = sorted((folder / "outcrop" / "aggregate").glob("*/*.*"))
    flags = (*FLAGS, f"-I{folder}", *headers.flags)
    texts = [file.read_text() for file in files]
    content = [*compiler_identity(compiler), *flags, str(library.path), library.text, *texts]

    def build(beside: Path) -> None:
        # Linked with the file that is loaded already, so that no other of the same name can take its place.
        sources = [str(file) for file in files if file.suffix == ".cpp"]
        command = [*compiler, *flags, *sources, str(library.path), "-o", str(beside)]
        run_compiler(command, f"the transport over {library.version}")

    return shared_object("transports", content, build)


def source_folder() -> Path:
    """The folder with the transport's sources, which are installed beside the extension."""
    return Path(_aggregate.__file__).parent / "native"


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"several ranks need mpi4py and its MPI: pip install 'outcrop[mpi]' ({first})") from None
    return MPI


def _functions_of_all(mpi: Any, communicator: Any) -> ctypes.CDLL:
    """Compile on the first rank of each node, for all of it; load on every rank, each of which checks the file. What
    goes wrong on one rank is raised on all."""
    node = communicator.Split_type(mpi.COMM_TYPE_SHARED)
    try:
        path, trouble = node.bcast(_compiled(mpi) if node.Get_rank() == 0 else None)
    finally:
        node.Free()
    functions, trouble = _loaded(Path(path)) if not trouble else (None, trouble)
    troubles = [(rank, each) for rank, each in enumerate(communicator.allgather(trouble)) if each]
    if troubles:
        rank, first = troubles[0]
        raise InputError(first if len(troubles) == communicator.Get_size() else f"rank {rank}: {first}")
    assert functions is not None
    return functions


def _loaded(path: Path) -> tuple[ctypes.CDLL | None, str]:
    """The compiled transport, or what went wrong."""
    try:
        return load_library(path), ""
    except InputError as error:
        return None, str(error)


def _compiled(mpi: Any) -> tuple[str, str]:
    """The path of the compiled transport, or what went wrong."""
    try:
        return str(compile_transport(loaded_library(mpi))), ""
    except (InputError, OSError) as error:
        return "", str(error)
