"""Assign updates to the stages of a step.

Devito executes the equations of a step one after another, in their order. Outcrop computes all updates of a stage from
the values that exist before the stage. So an update that reads a new value must be in a later stage than the update
that computes the value. An update can overwrite a value of the previous step. Other updates that read the old value
must be in the same stage as the update that overwrites it, or in an earlier stage.

Several equations for the same field become one update if no other equation between them reads the field. If another
equation between them reads the field, the field has several versions in a step, each in a stage of its own. A value
that a stencil cannot keep, such as u(t - 2 dt), is kept in an additional field (OlderValues).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outcrop.errors import InputError
from outcrop.language.devito.equation import Access, Box, FieldUpdate, OlderValues, is_saved


@dataclass(frozen=True)
class Stages:
    """The updates of a step, and the number of each update's stage. There is one update for each version of a field.
    """

    updates: tuple[FieldUpdate, ...]
    numbers: tuple[int, ...]

    def versions(self, field: str) -> list[int]:
        """Return the numbers of the stages that update a field, in the order of the versions."""
        return [number for one, number in zip(self.updates, self.numbers, strict=True) if one.field == field]

    def age(self, access: Access, stage: int) -> int:
        """Return the age of the value of `access` in stage number `stage`. The age is 0 for the newest value of the
        field, and 1 for the value before the field's latest update."""
        done = sum(number < stage for number in self.versions(access.field))
        return done - (access.version if access.shift == 1 else access.shift)


def stages_of(updates: Sequence[FieldUpdate]) -> Stages:
    """Assign updates to stages, and add the fields that keep older values. Raises InputError if an update reads a value
    that no stage can provide."""
    merged = _merge(updates)
    copies = _Copies({}, set())
    while True:
        found = _assign([*(copies.in_place(one) for one in merged), *copies.updates(merged)])
        if not copies.add_missing(found):
            break
    own = {one.name for one in copies.fields.values()}
    for update, stage in zip(found.updates, found.numbers, strict=True):
        named = {update.field: update.function} | {one.field: one.function for one in update.accesses}
        for name, function in named.items():
            if name in own and not isinstance(function, OlderValues):
                raise InputError(f"{update.where}: {name} is the name of older values; give the function another name")
        for access in update.accesses:
            _check_read(update, access, stage, found)
    return found


def _merge(updates: Sequence[FieldUpdate]) -> list[FieldUpdate]:
    """Return one update for each version of a field. Raises InputError if an update reads the new value of any cell
    before this value is computed. Also raises InputError if an update overwrites a value that the same update reads at
    neighbours."""
    found: list[FieldUpdate] = []
    latest: dict[str, int] = {}
    read_since: set[str] = set()
    for number, given in enumerate(updates):
        name = given.field
        reads = {key: _as_ordered(access, latest) for key, access in given.reads.items()}
        update = replace(given, reads=reads)
        near = False
        for access in reads.values():
            if access.shift == 1 and not access.version and not _is_read_only(access, updates):
                is_implicit = access.field == name and access.near
                remedy = "; implicit equations are not supported" if is_implicit else ""
                raise InputError(f"{update.where}: reads {update.at(access)}, which no earlier equation writes{remedy}")
            if access.shift == 1 and access.function.is_TimeFunction and _reads_early(given, access, number, updates):
                raise InputError(
                    f"{update.where}: reads {update.at(access)} in cells that no earlier equation writes; put an "
                    "equation for these cells before it"
                )
            if access.field == name and access.near and access.shift == 1:
                near = True
            _check_overwritten(update, access)
            if access.shift == 1 and access.field != name:
                read_since.add(access.field)
        if name in latest and not near and name not in read_since:
            place = next(i for i, one in enumerate(found) if (one.field, one.version) == (name, latest[name]))
            earlier = found.pop(place)
            found.append(replace(update, earlier=earlier, version=earlier.version))
            continue
        latest[name] = latest.get(name, 0) + 1
        read_since.discard(name)
        found.append(replace(update, version=latest[name]))
    return found


