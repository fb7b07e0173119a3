"""A plan: what all ranks will write or read in every step, and who aggregates it. Made once.

declare ──► Ranks ──► what each rank gives and knows, gathered ──► settings, machine ──► the core's plan
                       what is wrong at one rank is raised on all
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any

from outcrop import _core
from outcrop.aggregate.at_hand import AtHand, Known, at_hand, known_here, leaders_of
from outcrop.aggregate.extents import Extent
from outcrop.aggregate.measured import Measured
from outcrop.aggregate.ranks import Ranks
from outcrop.aggregate.settings import Settings, read_settings
from outcrop.aggregate.staging import Forecast, Habits, StageChoice
from outcrop.errors import InputError, shown
from outcrop.units import counted, format_bytes

Variable = Extent | Sequence[Extent]
Extents = Mapping[str, Variable] | Sequence[Variable]


@dataclass(frozen=True)
class _Given:
    """To one rank: what must be the same on all, and what is wrong with the rest. Settings are those of rank 0."""

    alike: tuple[object, ...]
    problem: str = ""
    settings: Settings | None = None


class Plan:
    """Made by `declare`. `names` are those of this rank's variables, in order."""

    def __init__(
        self,
        core: _core.AggregatePlan,
        ranks: Ranks,
        names: Sequence[str],
        around: AtHand,
        settings: Settings,
        carried: Sequence[str],
    ) -> None:
        self._core, self._ranks, self._around, self._carried = core, ranks, around, tuple(carried)
        self.names, self.reads_only, self.settings = tuple(names), settings.reads_only, settings
        self.measured = Measured()
        self._is_closed = False
        self._staging = StageChoice()

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
        return [self._around.machine.tiers[tier].name for tier in self._core.tiers]

    def remember(self, staging: StageChoice) -> None:
        """For `explain`: what a file of this plan does with its steps."""
        if staging.lines:
            self._staging = staging

    def explain(self, domains: int = 1) -> str:
        """In words: who aggregates where and why, with predicted seconds; the `domains` that take longest in detail.

        After steps also what they took at this rank, beside what was predicted. Not collective.
        """
        nodes = len(self._around.hosts)
        lines = [
            f"{counted(self.size, 'rank')} on {counted(nodes, 'node')}, {self._ranks.library}: "
            f"{format_bytes(self.nbytes)} a step",
            *self._explained(domains),
            *self._staging.lines,
            *self._around.lines,
            *self._carried,
            *(f"{name} by {origin}" for name, origin in self.settings.origins.items() if origin != "default"),
            *self._core.places,
            *self._core.notes,
            *self.measured.lines(self.rank, self._predicted()),
        ]
        return "\n".join(lines)

    def _explained(self, domains: int) -> list[str]:
        own = ["every rank writes and reads its own bytes, which are few long runs: no bytes travel"]
        return [*(own if self._core.own else ()), *self._core.explain(domains).splitlines()]

    def _predicted(self) -> dict[str, float]:
        if self.reads_only:
            return {"read": self.seconds}
        straight = Forecast(*self._core.staging(Habits())[1])
        return {"write": straight.write, "read": straight.read, **self._staging.predicted}

    def close(self) -> None:
        """Collective: gives back the duplicate of the communicator. Its files can only be closed before that."""
        self._is_closed = True
        self._ranks.close()

    def check_open(self) -> None:
        """Raise InputError where the plan has been closed: there is nobody then who could carry bytes."""
        if self._is_closed:
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
        "reads_only": "true" if reads_only else None, "seconds_most": seconds_most,
        "own_run_bytes": None if own_run_bytes is None else str(own_run_bytes),
    }  # fmt: skip
    ranks = Ranks(communicator)
    try:
        names, variables, problem = _variables(extents)
        problem = problem or _unusual({**arguments, "own_run_bytes": own_run_bytes}, hints)
        if not problem and not isinstance(reads_only, bool):
            problem = f"reads_only {shown(reads_only)} must be True or False"
        if problem:  # told to all in a moment
            arguments, hints = {}, None
        texts = {str(name): str(value) for name, value in hints.items()} if hints is not None else {}
        ranks.limit_waiting(_limit_here(arguments, texts))
        settings = _settings_of_first(ranks, _Given((arguments, texts), problem), arguments, texts)
        ranks.limit_waiting(settings.seconds_most)
        around = _machine_at_hand(ranks, settings)
        carried = _carried(ranks, settings)
        options = _options(settings, around)
        wishes = settings.wishes(around.hosts)
        media = around.media_of(ranks.rank)
        core = _core.AggregatePlan(ranks.address, variables, around.machine, wishes, options, media)
    except InputError:  # on all ranks
        ranks.close()
        raise
    return Plan(core, ranks, names, around, settings, carried)


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


