"""Make the directories and files of a new run: all of them, or nothing when it cannot be.

    check ──► make directories ──► hold ──► check again ──► manifest ──► clear the old run ──► files ──► first values
                                   └──────────────────────── until the caller is done ────────────────────────────┘

    check     kinds, duplicates, permission, space; what is there           nothing is changed
    hold      made where they are missing, and locked                       a process without the lock changes nothing
    clear     files of an older run, as far as they are listed (contents)

The lock comes before anything in a directory is changed, and a process that does not get it removes nothing. The first
thing made is a manifest without values: it takes the place of an older run's in one step, and a process that finds it
after a crash knows that there is nothing to lose. Files are allocated to their full size here and never extended later.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from outcrop.durable import Directory, flush_parents, sealed
from outcrop.errors import InputError, StorageError
from outcrop.paths import make_directory, nearest_existing, remove_made, require_directory
from outcrop.run.disk.acquisition_files import Definitions, write_acquisition_files
from outcrop.run.disk.contents import (
    array_folder,
    array_folders,
    derived_files,
    files_below,
    files_of_run,
    shard_name,
    top_names,
)
from outcrop.run.disk.layout import index_parts
from outcrop.run.disk.manifest import (
    MANIFEST,
    MEMBER,
    NEW,
    Description,
    Manifest,
    Member,
    read_manifest,
    read_member,
)
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder, further_directories
from outcrop.units import format_bytes

_SLACK_BYTES = 1 << 20
"""Room for metadata, beside the arrays."""

_BEGUN = (f"{MANIFEST}.tmp", f"{MEMBER}.tmp")
"""All that a process has made that was killed while it made a run."""

_ATTEMPTS = 10
"""Directories that another process removes while it gives up are made once more."""


@contextlib.contextmanager
def created_in(
    directories: list[Path], manifest: Manifest, force: bool, definitions: Definitions
) -> Iterator[State]:
    """Make the directories and files of a run without values, with what `definitions` say of its sources and receivers.
    The caller commits the first values inside the `with`, which holds the run.

    Of the directories only what they hold is checked here. InputError leaves all as it was. Whatever ends the `with`
    early takes away again what was made. With `force` an older run there is replaced. Raises StorageError when the
    system refuses what had seemed possible.
    """
    with hold_directories(directories) as (taken, locks, made):
        own = taken[0]
        try:
            check_contents(dict(enumerate(taken)), manifest, force)
            with _errors_named(own.path):
                old = read_manifest(own) if own.status(MANIFEST) else None
                before = further_directories(own, old, must_be_there=False) if old else []
        except BaseException:
            remove_made(made)
            raise
        state = State(RunFolder(own.path), manifest)
        try:
            with _errors_named(own.path):
                own.replace(MANIFEST, manifest.to_bytes())  # from here on the old run is gone, in one step
                if old is not None:
                    clear(own, old)
                for directory in (*before, *taken[1:]):
                    clear_share(directory)
                _make_files(taken, manifest, definitions)
                for directory in taken:
                    flush_parents(directory.path)
            with state.locked(locks):
                yield state
        except BaseException:
            if not state.has_values:
                with contextlib.suppress(OSError, StorageError):
                    clear(own, manifest)
                    for directory in taken[1:]:
                        clear_share(directory)
                    own.flush()  # while the manifest is there, what is left of the run may be removed
                    own.remove(MANIFEST)
                remove_made(made)
            raise


def check_creation(directories: list[Path], description: Description, force: bool) -> None:
    """Raise InputError unless `created_in` would work; changes nothing.

    Checked: kinds, duplicates, contents, permission, free space (counting what `force` would replace).
    """
    if description.records:
        raise InputError(f"records {description.records}: a run in a directory keeps them there; leave it out")
    check_directories(directories, description, _needed_bytes(directories, description), force)
    if force and directories[0].is_dir():
        with Directory.open(directories[0]) as own:
            own.release(own.hold(shared=True))


def _needed_bytes(directories: list[Path], description: Description) -> list[int]:
    needed = [0] * len(directories)
    for shard in range(description.layout.shards):
        needed[shard % len(directories)] += len(description.copies) * description.layout.shard_bytes(shard)
    return needed


@contextlib.contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot create the run in {path}: {error.strerror} ({error.filename})") from error


def _make_files(directories: list[Directory], manifest: Manifest, definitions: Definitions) -> None:
    own = directories[0]
    for index, directory in enumerate(directories[1:], start=1):
        directory.replace(MEMBER, member_bytes(index, own.path, manifest))
    for entry, turn in manifest.copies:
        _make_shards(directories, manifest, array_folder(entry, turn))
    for name, content in derived_files(manifest).items():
        own.put(name, content)
    write_acquisition_files(own, manifest, definitions)
    for directory in directories:
        directory.flush_all()


def _make_shards(directories: list[Directory], manifest: Manifest, folder: str) -> None:
    """Make the shards of one copy of an array, and links for readers of Zarr where they lie elsewhere."""
    layout, own = manifest.layout, directories[0]
    for shard in range(layout.shards):
        name, place = f"{folder}/{shard_name(shard, len(manifest.shape))}", directories[shard % len(directories)]
        for directory in dict.fromkeys((own, place)):
            directory.make_folder(name.rpartition("/")[0])
        place.create(name, size=layout.shard_bytes(shard))
        with place.opened(name, os.O_RDWR) as handle:
            offset = layout.records(shard) * layout.record_bytes
            for part in index_parts(layout, shard):
                offset += place.write_to(handle, offset, part)
            place.flush_file(handle)  # an array may be without values for long, and its size counts
        if place is not own:
            own.link(name, str(place.path.absolute() / name))


def check_directories(directories: list[Path], description: Description, needed_bytes: list[int], force: bool) -> None:
    """Raise InputError unless the run can be created there; `needed_bytes` for each directory.

    Checked: kinds, duplicates, contents, permission, free space (counting what `force` would replace).
    """
    seen: dict[Path, Path] = {}
    for directory in directories:
        try:
            real = directory.resolve(strict=False)
        except (OSError, RuntimeError):
            raise InputError(f"directory {directory} cannot be used: its links lead in a circle") from None
        if real in seen:
            raise InputError(f"directory {directory} is given twice (also as {seen[real]}); each must be another")
        seen[real] = directory
    for directory in directories:
        require_directory(directory)
    with contextlib.ExitStack() as stack:
        there = {}
        for index, path in enumerate(directories):
            if path.is_dir():
                there[index] = stack.enter_context(open_directory(path))
        check_contents(there, description, force)
        _check_space(directories, needed_bytes, _freed_bytes(there))


def check_contents(there: dict[int, Directory], description: Description, force: bool) -> None:
    """Raise InputError unless the run may take the directories `there`, by their places among those of the run: they
    are empty, or hold what it may replace."""
    own = there.get(0)
    old = read_manifest(own) if own is not None and own.status(MANIFEST) else None
    if own is not None and old is not None and old.phase != NEW and not force:
        raise InputError(f"directory {what_is_there(own.path, old)}")
    for index, directory in there.items():
        if old is None or index > 0:
            _check_contents_of_one(directory, force, old.identity if old else "")
    if own is None:
        return
    if old is not None and (foreign := files_of_run(own, old)[1]):
        raise InputError(f"directory {own.path} holds something that is not the run's ({foreign[0]}); move it away")
    for name in sorted(top_names(description) - (top_names(old) if old else set())):
        if own.status(name) is not None:
            raise InputError(f"directory {own.path} holds something else ({name}); give a new or empty one")


@contextlib.contextmanager
def hold_directories(directories: Sequence[Path]) -> Iterator[tuple[list[Directory], list[int], list[Path]]]:
    """The directories, made where they are missing; descriptors that hold them, closed in the end; and which were made,
    parents first. Raises InputError when one cannot be made, or is in use by another process."""
    made: list[Path] = []
    with contextlib.ExitStack() as stack:
        taken: list[Directory] = []
        locks: list[int] = []
        for path in directories:
            for _ in range(_ATTEMPTS):
                made += [one for one in make_directory(path) if one not in made]
                try:
                    directory = open_directory(path)
                except InputError:  # removed by the process that had made it
                    continue
                lock = directory.hold()
                if directory.is_here():
                    break
                directory.release(lock)
                directory.close()
            else:
                raise InputError(f"directory {path} is made and removed by other processes; give another one")
            stack.callback(directory.release, lock)
            taken.append(directory)
            locks.append(lock)
        yield taken, locks, made


def open_directory(path: Path) -> Directory:
    """A directory held open. Raises InputError."""
    try:
        return Directory.open(path)
    except OSError as error:
        raise InputError(f"directory {path} cannot be used: {error.strerror}") from None


def member_bytes(index: int, directory: Path, manifest: Manifest) -> bytes:
    """Content of MEMBER in further directory `index` of the run in `directory`."""
    return seal_member(Member(manifest.identity, str(directory.absolute()), index, tuple(array_folders(manifest))))


def seal_member(member: Member) -> bytes:
    """The content of MEMBER."""
    return sealed(msgspec.to_builtins(member))


def clear(directory: Directory, old: Manifest) -> None:
    """Remove the files of the run `old` from its own directory, which this process holds; the manifest stays."""
    directory.remove_files(files_of_run(directory, old)[0])
    for name in sorted(top_names(old)):
        directory.remove_empty(name)


def clear_share(directory: Directory) -> None:
    """Remove what a run keeps in one of its further directories; nothing where there is no such thing."""
    if member := read_member(directory):
        directory.remove_files(files_below(directory, member.folders)[0])
        for name in member.folders:
            directory.remove_empty(name)
        directory.flush()
        directory.remove(MEMBER)


def _check_contents_of_one(directory: Directory, force: bool, replaced: str) -> None:
    """Raise InputError when anything is there but a share of the run `replaced` or, if forced, of one that is gone."""
    try:
        names = [name for name in directory.names() if name not in _BEGUN]
    except OSError as error:
        raise InputError(f"directory {directory.path} cannot be read: {error.strerror}") from None
    member, path = read_member(directory), directory.path
    if member and MANIFEST not in names:
        foreign = files_below(directory, member.folders)[1]
        foreign += [name for name in names if name != MEMBER and name not in member.folders]
        if foreign:
            raise InputError(f"directory {path} holds something else ({foreign[0]}); give a new or empty one")
        if member.identity == replaced:
            return
        if _is_alive(member):
            raise InputError(f"directory {path} belongs to another run, {member.run}; give another one")
        if not force:
            raise InputError(f"directory {path} holds planes of a run that is gone; replace them with --force")
    elif names:
        what = "another run" if MANIFEST in names else f"something else ({names[0]})"
        raise InputError(f"directory {path} holds {what}; give a new or empty one")


def _is_alive(member: Member) -> bool:
    """Whether the run that a member names still is one of which this is a member; one on a device is not looked at."""
    if os.path.exists(member.run) and not os.path.isdir(member.run):
        return True
    try:
        with open_directory(Path(member.run)) as directory:
            return read_manifest(directory).identity == member.identity
    except InputError:
        return False


def what_is_there(place: Path, old: Manifest) -> str:
    """The place, that it holds the run `old`, and what one can do about it."""
    name = old.stencil.get("name", "a stencil")
    if old.step < old.target_step:
        what = f"an unfinished run of {name} (step {old.step} of {old.target_step}); continue it with 'outcrop resume"
    else:
        what = f"a run of {name} at step {old.step}; look at it with 'outcrop info"
    return f"{place} holds {what} {place}' or replace it with --force"


def _freed_bytes(there: dict[int, Directory]) -> dict[int, int]:
    """Bytes that go when what is there is replaced, by device."""
    total: dict[int, int] = {}
    for index, directory in there.items():
        member = read_member(directory)
        files = files_below(directory, member.folders)[0] if member else []
        if index == 0 and directory.status(MANIFEST):
            files += files_of_run(directory, read_manifest(directory))[0]
        for name in files:
            status = directory.status(name)
            if status is not None and stat.S_ISREG(status.st_mode):
                total[status.st_dev] = total.get(status.st_dev, 0) + status.st_blocks * 512
    return total


def _check_space(directories: list[Path], needed_bytes: list[int], freed: dict[int, int]) -> None:
    needed: dict[int, int] = {}
    example: dict[int, Path] = {}
    for directory, count in zip(directories, needed_bytes, strict=True):
        existing = nearest_existing(directory)
        device = existing.stat().st_dev
        needed[device] = needed.get(device, 0) + count + _SLACK_BYTES
        example.setdefault(device, existing)
    for device, count in needed.items():
        room = os.statvfs(example[device])
        free = room.f_bavail * room.f_frsize + freed.get(device, 0)
        if count > free:
            raise InputError(
                f"no space: the run needs {format_bytes(count)} in {example[device]}, {format_bytes(free)} are free; "
                "use another directory, a smaller grid, or --in-place for about half of it"
            )
