"""What the manifest lists: arrays, sources, receivers, snapshots and norms, and the types and ranges of all it says.

`msgspec` checks the types when a file of a run is read. Points and values of sources and receivers lie beside the
manifest (acquisition_files.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta

from outcrop.language.stencil import PREVIOUS

if TYPE_CHECKING:
    from outcrop.language.stencil import Stencil

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 53)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 53)]
Checksum: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 32)]
Identity: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-z]{1,32}$")]

Name: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
"""Of a field, a parameter, receivers or snapshots. It becomes a part of file names."""
OptionalName: TypeAlias = Annotated[str, Meta(pattern="^([A-Za-z_][A-Za-z0-9_]{0,63})?$")]

ArrayName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}(\.previous)?$")]

FolderName: TypeAlias = Annotated[
    str, Meta(pattern=r"^(\.?[A-Za-z_][A-Za-z0-9_]{0,63}(\.previous)?(\.[01])?|snapshots\.zarr)$")
]
"""Of a folder of a run; see `contents`."""

Shown: TypeAlias = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Text that may be printed: without control characters, which a terminal would obey."""

Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""A path."""

Ranges: TypeAlias = tuple[tuple[Count, Count], ...]
"""Half open ranges of cells along a grid's own axes."""
Points: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 26)]
Corners: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 10)]
Several: TypeAlias = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=1024)]

NORMS_BYTES, SUM_BYTES = 5 * 8, 4
"""Of a row of norms, and of a checksum."""


@dataclass(frozen=True)
class ArrayEntry:
    """One array of cells. One that `is_static` is only read by passes; of the others, the state, each pass writes the
    next values."""

    name: ArrayName
    is_static: bool

    @property
    def field(self) -> str:
        """The field whose values, or previous values, these are."""
        return self.name.partition(".")[0]

    @property
    def is_previous(self) -> bool:
        """Whether these are the values before the newest ones."""
        return "." in self.name


def arrays_of(stencil: Stencil) -> tuple[ArrayEntry, ...]:
    """The state, field by field in the stencil's order, each followed by its previous values where a step needs both;
    then the fields that are only read."""
    state, static = [], []
    for field, storage in zip(stencil.fields, stencil.storage, strict=True):
        if storage.is_static:
            static.append(ArrayEntry(field.name, True))
            continue
        state.append(ArrayEntry(field.name, False))
        if storage.history == 2:
            state.append(ArrayEntry(field.name + PREVIOUS, False))
    return (*state, *static)


@dataclass(frozen=True)
class SourceEntry:
    """Sources in a field, each of so many `corners`. `scale` is a `sparse.SourceFactor` as plain data."""

    field: Name
    points: Points
    steps: Count
    scale: dict[str, Any] | None = None
    corners: Corners = 8


@dataclass(frozen=True)
class SamplingEntry:
    """Receivers of a field; those of one name are added up to one trace."""

    name: Name
    field: Name
    points: Points
    before: bool
    corners: Corners = 8


@dataclass(frozen=True)
class SnapshotsEntry:
    """Boxes of fields every so many steps, in cells of the arrays that the run stores.

    `initial`: the initial values, too. `name`: of the group that they are in, "" for the only one, or the one around
    the others.
    """

    every: Positive
    fields: Several
    box: Ranges
    time_units: Shown = ""
    initial: bool = False
    name: OptionalName = ""

    @property
    def prefix(self) -> str:
        """What stands before names of fields where all snapshots of a run are together."""
        return f"{self.name}/" if self.name else ""

    def record(self, field: str) -> str:
        """The file with the checksums of the snapshots of a field."""
        return "-".join(["snapshots", *([self.name] if self.name else []), field])

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

    every: Positive
    fields: Several
    initial: bool = False

    def count(self, step: int) -> int:
        """How many there are of a field when `step` steps are committed. The first pass adds up initial values."""
        return step // self.every + self.initial if step > 0 else 0

    def steps(self, last: int) -> range:
        """Those after which sums are taken, up to `last`."""
        return range(0 if self.initial else self.every, last + 1, self.every)


@dataclass(frozen=True)
class AcquisitionEntries:
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

    @property
    def fields(self) -> set[str]:
        """The fields that any of them is about."""
        found = {one.field for one in self.sources} | {one.field for one in self.samplings}
        found |= {name for one in self.snapshots for name in one.fields}
        return found | set(self.norms.fields if self.norms else ())

    @property
    def definitions(self) -> dict[str, int]:
        """Bytes of the files with points and values, by name: they are written once."""
        found = {f"source-{i}": _points_bytes(one) + 8 * one.steps * one.points for i, one in enumerate(self.sources)}
        return found | {f"receivers-{i}": _points_bytes(one) for i, one in enumerate(self.samplings)}

    def records(self, step: int) -> dict[str, tuple[int, int]]:
        """Of the files that grow with the run, by name, the bytes of a row and how many rows count after `step` steps.

        What snapshots have there is a checksum for each of their files.
        """
        found = {f"trace-{name}": (8 * points, step) for name, points in self.traces.items()}
        if self.norms:
            found |= {f"norms-{name}": (NORMS_BYTES, self.norms.count(step)) for name in self.norms.fields}
        for one in self.snapshots:
            found |= {one.record(field): (SUM_BYTES, one.count(step)) for field in one.fields}
        return found

    @property
    def files(self) -> list[str]:
        """Names of all these files."""
        return [*self.definitions, *self.records(0)]


NO_ENTRIES = AcquisitionEntries()


def _points_bytes(one: SourceEntry | SamplingEntry) -> int:
    """Of cells (three numbers) and weights."""
    return (3 + 1) * 8 * one.points * one.corners
