"""This module manages the files that Outcrop keeps for its user between runs. The files contain compiled code, built-in
stencils and measured figures.

    $XDG_CACHE_HOME/outcrop/<kind>/<name>     content, then a seal: the SHA-256 of kind, name and content

Outcrop executes compiled code from the cache, so other users must not be able to change this code. The folders have
mode
0700. Outcrop checks each folder of the cache. The folder must belong to this user, must not be a link, and other users
must not be able to write to it. The folders are opened one by one, from the outermost to the innermost, and files are
opened only through the open folder. Therefore no other user can replace a folder or file after Outcrop has checked its
owner and mode. A file is valid if it belongs to this user, is not a link, has the right seal, and cannot be written by
other users. If a file is not valid, Outcrop makes it again.

Several processes can write the same file at the same time. Each process writes a whole file under a temporary name,
flushes the file and renames it.

Measured figures are kept in JSON files, so that each figure is measured only once. The JSON files have the kind "", so
they are directly in the folder $XDG_CACHE_HOME/outcrop. A process that adds figures to a file reads the file and writes
it again. While a process adds figures, it holds a lock on the folder, so that no process overwrites the figures of
another process.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from outcrop.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    FiguresT = TypeVar("FiguresT", bound=DataclassInstance)

OWN_FOLDER = "outcrop"
REMEDY = "set XDG_CACHE_HOME to a folder of your own"
OTHERS, OTHERS_WRITE = 0o077, 0o022
_SEAL = b"\noutcrop sha256 "
_SEAL_BYTES = len(_SEAL) + 64 + 1
_INNER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

MAX_FIGURES_BYTES = 1 << 20
MAX_ENTRIES = 500
"""The maximum number of entries in a file of measured figures. An entry has about 500 bytes. If a file has more
entries, the oldest entries are removed."""
MAX_LOCK_SECONDS, LOCK_PAUSE_SECONDS = 10.0, 0.005
"""The maximum time that a process waits for a lock, and the pause between two attempts."""


@dataclass(frozen=True)
class CacheFolder:
    """An open folder of the cache. Files are opened through `descriptor`. `path` is only used in messages."""

    path: Path
    kind: str
    descriptor: int

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """Return the content of a file. The result is None if the file is missing, damaged or too long, or if other
        users may write the file."""
        try:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.descriptor)
        except OSError:
            return None
        try:
            info = os.fstat(handle)
            # a file that another process has just replaced has no name any more
            is_own = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and info.st_nlink <= 1
            if not is_own or info.st_mode & OTHERS_WRITE or info.st_size > max_bytes + _SEAL_BYTES:
                return None
            with open(handle, "rb", closefd=False) as file:
                data = file.read(info.st_size)
        except OSError:
            return None
        finally:
            os.close(handle)
        content = data[:-_SEAL_BYTES]
        return content if data[-_SEAL_BYTES:] == self._seal(name, content) else None

    def write(self, name: str, content: bytes) -> None:
        """Write a file with its seal, and make the file durable. Raises OSError."""
        beside = f".{name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(beside, flags, 0o600, dir_fd=self.descriptor)
        try:
            with open(handle, "wb") as file:
                os.fchmod(handle, 0o600)
                file.write(content + self._seal(name, content))
                file.flush()
                os.fsync(handle)
            os.rename(beside, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside, dir_fd=self.descriptor)
            raise
        with suppress(OSError):  # some network file systems cannot flush folders
            os.fsync(self.descriptor)

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a lock on the folder. Only one process can hold this lock at a time. If the file system has no locks, or
        if another process holds the lock for more than MAX_LOCK_SECONDS, continue without a lock."""
        end = time.monotonic() + MAX_LOCK_SECONDS
        has_lock = False
        while not has_lock:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                has_lock = True
            except BlockingIOError:
                if time.monotonic() >= end:
                    break
                time.sleep(LOCK_PAUSE_SECONDS)
            except OSError:
                break
        try:
            yield
        finally:
            if has_lock:
                with suppress(OSError):
                    fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def _seal(self, name: str, content: bytes) -> bytes:
        summed = hashlib.sha256(f"{self.kind}/{name}\0".encode())
        summed.update(content)
        return _SEAL + summed.hexdigest().encode() + b"\n"


