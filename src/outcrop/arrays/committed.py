"""This module stores an array with commits. The module defines the files in the folder of the array, and the protocol
that keeps the last commit intact.

    psi/
      tiles            two slots for each tile of 1 MiB (one slot, if the array is only read)
      commit.0.json    the last commit with an even number: the slot of each tile, and the CRC32C of each tile
      commit.1.json    the last commit with an odd number

The program works on a copy of the committed values. This copy, the working copy, is in DRAM, or in a mapped file on the
tier of the array. The mapped file has no name. A commit of generation g + 1 is a transaction:

    changed tiles ──► their free slots ──► durable                  if killed here: still generation g
    commit.N.json.tmp ──► fsync ──► rename ──► fsync folder         N = (g + 1) mod 2; committed by the rename

The commit of generation g + 1 does not write to the slots of generation g. Therefore generation g stays intact until
the commit of generation g + 2 begins. If the record or a tile of generation g + 1 is damaged, generation g is used
instead. When an array with commits is opened, the checksum of each tile is verified.

A new array begins with commit.0.json.tmp, the record of generation 0, which has no values. The record of generation 0
proves that Outcrop made the file `tiles`. So Outcrop can replace `tiles` as long as no commit exists.

A process that changes an array locks its folder exclusively. Processes that only read the array share the lock, and map
the tiles into memory. The folder of an array is locked before any file in the folder is read or made. All files in the
folder are opened relative to the descriptor of the folder, and links are not followed. Each file in the folder must be
a regular file. Each record must have a valid checksum. The number of the generation must be even in commit.0.json, and
odd in commit.1.json. If both files exist, their records must belong to the same array. The file `tiles` must be large
enough for the array. `parse_record` checks the type and the range of each field. `parse_record` also checks that, for
each tile, `slots` has one byte and `checksums` has four bytes. After these checks of a record, the code trusts the
sizes in the record.
"""

from __future__ import annotations

import math
import os
import stat
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec
import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.arrays.spec import MAX_AXES, MAX_NUMBER, ArraySpec, Persist, parse_dtype
from outcrop.arrays.storage import ArrayStorage, named, path_of, storage_errors, transfer_threads
from outcrop.durable import Directory, flush_parents, sealed, unsealed
from outcrop.errors import CorruptionError, InputError, StorageError
from outcrop.paths import make_directory, remove_made
from outcrop.tiers.storage_tiers import BY_NOTHING
from outcrop.tiers.tier import Tier

