"""Bring values from one grid to another grid, plane by plane. `resample` interpolates values, and `extrude` repeats
values.

Along each axis, the samples of the result are equidistant. A sample of the result lies between two neighbouring samples
of the input. If the two neighbouring samples have the values a and b, the sample of the result has the value a + w (b -
a). The weight w is the distance of the result from the sample a, divided by the distance between the samples a and b.
The formula a + w (b - a) is applied along one axis after the other (trilinear interpolation). Positions are exact
fractions. If both grids have a sample at the same place, w is 0, and the result has exactly the bits of the input. Each
value of the result lies between a and b."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from outcrop.axes import NAMES, PLACES, GridShape, Shape, axes_text, grid_shape, inside
from outcrop.errors import InputError, shown
from outcrop.run.inputs.formats import open_as_stored, open_values
from outcrop.run.inputs.input_array import (
    CACHE_BYTES,
    LETTERS,
    Array,
    InputArray,
    arrange,
    lift,
    require_real,
    require_solid,
)
from outcrop.run.user_values import as_number, as_whole_number

Index: TypeAlias = np.ndarray[Any, np.dtype[np.intp]]
Weight: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Lengths: TypeAlias = float | Sequence[float]

OUTSIDE = ("refuse", "nearest")

MAX_SAMPLES = 1 << 27
"""The maximum number of samples along an axis of the result. The number is limited, because a table has an entry for
each sample."""

BLOCK_BYTES = 1 << 20
"""The approximate size in bytes of a block of rows. Each block is interpolated as a whole, so that intermediate results
stay in the cache."""

_EXACT = 1 << 53
"""Whole numbers below _EXACT are exact in double precision, so NumPy and Python divide them with equal results."""


def resample(
    values: object, shape: Sequence[int], *, axes: str = "", spacing: Lengths | None = None,
    new_spacing: Lengths | None = None, origin: Lengths = 0.0, outside: str = "refuse", cache_bytes: int = CACHE_BYTES,
) -> InputArray:  # fmt: skip
    """Interpolate `values` linearly onto a grid of `shape`. The result can be assigned to a field.

    Planes of the result are interpolated when they are read. `values` is an array of one to three axes, an object of
    zarr, dask or xarray, or a file that `--init` accepts. `values` may also be a result of `resample` or `extrude`.
    `axes` contains the letters of the axes of `values`, slowest first: "xz" for an array of shape (nx, nz). If the
    input does not have an axis of the grid, its values are repeated along that axis of the grid. The values are also
    repeated along an axis on which the input has only one sample. If an input for a grid of three axes has no letters,
    the axes of a section are (z, x), and the axis of a profile is (x).

    Without spacings, the first and the last samples of both grids are at the same places. With spacings, sample i along
    an axis is at i * `spacing` in the input and at `origin` + i * `new_spacing` in the result. All lengths have the
    same unit. A length is one number for all axes, or one number for each axis in the order of `shape`. If a sample of
    the result lies outside the input, the function raises InputError. With `outside="nearest"`, a sample outside the
    input gets the nearest value of the input.

    There is no anti-alias filter: smooth the values before you bring them onto a coarser grid. Two planes of the input
    are cached. If the input is not stored plane by plane, the cache can have up to `cache_bytes` more bytes. Raises
    InputError for an input that cannot be opened, and for wrong letters."""
    target = require_shape_of_grid(shape)
    cache_bytes = as_whole_number(cache_bytes, "cache_bytes", minimum=0)
    array = lift(open_values(values, axes, cache_bytes), len(target))
    if not isinstance(outside, str) or outside not in OUTSIDE:
        raise InputError(f"outside {shown(outside)} is unknown; there are {', '.join(OUTSIDE)}")
    if spacing is None and new_spacing is None:
        if isinstance(origin, Iterable) or origin != 0.0:
            raise InputError(f"origin {shown(origin)} needs spacing and new_spacing")
        maps = [_between_ends(array, place, target) for place in range(3)]
    elif spacing is None or new_spacing is None:
        raise InputError("resample needs both spacing and new_spacing, or neither")
    else:
        old, new = (
            _lengths(name, given, len(target)) for name, given in (("spacing", spacing), ("new_spacing", new_spacing))
        )
        start = _lengths("origin", origin, len(target), signed=True)
        maps = [
            _at_distance(array, at, target, start[at] / old[at], new[at] / old[at], outside == "nearest")
            for at in range(3)
        ]
    interpolator = Interpolator(array, (maps[0], maps[1], maps[2]))

    def planes(z0: int, z1: int) -> Array:
        if len(target) == 1:
            return interpolator.planes(0, 1)[0, 0, z0:z1]
        return interpolator.planes(z0, z1).reshape(z1 - z0, *target[1:])

    return InputArray(f"{array.name}, resampled", target, planes)


def extrude(section: object, axis: str, count: int, *, axes: str = "", cache_bytes: int = CACHE_BYTES) -> InputArray:
    """Return a volume that repeats a section `count` times along a new axis: "z", "y" or "x". A section has two axes.

    `axes` contains the letters of the section's axes, slowest first. By default, the section has the two axes that are
    not `axis`, in the order z, y, x. `extrude(model, "y", 512, axes="xz")` with a model of shape (nx, nz) gives the
    shape (nz, 512, nx). `section` may be any input of `resample`. Raises InputError for letters that are not z, y and
    x, and for inputs that are not sections."""
    if not isinstance(axis, str) or axis not in tuple(LETTERS):
        raise InputError(f"axis {shown(axis)} is unknown; a section is extruded along z, y or x")
    others = LETTERS.replace(axis, "")
    if not isinstance(axes, str) or (axes and set(axes) != set(others)):
        names = f"the axes {others[0]} and {others[1]}"
        raise InputError(f"axes {shown(axes)}: a section extruded along {axis} has {names}")
    array = open_as_stored(section, as_whole_number(cache_bytes, "cache_bytes", minimum=0))
    if len(array.shape) == 2:
        own = array.axes if set(array.axes) == set(others) else ""
        flat = arrange(array, axes or own or others, cache_bytes)
    else:
        flat = arrange(array, array.axes, cache_bytes)
        if len(flat.shape) == 1 or axes or flat.shape[LETTERS.index(axis)] != 1:
            raise InputError(f"{array.name} has shape {array.shape}; only a section, of two axes, can be extruded")
    sizes = dict(zip(flat.axes or LETTERS, flat.shape, strict=True))
    sizes[axis] = count
    return replace(resample(flat, [sizes[letter] for letter in LETTERS]), name=f"{array.name}, extruded along {axis}")


def require_shape_of_grid(shape: Sequence[int]) -> Shape:
    """Return `shape` as a tuple. Raises InputError unless `shape` has one to three whole numbers of at least 1."""
    if not isinstance(shape, Iterable) or isinstance(shape, str):
        raise InputError(f"shape {shown(shape)} must be one to three whole numbers, such as (nz, ny, nx)")
    sizes = tuple(as_whole_number(size, f"shape {shown(shape)}: size", MAX_SAMPLES) for size in islice(shape, 4))
    return require_solid("the grid", sizes)


def _between_ends(array: InputArray, place: int, target: Shape) -> AxisMap:
    """Return the `AxisMap` for one of the engine's axes. The first and the last samples of both grids are at the same
    places."""
    size, count = array.shape[place], grid_shape(target)[place]
    if size > 1 and count == 1:
        raise InputError(
            f"{array.name} has {size} samples along {_letter(place, target)}, the grid one; "
            "take a slice, or give spacings"
        )
    return axis_map(size, count, Fraction(0), Fraction(size - 1, max(1, count - 1)))


def _at_distance(
    array: InputArray, place: int, target: Shape, origin: Fraction, step: Fraction, extend: bool
) -> AxisMap:
    """Return the `AxisMap` for one of the engine's axes. Sample i of the result is at `origin + i * step`, in units of
    the input's sample distance."""
    size, count = array.shape[place], grid_shape(target)[place]
    last = origin + (count - 1) * step
    if size > 1 and not extend and (origin < 0 or last > size - 1):
        raise InputError(
            f"{array.name} has samples 0 to {size - 1} along {_letter(place, target)}, the grid goes from "
            f"{float(origin):g} to {float(last):g} of them; outside='nearest' repeats the values at the rim"
        )
    return axis_map(size, count, origin, step)


