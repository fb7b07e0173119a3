"""The entries of the manifest: arrays, sources, receivers, snapshots and norms, with the types and ranges of values.

`msgspec` checks the types when a file of a run is read. Points and values of sources and receivers are in files beside
the manifest (acquisition_files.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as member
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta

from outcrop.language.stencil import PREVIOUS
from outcrop.plan.problem import Groups, chunk_rows

if TYPE_CHECKING:
    from outcrop.language.stencil import Stencil

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 53)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 53)]
Checksum: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 32)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e12)]
Identity: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-z]{1,32}$")]

Name: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
"""The name of a field, a parameter, receivers or snapshots. The name becomes a part of file names."""
OptionalName: TypeAlias = Annotated[str, Meta(pattern="^([A-Za-z_][A-Za-z0-9_]{0,63})?$")]

ArrayName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}(\.previous)?$")]

FolderName: TypeAlias = Annotated[
    str, Meta(pattern=r"^(\.?[A-Za-z_][A-Za-z0-9_]{0,63}(\.previous)?(\.[01])?|snapshots\.zarr)$")
]
"""The name of a folder of a run; see `contents`."""

Shown: TypeAlias = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Text that can be printed safely. A printable text has no control characters, because a terminal would execute control
characters."""

Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""A path."""

Ranges: TypeAlias = tuple[tuple[Count, Count], ...]
"""Half-open ranges of cells along a grid's own axes."""
Points: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 26)]
Corners: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 10)]
Several: TypeAlias = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=1024)]
SeveralArrays: TypeAlias = Annotated[tuple[ArrayName, ...], Meta(min_length=1, max_length=1024)]

HISTORY = "history"
"""The name of the snapshots that are the history of a run."""

NORMS_BYTES, SUM_BYTES = 5 * 8, 4
"""The number of bytes of a row of norms, and of a checksum."""

EXACT_BYTES = 67 * 4 + 8
"""The number of bytes of an exact sum (core/outcrop/exec/acquisition.hpp)."""
PART_NORMS_BYTES = NORMS_BYTES + 2 * EXACT_BYTES
"""The number of bytes of a row of norms of one part, whose sums are not rounded."""


@dataclass(frozen=True)
class ArrayEntry:
    """One array of cells. Passes only read a static array. Arrays that are not static belong to the state."""

    name: ArrayName
    is_static: bool

    @property
    def field(self) -> str:
        """The name of the field whose values or previous values are in this array."""
        return self.name.partition(".")[0]

    @property
    def is_previous(self) -> bool:
        """True if the array has the previous values of its field."""
        return "." in self.name


MAX_STATE = 2
"""The maximum number of steps between state t and the state that a step of an adjoint run reads."""


@dataclass(frozen=True)
class StateField:
    """A field of an adjoint run. The values of a `StateField` come from the forward run. A step of the adjoint run goes
    back from state t of the forward run to state t - 1. In a step from state t to state t - 1, the adjoint run reads
    values of `field`: the values after `later` further updates of state t - `state`. If `later` is -1, the step reads
    the previous values of `field` in state t - `state`."""

    name: Name
    field: Name
    state: Annotated[int, Meta(ge=0, le=MAX_STATE)]
    later: Annotated[int, Meta(ge=-1, le=1024)] = 0


