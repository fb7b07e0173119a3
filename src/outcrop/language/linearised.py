"""Make stencils from the stages of other stencils. The function `tangent` makes the tangent-linear model of a stencil.
The other parts of this module help to make any stencil from stages. These parts give names and numbers to the fields of
the new stencil.

The tangent-linear model computes how a small change of the state or of the medium spreads. In seismics, the use of this
model is called Born modelling. The new stencil updates each field of the given stencil and the change of this field, in
the same stages:

    u_i          =  F_i                                                          the same bits as without the changes
    u_i_tangent  =  sum over j, o of  dF_i/du_j(z + o) * u_j_tangent(z + o)  +  the same for the names in wrt

A run of the new stencil needs no history, because the run also computes the values of u on which the derivatives
depend.

An adjoint (adjoint.py) reads values of the forward step if a derivative depends on these values. Each value of the
forward step that the adjoint reads becomes a read-only field of the adjoint (`Version`). The values of this field
differ between the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from outcrop.errors import InputError, shown
from outcrop.language import derivative
from outcrop.language.derivative import Tape, pruned
from outcrop.language.program import Load, Operation, Program, Scalar, Stage
from outcrop.language.stencil import Field, ParameterValue, Stencil

Offset: TypeAlias = tuple[int, int, int]
HERE: Offset = (0, 0, 0)


@dataclass(frozen=True)
class Version:
    """The value of the field `field` after `updates` updates in a forward step. If `updates` is 0, the version is the
    value at the start of the step. If `updates` is -1, the version is the previous value at the start of the step."""

    field: str
    updates: int


class Fields:
    """The fields of the new stencil, numbered in the order of their first use. No two fields have the same name. An
    additional field never has the name of a field, parameter or signal of the forward stencil."""

    def __init__(self, forward: Stencil) -> None:
        self.forward = [field.name for field in forward.fields]
        self.scalars = [*(one.name for one in forward.parameters), *forward.signals]
        self._step_signal = forward.step_signal
        self.is_static = [storage.is_static for storage in forward.storage]
        self.versions: dict[str, Version] = {}
        self._numbers: dict[str, int] = {}
        self._taken = {*self.forward, *self.scalars}
        self._made: dict[str, str] = {}

    def require_known(self, stencil: str, wrt: Sequence[str]) -> None:
        """Raise InputError if a name in `wrt` does not belong to a static field, a parameter or a signal."""
        static = [name for name, fixed in zip(self.forward, self.is_static, strict=True) if fixed]
        for name in wrt:
            if name not in (*static, *self.scalars) or name == self._step_signal:
                there = ", ".join(one for one in (*static, *self.scalars) if one != self._step_signal) or "none"
                raise InputError(f"stencil {stencil!r} has no derivative by {shown(name)}; there are: {there}")

    @property
    def names(self) -> list[str]:
        """The names of all fields, in the order of their numbers."""
        return list(self._numbers)

    def new(self, name: str) -> int:
        """Return the number of an additional field of the new stencil. The additional field has the name `name`. If
        another field already has this name, underscores are appended."""
        if name not in self._made:
            self._made[name] = self.unused(name)
        return self.number(self._made[name])

    def unused(self, name: str) -> str:
        """Return `name`. If another field or scalar already has this name, underscores are appended. The result then
        counts as used."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def forward_value(self, load: Load, updates: Sequence[int]) -> Load:
        """Return the load with which the new stencil reads the value that `load` reads in the forward step. `updates`
        contains one number for each field: the number of its updates in this step before the stage."""
        name = self.forward[load.field]
        if self.is_static[load.field]:
            return Load(self.number(name), load.offset)
        version = updates[load.field] - load.age
        number = self.new(name + ("_before" if version < 0 else f"_at{version or ''}"))
        self.versions[self.names[number]] = Version(name, version)
        return Load(number, load.offset)


