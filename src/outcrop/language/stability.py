"""Analyse the stability of a stencil by von Neumann's method. The worst wave is the wave that grows fastest. The result
of the analysis is the factor by which the worst wave grows in each step. A stencil that is not linear is analysed near
a uniform state.

In a plane wave exp(i k x), the value of a neighbour is the value of the updated cell times a complex number. So for
each wave number k, one matrix describes a whole step with its stages and previous values (J. von Neumann and R. D.
Richtmyer, J. Appl. Phys. 21, 232, 1950). A step is stable if all eigenvalues of these amplification matrices have a
magnitude of at most one. Wave numbers are sampled on a lattice. The lattice contains 0 and the shortest waves of the
grid, because the usual stencils have their extreme eigenvalues at these wave numbers. Read-only fields are treated as
uniform. So a caller analyses several states, one for each extreme value of the read-only fields.

The linear part of a program gives the weight of each load in each result:

    result = constant + sum of slope * load

A linear update has only the sum of slope * load, and no constant. An update that is not linear is linearised at a
uniform state, which has one value for each field. The slopes of an update that is not linear are its derivatives at the
uniform state. A result that depends on an unknown value is NaN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import GridShape
from outcrop.language import schema
from outcrop.language.program import Apply, CellCount, CellIndex, Constant, Load, Program, Scalar
from outcrop.language.stability_cells import sampled_cells
from outcrop.language.stencil import Stencil

State: TypeAlias = Mapping[str, float]
"""One value for each read-only field, or for each field if the stencil is not linear."""

Measure: TypeAlias = Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]
"""A function that computes one array from the arrays of all read-only fields."""

MAX_GROWTH, MAX_GROWTH_SECOND = 1 + 1e-6, 1 + 1e-4
"""Because of rounding, eigenvalues up to these limits count as 1. The first limit is for stencils that need one value
of each field. The second limit is for stencils that need two values of a field.

In schemes of second order in time, 1 is a double eigenvalue of the longest wave. A relative rounding error e of the
weights moves this eigenvalue by about the square root of e, and Devito writes weights with only nine digits. This
tolerance hardly changes the stable limit. If a step exceeds the limit by a small fraction d, waves already grow by
about the square root of d, which is much larger.
"""

MAX_UNKNOWNS = 64
"""The maximum number of values of one cell that a step needs. Each field counts once, or twice if the step also needs
its previous value."""
_PHASES_ALONE, _PHASES = 32, 8
"""The number of sampled phases between 0 and 2 pi. The first number is for stencils with one unknown in each cell,
which need no eigenvalue solver. The second number is for stencils with several unknowns."""
_SMOOTH = np.pi / 4 + 1e-9
"""Waves with a change of phase of at most pi / 4 per cell along each axis are smooth. Both lattices contain this phase.
"""
_SMALL = 1 / 16
"""The part of the time step for which `numerical_growth` computes the growth that the equation itself causes. The
errors of the time step are proportional to dt. So with this part of the step, the errors are much smaller than the
growth with the whole step."""


@dataclass(frozen=True)
class Linear:
    """The value of an operation at the uniform state, and its slopes. Each slope is the derivative of the operation's
    value with respect to one load. Only loads of fields that change have slopes."""

    value: float
    slopes: dict[Load, float] = field(default_factory=dict)

    def scaled(self, factor: float, value: float) -> Linear:
        """Return a copy with all slopes multiplied by `factor`, and with the given `value`."""
        return Linear(value, {load: factor * slope for load, slope in self.slopes.items()})


def linearise(
    program: Program, scalars: Sequence[float], state: Sequence[float], fixed: Collection[int] = (),
    cell: GridShape = (0, 0, 0), shape: GridShape = (1, 1, 1),
) -> list[Linear]:  # fmt: skip
    """Return the linear part of each result: its value and its slopes. The state is uniform: field number f has the
    value `state[f]` in all cells.

    Fields with a number in `fixed` do not change and have no slopes. NaN in `state` means that the value of the field
    is unknown. If values are unknown, linear results still have finite slopes, but the slopes of other results are NaN.
    If a known value is divided by zero, slopes are infinite. Position symbols have their values at the cell `cell` of a
    grid with the shape `shape`.
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
            case CellIndex(axis):
                found.append(Linear(float(cell[axis])))
            case CellCount(axis):
                found.append(Linear(float(shape[axis])))
            case Apply(operator, (i,)):
                found.append(_of_one(operator, found[i]))
            case Apply(operator, (i, j)):
                found.append(_of_two(operator, found[i], found[j]))
            case Apply(operator, (i, j, then, other)):
                found.append(_selected(operator, found[i].value, found[j].value, found[then], found[other]))
    return [found[place] for place in program.results]


