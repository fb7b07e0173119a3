"""Where a run is kept: what is needed of any such place, and a run in directories.

    read, store     the manifest, replaced as a whole or not at all
    files           where the shards of each array are
    records         where acquisition keep what they see
    hold            keep other processes from changing the run

In a directory the manifest is a file, replaced by renaming; `u` links to the folder of the current turn of u, as soon
as that has values; before, readers of Zarr see an array without chunks, that is of zeros. All names are opened beneath
descriptors of the run's directories, and no link is followed: links are for readers of Zarr. A further directory is
used only when it says itself that it belongs to this run. Block devices are the other kind of place (run/device).

Scratch files are room for the arrays that a pass keeps for itself: rows between blocks, and levels that are not final.
Such a file has no name once it is open, so it goes with the process however that ends.
"""

from __future__ import annotations

import os
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError
from outcrop.run.disk.acquisition_files import check_sizes
from outcrop.run.disk.contents import SCRATCH, array_folder, derived_files, outdated, shard_name, show_snapshots
from outcrop.run.disk.entries import ArrayEntry
from outcrop.run.disk.layout import index_parts
from outcrop.run.disk.manifest import MANIFEST, Manifest, read_manifest, read_member
from outcrop.run.disk.planes import FileBeneath, ShardFile

ScratchMaker: TypeAlias = Callable[[int], AbstractContextManager[Sequence[ShardFile]]]
"""Gives room for so many bytes, as no file or one, for as long as it takes to open it."""


