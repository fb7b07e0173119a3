"""Derive the adjoint of a stencil. The adjoint is also a stencil.

A program computes a number, such as a misfit, from a run. The adjoint of a field u is the derivative of the computed
number with respect to u. One step of the adjoint reverses one step of the stencil. The adjoint treats the stages of the
stencil in reverse order. A stage updates the fields u_i from loads of the fields u_j. If a_i is the adjoint of u_i
after the stage, the adjoint of u_j before the stage is:

    adjoint of u_j before the stage at y  =  [j is not updated] a_j(y)  +  sum over i, o of  D(y - o) a_i(y - o)

In this formula, the bracket is 0 if the stage updates u_j, and otherwise 1. D(z) is the derivative of the update of u_i
in cell z with respect to the load of u_j in cell z + o. `Gather` computes the sum in this formula for cells inside the
grid and for cells at a boundary. In the fixed rim, all adjoints stay 0, because no step changes the rim. The adjoint
does not contain derivatives with respect to values of the rim.

If steps need u.previous, the previous value of u, then u.previous is also a part of the state. The adjoint of the
previous value is stored in a separate field. In wave equations, the adjoint of u.previous is the product of a factor
and the adjoint of u one step later. This factor depends only on parameters, and on static fields in the same cell. For
such equations, the adjoint stencil needs no separate field, because it reads the previous value of the adjoint of u.

The gradient with respect to a static field is a sum of terms D(y - o) a_i(y - o). This sum is over all loads of the
static field and over all steps, beginning with the last step. The gradient with respect to a parameter is stored as one
contribution for each cell. Therefore the bits of this gradient do not depend on the order in which a plan updates the
cells.

`Gather` computes the sums over neighbours in the adjoint of a stage. In a forward stage, cell z reads the value of cell
z + o. So the cells y - o read the value of cell y. In the adjoint, cell y gathers the contributions of the cells y - o:

    result(y) = carried(y) + sum of  coefficient * core(y - o)

In this formula, carried(y) is the part of the result that needs only values of cell y. A core is the part of a
contribution that depends on the cell (derivative.py). A core with few operations is not stored, but computed again for
each cell that needs the core. Other cores are computed once, in an additional stage, which stores the cores in a field
w:

    core reads only adjoints and static fields at its own cell, few operations,    computed at y - o
    and does not depend on the position of the cell
    other cores, o is 0                                                            computed at y
    other cores                                                                    w(z) = core(z), then w(y - o)

On a mirrored axis, cell -1-k beyond the side has the value of cell k. Near a mirrored side, the adjoint gathers with
reflected offsets:

    y - o inside:    coefficient of o                      y - o outside:   coefficient of o', at the mirror of y - o
    (o' is o with the sign of this axis changed)

In an even difference operator, o and o' have equal coefficients. For equal coefficients, the adjoint reads the core at
y - o with a mirrored boundary. If the coefficients of o and o' differ, a static field, the edge field (`edge_z` for the
z axis), decides which coefficient a cell uses. The values of an edge field encode the distance of each cell from the
sides (`edge_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from outcrop.axes import NAMES
from outcrop.errors import InputError
from outcrop.language.boundary import FIXED, Boundary
from outcrop.language.derivative import ZERO, Product, Tape, adjoint
from outcrop.language.linearised import HERE, Fields, Offset, Version, assemble, fields_read, updates_before
from outcrop.language.program import Apply, CellCount, CellIndex, Constant, Load, Program, Scalar, Stage
from outcrop.language.stencil import PREVIOUS, Stencil

MAX_REPEATED = 4
"""The maximum number of operations of a core that is computed again at each neighbour."""


def edge_values(extent: int, radius: int) -> list[int]:
    """Return the values of an edge field along its axis, for a stencil of radius r. Cell k of the first r cells has the
    value r - k. The last r cells have negative values: a cell that is followed by k cells has the value -(r - k). All
    other cells of the edge field have the value 0. Raises InputError if the axis has fewer than 2 r cells."""
    if extent < 2 * radius:
        raise InputError(f"a mirrored axis has {extent} cells; the adjoint of this stencil needs {2 * radius} or more")
    return [max(0, radius - k) - max(0, radius - (extent - 1 - k)) for k in range(extent)]


@dataclass(frozen=True)
class Term:
    """The contribution of a load at `offset`: the product of a coefficient and a core. `coefficient` and `core` are
    positions on the tape of the stage. The coefficient of a term is the same for all cells."""

    offset: Offset
    coefficient: int
    core: int


class Gather:
    """Appends sums of terms to a new tape, `tape`. `cells` is the tape of the terms. `may_repeat(load)` is true if a
    core with this load may be computed again at neighbours. The names of fields that store cores begin with `name`.
    `edges` maps the number of each edge field to its axis."""

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
        """If cores are stored, return a list with the stage that stores them. Otherwise return an empty list."""
        if not self._stored:
            return []
        return [Stage(tuple(self._stored.values()), self._cells.program(list(self._stored)))]

    def sum(self, terms: Sequence[Term], carried: Sequence[int] = ()) -> int:
        """Append a sum to the new tape, and return the position of the sum. The sum contains all terms, and the values
        at the positions `carried` of the new tape. Terms with the same coefficient are first added to each other. Terms
        of near neighbours come before terms of far neighbours."""
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
        """Append the operations that compute the core `core` in the cell at the distance `away` from the gathering
        cell. Return the position of the core."""
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
        """Return the offsets for which the coefficient can differ from 0: the offsets in `table`, and their reflections
        along mirrored axes."""
        found: dict[Offset, None] = {}
        for offset in table:
            for flips in product((False, True), repeat=len(self._mirrored)):
                axes = [axis for axis, flip in zip(self._mirrored, flips, strict=True) if flip]
                found[_reflected(offset, axes)] = None
        return list(found)

    def _coefficient(self, table: Mapping[Offset, int], offset: Offset, axes: Sequence[int]) -> int:
        """Append the coefficient that multiplies the core of a neighbour, and return the position of this coefficient.
        This neighbour is at the distance `-offset` from the gathering cell. `axes` contains the mirrored axes along
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


