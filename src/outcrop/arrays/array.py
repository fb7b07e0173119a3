"""The array that users hold: NumPy's behaviour, what is kept of the values when, and how it is made at its path.

NumPy sees the plain array, so results of operators and functions are plain arrays, and `a += 1`,
`np.add(b, 1, out=a)` and `np.copyto(a, b)` change the values where they lie. Views (`a[2:5]`, `a.T`) are plain arrays,
too, of the same bytes.

The path itself, and the folders above it, may be links, because the user has named them. A link that leads nowhere is
refused: nothing is made where it leads. What lies in the folder of an array may not be a link (committed.py).
"""

from __future__ import annotations

import os
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
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
"""Attributes of NumPy's arrays that stand for values: to set one changes them."""


class NumpyLike(np.lib.mixins.NDArrayOperatorsMixin):
    """Mix-in; `values` is all it needs."""

    @property
    @abstractmethod
    def values(self) -> NDArray[Any]:
        """The plain array."""

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
        """What was asked for as `out` comes back as it was given."""
        given = next((one for one in out if isinstance(one, NumpyLike) and one.values is result), None)
        return result if given is None else given

    def __getitem__(self, index: Any) -> Any:
        return self.values[_plain(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[_plain(index)] = _plain(value)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def __bool__(self) -> bool:
        return bool(self.values)

    def __int__(self) -> int:
        return int(self.values)

    def __float__(self) -> float:
        return float(self.values)

    def __complex__(self) -> complex:
        return complex(self.values)

    def __index__(self) -> int:
        return self.values.__index__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.values.__reduce_ex__(protocol)  # copies, and what is sent to other processes, are plain

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name in PARTS:
            setattr(self.values, name, _plain(value))
        else:
            raise AttributeError(f"{name} of an array on a tier stays as it is; take a view, such as a.reshape(...)")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.values, name)


def _plain(value: Any) -> Any:
    """The same with plain arrays in it."""
    if isinstance(value, NumpyLike):
        return value.values
    if type(value) in (tuple, list):
        return type(value)(_plain(one) for one in value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return value


@dataclass(frozen=True)
class Flush:
    """What a flush did: bytes written, how long it took, and the number of the last commit, 0 if there is none."""

    bytes_written: int
    seconds: float
    generation: int


class Array(NumpyLike):
    """An array on a tier, made by `oc.array`, `oc.open_array` or `oc.place(...).make()`.

    It behaves as the NumPy array `values`. Values are committed by `step()` as often as was asked for, by `flush()`,
    and by `close()`, which the end of a `with` block calls; not when that ends by an exception, and not when the array
    is let go unclosed, which is told in a RuntimeWarning. While a commit is made no other thread may change them.
    """

    def __init__(self, spec: ArraySpec, tier: Tier, storage: ArrayStorage) -> None:
        self._spec, self._tier, self._storage = spec, tier, storage
        self._steps, self._opened = storage.steps, storage.generation
        self._values: NDArray[Any] | None = None
        self._show()

    @property
    def values(self) -> NDArray[Any]:
        """The values as a plain NumPy array, where they lie. Raises InputError when the array is closed."""
        if self._values is None:
            raise InputError("the array is closed; open it again with oc.open_array")
        return self._values

    @property
    def tier(self) -> Tier:
        """Where it lives."""
        return self._tier

    @property
    def access(self) -> str:
        """ "read" or "update"."""
        return self._spec.access

    @property
    def persist(self) -> Persist:
        """When values are committed."""
        return self._spec.persist

    @property
    def path(self) -> Path | None:
        """Where a later process finds them."""
        return self._spec.path

    @property
    def primitive(self) -> str:
        """What makes values durable here: "MAP_SYNC + cache-line write-back", "msync", "direct writes + fdatasync",
        "buffered writes + fdatasync", or "none" where nothing does."""
        return self._storage.primitive

    @property
    def generation(self) -> int:
        """Number of the last commit; 0 if there has been none."""
        return self._storage.generation

    @property
    def steps(self) -> int:
        """Steps done since the array was made, by earlier processes, too, as far as they were committed."""
        return self._steps

    def step(self) -> Flush | None:
        """To be called after each step: counts it, and commits where that is due. Raises StorageError."""
        self._steps += 1
        every = self._spec.commit_every
        if every and self._steps % every == 0:
            return self.flush()
        if self.access == "read":
            self.values.flags.writeable = False
        return None

    def flush(self) -> Flush:
        """Make the values durable now: a commit of an array that is committed, else as well as its file allows.

        After that an array that is only read refuses writes. Raises StorageError; the last commit is whole then, too.
        """
        _ = self.values  # not of a closed array
        begin = time.perf_counter()
        written = self._storage.flush(self._steps)
        seconds = time.perf_counter() - begin
        self._show()
        if self.access == "read":
            self.values.flags.writeable = False
        return Flush(written, seconds, self.generation)

    def close(self) -> None:
        """Commit what is to be committed, and let go of everything. Views stay valid as long as they are there."""
        if self._values is None:
            return
        try:
            if self._spec.is_committed:
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything without a commit."""
        if self._values is not None:
            self._values = None
            self._storage.close()

    def __del__(self) -> None:
        if getattr(self, "_values", None) is None:  # closed, or never made
            return
        behind = (self.persist == "end" and self.generation == self._opened) or self._steps != self._storage.steps
        self.abandon()
        if self._spec.is_committed and behind and not self._storage.read_only:
            text = f"{self.path} was not closed: what changed after its commit {self.generation} is lost; use `with`"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def __enter__(self) -> Array:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def __repr__(self) -> str:
        what = f"{'x'.join(map(str, self._spec.shape)) or '()'} {self._spec.dtype}, {format_bytes(self._spec.nbytes)}"
        kept = f", committed by {self.primitive}: {self.generation}" if self._spec.is_committed else ""
        return f"<outcrop Array {what} on {self._tier.name} for {self.access}{kept}>"

    def _show(self) -> None:
        self._values = self._storage.values(self._spec.shape, self._spec.dtype)


def make_array(spec: ArraySpec, tier: Tier, working: Tier) -> Array:
    """The array `spec` on `tier`, worked on in `working` if it is committed. Raises InputError, StorageError,
    CorruptionError."""
    return Array(spec, tier, _storage_of(spec, tier, working))


def _storage_of(spec: ArraySpec, tier: Tier, working: Tier) -> ArrayStorage:
    if spec.path is None:
        return Volatile(take_memory(tier, spec.nbytes))
    exists = check_path(spec.path, spec)
    if spec.is_committed:
        return Committed(spec.path, spec, tier, lambda nbytes: take_memory(working, nbytes))
    if not exists:
        create_npy(spec.path, spec.shape, spec.dtype)
    return NpyFile(spec.path, spec, tier, writable=not exists or spec.access == "update")


def check_name(path: Path) -> None:
    """Raises InputError for a path that the system cannot follow: names that are too long, links that lead nowhere or
    in a circle, folders that this process may not search."""
    try:
        names = [os.fsencode(part) for part in path.parts]
        existing = nearest_existing(path)
        if os.path.islink(existing) and not os.path.exists(existing):
            raise InputError(f"{path} cannot be used: the link {existing} leads nowhere; give another path")
        longest = os.pathconf(existing, "PC_NAME_MAX")
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(path)
    except UnicodeEncodeError:
        raise InputError(f"path={str(path)!r} is no name that a file can have; give another path") from None
    except OSError as error:
        raise InputError(f"{path} cannot be used: {error.strerror}; give another path") from None
    if max(map(len, names), default=0) > longest:
        raise InputError(f"{path} cannot be used: names have at most {longest} bytes there; give another path")


def check_path(path: Path, spec: ArraySpec) -> bool:
    """Whether an array of that shape and dtype is there already. Raises InputError when something else is, or when none
    can be made there; StorageError and CorruptionError when it is damaged."""
    check_name(path)
    if not os.path.lexists(path):
        _check_new(path, spec)
        return False
    return _check_folder(path, spec) if spec.is_committed else _check_file(path, spec)


def _check_new(path: Path, spec: ArraySpec) -> None:
    parent = nearest_existing(path)
    if path.name in ("", ".."):
        raise InputError(f"{path} cannot be made: its last part is no name of a file or folder")
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
    """Bytes that the tiles of an array in a folder have been given already; 0 where there is none."""
    try:
        return os.lstat(path / TILES).st_blocks * 512 if path is not None else 0
    except OSError:
        return 0
