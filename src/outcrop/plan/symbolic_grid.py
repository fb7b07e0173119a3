"""What a symbolic run knows of the grid: which cells are rim, and where the values of neighbours are."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outcrop.plan.problem import Problem

Levels = NDArray[np.int16]
NOTHING = -9
RIM = 9999
"""A cell of the rim, which is right at every level."""


class IllegalPlan(AssertionError):
    """A plan that would compute something else than it should: a bug in a scheme, never the user's fault."""


def require(condition: bool, message: str) -> None:
    """Raise IllegalPlan unless it holds."""
    if not condition:
        raise IllegalPlan(message)


class SymbolicGrid:
    """Planes are counted by position, as in plans."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @cached_property
    def rim(self) -> Levels:
        """The whole grid, padding included: RIM or NOTHING."""
        problem = self.problem
        nz, ny, nx = problem.shape
        cells = np.full((nz, ny, problem.pitch_cells), RIM, np.int16)
        low, high = (
            radius if side == "fixed" else 0
            for radius, side in zip((problem.radii[2],) * 2, problem.sides[2], strict=True)
        )
        columns = slice(min(low, nx), max(min(low, nx), nx - high))
        cells[problem.first_plane : problem.end_plane, problem.first_row : problem.end_row, columns] = NOTHING
        return cells

    @cached_property
    def source(self) -> Levels:
        """What the newest values on disk are when a pass begins."""
        return np.where(self.rim == RIM, RIM, 0).astype(np.int16)

    def planes_around(self, position: int) -> list[int]:
        """Positions of the planes that an update at `position` may read."""
        count, is_periodic = self.problem.planes, self.problem.periodic[0]
        z = _unfold(position, count) if is_periodic else position
        seen = (
            _seen(z + step, count, is_periodic) for step in range(-self.problem.radius_z, self.problem.radius_z + 1)
        )
        return sorted({_fold(one, count) if is_periodic else one for one in seen})

    def rows_around(self, y0: int, y1: int) -> NDArray[np.intp]:
        """Rows that an update of rows y0 <= y < y1 may read."""
        reach = self.problem.radius_y
        return self._seen_from(y0 - reach, y1 + reach, self.problem.shape[1], self.problem.periodic[1])

    def columns_around(self, x0: int, x1: int) -> NDArray[np.intp]:
        """Cells of a row that an update of cells x0 <= x < x1 may read, padding left out."""
        reach, nx = self.problem.radii[2], self.problem.shape[2]
        if self.problem.sides[2] == ("fixed", "fixed"):
            return np.arange(max(0, x0 - reach), min(self.problem.pitch_cells, x1 + reach))
        return self._seen_from(x0 - reach, min(x1, nx) + reach, nx, self.problem.periodic[2])

    def _seen_from(self, first: int, end: int, extent: int, is_periodic: bool) -> NDArray[np.intp]:
        return np.unique([_seen(place, extent, is_periodic) for place in range(first, end)]).astype(np.intp)


def _seen(place: int, extent: int, is_periodic: bool) -> int:
    """The cell whose value a place beyond the grid has."""
    if is_periodic:
        return place % extent
    folded = place % (2 * extent)
    return folded if folded < extent else 2 * extent - 1 - folded


def _fold(place: int, count: int) -> int:
    return 2 * place if place < (count + 1) // 2 else 2 * (count - 1 - place) + 1


def _unfold(position: int, count: int) -> int:
    return position // 2 if position % 2 == 0 else count - 1 - position // 2
