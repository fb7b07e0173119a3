"""What is taken from Devito's objects when equations are lowered, to notice that it was changed afterwards.

Devito reads sources, coordinates, Constants and functions of time when an operator is applied; here they are read once,
and a change behind that would have no effect.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

Reader: TypeAlias = Callable[[], Any]


class Taken:
    """Remembers values by what users call them, without keeping a copy."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = dict(readers)
        self._before = {name: _digest(read()) for name, read in self._readers.items()}

    def changed(self) -> str | None:
        """The first whose values are others now; None when there is none."""
        return next((name for name, read in self._readers.items() if _digest(read()) != self._before[name]), None)


def taken_from(
    constants: Mapping[str, Any], signals: Mapping[str, Any], sources: Sequence[Any], receivers: Sequence[Any]
) -> Taken:
    """All that is read of Constants, functions of time, and sparse functions. What receivers hold is not read; an
    object that is both is taken for a receiver."""
    readers: dict[str, Reader] = {}

    def add(name: str, one: Any, part: str) -> None:
        readers[f"{name}.{part}"] = partial(attrgetter(part), one)

    for name, one in {**constants, **signals}.items():
        add(name, one, "data")
    for one in sources:
        if not any(one is other for other in receivers):
            add(one.name, one, "data")
    for one in (*sources, *receivers):
        if hasattr(one, "interpolation_coeffs"):  # precomputed
            add(one.name, one, "gridpoints_data")
            add(one.name, one, "interpolation_coeffs.data")
        else:
            add(one.name, one, "coordinates.data")
    return Taken(readers)


def _digest(values: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(values).data)
