"""Measure the largest errors of the functions of fields, for docs/reference/functions.md.

    .venv/bin/python scripts/function_errors.py [millions of arguments for each function and dtype]

The script compares the results of Outcrop with the functions of the C library for 80-bit numbers, so this script needs
an x86-64 processor. The errors of the 80-bit functions are less than 1/1000 of the last place of a float64.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.language.functions import FUNCTIONS, call

CHUNK = 1 << 18
WORDS = {"float32": np.uint32, "float64": np.uint64}
Numbers = NDArray[Any]


def arguments(name: str, dtype: str, rng: np.random.Generator) -> Iterator[list[Numbers]]:
    """Yield arguments for a function: arguments with all exponents, close to multiples of pi / 2, close to 1, and of
    moderate size."""

    def signed(low: float, high: float) -> Numbers:
        size = np.exp(rng.uniform(np.log(low), np.log(high), CHUNK))
        return np.asarray((size * rng.choice([-1.0, 1.0], CHUNK)).astype(dtype))

    def any_number() -> Numbers:
        found = rng.integers(0, 2**64, CHUNK, dtype=np.uint64).astype(WORDS[dtype]).view(dtype)
        return np.where(np.isfinite(found), found, found.dtype.type(1))

    limits = np.finfo(dtype)
    top = float(np.log(limits.max))
    kinds = [any_number, lambda: rng.uniform(-2, 2, CHUNK).astype(dtype), lambda: signed(1e-3, 1e3),
             lambda: rng.uniform(-top, top, CHUNK).astype(dtype),
             lambda: (np.pi / 2 * rng.integers(-(10**6), 10**6, CHUNK)).astype(dtype),
             lambda: (1 + rng.uniform(-0.1, 0.1, CHUNK)).astype(dtype)]  # fmt: skip
    if FUNCTIONS[name] == 1:
        for kind in kinds:
            yield [kind()]
        return
    for first in kinds[:3] + kinds[5:]:
        for second in kinds[:3]:
            yield [first(), second()]
    if name == "pow":  # results of all sizes
        base = np.abs(any_number()) + limits.tiny
        with np.errstate(divide="ignore"):
            yield [base, (rng.uniform(-top, top, CHUNK) / np.log(base.astype(float))).astype(dtype)]


def largest_error(name: str, dtype: str, given: list[Numbers]) -> float:
    """Return the largest error of the function, in units in the last place of the exact result."""
    if name in ("log", "pow"):
        given[0] = np.abs(given[0])
    limits = np.finfo(dtype)
    exact_function = {"pow": np.power, "atan2": np.arctan2}.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        found = call(name, dtype, *given)
        exact = exact_function(*(one.astype(np.longdouble) for one in given))
        _, exponent = np.frexp(exact)
        unit = np.ldexp(np.longdouble(1), np.maximum(exponent - 1, limits.minexp) - limits.nmant)
        error = np.abs(found.astype(np.longdouble) - exact) / unit
        is_known = np.isfinite(exact) & (np.abs(exact) < limits.max)
    return float(error[is_known].max(initial=0))


def main() -> None:
    millions = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    for name in FUNCTIONS:
        errors = []
        for dtype in WORDS:
            rng, worst, done = np.random.default_rng(1), 0.0, 0
            while done < millions * 1e6:
                for given in arguments(name, dtype, rng):
                    worst, done = max(worst, largest_error(name, dtype, given)), done + CHUNK
            errors.append(f"{worst:.3f}")
        print(name, *errors, flush=True)


if __name__ == "__main__":
    main()
