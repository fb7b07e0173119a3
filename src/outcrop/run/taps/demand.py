"""The memory that a run's taps want beside the window, for planning."""

from __future__ import annotations

import math

import numpy as np

from outcrop.plan.problem import TapDemand
from outcrop.run.taps.entries import TapEntries

CORNER_BYTES = 120
"""Of a corner of a point: its cell and weight here, its cell and its place in a table in the core."""
TRACE_BYTES = 32
"""Of a point in each step, while its corners are added up to a row of a trace and written."""


def demand_of(entries: TapEntries, dtype: str) -> TapDemand:
    """What these taps want on arrays of `dtype`."""
    item_bytes = np.dtype(dtype).itemsize
    sources = sum(one.points * one.corners for one in entries.sources)
    samplings = sum(one.points * one.corners for one in entries.samplings)
    return TapDemand(
        snapshot_bytes=sum(math.prod(one.shape) * len(one.fields) for one in entries.snapshots) * item_bytes,
        point_bytes=(sources + samplings) * CORNER_BYTES,
        step_bytes=sources * item_bytes + samplings * 8 + sum(one.points for one in entries.samplings) * TRACE_BYTES,
    )
