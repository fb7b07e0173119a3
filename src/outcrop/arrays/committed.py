"""An array that is committed: the protocol that keeps the last commit whole, and the folder that it is in.

    psi/
      tiles            two slots for each tile of 1 MiB (one, if the array is only read)
      commit.0.json    a commit with an even number: which slot each tile is in, and its CRC32C
      commit.1.json    one with an odd number

The program works on bytes of its own: a file without a name on the same tier, mapped, or DRAM. A commit is a
transaction:

    tiles that have changed ──► their free slots ──► durable          killed here: still generation g
    commit.N.json.tmp ──► fsync ──► rename ──► fsync folder            N = (g + 1) mod 2; the rename is what counts

The slots of generation g are not written before g + 1 is committed, so g is whole until then. After that it stays as
it was until the next commit begins, and takes over should g + 1 turn out to be damaged. Every byte is compared with its
checksum when the array is opened.

A new array begins with commit.0.json.tmp, the record of its generation 0, which has no values. It shows that `tiles`,
without any commit beside it, was made by Outcrop and may be made again.

A process that changes the array holds the folder alone; readers share it, and see the tiles where they lie. The folder
is held before anything in it is looked at or made. All names are below its descriptor, and no link is followed. Nothing
in it is believed before it has been compared with all that it can be compared with: files are regular ones, a record is
whole and where its number belongs, two records are of one array, and `tiles` is large enough. `parse_record` checks the
type and the range of each field, and that the tables have one entry for each tile, so that code behind it may count
and allocate by what a record says.
"""

from __future__ import annotations

