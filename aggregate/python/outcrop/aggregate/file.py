"""With this module, all ranks of a plan write or read one file together, step by step.

    with agg.create(path, plan) as file:
        for step in range(steps):
            file.write([u, v], base=step * plan.end)

All ranks must call each function, and each rank passes its own arrays. An error at one rank is raised on all ranks.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _aggregate
from outcrop.aggregate.plan import Plan, texts
from outcrop.errors import CommunicationError, InputError, OutcropError, shown
from outcrop.paths import as_path, as_place, make_directory, remove_made, require_regular

Arrays = Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]]
MAX_BASE = 2**62
WAYS = ("automatic", "buffered", "direct")
Timing = _aggregate.Timing


def create(
    path: str | os.PathLike[str],
    plan: Plan,
    *,
    durable: bool = False,
    way: str = "automatic",
    size_bytes: int = 0,
    stage: str | os.PathLike[str] | None = None,
    stage_bytes: int | str | None = None,
    stage_persistence: str | None = None,
    seconds_between: float | None = None,
    reads_back: float | None = None,
    node_files: bool = False,
) -> File:
    """Create a file to write. An existing file is emptied. All ranks must call this. Raises StorageError on all ranks.

    Args:
        path: the path of the file that all ranks share.
        plan: the plan. It describes which bytes each rank writes in each step.
        durable: if true, a write does not end before its bytes are on the device.
        way: "buffered" uses the page cache, "direct" bypasses the page cache, and "automatic" chooses one of these two
            ways.
        size_bytes: the final size of the file. The default 0 means that the file grows.
        stage: a folder on a tier of each node. A write ends as soon as its bytes are durable in this folder. Later, the
            bytes are copied to the file in the background. Steps that an earlier run has left in this folder are first
            copied to their file (see `File.notes`). With "auto", steps are staged on a tier of the machine if this is
            predicted to be faster than no stage.
        stage_bytes: the maximum size of the stage on a node; 0 for all free space.
        stage_persistence: for "auto": the minimum persistence of a stage: reboot, job or permanent.
        seconds_between: for "auto": the seconds between two steps. The stage is drained during this time.
        reads_back: for "auto": the number of times that each step is read again soon after its write.
        node_files: if true, each node writes its own file, and no shared file is written. The file `path`.index is the
            index of these files.

    If an argument is None, its value is taken from the plan's hints. If the hints do not contain a value, it is taken
    from the environment.
    """
    settings = texts(
        {"stage": stage, "stage_bytes": stage_bytes, "stage_persistence": stage_persistence,
         "seconds_between": seconds_between, "reads_back": reads_back}
    )  # fmt: skip
    place = _checked(path, plan, way, size_bytes, durable=durable, node_files=node_files)
    return File(_aggregate.File.create(plan._core, place, way, durable, node_files, settings, size_bytes), plan)


def open(
    path: str | os.PathLike[str],
    plan: Plan,
    *,
    writable: bool = False,
    durable: bool = False,
    way: str = "automatic",
    stage: str | os.PathLike[str] | None = None,
    stage_bytes: int | str | None = None,
    stage_persistence: str | None = None,
    seconds_between: float | None = None,
    reads_back: float | None = None,
    node_files: bool = False,
) -> File:
    """Open an existing file to read it, and also to write it if `writable` is true. The other options are those of
    `create`. All ranks must call this. Raises StorageError on all ranks.
    """
    settings = texts(
        {"stage": stage, "stage_bytes": stage_bytes, "stage_persistence": stage_persistence,
         "seconds_between": seconds_between, "reads_back": reads_back}
    )  # fmt: skip
    place = _checked(path, plan, way, 0, durable=durable, node_files=node_files)
    return File(_aggregate.File.open(plan._core, place, way, durable, node_files, settings, writable), plan)


def _checked(path: str | os.PathLike[str], plan: Plan, way: str, size_bytes: int, **flags: bool) -> str:
    """Check the options, and return the path in the form that the core needs. Raises InputError for invalid options."""
    plan.check_open()
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InputError(f"{name} {shown(value)} must be True or False")
    if way not in WAYS:
        raise InputError(f"way {way!r} must be one of {', '.join(WAYS)}")
    _offset(size_bytes)
    return str(as_path(path, "path"))


def merge(index: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Join the files of all nodes into the file `target`. `index` is the path of the file that lists these files. Only
    one process may call this. Returns the number of bytes.

    The bytes of the new file are read back and compared before the file gets the name `target`. The files of the nodes
    are kept. Raises InputError, CorruptionError and StorageError.
    """
    source, place = as_place(index, "index"), as_place(target, "target")
    require_regular(source)
    made = make_directory(place.absolute().parent)
    try:
        return _aggregate.merge(str(source), str(place))
    except BaseException:
        remove_made(made)
        raise


class Request:
    """A request is a write or read in progress. It keeps references to its arrays. Do not change these arrays before
    the request has ended.
    """

    def __init__(self, core: _aggregate.Request, what: str, plan: Plan) -> None:
        self._core, self._what, self._plan = core, what, plan
        self._counted = False

    def test(self) -> bool:
        """Return whether the request has ended. Each call of this function also continues the transfer of messages.
        Raises the errors of `wait`.
        """
        self._check()
        has_ended = self._core.test()
        if has_ended:
            self._count()
        return has_ended

    def wait(self) -> Timing:
        """Wait until the request has ended, and return its timing. If one rank has an error, all ranks raise the error.
        The error is StorageError (with rank, file and offset), InputError (for unsuitable arrays) or
        CommunicationError.
        """
        self._check()
        self._core.wait()
        return self._count()

    def _check(self) -> None:
        if not self._counted:  # a request in progress may need other ranks
            self._plan.check_open()

    def _count(self) -> Timing:
        timing = self._core.timing
        if not self._counted:
            self._plan._core.add_measured(self._what, timing)
            self._counted = True
        return timing


