"""A new run can use the committed values of another run as initial values: run.oc, run.oc/u or run.oc:u.

Each plane is read with its checksum and its seal, as `sim["u"][...]` does. All planes come from one generation. If
another process commits a new generation while planes are read, reading ends with an error.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from outcrop.errors import InputError
from outcrop.run.disk.manifest import MANIFEST
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder
from outcrop.run.disk.values import FieldView, PlanesView
from outcrop.run.inputs.input_array import InputArray


def run_at(path: Path) -> tuple[Path, str] | None:
    """Return the directory of a run and the name of an array, if `path` is a run or an array of a run. If `path` is a
    run, the name of the array is "". If `path` is neither a run nor an array of a run, return None."""
    if os.path.isfile(path / MANIFEST):
        return path, ""
    is_array = path.name != "" and os.path.isfile(path.parent / MANIFEST) and not os.path.isfile(path)
    return (path.parent, path.name) if is_array else None


def arrays_at(path: Path) -> list[str]:
    """Return the names of the arrays of the run at `path` that have values, or [] if there is no run. Raises InputError
    if the run is damaged."""
    found = run_at(path)
    if found is None or found[1]:
        return []
    manifest = RunFolder(path).read()
    return [one.name for one in manifest.arrays if one.name in manifest.filled]


def open_run_array(path: Path, name: str) -> InputArray:
    """Return the input array for the committed values of one array of a run. If `name` is "", the run must have only
    one array. Raises InputError if the run has no array `name`, and StorageError if files are missing. A later call
    that reads a damaged plane of the result raises CorruptionError."""
    storage = RunFolder(path)
    state = State(storage, storage.read())
    state.check()
    manifest = state.manifest
    if manifest.part is not None:
        raise InputError(f"{path} is the part of one rank; make one run of all parts first: outcrop gather")
    if not name:
        if len(manifest.arrays) > 1:
            there = ", ".join(f"{path}/{one.name}" for one in manifest.arrays)
            raise InputError(f"{path} has several arrays; name one of them: {there}")
        name = manifest.arrays[0].name
    manifest.entry(name)
    return from_view(f"{path}/{name}", FieldView(state, name))


def from_view(name: str, view: PlanesView) -> InputArray:
    """Return the input array for a view of a run, such as `sim["u"]`. All planes must come from one generation of the
    run: `planes` raises InputError if the generation has changed since plane 0 was read."""
    state = getattr(view, "_state", None)
    generations: set[int] = set()

    def planes(z0: int, z1: int) -> np.ndarray[Any, Any]:
        if z0 == 0:
            generations.clear()
        values: np.ndarray[Any, Any] = view[z0:z1]
        if state is not None:
            generations.add(state.manifest.generation)
        if len(generations) > 1:
            raise InputError(f"{name}: another process is running this run; wait until it has finished")
        return values

    return InputArray(name, tuple(view.shape), planes)
