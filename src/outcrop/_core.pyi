"""Types of the compiled core."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Anything with contiguous bytes.
_Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

def crc32c(data: _Buffer, crc: int = 0) -> int:
    """CRC32C of the bytes of `data`; with `crc`, of what that is the checksum of followed by `data`."""

def plane_seal(z: int, crc: int, seed: int) -> int:
    """What follows the checksum `crc` behind plane z, see storage/checksums.hpp."""

def plane_damage(z: int, is_whole: bool, path: str, offset: int, plane_bytes: int) -> str:
    """What is wrong with a plane: its checksum, or only its seal when it `is_whole`."""

def probe() -> dict[str, str]:
    """Each backend and why it does not work here; an empty reason when it does."""

def create_file(path: str, size: int) -> None:
    """Makes (or replaces) a file of `size` bytes, all of them allocated. Raises StorageError."""

def open_beneath(folder: int, path: str, label: str, writable: bool = False) -> int:
    """Descriptor of a regular file beneath an open folder, no link followed. Raises StorageError."""

def aligned_array(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed bytes in huge pages where there are any, aligned for direct I/O, resident when first touched."""

class Store:
    """Open files and the way bytes move between them and memory."""

    def __init__(
        self,
        files: Sequence[str | tuple[str, int, int] | tuple[int, str, str]],
        backend: str = "auto",
        direct: bool = True,
        writable: bool = False,
        faults: Mapping[str, float] = ...,
        depth: int = 64,
        scratch: int = 0,
    ) -> None:
        """Open existing files, parts of them as (path, first byte, bytes), or regular files beneath a folder as
        (descriptor of the folder, path in it, label for messages); the descriptor is needed for this call only. The
        last `scratch` of them are never made durable.

        Raises InputError for a backend that does not work here, StorageError for a file.
        `faults` makes the store misbehave, repeatably, for tests. Rates per transfer: error_rate, again_rate,
        short_rate, flip_rate (reads). Counts: seed, error_at, flip_at (number of the transfer), flush_error_at,
        full_after_bytes, latency_microseconds.
        """

    def read_into(self, file: int, offset: int, array: _Buffer) -> None:
        """Fills a contiguous array from the file with that number. Raises StorageError. Not while a run is at work."""

    def write_from(self, file: int, offset: int, array: _Buffer) -> None:
        """Writes a contiguous array to the file with that number. Raises StorageError. Not while a run is at work."""

    def replace(self, file: int, name: str | tuple[str, int, int] | tuple[int, str, str]) -> None:
        """Opens another file for reading under the number of an open file, which is closed. Raises StorageError. Not
        while a run is at work."""

    def flush(self) -> None:
        """Waits until what was written is on the device. Raises StorageError."""

    def close(self) -> None:
        """Closes the files; later transfers raise StorageError."""

    @property
    def name(self) -> str:
        """The backend at work."""

    @property
    def direct(self) -> bool:
        """Whether all files bypass the page cache."""

    @property
    def alignment(self) -> int:
        """Bytes to which direct transfers are aligned; 1 if there are none."""

    @property
    def note(self) -> str:
        """What could not be had as preferred, and why; empty if nothing."""

    @property
    def paths(self) -> list[str]:
        """Paths or labels of the files, by number; with the first byte for parts."""

class Link:
    """The connection to a neighbour: messages with checksums over a stream socket, see storage/link.hpp."""

    def __init__(self, fd: int, name: str) -> None:
        """Duplicates the descriptor of a connected stream socket, which may be closed afterwards. `name` is that of the
        neighbour in messages ("rank 3"). Raises InputError."""

    def send(self, data: _Buffer) -> None:
        """Sends one message. Raises CommunicationError when the neighbour has gone, InterruptedRun after cancel()."""

    def receive(self, array: _Buffer) -> None:
        """Fills a contiguous array from one message of its length. Raises the same, and CorruptionError."""

    def cancel(self) -> None:
        """Closes the connection; calls in other threads raise InterruptedRun soon, those of the neighbour
        CommunicationError. From any thread."""

    @property
    def name(self) -> str:
        """The name of the neighbour."""

    @property
    def bytes_sent(self) -> int:
        """Bytes of all complete messages, without checksums."""

    @property
    def bytes_received(self) -> int:
        """Bytes of all complete messages, without checksums."""

