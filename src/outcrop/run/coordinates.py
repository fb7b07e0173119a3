"""Where cells are in space, for those who read a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import NAMES
from outcrop.errors import InputError, shown
from outcrop.run.disk.entries import Shown
from outcrop.run.given import as_number


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
        raise InputError(f"units {shown(units)} must be text, such as 'm'")
    steps = _numbers("spacing", 1.0 if spacing is None else spacing, ndim)
    if min(steps) <= 0:
        raise InputError(f"spacing {shown(spacing)} must be positive")
    return Coordinates(steps, _numbers("origin", 0.0 if origin is None else origin, ndim), units or "")


def _numbers(what: str, given: Any, ndim: int) -> tuple[float, ...]:
    are_several = isinstance(given, (Sequence, np.ndarray)) and not isinstance(given, (str, bytes))
    several = islice(given, 4) if are_several else [given] * ndim
    numbers = tuple(as_number(one, f"{what} {shown(given)}:") for one in several)
    if len(numbers) != ndim:
        raise InputError(f"{what} {shown(given)} must be a finite number, or {ndim} of them: {', '.join(NAMES[ndim])}")
    return numbers


def require_other_names(coordinates: object, ndim: int, fields: Sequence[str]) -> None:
    """Raise InputError when coordinates, where there are any, would have the name of a field."""
    for name in fields if coordinates else ():
        if name in NAMES[ndim]:
            raise InputError(f"field {name!r} has the name of an axis; leave out spacing, origin and units")
