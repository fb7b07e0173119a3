"""A program declares once which bytes each rank writes or reads in every step. From this declaration, Outcrop chooses
the aggregators and makes a plan.

    declare ──► Ranks ──► settings that all ranks agree on ──► nodes.known_machine ──► the core's plan
                                  an error at one rank is raised on all ranks

An extent describes bytes of a file, and where these bytes are in the memory of a rank (decision/extent.hpp of the
core). There are three kinds of extents: contiguous bytes, strided blocks, and a part of an array in C order. Strided
blocks have equal sizes and equal distances.

The settings come from arguments, from MPI info hints and from the environment. The core has the table of all settings
(placement/settings.cpp).
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from outcrop import _aggregate
from outcrop.aggregate.nodes import known_machine
from outcrop.aggregate.ranks import Ranks
from outcrop.errors import InputError, shown

Extent = _aggregate.Extent
"""An extent. `nbytes`, `begin` and `end` describe its bytes in the file. `memory_nbytes` is the number of bytes of
memory that the extent needs.
"""
Settings = _aggregate.Settings
Variable = Extent | Sequence[Extent]
Extents = Mapping[str, Variable] | Sequence[Variable]


def contiguous(offset: int, nbytes: int, *, memory_offset: int = 0) -> Extent:
    """Return an extent of `nbytes` bytes. The extent begins at byte `offset` of the file, and at byte `memory_offset`
    of the memory of the variable. Raises InputError for invalid numbers, such as negative numbers.
    """
    numbers = {"offset": offset, "nbytes": nbytes, "memory_offset": memory_offset}
    return _aggregate.contiguous(*(whole(name, number) for name, number in numbers.items()))


def strided(
    offset: int,
    count: int,
    block_bytes: int,
    stride_bytes: int,
    *,
    memory_stride_bytes: int = 0,
    memory_offset: int = 0,
) -> Extent:
    """Return an extent of `count` blocks of `block_bytes` bytes. In the file, the distance between the starts of two
    blocks is `stride_bytes`. In memory, this distance is `memory_stride_bytes`. If `memory_stride_bytes` is 0, the
    blocks are contiguous in memory. Raises InputError for invalid numbers, and for blocks that overlap.
    """
    numbers = {
        "offset": offset, "count": count, "block_bytes": block_bytes, "stride_bytes": stride_bytes,
        "memory_stride_bytes": memory_stride_bytes, "memory_offset": memory_offset,
    }  # fmt: skip
    return _aggregate.strided(*(whole(name, number) for name, number in numbers.items()))


def subarray(
    shape: Sequence[int], subshape: Sequence[int], starts: Sequence[int], dtype: DTypeLike, *, offset: int = 0
) -> Extent:
    """Return an extent for a part of an array. The array has the shape `shape`, in C order. The whole array begins at
    byte `offset` of the file. The part begins at the indices `starts` and has the shape `subshape`. The part is
    contiguous in memory. Raises InputError if a cell of the part is outside the array.
    """
    try:
        item_bytes = np.dtype(dtype).itemsize
    except TypeError:
        raise InputError(f"dtype {dtype!r} must be a data type of NumPy") from None
    sizes, subsizes, begins = _list("shape", shape), _list("subshape", subshape), _list("starts", starts)
    return _aggregate.subarray(sizes, subsizes, begins, item_bytes, whole("offset", offset))


def _list(name: str, values: Sequence[int]) -> list[int]:
    if not isinstance(values, Iterable):
        raise InputError(f"{name} = {shown(values)} must be a list of whole numbers, one for each axis")
    return [whole(name, one) for one in values]


def whole(name: str, value: int, most: int = 2**64 - 1) -> int:
    """Return `value` as an integer. Raises InputError if `value` is not a whole number from 0 to `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= most:
        raise InputError(f"{name} = {value!r} must be a whole number from 0 to {most}")
    return number


class Plan:
    """The result of `declare`. `names` are the names of this rank's variables, in the order of their declaration."""

    def __init__(self, core: _aggregate.Plan, ranks: Ranks, names: Sequence[str]) -> None:
        self._core, self._ranks, self.names = core, ranks, tuple(names)
        self.reads_only = bool(core.settings.values["reads_only"])
        self._closed = False

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self._ranks.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._ranks.size

    @property
    def nbytes(self) -> int:
        """The number of bytes that all ranks together write or read in one step."""
        return self._core.nbytes

    @property
    def end(self) -> int:
        """The offset of the end of a step whose `base` is 0. This offset is 1 more than the offset of the step's last
        byte.
        """
        return self._core.end

    @property
    def aggregators(self) -> list[int]:
        """The ranks that are aggregators. Entry i is the aggregator of domain i."""
        return self._core.aggregators

    @property
    def seconds(self) -> float:
        """The predicted time, in seconds, to write a step directly to the file. If `reads_only` is true, this is the
        predicted time to read a step.
        """
        return self._core.seconds

    @property
    def tiers(self) -> list[str]:
        """The names of tiers. Entry i is the tier that holds the buffers of domain i."""
        return self._core.tiers

    @property
    def settings(self) -> Settings:
        """The settings of the plan. All ranks have the same settings, except for the folder and the size of a stage."""
        return self._core.settings

    def explain(self, domains: int = 1) -> str:
        """Return a text that names the aggregators and the tiers of their buffers, and gives the reasons for these
        choices. The text also gives the predicted time of a step, and the measured times of this rank's steps. The text
        describes the `domains` slowest domains in detail. One rank may call `explain` alone.
        """
        return self._core.explain(domains).rstrip("\n")

    def close(self) -> None:
        """Free the duplicate of the communicator. All ranks must call this function. Close the plan's files first."""
        self._closed = True
        self._ranks.close()

    def check_open(self) -> None:
        """Raise InputError if the plan has been closed."""
        if self._closed:
            raise InputError("the plan has been closed; close it after its files")

    def __enter__(self) -> Plan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error, the other ranks may never call close(). Therefore this rank does not wait for the other ranks.
        if kind is None:
            self.close()


def declare(
    communicator: Any,
    extents: Extents,
    *,
    target: str | Path | None = None,
    machine: str | Path | None = None,
    reads_only: bool = False,
    own_run_bytes: int | str | None = None,
    topology: str | Path | None = None,
    hints: Any = None,
    count: int | None = None,
    tier: str | None = None,
    persistence: str | None = None,
    buffer: int | str | None = None,
    buffers: int | None = None,
    hosts: str | None = None,
    transport: str | None = None,
    seconds_most: float | None = None,
) -> Plan:
    """Make a plan from the bytes that each rank writes or reads in every step. All ranks must call this function. Only
    `extents` may differ between ranks.

    Args:
        communicator: an mpi4py communicator. With None, this process is the only rank, and MPI is not used.
        extents: the variables of this rank, as a list, or as a mapping from names to variables. Each variable is one
            extent or a list of extents. A rank may have no variables.
        target: the folder of the files. The bandwidth and the latency of the storage of this folder affect the choice
            of aggregators. The default is the working directory.
        machine: a file that describes the nodes. `outcrop agg machine` writes such a file. By default, Outcrop uses the
            tiers that `outcrop tiers` finds, and the figures of earlier measurements.
        reads_only: if true, ranks may declare the same bytes, and the plan cannot write.
        own_run_bytes: if the contiguous ranges of bytes of each rank have at least this mean length, each rank performs
            its own I/O. 0 means never. The default is 64 KiB if all ranks are on one node and none of `count`, `tier`,
            `persistence` and `hosts` is given. Otherwise the default is 0.
        topology: a file with lines `rank: group switch port`.
        hints: an mpi4py `Info` or a mapping. Names of hints are ROMIO's names, or begin with `outcrop_agg_`.
        count: the number of aggregators. The default is the number with the shortest predicted time.
        tier: the tier of the buffers.
        persistence: the minimum persistence of that tier: process, reboot, job or permanent.
        buffer: the size of each buffer in bytes, a multiple of 4096.
        buffers: the number of buffers of each aggregator, 2 to 8.
        hosts: the hosts that may have aggregators, as in ROMIO's cb_config_list.
        transport: how bytes move between nodes: "messages" (two-sided), or "rma" (one-sided). If "rma" does not work,
            Outcrop uses messages. `explain` names the transport in use.
        seconds_most: the maximum time that a rank waits for other ranks. After `seconds_most`, the rank raises
            CommunicationError. The default is no limit.

    The value of a setting that you do not pass as an argument comes from `hints`. If the setting is not in `hints`
    either, its value comes from the variable OUTCROP_AGG_* in the environment of rank 0.

    If the arguments are invalid, all ranks raise InputError. If two ranks declare the same byte, all ranks also raise
    InputError. The message about such a byte names the byte and both ranks.
    """
    arguments = {
        "count": count, "tier": tier, "persistence": persistence, "buffer": buffer, "buffers": buffers, "hosts": hosts,
        "machine": machine, "target": target, "topology": topology, "transport": transport,
        "seconds_most": seconds_most, "own_run_bytes": own_run_bytes,
    }  # fmt: skip
    ranks = Ranks(communicator)
    try:
        names, declared, problem = _variables(extents)
        given, hint_texts = {}, {}
        if not problem:
            try:
                given, hint_texts = _given(arguments, reads_only), _hint_texts(hints)
            except InputError as error:  # the core raises this problem on all ranks
                problem = str(error)
        core = _aggregate.Plan(
            ranks.address, declared, given, hint_texts, environment_texts(), problem, partial(known_machine, ranks)
        )
    except InputError:  # all ranks raise this error
        ranks.close()
        raise
    return Plan(core, ranks, names)


def _variables(extents: Extents) -> tuple[list[str], list[list[Extent]], str]:
    """Return three values: the names of the variables, their extents, and an empty text. If the extents are invalid,
    the values are two empty lists and a text with the reason.
    """
    if isinstance(extents, Extent) or not isinstance(extents, Mapping | Sequence):
        return [], [], "extents must be a list, with an extent or a list of extents for each variable"
    pairs = extents.items() if isinstance(extents, Mapping) else enumerate(extents)
    names, variables = [], []
    for name, one in pairs:
        several = [one] if isinstance(one, Extent) else list(one) if isinstance(one, Sequence) else [one]
        if not all(isinstance(each, Extent) for each in several):
            return [], [], f"variable {name}: make its extents with contiguous, strided or subarray"
        names.append(str(name))
        variables.append(several)
    return names, variables, ""


def _given(arguments: Mapping[str, object], reads_only: bool) -> dict[str, str]:
    """Return the arguments that are set. None and 0 count as missing. Only own_run_bytes may be 0. Raises InputError.
    """
    if not isinstance(reads_only, bool):
        raise InputError(f"reads_only {shown(reads_only)} must be True or False")
    found = {name: text for name, text in texts(arguments).items() if arguments[name] or name == "own_run_bytes"}
    return {**found, "reads_only": "true"} if reads_only else found


def _hint_texts(hints: Any) -> dict[str, str]:
    if hints is None:
        return {}
    if not callable(getattr(hints, "items", None)):
        raise InputError(f"hints {shown(hints)} must be an Info of mpi4py, or a mapping")
    return {str(name): str(value) for name, value in hints.items()}


def read_settings(
    arguments: Mapping[str, object] | None = None,
    hints: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Return the settings. The value of a setting comes from the first of these sources that has the setting: the
    arguments, the hints, the environment. An argument that is None or 0 counts as missing. Raises InputError for
    invalid values.
    """
    given = {name: str(value) for name, value in (arguments or {}).items() if value}
    return _aggregate.settings(given, dict(hints or {}), environment_texts(environment))


def environment_texts(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return all environment variables whose names begin with OUTCROP_AGG_, even if they are not settings."""
    return {name: value for name, value in environment.items() if name.startswith("OUTCROP_AGG_")}


def texts(arguments: Mapping[str, object]) -> dict[str, str]:
    """Return the arguments that are not None in the form of texts for the core. Raises InputError if an argument is
    neither a number nor a text.
    """
    given = {}
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, str | Real | os.PathLike):
            raise InputError(f"{name} {shown(value)} must be a number or text")
        try:
            given[name] = os.fsdecode(value) if isinstance(value, os.PathLike) else str(value)
            given[name].encode()
        except ValueError:  # the text is not valid Unicode, or the number has too many digits for Python
            raise InputError(f"{name} {shown(value)} must be a number or text in Unicode") from None
    return given
