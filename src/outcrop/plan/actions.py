"""The instructions of a plan.

Each is small, frozen and means the same to the validator, the oracle, the cost model and the executor. Planes
are half open ranges. Two rings hold the window: the even ring levels 0, 2, ..., the odd ring levels 1, 3, ...;
plane z lies in slot z modulo the ring's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Read:
    """Read level 0 of planes z0 <= z < z1 from the source into the even ring."""

    z0: int
    z1: int


@dataclass(frozen=True)
class Copy:
    """Copy the rim of level 0 of planes z0 <= z < z1 into the odd ring; whole planes where they belong to the
    rim in z."""

    z0: int
    z1: int


@dataclass(frozen=True)
class Update:
    """Update levels 1 .. levels of the slab zeta0 <= zeta < zeta1, where zeta = z + skew * (level - 1)."""

    zeta0: int
    zeta1: int
    levels: int


@dataclass(frozen=True)
class Write:
    """Write planes z0 <= z < z1, which have reached `level`, to the target."""

    z0: int
    z1: int
    level: int


@dataclass(frozen=True)
class Commit:
    """Wait until everything is written and flush it: the target now holds the next generation."""


Action: TypeAlias = Read | Copy | Update | Write | Commit
