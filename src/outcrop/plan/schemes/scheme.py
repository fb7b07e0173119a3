"""What a scheme offers to the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from outcrop.plan.plan import Pass, Sizes
from outcrop.plan.problem import Problem


@dataclass(frozen=True)
class Scheme:
    """`make_pass(problem, levels, sizes)` generates one pass, `ring_planes(problem, levels, slab)` says what
    memory it needs.

    `candidates(problem, slots)` lists the sizes worth costing when the window may have `slots` planes in all.
    """

    name: str
    ring_planes: Callable[[Problem, int, int], tuple[int, int]]
    make_pass: Callable[[Problem, int, Sizes], Pass]
    candidates: Callable[[Problem, int], Iterable[Sizes]]
