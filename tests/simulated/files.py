"""Simulate files and folders in two versions: the version that processes see, and the version that remains after a
power cut.

    file      After a power cut, each page has any of its versions since the last fsync of the file, or a torn version.
              The size of the file is any of the sizes that it has had since this fsync.
    folder    A power cut keeps or loses each change of a name since the last fsync of the folder. A rename is kept or
              lost as a whole.
    fsync     The fsync of a file makes its content durable, but not its name. The fsync of a folder makes its names
              durable, but not the contents of its files.

POSIX guarantees only what is described above. For example, it does not guarantee the order of changes to different
files or names.
"""

from __future__ import annotations

import stat
from random import Random

PAGE_BYTES, SECTOR_BYTES = 4096, 512


class Inode:
    """A file, folder or link. `names` is the number of folder entries that lead to this object."""

    kind = 0

    def __init__(self, number: int, mode: int) -> None:
        self.number, self.mode, self.names = number, self.kind | mode, 0


class File(Inode):
    """A regular file. `versions` has the versions of each page since the last fsync, with the oldest version first. The
    newest version is not in this list. `lost` has the versions of pages that a failed fsync has marked as written.
    """

    kind = stat.S_IFREG

    def __init__(self, number: int, mode: int) -> None:
        super().__init__(number, mode)
        self.data = bytearray()
        self.versions: dict[int, list[bytes]] = {}
        self.lost: dict[int, list[bytes]] = {}
        self.sizes: list[int] = []

    def extend(self, size: int) -> None:
        """Extend the file with zeros."""
        if size > len(self.data):
            self.sizes.append(len(self.data))
            self.data.extend(bytes(size - len(self.data)))

    def write(self, offset: int, content: bytes) -> None:
        """Write bytes. Only the version that processes see changes."""
        end, data, versions = offset + len(content), self.data, self.versions
        if end > len(data):
            self.extend(end)
        for page in range(offset // PAGE_BYTES, -(-end // PAGE_BYTES)):
            if page not in versions:
                versions[page] = self.lost.pop(page, [])
            versions[page].append(bytes(data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]))
        data[offset:end] = content

    def cut(self) -> None:
        """Remove all content."""
        for page in range(-(-len(self.data) // PAGE_BYTES)):
            old = bytes(self.data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])
            self.versions.setdefault(page, []).append(old)
        self.sizes.append(len(self.data))
        self.data = bytearray()

    def flush(self) -> None:
        """Flush the file as fsync does."""
        self.versions.clear()
        self.sizes.clear()

    def fail_to_flush(self, random: Random) -> None:
        """Simulate an fsync that fails. The fsync does not write some pages, but the system then treats these pages as
        written."""
        for page in [page for page in self.versions if random.random() < 0.5]:
            self.lost[page] = self.versions.pop(page)

    def lose_power(self, random: Random, kept: float) -> None:
        """Simulate a power cut: replace the visible version by a version that the disk may have kept. `kept` is the
        probability that a page without a flush has its newest version on disk.
        """
        data, size = self.data, len(self.data)
        for page, older in (*self.versions.items(), *self.lost.items()):
            begin = page * PAGE_BYTES
            newest = bytes(data[begin : begin + PAGE_BYTES])
            choice = [*older, *([newest] if page in self.versions else [])]
            found = _pick(random, choice, kept)
            if random.random() < 0.2:
                found = _torn(random, found, random.choice(choice))
            if len(data) < begin + len(found):
                data.extend(bytes(begin + len(found) - len(data)))
            data[begin : begin + PAGE_BYTES] = found.ljust(min(PAGE_BYTES, len(data) - begin), b"\0")
        if self.sizes:
            size = _pick(random, [*self.sizes, size], kept)
        del data[size:]
        data.extend(bytes(size - len(data)))
        self.versions, self.lost, self.sizes = {}, {}, []


class Link(Inode):
    """A symbolic link."""

    kind = stat.S_IFLNK

    def __init__(self, number: int, target: str) -> None:
        super().__init__(number, 0o777)
        self.target = target


class Folder(Inode):
    """A folder. Processes see `entries`. `changes` has the changes of entries since the last fsync. `kept` is None if
    there are no such changes. Otherwise, it has the entries at the time of the last fsync.
    """

    kind = stat.S_IFDIR

    def __init__(self, number: int, mode: int, parent: Folder | None) -> None:
        super().__init__(number, mode)
        self.parent = parent or self
        self.entries: dict[str, Inode] = {}
        self.kept: dict[str, Inode] | None = None
        self.changes: list[Change] = []
        self.is_removed = False

    def flush(self) -> None:
        """Flush the folder as fsync does. A rename between two folders becomes durable in both folders."""
        for change in self.changes:
            change.become_kept(self)
        self.kept, self.changes = None, []


class Change:
    """A change of names: one name, or the two names of a rename. Each entry is a folder, a name in this folder, and the
    new target of the name."""

    __slots__ = ("entries",)

    def __init__(self, *entries: tuple[Folder, str, Inode | None]) -> None:
        self.entries = entries
        for folder in {id(folder): folder for folder, _, _ in entries}.values():
            if folder.kept is None:
                folder.kept = dict(folder.entries)
            folder.changes.append(self)
        _enter(((folder.entries, name, inode) for folder, name, inode in entries), count=True)

    def become_kept(self, flushed: Folder | None = None) -> None:
        """Make this change durable in all affected folders except `flushed`. The caller makes `flushed` durable."""
        _enter((folder.kept, name, inode) for folder, name, inode in self.entries if folder is not flushed)
        for folder in {id(folder): folder for folder, _, _ in self.entries if folder is not flushed}.values():
            folder.changes.remove(self)


def _enter(entries: object, count: bool = False) -> None:
    for names, name, inode in entries:
        old = names.pop(name, None)
        if inode is not None:
            names[name] = inode
        if count:
            if old is not None:
                old.names -= 1
            if inode is not None:
                inode.names += 1


def lose_power(root: Folder, random: Random) -> None:
    """Simulate a power cut: replace the content of all files and folders by a random version that a disk may have
    kept."""
    kept = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    seen: set[int] = set()
    folders = [root]
    reached: list[Inode] = [root]
    decided: dict[int, bool] = {}
    while folders:
        folder = folders.pop()
        if folder.changes:
            assert folder.kept is not None
            entries = folder.kept
            for change in folder.changes:
                if decided.setdefault(id(change), random.random() < kept):
                    _enter((entries, name, inode) for where, name, inode in change.entries if where is folder)
            folder.entries = entries
        for inode in folder.entries.values():
            if inode.number in seen:
                continue  # only one of the two folders of a rename has reached the disk
            seen.add(inode.number)
            reached.append(inode)
            if isinstance(inode, Folder):
                inode.parent = folder
                folders.append(inode)
    for inode in reached:
        inode.names = 0
        if isinstance(inode, File):
            inode.lose_power(random, kept)
        elif isinstance(inode, Folder):
            inode.kept, inode.changes, inode.is_removed = None, [], False
    for folder in reached:
        if isinstance(folder, Folder):
            for inode in folder.entries.values():
                inode.names += 1


def _pick(random: Random, versions: list, kept: float):
    """With probability `kept`, return the newest version. Otherwise, return an earlier version."""
    if random.random() < kept:
        return versions[-1]
    return random.choice(versions) if kept else versions[0]


def _torn(random: Random, first: bytes, second: bytes) -> bytes:
    """Return a torn page: the beginning of the first version and the end of the second."""
    at = random.randrange(PAGE_BYTES)
    if random.random() < 0.5:
        at -= at % SECTOR_BYTES
    if len(first) < at:
        first = first.ljust(at, b"\0")
    return first[:at] + second[at:]
