"""Forward runs on tiny grids whose adjoint runs compute states again, for several test files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import outcrop as oc
from adjoint_cases import grid, static_names, values
from backwards import inner
from outcrop.axes import PLACES
from outcrop.language.stencil import Stencil

STEPS = 7


def run_forward(stencil: Stencil, folder: Path, text: str, history: oc.History, **options: Any) -> oc.Simulation:
    """Run a stencil on a tiny grid, from random values. The run keeps `history`."""
    _, whole = grid(stencil, text, 5)
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


def seeds_of(stencil: Stencil, text: str) -> dict[str, Any]:
    """Return random derivatives with respect to the last values of each updated field. They are 0 in the rim."""
    boundary, shape = grid(stencil, text, 5)
    rng, found, static = np.random.default_rng(3), {}, static_names(stencil)
    for name in (one.name for one in stencil.fields if one.name not in static):
        found[name] = np.zeros(shape)
        cells = inner(stencil, boundary, shape)
        found[name][cells] = rng.standard_normal(found[name][cells].shape)
    return found


def as_arrays(gradients: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(one[:] if hasattr(one, "shape") and one.shape else one) for name, one in gradients.items()}
