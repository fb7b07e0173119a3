"""Whether the parts of a Stencil fit each other: what every stencil has to be, however it was made.

A kernel reads and writes by the numbers in a stencil alone, without asking, so each of them is compared here with what
there is. Messages are parts of sentences that the caller begins with which stencil it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outcrop.language.program import Load, Program, Scalar
from outcrop.language.schema import (
    FIELDS_MOST,
    OFFSET_MOST,
    OPERANDS_MOST,
    OPERATIONS_MOST,
    SCALARS_MOST,
    SPAN_MOST,
    STAGES_MOST,
)
from outcrop.language.stage import Stage, storage_of

if TYPE_CHECKING:
    from outcrop.language.stencil import Stencil

_ABSENT = {1: (0, 1), 2: (1,), 3: ()}
"""The axes, of z, y and x, that a grid of so many does not have."""


def require_sound(stencil: Stencil) -> None:
    """Raises ValueError unless kernels of a stencil read and write what there is, and nothing else."""
    if stencil.ndim not in _ABSENT:
        raise ValueError(f"ndim={stencil.ndim}; there are 1, 2 and 3")
    scalars = len(stencil.parameters) + len(stencil.signals)
    for what, count, most in (
        ("fields", len(stencil.fields), FIELDS_MOST),
        ("parameters and signals", scalars, SCALARS_MOST),
        ("stages", len(stencil.stages), STAGES_MOST),
        ("operations", sum(len(stage.program.operations) for stage in stencil.stages), OPERATIONS_MOST),
    ):
        if count > most:
            raise ValueError(f"{count} {what}, at most {most} are possible")
    names = Counter([one.name for one in stencil.fields])
    names.update([one.name for one in stencil.parameters])
    names.update(stencil.signals)
    for name, count in names.items():
        if count > 1:
            raise ValueError(f"two fields, parameters or signals have the name {name!r}")
    for stage in stencil.stages:
        _require_stage(stage, len(stencil.fields), stencil.ndim)
        require_program(stage.program, len(stencil.fields), scalars)
    _require_order(stencil.stages)
    for number, field in enumerate(stencil.fields):
        try:
            storage_of(stencil.stages, number)
        except ValueError as error:
            raise ValueError(f"field {field.name!r} {error}") from None


def require_program(program: Program, fields: int, scalars: int) -> None:
    """Raises ValueError where a program is too long, or loads fields or scalars that there are not, or too far away."""
    if len(program.operations) > OPERATIONS_MOST:
        raise ValueError(f"{len(program.operations)} operations, at most {OPERATIONS_MOST} are possible")
    for operation in program.operations:
        match operation:
            case Load(field, offset, _):
                if not 0 <= field < fields:
                    raise ValueError(f"field number {field} is read; there are {fields}")
                if max(map(abs, offset)) > OFFSET_MOST:
                    raise ValueError(f"offset {offset} reaches farther than {OFFSET_MOST} cells")
            case Scalar(index) if not 0 <= index < scalars:
                raise ValueError(f"scalar number {index} is read; there are {scalars}")


def _require_stage(stage: Stage, fields: int, ndim: int) -> None:
    if len(stage.targets) != len(stage.program.results) or len(set(stage.targets)) != len(stage.targets):
        raise ValueError("a stage needs one result for each of its fields, and each field once")
    for field in stage.targets:
        if not 0 <= field < fields:
            raise ValueError(f"field number {field} is updated; there are {fields}")
    if len(stage.operands) > OPERANDS_MOST:
        raise ValueError(
            f"a stage reads and updates {len(stage.operands)} values of fields, at most {OPERANDS_MOST} are possible; "
            "split it into several stages"
        )
    if stage.span > SPAN_MOST:
        raise ValueError(
            f"the rows that a stage reads for one cell have {stage.span} cells, at most {SPAN_MOST} are possible; "
            "split it into several stages"
        )
    if any(stage.radii[axis] for axis in _ABSENT[ndim]):
        raise ValueError(f"offsets along {' and '.join('zyx'[axis] for axis in _ABSENT[ndim])} with ndim={ndim}")


def _require_order(stages: Sequence[Stage]) -> None:
    """Fields that are updated come first, in the order of their first updates."""
    updated = list(dict.fromkeys(field for stage in stages for field in stage.targets))
    if updated != list(range(len(updated))):
        raise ValueError(f"fields are updated in the order {updated}; they count in that of their first updates")
