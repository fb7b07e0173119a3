"""What must be true of the directories before a run may be created in them; only `remove_run` changes anything.

Names that belong to a run are listed here and nowhere else: only these are ever deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

from outcrop.errors import InputError
from outcrop.run.manifest import MANIFEST, MEMBER, NEW, Manifest, read_manifest, read_member
from outcrop.units import format_bytes

GROUP = "zarr.json"

_SLACK_BYTES = 1 << 20
"""Room for metadata, beside the arrays."""


def array_folder(field_name: str, array: int) -> str:
    """Folder of one of the two arrays of a field; the field's own name links to the current one."""
    return f".{field_name}.{array}"


def check_directories(directories: list[Path], needed_bytes: list[int], force: bool) -> None:
    """Raise InputError unless a run can be created there; `needed_bytes` for each directory.

    Checked: kinds, duplicates, contents, permission, free space (counting what `force` would replace).
    """
    seen: dict[Path, Path] = {}
    for directory in directories:
        if (real := directory.resolve()) in seen:
            raise InputError(f"directory {directory} is given twice (also as {seen[real]}); each must be another")
        seen[real] = directory
    for directory in directories:
        _check_kind(directory)
    old = read_manifest(directories[0]) if os.path.exists(directories[0] / MANIFEST) else None
    if old is not None and old.phase != NEW and not force:
        raise InputError(f"directory {what_is_there(directories[0], old)}")
    for directory in directories:
        if old is None or directory is not directories[0]:
            _check_content(directory, force, old.identity if old else "")
        _check_permission(directory)
    replaced = {place.resolve() for place in directories if read_member(place)}
    if old is not None:
        replaced |= {directories[0].resolve(), *(Path(name).resolve() for name in old.directories[1:])}
    _check_space(directories, needed_bytes, _device_bytes(replaced))


def member_text(directory: Path, identity: str, field_name: str) -> str:
    """Content of MEMBER in a further directory of the run in `directory`."""
    return json.dumps({"identity": identity, "run": str(directory.absolute()), "field": field_name}) + "\n"


def remove_run(directory: Path, manifest: Manifest) -> None:
    """Delete the arrays of the run that `manifest` describes, in all its directories; the manifest stays."""
    for array in range(manifest.arrays):
        shutil.rmtree(directory / array_folder(manifest.field_name, array), ignore_errors=True)
    (directory / manifest.field_name).unlink(missing_ok=True)
    (directory / GROUP).unlink(missing_ok=True)
    for name in manifest.directories[1:]:
        if read_member(Path(name)).get("identity") == manifest.identity:
            remove_member(Path(name))


def remove_member(directory: Path) -> None:
    """Delete what a run keeps in one of its further directories; nothing where there is no such thing."""
    if field_name := read_member(directory).get("field"):
        for array in range(2):
            shutil.rmtree(directory / array_folder(field_name, array), ignore_errors=True)
        (directory / MEMBER).unlink(missing_ok=True)


def nearest_existing(path: Path) -> Path:
    """The path itself, or the closest of its parents that exists."""
    path = path.absolute()
    while not os.path.lexists(path):
        path = path.parent
    return path


def _check_kind(directory: Path) -> None:
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
        if member.get("identity") == replaced:
            return
        if _is_alive(member):
            raise InputError(f"directory {directory} belongs to another run, {member.get('run')}; give another one")
        if not force:
            raise InputError(f"directory {directory} holds planes of a run that is gone; replace them with --force")
    elif names:
        what = "another run" if MANIFEST in names else f"something else ({min(names)})"
        raise InputError(f"directory {directory} holds {what}; give a new or empty one")


def _is_alive(member: dict[str, str]) -> bool:
    """Whether the run that a member names still is one of which this is a member."""
    try:
        return read_manifest(Path(member["run"])).identity == member["identity"]
    except (InputError, KeyError):
        return False


def what_is_there(place: Path, old: Manifest) -> str:
    """The place, that it holds the run `old`, and what one can do about it."""
    name = old.stencil.get("name", "a stencil")
    if old.step < old.target_step:
        what = f"an unfinished run of {name} (step {old.step} of {old.target_step}); continue it with 'outcrop resume"
    else:
        what = f"a run of {name} at step {old.step}; look at it with 'outcrop info"
    return f"{place} holds {what} {place}' or replace it with --force"


def _device_bytes(directories: set[Path]) -> dict[int, int]:
    """Bytes allocated to the shards in these directories, by device."""
    total: dict[int, int] = {}
    for directory in directories:
        for shard in directory.glob(".*.[01]/c/*/0/0"):
            if not shard.is_symlink():
                status = shard.stat()
                total[status.st_dev] = total.get(status.st_dev, 0) + status.st_blocks * 512
    return total


def _check_permission(directory: Path) -> None:
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
                "use another directory, a smaller grid, or --in-place for half of it"
            )
