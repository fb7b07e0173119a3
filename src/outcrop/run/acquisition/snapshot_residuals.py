"""The residuals of snapshots: the derivatives of a misfit with respect to the values of a box after some steps.

An adjoint run adds residuals like sources. Each cell of the box is a point with one corner:

    snapshot of step k > 0     receivers after step k:    row k - 1 has the residuals, most other rows have zeros
    snapshot of step 0         receivers before step 1:   row 0 has the residuals
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError, shown
from outcrop.language.sparse import Sampling, spread
from outcrop.run.disk.entries import AcquisitionEntries, SnapshotsEntry
from outcrop.units import format_bytes

MAX_RESIDUAL_BYTES = 256 << 20
"""The maximum number of bytes that the residuals of the snapshots of one field may need. A value is stored for each
cell of the box and each step."""

POINT_BYTES = 4 * 8
"""The bytes of a point with one corner: three numbers for the cell, and a weight."""

FieldSnapshots: TypeAlias = tuple[SnapshotsEntry, str]
"""The snapshots of one field: their entry, and the name of the field."""


def named_snapshots(entries: AcquisitionEntries) -> dict[str, FieldSnapshots]:
    """Return the snapshots of each field by name, such as "side/u". Snapshots without a name are left out, because
    "u" means the last values of the field. The history is left out, too."""
    named = [one for one in entries.snapshots if one.name and not one.is_history]
    return {one.prefix + field: (one, field) for one in named for field in one.fields}


def require_small(name: str, entry: SnapshotsEntry, steps: int) -> None:
    """Raise InputError if the residuals of the snapshots need more than MAX_RESIDUAL_BYTES."""
    cells = math.prod(entry.shape)
    needed = (1 + entry.initial) * cells * (8 * steps + POINT_BYTES)
    if needed > MAX_RESIDUAL_BYTES:
        raise InputError(
            f"residuals of the snapshots {name!r} need {format_bytes(needed)} for {cells} cells and {steps} steps, at "
            f"most {format_bytes(MAX_RESIDUAL_BYTES)} are possible; keep snapshots of a smaller box, or use receivers"
        )


def as_residuals(name: str, values: Any, shape: tuple[int, ...], axes: str) -> NDArray[Any]:
    """Return `values` as an array of real numbers. Raises InputError if this is not possible, or if the array does not
    have the shape `shape`. `axes` says in the message what the axes mean."""
    try:
        found = np.asarray(values)
        is_real = found.dtype.kind in "uif"
    except Exception:  # NumPy raises errors of many types for lists of different lengths and for classes of users
        is_real = False
    if not is_real or found.shape != shape:
        given = found.shape if is_real else shown(values)
        raise InputError(f"residuals of {name!r} must be numbers of shape {shape}: {axes}; given: {given}")
    return found


def snapshot_samples(
    snapshots: FieldSnapshots, name: str, values: Any, steps: int
) -> list[tuple[Sampling, NDArray[np.float64]]]:
    """Return the residuals `values` of snapshots, of shape (times, nz, ny, nx), as receivers with residuals of shape
    (steps, points). Raises InputError for wrong values and for boxes that are too large."""
    entry, field = snapshots
    require_small(name, entry, steps)
    shape, cells = (entry.count(steps), *entry.shape), math.prod(entry.shape)
    found = as_residuals(name, values, shape, "times, box")
    if not np.isfinite(found).all():
        number, *cell = np.argwhere(~np.isfinite(found))[0]
        raise InputError(f"residuals of {name!r}: cell {tuple(map(int, cell))} of snapshot {number} is not finite")
    axes = np.meshgrid(*(np.arange(begin, end) for begin, end in entry.box), indexing="ij")
    corners = spread(np.stack(axes, axis=-1).reshape(cells, 1, len(axes)).astype(np.int64))
    weights = np.ones((cells, 1))
    after, before = np.zeros((steps, cells)), np.zeros((steps, cells)) if entry.initial else None
    for number, row in enumerate(found.reshape(len(found), cells)):
        if step := entry.step_of(number):
            after[step - 1] = row
        elif before is not None:
            before[0] = row
    samples = [(Sampling(name, field, corners, weights), after)]
    if before is not None:
        samples.append((Sampling(name, field, corners, weights, before=True), before))
    return samples
