"""Differentiate a program: append operations that compute how the program's results change with its loads and scalars.

A program is differentiated operation by operation, in one of the two orders below (A. Griewank and A. Walther,
Evaluating Derivatives, 2nd ed., SIAM 2008, chapters 3 and 6). In both orders, the number of appended operations is only
a few times the number of operations of the program:

    tangent    from loads to results: d(a b) = a db + b da                forward mode
    adjoint    from results to loads: a̅ += b r̅ and b̅ += a r̅ for r = a b   reverse mode

The adjoint of each load is a sum of products `coefficient * core`. A coefficient is the same for all cells, because it
depends only on constants, parameters and signals. A core depends on the cell. The adjoints of all loads of a difference
operator have the same core, but different coefficients. Therefore the adjoint of a difference operator is another
difference operator, which is applied to the core.

At points where an operation has no derivative, a one-sided derivative is used. If a = b, min(a, b) and max(a, b) return
b, so they have the derivative of b. A selection has the derivative of the operand that it selects. At a = 0, abs(a) has
the derivative 1, sign(a) has the derivative 0, and sqrt(a) has an infinite derivative. The derivative of pow(a, b) with
respect to b is 0 for a <= 0.

The derivative with respect to an operand that a selection does not select is 0, even if the operand is infinite or NaN.
For this reason, products with selections are changed. Let s be a factor of a product a s. If s is a selection between v
and 0, the product becomes a selection between a v and 0. If s is a sum of selections between a value and 0, the product
a s is 0 where s is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from outcrop.language.program import Apply, Constant, Load, Operation, Program, is_uniform

ZERO = -1
"""The position of a value that is 0 for every cell. No operation computes this value."""


Item = TypeVar("Item")


def balanced(items: list[Item], combine: Callable[[Item, Item], Item]) -> Item:
    """Combine all items pair by pair, in a balanced tree. A balanced tree has short chains of dependent operations."""
    while len(items) > 1:
        pairs = [combine(a, b) for a, b in zip(items[::2], items[1::2], strict=False)]
        items = pairs + items[len(pairs) * 2 :]
    return items[0]


class Tape:
    """Appends operations to a program. An operation is not appended if the program already contains an equal operation.
    Sums with 0, products with 0, 1 and -1, and double minus signs are simplified. Constants are combined only if the
    result is exact, so simplifications add no rounding errors."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.uniform: list[bool] = []
        self._places: dict[Operation, int] = {}

    def append(self, operation: Operation) -> int:
        """Return the position of an operation on the tape. If the tape does not contain the operation, append it."""
        if operation not in self._places:
            self._places[operation] = len(self.operations)
            self.operations.append(operation)
            self.uniform.append(is_uniform(operation, self.uniform))
        return self._places[operation]

    def constant(self, value: float) -> int:
        return ZERO if value == 0 else self.append(Constant(value))

    def _value(self, place: int) -> float | None:
        operation = self.operations[place]
        return operation.value if isinstance(operation, Constant) else None

    def _inside(self, place: int) -> int | None:
        """If the operation at `place` is a negation, return the position of its operand. Otherwise, return None."""
        operation = self.operations[place]
        return operation.operands[0] if isinstance(operation, Apply) and operation.operator == "neg" else None

    def _exact(self, operator: Callable[[Fraction, Fraction], Fraction], a: int, b: int) -> int | None:
        """Return the position of the exact result of `operator` for two constants a and b. Return None if a or b is not
        a constant, or if no float equals the exact result."""
        first, second = self._value(a), self._value(b)
        if first is None or second is None:
            return None
        exact = operator(Fraction(first), Fraction(second))
        try:
            return self.constant(float(exact)) if Fraction(float(exact)) == exact else None
        except OverflowError:
            return None

    def negative(self, a: int) -> int:
        if a == ZERO:
            return ZERO
        if (value := self._value(a)) is not None:
            return self.constant(-value)
        inside = self._inside(a)
        return inside if inside is not None else self.append(Apply("neg", (a,)))

    def add(self, a: int, b: int) -> int:
        if ZERO in (a, b):
            return b if a == ZERO else a
        if (exact := self._exact(lambda x, y: x + y, a, b)) is not None:
            return exact
        inside_a, inside_b = self._inside(a), self._inside(b)
        if inside_a is not None and inside_b is not None:
            return self.negative(self.add(inside_a, inside_b))
        if inside_b is not None:
            return ZERO if inside_b == a else self.append(Apply("sub", (a, inside_b)))
        if inside_a is not None:
            return ZERO if inside_a == b else self.append(Apply("sub", (b, inside_a)))
        return self.append(Apply("add", (a, b)))

    def multiply(self, a: int, b: int) -> int:
        if ZERO in (a, b):
            return ZERO
        if (exact := self._exact(lambda x, y: x * y, a, b)) is not None:
            return exact
        for one, other in ((a, b), (b, a)):
            if (value := self._value(one)) in (1.0, -1.0):
                return other if value == 1.0 else self.negative(other)
            if value is not None and value < 0:
                return self.negative(self.multiply(self.constant(-value), other))
            if (inside := self._inside(one)) is not None:
                return self.negative(self.multiply(inside, other))
        return self.append(Apply("mul", (a, b)))

    def divide(self, a: int, b: int) -> int:
        assert b != ZERO, "the derivative divides by zero"
        if a == ZERO or self._value(b) == 1.0:
            return a
        return self.append(Apply("div", (a, b)))

    def where(self, a: int, b: int, then: int, other: int, operator: str = "where") -> int:
        """Return the position of a selection. The selection has the value of `then` where a > b, and the value of
        `other` elsewhere. With the operator "where_equal", the selection has the value of `then` where a == b."""
        if then == other:
            return then
        places = [self.append(Constant(0.0)) if one == ZERO else one for one in (a, b, then, other)]
        return self.append(Apply(operator, tuple(places)))

    def apply(self, operator: str, *operands: int) -> int:
        return self.append(Apply(operator, operands))

    def selection(self, place: int) -> tuple[str, int, int, int, int] | None:
        """Return the operator and the operands of a selection between a value and 0. A 0 is returned as ZERO. Return
        None for other operations."""
        match self.operations[place]:
            case Apply("where" | "where_equal" as operator, (a, b, then, other)):
                first, second = (ZERO if self._value(one) == 0 else one for one in (then, other))
                return (operator, a, b, first, second) if ZERO in (first, second) else None
        return None

    def _is_sum_of_selections(self, place: int) -> bool:
        match self.operations[place]:
            case Apply("add" | "sub", (a, b)):
                return all(self.selection(one) or self._is_sum_of_selections(one) for one in (a, b))
        return False

    def product_inside(self, a: int, b: int) -> int:
        """Return the position of the product a * b. If b is a selection between a value and 0, or a sum of such
        selections, the product is 0 where b is 0. The product is 0 in these cells even if a is infinite or NaN."""
        if ZERO in (a, b):
            return ZERO
        if (found := self.selection(b)) is not None:
            operator, first, second, then, other = found
            return self.where(first, second, self.product_inside(a, then), self.product_inside(a, other), operator)
        if self._is_sum_of_selections(b):
            return self.where(b, ZERO, ZERO, self.multiply(a, b), "where_equal")
        return self.multiply(a, b)

    def sum_inside(self, a: int, b: int) -> int:
        """Return the position of the sum a + b. Two selections with the same condition are added as one selection, if
        the same operand of both selections is 0."""
        if ZERO not in (a, b):
            one, two = self.selection(a), self.selection(b)
            if one and two and one[:3] == two[:3] and (one[3] == ZERO) == (two[3] == ZERO):
                operator, first, second = one[:3]
                then, other = self.sum_inside(one[3], two[3]), self.sum_inside(one[4], two[4])
                return self.where(first, second, then, other, operator)
        return self.add(a, b)

    def sum(self, terms: Sequence[int]) -> int:
        """Return the position of the sum of `terms`. The terms are added in a balanced tree."""
        return balanced(list(terms) or [ZERO], self.add)

    def copy(
        self, program: Program, load: Callable[[Load], int], wanted: Sequence[int] | None = None
    ) -> dict[int, int]:
        """Append operations of another program: the operations at the positions `wanted`, and all operations that these
        operations need. If `wanted` is None, append all operations. The function `load` appends the loads. Return a
        mapping from positions in the other program to positions on the tape."""
        needed = set(range(len(program.operations)) if wanted is None else wanted)
        for place in reversed(range(len(program.operations))):
            operation = program.operations[place]
            if place in needed and isinstance(operation, Apply):
                needed.update(operation.operands)
        found: dict[int, int] = {}
        for place in sorted(needed):
            match program.operations[place]:
                case Load() as one:
                    found[place] = load(one)
                case Apply(operator, operands):
                    found[place] = self.append(Apply(operator, tuple(found[i] for i in operands)))
                case other:
                    found[place] = self.append(other)
        return found

    def program(self, results: Sequence[int]) -> Program:
        """Return the program that computes `results`. Operations that no result needs are left out."""
        places = [self.append(Constant(0.0)) if place == ZERO else place for place in results]
        return pruned(self.operations, places)


