"""What must be true of the directories before a run may be created in them; only `remove_run` changes anything.

Names that belong to a run are listed here and nowhere else: only these are ever deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from dataclasses import asdict
from pathlib import Path

from outcrop.errors import InputError
from outcrop.run.axes import NAMES
from outcrop.run.device import use as device_use
from outcrop.run.disk.arrays import ArrayEntry
from outcrop.run.disk.manifest import MANIFEST, MEMBER, NEW, Manifest, Member, read_manifest, read_member
from outcrop.tiers.mounts import nearest_existing
from outcrop.units import format_bytes

GROUP = "zarr.json"

TAPS = ".taps"
"""Folder of points, values and records of taps."""

SNAPSHOTS = "snapshots.zarr"
"""Folder of the group of snapshots."""

_SLACK_BYTES = 1 << 20
"""Room for metadata, beside the arrays."""


def array_folder(entry: ArrayEntry, turn: int) -> str:
    """Folder of an array of the state in one turn, to the current of which its own name links; of a static array."""
    return entry.name if entry.is_static else f".{entry.name}.{turn}"


def array_folders(manifest: Manifest) -> list[str]:
    """Folders of all arrays, in each directory of the run."""
    return [array_folder(entry, turn) for entry, turn in manifest.copies]


def coordinate_folders(manifest: Manifest) -> list[str]:
    """Folders of the coordinates, in the run's own directory."""
    return list(NAMES[len(manifest.shape)]) if manifest.coordinates else []


def tap_folders(manifest: Manifest) -> list[str]:
    """Folders of sources, receivers, norms and snapshots, in the run's own directory."""
    return ([TAPS] if manifest.taps else []) + ([SNAPSHOTS] if manifest.taps.snapshots else [])


def check_directories(directories: list[Path], manifest: Manifest, needed_bytes: list[int], force: bool) -> None:
    """Raise InputError unless the run can be created there; `needed_bytes` for each directory.

    Checked: kinds, duplicates, contents, permission, free space (counting what `force` would replace).
    """
    seen: dict[Path, Path] = {}
    for directory in directories:
        if (real := directory.resolve()) in seen:
            raise InputError(f"directory {directory} is given twice (also as {seen[real]}); each must be another")
        seen[real] = directory
    for directory in directories:
        check_kind(directory)
    old = read_manifest(directories[0]) if os.path.exists(directories[0] / MANIFEST) else None
    if old is not None and old.phase != NEW and not force:
        raise InputError(f"directory {what_is_there(directories[0], old)}")
    for directory in directories:
        if old is None or directory is not directories[0]:
            _check_content(directory, force, old.identity if old else "")
        check_permission(directory)
    _check_names(directories[0], manifest, old)
    replaced = {place.resolve() / name for place in directories if (m := read_member(place)) for name in m.folders}
    if old is not None:
        places = [directories[0], *map(Path, old.directories[1:])]
        replaced |= {place.resolve() / name for place in places for name in array_folders(old)}
    _check_space(directories, needed_bytes, _device_bytes(replaced))


def member_text(directory: Path, manifest: Manifest) -> str:
    """Content of MEMBER in a further directory of the run in `directory`."""
    member = Member(manifest.identity, str(directory.absolute()), tuple(array_folders(manifest)))
    return json.dumps(asdict(member)) + "\n"


def remove_run(directory: Path, manifest: Manifest) -> None:
    """Delete the arrays of the run that `manifest` describes, in all its directories; the manifest stays."""
    for name in (*array_folders(manifest), *coordinate_folders(manifest), *tap_folders(manifest)):
        shutil.rmtree(directory / name, ignore_errors=True)
    for entry in manifest.state:
        (directory / entry.name).unlink(missing_ok=True)
    (directory / GROUP).unlink(missing_ok=True)
    for place in map(Path, manifest.directories[1:]):
        if (member := read_member(place)) and member.identity == manifest.identity:
            remove_member(place)


def remove_member(directory: Path) -> None:
    """Delete what a run keeps in one of its further directories; nothing where there is no such thing."""
    if member := read_member(directory):
        for name in member.folders:
            shutil.rmtree(directory / name, ignore_errors=True)
        (directory / MEMBER).unlink(missing_ok=True)


def make_directories(directories: list[Path]) -> list[Path]:
    """Make the directories, parents too, and list those that were not there, parents first. InputError leaves none."""
    wanted = dict.fromkeys(place for one in directories for place in (*reversed(one.parents), one))
    made: list[Path] = []
    try:
        for directory in [place for place in wanted if not os.path.lexists(place)]:
            directory.mkdir(exist_ok=True)
            made.append(directory)
    except OSError as error:
        for directory in reversed(made):
            directory.rmdir()
        raise InputError(f"directory {error.filename} cannot be created: {error.strerror}") from None
    return made


def check_kind(directory: Path) -> None:
    """Raise InputError unless it is a directory, or can be made."""
    try:
        mode = nearest_existing(directory).stat().st_mode
    except OSError as error:
        raise InputError(f"directory {directory} cannot be used: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise InputError(f"directory {directory} cannot be created: {nearest_existing(directory)} is a file")


def _check_content(directory: Path, force: bool, replaced: str) -> None:
    """Raise InputError when anything is there but a share of the run `replaced` or, if forced, of one that is gone."""
    try:
        names = set(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"directory {directory} cannot be read: {error.strerror}") from None
    member = read_member(directory)
    if member and MANIFEST not in names:
        if member.identity == replaced:
            return
        if _is_alive(member):
            raise InputError(f"directory {directory} belongs to another run, {member.run}; give another one")
        if not force:
            raise InputError(f"directory {directory} holds planes of a run that is gone; replace them with --force")
    elif names:
        what = "another run" if MANIFEST in names else f"something else ({min(names)})"
        raise InputError(f"directory {directory} holds {what}; give a new or empty one")


def _check_names(directory: Path, manifest: Manifest, old: Manifest | None) -> None:
    """Raise InputError when something of the user's, beside an old run, has a name that the new one needs."""
    ours = _names(old) if old else set()
    for name in sorted(_names(manifest) - ours):
        if os.path.lexists(directory / name):
            raise InputError(f"directory {directory} holds something else ({name}); give a new or empty one")


def _names(manifest: Manifest) -> set[str]:
    """All names in the run's own directory that arrays, coordinates and taps take."""
    state = (entry.name for entry in manifest.state)
    return {*array_folders(manifest), *coordinate_folders(manifest), *tap_folders(manifest), *state}


def _is_alive(member: Member) -> bool:
    """Whether the run that a member names still is one of which this is a member; one on a device is not looked at."""
    if device_use.is_block_device(Path(member.run)):
        return True
    try:
        return read_manifest(Path(member.run)).identity == member.identity
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


def _device_bytes(folders: set[Path]) -> dict[int, int]:
    """Bytes allocated to the shards in these folders of arrays, by device."""
    total: dict[int, int] = {}
    for folder in folders:
        for shard in folder.glob("c/**/0"):
            if shard.is_file() and not shard.is_symlink():
                status = shard.stat()
                total[status.st_dev] = total.get(status.st_dev, 0) + status.st_blocks * 512
    return total


def check_permission(directory: Path) -> None:
    """Raise InputError unless it can be written, or made."""
    existing = nearest_existing(directory)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"directory {directory} cannot be written: no permission in {existing}")


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