def updates_before(stencil: Stencil) -> list[tuple[int, ...]]:
    """Return one tuple for each stage. The tuple has one number for each field: the number of earlier stages that
    update this field."""
    count = [0] * len(stencil.fields)
    found = []
    for stage in stencil.stages:
        found.append(tuple(count))
        for target in stage.targets:
            count[target] += 1
    return found


def without_updates(stencil: Stencil, sums: Sequence[str]) -> Stencil | None:
    """Return the stencil without the updates of the fields `sums`, and without fields that no remaining stage uses. The
    bits of the other fields and the scalars stay the same. Return None if a stage updates only `sums`, or if other
    updates read `sums`. Also return None if a field in `sums` has two copies, or if the storage of another field would
    change."""
    names = [one.name for one in stencil.fields]
    dropped = set(map(names.index, sums))
    stages = []
    for stage in stencil.stages:
        kept = [place for place, target in enumerate(stage.targets) if target not in dropped]
        if not kept:
            return None
        results = [stage.program.results[place] for place in kept]
        stages.append(Stage(tuple(stage.targets[place] for place in kept), pruned(stage.program.operations, results)))
    used = fields_read(stages)
    if dropped & used:
        return None
    made = assemble(f"{stencil.name}, without sums", stencil, names, stages, sorted(used))
    same = all(made.stencil.storage[place] == stencil.storage[number] for number, place in made.fields.items())
    return made.stencil if same and not any(stencil.storage[number].is_double for number in dropped) else None


def fields_read(stages: Sequence[Stage]) -> set[int]:
    return {load.field for stage in stages for load in stage.program.loads}


@dataclass(frozen=True)
class Assembly:
    """A new stencil, and the mappings from old to new numbers of its fields and scalars."""

    stencil: Stencil
    fields: Mapping[int, int]
    scalars: Mapping[int, int]

    def program(self, program: Program) -> Program:
        """Replace the old numbers of fields and scalars in a program by the numbers of the new stencil."""
        return renumbered(program, self.fields, self.scalars)


def renumbered(program: Program, fields: Mapping[int, int], scalars: Mapping[int, int]) -> Program:
    """Replace the numbers of fields and scalars in a program by the numbers that the mappings `fields` and `scalars`
    give."""

    def operation(one: Operation) -> Operation:
        match one:
            case Load(field, offset, age):
                return Load(fields[field], offset, age)
            case Scalar(index):
                return Scalar(scalars[index])
        return one

    return Program(tuple(map(operation, program.operations)), program.results)


def assemble(
    name: str, forward: Stencil, names: Sequence[str], stages: Sequence[Stage], read: Iterable[int],
    all_scalars: bool = True,
) -> Assembly:  # fmt: skip
    """Make a stencil from stages. In the loads and targets of `stages`, a number is the position of a field in `names`.
    In the new stencil, the updated fields come first, in the order of their first updates. The other fields follow in
    the order of `read`. The new stencil has the scalars of `forward`. If `all_scalars` is false, unused scalars are
    left out, and the number of the step becomes an ordinary signal. A run then needs values for the number of the step.
    The new stencil has the fixed rim of `forward`. Raises InputError if no kernel can compute the new stencil."""
    order = list(dict.fromkeys([*(target for stage in stages for target in stage.targets), *read]))
    fields = {number: place for place, number in enumerate(order)}
    count = len(forward.parameters)
    used = {one.index for stage in stages for one in stage.program.operations if isinstance(one, Scalar)}
    kept = [one for one in range(count + len(forward.signals)) if all_scalars or one in used]
    scalars = {index: place for place, index in enumerate(kept)}
    stencil = Stencil.from_stages(
        name,
        [Field(names[number]) for number in order],
        [Stage(tuple(fields[one] for one in stage.targets), renumbered(stage.program, fields, scalars))
         for stage in stages],
        [forward.parameters[index] for index in kept if index < count],
        [forward.signals[index - count] for index in kept if index >= count],
        forward.ndim,
        forward.radii,
        forward.step_signal if all_scalars else "",
    )  # fmt: skip
    return Assembly(stencil, fields, scalars)


