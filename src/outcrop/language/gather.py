"""Compute the sums over neighbours in the adjoint of a stage.

In a forward stage, cell z reads the value of cell z + o. So the value of cell y is read by the cells y - o. In the
adjoint, cell y gathers the contributions of these cells:

    result(y) = carried(y) + sum of  coefficient * core(y - o)

Here carried(y) is a part of the result that needs only values of cell y. A core is the part of a contribution that
depends on the cell (derivative.py). A core with few operations is computed again for each cell that gathers it. Other
cores are computed once, in an additional stage, which stores them in a field w:

    core reads only adjoints and static fields at its own cell, few operations,    computed at y - o
    and does not depend on the position of the cell
    other cores, o is 0                                                            computed at y
    other cores                                                                    w(z) = core(z), then w(y - o)

On a mirrored axis, cell -1-k beyond the side has the value of cell k. Near this side, the adjoint gathers with
reflected offsets:

    y - o inside:    coefficient of o                      y - o outside:   coefficient of o', at the mirror of y - o
    (o' is o with the sign of this axis changed)

In an even difference operator, o and o' have equal coefficients. In this case the adjoint reads the core at y - o with
a mirrored boundary. If the coefficients differ, a static field (`edge_z` for the z axis) decides which of the two
coefficients a cell uses. The values of this field encode the distance of each cell from the sides (`edge_values`).
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
from outcrop.language.program import CellIndex, Constant, Load, Program, Stage

MAX_REPEATED = 4
"""The maximum number of operations of a core that is computed again at each neighbour."""


def edge_values(extent: int, radius: int) -> list[int]:
    """Return the values of an edge field along its axis, for a stencil of radius r. Cell k of the first r cells has the
    value r - k. The last r cells have negative values: if k cells follow a cell, its value is -(r - k). All other cells
    have the value 0. Raises InputError for an axis with fewer than 2 r cells."""
    if extent < 2 * radius:
        raise InputError(f"a mirrored axis has {extent} cells; the adjoint of this stencil needs {2 * radius} or more")
    return [max(0, radius - k) - max(0, radius - (extent - 1 - k)) for k in range(extent)]


@dataclass(frozen=True)
class Term:
    """The contribution of a load at `offset`: the product of a coefficient and a core. `coefficient` and `core` are
    positions on the tape of the stage. The coefficient is the same for all cells."""

    offset: Offset
    coefficient: int
    core: int


class Gather:
    """Appends sums of terms to a new tape. `cells` is the tape of the terms. `may_repeat(load)` is true if a core with
    this load may be computed again at neighbours. The names of stored cores begin with `name`. `edges` maps the number
    of each edge field to its axis."""

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
        """Return a list with the stage that stores cores. The list is empty if no core is stored."""
        if not self._stored:
            return []
        return [Stage(tuple(self._stored.values()), self._cells.program(list(self._stored)))]

    def sum(self, terms: Sequence[Term], carried: Sequence[int] = ()) -> int:
        """Append the sum of all terms, and of the values at the positions `carried` of the new tape. Return the
        position of the sum. Terms with the same coefficient are added to each other first. Terms of near neighbours
        come before terms of far neighbours."""
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
        has_index = any(isinstance(one, CellIndex) for one in program.operations)
        is_short = operations <= MAX_REPEATED and not has_index
        return is_short and all(load.offset == HERE and may_repeat(load) for load in program.loads)

    def _core(self, core: int, away: Offset) -> int:
        """Append the operations that compute the core at the distance `away` from the gathering cell. Return the
        position of the core."""
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
        """Return the offsets whose coefficient can differ from 0. These are the offsets in the table, and their
        reflections along mirrored axes."""
        found: dict[Offset, None] = {}
        for offset in table:
            for flips in product((False, True), repeat=len(self._mirrored)):
                axes = [axis for axis, flip in zip(self._mirrored, flips, strict=True) if flip]
                found[_reflected(offset, axes)] = None
        return list(found)

    def _coefficient(self, table: Mapping[Offset, int], offset: Offset, axes: Sequence[int]) -> int:
        """Append the coefficient that multiplies the core of a neighbour, and return the position of this coefficient.
        The neighbour is at the distance `-offset` from the gathering cell. `axes` contains the mirrored axes along
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
        # The cell y - offset is outside the grid if fewer than |offset| cells lie between cell y and the side.
        number = self._fields.new(f"edge_{NAMES[3][axis]}")
        self.edges[number] = axis
        edge, beyond = self.tape.append(Load(number, HERE)), float(self._radii[axis] - distance)
        if is_low:
            return self.tape.where(edge, self.tape.append(Constant(beyond)), outside, inside)
        return self.tape.where(self.tape.append(Constant(-beyond)), edge, outside, inside)


def _reflected(offset: Offset, axes: Sequence[int]) -> Offset:
    z, y, x = (-step if axis in axes else step for axis, step in enumerate(offset))
    return z, y, x


def _distance(member: tuple[Offset, int]) -> tuple[object, ...]:
    offset, core = member
    return sum(map(abs, offset)), tuple(abs(step) for step in offset), offset, core
