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
    ) -> tuple[list[tuple[bytes, float, bytes, float, float, float]], list[int]]:
        """Runs one pass. `source`, `target` and `statics` are the first files of their arrays; what a pass keeps for
        itself is one file whatever `planes_per_file`. `scalars` are those of each step, or of all. `acquisition`, a
        PassAcquisition of run/acquisition/pass_acquisition.py, says what is done on the way. Returns the sums that it
        asks for, and the CRC32C of each of its snapshots. `seeds`, of run/engine.py, are those of the seals of all
        arrays; none: 0. Raises StorageError, CorruptionError or InterruptedRun; of no use after that."""

    def swap_rings(self) -> None:
        """Where planes stay in the window over passes: the last, odd level of one is level 0 of the next."""

    def cancel(self) -> None:
        """Makes `run` raise InterruptedRun soon; from any thread."""

    def counters(self) -> dict[str, float]:
        """Cells updated, bytes read and written, those of snapshots, seconds by component, since the beginning."""

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
) -> Executor:
    """Takes all memory and touches it, or uses `memory` with what it holds; `lock` keeps it from being swapped out.

    `rings` are planes, bytes of a slot and whether it holds all planes for good, for first copies of `fields`, then for
    second ones. `calls` are kernel, sources and targets of the stages of an even, then of an odd step, operands being
    (field, copy). `scalars_bytes` from one step's scalars to the next one's, 0 when all have the same. `bind` is
    "auto", "cores" or "none"; `topology` describes another machine, whose nodes are made up then and not bound to.
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
    ) -> UpdateMeter:
        """Take rings of `ring_planes` planes of `grid`."""

    def measure(self, sizes: object, frame: object, region: object, repeats: int) -> list[float]:
        """Cell updates per second of `repeats` slabs one by one, of the thickness and levels of `sizes`, in a block
        whose slots hold `frame` (a Cut) and which updates `region`; InputError where the window is too small."""

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

class AggregateCost:
    """A prediction for a domain by its terms, in seconds. `total` is their sum without `hidden`."""

    @property
    def merge(self) -> float:
        """Ranks of a node put their bytes together, in the nodes that send."""

    @property
    def messages(self) -> float:
        """Latency of all messages to the aggregator."""

    @property
    def transfer(self) -> float:
        """Bytes of other nodes."""

    @property
    def copy(self) -> float:
        """Bytes of the aggregator's own node."""

    @property
    def target_latency(self) -> float: ...
    @property
    def target_transfer(self) -> float: ...
    @property
    def hidden(self) -> float:
        """What overlap of filling and emptying buffers saves."""

    @property
    def total(self) -> float:
        """Until the domain is where it belongs."""

    @property
    def terms(self) -> dict[str, float]:
        """All but the total, by name."""

