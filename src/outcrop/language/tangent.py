"""Derive the tangent-linear model of a stencil (`tangent`). The model computes how a small change of the state or of
the medium spreads. In seismics, the use of this model is called Born modelling.

The new stencil updates each field of the given stencil and the change of this field, in the same stages:

    u_i          =  F_i                                                          the same bits as without the changes
    u_i_tangent  =  sum over j, o of  dF_i/du_j(z + o) * u_j_tangent(z + o)  +  the same for the names in wrt

A run of the new stencil also computes the values of u on which the derivatives depend, so it needs no history.
"""

from __future__ import annotations

from collections.abc import Sequence

from outcrop.language import derivative
from outcrop.language.derivative import Tape
from outcrop.language.linearised import Fields, fields_read, renumbered
from outcrop.language.program import Load, Scalar, Stage
from outcrop.language.stencil import Field, ParameterValue, Stencil


def tangent(stencil: Stencil, wrt: str | Sequence[str] = ()) -> Stencil:
    """Return `stencil` with a second field `u_tangent` for each updated field `u`: the change of `u` to first order.

    `wrt` names static fields, parameters and signals that also change. Their changes are inputs of the new stencil. For
    a field `v`, the input is a static field `v_tangent`. For a parameter or signal `dt`, the input is a parameter or
    signal `dt_tangent`. The initial value of `u_tangent` is the change of the initial value of `u`. The new parameters
    have the default 0. Sources act on the field that they name, so a source in `u_tangent` is the change of a source in
    `u`.

    At points without a derivative, a one-sided derivative is used (derivative.py). Raises InputError for unknown names,
    and for a stencil that no kernel can compute.
    """
    fields, names = Fields(stencil), (wrt,) if isinstance(wrt, str) else tuple(wrt)
    fields.require_known(stencil.name, names)
    numbers = [fields.number(name) for name in fields.forward]
    changes = {
        number: fields.new(f"{name}_tangent")
        for number, name in enumerate(fields.forward)
        if not fields.is_static[number] or name in names
    }
    scalars = [*range(len(fields.scalars)), *(index for index, name in enumerate(fields.scalars) if name in names)]
    slopes = {index: place for place, index in enumerate(scalars)}  # for a scalar in wrt: the place of its change
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

    # Updated fields come first, and parameters come before signals.
    updated = dict.fromkeys(target for stage in stages for target in stage.targets)
    order = list(dict.fromkeys([*updated, *numbers, *sorted(fields_read(stages))]))
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
    )  # fmt: skip
