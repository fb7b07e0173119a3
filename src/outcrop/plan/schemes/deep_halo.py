"""Deep halos, for a grid that is divided among ranks along y. Before a pass updates a plane, each rank gets rows of
this plane from its neighbours. They are enough for all levels of the pass, so ranks exchange nothing else.

A rank has the rows 0 <= y < ny. A pass of L levels needs H = rL rows beyond each side that has a neighbour. At each
level, the rows at the ends of the halo are out of date, because their neighbours are not in memory. So each level
updates r rows less on each side than the level below it. The last level updates the rank's own rows:

    level L  |         |  own rows  |          At level q, the rank updates the rows
       :     |       / |            | \\            -H + rq <= y < ny + H - rq.
       1     |     /   |            |   \\
       0     |___/_____|____________|_____\\    Level 0 of the halo comes from the neighbours.
                -H     0            ny   ny+H

The rows in both triangles are also updated by the neighbours. For each plane, a rank sends its lowest H rows to its
lower neighbour and its highest H rows to its upper neighbour. The halo includes no rows of other ranks, so H is at most
the number of rows of a neighbour. A rank never updates the fixed rim of a neighbour: level 1 begins r rows above the
lowest row of the halo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from outcrop.plan.actions import EVERY_CELL, FAR, HIGH, LOW, Array, Block, Bound, Read, Rectangle, UpdateRegion, Write
from outcrop.plan.problem import Problem


@dataclass(frozen=True)
class DeepHalo:
    """The rows that a pass of `levels` levels uses from the neighbours of a rank."""

    problem: Problem
    levels: int

    @cached_property
    def rows(self) -> tuple[int, int]:
        """The range of rows that the pass holds in memory: the rank's own rows and its halos."""
        low, high = self.problem.halo(self.levels)
        return -low, self.problem.shape[1] + high

    @cached_property
    def own(self) -> Rectangle:
        """The cells for which the rank computes checksums."""
        return Rectangle(0, self.problem.shape[1], EVERY_CELL.x0, EVERY_CELL.x1)

    @cached_property
    def begin(self) -> Block:
        return Block(self.problem.frame(self.levels), own=self.own)

    @cached_property
    def region(self) -> UpdateRegion:
        """The rows that the pass updates at each level."""
        (low, high), (first, end), radius = self.problem.neighbours, self.rows, self.problem.radius_y
        return UpdateRegion(
            y_low=Bound(first, radius) if low else Bound(-FAR),
            y_high=Bound(end, -radius) if high else Bound(FAR),
        )

    @cached_property
    def faces(self) -> list[tuple[int, Rectangle, Rectangle]]:
        """For each side with a neighbour: the side, the cells that are sent, and the cells that are received."""
        rows, (low, high) = self.problem.shape[1], self.problem.halo(self.levels)
        each = [(LOW, low, (0, low), (-low, 0)), (HIGH, high, (rows - high, rows), (rows, rows + high))]
        return [(side, self._cells(*sent), self._cells(*received)) for side, count, sent, received in each if count]

    def exchanges(self, z0: int, z1: int, array: Array) -> Iterator[Read | Write]:
        """Yield the actions that exchange rows of planes z0 <= z < z1, which a Read has just read. `array` is `faces`
        or `static_faces`. All sends come before the first receive, so neighbours never wait for each other."""
        yield from (Write(z0, z1, side, sent, array) for side, sent, _ in self.faces)
        yield from (Read(z0, z1, received, array, side) for side, _, received in self.faces)

    def _cells(self, y0: int, y1: int) -> Rectangle:
        return Rectangle(y0, y1, 0, self.problem.pitch_cells)