class AggregateChoice:
    """The aggregator of a domain. `node` and `tier` are numbers of the machine's, `bytes` those of the domain."""

    @property
    def rank(self) -> int: ...
    @property
    def node(self) -> int: ...
    @property
    def tier(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def cost(self) -> AggregateCost: ...

class AggregatePlacement:
    """Where aggregators are, and what that is predicted to cost."""

    @property
    def choices(self) -> list[AggregateChoice]:
        """One for each domain. All gather at the same time."""

    @property
    def seconds(self) -> float:
        """Until the slowest domain is done."""

    @property
    def slowest(self) -> int:
        """The number of that domain."""

    @property
    def merged(self) -> bool:
        """Whether ranks of a node send one message together."""

    @property
    def is_least(self) -> bool:
        """Whether no other placement has a lower sum of costs."""

    @property
    def most_on_node(self) -> int:
        """The maximum number of aggregators on a node."""

    @property
    def notes(self) -> list[str]:
        """What was left out or taken instead, and why."""

    def explain(self, domains_most: int = 1) -> str:
        """In words: the whole, then the domains that take longest, with what other places would have cost."""

class PlacementOptions:
    """How to gather: `buffers` of `buffer_bytes` for each aggregator, on a tier that keeps its content at least as long
    as `persistence`, or on the `tier` of that name. With `merged`, ranks of a node send one message together.
    `max_on_node` limits the aggregators of each node; empty where nothing does."""

    def __init__(
        self,
        buffer_bytes: int = ...,
        buffers: int = 2,
        persistence: int = 0,
        tier: str = "",
        merged: bool = True,
        max_on_node: Sequence[int] = (),
    ) -> None:
        """Raises InputError where there is no buffer."""

    @property
    def buffer_bytes(self) -> int: ...
    @property
    def buffers(self) -> int: ...
    @property
    def persistence(self) -> int: ...
    @property
    def tier(self) -> str: ...
    @property
    def merged(self) -> bool: ...
    @property
    def max_on_node(self) -> list[int]: ...
    def sending_merged(self, merged: bool) -> PlacementOptions:
        """The same, but for that."""

def aggregate_place(machine: object, tallies: object, domains: int, options: PlacementOptions) -> AggregatePlacement:
    """The least sum of costs; machine and tallies are of outcrop.aggregate.placement. Raises InputError for want of
    room."""

def aggregate_place_best(
    machine: object, tallies: object, domains: int, options: PlacementOptions, try_both: bool
) -> AggregatePlacement:
    """The number of domains that is done first. Raises InputError for want of room."""

def aggregate_predict(
    machine: object, tallies: object, options: PlacementOptions, ranks: NDArray[np.uint32], tiers: NDArray[np.uint32]
) -> AggregatePlacement:
    """What it costs where ranks and tiers are given."""

class AggregateSettings:
    """The values that hold; see settings.hpp."""

    @property
    def values(self) -> dict[str, Any]:
        """By the name of the field."""

    @property
    def origins(self) -> dict[str, str]:
        """Where each is from: "argument tier", "hint cb_nodes", "OUTCROP_AGG_COUNT" or "default"."""

    def placement_options(self, hosts: Sequence[str]) -> PlacementOptions:
        """On nodes with these hosts. Raises InputError."""

def aggregate_settings(
    arguments: Mapping[str, str], hints: Mapping[str, str], environment: Mapping[str, str]
) -> AggregateSettings:
    """The first that says something: arguments, hints, environment. Raises InputError."""

def aggregate_setting_rows() -> list[tuple[str, str, str, str, str, str, str]]:
    """The table of settings: argument, field, hint, ROMIO's hint, variable, what holds where it is not set, meaning."""

def aggregate_parse_node(
    text: str, file: str
) -> tuple[list[tuple[str, float, float, float, int, bool, int, str]], tuple[float, float] | None]:
    """What a machine file says: of each tier its name, latency, bytes per second to fill and to empty, persistence,
    whether it holds files, bytes, and origin; of the target for writing latency and bytes per second. Raises
    InputError."""

def aggregate_text_of_this_node(text: str, file: str, target: str) -> str:
    """The text with what cannot be used here, and a target. Raises InputError."""

def aggregate_rank_places(text: str, file: str) -> list[list[str]]:
    """Group, switch and port of each rank, by lines `rank: group switch port`. Raises InputError."""

class AggregateExtent:
    """Bytes of a file and of a variable's memory, see extent.hpp."""

    @property
    def nbytes(self) -> int:
        """Of all pieces."""

    @property
    def memory_nbytes(self) -> int:
        """That the variable needs, from its first byte on."""

    @property
    def blocks(self) -> int:
        """Pieces that are contiguous in the file and in memory."""

    @property
    def begin(self) -> int:
        """The first byte of the file."""

    @property
    def end(self) -> int:
        """The byte of the file behind the last one."""

def aggregate_contiguous(file_offset: int, nbytes: int, memory_offset: int) -> AggregateExtent:
    """One run. Raises InputError."""

def aggregate_strided(
    file_offset: int,
    count: int,
    block_bytes: int,
    file_stride_bytes: int,
    memory_stride_bytes: int,
    memory_offset: int,
) -> AggregateExtent:
    """Blocks, a stride apart. Raises InputError."""

def aggregate_subarray(
    sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], item_bytes: int, file_offset: int
) -> AggregateExtent:
    """A part of an array in C order. Raises InputError."""

class PlainRuns:
    """A rank's own runs of a file, a pwrite or pread for each, through the page cache."""

    def __init__(self, path: str, variables: Sequence[Sequence[AggregateExtent]], writable: bool) -> None:
        """Raises StorageError, InputError."""

    def write(self, arrays: Sequence[object]) -> None:
        """Memory of each variable. Raises StorageError, InputError."""

    def read(self, arrays: Sequence[object]) -> None:
        """The same, the other way."""

    def flush(self) -> None:
        """Raises StorageError."""

