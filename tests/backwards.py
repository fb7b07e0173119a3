"""This module computes steps of a stencil with any kind of number, and computes the adjoint of several steps.

`Steps` uses the operations that the caller gives. With operations of JAX, JAX can differentiate the steps. With
operations on fractions, the results are exact. `reverse` runs some steps forward, and then the adjoint of these steps
backward.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from oracle import seen_from
from outcrop.language.adjoint import Adjoint, edge_values
from outcrop.language.boundary import Boundary
from outcrop.language.linearised import Version
from outcrop.language.program import Apply, CellCount, CellIndex, Constant, Load, Program, Scalar
from outcrop.language.stencil import PREVIOUS, Stencil

State = dict[str, Any]


def inner(stencil: Stencil, boundary: Boundary, shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the range of cells that a step updates."""
    rims = zip(boundary.rims(stencil.radii), shape, strict=True)
    return tuple(slice(min(low, n), max(min(low, n), n - high)) for (low, high), n in rims)


@dataclass(frozen=True)
class Steps:
    """Computes steps of a stencil. The caller gives the operations in `operators`, which has a function for each
    operator. `number` converts a constant. `put` returns an array in which the cells at an index are replaced."""

    stencil: Stencil
    boundary: Boundary
    operators: Mapping[str, Callable[..., Any]]
    put: Callable[[Any, tuple[slice, ...], Any], Any]
    number: Callable[[float], Any] = field(default=float)

    def advance(
        self,
        state: State,
        scalars: Sequence[Any],
        seen: dict[Version, Any] | None = None,
        after: Callable[[int, State], State] | None = None,
    ) -> State:
        """Return the state after one step. The state has all fields. If a step needs the previous value of u, the state
        also has "u.previous". `scalars` has the values of the parameters, then the values of the signals. The method
        adds all values that a stage can read to `seen`. After each stage, the method calls `after` with the number of
        the stage and the fields. If `after` returns values of fields, the returned values replace the values in the
        state."""
        stencil = self.stencil
        names = [one.name for one in stencil.fields]
        newest = [state[name] for name in names]
        previous = [state.get(name + PREVIOUS, state[name]) for name in names]
        cells = inner(stencil, self.boundary, newest[0].shape)
        seen, updates = {} if seen is None else seen, dict.fromkeys(names, 0)
        for name, now, older in zip(names, newest, previous, strict=True):
            seen[Version(name, 0)], seen[Version(name, -1)] = now, older
        for number, stage in enumerate(stencil.stages):
            results = self.evaluate(stage.program, (newest, previous), cells, scalars)
            for target, result in zip(stage.targets, results, strict=True):
                previous[target], newest[target] = newest[target], self.put(newest[target], cells, result)
            if after:
                changed = after(number, dict(zip(names, newest, strict=True)))
                newest = [changed.get(name, now) for name, now in zip(names, newest, strict=True)]
            for target in stage.targets:
                updates[names[target]] += 1
                seen[Version(names[target], updates[names[target]])] = newest[target]
        after = dict(zip(names, newest, strict=True))
        for name, value, storage in zip(names, previous, stencil.storage, strict=True):
            if storage.history == 2:
                after[name + PREVIOUS] = value
        return after

    def evaluate(self, program: Program, values: Any, cells: Sequence[slice], scalars: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for operation in program.operations:
            match operation:
                case Load(number, offset, age):
                    array = values[age][number]
                    index = (
                        seen_from(np.arange(one.start, one.stop) + step, extent, sides)
                        for one, step, extent, sides in zip(
                            cells, offset, array.shape, self.boundary.sides, strict=True
                        )
                    )
                    found.append(array[np.ix_(*index)])
                case Scalar(index_of_scalar):
                    found.append(scalars[index_of_scalar])
                case Constant(value):
                    found.append(self.number(value))
                case CellIndex(axis):
                    shape = [1, 1, 1]
                    shape[axis] = -1
                    along = range(cells[axis].start, cells[axis].stop)
                    found.append(np.array([self.number(one) for one in along]).reshape(shape))
                case CellCount(axis):
                    found.append(self.number(values[0][0].shape[axis]))
                case Apply(operator, operands):
                    found.append(self.operators[operator](*(found[i] for i in operands)))
        return [found[place] for place in program.results]


@dataclass(frozen=True)
class Dual:
    """A number and its derivative, both as fractions. With numbers of the type `Dual`, `Steps` computes the effect of a
    small change of the state."""

    value: Fraction
    slope: Fraction = Fraction(0)

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda: Dual(self.value + other.value, self.slope + other.slope))

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __mul__(self, other: Any) -> Any:
        return self._with(
            other, lambda: Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)
        )

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, lambda: self * Dual(1 / other.value, -other.slope / other.value**2))

    def __lt__(self, other: Any) -> Any:
        return self._with(other, lambda: self.value < other.value)

    def __gt__(self, other: Any) -> Any:
        return self._with(other, lambda: self.value > other.value)

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __abs__(self) -> Dual:
        return self if self.value >= 0 else -self

    def _with(self, other: Any, result: Callable[[], Any]) -> Any:
        """Return the result if `other` is a Dual. If `other` is not a Dual, return NotImplemented. If `other` is an
        array, NotImplemented makes NumPy apply the operation to each element.
        """
        return result() if isinstance(other, Dual) else NotImplemented


