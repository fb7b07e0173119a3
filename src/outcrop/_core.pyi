"""Types of the compiled core."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Any object with contiguous bytes.
_Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

def crc32c(data: _Buffer, crc: int = 0) -> int:
    """Return the CRC32C of `data`. If `crc` is the checksum of earlier bytes, `data` follows these bytes."""

def plane_seal(z: int, crc: int, seed: int) -> int:
    """Return the seal that follows the checksum `crc` behind plane z (storage/checksums.hpp)."""

def plane_damage(z: int, is_whole: bool, path: str, offset: int, plane_bytes: int) -> str:
    """Return a text about the error of a plane: of its checksum, or only of its seal if `is_whole` is true."""

def probe() -> dict[str, str]:
    """Return each backend with the reason why it does not work here. If it works, the reason is empty."""

def create_file(path: str, size: int) -> None:
    """Makes or replaces a file of `size` allocated bytes. Raises StorageError."""

def open_beneath(folder: int, path: str, label: str, writable: bool = False) -> int:
    """Open a regular file beneath an open folder, without links. Return its descriptor. Raises StorageError."""

def aligned_array(nbytes: int) -> NDArray[np.uint8]:
    """Return zeroed bytes, aligned for direct I/O, and in huge pages if possible. Pages are allocated at first use."""

class Store:
    """Open files, and a backend that transfers bytes between the files and memory."""

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
        """Open existing files. A file is a path, a part (path, first byte, bytes), or a regular file beneath a folder
        (descriptor, path in it, label for messages). The descriptor is used only by this call. The last `scratch` files
        are never flushed.

        Raises InputError for a backend that does not work here, and StorageError for a file.
        `faults` contains repeatable faults of the store for tests. Rates per transfer: error_rate, again_rate,
        short_rate, flip_rate (reads). Counts: seed, error_at, flip_at (number of the transfer), flush_error_at,
        full_after_bytes, latency_microseconds.
        """

    def read_into(self, file: int, offset: int, array: _Buffer) -> None:
        """Fills a contiguous array from the file with this number. Raises StorageError. Not allowed during a run."""

    def write_from(self, file: int, offset: int, array: _Buffer) -> None:
        """Writes a contiguous array to the file with this number. Raises StorageError. Not allowed during a run."""

    def replace(self, file: int, name: str | tuple[str, int, int] | tuple[int, str, str]) -> None:
        """Replaces an open file by another file, for reading. Raises StorageError. Not allowed during a run."""

    def flush(self) -> None:
        """Waits until all written bytes are on the device. Raises StorageError."""

    def close(self) -> None:
        """Closes the files; later transfers raise StorageError."""

    @property
    def name(self) -> str:
        """The name of the backend."""

    @property
    def direct(self) -> bool:
        """True if all files bypass the page cache."""

    @property
    def alignment(self) -> int:
        """The alignment of direct transfers in bytes. 1 if there are no direct transfers."""

    @property
    def note(self) -> str:
        """A text about preferred settings that were not possible, with the reasons, or ""."""

    @property
    def paths(self) -> list[str]:
        """The paths or labels of the files, in the order of their numbers. For parts, also the first byte."""

class Link:
    """The connection to a neighbour. It sends messages with checksums over a stream socket (storage/link.hpp)."""

    def __init__(self, fd: int, name: str) -> None:
        """Duplicates the descriptor of a connected stream socket, which the caller may then close. `name` is the name
        of the neighbour in messages, such as "rank 3". Raises InputError."""

    def send(self, data: _Buffer) -> None:
        """Sends one message. Raises CommunicationError when the neighbour has gone, InterruptedRun after cancel()."""

    def receive(self, array: _Buffer) -> None:
        """Fills a contiguous array from one message of this length. Raises errors like `send`, and CorruptionError."""

    def cancel(self) -> None:
        """Closes the connection. Calls in other threads raise InterruptedRun, and calls of the neighbour raise
        CommunicationError. Any thread may call this."""

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
    """Runs the actions of passes. Owns the window, the threads, and the thread that transfers planes."""

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
        """Runs one pass. `source`, `target` and `statics` are the first files of their arrays. Arrays that only the
        pass uses are one file each. `scalars` are the scalars of each step, or one set for all steps. `acquisition` is
        a PassAcquisition of run/acquisition/pass_acquisition.py. Returns its sums, and the CRC32C of each of its
        snapshots. `seeds` are the seeds of the seals of all arrays (run/engine.py); without seeds, they are 0.
        `history` contains the file and the checksum of each state of another run. `lead_scalars` are the scalars of the
        steps that the pass computes again. `before_write` is called once, before the first write to a target. Raises
        its errors, StorageError, CorruptionError, CommunicationError or InterruptedRun. After an error, this object
        cannot be used, and links are cancelled."""

    def swap_rings(self) -> None:
        """Makes the last, odd level of a pass level 0 of the next pass, if planes stay in the window."""

    def cancel(self) -> None:
        """Makes `run` raise InterruptedRun soon. Any thread may call this method."""

    def counters(self) -> dict[str, float]:
        """Total updated cells, bytes read and written, bytes of faces sent and received, bytes of snapshots, and
        seconds of each component."""

    def not_finite(self) -> list[int]:
        """The numbers of the arrays of the state in which the last pass wrote NaN or infinity. Only a part of the
        updated rows is searched (PlaneSums). Must not be called during `run`."""

    @property
    def memory_bytes(self) -> int:
        """The number of bytes of the window, including its guards."""

    @property
    def threads_on_nodes(self) -> list[int]:
        """The number of threads on each NUMA node with threads. Each of these nodes owns a part of the window."""

    @property
    def is_bound(self) -> bool:
        """True if threads and memory are bound to cores and nodes."""

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
    """Allocates and touches all memory, or uses `memory` with its content. With `lock`, it is never swapped out.

    `rings` describes the rings of the first copies of `fields`, then of the second copies: planes, bytes of a slot, and
    whether the ring always holds all planes. `calls` has the kernel, sources and targets (field, copy) of the stages of
    an even step, then of an odd step. `scalars_bytes` is the distance between the scalars of two steps, or 0 if all
    steps share them. `bind` is "auto", "cores" or "none". `topology` simulates another machine, without binding.
    `links` are the links to the neighbours with lower rows, higher rows, lower planes and higher planes, or None.
    Raises InputError for impossible arguments."""

class UpdateMeter:
    """A window in which only updates are measured."""

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
        """Allocate rings of `ring_planes` planes of `grid`."""

    def measure(
        self, sizes: object, frame: object, region: object, repeats: int, shifted: bool = False
    ) -> list[float]:
        """Return the cell updates per second of `repeats` slabs with the thickness and levels of `sizes`. The slots of
        the block hold `frame` (a Rectangle), and it updates `region`. If `shifted` is true, small slots also begin at
        different places in a page. Raises InputError if the window is too small."""

    @staticmethod
    def planes_needed(grid: object, levels: int, slab: int) -> int:
        """Return the number of planes that each ring must have for this measurement."""

def restore_rounding() -> None:
    """Makes the calling thread keep subnormal numbers and round to nearest, even if a library has set other modes."""

def has_hwloc() -> bool:
    """True if the core was built with hwloc."""

def numa_nodes(topology: str = "") -> list[tuple[int, int]]:
    """Return the cores and processors of each NUMA node for this thread, or of a machine in hwloc's notation."""

