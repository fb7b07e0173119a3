"""What must be true of the path of an array before anything is made there."""

from __future__ import annotations

import os
from pathlib import Path

from outcrop.arrays.committed import TILES, holds_array, last_record
from outcrop.arrays.npy_file import read_header
from outcrop.arrays.spec import ArraySpec
from outcrop.errors import InputError
from outcrop.tiers.mounts import nearest_existing


def check_path(path: Path, spec: ArraySpec) -> bool:
    """Whether an array of that shape and dtype is there already. Raises InputError when something else is, or when none
    can be made there."""
    if not os.path.lexists(path):
        parent = nearest_existing(path)
        if not parent.is_dir():
            raise InputError(f"{path} cannot be made: {parent} is a file")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise InputError(f"{path} cannot be made: no permission in {parent}")
        if not spec.is_committed and parent != path.absolute().parent:
            raise InputError(f"{path} cannot be made: there is no folder {path.parent}; make it first")
        return False
    return _check_folder(path, spec) if spec.is_committed else _check_file(path, spec)


def _check_folder(path: Path, spec: ArraySpec) -> bool:
    if not path.is_dir():
        raise InputError(f"{path} is a file; an array that is committed is a folder: give another path")
    if not holds_array(path):
        there = sorted(os.listdir(path))
        if there:
            raise InputError(f"{path} holds something else ({there[0]}); give a new or empty one")
        return False
    record = last_record(path)
    if record is not None:
        _compare(path, spec, record.shape, str(record.dtype))
    return record is not None


def _check_file(path: Path, spec: ArraySpec) -> bool:
    if path.is_dir():
        what = "an array that is committed; open it with oc.open_array" if holds_array(path) else "a folder"
        raise InputError(f"{path} is {what}; give another path for an array that is not committed")
    shape, dtype, _ = read_header(path)
    _compare(path, spec, shape, str(dtype))
    return True


def _compare(path: Path, spec: ArraySpec, shape: tuple[int, ...], dtype: str) -> None:
    if (shape, dtype) != (spec.shape, str(spec.dtype)):
        raise InputError(
            f"{path} holds an array of shape {shape} and dtype {dtype}, not {spec.shape} and {spec.dtype}; "
            "give another path, or what is there"
        )


def stored_bytes(path: Path | None) -> int:
    """Bytes that the tiles of an array in a folder have been given already; 0 where there is none."""
    try:
        return (path / TILES).stat().st_blocks * 512 if path is not None else 0
    except OSError:
        return 0