def _of_one(operator: str, a: Linear) -> Linear:
    x = a.value
    if operator == "neg":
        return a.scaled(-1.0, -x)
    value = _function(operator, x)
    match operator:
        case "sqrt":
            slope = 0.5 / value if value else math.nan
        case "abs":
            slope = math.copysign(1.0, x) if x else math.nan  # abs has no derivative at 0
        case "sign":
            slope = 0.0 if x else math.nan
        case "exp":
            slope = value
        case "log":
            slope = 1 / x if x > 0 else math.nan
        case "sin":
            slope = _function("cos", x)
        case "cos":
            slope = -_function("sin", x)
        case "tan":
            slope = 1 + value**2
        case _:
            assert operator == "tanh", operator
            slope = (1 - value) * (1 + value)
    return a.scaled(slope if x == x else math.nan, value)


def _function(operator: str, *arguments: float) -> float:
    """Return the value of a function. Outside the domain of the function, return NaN. At a pole, return infinity."""
    functions: dict[str, Callable[..., float]] = {
        **{name: getattr(math, name) for name in ("sqrt", "exp", "sin", "cos", "tan", "tanh", "atan2")},
        "abs": abs,
        "log": lambda x: math.log(x) if x else -math.inf,
        "pow": lambda a, b: math.pow(a, b) if a or b >= 0 else math.inf,
        "sign": lambda x: math.copysign(1.0, x) if x else x,
    }
    if any(map(math.isnan, arguments)):
        return math.nan
    try:
        return functions[operator](*arguments)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


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
    if operator in ("atan2", "pow"):
        value = _function(operator, a.value, b.value)
        first, second = _slopes_of_angle(a.value, b.value) if operator == "atan2" else _slopes_of_power(a, b, value)
        return _add(value, a.scaled(first, value), b.scaled(second, value))
    if a.value < b.value or a.value > b.value:
        return a if (a.value < b.value) == (operator == "min") else b
    same = Linear(a.value if a.value == b.value else math.nan)
    return _add(same.value, a.scaled(math.nan, 0.0), b.scaled(math.nan, 0.0)) if a.slopes or b.slopes else same


def _slopes_of_angle(y: float, x: float) -> tuple[float, float]:
    square = y * y + x * x
    return _quotient(x, square), -_quotient(y, square)


def _slopes_of_power(a: Linear, b: Linear, value: float) -> tuple[float, float]:
    by_base = b.value * _function("pow", a.value, b.value - 1) if b.value else 0.0
    by_exponent = value * _function("log", a.value) if a.value > 0 else math.nan
    return by_base, by_exponent if b.slopes else 0.0


def _selected(operator: str, a: float, b: float, then: Linear, other: Linear) -> Linear:
    if a > b or a <= b:
        return then if (a > b if operator == "where" else a == b) else other
    return _add(math.nan, then.scaled(math.nan, math.nan), other.scaled(math.nan, math.nan))


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
    """The parameter that decides whether a step is stable. A stencil that is not linear is linearised at `state`.
    Values of the parameter up to the limit are stable. If `is_minimum` is true, values from the limit upwards are
    stable, and values below the limit are not stable."""

    parameter: str = "dt"
    is_minimum: bool = False
    state: State = field(default_factory=dict)


def growth(
    stencil: Stencil, values: Mapping[str, float], state: State | None = None, shape: GridShape | None = None
) -> float | None:
    """Return the factor by which the worst wave grows in each step. Parameters that are not in `values` have their
    defaults.

    `state` contains the values of fields. The fields are treated as uniform. The result is infinite if the update
    divides by zero. The result is None if `state` has no value for a read-only field, or if a coefficient is a signal.
    The result is also None if the update is not linear and `state` has no value for one of its fields. If a step needs
    more than 64 values of each cell, the result is None, because the analysis would take minutes.

    If the stencil reads positions, several cells of a grid of the shape `shape` are examined (`sampled_cells`). For
    each examined cell, the analysis assumes that all cells of the grid have the coefficients of this cell. The result
    is the largest growth of all examined cells. The result is None if `shape` is None, or if the coefficients differ
    between too many cells.
    """

    def of_cell(cell: GridShape) -> float | None:
        found = _moduli(stencil, values, state, cell, shape)
        return None if found is None else float(found[1].max(initial=0.0))

    return _of_worst_cell(different_cells(stencil, values, state, shape), of_cell)


