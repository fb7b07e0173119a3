"""Derive the tangent-linear model of a stencil. The model computes how a small change of the state or of the medium
spreads.

The tangent has one stage for each stage of the stencil. For each field u_i that the stencil updates, the tangent
updates the change of u_i:

    change of u_i  =  sum over j, o of  D(z) * change of u_j at z + o  +  the same for static fields and parameters

D(z) is the derivative of the update of u_i with respect to the load of u_j at z + o. The tangent has the boundary of
the stencil.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outcrop.language.derivative import Tape, tangent
from outcrop.language.linearised import HERE, Fields, Version, assemble, updates_before
from outcrop.language.program import Load, Scalar, Stage
from outcrop.language.stencil import Stencil


@dataclass(frozen=True)
class Tangent:
    """The tangent-linear model of a stencil, and the meaning of its fields.

    `changes` maps the name of each updated field to the name of the field that holds its change. The names in `wrt` are
    mapped in the same way. For a parameter or signal, the field of its change has a value for each cell. Names that do
    not affect the updates are left out. `history` maps names of read-only fields to the values of the forward step that
    these fields must have. The values differ for each step.
    """

    stencil: Stencil
    changes: Mapping[str, str]
    history: Mapping[str, Version]


def tangent_of(stencil: Stencil, wrt: Sequence[str] = ()) -> Tangent:
    """Return the tangent-linear model of one step of `stencil`.

    `wrt` has the names of static fields, parameters and signals that also change. Raises InputError for unknown names,
    and for a tangent that no kernel can compute.
    """
    fields, stages = Fields(stencil), list[Stage]()
    fields.require_known(stencil.name, wrt)

    def change(name: str) -> int:
        return fields.new(f"{name}_tan")

    for stage, updates in zip(stencil.stages, updates_before(stencil), strict=True):
        tape, seeds = Tape(), dict[int, int]()
        at = tape.copy(stage.program, lambda load: tape.append(fields.forward_value(load, updates)))  # noqa: B023
        for place, operation in enumerate(stage.program.operations):
            match operation:
                case Load(field, offset, age) if not fields.is_static[field] or fields.forward[field] in wrt:
                    seeds[place] = tape.append(Load(change(fields.forward[field]), offset, age))
                case Scalar(index) if fields.scalars[index] in wrt:
                    seeds[place] = tape.append(Load(change(fields.scalars[index]), HERE))
        results = tangent(tape, stage.program, at, seeds)
        targets = tuple(change(fields.forward[target]) for target in stage.targets)
        stages.append(Stage(targets, tape.program(results)))
    made = assemble(f"tangent of {stencil.name}", stencil, fields, stages)
    updated = [name for name, fixed in zip(fields.forward, fields.is_static, strict=True) if not fixed]
    changes = {name: number for name in (*updated, *wrt) if (number := change(name)) in made.fields}
    return Tangent(
        made.stencil,
        {name: fields.names[number] for name, number in changes.items()},
        {name: one for name, one in fields.versions.items() if fields.number(name) in made.fields},
    )
