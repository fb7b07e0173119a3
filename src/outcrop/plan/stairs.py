"""This module computes which rows a rank needs from its upper neighbour for split tiling (schemes/split_tiling.py).

A version of a field consists of the values that one level has written. Version 0 consists of the values at the
beginning of a pass. The cut is the boundary between the rows of a rank and the rows of its lower neighbour. Level q of
the rank updates the rows from rq on, where r is the radius of the stencil. So in a drawing of rows and levels, the edge
of the updated rows above the cut forms stairs. The lower neighbour updates the rows below the stairs:

    level 3   . . . . . . 3 3 3 3          The rows that hold version p begin at rp. They end where a later level
    level 2   . . . . 2 2 3 3 3 3          overwrites the copy that holds this version: at r(p+2) for a field with
    level 1   . . 1 1 2 2 3 3 3 3          two copies that each level writes.
    level 0   0 0 1 1 2 2 3 3 3 3
              0   r   2r  3r               (rows above the cut)

At level q, the lower neighbour reads rows below r(q+1). Let level p write version p of a field. Let n be the next level
that writes the field, and let m be the next level after n that writes the field. The levels p+1 to n read version p. If
updates use the previous values of the field, the levels n+1 to m also read version p. So the neighbour needs the
following rows of version p:

    one copy                        rp <= y < rn       level n reads only the cells that it overwrites
    two copies                      rp <= y < r(n+1)
    two copies, previous values     rp <= y < rm

No level of the rank overwrites the rows that the neighbour needs. In a pass of L levels, the neighbour needs only rows
below r(L+1).
"""

from __future__ import annotations

from functools import cached_property
from itertools import count

from outcrop.plan.problem import Problem


class Stairs:
    """Computes the stairs of a pass of `levels` levels. Rows are counted from the cut between the two ranks."""

    def __init__(self, problem: Problem, levels: int) -> None:
        self._problem, self._levels, self._radius = problem, levels, problem.radius_y
        self._ends: dict[tuple[int, int], int] = {}
        # the fields whose previous values are still needed after the next update
        self._kept = {operand.field for stage in problem.updates for operand in stage.reads if operand.age}
        self._kept |= {number for number, one in enumerate(problem.fields) if one.has_previous}

    def fields(self, level: int) -> tuple[int, ...]:
        """Return the fields whose rows are sent at a level. At level 0, the rows of all fields that a stage updates are
        sent. At a higher level, the rows of the fields that the level has written are sent."""
        problem = self._problem
        if level == 0:
            return tuple(number for number, one in enumerate(problem.fields) if one.is_state)
        return problem.updates[(level - 1) % len(problem.updates)].targets

    def rows(self, level: int) -> tuple[int, int]:
        """Return the range of rows that are sent at a level. For each field whose rows are sent, the range includes all
        rows that the neighbour needs."""
        return self._radius * level, max(self.end(field, level) for field in self.fields(level))

    def end(self, field: int, level: int) -> int:
        """Return the end of the range of rows of a field that the neighbour needs with the values that `level` has
        written."""
        if (field, level) not in self._ends:
            one, radius, levels = self._problem.fields[field], self._radius, self._levels
            following, after = self._next_writes(field, level)
            end = following if not one.is_double else after if field in self._kept else following + 1
            self._ends[field, level] = radius * min(end, levels + 1)
        return self._ends[field, level]

    @cached_property
    def rim_rows(self) -> tuple[int, int]:
        """The range of rows that are sent for planes of the rim in z. No level updates planes of the rim, so all levels
        read the same values."""
        return 0, self._radius * (self._levels + 1)

    @cached_property
    def finished_rows(self) -> tuple[int, int]:
        """The range of rows above the cut that the lower neighbour updates at the last level."""
        return 0, self._radius * self._levels

    def planes(self, level: int, zeta0: int, zeta1: int) -> tuple[int, int]:
        """Return the range of planes that a level updates in the slab zeta0 <= zeta < zeta1. The level is at least 1.
        The range may be empty."""
        problem, back = self._problem, self._problem.skew_z * (level - 1)
        return max(problem.first_plane, zeta0 - back), min(problem.end_plane, zeta1 - back)

    def _next_writes(self, field: int, level: int) -> tuple[int, int]:
        """Return the next two levels after `level` that write a field. The two levels can lie after the last level of
        the pass."""
        updates = self._problem.updates
        writes = (one for one in count(level + 1) if field in updates[(one - 1) % len(updates)].targets)
        return next(writes), next(writes)