def cache_home() -> Path:
    """Return $XDG_CACHE_HOME. Return ~/.cache if this variable is not set, is empty, or is a relative path. Raises
    InputError if the user has no home directory."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):  # the XDG specification says to ignore relative paths
        return Path(named)
    try:
        home = Path.home()
    except RuntimeError:
        home = Path()
    if not home.is_absolute():
        raise InputError(f"this user has no home directory for a cache; {REMEDY}")
    return home / ".cache"


@contextmanager
def open_folder(kind: str = "", home: Path | None = None, *, make: bool) -> Iterator[CacheFolder]:
    """Open and check the folder <home>/outcrop/<kind>. `home` defaults to cache_home(). If `make` is true, missing
    folders are made. Raises InputError if a folder is missing, cannot be used, or can be changed by other users."""
    path = cache_home() if home is None else home
    handle = -1
    try:
        try:
            if make and not os.path.isdir(path):
                _make_folders(path)
            handle = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            for name in filter(None, (OWN_FOLDER, kind)):
                path = path / name
                outer, handle = handle, _open_inner(handle, name, make)
                os.close(outer)
                _require_own(handle, path)
        except OSError as error:
            why = "it is a link" if os.path.islink(path) else error.strerror
            raise InputError(f"the cache {path} cannot be used: {why}; {REMEDY}") from None
        yield CacheFolder(path, kind, handle)
    finally:
        if handle >= 0:
            os.close(handle)


def _make_folders(path: Path) -> None:
    for folder in (*reversed(path.parents), path):
        if not os.path.isdir(folder):
            with suppress(FileExistsError):  # another process may have made the folder in the meantime
                os.mkdir(folder, 0o700)
                os.chmod(folder, 0o700)  # unlike `mkdir`, `chmod` does not apply the umask


def _open_inner(outer: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _INNER, dir_fd=outer)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=outer)
        os.chmod(name, 0o700, dir_fd=outer)
    return os.open(name, _INNER, dir_fd=outer)


def _require_own(handle: int, path: Path) -> None:
    """Change the mode of the folder so that other users have no rights to it. Raises InputError if the folder belongs
    to another user, or if other users can still write to it."""
    info = os.fstat(handle)
    if info.st_uid != os.geteuid():
        raise InputError(f"the cache {path} belongs to user {info.st_uid}, you are user {os.geteuid()}; {REMEDY}")
    if info.st_mode & OTHERS:
        with suppress(OSError):
            os.fchmod(handle, 0o700)
        if os.fstat(handle).st_mode & OTHERS_WRITE:
            raise InputError(f"other users may write in the cache {path}, and its mode cannot be changed; {REMEDY}")


# --- measured figures ------------------------------------------------------------------------------------------------


def load_figures(name: str, figures: type[FiguresT]) -> dict[str, FiguresT]:
    """Return the measured figures in a file, as a dictionary from keys to figures. The result does not contain figures
    that are not valid. If the file cannot be used, the dictionary is empty."""
    try:
        with open_folder(make=False) as folder:
            return _figures_in(folder, name, figures)
    except InputError:
        return {}


def keep_figures(name: str, figures: Mapping[str, DataclassInstance]) -> None:
    """Add measured figures to a file. All figures have the same type. If other processes add figures at the same time,
    their figures are also kept. If the cache cannot be used, the function does not write the figures, and raises no
    error."""
    with suppress(InputError, OSError), open_folder(make=True) as folder, folder.locked():
        known = _figures_in(folder, name, type(next(iter(figures.values()))))
        _write_figures(folder, name, {key: one for key, one in known.items() if key not in figures} | dict(figures))


def forget_figures(name: str, figures: type[DataclassInstance], key: str) -> None:
    """Remove the figures of one key from a file. If the cache cannot be used, the function does nothing."""
    with suppress(InputError, OSError), open_folder(make=False) as folder, folder.locked():
        known = _figures_in(folder, name, figures)
        if known.pop(key, None) is not None:
            _write_figures(folder, name, known)


def _write_figures(folder: CacheFolder, name: str, figures: Mapping[str, DataclassInstance]) -> None:
    kept = {key: asdict(one) for key, one in list(figures.items())[-MAX_ENTRIES:]}
    folder.write(name, json.dumps(kept, indent=1).encode())


def key_of(what: str) -> str:
    """Return the key under which a file keeps the figures that the text `what` identifies."""
    return hashlib.sha256(what.encode()).hexdigest()[:32]


def _figures_in(folder: CacheFolder, name: str, figures: type[FiguresT]) -> dict[str, FiguresT]:
    try:
        content = json.loads(folder.read(name, MAX_FIGURES_BYTES) or b"{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: figures(**values) for key, values in content.items() if _are(figures, values)}


def _are(figures: type[DataclassInstance], values: object) -> bool:
    """Return True if `values` are valid for an object of the type `figures`. Texts and finite numbers are valid, and
    None is valid for an unknown figure."""
    if not isinstance(values, Mapping):
        return False
    known = {field.name: field for field in fields(figures)}
    needed = {name for name, field in known.items() if field.default is not None}
    if not needed <= values.keys() <= known.keys():
        return False
    return all(_is_figure(name, value, name not in needed) for name, value in values.items())


def _is_figure(name: str, value: object, may_be_unknown: bool) -> bool:
    if name == "origin":
        return isinstance(value, str)
    if value is None:
        return may_be_unknown
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 < value <= sys.float_info.max or (value == 0 and not name.endswith("per_second"))
