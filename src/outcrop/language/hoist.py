"""Move operations from the adjoint into the forward steps. An adjoint run computes the forward steps again.

A gradient multiplies the adjoint by derivatives of the forward step. Often a derivative of the forward step is a sum
over neighbours. An example is the Laplacian of u in the gradient with respect to a velocity. If a pass computes the
forward steps again, these steps can also compute the sums over neighbours. The forward step reads the same values of u
anyway:

    not hoisted    forward step: u            adjoint step: reads u of all neighbours, and computes the sum again
    hoisted        forward step: u, the sum   adjoint step: reads the sum in its own cell

With hoisting, the sum over neighbours, instead of u, is kept in memory for the adjoint step. `hoisted` does not change
the operations that it moves, so all results keep their bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from outcrop.errors import InputError
from outcrop.language.adjoint import Adjoint
from outcrop.language.derivative import Tape, pruned
from outcrop.language.linearised import HERE, Version, assemble, fields_read, updates_before, without_updates
from outcrop.language.program import Apply, Load, Operation, Program, Scalar, Stage
from outcrop.language.stencil import Stencil


def hoisted(stencil: Stencil, adjoint: Adjoint) -> tuple[Stencil, Adjoint]:
    """Return two results. The first result is the forward stencil, with a new field for each hoisted value. The second
    result is the adjoint, which reads the fields with the hoisted values.

    Return both arguments unchanged if no sum over neighbours can be hoisted. Also return both arguments unchanged if
    hoisting would increase the number of values in memory for the adjoint step. The values for adjoint steps need most
    of the memory of a run.
    """
    found = _Hoisting(stencil, adjoint)
    if not found.values or found.waiting_after > found.waiting_before:
        return stencil, adjoint
    try:
        forward, made = found.forward(), found.adjoint()
    except InputError:  # a kernel cannot compute the additional fields
        return stencil, adjoint
    return (forward, made) if extends(forward, stencil) else (stencil, adjoint)


def extends(hoisted: Stencil, stencil: Stencil) -> bool:
    """Return True if `hoisted` computes the same bits as `stencil` in all fields of `stencil`."""
    own = {one.name for one in stencil.fields}
    left = without_updates(hoisted, [one.name for one in hoisted.fields if one.name not in own])
    return left is not None and _content(left) == _content(stencil)


def _content(stencil: Stencil) -> tuple[object, ...]:
    """Return all properties of a stencil that determine the bits of its results. In the returned programs, equal
    operations of a stage are merged."""
    programs = []
    for stage in stencil.stages:
        tape = Tape()
        at = tape.copy(stage.program, tape.append)
        programs.append((stage.targets, tape.program([at[place] for place in stage.program.results])))
    return stencil.fields, stencil.parameters, stencil.signals, stencil.ndim, stencil.radii, programs


@dataclass(frozen=True)
class _Value:
    """A value that stage number `stage` of the forward step can compute. In `program`, fields and scalars have the same
    numbers as in the forward stencil."""

    stage: int
    program: Program


class _Hoisting:
    """The values that can be hoisted, in the order in which the forward step computes them. The stages of the given
    adjoint compute each hoisted value. For each value, `_places` lists the operations that compute the value. Each
    operation is given as a pair (number of the stage, number of the operation in the stage)."""

    def __init__(self, stencil: Stencil, adjoint: Adjoint) -> None:
        self._forward, self._adjoint = stencil, adjoint
        self._names = [one.name for one in adjoint.stencil.fields]
        self._own = {one.name: number for number, one in enumerate(stencil.fields)}
        scalars = _scalars_of(stencil)
        self._scalars = [scalars.index(name) for name in _scalars_of(adjoint.stencil)]
        self._before = updates_before(stencil)
        places: dict[_Value, list[tuple[int, int]]] = {}
        kept: set[Version] = set()
        for number, stage in enumerate(adjoint.stencil.stages):
            for place in self._used_places(stage.program):
                value = self._value(stage.program, place)
                if value is None:
                    kept |= set(self._versions(pruned(stage.program.operations, [place])))
                else:
                    places.setdefault(value, []).append((number, place))
        self.values = sorted(places, key=lambda value: value.stage)
        self._places = places
        self.waiting_before = len({self._chain(one) for one in adjoint.history.values()})
        self.waiting_after = len({self._chain(one) for one in kept}) + len(self.values)
        taken = {*self._names, *self._own, *scalars}
        free = (name for count in range(1, 1 << 16) if (name := f"derivative{count}") not in taken)
        self._fields = dict(zip(self.values, free, strict=False))

    def forward(self) -> Stencil:
        """Return the forward stencil with stages that also compute the hoisted values."""
        one, stages = self._forward, list[Stage]()
        names = [field.name for field in one.fields] + list(self._fields.values())
        for number, stage in enumerate(one.stages):
            tape = Tape()
            at = tape.copy(stage.program, tape.append)
            results, targets = [at[place] for place in stage.program.results], list(stage.targets)
            for value in self.values:
                if value.stage == number:
                    results.append(tape.copy(value.program, tape.append)[value.program.results[0]])
                    targets.append(names.index(self._fields[value]))
            stages.append(Stage(tuple(targets), tape.program(results)))
        return assemble(one.name, one, names, stages, range(len(names))).stencil

    def adjoint(self) -> Adjoint:
        """Return an adjoint that reads the hoisted values instead of computing them."""
        one, stencil = self._adjoint, self._adjoint.stencil
        names = [*self._names, *self._fields.values()]
        read = {place: names.index(self._fields[value]) for value, places in self._places.items() for place in places}
        stages = []
        for number, stage in enumerate(stencil.stages):
            tape, at = Tape(), dict[int, int]()
            for place, operation in enumerate(stage.program.operations):
                if (number, place) in read:
                    operation = Load(read[number, place], HERE)
                elif isinstance(operation, Apply):
                    operation = Apply(operation.operator, tuple(at[each] for each in operation.operands))
                at[place] = tape.append(operation)
            stages.append(Stage(stage.targets, tape.program([at[place] for place in stage.program.results])))
        used = fields_read(stages) | {load.field for each in (*one.values.values(), *one.scales.values())
                                      for load in each.loads}  # fmt: skip
        made = assemble(stencil.name, stencil, names, stages, sorted(used))
        left = {names[each] for each in made.fields}
        history = {name: version for name, version in one.history.items() if name in left}
        return replace(
            one, stencil=made.stencil, history=history | {name: Version(name, 1) for name in self._fields.values()},
            values={name: made.program(program) for name, program in one.values.items()},
            scales={name: made.program(program) for name, program in one.scales.items()},
        )  # fmt: skip

    def _used_places(self, program: Program) -> Iterator[int]:
        """Yield the positions of the largest parts of a program that depend on values of the forward step, but not on
        an adjoint. Each part is a result of the stage, or an operand of an operation that depends on an adjoint."""
        depends, is_other = list[bool](), list[bool]()
        uses: dict[int, list[int]] = {}
        for place, operation in enumerate(program.operations):
            match operation:
                case Load(field):
                    is_history = self._names[field] in self._adjoint.history
                    depends.append(is_history)
                    is_other.append(not is_history and not self._is_input(field))
                case Apply(_, operands):
                    depends.append(any(depends[each] for each in operands))
                    is_other.append(any(is_other[each] for each in operands))
                    for each in operands:
                        uses.setdefault(each, []).append(place)
                case _:
                    depends.append(False)
                    is_other.append(False)
        for place in range(len(program.operations)):
            outside = place in program.results or any(is_other[each] for each in uses.get(place, ()))
            if depends[place] and not is_other[place] and outside:
                yield place

    def _is_input(self, field: int) -> bool:
        """Return True if a field of the adjoint is a static field of the forward stencil."""
        number = self._own.get(self._names[field])
        return number is not None and self._forward.storage[number].is_static

    def _value(self, program: Program, place: int) -> _Value | None:
        """Return the value that an operation of the adjoint computes. Return None if the operation reads no value of
        the forward step in a neighbouring cell. Also return None if the operation reads cells beyond the radius of the
        forward stencil. Finally, return None if no stage of the forward step reads all values that the operation needs.
        """
        part = pruned(program.operations, [place])
        near = [load for load in part.loads if self._names[load.field] in self._adjoint.history]
        reach = [max(abs(load.offset[axis]) for load in part.loads) for axis in range(3)]
        is_far = any(own > radius for own, radius in zip(reach, self._forward.radii, strict=True))
        if is_far or all(load.offset == HERE for load in near):
            return None
        for stage in range(len(self._forward.stages)):
            if (moved := self._moved(part, stage)) is not None:
                return _Value(stage, moved)
        return None

    def _moved(self, part: Program, stage: int) -> Program | None:
        """Return a copy of a part of the adjoint, in which fields and scalars have the numbers of the forward stencil.
        Return None if stage number `stage` does not read all values that the part needs."""
        known = {(load.field, load.age) for load in self._forward.stages[stage].program.loads}
        operations = list[Operation]()
        for operation in part.operations:
            match operation:
                case Load(field, offset) if (version := self._adjoint.history.get(self._names[field])) is not None:
                    own = self._own[version.field]
                    age = self._before[stage][own] - version.updates
                    if (own, age) not in known:
                        return None
                    operations.append(Load(own, offset, age))
                case Load(field, offset):
                    operations.append(Load(self._own[self._names[field]], offset))
                case Scalar(index):
                    operations.append(Scalar(self._scalars[index]))
                case _:
                    operations.append(operation)
        return Program(tuple(operations), part.results)

    def _versions(self, part: Program) -> Iterator[Version]:
        names = (self._names[load.field] for load in part.loads)
        return (self._adjoint.history[name] for name in names if name in self._adjoint.history)

    def _chain(self, one: Version) -> tuple[str, int]:
        """Return an identifier for the value of a version of a field. The last version in a step has the same value as
        the first version in the next step, so both have the same identifier."""
        updates = sum(self._own[one.field] in stage.targets for stage in self._forward.stages)
        return one.field, one.updates % updates


def _scalars_of(stencil: Stencil) -> list[str]:
    return [*(one.name for one in stencil.parameters), *stencil.signals]