def _letter(place: int, target: Shape) -> str:
    """Return the letter that the grid uses for one of the engine's axes."""
    ndim = len(target)
    return NAMES[ndim][PLACES[ndim].index(place)]


def _lengths(name: str, given: Lengths, ndim: int, signed: bool = False) -> tuple[Fraction, Fraction, Fraction]:
    """Return an exact length (a fraction) for each of the engine's axes. For each axis that the grid does not have, the
    length is 1."""
    several = list(islice(given, 4)) if isinstance(given, Iterable) else [given] * ndim
    # `repr` gives the decimal number that the user wrote. Because of `repr`, a spacing of 0.1 puts sample 10 exactly at
    # 1.
    exact = [Fraction(repr(as_number(length, f"{name} {shown(given)}:"))) for length in several]
    if len(exact) != ndim:
        raise InputError(f"{name} {shown(given)} has {len(exact)} numbers; the grid has {axes_text(ndim)}")
    if not signed and min(exact) <= 0:
        raise InputError(f"{name} {shown(given)} must be positive")
    return inside(exact, Fraction(1))


@dataclass(frozen=True)
class AxisMap:
    """Sample i of the result is `a + weight[i] * (b - a)`, with `a = input[low[i]]` and `b = input[high[i]]`.

    `size` is the number of samples of the input."""

    size: int
    low: Index
    high: Index
    weight: Weight

    def __len__(self) -> int:
        return len(self.low)

    @property
    def identity(self) -> bool:
        """True if the samples of the result are equal to the samples of the input."""
        return len(self) == self.size and bool((self.low == np.arange(self.size)).all()) and self.selects

    @property
    def selects(self) -> bool:
        """True if every sample of the result is a sample of the input, so that no arithmetic is needed."""
        return not self.weight.any()

    def part(self, first: int, last: int) -> AxisMap:
        """Return the `AxisMap` of samples `first` <= i < `last` of the result. In the returned map, the first needed
        sample of the input has the number 0."""
        low, high = self.low[first:last], self.high[first:last]
        start, stop = int(low[0]), int(high.max()) + 1
        return AxisMap(stop - start, low - start, high - start, self.weight[first:last])