def tangent(stencil: Stencil, wrt: str | Sequence[str] = ()) -> Stencil:
    """Return `stencil` with a second field `u_tangent` for each updated field `u`. `u_tangent` is the first-order
    change of `u`.

    `wrt` contains the names of the static fields, parameters and signals that also change. The changes of the names in
    `wrt` are inputs of the new stencil. For a field `v` in `wrt`, the input is a static field `v_tangent`. For a
    parameter or signal `dt` in `wrt`, the input is a parameter or signal `dt_tangent`. The initial value of `u_tangent`
    is the change of the initial value of `u`. Parameters that the new stencil has in addition have the default 0. A
    source in `u_tangent` is the change of a source in `u`, because each source acts only on the field that it names.

    At points at which a function has no derivative, a one-sided derivative is used (derivative.py). Raises InputError
    for unknown names, for a static field whose change has no effect, and for a stencil that no kernel can compute.
    """
    if not isinstance(stencil, Stencil):
        raise InputError(
            f"stencil {shown(stencil)} is not a Stencil; for Devito's equations, give from_devito(equations, "
            "dt).stencil"
        )
    fields, is_one = Fields(stencil), isinstance(wrt, str) or not isinstance(wrt, Iterable)
    names = (str(wrt),) if is_one else tuple(wrt)
    fields.require_known(stencil.name, names)
    numbers = [fields.number(name) for name in fields.forward]
    changes = {
        number: fields.new(f"{name}_tangent")
        for number, name in enumerate(fields.forward)
        if not fields.is_static[number] or name in names
    }
    scalars = [*range(len(fields.scalars)), *(index for index, name in enumerate(fields.scalars) if name in names)]
    slopes = {index: place for place, index in enumerate(scalars)}  # maps each scalar in wrt to the place of its change
    stages = list[Stage]()
    for stage in stencil.stages:
        tape, seeds = Tape(), dict[int, int]()
        at = tape.copy(stage.program, tape.append)
        for place, operation in enumerate(stage.program.operations):
            match operation:
                case Load(field, offset, age) if field in changes:
                    seeds[place] = tape.append(Load(changes[field], offset, age))
                case Scalar(index) if slopes[index] != index:
                    seeds[place] = tape.append(Scalar(slopes[index]))
        results = [at[place] for place in stage.program.results] + derivative.tangent(tape, stage.program, at, seeds)
        targets = *stage.targets, *(changes[target] for target in stage.targets)
        stages.append(Stage(targets, tape.program(results)))

    read = fields_read(stages)
    if unread := [fields.forward[number] for number, change in changes.items()
                  if fields.is_static[number] and change not in read]:  # fmt: skip
        raise InputError(
            f"wrt: a change of {unread[0]} changes no field of {stencil.name!r} to first order; leave {unread[0]} out"
        )

    # In the new stencil, updated fields come before other fields, and parameters come before signals.
    updated = dict.fromkeys(target for stage in stages for target in stage.targets)
    order = list(dict.fromkeys([*updated, *numbers, *sorted(read)]))
    places = {number: place for place, number in enumerate(order)}
    count = len(stencil.parameters)
    kinds = sorted(range(len(scalars)), key=lambda place: scalars[place] >= count)
    moved = {place: new for new, place in enumerate(kinds)}

    def name_of(place: int) -> str:
        name = fields.scalars[scalars[place]]
        return name if place < len(fields.scalars) else fields.unused(f"{name}_tangent")

    return Stencil.from_stages(
        f"tangent of {stencil.name}",
        [Field(fields.names[number]) for number in order],
        [Stage(tuple(places[one] for one in stage.targets), renumbered(stage.program, places, moved))
         for stage in stages],
        [stencil.parameters[place] if place < len(fields.scalars) else ParameterValue(name_of(place), 0.0)
         for place in kinds if scalars[place] < count],
        [name_of(place) for place in kinds if scalars[place] >= count],
        stencil.ndim,
        stencil.radii,
        stencil.step_signal,
    )  # fmt: skip
