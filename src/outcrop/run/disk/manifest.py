"""The manifest of a run, manifest.json. The manifest describes the run and its last commit. The values of cells are in
other files.

A manifest can come from an untrusted source. The types, ranges and names in the manifest are checked against the
annotations in this module before any other file of the run is opened. If a value can be computed from other values of
the manifest, it must be equal to the computed value.
"""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from outcrop import _core
from outcrop.axes import NAMES, Shape, grid_shape, inside
from outcrop.durable import MAX_TEXT_BYTES, Directory, sealed, unsealed
from outcrop.errors import CorruptionError, InputError, StorageError, by_caller, shown
from outcrop.language.stencil import PREVIOUS
from outcrop.plan.given_sizes import NAMES as SIZES
from outcrop.plan.given_sizes import GivenSizes
from outcrop.plan.problem import divides
from outcrop.run.disk.entries import (
    MAX_RANKS,
    NO_ENTRIES,
    AcquisitionEntries,
    ArrayEntry,
    ArrayName,
    BeforeEntry,
    Checksum,
    ComputedFrom,
    Count,
    FolderName,
    Identity,
    Name,
    PaceEntry,
    PartEntry,
    Positive,
    Shown,
    StatesEntry,
    Text,
)
from outcrop.run.disk.layout import PlaneLayout, make_layout
from outcrop.run.user_values import Coordinates

FORMAT = 3
"""The version of the format. Outcrop refuses manifests of other versions. Version 1 had only one field, and version 2
had no seals."""

MANIFEST = "manifest.json"

MEMBER = "outcrop-member.json"
"""The file that marks a further directory of a run and names the run."""

MAX_SHARDS = 4096
"""The maximum number of shards of one array."""

STAGED = ".new-run"
"""The folder of a new run inside the run that it will replace (run/disk/replacement.py)."""

NEW, READY, IN_FLIGHT = "new", "ready", "in flight"
"""The phases of a run. NEW: no initial values are committed yet. READY: the last commit is valid. IN_FLIGHT: a pass of
a run in place has begun to overwrite the only copy."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run. The manifest stores the settings, so that `outcrop resume` needs no arguments."""

    memory_bytes: Positive
    threads: Annotated[int, Meta(ge=1, le=1 << 20)]
    scheme: Shown = "auto"
    io: Shown = "auto"
    bind: Shown = "auto"
    sizes: dict[Shown, Positive] = field(default_factory=dict)  # only the sizes that the user has given

    @property
    def given(self) -> GivenSizes:
        """The sizes that the user has given. The tuner must not change them."""
        return GivenSizes(**self.sizes)


@dataclass(frozen=True)
class Member:
    """The content of a file MEMBER. Each further directory of a run has a file with the name MEMBER. If the run is on
    devices, its folder of records also has a MEMBER file. `run` is the path of the run's own directory or first device.
    `index` is the number of the directory that contains the MEMBER file. `folders` are the folders in the same
    directory that belong to the run."""

    identity: Identity
    run: Text
    index: Count
    folders: Annotated[tuple[FolderName, ...], Meta(max_length=2048)] = ()

    def to_bytes(self) -> bytes:
        return sealed(msgspec.to_builtins(self))