@dataclass(frozen=True)
class StatesEntry:
    """The states that an adjoint run reads from the history of its forward run. `run` is the directory of the forward
    run. The history keeps the states of only those steps whose numbers are multiples of `every`. Step 0 of the adjoint
    run goes back from step `steps` of the forward run.

    If passes recompute states, `stencil` is the stencil of the forward run (`Stencil.to_json`). `source_cells` is then
    the number of cells of the forward run's sources. Each pass that recomputes states goes back to the next older state
    of the history, and computes the states in between. If passes do not recompute states, `stencil` is None. If
    `stencil` is None, steps without a stored state add nothing to the fields that `sums` names."""

    run: Text
    identity: Identity
    steps: Positive
    fields: Annotated[tuple[StateField, ...], Meta(min_length=1, max_length=1024)]
    every: Positive = 1
    sums: Annotated[tuple[Name, ...], Meta(max_length=1024)] = ()
    stencil: dict[str, Any] | None = None
    source_cells: Count = 0

    @property
    def forward(self) -> Stencil | None:
        """The stencil of the forward run, if passes compute states again. Raises InputError for a wrong description."""
        from outcrop.language.stencil import Stencil  # this module must load fast

        return None if self.stencil is None else Stencil.from_json(self.stencil)

    @property
    def weight(self) -> int:
        """The factor by which each term in the sums of a gradient is multiplied. If only every k-th step adds a term,
        the factor is k."""
        return self.every if self.stencil is None else 1

    def phase(self, first_step: int) -> int:
        """Return the number of the first step of a pass that reads states. The steps of the pass are counted from 0.
        The pass begins at step `first_step` of the adjoint run."""
        return (self.steps - first_step - self.fields[0].state) % self.every


MAX_RANKS = 100_000
"""The maximum number of ranks of a run. The number is limited, because plans and readers do some work for each rank."""


@dataclass(frozen=True)
class PartEntry:
    """A run of several ranks has a part for each rank. A `PartEntry` describes the part in one directory: some rows of
    the grid, and all or some of the grid's planes.

    `cut` contains the first row of each part along y, followed by the number of rows of the grid. `planes` contains the
    first plane of each part along z, followed by the number of planes. `planes` is empty if the planes are not divided.
    plan/ranks.py describes how the ranks are numbered. `run` identifies the whole run and is the same in all parts. The
    identity in the manifest of a part is different in each part. `traces` maps the name of each trace to the number of
    points that this part records (acquisition/parts.py)."""

    run: Identity
    rank: Count
    cut: Annotated[tuple[Count, ...], Meta(min_length=2, max_length=(1 << 16) + 1)]
    traces: dict[Name, Count] = member(default_factory=dict)
    planes: Annotated[tuple[Count, ...], Meta(max_length=(1 << 16) + 1)] = ()

    @property
    def ranks(self) -> int:
        """The number of ranks of the run."""
        return (len(self.cut) - 1) * self.along_z

    @property
    def along_z(self) -> int:
        """The number of parts along z."""
        return max(1, len(self.planes) - 1)

    @property
    def rows(self) -> tuple[int, int]:
        """The first row of the part, and the row after its last row."""
        place = self.rank % (len(self.cut) - 1)
        return self.cut[place], self.cut[place + 1]

    @property
    def own_planes(self) -> tuple[int, int] | None:
        """The first plane of the part, and the plane after its last plane. The value is None if the part has all
        planes."""
        place = self.rank // (len(self.cut) - 1)
        return (self.planes[place], self.planes[place + 1]) if self.planes else None

    @property
    def chunk_rows(self) -> int:
        """The number of rows of a chunk on disk, which is at least the number of rows of the part."""
        rows = [end - first for first, end in pairwise(self.cut)]
        return (0 if self.planes else chunk_rows(rows)) or rows[self.rank % len(rows)]


@dataclass(frozen=True)
class BeforeEntry:
    """The generation before the committed generation. The values of the older generation are in the copies on disk that
    are not committed. A `BeforeEntry` has the step, the stamps and the checksums of the older generation."""

    step: Count
    filled: dict[Shown, Checksum]
    sums: dict[Shown, Checksum]


@dataclass(frozen=True)
class PaceEntry:
    """The progress of the latest call of `run`. Programs that watch the run read the progress (run/watch.py).

    The call goes from step `first_step` to step `last_step`, in passes of `pass_steps` steps. Each step updates `cells`
    cells. `begun` is the time at which the first pass began, in seconds since 1970. `seconds`, `bytes_read` and
    `bytes_written` were measured from `begun` to the last commit. The predicted figures are for the whole call.
    `process` identifies the process that computes the steps (run/pace.py), or is "" if it is not known. If `is_stopped`
    is True, the call has ended before `last_step`. `not_finite` has an entry for each field in which NaN or infinity
    was found. After each pass, Outcrop tests the values of each field for NaN and infinity. The value of an entry in
    `not_finite` is the last step of the first pass after which the test failed."""

    begun: Seconds
    first_step: Count
    last_step: Count
    pass_steps: Positive
    cells: Count
    predicted_seconds: Seconds
    predicted_bytes_read: Count
    predicted_bytes_written: Count
    process: Shown = ""
    seconds: Seconds = 0.0
    bytes_read: Count = 0
    bytes_written: Count = 0
    is_stopped: bool = False
    not_finite: dict[Name, Count] = member(default_factory=dict)


