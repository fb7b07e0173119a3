"""Paths that users give, checked before anything is opened or made.

A file that is to be read must be a regular file: opening a FIFO would wait for ever, and a device has no end. Each
refusal is an InputError of one line.

A directory that a command or a call needs for its own files is made where it is missing, parents too. The same three
steps hold everywhere:

    require_directory     it is there, or can be made; nothing is changed
    make_directory        made, after all arguments have been checked
    remove_made           what was made and stayed empty is removed when the work fails, or when it needs no directory
                          any more (made_directory does all three)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
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
    """The path `given` as text or as an os.PathLike. Raises InputError for text that can be no path of a run: empty,
    with a NUL, or not UTF-8, which neither the manifest nor the storage backends can hold."""
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(text, str) or not text:
        raise InputError(f"{name} {shown(given)} is not a path")
    if "\0" in text:
        raise InputError(f"{name} {shown(text)} has a NUL in it, which no path can have")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} {shown(text)} is not UTF-8; rename it") from None
    return Path(text)


def as_place(given: object, name: str) -> Path:
    """The path `given` of what is there, or may be made there. Raises InputError where neither can be."""
    path = as_path(given, name)
    is_there(path)
    return path


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to anything. Raises InputError when that cannot be found out: loops of links, names that are
    too long, folders that may not be searched."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return True


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, open for reading. Raises InputError for anything else, without waiting for it."""
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
    """Raise InputError unless `path` is a regular file that can be read."""
    open_regular(path).close()


def require_output(path: Path, name: str) -> None:
    """Raise InputError unless a file can be written at `path` later; creates and changes nothing.

    That may be a regular file, a new one in a directory that is there or can be made, /dev/null, a terminal, or a pipe
    that this process holds already: /dev/stdout, and what a shell makes of >(command). Other pipes might have no
    reader, and devices may be anything.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        folder = Path(os.path.realpath(path)).parent
        if folder.is_relative_to("/proc"):  # as /dev/fd/9, of which there is none
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
    """The path itself, or the closest of its parents that exists."""
    path = path.absolute()
    while not os.path.lexists(path):
        path = path.parent
    return path


def require_directory(directory: Path) -> None:
    """Raise InputError unless it is a directory, or can be made, and this user may write there; changes nothing."""
    existing = nearest_existing(directory)
    try:
        mode = existing.stat().st_mode
    except (OSError, ValueError) as error:
        raise InputError(f"directory {directory} cannot be used: {_reason(error)}") from None
    if not stat.S_ISDIR(mode):
        raise InputError(f"directory {directory} cannot be created: {existing} is a file")
    missing = directory.absolute().parts[len(existing.parts) :]
    if missing and missing[0].endswith(":"):  # s3://bucket/name is s3:/bucket/name as a path
        raise InputError(f"directory {directory} looks like a URL; results are kept in file systems only, name a path")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"directory {directory} cannot be written: no permission in {existing}")


def make_directory(directory: Path) -> list[Path]:
    """Make a directory, parents too, and list those that were not there, parents first. InputError leaves none."""
    from outcrop import durable  # which takes longer to load than all other checks take

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
    """Remove directories that this process has made, parents first, as far as they are empty."""
    from outcrop import durable

    for place in reversed(made):
        with contextlib.suppress(OSError):
            durable.SYSTEM.rmdir(place)


@contextlib.contextmanager
def made_directory(directory: Path) -> Iterator[None]:
    """A directory for files that the caller removes: made where it is missing, and removed at the end where it was made
    here and is empty. Raises InputError when it cannot be made or written."""
    require_directory(directory)
    made = make_directory(directory)
    try:
        yield
    finally:
        remove_made(made)


def _is_held(found: os.stat_result) -> bool:
    """Whether this process has a pipe or a socket open, and may write to it."""
    for handle in map(int, os.listdir("/proc/self/fd")):
        try:
            mode = fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE
            if mode != os.O_RDONLY and os.path.samestat(os.fstat(handle), found):
                return True
        except OSError:  # the descriptor that listed the folder is closed by now
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