@dataclass(frozen=True, kw_only=True)
class Description:
    """The description of a run: the computation, the settings and the places on storage.

    `arrays` has the order of `arrays_of`. `shape` is the shape of all arrays, with one size for each of the stencil's
    own axes. `stencil` is the JSON form of the stencil. `boundary` is the text of a boundary on the engine's three
    axes. `signals` contains texts that `encode_signals` has made.

    The arrays extend `padding` cells beyond the user's grid at both ends of each axis. `rim` is `padding`, or empty if
    there is no padding. If `unstable` is true, the user accepts parameters for which the scheme is unstable, so that
    waves grow without bound. `records` is the folder that holds the acquisition of a run on block devices, or None for
    a run in directories. `max_step` is the last step that the run can have, or 0 if there is no limit. `states` says
    which states of a forward run the steps read, or is None.

    `axes` contains the names that Devito's dimensions have, or is empty if the axes have the names of the stencil's
    axes. `first_time` is Devito's index of the time of the initial values, and `is_backward` is true if Devito's
    equations run backward in time. For runs without Devito, `first_time` is None. For an adjoint run, `adjoint_of` is
    the identity of its forward run. `adjoint_of` is None for runs that are not adjoint runs, and for adjoint runs of
    earlier versions. If `part` is given, the arrays have only the rows and planes of one rank. `boundary` is still the
    boundary of the whole grid. `computed` maps the names of computed fields to their terms (language/static_terms.py),
    in JSON form. `stencil` does not contain computed fields. `fixed_parameters` contains parameters that cannot change,
    because their values were used when Devito's equations were translated. `fixed_parameters` maps each of these
    parameters to a text that says what was computed with the parameter. `fixed_fields` maps static fields from which
    Devito's equations compute another static field to the name of the other field."""

    stencil: dict[str, Any]
    parameters: dict[Name, float]
    arrays: Annotated[tuple[ArrayEntry, ...], Meta(min_length=1, max_length=1024)]
    shape: Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=3)]
    dtype: Annotated[str, Meta(pattern="^float(32|64)$")]
    boundary: Shown
    directories: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=1024)]
    shard_planes: Positive
    in_place: bool
    settings: Settings
    signals: dict[Name, str] = field(default_factory=dict)
    coordinates: Coordinates | None = None
    taps: AcquisitionEntries = NO_ENTRIES
    rim: Annotated[tuple[Count, ...], Meta(max_length=3)] = ()
    unstable: bool = False
    records: Text | None = None
    max_step: Count = 0
    states: StatesEntry | None = None
    part: PartEntry | None = None
    axes: Annotated[tuple[Name, ...], Meta(max_length=3)] = ()
    computed: dict[Name, dict[str, Any]] = field(default_factory=dict)
    fixed_parameters: dict[Name, Shown] = field(default_factory=dict)
    fixed_fields: dict[Name, Name] = field(default_factory=dict)
    first_time: Count | None = None
    is_backward: bool = False
    adjoint_of: Identity | None = None

    @property
    def time_line(self) -> tuple[int, int]:
        """Two numbers, `first` and `way`. After k steps, a run has the values of the time with the index first + way *
        k. In runs of Devito's equations, the index is Devito's index. In runs without Devito, the index is the number
        of steps."""
        return self.first_time or 0, -1 if self.is_backward else 1

    @property
    def layout(self) -> PlaneLayout:
        rows = None if self.part is None else self.part.chunk_rows
        return make_layout(grid_shape(self.shape), self.dtype, self.shard_planes, rows, self._hidden)

    @property
    def _hidden(self) -> tuple[int, int, int]:
        """The padding that readers of Zarr do not see. A shard can hide planes only if it is the only shard. If a plane
        has several rows, cells along x can be hidden only if rows are also hidden. If only cells along x were hidden,
        the last row for readers would end beyond the plane."""
        z, y, x = inside(self.padding, 0)
        is_single = self.shard_planes >= grid_shape(self.shape)[0]
        return (z, y, x) if self.axes and is_single and (y or not x or len(self.shape) < 3) else (0, 0, 0)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The names of the axes that readers of Zarr see."""
        return self.axes or NAMES[len(self.shape)]

    @property
    def whole_shape(self) -> Shape:
        """The shape of the arrays of the whole grid, with the rows and planes of all ranks."""
        if self.part is None:
            return self.shape
        return (self.part.planes[-1] if self.part.planes else self.shape[0], self.part.cut[-1], self.shape[2])

    @property
    def whole_layout(self) -> PlaneLayout:
        """The layout that the arrays would have if one process had the whole grid."""
        return self.layout if self.part is None else make_layout(grid_shape(self.whole_shape), self.dtype)

    @property
    def cut(self) -> tuple[int, ...]:
        """The first row along y of each rank, followed by the number of rows of the grid. A run of one process has the
        same cut as a run of one rank."""
        return (0, self.layout.shape[1]) if self.part is None else self.part.cut

    @property
    def rows(self) -> tuple[int, int]:
        """The first row along y of this run or part, and the row after its last row."""
        return (0, self.layout.shape[1]) if self.part is None else self.part.rows

    @property
    def planes(self) -> tuple[int, int]:
        """The first plane of this run or part, and the plane after its last plane."""
        own = self.part.own_planes if self.part else None
        return own or (0, self.layout.shape[0])

    @property
    def place_in_grid(self) -> tuple[int, int, int, int, int]:
        """The first plane and the first row of this run or part, and the shape (nz, ny, nx) of the whole grid."""
        return (self.planes[0], self.rows[0], *grid_shape(self.whole_shape))

    @property
    def own_taps(self) -> AcquisitionEntries:
        """The entries for the files of acquisition of this run or part. `taps` is for the whole grid."""
        return self.taps if self.part is None else self.taps.of_part(self.part)

    @property
    def padding(self) -> tuple[int, ...]:
        """The number of cells of padding outside the user's grid, at both ends of each axis."""
        return self.rim or (0,) * len(self.shape)

    @property
    def own_shape(self) -> Shape:
        return tuple(n - 2 * pad for n, pad in zip(self.shape, self.padding, strict=True))

    @property
    def own_coordinates(self) -> Coordinates | None:
        """The coordinates of the user's grid. `coordinates` is for the arrays, which include the padding."""
        if self.coordinates is None or not any(self.padding):
            return self.coordinates
        where = self.coordinates
        origin = (o + pad * h for o, pad, h in zip(where.origin, self.padding, where.spacing, strict=True))
        return replace(where, origin=tuple(origin))

    @property
    def state(self) -> tuple[ArrayEntry, ...]:
        """The arrays of the state, which passes read and write."""
        return tuple(entry for entry in self.arrays if not entry.is_static)

    @property
    def static(self) -> tuple[ArrayEntry, ...]:
        """The arrays that are only read."""
        return tuple(entry for entry in self.arrays if entry.is_static)

    @property
    def given(self) -> tuple[ArrayEntry, ...]:
        """The arrays that are only read and whose values come from the user, and not from other fields."""
        return tuple(entry for entry in self.static if entry.name not in self.computed)

    @property
    def without_gradient(self) -> dict[str, str]:
        """The inputs of Devito's equations with respect to which there is no gradient, because values were computed
        with them that an adjoint run does not compute again. Each input is mapped to a text that says what was computed
        with it."""
        return self.fixed_parameters | {name: f"field {one}" for name, one in self.fixed_fields.items()}

    @property
    def copies(self) -> tuple[tuple[ArrayEntry, int], ...]:
        """All stored copies, as (array, number of the copy): the first copies of the state, the second copies, then the
        arrays that are only read."""
        copies = (0,) if self.in_place else (0, 1)
        return (*((entry, copy) for copy in copies for entry in self.state), *((entry, 0) for entry in self.static))

    def how_to_give(self, name: str) -> str:
        """Return the last part of a message about an array without values. `name` is the name of the array."""
        if name in self.computed:
            return f"; the run computes {name} before its next step"
        return by_caller("", f"; assign sim[{name!r}] first")

    def entry(self, name: str, hidden: Collection[str] = ()) -> ArrayEntry:
        """Return the entry of the array with the given name. If no array has the name, raise InputError with a list of
        all names of arrays except the names in `hidden`."""
        for entry in self.arrays:
            if isinstance(name, str) and entry.name == name:
                return entry
        there = ", ".join(entry.name for entry in self.arrays if entry.name not in hidden)
        raise InputError(f"{self.stencil.get('name', 'this run')} has no field {shown(name)}; there are: {there}")


