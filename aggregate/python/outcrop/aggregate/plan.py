"""A program declares once what each rank writes or reads in each step. The resulting plan chooses the ranks that
aggregate.

    declare ──► Ranks ──► settings that all ranks agree on ──► nodes.known_machine ──► the core's plan
                                  an error at one rank is raised on all ranks

Settings come from arguments, MPI info hints and the environment. The table of all settings is in the core, in
placement/settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any

from outcrop import _aggregate
from outcrop.aggregate.extents import Extent
from outcrop.aggregate.nodes import known_machine
from outcrop.aggregate.ranks import Ranks
from outcrop.errors import InputError, shown

Settings = _aggregate.Settings
Variable = Extent | Sequence[Extent]
Extents = Mapping[str, Variable] | Sequence[Variable]


class Plan:
    """The result of `declare`. `names` are the names of this rank's variables, in order."""

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
        """The offset after the last byte of a step, if the step is written at base 0."""
        return self._core.end

    @property
    def aggregators(self) -> list[int]:
        """For each domain, the rank that aggregates it."""
        return self._core.aggregators

    @property
    def seconds(self) -> float:
        """The predicted seconds to write a step directly to the file, or to read a step if the plan is only for
        reading.
        """
        return self._core.seconds

    @property
    def tiers(self) -> list[str]:
        """For each domain, the name of the tier that holds the buffers of this domain."""
        return self._core.tiers

    @property
    def settings(self) -> Settings:
        """The settings. All ranks have equal settings. Only the folder and the size of a stage may differ among ranks.
        """
        return self._core.settings

    def explain(self, domains: int = 1) -> str:
        """Return a text that says which ranks aggregate, on which tiers, and why. The text also gives the predicted
        seconds. The `domains` slowest domains are described in detail. If steps have been written or read, the text
        also compares the measured times of this rank with the prediction. A single rank may call this.
        """
        return self._core.explain(domains).rstrip("\n")

    def close(self) -> None:
        """Free the duplicate of the communicator. All ranks must call this. Close the plan's files first."""
        self._closed = True
        self._ranks.close()

    def check_open(self) -> None:
        """Raise InputError if the plan has been closed. The ranks of a closed plan cannot communicate."""
        if self._closed:
            raise InputError("the plan has been closed; close it after its files")

    def __enter__(self) -> Plan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error, other ranks may never call close(). This rank must not wait for them.
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
    """Make a plan of what every rank writes or reads in each step. All ranks must call this. Only `extents` may differ
    among ranks.

    Args:
        communicator: an mpi4py communicator. With None, this process is the only rank, and MPI is not used.
        extents: the variables of this rank, as a list, or as a mapping from names to variables. The list or mapping may
            be empty. Each variable is an extent or a list of extents.
        target: the folder of the files. The bandwidth and latency of this folder influence which ranks aggregate. The
            default is the working directory.
        machine: a file that describes the nodes. `outcrop agg machine` writes such a file. By default, the nodes have
            the tiers that `outcrop tiers` finds, with the figures of earlier measurements.
        reads_only: if true, ranks may declare the same bytes, and the plan cannot write.
        own_run_bytes: if the contiguous ranges of bytes of every rank have at least this mean length, each rank
            performs its own I/O. 0 means never. The default is 64 KiB if all ranks are on one node and no setting of
            aggregators is given. Otherwise the default is 0.
        topology: a file with lines `rank: group switch port`.
        hints: an mpi4py `Info` or a mapping. The names of hints are those of ROMIO, or begin with `outcrop_agg_`.
        count: the number of aggregators. The default is the number with the shortest predicted time.
        tier: the tier of the buffers.
        persistence: the minimum persistence of that tier: process, reboot, job or permanent.
        buffer: the size of each buffer in bytes, a multiple of 4096.
        buffers: the number of buffers of each aggregator, 2 to 8.
        hosts: the hosts that may have aggregators, as in ROMIO's cb_config_list.
        transport: the transport between nodes: "messages" (two-sided), or "rma" (one-sided). If "rma" does not work,
            messages are used. `explain` names the transport in use.
        seconds_most: the maximum time that a rank waits for other ranks. After this time, the rank raises
            CommunicationError. The default is no limit.

    A setting that is not given as an argument is taken from `hints`. If `hints` does not contain the setting either, it
    is taken from OUTCROP_AGG_* in the environment of rank 0.

    Raises InputError on all ranks for impossible arguments, or if two ranks declare the same byte. The message names
    the byte and both ranks.
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
    except InputError:  # on all ranks
        ranks.close()
        raise
    return Plan(core, ranks, names)


def _variables(extents: Extents) -> tuple[list[str], list[list[Extent]], str]:
    """Return the names and the extents of the variables, and an empty text. If the extents cannot be used, return empty
    lists and a text with the problem.
    """
    if isinstance(extents, Extent) or not isinstance(extents, Mapping | Sequence):
        return [], [], "extents must be a list, with an extent or a list of extents for each variable"
    pairs = extents.items() if isinstance(extents, Mapping) else enumerate(extents)
    names, variables = [], []
    for name, one in pairs:
        several = [one] if isinstance(one, Extent) else list(one) if isinstance(one, Sequence) else [one]
        if not all(isinstance(each, Extent) for each in several):
            return [], [], f"variable {name}: make its extents by contiguous, strided or subarray"
        names.append(str(name))
        variables.append(several)
    return names, variables, ""


def _given(arguments: Mapping[str, object], reads_only: bool) -> dict[str, str]:
    """Return the arguments that are set. An argument that is None or 0 counts as missing. Only own_run_bytes may be 0.
    Raises InputError.
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
    """Return the settings. A setting is taken from the arguments. If the arguments do not contain it, it is taken from
    the hints. If the hints do not contain it either, it is taken from the environment. An argument that is None or 0
    counts as missing. Raises InputError for invalid values.
    """
    given = {name: str(value) for name, value in (arguments or {}).items() if value}
    return _aggregate.settings(given, dict(hints or {}), environment_texts(environment))


def environment_texts(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return all environment variables whose names begin with OUTCROP_AGG_, including variables that are not settings.
    """
    return {name: value for name, value in environment.items() if name.startswith("OUTCROP_AGG_")}


def texts(arguments: Mapping[str, object]) -> dict[str, str]:
    """Return the arguments that are not None, as texts for the core. Raises InputError if an argument is neither a
    number nor a text.
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
        except ValueError:  # not valid UTF-8, or a number with too many digits for Python
            raise InputError(f"{name} {shown(value)} must be a number or text that can be written") from None
    return given
