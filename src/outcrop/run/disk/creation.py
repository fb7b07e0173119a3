"""Create the directories and files of a new run. If the creation fails, no new directory or file remains.

    check ──► make directories ──► hold ──► check again ──► manifest ──► clear the old run ──► files ──► first values
                                   └───────────────── locked until the `with` of the caller ends ─────────────────┘

    check     kinds, duplicates, permission, space, contents                nothing is changed
    hold      make missing directories, and lock all of them                a process without the lock changes nothing
    clear     remove the files of an older run, by their names (contents)

A directory is locked before any file in it is changed. A process that fails to get the lock removes no files. The first
change is to write a manifest without values. The new manifest replaces the manifest of an older run in one step. After
a crash, another process can replace the new run, because the new run has no values yet. Each file of a run is created
with its full size."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from outcrop.durable import Directory, flush_parents
from outcrop.errors import InputError, StorageError, by_caller, os_errors_as
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
from outcrop.run.disk.manifest import (
    MANIFEST,
    MEMBER,
    NEW,
    STAGED,
    Description,
    Manifest,
    Member,
    new_manifest,
    read_manifest,
    read_member,
    resume_command,
)
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder, further_directories, make_shard
from outcrop.units import format_bytes

_SLACK_BYTES = 1 << 20
"""The number of bytes that are reserved for metadata, in addition to the arrays."""

_BEGUN = (f"{MANIFEST}.tmp", f"{MEMBER}.tmp")
"""Files that may remain if a process is killed while it creates a run."""

_ATTEMPTS = 10
"""The maximum number of attempts to make a directory. An attempt fails if another process removes the directory at the
same time."""


@contextlib.contextmanager
def created_in(directories: list[Path], manifest: Manifest, force: bool, definitions: Definitions) -> Iterator[State]:
    """Create the directories and files of a run without values. `definitions` contains the points and values of the
    run's sources and receivers. The calling process holds the lock of the run until the `with` block ends. The caller
    commits the first values inside the `with` block.

    `created_in` checks only the contents of the directories. If `force` is true, an older run is replaced. If
    InputError is raised, nothing was changed. If the `with` block ends before the first commit, all created files and
    directories are removed. Raises StorageError when the system refuses an operation that the checks allowed."""
    with hold_directories(directories) as (taken, locks, made):
        own, what, old = taken[0], f"cannot create the run in {taken[0].path}", None
        try:
            check_contents(dict(enumerate(taken)), manifest, force)
            with os_errors_as(StorageError, what, names_file=True):
                old = read_manifest(own) if own.status(MANIFEST) else None
                before = further_directories(own, old, must_be_there=False) if old else []
                for directory in (*before, *taken):
                    clear_staged(directory)
        except BaseException:
            remove_made(made)
            raise
        state = State(RunFolder(own.path), manifest)
        try:
            with os_errors_as(StorageError, what, names_file=True):
                if old is not None:
                    withdraw(own, old)
                for directory in (*before, *taken[1:]):
                    clear_share(directory)
                own.replace(MANIFEST, manifest.to_bytes())
                _make_files(taken, manifest, definitions)
                for directory in taken:
                    flush_parents(directory.path)
            with state.locked(locks):
                yield state
        except BaseException:
            if not state.has_values:
                with contextlib.suppress(OSError, StorageError):
                    for one in (old, manifest):
                        if one is not None:
                            clear(own, one)
                    for directory in taken[1:]:
                        clear_share(directory)
                    # The manifest is removed last. If this process is killed before it removes the manifest, a later
                    # command can still remove the other files.
                    own.flush()
                    own.remove(MANIFEST)
                remove_made(made)
            raise


def check_creation(
    directories: list[Path], description: Description, force: bool, keeps_old: bool = False, acquired_bytes: int = 0,
    scratch_bytes: int = 0,
) -> None:  # fmt: skip
    """Raise InputError if `created_in` cannot create the run. The function changes nothing on storage. The space of
    files that the new run replaces counts as free. If `keeps_old` is true, the parents of the run's directories hold an
    older run, which must stay until the new run has values. If `keeps_old` is true, a message about missing space names
    both the old and the new run. The run also needs `acquired_bytes` for its first records and snapshots. A pass of the
    run needs `scratch_bytes` for its temporary array."""
    if description.records:
        raise InputError(f"records {description.records}: a run in a directory keeps them there; leave it out")
    needed = [acquired_bytes + scratch_bytes, *[0] * (len(directories) - 1)]
    for shard in range(description.layout.shards):
        needed[shard % len(directories)] += len(description.copies) * description.layout.shard_bytes(shard)
    seen: dict[Path, Path] = {}
    for directory in directories:
        try:
            real = directory.resolve(strict=False)
        except (OSError, RuntimeError):
            raise InputError(f"directory {directory} cannot be used: its links lead in a circle") from None
        if real in seen:
            raise InputError(f"directory {directory} is given twice (also as {seen[real]}); name each directory once")
        seen[real] = directory
    for directory in directories:
        require_directory(directory)
    with contextlib.ExitStack() as stack:
        there = {}
        for index, path in enumerate(directories):
            if path.is_dir():
                there[index] = stack.enter_context(open_directory(path))
        if 0 in there and (force or there[0].status(MANIFEST)):
            # a run that another process computes can be neither continued nor replaced, so this is tested first
            there[0].release(there[0].hold(shared=True))
        check_contents(there, description, force)
        _check_space(directories, needed, _freed_bytes(there), keeps_old, scratch_bytes)


def _make_files(directories: list[Directory], manifest: Manifest, definitions: Definitions) -> None:
    own = directories[0]
    for index, directory in enumerate(directories[1:], start=1):
        member = Member(manifest.identity, str(own.path.absolute()), index, tuple(array_folders(manifest)))
        directory.replace(MEMBER, member.to_bytes())
    for entry, copy in manifest.copies:
        _make_shards(directories, manifest, array_folder(entry, copy))
    for name, content in derived_files(manifest).items():
        own.put(name, content)
    write_acquisition_files(own, manifest, definitions)
    for directory in directories:
        directory.flush_all()


def _make_shards(directories: list[Directory], manifest: Manifest, folder: str) -> None:
    """Create the shards of one copy of an array. If a shard is in a further directory, also create a link to the shard
    in the run's own directory. Readers of Zarr look only in the run's own directory."""
    layout, own = manifest.layout, directories[0]
    for shard in range(layout.shards):
        name, place = f"{folder}/{shard_name(shard, len(manifest.shape))}", directories[shard % len(directories)]
        make_shard(place, layout, shard, name)
        if place is not own:
            own.make_folder(name.rpartition("/")[0])
            own.link(name, str(place.path.absolute() / name))


def check_contents(there: dict[int, Directory], description: Description, force: bool) -> None:
    """Raise InputError if an existing directory holds files that the new run must not replace. `there` maps numbers to
    directories. Directory number 0 is the run's own directory."""
    own = there.get(0)
    old = read_manifest(own) if own is not None and own.status(MANIFEST) else None
    if own is not None and old is not None and old.phase != NEW and not force:
        raise InputError(f"directory {what_is_there(own.path, old)}")
    for index, directory in there.items():
        if old is None or index > 0:
            _check_further(directory, force, old.identity if old else "")
    if own is None:
        return
    if old is not None and (foreign := files_of_run(own, old)[1]):
        raise InputError(f"directory {own.path} holds something that is not the run's ({foreign[0]}); move it away")
    for name in sorted(top_names(description) - (top_names(old) if old else set())):
        if own.status(name) is not None:
            raise InputError(f"directory {own.path} holds something else ({name}); give a new or empty directory")


