"""Fields and stages of a simulation as planning sees them: what they take, and what depends on what."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class FieldPlan:
    """One field.

    `is_static`: nothing updates it. `is_double`: it has two copies in memory that take turns. `has_previous`: the value
    before the newest is part of the state. `flips`: a step leaves the newest value in the other copy. `name` is what
    users call it.
    """

    is_static: bool = False
    is_double: bool = True
    has_previous: bool = False
    flips: bool = True
    name: str = ""


@dataclass(frozen=True)
class Operand:
    """What a stage reads: of a field, the newest value or (`age` 1) the one before; `beside`: at neighbours, too."""

    field: int
    age: int = 0
    beside: bool = True


@dataclass(frozen=True)
class StagePlan:
    """One level: new values of the fields `targets` from `reads`."""

    reads: tuple[Operand, ...]
    targets: tuple[int, ...]


PLAIN_FIELDS = (FieldPlan(),)
PLAIN_UPDATES = (StagePlan((Operand(0),), (0,)),)
"""One field that is updated from its neighbours, as by a heat equation."""


@dataclass(frozen=True)
class Version:
    """A value of a field: the level that wrote it (0: there when the pass began, -1: the one before that), and the copy
    it lies in."""

    level: int
    copy: int


@dataclass(frozen=True)
class Versions:
    """Of every field the newest value and the one before, after some level."""

    newest: tuple[Version, ...]
    previous: tuple[Version, ...]

    def of(self, operand: Operand) -> Version:
        """The value that a stage reads."""
        return (self.newest, self.previous)[operand.age][operand.field]


def versions(fields: tuple[FieldPlan, ...], updates: tuple[StagePlan, ...], levels: int) -> list[Versions]:
    """Those after level 0, 1, ..., `levels` of a pass."""
    found = [Versions((Version(0, 0),) * len(fields), (Version(-1, 1),) * len(fields))]
    for level in range(1, levels + 1):
        newest, previous = list(found[-1].newest), list(found[-1].previous)
        for field in updates[(level - 1) % len(updates)].targets:
            if fields[field].is_double:
                previous[field] = newest[field]
                newest[field] = Version(level, 1 - newest[field].copy)
            else:
                newest[field] = Version(level, 0)
        found.append(Versions(tuple(newest), tuple(previous)))
    return found


def one_of_each(
    fields: tuple[FieldPlan, ...], updates: tuple[StagePlan, ...]
) -> tuple[tuple[FieldPlan, ...], tuple[StagePlan, ...]]:
    """The same with one field of each kind: of fields that are kept alike and updated by the same stages. A stage reads
    of one what it reads of any of its kind."""
    kinds = [(replace(one, name=""), tuple(f in stage.targets for stage in updates)) for f, one in enumerate(fields)]
    number = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    new = [number[kind] for kind in kinds]
    stages = []
    for stage in updates:
        beside: dict[tuple[int, int], bool] = {}
        for one in stage.reads:
            key = new[one.field], one.age
            beside[key] = beside.get(key, False) or one.beside
        reads = tuple(Operand(field, age, far) for (field, age), far in beside.items())
        stages.append(StagePlan(reads, tuple(dict.fromkeys(new[f] for f in stage.targets))))
    return tuple(kind for kind, _ in number), tuple(stages)
