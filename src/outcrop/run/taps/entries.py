"""What the manifest says of sources, receivers, snapshots and norms; their points and values lie beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Half open ranges of cells along a grid's own axes."""


@dataclass(frozen=True)
class SourceEntry:
    """Sources in a field, each of so many `corners`. `scale` is a `sparse.Scale` as plain data."""

    field: str
    points: int
    steps: int
    scale: dict[str, Any] | None = None
    corners: int = 8


@dataclass(frozen=True)
class SamplingEntry:
    """Receivers of a field; those of one name are added up to one trace."""

    name: str
    field: str
    points: int
    before: bool
    corners: int = 8


@dataclass(frozen=True)
class SnapshotsEntry:
    """Boxes of fields every so many steps, in cells of the arrays that the run stores.

    `initial`: the initial values, too; manifests that do not say so have none of them. `name`: of the group that they
    are in, "" for the only one, or the one around the others.
    """

    every: int
    fields: tuple[str, ...]
    box: Ranges
    time_units: str = ""
    initial: bool = False
    name: str = ""

    @property
    def prefix(self) -> str:
        """What stands before names of fields where all snapshots of a run are together."""
        return f"{self.name}/" if self.name else ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of the box along the grid's own axes."""
        return tuple(end - begin for begin, end in self.box)

    def count(self, step: int) -> int:
        """How many there are when `step` steps are committed. Initial values are kept by the first pass."""
        return step // self.every + self.initial if step > 0 else 0

    def step_of(self, number: int) -> int:
        """The step of a snapshot; they count from 0."""
        return (number + (not self.initial)) * self.every


@dataclass(frozen=True)
class NormsEntry:
    """Sums of fields every so many steps; `initial`: of the initial values, too, as of snapshots."""

    every: int
    fields: tuple[str, ...]
    initial: bool = False

    def count(self, step: int) -> int:
        """How many there are of a field when `step` steps are committed. The first pass adds up initial values."""
        return step // self.every + self.initial if step > 0 else 0

    def steps(self, last: int) -> range:
        """Those after which sums are taken, up to `last`."""
        return range(0 if self.initial else self.every, last + 1, self.every)


@dataclass(frozen=True)
class TapEntries:
    """All of them."""

    sources: tuple[SourceEntry, ...] = ()
    samplings: tuple[SamplingEntry, ...] = ()
    snapshots: tuple[SnapshotsEntry, ...] = ()
    norms: NormsEntry | None = None

    def __bool__(self) -> bool:
        return bool(self.sources or self.samplings or self.snapshots or self.norms)

    @property
    def traces(self) -> dict[str, int]:
        """The number of points of each trace, by name."""
        return {one.name: one.points for one in self.samplings}


NO_ENTRIES = TapEntries()


def parse_entries(data: Mapping[str, Any] | None) -> TapEntries:
    """The entries that `dataclasses.asdict` made plain data of. Raises KeyError and TypeError when it is not that."""
    if data is None:
        return NO_ENTRIES
    snapshots, norms = data["snapshots"] or (), data["norms"]
    if isinstance(snapshots, Mapping):  # of runs made when there could be one alone
        snapshots = (snapshots,)
    return TapEntries(
        tuple(SourceEntry(**one) for one in data["sources"]),
        tuple(SamplingEntry(**one) for one in data["samplings"]),
        tuple(_parse_snapshots(one) for one in snapshots),
        NormsEntry(int(norms["every"]), tuple(norms["fields"]), bool(norms.get("initial", False))) if norms else None,
    )


def _parse_snapshots(data: Mapping[str, Any]) -> SnapshotsEntry:
    box = tuple((int(begin), int(end)) for begin, end in data["box"])
    initial, name = bool(data.get("initial", False)), str(data.get("name", ""))
    return SnapshotsEntry(int(data["every"]), tuple(data["fields"]), box, str(data["time_units"]), initial, name)
