"""What manifest.json says: everything about a run except its cells."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from outcrop.errors import InputError
from outcrop.plan.given_sizes import GivenSizes
from outcrop.run.layout import PlaneLayout, make_layout

FORMAT = 1
"""Version of the directory's format; a reader refuses newer ones."""

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
class Manifest:
    """One committed state: arrays, the step they are at, and what is being computed.

    `current` says which of the two arrays holds generation number `generation`, which is `step` steps from the initial
    values; a run is finished when `step` has reached `target_step`. `stencil` is the stencil in its JSON form.
    """

    identity: str
    stencil: dict[str, Any]
    parameters: dict[str, float]
    field_name: str
    shape: tuple[int, int, int]
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
    current: int = 1  # so that the first values go to array 0
    format: int = field(default=FORMAT)

    @property
    def layout(self) -> PlaneLayout:
        """Where the planes of each array lie."""
        return make_layout(self.shape, self.dtype, self.shard_planes)

    @property
    def arrays(self) -> int:
        """How many arrays the field has on disk."""
        return 1 if self.in_place else 2

    def to_text(self) -> str:
        """The manifest as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"


def parse_manifest(text: str, path: Path) -> Manifest:
    """The manifest in `text`, read from `path`. Raises InputError when it is damaged, foreign or of a newer format."""
    try:
        data = json.loads(text)
        version = data["format"]
        if version == FORMAT:
            data["shape"] = tuple(data["shape"])
            data["directories"] = tuple(data["directories"])
            data["settings"] = Settings(**data["settings"])
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
            run = member.get("run")
            raise InputError(f"{directory} holds a share of the run in {run}; name that directory") from None
        raise InputError(f"{directory} holds no Outcrop run ({MANIFEST} is missing)") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is damaged or not written by Outcrop") from None


def read_member(directory: Path) -> dict[str, str]:
    """What MEMBER in the directory says: `identity`, `run` and `field`; empty where there is none."""
    try:
        content = json.loads((directory / MEMBER).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