@dataclass(frozen=True, kw_only=True)
class Manifest(Description):
    """The manifest of an existing run describes one committed state of the run.

    The state has two copies on disk, which alternate. Copy `current` holds generation `generation`, after `step` steps.
    The run is finished when `step` has reached `target_step`. `filled` has an entry for each array that has values: it
    maps the name of the array to a stamp. A stamp is a random number that identifies the operation that stored the
    values. Each array must have values before the first step. `ranges` contains the minimum and the maximum of fields
    that are only read, if they are known. `sums` contains the checksum of the valid content of each file of
    acquisition. In adjoint runs, `begun` contains checksums of the initial values of arrays. A resumed adjoint run uses
    the checksums in `begun` to find out whether its residuals have changed. In runs that are not adjoint runs, `begun`
    is None. If the run is a part, `before` describes the previous generation, because the part may have to go back to
    it (run/ranks/agreement.py). `before` is None in runs that are not parts, and in the first generation. `pace`
    describes the progress of the latest call of `run`, or is None before the first call. `computed_from` has an entry
    for each computed field that has been computed. Steps after step `parameters_step` use `parameters`. Earlier steps
    can have used other parameters. `assigned_step` is the last step after which values were assigned to fields of the
    state, or 0 if values were assigned only before the first step. `copied_from` has an entry for each array of the
    state whose initial values no user has assigned, and that started as a copy of a field. The entry maps the name of
    the array to the name of the field."""

    identity: Identity
    phase: Annotated[str, Meta(pattern="^(new|ready|in flight)$")] = NEW
    step: Count = 0
    target_step: Count = 0
    generation: Count = 0
    current: Annotated[int, Meta(ge=0, le=1)] = 1  # the first commit changes this to copy 0
    filled: dict[Shown, Checksum] = field(default_factory=dict)
    ranges: dict[Name, tuple[float, float]] = field(default_factory=dict)
    sums: dict[Shown, Checksum] = field(default_factory=dict)
    begun: dict[Shown, Checksum] | None = None
    before: BeforeEntry | None = None
    pace: PaceEntry | None = None
    computed_from: dict[Name, ComputedFrom] = field(default_factory=dict)
    parameters_step: Count = 0
    assigned_step: Count = 0
    copied_from: dict[ArrayName, Name] = field(default_factory=dict)
    format: int = field(default=FORMAT)

    @property
    def has_values(self) -> bool:
        """True if the initial values of at least one array have been committed."""
        return self.phase != NEW

    def is_spare(self, entry: ArrayEntry, copy: int) -> bool:
        """Return True if a copy of an array has no committed values. A copy without committed values can be made again
        without a loss. In a part of a run of several ranks, the copies that are not committed can hold the previous
        generation, so they are not spare."""
        if self.phase == NEW or self.before is not None:
            return False
        return entry.name not in self.filled or not (entry.is_static or self.in_place or copy == self.current)

    def seed(self, name: str, stamp: int | None = None) -> int:
        """Return the seed of a seal or of a checksum: a checksum of the run's identity, `name` and `stamp`. By default,
        `stamp` is the stamp of the array `name` in `filled`."""
        stamp = self.filled.get(name, 0) if stamp is None else stamp
        return _core.crc32c(f"{self.identity} {name} {stamp}".encode())

    def to_bytes(self) -> bytes:
        """Return the bytes of the manifest: JSON with a checksum. Raises InputError if the result is longer than
        readers allow."""
        data = sealed(msgspec.to_builtins(self))
        if len(data) > MAX_TEXT_BYTES:
            raise InputError(f"the description of the run takes {len(data)} bytes; shorten its signals")
        return data


