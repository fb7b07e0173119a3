"""What must be true of the directories before a run may be created in them; only `remove_run` changes anything.

Names that belong to a run are listed here and nowhere else: only these are ever deleted.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from outcrop.errors import InputError
from outcrop.run.manifest import MANIFEST, NEW, Manifest, read_manifest
from outcrop.units import format_bytes

MEMBER = "outcrop-member.json"
"""Marks a further directory of a run; it says which run."""

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
    freed: dict[int, int] = {}
    for index, directory in enumerate(directories):
        _check_kind(directory)
        for device, count in _check_content(directory, force, main=index == 0).items():
            freed[device] = freed.get(device, 0) + count
        _check_permission(directory)
    _check_space(directories, needed_bytes, freed)


def remove_run(directory: Path, manifest: Manifest) -> None:
    """Delete the arrays of the run that `manifest` describes, in all its directories; the manifest stays."""
    for array in range(manifest.arrays):
        shutil.rmtree(directory / array_folder(manifest.field_name, array), ignore_errors=True)
    (directory / manifest.field_name).unlink(missing_ok=True)
    (directory / GROUP).unlink(missing_ok=True)
    for name in manifest.directories[1:]:
        member = Path(name)
        if _member_text(member) and manifest.identity in _member_text(member):
            for array in range(manifest.arrays):
                shutil.rmtree(member / array_folder(manifest.field_name, array), ignore_errors=True)
            (member / MEMBER).unlink(missing_ok=True)


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
    if stat.S_ISBLK(mode):
        raise InputError(f"{directory} is a block device, which is not supported yet; give a directory on a filesystem")
    if not stat.S_ISDIR(mode):
        raise InputError(f"directory {directory} cannot be created: {nearest_existing(directory)} is a file")


def _check_content(directory: Path, force: bool, main: bool) -> dict[int, int]:
    """Bytes that replacing frees, by device. Raises InputError when the content must stay."""
    try:
        names = set(os.listdir(directory))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"directory {directory} cannot be read: {error.strerror}") from None
    if MANIFEST in names and main:
        old = read_manifest(directory)
        if not force and old.phase != NEW:
            raise InputError(_what_is_there(directory, old))
        return _arrays_bytes(directory, old)
    if MEMBER in names and force:
        return _device_bytes(directory)
    if names:
        what = "another run" if {MANIFEST, MEMBER} & names else f"something else ({min(names)})"
        raise InputError(f"directory {directory} holds {what}; give a new or empty one")
    return {}


def _what_is_there(directory: Path, old: Manifest) -> str:
    name = old.stencil.get("name", "a stencil")
    if old.step < old.target_step:
        what = f"an unfinished run of {name} (step {old.step} of {old.target_step}); continue it with 'outcrop resume"
    else:
        what = f"a run of {name} at step {old.step}; look at it with 'outcrop info"
    return f"directory {directory} holds {what} {directory}' or replace it with --force"


def _arrays_bytes(directory: Path, manifest: Manifest) -> dict[int, int]:
    total: dict[int, int] = {}
    for place in (directory, *map(Path, manifest.directories[1:])):
        for device, count in _device_bytes(place).items():
            total[device] = total.get(device, 0) + count
    return total


def _device_bytes(directory: Path) -> dict[int, int]:
    """Bytes allocated to the shards below a directory, by device."""
    total: dict[int, int] = {}
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


def _member_text(directory: Path) -> str:
    try:
        return (directory / MEMBER).read_text()
    except OSError:
        return ""
