"""Simulate a disk and the system calls of `outcrop.durable.SYSTEM`. Processes can be killed, and the power can fail.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

from simulated.chance import CALLS_MOST, Chance, Killed, Process, Turns
from simulated.files import Change, File, Folder, Inode, Link, lose_power

ROOM_CALLS = {"open", "write", "allocate", "mkdir", "symlink", "hardlink", "rename"}
"""Calls that can fail because the disk is full."""


class Opened:
    """An open file description. `lock` is the kind of lock that flock has given it."""

    __slots__ = ("inode", "lock", "owner", "reads", "writes")

    def __init__(self, inode: Inode, flags: int, owner: Process | None) -> None:
        self.inode, self.owner, self.lock = inode, owner, 0
        access = flags & os.O_ACCMODE
        self.reads, self.writes = access != os.O_WRONLY, access != os.O_RDONLY


class SimulatedSystem:
    """One machine with one file system. `trace` is None, or a list to which each call adds a line. Random events happen
    only during the method `run`.
    """

    def __init__(self, chance: Chance, trace: list[str] | None = None) -> None:
        self.chance, self.trace = chance, trace
        self.calls = 0
        self.crashed = self.died = False
        self._random = chance.random
        self._turns = Turns(self._random)
        self._inodes = self._handles = 0
        self._opened: dict[int, Opened] = {}
        self._locks: dict[int, list[Opened]] = {}
        self.root = Folder(self._number(), 0o755, None)
        self.root.names = 1
        self._next, self._what = 1 << 60, ""
        self._most = 0
        self._after_rename = ""

    # Processes

    def run(self, *functions: Callable[[], Any]) -> list[Process]:
        """Run each function as a process. The processes take turns until all have ended or power fails."""
        processes = [Process(f"process {number}", one, self._end) for number, one in enumerate(functions)]
        self.crashed, self._after_rename = False, ""
        self._most = self.calls + CALLS_MOST
        self._look_ahead()
        self._turns.run(processes)
        self.died = any(process.is_dead for process in processes)
        if self.crashed:
            self.lose_power()
        return processes

    def lose_power(self) -> None:
        """Simulate a power cut: replace the content of the file system by a version that the disk may have kept."""
        lose_power(self.root, self._random)

    def _look_ahead(self) -> None:
        self._next, self._what = min(self.chance.next(self.calls), (self._most, ""))

    def _end(self, process: Process) -> None:
        for handle in list(process.handles):
            self._close(handle)

    def _enter(self, name: str, *arguments: object) -> None:
        """Begin a system call. Every call except `close` uses this function. Random events happen here."""
        process = self._turns.current
        if process is None:
            return
        if process.is_dead:
            raise Killed
        self.calls += 1
        if self.calls >= self._next:
            self._happen(process, name, arguments)
        if self.trace is not None:
            self._note(name, arguments)

    def _note(self, name: str, arguments: tuple[object, ...], what: str = "") -> None:
        if self.trace is not None and self._turns.current is not None:
            words = [f"{len(one)} bytes" if isinstance(one, bytes | memoryview) else repr(one) for one in arguments]
            self.trace.append(f"{self.calls:5} {self._turns.current.name}: {what}{name}({', '.join(words)})")

    def _happen(self, process: Process, name: str, arguments: tuple[object, ...]) -> None:
        assert self.calls < self._most, f"{process.name} has made {CALLS_MOST} calls"
        what = self._what
        if what == "fault":
            needs_room = name in ROOM_CALLS and (name != "open" or int(str(arguments[1])) & os.O_CREAT)
            number = errno.ENOSPC if needs_room and self._random.random() < 0.5 else errno.EIO
            if name in ("write", "read") and self._random.random() < 0.5:
                self._next, self._what = self.calls + 1, ""
                return  # instead of an error, `_some` makes the call incomplete
            self.chance.faults = 0.0  # no other call fails until the rates are set again
            self._look_ahead()
            self.chance.count[what] += 1
            self._note(name, arguments, f"{os.strerror(number)} in ")
            if name == "fsync":
                inode = self._opened[int(str(arguments[0]))].inode
                if isinstance(inode, File):
                    inode.fail_to_flush(self._random)
            raise OSError(number, os.strerror(number))
        self._look_ahead()
        if not what:
            return
        if what in ("kill", "crash") and self._random.random() < 0.3 and not self._after_rename:
            self._after_rename = what  # the event happens shortly after the next rename
            return
        self.chance.count[what] += 1
        if what == "switch":
            self._turns.hand_over()
            if process.is_dead:
                raise Killed
            return
        self._note(name, arguments, "KILLED at " if what == "kill" else "POWER LOST at ")
        if name == "write" and self._random.random() < 0.5:  # only a part is written before the kill
            handle, content, offset = arguments
            part = bytes(content)[: self._random.randrange(len(content))]
            opened = self._opened.get(handle)
            if part and opened is not None and isinstance(opened.inode, File):
                opened.inode.write(offset, part)
        self._kill(process)
        if what == "crash":
            self.crashed = True
            for other in self._turns.running():
                self._kill(other)
        raise Killed

    def _kill(self, process: Process) -> None:
        process.is_dead = True
        self._end(process)

    def _some(self, count: int) -> int:
        """Return the number of bytes that a read or write transfers: at most `count`."""
        if self.calls + 1 == self._next and not self._what and count > 1:
            return 1 + self._random.randrange(count)
        return count

    # Names

    def _number(self) -> int:
        self._inodes += 1
        return self._inodes

    def _start(self, path: str, dir_fd: int | None) -> Folder:
        if path.startswith("/") or dir_fd is None:
            return self.root
        inode = self._get(dir_fd).inode
        if not isinstance(inode, Folder):
            _fail(errno.ENOTDIR, path)
        return inode

    def _find(self, path: object, dir_fd: int | None, follow: bool) -> tuple[Folder, str, Inode | None]:
        """Return the folder that contains `path`, the name in this folder, and the file or folder with this name (or
        None). A link at the end of `path` is followed only if `follow` is true.
        """
        text = os.fspath(path)
        folder = self._start(text, dir_fd)
        if "/" not in text and text not in (".", ".."):
            found = folder.entries.get(text)
            if not follow or not isinstance(found, Link):
                if not text:
                    _fail(errno.ENOENT, text)
                return folder, text, found
        return self._walk(folder, text, follow, 40, text)

    def _walk(self, folder: Folder, text: str, follow: bool, links: int, path: str) -> tuple[Folder, str, Inode | None]:
        parts = [part for part in text.split("/") if part]
        if text.startswith("/"):
            folder = self.root
        name, found = ".", folder
        for place, name in enumerate(parts):
            is_last = place == len(parts) - 1
            found = {".": folder, "..": folder.parent}.get(name) or folder.entries.get(name)
            if isinstance(found, Link) and (follow or not is_last):
                if links == 0:
                    _fail(errno.ELOOP, path)
                inner, inner_name, found = self._walk(folder, found.target, True, links - 1, path)
                if is_last:
                    return inner, inner_name, found
            if is_last:
                return folder, name, found
            if found is None:
                _fail(errno.ENOENT, path)
            if not isinstance(found, Folder):
                _fail(errno.ENOTDIR, path)
            folder = found
        return folder, name, found

    def _get(self, handle: int) -> Opened:
        try:
            return self._opened[handle]
        except KeyError:
            _fail(errno.EBADF)

    # System calls, with the signatures of the functions in `os`

    def open(self, path: object, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        self._enter("open", path, flags, dir_fd)
        is_exclusive = flags & os.O_CREAT and flags & os.O_EXCL
        folder, name, inode = self._find(path, dir_fd, follow=not (flags & os.O_NOFOLLOW or is_exclusive))
        if inode is None:
            if not flags & os.O_CREAT or folder.is_removed:
                _fail(errno.ENOENT, path)
            inode = File(self._number(), mode & 0o755)
            Change((folder, name, inode))
        elif is_exclusive:
            _fail(errno.EEXIST, path)
        elif flags & os.O_DIRECTORY and not isinstance(inode, Folder):
            _fail(errno.ENOTDIR, path)
        elif isinstance(inode, Link):
            _fail(errno.ELOOP, path)
        elif isinstance(inode, Folder) and (flags & os.O_ACCMODE != os.O_RDONLY or flags & (os.O_CREAT | os.O_TRUNC)):
            _fail(errno.EISDIR, path)
        elif flags & os.O_TRUNC and isinstance(inode, File):
            inode.cut()
        return self._open(inode, flags)

    def _open(self, inode: Inode, flags: int) -> int:
        self._handles += 1
        process = self._turns.current
        self._opened[self._handles] = Opened(inode, flags, process)
        if process is not None:
            process.handles.add(self._handles)
        return self._handles

    def close(self, handle: int) -> None:
        opened = self._opened.get(handle)
        if opened is None:
            if handle <= 0 or handle > self._handles:
                _fail(errno.EBADF)
            return  # the handle belongs to a killed process or a deleted Directory object
        self._close(handle)

    def _close(self, handle: int) -> None:
        opened = self._opened.pop(handle)
        if opened.lock:
            self._locks[opened.inode.number].remove(opened)
        if opened.owner is not None:
            opened.owner.handles.discard(handle)

    def read(self, handle: int, count: int, offset: int) -> bytes:
        self._enter("read", handle, count, offset)
        opened = self._get(handle)
        if isinstance(opened.inode, Folder):
            _fail(errno.EISDIR)
        if not opened.reads:
            _fail(errno.EBADF)
        assert isinstance(opened.inode, File)
        return bytes(opened.inode.data[offset : offset + self._some(count)])

    def write(self, handle: int, content: Any, offset: int) -> int:
        self._enter("write", handle, content, offset)
        opened = self._get(handle)
        if not opened.writes:
            _fail(errno.EBADF)
        assert isinstance(opened.inode, File)
        part = bytes(content[: self._some(len(content))])
        if part:
            opened.inode.write(offset, part)
        return len(part)

    def allocate(self, handle: int, offset: int, count: int) -> None:
        self._enter("allocate", handle, offset, count)
        opened = self._get(handle)
        if not opened.writes:
            _fail(errno.EBADF)
        if offset < 0 or count <= 0:
            _fail(errno.EINVAL)
        assert isinstance(opened.inode, File)
        opened.inode.extend(offset + count)

    def fsync(self, handle: int) -> None:
        self._enter("fsync", handle)
        inode = self._get(handle).inode
        if isinstance(inode, File | Folder):
            inode.flush()

    def rename(
        self, source: object, target: object, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        self._enter("rename", source, target, src_dir_fd, dst_dir_fd)
        old_folder, old_name, inode = self._find(source, src_dir_fd, follow=False)
        folder, name, there = self._find(target, dst_dir_fd, follow=False)
        if inode is None or folder.is_removed:
            _fail(errno.ENOENT, source)
        if inode is there:
            return
        if inode in _with_those_above(folder):
            _fail(errno.EINVAL, source)
        if there in _with_those_above(old_folder):
            _fail(errno.ENOTEMPTY, source)
        if there is not None:
            if isinstance(there, Folder):
                if not isinstance(inode, Folder):
                    _fail(errno.EISDIR, source)
                if there.entries:
                    _fail(errno.ENOTEMPTY, source)
                there.is_removed = True
            elif isinstance(inode, Folder):
                _fail(errno.ENOTDIR, source)
        Change((old_folder, old_name, None), (folder, name, inode))
        if isinstance(inode, Folder):
            inode.parent = folder
        if self._after_rename:
            self._next, self._what = self.calls + 1 + self._random.randrange(3), self._after_rename

    def hardlink(
        self, source: object, target: object, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        self._enter("hardlink", source, target, src_dir_fd, dst_dir_fd)
        inode = self._find(source, src_dir_fd, follow=False)[2]
        folder, name, there = self._find(target, dst_dir_fd, follow=False)
        if inode is None or folder.is_removed:
            _fail(errno.ENOENT, source)
        if there is not None:
            _fail(errno.EEXIST, target)
        if isinstance(inode, Folder):
            _fail(errno.EPERM, source)
        Change((folder, name, inode))

    def unlink(self, path: object, *, dir_fd: int | None = None) -> None:
        self._enter("unlink", path, dir_fd)
        folder, name, inode = self._find(path, dir_fd, follow=False)
        if inode is None:
            _fail(errno.ENOENT, path)
        if isinstance(inode, Folder):
            _fail(errno.EISDIR, path)
        Change((folder, name, None))

    def rmdir(self, path: object, *, dir_fd: int | None = None) -> None:
        self._enter("rmdir", path, dir_fd)
        folder, name, inode = self._find(path, dir_fd, follow=False)
        if inode is None:
            _fail(errno.ENOENT, path)
        if not isinstance(inode, Folder):
            _fail(errno.ENOTDIR, path)
        if inode.entries:
            _fail(errno.ENOTEMPTY, path)
        inode.is_removed = True
        Change((folder, name, None))

    def mkdir(self, path: object, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._enter("mkdir", path, dir_fd)
        folder, name, inode = self._find(path, dir_fd, follow=False)
        if inode is not None:
            _fail(errno.EEXIST, path)
        if folder.is_removed:
            _fail(errno.ENOENT, path)
        Change((folder, name, Folder(self._number(), mode & 0o755, folder)))

    def symlink(self, target: object, path: object, *, dir_fd: int | None = None) -> None:
        self._enter("symlink", target, path, dir_fd)
        folder, name, inode = self._find(path, dir_fd, follow=False)
        if inode is not None:
            _fail(errno.EEXIST, path)
        if folder.is_removed:
            _fail(errno.ENOENT, path)
        Change((folder, name, Link(self._number(), os.fspath(target))))

    def readlink(self, path: object, *, dir_fd: int | None = None) -> str:
        self._enter("readlink", path, dir_fd)
        _, _, inode = self._find(path, dir_fd, follow=False)
        if inode is None:
            _fail(errno.ENOENT, path)
        if not isinstance(inode, Link):
            _fail(errno.EINVAL, path)
        return inode.target

    def listdir(self, path: object) -> list[str]:
        self._enter("listdir", path)
        inode = self._get(path).inode if isinstance(path, int) else self._find(path, None, follow=True)[2]
        if inode is None:
            _fail(errno.ENOENT, path)
        if not isinstance(inode, Folder):
            _fail(errno.ENOTDIR, path)
        return list(inode.entries)

    def stat(self, path: object, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Any:
        if isinstance(path, int):
            return self.fstat(path)
        self._enter("stat", path, dir_fd)
        _, _, inode = self._find(path, dir_fd, follow=follow_symlinks)
        if inode is None:
            _fail(errno.ENOENT, path)
        return _status(inode)

    def fstat(self, handle: int) -> Any:
        self._enter("fstat", handle)
        return _status(self._get(handle).inode)

    def flock(self, handle: int, operation: int) -> None:
        self._enter("flock", handle, operation)
        opened = self._get(handle)
        wanted = operation & ~fcntl.LOCK_NB
        holders = self._locks.setdefault(opened.inode.number, [])
        others = [one for one in holders if one is not opened]
        if wanted != fcntl.LOCK_UN and others and (wanted == fcntl.LOCK_EX or others[0].lock == fcntl.LOCK_EX):
            assert operation & fcntl.LOCK_NB, "nobody waits for a lock here"
            _fail(errno.EWOULDBLOCK)
        holders[:] = others
        opened.lock = 0 if wanted == fcntl.LOCK_UN else wanted
        if opened.lock:
            holders.append(opened)

    def sleep(self, seconds: float) -> None:
        self._enter("sleep", seconds)
        process = self._turns.current
        self._turns.hand_over()
        if process is not None and process.is_dead:
            raise Killed


def _with_those_above(folder: Folder) -> list[Inode]:
    found: list[Inode] = [folder]
    while folder.parent is not folder:
        folder = folder.parent
        found.append(folder)
    return found


def _status(inode: Inode) -> Any:
    size = len(inode.data) if isinstance(inode, File) else 4096
    if isinstance(inode, Link):
        size = len(inode.target.encode())
    return SimpleNamespace(
        st_mode=inode.mode, st_ino=inode.number, st_dev=1, st_nlink=inode.names, st_size=size, st_uid=os.getuid(),
        st_gid=os.getgid(), st_mtime_ns=0, st_ctime_ns=0, st_blocks=-(-size // 512),
    )  # fmt: skip


def _fail(number: int, path: object = None) -> NoReturn:
    raise OSError(number, os.strerror(number), *([] if path is None else [path]))
