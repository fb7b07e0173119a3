"""What a scheme offers to the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.plan import Pass, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.window import Window


@dataclass(frozen=True)
class Volume:
    """What one pass does, by the formulas of the scheme: good enough to rank sizes by.

    `exposed_bytes` are those that have to be moved before the first update of a block, or after its last; `slabs` the
    Update actions; `requests` the transfers of a plane or a part of one.
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
    """`make_pass(problem, levels, sizes)` generates one pass, `window(problem, levels, sizes)` says what memory it
    needs.

    `volume(problem, sizes)` is what their passes roughly do. `sizes` are the names of those that users may give, and
    `diamond` the one they gave (0: none). `in_place`: whether source and target may be one array. `checks_all`: whether
    every byte that comes back from a disk is compared with a checksum; only such schemes are chosen unasked. `single`:
    whether it can do no more than one updated field. `repeats_updates`: whether blocks update cells that are not their
    own, too. `keeps_statics`: whether it can keep fields that nothing updates in memory where the grid has no room.
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
    repeats_updates: bool = False
    keeps_statics: bool = False

    def refusal(self, problem: Problem) -> str | None:
        """What of the problem the scheme cannot do, and why; None when it can do it."""
        if problem.in_place and not self.in_place:
            return "run in place: blocks read what others have overwritten"
        if self.single and not problem.is_single:
            return "run this stencil: it keeps unfinished levels of one field only, updated in one stage"
        return None
