"""The arithmetic of resampling: where samples of the result lie in the input, and planes between planes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from outcrop.axes import GridShape
from outcrop.run.inputs.source import Array, Source, require_real

BLOCK_BYTES = 1 << 20
"""Rows are interpolated in blocks of about this size, so that what lies between input and result stays in the cache."""

_EXACT = 1 << 53
"""Whole numbers below this are exact in double precision, so NumPy divides them as Python does."""

Index: TypeAlias = np.ndarray[Any, np.dtype[np.intp]]
Weight: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class AxisMap:
    """Sample i of the result is a + weight[i] (b - a) of the samples a = low[i] and b = high[i] of `size` ones."""

    size: int
    low: Index
    high: Index
    weight: Weight

    def __len__(self) -> int:
        return len(self.low)

    @property
    def is_identity(self) -> bool:
        """Whether the result is the input."""
        return len(self) == self.size and bool((self.low == np.arange(self.size)).all()) and self.is_choice

    @property
    def is_choice(self) -> bool:
        """Whether nothing lies between samples, so that no arithmetic is needed."""
        return not self.weight.any()

    def part(self, first: int, last: int) -> AxisMap:
        """The map of samples first <= i < last onto the samples of the input that they need, counted from the first."""
        low, high = self.low[first:last], self.high[first:last]
        start, stop = int(low[0]), int(high.max()) + 1
        return AxisMap(stop - start, low - start, high - start, self.weight[first:last])


def axis_map(size: int, count: int, origin: Fraction, step: Fraction) -> AxisMap:
    """The map of `count` samples at origin + i * step, in samples of the input; those outside get the nearest value.

    A single sample is the value everywhere.
    """
    denominator = math.lcm(origin.denominator, step.denominator)
    start, stride = int(origin * denominator), int(step * denominator)
    most = (size - 1) * denominator
    if max(abs(start), abs(start + count * stride), most, denominator) < _EXACT:
        low, rest = np.divmod(np.clip(start + np.arange(count, dtype=np.intp) * stride, 0, most), denominator)
        weight = rest / np.float64(denominator)
    else:
        places = [divmod(min(max(start + i * stride, 0), most), denominator) for i in range(count)]
        low = np.array([place for place, _ in places], np.intp)
        weight = np.array([rest / denominator for _, rest in places], np.float64)
    return AxisMap(size, low, low + (weight > 0), weight)


class Interpolator:
    """Planes of a Source of three axes on other samples. It keeps two of the input: those around the last one given."""

    def __init__(self, source: Source, maps: tuple[AxisMap, AxisMap, AxisMap]) -> None:
        self._source, self._maps = source, maps
        self.shape: GridShape = (len(maps[0]), len(maps[1]), len(maps[2]))
        self._blends = not all(axis.is_choice for axis in maps)
        self._near: dict[int, Array] = {}
        self._only: Array | None = None

    def planes(self, z0: int, z1: int) -> Array:
        """Planes z0 <= z < z1 of the result; float32 for input of up to 16 bits and float32, else wider."""
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
        if down.is_identity and across.is_identity:
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
        """Rows of the result at a time: neither they nor the rows of the input that they need take much memory."""
        _, down, across = self._maps
        cells = max(len(across), across.size * -(-down.size // len(down)))
        return max(1, BLOCK_BYTES // (cells * itemsize))

    def _input(self, z: int) -> Array:
        """Plane z of the input, ready for arithmetic, kept."""
        if z not in self._near:
            block = np.asarray(self._source.planes(z, z + 1))
            require_real(self._source.name, block.dtype)
            dtype = np.result_type(block.dtype, np.float32) if self._blends else block.dtype
            self._near[z] = np.array(block[0], dtype)  # a copy: a view would keep the whole group of planes it is from
        return self._near[z]


def _interpolate(block: Array, axis_map: AxisMap, axis: int) -> Array:
    """A block of two axes on other samples along one of them."""
    if axis_map.is_identity:
        return block
    a = np.take(block, axis_map.low, axis)
    if axis_map.is_choice:
        return a
    weight = axis_map.weight[:, None] if axis == 0 else axis_map.weight
    return _blend(a, np.take(block, axis_map.high, axis), weight)


def _blend(a: Array, b: Array, weight: Any) -> Array:
    """a + weight (b - a), within what a and b span in spite of rounding; a itself where the weight is 0."""
    weight = np.asarray(weight, a.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        result = b - a
        result *= weight
        result += a
    np.clip(result, np.minimum(a, b), np.maximum(a, b), out=result)
    np.copyto(result, a, where=weight == 0)
    return result
