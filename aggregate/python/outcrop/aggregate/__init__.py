"""Aggregation: many ranks, one file. A few ranks gather what all have, and write or read it in large pieces.

One plan serves all steps::

    import outcrop.aggregate as agg
    plan = agg.declare(comm, [agg.subarray(shape, part, starts, "float64")])     # collective, once
    with agg.create("out.bin", plan) as file:
        file.write([u], base=step * plan.end)                                    # every step
    print(plan.explain())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

# Loaded when first used: other modules of this folder need less.
_MODULES = {
    "Extent": "extents",
    "File": "file",
    "Plan": "plan",
    "Request": "file",
    "Timing": "file",
    "contiguous": "extents",
    "create": "file",
    "declare": "plan",
    "merge": "file",
    "open": "file",
    "strided": "extents",
    "subarray": "extents",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'outcrop.aggregate' has no attribute {name!r}")
    return getattr(import_module(f"outcrop.aggregate.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
