"""Write src/outcrop/language/functions/coefficients.py: the constants of the functions of fields, for both dtypes.

    .venv/bin/python scripts/function_coefficients.py

The script approximates each function by a polynomial. The polynomial interpolates the function at Chebyshev nodes, and
the script computes its coefficients with 60 decimal digits. The error of such a polynomial is at most about twice the
error of the best polynomial (L. N. Trefethen, Approximation Theory and Approximation Practice, SIAM 2013, chapter 8).
The script takes the polynomial of lowest degree whose error is much smaller than the rounding errors. Then the script
rounds the coefficients of this polynomial to the dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

TARGET = Path(__file__).parent.parent / "src" / "outcrop" / "language" / "functions" / "coefficients.py"
DIGITS = {"float32": 24, "float64": 53}  # the number of bits in a mantissa
SPARE_BITS = 5
"""The error of a polynomial is at most 2^-SPARE_BITS times the largest rounding error of the result."""

# The constant 2 / pi is stored in parts (two_over_pi). Each part of 2 / pi has a third of the bits of a mantissa,
# rounded up. The product of two numbers with this number of bits is exact.
PART_BITS = {"float32": 8, "float64": 18}
LEADING_ZEROS = 2
QUOTIENT_BITS = {"float32": 9, "float64": 20}  # bits of the largest quotient by pi / 2 that is multiplied by HALF_PI
EXPONENT_BITS = {"float32": 9, "float64": 12}  # bits of the whole number that is multiplied by ln 2
EXPONENT_END = {"float32": 128, "float64": 1024}


def series(function: Callable[[Any], Any], first: int, step: int) -> Callable[[Any], Any]:
    """Return a function of z that computes the sum of c_k z^k. The number c_k is the Taylor coefficient of `function`
    for the power first + k step."""
    terms = mpmath.taylor(function, 0, first + 60 * step)[first::step]
    return lambda z: mpmath.polyval(terms[::-1], z)


def interpolated(function: Callable[[Any], Any], low: Any, high: Any, count: int) -> list[Any]:
    """Return the `count` coefficients of the polynomial that is equal to `function` at the Chebyshev nodes. The
    coefficient of the lowest power comes first."""
    nodes = [(low + high) / 2 + (high - low) / 2 * mpmath.cos(mpmath.pi * (2 * k + 1) / (2 * count))
             for k in range(count)]  # fmt: skip
    rows = mpmath.matrix([[node**k for k in range(count)] for node in nodes])
    return list(mpmath.lu_solve(rows, mpmath.matrix([function(node) for node in nodes])))


def fitted(name: str, bits: int, function: Callable[[Any], Any], low: Any, high: Any,
           weight: Callable[[Any], Any]) -> list[Any]:  # fmt: skip
    """Return the coefficients of the polynomial of lowest degree whose error is at most 2^-SPARE_BITS times the largest
    rounding error of the result. The product of `weight` and the error of the polynomial is the relative error of the
    result."""
    for count in range(2, 40):
        found = interpolated(function, low, high, count)
        points = [low + (high - low) * mpf(k) / 200 for k in range(201)]
        error = max(abs((mpmath.polyval(found[::-1], z) - function(z)) * weight(z)) for z in points)
        if error < mpf(2) ** -(bits + SPARE_BITS):
            return found
    raise ValueError(f"no polynomial for {name}")


def polynomials(bits: int) -> Iterator[tuple[str, list[Any]]]:
    ln2, root = mpmath.log(2), mpmath.sqrt(2)
    quarter, widest = (mpmath.pi / 4 + mpf(1) / 128) ** 2, ((root - 1) / (root + 1)) ** 2 * (1 + mpf(1) / 512)
    half = ln2 / 2 + mpf(1) / 512
    flat = mpf("0.5625") ** 2
    atanh = series(lambda s: 2 * mpmath.atanh(s), 3, 2)
    yield "EXP", fitted("exp", bits, series(mpmath.exp, 2, 1), -half, half, lambda r: r * r)
    yield "LOG", fitted("log", bits, atanh, mpf(0), widest, lambda z: z / 2)
    yield "SIN", fitted("sin", bits, series(mpmath.sin, 3, 2), mpf(0), quarter, lambda z: z)
    yield "COS", fitted("cos", bits, series(mpmath.cos, 4, 2), mpf(0), quarter, lambda z: z * z / (1 - z / 2))
    yield "ATAN", fitted("atan", bits, series(mpmath.atan, 3, 2), mpf(0), mpf(1) / 4, lambda z: z)
    yield "TANH", fitted("tanh", bits, series(mpmath.tanh, 3, 2), mpf(0), flat, lambda z: z)
    # log(m) = 2 s (1 + z / 3 + z^2 W(z)). To compute a power, the kernel needs the logarithm of the base with more
    # digits than a mantissa has.
    more = bits + {24: 8, 53: 11}[bits]
    tail = series(lambda s: mpmath.atanh(s), 5, 2)
    yield "POW", fitted("pow", more, tail, mpf(0), widest, lambda z: z * z)


def parts(value: Any, widths: list[int]) -> list[Any]:
    """Return numbers whose sum is `value`. Each returned number except the last has at most as many bits as its entry
    of `widths`. The last number is the rest."""
    found = []
    for width in widths:
        exponent = int(mpmath.floor(mpmath.log(abs(value), 2))) + 1
        scale = mpf(2) ** (width - exponent)
        found.append(mpmath.floor(value * scale) / scale)
        value -= found[-1]
    return [*found, value]


def two_over_pi(dtype: str) -> list[int]:
    """Return the digits of 2 / pi to the base 2^PART_BITS, with LEADING_ZEROS zeros before them."""
    width = PART_BITS[dtype]
    count = EXPONENT_END[dtype] // width + 4 * DIGITS[dtype] // width
    value = int(mpmath.floor(2 / mpmath.pi * mpf(2) ** (width * count)))
    digits = [(value >> (width * (count - 1 - k))) & ((1 << width) - 1) for k in range(count)]
    return [0] * LEADING_ZEROS + digits


def rounded(value: Any, dtype: str) -> str:
    return repr(float(np.float32(float(value))) if dtype == "float32" else float(value))


def constants(dtype: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the values, as Python writes them, of the constants for a dtype."""
    bits = DIGITS[dtype]

    def several(values: list[Any]) -> str:
        return "(" + ", ".join(rounded(value, dtype) for value in values) + ")"

    for name, coefficients in polynomials(bits):
        yield name, several(coefficients)
    yield "LN2", several(parts(mpmath.log(2), [bits - EXPONENT_BITS[dtype]]))
    yield "LOG2_E", rounded(1 / mpmath.log(2), dtype)
    yield "ROOT_HALF", rounded(mpmath.sqrt(mpf(1) / 2), dtype)
    yield "THIRD", several(parts(mpf(1) / 3, [bits]))
    yield "TWO_OVER_PI", rounded(2 / mpmath.pi, dtype)
    yield "HALF_PI", several(parts(mpmath.pi / 2, [bits - QUOTIENT_BITS[dtype]] * 3))
    yield "QUARTER_PI", several(parts(mpmath.pi / 4, [bits - 3]))  # the spare bits make products with 3 exact
    yield "PART_BITS", str(PART_BITS[dtype])
    with mpmath.workdps(700):
        yield "DIGITS", str(tuple(two_over_pi(dtype)))