def numerical_growth(
    stencil: Stencil, values: Mapping[str, float], state: State | None, step: str, shape: GridShape | None = None
) -> float | None:
    """Return the growth of the worst wave, reduced by the growth that the equation itself causes.

    The exact solution of some equations grows. An example is the update u + dt * u. Therefore, in a stable step, a wave
    with wave number k can grow by a factor of up to 1 + c(k) dt (J. von Neumann's condition). The time step dt is the
    parameter `step`. The rate c(k) is twice the rate at which the wave grows with a much smaller time step. If the wave
    does not grow with the much smaller time step, c(k) is 0. The rate c(k) is at most twice the rate of the
    fastest-growing smooth wave. A smooth wave has a length of at least eight cells along each axis. So the growth of
    short waves counts as instability if short waves grow much faster than all smooth waves. An example is diffusion
    with a negative coefficient, in which the shortest waves grow fastest.

    The result is the maximum of |g(k)| - c(k) dt, where g(k) is the amplification of a wave in a step. If the result is
    greater than 1, the step is unstable. The result is infinite or None in the cases in which the result of `growth` is
    infinite or None."""
    given = dict(zip((one.name for one in stencil.parameters), stencil.scalars(values), strict=True)).get(step, 0.0)

    def of_cell(cell: GridShape) -> float | None:
        found = _moduli(stencil, values, state, cell, shape)
        if found is None:
            return None
        waves, moduli = found
        worst = float(moduli.max(initial=0.0))
        if worst <= max_growth(stencil) or not math.isfinite(worst) or not given:
            return worst
        parts = ({**values, step: part * given} for part in (_SMALL, _SMALL / 2))
        smaller = [_moduli(stencil, one, state, cell, shape) for one in parts]
        first, second = (one[1] if one is not None else np.array(math.nan) for one in smaller)
        # The rate is computed from the difference between the growths in two small steps. So growth that is the same in
        # the two steps does not add to the rate.
        rates = (first - second) / (abs(given) * _SMALL / 2)
        if rates.shape != moduli.shape or not np.isfinite(rates).all():
            return worst
        smooth = rates[(np.abs(waves) < _SMOOTH).all(axis=1)].max(initial=0.0)
        return float((moduli - 2 * abs(given) * np.clip(rates, 0.0, smooth)).max())

    return _of_worst_cell(different_cells(stencil, values, state, shape), of_cell)


def _of_worst_cell(cells: Sequence[GridShape] | None, of_cell: Callable[[GridShape], float | None]) -> float | None:
    """Return the largest growth of all cells, or None if the growth of a cell is unknown."""
    worst = 0.0
    for cell in cells or ():
        if (one := of_cell(cell)) is None:
            return None
        worst = max(worst, one)
    return None if cells is None else worst


