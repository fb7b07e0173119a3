"""`oc.array` and `oc.open_array`: one array, placed and made, or opened."""

from __future__ import annotations

import os

from numpy.typing import DTypeLike

from outcrop.arrays.array import Array
from outcrop.arrays.find import possible_tiers
from outcrop.arrays.folder import holds_array, spec_of
from outcrop.arrays.npy_file import read_header
from outcrop.arrays.paths import check_name
from outcrop.arrays.placing import place
from outcrop.arrays.spec import ArraySpec, Persist, parse_path
from outcrop.errors import InputError
from outcrop.tiers.survey import find_tiers


def array(
    shape: int | tuple[int, ...],
    dtype: DTypeLike = "float64",
    tier: str = "auto",
    access: str = "update",
    persist: Persist = "never",
    path: str | os.PathLike[str] | None = None,
    *,
    working: str = "tier",
    bytes_read_per_step: float | None = None,
    bytes_written_per_step: float | None = None,
    seconds_per_step: float = 0.0,
) -> Array:
    """An array of zeros on a tier, or what is at `path`, if that is an array of the same shape and dtype.

    `tier` is the name or kind of one ("dram", "nvme", "tmpfs", or as `outcrop tiers` says), or "auto": an array that is
    updated goes to the fastest with room; one that is only read to the slowest from which it is read behind the
    `seconds_per_step` that a step computes. Of an array that is committed, `path` says where.

    See `ArraySpec` for the rest. Raises InputError when there is no such tier, no room, a tier that does not keep
    values so long, a path on another file system or one that holds something else, before anything is made;
    StorageError when a device fails, CorruptionError when no commit at `path` is whole.
    """
    spec = ArraySpec(shape, dtype, tier, access, persist, path, working, bytes_read_per_step, bytes_written_per_step)
    if spec.is_committed and spec.path is None:
        possible_tiers("array", spec, find_tiers())  # no path would help where the tier keeps nothing
        raise InputError(f"persist={persist!r} needs a path, by which the array is found again")
    return _make(spec, seconds_per_step)


def open_array(path: str | os.PathLike[str], access: str | None = None, persist: Persist | None = None) -> Array:
    """The array at `path`: the last commit that is whole, or the values of a .npy file.

    It is used as it was made unless `access` and `persist` say otherwise; a .npy file is only read unless access is
    "update". When the last commit is damaged the one before is opened, with a RuntimeWarning. Raises InputError when
    there is no array, StorageError, CorruptionError.
    """
    where = parse_path(path)
    check_name(where)
    if not os.path.lexists(where):
        raise InputError(f"there is no array at {where}; make one with oc.array")
    if os.path.isdir(where):
        if not holds_array(where):
            raise InputError(f"{where} holds no array")
        return _make(spec_of(where, access, persist), 0.0)
    if persist not in (None, "never"):
        raise InputError(f"{where} is a .npy file, which has no commits: leave out persist={persist!r}")
    shape, dtype, _ = read_header(where)
    return _make(ArraySpec(shape, dtype, access=access or "read", path=where), 0.0)


def _make(spec: ArraySpec, seconds_per_step: float) -> Array:
    return place({"array": spec}, seconds_per_step).make()["array"]