@dataclass(frozen=True)
class Adjoint:
    """The adjoint of a stencil, and the meaning of its fields.

    `adjoints` has a key for each updated field, such as "u", and for each previous value, such as "u.previous". Each
    value of `adjoints` is the name of the field that holds the adjoint. A field can hold a multiple of the adjoint of
    "u" instead of the adjoint. `scales` then maps "u" to the program that computes the factor. `values` contains a
    program for each adjoint that no field holds, for example because a field holds only a multiple of the adjoint. The
    programs in `scales` and `values` compute a value for one cell, and read fields of `stencil` only in this cell.

    `gradients` maps names in `wrt` to names of fields. For a static field, the gradient is the field that `gradients`
    names. For a parameter, this field has the contribution of each cell, and the gradient is the sum over all cells.
    For a signal, the sum over all cells is the gradient with respect to one value of the signal: its value in the step
    that the adjoint has just reversed. Names in `wrt` that do not affect the updates are left out of `gradients`.

    `sources` maps the name of each field that has sources to the name of its gradient field. The values of a gradient
    field are the gradients with respect to the sources of the step. If the last stage of a step updates the field with
    sources, the gradient field is the adjoint of this field. Such a gradient field must be read before the step of the
    adjoint. For all other fields with sources, a stage of the adjoint writes the gradient field.

    `history` maps names of read-only fields to values of the forward step. Before each step of the adjoint, the
    read-only fields in `history` must get the values of the forward step that is reversed. `edges` maps the name of
    each edge field to an axis (0 for z). Along its axis, an edge field must have the values that `edge_values` returns.
    """

    stencil: Stencil
    adjoints: Mapping[str, str]
    values: Mapping[str, Program]
    scales: Mapping[str, Program]
    gradients: Mapping[str, str]
    sources: Mapping[str, str]
    history: Mapping[str, Version]
    edges: Mapping[str, int]


