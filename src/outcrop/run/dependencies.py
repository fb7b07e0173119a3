"""From a Stencil to what planning has to know of it: what is kept, and what depends on what."""

from __future__ import annotations

from outcrop.language.program import Load, Stage
from outcrop.language.stencil import Stencil
from outcrop.plan.problem import FieldPlan, Operand, StagePlan


def field_plans(stencil: Stencil) -> tuple[FieldPlan, ...]:
    """The fields of a stencil, in its order."""
    return tuple(
        FieldPlan(storage.is_static, storage.is_double, storage.history == 2, bool(copy), field.name)
        for field, storage, copy in zip(stencil.fields, stencil.storage, stencil.newest_copies(1), strict=True)
    )


def stage_plans(stencil: Stencil) -> tuple[StagePlan, ...]:
    """Its stages. The newest value of a target counts as read: cells of a rim take it over."""
    return tuple(_stage_plan(stage) for stage in stencil.stages)


def _stage_plan(stage: Stage) -> StagePlan:
    beside: dict[tuple[int, int], bool] = {(field, 0): False for field in stage.targets}
    for load in stage.program.loads:
        key = load.field, load.age
        beside[key] = beside.get(key, False) or _is_beside(load)
    return StagePlan(tuple(Operand(field, age, far) for (field, age), far in beside.items()), stage.targets)


def _is_beside(load: Load) -> bool:
    return load.offset != (0, 0, 0)
