"""Stages: the parts of a time step that are computed one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from outcrop.language.program import Program
from outcrop.language.schema import FIELDS_MOST, read_list, read_members, read_whole


@dataclass(frozen=True)
class Stage:
    """Gives the fields numbered `targets` new values, all of them from what was there before the stage.

    `program` has one result for each target.
    """

    targets: tuple[int, ...]
    program: Program

    @cached_property
    def radii(self) -> tuple[int, int, int]:
        """The largest offset along z, y and x."""
        offsets = [load.offset for load in self.program.loads]
        return tuple(max((abs(offset[axis]) for offset in offsets), default=0) for axis in range(3))  # type: ignore[return-value]

    @cached_property
    def operands(self) -> tuple[tuple[int, int], ...]:
        """Pairs (field, age) that its kernel takes: the newest values of its targets, then what it loads."""
        targets = [(field, 0) for field in self.targets]
        return tuple(dict.fromkeys([*targets, *((load.field, load.age) for load in self.program.loads)]))

    @cached_property
    def reaches(self) -> dict[tuple[int, int], bool]:
        """For each pair (field, age) that it reads, whether it does so at neighbours."""
        found: dict[tuple[int, int], bool] = {}
        for load in self.program.loads:
            key = load.field, load.age
            found[key] = found.get(key, False) or load.offset != (0, 0, 0)
        return found

    @property
    def span(self) -> int:
        """The cells of all rows that it reads to update one cell, from the first to the last in each row."""
        rows: dict[tuple[int, int, int, int], list[int]] = {}
        for load in self.program.loads:
            dz, dy, dx = load.offset
            rows.setdefault((load.field, load.age, dz, dy), [0]).append(dx)
        return sum(max(row) - min(row) + 1 for row in rows.values())

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"targets": list(self.targets), "program": self.program.to_json()}

    @classmethod
    def from_json(cls, data: object) -> Stage:
        """The stage that `to_json` described; ValueError when it is not one. Whether its fields exist, its stencil
        knows."""
        members = read_members(data, "a stage", "targets", "program")
        targets = read_list(members["targets"], "targets of a stage", FIELDS_MOST, least=1)
        numbers = tuple(read_whole(field, "the number of a field", FIELDS_MOST) for field in targets)
        return cls(numbers, Program.from_json(members["program"]))


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


def storage_of(stages: Sequence[Stage], field: int) -> Storage:
    """What the stages demand of a field."""
    is_double, history, is_updated = False, 1, False
    for stage in stages:
        updates = field in stage.targets
        if (field, 1) in stage.reaches:
            is_double = True
            if updates and stage.reaches[field, 1]:
                raise ValueError("reads its previous value at neighbours in its own update")
            history = history if is_updated else 2
        if updates and stage.reaches.get((field, 0)):
            is_double = True
        is_updated = is_updated or updates
    if not is_updated and is_double:
        raise ValueError("has no previous value, because nothing updates it")
    return Storage(not is_updated, is_double, history)