FORMAT = 1
"""The version of the folder's format. Folders with other versions are refused."""
TILES = "tiles"
RECORDS = ("commit.0.json", "commit.1.json")
BEGUN = "commit.0.json.tmp"
NAMES = frozenset({TILES, *RECORDS, *(f"{name}.tmp" for name in RECORDS)})
"""The names of files that are allowed in the folder of an array."""
TILE_BYTES = 1 << 20
MAX_RECORD_BYTES = 1 << 30
"""The maximum size of a record in bytes. The record of an array of 100 TiB has about this size."""
BYTES_PER_TILE, OTHER_BYTES = 10, 1 << 14
"""The first number is the number of characters that a record has for each tile: the slot and the checksum in
hexadecimal. The second number is the maximum number of characters of all other fields."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Cells = Annotated[int, msgspec.Meta(ge=1, le=MAX_NUMBER)]


class Committed(ArrayStorage):
    """An open array in a locked folder, with the values of its last commit, or zeros before the first commit."""

    def __init__(
        self, path: Path, spec: ArraySpec, tier: Tier, take_memory: Callable[[int], NDArray[np.uint8]]
    ) -> None:
        """Open the array in the folder `path`, or begin a new array. `take_memory(n)` returns n bytes for the working
        copy. Raises InputError if the folder is in use or holds files that do not belong to an array. Raises
        StorageError and CorruptionError."""
        self.path = path
        self._held = -1
        if _record_bytes(spec.nbytes) > MAX_RECORD_BYTES:
            max_tib = MAX_RECORD_BYTES // BYTES_PER_TILE * TILE_BYTES >> 40
            raise InputError(f"{spec.path} cannot be made: a committed array has at most {max_tib} TiB; split it")
        self._record = Record(uuid4().hex, spec.shape, spec.dtype, spec.access, spec.persist, 0, 0, b"", b"")
        with ExitStack() as undo:
            with storage_errors(path, "used"):
                made = make_directory(path.absolute())
                self._folder = Directory.open(path.absolute())
                undo.callback(self.close)
                reads_only = self._hold(spec.access)
                # If the constructor fails, `remove_made` removes the new empty folders. After `remove_made`, `close`
                # unlocks the folder of the array.
                undo.callback(remove_made, made)
                records, problems = self._look(spec)
                if not reads_only:
                    # A process can be killed between the rename of a record and the flush of the folder. A rename
                    # without a flush of the folder is not always durable. Therefore the folder is flushed again.
                    self._folder.flush()
                if not records:
                    undo.callback(_remove_files, self._folder)
                    self._begin(slots_bytes(spec))
                self._open_tiles(spec, reads_only)
            self.primitive = BY_NOTHING if tier.kind == "tmpfs" else self._file.primitive
            if reads_only:
                self._load(records, problems, lambda record: self._file.verify(record.checksums, record.slots))
                self._show()
            else:
                memory = self.bytes = take_memory(spec.nbytes)
                self._load(records, problems, lambda record: self._file.load(record.checksums, record.slots, memory))
            undo.pop_all()
        self._record = replace(self._record, access=spec.access, persist=spec.persist)

    @property
    def generation(self) -> int:
        return self._record.generation

    @property
    def steps(self) -> int:
        return self._record.steps

    def flush(self, steps: int) -> int:
        """If the values or the number of steps have changed, make a commit. Return the number of bytes written. Raises
        StorageError if a write fails. After an error, the last commit is still intact, except if the folder was
        deleted."""
        last = self._record
        if self.read_only:
            return 0
        with storage_errors(self.path, "used"):
            self._check_here()
        with named(self._opened, self.path / TILES):
            written = self._file.write_changed(self.bytes)
        if written == 0 and last.generation > 0 and last.steps == steps:
            return 0
        record = replace(
            last, generation=last.generation + 1, steps=steps, slots=self._file.slots, checksums=self._file.checksums
        )
        if max(record.generation, record.steps) > MAX_NUMBER:
            raise StorageError(f"{self.path} cannot count to generation {record.generation}, step {record.steps}")
        name = RECORDS[record.generation % 2]
        try:
            self._folder.replace(name, record.to_bytes())
        except OSError as error:
            raise StorageError(f"cannot commit to {self.path / name}: {error.strerror}") from error
        with storage_errors(self.path, "used"):
            self._check_here()  # check again that the path leads to this folder
        self._file.accept()
        self._record = record
        if record.access == "read":
            self._show()
        return written

    def close(self) -> None:
        super().close()
        vars(self).pop("_file", None)  # the constructor can fail before it opens this file
        held, self._held = self._held, -1
        if held >= 0:
            self._folder.release(held)
        self._folder.close()

    def _hold(self, access: str) -> bool:
        """Lock the folder. If the array is only read and has a commit, the lock is shared, and the function returns
        True. Otherwise the lock is exclusive, and the function returns False."""
        if access == "read":
            self._held = _held(self._folder, shared=True)
            if has_commits(self._folder):
                return True
            self._folder.release(self._held)
            self._held = -1
        self._held = _held(self._folder, shared=False)
        if not self._folder.is_here():
            raise _gone(self.path)
        # if another process has just made the first commit, the lock can become a shared lock
        if access == "read" and has_commits(self._folder):
            self._folder.share(self._held)
            return True
        return False

    def _look(self, spec: ArraySpec) -> tuple[list[Record], list[str]]:
        """Return the result of `commits`, or two empty lists if a new array can begin in the folder."""
        if not has_commits(self._folder):
            return [], []
        records, problems = commits(self._folder)
        spec.check_same(self.path, records[0].shape, records[0].dtype)
        return records, problems

    def _begin(self, size: int) -> None:
        """Make the files of a new array. Files of an array that was never committed are replaced."""
        self._folder.remove(TILES)
        self._folder.flush()  # TILES must be deleted before BEGUN, because BEGUN proves that Outcrop made TILES
        self._folder.remove(BEGUN)
        self._folder.create(BEGUN, self._record.to_bytes(), flush=True)
        self._folder.create(TILES, size=size)
        self._folder.flush()
        flush_parents(self._folder.path)

    def _open_tiles(self, spec: ArraySpec, reads_only: bool) -> None:
        tiles = self.path / TILES
        with self._folder.opened(TILES, os.O_RDONLY if reads_only else os.O_RDWR) as handle:
            status = os.fstat(handle)
            if not reads_only and status.st_nlink != 1:
                raise StorageError(f"{tiles} has another name, too (a hard link); copy the folder and use the copy")
            # The file `tiles` of an array that was only read until now has one slot for each tile. An array that is
            # updated needs two slots for each tile.
            if not reads_only and status.st_size < slots_bytes(spec):
                self._folder.grow(TILES, slots_bytes(spec))
            # The core opens the file `tiles` again through the same folder descriptor, and does not follow links.
            self._identity, self._opened = (status.st_dev, status.st_ino), f"{path_of(self._folder.handle)}/{TILES}"
            with named(self._opened, tiles):
                self._file = _core.SlotFile(self._opened, spec.nbytes, TILE_BYTES, not reads_only, transfer_threads())

    def _check_here(self) -> None:
        """Raise StorageError if the path of the array no longer leads to its folder and its file `tiles`."""
        status = self._folder.status(TILES) if self._folder.is_here() else None
        if status is None or (status.st_dev, status.st_ino) != self._identity:
            raise _gone(self.path)

    def _show(self) -> None:
        """Map the tiles of the last commit into memory. After this call, the mapped bytes are the values of the array,
        and the array is read-only."""
        with named(self._opened, self.path / TILES):
            self.bytes = self._file.map().bytes
        self.read_only = True
        self._folder.share(self._held)

    def _load(
        self, records: Sequence[Record], problems: list[str], load: Callable[[Record], list[tuple[int, int, int]]]
    ) -> None:
        """Load the newest intact commit of the array. If a newer commit is damaged, show a warning."""
        for record in records:
            damaged = load(record)
            if not damaged:
                self._record = replace(record, array=record.array or self._record.array)
                break
            problems.append(self._describe(record, damaged))
        else:
            if problems:
                raise no_commit_left(self.path, problems)
            return
        if problems:
            text = f"{'; '.join(problems)}; opened generation {self.generation} of {self.path}, step {self.steps}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _describe(self, record: Record, damaged: Sequence[tuple[int, int, int]]) -> str:
        tile, offset, error = damaged[0]
        why = os.strerror(error) if error else "checksum mismatch"
        others = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        place = f"{self.path / TILES} at offset {offset}"
        return f"generation {record.generation} is damaged: {why} in {place} (tile {tile}{others})"


def _remove_files(folder: Directory) -> None:
    with suppress(OSError):
        folder.remove_files((TILES, BEGUN))


def _held(folder: Directory, shared: bool) -> int:
    """Lock the folder. Raises InputError if another process, or another array of this process, has the lock of the
    folder."""
    try:
        return folder.hold(shared)
    except InputError:
        who = "in use by another process, or by an array of this process that is not closed"
        raise InputError(f"{folder.path} is {who}; wait for it, or close it") from None


def _gone(path: Path) -> StorageError:
    return StorageError(f"{path} was moved or deleted while it was in use: commits are no longer possible")


@dataclass(frozen=True)
class Record:
    """The record of one commit. `generation` is the number of the commit. The commit was made after `steps` steps. For
    each tile, `slots` contains one byte with the number of the slot, and `checksums` has four bytes with the CRC32C.
    `persist` and `access` are the arguments with which the array was made.

    `array` is a random name, which is equal in all records of one array. A record with another random name belongs to
    another array. In records of older versions of Outcrop, `array` is None. Generation 0 is a new array without values,
    so its record has empty `slots` and `checksums`.
    """

    array: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    access: str
    persist: Persist
    generation: int
    steps: int
    slots: bytes
    checksums: bytes

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def is_of_other_array(self, other: Record) -> bool:
        """Return True if this record and `other` have different random names, shapes or dtypes, and so belong to
        different arrays."""
        if self.array and other.array and self.array != other.array:
            return True
        return (self.shape, self.dtype) != (other.shape, other.dtype)

    def to_bytes(self) -> bytes:
        """Return the record as JSON with its checksum."""
        content = {
            "format": FORMAT,
            "shape": list(self.shape),
            "dtype": self.dtype.str,
            "access": self.access,
            "persist": self.persist,
            "tile_bytes": TILE_BYTES,
            "generation": self.generation,
            "steps": self.steps,
            "slots": self.slots.hex(),
            "checksums": self.checksums.hex(),
        }
        return sealed(content if self.array is None else {**content, "array": self.array})


class _Content(msgspec.Struct):
    """The fields of a record in a file, with the type and the range of each field."""

    format: Literal[1]
    shape: Annotated[tuple[_Cells, ...], msgspec.Meta(max_length=MAX_AXES)]
    dtype: Annotated[str, msgspec.Meta(pattern="^[<>=|][biufc][0-9]{1,2}\\Z")]
    access: Literal["read", "update"]
    persist: Literal["end", "step"] | _Cells
    tile_bytes: Literal[1048576]
    generation: _Count
    steps: _Count
    slots: Annotated[str, msgspec.Meta(pattern="^(0[01])*\\Z")]
    checksums: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{8})*\\Z")]
    array: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}\\Z")] | None = None


def parse_record(data: bytes, path: Path) -> Record:
    """Read a record. Raises CorruptionError if the record is damaged. Raises InputError if this version of Outcrop
    cannot read the format of the record."""
    content = unsealed(data, path)
    if content.get("format") != FORMAT and type(content.get("format")) is int:
        raise InputError(f"{path} is of format {content['format']}; this version of Outcrop reads {FORMAT}")
    try:
        found = msgspec.convert(content, _Content)
        dtype = parse_dtype(found.dtype)
    except (msgspec.ValidationError, InputError) as error:
        raise CorruptionError(f"{path} is damaged: {error}") from None
    values = msgspec.structs.asdict(found) | {
        "dtype": dtype,
        "slots": bytes.fromhex(found.slots),
        "checksums": bytes.fromhex(found.checksums),
    }
    record = Record(**{one.name: values[one.name] for one in fields(Record)})
    if record.nbytes > MAX_NUMBER:
        raise CorruptionError(f"{path} is damaged: the shape has more than {MAX_NUMBER} bytes")
    tiles = tiles_of(record.nbytes) if record.generation else 0
    if (len(record.slots), len(record.checksums)) != (tiles, 4 * tiles):
        raise CorruptionError(
            f"{path} is damaged: {len(record.slots)} slots and {len(record.checksums) // 4} checksums for {tiles} tiles"
        )
    return record


def tiles_of(nbytes: int) -> int:
    """Return the number of tiles of an array of `nbytes` bytes. The last tile may be shorter."""
    return -(-nbytes // TILE_BYTES)


def slots_bytes(spec: ArraySpec) -> int:
    """Return the size, in bytes, of the file `tiles` of an array with the description `spec`."""
    return _slots_bytes(spec.nbytes, 1 if spec.access == "read" else 2)


def _slots_bytes(nbytes: int, slots: int) -> int:
    """Return the size, in bytes, of the file `tiles`. The array has `nbytes` bytes, and `slots` slots for each tile."""
    return slots * int(_core.SlotFile.stride_bytes(nbytes))


def _record_bytes(nbytes: int) -> int:
    return OTHER_BYTES + BYTES_PER_TILE * tiles_of(nbytes)


def holds_array(path: Path) -> bool:
    """Return True if `path` is the folder of an array, with or without commits."""
    try:
        names = set(os.listdir(path))
    except OSError:
        return False
    return TILES in names and names <= NAMES


def has_commits(folder: Directory) -> bool:
    """Return True if the folder holds an array with a commit, and False if a new array can begin in the folder. Raises
    InputError if the folder holds files that do not belong to an array, and StorageError if a file of the array is not
    a regular file."""
    names = folder.names()
    for name in names:
        if name not in NAMES:
            shown = name if name.isprintable() else ascii(name)
            raise InputError(f"{folder.path} holds something else ({shown}); give a new or empty folder")
        status = folder.status(name)
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise StorageError(f"{folder.path / name} is not a regular file; remove it, or restore the original file")
    if any(name in names for name in RECORDS):
        if TILES not in names:
            raise CorruptionError(f"{folder.path} has commits, but its file {TILES} is missing; restore it")
        return True
    if TILES in names and not _is_begun(folder):
        tiles = folder.path / TILES
        raise InputError(f"{tiles} does not belong to an array that was begun here; move it, or give another path")
    return False


def _is_begun(folder: Directory) -> bool:
    try:
        return parse_record(folder.read(BEGUN, OTHER_BYTES), folder.path / BEGUN).generation == 0
    except (OSError, StorageError, InputError):
        return False


def commits(folder: Directory) -> tuple[list[Record], list[str]]:
    """Return the intact records of a folder, the newest first, and a message for each damaged record. Raises
    CorruptionError if no record is intact, or if the records belong to different arrays. Raises InputError if this
    version of Outcrop cannot read the format of a record."""
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
        names = " and ".join(RECORDS)
        wrong = f"{names} in {folder.path} belong to different arrays"
        raise CorruptionError(f"{wrong}; remove the file of the other array")
    return sorted(records, key=lambda record: -record.generation), problems


def no_commit_left(path: Path, problems: list[str]) -> CorruptionError:
    """Return the error for an array whose commits are all damaged."""
    return CorruptionError(f"{path} has no intact commit: {'; '.join(problems)}")


def _read_record(folder: Directory, name: str, number: int, tiles_bytes: int) -> Record | None:
    """Read and check the record in the file `name` of the folder. Return None if the file does not exist."""
    path = folder.path / name
    # A record is damaged if it lists more tiles than the file `tiles` can hold. Such a record is also too long, so the
    # length of a record is checked before the record is read.
    max_bytes = min(MAX_RECORD_BYTES, _record_bytes(tiles_bytes))
    try:
        status = folder.status(name)
        if status is None:
            return None
        if status.st_size > max_bytes:
            raise CorruptionError(f"{path} is damaged: {status.st_size} bytes are too many for the {TILES} file")
        record = parse_record(folder.read(name, max_bytes), path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CorruptionError(f"{path} cannot be read: {error.strerror}") from None
    if record.generation == 0 or record.generation % 2 != number:
        raise CorruptionError(f"{path} is damaged: generation {record.generation} does not belong in this file")
    needed = _slots_bytes(record.nbytes, 2 if any(record.slots) else 1)
    if tiles_bytes < needed:
        tiles = folder.path / TILES
        raise CorruptionError(f"{tiles} has {tiles_bytes} bytes; generation {record.generation} needs {needed}")
    return record


def last_record(path: Path) -> Record | None:
    """Return the newest intact record in a folder, or None if the array has no commit yet. This function takes no lock
    and changes no file. Raises the errors of `has_commits` and `commits`."""
    with storage_errors(path, "opened"), Directory.open(path) as folder:
        return commits(folder)[0][0] if has_commits(folder) else None


def spec_of(path: Path, access: str | None = None, persist: Persist | None = None) -> ArraySpec:
    """Return the description of the array in a folder. Raises InputError if the array has no commit yet."""
    record = last_record(path)
    if record is None:
        raise InputError(f"{path} holds an array without any commit yet; make it again with oc.array")
    access = record.access if access is None else access
    kept: Any = record.persist if persist is None else persist
    if access == "read" and persist is None:
        kept = "end"
    return ArraySpec(record.shape, record.dtype, "auto", access, kept, path)