@dataclass(frozen=True)
class ComputedFrom:
    """The inputs of a computed field: the stamps of static fields, and the values of parameters."""

    stamps: dict[Name, Checksum]
    parameters: dict[Name, float]


def static_fields(stencil: Stencil) -> list[str]:
    """Return the names of the fields that steps only read."""
    return [one.name for one, storage in zip(stencil.fields, stencil.storage, strict=True) if storage.is_static]


def updated_fields(stencil: Stencil) -> list[str]:
    """Return the names of the fields that steps update."""
    return [one.name for one, storage in zip(stencil.fields, stencil.storage, strict=True) if not storage.is_static]


def arrays_of(
    stencil: Stencil, states: StatesEntry | None = None, kernel: Stencil | None = None
) -> tuple[ArrayEntry, ...]:
    """Return the arrays of a stencil, in the order of its fields. The arrays of the state come first. An array of
    previous values follows the array of its field. The arrays of static fields come second. Fields with values from
    `states` have no array. If passes recompute states of the forward run, the arrays of the fields that only forward
    steps read come third.

    `kernel` is the stencil with computed fields, if the run has such fields (language/static_terms.py). If `kernel` is
    given, its static fields replace the static fields of the stencil. Static fields that the stencil reads and the
    kernel does not read come last.
    """
    state, static = [], []
    without = {one.name for one in states.fields} if states else set()
    passes = kernel or stencil
    for field, storage in zip(passes.fields, passes.storage, strict=True):
        if field.name in without:
            continue
        if storage.is_static:
            static.append(ArrayEntry(field.name, True))
            continue
        state.append(ArrayEntry(field.name, False))
        if storage.history == 2:
            state.append(ArrayEntry(field.name + PREVIOUS, False))
    forward = states.forward if states else None
    if forward is not None:
        known = {one.name for one in static}
        static += [ArrayEntry(name, True) for name in static_fields(forward) if name not in known]
    if kernel is not None:
        known = {one.name for one in static}
        static += [ArrayEntry(name, True) for name in static_fields(stencil) if name not in known | without]
    return (*state, *static)


@dataclass(frozen=True)
class SourceEntry:
    """A source, which adds values to a field. Each point has `corners` cells. `scale` is a `sparse.SourceFactor` as
    plain data."""

    field: Name
    points: Points
    steps: Count
    scale: dict[str, Any] | None = None
    corners: Corners = 8


@dataclass(frozen=True)
class SamplingEntry:
    """Receivers of a field. If several `SamplingEntry` objects have the same name, their values are added and form one
    trace."""

    name: Name
    field: Name
    points: Points
    before: bool
    corners: Corners = 8


