"""Stages: the parts of a time step that are computed one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outcrop.language.program import Load, Program

OPERANDS_MOST = 64
"""Values of fields that the core hands to one kernel (core/outcrop/exec/traverse.cpp)."""


@dataclass(frozen=True)
class Stage:
    """Gives the fields numbered `targets` new values, all of them from what was there before the stage.

    `program` has one result for each target.
    """

    targets: tuple[int, ...]
    program: Program

    @property
    def radii(self) -> tuple[int, int, int]:
        """The largest offset along z, y and x."""
        offsets = [load.offset for load in self.program.loads]
        return tuple(max((abs(offset[axis]) for offset in offsets), default=0) for axis in range(3))  # type: ignore[return-value]

    @property
    def operands(self) -> tuple[tuple[int, int], ...]:
        """Pairs (field, age) that its kernel takes: the newest values of its targets, then what it loads."""
        targets = [(field, 0) for field in self.targets]
        return tuple(dict.fromkeys([*targets, *((load.field, load.age) for load in self.program.loads)]))

    def loads(self, field: int, age: int) -> list[Load]:
        """What it reads of a field."""
        return [load for load in self.program.loads if (load.field, load.age) == (field, age)]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"targets": list(self.targets), "program": self.program.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Stage:
        """The stage that `to_json` described; ValueError when it is not one."""
        stage = cls(tuple(int(field) for field in data["targets"]), Program.from_json(data["program"]))
        if len(stage.targets) != len(stage.program.results) or len(set(stage.targets)) != len(stage.targets):
            raise ValueError("a stage needs one result for each of its targets")
        return stage


@dataclass(frozen=True)
class Storage:
    """How the values of one field are kept, as its stages demand.

    `is_static`: nothing updates it. `is_double`: an update may not overwrite the value it replaces, because neighbours
    or later stages still read that; the field then has two copies that take turns. `history`: values that have to be
    known before a step, the newest and maybe the one before it.
    """

    is_static: bool
    is_double: bool
    history: int


def storage_of(stages: tuple[Stage, ...], field: int) -> Storage:
    """What the stages demand of a field."""
    is_double, history, is_updated = False, 1, False
    for stage in stages:
        updates = field in stage.targets
        if older := stage.loads(field, 1):
            is_double = True
            if updates and any(load.offset != (0, 0, 0) for load in older):
                raise ValueError("reads its previous value at neighbours in its own update")
            history = history if is_updated else 2
        if updates and any(load.offset != (0, 0, 0) for load in stage.loads(field, 0)):
            is_double = True
        is_updated = is_updated or updates
    if not is_updated and is_double:
        raise ValueError("has no previous value, because nothing updates it")
    return Storage(not is_updated, is_double, history)