def adjoint_of(
    stencil: Stencil,
    wrt: Sequence[str] = (),
    boundary: Boundary = FIXED,
    sources: Sequence[str] = (),
    is_scaled: bool = True,
) -> Adjoint:
    """Return the adjoint of one step of `stencil` on a grid with the boundary `boundary`.

    The adjoint computes gradients with respect to the static fields, parameters and signals in `wrt`. `sources`
    contains the names of the updated fields that have sources. In each step, sources act after the last update of their
    field. The adjoint of the state is always computed. If `is_scaled` is false, each field holds an adjoint itself, and
    not a multiple of the adjoint. `is_scaled` must be false if the factor is 0 in some cells, because the adjoint
    cannot be computed from a multiple with the factor 0. Raises InputError for unknown names, and for an adjoint that
    no kernel can compute.
    """
    return _Derivation(stencil, wrt, boundary, sources, is_scaled).result()


class _Derivation:
    """Derives the fields and stages of an adjoint. The number of a forward step becomes a signal of the adjoint.
    Methods of this class take and return numbers of fields."""

    def __init__(
        self, stencil: Stencil, wrt: Sequence[str], boundary: Boundary, sources: Sequence[str], is_scaled: bool
    ) -> None:
        self.stencil, self.wrt, self.boundary, self.sources = stencil, tuple(wrt), boundary, tuple(sources)
        self.fields = Fields(stencil)
        self.fields.require_known(stencil.name, self.wrt)
        self.updated = [number for number, fixed in enumerate(self.fields.is_static) if not fixed]
        self.with_previous = {load.field for stage in stencil.stages for load in stage.program.loads if load.age == 1}
        self.local_previous = self._local_previous()
        self.scales = self._scales() if is_scaled else {}
        self.edges: dict[int, int] = {}

    def of(self, field: int) -> int:
        """Return the number of the field that holds the adjoint of the updated field `field`."""
        return self.fields.new(f"{self.fields.forward[field]}_adj")

    def of_previous(self, field: int) -> int:
        return self.fields.new(f"{self.fields.forward[field]}_adj_previous")

    def of_source(self, field: int) -> int:
        """Return the number of the field that holds the gradients with respect to the sources of `field`."""
        acts_last = field in self.stencil.stages[-1].targets
        return self.of(field) if acts_last else self.fields.new(f"{self.fields.forward[field]}_adj_source")

    def gradient(self, name: str) -> int:
        return self.fields.new(f"{name}_grad")

    def result(self) -> Adjoint:
        updates, stages = updates_before(self.stencil), list[Stage]()
        for number in reversed(range(len(updates))):
            stages += self._stages(self.stencil.stages[number], updates[number], stages)
        names, forward, versions = self.fields.names, self.fields.forward, self.fields.versions
        # In the order of the fields, fields with values of the forward step come last. An adjoint run gets these values
        # from the forward run (plan/history.py).
        read = sorted(fields_read(stages), key=lambda number: (names[number] in versions, names[number]))
        made = assemble(f"adjoint of {self.stencil.name}", self.stencil, names, stages, read, all_scalars=False)
        adjoints = {forward[field]: names[self.of(field)] for field in self.updated}
        for field in self.with_previous - self.local_previous.keys():
            adjoints[forward[field] + PREVIOUS] = names[self.of_previous(field)]
        gradients = {name: number for name in self.wrt if (number := self.gradient(name)) in made.fields}
        return Adjoint(
            made.stencil,
            adjoints,
            {name: made.program(program) for name, program in self._values().items()},
            {forward[field]: made.program(program) for field, program in self.scales.items()},
            {name: self.fields.names[number] for name, number in gradients.items()},
            {name: names[self.of_source(forward.index(name))] for name in self.sources},
            {name: one for name, one in versions.items() if self.fields.number(name) in made.fields},
            {names[number]: axis for number, axis in self.edges.items()},
        )

    def _stages(self, stage: Stage, updates: Sequence[int], before: Sequence[Stage]) -> list[Stage]:
        """Return the stages of the adjoint that reverse `stage`. The adjoint computes the stages in `before` before the
        returned stages."""
        tape = Tape()
        at = tape.copy(stage.program, lambda load: tape.append(self.fields.forward_value(load, updates)))
        seeds = {field: tape.append(Load(self.of(field), HERE)) for field in stage.targets}
        bars = adjoint(tape, stage.program, at, list(seeds.values()))
        factors = {field: _appended(tape, program) for field, program in self.scales.items()}
        plain = [tape.divide(seed, factors[one]) if one in factors else seed for one, seed in seeds.items()]
        by_wrt = bars if plain == list(seeds.values()) else adjoint(tape, stage.program, at, plain)
        loads: dict[tuple[int, int], list[Term]] = {}
        scaled: dict[int, list[Term]] = {}
        scalars: dict[str, list[Term]] = {}
        for place, operation in enumerate(stage.program.operations):
            match operation:
                case Load(field, offset, age) if not self.fields.is_static[field]:
                    for one in bars.get(place, []):
                        is_own = offset == HERE and _fields_in(tape, one.core, seeds) == [field]
                        core = one.core if is_own else self._unscaled(tape, one.core, seeds)
                        term = Term(offset, one.coefficient, core)
                        if field in factors and not is_own:
                            scaled.setdefault(field, []).append(term)
                        else:
                            loads.setdefault((field, age), []).append(term)
                case Load(field, offset, age) if self.fields.forward[field] in self.wrt:
                    loads.setdefault((field, age), []).extend(_terms(offset, by_wrt.get(place, [])))
                case Scalar(index) if (name := self.fields.scalars[index]) in self.wrt:
                    scalars.setdefault(name, []).extend(_terms(HERE, by_wrt.get(place, [])))
        every = [term for terms in (*loads.values(), *scaled.values()) for term in terms]
        gather = Gather(
            self.fields, tape, every, self._may_repeat,
            self.fields.forward[stage.targets[0]], self.boundary, self.stencil.radii,
        )  # fmt: skip
        results: dict[int, int] = {}
        for field in range(len(self.fields.forward)):
            more: list[int] = []
            if field in scaled:
                factor = _appended(gather.tape, self.scales[field])
                more.append(gather.tape.multiply(factor, gather.sum(scaled[field])))
            results |= self._of_field(field, stage, loads.get((field, 0), []), loads.get((field, 1), []), more, gather)
        updated = {target for one in before for target in one.targets}
        for field in map(self.fields.forward.index, self.sources):
            writers = [one for one in self.stencil.stages if field in one.targets]
            if writers[-1] is stage and (own := self.of_source(field)) != self.of(field):
                results[own] = gather.tape.append(Load(self.of(field), HERE))
        for name, terms in scalars.items():
            own = self.gradient(name)
            is_sum = name not in self.stencil.signals or own in updated
            results[own] = gather.sum(terms, [gather.tape.append(Load(own, HERE))] if is_sum else [])
        self.edges |= gather.edges
        last = [Stage(tuple(results), gather.tape.program(list(results.values())))] if results else []
        return [*gather.stored_stage(), *last]

    def _may_repeat(self, load: Load) -> bool:
        """Return True if a core that contains this load may be computed again at each neighbour. The result is False
        for a load of values of the forward step, because the adjoint would have to read these values at twice the
        distance. If a side is fixed, the result is also False for a load of a static field. In the rim, static fields
        can be 0 or NaN, because the forward step does not use these values."""
        name = self.fields.names[load.field]
        has_rim = any("fixed" in self.boundary.sides[axis] for axis in range(3) if self.stencil.radii[axis])
        return name not in self.fields.versions and not (has_rim and name in self.fields.forward)

    def _of_field(
        self, field: int, stage: Stage, newest: Sequence[Term], older: Sequence[Term], more: list[int], gather: Gather
    ) -> dict[int, int]:
        """Append the adjoint of a field, and the adjoint of its previous value, to the tape of `gather`. Adjoints that
        the stage does not change are not appended. The values at the positions `more` on the tape of `gather` are added
        to the adjoint of the field. Return a mapping from the number of each field that holds a changed adjoint to the
        position of the new adjoint on the tape."""

        def here(number: int) -> int:
            return gather.tape.append(Load(number, HERE))

        if self.fields.is_static[field]:
            own = self.gradient(self.fields.forward[field])
            return {own: gather.sum(newest, [here(own)])} if newest else {}
        found: dict[int, int] = {}
        own, has_previous = self.of(field), field in self.with_previous and field not in self.local_previous
        if field in stage.targets:
            carried = [here(self.of_previous(field))] if has_previous else []
            if local := self.local_previous.get(field):
                carried = [_appended(gather.tape, local)]
            found[own] = gather.sum(newest, carried + more)
            if has_previous:
                found[self.of_previous(field)] = gather.sum(older)
            return found
        if newest or more:
            found[own] = gather.sum(newest, [here(own), *more])
        if older:
            found[self.of_previous(field)] = gather.sum(older, [here(self.of_previous(field))])
        return found

    # --- adjoints that a program computes ----------------------------------------------------------------------------

    def _values(self) -> dict[str, Program]:
        """Return a dictionary that maps the name of each adjoint that no field holds to the program of this adjoint."""
        found: dict[str, Program] = {}
        for field, scale in self.scales.items():
            tape = Tape()
            held = tape.append(Load(self.of(field), HERE))
            found[self.fields.forward[field]] = tape.program([tape.divide(held, _appended(tape, scale))])
        for field, program in self.local_previous.items():
            tape = Tape()
            value = _appended(tape, program)
            if field in self.scales:
                value = tape.divide(value, _appended(tape, self.scales[field]))
            found[self.fields.forward[field] + PREVIOUS] = tape.program([value])
        return found

    def _unscaled(self, tape: Tape, core: int, seeds: Mapping[int, int]) -> int:
        """Return the position of the scaled adjoint that a core reads, or `core` itself if the core reads no scaled
        adjoint."""
        for field in _fields_in(tape, core, seeds):
            if field in self.scales:
                return seeds[field]
        return core

    def _scales(self) -> dict[int, Program]:
        """Some adjoints are read at neighbours only as a product with a factor. Return a dictionary that maps the
        number of the field of each such adjoint to the program of its factor. A factor depends only on parameters, and
        on static fields in the same cell."""
        found: dict[int, Program | None] = {}
        far: set[int] = set()
        for stage in self.stencil.stages:
            tape, count = Tape(), len(self.fields.forward)
            at = tape.copy(stage.program, tape.append)
            seeds = {field: tape.append(Load(count + field, HERE)) for field in stage.targets}
            for place, products in adjoint(tape, stage.program, at, list(seeds.values())).items():
                operation = stage.program.operations[place]
                if not isinstance(operation, Load) or self.fields.is_static[operation.field]:
                    continue
                for one in products:
                    used = _fields_in(tape, one.core, seeds)
                    if operation.offset == HERE and used == [operation.field]:
                        continue
                    for field in used:
                        factor = self._factor(tape, one.core, seeds[field]) if len(used) == 1 else None
                        found[field] = factor if found.get(field, factor) == factor else None
                        far |= {field} if operation.offset != HERE else set()
        separate = self.with_previous - self.local_previous.keys()
        return {field: one for field, one in found.items() if one is not None and field in far - separate}

    def _factor(self, tape: Tape, core: int, seed: int) -> Program | None:
        """Return a program that computes the factor by which a core multiplies the adjoint `seed`. Return None if this
        factor is the same for all cells. Also return None if the factor depends on values other than parameters and
        static fields in the same cell."""

        found: dict[int, int] = {seed: tape.constant(1.0)}  # the factor of each operation that is a multiple of `seed`
        for place in range(seed + 1, core + 1):
            match tape.operations[place]:
                case Apply("neg", (a,)) if a in found:
                    found[place] = tape.negative(found[a])
                case Apply("div", (a, b)) if a in found and b not in found:
                    found[place] = tape.divide(found[a], b)
                case Apply("mul", (a, b)) if (a in found) != (b in found):
                    found[place] = tape.multiply(found[a], b) if a in found else tape.multiply(a, found[b])
        if core not in found or tape.uniform[found[core]]:
            return None
        return self._local(tape.program([found[core]]), {})

    def _local(self, program: Program, moved: Mapping[int, Load]) -> Program | None:
        """`program` reads fields of the forward stencil. Return a program with the same operations that reads the
        fields of the same names in the adjoint. The keys of `moved` are numbers of fields that do not exist in the
        forward stencil. In the returned program, the values of `moved` replace loads of the fields in `moved`. Return
        None if `program` depends on values other than parameters, the fields in `moved`, and static fields in the same
        cell."""
        operations = list(program.operations)
        for place, operation in enumerate(operations):
            match operation:
                case Load(number, offset, _):
                    if number in moved:
                        operations[place] = moved[number]
                    elif offset == HERE and number < len(self.fields.forward) and self.fields.is_static[number]:
                        operations[place] = Load(self.fields.number(self.fields.forward[number]), HERE)
                    else:
                        return None
                case Scalar(index) if index >= len(self.stencil.parameters):
                    return None
                case CellIndex() | CellCount():
                    return None
        return Program(tuple(operations), program.results)

    def _local_previous(self) -> dict[int, Program]:
        """Return programs for the previous values whose adjoint needs no separate field. The keys of the returned
        dictionary are the numbers of the fields. The program of a field u reads the previous value of the adjoint of u,
        and computes the adjoint of u.previous.

        A field has such a program if two conditions are met. The first condition is that only one stage reads or
        updates the field. The second condition is that the derivative with respect to its previous value depends only
        on parameters, and on static fields in the same cell.
        """
        found: dict[int, Program] = {}
        for field in self.with_previous:
            used = [
                stage
                for stage in self.stencil.stages
                if field in stage.targets or any(load.field == field for load in stage.program.loads)
            ]
            if len(used) == 1 and field in used[0].targets and (program := self._previous_program(used[0], field)):
                found[field] = program
        return found

    def _previous_program(self, stage: Stage, field: int) -> Program | None:
        """Return the program of `_local_previous` for this field, or None if the second condition of `_local_previous`
        is not met."""
        tape, count = Tape(), len(self.fields.forward)
        at = tape.copy(stage.program, tape.append)
        bars = adjoint(tape, stage.program, at, [tape.append(Load(count + one, HERE)) for one in stage.targets])
        products: list[int] = []
        for place, terms in bars.items():
            match stage.program.operations[place]:
                case Load(number, offset, 1) if number == field:
                    if offset != HERE:
                        return None
                    products += [tape.multiply(one.coefficient, one.core) for one in terms]
        return self._local(tape.program([tape.sum(products)]), {count + field: Load(self.of(field), HERE, 1)})


def _fields_in(tape: Tape, core: int, seeds: Mapping[int, int]) -> list[int]:
    """Return the fields whose adjoints the core `core` reads. `seeds` are the positions of these adjoints on the
    tape."""
    loads = set(tape.program([core]).loads)
    return [field for field, seed in seeds.items() if tape.operations[seed] in loads]


def _appended(tape: Tape, program: Program) -> int:
    """Append a program with one result. Return the position of the result."""
    return tape.copy(program, tape.append)[program.results[0]]


def _terms(offset: tuple[int, int, int], products: Sequence[Product]) -> list[Term]:
    return [Term(offset, one.coefficient, one.core) for one in products]
