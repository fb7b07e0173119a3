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

from outcrop import _core
from outcrop.aggregate.measured import Timing
from outcrop.aggregate.plan import Plan
from outcrop.errors import InputError

Arrays = Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]]
BASE_MOST = 2**62
WAYS = ("automatic", "buffered", "direct")


def create(
    path: str | os.PathLike[str], plan: Plan, *, durable: bool = False, way: str = "automatic", size_bytes: int = 0
) -> File:
    """A file to be written; one that exists is emptied. Collective.

    With `durable` every write ends with its bytes on the device. `way`: "buffered" through the page cache, "direct"
    around it, or whichever fits. `size_bytes` is set once where it is known. Raises StorageError, on all ranks.
    """
    _check_way(way)
    return File(_core.AggregateFile.create(plan._core, os.fspath(path), durable, way, _offset(size_bytes)), plan)


def open(
    path: str | os.PathLike[str],
    plan: Plan,
    *,
    writable: bool = False,
    durable: bool = False,
    way: str = "automatic",
) -> File:
    """An existing file, to be read, or to be written, too. Collective. Raises StorageError, on all ranks."""
    _check_way(way)
    return File(_core.AggregateFile.open(plan._core, os.fspath(path), writable, durable, way), plan)


class Request:
    """A write or read under way. Its arrays must stay as they are until it is over; they are kept."""

    def __init__(self, core: _core.AggregateRequest, what: str, plan: Plan) -> None:
        self._core, self._what, self._plan = core, what, plan
        self._is_counted = False

    def test(self) -> bool:
        """Whether it is over; moves messages on. Raises as `wait` does, once it is."""
        is_over = self._core.test()
        if is_over:
            self._count()
        return is_over

    def wait(self) -> Timing:
        """Return when it is over. Raises StorageError (with rank, file and offset), InputError for arrays that do not
        fit, CommunicationError; the same on all ranks."""
        self._core.wait()
        return self._count()

    def _count(self) -> Timing:
        timing = _timing(self._core.timing)
        if not self._is_counted:
            self._plan.measured.add(self._what, timing)
            self._is_counted = True
        return timing


class File:
    """Made by `create` and `open`. Arrays are one for each variable declared: a list, or a mapping by their names.

    They are contiguous NumPy arrays with as many bytes as declared. `base`, in bytes, is added to all offsets of the
    plan. What is wrong with one rank's arrays is raised as InputError on all ranks.
    """

    def __init__(self, core: _core.AggregateFile, plan: Plan) -> None:
        self._core, self._plan = core, plan

    def write(self, arrays: Arrays, base: int = 0) -> Timing:
        """Write a step. Raises StorageError with rank, file and offset; CommunicationError where a rank is gone."""
        memory, problem = self._memory(arrays, writable=False)
        timing = _timing(self._core.write(memory, _offset(base), problem))
        self._plan.measured.add("write", timing)
        return timing

    def read(self, arrays: Arrays, base: int = 0) -> Timing:
        """Read a step into the arrays. Raises as `write` does."""
        memory, problem = self._memory(arrays, writable=True)
        timing = _timing(self._core.read(memory, _offset(base), problem))
        self._plan.measured.add("read", timing)
        return timing

    def begin_write(self, arrays: Arrays, base: int = 0) -> Request:
        """Begin to write a step, whose arrays must not change before it is over. Waits while four are under way."""
        memory, problem = self._memory(arrays, writable=False)
        return Request(self._core.begin_write(memory, _offset(base), problem), "write", self._plan)

    def begin_read(self, arrays: Arrays, base: int = 0) -> Request:
        """Begin to read a step into the arrays, which are not to be used before the request is over."""
        memory, problem = self._memory(arrays, writable=True)
        return Request(self._core.begin_read(memory, _offset(base), problem), "read", self._plan)

    def flush(self) -> None:
        """Return when all that was written is on the device. Raises StorageError."""
        self._core.flush()

    def close(self) -> None:
        """Wait for what is under way; nothing else may follow."""
        self._core.close()

    def __enter__(self) -> File:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _memory(self, arrays: Arrays, writable: bool) -> tuple[list[NDArray[np.uint8]], str]:
        """The bytes of all arrays; or nothing and what is wrong with one, which all ranks are to be told."""
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


def _timing(core: _core.AggregateTiming) -> Timing:
    return Timing(
        core.seconds,
        core.seconds_copying,
        core.seconds_filling,
        core.seconds_storage,
        core.seconds_messages,
        core.bytes_storage,
    )


def _offset(base: int) -> int:
    try:
        number = operator.index(base)
    except TypeError:
        number = -1
    if not 0 <= number <= BASE_MOST:
        raise InputError(f"{base!r} must be a whole number of bytes from 0 to 2^62")
    return number


def _check_way(way: str) -> None:
    if way not in WAYS:
        raise InputError(f"way {way!r} must be one of {', '.join(WAYS)}")
