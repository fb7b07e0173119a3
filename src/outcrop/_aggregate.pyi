"""Types of the compiled library of aggregation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Any object with contiguous bytes.
_Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

class Cost:
    """The predicted cost of a domain by its terms, in seconds. `total` is the sum of the other terms minus `hidden`."""

    @property
    def merge(self) -> float:
        """Ranks of a sending node merge their bytes."""

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
        """The time saved by the overlap of filling and emptying buffers."""

    @property
    def total(self) -> float:
        """The time until the domain is in its target."""

    @property
    def terms(self) -> dict[str, float]:
        """All terms by name, without the total."""

class Choice:
    """The aggregator of a domain. `node` and `tier` are indices in the machine, `bytes` is the size of the domain."""

    @property
    def rank(self) -> int: ...
    @property
    def node(self) -> int: ...
    @property
    def tier(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def cost(self) -> Cost: ...

class Placement:
    """The aggregators of all domains, and their predicted cost."""

    @property
    def choices(self) -> list[Choice]:
        """One choice for each domain."""

    @property
    def seconds(self) -> float:
        """The time of the slowest domain."""

    @property
    def slowest(self) -> int:
        """The number of the slowest domain."""

    @property
    def merged(self) -> bool:
        """True if the ranks of a node send one message together."""

    @property
    def is_least(self) -> bool:
        """True if no other placement has a lower sum of costs."""

    @property
    def notes(self) -> list[str]:
        """Excluded tiers, and choices that are not the cheapest, with the reason."""

    def explain(self, max_domains: int = 1) -> str:
        """Return a text about the placement, and about the slowest domains with the cost of other places."""

class PlacementOptions:
    """Options of a placement. Each aggregator has `buffers` buffers of `buffer_bytes`. Their tier has at least this
    `persistence`, or has the name `tier`. With `merged`, the ranks of a node send one message together. `max_on_node`
    is the maximum number of aggregators of each node. If it is empty, there is no limit."""

    def __init__(
        self,
        buffer_bytes: int = ...,
        buffers: int = 2,
        persistence: int = 0,
        tier: str = "",
        merged: bool = True,
        max_on_node: Sequence[int] = (),
    ) -> None:
        """Raise InputError if there is no buffer."""

    @property
    def persistence(self) -> int: ...
    @property
    def max_on_node(self) -> list[int]: ...
    def sending_merged(self, merged: bool) -> PlacementOptions:
        """Return a copy with another value of `merged`."""

def place(machine: object, tallies: object, domains: int, options: PlacementOptions) -> Placement:
    """Return the placement with the minimum sum of costs. `machine` and `tallies` are classes of
    outcrop.aggregate.placement. Raises InputError if domains have no room."""

def place_best(
    machine: object, tallies: object, domains: int, options: PlacementOptions, try_both: bool
) -> Placement:
    """Return the fastest placement over several numbers of domains. Raises InputError if domains have no room."""

def predict(
    machine: object, tallies: object, options: PlacementOptions, ranks: NDArray[np.uint32], tiers: NDArray[np.uint32]
) -> Placement:
    """Predict the cost of a placement with these ranks and tiers."""

class Settings:
    """The values of all settings; see settings.hpp."""

    @property
    def values(self) -> dict[str, Any]:
        """A dictionary from the names of fields to values."""

    @property
    def origins(self) -> dict[str, str]:
        """The origin of each value: "argument tier", "hint cb_nodes", "OUTCROP_AGG_COUNT" or "default"."""

    def placement_options(self, hosts: Sequence[str]) -> PlacementOptions:
        """The options for nodes with these hosts. Raises InputError."""

def settings(
    arguments: Mapping[str, str], hints: Mapping[str, str], environment: Mapping[str, str]
) -> Settings:
    """Read each setting from its argument, or else from its hint, or else from its variable. Raises InputError."""

def setting_rows() -> list[tuple[str, str, str, str, str, str, str]]:
    """The table of settings: argument, field, hint, ROMIO's hint, variable, default in words, meaning."""

def parse_node(
    text: str, file: str
) -> tuple[list[tuple[str, float, float, float, int, bool, int, str]], tuple[float, float] | None]:
    """Read a machine file. Return for each tier its name, latency, bytes per second to fill and to empty, persistence,
    whether it holds files, bytes, and origin. Return for the target its latency and write rate. Raises InputError."""

def text_of_this_node(text: str, file: str, target: str) -> str:
    """Return the text with a target, and with the tiers that cannot be used here. Raises InputError."""

def rank_places(text: str, file: str) -> list[list[str]]:
    """Return the group, switch and port of each rank from lines `rank: group switch port`. Raises InputError."""

class Extent:
    """Bytes of a file, and their place in a variable's memory (extent.hpp)."""

    @property
    def nbytes(self) -> int:
        """The bytes of all pieces."""

    @property
    def memory_nbytes(self) -> int:
        """The minimum size of the variable's memory."""

    @property
    def blocks(self) -> int:
        """The number of pieces that are contiguous in the file and in memory."""

    @property
    def begin(self) -> int:
        """The offset of the first byte in the file."""

    @property
    def end(self) -> int:
        """The offset behind the last byte in the file."""

