"""Deliberate bugs in the protocols. A search through random histories must find each of these bugs.

Each bug is a context manager that changes `Directory`, or the code of runs or arrays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from outcrop import durable
from outcrop.durable import Directory
from outcrop.errors import InputError
from outcrop.run.disk import creation
from outcrop.run.disk.creation import clear
from outcrop.run.disk.manifest import MANIFEST, read_manifest
from outcrop.run.disk.planes import Planes
from outcrop.run.disk.state import State
from simulated.array_histories import SimulatedSlotFile


@contextlib.contextmanager
def no_flush_before_rename() -> Iterator[None]:
    """The bug: a new file is not flushed before it is renamed. After a power cut, the name may exist without the
    content."""
    create = Directory.create

    def unflushed(self: Directory, name: str, *parts: Any, size: int = 0, flush: bool = False) -> None:
        create(self, name, *parts, size=size)

    with patch.object(Directory, "create", unflushed):
        yield


@contextlib.contextmanager
def flush_of_the_wrong_file() -> Iterator[None]:
    """The bug: after rows were appended to a file of records, the folder is flushed instead of this file."""

    def write(self: Directory, name: str, offset: int, content: Any) -> None:
        with self.opened(name, os.O_RDWR) as handle:
            self.write_to(handle, offset, content)
        durable.SYSTEM.fsync(self.handle)

    with patch.object(Directory, "write", write):
        yield


@contextlib.contextmanager
def cleanup_without_the_lock() -> Iterator[None]:
    """The bug: if the start of a run is refused, the start removes files of another process."""
    held = creation.hold_directories

    @contextlib.contextmanager
    def careless(directories: Sequence[Path]) -> Iterator[Any]:
        try:
            with held(directories) as taken:
                yield taken
        except InputError:
            with contextlib.suppress(OSError, InputError), Directory.open(directories[0]) as own:
                clear(own, read_manifest(own))
                own.remove(MANIFEST)
            raise

    with patch.object(creation, "hold_directories", careless):
        yield


@contextlib.contextmanager
def overwrite_of_the_current_turn() -> Iterator[None]:
    """The bug: the next generation is written over the committed generation."""
    target_planes = State.target_planes

    def current_planes(self: State, name: str, turn: int, io: str = "auto") -> Planes:
        if name in self.manifest.filled and not self.manifest.entry(name).is_static:
            turn = self.manifest.current
        return target_planes(self, name, turn, io)

    with patch.object(State, "target_planes", current_planes):
        yield


@contextlib.contextmanager
def record_before_data() -> Iterator[None]:
    """The bug: the manifest of the new generation is written before the planes are flushed."""
    late: dict[int, list[tuple[str, int]]] = {}
    target_planes, store = State.target_planes, State._store

    def noted(self: State, name: str, turn: int, io: str = "auto") -> Planes:
        late.setdefault(id(self), []).append((name, turn))
        return target_planes(self, name, turn, io)

    def stored(self: State, manifest: Any) -> None:
        store(self, manifest)
        for name, turn in late.pop(id(self), []):
            with target_planes(self, name, turn, "sync") as planes:
                planes._store.flush()

    def created(self: State, *arguments: Any) -> None:
        late.pop(id(self), None)
        create(self, *arguments)

    create = State.__init__
    with (
        patch.object(State, "__init__", created),
        patch.object(State, "target_planes", noted),
        patch.object(State, "_store", stored),
        patch.object(Planes, "flush", lambda self: None),
    ):
        yield


@contextlib.contextmanager
def tiles_flushed_by_another_file() -> Iterator[None]:
    """The bug: the file of tiles is not flushed before a commit. Only the record of the commit is flushed."""
    with patch.object(SimulatedSlotFile, "flush", lambda self: None):
        yield


@contextlib.contextmanager
def array_cleaned_without_the_lock() -> Iterator[None]:
    """The bug: a process that cannot lock an array removes the files of another process."""
    hold = Directory.hold

    def careless(self: Directory, shared: bool = False) -> int:
        try:
            return hold(self, shared)
        except InputError:
            self.remove_files(["tiles", "commit.0.json.tmp"])
            raise

    with patch.object(Directory, "hold", careless):
        yield


@contextlib.contextmanager
def overwrite_of_the_current_slot() -> Iterator[None]:
    """The bug: new tiles are written over the tiles of the last commit."""
    with patch.object(SimulatedSlotFile, "free_slot", lambda self, slot: slot if self._last else 1 - slot):
        yield


@contextlib.contextmanager
def record_before_tiles() -> Iterator[None]:
    """The bug: the record of the new commit is written before the tiles are flushed."""
    flush, accept = SimulatedSlotFile.flush, SimulatedSlotFile.accept

    def accepted(self: SimulatedSlotFile) -> None:
        flush(self)
        accept(self)

    with (
        patch.object(SimulatedSlotFile, "flush", lambda self: None),
        patch.object(SimulatedSlotFile, "accept", accepted),
    ):
        yield


OF_RUNS = [
    no_flush_before_rename,
    flush_of_the_wrong_file,
    cleanup_without_the_lock,
    overwrite_of_the_current_turn,
    record_before_data,
]
OF_ARRAYS = [
    no_flush_before_rename,
    tiles_flushed_by_another_file,
    array_cleaned_without_the_lock,
    overwrite_of_the_current_slot,
    record_before_tiles,
]
