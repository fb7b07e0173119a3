"""This module has a part of the proof of a plan (validate.py): the rows that a rank exchanges with its neighbours.

Each rank has its own proof. It assumes that each received row has the level that the action names, and checks that each
sent row has the level that the action names. The module ranks.py proves that a rank receives the rows that its
neighbour sends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outcrop.plan.actions import HIGH, LOW, Read, Write, side_of
from outcrop.plan.contents import BEFORE, CellLevels, PlaneSpan, Runs, require
from outcrop.plan.stairs import Stairs

if TYPE_CHECKING:
    from outcrop.plan.validate import Proof


class ExchangeProof:
    """Proves the exchanges of rows in a pass. `proof` is the proof of this pass."""

    def __init__(self, proof: Proof) -> None:
        self._proof, self._stairs = proof, Stairs(proof.problem, proof.levels)
        self._received: dict[int, Runs[CellLevels]] = {}

    def receive(self, action: Read, span: PlaneSpan) -> None:
        """Put the received rows `span` into the rings. The neighbour need not send all rows at the level of the action.
        The proof marks rows that may have another level as empty, so that no later action may use them. Raises
        IllegalPlan if the action is not possible."""
        self._require_possible(action)
        nothing = self._proof.no_cells
        for ring, level, valid in self._exchanged(action, span):
            for z0, z1, cells in self._of_neighbours(level).over(action.z0, action.z1):
                if valid != span:
                    self._proof.place(ring, z0, z1, [span], nothing)
                self._proof.place(ring, z0, z1, [valid], cells)

    def send(self, action: Write, span: PlaneSpan) -> None:
        """Raise IllegalPlan unless the window holds the rows `span` at the level that the neighbour expects."""
        self._require_possible(action)
        for ring, level, valid in self._exchanged(action, span):
            for z, _, cells in self._proof.there(ring, action.z0, action.z1):
                words = "they were read" if level <= 0 else f"level {level} wrote them"
                require(cells.holds((valid,), level), f"rows of plane {z} in ring {ring} are not as {words}")

    def _require_possible(self, action: Read | Write) -> None:
        """Raise IllegalPlan unless a rank can exchange the cells of an action with a neighbour."""
        proof, problem, array = self._proof, self._proof.problem, action.array
        area, ny, side = action.area, problem.shape[1], side_of(action)
        require(side in (LOW, HIGH) and problem.neighbours[side], "no neighbour at this side")
        require((area.x0, area.x1) == (0, problem.pitch_cells), "a part of a row")
        # finished rows are sent to the rank that owns them; all other rows are sent by the rank that owns them
        if isinstance(action, Write) != (array == "finished"):
            first, end = 0, ny
        else:
            first, end = (-problem.max_halo, 0) if side == LOW else (ny, ny + problem.max_halo)
        require(first <= area.y0 < area.y1 <= end, f"rows that are not in {first} .. {end - 1}")
        require(array != "stairs" or 0 <= action.level < proof.levels, "stairs of a level that the pass does not have")
        require(array != "finished" or action.level == proof.levels, "finished rows that are not at the last level")
        if array == "finished" or (array == "stairs" and action.level > 0):
            is_inside = problem.first_plane <= action.z0 and action.z1 <= problem.end_plane and problem.has_updates
            require(is_inside, "updated rows of planes that no level updates")

    def _exchanged(self, action: Read | Write, span: PlaneSpan) -> Iterator[tuple[int, int, PlaneSpan]]:
        """Yield three values for each array whose rows are exchanged: the ring of the array, the level of the rows, and
        the part of the rows that must have this level."""
        proof, uses = self._proof, self._proof.uses
        if action.array == "static_faces":
            yield from ((field, 0, span) for field in proof.statics)
        elif action.array == "finished":
            yield from ((*uses.final(*entry), span) for entry in proof.state)
        elif action.array == "faces" or action.level == 0:
            yield from ((uses.ring(field, age), BEFORE if age else 0, span) for field, age in proof.state)
        else:
            cut = 0 if isinstance(action, Write) else proof.problem.shape[1]
            targets = uses.of(action.level)[0].targets
            for field, (_, ring) in zip(self._stairs.fields(action.level), targets, strict=True):
                end = proof.parts.rows[cut + self._stairs.end(field, action.level)]
                yield ring, action.level, (span[0], max(span[0], min(span[1], end)), *span[2:])

    def _of_neighbours(self, level: int) -> Runs[CellLevels]:
        """Return the contents of an array of the neighbours at a level. Rows of a neighbour have the level RIM only if
        their whole plane belongs to the rim. A pass does not use other rim rows of a neighbour after level 0."""
        if level not in self._received:
            problem, parts, runs = self._proof.problem, self._proof.parts, Runs(self._proof.wide_rim)
            low, high = (problem.radii[2] if side == "fixed" else 0 for side in problem.sides[2])
            nx, columns = problem.shape[2], parts.columns
            first = min(low, nx)
            inner = *parts.all_rows[:2], columns[first], columns[max(first, nx - high)]
            runs.put(problem.first_plane, problem.end_plane, self._proof.wide_rim.filled(inner, level))
            self._received[level] = runs
        return self._received[level]