def new_manifest(description: Description, target_step: int = 0) -> Manifest:
    given = {one.name: getattr(description, one.name) for one in fields(Description)}
    return Manifest(**given, identity=uuid.uuid4().hex, target_step=target_step)


def moved_members(manifest: Manifest) -> dict[str, Any]:
    """Return the members of a manifest that describe the values of the run. If all values move to another number or
    grid of ranks, these members stay the same."""
    return {name: getattr(manifest, name) for name in ("ranges", "parameters_step", "assigned_step", "copied_from")}


def resume_command(manifest: Manifest, place: Path) -> str:
    """Return the command that continues the run in `place`, for messages."""
    part = manifest.part
    if part is None:
        return f"outcrop resume {place}"
    if place.name == f"rank-{part.rank}":
        return f"mpirun -n {part.ranks} outcrop resume {place.parent}"
    template = re.sub(rf"(?<!\d){part.rank}(?!\d)(?!.*(?<!\d){part.rank}(?!\d))", "{rank}", str(place))
    return f"mpirun -n {part.ranks} outcrop resume '{template}'"


def require_readable(description: Description) -> None:
    """Raise InputError when the schema of manifests does not allow the names or paths in `description`. Without this
    check, Outcrop could create a run with wrong names, but could not open the run again."""
    manifest = replace(new_manifest(description), sums=dict.fromkeys(description.own_taps.files, 0))
    try:
        parse_manifest(manifest.to_bytes(), Path("this run"))
    except InputError as error:
        raise InputError(f"{str(error).removeprefix('this run ')}; a run like that could not be opened again") from None


def new_stamp() -> int:
    """Return a random number that identifies one operation that writes planes."""
    return secrets.randbits(32)


