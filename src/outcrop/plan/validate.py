"""Prove a plan legal without touching data, before the first byte moves."""

from __future__ import annotations

from outcrop.plan.actions import Action, Read
from outcrop.plan.contents import IllegalPlan
from outcrop.plan.plan import Pass, Plan
from outcrop.plan.problem import Problem
from outcrop.plan.proof import Proof
from outcrop.plan.repeats import perform_all
from outcrop.plan.window import Window

__all__ = ["IllegalPlan", "validate", "validate_one_layer", "validate_pass"]


def validate(plan: Plan, budget_bytes: int | None = None) -> None:
    """Raise IllegalPlan unless every pass of `plan` is legal, the passes add up to the steps, and memory stays
    in budget."""
    problem = plan.problem
    if sum(one.levels for one in plan.passes) != problem.levels:
        raise IllegalPlan(f"passes advance {sum(p.levels for p in plan.passes)} levels, not {problem.levels}")
    if any(one.levels % problem.stages for one in plan.passes):
        raise IllegalPlan(f"a pass ends in the middle of a step of {problem.stages} stages")
    if budget_bytes is not None and plan.memory_bytes > budget_bytes:
        raise IllegalPlan(f"window of {plan.memory_bytes} bytes exceeds the budget of {budget_bytes} bytes")
    if plan.predicted.memory_bytes != plan.memory_bytes:
        raise IllegalPlan(f"plan claims {plan.predicted.memory_bytes} bytes, its rings take {plan.memory_bytes}")
    proved: set[tuple[int, bool]] = set()
    for number, one in enumerate(plan.passes):
        keeps = plan.sizes.keeps_statics and number > 0
        if (id(one), keeps) in proved:  # most passes of a plan are one and the same
            continue
        proved.add((id(one), keeps))
        if keeps and any(_reads_statics(action) for action in one.actions):
            raise IllegalPlan(f"pass {number} reads again what stays in memory")
        try:
            _validate(problem, one, plan.window, has_statics=keeps)
        except IllegalPlan as error:
            raise IllegalPlan(f"pass {number}, {error}") from None


def validate_pass(problem: Problem, one: Pass, window: Window) -> None:
    """Raise IllegalPlan unless `one`, as the first pass of a plan, brings every cell to the last level and has it on
    disk when it commits."""
    _validate(problem, one, window, has_statics=False)


def validate_one_layer(problem: Problem, one: Pass, window: Window) -> None:
    """Raise IllegalPlan unless `one` brings every cell to the last level inside the window, which holds all planes at
    level 0, and the rim at every level, when it begins."""
    proof = Proof(problem, one, window, has_statics=False)
    proof.fill(0, 0)
    proof.fill(1, 0, only_rim=True)
    perform_all(proof)
    proof.require_final()


def _validate(problem: Problem, one: Pass, window: Window, has_statics: bool) -> None:
    proof = Proof(problem, one, window, has_statics)
    perform_all(proof)
    if not proof.committed:
        raise IllegalPlan("no commit")


def _reads_statics(action: Action) -> bool:
    return isinstance(action, Read) and action.array == "statics"
