"""The interface of a scheme to the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from outcrop.plan.memory import Window
from outcrop.plan.plan import Pass, Sizes
from outcrop.plan.problem import Problem


@dataclass(frozen=True)
class Volume:
    """The work of one pass, estimated by the formulas of the scheme. The formulas are exact enough to rank sizes.

    `exposed_bytes` are the bytes that are transferred before the first update of a block or after its last update.
    `slabs` is the number of Update actions. `requests` is the number of transfers. Each of them transfers a plane or a
    part of a plane.
    """

    bytes_read: float
    bytes_written: float
    cell_updates: float
    exposed_bytes: float
    slabs: int
    requests: float


@dataclass(frozen=True)
class Scheme:
    """A method that divides space and time into blocks, slabs and levels.

    `window`            A function of (problem, levels, sizes). It returns the memory that `make_pass` needs.
    `make_pass`         A function of (problem, levels, sizes). It generates the actions of one pass.
    `candidates`        A function of (problem, budget_bytes, given=FREE). It lists sizes that are worth a prediction of
                        their cost. These sizes have no cache tiling yet.
    `smallest`          A function of (problem, given=FREE). It returns the smallest window of any pass.
    `volume`            A function of (problem, sizes). It estimates the work of a pass.
    `sizes`             The names of the sizes that users may give.
    `in_place`          True if the scheme also works when source and target are the same array.
    `checks_all`        True if all bytes that are read from disk have a checksum. `auto` uses only such schemes.
    `diamond`           The diamond that the user gave, or 0.
    `single`            True if the scheme supports only one updated field.
    `sweeps`            True if the scheme updates level by level, so that cache tiles are not useful.
    `repeats_updates`   True if blocks also update cells of other blocks.
    `keeps_statics`     True if the scheme can keep static fields in memory although memory does not hold the whole
                        grid.
    `reads_histories`   True if passes can read the states of another run.
    """

    name: str
    window: Callable[[Problem, int, Sizes], Window]
    make_pass: Callable[[Problem, int, Sizes], Pass]
    candidates: Callable[..., Iterable[Sizes]]
    smallest: Callable[..., Window]
    volume: Callable[[Problem, Sizes], Volume]
    sizes: tuple[str, ...]
    in_place: bool = True
    checks_all: bool = True
    diamond: int = 0
    single: bool = False
    sweeps: bool = False
    repeats_updates: bool = False
    keeps_statics: bool = False
    reads_histories: bool = False

    def refusal(self, problem: Problem) -> str | None:
        """Return the reason why the scheme cannot run the problem, or None if it can."""
        if problem.in_place and not self.in_place:
            return "run in place: blocks read cells that other blocks have overwritten"
        if problem.histories and not self.reads_histories:
            return "read a history: give scheme wavefront or auto"
        if self.single and not problem.single:
            return "run this stencil: it keeps unfinished levels of one field only, updated in one stage"
        return None