def _reads_early(update: FieldUpdate, access: Access, number: int, updates: Sequence[FieldUpdate]) -> bool:
    """Return True if `update` reads cells of a field at t + dt that only this update or a later update computes. For
    such a cell, Devito reads a value of an earlier step. `number` is the place of `update` in the list of all updates.
    """
    whole = tuple((0, int(extent)) for extent in update.function.grid.shape)
    read = tuple((low + step, end + step) for (low, end), step in zip(update.box or whole, access.offset, strict=True))
    left = [_common(read, one.box or whole) for one in updates[number:] if one.field == access.field]
    for one in updates[:number]:
        if one.field == access.field:
            left = [part for box in left for part in _without(box, one.box or whole)]
    return any(all(low < end for low, end in box) for box in left)


def _common(one: Box, other: Box) -> Box:
    pairs = zip(one, other, strict=True)
    return tuple((max(low, first), min(end, stop)) for (low, end), (first, stop) in pairs)


def _without(box: Box, other: Box) -> Iterator[Box]:
    """Yield boxes that contain the cells of `box` outside `other`. A yielded box can be empty."""
    for axis, ((low, end), (first, stop)) in enumerate(zip(box, other, strict=True)):
        yield (*box[:axis], (low, min(end, first)), *box[axis + 1 :])
        yield (*box[:axis], (max(low, stop), end), *box[axis + 1 :])
        box = (*box[:axis], (max(low, first), min(end, stop)), *box[axis + 1 :])


def _is_read_only(access: Access, updates: Sequence[FieldUpdate]) -> bool:
    """Return True for a value of a saved function that no update writes. Another run has computed these values."""
    return is_saved(access.function) and all(one.field != access.field for one in updates)


def _as_ordered(access: Access, latest: dict[str, int]) -> Access:
    """Return a copy of `access` whose `version` is the version of the field that the access reads. A Function has no
    time, so an equation that comes after the update of a Function reads the new value."""
    version = latest.get(access.field, 0)
    if not getattr(access.function, "is_TimeFunction", False) and access.offset:
        return replace(access, shift=min(version, 1), version=version)
    return replace(access, version=version) if access.shift == 1 else access


def _check_overwritten(update: FieldUpdate, access: Access) -> None:
    """Raise InputError if an update reads neighbours that the same update overwrites. The result would depend on the
    order in which the cells are updated."""
    has_time = getattr(access.function, "is_TimeFunction", False)
    if access.field != update.field or not access.near or (has_time and access.shift != 1):
        return
    if update.box is None or _overlap(update.box, access.offset):
        name = update.at(access)
        raise InputError(f"{update.where}: reads {name} at neighbours, while it overwrites it")


def _overlap(box: Box, offset: tuple[int, ...]) -> bool:
    """Return True if a box overlaps with the same box shifted by `offset`."""
    return all(abs(step) < end - first for step, (first, end) in zip(offset, box, strict=True))


