"""Make wave runs with sources, receivers, snapshots and norms."""

from pathlib import Path
from typing import Any

import numpy as np

import outcrop as oc

SHAPE, H, DT, STEPS = (44, 30, 37), 10.0, 0.001, 60
ORIGIN = (100.0, 0.0, -50.0)
BOX = (slice(4, 40), slice(12, 13), slice(None))
LINE = [(200.0, 45.0, -45.0 + 12.5 * i) for i in range(9)]
SHOTS = [(303.0, 151.0, 128.5), (250.0, 100.0, 100.0)]


def wavelets() -> np.ndarray:
    """Return two wavelets as an array of shape (50, 2). They have fewer steps than the run."""
    t = np.arange(50)
    return np.stack([np.exp(-(((t - 12) / 4) ** 2)), np.sin(t / 3) / (1 + t)], axis=1)


def velocity() -> np.ndarray:
    """Return velocities in m/s in layers, as an array of shape SHAPE."""
    layers = np.linspace(1500, 3000, SHAPE[0], dtype=np.float32)[:, None, None]
    return np.broadcast_to(layers, SHAPE)


def make(where: Path, memory: str = "500KiB", **options: Any) -> oc.Simulation:
    """Make a wave run with sources, receivers, snapshots and norms. The run needs many passes."""
    v, dt = oc.Field("v"), oc.Parameter("dt", 0.0)
    given: dict[str, Any] = {
        "sources": [oc.Source("u", SHOTS, wavelets(), scale=dt**2 * v[0, 0, 0] ** 2)],
        "receivers": [oc.Receivers("line", "u", LINE), oc.Receivers("before", "u", LINE[3], before=True)],
        "snapshots": oc.Snapshots(7, box=BOX, time_units="s"),
        "norms": oc.Norms(4),
    }
    sim = oc.Simulation(
        oc.stencils.acoustic(order=4), SHAPE, directory=where, memory=memory, threads=2, spacing=H, origin=ORIGIN,
        units="m", dt=DT, **{**given, **options},
    )  # fmt: skip
    sim["v"] = velocity()
    return sim


def everything(where: Path) -> dict[str, Any]:
    """Return all results of a run: fields, snapshots, norms, traces and the step."""
    sim = oc.open(where)
    found = {"u": sim["u"][...], "snapshots": sim.snapshots["u"][:], "norms": sim.norms["u"], **sim.traces}
    return {"step": sim.step, **found}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)