class AggregatePlan:
    """Made by all ranks together; see placed_plan.hpp."""

    def __init__(
        self,
        transport: int,
        variables: Sequence[Sequence[AggregateExtent]],
        arguments: Mapping[str, str],
        hints: Mapping[str, str],
        environment: Mapping[str, str],
        problem: str,
        find_machine: Callable[[AggregateSettings], object],
    ) -> None:
        """By the table of functions at that address, or by this process alone where it is 0. What `problem` says is
        raised on all ranks. `find_machine` is collective: it gets the settings of all ranks and returns what this rank
        knows of the machine (outcrop.aggregate.nodes.KnownMachine). Raises InputError."""

    @property
    def settings(self) -> AggregateSettings:
        """The same on all ranks, but for the folder of a stage and its bytes."""

    @property
    def nbytes(self) -> int:
        """Of all ranks, in one step."""

    @property
    def end(self) -> int:
        """The byte of the file behind the last one."""

    @property
    def aggregators(self) -> list[int]:
        """The rank of each domain."""

    @property
    def tiers(self) -> list[str]:
        """Of each domain's buffers, by name."""

    @property
    def memory_nbytes(self) -> list[int]:
        """That each variable of this rank must have."""

    @property
    def seconds(self) -> float:
        """Predicted for a step straight to its target."""

    def add_measured(self, what: str, timing: AggregateTiming) -> None:
        """What a step took, for `explain`: "write", "staged read"."""

    def explain(self, domains: int) -> str:
        """In words."""

class AggregateTiming:
    """Of one write or read at this rank, in seconds since it began.

    `seconds`: until its outcome was known. `seconds_copying`: at work on this rank's parts of buffers;
    `seconds_filling`: the same with waiting for buffers. `seconds_storage`: of this rank's I/O threads at work; 0 where
    it aggregates nothing. `seconds_messages`: in which messages to or from other nodes were under way.
    `bytes_storage`: written or read by this rank for all. `overlap`: of the shorter of copying and storage, the part
    that went on beside the other; None where one is missing.
    """

    @property
    def seconds(self) -> float: ...
    @property
    def seconds_copying(self) -> float: ...
    @property
    def seconds_filling(self) -> float: ...
    @property
    def seconds_storage(self) -> float: ...
    @property
    def seconds_messages(self) -> float: ...
    @property
    def bytes_storage(self) -> int: ...
    @property
    def overlap(self) -> float | None: ...

class AggregateRequest:
    """A write or read under way; it keeps its arrays."""

    def test(self) -> bool:
        """Whether it is over. Raises what went wrong at any rank."""

    def wait(self) -> None:
        """Return when it is over. Raises what went wrong at any rank."""

    @property
    def timing(self) -> AggregateTiming:
        """Once it is over."""

class AggregateFile:
    """A file that all ranks write or read; see file.hpp. What `problem` says is raised on all ranks."""

    @staticmethod
    def create(
        plan: AggregatePlan,
        path: str,
        way: str,
        durable: bool,
        node_files: bool,
        settings: Mapping[str, str],
        size_bytes: int,
    ) -> AggregateFile:
        """An empty one; `settings` hold instead of those of the plan. Raises StorageError, InputError."""

    @staticmethod
    def open(
        plan: AggregatePlan,
        path: str,
        way: str,
        durable: bool,
        node_files: bool,
        settings: Mapping[str, str],
        writable: bool,
    ) -> AggregateFile:
        """One that exists. Raises StorageError, InputError."""

    @property
    def staged(self) -> bool:
        """Whether steps go to a stage first."""

    @property
    def notes(self) -> list[str]:
        """What an earlier run had left staged, and what became of it."""

    def begin_write(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> AggregateRequest:
        """One array for each variable."""

    def begin_read(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> AggregateRequest:
        """One array for each variable."""

    def write(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> AggregateTiming:
        """The same, to its end."""

    def read(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> AggregateTiming:
        """The same, to its end."""

    def flush(self) -> None:
        """Return when all that was written is on the device."""

    def close(self) -> None:
        """Wait for what is under way; nothing else may follow."""

def aggregate_merge(index: str, target: str) -> int:
    """Make one file of all in an index; its bytes. Raises InputError, CorruptionError and StorageError."""
