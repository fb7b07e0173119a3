"""This module defines `Array`. An `Array` behaves like a NumPy array, and commits its values.

NumPy functions work on the plain array inside an `Array`. So operators and functions on an `Array` return plain arrays.
The expressions `a += 1`, `np.add(b, 1, out=a)` and `np.copyto(a, b)` change the values of `a` in place. Views of an
`Array` (`a[2:5]`, `a.T`) are plain arrays that share its bytes.

The user has named the path of an array, so the path and the folders above it can be links. Outcrop refuses a link whose
target does not exist, and does not make its target. The files in the folder of an array must not be links
(committed.py).
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.arrays.committed import TILES, Committed, holds_array, last_record
from outcrop.arrays.spec import ArraySpec, Persist
from outcrop.arrays.storage import ArrayStorage, NpyFile, Volatile, create_npy, read_npy_header, take_memory
from outcrop.errors import InputError
from outcrop.paths import nearest_existing
from outcrop.tiers.tier import Tier
from outcrop.units import format_bytes

PARTS = ("flat", "imag", "real")
"""Attributes of NumPy arrays that are views of the values. An assignment to one of these attributes changes the values.
"""


def _forwarded(name: str) -> Callable[..., Any]:
    """Return a method that calls the method `name` of the plain array `values`."""
    return lambda self, *given, **options: getattr(self.values, name)(*given, **options)


class NumpyLike(np.lib.mixins.NDArrayOperatorsMixin):
    """A mix-in for classes whose objects have a NumPy array `values`. Objects of such a class behave like their array
    `values`."""

    @property
    @abstractmethod
    def values(self) -> NDArray[Any]:
        """The plain NumPy array to which this object forwards all operations."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        values = self.values if dtype is None else self.values.astype(dtype, copy=False)
        if copy is False and values is not self.values and not np.may_share_memory(values, self.values):
            raise ValueError(f"an array of {self.values.dtype} cannot be one of {dtype} without a copy")
        return values.copy() if copy and np.may_share_memory(values, self.values) else values

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return self._result(getattr(ufunc, method)(*_plain(inputs), **_plain(options)), options.get("out", ()))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, inputs: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        return self._result(function(*_plain(inputs), **_plain(options)), (options.get("out"),))

    def _result(self, result: Any, out: Any) -> Any:
        """If `result` is the plain array of an object in `out`, return this object. Otherwise return `result`."""
        given = next((one for one in out if isinstance(one, NumpyLike) and one.values is result), None)
        return result if given is None else given

    def __getitem__(self, index: Any) -> Any:
        return self.values[_plain(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[_plain(index)] = _plain(value)

    __len__ = _forwarded("__len__")
    __iter__ = _forwarded("__iter__")
    __contains__ = _forwarded("__contains__")
    __bool__ = _forwarded("__bool__")
    __int__ = _forwarded("__int__")
    __float__ = _forwarded("__float__")
    __complex__ = _forwarded("__complex__")
    __index__ = _forwarded("__index__")
    __dlpack__ = _forwarded("__dlpack__")
    __dlpack_device__ = _forwarded("__dlpack_device__")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.values.__reduce_ex__(protocol)  # a copy or a pickle of this object is a plain array

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name in PARTS:
            setattr(self.values, name, _plain(value))
        else:
            raise AttributeError(f"{name} of an array on a tier cannot be set; take a view, such as a.reshape(...)")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.values, name)


def _plain(value: Any) -> Any:
    """Replace each NumpyLike object in `value` by its plain array. Objects inside tuples, lists and mappings are also
    replaced."""
    if isinstance(value, NumpyLike):
        return value.values
    if type(value) in (tuple, list):
        return type(value)(_plain(one) for one in value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return value


@dataclass(frozen=True)
class Flush:
    """The result of a flush. `generation` is the number of the last commit, or 0 before the first commit."""

    bytes_written: int
    seconds: float
    generation: int


class Array(NumpyLike):
    """An array on a tier, made by `oc.array`, `oc.open_array` or `oc.place(...).make()`.

    An `Array` behaves like its NumPy array `values`. `step()` commits the values at the requested interval. `flush()`
    and `close()` also commit the values. The end of a `with` block calls `close()`. If the `with` block ends with an
    exception, the values of the array are not committed. If the array is deleted without `close()`, the values since
    the last commit are lost, and Python shows a RuntimeWarning. Several threads may call `step()` and `flush()`.
    Outcrop makes the commits of several threads one after the other. No other thread may change the values during a
    commit.
    """

    def __init__(self, spec: ArraySpec, tier: Tier, storage: ArrayStorage) -> None:
        self._spec, self._tier, self._storage = spec, tier, storage
        self._steps, self._opened = storage.steps, storage.generation
        self._values: NDArray[Any] | None = None
        self._lock = threading.RLock()  # held by each commit, and while the array is closed
        self._show()

    @property
    def values(self) -> NDArray[Any]:
        """The values as a plain NumPy array, without a copy. Raises InputError if the array is closed."""
        if self._values is None:
            raise InputError("the array is closed; open it again with oc.open_array")
        return self._values

    @property
    def tier(self) -> Tier:
        """The tier of the array."""
        return self._tier

    @property
    def access(self) -> str:
        """The access of the array: "read" or "update"."""
        return self._spec.access

    @property
    def persist(self) -> Persist:
        """The argument `persist` of the array: "never", "end", "step" or an interval in steps."""
        return self._spec.persist

    @property
    def path(self) -> Path | None:
        """The path at which a later process finds the values, or None if the values are not kept."""
        return self._spec.path

    @property
    def primitive(self) -> str:
        """The method that makes values durable: "MAP_SYNC + cache-line write-back", "msync", "direct writes +
        fdatasync", "buffered writes + fdatasync", or "none"."""
        return self._storage.primitive

    @property
    def generation(self) -> int:
        """The number of the last commit of the array, or 0 before the first commit."""
        return self._storage.generation

    @property
    def steps(self) -> int:
        """The number of steps since the array was made, including committed steps of earlier processes."""
        return self._steps

    def step(self) -> Flush | None:
        """Count a step. Commit the values if a commit is due. Call `step` after each step of the program. Raises
        StorageError."""
        with self._lock:
            self._steps += 1
            every = self._spec.commit_every
            if every and self._steps % every == 0:
                return self.flush()
            if self.access == "read":
                self.values.flags.writeable = False
            return None

    def flush(self) -> Flush:
        """Make the values durable now. If the array has commits, `flush` makes a commit. If the array is in a .npy
        file, `flush` flushes the file.

        After a flush, an array with access "read" refuses writes. Raises StorageError if a write fails. If a write
        fails, the last commit of the array stays intact.
        """
        with self._lock:
            _ = self.values  # raises InputError if the array is closed
            begin = time.perf_counter()
            written = self._storage.flush(self._steps)
            seconds = time.perf_counter() - begin
            self._show()
            if self.access == "read":
                self.values.flags.writeable = False
            return Flush(written, seconds, self.generation)

    def close(self) -> None:
        """If the array has commits, commit the values. Then release the memory and the files of the array. Views of the
        values stay valid after `close`, and keep the memory of the values."""
        with self._lock:
            if self._values is None:
                return
            try:
                if self._spec.is_committed:
                    self.flush()
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Release the memory and the files of the array without a commit."""
        with self._lock:
            if self._values is not None:
                self._values = None
                self._storage.close()

    def __del__(self) -> None:
        if getattr(self, "_values", None) is None:  # the array is already closed, or its constructor has failed
            return
        behind = (self.persist == "end" and self.generation == self._opened) or self._steps != self._storage.steps
        self.abandon()
        if self._spec.is_committed and behind and not self._storage.read_only:
            text = f"{self.path} was not closed: the changes after commit {self.generation} are lost; use `with`"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def __enter__(self) -> Array:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close() if kind is None else self.abandon()

    def __repr__(self) -> str:
        what = f"{'x'.join(map(str, self._spec.shape)) or '()'} {self._spec.dtype}, {format_bytes(self._spec.nbytes)}"
        kept = f", committed by {self.primitive}: {self.generation}" if self._spec.is_committed else ""
        return f"<outcrop Array {what} on {self._tier.name} for {self.access}{kept}>"

    def _show(self) -> None:
        self._values = self._storage.values(self._spec.shape, self._spec.dtype)


def make_storage(spec: ArraySpec, tier: Tier, working: Tier) -> ArrayStorage:
    """Make or open the storage of `spec` on `tier`. If the array has commits, its working copy is on the tier
    `working`. Raises InputError, StorageError or CorruptionError if the storage cannot be made or opened."""
    if spec.path is None:
        return Volatile(take_memory(tier, spec.nbytes))
    exists = check_path(spec.path, spec)
    if spec.is_committed:
        return Committed(spec.path, spec, tier, lambda nbytes: take_memory(working, nbytes))
    if not exists:
        create_npy(spec.path, spec.shape, spec.dtype)
    return NpyFile(spec.path, spec, tier, writable=not exists or spec.access == "update")


def check_name(path: Path) -> None:
    """Raise InputError if the system cannot use the path. Possible reasons are a name that is too long, a link without
    a target, a circle of links, and a folder that this process may not search."""
    try:
        names = [os.fsencode(part) for part in path.parts]
        existing = nearest_existing(path)
        if os.path.islink(existing) and not os.path.exists(existing):
            raise InputError(f"{path} cannot be used: the link {existing} has no target; give another path")
        longest = os.pathconf(existing, "PC_NAME_MAX")
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(path)
    except UnicodeEncodeError:
        raise InputError(f"path={str(path)!r} is not a valid name of a file; give another path") from None
    except OSError as error:
        raise InputError(f"{path} cannot be used: {error.strerror}; give another path") from None
    if max(map(len, names), default=0) > longest:
        raise InputError(f"{path} cannot be used: names have at most {longest} bytes there; give another path")


def check_path(path: Path, spec: ArraySpec) -> bool:
    """Return True if an array with the shape and dtype of `spec` exists at `path`. Return False if a new array can be
    made at `path`. Raises InputError in all other cases. Raises StorageError and CorruptionError if the array is
    damaged."""
    check_name(path)
    if not os.path.lexists(path):
        _check_new(path, spec)
        return False
    return _check_folder(path, spec) if spec.is_committed else _check_file(path, spec)


def _check_new(path: Path, spec: ArraySpec) -> None:
    parent = nearest_existing(path)
    if path.name in ("", ".."):
        raise InputError(f"{path} cannot be made: its last part is not the name of a file or folder")
    if not os.path.isdir(parent):
        raise InputError(f"{path} cannot be made: {parent} is a file")
    if holds_array(parent):
        raise InputError(f"{path} cannot be made: {parent} is the folder of an array; give a path outside of it")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be made: no permission in {parent}")


def _check_folder(path: Path, spec: ArraySpec) -> bool:
    if not os.path.isdir(path):
        raise InputError(f"{path} is a file; an array that is committed is a folder: give another path")
    record = last_record(path)
    if record is not None:
        spec.check_same(path, record.shape, record.dtype)
    return record is not None


def _check_file(path: Path, spec: ArraySpec) -> bool:
    if os.path.isdir(path):
        what = "an array that is committed; open it with oc.open_array" if holds_array(path) else "a folder"
        raise InputError(f"{path} is {what}; give another path for an array that is not committed")
    shape, dtype, _ = read_npy_header(path)
    spec.check_same(path, shape, dtype)
    return True


def stored_bytes(path: Path | None) -> int:
    """Return the number of bytes on disk of the file `tiles` in the folder `path`, or 0 if the file does not exist."""
    try:
        return os.lstat(path / TILES).st_blocks * 512 if path is not None else 0
    except OSError:
        return 0
