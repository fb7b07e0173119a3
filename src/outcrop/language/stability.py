"""The growth of the worst wave: von Neumann's analysis of a stencil that is linear, or is near a uniform state.

In a plane wave exp(i k x) every load is a number times the field, so a whole step, stages and previous values
included, is a matrix for each wave number k (J. von Neumann and R. D. Richtmyer, J. Appl. Phys. 21, 232, 1950). The
step is bounded when no eigenvalue of these amplification matrices exceeds 1. Wave numbers are sampled on a lattice
that holds 0 and the shortest waves of the grid, where the extremes of the usual stencils lie. Fields that are only
read count as uniform; take the extremes of theirs.

The linear part of a program says how much each value that it reads counts in each result:

    result = constant + sum of slope * load

For linear updates this is the whole of them. Others are taken at a uniform state, one value for each field, and the
slopes are their derivatives there. What depends on a value that is not known becomes NaN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.language.program import Apply, Constant, Load, Program, Scalar
from outcrop.language.stencil import Stencil

State: TypeAlias = Mapping[str, float]
"""A value for each field that is only read; for a stencil that is not linear, for each field."""

Measure: TypeAlias = Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]
"""Computes one array from the arrays of all fields that are only read."""

MAX_GROWTH, MAX_GROWTH_SECOND = 1 + 1e-6, 1 + 1e-4
"""The maximum eigenvalues that count as 1, because of rounding: for updates that read one value of a field, and two.

