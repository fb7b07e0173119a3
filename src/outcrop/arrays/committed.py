"""An array that is committed: a folder, and the protocol that keeps the last commit whole.

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

Whoever changes the array holds the folder alone; readers share it, and see the tiles where they lie.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.arrays.keeper import Keeper, transfer_threads
from outcrop.arrays.record import Record, read_record
from outcrop.arrays.spec import ArraySpec, Persist
from outcrop.durable import flush_folder, lock_folder, replace_file, share_folder
from outcrop.errors import CorruptionError, InputError, StorageError
from outcrop.tiers.storage_tiers import BY_NOTHING
from outcrop.tiers.tier import Tier

TILE_BYTES = 1 << 20
TILES = "tiles"
RECORDS = ("commit.0.json", "commit.1.json")
NAMES = frozenset({TILES, *RECORDS, *(f"{name}.tmp" for name in RECORDS)})
"""All that may be in the folder."""

TakeMemory = Callable[[int], "NDArray[np.uint8]"]
"""Gives so many bytes to work on."""


class Committed(Keeper):
    """An array in a folder, open: held, with the values of its last commit, or zeros if there is none."""

    def __init__(self, path: Path, spec: ArraySpec, tier: Tier, take_memory: TakeMemory) -> None:
        """The folder must be there, with the tiles of such an array. Raises InputError when it is in use, StorageError,
        CorruptionError."""
        self.path = path
        self._record = _new_record(spec)
        is_reader = spec.access == "read" and any((path / name).exists() for name in RECORDS)
        self._held = _hold(path, is_reader)
        try:
            if not is_reader:
                if any((path / name).exists() for name in RECORDS):
                    flush_folder(path)  # what was committed and then killed must last before slots are written over
                _allocate(path / TILES, spec)
            self._file = _core.SlotFile(str(path / TILES), spec.nbytes, TILE_BYTES, not is_reader, transfer_threads())
            self.primitive = BY_NOTHING if tier.kind == "tmpfs" else self._file.primitive
            if is_reader:
                self._load(lambda record: self._file.verify(record.checksums, record.slots))
                self._show()
            else:
                memory = self._content = take_memory(spec.nbytes)
                self._load(lambda record: self._file.load(record.checksums, record.slots, memory))
        except BaseException:
            os.close(self._held)
            raise
        self._record = replace(self._record, access=spec.access, persist=spec.persist)

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """See Keeper."""
        return self._content

    @property
    def generation(self) -> int:
        """See Keeper."""
        return self._record.generation

    @property
    def steps(self) -> int:
        """See Keeper."""
        return self._record.steps

    def flush(self, steps: int) -> int:
        """Commit, if anything is new: the bytes written. Raises StorageError; the last commit is whole then, too."""
        last = self._record
        if self.is_sealed:
            return 0
        written = self._file.write_changed(self._content)
        if written == 0 and last.generation > 0 and last.steps == steps:
            return 0
        record = replace(
            last, generation=last.generation + 1, steps=steps, slots=self._file.slots, checksums=self._file.checksums
        )
        path = self.path / RECORDS[record.generation % 2]
        try:
            replace_file(path, record.to_text())
        except OSError as error:
            raise StorageError(f"cannot commit to {path}: {error.strerror}") from error
        self._file.accept()
        self._record = record
        if record.access == "read":
            self._show()
        return written

    def close(self) -> None:
        """See Keeper. Nothing is committed."""
        os.close(self._held)

    def _show(self) -> None:
        """From here on the values are those of the last commit where they lie."""
        self._content = self._file.map().bytes
        self.is_sealed = True
        share_folder(self._held)

    def _load(self, load: Callable[[Record], list[tuple[int, int, int]]]) -> None:
        """Take the newest commit that is whole, with a warning when it is not the last one."""
        records, problems = _records(self.path)
        for record in records:
            damaged = load(record)
            if not damaged:
                self._record = record
                break
            problems.append(self._describe(record, damaged))
        else:
            if problems:
                raise CorruptionError(f"{self.path} has no commit left that is whole: {'; '.join(problems)}")
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


def _new_record(spec: ArraySpec) -> Record:
    return Record(spec.shape, spec.dtype, spec.access, spec.persist, TILE_BYTES, 0, 0, b"", b"")


def _records(path: Path) -> tuple[list[Record], list[str]]:
    """The commits of a folder, newest first, and what is wrong with the others."""
    records, problems = [], []
    for name in RECORDS:
        try:
            record = read_record(path / name)
        except CorruptionError as error:
            problems.append(str(error))
        else:
            records += [record] if record else []
    return sorted(records, key=lambda record: -record.generation), problems


def slots_bytes(spec: ArraySpec) -> int:
    """Bytes of the file of tiles."""
    return int(_core.SlotFile.stride_bytes(spec.nbytes)) * (1 if spec.access == "read" else 2)


def create_folder(path: Path, spec: ArraySpec) -> None:
    """Make a folder for such an array, or begin anew in one without any commit. Raises StorageError."""
    path = path.absolute()
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        held = _hold(path, is_reader=False)
        try:
            _core.create_file(str(path / TILES), slots_bytes(spec))
            flush_folder(path)
            for folder in new or [path]:  # each of them is a name in the one above
                flush_folder(folder.parent)
        finally:
            os.close(held)
    except OSError as error:
        raise StorageError(f"{path} cannot be made: {error.strerror}") from error


def _hold(path: Path, is_reader: bool) -> int:
    """See lock_folder; the array in the way may be one of this process, too."""
    try:
        return lock_folder(path, shared=is_reader)
    except InputError:
        who = "in use by another process, or by an array of this one that is not closed"
        raise InputError(f"{path} is {who}; wait for it, or close it") from None


def _allocate(tiles: Path, spec: ArraySpec) -> None:
    """Room for both slots of an array that has had one, because it was only read."""
    size = slots_bytes(spec)
    try:
        with open(tiles, "r+b") as file:
            if os.fstat(file.fileno()).st_size < size:
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise StorageError(f"{tiles} cannot be used: {error.strerror}") from error


def holds_array(path: Path) -> bool:
    """Whether a path is such a folder, perhaps without any commit yet."""
    try:
        names = set(os.listdir(path))
    except OSError:
        return False
    return TILES in names and names <= NAMES


def last_record(path: Path) -> Record | None:
    """The newest commit whose record is whole; None when there has been none. Raises CorruptionError when all are
    damaged."""
    records, problems = _records(path)
    if not records and problems:
        raise CorruptionError(f"{path} has no commit left that is whole: {'; '.join(problems)}")
    return records[0] if records else None


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