def put(array: Any, cells: tuple[slice, ...], new: Any) -> Any:
    """Return a copy of a NumPy array in which `cells` are replaced."""
    array = array.copy()
    array[cells] = new
    return array


PLAIN: Mapping[str, Callable[..., Any]] = {
    **{one: getattr(operators, one) for one in ("add", "sub", "mul", "neg", "abs")},
    "div": operators.truediv,
    "sqrt": np.sqrt,
    "min": lambda a, b: np.where(a < b, a, b),
    "max": lambda a, b: np.where(a > b, a, b),
    "where": lambda a, b, c, d: np.where(a > b, c, d),
    "where_equal": lambda a, b, c, d: np.where((a > b) | (a < b), d, c),  # no NaN here; == would also compare slopes
    **{one: getattr(np, one) for one in ("exp", "log", "sin", "cos", "tan", "tanh", "sign")},
    "atan2": np.arctan2,
    "pow": np.power,
}
"""The operators for NumPy arrays of floats, complex numbers or fractions."""


@dataclass(frozen=True)
class Reversed:
    """The result of `reverse`: the adjoints before the first step, and the gradients. Each result is a dictionary whose
    keys are names such as "u" and "u.previous". The gradient with respect to a signal has one value for each step."""

    adjoints: State
    gradients: State


def reverse(
    adjoint: Adjoint,
    forward: Steps,
    state: Mapping[str, Any],
    scalars: Sequence[Sequence[Any]],
    seeds: Mapping[str, Any],
) -> Reversed:
    """Run a stencil forward, then run its adjoint backward. `scalars` has the values of the parameters and signals for
    each step. `seeds` has the adjoints of the updated fields after the last step."""
    made, stencil, number = adjoint.stencil, forward.stencil, forward.number
    shape = next(iter(state.values())).shape
    seen: list[dict[Version, Any]] = []
    now = dict(state)
    for row in scalars:
        seen.append({})
        now |= forward.advance(now, row, seen[-1])
    backward = Steps(made, forward.boundary, PLAIN, put, number)
    zeros = np.full(shape, number(0.0))
    arrays: State = {name: zeros for one in made.fields for name in (one.name, one.name + PREVIOUS)}
    names = [*(one.name for one in stencil.parameters), *stencil.signals]
    of = dict(zip(names, scalars[-1], strict=True))
    own: list[Any] = [of[name] for name in (*(one.name for one in made.parameters), *made.signals)]
    everywhere = [slice(0, extent) for extent in shape]
    for name, held in adjoint.adjoints.items():
        arrays[held] = seeds.get(name, zeros)
        if name in adjoint.scales:
            static = [state.get(one.name, zeros) for one in made.fields]
            (factor,) = backward.evaluate(adjoint.scales[name], (static, static), everywhere, own)
            arrays[held] = arrays[held] * factor
    arrays |= {name: state[name] for name in arrays if name in state}
    for name, axis in adjoint.edges.items():
        line = np.array([number(one) for one in edge_values(shape[axis], stencil.radii[axis])])
        arrays[name] = zeros + line.reshape([-1 if one == axis else 1 for one in range(3)])
    by_signal: dict[str, list[Any]] = {name: [] for name in adjoint.gradients if name in stencil.signals}
    for row, versions in zip(reversed(scalars), reversed(seen), strict=True):
        arrays |= {name: versions[version] for name, version in adjoint.history.items()}
        of = dict(zip(names, row, strict=True))
        own = [of[name] for name in (*(one.name for one in made.parameters), *made.signals)]
        arrays |= backward.advance(arrays, own)
        for name, found in by_signal.items():
            found.insert(0, arrays[adjoint.gradients[name]].sum())
    adjoints = {name: arrays.get(one, zeros) for name, one in adjoint.adjoints.items()}
    both = [arrays[one.name] for one in made.fields], [arrays[one.name + PREVIOUS] for one in made.fields]
    for name, program in adjoint.values.items():
        (value,) = backward.evaluate(program, both, everywhere, own)
        adjoints[name] = zeros + value
    gradients: State = {}
    for name, one in adjoint.gradients.items():
        is_sum = name in {parameter.name for parameter in stencil.parameters}
        gradients[name] = by_signal.get(name, arrays[one].sum() if is_sum else arrays[one])
    return Reversed(adjoints, gradients)
