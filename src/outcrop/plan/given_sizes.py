"""Sizes that the user has given; the tuner chooses the others.

    bt              time steps of a pass; a run of fewer steps does them in one pass
    bx, by, bz      cells of a block along each axis, as at level 1
    slab            planes that are updated together
    diamond         half the height of the cache tiles, in levels

A scheme has some of them (`Scheme.sizes`) and lists candidates that keep to those given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from outcrop.errors import InputError
from outcrop.plan.problem import Problem

STEPS_OF_PASS_MOST = 10_000
"""More steps in a pass save nothing that could be measured, while the list of its actions grows with them."""


@dataclass(frozen=True)
class GivenSizes:
    """Each is at least 1, or None where the tuner is free."""

    bt: int | None = None
    bx: int | None = None
    by: int | None = None
    bz: int | None = None
    slab: int | None = None
    diamond: int | None = None

    def to_dict(self) -> dict[str, int]:
        """Those that are given, by name."""
        every = ((one.name, getattr(self, one.name)) for one in fields(self))
        return {name: size for name, size in every if size is not None}

    def or_any(self, name: str, tried: Iterable[int]) -> Iterable[int]:
        """The one size given, or all that are worth trying."""
        size = self.to_dict().get(name)
        return tried if size is None else (size,)

    def levels(self, problem: Problem, tried: Iterable[int]) -> Iterable[int]:
        """The same for steps of a pass, which are never more than those of the run."""
        return tried if self.bt is None else (max(1, min(self.bt, problem.steps)) * problem.stages,)

    def __bool__(self) -> bool:
        return bool(self.to_dict())

    def __str__(self) -> str:
        return ", ".join(f"{name} = {size}" for name, size in self.to_dict().items())


FREE = GivenSizes()
NAMES = tuple(one.name for one in fields(GivenSizes))


def require_possible(problem: Problem, given: GivenSizes) -> None:
    """Raise InputError for a size that cannot be, with the nearest that can."""
    (nz, ny, nx), (radius_z, radius_y, radius_x) = problem.shape, problem.radii
    _check_block("bx", given.bx, nx, radius_x, problem.vector_cells, "cells, a whole vector")
    _check_block("by", given.by, ny, radius_y, problem.row_group, "rows, which direct I/O needs")
    _check_block("bz", given.bz, nz, radius_z, 1, "")
    for name, size, extent, is_periodic in (
        ("by", given.by, ny, problem.periodic[1]),
        ("bx", given.bx, nx, problem.periodic[2]),
    ):
        if is_periodic and size not in (None, extent):
            raise InputError(f"{name} {size}: {name[1]} is periodic and cannot be cut into blocks; leave {name} out")
    if given.bt is not None and given.bt > STEPS_OF_PASS_MOST:
        raise InputError(f"bt {given.bt}: a pass has at most {STEPS_OF_PASS_MOST} steps; give fewer")
    if given.slab is not None and given.slab > nz:
        raise InputError(f"slab {given.slab} is more than the {nz} planes of the grid; give at most {nz}")
    widest = max(1, ny // problem.skew_y)
    if given.diamond is not None and given.diamond > widest and ny > 1:  # of a single row tiles are as high as you like
        raise InputError(f"diamond {given.diamond} is wider than the {ny} rows of the grid; give at most {widest}")


def _check_block(name: str, size: int | None, extent: int, radius: int, multiple: int, unit: str) -> None:
    if size is None or size == extent:
        return
    if size > extent:
        raise InputError(f"{name} {size} is more than the grid's {extent} along {name[1]}; give at most {extent}")
    if size < radius:
        raise InputError(f"{name} {size} is less than the stencil's radius {radius} along {name[1]}; give more")
    if size % multiple:
        below, above = size // multiple * multiple, min(extent, (size // multiple + 1) * multiple)
        nearest = f"{below} or {above}" if below >= max(1, radius) else f"{above}"
        raise InputError(f"{name} {size} must be a multiple of {multiple} {unit}, or all {extent}: give {nearest}")
