"""Check that a whole run, from its initial values to its report, needs no more memory than its budget plus 150 MiB."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

SHAPE = (256, 256, 256)  # each file has 128 MiB, so a run that holds a whole file in memory exceeds the limit
BUDGET_BYTES = 8 << 20
FIXED_BYTES = 150 << 20


def _save_plane_by_plane(path: Path, values: np.ndarray) -> None:
    np.save(path, values)


def _save_column_by_column(path: Path, values: np.ndarray) -> None:
    np.save(path, np.asfortranarray(values))


def _save_in_chunks(path: Path, values: np.ndarray) -> None:
    zarr.create_array(path, data=values, chunks=(256, 64, 64))


@pytest.mark.parametrize("save", [None, _save_plane_by_plane, _save_column_by_column, _save_in_chunks])
def test_peak_memory_of_a_run(tmp_path: Path, save: Callable[[Path, np.ndarray], None] | None) -> None:
    """Checks the peak memory of runs with built-in initial values, and with initial values from files in different
    orders.

    The run is a separate process, and the operating system measures its peak.
    """
    init = "gaussian"
    if save is not None:
        init = str(tmp_path / ("values.zarr" if save is _save_in_chunks else "values.npy"))
        save(Path(init), np.random.default_rng(1).random(SHAPE))
    command = f"run heat7 -n 256 256 256 -t 4 --quiet --memory {BUDGET_BYTES} --io threads --init".split()
    places = ["-d", str(tmp_path / "run.oc"), "--json", str(tmp_path / "report.json")]
    subprocess.run([sys.executable, "-m", "outcrop.cli.main", *command, init, *places], check=True)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["window_bytes"] <= BUDGET_BYTES < report["memory_peak_bytes"] <= BUDGET_BYTES + FIXED_BYTES