def pruned(operations: Sequence[Operation], results: Sequence[int]) -> Program:
    """Return a program with only the operations that `results` need. Equal operations are merged."""
    tape = Tape()
    found = tape.copy(Program(tuple(operations), ()), tape.append, results)
    return Program(tuple(tape.operations), tuple(found[place] for place in results))


def tangent(tape: Tape, program: Program, at: Mapping[int, int], seeds: Mapping[int, int]) -> list[int]:
    """Append operations that compute the directional derivative of each result of `program` (forward mode). Return the
    positions of these derivatives.

    `at` maps operations of `program` to their positions on the tape. `seeds` maps loads and scalars to the positions of
    their directions. The direction of a load or scalar that is not in `seeds` is 0.
    """
    change = [seeds.get(place, ZERO) for place in range(len(program.operations))]
    for place, operation in enumerate(program.operations):
        if not isinstance(operation, Apply) or all(change[i] == ZERO for i in operation.operands):
            continue
        slopes = _slopes(tape, operation, at, place)
        if operation.operator in ("where", "where_equal"):
            a, b, then, other = operation.operands
            change[place] = tape.where(at[a], at[b], change[then], change[other], operation.operator)
        elif operation.operator in ("min", "max"):
            first, second = operation.operands
            change[place] = tape.where(*_order(operation, at), change[first], change[second])
        else:
            terms = [tape.product_inside(slope, change[i]) for i, slope in zip(operation.operands, slopes, strict=True)]
            change[place] = tape.sum([one for one in terms if one != ZERO])
    return [change[place] for place in program.results]


