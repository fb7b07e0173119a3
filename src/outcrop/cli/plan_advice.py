"""Advice below a plan: the same grid with its longest axis streamed, where that saves much of the time.

A level keeps some planes in memory, whatever their size. The longer the streamed axis, the smaller planes are, the more
levels the memory holds, and the fewer passes read and write the grid. By how much, only planning tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from outcrop.plan.machine import edge_factor
from outcrop.plan.planner import make_plan, schemes_for
from outcrop.plan.tuner import estimate
from outcrop.run.disk.layout import make_layout
from outcrop.units import format_seconds

if TYPE_CHECKING:
    from outcrop.plan.planner import Planned
    from outcrop.plan.problem import Problem

WAITING = 1.2
"""A plan that takes so many times as long as its updates waits for the disk; only then another order is tried."""
WORTH_SAYING = 0.8
"""The part of the time that another order takes at most, where it is told."""


def advice(planned: Planned) -> str:
    """One line about a faster order of the axes, or "" where there is none to speak of; nothing is measured for it."""
    problem, plan, guess = planned.problem, planned.plan, planned.plan.predicted
    is_waiting = guess.seconds > WAITING * guess.seconds_update > 0
    if planned.given or not is_waiting or problem.ndim == 1 or max(problem.shape) == problem.planes:
        return ""
    # The plan's own update rate, but for what edges of slabs and blocks cost.
    most = problem.cells * problem.levels / guess.seconds_update * edge_factor(problem, plan.sizes)

    def roughly(one: Problem) -> float:
        schemes = schemes_for(one, plan.scheme)
        return estimate(one, schemes, planned.machine, planned.budget_bytes, most)

    seconds, best = min(((roughly(one), one) for one in _reordered(problem)), key=lambda pair: pair[0])
    if not seconds < WORTH_SAYING * roughly(problem):  # both may be infinite
        return ""
    other = make_plan(
        best, planned.machine, planned.budget_bytes, plan.scheme, lambda sizes: most / edge_factor(best, sizes)
    )
    if other.predicted.seconds > WORTH_SAYING * guess.seconds:
        return ""
    size, time = " x ".join(map(str, best.own_shape[::-1])), format_seconds(other.predicted.seconds)
    return f"the last axis is the one streamed: as {size} the same would take about {time}"


def _reordered(problem: Problem) -> Iterator[Problem]:
    """The problem with the longest axis first, and the others in any order; of grids of two axes both changed over."""
    own = [place for place in range(3) if problem.ndim == 3 or place != 1]
    for order in permutations(own):
        z, y, x = order if problem.ndim == 3 else (order[0], 1, order[-1])
        if problem.shape[z] < max(problem.shape):
            continue
        layout = make_layout((problem.shape[z], problem.shape[y], problem.shape[x]), problem.dtype)
        yield replace(
            problem,
            radii=(problem.radii[z], problem.radii[y], problem.radii[x]),
            sides=(problem.sides[z], problem.sides[y], problem.sides[x]),
            shape=layout.shape,
            pitch_bytes=layout.pitch_bytes,
            plane_bytes=layout.plane_bytes,
            record_bytes=layout.record_bytes,
        )
