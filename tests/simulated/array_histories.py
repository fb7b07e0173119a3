"""Random histories of committed arrays. Processes make, change, commit and read an array. Some processes are killed,
and sometimes the power fails. Later processes open the array again.

After each part of a history, the array must have the content of one commit: the last complete commit, or a commit that
began later. The rules are the same as in run_histories.py.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from unittest.mock import patch
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from outcrop import _core, durable
from outcrop.arrays import committed
from outcrop.arrays.committed import Committed
from outcrop.arrays.spec import ArraySpec
from outcrop.durable import Directory
from outcrop.errors import InputError, OutcropError
from simulated.chance import Chance, Process
from simulated.expected import Expected
from simulated.substitutes import storage_errors, write_all
from simulated.system import SimulatedSystem

PATH = Path("/simulated/above/psi")
TILE_BYTES = 4096


@dataclass(frozen=True)
class Content:
    """The content of an array. All bytes of a tile have the same value, so one number describes a tile."""

    tiles: tuple[int, ...]
    generation: int = 0
    steps: int = 0


class SimulatedSlotFile:
    """A substitute for `_core.SlotFile` with small tiles. slot_file.hpp describes the original."""

    def __init__(self, path: str, array_bytes: int, tile_bytes: int, writable: bool, threads: int) -> None:
        self._path, self._bytes = path, array_bytes
        self._stride, self._tiles = self.stride_bytes(array_bytes), -(-array_bytes // TILE_BYTES)
        self._last: tuple[list[int], list[int]] | None = None
        self._seen: NDArray[np.uint8] | None = None
        self._next: tuple[list[int], list[int]] = ([], [])
        self.primitive = "simulated"
        with storage_errors("open", path):
            folder, _, name = path.removeprefix("/proc/self/fd/").partition("/")
            flags = os.O_NOFOLLOW | (os.O_RDWR if writable else os.O_RDONLY)
            self._handle = durable.SYSTEM.open(name, flags, dir_fd=int(folder))

    @staticmethod
    def stride_bytes(array_bytes: int) -> int:
        return -(-array_bytes // 4096) * 4096

    @property
    def checksums(self) -> bytes:
        return np.array(self._next[0], "<u4").tobytes()

    @property
    def slots(self) -> bytes:
        return bytes(self._next[1])

    def load(self, checksums: bytes, slots: bytes, memory: NDArray[np.uint8]) -> list[tuple[int, int, int]]:
        self._last = np.frombuffer(checksums, "<u4").tolist(), list(slots)
        damaged = []
        for tile, (checksum, slot) in enumerate(zip(*self._last, strict=True)):
            place, part = self._place(tile, slot), memory[tile * TILE_BYTES : (tile + 1) * TILE_BYTES]
            try:
                done = 0
                while done < len(part) and (found := durable.SYSTEM.read(self._handle, len(part) - done, place + done)):
                    part[done : done + len(found)] = np.frombuffer(found, np.uint8)
                    done += len(found)
                error = 0
            except OSError as failed:
                error = failed.errno or 5
            if error or _core.crc32c(part) != checksum:
                damaged.append((tile, place, error))
        self._seen = memory.copy()
        return damaged

    def verify(self, checksums: bytes, slots: bytes) -> list[tuple[int, int, int]]:
        return self.load(checksums, slots, np.zeros(self._bytes, np.uint8))

    def map(self) -> SimpleNamespace:
        assert self._last is not None
        memory = np.zeros(self._bytes, np.uint8)
        with storage_errors("map", self._path):
            for tile, slot in enumerate(self._last[1]):
                part = memory[tile * TILE_BYTES : (tile + 1) * TILE_BYTES]
                found = b""
                while len(found) < len(part):
                    place = self._place(tile, slot) + len(found)
                    found += durable.SYSTEM.read(self._handle, len(part) - len(found), place)
                part[:] = np.frombuffer(found, np.uint8)
        return SimpleNamespace(bytes=memory)

    def write_changed(self, memory: NDArray[np.uint8]) -> int:
        written = 0
        checksums, slots = self._last or ([0] * self._tiles, [1] * self._tiles)
        self._next = list(checksums), list(slots)
        with storage_errors("write", self._path):
            for tile in range(self._tiles):
                where = slice(tile * TILE_BYTES, (tile + 1) * TILE_BYTES)
                if self._last is None or self._seen is None or (memory[where] != self._seen[where]).any():
                    slot = self.free_slot(slots[tile])
                    write_all(self._handle, self._place(tile, slot), memory[where].tobytes())
                    self._next[0][tile], self._next[1][tile] = _core.crc32c(memory[where]), slot
                    written += len(memory[where])
            if written:
                self.flush()
        self._noticed = memory.copy()
        return written

    def accept(self) -> None:
        self._last, self._seen = (list(self._next[0]), list(self._next[1])), self._noticed

    def free_slot(self, slot: int) -> int:
        """Return the slot for the next version of a tile. `slot` holds the current version of the tile."""
        return 1 - slot

    def flush(self) -> None:
        """Make tiles durable."""
        durable.SYSTEM.fsync(self._handle)

    def _place(self, tile: int, slot: int) -> int:
        return slot * self._stride + tile * TILE_BYTES


class ArrayHistory:
    """One random history of an array."""

    def __init__(self, seed: int, trace: list[str] | None = None) -> None:
        self.chance = Chance(seed)
        self.random = Random(seed)
        self.system = SimulatedSystem(self.chance, trace)
        tiles = self.random.choice([1, 2, 3])
        self.nbytes = tiles * TILE_BYTES - self.random.choice([0, 0, 100])
        self.nothing = Content((0,) * tiles)
        self.expected = Expected(self.nothing)
        self.is_begun, self.faults = False, 0

    def run(self) -> ArrayHistory:
        """Run all parts of the history, and return this object."""
        with simulated(self.system, self.random), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about damaged commits; the test checks the opened content anyway
            self.system.mkdir("/simulated")
            self.system.fsync(self.system.open("/", os.O_RDONLY))
            for _ in range(self.random.choice([1, 2, 3, 4])):
                self._part()
        return self

    def _part(self) -> None:
        random = self.random
        rate = random.choice([0.0, 0.005, 0.02, 0.05])
        self.faults = self.chance.count["fault"]
        self.chance.rates(
            kills=rate * random.choice([0, 1]),
            crashes=rate * random.choice([0, 1]),
            faults=random.choice([0, 0, 0.01]),
        )
        functions: list[Callable[[int], None]] = [self._change]
        functions += random.choice([[], [], [self._change], [self._read], [self._change, self._read]])
        if len(functions) > 1:
            self.chance.switches = random.choice([0.02, 0.1, 0.5])
        processes = self.system.run(*(self._numbered(number, one) for number, one in enumerate(functions)))
        self._check_errors(processes, self._is_disturbed())
        self.chance.rates()
        self.is_begun |= self.system.died
        if not self.is_begun:
            assert not self._names(), f"an array that could not be begun leaves {self._names()}"
        self.expected.settle(self._look(), self.system.crashed)

    def _is_disturbed(self) -> bool:
        """Return True if a system call has failed in this part because of a simulated fault."""
        return self.chance.count["fault"] > self.faults

    def _numbered(self, number: int, one: Callable[[int], None]) -> Callable[[], None]:
        return lambda: one(number)

    def _check_errors(self, processes: list[Process], is_disturbed: bool) -> None:
        for process in processes:
            error = process.error
            fine = error is None or (isinstance(error, InputError) and "in use" in str(error))
            if not fine and not (is_disturbed and isinstance(error, OutcropError | OSError)):
                raise AssertionError(f"{process.name} ended with {error!r}") from error
        if not is_disturbed and not self.system.died:
            assert any(process.error is None for process in processes), "nobody went on"

    def _names(self) -> list[str]:
        try:
            with Directory.open(PATH) as directory:
                return directory.names()
        except FileNotFoundError:
            return []

    def _open(self, access: str) -> Committed:
        spec = ArraySpec(
            (self.nbytes,), "uint8", access=access, persist="step" if access == "update" else "end", path=PATH
        )
        return Committed(PATH, spec, SimpleNamespace(kind="disk"), lambda count: np.zeros(count, np.uint8))

    def _change(self, number: int) -> None:
        array = self._open("update")
        now = self._content(array)
        self.is_begun = True
        if now not in self.expected.seen:
            assert self._is_disturbed(), f"a process sees {now}"
            return  # the last commit could not be read, so Outcrop has opened the commit before it, with a warning
        for _ in range(self.random.choice([1, 2, 4])):
            tiles = list(now.tiles)
            for tile in {self.random.randrange(len(tiles)) for _ in tiles}:
                tiles[tile] = self.random.randrange(1, 256)
                array.bytes[tile * TILE_BYTES : (tile + 1) * TILE_BYTES] = tiles[tile]
            if tuple(tiles) == now.tiles and now.generation:
                continue
            now = replace(now, tiles=tuple(tiles), generation=now.generation + 1, steps=now.steps + 1)
            self.expected.begin(number, now)
            array.flush(now.steps)
            self.expected.announce(number, now)
        array.close()

    def _read(self, number: int) -> None:
        array = self._open("read")
        self.is_begun = True
        if array.read_only:
            assert self._content(array) in self.expected.seen or self._is_disturbed()
        array.close()

    def _look(self) -> Content:
        if not set(self._names()) & {"commit.0.json", "commit.1.json"}:
            return self.nothing
        array = self._open("read")
        try:
            return self._content(array)
        finally:
            array.close()

    def _content(self, array: Committed) -> Content:
        values = [int(array.bytes[tile * TILE_BYTES]) for tile in range(len(self.nothing.tiles))]
        expected = np.repeat(np.array(values, np.uint8), TILE_BYTES)[: self.nbytes]
        assert np.array_equal(array.bytes, expected), "a tile is not of one writing"
        return Content(tuple(values), array.generation, array.steps)


@contextlib.contextmanager
def simulated(system: SimulatedSystem, random: Random) -> Iterator[None]:
    """Make the code of arrays use the simulated system calls inside this context."""
    core = SimpleNamespace(**{**vars(_core), "SlotFile": SimulatedSlotFile})
    calls = SimpleNamespace(**{**vars(os), "fstat": system.fstat})

    def tiles_of(nbytes: int) -> int:
        return -(-nbytes // TILE_BYTES)

    with contextlib.ExitStack() as stack:
        for owner, name, value in [
            (durable, "SYSTEM", system),
            (committed, "_core", core),
            (committed, "tiles_of", tiles_of),
            (committed, "os", calls),
            (committed, "uuid4", lambda: UUID(int=random.getrandbits(128))),
        ]:
            stack.enter_context(patch.object(owner, name, value))
        yield