@dataclass(frozen=True)
class Product:
    """A term of an adjoint: a coefficient, which is the same for all cells, times a core, which depends on the cell.
    `coefficient` and `core` are positions on a tape."""

    coefficient: int
    core: int


def adjoint(tape: Tape, program: Program, at: Mapping[int, int], seeds: Sequence[int]) -> dict[int, list[Product]]:
    """Append operations that compute the adjoint of each load and scalar. Return a mapping from each load or scalar to
    a list of products. The adjoint of a load or scalar is the sum of its products.

    `at` maps operations of `program` to their positions on the tape. `seeds` contains the positions of the adjoints of
    the results. These adjoints depend on the cell.
    """
    bars: dict[int, dict[int, int]] = {}
    one = tape.constant(1.0)

    def add(place: int, coefficient: int, core: int) -> None:
        bar = bars.setdefault(place, {})
        bar[core] = tape.add(bar.get(core, ZERO), coefficient)

    for place, seed in zip(program.results, seeds, strict=True):
        add(place, one, seed)
    for place in reversed(range(len(program.operations))):
        operation = program.operations[place]
        if place not in bars or not isinstance(operation, Apply):
            continue
        products = [(coefficient, core) for core, coefficient in bars.pop(place).items() if coefficient != ZERO]
        if not products:
            continue
        if len(products) > 1:  # combine the products into one, so that their number does not grow
            terms = [tape.product_inside(coefficient, core) for coefficient, core in products]
            products = [(one, balanced(terms, tape.sum_inside))]
        ((coefficient, core),) = products
        if operation.operator in ("min", "max", "where", "where_equal"):
            first, second = operation.operands[-2:]
            is_extreme = operation.operator in ("min", "max")
            a, b = _order(operation, at) if is_extreme else (at[i] for i in operation.operands[:2])
            condition = "where" if is_extreme else operation.operator
            add(first, coefficient, tape.where(a, b, core, ZERO, condition))
            add(second, coefficient, tape.where(a, b, ZERO, core, condition))
            continue
        for i, slope in zip(operation.operands, _slopes(tape, operation, at, place), strict=True):
            if slope == ZERO:
                continue
            if tape.uniform[slope]:
                add(i, tape.multiply(slope, coefficient), core)
            else:
                add(i, coefficient, tape.product_inside(slope, core))
    return {
        place: [Product(coefficient, core) for core, coefficient in bar.items() if coefficient != ZERO]
        for place, bar in bars.items()
        if not isinstance(program.operations[place], Constant)
    }