def contiguous(file_offset: int, nbytes: int, memory_offset: int) -> Extent:
    """An extent of one run. Raises InputError."""

def strided(
    file_offset: int,
    count: int,
    block_bytes: int,
    file_stride_bytes: int,
    memory_stride_bytes: int,
    memory_offset: int,
) -> Extent:
    """An extent of blocks with a stride. Raises InputError."""

def subarray(
    sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], item_bytes: int, file_offset: int
) -> Extent:
    """An extent of a part of an array in C order. Raises InputError."""

class PlainRuns:
    """The runs of a rank in a file, with one pwrite or pread for each run, through the page cache."""

    def __init__(self, path: str, variables: Sequence[Sequence[Extent]], writable: bool) -> None:
        """Raises StorageError, InputError."""

    def write(self, arrays: Sequence[object]) -> None:
        """Write one array for each variable. Raises StorageError, InputError."""

    def read(self, arrays: Sequence[object]) -> None:
        """Read into one array for each variable. Raises StorageError, InputError."""

    def flush(self) -> None:
        """Raises StorageError."""

class Plan:
    """A plan, which all ranks make together (plan.hpp)."""

    def __init__(
        self,
        transport: int,
        variables: Sequence[Sequence[Extent]],
        arguments: Mapping[str, str],
        hints: Mapping[str, str],
        environment: Mapping[str, str],
        problem: str,
        find_machine: Callable[[Settings], object],
    ) -> None:
        """Make a plan. `transport` is the address of a table of functions, or 0 if this process is the only rank. A
        `problem` that is not empty is raised on all ranks. `find_machine` is collective. It gets the settings of all
        ranks and returns what this rank knows about the machine (outcrop.aggregate.nodes.KnownMachine). Raises
        InputError."""

    @property
    def settings(self) -> Settings:
        """The settings. They are equal on all ranks, except for the folder of a stage and its bytes."""

    @property
    def nbytes(self) -> int:
        """The bytes of all ranks in one step."""

    @property
    def end(self) -> int:
        """The offset behind the last byte in the file."""

    @property
    def aggregators(self) -> list[int]:
        """The rank of each domain's aggregator."""

    @property
    def tiers(self) -> list[str]:
        """The name of the tier of each domain's buffers."""

    @property
    def memory_nbytes(self) -> list[int]:
        """The minimum size of the memory of each variable of this rank."""

    @property
    def seconds(self) -> float:
        """The predicted time of a step that is written directly to the file."""

    def add_measured(self, what: str, timing: Timing) -> None:
        """Record the time of a step for `explain`. `what` is for example "write" or "staged read"."""

    def explain(self, domains: int) -> str:
        """Explain the plan in a text of several lines."""

class Timing:
    """The cost of one write or read at this rank, in seconds and bytes.

    seconds: from the beginning until the outcome is known.
    seconds_copying: spent copying this rank's parts of buffers.
    seconds_filling: spent copying and waiting for free buffers.
    seconds_storage: spent by this rank's I/O threads on transfers; 0 if it is not an aggregator.
    seconds_messages: from the beginning until the last message has ended.
    bytes_storage: the bytes that this rank has written or read for all ranks.
    overlap: the overlap of copying and storage, as a part of the shorter of the two; None if one of them is 0.
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

class Request:
    """A write or read in progress. It keeps its arrays alive."""

    def test(self) -> bool:
        """Return True if the operation has ended. Raises the error of any rank."""

    def wait(self) -> None:
        """Wait until the operation has ended. Raises the error of any rank."""

    @property
    def timing(self) -> Timing:
        """The cost of the operation, after it has ended."""

class File:
    """A file that all ranks write or read (file.hpp). A `problem` that is not empty is raised on all ranks."""

    @staticmethod
    def create(
        plan: Plan,
        path: str,
        way: str,
        durable: bool,
        node_files: bool,
        settings: Mapping[str, str],
        size_bytes: int,
    ) -> File:
        """Create an empty file. `settings` replace settings of the plan. Raises StorageError, InputError."""

    @staticmethod
    def open(
        plan: Plan,
        path: str,
        way: str,
        durable: bool,
        node_files: bool,
        settings: Mapping[str, str],
        writable: bool,
    ) -> File:
        """Open an existing file. Raises StorageError, InputError."""

    @property
    def staged(self) -> bool:
        """True if steps are staged."""

    @property
    def notes(self) -> list[str]:
        """One line for each step that an earlier run has left staged: whether the step is in the file or lost."""

    def begin_write(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> Request:
        """Begin an operation with one array for each variable."""

    def begin_read(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> Request:
        """Begin an operation with one array for each variable."""

    def write(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> Timing:
        """Wait until the operation has ended."""

    def read(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> Timing:
        """Wait until the operation has ended."""

    def flush(self) -> None:
        """Wait until all written bytes are on the device."""

    def close(self) -> None:
        """Wait for all operations. The file cannot be used afterwards."""

def merge(index: str, target: str) -> int:
    """Copy the node files of an index into one file and return its bytes.

    Raises InputError, CorruptionError and StorageError.
    """
