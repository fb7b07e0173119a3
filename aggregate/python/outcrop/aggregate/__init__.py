"""Aggregation: many ranks write to or read from one shared file. A few ranks collect the data of all ranks, and
transfer these data in large pieces.

A program declares one plan and uses it for all steps::

    import outcrop.aggregate as agg
    plan = agg.declare(comm, [agg.subarray(shape, part, starts, "float64")])     # collective, once
    with agg.create("out.bin", plan) as file:
        file.write([u], base=step * plan.end)                                    # every step
    print(plan.explain())
"""

from outcrop.aggregate.extents import Extent, contiguous, strided, subarray
from outcrop.aggregate.file import File, Request, Timing, create, merge, open
from outcrop.aggregate.plan import Plan, declare

__all__ = [
    "Extent",
    "File",
    "Plan",
    "Request",
    "Timing",
    "contiguous",
    "create",
    "declare",
    "merge",
    "open",
    "strided",
    "subarray",
]
