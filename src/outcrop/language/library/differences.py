"""Central differences of any order, with exact weights, on plain and on staggered grids.

SymPy computes the weights with Fornberg's recursion (B. Fornberg, Math. Comp. 51, 699, 1988). The weights are for a
spacing of 1. An offset is (z, y, x), (y, x) or (x), and axis 0 is the first axis of the offset.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import sympy
from numpy.typing import DTypeLike

from outcrop.axes import NAMES
from outcrop.errors import InputError, shown
from outcrop.language.stencil import Field, OlderField, Parameter

Values: TypeAlias = Field | OlderField
MAX_CELLS = 2**40
_NUMBERS = {1: "one", 2: "two", 3: "three"}


def require(stencil: str, what: str, value: object, there_are: range | tuple[object, ...]) -> None:
    """Raise InputError if `value` is not one of the choices `there_are`, or if its type differs from the type of these
    choices. For example, 2.0 and True are not valid numbers of axes."""
    known = value
    if not isinstance(value, bool | str):
        try:
            known = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            known = None
    if not any(type(known) is type(one) and known == one for one in there_are):
        raise InputError(
            f"{stencil}({what}={shown(value)}) is not available; there are {', '.join(map(str, there_are))}"
        )


def as_size(value: object, what: str, minimum: int = 1) -> int:
    """Convert a number of cells to an int. Raises InputError if `value` is not a whole number from `minimum` to
    MAX_CELLS."""
    try:
        cells = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        cells = -1
    if not minimum <= cells <= MAX_CELLS or isinstance(value, bool):
        raise InputError(f"{what} {shown(value)} must be a whole number of cells, at least {minimum}")
    return cells


def as_sizes(stencil: str, shape: Any, maximum: int, minimum: int = 1) -> tuple[int, ...]:
    """Convert the shape of a grid to a tuple. The grid must have from `minimum` to `maximum` axes. Raises InputError
    for other values."""
    if not hasattr(shape, "__len__") or isinstance(shape, str | bytes) or not minimum <= len(shape) <= maximum:
        raise InputError(f"{stencil}: shape {shown(shape)} must have {_NUMBERS[minimum]} to {_NUMBERS[maximum]} sizes")
    return tuple(as_size(one, f"{stencil}: shape {shown(shape)}: size") for one in shape)


def as_real_dtype(stencil: str, dtype: DTypeLike) -> np.dtype[Any]:
    """Convert the name or type of a floating-point number to a NumPy dtype. Raises InputError for other values."""
    try:
        found = np.dtype(dtype)
        if found.kind == "f":
            return found
    except (TypeError, ValueError, SyntaxError):
        pass
    raise InputError(f"{stencil}: dtype {shown(dtype)} is not available; there are float32 and float64")


@cache
def second_derivative(order: int) -> tuple[sympy.Rational, ...]:
    """Return the weights of a second difference: first the weight of the centre, then the weight of the two neighbours
    at each distance 1, 2, ..., order/2."""
    reach = order // 2
    weights = sympy.finite_diff_weights(2, range(-reach, reach + 1), 0)[2][-1]
    return tuple(weights[reach:])


@cache
def staggered_derivative(order: int) -> tuple[sympy.Rational, ...]:
    """Return the weights of a staggered difference, one weight for each of the distances 1/2, 3/2, ..., (`order` -
    1)/2. The returned weights belong to the values ahead of a point. The values behind the point have the same weights
    with the opposite sign."""
    reach = order // 2
    points = [sympy.Rational(2 * place + 1, 2) for place in range(-reach, reach)]
    return tuple(sympy.finite_diff_weights(1, points, 0)[1][-1][reach:])


def unit(axis: int, distance: int, ndim: int) -> tuple[int, ...]:
    return tuple(distance if one == axis else 0 for one in range(ndim))


def both_sides(u: Values, axis: int, distance: int, ndim: int) -> sympy.Expr:
    """Return the sum of the two neighbours at distance `distance` along an axis."""
    return u[unit(axis, -distance, ndim)] + u[unit(axis, distance, ndim)]


def spacings(ndim: int, equal: bool, default: float) -> tuple[Parameter, ...]:
    """Return the spacing along each axis: the same parameter h for all axes, or the parameters dz, dy and dx. Raises
    InputError if `equal` is not a bool."""
    require("spacings", "equal_spacing", equal, (True, False))
    if equal:
        return (Parameter("h", default),) * ndim
    return tuple(Parameter(f"d{axis}", default) for axis in NAMES[ndim])


def laplacian(u: Field, order: int, h: tuple[Parameter, ...]) -> sympy.Expr:
    """Return the sum of the second derivatives along all axes. If all spacings are equal, all neighbours at the same
    distance need only one multiplication. In this case, the caller must multiply the result by 1/h^2 (`over_square`).
    If the spacings differ, each distance along each axis needs its own multiplication."""
    ndim = len(h)
    centre, *around = second_derivative(order)
    scales = [1 if len(set(h)) == 1 else 1 / one**2 for one in h]
    terms = [u[(0,) * ndim] * (centre * sum(scales))]
    for distance, weight in enumerate(around, 1):
        terms += [weight * scale * both_sides(u, axis, distance, ndim) for axis, scale in enumerate(scales)]
    return sympy.Add(*terms)


def over_square(h: tuple[Parameter, ...]) -> sympy.Expr:
    """Return the factor that converts the result of `laplacian` to the Laplacian."""
    return 1 / h[0] ** 2 if len(set(h)) == 1 else sympy.S.One


def ahead(f: Field, axis: int, order: int, ndim: int) -> sympy.Expr:
    """Return the derivative of `f` at points half a cell ahead of the values of `f`. The spacing is 1."""
    weights = staggered_derivative(order)
    return sympy.Add(*(w * (f[unit(axis, m + 1, ndim)] - f[unit(axis, -m, ndim)]) for m, w in enumerate(weights)))


def behind(f: Field, axis: int, order: int, ndim: int) -> sympy.Expr:
    """Return the derivative of `f` at points half a cell behind the values of `f`. The spacing is 1."""
    weights = staggered_derivative(order)
    return sympy.Add(*(w * (f[unit(axis, m, ndim)] - f[unit(axis, -m - 1, ndim)]) for m, w in enumerate(weights)))


def as_one(*terms: sympy.Expr) -> sympy.Expr:
    """Return the sum of the terms as one term that SymPy does not rearrange, so that other expressions can share this
    term."""
    return sympy.Add(*terms, evaluate=False)