def _unusual(arguments: Mapping[str, object], hints: object) -> str:
    """What of the arguments is no setting of any kind, in words; "" if nothing."""
    if hints is not None and not callable(getattr(hints, "items", None)):
        return f"hints {shown(hints)} must be an Info of mpi4py, or a mapping"
    for name, value in arguments.items():
        if not (value is None or isinstance(value, str | Real | os.PathLike)):
            return f"{name} {shown(value)} must be a number or text"
        try:
            str(value).encode()
        except ValueError:  # no UTF-8, or more digits than Python writes
            return f"{name} {shown(value)} must be a number or text that can be written"
    return ""


def _limit_here(arguments: Mapping[str, object], hints: Mapping[str, str]) -> float:
    """For how long this rank waits until it knows the settings of all: by what it was given itself."""
    try:
        return read_settings(arguments, hints).seconds_most
    except InputError:  # told to all in a moment
        return 0.0


def _settings_of_first(
    ranks: Ranks, given: _Given, arguments: Mapping[str, object], hints: Mapping[str, str]
) -> Settings:
    """Those that rank 0 reads, also from its environment. Raises, on all, what is wrong at any rank."""
    if ranks.rank == 0 and not given.problem:
        try:
            given = replace(given, settings=read_settings(arguments, hints))
        except InputError as error:
            given = replace(given, problem=str(error))
    everyone = ranks.gather(given)
    for rank, one in enumerate(everyone):
        if one.problem:
            raise InputError(f"rank {rank}: {one.problem}")
        if one.alike != everyone[0].alike:
            raise InputError(f"rank {rank} has given other settings for the plan than rank 0")
    settings = everyone[0].settings
    assert settings is not None
    return settings


def _machine_at_hand(ranks: Ranks, settings: Settings) -> AtHand:
    """By what every rank knows; what is wrong at one is raised on all."""
    file = Path(settings.machine) if settings.machine else None
    topology = Path(settings.topology) if settings.topology else None
    target = Path(settings.target)
    mine: Known | str
    try:
        mine = known_here(ranks.rank, ranks.node, file, target)
    except InputError as error:
        mine = str(error)
    known: list[Known] = []
    for rank, one in enumerate(ranks.gather(mine)):
        if isinstance(one, str):
            raise InputError(f"rank {rank}: {one}")
        known.append(one)
    given = (known, file, target, topology, settings.reads_only)
    around: AtHand = _of_first(ranks, lambda: at_hand(*given))
    if around.wants_ping_pong:
        seconds = ranks.ping_pong(leaders_of(known))
        around = _of_first(ranks, lambda: at_hand(*given, seconds))
    return around


def _of_first(ranks: Ranks, make: Any) -> Any:
    """What rank 0 makes, or what is wrong there, for all ranks: figures and settings must be the same everywhere."""
    outcome: tuple[Any, str] = (None, "")
    if ranks.rank == 0:
        try:
            outcome = (make(), "")
        except InputError as error:
            outcome = (None, str(error))
    made, problem = ranks.gather(outcome)[0]
    if problem:
        raise InputError(problem)
    return made


def _carried(ranks: Ranks, settings: Settings) -> list[str]:
    """What carries bytes between nodes, where somebody has asked for that. Collective."""
    if settings.transport != "rma":
        return []
    trouble = ranks.use_rma()
    return ["between nodes: rma" if not trouble else f"between nodes: messages, for rma does not work: {trouble}"]


def _own_run_bytes(settings: Settings) -> int:
    """As the core knows it. Who says where buffers are or who has them wants aggregators."""
    if settings.origins["own_run_bytes"] != "default":
        return settings.own_run_bytes
    said = any(settings.origins[name] != "default" for name in ("tier", "persistence", "count", "hosts"))
    return 0 if said else int(_core.AggregateOptions.OWN_WHERE_IT_PAYS)


def _options(settings: Settings, around: AtHand) -> _core.AggregateOptions:
    """0 for what nobody has set: the core chooses by the bytes there are."""
    options = _core.AggregateOptions()
    if settings.origins["buffer_bytes"] != "default":
        options.buffer_bytes = settings.buffer_bytes
    if settings.origins["buffers"] != "default":
        options.buffers = settings.buffers
    options.aggregators = settings.count
    options.aggregators_on_node = around.machine.network.cards_on_node
    options.own_run_bytes = _own_run_bytes(settings)
    options.reading_only = settings.reads_only
    return options
