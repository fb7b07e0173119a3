"""Make a run of several arrays: an array with previous values, an array without them, and an array of a static
field."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import outcrop as oc
from oracle import advance_fields
from outcrop.language.symbols import Signal
from outcrop.run.disk.state import State
from outcrop.run.places import open_state

SHAPE = (6, 5, 4)
STATE = ["u", "u.previous", "v"]


def waves() -> oc.Stencil:
    """Make a stencil with the signal w that updates the fields u and v. It reads previous values of u, and the static
    field m."""
    u, v, m, w = oc.Field("u"), oc.Field("v"), oc.Field("m"), Signal("w")
    bend = u[0, 0, 1] - 2 * u[0, 0, 0] + u[0, 0, -1]
    here = u[0, 0, 0]
    return oc.Stencil("waves", [{u: 2 * here - u.previous[0, 0, 0] + m[0, 0, 0] * bend}, {v: v[0, 0, 0] + w * here}])


def values(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).random(shape, dtype="float32")


def make_simulation(where: Path | list[Path], **options: object) -> oc.Simulation:
    given = {"memory": "1MiB", "threads": 1, "signals": {"w": np.ones(50)}, **options}
    return oc.Simulation(waves(), SHAPE, directory=where, **given)  # type: ignore[arg-type]


def make_run(where: Path | list[Path], **options: object) -> tuple[oc.Simulation, dict[str, np.ndarray]]:
    """Make a run with values in all arrays. Return the run and the values."""
    simulation = make_simulation(where, **options)
    start = {name: values(seed) for seed, name in enumerate([*STATE, "m"])}
    simulation.assign(start)
    return simulation, start


def contents(where: Path) -> dict[str, np.ndarray]:
    """Open a run again and return all its arrays."""
    simulation = oc.open(where)
    return {entry.name: simulation[entry.name][...] for entry in open_state(where).manifest.arrays}


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in found)


def write_target(state: State, number: float) -> None:
    """Write new arrays of the state next to the committed arrays, as a pass does before its commit."""
    for entry in state.manifest.state:
        with state.target_planes(entry.name, 1 - state.manifest.current) as planes:
            planes.fill(lambda z0, z1: np.full((z1 - z0, *state.layout.shape[1:]), number))
            planes.flush()


def state_of(simulation: oc.Simulation) -> State:
    """Open the directory of a run as another process does, and return the state of the run."""
    return open_state(simulation.directory)


def after(start: dict[str, np.ndarray], steps: int, signal: Sequence[float] | None = None) -> dict[str, np.ndarray]:
    """Return all arrays after `steps` steps of the oracle. The default signal is 1 at each step."""
    return {**start, **advance_fields(waves(), start, {}, steps, signals={"w": signal or [1.0] * steps})}