class Pass:
    """A pass as the executor runs it: the actions of plan/actions.py, translated once."""

    def __init__(self, actions: Iterable[object], levels: int) -> None: ...

class Executor:
    """Runs the actions of passes; owns the window, the threads and the thread that transfers planes."""

    def run(
        self,
        one_pass: Pass,
        source: Sequence[int],
        target: Sequence[int],
        statics: Sequence[int],
        scratch_file: int,
        planes_per_file: int,
        fringe_rows: int,
        scalars: bytes,
        acquisition: object | None = None,
        seeds: object | None = None,
        history: Sequence[tuple[int, int]] = (),
        lead_scalars: bytes = b"",
        recomputed_rows: Sequence[int] = (),
        before_write: Callable[[], None] | None = None,
    ) -> tuple[list[tuple[bytes, float, bytes, float, float, float]], list[int]]:
        """Runs one pass. `source`, `target` and `statics` are the first files of their arrays; what a pass
        keeps for itself is one file whatever `planes_per_file`. `scalars` are those of each step, or of all.
        `acquisition`, a PassAcquisition of run/acquisition/pass_acquisition.py, says what is done on the way.
        Returns the sums that it asks for, and the CRC32C of each of its snapshots. `seeds`, of run/engine.py,
        are those of the seals of all arrays; none: 0. `history` has the file and the checksum of each state of
        another run. `lead_scalars` are those of the steps that the pass computes again. `before_write`
        is called once, before the first write to a target. Raises its errors, StorageError, CorruptionError,
        CommunicationError or InterruptedRun; of no use after that, and links are cancelled."""

    def swap_rings(self) -> None:
        """Where planes stay in the window over passes: the last, odd level of one is level 0 of the next."""

    def cancel(self) -> None:
        """Makes `run` raise InterruptedRun soon; from any thread."""

    def counters(self) -> dict[str, float]:
        """Cells updated, bytes read and written, bytes of faces sent and received, bytes of snapshots, seconds by
        component, since the beginning."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of the window, guards included."""

    @property
    def threads_on_nodes(self) -> list[int]:
        """Threads on each NUMA node that has any; each owns a part of the window."""

    @property
    def is_bound(self) -> bool:
        """Whether threads and memory are bound to cores and nodes."""

_Calls: TypeAlias = Sequence[tuple[int, Sequence[tuple[int, int]], Sequence[tuple[int, int]]]]

def make_executor(
    grid: object,
    sizes: object,
    rings: Sequence[tuple[int, int, bool]],
    fields: Iterable[object],
    calls: _Calls,
    scalars_bytes: int,
    max_levels: int,
    threads: int,
    checksum: bool,
    store: Store | None,
    memory: NDArray[np.uint8] | None = None,
    lock: bool = False,
    bind: str = "none",
    topology: str = "",
    lead_scalars_bytes: int = 0,
    links: tuple[Link | None, ...] = (None, None),
) -> Executor:
    """Takes all memory and touches it, or uses `memory` with what it holds; `lock` keeps it from being swapped out.

    `rings` are planes, bytes of a slot and whether it holds all planes for good, for first copies of `fields`, then for
    second ones. `calls` are kernel, sources and targets of the stages of an even, then of an odd step, operands being
    (field, copy). `scalars_bytes` from one step's scalars to the next one's, 0 when all have the same. `bind` is
    "auto", "cores" or "none"; `topology` describes another machine, whose nodes are made up then and not bound to.
    `links` go to the neighbours with lower rows, higher rows, lower planes and higher planes, None where there is none.
    Raises InputError when that cannot be."""

class UpdateMeter:
    """A window in which updates are timed, with nothing else going on."""

    def __new__(
        cls,
        grid: object,
        fields: Iterable[object],
        calls: _Calls,
        scalars: bytes,
        threads: int,
        ring_planes: int,
        bind: str = "none",
        lead_scalars: bytes = b"",
    ) -> UpdateMeter:
        """Take rings of `ring_planes` planes of `grid`."""

    def measure(
        self, sizes: object, frame: object, region: object, repeats: int, shifted: bool = False
    ) -> list[float]:
        """Cell updates per second of `repeats` slabs one by one, of the thickness and levels of `sizes`, in a block
        whose slots hold `frame` (a Rectangle) and which updates `region`. If `shifted` is true, small slots begin at
        different places in a page, too. Raises InputError if the window is too small."""

    @staticmethod
    def planes_needed(grid: object, levels: int, slab: int) -> int:
        """Planes each ring must have to measure that."""

