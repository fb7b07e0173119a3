"""Make one run from the parts of several ranks (`outcrop gather`).

    rank-0  | rows 0 .. 31  |
    rank-1  | rows 32 .. 63 |  ──►  whole.oc  | rows 0 .. 63 |       a few planes at a time
    rank-2  | ...           |

The result is a run of one process at the same step. The new run can be continued, shown and verified like any other
run. The new run has the traces, norms and snapshots of all parts. The parts do not change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.run.acquisition.definitions import NOTHING_DEFINED, read_definitions
from outcrop.run.acquisition.parts import MovedRecords, cuts_of, kept_bytes
from outcrop.run.disk.acquisition_files import check_records, first_sums
from outcrop.run.disk.creation import check_creation, created_in
from outcrop.run.disk.manifest import moved_members, new_manifest
from outcrop.run.disk.planes import Planes, PlaneSource
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder
from outcrop.run.ranks.whole import AllParts, find_parts, whole_description


def gather(places: Sequence[Path], target: Path, force: bool = False) -> State:
    """Create a run of one process in `target` from the parts in `places` (`find_parts`), and return its state.

    Raises InputError if the parts do not form one state of a run, if values are missing, or if `target` cannot be used.
    Raises CorruptionError for damaged planes. If the function raises an error, `target` is unchanged or empty."""
    with contextlib.ExitStack() as stack:
        parts = [State(RunFolder(place), RunFolder(place).read()) for place in find_parts(places)]
        for part in parts:
            stack.enter_context(part.locked(shared=True))
            part.check()
        AllParts(parts)  # after an interruption, all parts go back to one step
        _require_same(parts)
        description = whole_description(parts[0].manifest, target)
        step = parts[0].manifest.step
        check_creation([target], description, force, acquired_bytes=kept_bytes(description, step))
        definitions = NOTHING_DEFINED
        if description.taps:
            for part in parts:
                check_records(part.records, part.manifest)
            definitions = read_definitions(parts[0].records, parts[0].manifest)
        files = definitions.files
        manifest = new_manifest(description, parts[0].manifest.target_step)
        manifest = replace(manifest, sums=first_sums(manifest, files))
        state = stack.enter_context(created_in([target], manifest, force, files))
        state.begin_writing()
        filled = [part.manifest.filled for part in parts]
        names = [entry.name for entry in description.arrays if all(entry.name in one for one in filled)]
        for name in names:
            with contextlib.ExitStack() as opened:
                source = _cells_of_all(parts, [opened.enter_context(part.planes_of(name)) for part in parts])
                planes = opened.enter_context(state.target_planes(name, 1 - state.manifest.current))
                planes.fill(source)
                planes.flush()
        first = parts[0].manifest
        moved = MovedRecords(first, definitions.samplings, cuts_of(description), 0)
        sums = moved.write(state, {rank: moved.blocks(part) for rank, part in enumerate(parts)})
        state.commit(first.step, names, sums=sums)  # one rename makes the new run valid, at the step of the parts
        state.change(**moved_members(first))
        return state


def _require_same(parts: Sequence[State]) -> None:
    """Raise InputError when the parts do not form one state of a run, or when an array has no values. Computed fields
    may have no values, because the first pass of the new run computes them."""
    first = parts[0].manifest
    for part in parts:
        manifest = part.manifest
        needed = [*manifest.state, *manifest.given]
        if missing := [entry.name for entry in needed if entry.name not in manifest.filled]:
            raise InputError(f"{part.path} has no values of {missing[0]}; run it first")
        same = [
            (one.stencil, one.parameters, one.boundary, one.dtype, one.whole_shape, one.taps)
            for one in (first, manifest)
        ]
        if same[0] != same[1] or cuts_of(manifest) != cuts_of(first):
            raise InputError(f"{part.path} has other arrays or parameters than {parts[0].path}")


def _cells_of_all(parts: Sequence[State], arrays: Sequence[Planes]) -> PlaneSource:
    """Return a function that returns planes of the whole grid. The function joins the rows of each plane from the
    arrays of the parts."""
    manifests = [part.manifest for part in parts]
    _, ny, nx = manifests[0].whole_shape

    def read(z0: int, z1: int) -> NDArray[np.floating]:
        block = np.empty((z1 - z0, ny, nx), manifests[0].dtype)
        for one, planes in zip(manifests, arrays, strict=True):
            first, (low, high) = one.planes[0], (max(z0, one.planes[0]), min(z1, one.planes[1]))
            if low < high:
                block[low - z0 : high - z0, slice(*one.rows)] = planes.read(low - first, high - first)
        return block

    return read
