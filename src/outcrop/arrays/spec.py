"""This module defines the description of an array on a tier. The description contains the shape, the dtype, the tier,
how a step uses the array, and when the array is committed. The module also finds the tiers on which such an array can
be placed."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from outcrop.errors import InputError, shown
from outcrop.paths import as_path, nearest_existing
from outcrop.tiers.survey import tiers_holding
from outcrop.tiers.tier import KINDS, Persistence, Tier
from outcrop.units import ADDRESSABLE_BYTES

MAX_AXES = 32
"""The maximum number of axes of an array. All versions of NumPy support this number."""
MAX_NUMBER = 1 << 62
"""The maximum number of bytes, steps and generations of an array. The limit is low enough that sums of these numbers
fit into 64 bits."""
MAX_CELL_BYTES = 32
"""The size of a cell of the largest dtype for plain numbers, in bytes."""

Persist: TypeAlias = "str | int"
"""The value that says when an array is committed: "never", "end", "step", or an interval in steps."""


@dataclass(frozen=True)
class ArraySpec:
    """An array of `shape` and `dtype` (booleans, integers, real or complex numbers), in C order.

    `tier` is the name or kind of a tier, or "auto". An array with access "read" is filled once, before the first step,
    and then refuses writes. An array with access "update" changes at each step. `persist` says when values are
    committed: "never", "end" (when the array is closed), "step", or an interval in steps. After the end of the program,
    or after a crash, a later process finds committed values at `path`. The program works on a copy of an array with
    commits: the working copy. By default, the working copy is in a file on the tier of the array, because a file needs
    little memory. With `working="dram"`, the working copy is in DRAM, which is faster.

    `bytes_read_per_step` and `bytes_written_per_step` are the numbers of bytes of the array that one step of the
    program reads and writes. The default of both numbers is the size of the array, but an array with access "read"
    writes 0 bytes.

    Raises InputError for invalid values.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    tier: str
    access: str
    persist: Persist
    path: Path | None
    working: str
    bytes_read_per_step: float
    bytes_written_per_step: float

    def __init__(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike = "float64",
        tier: str = "auto",
        access: str = "update",
        persist: Persist = "never",
        path: str | os.PathLike[str] | None = None,
        working: str = "tier",
        bytes_read_per_step: float | None = None,
        bytes_written_per_step: float | None = None,
    ) -> None:
        cells = parse_shape(shape)
        kind = parse_dtype(dtype)
        size = math.prod(cells) * kind.itemsize
        written = 0.0 if isinstance(access, str) and access == "read" else float(size)
        values = {
            "shape": cells,
            "dtype": kind,
            "tier": tier,
            "access": _one_of("access", access, ("read", "update")),
            "persist": parse_persist(persist),
            "path": None if path is None else as_path(path, "path"),
            "working": _one_of("working", working, ("tier", "dram")),
            "bytes_read_per_step": amount("bytes_read_per_step", bytes_read_per_step, float(size)),
            "bytes_written_per_step": amount("bytes_written_per_step", bytes_written_per_step, written),
        }
        if not isinstance(tier, str) or not tier:
            needed = "'auto', or a name or kind of a tier that outcrop tiers shows"
            raise InputError(f"tier={shown(tier)} must be {needed}")
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if access == "read" and self.commit_every:
            raise InputError(
                f"persist={persist!r}, but an array that is only read never changes; give 'end' or 'never'"
            )
        if access == "read" and self.bytes_written_per_step:
            raise InputError("bytes_written_per_step of an array that is only read must be 0, or left out")
        if working == "dram" and not self.is_committed:
            raise InputError("working='dram' is for arrays that are committed; give persist, or tier='dram' instead")

    @property
    def nbytes(self) -> int:
        """The number of bytes of the values of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_committed(self) -> bool:
        """True if the array has commits."""
        return self.persist != "never"

    @property
    def commit_every(self) -> int:
        """The number of steps from one commit to the next, or 0 if no step makes a commit."""
        return {"never": 0, "end": 0, "step": 1}.get(self.persist, 0) if isinstance(self.persist, str) else self.persist

    def check_same(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Raise InputError if the array at `path` has another shape or dtype."""
        if (shape, dtype) != (self.shape, self.dtype):
            raise InputError(
                f"{path} holds an array of shape {shape} and dtype {dtype}, not {self.shape} and {self.dtype}; "
                "give another path, or this shape and dtype"
            )


def parse_shape(shape: object) -> tuple[int, ...]:
    """Return `shape` as a tuple of whole numbers. Raises InputError if a number of the shape is less than 1."""
    sizes = islice(shape, MAX_AXES + 1) if isinstance(shape, Iterable) else [shape]
    cells = tuple(_whole(n, shape) for n in sizes)
    if len(cells) > MAX_AXES:
        raise InputError(f"shape {shown(shape)} has more axes than NumPy takes; give at most {MAX_AXES}")
    if min(cells, default=1) < 1:
        raise InputError(f"shape {shown(cells)} must have at least one cell along each axis")
    if math.prod(cells) >= ADDRESSABLE_BYTES // MAX_CELL_BYTES:
        raise InputError(f"shape {shown(cells)} has more cells than any machine can address")
    return cells


