"""All ranks of a plan write or read one file together, one step after the other.

    with agg.create(path, plan) as file:
        for step in range(steps):
            file.write([u, v], base=step * plan.end)

All ranks must call each function together. Each rank passes its own arrays. If an error occurs on one rank, all ranks
raise this error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from outcrop import _aggregate
from outcrop.aggregate.plan import Plan, texts, whole
from outcrop.errors import CommunicationError, InputError, OutcropError, shown
from outcrop.paths import as_path, as_place, make_directory, remove_made, require_regular

Arrays = Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]]
MAX_BASE = 2**62
WAYS = ("automatic", "buffered", "direct")
Timing = _aggregate.Timing
Result = TypeVar("Result")


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
    """Create a file, or empty an existing file. All ranks must call this function. Raises StorageError on all ranks.

    Args:
        path: the path of the file that all ranks share.
        plan: the plan, which describes the bytes that each rank writes in each step.
        durable: if true, a write ends only when its bytes are on the device.
        way: "buffered" uses the page cache, "direct" bypasses it, and "automatic" chooses between the two.
        size_bytes: the final size of the file. The default 0 means that the file grows.
        stage: a folder on a tier of each node. A write with a stage ends when its bytes are durable in the folder of
            the stage. The staged bytes are copied to the file later, in the background. An earlier program may have
            left steps of this file in the folder of the stage. These steps are deleted (see `File.notes`). With "auto",
            steps are staged on a tier of the machine if this makes the predicted time shorter.
        stage_bytes: the maximum size of the stage on a node. 0 means all free space.
        stage_persistence: for "auto": the minimum persistence of a stage: reboot, job or permanent.
        seconds_between: for "auto": the time, in seconds, for which the program computes between two steps. The stage
            is drained during this time.
        reads_back: for "auto": the number of times that each step is read soon after its write.
        node_files: if true, each node writes its own file instead of the shared file. The file `path`.index lists these
            files.

    If an argument is None, the function uses the setting of the plan.
    """
    stages = stage, stage_bytes, stage_persistence, seconds_between, reads_back
    place, settings = _checked(path, plan, way, size_bytes, stages, durable=durable, node_files=node_files)
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
    """Open an existing file for reading. If `writable` is true, you can also write to the file. The other arguments are
    described in `create`. If an earlier program has left steps in the stage, the function first copies these steps to
    the file. All ranks must call this function. Raises StorageError on all ranks.
    """
    stages = stage, stage_bytes, stage_persistence, seconds_between, reads_back
    place, settings = _checked(path, plan, way, 0, stages, durable=durable, node_files=node_files)
    return File(_aggregate.File.open(plan._core, place, way, durable, node_files, settings, writable), plan)


STAGES = ("stage", "stage_bytes", "stage_persistence", "seconds_between", "reads_back")


def _checked(
    path: str | os.PathLike[str], plan: Plan, way: str, size_bytes: int, stages: Sequence[object], **flags: bool
) -> tuple[str, dict[str, str]]:
    """Return two values: the path, and the settings of the stage as texts for the core. `stages` has one value for each
    name in STAGES. Raises InputError for invalid arguments.
    """
    settings = texts(dict(zip(STAGES, stages, strict=True)))
    plan.check_open()
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InputError(f"{name} {shown(value)} must be True or False")
    if way not in WAYS:
        raise InputError(f"way {way!r} must be one of {', '.join(WAYS)}")
    whole("size_bytes", size_bytes, MAX_BASE)
    return str(as_path(path, "path")), settings


def merge(index: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Copy the node files of all nodes into the file `target`, and return the size of this file. `index` is the path of
    the file that lists the files of the nodes. Only one process may call `merge`.

    The function first writes a new file, reads the file again, and compares the bytes. Only after this comparison does
    the new file get the name `target`. The node files stay unchanged. Raises InputError, CorruptionError and
    StorageError.
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
    """A write or read in progress. It keeps references to its arrays. Do not change the arrays before the request has
    ended.
    """

    def __init__(self, core: _aggregate.Request, what: str, plan: Plan) -> None:
        self._core, self._what, self._plan = core, what, plan
        self._counted = False

    def test(self) -> bool:
        """Return whether the request has ended. Each call of `test` also continues the exchange of messages between
        nodes. Raises the same errors as `wait`.
        """
        self._check()
        has_ended = self._core.test()
        if has_ended:
            self._count()
        return has_ended

    def wait(self) -> Timing:
        """Wait until the request has ended, and return the timing of the request. Raises StorageError (with rank, file
        and offset), CommunicationError, or InputError for unsuitable arrays. All ranks raise the same error.
        """
        self._check()
        self._core.wait()
        return self._count()

    def _check(self) -> None:
        if not self._counted:  # while the request is in progress, the plan must stay open
            self._plan.check_open()

    def _count(self) -> Timing:
        timing = self._core.timing
        if not self._counted:
            self._plan._core.add_measured(self._what, timing)
            self._counted = True
        return timing


class File:
    """An open file. `create` and `open` return objects of this class.

    To write or read a step, pass one array for each declared variable. You can pass a list, or a mapping from names to
    arrays. Each array must be a contiguous NumPy array with at least the declared number of bytes. `base`, in bytes, is
    added to all offsets of the plan. If one rank passes an unsuitable array, all ranks raise InputError.
    """

    def __init__(self, core: _aggregate.File, plan: Plan) -> None:
        self._core, self._plan = core, plan
        self._closed = False
        self._before = "staged " if core.staged else ""

    @property
    def is_staged(self) -> bool:
        """True if steps of this file are staged: they are first written to a stage, and later copied to the file."""
        return bool(self._before)

    @property
    def notes(self) -> list[str]:
        """A list with one line for each step that an earlier program has left in the stage. Each line says whether the
        step is now in the file or is lost.
        """
        return self._core.notes

    def write(self, arrays: Arrays, base: int = 0) -> Timing:
        """Write a step. Raises the same errors as `Request.wait`."""
        return self._timed("write", self._act(self._core.write, arrays, base))

    def read(self, arrays: Arrays, base: int = 0) -> Timing:
        """Read a step into the arrays. Raises the same errors as `Request.wait`."""
        return self._timed("read", self._act(self._core.read, arrays, base, writable=True))

    def begin_write(self, arrays: Arrays, base: int = 0) -> Request:
        """Begin to write a step. Do not change the arrays before the request has ended. At most four requests can be
        active. If four requests are active, `begin_write` first waits until the oldest request has ended.
        """
        return Request(self._act(self._core.begin_write, arrays, base), self._before + "write", self._plan)

    def begin_read(self, arrays: Arrays, base: int = 0) -> Request:
        """Begin to read a step into the arrays. Do not use the arrays before the request has ended."""
        return Request(self._act(self._core.begin_read, arrays, base, writable=True), self._before + "read", self._plan)

    def flush(self) -> None:
        """Wait until all bytes that were written are durable in the file. Raises StorageError."""
        self._plan.check_open()
        self._core.flush()

    def close(self) -> None:
        """Wait until all requests have ended, and until all staged steps are in the file. Then close the file."""
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
        # If only this rank has an error, the other ranks may never call close(). Therefore this rank does not wait for
        # the other ranks.
        if kind is None or self._plan.size == 1 or (issubclass(kind, OutcropError) and kind is not CommunicationError):
            self.close()

    def _act(self, act: Callable[..., Result], arrays: Arrays, base: int, writable: bool = False) -> Result:
        memory, problem = self._memory(arrays, writable)
        return act(memory, whole("base", base, MAX_BASE), problem)

    def _timed(self, what: str, timing: Timing) -> Timing:
        self._plan._core.add_measured(self._before + what, timing)
        return timing

    def _memory(self, arrays: Arrays, writable: bool) -> tuple[list[NDArray[np.uint8]], str]:
        """Return two values: the bytes of all arrays, and an empty text. If an array is unsuitable, the values are an
        empty list and a text with the reason. The core reports the reason to all ranks.
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
    """Return the reason why `array` cannot be used, or "" if it can be used."""
    if not isinstance(array, np.ndarray):
        return f"is of the type {type(array).__name__}; pass a NumPy array"
    if array.dtype.hasobject:
        return "contains Python objects, which cannot be written as bytes"
    if not array.flags.c_contiguous:
        return "is not contiguous" + ("" if writable else "; pass numpy.ascontiguousarray(array)")
    if array.nbytes < needed:
        return f"has {array.nbytes} bytes, {needed} were declared"
    if writable and not array.flags.writeable:
        return "is read-only"
    return ""
