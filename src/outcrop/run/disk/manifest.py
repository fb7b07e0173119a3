"""What manifest.json says: everything about a run except its cells."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from outcrop.errors import InputError
from outcrop.plan.given_sizes import GivenSizes
from outcrop.run.axes import Shape, grid_shape
from outcrop.run.coordinates import Coordinates
from outcrop.run.disk.arrays import ArrayEntry
from outcrop.run.disk.layout import PlaneLayout, make_layout
from outcrop.run.taps.entries import NO_ENTRIES, TapEntries, parse_entries

FORMAT = 2
"""Version of the directory's format; a reader refuses others. 1 had one field."""

MANIFEST = "manifest.json"

MEMBER = "outcrop-member.json"
"""Marks a further directory of a run; it says of which."""

NEW, READY, IN_FLIGHT = "new", "ready", "in flight"
"""Phases: no initial values yet; committed; an in-place pass has begun to overwrite the only copy."""


@dataclass(frozen=True)
class Settings:
    """How the run was asked to be done, so that resuming needs no arguments."""

    memory_bytes: int
    threads: int
    scheme: str = "auto"
    io: str = "auto"
    bind: str = "auto"
    sizes: dict[str, int] = field(default_factory=dict)  # those given; earlier manifests have none

    @property
    def given(self) -> GivenSizes:
        """The sizes that planning must keep to."""
        return GivenSizes(**self.sizes)


@dataclass(frozen=True)
class Member:
    """What a further directory of a run says: of which run it holds a share, in which folders."""

    identity: str
    run: str
    folders: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """One committed state: arrays, the step they are at, and what is being computed.

    `arrays` are in the order of `arrays_of`, all of `shape`, which has the stencil's own axes. Those of the state exist
    twice, and take turns. `current` says which turn holds generation number `generation`, which is `step` steps from
    the initial values; a run is finished when `step` has reached `target_step`. `filled` names the arrays that have
    values; before the first step others may wait for theirs. `stencil` is the stencil in its JSON form, `boundary` the
    text of one on the three axes inside, `signals` are as `encode_signals` made them.

    The user's own grid lies `padding` cells inside the arrays, on both sides of each axis; `rim` is that, or empty
    where there is none. `ranges` are the least and the largest value of fields that are only read, as far as they were
    seen; `unstable` says that the user wants the parameters even if waves grow. `records` is the folder of what taps
    keep where that is not the run's own.
    """

    identity: str
    stencil: dict[str, Any]
    parameters: dict[str, float]
    arrays: tuple[ArrayEntry, ...]
    shape: Shape
    dtype: str
    boundary: str
    directories: tuple[str, ...]
    shard_planes: int
    in_place: bool
    settings: Settings
    phase: str = NEW
    step: int = 0
    target_step: int = 0
    generation: int = 0
    current: int = 1  # so that the first values go to turn 0
    filled: tuple[str, ...] = ()
    signals: dict[str, str] = field(default_factory=dict)
    coordinates: Coordinates | None = None
    taps: TapEntries = NO_ENTRIES
    rim: tuple[int, ...] = ()
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    unstable: bool = False
    records: str = ""
    format: int = field(default=FORMAT)

    @property
    def layout(self) -> PlaneLayout:
        """Where the planes of each array lie."""
        return make_layout(grid_shape(self.shape), self.dtype, self.shard_planes)

    @property
    def padding(self) -> tuple[int, ...]:
        """Cells of the arrays outside the user's grid, before and behind it along each of its axes."""
        return self.rim or (0,) * len(self.shape)

    @property
    def own_shape(self) -> Shape:
        """Cells of the user's grid along its axes."""
        return tuple(n - 2 * pad for n, pad in zip(self.shape, self.padding, strict=True))

    @property
    def own_coordinates(self) -> Coordinates | None:
        """Where the cells of the user's grid are; `coordinates` are those of the arrays."""
        if self.coordinates is None or not any(self.padding):
            return self.coordinates
        where = self.coordinates
        origin = (o + pad * h for o, pad, h in zip(where.origin, self.padding, where.spacing, strict=True))
        return replace(where, origin=tuple(origin))

    @property
    def state(self) -> tuple[ArrayEntry, ...]:
        """The arrays that passes write."""
        return tuple(entry for entry in self.arrays if not entry.is_static)

    @property
    def static(self) -> tuple[ArrayEntry, ...]:
        """The arrays that are only read."""
        return tuple(entry for entry in self.arrays if entry.is_static)

    @property
    def copies(self) -> tuple[tuple[ArrayEntry, int], ...]:
        """Every array that is on disk, with its turn: the state of turn 0, that of turn 1, then what is only read."""
        turns = (0,) if self.in_place else (0, 1)
        return (*((entry, turn) for turn in turns for entry in self.state), *((entry, 0) for entry in self.static))

    def entry(self, name: str) -> ArrayEntry:
        """The array called `name`. Raises InputError with those there are."""
        for entry in self.arrays:
            if entry.name == name:
                return entry
        there = ", ".join(entry.name for entry in self.arrays)
        raise InputError(f"{self.stencil.get('name', 'this run')} has no field {name!r}; there are: {there}")

    def to_text(self) -> str:
        """The manifest as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"


def parse_manifest(text: str, path: Path) -> Manifest:
    """The manifest in `text`, read from `path`. Raises InputError when it is damaged, foreign or of a newer format."""
    try:
        data = json.loads(text)
        version = data["format"]
        if version == FORMAT:
            for name in ("shape", "directories", "filled"):
                data[name] = tuple(data[name])
            data["arrays"] = tuple(ArrayEntry(**entry) for entry in data["arrays"])
            data["settings"] = Settings(**data["settings"])
            data["coordinates"] = _coordinates(data["coordinates"])
            data["taps"] = parse_entries(data["taps"])
            data.setdefault("records", "")  # earlier manifests have none
            data["rim"] = tuple(data["rim"])
            data["ranges"] = {name: (low, high) for name, (low, high) in data["ranges"].items()}
            return Manifest(**{one.name: data[one.name] for one in fields(Manifest)})
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged or not written by Outcrop ({error!r})") from None
    raise InputError(f"{path} has format {version}, this version reads format {FORMAT}; use the version that wrote it")


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the run in `directory`. Raises InputError when there is none."""
    path = directory / MANIFEST
    try:
        return parse_manifest(path.read_text(), path)
    except (FileNotFoundError, NotADirectoryError):
        if member := read_member(directory):
            raise InputError(f"{directory} holds a share of the run in {member.run}; name that directory") from None
        raise InputError(f"{directory} holds no Outcrop run ({MANIFEST} is missing)") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is damaged or not written by Outcrop") from None


def read_member(directory: Path) -> Member | None:
    """What MEMBER in the directory says; None where there is none."""
    try:
        content = json.loads((directory / MEMBER).read_text())
        member = Member(str(content["identity"]), str(content["run"]), tuple(map(str, content["folders"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return member if all(Path(name).name == name for name in member.folders) else None


def _coordinates(data: dict[str, Any] | None) -> Coordinates | None:
    if data is None:
        return None
    return Coordinates(tuple(data["spacing"]), tuple(data["origin"]), data["units"])
