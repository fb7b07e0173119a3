"""Measure the rates of three kinds of reads: HDF5 reads a view of a run, HDF5 reads a copy, and xarray reads the run
itself. All data are in the page cache, so the figures do not depend on the speed of the disk.

    .venv/bin/python scripts/view_rates.py

Each row of a run begins at a multiple of 64 bytes. The grid of 256 cells along x has rows without padding, and the grid
of 250 cells has rows with padding. For each kind of read, the script prints the median of five repeats, in MB/s.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray

import outcrop as oc

REPEATS = 5
PLANES, ROWS = 128, 256
SELECTIONS: dict[str, Any] = {"all planes": np.s_[:], "one row of each plane": np.s_[:, 10],
                              "one cell of each row": np.s_[:, :, 10]}  # fmt: skip


def rate(read: Callable[[Any], np.ndarray], index: Any) -> float:
    """Return the median of the rates of several reads, in MB/s."""
    found = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        nbytes = read(index).nbytes
        found.append(nbytes / (time.perf_counter() - begin) / 1e6)
    return statistics.median(found)


def main() -> None:
    print(f"HDF5 {h5py.version.hdf5_version}, h5py {h5py.__version__}; MB/s")
    with tempfile.TemporaryDirectory() as folder:
        for nx in (256, 250):
            run, view, copy = (Path(folder, f"{name}-{nx}") for name in ("run.oc", "view.h5", "copy.h5"))
            sim = oc.Simulation("heat7", (PLANES, ROWS, nx), directory=run, memory="64MiB")
            sim["u"] = "random:1"
            oc.export(sim, view, format="hdf5")
            oc.export(sim, copy, format="hdf5", copy=True)
            with h5py.File(view) as shown, h5py.File(copy) as copied:
                lazy = xarray.open_dataset(run, engine="outcrop")["u"]
                for name, index in SELECTIONS.items():
                    rates = rate(shown["u"].__getitem__, index), rate(copied["u"].__getitem__, index), rate(
                        lambda one, lazy=lazy: lazy[one].values, index
                    )  # fmt: skip
                    print(f"{nx} cells, {name:22} view {rates[0]:7.1f}  copy {rates[1]:7.1f}  xarray {rates[2]:7.1f}")


if __name__ == "__main__":
    main()