def restore_rounding() -> None:
    """Makes the calling thread keep subnormal numbers and round to nearest, whatever a library has set."""

def has_hwloc() -> bool:
    """Whether the core was built with hwloc."""

def numa_nodes(topology: str = "") -> list[tuple[int, int]]:
    """Cores and processors of each NUMA node that this thread may use, or of a machine in hwloc's notation."""

def threads_on_nodes(threads: int, bind: str, topology: str = "") -> list[int]:
    """How many of `threads` threads run on each NUMA node that has any; one number when they are not placed.
    Raises InputError when they are to be bound and cannot be."""

def measure_checksum_rate(threads: int, plane_bytes: int, total_bytes: int) -> float:
    """Bytes per second of CRC32C over planes by that many threads."""

def memory_nodes(topology: str = "") -> list[tuple[int, int, str, int, float, float, float]]:
    """All memory by NUMA node, or that of a machine in hwloc's notation or XML: number, bytes, kind, processors to
    which it is the ordinary memory, bytes per second read and written and seconds of latency as the firmware says, 0
    where it does not."""

def is_this_system() -> bool:
    """Whether the NUMA nodes are those of this system, not of another one by hwloc's variables."""

class MemoryMeter:
    """Three arrays in memory, on which loops are timed with all threads."""

    def __new__(cls, threads: int, array_bytes: int, nodes: Sequence[int]) -> MemoryMeter:
        """Take the arrays from the memory of those NUMA nodes; of none: from where threads run. Raises InputError."""

    def bandwidth(self, loop: str, repeats: int) -> float:
        """Bytes per second of "read", "write", "copy", "scale", "add" or "triad", the best of `repeats`."""

    def random_bandwidth(self, write: bool) -> float:
        """Bytes per second of cache lines at random."""

    def latency(self) -> float:
        """Seconds from one load to the next that depends on it."""

class Stream:
    """The loops of STREAM by a team of threads; arrays are of float64, as long as each other."""

    def __new__(cls, threads: int, may_bind: bool) -> Stream:
        """`may_bind`: to cores, where there are several NUMA nodes."""

    def fill(self, values: NDArray[np.float64], value: float) -> None:
        """Each thread its part, which it is the first to touch."""

    def holds(self, values: NDArray[np.float64], value: float) -> bool:
        """Whether all of them are that value."""

    def run(
        self,
        loop: str,
        first: NDArray[np.float64],
        second: NDArray[np.float64],
        result: NDArray[np.float64],
        flush: str,
        mapping: MappedFile | None,
    ) -> tuple[float, float]:
        """Seconds of "copy", "scale", "add" or "triad", and of a flush after it; `flush` is "none", "individual" or
        "collective", the result then a part of `mapping`. Raises StorageError."""

    @staticmethod
    def flushed_at_once(mapping: MappedFile) -> int:
        """Bytes that an individual flush makes durable."""

def measure_transfers(
    store: Store,
    *,
    write: bool,
    random: bool,
    flush: bool,
    request_bytes: int,
    depth: int,
    span_bytes: int,
    total_bytes: int,
    seconds_most: float,
) -> tuple[int, int, float]:
    """Bytes, requests and seconds: requests to the first `span_bytes` of the store's first file, `depth` in flight,
    until `total_bytes` were moved or the time is over; `flush` makes them durable within the time. Writes put noise
    there. Raises InputError and StorageError."""

def measure_threads(
    path: str,
    *,
    mapped: bool,
    write: bool,
    random: bool,
    flush: bool,
    request_bytes: int,
    depth: int,
    span_bytes: int,
    total_bytes: int,
    seconds_most: float,
) -> tuple[int, int, float]:
    """The same through the page cache by `depth` threads: by calls, or by loads from and stores to the mapped file."""

def memory_on_nodes(nbytes: int, nodes: Sequence[int]) -> NDArray[np.uint8]:
    """Zeroed bytes that come from those NUMA nodes. Raises InputError when the system does not allow that."""

