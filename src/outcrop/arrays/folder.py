"""The folder of a committed array: which files may be in it, and what they say.

    psi/
      tiles            two slots for each tile of 1 MiB (one, if the array is only read)
      commit.0.json    a commit with an even number: which slot each tile is in, and its CRC32C
      commit.1.json    one with an odd number

A new array begins with commit.0.json.tmp, the record of its generation 0, which has no values. It shows that `tiles`,
without any commit beside it, was made by Outcrop and may be made again.

Nothing in the folder is believed before it has been compared with all that it can be compared with: files are regular
ones, a record is whole and where its number belongs, two records are of one array, and `tiles` is large enough.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from outcrop import _core
from outcrop.arrays.opened import storage_errors
from outcrop.arrays.record import BYTES_BESIDE, BYTES_PER_TILE, TILE_BYTES, Record, parse_record, tiles_of
from outcrop.arrays.spec import ArraySpec, Persist
from outcrop.durable import Directory
from outcrop.errors import CorruptionError, InputError, StorageError

TILES = "tiles"
RECORDS = ("commit.0.json", "commit.1.json")
BEGUN = "commit.0.json.tmp"
NAMES = frozenset({TILES, *RECORDS, *(f"{name}.tmp" for name in RECORDS)})
"""All that may be in the folder."""
MAX_RECORD_BYTES = 1 << 30
"""Records of arrays of 100 TiB."""


def slots_bytes(spec: ArraySpec) -> int:
    """Bytes of the file of tiles."""
    return stride_bytes(spec.nbytes) * (1 if spec.access == "read" else 2)


def stride_bytes(nbytes: int) -> int:
    """Bytes from the slots 0 to the slots 1."""
    return int(_core.SlotFile.stride_bytes(nbytes))


def check_size(spec: ArraySpec) -> None:
    """Raises InputError for an array whose record would be too long to be read again."""
    if _record_bytes(spec.nbytes) > MAX_RECORD_BYTES:
        most = MAX_RECORD_BYTES // BYTES_PER_TILE * TILE_BYTES >> 40
        raise InputError(f"{spec.path} cannot be made: a committed array has at most {most} TiB; split it")


def _record_bytes(nbytes: int) -> int:
    return BYTES_BESIDE + BYTES_PER_TILE * tiles_of(nbytes)


def holds_array(path: Path) -> bool:
    """Whether a path is such a folder, perhaps without any commit yet."""
    try:
        names = set(os.listdir(path))
    except OSError:
        return False
    return TILES in names and names <= NAMES


def has_commits(folder: Directory) -> bool:
    """Whether an array with a commit is there; if not, one can begin there. Raises InputError when something else is,
    StorageError when a file of the array is none."""
    names = folder.names()
    for name in names:
        if name not in NAMES:
            shown = name if name.isprintable() else ascii(name)
            raise InputError(f"{folder.path} holds something else ({shown}); give a new or empty one")
        status = folder.status(name)
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise StorageError(f"{folder.path / name} is not a regular file; remove it, or put back what was there")
    if any(name in names for name in RECORDS):
        if TILES not in names:
            raise CorruptionError(f"{folder.path} has commits, but its file {TILES} is missing; put it back")
        return True
    if TILES in names and not _is_begun(folder):
        raise InputError(f"{folder.path / TILES} is of no array that was begun here; move it, or give another path")
    return False


def _is_begun(folder: Directory) -> bool:
    try:
        return parse_record(folder.read(BEGUN, BYTES_BESIDE), folder.path / BEGUN).generation == 0
    except (OSError, StorageError, InputError):
        return False


def commits(folder: Directory) -> tuple[list[Record], list[str]]:
    """The commits of a folder, newest first, and what is wrong with the others. Raises CorruptionError when none is
    left, or when they are of different arrays; InputError when one is of another format."""
    records, problems = [], []
    status = folder.status(TILES)
    size = 0 if status is None else status.st_size
    for number, name in enumerate(RECORDS):
        try:
            record = _read_record(folder, name, number, size)
        except CorruptionError as error:
            problems.append(str(error))
        else:
            records += [record] if record else []
    if not records:
        raise no_commit_left(folder.path, problems or ["its records have just been removed"])
    if len(records) == 2 and records[0].is_of_other_array(records[1]):
        raise CorruptionError(
            f"{' and '.join(RECORDS)} in {folder.path} are of different arrays; remove the one that is not of this one"
        )
    return sorted(records, key=lambda record: -record.generation), problems


def no_commit_left(path: Path, problems: list[str]) -> CorruptionError:
    """The error to raise when all commits are damaged."""
    return CorruptionError(f"{path} has no commit left that is whole: {'; '.join(problems)}")


def _read_record(folder: Directory, name: str, number: int, tiles_bytes: int) -> Record | None:
    """None when there is no such file."""
    path = folder.path / name
    # A record of more tiles than the file has room for is damaged, so that it need not be read.
    most = min(MAX_RECORD_BYTES, _record_bytes(tiles_bytes))
    try:
        status = folder.status(name)
        if status is None:
            return None
        if status.st_size > most:
            raise CorruptionError(f"{path} is damaged: {status.st_size} bytes are too many for the {TILES} beside it")
        record = parse_record(folder.read(name, most), path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CorruptionError(f"{path} cannot be read: {error.strerror}") from None
    if record.generation == 0 or record.generation % 2 != number:
        raise CorruptionError(f"{path} is damaged: generation {record.generation} does not belong in this file")
    needed = stride_bytes(record.nbytes) * (2 if any(record.slots) else 1)
    if tiles_bytes < needed:
        tiles = folder.path / TILES
        raise CorruptionError(f"{tiles} has {tiles_bytes} bytes; generation {record.generation} needs {needed}")
    return record


def last_record(path: Path) -> Record | None:
    """The newest commit whose record is whole; None when there has been none. Nothing is held or changed. Raises
    InputError, StorageError, CorruptionError as `has_commits` and `commits`."""
    with storage_errors(path, "opened"), Directory.open(path) as folder:
        return commits(folder)[0][0] if has_commits(folder) else None


def spec_of(path: Path, access: str | None = None, persist: Persist | None = None) -> ArraySpec:
    """What the array in a folder is. Raises InputError when it has no commit yet."""
    record = last_record(path)
    if record is None:
        raise InputError(f"{path} holds an array without any commit yet; make it again with oc.array")
    access = record.access if access is None else access
    kept: Any = record.persist if persist is None else persist
    if access == "read" and persist is None:
        kept = "end"
    return ArraySpec(record.shape, record.dtype, "auto", access, kept, path)
