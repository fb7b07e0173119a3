"""Prove a plan legal without touching data.

A symbolic run (symbolic_run.py): every cell of the rings and of the arrays on disk is represented by the level that
wrote it. Actions take effect at once and in order, which is stricter than the executor (a transfer that is still under
way counts as done), so what passes here cannot race there: transfers of one slot wait for each other, and nothing
else touches it.
"""

from __future__ import annotations

import numpy as np

from outcrop.plan.actions import Action, Read
from outcrop.plan.plan import Pass, Plan
from outcrop.plan.problem import Problem
from outcrop.plan.symbolic_grid import NOTHING, RIM, IllegalPlan
from outcrop.plan.symbolic_run import SymbolicRun
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
    for number, one in enumerate(plan.passes):
        if one in plan.passes[:number] and number > 1:
            continue
        is_first = number == 0
        keeps = plan.sizes.keeps_statics and not is_first
        if keeps and any(_reads_statics(action) for action in one.actions):
            raise IllegalPlan(f"pass {number} reads again what stays in memory")
        _validate(problem, one, plan.window, has_statics=keeps)


def validate_pass(problem: Problem, one: Pass, window: Window) -> None:
    """Raise IllegalPlan unless `one`, as the first pass of a plan, brings every cell to the last level and has it on
    disk when it commits."""
    _validate(problem, one, window, has_statics=False)


def _validate(problem: Problem, one: Pass, window: Window, has_statics: bool) -> None:
    run = SymbolicRun(problem, one, window, has_statics)
    run.perform_all(one.actions)
    if not run.committed:
        raise IllegalPlan("no commit")


def validate_one_layer(problem: Problem, one: Pass, window: Window) -> None:
    """Raise IllegalPlan unless `one` brings every cell to the last level inside the window, which holds all planes at
    level 0, and the rim at every level, when it begins."""
    run = SymbolicRun(problem, one, window, has_statics=False)
    for z, plane in enumerate(run.grid.source):
        run.fill(0, z, plane)
        run.fill(1, z, np.where(plane == RIM, RIM, NOTHING))
    run.perform_all(one.actions)
    for z in range(problem.planes):
        run.require_final(z)


def _reads_statics(action: Action) -> bool:
    return isinstance(action, Read) and action.array == "statics"