import math
import os
import stat
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
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
"""Version of the folder's format; a reader refuses others."""
TILES = "tiles"
RECORDS = ("commit.0.json", "commit.1.json")
BEGUN = "commit.0.json.tmp"
NAMES = frozenset({TILES, *RECORDS, *(f"{name}.tmp" for name in RECORDS)})
"""All that may be in the folder."""
TILE_BYTES = 1 << 20
MAX_RECORD_BYTES = 1 << 30
"""Records of arrays of 100 TiB."""
BYTES_PER_TILE, BYTES_BESIDE = 10, 1 << 14
"""Of a record's text: for each tile its slot and checksum in hexadecimal; and for all other fields, at most."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Cells = Annotated[int, msgspec.Meta(ge=1, le=MAX_NUMBER)]

TakeMemory = Callable[[int], "NDArray[np.uint8]"]
"""Gives so many bytes to work on."""


class Committed(ArrayStorage):
    """An array in a folder, open: held, with the values of its last commit, or zeros if there is none."""

    def __init__(self, path: Path, spec: ArraySpec, tier: Tier, take_memory: TakeMemory) -> None:
        """Open the array in the folder, or begin one where there is none. Raises InputError when the folder is in use
        or holds something else, StorageError, CorruptionError."""
        self.path = path
        self._held = -1
        check_size(spec)
        self._record = Record(uuid4().hex, spec.shape, spec.dtype, spec.access, spec.persist, 0, 0, b"", b"")
        with ExitStack() as undo:
            with storage_errors(path, "used"):
                made = make_directory(path.absolute())
                self._folder = Directory.open(path.absolute())
                undo.callback(self.close)
                reads_only = self._hold(spec.access)
                undo.callback(remove_made, made)  # only while the folder is held, and as far as they are empty
                records, problems = self._look(spec)
                if not reads_only:
                    self._folder.flush()  # a killed process may have renamed its record and not made that durable
                if not records:
                    undo.callback(_remove_files, self._folder)
                    self._begin(slots_bytes(spec))
                self._open_tiles(spec, reads_only)
            self.primitive = BY_NOTHING if tier.kind == "tmpfs" else self._file.primitive
            if reads_only:
                self._load(records, problems, lambda record: self._file.verify(record.checksums, record.slots))
                self._show()
            else:
                memory = self._content = take_memory(spec.nbytes)
                self._load(records, problems, lambda record: self._file.load(record.checksums, record.slots, memory))
            undo.pop_all()
        self._record = replace(self._record, access=spec.access, persist=spec.persist)

    @property
    def bytes(self) -> NDArray[np.uint8]:
        return self._content

    @property
    def generation(self) -> int:
        return self._record.generation

    @property
    def steps(self) -> int:
        return self._record.steps

    def flush(self, steps: int) -> int:
        """Commit, if anything is new: the bytes written. Raises StorageError; the last commit is whole then, too, as
        long as the folder is there."""
        last = self._record
        if self.read_only:
            return 0
        with storage_errors(self.path, "used"):
            self._check_here()
        with named(self._opened, self.path / TILES):
            written = self._file.write_changed(self._content)
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
            self._check_here()  # again: a commit that no reader can find is none
        self._file.accept()
        self._record = record
        if record.access == "read":
            self._show()
        return written

    def close(self) -> None:
        """Give up the folder; nothing is committed."""
        held, self._held = self._held, -1
        if held >= 0:
            self._folder.release(held)
        self._folder.close()

    def _hold(self, access: str) -> bool:
        """Hold the folder, alone or with other readers; whether it is only read."""
        if access == "read":
            self._held = _held(self._folder, shared=True)
            if has_commits(self._folder):
                return True
            self._folder.release(self._held)
            self._held = -1
        self._held = _held(self._folder, shared=False)
        if not self._folder.is_here():
            raise _gone(self.path)
        if access == "read" and has_commits(self._folder):  # of a process that held it in between
            self._folder.share(self._held)
            return True
        return False

    def _look(self, spec: ArraySpec) -> tuple[list[Record], list[str]]:
        """See `commits`; nothing where an array can begin."""
        if not has_commits(self._folder):
            return [], []
        records, problems = commits(self._folder)
        spec.check_same(self.path, records[0].shape, records[0].dtype)
        return records, problems

    def _begin(self, size: int) -> None:
        """Make the files of a new array in place of one that was begun and never committed."""
        self._folder.remove(TILES)
        self._folder.flush()  # without BEGUN, tiles are somebody's
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
            if not reads_only and status.st_size < slots_bytes(spec):  # one slot, because it was only read
                self._folder.grow(TILES, slots_bytes(spec))
            # The core opens the name again, beneath the same descriptor and without following a link.
            self._identity, self._opened = (status.st_dev, status.st_ino), f"{path_of(self._folder.handle)}/{TILES}"
            with named(self._opened, tiles):
                self._file = _core.SlotFile(self._opened, spec.nbytes, TILE_BYTES, not reads_only, transfer_threads())

    def _check_here(self) -> None:
        """Raises StorageError when the path does not lead to this array any more."""
        status = self._folder.status(TILES) if self._folder.is_here() else None
        if status is None or (status.st_dev, status.st_ino) != self._identity:
            raise _gone(self.path)

    def _show(self) -> None:
        """From here on the values are those of the last commit where they lie."""
        with named(self._opened, self.path / TILES):
            self._content = self._file.map().bytes
        self.read_only = True
        self._folder.share(self._held)

    def _load(
        self, records: Sequence[Record], problems: list[str], load: Callable[[Record], list[tuple[int, int, int]]]
    ) -> None:
        """Take the newest commit that is whole, with a warning when it is not the last one."""
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
    """See Directory.hold; the array in the way may be one of this process, too."""
    try:
        return folder.hold(shared)
    except InputError:
        who = "in use by another process, or by an array of this one that is not closed"
        raise InputError(f"{folder.path} is {who}; wait for it, or close it") from None


def _gone(path: Path) -> StorageError:
    return StorageError(f"{path} was moved or deleted while it was in use: nothing is committed there any more")


@dataclass(frozen=True)
class Record:
    """The values of `generation`, `steps` steps from the beginning: for each tile the slot it is in, a byte, and its
    CRC32C, four. `persist` and `access` are as the array was made.

    `array` is a random name that all records of one array have, by which a record of another array is found; None in
    records of versions before it. Generation 0 is an array that was begun and has no values: its tables are empty.
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
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def is_of_other_array(self, other: Record) -> bool:
        """Whether two records cannot be of the same array."""
        if self.array and other.array and self.array != other.array:
            return True
        return (self.shape, self.dtype) != (other.shape, other.dtype)

    def to_bytes(self) -> bytes:
        """As JSON, with a checksum of itself."""
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
    """Types and ranges of the fields in the file."""

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
    """The record in a file's content. Raises CorruptionError when it is damaged, InputError when it is of another
    format."""
    content = unsealed(data, path)
    if content.get("format") != FORMAT and type(content.get("format")) is int:
        raise InputError(f"{path} is of format {content['format']}; this version of Outcrop reads {FORMAT}")
    try:
        found = msgspec.convert(content, _Content)
        dtype = parse_dtype(found.dtype)
    except (msgspec.ValidationError, InputError) as error:
        raise CorruptionError(f"{path} is damaged: {error}") from None
    record = Record(
        array=found.array,
        shape=found.shape,
        dtype=dtype,
        access=found.access,
        persist=found.persist,
        generation=found.generation,
        steps=found.steps,
        slots=bytes.fromhex(found.slots),
        checksums=bytes.fromhex(found.checksums),
    )
    if record.nbytes > MAX_NUMBER:
        raise CorruptionError(f"{path} is damaged: the shape is of more than {MAX_NUMBER} bytes")
    tiles = tiles_of(record.nbytes) if record.generation else 0
    if (len(record.slots), len(record.checksums)) != (tiles, 4 * tiles):
        raise CorruptionError(
            f"{path} is damaged: {len(record.slots)} slots and {len(record.checksums) // 4} checksums for {tiles} tiles"
        )
    return record


def tiles_of(nbytes: int) -> int:
    """Tiles that so many bytes take; the last one may be shorter."""
    return -(-nbytes // TILE_BYTES)


def slots_bytes(spec: ArraySpec) -> int:
    """Bytes of the file of tiles."""
    return _slots_bytes(spec.nbytes, 1 if spec.access == "read" else 2)


def _slots_bytes(nbytes: int, slots: int) -> int:
    """The same for an array of that many bytes, each of whose tiles has that many slots."""
    return slots * int(_core.SlotFile.stride_bytes(nbytes))


def check_size(spec: ArraySpec) -> None:
    """Raises InputError for an array whose record would be too long to be read again."""
    if _record_bytes(spec.nbytes) > MAX_RECORD_BYTES:
        max_tib = MAX_RECORD_BYTES // BYTES_PER_TILE * TILE_BYTES >> 40
        raise InputError(f"{spec.path} cannot be made: a committed array has at most {max_tib} TiB; split it")


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
    max_bytes = min(MAX_RECORD_BYTES, _record_bytes(tiles_bytes))
    try:
        status = folder.status(name)
        if status is None:
            return None
        if status.st_size > max_bytes:
            raise CorruptionError(f"{path} is damaged: {status.st_size} bytes are too many for the {TILES} beside it")
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