def parse_manifest(data: bytes, path: Path) -> Manifest:
    """Return the manifest in `data`, which was read from `path`. Raises InputError when the manifest is damaged or of
    another version."""
    try:
        content = msgspec.json.decode(data)
        version = content["format"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise InputError(f"{path} is damaged or not written by Outcrop") from None
    if version != FORMAT:
        raise InputError(
            f"{path} has format {version!r:.20}, this version reads format {FORMAT}; use the version that wrote it"
        )
    try:
        content = _with_later_members(unsealed(data, path))
        manifest = msgspec.convert(content, Manifest)
        if msgspec.json.decode(msgspec.json.encode(manifest)) != content:
            raise ValueError("it has keys or values that no manifest has")
        _check_derived(manifest)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged or not written by Outcrop ({_one_line(error)})") from None
    except (CorruptionError, InputError) as error:
        raise InputError(f"{path}: {error}" if str(path) not in str(error) else str(error)) from None
    return manifest


def _with_later_members(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a manifest. Members that earlier versions of Outcrop did not write get default values."""
    content = {"max_step": 0, "states": None, "begun": None, "part": None, "before": None, "pace": None,
               "axes": [], "computed": {}, "computed_from": {}, "first_time": None, "is_backward": False,
               "adjoint_of": None, "fixed_parameters": {}, "fixed_fields": {}, "parameters_step": 0,
               "assigned_step": 0, "copied_from": {}, **content}  # fmt: skip
    match content:
        case {"states": {"fields": [*fields]} as states}:
            named = [{"later": 0, **one} if isinstance(one, dict) else one for one in fields]
            content["states"] = {"stencil": None, "source_cells": 0, **states, "fields": named}
    match content:
        case {"part": dict() as part}:
            content["part"] = {"traces": {}, "planes": [], **part}
    match content:
        case {"pace": dict() as pace}:
            content["pace"] = {"not_finite": {}, **pace}
    match content:
        case {"taps": {"snapshots": [*entries]} as taps}:
            new = {"recompute": False, "slots": 0, "offset": 0, "kept": [], "coarsen": []}
            later = [{**new, **one} if isinstance(one, dict) else one for one in entries]
            content["taps"] = {**taps, "snapshots": later}
    return content


def _check_derived(manifest: Manifest) -> None:
    """Raise ValueError when parts of a manifest contradict each other. Raises InputError for an impossible grid."""
    names = [entry.name for entry in manifest.arrays]
    state, static = ({entry.name for entry in some} for some in (manifest.state, manifest.static))
    ndim, shards = len(manifest.shape), manifest.layout.shards
    fields = {entry.field for entry in manifest.arrays}
    if manifest.part is not None and not _is_part(manifest, manifest.part):
        raise ValueError("part contradicts the rest")
    acquisition = manifest.taps
    boxes = [entry.box for entry in acquisition.snapshots]
    wrong = {
        "stencil": not _is_shown(manifest.stencil.get("name")),
        "settings": not manifest.settings.sizes.keys() <= set(SIZES),
        "arrays": len(set(names)) < len(names) or not state,
        "shard_planes": shards > MAX_SHARDS or (shards == 1 and manifest.shard_planes != manifest.layout.shape[0]),
        "filled": not manifest.filled.keys() <= set(names),
        "step": manifest.phase == NEW and manifest.step > 0,
        "target_step": manifest.target_step < manifest.step,
        "rim": bool(manifest.rim) and (len(manifest.rim) != ndim or min(manifest.own_shape) < 1),
        "axes": bool(manifest.axes)
        and (len({*manifest.axes} - {"time", "step", *names}) != ndim or manifest.part is not None),
        "is_backward": manifest.is_backward and manifest.first_time is None,
        "coordinates": manifest.coordinates is not None
        and (len(manifest.coordinates.spacing), len(manifest.coordinates.origin)) != (ndim, ndim),
        "parameters_step": manifest.parameters_step > manifest.step,
        "assigned_step": manifest.assigned_step > manifest.step,
        "copied_from": not _are_copies(manifest.copied_from, state),
        "begun": not (manifest.begun or {}).keys() <= set(names),
        "ranges": not manifest.ranges.keys() <= set(names),
        "computed": not manifest.computed.keys() <= static,
        "fixed_fields": not {*manifest.fixed_fields, *manifest.fixed_fields.values()} <= static,
        "fixed_parameters": not manifest.fixed_parameters.keys() <= manifest.parameters.keys(),
        "computed_from": not manifest.computed_from.keys() <= manifest.computed.keys(),
        "taps: fields": not acquisition.fields <= fields,
        "taps: recompute": any(
            one.recompute and not (one.is_history and one.fields == tuple(entry.name for entry in manifest.state))
            for one in acquisition.snapshots
        ),
        "taps: offset": any(
            one.offset >= one.every or (one.offset and (one.initial or one.is_history)) for one in acquisition.snapshots
        ),
        "taps: slots": any(
            one.slots == 1
            or (one.slots and not one.recompute)
            or len(one.kept) > one.slots
            or list(one.kept) != sorted(set(one.kept))
            for one in acquisition.snapshots
        ),
        "taps: box": any(
            len(box) != ndim
            or any(not begin < end <= n for (begin, end), n in zip(box, manifest.whole_shape, strict=True))
            for box in boxes
        ),
        "taps: coarsen": any(
            one.coarsen and (len(one.coarsen) != ndim or len(one.box) != ndim or one.is_history)
            for one in acquisition.snapshots
        )
        or (manifest.part is not None and _divides_groups(manifest, manifest.part)),
        "sums": manifest.sums.keys() != set(manifest.own_taps.files),
        "before": manifest.before is not None and not _is_before(manifest, manifest.before),
        "pace": manifest.pace is not None and not _is_pace(manifest.pace, fields),
    }
    if found := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise ValueError(f"{found[0]} contradicts the rest")


def _are_copies(copied_from: Mapping[str, str], state: Collection[str]) -> bool:
    """Return True if each array in `copied_from` can be a copy of its field. Previous values are copies of their own
    field. Any other array is a copy of a field that is not a copy itself, so no array is a copy of itself."""
    return {*copied_from, *copied_from.values()} <= {*state} and all(
        name == field + PREVIOUS or (PREVIOUS not in name and field not in copied_from)
        for name, field in copied_from.items()
    )


def _is_pace(pace: PaceEntry, fields: set[str]) -> bool:
    return pace.first_step <= pace.last_step and pace.not_finite.keys() <= fields


def _is_part(manifest: Manifest, part: PartEntry) -> bool:
    """Return True if the arrays have the rows of the part. Return False if the run has a property that the parts of a
    run cannot have, such as a history or a rim."""
    more = manifest.in_place or manifest.states or manifest.rim or len(manifest.directories) > 1
    points = manifest.taps.traces
    if part.traces.keys() != points.keys() or any(count > points[name] for name, count in part.traces.items()):
        return False
    if more or manifest.taps.history or len(manifest.shape) != 3:
        return False
    if not 1 < part.ranks <= MAX_RANKS or part.rank >= part.ranks:
        return False
    cuts = [part.cut, part.planes] if part.planes else [part.cut]
    if any(len(cut) < 2 or cut[0] or any(first >= end for first, end in pairwise(cut)) for cut in cuts):
        return False
    (first, end), (low, high) = part.rows, part.own_planes or (0, manifest.shape[0])
    return (high - low, end - first) == manifest.shape[:2]


def _divides_groups(manifest: Manifest, part: PartEntry) -> bool:
    """Return True if a cut divides a group of cells of a coarse snapshot."""
    cuts = enumerate((part.planes, part.cut))
    return any(divides(place, manifest.taps.groups(axis)) for axis, cut in cuts for place in cut)


def _is_before(manifest: Manifest, before: BeforeEntry) -> bool:
    known = {entry.name for entry in manifest.arrays}
    return bool(
        manifest.part is not None
        and manifest.generation > 0
        and before.step <= manifest.step
        and before.filled
        and before.filled.keys() <= known
        and before.sums.keys() == manifest.sums.keys()
    )


def _is_shown(name: object) -> bool:
    try:
        return isinstance(msgspec.convert(name, Shown), str)
    except ValueError:
        return False


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def read_manifest(directory: Directory) -> Manifest:
    """Return the manifest in `directory`. Raises InputError when the directory holds no run."""
    path = directory.path / MANIFEST
    try:
        return parse_manifest(directory.read(MANIFEST), path)
    except FileNotFoundError:
        if member := read_member(directory):
            raise InputError(
                f"{directory.path} holds a share of the run in {member.run}; name that directory"
            ) from None
        if directory.status(f"rank-0/{MANIFEST}") is not None:
            raise InputError(
                f"{directory.path} holds the parts of a run of several ranks: start all ranks with mpirun, make one "
                f"run of the parts with outcrop gather, or name one part, such as {directory.path}/rank-0"
            ) from None
        raise InputError(f"{directory.path} holds no Outcrop run ({MANIFEST} is missing)") from None
    except StorageError as error:
        raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def read_member(directory: Directory) -> Member | None:
    """Return the content of the file MEMBER, or None if it is missing or invalid."""
    try:
        return msgspec.convert(unsealed(directory.read(MEMBER, 1 << 16), MEMBER), Member)
    except (OSError, ValueError, StorageError):
        return None
