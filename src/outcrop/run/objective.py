"""`Objective`: a misfit as a function of the inputs of a run, for optimisers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError, shown
from outcrop.run.adjoint import SOURCES, derive
from outcrop.run.copies import Original, PlaneChange, Planes, require_initial, temporary_folder
from outcrop.run.misfit import MisfitFunction, check
from outcrop.run.setup import as_steps
from outcrop.run.simulation import Simulation
from outcrop.run.user_values import as_real_array

Vector = NDArray[np.float64]


class Objective:
    """The misfit of a run as a function of some of its inputs. `fun(x)` returns (value, gradient):

        fun = oc.Objective(sim, steps, misfit, wrt="u")
        scipy.optimize.minimize(fun, fun.start, jac=True, method="L-BFGS-B")

    The vector x has the values of all inputs in `wrt`, one after the other, in float64. It is in memory, and optimisers
    keep several such vectors, so this class is for small grids. `fun.start` is the vector of the inputs of `sim`. `sim`
    must be at step 0 and stays there: each evaluation runs a copy of `sim` forward and backward in a temporary folder
    beside it, and removes the folder afterwards. A gradient with respect to cells in the rim is 0, so optimisers do not
    change these cells.

    `wrt` has the names that `Simulation.adjoint` accepts. Raises InputError for wrong arguments and for the errors of
    `Simulation.gradient`.
    """

    def __init__(self, simulation: Simulation, steps: int, misfit: MisfitFunction, wrt: str | Sequence[str]) -> None:
        require_initial(simulation)
        self._steps = as_steps(steps)
        self._names = derive(simulation.stencil, simulation.setup.description, wrt).names
        check(misfit, simulation, self._steps)
        self._original, self._misfit = Original(simulation, self._steps), misfit
        self._shapes = {name: [one.shape for one in self._values(name)] for name in self._names}

    def __repr__(self) -> str:
        return f"<objective of {', '.join(self._names)} over {self._steps} steps>"

    @property
    def start(self) -> Vector:
        """The vector of the inputs of the run, as they are now."""
        self._original.refresh()
        return _flat(one for name in self._names for one in self._values(name))

    def unpack(self, x: Any) -> dict[str, Any]:
        """Return a mapping from names to the inputs in the vector x: an array for a field, a list of arrays for
        "source". Raises InputError if x is not a vector of finite numbers of the right length."""
        found: dict[str, Any] = {}
        for name, parts in self._split(x).items():
            if self._original.is_array(name):
                found[name] = parts[0].reshape(self._original.simulation.shape)
            else:
                found[name] = parts if name == SOURCES else parts[0]
        return found

    def __call__(self, x: Any) -> tuple[float, Vector]:
        """Return the value of the misfit and its gradient at x. Raises InputError if x is not a vector of finite
        numbers of the right length."""
        inputs, original = self._split(x), self._original
        arrays = {name: _replaced(parts[0]) for name, parts in inputs.items() if original.is_array(name)}
        values = {name: parts for name, parts in inputs.items() if name not in arrays}
        with temporary_folder(original.simulation, "objective") as folder:
            run = original.copy(f"{folder}/forward.oc", arrays, values)
            value, gradients = run.gradient(
                self._steps, self._misfit, self._names, f"{folder}/adjoint.oc", progress="none"
            )
            parts = (gradients[name] for name in self._names)
            return value, _flat(each for one in parts for each in (one if isinstance(one, list) else [one]))

    def _split(self, x: Any) -> dict[str, list[NDArray[np.float64]]]:
        """Divide a vector into the values of each input, in the form that `_values` returns."""
        vector = _as_vector(x, sum(math.prod(shape) for shapes in self._shapes.values() for shape in shapes))
        found: dict[str, list[NDArray[np.float64]]] = {}
        for name, shapes in self._shapes.items():
            ends = np.cumsum([math.prod(shape) for shape in shapes])
            *parts, vector = np.split(vector, ends)
            found[name] = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        return found

    def _values(self, name: str) -> list[NDArray[np.float64]]:
        original = self._original
        if not original.is_array(name):
            return original.values(name)
        return [np.concatenate([original.planes(name, z0, z1) for z0, z1 in original.groups()])]


def _replaced(whole: NDArray[np.float64]) -> PlaneChange:
    """Return a change that replaces all planes of an array."""

    def change(z0: int, planes: Planes) -> Planes:
        return whole[z0 : z0 + len(planes)]

    return change


def _flat(parts: Iterator[Any]) -> Vector:
    return np.concatenate([np.asarray(one, np.float64).reshape(-1) for one in parts])


def _as_vector(x: Any, size: int) -> Vector:
    given = as_real_array(x)
    if given is None or given.shape != (size,) or not np.isfinite(given).all():
        raise InputError(f"the objective takes a vector of {size} finite numbers, not {shown(x)}")
    return given.astype(np.float64)