class MappedFile:
    """A file as memory."""

    @staticmethod
    def file(path: str, writable: bool) -> MappedFile:
        """The whole of an existing file; with MAP_SYNC where file system and processor can do it. Raises
        StorageError."""

    @staticmethod
    def scratch(folder: str, nbytes: int, tries_sync: bool = False) -> MappedFile:
        """A new file in `folder` that has no name and goes with the mapping, all of it allocated. Raises
        StorageError."""

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """All bytes; written only where the file was opened for that. They keep the mapping."""

    @property
    def is_synchronous(self) -> bool:
        """Whether cache lines written back are durable: mapped with MAP_SYNC."""

    def flush(self, begin: int, nbytes: int, threads: int) -> None:
        """Returns when these bytes are as durable as the file system makes them. Raises StorageError."""

class SlotFile:
    """The committed tiles of an array on storage, see slot_file.hpp. Not for use by several threads."""

    def __init__(self, path: str, array_bytes: int, tile_bytes: int, writable: bool, threads: int) -> None:
        """Open an existing file with room for one or two slots for each tile. Raises StorageError."""

    @staticmethod
    def stride_bytes(array_bytes: int) -> int:
        """Bytes of one slot for every tile."""

    @property
    def primitive(self) -> str:
        """What makes a commit durable."""

    def load(self, checksums: bytes, slots: bytes, memory: NDArray[np.uint8]) -> list[tuple[int, int, int]]:
        """Read a commit, the last one from now on, into memory; (tile, offset, error number or 0) of what is
        damaged."""

    def verify(self, checksums: bytes, slots: bytes) -> list[tuple[int, int, int]]:
        """The same without keeping what was read."""

    def map(self) -> MappedFile:
        """The commit last loaded, verified or accepted as memory, for reading. Raises StorageError."""

    def write_changed(self, memory: NDArray[np.uint8]) -> int:
        """Write what has changed since the last commit and make it durable; its bytes. Raises StorageError."""

    @property
    def checksums(self) -> bytes:
        """CRC32C of all tiles as written last, 4 bytes each."""

    @property
    def slots(self) -> bytes:
        """The slots of the same, a byte each."""

    def accept(self) -> None:
        """What was written last is the last commit from now on."""

class StateStack:
    """The states of a trajectory, see trajectory/trajectory.hpp."""

    @staticmethod
    def create(
        fields: Sequence[tuple[str, Sequence[int]]],
        dtype: str,
        states: int,
        memory_bytes: int,
        directories: Sequence[tuple[str, int]],
        buffers: int = 3,
        io: str = "auto",
        faults: Mapping[str, float] = ...,
    ) -> StateStack:
        """Make a trajectory. `fields` has (name, shape), `directories` has (path, limit in bytes or 0). Raises
        InputError, StorageError."""

    @staticmethod
    def open(path: str, buffers: int = 3, io: str = "auto", faults: Mapping[str, float] = ...) -> StateStack:
        """Open a trajectory. Raises InputError, StorageError, CorruptionError."""

    def push(self, arrays: Sequence[NDArray[Any]]) -> int:
        """Copy a state, one contiguous array for each field. Returns its number."""

    def pop(self) -> tuple[int, list[NDArray[np.uint8]]]:
        """Remove the newest state. Returns its number and the bytes of each field."""

    def read(self, state: int, arrays: Sequence[NDArray[Any]]) -> None:
        """Copy a state into one array for each field."""

    def commit(self) -> None:
        """Make the present states durable."""

    def close(self) -> None:
        """Close the files. Popped arrays stay valid."""

    def remove(self) -> None:
        """Close the trajectory and delete its files."""

    @property
    def fields(self) -> list[tuple[str, list[int]]]:
        """The name and the shape of each field."""

    @property
    def dtype(self) -> str:
        """The dtype of all fields."""

    @property
    def path(self) -> str:
        """The first directory."""

    @property
    def states(self) -> int:
        """The number of present states."""

    @property
    def committed(self) -> int:
        """The number of states of the last commit."""

    @property
    def max_states(self) -> int:
        """The maximum number of states."""

    @property
    def memory_states(self) -> int:
        """The number of states that memory keeps."""

    @property
    def is_durable(self) -> bool:
        """Whether commit() is possible."""
