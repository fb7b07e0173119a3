"""Which updates can be computed together, and which have to wait for others.

Devito's equations are a program: within a step they happen in the order given. A stage computes everything from what
was there before it, so an update that reads at t + dt waits for the one that computes that, and so does one that
would overwrite what an earlier equation still reads at t - dt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outcrop.errors import InputError
from outcrop.language.devito.equation import Access, Update


def merge(updates: Sequence[Update]) -> list[Update]:
    """One update for each field: a second one of the same field, such as an Inc, continues the first.

    Raises InputError for reading at t + dt what is not there yet, and where the order of equations cannot be kept.
    """
    found: dict[str, Update] = {}
    read_since: dict[str, str] = {}
    for update in updates:
        name = update.field
        for access in update.reads.values():
            if access.shift == 1 and access.field not in found:
                raise InputError(f"{update.where}: reads {access.field}(t + dt), which no earlier equation writes")
            if update.continues(access) and access.is_near:
                raise InputError(f"{update.where}: reads {name}(t + dt) at neighbours, while it overwrites it")
            if access.shift == 1 and access.field != name:
                read_since[access.field] = update.where
        if name in found and name in read_since:
            raise InputError(f"{update.where}: writes {name}(t + dt) again after {read_since[name]} has read it")
        found[name] = replace(update, earlier=found.pop(name, None))  # popped: it now comes behind all so far
    return list(found.values())


def assign(updates: Sequence[Update]) -> dict[str, int]:
    """The stage in which each field is updated. Raises InputError for a value that is not there any more."""
    stages: dict[str, int] = {}
    for number, update in enumerate(updates):
        stage = max((stages[access.field] + 1 for access in update.accesses if access.shift == 1), default=0)
        for earlier in updates[:number]:
            oldest = [read for read in earlier.accesses if (read.field, read.shift) == (update.field, -1)]
            if oldest:
                stage = max(stage, stages[earlier.field] + any(read.is_near for read in oldest))
        stages[update.field] = stage
    for update in updates:
        for access in update.accesses:
            _check(update, access, stages)
    return stages


def age(access: Access, stage: int, stages: dict[str, int]) -> int:
    """How many updates of its field ago a value was the newest, seen from a stage."""
    if access.field not in stages:
        return 0
    return (stages[access.field] < stage) - access.shift


def _check(update: Update, access: Access, stages: dict[str, int]) -> None:
    name = access.field
    if access.function.is_TimeFunction and access.offset and name not in stages:
        raise InputError(
            f"{update.where}: no equation writes {name}.forward; make {name} a Function if it does not change"
        )
    if access.shift not in (-1, 0, 1):
        raise InputError(f"{update.where}: reads {name} {access.shift} steps from t; there are t - dt, t and t + dt")
    if access.shift == -1 and access.function.time_order < 2:
        raise InputError(f"{update.where}: reads {name}(t - dt), but {name} has time_order=1")
    if access.shift != -1:
        return
    if stages[name] < stages[update.field]:
        raise InputError(
            f"{update.where}: reads {name}(t - dt), which {name}(t + dt) has replaced by then; read {name}(t)"
        )
    if access.is_near and stages[name] == stages[update.field]:
        raise InputError(
            f"{update.where}: reads {name}(t - dt) at neighbours while {name} is updated; "
            "only at the cell itself is possible"
        )
