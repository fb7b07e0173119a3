"""A plan: sizes, passes of actions, and what they are predicted to cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from outcrop.plan.actions import Action
from outcrop.plan.problem import Problem


@dataclass(frozen=True)
class Sizes:
    """The numbers a scheme is free to choose.

    `levels` steps per pass (L, `bt`), `slab` planes of zeta updated together (b), `diamond` half height D of
    the cache tiles in levels (0: plain sweeps), `sweep_rows` rows per block of a plain sweep, `planes_per_call`
    planes a kernel call updates.
    """

    levels: int
    slab: int
    diamond: int
    sweep_rows: int = 16
    planes_per_call: int = 2


@dataclass(frozen=True)
class Pass:
    """One trip over the grid that advances `levels` steps; `ring_planes` slots of the even and odd ring."""

    levels: int
    slab: int
    ring_planes: tuple[int, int]
    actions: tuple[Action, ...] = field(repr=False)


@dataclass(frozen=True)
class Prediction:
    """What a plan should cost. Seconds are wall-clock seconds, by phase as they would be without overlap."""

    seconds: float
    bytes_read: int
    bytes_written: int
    memory_bytes: int
    seconds_update: float
    seconds_read: float
    seconds_write: float
    seconds_commit: float


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first byte moves."""

    problem: Problem
    scheme: str
    sizes: Sizes
    passes: tuple[Pass, ...]
    ring_planes: tuple[int, int]
    memory_bytes: int
    predicted: Prediction

    def to_json(self) -> dict[str, Any]:
        """The plan without its actions, as plain data for the report."""
        return {
            "scheme": self.scheme,
            **asdict(self.sizes),
            "passes": len(self.passes),
            "slabs_per_pass": sum(type(action).__name__ == "Update" for action in self.passes[0].actions),
            "ring_planes": list(self.ring_planes),
            "memory_bytes": self.memory_bytes,
        }
