"""A plan: what all ranks will write or read in every step, and who aggregates it. Made once.

    declare ──► Ranks ──► what each rank gives and knows, gathered ──► settings, machine ──► the core's plan
                           what is wrong at one rank is raised on all
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from outcrop import _core
from outcrop.aggregate.at_hand import AtHand, Known, at_hand, known_here
from outcrop.aggregate.extents import Extent
from outcrop.aggregate.measured import Measured
from outcrop.aggregate.ranks import Ranks
from outcrop.aggregate.settings import Settings, read_settings
from outcrop.errors import InputError
from outcrop.units import counted, format_bytes, parse_bytes

Variable = Extent | Sequence[Extent]
Extents = Mapping[str, Variable] | Sequence[Variable]


@dataclass(frozen=True)
class _Given:
    """Of one rank: what it knows and was given, or what is wrong with that. `alike` must be the same on all."""

    known: Known | None
    alike: tuple[object, ...]
    problem: str = ""


class Plan:
    """Made by `declare`. `names` are those of this rank's variables, in order."""

    def __init__(
        self,
        core: _core.AggregatePlan,
        ranks: Ranks,
        names: Sequence[str],
        around: AtHand,
        lines: Sequence[str],
        reads_only: bool,
    ) -> None:
        self._core, self._ranks, self._around, self._lines = core, ranks, around, tuple(lines)
        self.names, self.reads_only = tuple(names), reads_only
        self.measured = Measured()

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
    def seconds(self) -> float | None:
        """Predicted for a step, of writing, or of reading where the plan is for that only; None where every rank has
        its own bytes."""
        return self._core.seconds

    def explain(self, domains: int = 1) -> str:
        """In words: who aggregates where and why, with predicted seconds; the `domains` that take longest in detail.

        After steps also what they took at this rank, beside what was predicted. Not collective.
        """
        kind = "read" if self.reads_only else "write"
        predicted = {} if self.seconds is None else {kind: self.seconds}
        nodes = len(self._around.hosts)
        lines = [
            f"{counted(self.size, 'rank')} on {counted(nodes, 'node')}, {self._ranks.library}: "
            f"{format_bytes(self.nbytes)} a step",
            *self._explained(domains),
            *self._around.lines,
            *self._lines,
            *self._core.notes,
            *self.measured.lines(self.rank, predicted),
        ]
        return "\n".join(lines)

    def _explained(self, domains: int) -> list[str]:
        if self._core.own:
            return ["every rank writes and reads its own bytes, which are few long runs: no bytes travel"]
        return self._core.explain(domains).splitlines()

    def close(self) -> None:
        """Collective: gives back the duplicate of the communicator. No file of the plan may be open."""
        self._ranks.close()

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
    target: str | Path = ".",
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
) -> Plan:
    """Make a plan of what every rank will write or read in each step. Collective; all but `extents` the same on all.

    Args:
        communicator: of mpi4py, or None for this process by itself, without MPI.
        extents: for each variable of this rank an extent or a list of them; with names, as a mapping. May be empty.
        target: a folder where the files will be; its figures are those by which aggregators are chosen.
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

    What is not given is taken from `hints`, then from OUTCROP_AGG_* of rank 0's environment.

    Raises InputError, on all ranks: ranks overlap (the message names both and the byte), or what was given cannot be.
    """
    arguments = {
        "count": count, "tier": tier, "persistence": persistence, "buffer": buffer, "buffers": buffers, "hosts": hosts
    }  # fmt: skip
    ranks = Ranks(communicator)
    try:
        names, variables, problem = _variables(extents)
        texts = {str(name): str(value) for name, value in hints.items()} if hints is not None else {}
        alike = (str(target), reads_only, own_run_bytes, str(topology), arguments, texts)
        known = _gather(ranks, alike, problem)
        folder, file = Path(target), None if topology is None else Path(topology)

        def choose() -> tuple[Settings, AtHand, int]:
            settings = read_settings(arguments, texts)
            return settings, at_hand(known, folder, file, reads_only), _own_run_bytes(own_run_bytes, settings)

        settings, around, runs = _of_first(ranks, choose)
        options = _options(settings, around, reads_only, runs)
        wishes = settings.wishes(around.hosts)
        core = _core.AggregatePlan(ranks.address, variables, around.machine, wishes, options)
    except InputError:  # on all ranks
        ranks.close()
        raise
    origins = {name: origin for name, origin in settings.origins.items() if origin != "default"}
    lines = [f"{name} by {origin}" for name, origin in origins.items()]
    return Plan(core, ranks, names, around, lines, reads_only)


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


def _gather(ranks: Ranks, alike: tuple[object, ...], problem: str) -> list[Known]:
    """What every rank knows. Raises, on all, what is wrong at any."""
    try:
        mine = _Given(known_here(ranks.rank, ranks.node), alike, problem)
    except InputError as error:
        mine = _Given(None, alike, str(error))
    given = ranks.gather(mine)
    known = []
    for rank, one in enumerate(given):
        if one.problem or one.known is None:
            raise InputError(f"rank {rank}: {one.problem}")
        if one.alike != given[0].alike:
            raise InputError(f"rank {rank} has given other settings for the plan than rank 0")
        known.append(one.known)
    return known


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


def _own_run_bytes(given: int | str | None, settings: Settings) -> int:
    """As the core knows it. Who says where buffers are or who has them wants aggregators."""
    if given is not None:
        return 0 if given == 0 else parse_bytes(given)
    said = any(settings.origins[name] != "default" for name in ("tier", "persistence", "count", "hosts"))
    return 0 if said else _core.AggregateOptions.OWN_WHERE_IT_PAYS


def _options(settings: Settings, around: AtHand, reads_only: bool, own_run_bytes: int) -> _core.AggregateOptions:
    """0 for what nobody has set: the core chooses by the bytes there are."""
    options = _core.AggregateOptions()
    if settings.origins["buffer_bytes"] != "default":
        options.buffer_bytes = settings.buffer_bytes
    if settings.origins["buffers"] != "default":
        options.buffers = settings.buffers
    options.aggregators = settings.count
    options.aggregators_on_node = around.machine.network.cards_on_node
    options.own_run_bytes = own_run_bytes
    options.reading_only = reads_only
    return options