class File:
    """A file that all ranks share. Use `create` or `open` to make this object.

    To write or read a step, pass one array for each declared variable. Pass a list of arrays, or a mapping from the
    names of variables to arrays. The arrays must be contiguous NumPy arrays with the declared numbers of bytes. `base`,
    in bytes, is added to all offsets of the plan. If one rank passes unsuitable arrays, all ranks raise InputError.
    """

    def __init__(self, core: _aggregate.File, plan: Plan) -> None:
        self._core, self._plan = core, plan
        self._closed = False
        self._before = "staged " if core.staged else ""

    @property
    def is_staged(self) -> bool:
        """True if steps are first written to a stage."""
        return bool(self._before)

    @property
    def notes(self) -> list[str]:
        """One line for each step that an earlier run has left in the stage. The line says whether the step is now in
        the file or is lost.
        """
        return self._core.notes

    def write(self, arrays: Arrays, base: int = 0) -> Timing:
        """Write a step. Raises StorageError with rank, file and offset. Raises CommunicationError if another rank has
        ended.
        """
        memory, problem = self._memory(arrays, writable=False)
        timing = self._core.write(memory, _offset(base), problem)
        self._plan._core.add_measured(self._before + "write", timing)
        return timing

    def read(self, arrays: Arrays, base: int = 0) -> Timing:
        """Read a step into the arrays. Raises the errors of `write`."""
        memory, problem = self._memory(arrays, writable=True)
        timing = self._core.read(memory, _offset(base), problem)
        self._plan._core.add_measured(self._before + "read", timing)
        return timing

    def begin_write(self, arrays: Arrays, base: int = 0) -> Request:
        """Begin to write a step. Do not change the arrays before the request has ended. At most four requests can be
        active. If four requests are active already, this call waits until one of them has ended.
        """
        memory, problem = self._memory(arrays, writable=False)
        return Request(self._core.begin_write(memory, _offset(base), problem), self._before + "write", self._plan)

    def begin_read(self, arrays: Arrays, base: int = 0) -> Request:
        """Begin to read a step into the arrays. Do not use the arrays before the request has ended."""
        memory, problem = self._memory(arrays, writable=True)
        return Request(self._core.begin_read(memory, _offset(base), problem), self._before + "read", self._plan)

    def flush(self) -> None:
        """Wait until all written bytes are in the file and on the device of the file. Raises StorageError."""
        self._plan.check_open()
        self._core.flush()

    def close(self) -> None:
        """Wait until all requests have ended, and until all staged steps are in the file. The file cannot be used
        afterwards.
        """
        if self._closed:
            return
        self._plan.check_open()
        self._closed = True
        self._core.close()

    def __enter__(self) -> File:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # If only this rank has an error, the other ranks may never call close(). So do not wait for the other ranks.
        # The caller then gets the error at once.
        if kind is None or self._plan.size == 1 or (issubclass(kind, OutcropError) and kind is not CommunicationError):
            self.close()

    def _memory(self, arrays: Arrays, writable: bool) -> tuple[list[NDArray[np.uint8]], str]:
        """Return two values: the bytes of all arrays, and an empty text. If an array is unsuitable, return an empty
        list and a text with the problem. The core reports the problem to all ranks.
        """
        self._plan.check_open()
        names, needed = self._plan.names, self._plan._core.memory_nbytes
        if isinstance(arrays, Mapping):
            other = sorted(set(names) ^ {str(name) for name in arrays})
            if other:
                return [], f"variable {other[0]} is {'missing' if other[0] in names else 'not declared'}"
            given = [arrays[name] for name in names]
        else:
            given = list(arrays)
        if len(given) != len(needed):
            return [], f"{len(needed)} variables were declared, {len(given)} are given"
        memory = []
        for name, array, bytes_needed in zip(names, given, needed, strict=True):
            if problem := _problem(array, bytes_needed, writable):
                return [], f"variable {name} {problem}"
            memory.append(array.reshape(-1).view(np.uint8))
        return memory, ""


def _problem(array: Any, needed: int, writable: bool) -> str:
    """Return the reason why an array cannot be used, or "" if it can be used."""
    if not isinstance(array, np.ndarray):
        return f"is of {type(array).__name__}; give a NumPy array"
    if array.dtype.hasobject:
        return "holds Python objects, which have no bytes"
    if not array.flags.c_contiguous:
        return "is not contiguous; give numpy.ascontiguousarray of it" if not writable else "is not contiguous"
    if array.nbytes < needed:
        return f"has {array.nbytes} bytes, {needed} were declared"
    if writable and not array.flags.writeable:
        return "may not be written"
    return ""


def _offset(base: int) -> int:
    try:
        number = operator.index(base)
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_BASE:
        raise InputError(f"{base!r} must be a whole number of bytes from 0 to 2^62")
    return number
