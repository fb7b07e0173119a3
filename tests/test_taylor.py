"""Taylor tests in ten random directions, for every way to store the states of the forward run.

A gradient comes from a run. The misfits for changed inputs come from a solver in NumPy, in float64. If only every k-th
state is kept and states are not recomputed, a gradient is k times a sum over every k-th step. Such a gradient is not
exact if it needs the states, and does not pass the Taylor test. The last tests check the accuracy of such gradients for
waves.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from adjoint_cases import STENCILS, grid, values
from backwards import PLAIN, State, Steps, inner, put
from outcrop.axes import PLACES

STEPS, DIRECTIONS = 6, 10
SIZES = {"float64": 2e-4, "float32": 4e-3}
"""The largest change for each dtype, relative to the values that change. Larger changes make terms of third order
visible in the rates, and smaller changes make rounding errors visible."""

KEPT: dict[str, oc.History | None] = {
    "nothing": None,
    "all": oc.History("all"),
    "every fourth": oc.History(4),
    "recomputed": oc.History(4, recompute=True),
}
"""The ways to store the states."""
EXACT = ["all", "recomputed"]

CASES: list[tuple[str, str, str, list[str], list[str]]] = [
    ("heat7", "fixed", "float64", ["u"], list(KEPT)),
    ("acoustic2", "mirror", "float64", ["u", "u.previous"], list(KEPT)),
    ("acoustic2", "periodic", "float32", ["u", "u.previous"], list(KEPT)),
    ("elastic2", "fixed", "float64", ["vz", "lam", "b"], EXACT),
    ("heat7", "periodic", "float32", ["c0", "c1"], EXACT),
    ("acoustic2", "fixed", "float64", ["v", "dt", "h"], EXACT),
    ("signals", "fixed", "float64", ["u", "k", "a", "s"], EXACT),
    ("gray_scott", "periodic", "float64", ["u", "v", "feed"], EXACT),
    ("gray_scott", "fixed", "float32", ["u", "v", "kill"], EXACT),
    ("acoustic4_2d_sponge", "mirror", "float64", ["v", "damp"], ["recomputed"]),
    ("twice", "fixed", "float64", ["u", "v", "a"], ["recomputed"]),
    ("d2q9", "periodic", "float64", ["f0", "f5", "tau"], EXACT),
]
"""Each case has a stencil, a boundary, a dtype, inputs, and a list of ways to store states. These ways give an exact
gradient with respect to the inputs. If an adjoint reads no states, every way gives an exact gradient."""


class Case:
    """A run of a stencil on a tiny grid, with random values. The misfit compares the last values of the first field
    with observed values. It is half the sum of the squared differences."""

    def __init__(self, name: str, text: str, dtype: str) -> None:
        self.stencil, self.dtype = STENCILS[name], dtype
        self.boundary, self.whole = grid(self.stencil, text, 4)
        self.text = text
        self.shape = tuple(self.whole[place] for place in PLACES[self.stencil.ndim])
        rng = np.random.default_rng(4)
        self.state = {key: one.astype(dtype).astype(float) for key, one in values(self.stencil, self.whole, 3).items()}
        chosen = {"dt": 0.3, "h": 1.0} if name.startswith(("acoustic", "elastic")) else {}
        self.params = {one.name: chosen.get(one.name, one.default) for one in self.stencil.parameters}
        self.scalars: State = {key: np.float64(one) for key, one in self.params.items()}
        self.scalars |= {one: rng.random(STEPS) for one in self.stencil.signals}
        self.observed = rng.random(self.whole)
        self.field = self.stencil.fields[0].name

    def run(self, folder: Path, wrt: list[str], history: oc.History | None) -> State:
        """Return the gradients of a run that keeps `history`."""
        given = {name: self.scalars[name].tolist() for name in self.stencil.signals}
        sim = oc.Simulation(
            self.stencil, self.shape, self.dtype, folder / "run.oc", memory="64MiB", threads=1, boundary=self.text,
            unstable=True, params=self.params, signals=given or None,
        )  # fmt: skip
        sim.assign({name: one.reshape(self.shape) for name, one in self.state.items()})
        sim.run(STEPS, progress="none", history=history)
        misfit = oc.Misfit(self.field, self.observed.reshape(self.shape))
        _, found = sim.gradient(STEPS, misfit, wrt, progress="none")
        return {name: np.asarray(found[name][...] if name in self.state else found[name]) for name in wrt}

    def misfit(self, inputs: State) -> float:
        """Return the misfit for other values of some inputs."""
        now, scalars = {**self.state, **inputs}, {**self.scalars, **inputs}
        steps = Steps(self.stencil, self.boundary, PLAIN, put)
        names = [one.name for one in self.stencil.parameters]
        for step in range(STEPS):
            row = [*(scalars[name] for name in names), *(scalars[name][step] for name in self.stencil.signals)]
            now |= steps.advance(now, row)
        return float(((now[self.field] - self.observed) ** 2).sum() / 2)

    def rates(self, name: str, gradient: Any, rng: np.random.Generator) -> list[float]:
        """Return four rates for changes of an input in a random direction. Only cells that steps update are changed."""
        given = np.asarray(self.state[name] if name in self.state else self.scalars[name])
        direction = np.zeros(given.shape)
        where = inner(self.stencil, self.boundary, self.whole) if name in self.state else ...
        direction[where] = rng.standard_normal(direction[where].shape)
        direction *= np.sqrt((given**2).mean()) / np.sqrt((direction**2).mean())
        slope, value = float((gradient.reshape(given.shape) * direction).sum()), self.misfit({})
        sizes = [SIZES[self.dtype] / 2**halvings for halvings in range(5)]
        left = [abs(self.misfit({name: given + size * direction}) - value - size * slope) for size in sizes]
        return [float(np.log2(one / half)) for one, half in pairwise(left)]


@pytest.mark.parametrize(("name", "text", "dtype", "wrt", "ways"), CASES)
def test_gradients_pass_the_taylor_test_in_ten_directions(
    name: str, text: str, dtype: str, wrt: list[str], ways: list[str], tmp_path: Path
) -> None:
    """Checks that all rates are 2.0 +- 0.05, and that all exact ways to store states give the same bits."""
    case, found = Case(name, text, dtype), {}
    for way in ways:
        (tmp_path / way).mkdir()
        found[way] = case.run(tmp_path / way, wrt, KEPT[way])
    for one in wrt:
        gradient = found[ways[0]][one]
        assert all(found[way][one].tobytes() == gradient.tobytes() for way in ways), one
        rng = np.random.default_rng(5)
        rates = np.array([case.rates(one, gradient, rng) for _ in range(DIRECTIONS)])
        assert np.abs(rates - 2).max() < 0.05, (one, rates)


def test_a_gradient_from_every_second_state_does_not_pass(tmp_path: Path) -> None:
    """Checks that the Taylor test gives rates near 1 for a gradient from every second state. Such a gradient is not
    exact for random values. The test uses the median of all directions, because the error can be small in a single
    direction."""
    case, rng = Case("acoustic2", "fixed", "float64"), np.random.default_rng(6)
    gradient = case.run(tmp_path, ["v"], oc.History(2))["v"]
    rates = np.array([case.rates("v", gradient, rng) for _ in range(DIRECTIONS)])
    assert abs(np.median(rates) - 1) < 0.05


def test_a_gradient_from_every_kth_state_is_nearly_exact_for_waves(tmp_path: Path) -> None:
    """Checks the rule of the documents: k steps must be shorter than half a period of the highest frequency. The
    spectrum of this source is less than 1/1000 of its maximum above a frequency of 0.13 per step. So k must be less
    than 3.8."""
    steps, cells = 160, 96
    argument = (np.pi * (np.arange(steps) - 30) / 24) ** 2
    found = {}
    for every in ("all", 2, 4, 8):
        sim = oc.Simulation(
            "acoustic4_1d", (cells,), "float64", tmp_path / f"{every}.oc", memory="64MiB", threads=1,
            params={"dt": 0.5, "h": 1.0}, receivers=[oc.Receivers("line", "u", [60.0])],
            sources=[oc.Source("u", [40.0], (1 - 2 * argument) * np.exp(-argument))],
        )  # fmt: skip
        sim["v"] = 1 + 0.1 * np.sin(np.arange(cells) / 5)
        sim.run(steps, progress="none", history=oc.History(every))
        found[every] = sim.gradient(steps, oc.Misfit("line", None), "v", progress="none")[1]["v"][:]
    right = found.pop("all")
    errors = {every: np.linalg.norm(one - right) / np.linalg.norm(right) for every, one in found.items()}
    assert errors[2] < 1e-6 and errors[4] < 1e-3 and errors[8] > 0.1
