"""Compute with the operations of a recipe, in NumPy or as text in C.

A recipe (`recipes.py`) is a Python function. A recipe gets an arithmetic, and the values to which the function is
applied. This file has two arithmetics, and the same recipe runs with both arithmetics. So the oracle and the kernels
perform the same operations in the same order, and get the same bits:

    Arrays(dtype)           values are NumPy arrays; the operations are performed immediately
    Lines(dtype, lanes)     values are names of variables in C; each operation appends a line

A recipe may use + - * / on numbers, and + - & | ^ << >> on bits. `bits` and `from_bits` convert between a number and
its bits, and change no bit. On every processor, each operation of a recipe is exact or rounds once, by the rules of
IEEE 754.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from outcrop.language.functions.coefficients import COEFFICIENTS, Coefficients

Value: TypeAlias = Any
"""The numbers of one vector, or their bits. The type depends on the arithmetic."""

Compute: TypeAlias = Callable[[], Sequence[Value]]


@dataclass(frozen=True)
class NumberFormat:
    """A binary number type of IEEE 754. A number has `digits` bits after the leading bit of its mantissa."""

    digits: int
    bits: int

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.digits - 2)) - 1

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.bits - 1)

    @property
    def mantissa(self) -> int:
        """A mask in which the bits of the mantissa are 1. The leading bit of the mantissa is not stored, and is not in
        the mask."""
        return (1 << self.digits) - 1

    @property
    def one(self) -> int:
        """The bits of the number 1."""
        return self.bias << self.digits

    @property
    def smallest(self) -> float:
        """The smallest positive normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def largest(self) -> float:
        return (2 - 2.0**-self.digits) * 2.0**self.bias

    @property
    def shifter(self) -> float:
        """A number that rounds x: (x + shifter) - shifter is the whole number nearest to x. The last bits of x +
        shifter are the last bits of the nearest whole number. |x| must be less than 2^(digits - 1)."""
        return 1.5 * 2.0**self.digits


FORMATS = {"float32": NumberFormat(23, 32), "float64": NumberFormat(52, 64)}


