"""What a stencil means, in NumPy: slow and obviously right. Every kernel, scheme and backend must give these bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.language.program import Apply, Constant, Load, Scalar
from outcrop.language.stencil import Stencil


def advance(
    stencil: Stencil, array: NDArray[np.floating], values: Mapping[str, float], steps: int
) -> NDArray[np.floating]:
    """`array` of shape (nz, ny, nx) after `steps` steps with a fixed boundary, computed in the array's dtype.

    `values` are parameters that differ from their defaults. Cells within the stencil's radius of a face never change.
    """
    current = array.copy()
    inner = tuple(
        slice(radius, max(radius, extent - radius)) for radius, extent in zip(stencil.radii, array.shape, strict=True)
    )
    for _ in range(steps):
        following = current.copy()
        following[inner] = _update(stencil, current, values)
        current = following
    return current


def _update(stencil: Stencil, array: NDArray[np.floating], values: Mapping[str, float]) -> NDArray[np.floating]:
    """New values of all cells that are not rim."""
    scalars = stencil.scalars(values)
    dtype = array.dtype.type
    results: list[Any] = []  # arrays, and NumPy scalars of the same dtype
    with np.errstate(all="ignore"):
        for operation in stencil.program.operations:
            match operation:
                case Load(_, offset):
                    results.append(_shifted(array, stencil.radii, offset))
                case Scalar(index):
                    results.append(dtype(scalars[index]))
                case Constant(value):
                    results.append(dtype(value))
                case Apply(operator, operands):
                    results.append(_OPERATORS[operator](*(results[i] for i in operands)))
    result: NDArray[np.floating] = results[-1]
    return result


def _shifted(
    array: NDArray[np.floating], radii: tuple[int, int, int], offset: tuple[int, int, int]
) -> NDArray[np.floating]:
    cut = tuple(
        slice(radius + step, max(radius + step, extent - radius + step))
        for radius, step, extent in zip(radii, offset, array.shape, strict=True)
    )
    return array[cut]


_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "min": lambda a, b: np.where(a < b, a, b),
    "max": lambda a, b: np.where(a > b, a, b),
}