HEAD = '''"""The constants of the functions of fields. `scripts/function_coefficients.py` writes this file.

Polynomials have their lowest coefficient first. A constant that is a sum of several numbers begins with the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

LEADING_ZEROS = {zeros}
"""The number of zeros before the digits of 2 / pi in DIGITS."""


@dataclass(frozen=True)
class Coefficients:
    """The constants for one dtype. `recipe` modules explain the formulas."""

    EXP: tuple[float, ...]  # exp(r) = 1 + r + r^2 q(r)
    LOG: tuple[float, ...]  # 2 artanh(s) = 2 s + s z q(z), with z = s^2 here and below
    SIN: tuple[float, ...]  # sin(s) = s + s z q(z)
    COS: tuple[float, ...]  # cos(s) = 1 - z / 2 + z^2 q(z)
    ATAN: tuple[float, ...]  # arctan(s) = s + s z q(z)
    TANH: tuple[float, ...]  # tanh(s) = s + s z q(z)
    POW: tuple[float, ...]  # artanh(s) = s + s z / 3 + s z^2 q(z)
    LN2: tuple[float, ...]
    LOG2_E: float
    ROOT_HALF: float
    THIRD: tuple[float, ...]
    TWO_OVER_PI: float
    HALF_PI: tuple[float, ...]
    QUARTER_PI: tuple[float, ...]
    PART_BITS: int  # the number of bits of an entry of DIGITS
    DIGITS: tuple[int, ...]  # of 2 / pi


# fmt: off
COEFFICIENTS = {{
'''


def page() -> str:
    """Return the text of the file."""
    mpmath.mp.dps = 60
    lines = [HEAD.format(zeros=LEADING_ZEROS)]
    for dtype in DIGITS:
        lines.append(f'    "{dtype}": Coefficients(\n')
        for name, text in constants(dtype):
            start = f"        {name}="
            lines.append(fill(f"{text},", 120, initial_indent=start, subsequent_indent=" " * (len(start) + 1)) + "\n")
        lines.append("    ),\n")
    return "".join([*lines, "}\n# fmt: on\n"])


if __name__ == "__main__":
    TARGET.write_text(page())
