"""Make forward runs on tiny grids, for tests of adjoint runs that compute states again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import outcrop as oc
from adjoint_cases import grid, values
from outcrop.axes import PLACES
from outcrop.language.stencil import Stencil

STEPS = 7


def run_forward(
    stencil: Stencil, folder: Path, text: str, history: oc.History, rows: int = 0, **options: Any
) -> oc.Simulation:
    """Run a stencil on a tiny grid, from random values. The run keeps `history`."""
    _, whole = grid(stencil, text, 5, rows)
    shape = tuple(whole[place] for place in PLACES[stencil.ndim])
    signals = {name: signal(place).tolist() for place, name in enumerate(stencil.signals)}
    sim = oc.Simulation(
        stencil, shape, options.pop("dtype", "float64"), folder / "run.oc", memory="64MiB", threads=2, unstable=True,
        signals=signals or None, boundary=text.rpartition(",")[2] if stencil.ndim == 1 else text, **options,
    )  # fmt: skip
    sim.assign({name: one.reshape(shape) for name, one in values(stencil, whole, 1).items()})
    sim.run(STEPS, progress="none", history=history)
    return sim


def signal(place: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(place).random(STEPS)


def as_arrays(gradients: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(one[:] if hasattr(one, "shape") and one.shape else one) for name, one in gradients.items()}
