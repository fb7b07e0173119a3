"""One step per trip over the grid: what a program without temporal blocking does, kept for comparison.

When the whole grid fits the budget, the one slab is the grid and all steps are done in memory, level by level.
"""

from __future__ import annotations

from collections.abc import Iterable

from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import wavefront
from outcrop.plan.schemes.scheme import Scheme


def candidates(problem: Problem, slots: int) -> Iterable[Sizes]:
    """All steps in one pass in memory if the grid fits twice, else one level per pass in the thickest slabs."""
    if 2 * problem.planes <= slots:
        yield Sizes(problem.steps, wavefront.thickest_slab(problem, problem.steps, slots), diamond=0)
        return
    slab = wavefront.thickest_slab(problem, 1, slots)
    if slab >= 1:
        yield Sizes(1, slab, diamond=0)


SCHEME = Scheme("naive", wavefront.ring_planes, wavefront.make_pass, candidates)
