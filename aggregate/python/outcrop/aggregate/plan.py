"""A plan says what each rank writes or reads in each step, and which ranks aggregate. It is made once.

    declare ──► Ranks ──► settings that all ranks agree on ──► nodes.known_machine ──► the core's plan
                                  what is wrong at one rank is raised on all
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from outcrop import _aggregate
from outcrop.aggregate.extents import Extent
from outcrop.aggregate.nodes import known_machine
from outcrop.aggregate.ranks import Ranks
from outcrop.aggregate.settings import Settings, environment_texts, texts
from outcrop.errors import InputError, shown

Variable = Extent | Sequence[Extent]
Extents = Mapping[str, Variable] | Sequence[Variable]


class Plan:
    """Made by `declare`. `names` are those of this rank's variables, in order."""

    def __init__(self, core: _aggregate.Plan, ranks: Ranks, names: Sequence[str]) -> None:
        self._core, self._ranks, self.names = core, ranks, tuple(names)
        self.reads_only = bool(core.settings.values["reads_only"])
        self._closed = False

    @property
    def rank(self) -> int:
        """Of this process."""
        return self._ranks.rank

    @property
    def size(self) -> int:
        """Ranks there are."""
        return self._ranks.size

    @property
    def nbytes(self) -> int:
        """Of all ranks, in one step."""
        return self._core.nbytes

    @property
    def end(self) -> int:
        """The byte of the file behind the last one of a step at base 0."""
        return self._core.end

    @property
    def aggregators(self) -> list[int]:
        """The rank that aggregates each domain."""
        return self._core.aggregators

    @property
    def seconds(self) -> float:
        """Predicted for a step straight to the file, of writing, or of reading where the plan is for that only."""
        return self._core.seconds

    @property
    def tiers(self) -> list[str]:
        """Names of the tiers that the buffers of each domain are on."""
        return self._core.tiers

    @property
    def settings(self) -> Settings:
        """The same on all ranks, but for the folder of a stage and its bytes."""
        return self._core.settings

    def explain(self, domains: int = 1) -> str:
        """In words: who aggregates where and why, with predicted seconds; the `domains` that take longest in detail.

        After steps also what they took at this rank, beside what was predicted. Not collective.
        """
        return self._core.explain(domains).rstrip("\n")

    def close(self) -> None:
        """Collective: gives back the duplicate of the communicator. Its files can only be closed before that."""
        self._closed = True
        self._ranks.close()

    def check_open(self) -> None:
        """Raise InputError where the plan has been closed: there is nobody then who could carry bytes."""
        if self._closed:
            raise InputError("the plan has been closed; close it after its files")

    def __enter__(self) -> Plan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error other ranks may not come to close together with this one.
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
    """Make a plan of what every rank will write or read in each step. Collective; all but `extents` the same on all.

    Args:
        communicator: of mpi4py, or None for this process by itself, without MPI.
        extents: for each variable of this rank an extent or a list of them; with names, as a mapping. May be empty.
        target: a folder where the files will be; its figures are those by which aggregators are chosen. The working
            directory when left out.
        machine: a file that says what nodes are like, as `outcrop agg machine` writes it; without one, the tiers that
            `outcrop tiers` finds, with figures that it has measured before.
        reads_only: ranks may declare the same bytes; such a plan refuses to write.
        own_run_bytes: where runs of all ranks are that long in the mean, each writes its own; 0 for never. When left
            out: 64 KiB where all ranks are on one node and nothing is said about aggregators.
        topology: a file with lines `rank: group switch port`.
        hints: an mpi4py `Info` or a mapping, with ROMIO's names or outcrop_agg_*.
        count: of aggregators; as many as are done soonest when left out.
        tier: where buffers are.
        persistence: of that tier, at least: process, reboot, job or permanent.
        buffer: bytes of each buffer, a multiple of 4096.
        buffers: of each aggregator, 2 to 8.
        hosts: which may have aggregators, as ROMIO's cb_config_list.
        transport: between nodes: "messages" (two-sided), or "rma" (one-sided) where that works; `explain` says so.
        seconds_most: a rank that has waited for others for so long gets CommunicationError; never when left out.

    What is not given is taken from `hints`, then from OUTCROP_AGG_* of rank 0's environment.

    Raises InputError, on all ranks: ranks overlap (the message names both and the byte), or what was given cannot be.
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
            except InputError as error:  # told to all ranks
                problem = str(error)
        core = _aggregate.Plan(
            ranks.address, declared, given, hint_texts, environment_texts(), problem, partial(known_machine, ranks)
        )
    except InputError:  # on all ranks
        ranks.close()
        raise
    return Plan(core, ranks, names)


def _variables(extents: Extents) -> tuple[list[str], list[list[Extent]], str]:
    """Names, extents of each variable, and what is wrong with them, if anything."""
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
    """The arguments that say something: not None, nor 0 but for own_run_bytes. Raises InputError."""
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
