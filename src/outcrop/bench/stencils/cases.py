"""What `outcrop bench stencils` measures: a stencil of each family of the library, its grid, and initial values.

Values are smooth and of the order of one, so that nothing grows, and nothing becomes so small that a processor takes
longer for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.language.library import find_stencil
from outcrop.language.stencil import Stencil

Planes: TypeAlias = Callable[[int, int], NDArray[np.float32]]


@dataclass(frozen=True)
class Case:
    """One stencil of the library. `plane` is (ny, nx) of grids of three axes and (nx,) of those of two, `steps` those
    of a run. Fields have smooth waves around 0 unless `means` has another mean value for them; fields that are only
    read, such as a medium, vary by a tenth of it."""

    name: str
    plane: tuple[int, ...]
    steps: int
    means: Mapping[str, float]

    @property
    def stencil(self) -> Stencil:
        """The stencil."""
        return find_stencil(self.name)

    def values(self, shape: tuple[int, ...]) -> dict[str, Planes]:
        """Initial values of all fields of a grid of `shape`."""
        return {field.name: smooth(shape, self.means.get(field.name, 0.0)) for field in self.stencil.fields}


def smooth(shape: tuple[int, ...], mean: float) -> Planes:
    """Waves along all axes: a hundredth around 0, or a tenth of `mean` around it."""
    size = 0.1 * abs(mean) if mean else 0.01

    def planes(z0: int, z1: int) -> NDArray[np.float32]:
        axes: list[NDArray[Any]] = list(np.ogrid[tuple(slice(0, n) for n in (z1 - z0, *shape[1:]))])
        axes[0] = axes[0] + z0
        waves = [np.sin(0.02 * (number + 1) * axis + 0.5).astype("float32") for number, axis in enumerate(axes)]
        product = waves[0]
        for wave in waves[1:]:
            product = product * wave
        return (np.float32(mean) + np.float32(size) * product).astype("float32")

    return planes


_WIDE, _LONG, _NARROW, _ROW = (256, 512), (128, 512), (128, 256), (16384,)
_VELOCITY = {"v": 2000.0}

# A step of radius r takes r more planes of the window, so grids of high orders are longer.
CASES = (
    Case("heat2", _WIDE, 96, {"u": 1.0}),
    Case("heat4", _WIDE, 64, {"u": 1.0}),
    Case("heat6", _LONG, 48, {"u": 1.0}),
    Case("heat8", _LONG, 32, {"u": 1.0}),
    Case("acoustic2", _WIDE, 64, _VELOCITY),
    Case("acoustic4", _LONG, 48, _VELOCITY),
    Case("acoustic6", _LONG, 40, _VELOCITY),
    Case("acoustic8", _LONG, 32, _VELOCITY),
    Case("acoustic8_sponge", _LONG, 32, {**_VELOCITY, "damp": 10.0}),
    Case("elastic4", _NARROW, 16, {"lam": 5e9, "mu": 5e9, "b": 5e-4}),
    Case("maxwell", _NARROW, 48, {"eps": 2.0}),
    Case("gray_scott", _WIDE, 48, {"u": 0.8, "v": 0.2}),
    Case("advection1", _WIDE, 96, {"u": 1.0}),
    Case("stream_function", _ROW, 96, {"psi": 1.0}),
    Case("sharpen", _ROW, 4, {"image": 1.0}),
    Case("d2q9", _ROW, 48, {}),
    Case("d3q19", _NARROW, 32, {}),
)
