"""Sums over neighbours in the adjoint of a stage.

A forward stage reads load number l at z + o. In the adjoint, cell y gathers from the cells y - o that have read it:

    result(y) = carried(y) + sum of  coefficient * core(y - o)

A core that is cheap is computed again at each neighbour. Other cores are stored in a field by a stage before:

    core reads only adjoints and static fields at its own cell, few operations     computed at y - o
    other cores, o is 0                                                            computed at y
    other cores                                                                    w(z) = core(z), then w(y - o)

On a mirrored axis, cell -1-k beyond the side has the value of cell k. There the adjoint gathers with reflected offsets:

    y - o inside:    coefficient of o                      y - o outside:   coefficient of o', at the mirror of y - o
    (o' is o with the sign of this axis changed)

This equals a mirrored load if o and o' have equal coefficients, as in an even difference operator. Otherwise, a static
field chooses between the two coefficients: `edge_z` for the z axis counts the cells to the sides (`edge_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from outcrop.axes import NAMES
from outcrop.errors import InputError
from outcrop.language.boundary import Boundary
from outcrop.language.derivative import ZERO, Tape
from outcrop.language.linearised import HERE, Fields, Offset
from outcrop.language.program import Constant, Load, Program, Stage

MAX_REPEATED = 4
"""The maximum number of operations of a core that is computed again at each neighbour."""


def edge_values(extent: int, radius: int) -> list[int]:
    """Return the values of an edge field along its axis: r - k in cell k of the first r cells, -(r - k) in the cell
    that has k cells behind it, and 0 elsewhere. Raises InputError for an axis with fewer than 2 r cells."""
    if extent < 2 * radius:
        raise InputError(f"a mirrored axis has {extent} cells; the adjoint of this stencil needs {2 * radius} or more")
    return [max(0, radius - k) - max(0, radius - (extent - 1 - k)) for k in range(extent)]


@dataclass(frozen=True)
class Term:
    """A term that a load at `offset` adds: coefficient times core. Both are positions on the tape of the stage. The
    coefficient is the same for all cells."""

    offset: Offset
    coefficient: int
    core: int


class Gather:
    """Appends sums of terms to a new tape. `cells` is the tape of the terms. `may_repeat(load)` says whether a core
    with this load may be computed again at neighbours. `name` begins the names of stored cores. `edges` collects the
    edge fields: their numbers, each with its axis."""

    def __init__(
        self,
        fields: Fields,
        cells: Tape,
        terms: Sequence[Term],
        may_repeat: Callable[[Load], bool],
        name: str,
        boundary: Boundary,
        radii: tuple[int, int, int],
    ) -> None:
        self.tape, self.edges = Tape(), dict[int, int]()
        self._fields, self._cells, self._boundary, self._radii = fields, cells, boundary, radii
        cores = dict.fromkeys(term.core for term in terms if term.offset != HERE)
        stored = [core for core in cores if not self._is_repeated(core, may_repeat)]
        self._stored = {core: fields.new(f"{name}_w{place}") for place, core in enumerate(stored)}

    def stored_stage(self) -> list[Stage]:
        """Return the stage that stores cores, or no stage."""
        if not self._stored:
            return []
        return [Stage(tuple(self._stored.values()), self._cells.program(list(self._stored)))]

    def sum(self, terms: Sequence[Term], carried: Sequence[int] = ()) -> int:
        """Append the sum of `carried`, which are positions on the new tape, and of all terms. Terms with the same
        coefficient are added first, the nearest terms first."""
        tables: dict[int, dict[Offset, int]] = {}
        for term in terms:
            table = tables.setdefault(term.core, {})
            table[term.offset] = self._cells.add(table.get(term.offset, ZERO), term.coefficient)
        groups: dict[int, list[tuple[Offset, int]]] = {}
        for core, table in tables.items():
            for offset in self._reachable(table):
                axes = [axis for axis in self._mirrored if offset[axis]]
                coefficient = self._coefficient(table, offset, axes)
                if coefficient != ZERO:
                    away = _reflected(offset, (0, 1, 2))
                    groups.setdefault(coefficient, []).append((away, core))
        places = list(carried)
        for coefficient, members in sorted(groups.items(), key=lambda item: min(map(_distance, item[1]))):
            cores = [self._core(core, away) for away, core in sorted(members, key=_distance)]
            places.append(self.tape.multiply(coefficient, self.tape.sum(cores)))
        return self.tape.sum(places)

    def _is_repeated(self, core: int, may_repeat: Callable[[Load], bool]) -> bool:
        program = self._cells.program([core])
        operations = sum(not uniform for uniform in program.uniform)
        return operations <= MAX_REPEATED and all(load.offset == HERE and may_repeat(load) for load in program.loads)

    def _core(self, core: int, away: Offset) -> int:
        """Append the core at the distance `away` from the gathering cell."""
        if core in self._stored and away != HERE:
            return self.tape.append(Load(self._stored[core], away))

        def shifted(load: Load) -> int:
            z, y, x = (a + b for a, b in zip(load.offset, away, strict=True))
            return self.tape.append(Load(load.field, (z, y, x), load.age))

        return self._copied(core, shifted)

    def _copied(self, place: int, load: Callable[[Load], int]) -> int:
        return self.tape.copy(Program(tuple(self._cells.operations), ()), load, [place])[place]

    @property
    def _mirrored(self) -> list[int]:
        return [axis for axis, sides in enumerate(self._boundary.sides) if "mirror" in sides]

    def _reachable(self, table: Mapping[Offset, int]) -> list[Offset]:
        """Return the offsets whose coefficient differs from 0 in some cell: those of the table, and their reflections
        on mirrored axes."""
        found: dict[Offset, None] = {}
        for offset in table:
            for flips in product((False, True), repeat=len(self._mirrored)):
                axes = [axis for axis, flip in zip(self._mirrored, flips, strict=True) if flip]
                found[_reflected(offset, axes)] = None
        return list(found)

    def _coefficient(self, table: Mapping[Offset, int], offset: Offset, axes: Sequence[int]) -> int:
        """Append the coefficient of the core at -offset from the gathering cell. `axes` are the mirrored axes along
        which the offset is not 0."""
        if not axes:
            place = table.get(offset, ZERO)
            return ZERO if place == ZERO else self._copied(place, self.tape.append)
        axis, *rest = axes
        inside = self._coefficient(table, offset, rest)
        outside = self._coefficient(table, _reflected(offset, [axis]), rest)
        low, high = self._boundary.sides[axis]
        is_low, distance = offset[axis] > 0, abs(offset[axis])
        if inside == outside or (low if is_low else high) != "mirror":
            return inside
        # y - offset lies beyond the side if fewer than |offset| cells are between y and the side.
        number = self._fields.new(f"edge_{NAMES[3][axis]}")
        self.edges[number] = axis
        edge, beyond = self.tape.append(Load(number, HERE)), float(self._radii[axis] - distance)
        if is_low:
            return self.tape.where(edge, self.tape.append(Constant(beyond)), outside, inside)
        return self.tape.where(self.tape.append(Constant(-beyond)), edge, outside, inside)


def _reflected(offset: Offset, axes: Sequence[int]) -> Offset:
    """Return the offset with the sign changed along `axes`."""
    z, y, x = (-step if axis in axes else step for axis, step in enumerate(offset))
    return z, y, x


def _distance(member: tuple[Offset, int]) -> tuple[object, ...]:
    offset, core = member
    return sum(map(abs, offset)), tuple(abs(step) for step in offset), offset, core
