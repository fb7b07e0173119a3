"""This module writes a file or a folder that gets its final name only when it is complete.

    .result.nc.partial/        made first, and locked while this process writes
    .result.nc.partial/result.nc   ──► fsync ──► rename to result.nc ──► fsync folder

If the process is killed, the folder .result.nc.partial remains, and no file with the name result.nc exists. The next
export to the name result.nc removes the folder .result.nc.partial. When a process is killed, Linux releases the lock of
the process on its folder. So an export removes only partial folders without a lock, and keeps the folder of a process
that still writes.

A rename cannot replace a folder. So an older folder is replaced by two renames:

    result.zarr ──► .result.zarr.partial/result.zarr.old;  .result.zarr.partial/result.zarr ──► result.zarr

If the second rename is not made, `_put_back` undoes the first rename at the end of the export. After a kill, the next
export calls `_put_back`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from outcrop.errors import InputError, StorageError, by_caller, os_errors_as
from outcrop.paths import is_there, made_directory, require_directory
from outcrop.units import format_bytes


def check_target(target: Path, force: bool, is_folder: bool = False) -> None:
    """Raise InputError if `new_target` cannot make the file or the folder `target`. The function changes nothing. If
    `force` is true, `target` may already be a regular file, or a folder with the mark of an earlier export. Nothing
    else can be replaced."""
    if target.name in ("", ".", ".."):
        raise InputError(f"{target} is not the name of a file")
    require_directory(target.absolute().parent)
    if not os.path.lexists(target):
        return
    if not force:
        raise InputError(f"{target} exists; give {by_caller('--force', 'force=True')} to replace it, or another name")
    kind = target.lstat().st_mode
    if is_folder and not (stat.S_ISDIR(kind) and is_there(target / MARK)):
        raise InputError(f"{target} exists, and no export has made it; remove it, or give another name")
    if not is_folder and not stat.S_ISREG(kind):
        raise InputError(f"{target} exists and is not a regular file; give another name")


REMOVALS, REMOVAL_SECONDS = 20, 0.1
"""The maximum number of times that an export tries to remove its unfinished folder, and the seconds between two
tries."""

OLDER = ".old"
"""The ending that the name of an older folder has in the partial folder, until the new folder has its final name."""

MARK = ".outcrop-export"
"""The file that marks a folder or prefix that an export has made. Only a folder or prefix with this file can be
replaced."""


def require_room(folder: Path, needed_bytes: int) -> None:
    """Raise InputError if a file system has less than `needed_bytes` free bytes."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if needed_bytes > free:
        raise InputError(
            f"the export needs {format_bytes(needed_bytes)}, and {place} has {format_bytes(free)} free; choose fields "
            "or a coarser grid, or another file system"
        )


@contextlib.contextmanager
def new_target(target: Path, force: bool, is_folder: bool = False) -> Iterator[Path]:
    """Yield the temporary path at which the body of the `with` statement makes the file or the folder. If the body ends
    without an error, the file or folder gets the name `target`. If the body ends with an error, the file or folder is
    removed. Raises InputError and StorageError."""
    check_target(target, force, is_folder)
    parent = target.absolute().parent
    with (
        made_directory(parent),
        os_errors_as(StorageError, f"{target} cannot be written"),
        _partial_folder(parent / f".{target.name}.partial") as partial,
    ):
        check_target(target, force, is_folder)  # again, because an older folder may be back
        made = partial / target.name
        yield made
        _flush(made)
        _publish(made, target, force, is_folder)
        _flush_one(parent)


@contextlib.contextmanager
def _partial_folder(folder: Path) -> Iterator[Path]:
    """Make a folder and lock it. At the end, remove the folder. If a killed process has left a partial folder, remove
    the contents of the folder first.
    Before contents are removed, an older result in the folder that was not replaced gets its name back."""
    for _ in range(3):
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another export has removed the folder
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            break
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                os.close(handle)
                raise
        try:
            if not folder.exists() or not os.path.samestat(os.fstat(handle), os.stat(folder)):
                continue
            _put_back(folder)
            for one in list(folder.iterdir()):
                _remove(one)
            try:
                yield folder
            finally:
                _put_back(folder)
                _remove_with_late_files(folder)
            return
        finally:
            os.close(handle)
    raise InputError(f"another process writes {_target_name(folder)}; wait for it")


def _target_name(partial: Path) -> str:
    return partial.name.removeprefix(".").removesuffix(".partial")


def _put_back(partial: Path) -> None:
    """If the folder `partial` has an older result that was not replaced, give the older result its name back."""
    older, target = partial / f"{_target_name(partial)}{OLDER}", partial.with_name(_target_name(partial))
    if os.path.lexists(older) and not os.path.lexists(target):
        os.rename(older, target)


def _remove_with_late_files(folder: Path) -> None:
    """Remove a folder. After an error, threads of zarr can still write files in the folder for a moment, so try several
    times."""
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(REMOVAL_SECONDS)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _publish(made: Path, target: Path, force: bool, is_folder: bool) -> None:
    """Give the result its name. If `force` is false and another process has made a file at `target`, that file is
    kept."""
    check_target(target, force, is_folder)
    if is_folder:
        older = made.with_name(made.name + OLDER)
        if os.path.lexists(target):
            os.rename(target, older)
        os.rename(made, target)
        if os.path.lexists(older):
            os.rename(older, made)  # it is removed with the partial folder, and must not come back half removed
        return
    if not force:
        try:
            os.link(made, target)
            return
        except FileExistsError:
            raise InputError(f"{target} was made by another process meanwhile; give another name") from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
    os.replace(made, target)


def _flush(made: Path) -> None:
    if made.is_dir():
        for folder, _, names in os.walk(made):
            for name in names:
                _flush_one(Path(folder, name))
            _flush_one(Path(folder))
    else:
        _flush_one(made)


def _flush_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot flush folders
            raise
    finally:
        os.close(handle)