@dataclass(frozen=True)
class _Copies:
    """The fields that keep older values. Each key of `fields` is a pair: the name of a field, and the age of the kept
    value at time t, in steps. `late` describes the updates that read a field after the field was overwritten in the
    same step. An update in `late` needs a copy of the field's value from the beginning of the step. An entry of `late`
    has three values: the field and the version of the update, and the name of the field that the update reads."""

    fields: dict[tuple[str, int], OlderValues]
    late: set[tuple[str, int, str]]

    def in_place(self, update: FieldUpdate) -> FieldUpdate:
        """Return a copy of an update. Where the update reads a value that the stencil does not keep, the copy reads the
        field that keeps this value."""

        def replaced(access: Access) -> Access:
            kept = self.fields.get((access.field, -access.shift))
            if kept is None or access.shift > 0:
                return access
            if access.shift < 0:
                return replace(access, function=kept, shift=0)
            is_late = (update.field, update.version, access.field) in self.late
            return replace(access, function=kept, shift=1, version=1) if is_late else access

        reads = {key: replaced(access) for key, access in update.reads.items()}
        return replace(update, reads=reads, earlier=self.in_place(update.earlier) if update.earlier else None)

    def updates(self, merged: Sequence[FieldUpdate]) -> Iterator[FieldUpdate]:
        """Yield an update for each copy. This update replaces the kept value by the value that is one step newer. A
        copy of the value at the beginning of a step is made during this step."""
        for (field, steps), kept in self.fields.items():
            newer = self.fields.get((field, steps - 1)) if steps > 1 else None
            first = next(one for one in merged if one.field == field)
            at = (0,) * next(len(one.offset) for one in _all_reads(merged) if one.field == field)
            source = Access(newer, 0, at) if newer else Access(kept.function, min(0, 1 - steps), at)
            yield FieldUpdate(first.where, first.position, kept, None, {}, first.direction, copied=source)

    def add_missing(self, found: Stages) -> bool:
        """Add the copies that updates need and that do not exist yet. Return True if at least one copy was added."""
        before = len(self.fields) + len(self.late)
        for update, stage in zip(found.updates, found.numbers, strict=True):
            for access in update.accesses:
                written = found.versions(access.field)
                if access.shift > 0 or not written or access.shift < -_kept_steps(access.function):
                    continue
                age, own = found.age(access, stage), access.near and stage in written
                if access.shift < 0 and (len(written) > 1 or own or age != 1):
                    for step in range(1, 1 - access.shift):
                        self.fields.setdefault((access.field, step), OlderValues(access.function, step))
                elif access.shift == 0 and (age > 1 or (age == 1 and own)) and update.copied is None:
                    self.fields.setdefault((access.field, 0), OlderValues(access.function, 0))
                    self.late.add((update.field, update.version, access.field))
        return len(self.fields) + len(self.late) > before


def _is_new(access: Access, numbers: Mapping[tuple[str, int], int]) -> bool:
    return access.shift == 1 and (access.field, access.version) in numbers


def _all_reads(updates: Sequence[FieldUpdate]) -> Iterator[Access]:
    for update in updates:
        yield from (one for one in update.accesses if one.offset)


def _assign(updates: Sequence[FieldUpdate]) -> Stages:
    """Assign each update to the earliest possible stage."""
    numbers: dict[tuple[str, int], int] = {}
    several = {one.field for one in updates if one.version > 1}
    for place, update in enumerate(updates):
        stage = max(
            (numbers[access.field, access.version] + 1 for access in update.accesses if _is_new(access, numbers)),
            default=0,
        )
        if update.version > 1:
            stage = max(stage, numbers[update.field, update.version - 1] + 1)
        if isinstance(update.function, OlderValues):
            stage = max(stage, numbers[str(update.function.function.name), 1])
        for other in updates[:place]:
            for read in other.accesses:
                if read.field != update.field or other.field == update.field:
                    continue
                at = numbers[other.field, other.version]
                if read.shift < 0:
                    stage = max(stage, at + read.near)
                elif update.field in several and (read.version if read.shift == 1 else 0) < update.version:
                    stage = max(stage, at)
        numbers[update.field, update.version] = stage
    return Stages(tuple(updates), tuple(numbers[one.field, one.version] for one in updates))


def _kept_steps(function: Any) -> int:
    """Return the number of steps before t for which Devito keeps the values of `function`."""
    return int(getattr(function, "time_order", 1)) - 1


def _check_read(update: FieldUpdate, access: Access, stage: int, found: Stages) -> None:
    name, where = access.field, update.where
    written = found.versions(name)
    if not written:
        if access.function.is_TimeFunction and access.offset and not is_saved(access.function):
            step = "forward" if update.direction == 1 else "backward"
            raise InputError(f"{where}: no equation writes {name}.{step}; make {name} a Function if it does not change")
        return
    if access.shift > 1:
        raise InputError(f"{where}: reads {update.at(access)}; a step computes only one new value")
    if access.shift < 0 and access.shift < -_kept_steps(access.function):
        raise InputError(f"{where}: reads {update.at(access)}, but {name} has time_order={access.function.time_order}")
    age = found.age(access, stage)
    if age not in (0, 1) or (age == 1 and access.near and stage in written):
        raise InputError(
            f"{where}: reads {update.at(access)} after {name} has been overwritten; put the equation before it"
        )
