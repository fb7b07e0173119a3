"""What a stencil means, in NumPy: slow and obviously right. Every kernel, scheme and backend must give these bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.language.boundary import FIXED, Boundary, Side
from outcrop.language.program import Apply, Constant, Load, Program, Scalar
from outcrop.language.stencil import Stencil
from outcrop.language.symbols import PREVIOUS

Cells: TypeAlias = NDArray[np.floating]
Signals: TypeAlias = Mapping[str, Sequence[float]]


def advance(
    stencil: Stencil, array: Cells, values: Mapping[str, float], steps: int, boundary: Boundary = FIXED
) -> Cells:
    """`array` of shape (nz, ny, nx) after `steps` steps of a stencil of one field, computed in the array's dtype.

    `values` are parameters that differ from their defaults.
    """
    (field,) = stencil.fields
    return advance_fields(stencil, {field.name: array}, values, steps, boundary)[field.name]


def advance_fields(
    stencil: Stencil,
    state: Mapping[str, Cells],
    values: Mapping[str, float],
    steps: int,
    boundary: Boundary = FIXED,
    signals: Signals | None = None,
    first_step: int = 0,
) -> dict[str, Cells]:
    """The arrays of `state`, each of shape (nz, ny, nx), after `steps` steps, computed in their dtype.

    `state` names every field of the stencil, and as "u.previous" the values before those of a field u of which a step
    needs both. `signals` hold a value for every step, counted from 0; these steps begin with `first_step`.
    """
    run = _Run(stencil, state, values, boundary, signals or {})
    for step in range(first_step, first_step + steps):
        for number in range(len(stencil.stages)):
            run.perform(number, step)
    return run.state()


class _Run:
    """The newest and the previous value of every field."""

    def __init__(
        self, stencil: Stencil, state: Mapping[str, Cells], values: Mapping[str, float], boundary: Boundary,
        signals: Signals,
    ) -> None:  # fmt: skip
        self.stencil, self.boundary, self.signals = stencil, boundary, signals
        self.names = [field.name for field in stencil.fields]
        self.newest = [state[name].copy() for name in self.names]
        self.previous = [state.get(name + PREVIOUS, np.full_like(state[name], np.nan)).copy() for name in self.names]
        self.parameters = stencil.scalars(values)
        rims = zip(boundary.rims(stencil.radii), self.newest[0].shape, strict=True)
        self.inner = tuple(slice(min(low, n), max(min(low, n), n - high)) for (low, high), n in rims)

    def perform(self, number: int, step: int) -> None:
        """One stage."""
        stage = self.stencil.stages[number]
        scalars = (*self.parameters, *(self.signals[name][step] for name in self.stencil.signals))

        def load(operation: Load) -> Cells:
            return self._shifted((self.newest, self.previous)[operation.age][operation.field], operation.offset)

        results = evaluate(stage.program, scalars, self.newest[0].dtype.type, load)
        for field, result in zip(stage.targets, results, strict=True):
            updated = self.newest[field].copy()
            updated[self.inner] = result
            self.previous[field], self.newest[field] = self.newest[field], updated

    def state(self) -> dict[str, Cells]:
        """As it came, for the fields that have a say in the next step."""
        found = dict(zip(self.names, self.newest, strict=True))
        for name, previous, storage in zip(self.names, self.previous, self.stencil.storage, strict=True):
            if storage.history == 2:
                found[name + PREVIOUS] = previous
        return found

    def _shifted(self, array: Cells, offset: tuple[int, int, int]) -> Cells:
        indices = (
            seen_from(np.arange(inner.start, inner.stop) + step, extent, sides)
            for inner, step, extent, sides in zip(self.inner, offset, array.shape, self.boundary.sides, strict=True)
        )
        cells: Cells = array[np.ix_(*indices)]
        return cells


def evaluate(
    program: Program, scalars: Sequence[float], dtype: type[np.floating], load: Callable[[Load], Cells]
) -> list[Any]:
    """The results of a program: arrays like those of `load`, or one number of `dtype` where they depend on no cell."""
    found: list[Any] = []
    with np.errstate(all="ignore"):
        for operation in program.operations:
            match operation:
                case Load():
                    found.append(load(operation))
                case Scalar(index):
                    found.append(dtype(scalars[index]))
                case Constant(value):
                    found.append(dtype(value))
                case Apply(operator, operands):
                    found.append(_OPERATORS[operator](*(found[i] for i in operands)))
    return [found[place] for place in program.results]


def seen_from(index: NDArray[np.intp], extent: int, sides: tuple[Side, Side]) -> NDArray[np.intp]:
    """Where the values of cells beyond the grid are found."""
    if sides[0] == "periodic":
        return index % extent
    folded = index % (2 * extent)  # mirrors on both sides: the grid and its image, over and over
    return np.where(folded < extent, folded, 2 * extent - 1 - folded)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "min": lambda a, b: np.where(a < b, a, b),
    "max": lambda a, b: np.where(a > b, a, b),
}