class Arithmetic(ABC):
    """The base of both arithmetics, `Arrays` and `Lines`. Each arithmetic has its own definition of a few elementary
    operations. All other operations are composed of the elementary operations, and are defined only in this class."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.format = FORMATS[dtype]
        self.constants: Coefficients = COEFFICIENTS[dtype]

    # --- operations that differ --------------------------------------------------------------------------------------

    @abstractmethod
    def number(self, value: float) -> Value:
        """Return `value`, rounded to the dtype."""

    @abstractmethod
    def whole(self, value: int) -> Value:
        """Return the bits that represent the whole number `value`."""

    @abstractmethod
    def bits(self, number: Value) -> Value: ...

    @abstractmethod
    def from_bits(self, bits: Value) -> Value: ...

    @abstractmethod
    def where(self, a: Value, b: Value, then: Value, other: Value) -> Value:
        """Return `then` where a > b, and `other` elsewhere. Where a or b is NaN, the result is `other`."""

    @abstractmethod
    def where_equal(self, a: Value, b: Value, then: Value, other: Value) -> Value:
        """Return `then` where a == b, and `other` elsewhere. Where a or b is NaN, the result is `other`."""

    @abstractmethod
    def entry(self, table: Sequence[int], index: Value) -> Value:
        """Return entries of `table` as numbers. `index` contains the positions of these entries in the table, as bits.
        """

    @abstractmethod
    def rarely(self, a: Value, b: Value, values: Sequence[Value], compute: Compute) -> list[Value]:
        """Return the values of `compute()` where a > b, and `values` elsewhere. If a > b is false everywhere, the
        operations of `compute` are not performed."""

    # --- operations that are composed --------------------------------------------------------------------------------

    def abs(self, x: Value) -> Value:
        return self.from_bits(self.bits(x) & self.whole(self.format.sign - 1))

    def sign_bit(self, x: Value) -> Value:
        """Return the sign bit of x. All other bits of the result are 0."""
        return self.bits(x) & self.whole(self.format.sign)

    def with_sign(self, x: Value, sign: Value) -> Value:
        """Return -x where the sign bit of `sign` is 1, and x elsewhere."""
        return self.from_bits(self.bits(x) ^ sign)

    def pick(self, mask: Value, then: Value, other: Value) -> Value:
        """Return `then` where all bits of `mask` are 1, and `other` where all bits of `mask` are 0."""
        first, second = self.bits(then), self.bits(other)
        return self.from_bits(second ^ ((first ^ second) & mask))

    def rounded(self, x: Value) -> tuple[Value, Value]:
        """Return two values: the whole number n that is nearest to x, and bits that end in the last bits of n. |x| must
        be less than 2^(digits - 1)."""
        shifter = self.number(self.format.shifter)
        shifted = x + shifter
        return shifted - shifter, self.bits(shifted)

    def nearest(self, x: Value) -> Value:
        return self.rounded(x)[0]

    def last_bits(self, n: Value) -> Value:
        """Return bits that end in the last bits of the whole number n. |n| must be less than 2^(digits - 1)."""
        return self.bits(n + self.number(self.format.shifter))

    def power_of_two(self, last_bits: Value) -> Value:
        """Return 2^n. The whole number n must be from 1 - bias to bias. `last_bits` has the last bits of n."""
        return self.from_bits((last_bits << self.whole(self.format.digits)) + self.whole(self.format.one))

    def from_whole(self, bits: Value) -> Value:
        """Convert bits that represent a whole number below 2^digits to a floating-point number with the same value."""
        unit = self.format.bias + self.format.digits << self.format.digits  # the bits of 2^digits
        return self.from_bits(bits | self.whole(unit)) - self.number(2.0**self.format.digits)

    def polynomial(self, coefficients: Sequence[float], x: Value) -> Value:
        """Return the value of a polynomial at x, computed by Horner's rule. The first of the `coefficients` belongs to
        the power 0."""
        result = self.number(coefficients[-1])
        for one in reversed(coefficients[:-1]):
            result = result * x + self.number(one)
        return result

    def exact_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Return the rounded sum a + b, and its rounding error (D. E. Knuth, Seminumerical Algorithms, 4.2.2)."""
        total = a + b
        back = total - a
        return total, (a - (total - back)) + (b - back)

    def ordered_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Return the rounded sum a + b, and its rounding error. |a| must be at least |b|, or a must be 0 (T. J. Dekker,
        Numer. Math. 18, 224, 1971)."""
        total = a + b
        return total, b - (total - a)

    def halves(self, x: Value) -> tuple[Value, Value]:
        """Return two numbers whose sum is x. Each of the two numbers has half of the digits of x (Dekker). |x| must not
        be huge."""
        digits = self.format.digits
        scaled = x * self.number(2.0 ** (digits // 2 + 1) + 1)
        high = scaled - (scaled - x)
        return high, x - high

    def exact_product(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Return the rounded product a b, and its rounding error (Dekker)."""
        product = a * b
        (a1, a2), (b1, b2) = self.halves(a), self.halves(b)
        return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


class Arrays(Arithmetic):
    """Computes with NumPy. A value is an array or a NumPy scalar."""

    def __init__(self, dtype: str) -> None:
        import numpy as np  # `outcrop info` reads programs without NumPy, so NumPy is imported only when it is needed

        super().__init__(dtype)
        self._np: Any = np
        self._number = getattr(np, dtype)
        self._whole = {"float32": np.uint32, "float64": np.uint64}[dtype]

    def number(self, value: float) -> Value:
        return self._number(value)

    def whole(self, value: int) -> Value:
        return self._whole(value)

    def bits(self, number: Value) -> Value:
        return number.view(self._whole)

    def from_bits(self, bits: Value) -> Value:
        return bits.view(self._number)

    def where(self, a: Value, b: Value, then: Value, other: Value) -> Value:
        return self._np.where(a > b, then, other)

    def where_equal(self, a: Value, b: Value, then: Value, other: Value) -> Value:
        return self._np.where(a == b, then, other)

    def entry(self, table: Sequence[int], index: Value) -> Value:
        return self._np.array(table, self._number)[index]

    def rarely(self, a: Value, b: Value, values: Sequence[Value], compute: Compute) -> list[Value]:
        mask = a > b
        if not mask.any():
            return list(values)
        return [self._np.where(mask, one, other) for one, other in zip(compute(), values, strict=True)]


@dataclass(frozen=True)
class Text:
    """The name of a variable or a constant in C. If an operator of Python is applied to a `Text`, a line of C is
    appended."""

    lines: Lines
    name: str
    is_bits: bool = False

    def _infix(self, operator: str, other: Text) -> Text:
        return self.lines.variable(f"{self.name} {operator} {other.name}", self.is_bits)

    def __add__(self, other: Text) -> Text:
        return self._infix("+", other)

    def __sub__(self, other: Text) -> Text:
        return self._infix("-", other)

    def __mul__(self, other: Text) -> Text:
        return self._infix("*", other)

    def __truediv__(self, other: Text) -> Text:
        return self._infix("/", other)

    def __and__(self, other: Text) -> Text:
        return self._infix("&", other)

    def __or__(self, other: Text) -> Text:
        return self._infix("|", other)

    def __xor__(self, other: Text) -> Text:
        return self._infix("^", other)

    def __lshift__(self, other: Text) -> Text:
        return self._infix("<<", other)

    def __rshift__(self, other: Text) -> Text:
        return self._infix(">>", other)