class RunStorage(ABC):
    """The place at `path` that keeps a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def reopened(self) -> RunStorage:
        """The same place once more, with descriptors of its own."""
        return type(self)(self.path)

    @abstractmethod
    def read(self) -> Manifest:
        """The manifest that was committed last. Raises InputError when there is none."""

    @abstractmethod
    def store(self, manifest: Manifest) -> None:
        """Commit a manifest: after a crash at any moment the old or the new one is read. Raises StorageError."""

    @abstractmethod
    def files(self, manifest: Manifest, entry: ArrayEntry, turn: int) -> Sequence[ShardFile]:
        """The shards of an array of `manifest.copies`, in the order of their planes."""

    @abstractmethod
    def records(self, manifest: Manifest) -> Directory:
        """The directory of what acquisition keep. Raises StorageError when it is not there."""

    @abstractmethod
    def check(self, manifest: Manifest) -> None:
        """Raise StorageError unless all shards and records are there, in their full sizes, where the storage
        was opened."""

    @abstractmethod
    def hold(self, shared: bool = False) -> list[int]:
        """Descriptors that keep other processes away until they are closed, except those that share it. Raises
        InputError when another process is in the way."""

    @abstractmethod
    def in_use(self) -> bool:
        """Whether some process holds the run right now."""

    @abstractmethod
    def scratch(self, manifest: Manifest, count: int) -> AbstractContextManager[Sequence[ShardFile]]:
        """Room for `count` bytes that need not last: see above. Raises StorageError when there is none."""

    @abstractmethod
    def tidy(self, manifest: Manifest) -> None:
        """Make links and metadata say what the manifest does: a crash after a commit may have left them as they were
        before. Raises StorageError."""

    @abstractmethod
    def untidy(self, manifest: Manifest) -> list[str]:
        """Which of the files that follow from the manifest are not as it says, in words."""

    @abstractmethod
    def repair(self, manifest: Manifest) -> None:
        """Write all files that follow from the manifest again. Raises StorageError."""


def release(handles: Sequence[int]) -> None:
    """Close what `hold` returned."""
    for handle in handles:
        os.close(handle)


class RunFolder(RunStorage):
    """A run in its own directory, and perhaps in further ones."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._opened: Directory | None = None
        self._others: list[Directory] | None = None

    def read(self) -> Manifest:
        return read_manifest(self._directory)

    def store(self, manifest: Manifest) -> None:
        self._require_here(manifest)
        try:
            self._directory.replace(MANIFEST, manifest.to_bytes())
        except OSError as error:
            raise StorageError(f"cannot commit to {self.path / MANIFEST}: {error.strerror}") from error

    def files(self, manifest: Manifest, entry: ArrayEntry, turn: int) -> list[ShardFile]:
        """Names beneath descriptors."""
        directories = [self._directory, *self._further(manifest)]
        return [
            FileBeneath(place.handle, name, str(place.path / name))
            for place, name in _places(directories, manifest, entry, turn)
        ]

    def records(self, manifest: Manifest) -> Directory:
        """The run's own directory."""
        return self._directory

    def check(self, manifest: Manifest) -> None:
        self._require_here(manifest)
        directories = [self._directory, *self._further(manifest)]
        for entry, turn in manifest.copies:
            for shard, (place, name) in enumerate(_places(directories, manifest, entry, turn)):
                expected, path = manifest.layout.shard_bytes(shard), place.path / name
                try:
                    status = place.status(name)
                except OSError as error:
                    raise StorageError(f"{path} cannot be used: {error.strerror}") from None
                if status is None:
                    raise StorageError(f"{path} cannot be used: No such file or directory")
                if not stat.S_ISREG(status.st_mode):
                    raise StorageError(f"{path} is not a regular file; put back a copy of what was there")
                if status.st_size != expected:
                    raise StorageError(f"{path} has {status.st_size} bytes, {expected} belong there")
        check_sizes(self._directory, manifest)

    def hold(self, shared: bool = False) -> list[int]:
        handles = [self._directory.hold(shared)]
        if not self._directory.is_here():
            release(handles)
            raise InputError(f"{self.path} was moved or deleted; open the run where it is now")
        if not shared:
            try:
                self._directory.flush()  # a killed process may have renamed the manifest and not made that durable
            except OSError as error:
                release(handles)
                raise StorageError(f"{self.path} cannot be made durable: {error.strerror}") from None
        return handles

    def in_use(self) -> bool:
        try:
            release(self.hold(shared=True))
        except InputError:
            return True
        return False

    def scratch(self, manifest: Manifest, count: int) -> AbstractContextManager[Sequence[ShardFile]]:
        """A file without a name."""
        for name in self._directory.names():
            if name.startswith(SCRATCH):  # of a process that was killed before it had opened it
                self._directory.remove(name)
        return scratch_in(self._directory, count)

    def tidy(self, manifest: Manifest) -> None:
        """The links of the state's arrays, and the snapshots up to its step."""
        show_snapshots(self._directory, manifest)
        for entry in manifest.state:
            if not self._is_linked(manifest, entry):
                try:
                    self._directory.link(entry.name, array_folder(entry, manifest.current))
                except OSError as error:
                    raise StorageError(f"cannot link {self.path / entry.name}: {error.strerror}") from error

    def untidy(self, manifest: Manifest) -> list[str]:
        files = outdated(self._directory, derived_files(manifest))
        wrong = [f"{self.path / name} is not what belongs there" for name in files]
        wrong += [
            f"{self.path / entry.name} does not lead to {array_folder(entry, manifest.current)}"
            for entry in manifest.state
            if not self._is_linked(manifest, entry)
        ]
        links = self._shard_links(manifest).items()
        return wrong + [f"{self.path / name} does not lead to {to}" for name, to in links if self._leads(name) != to]

    def repair(self, manifest: Manifest) -> None:
        """The indices of shards, too."""
        own = self._directory
        try:
            for name, content in outdated(own, derived_files(manifest)).items():
                if folder := name.rpartition("/")[0]:
                    own.make_folder(folder)
                own.replace(name, content)
            for name, target in self._shard_links(manifest).items():
                if self._leads(name) != target:
                    own.make_folder(name.rpartition("/")[0])
                    own.link(name, target)
            for entry, turn in manifest.copies:
                for shard, (place, name) in enumerate(
                    _places([own, *self._further(manifest)], manifest, entry, turn)
                ):
                    offset = manifest.layout.records(shard) * manifest.layout.record_bytes
                    index = b"".join(index_parts(manifest.layout, shard))
                    with place.opened(name) as handle:
                        right = place.read_from(handle, offset, len(index)) == index
                    if not right:
                        place.write(name, offset, index)
        except OSError as error:
            raise StorageError(f"cannot repair {self.path}: {error.strerror} ({error.filename})") from error
        self.tidy(manifest)

    @property
    def _directory(self) -> Directory:
        """The run's own directory, opened when it is first needed. Raises InputError when there is none."""
        if self._opened is None:
            try:
                self._opened = Directory.open(self.path)
            except (FileNotFoundError, NotADirectoryError):
                raise InputError(f"{self.path} holds no Outcrop run ({MANIFEST} is missing)") from None
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise InputError(f"{self.path} cannot be read: {reason}") from None
        return self._opened

    def _further(self, manifest: Manifest) -> list[Directory]:
        if self._others is None:
            self._others = further_directories(self._directory, manifest)
        return self._others

    def _require_here(self, manifest: Manifest) -> None:
        """Raise StorageError when a directory is not any more where it was opened."""
        for place in (self._directory, *self._further(manifest)):
            if not place.is_here():
                raise StorageError(f"{place.path} was moved or deleted while the run was open; nothing is kept there")

    def _shard_links(self, manifest: Manifest) -> dict[str, str]:
        """Links to shards in further directories, and where they lead."""
        directories = [self._directory, *self._further(manifest)]
        every = [one for entry, turn in manifest.copies for one in _places(directories, manifest, entry, turn)]
        return {name: str(place.path.absolute() / name) for place, name in every if place is not self._directory}

    def _is_linked(self, manifest: Manifest, entry: ArrayEntry) -> bool:
        if entry.name not in manifest.filled:
            return True  # nothing to show yet
        return self._leads(entry.name) == array_folder(entry, manifest.current)

    def _leads(self, name: str) -> str | None:
        try:
            return self._directory.read_link(name)
        except OSError:
            return None