def _whole(size: object, shape: object) -> int:
    try:
        found = operator.index(size)  # type: ignore[arg-type]
    except Exception:  # the value is not a whole number, or a method of a user's class has raised an exception
        found = None
    if found is None or isinstance(size, (bool, np.bool_)):
        raise InputError(f"shape {shown(shape)} must be whole numbers, such as (1000, 2000)")
    return found


def parse_dtype(dtype: Any) -> np.dtype[Any]:
    """Return `dtype` as a dtype of NumPy. Raises InputError if the dtype is not for plain numbers."""
    try:
        kind: np.dtype[Any] = np.dtype(dtype)
    except Exception:  # for values that are not dtypes, NumPy raises many types of errors
        raise InputError(f"dtype {shown(dtype)} is not known to NumPy; give for example 'float32'") from None
    if kind.kind not in "biufc":
        raise InputError(f"dtype {shown(kind)} cannot be kept as plain bytes; give numbers or booleans")
    return kind


def parse_persist(persist: object) -> Persist:
    """Return `persist` if its value is "never", "end", "step" or a positive number. Raises InputError for all other
    values."""
    if isinstance(persist, str) and persist in ("never", "end", "step"):
        return persist
    if isinstance(persist, int | np.integer) and not isinstance(persist, bool) and 1 <= persist < ADDRESSABLE_BYTES:
        return int(persist)
    raise InputError(f"persist={shown(persist)} must be 'never', 'end', 'step' or a number of steps, at least 1")


def amount(name: str, value: object, default: float | None = None) -> float:
    """Return `value` as a float, or `default` if `value` is None. Raises InputError if `value` is not a finite number
    of at least 0."""
    if value is None and default is not None:
        return default
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise InputError(f"{name}={shown(value)} must be a finite number of at least 0")
    return number


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name}={shown(value)} must be one of {', '.join(map(repr, known))}")
    return value


def possible_tiers(name: str, spec: ArraySpec, tiers: Sequence[Tier]) -> list[Tier]:
    """Return the tiers on which the array `name` can be placed. Raises InputError if no tier is possible."""
    if not tiers:
        raise InputError(f"{name}: there are no tiers to choose from")
    found = _named(name, spec, tiers)
    if spec.is_committed and spec.tier != "auto":
        found = _lasting(name, spec, found, tiers)
    if spec.path is not None:
        found = _holding(name, spec, spec.path, found, tiers)
    if spec.is_committed:
        found = _lasting(name, spec, found, tiers)
    elif spec.tier == "auto" and spec.path is None:
        # tmpfs is used only if no other tier is possible. Files on tmpfs take the same memory as arrays in DRAM, but
        # are slower.
        found = [tier for tier in found if tier.kind != "tmpfs"] or found
    return found


def _named(name: str, spec: ArraySpec, tiers: Sequence[Tier]) -> list[Tier]:
    if spec.tier == "auto":
        return list(tiers)
    found = [tier for tier in tiers if tier.name == spec.tier] or [tier for tier in tiers if tier.kind == spec.tier]
    if not found:
        what = f"no {spec.tier} here" if spec.tier in KINDS else f"no tier {spec.tier!r}"
        raise InputError(f"{name}: there is {what}; there are {_listed(tiers)}")
    unusable = [tier for tier in found if tier.note and not tier.free_bytes]
    if spec.path is None and len(unusable) == len(found):
        raise InputError(f"{name}: tier {found[0].name} ({found[0].where}) cannot be used: {found[0].note}")
    return found


def _holding(name: str, spec: ArraySpec, path: Path, found: Sequence[Tier], tiers: Sequence[Tier]) -> list[Tier]:
    """Return a list with one tier: the tier whose file system contains the path. If several tiers are on this file
    system, return the tier that was declared for a folder above the path."""
    existing = nearest_existing(path)
    try:
        existing.stat()
    except OSError as error:
        raise InputError(f"{name}: {path} cannot be used: {error.strerror}") from None
    there = tiers_holding(existing, found)
    if not there:
        actual = next(iter(tiers_holding(existing, tiers)), None)
        on = f"on {actual.name} ({actual.kind})" if actual else "on another file system"
        wanted = f"tier {spec.tier}"
        if all(tier.is_memory for tier in found):
            raise InputError(f"{name}: {path} is {on}, not in {wanted}, which has no files; leave out one of them")
        places = ", ".join(tier.where for tier in found if not tier.is_memory)
        raise InputError(f"{name}: {path} is {on}, not on {wanted}; give a path on the file system of {places}")
    return there[:1]


def _lasting(name: str, spec: ArraySpec, found: Sequence[Tier], tiers: Sequence[Tier]) -> list[Tier]:
    """Return the tiers of `found` that keep values after the process has ended. If the user has given no tier and no
    path, return only tiers that also keep values after a reboot."""
    needed = Persistence.JOB if spec.tier == "auto" and spec.path is None else Persistence.REBOOT
    lasting = [tier for tier in found if tier.persistence >= needed]
    if not lasting:
        able = [tier for tier in tiers if tier.persistence >= needed]
        lost = "when the process ends" if needed is Persistence.REBOOT else "when the machine goes down"
        raise InputError(
            f"{name}: persist={spec.persist!r} on {_listed(found)}, which loses its data {lost}; "
            f"{'use ' + _listed(able) if able else 'no tier here keeps data longer'}"
        )
    return lasting


def _listed(tiers: Sequence[Tier]) -> str:
    return ", ".join(tier.name if tier.name == tier.kind else f"{tier.name} ({tier.kind})" for tier in tiers)
