"""What a scheme offers to the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from outcrop.plan.plan import Pass, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.window import Window


@dataclass(frozen=True)
class Volume:
    """What one pass does, by the formulas of the scheme: good enough to rank sizes by.

    `exposed_bytes` are those that have to be moved before the first update of a block, or after its last; `slabs` the
    Update actions.
    """

    bytes_read: float
    bytes_written: float
    cell_updates: float
    exposed_bytes: float
    slabs: int


@dataclass(frozen=True)
class Scheme:
    """`make_pass(problem, levels, sizes)` generates one pass, `window(problem, levels, sizes)` says what memory it
    needs.

    `candidates(problem, budget_bytes)` lists the sizes worth costing, each within the budget; the tiling for the
    cache is added later; `volume(problem, sizes)` is what their passes roughly do. `smallest(problem)` is the least
    memory any pass can do with. `in_place`: whether source and target may be one array. `checks_all`: whether every
    byte that comes back from a disk is compared with a checksum; only such schemes are chosen unasked.
    """

    name: str
    window: Callable[[Problem, int, Sizes], Window]
    make_pass: Callable[[Problem, int, Sizes], Pass]
    candidates: Callable[[Problem, int], Iterable[Sizes]]
    smallest: Callable[[Problem], Window]
    volume: Callable[[Problem, Sizes], Volume]
    in_place: bool = True
    checks_all: bool = True
