"""What must be true of the directories of a new run, and how they are made, held and cleared.

    check     kinds, duplicates, permission, space; what is there           nothing is changed
    hold      made where they are missing, and locked                       a process without the lock changes nothing
    clear     files of an older run, as far as they are listed (contents)
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from outcrop.durable import Directory, sealed
from outcrop.errors import InputError
from outcrop.paths import make_directory, nearest_existing, require_directory
from outcrop.run.device import use as device_use
from outcrop.run.disk.contents import array_folders, files_below, files_of_run, top_names
from outcrop.run.disk.manifest import MANIFEST, MEMBER, NEW, Description, Manifest, Member, read_manifest, read_member
from outcrop.units import format_bytes

_SLACK_BYTES = 1 << 20
"""Room for metadata, beside the arrays."""

_BEGUN = (f"{MANIFEST}.tmp", f"{MEMBER}.tmp")
"""All that a process has made that was killed while it made a run."""

_ATTEMPTS = 10
"""Directories that another process removes while it gives up are made once more."""


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
                there[index] = stack.enter_context(opened(path))
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
            _check_content(directory, force, old.identity if old else "")
    if own is None:
        return
    if old is not None and (foreign := files_of_run(own, old)[1]):
        raise InputError(f"directory {own.path} holds something that is not the run's ({foreign[0]}); move it away")
    for name in sorted(top_names(description) - (top_names(old) if old else set())):
        if own.status(name) is not None:
            raise InputError(f"directory {own.path} holds something else ({name}); give a new or empty one")


@contextlib.contextmanager
def held(directories: Sequence[Path]) -> Iterator[tuple[list[Directory], list[int], list[Path]]]:
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
                    directory = opened(path)
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


def opened(path: Path) -> Directory:
    """A directory held open. Raises InputError."""
    try:
        return Directory.open(path)
    except OSError as error:
        raise InputError(f"directory {path} cannot be used: {error.strerror}") from None


def member_bytes(index: int, directory: Path, manifest: Manifest) -> bytes:
    """Content of MEMBER in further directory `index` of the run in `directory`."""
    member = Member(manifest.identity, str(directory.absolute()), index, tuple(array_folders(manifest)))
    return seal_member(member)


def seal_member(member: Member) -> bytes:
    """The content of MEMBER."""
    import msgspec

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


def _check_content(directory: Directory, force: bool, replaced: str) -> None:
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
    if device_use.is_block_device(Path(member.run)):
        return True
    try:
        with opened(Path(member.run)) as directory:
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