@contextlib.contextmanager
def hold_directories(directories: Sequence[Path]) -> Iterator[tuple[list[Directory], list[int], list[Path]]]:
    """Make missing directories, and lock all directories until the `with` block ends. Yield the directories, the
    descriptors of the locks, and the paths that were made, parents first. Raises InputError when a directory cannot be
    made, or when another process holds the lock of a directory."""
    made: list[Path] = []
    with contextlib.ExitStack() as stack:
        taken: list[Directory] = []
        locks: list[int] = []
        for path in directories:
            for _ in range(_ATTEMPTS):
                made += [one for one in make_directory(path) if one not in made]
                try:
                    directory = open_directory(path)
                except InputError:  # another process made this directory and has just removed it
                    continue
                lock = directory.hold()
                if directory.is_here():
                    break
                directory.release(lock)
                directory.close()
            else:
                raise InputError(f"directory {path} is made and removed by other processes; give another directory")
            stack.callback(directory.release, lock)
            taken.append(directory)
            locks.append(lock)
        yield taken, locks, made


def open_directory(path: Path) -> Directory:
    with os_errors_as(InputError, f"directory {path} cannot be used"):
        return Directory.open(path)


def withdraw(directory: Directory, old: Manifest) -> None:
    """Commit that the run `old` has no values any more, and remove its files. The manifest of `old` stays until the
    caller replaces it. If the process is killed before the manifest is replaced, the manifest tells a later command
    which files remain."""
    directory.replace(MANIFEST, replace(new_manifest(old), identity=old.identity, sums=old.sums).to_bytes())
    clear(directory, old)


def clear(directory: Directory, old: Manifest) -> None:
    """Remove the files of the run `old`, but not its manifest. The calling process must hold the lock of the
    directory."""
    directory.remove_files(files_of_run(directory, old)[0])
    for name in sorted(top_names(old)):
        directory.remove_empty(name)


