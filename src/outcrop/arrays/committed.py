"""An array that is committed: the protocol that keeps the last commit whole, in a folder as folder.py describes it.

The program works on bytes of its own: a file without a name on the same tier, mapped, or DRAM. A commit is a
transaction:

    tiles that have changed ──► their free slots ──► durable          killed here: still generation g
    commit.N.json.tmp ──► fsync ──► rename ──► fsync folder            N = (g + 1) mod 2; the rename is what counts

The slots of generation g are not written before g + 1 is committed, so g is whole until then. After that it stays as
it was until the next commit begins, and takes over should g + 1 turn out to be damaged. Every byte is compared with its
checksum when the array is opened.

A process that changes the array holds the folder alone; readers share it, and see the tiles where they lie. The folder
is held before anything in it is looked at or made. All names are below its descriptor, and no link is followed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.arrays.folder import BEGUN, RECORDS, TILES, check_size, commits, has_commits, no_commit_left, slots_bytes
from outcrop.arrays.keeper import Keeper, transfer_threads
from outcrop.arrays.opened import named, path_of, storage_errors
from outcrop.arrays.record import MAX_NUMBER, TILE_BYTES, Record
from outcrop.arrays.spec import ArraySpec
from outcrop.durable import Directory, flush_parents
from outcrop.errors import InputError, StorageError
from outcrop.paths import make_directory, remove_made
from outcrop.tiers.storage_tiers import BY_NOTHING
from outcrop.tiers.tier import Tier

TakeMemory = Callable[[int], "NDArray[np.uint8]"]
"""Gives so many bytes to work on."""


class Committed(Keeper):
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
                is_reader = self._hold(spec.access)
                undo.callback(remove_made, made)  # only while the folder is held, and as far as they are empty
                records, problems = self._look(spec)
                if not is_reader:
                    self._folder.flush()  # a killed process may have renamed its record and not made that durable
                if not records:
                    undo.callback(_remove_files, self._folder)
                    self._begin(slots_bytes(spec))
                self._open_tiles(spec, is_reader)
            self.primitive = BY_NOTHING if tier.kind == "tmpfs" else self._file.primitive
            if is_reader:
                self._load(records, problems, lambda record: self._file.verify(record.checksums, record.slots))
                self._show()
            else:
                memory = self._content = take_memory(spec.nbytes)
                self._load(records, problems, lambda record: self._file.load(record.checksums, record.slots, memory))
            undo.pop_all()
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
        """Commit, if anything is new: the bytes written. Raises StorageError; the last commit is whole then, too, as
        long as the folder is there."""
        last = self._record
        if self.is_sealed:
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
        """See Keeper. Nothing is committed."""
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

    def _open_tiles(self, spec: ArraySpec, is_reader: bool) -> None:
        tiles = self.path / TILES
        with self._folder.opened(TILES, os.O_RDONLY if is_reader else os.O_RDWR) as handle:
            status = os.fstat(handle)
            if not is_reader and status.st_nlink != 1:
                raise StorageError(f"{tiles} has another name, too (a hard link); copy the folder and use the copy")
            if not is_reader and status.st_size < slots_bytes(spec):  # one slot, because it was only read
                self._folder.grow(TILES, slots_bytes(spec))
            # The core opens the name again, beneath the same descriptor and without following a link.
            self._identity, self._opened = (status.st_dev, status.st_ino), f"{path_of(self._folder.handle)}/{TILES}"
            with named(self._opened, tiles):
                self._file = _core.SlotFile(self._opened, spec.nbytes, TILE_BYTES, not is_reader, transfer_threads())

    def _check_here(self) -> None:
        """Raises StorageError when the path does not lead to this array any more."""
        status = self._folder.status(TILES) if self._folder.is_here() else None
        if status is None or (status.st_dev, status.st_ino) != self._identity:
            raise _gone(self.path)

    def _show(self) -> None:
        """From here on the values are those of the last commit where they lie."""
        with named(self._opened, self.path / TILES):
            self._content = self._file.map().bytes
        self.is_sealed = True
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
