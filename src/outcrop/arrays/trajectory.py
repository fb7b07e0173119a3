"""This module defines `oc.Trajectory`. A trajectory keeps the states of a program in memory and on storage, and returns
the newest state first.

The core (core/outcrop/trajectory) manages the buffers, the transfers, the files and the manifest. This module checks
the arguments and converts states to NumPy arrays and back.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcrop import _core
from outcrop.arrays.spec import parse_dtype
from outcrop.errors import BudgetError, InputError, shown
from outcrop.paths import as_path
from outcrop.tiers import discover
from outcrop.units import format_bytes, parse_bytes

Path: TypeAlias = "str | os.PathLike[str]"
State: TypeAlias = dict[str, NDArray[Any]]
"""The values of a state: a dictionary that has one array for each name of a field."""

MAX_STATES = 1 << 30


class Trajectory:
    """A stack of the states of a program, in memory and on storage. The newest state is on top.

    `fields` maps the names of fields to their shapes. All fields have the same `dtype`: "float32", "float64",
    "complex64", "complex128", "int32" or "int64". `states` is the maximum number of states. Each state of the
    trajectory is either in memory or in a file. The first states are in memory (at most `memory` bytes, such as
    "2GiB"). The next states are in files in the directory `path`. All later states are in files in the directories
    `overflow`. `limit` is the maximum number of bytes of the files of states in `path`. `overflow` is a list of paths,
    or a mapping from paths to limits. Without a limit, the files of states may use all free bytes of a directory.

    The constructor makes all files and allocates all memory, so that no push fails because a disk is full. The
    constructor also keeps room for commits. In addition, it allocates buffers with the memory of `buffers` states. The
    buffers hold the states that are being written or read. The directories of a trajectory must be new or empty. If a
    process was killed while it made or removed a trajectory in `path`, the constructor removes the files that are left.
    Raises InputError if the memory and the directories have no room for `states` states. The message of this error says
    how many states fit in the memory and in each directory. Raises BudgetError if too little memory is free.

        with oc.Trajectory("history", {"u": (nz, ny, nx)}, "float32", states=1000, memory="2GiB") as history:
            for step in range(1000):
                history.push({"u": advance(u)})
            while len(history):
                step, state = history.pop()
                go_back(step, state["u"])

    The states survive the end of the process only after `commit()`. A committed state that is popped remains on storage
    until the next commit. A program that pops states and must survive a crash must save its own data before it calls
    `commit()`. After a crash, `oc.Trajectory.open` gives the states of the last commit. The program may have used some
    of these states already before it saved its data. After the crash, the program pops the used states, ignores them,
    and continues.

    The directory of a trajectory is a group of Zarr v3 with an array of shape `(time, *shape)` for each field.
    `xarray.open_zarr` shows the committed states.
    """

    def __init__(
        self,
        path: Path,
        fields: Mapping[str, int | Sequence[int]],
        dtype: DTypeLike = "float64",
        *,
        states: int,
        memory: str | int | None = None,
        limit: str | int | None = None,
        overflow: Sequence[Path] | Mapping[Path, str | int | None] | None = None,
        buffers: int = 3,
        io: str = "auto",
    ) -> None:
        shapes = _shapes(fields)
        cells = parse_dtype(dtype).newbyteorder("=")
        count = _count("states", states, 1, MAX_STATES)
        in_flight = _count("buffers", buffers, 2, 1024)
        memory_bytes = 0 if memory is None else parse_bytes(memory, discover.memory_bytes())
        directories = [(str(as_path(path, "path")), _limit("limit", limit)), *_overflow(overflow)]
        state_bytes = sum(math.prod(shape) for _, shape in shapes) * cells.itemsize
        needed, free = min(memory_bytes, count * state_bytes) + in_flight * state_bytes, discover.free_memory_bytes()
        if needed > free:
            raise BudgetError(
                f"the states in memory and the buffers need {format_bytes(needed)}, but {format_bytes(free)} of memory "
                "are free; give less memory or fewer buffers"
            )
        create, method = _core.StateStack.create, _text("io", io)
        self._show(create(shapes, cells.name, count, memory_bytes, directories, in_flight, method))

    @classmethod
    def open(cls, path: Path, *, buffers: int = 3, io: str = "auto") -> Trajectory:
        """Open the trajectory in the directory `path` with the states of its last commit.

        `open` allocates only the buffers, with the memory of `buffers` states. The first push that needs the memory for
        states allocates this memory. If too little memory is free at that push, all states are in files. Raises
        InputError if the directory holds no trajectory, if another process uses the directory, or if too little memory
        is free. Raises CorruptionError if the manifest is damaged, and StorageError if a file cannot be read.
        """
        made = cls.__new__(cls)
        in_flight = _count("buffers", buffers, 2, 1024)
        made._show(_core.StateStack.open(str(as_path(path, "path")), in_flight, _text("io", io)))
        return made

    def _show(self, stack: _core.StateStack) -> None:
        self._stack = stack
        self._shapes = {name: tuple(shape) for name, shape in stack.fields}
        self._dtype: np.dtype[Any] = np.dtype(stack.dtype)

    @property
    def path(self) -> str:
        """The first directory of the trajectory."""
        return self._stack.path

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The names of the fields with their shapes."""
        return dict(self._shapes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of all fields."""
        return self._dtype

    @property
    def max_states(self) -> int:
        """The maximum number of states."""
        return self._stack.max_states

    @property
    def memory_states(self) -> int:
        """The maximum number of states that are kept in memory and not in files."""
        return self._stack.memory_states

    @property
    def committed(self) -> int:
        """The number of states of the last commit."""
        return self._stack.committed

    @property
    def can_commit(self) -> bool:
        """True if the directories have room for all states, including the states in memory. If `can_commit` is False,
        `commit` raises InputError."""
        return self._stack.is_durable

    def __len__(self) -> int:
        """Return the number of states that were pushed and not popped."""
        return self._stack.states

    def push(self, state: Mapping[str, Any]) -> int:
        """Copy a state and return its number. The states are counted from 0.

        `state` maps each field to an array of its shape and dtype. Outcrop writes the pushed state in the background.
        `push` waits only if all buffers are in use. The caller may change its arrays as soon as `push` returns. Raises
        InputError if the trajectory already has the maximum number of states. Also raises InputError if a committed
        state that was popped still occupies the place of the new state. To free this place, call `commit()` before the
        push. Raises StorageError if a transfer fails. After a StorageError, only the committed states are left.
        """
        return self._stack.push([np.ascontiguousarray(one) for one in self._checked(state)])

    def pop(self, into: Mapping[str, NDArray[Any]] | None = None) -> tuple[int, State]:
        """Remove the newest state, and return its number and its fields. While the program uses the newest state, older
        states are read ahead in the background.

        The returned arrays are valid until the next pop. `into` may map each field to an array. With `into`, `pop`
        copies the values into the arrays of `into`, and returns these arrays. Raises InputError if no state is left,
        or if `into` does not have a writable array for each field. Raises StorageError if the state cannot be read, and
        CorruptionError if the state differs from the state that was pushed. If `into` is wrong or if the state differs,
        the state is not removed.
        """
        targets = None if into is None else self._checked(into)
        for name, given in (into or {}).items():
            if not isinstance(given, np.ndarray) or not given.flags.writeable:
                what = "a read-only array" if isinstance(given, np.ndarray) else shown(given)
                raise InputError(f"field {name}: pop writes into an array of NumPy; it cannot write into {what}")
        number, parts = self._stack.pop()
        found = {
            name: part.view(self._dtype).reshape(shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }
        if targets is None:
            return number, found
        for target, values in zip(targets, found.values(), strict=True):
            np.copyto(target, values)
        return number, dict(zip(self._shapes, targets, strict=True))

    def __getitem__(self, number: int) -> State:
        """Return a copy of a state. The state is not removed. A negative number counts from the newest state. Raises
        IndexError, StorageError and CorruptionError."""
        count = len(self)
        index = operator.index(number)
        if not -count <= index < count:
            raise IndexError(f"there is no state {index}; {self.path} has {count} states")
        found = {name: np.empty(shape, self._dtype) for name, shape in self._shapes.items()}
        self._stack.read(index % count, list(found.values()))
        return found

    def commit(self) -> None:
        """Make all states durable, except states that were popped. After `commit`, storage no longer keeps the popped
        states.

        After a crash, `open` finds the states of the last commit. `commit` also writes the states in memory to files.
        These states stay in memory. Raises InputError if the directories have no room for all states. Raises
        StorageError if a write fails. After a StorageError, the last commit is still valid. If only the files for
        readers of Zarr cannot be written, the commit is complete, and the next commit or `open` writes these files.
        """
        self._stack.commit()

    def close(self) -> None:
        """Close the files without a commit. `close` loses the states since the last commit. Arrays that were popped
        stay valid."""
        self._stack.close()

    def remove(self) -> None:
        """Close the trajectory and delete its files in all directories."""
        self._stack.remove()

    def __enter__(self) -> Trajectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        what = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self._shapes.items())
        return f"<outcrop Trajectory {what} {self._dtype}: {len(self)} of {self.max_states} states>"

    def _checked(self, state: Mapping[str, Any]) -> list[NDArray[Any]]:
        """Return the arrays of a state, in the order of the fields. Raises InputError if an array does not fit its
        field."""
        if not isinstance(state, Mapping) or set(state) != set(self._shapes):
            names = f"fields {shown(list(state))}" if isinstance(state, Mapping) else shown(state)
            raise InputError(f"a state maps {', '.join(self._shapes)} to arrays; it cannot be {names}")
        found = []
        for name, shape in self._shapes.items():
            values = np.asarray(state[name])
            if values.shape != shape or values.dtype != self._dtype:
                given = f"shape {values.shape} and dtype {values.dtype}"
                raise InputError(f"field {name} must have shape {shape} and dtype {self._dtype}, not {given}")
            found.append(values)
        return found


def _shapes(fields: object) -> list[tuple[str, list[int]]]:
    if not isinstance(fields, Mapping):
        raise InputError(f"fields must map names to shapes, such as {{'u': (64, 64, 64)}}, not {shown(fields)}")
    found = []
    for name, shape in fields.items():
        if not isinstance(name, str):
            raise InputError(f"the name {shown(name)} of a field must be text, such as 'u'")
        try:
            sizes = [operator.index(one) for one in ([shape] if isinstance(shape, int) else shape)]
        except TypeError:
            raise InputError(f"field {name}: {shown(shape)} is not a shape; write for example (64, 64, 64)") from None
        if any(not 1 <= size < 1 << 53 for size in sizes):
            raise InputError(f"field {name}: shape {shown(shape)} must have sizes of at least 1")
        found.append((name, sizes))
    return found


def _count(name: str, given: object, least: int, most: int) -> int:
    try:
        count = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} must be a number, not {shown(given)}") from None
    if not least <= count <= most:
        raise InputError(f"{name} must be between {least} and {most}, not {count}")
    return count


def _text(name: str, given: object) -> str:
    if not isinstance(given, str):
        raise InputError(f"{name} must be text, not {shown(given)}")
    return given


def _limit(name: str, given: str | int | None) -> int:
    """Return a limit in bytes, or 0 if there is no limit."""
    if given is None:
        return 0
    try:
        return parse_bytes(given)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _overflow(given: object) -> list[tuple[str, int]]:
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [(str(as_path(path, "overflow")), _limit(f"overflow {path}", size)) for path, size in given.items()]
    if isinstance(given, (str, bytes, os.PathLike)) or not isinstance(given, Sequence):
        raise InputError(f"overflow must be a list of directories, or map directories to limits, not {shown(given)}")
    return [(str(as_path(path, "overflow")), 0) for path in given]
