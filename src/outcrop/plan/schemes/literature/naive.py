"""One step per trip over the grid: what a program without temporal blocking does, kept for comparison.

When the whole grid fits the budget, the one slab is the grid and all steps are done in memory, level by level.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.memory import Window, whole_window
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import wavefront
from outcrop.plan.schemes.scheme import Scheme


def candidates(problem: Problem, budget_bytes: int, given: GivenSizes = FREE) -> Iterable[Sizes]:
    """All steps in one pass in memory if the grid fits twice, else one level per pass in the thickest slabs."""
    fits = whole_window(problem).bytes <= budget_bytes
    sizes = Sizes(problem.levels if fits else problem.stages, 1, diamond=0, keeps_statics=fits)
    slab = wavefront.thickest_slab(problem, sizes.levels, sizes, budget_bytes)
    if slab >= 1:
        yield replace(sizes, slab=slab)


def smallest_window(problem: Problem, given: GivenSizes = FREE) -> Window:
    """The window of slabs of one plane; planes are not cut."""
    return wavefront.window(problem, problem.stages, Sizes(problem.stages, 1, diamond=0))


SCHEME = Scheme(
    "naive",
    wavefront.window,
    wavefront.make_pass,
    candidates,
    smallest_window,
    wavefront.volume,
    sizes=(),
    sweeps=True,
)