def axis_map(size: int, count: int, origin: Fraction, step: Fraction) -> AxisMap:
    """Return the map of `count` samples. Sample i is at `origin + i * step`, in units of the input's sample distance.
    Samples outside the input get the nearest value of the input."""
    denominator = math.lcm(origin.denominator, step.denominator)
    start, stride = int(origin * denominator), int(step * denominator)
    last = (size - 1) * denominator
    if max(abs(start), abs(start + count * stride), last, denominator) < _EXACT:
        low, rest = np.divmod(np.clip(start + np.arange(count, dtype=np.intp) * stride, 0, last), denominator)
        weight = rest / np.float64(denominator)
    else:
        places = [divmod(min(max(start + i * stride, 0), last), denominator) for i in range(count)]
        low = np.array([place for place, _ in places], np.intp)
        weight = np.array([rest / denominator for _, rest in places], np.float64)
    return AxisMap(size, low, low + (weight > 0), weight)


class Interpolator:
    """Interpolates planes of an input array of three axes. A plane of the result needs two planes of the input. The
    latest two input planes are kept in memory."""

    def __init__(self, array: InputArray, maps: tuple[AxisMap, AxisMap, AxisMap]) -> None:
        self._array, self._maps = array, maps
        self.shape: GridShape = (len(maps[0]), len(maps[1]), len(maps[2]))
        self._blends = not all(axis.selects for axis in maps)
        self._near: dict[int, Array] = {}
        self._only: Array | None = None

    def planes(self, z0: int, z1: int) -> Array:
        """Return planes z0 <= z < z1 of the result. If values are interpolated, inputs of float32, and of dtypes with
        at most 16 bits, give float32. Inputs of other dtypes give float64 or a wider type."""
        if self._maps[0].size == 1:
            if self._only is None:
                self._only = self._plane(z0)
            result = np.broadcast_to(self._only, (z1 - z0, *self.shape[1:]))
        else:
            first = self._plane(z0)
            result = np.empty((z1 - z0, *self.shape[1:]), first.dtype)
            result[0] = first
            for z in range(z0 + 1, z1):
                result[z - z0] = self._plane(z)
        if z1 == self.shape[0]:
            self._near.clear()
            self._only = None
        return result

    def _plane(self, z: int) -> Array:
        along, down, across = self._maps
        low, high, weight = int(along.low[z]), int(along.high[z]), along.weight[z]
        self._near = {place: plane for place, plane in self._near.items() if place in (low, high)}
        a, b = self._input(low), self._input(high)
        if down.size == 1:
            row = _interpolate(_blend(a, b, weight) if weight else a, across, 1)
            return np.broadcast_to(row, self.shape[1:])
        if down.identity and across.identity:
            return _blend(a, b, weight) if weight else a
        result = np.empty(self.shape[1:], a.dtype)
        rows = self._rows_of_block(a.itemsize)
        for y0 in range(0, len(down), rows):
            part = down.part(y0, min(y0 + rows, len(down)))
            wanted = slice(int(down.low[y0]), int(down.low[y0]) + part.size)
            block = _blend(a[wanted], b[wanted], weight) if weight else a[wanted]
            order = ((across, 1), (part, 0)) if len(part) >= part.size else ((part, 0), (across, 1))
            for axis_map, axis in order:
                block = _interpolate(block, axis_map, axis)
            result[y0 : y0 + rows] = block
        return result

    def _rows_of_block(self, itemsize: int) -> int:
        """Return the number of rows of the result that are computed together. BLOCK_BYTES limits the size of these
        rows, and the size of the input rows from which these rows are computed."""
        _, down, across = self._maps
        cells = max(len(across), across.size * -(-down.size // len(down)))
        return max(1, BLOCK_BYTES // (cells * itemsize))

    def _input(self, z: int) -> Array:
        """Return plane z of the input in the dtype of the interpolation, and cache it."""
        if z not in self._near:
            block = np.asarray(self._array.planes(z, z + 1))
            require_real(self._array.name, block.dtype)
            dtype = np.result_type(block.dtype, np.float32) if self._blends else block.dtype
            self._near[z] = np.array(block[0], dtype)  # copied, because a view keeps all planes of the group in memory
        return self._near[z]


def _interpolate(block: Array, axis_map: AxisMap, axis: int) -> Array:
    """`block` has two axes. Interpolate the values of `block` along one axis, and return the result."""
    if axis_map.identity:
        return block
    a = np.take(block, axis_map.low, axis)
    if axis_map.selects:
        return a
    weight = axis_map.weight[:, None] if axis == 0 else axis_map.weight
    return _blend(a, np.take(block, axis_map.high, axis), weight)


def _blend(a: Array, b: Array, weight: Any) -> Array:
    """Return `a + weight * (b - a)`, which is exactly a for weight 0. The result is clipped to the range from a to b,
    because rounding could give a value outside the range."""
    weight = np.asarray(weight, a.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        result = b - a
        result *= weight
        result += a
    np.clip(result, np.minimum(a, b), np.maximum(a, b), out=result)
    np.copyto(result, a, where=weight == 0)
    return result
