"""Whether steps of a file are staged on a tier of the nodes: a folder that the user names, or a decision of the model.

The decision, with what it adds up, is in core/outcrop/aggregate/placement/staging.hpp.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from outcrop.errors import InputError, shown
from outcrop.tiers.tier import Persistence
from outcrop.units import parse_bytes

if TYPE_CHECKING:
    from outcrop.aggregate.plan import Plan
    from outcrop.aggregate.settings import Settings

Value = TypeVar("Value")
LASTING = tuple(one.name.lower() for one in Persistence)
AUTO = "auto"
"""Instead of a folder: where and if the model says so. A folder of that name is "./auto"."""


@dataclass(frozen=True)
class Habits:
    """How steps are used: seconds of computing between them, how often one is read again, whether writes are durable;
    and what a stage must be: how long it lasts at least, and bytes that it may take of a node, 0 for what there is."""

    seconds_between: float = 0.0
    reads_back: float = 0.0
    durable: bool = False
    persistence: Persistence = Persistence.JOB
    room_bytes: int = 0


@dataclass(frozen=True)
class Forecast:
    """Seconds of a step: to write it, to wait for the drain of the one before, to read it once."""

    write: float
    wait: float
    read: float


@dataclass(frozen=True)
class StageChoice:
    """What a file does with its steps. `folder` is empty where they go straight to the file; `settle` are folders in
    which an earlier run may have left some."""

    folder: str = ""
    room_bytes: int = 0
    settle: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    predicted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """Arguments of `create` and `open`; None is what the plan's settings say."""

    stage: str | os.PathLike[str] | None = None
    stage_bytes: int | str | None = None
    stage_persistence: str | None = None
    seconds_between: float | None = None
    reads_back: float | None = None

    def __post_init__(self) -> None:
        lasting = self.stage_persistence
        if lasting is not None and not (isinstance(lasting, str) and lasting in LASTING):
            raise InputError(f"stage_persistence {shown(lasting)} must be one of {', '.join(LASTING)}")
        for name in ("seconds_between", "reads_back"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise InputError(f"{name} {shown(value)} must be a number of at least 0")

    def habits(self, settings: Settings, durable: bool) -> Habits:
        """With what is not asked for from the settings."""

        def first(argument: Value | None, setting: Value) -> Value:
            return setting if argument is None else argument

        lasting = None if self.stage_persistence is None else Persistence[self.stage_persistence.upper()]
        room = settings.stage_bytes if self.stage_bytes is None else self.stage_bytes
        return Habits(
            float(first(self.seconds_between, settings.seconds_between)),
            float(first(self.reads_back, settings.reads_back)),
            durable,
            first(lasting, settings.stage_persistence),
            0 if room == 0 else parse_bytes(room),
        )


def choose_stage(plan: Plan, asked: Asked, *, durable: bool, node_files: bool, writable: bool) -> StageChoice:
    """For a file of the plan. The same on all ranks but for the folder. Raises InputError for sizes that are none.

    Files of nodes are staged only where an argument says so, which the core refuses.
    """
    chosen = asked.stage if asked.stage is not None else "" if node_files else plan.settings.stage
    habits = asked.habits(plan.settings, durable)
    if os.fspath(chosen) != AUTO:
        return StageChoice(os.fspath(chosen), habits.room_bytes if chosen or asked.stage_bytes else 0)
    media = plan._around.media_of(plan.rank)
    settle = tuple(medium.folder for medium in media if medium.folder)
    if not writable:
        return StageChoice(settle=settle)
    tier, _, seconds, text = plan._core.staging(habits)
    lines = tuple(text.splitlines())
    if tier is None or seconds is None:
        return StageChoice(settle=settle, lines=lines)
    forecast = Forecast(*seconds)
    machine = plan._around.machine
    node = int(machine.node_of_rank[plan.rank])
    room = habits.room_bytes or int(machine.room_bytes[node * len(machine.tiers) + tier])
    predicted = {"staged write": forecast.write, "staged read": forecast.read}
    return StageChoice(media[tier].folder, room, settle, lines, predicted)
