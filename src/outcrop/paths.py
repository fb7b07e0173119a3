"""Check the paths that users give before anything is opened or made.

An input file must be a regular file. The opening of a FIFO could wait forever, and a device can be endless. A check
that fails raises an InputError with a message of one line.

Some commands need a directory for their own files. If the directory is missing, three functions are called in the order
of this list. `made_directory` calls all three:

    require_directory     check that the directory exists or can be made; change nothing
    make_directory        make the directory, after all arguments have been checked
    remove_made           remove new directories that are empty, after the work has failed or ended
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from outcrop.errors import InputError, shown

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def as_path(given: object, name: str) -> Path:
    """Convert text or an os.PathLike to a Path. Raises InputError for text that is empty, has a NUL, or is not UTF-8,
    because manifests and storage backends cannot store such text."""
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(text, str) or not text:
        raise InputError(f"{name} {shown(given)} is not a path")
    if "\0" in text:
        raise InputError(f"{name} {shown(text)} contains a NUL character, and paths cannot contain it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} {shown(text)} is not UTF-8; rename it") from None
    return Path(text)


def as_place(given: object, name: str) -> Path:
    """Convert text or an os.PathLike to a Path. The path need not exist. Raises InputError if the system cannot tell
    whether the path exists (`is_there`)."""
    path = as_path(given, name)
    is_there(path)
    return path


def is_there(path: str | os.PathLike[str]) -> bool:
    """Return True if a file, a folder or another object exists at a path. Raises InputError if the system cannot tell
    whether the path exists, for example because the path has a loop of links, its name is too long, or the user is not
    allowed to search a folder."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return True


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading. Raises InputError for other files. If the file is a pipe, the function does not
    wait."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    kind = stat.S_IFMT(os.fstat(handle).st_mode)
    if kind != stat.S_IFREG:
        os.close(handle)
        raise InputError(f"{path} is {_KINDS.get(kind, 'no file')}; a regular file is needed")
    return os.fdopen(handle, "rb")


def require_regular(path: str | os.PathLike[str]) -> None:
    """Raise InputError if `path` is not a regular file, or cannot be read."""
    open_regular(path).close()


def require_output(path: Path, name: str) -> None:
    """Raise InputError if no file can be written at `path` later. This check changes nothing.

    These files are accepted: a regular file, a new file in a directory that exists or can be made, /dev/null, and a
    terminal. A pipe is accepted if this process has already opened it, for example as /dev/stdout or as >(command) in a
    shell. Other pipes may have no reader. Writing to other devices can destroy data."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        folder = Path(os.path.realpath(path)).parent
        if folder.is_relative_to("/proc"):  # for example /dev/fd/9 if descriptor 9 is not open
            raise InputError(f"{name} {path} cannot be written: there is no such descriptor") from None
        if os.path.islink(path) and not folder.is_dir():
            raise InputError(f"{name} {path}: the link leads to {folder}, which does not exist") from None
        try:
            require_directory(folder)
        except InputError as error:
            raise InputError(f"{name} {path}: {error}") from None
        return
    except (OSError, ValueError) as error:
        raise InputError(f"{name} {path} cannot be written: {_reason(error)}") from None
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise InputError(f"{name} {path} is a directory; name a file")
    if kind in (stat.S_IFIFO, stat.S_IFSOCK) and _is_held(found):
        return
    is_null = kind == stat.S_IFCHR and found.st_rdev == os.stat(os.devnull).st_rdev
    if kind != stat.S_IFREG and not is_null and not (kind == stat.S_IFCHR and _is_terminal(path)):
        raise InputError(f"{name} {path} is {_KINDS.get(kind, 'no file')}; name a regular file")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        reason = "no permission to write it" if isinstance(error, PermissionError) else _reason(error)
        raise InputError(f"{name} {path}: {reason}") from None


def nearest_existing(path: Path) -> Path:
    """Return `path` or its closest parent that exists, as an absolute path."""
    path = path.absolute()
    while not os.path.lexists(path):
        path = path.parent
    return path


def require_directory(directory: Path) -> None:
    """Raise InputError if the directory does not exist and cannot be made. Also raise InputError if no file can be
    written in the directory. This function changes nothing."""
    existing = nearest_existing(directory)
    try:
        mode = existing.stat().st_mode
    except (OSError, ValueError) as error:
        raise InputError(f"directory {directory} cannot be used: {_reason(error)}") from None
    if not stat.S_ISDIR(mode):
        raise InputError(f"directory {directory} cannot be created: {existing} is a file")
    refuse_url(directory)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"directory {directory} cannot be written: no permission in {existing}")


def refuse_url(place: Path) -> None:
    """Raise InputError if the user has given a URL instead of a path. A path that exists is accepted. A run needs a
    file system, because a pass writes parts of files, and a commit renames a file."""
    missing = place.absolute().parts[len(nearest_existing(place).parts) :]
    if not missing or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:", missing[0]):
        return
    url = f"{missing[0]}//{'/'.join(missing[1:])}"  # `Path` has changed s3://b/run to s3:/b/run
    raise InputError(
        f"{url} looks like a URL, and only a file system can hold a run or other files; name a path. The results of a "
        f"run can be written to an object store with: outcrop export RUN --zarr {url}"
    )


def make_directory(directory: Path) -> list[Path]:
    """Make a directory and its missing parents. Return the new directories, parents first. If InputError is raised, no
    new directory remains."""
    from outcrop import durable  # imported late, because loading it takes longer than all other checks

    made: list[Path] = []
    try:
        for place in (*reversed(directory.parents), directory):
            try:
                durable.SYSTEM.stat(place)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    durable.SYSTEM.mkdir(place)
                    made.append(place)
    except OSError as error:
        remove_made(made)
        raise InputError(f"directory {error.filename} cannot be created: {error.strerror}") from None
    return made


def remove_made(made: Sequence[Path]) -> None:
    """Remove the empty directories in a list that `make_directory` has returned."""
    from outcrop import durable

    for place in reversed(made):
        with contextlib.suppress(OSError):
            durable.SYSTEM.rmdir(place)


@contextlib.contextmanager
def made_directory(directory: Path) -> Iterator[None]:
    """Make a directory if it is missing, so that the body of the `with` statement can write files to the directory. At
    the end of the `with` statement, new directories that are empty are removed. Raises InputError."""
    require_directory(directory)
    made = make_directory(directory)
    try:
        yield
    finally:
        remove_made(made)


def _is_held(found: os.stat_result) -> bool:
    for handle in map(int, os.listdir("/proc/self/fd")):
        try:
            mode = fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE
            if mode != os.O_RDONLY and os.path.samestat(os.fstat(handle), found):
                return True
        except OSError:  # listdir opened this descriptor to read the folder, and has closed it
            continue
    return False


def _is_terminal(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.isatty(handle)
    finally:
        os.close(handle)


def _unreadable(path: object, error: Exception) -> InputError:
    return InputError(f"{shown(str(path))} cannot be read: {_reason(error)}")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