def threads_on_nodes(threads: int, bind: str, topology: str = "") -> list[int]:
    """Return how many of `threads` threads run on each NUMA node with threads. Without placement, return one number.
    Raises InputError if threads must be bound but cannot be bound."""

def measure_checksum_rate(threads: int, plane_bytes: int, total_bytes: int) -> float:
    """Return the bytes per second of CRC32C over planes, with this number of threads."""

def memory_nodes(topology: str = "") -> list[tuple[int, int, str, int, float, float, float]]:
    """Return the memory of each NUMA node, or of a machine in hwloc's notation or XML: its number, bytes, kind, and the
    processors whose ordinary memory it is. Read and write bytes per second and latency in seconds come from the
    firmware, or are 0."""

def is_this_system() -> bool:
    """True if the NUMA nodes belong to this system. False if hwloc's variables name another system."""

class MemoryMeter:
    """Three arrays in memory. Loops over them are measured with all threads."""

    def __new__(cls, threads: int, array_bytes: int, nodes: Sequence[int]) -> MemoryMeter:
        """Allocate the arrays on these NUMA nodes, or else where the threads run. Raises InputError."""

    def bandwidth(self, loop: str, repeats: int) -> float:
        """Return the bytes per second of "read", "write", "copy", "scale", "add" or "triad": the best of `repeats`."""

    def random_bandwidth(self, write: bool) -> float:
        """Return the bytes per second of reads of random cache lines."""

    def latency(self) -> float:
        """Return the seconds from a load to the next load, which depends on its result."""