def _order(operation: Apply, at: Mapping[int, int]) -> tuple[int, int]:
    """Return two positions a and b on the tape for an operation min or max. The operation returns its first operand
    where the value at position a is greater than the value at position b."""
    a, b = (at[i] for i in operation.operands)
    return (a, b) if operation.operator == "max" else (b, a)


def _slopes(tape: Tape, operation: Apply, at: Mapping[int, int], place: int) -> list[int]:
    """For each operand of an operation, return a position on the tape. This position has the derivative of the
    operation with respect to the operand. For an operation that selects one of its operands, the list is empty."""
    places, result = [at[i] for i in operation.operands], at[place]
    one = tape.constant(1.0)
    match operation.operator:
        case "add":
            return [one, one]
        case "sub":
            return [one, tape.negative(one)]
        case "mul":
            return [places[1], places[0]]
        case "div":
            return [tape.divide(one, places[1]), tape.negative(tape.divide(result, places[1]))]
        case "neg":
            return [tape.negative(one)]
        case "sqrt":
            return [tape.divide(tape.append(Constant(0.5)), result)]
        case "abs":
            zero = tape.append(Constant(0.0))
            return [tape.where(zero, places[0], tape.negative(one), one)]
        case "exp":
            return [result]
        case "log":
            return [tape.divide(one, places[0])]
        case "sin":
            return [tape.apply("cos", *places)]
        case "cos":
            return [tape.negative(tape.apply("sin", *places))]
        case "tan":
            return [tape.add(one, tape.multiply(result, result))]
        case "tanh":  # (1 - tanh) (1 + tanh) loses fewer digits than 1 - tanh^2
            return [tape.multiply(tape.add(one, tape.negative(result)), tape.add(one, result))]
        case "sign":
            return [ZERO]
        case "atan2":
            y, x = places
            square = tape.add(tape.multiply(x, x), tape.multiply(y, y))
            return [tape.divide(x, square), tape.negative(tape.divide(y, square))]
        case "pow":
            return _slopes_of_power(tape, places[0], places[1], result)
    return []


def _slopes_of_power(tape: Tape, base: int, exponent: int, result: int) -> list[int]:
    zero, one = tape.append(Constant(0.0)), tape.constant(1.0)
    constant = tape.operations[exponent]
    by_exponent = tape.where(base, zero, tape.multiply(result, tape.apply("log", base)), ZERO)
    if isinstance(constant, Constant):
        lower = tape.append(Constant(constant.value - 1))
        return [tape.multiply(exponent, tape.apply("pow", base, lower)), by_exponent]
    lower = tape.add(exponent, tape.negative(one))
    by_base = tape.multiply(exponent, tape.apply("pow", base, lower))
    return [tape.where(exponent, zero, ZERO, by_base, "where_equal"), by_exponent]  # 0 also for the base 0
