"""Types of the compiled library of aggregation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Anything with contiguous bytes.
_Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

class Cost:
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

class Choice:
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
    def cost(self) -> Cost: ...

class Placement:
    """Where aggregators are, and what that is predicted to cost."""

    @property
    def choices(self) -> list[Choice]:
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

def place(machine: object, tallies: object, domains: int, options: PlacementOptions) -> Placement:
    """The least sum of costs; machine and tallies are of outcrop.aggregate.placement. Raises InputError for want of
    room."""

def place_best(
    machine: object, tallies: object, domains: int, options: PlacementOptions, try_both: bool
) -> Placement:
    """The number of domains that is done first. Raises InputError for want of room."""

def predict(
    machine: object, tallies: object, options: PlacementOptions, ranks: NDArray[np.uint32], tiers: NDArray[np.uint32]
) -> Placement:
    """What it costs where ranks and tiers are given."""

class Settings:
    """The values that hold; see settings.hpp."""

    @property
    def values(self) -> dict[str, Any]:
        """By the name of the field."""

    @property
    def origins(self) -> dict[str, str]:
        """Where each is from: "argument tier", "hint cb_nodes", "OUTCROP_AGG_COUNT" or "default"."""

    def placement_options(self, hosts: Sequence[str]) -> PlacementOptions:
        """On nodes with these hosts. Raises InputError."""

def settings(
    arguments: Mapping[str, str], hints: Mapping[str, str], environment: Mapping[str, str]
) -> Settings:
    """The first that says something: arguments, hints, environment. Raises InputError."""

def setting_rows() -> list[tuple[str, str, str, str, str, str, str]]:
    """The table of settings: argument, field, hint, ROMIO's hint, variable, what holds where it is not set, meaning."""

def parse_node(
    text: str, file: str
) -> tuple[list[tuple[str, float, float, float, int, bool, int, str]], tuple[float, float] | None]:
    """What a machine file says: of each tier its name, latency, bytes per second to fill and to empty, persistence,
    whether it holds files, bytes, and origin; of the target for writing latency and bytes per second. Raises
    InputError."""

def text_of_this_node(text: str, file: str, target: str) -> str:
    """The text with what cannot be used here, and a target. Raises InputError."""

def rank_places(text: str, file: str) -> list[list[str]]:
    """Group, switch and port of each rank, by lines `rank: group switch port`. Raises InputError."""

class Extent:
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

def contiguous(file_offset: int, nbytes: int, memory_offset: int) -> Extent:
    """One run. Raises InputError."""

def strided(
    file_offset: int,
    count: int,
    block_bytes: int,
    file_stride_bytes: int,
    memory_stride_bytes: int,
    memory_offset: int,
) -> Extent:
    """Blocks, a stride apart. Raises InputError."""

def subarray(
    sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], item_bytes: int, file_offset: int
) -> Extent:
    """A part of an array in C order. Raises InputError."""

class PlainRuns:
    """A rank's own runs of a file, a pwrite or pread for each, through the page cache."""

    def __init__(self, path: str, variables: Sequence[Sequence[Extent]], writable: bool) -> None:
        """Raises StorageError, InputError."""

    def write(self, arrays: Sequence[object]) -> None:
        """Memory of each variable. Raises StorageError, InputError."""

    def read(self, arrays: Sequence[object]) -> None:
        """The same, the other way."""

    def flush(self) -> None:
        """Raises StorageError."""

class Plan:
    """Made by all ranks together; see placed_plan.hpp."""

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
        """By the table of functions at that address, or by this process alone where it is 0. What `problem` says is
        raised on all ranks. `find_machine` is collective: it gets the settings of all ranks and returns what this rank
        knows of the machine (outcrop.aggregate.nodes.KnownMachine). Raises InputError."""

    @property
    def settings(self) -> Settings:
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

    def add_measured(self, what: str, timing: Timing) -> None:
        """What a step took, for `explain`: "write", "staged read"."""

    def explain(self, domains: int) -> str:
        """In words."""

class Timing:
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

class Request:
    """A write or read under way; it keeps its arrays."""

    def test(self) -> bool:
        """Whether it is over. Raises what went wrong at any rank."""

    def wait(self) -> None:
        """Return when it is over. Raises what went wrong at any rank."""

    @property
    def timing(self) -> Timing:
        """Once it is over."""

class File:
    """A file that all ranks write or read; see file.hpp. What `problem` says is raised on all ranks."""

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
        """An empty one; `settings` hold instead of those of the plan. Raises StorageError, InputError."""

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
        """One that exists. Raises StorageError, InputError."""

    @property
    def staged(self) -> bool:
        """Whether steps go to a stage first."""

    @property
    def notes(self) -> list[str]:
        """What an earlier run had left staged, and what became of it."""

    def begin_write(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> Request:
        """One array for each variable."""

    def begin_read(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> Request:
        """One array for each variable."""

    def write(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> Timing:
        """The same, to its end."""

    def read(self, arrays: Sequence[NDArray[np.uint8]], base: int, problem: str) -> Timing:
        """The same, to its end."""

    def flush(self) -> None:
        """Return when all that was written is on the device."""

    def close(self) -> None:
        """Wait for what is under way; nothing else may follow."""

def merge(index: str, target: str) -> int:
    """Make one file of all in an index; its bytes. Raises InputError, CorruptionError and StorageError."""