class Stream:
    """The loops of STREAM with a team of threads. The arrays contain float64 numbers and have equal lengths."""

    def __new__(cls, threads: int, may_bind: bool) -> Stream:
        """If `may_bind` is true and there are several NUMA nodes, threads are bound to cores."""

    def fill(self, values: NDArray[np.float64], value: float) -> None:
        """Each thread fills its own part, and is the first thread that touches this part."""

    def holds(self, values: NDArray[np.float64], value: float) -> bool:
        """Return True if all elements have this value."""

    def run(
        self,
        loop: str,
        first: NDArray[np.float64],
        second: NDArray[np.float64],
        result: NDArray[np.float64],
        flush: str,
        mapping: MappedFile | None,
    ) -> tuple[float, float]:
        """Return the seconds of "copy", "scale", "add" or "triad", and of the flush after this loop. `flush` is "none",
        "individual" or "collective". For a flush, the result is a part of `mapping`. Raises StorageError."""

    @staticmethod
    def flushed_at_once(mapping: MappedFile) -> int:
        """The number of bytes that an individual flush makes durable."""

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
    """Transfer `total_bytes` of the first `span_bytes` of the store's first file, or less if the time is over, with
    `depth` requests in flight. Return the bytes, requests and seconds. With `flush`, the seconds include a flush.
    Writes write random bytes. Raises InputError and StorageError."""

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
    """Do the same through the page cache with `depth` threads, by calls, or by loads and stores on a mapping."""

def memory_on_nodes(nbytes: int, nodes: Sequence[int]) -> NDArray[np.uint8]:
    """Return zeroed bytes on these NUMA nodes. Raises InputError if the system does not allow this."""

class MappedFile:
    """A file that is mapped into memory."""

    @staticmethod
    def file(path: str, writable: bool) -> MappedFile:
        """Map a whole existing file, with MAP_SYNC if the file system and the processor allow this. Raises
        StorageError."""

    @staticmethod
    def scratch(folder: str, nbytes: int, tries_sync: bool = False) -> MappedFile:
        """Map a new unnamed, allocated file in `folder`. The file disappears with the mapping. Raises StorageError."""

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """All bytes. They can be written only if the file was opened for writing. They keep the mapping alive."""

    @property
    def is_synchronous(self) -> bool:
        """True if the file is mapped with MAP_SYNC, so that written-back cache lines are durable."""

    def flush(self, begin: int, nbytes: int, threads: int) -> None:
        """Flush these bytes. Raises StorageError."""

class SlotFile:
    """The committed tiles of an array on storage (slot_file.hpp). Only one thread may use the object."""

    def __init__(self, path: str, array_bytes: int, tile_bytes: int, writable: bool, threads: int) -> None:
        """Open an existing file with room for one or two slots for each tile. Raises StorageError."""

    @staticmethod
    def stride_bytes(array_bytes: int) -> int:
        """The number of bytes of one slot for each tile."""

    @property
    def primitive(self) -> str:
        """The method that makes a commit durable."""

    def load(self, checksums: bytes, slots: bytes, memory: NDArray[np.uint8]) -> list[tuple[int, int, int]]:
        """Read a commit into memory. It becomes the last commit. Return (tile, offset, error number or 0) of damaged
        tiles."""

    def verify(self, checksums: bytes, slots: bytes) -> list[tuple[int, int, int]]:
        """Do the same, but do not keep the values."""

    def map(self) -> MappedFile:
        """Map the last loaded, verified or accepted commit for reading. Raises StorageError."""

    def write_changed(self, memory: NDArray[np.uint8]) -> int:
        """Write the changes since the last commit, and make them durable. Return their bytes. Raises StorageError."""

    @property
    def checksums(self) -> bytes:
        """The CRC32C of all tiles of the last write, 4 bytes for each tile."""

    @property
    def slots(self) -> bytes:
        """The slots of all tiles of the last write, one byte for each tile."""

    def accept(self) -> None:
        """Make the last write the last commit."""

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
        """Make a trajectory. `fields` contains (name, shape), and `directories` contains (path, limit in bytes or 0).
        Raises InputError and StorageError."""

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
        """True if commit() is possible."""
