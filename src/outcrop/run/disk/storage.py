"""The storage of a run: the interface `RunStorage`, and its implementation `RunFolder` for runs in directories.

    read, store     the manifest, which is replaced completely or not at all
    files           the shards of each array
    records         the directory of acquisition
    hold            keep other processes from changing the run

In a directory, the manifest is a file that is replaced by renaming. As soon as the field u has values, `u` is a link to
the folder of the current copy. Only readers of Zarr use the link `u`. Without the link `u`, readers of Zarr would see
an array of zeros. All files are opened relative to descriptors of the run's directories, and links are not followed. A
further directory is used only if its MEMBER file says that the directory belongs to this run. The code for the storage
on block devices is in `run/device`.

Scratch files hold the temporary arrays of a pass: rows that the next block needs, and values of levels before the last
level. The name of a scratch file is removed as soon as the file is open. So Linux frees a scratch file when the process
closes the file, or when the process ends."""

from __future__ import annotations

import os
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path, PurePath
from typing import TypeAlias

from outcrop.durable import Directory, flush_parents
from outcrop.errors import InputError, StorageError, os_errors_as
from outcrop.paths import refuse_url
from outcrop.run.disk.acquisition_files import check_sizes, has_freed_history, remove_freed_history
from outcrop.run.disk.contents import (
    SCRATCH,
    SNAPSHOTS,
    array_folder,
    derived_files,
    outdated,
    shard_name,
    show_snapshots,
)
from outcrop.run.disk.entries import HISTORY, ArrayEntry
from outcrop.run.disk.layout import PlaneLayout, index_parts
from outcrop.run.disk.manifest import MANIFEST, MEMBER, Manifest, read_manifest, read_member
from outcrop.run.disk.planes import FileBeneath, ShardFile

ScratchMaker: TypeAlias = Callable[[int], AbstractContextManager[Sequence[ShardFile]]]
"""A function that takes a number of bytes and returns a context manager. The context manager yields temporary space: a
list with one file, or an empty list."""