def further_directories(own: Directory, manifest: Manifest, must_be_there: bool = True) -> list[Directory]:
    """The directories of a run but its own, each of which says that it belongs to the run there. Raises StorageError
    for others, or leaves them out.

    What a manifest says of them may be a stranger's. A member belongs to the run whose directory it names; where that
    was moved, to the one that has its identity.
    """
    found = []
    for index, name in enumerate(manifest.directories[1:], start=1):
        try:
            found.append(_further_directory(own, manifest, index, Path(name)))
        except StorageError:
            if must_be_there:
                raise
    return found


def _further_directory(own: Directory, manifest: Manifest, index: int, path: Path) -> Directory:
    try:
        directory = Directory.open(path)
    except OSError as error:
        raise StorageError(f"{path}, which holds planes of {own.path}, cannot be used: {error.strerror}") from None
    member = read_member(directory)
    if member is None or (member.identity, member.index) != (manifest.identity, index):
        raise StorageError(f"{path} does not hold planes of the run in {own.path}; put back what was there")
    try:
        with Directory.open(Path(member.run)) as there:
            if not there.is_same(own) and read_manifest(there).identity == manifest.identity:
                raise StorageError(
                    f"{path} belongs to the run in {member.run}, of which {own.path} is a copy; go on with that one"
                )
    except (OSError, InputError):
        pass  # there is no run any more: it was moved here
    return directory


def _places(
    directories: Sequence[Directory], manifest: Manifest, entry: ArrayEntry, turn: int
) -> list[tuple[Directory, str]]:
    """Directory and name of each shard of a copy of an array."""
    folder, ndim = array_folder(entry, turn), len(manifest.shape)
    return [
        (directories[shard % len(directories)], f"{folder}/{shard_name(shard, ndim)}")
        for shard in range(manifest.layout.shards)
    ]


@contextmanager
def scratch_in(directory: Directory, count: int) -> Iterator[Sequence[ShardFile]]:
    """A file of `count` bytes in a directory; none for no bytes. Raises StorageError when there is no space."""
    if count == 0:
        yield []
        return
    name = f"{SCRATCH}{secrets.token_hex(8)}"
    try:
        directory.create(name, size=count)
    except OSError as error:
        raise StorageError(f"allocate {directory.path / name}: {error.strerror} ({count} bytes)") from None
    try:
        yield [FileBeneath(directory.handle, name, str(directory.path / name))]
    finally:
        directory.remove(name)


@contextmanager
def no_scratch(count: int) -> Iterator[Sequence[ShardFile]]:
    """For plans that keep nothing for themselves."""
    assert count == 0
    yield []
