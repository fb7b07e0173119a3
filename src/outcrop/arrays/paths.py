"""What must be true of the path of an array before anything is made there.

The path itself, and the folders above it, may be links, because the user has named them. A link that leads nowhere is
refused: nothing is made where it leads. What lies in the folder of an array may not be a link (folder.py).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from outcrop.arrays.folder import TILES, holds_array, last_record
from outcrop.arrays.npy_file import read_header
from outcrop.arrays.spec import ArraySpec
from outcrop.errors import InputError
from outcrop.paths import nearest_existing


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
    shape, dtype, _ = read_header(path)
    spec.check_same(path, shape, dtype)
    return True


def stored_bytes(path: Path | None) -> int:
    """Bytes that the tiles of an array in a folder have been given already; 0 where there is none."""
    try:
        return os.lstat(path / TILES).st_blocks * 512 if path is not None else 0
    except OSError:
        return 0