class RunStorage(ABC):
    """The interface to the storage of a run at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def reopened(self) -> RunStorage:
        """Return another object for the same storage. The new object has its own file descriptors."""
        return type(self)(self.path)

    @abstractmethod
    def read(self) -> Manifest:
        """Return the manifest of the last commit. Raises InputError when the storage holds no run."""

    @abstractmethod
    def store(self, manifest: Manifest) -> None:
        """Commit a manifest. After a crash, a reader finds the complete old or new manifest. Raises StorageError."""

    @abstractmethod
    def files(self, manifest: Manifest, entry: ArrayEntry, copy: int) -> Sequence[ShardFile]:
        """Return the shards of one copy of an array, in the order of their planes."""

    @abstractmethod
    def records(self, manifest: Manifest) -> Directory:
        """Return the directory with the files of acquisition. Raises StorageError when the directory with the files of
        acquisition is missing."""

    @abstractmethod
    def check(self, manifest: Manifest, spare: bool = False) -> None:
        """Raise StorageError if a shard or a record is missing or too short, or if the storage was moved. If `spare` is
        false, shards without committed values are not checked."""

    def lost_shards(self, manifest: Manifest) -> dict[str, str]:
        """Return a message for each shard with committed values that is missing or has a wrong size. The keys of the
        result are the labels of the shards. If shards are not files, the result is empty. Raises StorageError if the
        storage was moved."""
        return {}

    @abstractmethod
    def hold(self, shared: bool = False) -> list[int]:
        """Lock the run and return the descriptors of the lock. When the descriptors are closed, the lock is released.
        Several processes can have a `shared` lock at the same time. Raises InputError when another process has the
        lock."""

    @abstractmethod
    def in_use(self) -> bool:
        """Return True if a process holds the lock of the run."""

    @abstractmethod
    def scratch(self, manifest: Manifest, count: int) -> AbstractContextManager[Sequence[ShardFile]]:
        """Return a context manager that yields files with `count` bytes of temporary space. Raises StorageError if
        there is no room."""

    def flush_names(self, manifest: Manifest) -> None:  # noqa: B027  devices have no names
        """Make the names of all files and directories of a run without values durable. The process that created the run
        was possibly killed before it flushed the names. Raises StorageError."""

    @abstractmethod
    def tidy(self, manifest: Manifest) -> None:
        """Make links and metadata agree with the manifest. After a crash, links and metadata can belong to an earlier
        commit. Make each missing shard again that has no committed values. Raises StorageError."""

    @abstractmethod
    def untidy(self, manifest: Manifest) -> list[str]:
        """Return a line of text for each derived file or link that is wrong."""

    @abstractmethod
    def repair(self, manifest: Manifest) -> None:
        """Write wrong derived files and links again. Missing shards stay missing. Raises StorageError."""


def release(handles: Sequence[int]) -> None:
    """Close the descriptors in `handles`, which `hold` has returned."""
    for handle in handles:
        os.close(handle)


class RunFolder(RunStorage):
    """A run in directories. The run's own directory has the manifest. Further directories have only shards and a MEMBER
    file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._opened: Directory | None = None
        self._others: list[Directory] | None = None

    def read(self) -> Manifest:
        return read_manifest(self._directory)

    def store(self, manifest: Manifest) -> None:
        self._require_here(manifest)
        with os_errors_as(StorageError, f"cannot commit to {self.path / MANIFEST}"):
            self._directory.replace(MANIFEST, manifest.to_bytes())

    def files(self, manifest: Manifest, entry: ArrayEntry, copy: int) -> list[ShardFile]:
        places = self._places(manifest, entry, copy)
        return [FileBeneath(place.handle, name, str(place.path / name)) for place, name in places]

    def records(self, manifest: Manifest) -> Directory:
        return self._directory

    def check(self, manifest: Manifest, spare: bool = False) -> None:
        for text in self.lost_shards(manifest).values():
            raise StorageError(text)
        for *_, text in self._unusable(manifest, is_spare=True) if spare else ():
            raise StorageError(text)
        check_sizes(self._directory, manifest)

    def lost_shards(self, manifest: Manifest) -> dict[str, str]:
        self._require_here(manifest)
        return {str(place.path / name): text for _, place, name, text in self._unusable(manifest, is_spare=False)}

    def _unusable(self, manifest: Manifest, is_spare: bool) -> Iterator[tuple[int, Directory, str, str]]:
        """Yield four values for each shard that is missing or has a wrong size: its number, its directory, its path,
        and a message. If `is_spare` is true, yield only unusable shards without committed values. If `is_spare` is
        false, yield only unusable shards with committed values."""
        for shard, place, name in self._shards(manifest, is_spare):
            expected, path, text = manifest.layout.shard_bytes(shard), place.path / name, ""
            try:
                with os_errors_as(StorageError, f"{path} cannot be used"):
                    status = place.status(name)
                if status is None:
                    text = f"{path} cannot be used: No such file or directory"
                elif not stat.S_ISREG(status.st_mode):
                    text = f"{path} is not a regular file; restore a copy of the original file"
                elif status.st_size != expected:
                    text = f"{path} has {status.st_size} bytes, not {expected}"
            except StorageError as error:
                text = str(error)
            if text:
                yield shard, place, name, text

    def hold(self, shared: bool = False) -> list[int]:
        handles = [self._directory.hold(shared)]
        if not self._directory.is_here():
            release(handles)
            raise InputError(f"{self.path} was moved or deleted; open the run where it is now")
        if not shared:
            try:
                # A process may have been killed after it renamed the manifest, but before it flushed the directory.
                # After a kill at that time, the new manifest is possibly not durable yet. Therefore the directory is
                # flushed again.
                self._directory.flush()
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
        for name in self._directory.names():
            if name.startswith(SCRATCH):  # a killed process has left this file
                self._directory.remove(name)
        return scratch_in(self._directory, count)

    def flush_names(self, manifest: Manifest) -> None:
        with os_errors_as(StorageError, f"{self.path} cannot be made durable", names_file=True):
            for place in (self._directory, *self._further(manifest)):
                place.flush_all()
                flush_parents(place.path)

    def tidy(self, manifest: Manifest) -> None:
        lost = list(self._unusable(manifest, is_spare=True))
        for shard, place, name, text in lost:
            with os_errors_as(StorageError, f"{text}; it cannot be made again"):
                if (status := place.status(name)) is not None and not stat.S_ISREG(status.st_mode):
                    raise StorageError(text)
                place.remove(name)
                make_shard(place, manifest.layout, shard, name)
                for folder in PurePath(name).parents:  # the name must be durable before values are committed
                    place.flush(str(folder) if folder.name else "")
        if lost:
            self._link_shards(manifest)
        show_snapshots(self._directory, manifest)
        remove_freed_history(self._directory, manifest)
        for place in self._further(manifest):
            member = read_member(place)
            if member is not None and not self._directory.is_here(Path(member.run)):  # the run was moved to `self.path`
                place.replace(MEMBER, replace(member, run=str(self.path.absolute())).to_bytes())
        for entry in manifest.state:
            if not self._is_linked(manifest, entry):
                with os_errors_as(StorageError, f"cannot link {self.path / entry.name}"):
                    try:
                        self._directory.link(entry.name, array_folder(entry, manifest.current))
                    except IsADirectoryError:
                        raise StorageError(f"{self._copied(entry)}: outcrop verify --repair {self.path}") from None

    def untidy(self, manifest: Manifest) -> list[str]:
        files = outdated(self._directory, derived_files(manifest))
        wrong = [f"{self.path / name} is not what belongs there" for name in files]
        for entry in manifest.state:
            if not self._is_linked(manifest, entry):
                is_copy = (status := self._directory.status(entry.name)) is not None and stat.S_ISDIR(status.st_mode)
                target = array_folder(entry, manifest.current)
                wrong.append(self._copied(entry) if is_copy else f"{self.path / entry.name} does not lead to {target}")
        wrong += [f"{text} (without committed values)" for *_, text in self._unusable(manifest, is_spare=True)]
        if has_freed_history(self._directory, manifest):
            wrong.append(f"{self.path / SNAPSHOTS / HISTORY} holds states that were freed")
        links = self._shard_links(manifest).items()
        return wrong + [f"{self.path / name} does not lead to {to}" for name, to in links if self._leads(name) != to]

    def repair(self, manifest: Manifest) -> None:
        """Write derived files, links and indices of shards again if they are wrong. Shards that cannot be read are not
        changed. `find_damage` reports shards that cannot be read."""
        own, layout = self._directory, manifest.layout
        with os_errors_as(StorageError, f"cannot repair {self.path}", names_file=True):
            for name, content in outdated(own, derived_files(manifest)).items():
                if folder := name.rpartition("/")[0]:
                    own.make_folder(folder)
                own.replace(name, content)
            self._link_shards(manifest)
            for shard, place, name in self._shards(manifest):
                offset, index = layout.records(shard) * layout.record_bytes, b"".join(index_parts(layout, shard))
                try:
                    with place.opened(name) as handle:
                        right = place.read_from(handle, offset, len(index)) == index
                except (OSError, StorageError):
                    continue
                if not right:
                    place.write(name, offset, index)
        self.tidy(manifest)

    @property
    def _directory(self) -> Directory:
        """The run's own directory, which is opened when it is first used. Raises InputError when the directory does not
        exist."""
        if self._opened is None:
            try:
                self._opened = Directory.open(self.path)
            except FileNotFoundError:
                refuse_url(self.path)
                raise InputError(f"{self.path} holds no Outcrop run: there is no such directory") from None
            except NotADirectoryError:
                refuse_url(self.path)
                raise InputError(f"{self.path} holds no Outcrop run: it is not a directory") from None
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise InputError(f"{self.path} cannot be read: {reason}") from None
        return self._opened

    def _further(self, manifest: Manifest) -> list[Directory]:
        if self._others is None:
            self._others = further_directories(self._directory, manifest)
        return self._others

    def _require_here(self, manifest: Manifest) -> None:
        """Raise StorageError when a directory of the run was moved or deleted after it was opened."""
        for place in (self._directory, *self._further(manifest)):
            if not place.is_here():
                raise StorageError(f"{place.path} was moved or deleted while the run was open; nothing is kept there")

    def _copied(self, entry: ArrayEntry) -> str:
        return (
            f"{self.path / entry.name} is a directory, but must be a link, because the run was copied without its "
            "links; remove this directory, and then repair the run"
        )

    def _link_shards(self, manifest: Manifest) -> None:
        for name, target in self._shard_links(manifest).items():
            if self._leads(name) != target:
                self._directory.make_folder(name.rpartition("/")[0])
                self._directory.link(name, target)

    def _shard_links(self, manifest: Manifest) -> dict[str, str]:
        """Return a dictionary with the links to shards in further directories. The dictionary maps the path of each
        link to the target of the link."""
        shards = self._shards(manifest)
        return {name: str(place.path.absolute() / name) for _, place, name in shards if place is not self._directory}

    def _places(self, manifest: Manifest, entry: ArrayEntry, copy: int) -> list[tuple[Directory, str]]:
        """Return the directory and the path of each shard. The shards belong to one copy of one array."""
        directories = [self._directory, *self._further(manifest)]
        names = [f"{array_folder(entry, copy)}/{shard_name(shard, len(manifest.shape))}"
                 for shard in range(manifest.layout.shards)]  # fmt: skip
        return list(zip(cycle(directories), names, strict=False))

    def _shards(self, manifest: Manifest, is_spare: bool | None = None) -> Iterator[tuple[int, Directory, str]]:
        """Yield the number, the directory and the path of each shard of all arrays. If `is_spare` is given, yield only
        the shards of spare copies (`Manifest.is_spare`), or only the shards of the other copies."""
        for entry, copy in manifest.copies:
            if is_spare in (None, manifest.is_spare(entry, copy)):
                for shard, (place, name) in enumerate(self._places(manifest, entry, copy)):
                    yield shard, place, name

    def _is_linked(self, manifest: Manifest, entry: ArrayEntry) -> bool:
        if entry.name not in manifest.filled:
            return True  # an array without values needs no link
        return self._leads(entry.name) == array_folder(entry, manifest.current)

    def _leads(self, name: str) -> str | None:
        try:
            return self._directory.read_link(name)
        except OSError:
            return None