In second order in time, 1 is a double eigenvalue of the longest wave, and weights that are rounded to e move it by
about the square root of e. Devito writes weights with nine digits. A step that exceeds the limit by the part d makes
waves grow by about the root of d, too, so the limit itself is as sharp as before.
"""

_MAX_UNKNOWNS = 64  # of a cell: of so many fields, or half as many with previous values
_PHASES_ALONE, _PHASES = 32, 8  # parts of a turn: for one unknown, where no eigenvalues are needed, and for several


@dataclass(frozen=True)
class Linear:
    """The value at the uniform state, and its derivative by each load of a field that changes."""

    value: float
    slopes: dict[Load, float] = field(default_factory=dict)

    def scaled(self, factor: float, value: float) -> Linear:
        """All slopes multiplied, and another value."""
        return Linear(value, {load: factor * slope for load, slope in self.slopes.items()})


def linearise(
    program: Program, scalars: Sequence[float], state: Sequence[float], fixed: Collection[int] = ()
) -> list[Linear]:
    """The linear part of each result, where field number f has the value `state[f]` in all cells.

    Fields numbered in `fixed` do not change, so nothing is derived by them. NaN stands for values that are not known:
    results that are linear have finite slopes nevertheless, those of all others are NaN. Where something known is
    divided by zero there are infinite ones.
    """
    found: list[Linear] = []
    for operation in program.operations:
        match operation:
            case Load(number, _, _):
                found.append(Linear(state[number], {} if number in fixed else {operation: 1.0}))
            case Scalar(index):
                found.append(Linear(scalars[index]))
            case Constant(value):
                found.append(Linear(value))
            case Apply(operator, (i,)):
                found.append(_of_one(operator, found[i]))
            case Apply(operator, (i, j)):
                found.append(_of_two(operator, found[i], found[j]))
    return [found[place] for place in program.results]


def _of_one(operator: str, a: Linear) -> Linear:
    if operator == "neg":
        return a.scaled(-1.0, -a.value)
    if operator == "sqrt":
        root = math.sqrt(a.value) if a.value >= 0 else math.nan
        return a.scaled(0.5 / root if root else math.nan, root)
    sign = math.copysign(1.0, a.value) if a.value else math.nan  # abs; it has no derivative at 0
    return a.scaled(sign if sign == sign and a.value == a.value else math.nan, abs(a.value))


def _of_two(operator: str, a: Linear, b: Linear) -> Linear:
    if operator == "add":
        return _add(a.value + b.value, a, b)
    if operator == "sub":
        return _add(a.value - b.value, a, b.scaled(-1.0, -b.value))
    if operator == "mul":
        value = a.value * b.value
        return _add(value, a.scaled(b.value, value), b.scaled(a.value, value))
    if operator == "div":
        value = _quotient(a.value, b.value)
        return _add(value, a.scaled(_quotient(1.0, b.value), value), b.scaled(-_quotient(value, b.value), value))
    if a.value < b.value or a.value > b.value:
        return a if (a.value < b.value) == (operator == "min") else b
    same = Linear(a.value if a.value == b.value else math.nan)
    return _add(same.value, a.scaled(math.nan, 0.0), b.scaled(math.nan, 0.0)) if a.slopes or b.slopes else same


def _add(value: float, a: Linear, b: Linear) -> Linear:
    slopes = dict(a.slopes)
    for load, slope in b.slopes.items():
        slopes[load] = slopes.get(load, 0.0) + slope
    return Linear(value, slopes)


def _quotient(a: float, b: float) -> float:
    if b or not a:
        return a / b if b else math.nan
    return math.copysign(math.inf, a) if a == a else math.nan


@dataclass(frozen=True)
class Limit:
    """The parameter that decides on stability, and the uniform state near which a stencil that is not linear is judged.

    Steps up to the limit are stable, or with `is_minimum` those from the limit on.
    """

    parameter: str = "dt"
    is_minimum: bool = False
    state: State = field(default_factory=dict)

    @property
    def word(self) -> str:
        """The word for the limit."""
        return "smallest" if self.is_minimum else "largest"


def growth(stencil: Stencil, values: Mapping[str, float], state: State | None = None) -> float | None:
    """The factor by which the worst wave grows per step, for parameters that differ from their defaults in `values`.

    `state` holds the values of fields as if they were uniform. None where that cannot be said: a field that is only
    read has no value in `state`, a coefficient is a signal, or the update is not linear and a value is missing.
    Infinite where it divides by zero. None, too, with more than 64 values for each cell: it would take minutes.
    """
    known = state or {}
    uniform = [float(known.get(one.name, math.nan)) for one in stencil.fields]
    fixed = {number for number, storage in enumerate(stencil.storage) if storage.is_static}
    scalars = (*stencil.scalars(values), *(math.nan for _ in stencil.signals))
    stages = [linearise(stage.program, scalars, uniform, fixed) for stage in stencil.stages]
    slopes = [slope for stage in stages for result in stage for slope in result.slopes.values()]
    if any(map(math.isinf, slopes)):
        return math.inf
    if not all(map(math.isfinite, slopes)):
        return None
    step = _Amplification(stencil, stages)
    if len(step.unknowns) > _MAX_UNKNOWNS:
        return None
    return float(np.abs(_eigenvalues(step.matrices())).max(initial=0.0))


def max_growth(stencil: Stencil) -> float:
    """The maximum growth of a stable stencil."""
    return MAX_GROWTH_SECOND if any(one.history == 2 for one in stencil.storage) else MAX_GROWTH


def largest_step(
    stencil: Stencil, values: Mapping[str, float], states: Sequence[State] = ({},), limit: Limit | None = None
) -> float | None:
    """The largest stable value of `limit.parameter` (the smallest, if the limit is a minimum), to six digits.

    It is stable for each of `states`. Infinite when every value is, 0 when none is (for a minimum the other way round);
    None when growth cannot be said. The other parameters are those of `values`.
    """
    one = limit or Limit()
    start = dict(zip((p.name for p in stencil.parameters), stencil.scalars(values), strict=True))[one.parameter]

    def is_stable(step: float) -> bool | None:
        return _is_bounded(stencil, {**values, one.parameter: step}, states)

    if not states or is_stable(abs(start) or 1.0) is None:
        return None
    return _bisect(lambda step: bool(is_stable(step)), abs(start) or 1.0, one.is_minimum)


def _is_bounded(stencil: Stencil, values: Mapping[str, float], states: Sequence[State]) -> bool | None:
    found = [growth(stencil, values, state) for state in states]
    return None if None in found else all(one is not None and one <= max_growth(stencil) for one in found)


def _bisect(is_stable: Callable[[float], bool], start: float, is_minimum: bool) -> float:
    """The last stable value, by bisection."""
    inside, outside = (2.0, 0.5) if is_minimum else (0.5, 2.0)
    good = bad = start
    for _ in range(60):
        if is_stable(good):
            break
        good *= inside
    else:
        return math.inf if is_minimum else 0.0
    for _ in range(60):
        if not is_stable(bad):
            break
        bad *= outside
    else:
        return 0.0 if is_minimum else math.inf
    while abs(good - bad) > 1e-6 * max(good, bad):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if is_stable(middle) else (good, middle)
    return good


def corners(ranges: Mapping[str, tuple[float, float]]) -> list[dict[str, float]]:
    """Every combination of the least and the largest value of fields that are only read."""
    choices = [[(name, value) for value in dict.fromkeys(ends)] for name, ends in sorted(ranges.items())]
    return [dict(choice) for choice in itertools.product(*choices)]


class Extremes:
    """Collects the states by which a run is judged, from the planes of the fields that are only read.

    Kept are the cells, with the values of all fields there, in which a field or one of `measures` is least or largest.
    A measure is for instance a squared wave speed: `corners` would combine the lightest cell with the stiffest one,
    though no cell is both. Where there is no field that is only read, there is one state without values.
    """

    def __init__(self, fields: Iterable[str], measures: Iterable[Measure] = ()) -> None:
        self._fields, self._measures = sorted(fields), list(measures)
        self._found: dict[tuple[str, bool], tuple[float, dict[str, float]]] = {}

    def add(self, planes: Mapping[str, NDArray[Any]]) -> None:
        """Add the same cells of each field, as arrays of one shape. Fields besides `fields` do not count."""
        planes = {name: planes[name] for name in self._fields}
        named = {**planes, **{f"measure {i}": measure(planes) for i, measure in enumerate(self._measures)}}
        for name, array in named.items():
            for largest in (False, True):
                place = int(array.argmax() if largest else array.argmin())
                value = float(array.flat[place])
                best = self._found.get((name, largest))
                if best is None or (value > best[0] if largest else value < best[0]):
                    cell = {one: float(values.flat[place]) for one, values in planes.items()}
                    self._found[name, largest] = (value, cell)

    @property
    def states(self) -> list[dict[str, float]]:
        """The states that were found, each once."""
        if not self._fields:
            return [{}]
        return [dict(items) for items in dict.fromkeys(tuple(cell.items()) for _, cell in self._found.values())]


class _Amplification:
    """A step as matrices, one for each wave number, on the values that the next step needs."""

    def __init__(self, stencil: Stencil, stages: Sequence[Sequence[Linear]]) -> None:
        self.stencil, self.stages = stencil, stages
        storage = list(enumerate(stencil.storage))
        newest = [(number, 0) for number, one in storage if not one.is_static]
        self.unknowns = newest + [(number, 1) for number, one in storage if one.history == 2]
        self.waves = self._wave_numbers()

    def _wave_numbers(self) -> NDArray[np.float64]:
        """Phases per cell, shape (waves, 3). A wave and its mirror image grow alike, so half of them are enough."""
        parts = _PHASES if len(self.unknowns) > 1 else _PHASES_ALONE
        whole = np.linspace(-np.pi, np.pi, parts + 1)
        axes = [whole if radius else np.zeros(1) for radius in self.stencil.radii]
        first = next((axis for axis, radius in enumerate(self.stencil.radii) if radius), 0)
        axes[first] = axes[first][len(axes[first]) // 2 :]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)

    def matrices(self) -> NDArray[np.complex128]:
        """Shape (waves, unknowns, unknowns)."""
        count = len(self.unknowns)
        rows: dict[tuple[int, int], NDArray[np.complex128]] = {}
        for place, unknown in enumerate(self.unknowns):
            rows[unknown] = np.zeros((len(self.waves), count), np.complex128)
            rows[unknown][:, place] = 1
        for stage, results in zip(self.stencil.stages, self.stages, strict=True):
            updated = [self._result(linear, rows) for linear in results]
            for number, row in zip(stage.targets, updated, strict=True):
                rows[number, 1], rows[number, 0] = rows[number, 0], row
        return np.stack([rows[unknown] for unknown in self.unknowns], axis=1)

    def _result(self, linear: Linear, rows: Mapping[tuple[int, int], NDArray[np.complex128]]) -> NDArray[np.complex128]:
        total = np.zeros((len(self.waves), len(self.unknowns)), np.complex128)
        for load, slope in linear.slopes.items():
            phase = np.exp(1j * (self.waves @ np.array(load.offset)))
            total += (slope * phase)[:, None] * rows[load.field, load.age]
        return total


def _eigenvalues(matrices: NDArray[np.complex128]) -> NDArray[np.complex128]:
    if matrices.shape[-1] == 1:
        return matrices
    return np.linalg.eigvals(matrices).astype(np.complex128)
