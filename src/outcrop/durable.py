"""This module writes files that survive a power cut. The directory of the files is not trusted, so links in it are not
followed.

A `Directory` keeps an open descriptor of the directory. The `Directory` opens each path relative to this descriptor,
folder by folder, and follows no links. Therefore a link that an attacker has made cannot lead outside the directory.

    replace     write a temporary file ──► fsync ──► rename ──► fsync folder    a reader sees the old or the new content
    create      O_EXCL, all bytes allocated                                     no existing file is overwritten
    hold        a lock on the directory itself, which is released when its descriptor is closed

The system calls of this module are attributes of `SYSTEM`. Tests replace `SYSTEM` by a model that simulates a power
cut. In this model, data that were not flushed are lost.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import msgspec

from outcrop import _core
from outcrop.errors import CorruptionError, InputError, StorageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Buffer: TypeAlias = "bytes | NDArray[Any]"

MAX_TEXT_BYTES = 256 << 20
"""The maximum length in bytes of the description of a run or an array. Longer files are refused."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INSIDE = os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS, _PAUSE_SECONDS = 20, 0.01
"""`hold` repeats its attempts to get the lock during 0.2 s. A process that only checks whether the directory is in use
has the lock for a shorter time than 0.2 s."""


class System:
    """The system calls that this module uses. The functions of `System` have the same signatures as in `os`. File names
    are relative to the descriptor `dir_fd`."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    read = staticmethod(os.pread)
    write = staticmethod(os.pwrite)
    allocate = staticmethod(os.posix_fallocate)
    fsync = staticmethod(os.fsync)
    rename = staticmethod(os.rename)
    hardlink = staticmethod(os.link)
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)
    mkdir = staticmethod(os.mkdir)
    symlink = staticmethod(os.symlink)
    readlink = staticmethod(os.readlink)
    stat = staticmethod(os.stat)
    fstat = staticmethod(os.fstat)
    flock = staticmethod(fcntl.flock)
    sleep = staticmethod(time.sleep)

    @staticmethod
    def listdir(folder: int) -> list[str]:
        return os.listdir(folder)


SYSTEM = System()


class Directory:
    """An open directory. `path` is the path that the user gave. Messages contain this path. `is_here` says whether the
    path still leads to the directory. In all methods, names of files are relative to the directory, with "/" between
    folders. The message of each OSError contains the whole path."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self.handle = path, handle
        self._system = SYSTEM

    @classmethod
    def open(cls, path: Path) -> Directory:
        """Open the directory at `path`. `open` follows links in `path`, because the user has named `path`. Raises
        OSError."""
        return cls(path, SYSTEM.open(path, _FOLDER))

    def close(self) -> None:
        handle, self.handle = self.handle, -1
        if handle >= 0:
            self._system.close(handle)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def is_here(self, path: Path | None = None) -> bool:
        """Return True if `path` leads to this directory. The default of `path` is the path with which the directory was
        opened."""
        try:
            there, own = self._system.stat(path or self.path), self._system.fstat(self.handle)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)

    def is_same(self, other: Directory) -> bool:
        """Return True if this object and `other` are the same directory, even if their paths differ."""
        own, there = self._system.fstat(self.handle), self._system.fstat(other.handle)
        return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of a file, a folder or a link, or None if `name` does not exist. Links are not followed."""
        try:
            with self._parent(name) as (folder, last):
                return self._system.stat(last, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def names(self, name: str = "") -> list[str]:
        """Return the sorted names of the files in the folder `name`. The default folder is the directory itself."""
        with self._folder(name) as folder:
            return sorted(self._system.listdir(folder))

    def read(self, name: str, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
        """Return the content of a regular file. Raises StorageError if the file is not a regular file, or has more than
        `max_bytes` bytes."""
        with self.opened(name) as handle:
            size = self._system.fstat(handle).st_size
            if size > max_bytes:
                raise StorageError(f"{self.path / name} has {size} bytes; {max_bytes} are the maximum here")
            return self.read_from(handle, 0, size)

    def read_file(self, name: str, count: int) -> bytes:
        """Return the first `count` bytes of a regular file. If the file is shorter, return the whole file."""
        with self.opened(name) as handle:
            return self.read_from(handle, 0, count)

    def read_from(self, handle: int, offset: int, count: int) -> bytes:
        """Return `count` bytes of an open file from `offset` on, or fewer bytes if the file ends earlier."""
        parts = []
        while count > 0 and (part := self._system.read(handle, min(count, 1 << 30), offset)):
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return b"".join(parts)

    def read_link(self, name: str) -> str | None:
        """Return the target of the link `name`, or None if `name` does not exist or is not a link."""
        try:
            with self._parent(name) as (folder, last):
                return self._system.readlink(last, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINVAL, errno.ENOTDIR):
                return None
            raise

    @contextlib.contextmanager
    def opened(self, name: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        """Open an existing regular file and yield its descriptor. Raises StorageError if the file is not a regular
        file."""
        with self._parent(name) as (folder, last), self._named(name):
            # If `last` is a pipe, this call would wait for a writer without O_NONBLOCK.
            handle = self._system.open(last, flags | _INSIDE | os.O_NONBLOCK, dir_fd=folder)
        try:
            if not stat.S_ISREG(self._system.fstat(handle).st_mode):
                raise StorageError(f"{self.path / name} is not a regular file; remove it, or restore the original file")
            with self._named(name):
                yield handle
        finally:
            self._system.close(handle)

    def make_folder(self, name: str) -> None:
        """Make a folder and its parents. Existing folders are kept."""
        parts = name.split("/")
        for count in range(1, len(parts) + 1):
            with self._parent("/".join(parts[:count])) as (folder, last), contextlib.suppress(FileExistsError):
                self._system.mkdir(last, dir_fd=folder)

    def create(self, name: str, *parts: Buffer, size: int = 0, flush: bool = False) -> None:
        """Make a file that begins with `parts`, one after the other, and allocate `size` bytes for the file. Raises
        FileExistsError if a file with this name exists. If the new file cannot be completed, `create` removes this
        file."""
        with self._parent(name) as (folder, last), self._named(name):
            handle = self._system.open(last, os.O_RDWR | os.O_CREAT | os.O_EXCL | _INSIDE, 0o666, dir_fd=folder)
            try:
                try:
                    if size:
                        self._system.allocate(handle, 0, size)
                    offset = 0
                    for part in parts:
                        offset += self.write_to(handle, offset, part)
                    if flush:
                        self._system.fsync(handle)
                finally:
                    self._system.close(handle)
            except BaseException:
                self._system.unlink(last, dir_fd=folder)
                raise

    def create_whole(self, name: str, content: bytes, size: int) -> None:
        """Make a durable file. Unlike `create`, `create_whole` gives the file its name only when the file is complete.
        Raises FileExistsError if a file with this name exists."""
        beside = f"{name.rpartition('/')[0]}/.outcrop-{uuid4().hex}".lstrip("/")  # no other process uses this name
        self.create(beside, content, size=size, flush=True)
        try:
            with self._parent(name) as (folder, last), self._named(name):
                made = beside.rpartition("/")[2]
                try:
                    self._system.hardlink(made, last, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError as error:
                    if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                        raise
                    # This branch is for file systems without hard links. If another process makes a file with this name
                    # between the next check and the rename, the rename replaces that file.
                    if self.status(name) is not None:
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
                    self._system.rename(made, last, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            self.remove(beside)
        self.flush(name.rpartition("/")[0])

    def grow(self, name: str, size: int) -> None:
        """Allocate the first `size` bytes of the existing file `name`. Its content does not change."""
        with self.opened(name, os.O_RDWR) as handle:
            self._system.allocate(handle, 0, size)

    def put(self, name: str, *parts: Buffer) -> None:
        """Make a durable file that contains `parts`, one after the other. Missing folders are made, too."""
        folder = name.rpartition("/")[0]
        if folder:
            self.make_folder(folder)
        self.create(name, *parts, flush=True)

    def write(self, name: str, offset: int, content: Buffer) -> None:
        with self.opened(name, os.O_RDWR) as handle:
            self.write_to(handle, offset, content)
            self._system.fsync(handle)

    def write_to(self, handle: int, offset: int, content: Buffer) -> int:
        """Write `content` into an open file, and return the number of bytes written."""
        left = memoryview(content if isinstance(content, bytes) else content.reshape(-1).view("uint8").data)
        count = len(left)
        while left:
            done = self._system.write(handle, left, offset)
            left, offset = left[done:], offset + done
        return count

    def flush_file(self, handle: int) -> None:
        self._system.fsync(handle)

    def replace(self, name: str, content: bytes) -> None:
        """Replace the content of a file. A reader sees either the whole old content or the whole new content, even
        after a power cut."""
        beside = name + ".tmp"
        self.remove(beside)  # a killed process may have left this file
        self.create(beside, content, flush=True)
        try:
            with self._parent(name) as (folder, last), self._named(name):
                self._system.rename(last + ".tmp", last, src_dir_fd=folder, dst_dir_fd=folder)
                self._system.fsync(folder)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(beside)
            raise

    def link(self, name: str, target: str) -> None:
        """Make the link `name` atomically. An existing file or link with the name `name` is replaced. Raises
        IsADirectoryError if `name` is a folder."""
        beside = name + ".tmp"
        self.remove(beside)
        with self._parent(name) as (folder, last), self._named(name):
            self._system.symlink(target, last + ".tmp", dir_fd=folder)
            try:
                self._system.rename(last + ".tmp", last, src_dir_fd=folder, dst_dir_fd=folder)
            except IsADirectoryError:
                self._system.unlink(last + ".tmp", dir_fd=folder)
                raise

    def move(self, name: str, to: str) -> None:
        """Give a file or a folder another name in this directory. The caller must flush the folders of the old name and
        of the new name."""
        with self._parent(name) as (source, last), self._parent(to) as (target, new), self._named(name):
            self._system.rename(last, new, src_dir_fd=source, dst_dir_fd=target)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._parent(name) as (folder, last), self._named(name):
            self._system.unlink(last, dir_fd=folder)

    def remove_files(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(NotADirectoryError):
                self.remove(name)

    def remove_empty(self, name: str, depth: int = 8) -> None:
        """Remove the empty folders inside the folder `name`, down to `depth` levels. If the folder `name` is then
        empty, remove this folder, too."""
        with contextlib.suppress(OSError):
            for inner in self.names(name) if depth else ():
                self.remove_empty(f"{name}/{inner}", depth - 1)
            with self._parent(name) as (folder, last):
                self._system.rmdir(last, dir_fd=folder)

    def flush(self, name: str = "") -> None:
        """Make the names of the files in the folder `name` durable. The default folder is the directory itself."""
        with self._folder(name) as folder, self._named(name):
            self._system.fsync(folder)

    def flush_all(self, name: str = "") -> None:
        """Make the names of all files and folders below the folder `name` durable."""
        for inner in self.names(name):
            path = f"{name}/{inner}" if name else inner
            status = self.status(path)
            if status is not None and stat.S_ISDIR(status.st_mode):
                self.flush_all(path)
        self.flush(name)

    def hold(self, shared: bool = False) -> int:
        """Lock the directory. If `shared` is False, the lock is exclusive. Return a descriptor. The lock is kept until
        this descriptor is closed. Raises InputError if another process has a lock that conflicts with this lock."""
        handle = self._system.open(".", _FOLDER, dir_fd=self.handle)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._system.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                return handle
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK or attempt == _ATTEMPTS:
                    self._system.close(handle)
                    if error.errno != errno.EWOULDBLOCK:
                        raise
                    break
                self._system.sleep(_PAUSE_SECONDS)
        raise InputError(f"{self.path} is in use by another process; wait for it or stop it")

    def share(self, held: int) -> None:
        """Change an exclusive lock that `hold` has taken into a shared lock."""
        self._system.flock(held, fcntl.LOCK_SH)

    def release(self, held: int) -> None:
        self._system.close(held)

    @contextlib.contextmanager
    def _parent(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the descriptor of the folder that contains `name`, and the last part of `name`."""
        folder, _, last = name.rpartition("/")
        assert last not in ("", ".", ".."), name
        with self._folder(folder) as handle:
            yield handle, last

    @contextlib.contextmanager
    def _folder(self, name: str) -> Iterator[int]:
        handle = self.handle
        try:
            for part in name.split("/") if name else ():
                assert part not in ("", ".", ".."), name
                with self._named(name):
                    inner = self._system.open(part, _FOLDER | _INSIDE, dir_fd=handle)
                # Change `handle` before the close. If the close came first, a Ctrl-C between the close and the change
                # of `handle` would make the cleanup close a descriptor twice.
                outer, handle = handle, inner
                if outer != self.handle:
                    self._system.close(outer)
            yield handle
        finally:
            if handle != self.handle:
                self._system.close(handle)

    @contextlib.contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """Add the whole path to an OSError that the body of the `with` raises."""
        try:
            yield
        except OSError as error:
            error.filename, error.filename2 = str(self.path / name), None
            raise


def flush_parents(path: Path) -> None:
    """Make the names of all parents of a directory durable. Other processes can have made some of the parents.
    `flush_parents` skips folders that this user cannot read, and folders that the file system cannot flush. Raises
    OSError."""
    for parent in path.absolute().parents:
        try:
            with Directory.open(parent) as folder:
                folder.flush()
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP):
                raise


def sealed(content: Mapping[str, Any]) -> bytes:
    """Return `content` as JSON that ends with its checksum, "crc32c"."""
    return (json.dumps({**content, "crc32c": _checksum(content)}, indent=1) + "\n").encode()


def unsealed(data: bytes, path: object) -> dict[str, Any]:
    """Return the content of JSON that `sealed` has made. Raises CorruptionError for any other data."""
    try:
        content: dict[str, Any] = msgspec.json.decode(data)
        expected = content.pop("crc32c")
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
        raise CorruptionError(f"{path} is damaged or not written by Outcrop") from None
    if type(expected) is not int or expected != _checksum(content):
        raise CorruptionError(f"{path} is damaged: checksum mismatch")
    return content


def _checksum(content: Mapping[str, Any]) -> int:
    return _core.crc32c(json.dumps(content, sort_keys=True).encode())
