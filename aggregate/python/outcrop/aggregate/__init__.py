"""Aggregation: many ranks write or read one file together. A few ranks, the aggregators, collect the data of all ranks,
and transfer the data in large pieces.

A program declares one plan and uses it for all steps::

    import outcrop.aggregate as agg
    plan = agg.declare(comm, [agg.subarray(shape, part, starts, "float64")])     # collective, once
    with agg.create("out.bin", plan) as file:
        file.write([u], base=step * plan.end)                                    # every step
    print(plan.explain())
"""

from outcrop.aggregate.file import File, Request, Timing, create, merge, open
from outcrop.aggregate.plan import Extent, Plan, contiguous, declare, strided, subarray

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
