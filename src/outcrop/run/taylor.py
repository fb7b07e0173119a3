"""The Taylor test checks whether a gradient agrees with the values of its misfit.

The value J(m + h d) is the misfit of a run whose inputs m are changed by h times a random direction d. If g is the
gradient of J at m, the remainder is proportional to the square of h:

    remainder(h) = |J(m + h d) - J(m) - h <g, d>|         remainder(h) / remainder(h / 2)  ──►  2**2

If g is wrong, the remainder is proportional to h. So the rate log2(remainder(h) / remainder(h / 2)) is 1 instead of 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.run.adjoint import derive
from outcrop.run.misfit import MisfitFunction, check, evaluate
from outcrop.run.objective import Original, PlaneChange, Planes, require_initial, temporary_folder
from outcrop.run.setup import as_steps
from outcrop.run.simulation import Simulation
from outcrop.run.user_values import as_number, as_whole_number

HALVINGS = 4

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""A remainder that is smaller than this fraction of the misfit may be only a rounding error."""


def taylor_test(
    simulation: Simulation, steps: int, misfit: MisfitFunction, wrt: str | Sequence[str], seed: int = 0,
    change: float = 0.01,
) -> dict[str, NDArray[np.float64]]:  # fmt: skip
    """Check the gradients of a misfit against its values. Return four rates for each name in `wrt`. If a gradient is
    correct, each rate is 2.0 +- 0.05. If a gradient is wrong, the rates are near 1.

    The inputs are changed in a random direction. The first change is `change` times the root mean square of the values
    of the inputs. If all values are 0, the first change is `change`. Each later change is half of the previous change.
    The inputs in `wrt` are changed one at a time, and only in cells that steps update. For a misfit that is not
    quadratic in the inputs, a large `change` moves the rates away from 2.

    `simulation` must be at step 0 and stays at step 0. The test runs copies of `simulation` in temporary folders, which
    are in the same directory as the run. The first name needs six runs and an adjoint run, and each further name needs
    five runs. The gradient is computed in the dtype of the run. The values of the misfit are computed in float64,
    because differences of misfits in float32 are mostly rounding errors. Runs in float64 need up to twice the memory.
    Raises the errors of `Simulation.gradient`, and InputError if the remainders are rounding errors."""
    require_initial(simulation)
    steps, names = as_steps(steps), derive(simulation.stencil, simulation.setup.description, wrt).names
    seed, change = as_whole_number(seed, "seed", minimum=0), as_number(change, "change")
    if change <= 0:
        raise InputError(f"change {change} must be positive")
    check(misfit, simulation, steps)
    original = Original(simulation, steps)
    with temporary_folder(simulation, "taylor") as folder:
        run = original.copy(f"{folder}/forward.oc", {}, {}, is_unstable=True)
        _, gradients = run.gradient(steps, misfit, names, f"{folder}/adjoint.oc", progress="none")
        directions = {name: _Direction(original, name, [seed, number]) for number, name in enumerate(names)}
        slopes = {name: one.times(gradients[name]) for name, one in directions.items()}
    value = _value(original, misfit, None, 0.0)
    found = {}
    for name, direction in directions.items():
        sizes = [change / 2**number for number in range(HALVINGS + 1)]
        values = [_value(original, misfit, direction, size) for size in sizes]
        remainders = np.array([abs(one - value - h * slopes[name]) for one, h in zip(values, sizes, strict=True)])
        if remainders.min() <= ROUNDING * max(map(abs, [value, *values])):
            raise InputError(
                f"the Taylor test of {name} has no result: a change of {sizes[-1]:g} leaves only rounding errors; give "
                f"a change greater than {change:g}, or a misfit that depends on {name} and is not linear"
            )
        found[name] = np.log2(remainders[:-1] / remainders[1:])
    return found


class _Direction:
    """A random direction in which an input is changed. The values of the direction have about the same root mean square
    as the values of the input. Each plane of an array has its own random numbers, so that the plane can be computed
    again."""

    def __init__(self, original: Original, name: str, seed: Sequence[int]) -> None:
        self.name, self._original, self._seed = name, original, list(seed)
        self.is_array = original.is_array(name)
        if self.is_array:
            squares = sum(float((original.planes(name, z0, z1) ** 2).sum()) for z0, z1 in original.groups())
            self._scale = float(np.sqrt(squares / np.prod(original.shape))) or 1.0
            return
        given, rng = original.values(name), np.random.default_rng(self._seed)
        squares, count = sum(float((one**2).sum()) for one in given), sum(one.size for one in given)
        self._scale = float(np.sqrt(squares / count)) or 1.0
        random = [rng.standard_normal(one.shape) if one.ndim else rng.choice([-1.0, 1.0]) for one in given]
        self._values = [np.asarray(one * self._scale) for one in random]

    def changes(self, size: float) -> tuple[dict[str, PlaneChange], dict[str, Sequence[NDArray[np.float64]]]]:
        """Return the changes that make a copy of the run whose input is changed by `size` times this direction. The
        changes have the form that `Original.copy` accepts."""
        if not self.is_array:
            pairs = zip(self._original.values(self.name), self._values, strict=True)
            return {}, {self.name: [one + size * direction for one, direction in pairs]}

        def change(z0: int, planes: Planes) -> Planes:
            return planes + size * self._planes(z0, z0 + len(planes))

        return {self.name: change}, {}

    def times(self, gradient: Any) -> float:
        if not self.is_array:
            several = gradient if isinstance(gradient, list) else [gradient]
            pairs = zip(several, self._values, strict=True)
            return sum(float((np.asarray(one, np.float64) * direction).sum()) for one, direction in pairs)
        found, shape = 0.0, self._original.shape
        for z0, z1 in self._original.groups():
            # a grid with one axis has only one plane
            part = gradient[z0:z1] if gradient.shape[0] == shape[0] else gradient[...]
            found += float((part.reshape(-1, *shape[1:]).astype(np.float64) * self._planes(z0, z1)).sum())
        return found

    def _planes(self, z0: int, z1: int) -> Planes:
        _, ny, nx = shape = self._original.shape
        planes = np.zeros((z1 - z0, ny, nx))
        z_cells, *inner = self._original.updated_cells()
        for z in range(max(z0, z_cells.start), min(z1, z_cells.stop)):
            plane = np.random.default_rng([*self._seed, z]).standard_normal(shape[1:])
            planes[z - z0][tuple(inner)] = self._scale * plane[tuple(inner)]
        return planes


def _value(original: Original, misfit: MisfitFunction, direction: _Direction | None, size: float) -> float:
    """Return the misfit of a copy of the run. The copy computes in float64, and its input is changed in a direction."""
    arrays, values = direction.changes(size) if direction else ({}, {})
    with temporary_folder(original.simulation, "taylor") as folder:
        run = original.copy(f"{folder}/forward.oc", arrays, values, "float64", is_unstable=True)
        run.run(original.steps, progress="none")
        return evaluate(misfit, run)[0]
