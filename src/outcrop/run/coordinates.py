"""Where cells are in space, for those who read a run: the Zarr arrays that give its axes their coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.run.axes import NAMES, Shape
from outcrop.run.disk.schema import Shown


@dataclass(frozen=True)
class Coordinates:
    """Cell k along an axis is at origin + k * spacing, in `units`, any text; axes in the grid's own order."""

    spacing: tuple[float, ...]
    origin: tuple[float, ...]
    units: Shown = ""

    def along(self, axis: int, cells: int) -> NDArray[np.float64]:
        """The coordinates of all cells along an axis."""
        places: NDArray[np.float64] = self.origin[axis] + np.arange(cells, dtype=np.float64) * self.spacing[axis]
        return places


Numbers = float | Sequence[float] | None
"""One for each axis, in the order of the shape, or one for all."""


def as_coordinates(spacing: Numbers, origin: Numbers, units: str | None, ndim: int) -> Coordinates | None:
    """Coordinates of what users give; None when they give nothing. Raises InputError for what cannot be."""
    if spacing is None and origin is None and units is None:
        return None
    if units is not None and not isinstance(units, str):
        raise InputError(f"units {units!r} must be text, such as 'm'")
    steps = _numbers("spacing", 1.0 if spacing is None else spacing, ndim)
    if 0.0 in steps:
        raise InputError(f"spacing {spacing!r} must not be 0")
    return Coordinates(steps, _numbers("origin", 0.0 if origin is None else origin, ndim), units or "")


def coordinate_metadata(coordinates: Coordinates, axis: int, shape: Shape) -> dict[str, Any]:
    """Content of the zarr.json of one axis: float64, in one chunk c/0, not compressed."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [shape[axis]],
        "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [shape[axis]]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {"units": coordinates.units} if coordinates.units else {},
        "dimension_names": [NAMES[len(shape)][axis]],
        "storage_transformers": [],
    }


def _numbers(what: str, given: Any, ndim: int) -> tuple[float, ...]:
    try:
        numbers = tuple(float(one) for one in (given if isinstance(given, (Sequence, np.ndarray)) else [given] * ndim))
    except (TypeError, ValueError):
        raise InputError(f"{what} {given!r} must be a number, or one for each axis") from None
    if len(numbers) != ndim or not all(map(math.isfinite, numbers)):
        raise InputError(f"{what} {given!r} must be a finite number, or {ndim} of them: {', '.join(NAMES[ndim])}")
    return numbers


def require_other_names(coordinates: object, ndim: int, fields: Sequence[str]) -> None:
    """Raise InputError when coordinates, where there are any, would have the name of a field."""
    for name in fields if coordinates else ():
        if name in NAMES[ndim]:
            raise InputError(f"field {name!r} has the name of an axis; leave out spacing, origin and units")