def clear_share(directory: Directory) -> None:
    """Remove the files of a run from `directory`, a further directory of the run. If the directory has no MEMBER file,
    remove nothing."""
    if member := read_member(directory):
        directory.remove_files(files_below(directory, member.folders)[0])
        for name in member.folders:
            directory.remove_empty(name)
        directory.flush()
        directory.remove(MEMBER)


def clear_staged(directory: Directory) -> None:
    """Remove the files of an unfinished new run, which has not replaced the run in `directory`
    (run/disk/replacement.py). A killed process can leave an unfinished new run. Raises InputError if another process
    uses the unfinished run, or if the manifest of the unfinished run cannot be read."""
    status = directory.status(STAGED)
    if status is None or not stat.S_ISDIR(status.st_mode):
        return
    with Directory.open(directory.path / STAGED) as staged:
        lock = staged.hold()
        try:
            if staged.status(MANIFEST):
                clear(staged, read_manifest(staged))
            else:
                clear_share(staged)
            staged.flush()
            for name in (MANIFEST, MEMBER, *_BEGUN):
                staged.remove_files([name])
        finally:
            staged.release(lock)
    directory.remove_empty(STAGED)


def _check_further(directory: Directory, force: bool, replaced: str) -> None:
    """Raise InputError when a directory holds files that must not be replaced. `replaced` is the identity of a run
    whose files may be replaced. If `force` is true, the files can also belong to a run that no longer exists."""
    with os_errors_as(InputError, f"directory {directory.path} cannot be read"):
        names = [name for name in directory.names() if name not in (*_BEGUN, STAGED)]
    member, path = read_member(directory), directory.path
    if member and MANIFEST not in names:
        foreign = files_below(directory, member.folders)[1]
        foreign += [name for name in names if name != MEMBER and name not in member.folders]
        if foreign:
            raise InputError(f"directory {path} holds something else ({foreign[0]}); give a new or empty directory")
        if member.identity == replaced:
            return
        if _is_alive(member):
            raise InputError(f"directory {path} belongs to another run, {member.run}; give another directory")
        if not force:
            remedy = by_caller("--force", "force=True")
            raise InputError(f"directory {path} holds planes of a run that is gone; replace them with {remedy}")
    elif names:
        what = "another run" if MANIFEST in names else f"something else ({names[0]})"
        raise InputError(f"directory {path} holds {what}; give a new or empty directory")


def _is_alive(member: Member) -> bool:
    """Return True if the run that `member` names still exists. Also return True if the path in `member` is not a
    directory, because the run can be on a device."""
    if os.path.exists(member.run) and not os.path.isdir(member.run):
        return True
    try:
        with open_directory(Path(member.run)) as directory:
            return read_manifest(directory).identity == member.identity
    except InputError:
        return False


def what_is_there(place: Path, old: Manifest) -> str:
    """Return a message about the run `old` in `place`. The message says how to continue, inspect or replace the run
    `old`."""
    name = old.stencil.get("name", "a stencil")
    if old.step < old.target_step:
        what = f"an unfinished run of {name} (step {old.step} of {old.target_step}); continue it with"
        command = resume_command(old, place)
    else:
        what, command = f"a run of {name} at step {old.step}; look at it with", f"outcrop info {place}"
    part = f"the part of rank {old.part.rank} of " if old.part else ""
    return f"{place} holds {part}{what} '{command}' or replace it with {by_caller('--force', 'force=True')}"


def _freed_bytes(there: dict[int, Directory]) -> dict[int, int]:
    """Return how many bytes become free in each file system when the files in the given directories are replaced. The
    keys of the result are the device numbers of the file systems (st_dev)."""
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


def _check_space(
    directories: list[Path], needed_bytes: list[int], freed: dict[int, int], keeps_old: bool, scratch_bytes: int
) -> None:
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
        if count > free and keeps_old:
            raise InputError(
                f"no space for both runs: the old run in {directories[0].parent} must stay until the new run has its "
                f"values, the new run needs {format_bytes(count)}, and {format_bytes(free)} are free; remove the old "
                "run first if no value comes from it, or give another directory"
            )
        if count > free:
            scratch = scratch_bytes if device == next(iter(needed)) else 0  # it is in the run's own directory
            part = f" ({format_bytes(scratch)} of it during a pass)" if scratch else ""
            raise InputError(
                f"no space: the run needs {format_bytes(count)} in {example[device]}{part}, {format_bytes(free)} are "
                f"free; use another directory, a smaller grid, {less_scratch(scratch)}or "
                f"{by_caller('--in-place', 'in_place=True')} for about half of it"
            )


def less_scratch(scratch_bytes: int) -> str:
    """Return a part of a message: how the plan can need less than `scratch_bytes` for its temporary array. Return "" if
    `scratch_bytes` is 0."""
    if not scratch_bytes:
        return ""
    bt, scheme = by_caller("--bt", "bt"), by_caller("--scheme", "scheme")
    return f"a smaller {bt} or another {scheme} for a smaller temporary array, "