def make_shard(place: Directory, layout: PlaneLayout, shard: int, name: str) -> None:
    """Create a shard without values, with its full size and its index. Raises OSError."""
    place.make_folder(name.rpartition("/")[0])
    place.create(name, size=layout.shard_bytes(shard))
    with place.opened(name, os.O_RDWR) as handle:
        offset = layout.records(shard) * layout.record_bytes
        for part in index_parts(layout, shard):
            offset += place.write_to(handle, offset, part)
        place.flush_file(handle)  # make the size durable now, because values may be written much later


def further_directories(own: Directory, manifest: Manifest, must_be_there: bool = True) -> list[Directory]:
    """Return the further directories of a run. Each directory must have a MEMBER file that names the run, because the
    manifest alone cannot be trusted. If a directory has no such MEMBER file, the function raises StorageError. If
    `must_be_there` is False, the function leaves out directories without such a file, and raises no error.

    The MEMBER file contains an identity, a number of the directory, and the path of the run. In the MEMBER file, the
    identity and the number must be right. In the MEMBER file, the path can be wrong, because the user can move the run.
    But if the same run is still at the path in the MEMBER file, `own` is a copy of the run, and the function raises
    StorageError."""
    found = []
    for index, name in enumerate(manifest.directories[1:], start=1):
        try:
            found.append(_further_directory(own, manifest, index, Path(name)))
        except StorageError:
            if must_be_there:
                raise
    return found


def _further_directory(own: Directory, manifest: Manifest, index: int, path: Path) -> Directory:
    with os_errors_as(StorageError, f"{path}, which holds planes of {own.path}, cannot be used"):
        directory = Directory.open(path)
    member = read_member(directory)
    if member is None or (member.identity, member.index) != (manifest.identity, index):
        raise StorageError(f"{path} does not hold planes of the run in {own.path}; restore its original content")
    try:
        with Directory.open(Path(member.run)) as there:
            if not there.is_same(own) and read_manifest(there).identity == manifest.identity:
                raise StorageError(
                    f"{path} belongs to the run in {member.run}, of which {own.path} is a copy; open the original"
                )
    except (OSError, InputError):
        pass  # no run is at `member.run` any more, so the run was moved to `own`
    return directory


@contextmanager
def scratch_in(directory: Directory, count: int) -> Iterator[Sequence[ShardFile]]:
    """Create a temporary file of `count` bytes in a directory, and yield a list with this file. When the `with` block
    ends, the file is removed. If `count` is 0, make no file and yield an empty list. Raises StorageError when the
    storage has no space."""
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
    """The `ScratchMaker` for plans that need no temporary space. This function yields an empty list."""
    assert count == 0
    yield []