def _moduli(
    stencil: Stencil, values: Mapping[str, float], state: State | None, cell: GridShape, shape: GridShape | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the sampled waves, and the amplification of each wave. The amplification is the largest modulus of an
    eigenvalue. The analysis assumes that all cells have the coefficients of `cell`. The amplification is infinite if
    the update divides by zero. The result is None if the amplification is unknown."""
    stages, slopes = _linearised(stencil, values, state, cell, shape)
    if any(map(math.isinf, slopes)):
        return np.zeros((1, 3)), np.array([math.inf])
    if any(map(math.isnan, slopes)) or unknowns(stencil) > MAX_UNKNOWNS:
        return None
    step = _Amplification(stencil, stages)
    matrices = step.matrices()
    if len(step.unknowns) == 1:
        return step.waves, np.abs(matrices[:, 0, 0])
    return step.waves, np.abs(np.linalg.eigvals(matrices)).max(axis=1, initial=0.0)


def _linearised(
    stencil: Stencil, values: Mapping[str, float], state: State | None, cell: GridShape, shape: GridShape | None
) -> tuple[list[list[Linear]], list[float]]:
    """For a cell, return the linear part of each result of each stage, and a list of all slopes."""
    known = state or {}
    uniform = [float(known.get(one.name, math.nan)) for one in stencil.fields]
    fixed = {number for number, storage in enumerate(stencil.storage) if storage.is_static}
    scalars, whole = _scalars_of(stencil, values), shape or (1, 1, 1)
    stages = [linearise(stage.program, scalars, uniform, fixed, cell, whole) for stage in stencil.stages]
    return stages, [slope for stage in stages for result in stage for slope in result.slopes.values()]


def _scalars_of(stencil: Stencil, values: Mapping[str, float]) -> tuple[float, ...]:
    return (*stencil.scalars(values), *(math.nan for _ in stencil.signals))


def has_slopes(stencil: Stencil, values: Mapping[str, float], state: State | None = None) -> bool:
    """Return True if all slopes of the stencil are known. In contrast to `growth`, this function computes no
    eigenvalues."""
    return not any(map(math.isnan, _linearised(stencil, values, state, (0, 0, 0), None)[1]))


def unknowns(stencil: Stencil) -> int:
    """Return the number of values of each cell that a step needs (MAX_UNKNOWNS)."""
    return sum(one.history for one in stencil.storage if not one.is_static)


def different_cells(
    stencil: Stencil, values: Mapping[str, float], state: State | None, shape: GridShape | None
) -> list[GridShape] | None:
    """Return cells with different coefficients. If the stencil reads no positions, return one cell, because all cells
    have the same coefficients. The result is None if `shape` is None, or if too many cells must be examined."""
    if not stencil.positions:
        return [(0, 0, 0)]
    if shape is None:
        return None
    scalars = _scalars_of(stencil, values)
    cells = sampled_cells(stencil, [_uniform_values(one.program, scalars, shape) for one in stencil.stages], shape)
    if cells is None:
        return None
    different: dict[object, GridShape] = {}
    for cell in cells:
        stages, _ = _linearised(stencil, values, state, cell, shape)
        different.setdefault(tuple(tuple(one.slopes.items()) for stage in stages for one in stage), cell)
    return list(different.values())


def _uniform_values(program: Program, scalars: Sequence[float], shape: GridShape) -> list[float | None]:
    """Return one entry for each operation: the value of the operation, or None if the value can differ between
    cells."""
    places = [place for place, uniform in enumerate(program.uniform) if uniform]
    unknown = [math.nan] * schema.MAX_FIELDS
    known = linearise(Program(program.operations, tuple(places)), scalars, unknown, shape=shape)
    found: list[float | None] = [None] * len(program.operations)
    for place, one in zip(places, known, strict=True):
        found[place] = one.value
    return found


def max_growth(stencil: Stencil) -> float:
    """Return the maximum growth with which the stencil counts as stable."""
    return MAX_GROWTH_SECOND if any(one.history == 2 for one in stencil.storage) else MAX_GROWTH


def largest_step(
    stencil: Stencil, values: Mapping[str, float], states: Sequence[State] = ({},), limit: Limit | None = None,
    may_grow: bool = False, shape: GridShape | None = None,
) -> float | None:  # fmt: skip
    """Return the largest value of `limit.parameter` for which steps are stable in all `states`. The value is accurate
    to six digits. If the limit is a minimum, return the smallest stable value.

    If the limit is a maximum, the result is infinite if every value is stable, and 0 if no value is stable. If the
    limit is a minimum, the result is 0 if every value is stable, and infinite if no value is stable. The result is None
    if the growth is unknown. The other parameters have the values in `values`, or their defaults. If `may_grow` is
    true, the growth that the equation itself causes does not count as instability (`numerical_growth`). `shape` is the
    shape of the grid (`growth`).
    """
    one = limit or Limit()
    time_step = one.parameter if may_grow else ""
    start = dict(zip((p.name for p in stencil.parameters), stencil.scalars(values), strict=True))[one.parameter]

    def rates(step: float, of: Sequence[State]) -> list[float | None]:
        return [numerical_growth(stencil, {**values, one.parameter: step}, state, time_step, shape) for state in of]

    def is_stable(step: float) -> bool:
        return all(rate is not None and rate <= max_growth(stencil) for rate in rates(step, worst))

    begin = abs(start) or 1.0
    found = rates(begin, states)
    if not states or None in found:
        return None
    worst: list[State] = []
    step = begin
    while len(worst) < len(states):  # usually, one state is the worst state for all steps, so few states are examined
        if 0 < step < math.inf:
            worst.append(states[max(range(len(states)), key=lambda i: found[i] or 0.0)])
        else:
            worst = list(states)
        step = _bisect(is_stable, begin, one.is_minimum)
        if len(worst) < len(states) and 0 < step < math.inf:
            found = rates(step, states)
            if all(rate is not None and rate <= max_growth(stencil) for rate in found):
                break

    def excess(at: float) -> float:
        return max((rate or 0.0 for rate in rates(at, worst)), default=0.0) - 1

    return 0.0 if not one.is_minimum and 0 < step < math.inf and _only_tolerated(excess, step, stencil) else step


def _only_tolerated(excess: Callable[[float], float], step: float, stencil: Stencil) -> bool:
    """Return True if steps below the limit `step` count as stable only because of the tolerance for rounding. `excess`
    returns the growth of a step beyond 1. Growth from rounding errors does not depend on the step, but the growth of an
    unstable step depends on the step."""
    half, small = excess(step / 2), excess(step / 64)
    return half > (max_growth(stencil) - 1) / 5 and small < half / 4


def _bisect(is_stable: Callable[[float], bool], start: float, is_minimum: bool) -> float:
    """Find the limit by bisection between a stable and an unstable value."""
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
    """Return all combinations of the smallest and the largest values of the read-only fields."""
    choices = [[(name, value) for value in dict.fromkeys(ends)] for name, ends in sorted(ranges.items())]
    return [dict(choice) for choice in itertools.product(*choices)]


class Extremes:
    """Collects states from the planes of the read-only fields. A run checks its stability for these states.

    A state has the values of all read-only fields in one cell. The class keeps the states of the cells in which a field
    or one of `measures` has its smallest or largest value. An example of a measure is the squared wave speed. In
    contrast, the function `corners` also combines extreme values of different cells. For example, `corners` combines
    the smallest density with the largest stiffness, although perhaps no cell has both values. If the stencil has no
    read-only fields, the class gives one state without values.
    """

    def __init__(self, fields: Iterable[str], measures: Iterable[Measure] = ()) -> None:
        self._fields, self._measures = sorted(fields), list(measures)
        self._found: dict[tuple[str, bool], tuple[float, dict[str, float]]] = {}

    def add(self, planes: Mapping[str, NDArray[Any]]) -> None:
        """Add cells. For each field, `planes` contains an array with the values of the field in the added cells. All
        arrays have the same shape. Fields that were not given to the constructor are ignored. A field without an array
        has no values in `states`. For example, a field for states of a forward run has no array."""
        planes = {name: planes[name] for name in self._fields if name in planes}
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
        """The states found so far, without duplicates."""
        if not self._fields:
            return [{}]
        return [dict(items) for items in dict.fromkeys(tuple(cell.items()) for _, cell in self._found.values())]


class _Amplification:
    """Computes the amplification matrix for each wave number. One step of the stencil multiplies a vector by the
    amplification matrix of the wave number. The vector contains all values of one cell that the step needs."""

    def __init__(self, stencil: Stencil, stages: Sequence[Sequence[Linear]]) -> None:
        self.stencil, self.stages = stencil, stages
        storage = list(enumerate(stencil.storage))
        newest = [(number, 0) for number, one in storage if not one.is_static]
        self.unknowns = newest + [(number, 1) for number, one in storage if one.history == 2]
        self.waves = self._wave_numbers()

    def _wave_numbers(self) -> NDArray[np.float64]:
        """Return an array of shape (waves, 3): for each sampled wave, its change of phase per cell along each axis. A
        wave and its mirror image grow equally fast, so half of the waves are enough."""
        parts = _PHASES if len(self.unknowns) > 1 else _PHASES_ALONE
        whole = np.linspace(-np.pi, np.pi, parts + 1)
        axes = [whole if radius else np.zeros(1) for radius in self.stencil.radii]
        first = next((axis for axis, radius in enumerate(self.stencil.radii) if radius), 0)
        axes[first] = axes[first][len(axes[first]) // 2 :]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)

    def matrices(self) -> NDArray[np.complex128]:
        """Return the amplification matrices of all sampled waves as one array of shape (waves, unknowns, unknowns)."""
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
