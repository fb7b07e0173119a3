"""Files and folders in two versions: what processes see, and what a disk may keep of it when power fails.

    file      of each page any version since the last fsync of the file, perhaps torn; any size it had since then
    folder    of the names any of those that were changed since the last fsync of the folder; a rename as a whole
    fsync     that file or folder is kept from then on; of a file not its name, of a folder not what it holds

That is what POSIX promises, and no more: no order among files, none among names.
"""

from __future__ import annotations

import stat
from random import Random

PAGE_BYTES, SECTOR_BYTES = 4096, 512


class Inode:
    """A file, folder or link. `names` are how many folders' entries lead to it."""

    kind = 0

    def __init__(self, number: int, mode: int) -> None:
        self.number, self.mode, self.names = number, self.kind | mode, 0


class File(Inode):
    """A regular file. `versions` are those of its pages since the last fsync, oldest first, without the present one;
    `lost` are those of pages that a failed fsync took for written."""

    kind = stat.S_IFREG

    def __init__(self, number: int, mode: int) -> None:
        super().__init__(number, mode)
        self.data = bytearray()
        self.versions: dict[int, list[bytes]] = {}
        self.lost: dict[int, list[bytes]] = {}
        self.sizes: list[int] = []

    def extend(self, size: int) -> None:
        """Make it longer, by zeros."""
        if size > len(self.data):
            self.sizes.append(len(self.data))
            self.data.extend(bytes(size - len(self.data)))

    def write(self, offset: int, content: bytes) -> None:
        """Change what processes see."""
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
        """What fsync does."""
        self.versions.clear()
        self.sizes.clear()

    def fail_to_flush(self, random: Random) -> None:
        """What an fsync does that fails: pages that it could not write count as written from then on."""
        for page in [page for page in self.versions if random.random() < 0.5]:
            self.lost[page] = self.versions.pop(page)

    def lose_power(self, random: Random, kept: float) -> None:
        """Let the disk's version be what is seen; `kept` of what was not flushed is there."""
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
    """`entries` are seen; `kept` were there at the last fsync, None when they are the same; `changes` came after."""

    kind = stat.S_IFDIR

    def __init__(self, number: int, mode: int, parent: Folder | None) -> None:
        super().__init__(number, mode)
        self.parent = parent or self
        self.entries: dict[str, Inode] = {}
        self.kept: dict[str, Inode] | None = None
        self.changes: list[Change] = []
        self.is_removed = False

    def flush(self) -> None:
        """What fsync does. A rename between two folders is kept in both."""
        for change in self.changes:
            change.become_kept(self)
        self.kept, self.changes = None, []


class Change:
    """Names that change together: (folder, name, what it leads to from then on)."""

    __slots__ = ("entries",)

    def __init__(self, *entries: tuple[Folder, str, Inode | None]) -> None:
        self.entries = entries
        for folder in {id(folder): folder for folder, _, _ in entries}.values():
            if folder.kept is None:
                folder.kept = dict(folder.entries)
            folder.changes.append(self)
        _enter(((folder.entries, name, inode) for folder, name, inode in entries), count=True)

    def become_kept(self, flushed: Folder | None = None) -> None:
        """Be on disk, in all folders but the one that is flushed as a whole."""
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
    """Let what a disk has kept be all there is."""
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
                continue  # a rename between folders of which one was not reached
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
    """The newest of some versions, or an earlier one."""
    if random.random() < kept:
        return versions[-1]
    return random.choice(versions) if kept else versions[0]


def _torn(random: Random, first: bytes, second: bytes) -> bytes:
    """Return the beginning of one version and the end of another."""
    at = random.randrange(PAGE_BYTES)
    if random.random() < 0.5:
        at -= at % SECTOR_BYTES
    if len(first) < at:
        first = first.ljust(at, b"\0")
    return first[:at] + second[at:]
