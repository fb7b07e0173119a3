"""Find functions of static fields in a stencil. A run computes a function of static fields once, and not again in each
step.

    u' = u[0] + cos(theta[1]) u[1] + cos(theta[0]) u[0]             each step computes cos in two cells
    u' = u[0] + cos_theta[1] u[1] + cos_theta[0] u[0]               each step reads cos_theta, an array of the run

A static term is a function, such as cos(theta), or an expression that contains functions. The last operation of such an
expression must be a function, a root or a division. A static term reads only parameters, and static fields in a single
cell. A static term reads no signal and no position. So the value of a static term changes only if a static field or a
parameter changes. A run stores the values of a static term in a computed field. The run computes the values of a static
term with the operations of the term, so all results keep their bits, also at boundaries.

`Stencil` objects and their adjoints never contain computed fields. Only the kernel of a run reads computed fields
(`with_computed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import TypeAlias

from outcrop.errors import InputError
from outcrop.language.derivative import Tape, pruned
from outcrop.language.field import Field
from outcrop.language.functions import FUNCTIONS, operations_of
from outcrop.language.linearised import HERE, Offset, renumbered
from outcrop.language.program import Apply, Constant, Load, Program, Scalar, Stage
from outcrop.language.stencil import Stencil

MIN_SAVED = 30
"""A static term is computed once if this saves at least this number of operations per cell and step. The number is
approximately the number of operations of the cheapest function except `sign`. In measurements
(docs/benchmarks/stencils.md), a read of one more array takes less time than such a function."""

_SLOW = {"div": 8, "sqrt": 8}
"""The number of additions that take as long as an operation."""

_MAX_TEXT = 60
_MAX_NAME = 56
"""The maximum length of a name before a number is appended. Names of fields have at most 64 characters."""

Terms: TypeAlias = Mapping[str, Program]
"""The names of computed fields, and the static terms with their values. The loads and scalars of a term have the
numbers of the stencil. All loads have the offset 0."""

_Offset: TypeAlias = Offset | None
_Place: TypeAlias = tuple[int, _Offset] | None


def static_terms(
    stencil: Stencil, every: bool = False, kept: Sequence[str] = (), changing: Sequence[str] = ()
) -> dict[str, Program]:
    """Return the static terms of a stencil for which a computed field saves enough operations (MIN_SAVED). Return no
    terms if a kernel cannot read the additional fields. Also return no terms if the kernel would no longer read one of
    the static fields `kept`. If `every` is true, return all static terms, and raise InputError in the cases in which
    otherwise no terms are returned. `changing` contains the fields that no stage updates, but whose values are
    different in each step."""
    walk = _Walk(stencil, changing)
    uses: dict[int, set[tuple[int, Offset]]] = {}
    for number, stage in enumerate(stencil.stages):
        for place, offset in walk.roots(number, stage.program):
            uses.setdefault(place, set()).add((number, offset))
    found: dict[str, Program] = {}
    taken = {*(one.name for one in stencil.fields), *(one.name for one in stencil.parameters), *stencil.signals}
    for place, several in uses.items():
        term = pruned(walk.tape.operations, [place])
        if every or len(several) * _cost(term) >= MIN_SAVED:
            found[_name(stencil, term, taken)] = term
    try:
        left = {one.name for one in with_computed(stencil, found).fields}
        if missing := [name for name in kept if name not in left]:
            raise InputError(f"functions: receivers record {missing[0]}, so steps must read {missing[0]} itself")
    except InputError:
        if every:
            raise
        return {}
    return found


def with_computed(stencil: Stencil, terms: Terms) -> Stencil:
    """Return a stencil that reads a computed field in place of each of the static terms. The new stencil has the
    parameters, signals and radii of `stencil`. Static fields that only the terms read are left out. Raises InputError
    if a term does not occur in the stencil, or if no kernel can compute the new stencil."""
    if not terms:
        return stencil
    walk = _Walk(stencil)
    names = [*(one.name for one in stencil.fields), *terms]
    numbers: dict[int, int] = {}
    for name, term in terms.items():
        numbers[walk.add(term)] = names.index(name)
    stages = []
    for number, stage in enumerate(stencil.stages):
        tape, places = Tape(), walk.places(number, stage.program)
        at = dict[int, int]()
        for place, known in _needed(stage.program, places, numbers.__contains__):
            operation = stage.program.operations[place]
            if known is not None:
                operation = Load(numbers[known[0]], known[1])
            elif isinstance(operation, Apply):
                operation = Apply(operation.operator, tuple(at[one] for one in operation.operands))
            at[place] = tape.append(operation)
        stages.append(Stage(stage.targets, tape.program([at[one] for one in stage.program.results])))
    return _assembled(stencil, names, stages, len(terms))


def require_static(stencil: Stencil, terms: Terms) -> None:
    """Raise ValueError for a term that a computed field cannot have. The terms can come from an untrusted file. The
    caller must then call `with_computed`, which refuses terms that do not occur in the stencil."""
    taken = {*(one.name for one in stencil.fields), *(one.name for one in stencil.parameters), *stencil.signals}
    for name, term in terms.items():
        term.require_sound(len(stencil.fields), len(stencil.parameters))
        if name in taken:
            raise ValueError(f"{name} is the name of another field, a parameter or a signal")
        if len(term.results) != 1:
            raise ValueError(f"{name} has {len(term.results)} values")


def fields_of(stencil: Stencil, term: Program) -> list[str]:
    """Return the names of the static fields that a term reads."""
    return list(dict.fromkeys(stencil.fields[one.field].name for one in term.loads))


def parameters_of(stencil: Stencil, term: Program) -> list[str]:
    """Return the names of the parameters that a term reads."""
    numbers = [one.index for one in term.operations if isinstance(one, Scalar)]
    return [stencil.parameters[number].name for number in numbers]


def term_text(stencil: Stencil, term: Program) -> str:
    """Return a static term as text for users, such as cos(theta). If the text is too long, return the names of the
    fields and parameters that the term reads."""
    texts: list[str] = []
    signs = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
    for operation in term.operations:
        match operation:
            case Load(field):
                texts.append(stencil.fields[field].name)
            case Scalar(index):
                texts.append(stencil.parameters[index].name)
            case Constant(value):
                texts.append(f"{value:g}")
            case Apply("neg", (one,)):
                texts.append(f"-{texts[one]}")
            case Apply(operator, (one, other)) if operator in signs:
                texts.append(f"({texts[one]} {signs[operator]} {texts[other]})")
            case Apply(operator, (one,)):
                inner = texts[one]
                texts.append(f"{operator}{inner}" if inner.startswith("(") else f"{operator}({inner})")
            case Apply(operator, operands):
                texts.append(f"{operator}({', '.join(texts[one] for one in operands)})")
        if len(texts[-1]) > _MAX_TEXT:
            names = ", ".join([*fields_of(stencil, term), *parameters_of(stencil, term)])
            return f"a function of {names}"[:_MAX_TEXT]
    return texts[term.results[0]]


class _Walk:
    """Finds static expressions. Each different static expression has one position on `tape`. All loads on the tape have
    the offset 0."""

    def __init__(self, stencil: Stencil, changing: Sequence[str] = ()) -> None:
        self.tape, self._parameters = Tape(), len(stencil.parameters)
        self._is_static = [
            one.is_static and field.name not in changing
            for field, one in zip(stencil.fields, stencil.storage, strict=True)
        ]
        self._known: dict[int, list[_Place]] = {}

    def add(self, term: Program) -> int:
        """Return the position of a static term on the tape."""
        return self.tape.copy(term, self.tape.append)[term.results[0]]

    def places(self, number: int, program: Program) -> list[_Place]:
        """Return an entry for each operation of stage `number`. For a static expression, the entry is its position on
        the tape, and the offset of the cell that it reads. The offset is None if the expression reads no cell. For
        other expressions, the entry is None."""
        if number in self._known:
            return self._known[number]
        found: list[_Place] = []
        for operation in program.operations:
            match operation:
                case Load(field, offset) if self._is_static[field]:
                    found.append((self.tape.append(Load(field, HERE)), offset))
                case Scalar(index) if index < self._parameters:
                    found.append((self.tape.append(operation), None))
                case Constant():
                    found.append((self.tape.append(operation), None))
                case Apply(operator, operands):
                    found.append(self._applied(operator, [found[one] for one in operands]))
                case _:
                    found.append(None)
        self._known[number] = found
        return found

    def _applied(self, operator: str, parts: Sequence[_Place]) -> _Place:
        known = [one for one in parts if one is not None]
        offsets = {offset for _, offset in known if offset is not None}
        if len(known) < len(parts) or len(offsets) > 1:
            return None
        place = self.tape.append(Apply(operator, tuple(place for place, _ in known)))
        return place, offsets.pop() if offsets else None

    def roots(self, number: int, program: Program) -> Iterator[tuple[int, Offset]]:
        """Yield the position and the offset of each static term of stage `number`, in the order of the operations. A
        part of a static term is yielded only if the stage also needs this part outside of the term."""
        for _, known in _needed(program, self.places(number, program), self._is_term):
            if known is not None:
                yield known

    def _is_term(self, place: int) -> bool:
        """Return True if an expression contains a function, and its last operation is a function, a root or a division.
        """
        operation = self.tape.operations[place]
        if not isinstance(operation, Apply) or operation.operator not in FUNCTIONS.keys() | _SLOW.keys():
            return False
        used = pruned(self.tape.operations, [place])
        return any(
            isinstance(one, Apply) and one.operator in FUNCTIONS and not uniform
            for one, uniform in zip(used.operations, used.uniform, strict=True)
        )


def _needed(
    program: Program, places: Sequence[_Place], is_read: Callable[[int], bool]
) -> Iterator[tuple[int, tuple[int, Offset] | None]]:
    """Yield the position and an entry for each operation that a stage needs if the stage reads some static terms from
    fields. `is_read` returns True for the positions of these static terms on the tape. The entry of such a static term
    is its entry in `places`. The entry of any other operation is None."""
    needed, waiting = dict[int, tuple[int, Offset] | None](), list(program.results)
    while waiting:
        place = waiting.pop()
        if place in needed:
            continue
        term_place, offset = places[place] or (-1, None)
        is_term = offset is not None and is_read(term_place)
        needed[place] = (term_place, offset) if offset is not None and is_term else None
        operation = program.operations[place]
        if isinstance(operation, Apply) and not is_term:
            waiting += operation.operands
    yield from sorted(needed.items())


def _assembled(stencil: Stencil, names: Sequence[str], stages: Sequence[Stage], computed: int) -> Stencil:
    """Return the stencil with these stages. In the stages, the number of a field is the position of the field in
    `names`. The last `computed` names are computed fields. In the returned stencil, computed fields come before the
    other static fields, because fields with values of another run must come last."""
    read = {load.field for stage in stages for load in stage.program.loads}
    first = len(names) - computed
    if missing := [names[number] for number in range(first, len(names)) if number not in read]:
        raise InputError(f"stencil {stencil.name!r} does not contain the term {missing[0]}")
    updated = [n for n in range(first) if not stencil.storage[n].is_static]
    order = [*updated, *range(first, len(names)), *(n for n in sorted(read) if n < first and n not in updated)]
    fields = {number: place for place, number in enumerate(order)}
    scalars = {number: number for number in range(len(stencil.parameters) + len(stencil.signals))}
    return Stencil.from_stages(
        stencil.name, [Field(names[number]) for number in order],
        [Stage(stage.targets, renumbered(stage.program, fields, scalars)) for stage in stages],
        stencil.parameters, stencil.signals, stencil.ndim, stencil.radii, stencil.step_signal,
    )  # fmt: skip


def _cost(term: Program) -> int:
    """Return the cost of a static term: the approximate number of additions that take the same time."""
    pairs = zip(term.operations, term.uniform, strict=True)
    operators = [one.operator for one, uniform in pairs if isinstance(one, Apply) and not uniform]
    return sum(operations_of(one) if one in FUNCTIONS else _SLOW.get(one, 1) for one in operators)


def _name(stencil: Stencil, term: Program, taken: set[str]) -> str:
    """Return an unused name for a computed field, such as cos_theta, and add it to `taken`."""
    last = term.operations[term.results[0]]
    assert isinstance(last, Apply)
    plain = f"{last.operator}_{fields_of(stencil, term)[0]}"[:_MAX_NAME]
    is_simple = len(last.operands) == 1 and isinstance(term.operations[last.operands[0]], Load)
    numbered = (f"{plain}_{number}" for number in count(1))
    name = next(one for one in chain((plain,) if is_simple else (), numbered) if one not in taken)
    taken.add(name)
    return name
