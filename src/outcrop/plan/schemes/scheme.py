"""What a scheme offers to the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.memory import Window
from outcrop.plan.plan import Pass, Sizes
from outcrop.plan.problem import Problem


@dataclass(frozen=True)
class Volume:
    """What one pass does, by the formulas of the scheme, which are good enough to rank sizes.

    `exposed_bytes` move before the first update of a block or after its last one; `slabs` is the number of Update
    actions, and `requests` that of transfers of a plane or a part of one.
    """

    bytes_read: float
    bytes_written: float
    cell_updates: float
    exposed_bytes: float
    slabs: int
    requests: float


class Candidates(Protocol):
    """Lists the sizes worth costing, each within the budget and with the sizes given."""

    def __call__(self, problem: Problem, budget_bytes: int, given: GivenSizes = FREE) -> Iterable[Sizes]:
        """Without a tiling for the cache, which is added later."""


class Smallest(Protocol):
    """Says the least memory that any pass with the sizes given can do with."""

    def __call__(self, problem: Problem, given: GivenSizes = FREE) -> Window:
        """The window."""


@dataclass(frozen=True)
class Scheme:
    """A way to tile space-time.

    window           what memory `make_pass` needs: window(problem, levels, sizes)
    make_pass        generates the actions of one pass: make_pass(problem, levels, sizes)
    candidates       lists sizes worth costing
    smallest         the smallest window
    volume           what a pass roughly does: volume(problem, sizes)
    sizes            names of the sizes that users may give
    in_place         source and target may be one array
    checks_all       every byte that comes back from a disk is compared with a checksum; `auto` takes only such schemes
    diamond          the diamond that the user gave; 0: none
    single           it can only do one updated field
    sweeps           it updates level by level, so that there is nothing to tile for the cache
    repeats_updates  blocks also update cells that are not their own
    keeps_statics    it can keep fields that nothing updates in memory where memory does not hold the grid
    """

    name: str
    window: Callable[[Problem, int, Sizes], Window]
    make_pass: Callable[[Problem, int, Sizes], Pass]
    candidates: Candidates
    smallest: Smallest
    volume: Callable[[Problem, Sizes], Volume]
    sizes: tuple[str, ...]
    in_place: bool = True
    checks_all: bool = True
    diamond: int = 0
    single: bool = False
    sweeps: bool = False
    repeats_updates: bool = False
    keeps_statics: bool = False

    def refusal(self, problem: Problem) -> str | None:
        """What the scheme cannot do of the problem, and why; None when it can do all."""
        if problem.in_place and not self.in_place:
            return "run in place: blocks read what others have overwritten"
        if self.single and not problem.single:
            return "run this stencil: it keeps unfinished levels of one field only, updated in one stage"
        return None
