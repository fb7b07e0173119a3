"""Make runs for the tests of exports, and read exported files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray

import outcrop as oc

SHAPES: list[Any] = [(5, 6, 7), (9, 16, 16), (11, 19), (37,)]
BOX = {3: (slice(1, 4), slice(0, 6), slice(2, 5)), 2: (slice(1, 9), slice(3, 12)), 1: (slice(4, 30),)}


def make_run(where: Path | list[Path], shape: Any = (5, 6, 7), steps: int = 6, **more: Any) -> oc.Simulation:
    """Make a run with snapshots of the whole grid and of a box, and with receivers."""
    ndim, name = len(shape), {3: "acoustic4", 2: "acoustic4_2d", 1: "acoustic4_1d"}[len(shape)]
    kept = [oc.Snapshots(2, time_units="s"), oc.Snapshots(3, name="side", box=BOX[ndim], initial=False)]
    points = np.full((2, ndim), 2.0) * 10
    sim = oc.Simulation(
        name, shape, directory=where, memory="8MiB", spacing=10.0, units="m", snapshots=kept, threads=1,
        receivers=[oc.Receivers("line", "u", points)], **more,
    )  # fmt: skip
    sim.assign({"u": np.random.default_rng(3).random(shape, "float32"), "v": 2000.0})
    sim.run(steps, progress="none")
    return sim


def values_in(target: Path | str, group: str) -> xarray.Dataset:
    """Return a group of an export, with all its values in memory."""
    path = str(target)
    if path.endswith((".nc", ".h5")):
        return xarray.open_dataset(path, engine="h5netcdf", group=group or None, phony_dims="sort").load()
    return xarray.open_zarr(path, group=group or None, chunks=None).load()


def require_same(target: Path | str, sim: oc.Simulation) -> None:
    """Check that an export has the bits of all fields, snapshots and traces of a run."""
    for group, found in {"": ("u", "v"), "snapshots": ("u",), "snapshots/side": ("u",)}.items():
        data = values_in(target, group)
        for name in found:
            expected = sim.snapshots[f"side/{name}" if "side" in group else name] if group else sim[name]
            np.testing.assert_array_equal(data[name].values, expected[...], f"{group} {name}")
        assert data["x"].attrs["units"] == "m" and float(data["x"][1] - data["x"][0]) == 10
    traces = values_in(target, "traces")
    np.testing.assert_array_equal(traces["line"].values, sim.traces["line"])
    assert traces["step"].values.tolist() == list(range(1, sim.step + 1))
