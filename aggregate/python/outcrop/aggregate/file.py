"""One file that all ranks of a plan write or read together, step by step.

    with agg.create(path, plan) as file:
        for step in range(steps):
            file.write([u, v], base=step * plan.end)

All functions are collective but for the arrays; what goes wrong at one rank is raised on all.
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
from outcrop.aggregate.plan import Plan
from outcrop.aggregate.settings import texts
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
    """A file to be written; one that exists is emptied. Collective. Raises StorageError, on all ranks.

    Args:
        path: of the file that all ranks share.
        plan: what is written in each step.
        durable: every write ends with its bytes on the device.
        way: "buffered" through the page cache, "direct" around it, or whichever fits.
        size_bytes: of the file, set once where it is known.
        stage: a folder on a tier of each node: writes end when their bytes are durable there, and get to the file in
            the background; what an earlier run has left there is brought to its file first (see `File.notes`). With
            "auto", a tier of the machine, or none: what is predicted to take the program less time.
        stage_bytes: that the stage may take on a node; 0 for what there is.
        stage_persistence: for "auto": what a stage must outlive at least, reboot, job or permanent.
        seconds_between: for "auto": seconds of computing from one step to the next, in which the stage is drained.
        reads_back: for "auto": how often a step is read again, by this plan, before long.
        node_files: a file for each node and `path`.index, instead of one that all share.

    What is None is taken from the plan's hints and the environment.
    """
    settings = texts(
        {"stage": stage, "stage_bytes": stage_bytes, "stage_persistence": stage_persistence,
         "seconds_between": seconds_between, "reads_back": reads_back}
    )  # fmt: skip
    _check_options(plan, way, size_bytes, durable=durable, node_files=node_files)
    place = str(as_path(path, "path"))
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
    """An existing file, to be read, or to be written, too; options as of `create`. Collective. Raises StorageError, on
    all ranks."""
    settings = texts(
        {"stage": stage, "stage_bytes": stage_bytes, "stage_persistence": stage_persistence,
         "seconds_between": seconds_between, "reads_back": reads_back}
    )  # fmt: skip
    _check_options(plan, way, 0, durable=durable, node_files=node_files)
    place = str(as_path(path, "path"))
    return File(_aggregate.File.open(plan._core, place, way, durable, node_files, settings, writable), plan)


def _check_options(plan: Plan, way: str, size_bytes: int, **flags: bool) -> None:
    plan.check_open()
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InputError(f"{name} {shown(value)} must be True or False")
    if way not in WAYS:
        raise InputError(f"way {way!r} must be one of {', '.join(WAYS)}")
    _offset(size_bytes)


def merge(index: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Make the one file `target` of the files of all nodes, by their index; its bytes. By one process.

    It gets its name when it has been read back and compared; the nodes' files stay. Raises InputError, CorruptionError
    and StorageError.
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
    """A write or read under way. Its arrays must stay as they are until it is over; they are kept."""

    def __init__(self, core: _aggregate.Request, what: str, plan: Plan) -> None:
        self._core, self._what, self._plan = core, what, plan
        self._counted = False

    def test(self) -> bool:
        """Whether it is over; moves messages on. Raises as `wait` does, once it is."""
        self._check()
        is_over = self._core.test()
        if is_over:
            self._count()
        return is_over

    def wait(self) -> Timing:
        """Return when it is over. Raises StorageError (with rank, file and offset), InputError for arrays that do not
        fit, CommunicationError; the same on all ranks."""
        self._check()
        self._core.wait()
        return self._count()

    def _check(self) -> None:
        if not self._counted:  # others may have to be asked
            self._plan.check_open()

    def _count(self) -> Timing:
        timing = self._core.timing
        if not self._counted:
            self._plan._core.add_measured(self._what, timing)
            self._counted = True
        return timing


class File:
    """Made by `create` and `open`. Arrays are one for each variable declared: a list, or a mapping by their names.

    They are contiguous NumPy arrays with as many bytes as declared. `base`, in bytes, is added to all offsets of the
    plan. What is wrong with one rank's arrays is raised as InputError on all ranks.
    """

    def __init__(self, core: _aggregate.File, plan: Plan) -> None:
        self._core, self._plan = core, plan
        self._closed = False
        self._before = "staged " if core.staged else ""

    @property
    def is_staged(self) -> bool:
        """Whether steps go to a stage first."""
        return bool(self._before)

    @property
    def notes(self) -> list[str]:
        """What an earlier run had left staged: what is in the file now, and what is lost. One line each."""
        return self._core.notes

    def write(self, arrays: Arrays, base: int = 0) -> Timing:
        """Write a step. Raises StorageError with rank, file and offset; CommunicationError where a rank is gone."""
        memory, problem = self._memory(arrays, writable=False)
        timing = self._core.write(memory, _offset(base), problem)
        self._plan._core.add_measured(self._before + "write", timing)
        return timing

    def read(self, arrays: Arrays, base: int = 0) -> Timing:
        """Read a step into the arrays. Raises as `write` does."""
        memory, problem = self._memory(arrays, writable=True)
        timing = self._core.read(memory, _offset(base), problem)
        self._plan._core.add_measured(self._before + "read", timing)
        return timing

    def begin_write(self, arrays: Arrays, base: int = 0) -> Request:
        """Begin to write a step, whose arrays must not change before it is over. Waits while four are under way."""
        memory, problem = self._memory(arrays, writable=False)
        return Request(self._core.begin_write(memory, _offset(base), problem), self._before + "write", self._plan)

    def begin_read(self, arrays: Arrays, base: int = 0) -> Request:
        """Begin to read a step into the arrays, which are not to be used before the request is over."""
        memory, problem = self._memory(arrays, writable=True)
        return Request(self._core.begin_read(memory, _offset(base), problem), self._before + "read", self._plan)

    def flush(self) -> None:
        """Return when all that was written is on the device, in its file. Raises StorageError."""
        self._plan.check_open()
        self._core.flush()

    def close(self) -> None:
        """Wait for what is under way, and for what is staged to be in the file; nothing else may follow."""
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
        # After an error of this rank's own others may not come to close together with this one; it shall be seen.
        if kind is None or self._plan.size == 1 or (issubclass(kind, OutcropError) and kind is not CommunicationError):
            self.close()

    def _memory(self, arrays: Arrays, writable: bool) -> tuple[list[NDArray[np.uint8]], str]:
        """The bytes of all arrays; or nothing and what is wrong with one, which all ranks are to be told."""
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
            problem = _wrong(array, bytes_needed, writable)
            if problem:
                return [], f"variable {name} {problem}"
            memory.append(array.reshape(-1).view(np.uint8))
        return memory, ""


def _wrong(array: Any, needed: int, writable: bool) -> str:
    """Why an array cannot be used, or nothing."""
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