@dataclass(frozen=True)
class SnapshotsEntry:
    """Snapshots of fields, at intervals of `every` steps. `box` is counted in cells of the arrays on disk. If `coarsen`
    is not empty, snapshots have the means of groups of cells. `coarsen` contains the number of cells of a group along
    each axis.

    The first snapshot is taken after step `offset`, which is less than `every`. If `offset` is 0, the first snapshot is
    taken after step `every`. If `initial` is true, there is also a snapshot of the initial values. `name` is the name
    of the group inside snapshots.zarr, or "" for snapshots.zarr itself. `recompute` can be true only for a history. If
    `recompute` is true, `fields` contains the names of all arrays of the state, such as "u" and "u.previous". If
    `slots` is not 0, at most `slots` snapshots exist at the same time (plan/history.py). `kept` contains the numbers of
    the snapshots that exist or that later steps will keep."""

    every: Positive
    fields: SeveralArrays
    box: Ranges
    time_units: Shown = ""
    initial: bool = False
    name: OptionalName = ""
    recompute: bool = False
    slots: Count = 0
    offset: Count = 0
    kept: Annotated[tuple[Count, ...], Meta(max_length=1 << 20)] = ()
    coarsen: Annotated[tuple[Positive, ...], Meta(max_length=3)] = ()

    @property
    def is_history(self) -> bool:
        return self.name == HISTORY

    @property
    def prefix(self) -> str:
        """The text that precedes the names of fields, such as "side/" for snapshots with the name "side"."""
        return f"{self.name}/" if self.name else ""

    def record(self, field: str) -> str:
        """Return the name of the file that contains the checksums of a field's snapshots."""
        return "-".join(["snapshots", *([self.name] if self.name else []), field])

    def of_rows(self, first: int, end: int, planes: tuple[int, int] | None = None) -> SnapshotsEntry:
        """Return an entry for the same snapshots, but only for the rows first <= y < end. The grid has three axes. If
        `planes` is given, the result has only the planes in the range `planes`. In the box of the result, row 0 is the
        row `first`, and plane 0 is the plane `planes[0]`. If the box has no cell in the given rows and planes, the box
        of the result is empty."""
        z, y, x = self.box
        return replace(self, box=(_inside(z, *planes) if planes else z, _inside(y, first, end), x))

    @property
    def group(self) -> tuple[int, ...]:
        """The number of cells of a group along each of the grid's own axes."""
        return self.coarsen or (1,) * len(self.box)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of a snapshot along each of the grid's own axes."""
        return tuple(-(-(end - begin) // cells) for (begin, end), cells in zip(self.box, self.group, strict=True))

    def values_in(self, axis: int, cells: tuple[int, int]) -> tuple[int, int]:
        """`cells` is a range of cells of the grid along one axis. Return the range of a snapshot's values that belong
        to these cells. The result has two numbers: the number of the first value, and the number after the last value.
        Values are counted from the first value of the box. Both ends of `cells` must be borders between groups."""
        (begin, end), group = self.box[axis], self.group[axis]
        low, high = max(begin, cells[0]) - begin, min(end, cells[1]) - begin
        return (-(-low // group), -(-high // group)) if low < high else (0, 0)

    def count(self, step: int) -> int:
        """Return the number of snapshots of a field after `step` steps. The first pass writes the snapshot of the
        initial values, so the number of snapshots is 0 before the first pass."""
        return (step + -self.offset % self.every) // self.every + self.initial if step > 0 else 0

    def numbers(self, step: int, first_step: int = 0) -> Sequence[int]:
        """Return the numbers of the snapshots that exist after `step` steps, but not after `first_step` steps, in
        ascending order."""
        every = range(self.count(first_step), self.count(step))
        return [one for one in self.kept if one in every] if self.slots else every

    def step_of(self, number: int) -> int:
        """Return the step of snapshot `number`. Snapshots are counted from 0."""
        return (number + (not self.initial and not self.offset)) * self.every + self.offset


@dataclass(frozen=True)
class NormsEntry:
    """Norms of fields, at intervals of `every` steps. If `initial` is true, there are also norms of the initial
    values."""

    every: Positive
    fields: Several
    initial: bool = False

    def count(self, step: int) -> int:
        """Return the number of rows of a field's norms after `step` steps. The number of rows is 0 before the first
        pass."""
        return step // self.every + self.initial if step > 0 else 0

    def steps(self, last: int) -> range:
        """Return the steps after which norms are computed, up to step `last`."""
        return range(0 if self.initial else self.every, last + 1, self.every)


@dataclass(frozen=True)
class AcquisitionEntries:
    """The acquisition of a run, in the form that the manifest stores. All parts of a run have the same entries, which
    describe the whole grid. `of_part` returns the entries for the files of one part."""

    sources: tuple[SourceEntry, ...] = ()
    samplings: tuple[SamplingEntry, ...] = ()
    snapshots: tuple[SnapshotsEntry, ...] = ()
    norms: NormsEntry | None = None

    def __bool__(self) -> bool:
        return bool(self.sources or self.samplings or self.snapshots or self.norms)

    def of_part(self, part: PartEntry) -> AcquisitionEntries:
        """Return the entries for the files of a part. The entries of sources and receivers do not change, because each
        part has the points of the whole grid. Snapshots without rows of the part are left out."""
        own = [one.of_rows(*part.rows, part.own_planes) for one in self.snapshots]
        kept = tuple(one for one in own if 0 not in one.shape)
        return _PartEntries(self.sources, self.samplings, kept, self.norms, part.traces)

    @property
    def history(self) -> SnapshotsEntry | None:
        return next((one for one in self.snapshots if one.is_history), None)

    def groups(self, axis: int) -> Groups:
        """The groups of coarse snapshots along one axis. A coarse snapshot has a mean for each group of cells. The grid
        has three axes. A cut between ranks must not divide a group."""
        each = [(*one.box[axis], one.coarsen[axis]) for one in self.snapshots if one.coarsen]
        return tuple(dict.fromkeys(one for one in each if one[2] > 1))

    @property
    def intervals(self) -> tuple[int, ...]:
        """The different intervals of snapshots, in steps."""
        return tuple(sorted({one.every for one in self.snapshots}))

    @property
    def traces(self) -> dict[str, int]:
        """A dictionary that maps the name of each trace to the number of its points."""
        return {one.name: one.points for one in self.samplings}

    @property
    def fields(self) -> set[str]:
        """All fields that are used by at least one entry of the acquisition."""
        found = {one.field for one in self.sources} | {one.field for one in self.samplings}
        for one in self.snapshots:
            found |= {name.removesuffix(PREVIOUS) if one.recompute else name for name in one.fields}
        return found | set(self.norms.fields if self.norms else ())

    @property
    def definitions(self) -> dict[str, int]:
        """The size in bytes of each file with points and values. The keys are the names of the files."""
        found = {f"source-{i}": _points_bytes(one) + 8 * one.steps * one.points for i, one in enumerate(self.sources)}
        return found | {f"receivers-{i}": _points_bytes(one) for i, one in enumerate(self.samplings)}

    def records(self, step: int) -> dict[str, tuple[int, int]]:
        """Return a dictionary with two numbers for each file that grows with the run. The keys of the dictionary are
        the names of the files. The first number of a file is the size of a row in bytes. The second number of a file is
        the number of rows that are valid after `step` steps. For snapshots, a row is the checksum of one snapshot."""
        found = {f"trace-{name}": (8 * points, step) for name, points in self.traces.items()}
        if self.norms:
            found |= {f"norms-{name}": (self.norms_bytes, self.norms.count(step)) for name in self.norms.fields}
        for one in self.snapshots:
            found |= {one.record(field): (SUM_BYTES, one.count(step)) for field in one.fields}
        return found

    @property
    def norms_bytes(self) -> int:
        return NORMS_BYTES

    @property
    def files(self) -> list[str]:
        return [*self.definitions, *self.records(0)]


@dataclass(frozen=True)
class _PartEntries(AcquisitionEntries):
    own_traces: Mapping[str, int] = member(default_factory=dict)

    @property
    def traces(self) -> dict[str, int]:
        return dict(self.own_traces)

    @property
    def norms_bytes(self) -> int:
        return PART_NORMS_BYTES


NO_ENTRIES = AcquisitionEntries()


def _inside(box: tuple[int, int], first: int, end: int) -> tuple[int, int]:
    """Return the part of the range `box` with first <= position < end. The result is counted from `first`."""
    low, high = max(box[0], first) - first, min(box[1], end) - first
    return (low, high) if low < high else (0, 0)


def _points_bytes(one: SourceEntry | SamplingEntry) -> int:
    """Return the number of bytes of the points in a file. Each corner has three numbers for its cell, and one weight.
    """
    return (3 + 1) * 8 * one.points * one.corners