class Lines(Arithmetic):
    """Writes the body of a function in C. With `lanes` = 1, numbers have the type `cell`, and the bits of numbers have
    the type `word`. With more lanes, numbers are vectors of the type `v`, and the bits of numbers are vectors of the
    type `n`. The mask of a comparison then has the type `m`.
    """

    def __init__(self, dtype: str, lanes: int) -> None:
        super().__init__(dtype)
        self.lanes = lanes
        self.lines: list[str] = []
        self.tables: dict[str, str] = {}
        self._types = ("cell", "word") if lanes == 1 else ("v", "n")
        self._indent = "  "
        self._count = 0
        self._known: dict[str, Text] = {}

    def variable(self, code: str, is_bits: bool = False) -> Text:
        """Append a line of C that defines a variable with the value of `code`."""
        self._count += 1
        name = f"f{self._count}"
        self.lines.append(f"{self._indent}const {self._types[is_bits]} {name} = {code};")
        return Text(self, name, is_bits)

    def _constant(self, scalar: str, is_bits: bool) -> Text:
        if self.lanes == 1:
            return Text(self, scalar, is_bits)
        if scalar not in self._known:
            self._known[scalar] = self.variable("{" + ", ".join([scalar] * self.lanes) + "}", is_bits)
        return self._known[scalar]

    def number(self, value: float) -> Text:
        if value != value or value in (float("inf"), -float("inf")):
            code = '__builtin_nan("")' if value != value else f"{'-' if value < 0 else ''}__builtin_inf()"
        else:
            code = value.hex()
        return self._constant(f"(cell){code}", False)

    def whole(self, value: int) -> Text:
        return self._constant(f"(word){value}u", True) if value < 1 << 32 else self._constant(f"{value}ul", True)

    def bits(self, number: Text) -> Text:
        return self.variable(f"word_of({number.name})" if self.lanes == 1 else f"(n){number.name}", True)

    def from_bits(self, bits: Text) -> Text:
        return self.variable(f"cell_of({bits.name})" if self.lanes == 1 else f"(v){bits.name}")

    def _select(self, comparison: str, then: Text, other: Text) -> Text:
        if self.lanes == 1:
            return self.variable(f"{comparison} ? {then.name} : {other.name}")
        mask = f"k{self._count}"
        self.lines.append(f"{self._indent}const m {mask} = {comparison};")
        return self.variable(f"(v)(((m){then.name} & {mask}) | ((m){other.name} & ~{mask}))")

    def where(self, a: Text, b: Text, then: Text, other: Text) -> Text:
        return self._select(f"{a.name} > {b.name}", then, other)

    def where_equal(self, a: Text, b: Text, then: Text, other: Text) -> Text:
        return self._select(f"{a.name} == {b.name}", then, other)

    def entry(self, table: Sequence[int], index: Text) -> Text:
        text = ", ".join(map(str, table))
        name = self.tables.setdefault(text, f"table{len(self.tables)}")
        if self.lanes == 1:
            return self.variable(f"{name}[{index.name}]")
        return self.variable("{" + ", ".join(f"{name}[{index.name}[{i}]]" for i in range(self.lanes)) + "}")

    def rarely(self, a: Text, b: Text, values: Sequence[Text], compute: Compute) -> list[Value]:
        self._count += 1
        names = [f"r{self._count}_{place}" for place in range(len(values))]
        for name, value in zip(names, values, strict=True):
            self.lines.append(f"{self._indent}{self._types[0]} {name} = {value.name};")
        comparison = f"{a.name} > {b.name}"
        self.lines.append(f"{self._indent}if ({comparison if self.lanes == 1 else f'any({comparison})'}) {{")
        with self._inner():
            for name, value, result in zip(names, values, compute(), strict=True):
                self.lines.append(f"{self._indent}{name} = {self.where(a, b, result, value).name};")
        self.lines.append(f"{self._indent}}}")
        return [Text(self, name) for name in names]

    @contextmanager
    def _inner(self) -> Iterator[None]:
        outer = self._indent, dict(self._known)
        self._indent += "  "
        yield
        self._indent, self._known = outer
