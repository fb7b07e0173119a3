"""Substitutes for C++ code, so that stores and snapshots of the engine also use the simulated system."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from outcrop import _core, durable
from outcrop.errors import StorageError
from outcrop.run.disk import planes, state, verify
from outcrop.run.disk.planes import FileBeneath
from simulated.system import SimulatedSystem

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class SimulatedStore:
    """A substitute for `_core.Store` over simulated files."""

    def __init__(self, files: Sequence[FileBeneath], backend: str, direct: bool, writable: bool) -> None:
        self.paths = [str(file) for file in files]
        self._handles: list[int] = []
        try:
            for file in files:
                self._handles.append(_open_beneath(file, os.O_RDWR if writable else os.O_RDONLY))
        except BaseException:
            self.close()
            raise

    def read_into(self, file: int, offset: int, target: NDArray[np.uint8]) -> None:
        system, done = durable.SYSTEM, 0
        with storage_errors("read", self.paths[file]):
            while done < len(target):
                part = system.read(self._handles[file], len(target) - done, offset + done)
                if not part:
                    raise StorageError(f"read failed: {self.paths[file]} ends at byte {offset + done}")
                target[done : done + len(part)] = np.frombuffer(part, np.uint8)
                done += len(part)

    def write_from(self, file: int, offset: int, source: NDArray[np.uint8]) -> None:
        with storage_errors("write", self.paths[file]):
            write_all(self._handles[file], offset, source.tobytes())

    def flush(self) -> None:
        for handle, path in zip(self._handles, self.paths, strict=True):
            with storage_errors("flush", path):
                durable.SYSTEM.fsync(handle)

    def close(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            durable.SYSTEM.close(handle)


def write_snapshot(folder: int, name: str, content: bytes) -> int:
    """Write a snapshot with the operations that the engine uses during a pass. Return the checksum of the snapshot."""
    with storage_errors("write", name):
        handle = _open_beneath(FileBeneath(folder, name, name), os.O_RDWR)
        try:
            write_all(handle, 0, content)
            durable.SYSTEM.fsync(handle)
        finally:
            durable.SYSTEM.close(handle)
    return _core.crc32c(content)


def _open_beneath(file: FileBeneath, flags: int) -> int:
    system, folder = durable.SYSTEM, file.folder
    *parts, last = file.name.split("/")
    with storage_errors("open", file.label):
        try:
            for part in parts:
                inner = system.open(part, _FOLDER, dir_fd=folder)
                if folder != file.folder:
                    system.close(folder)
                folder = inner
            return system.open(last, flags | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            if folder != file.folder:
                system.close(folder)


def write_all(handle: int, offset: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        done = durable.SYSTEM.write(handle, left, offset)
        left, offset = left[done:], offset + done


@contextlib.contextmanager
def storage_errors(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what} failed: {path}: {os.strerror(error.errno or errno.EIO)}") from None


def _read_bytes(file: FileBeneath, offset: int, count: int) -> bytes:
    with storage_errors("read", file.label):
        handle = _open_beneath(file, os.O_RDONLY)
        try:
            parts = []
            while count and (part := durable.SYSTEM.read(handle, count, offset)):
                parts.append(part)
                offset, count = offset + len(part), count - len(part)
            return b"".join(parts)
        finally:
            durable.SYSTEM.close(handle)


@contextlib.contextmanager
def simulated(system: SimulatedSystem, random: Random) -> Iterator[None]:
    """Make the code of runs use the simulated system calls inside this context."""
    core = SimpleNamespace(**{**vars(_core), "Store": SimulatedStore})
    system_calls = SimpleNamespace(close=system.close, fstat=system.fstat, O_RDWR=os.O_RDWR)
    with contextlib.ExitStack() as stack:
        for owner, name, value in [
            (durable, "SYSTEM", system),
            (planes, "_core", core),
            (verify, "read_bytes", _read_bytes),
            (state, "new_stamp", lambda: random.getrandbits(32)),
            *_REAL_CALLS(system_calls),
        ]:
            stack.enter_context(patch.object(owner, name, value))
        yield


def _REAL_CALLS(calls: SimpleNamespace) -> list[tuple[Any, str, object]]:
    from outcrop.run.acquisition import definitions
    from outcrop.run.disk import storage

    return [(storage, "os", calls), (definitions, "os", calls)]
