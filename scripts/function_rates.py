"""Measure how much a function of a field slows down updates of tiles in memory.

    .venv/bin/python scripts/function_rates.py

The first stencil is the heat equation of order 2 with an additional product. In each other stencil, a function of the
cell replaces the additional product. The stencils are measured alternately. The script prints the highest rates,
because other programs can only make a measurement slower.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import sympy

from outcrop import _core
from outcrop.bench.rates import ROWS_AT_ONCE
from outcrop.language.boundary import FIXED
from outcrop.language.compile import compile_kernel
from outcrop.language.stencil import Field, Parameter, Stencil
from outcrop.plan.actions import EVERYTHING
from outcrop.plan.plan import Sizes
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from outcrop.run.engine import pack_scalars
from outcrop.tiers import discover

SHAPE, LEVELS, TURNS = (16, 64, 1024), 8, 30
DIAMOND = 4
U, DT, K = Field("u"), Parameter("dt", 0.1), Parameter("k", 1e-6)
HERE = U[0, 0, 0]
NEAR = sum(U[offset] for offset in ((0, 0, 1), (0, 0, -1), (0, 1, 0), (0, -1, 0), (1, 0, 0), (-1, 0, 0)))
VALUE = HERE + 2  # most processors are slow for numbers below the smallest normal number
TERMS: dict[str, Any] = {
    "no function": K * VALUE, "exp of a parameter": sympy.exp(K) * VALUE, "sqrt": K * sympy.sqrt(VALUE),
    "Piecewise": sympy.Piecewise((K * VALUE, VALUE > K), (K, True)), "exp": K * sympy.exp(VALUE),
    "log": K * sympy.log(VALUE), "sin": K * sympy.sin(VALUE), "cos": K * sympy.cos(VALUE), "tan": K * sympy.tan(VALUE),
    "tanh": K * sympy.tanh(VALUE), "atan2": K * sympy.atan2(VALUE, U[0, 0, 1]), "u**1.5": K * VALUE**1.5,
    "pow": K * VALUE**1.3,
}  # fmt: skip


def meter_of(term: Any, dtype: str) -> Callable[[int], float]:
    """Return a function that measures the rate of updates in cells per second. The argument of the returned function is
    the number of rows that the kernel updates together.
    """
    stencil = Stencil("rates", {U: HERE + DT * (NEAR - 6 * HERE) + term})
    kernel = compile_kernel(stencil, dtype)
    problem = as_problem(stencil, make_layout(SHAPE, dtype), LEVELS, FIXED, False)
    planes = _core.UpdateMeter.planes_needed(problem, LEVELS, SHAPE[0])
    scalars = pack_scalars(stencil, {}, dtype)
    meter = _core.UpdateMeter(problem, problem.fields, kernel.calls, scalars, discover.available_cores(), planes)
    return lambda rows: float(
        median(meter.measure(Sizes(LEVELS, SHAPE[0], DIAMOND, rows_at_once=rows), problem.whole_plane, EVERYTHING, 2))
    )


def main() -> None:
    for dtype in ("float32", "float64"):
        meters = {name: meter_of(term, dtype) for name, term in TERMS.items()}
        found: dict[str, float] = dict.fromkeys(meters, 0.0)
        for _ in range(TURNS):
            for name, meter in meters.items():
                found[name] = max(found[name], *(meter(rows) for rows in ROWS_AT_ONCE))
        for name, rate in found.items():
            print(f"{dtype}  {name:20} {rate / 1e9:6.3f} Gcell/s, {found['no function'] / rate:5.2f} times the time")


if __name__ == "__main__":
    main()
