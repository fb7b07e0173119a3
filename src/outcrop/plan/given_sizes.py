"""The user can give some sizes of a plan. This module handles these sizes. The tuner chooses all other sizes.

    `bt`         The number of time steps of a pass. A run with fewer than `bt` steps has one pass.
    `by`         The number of rows of a block at level 1.
    `bx`, `bz`   The number of cells of a block along x and z. Only published schemes divide these axes.
    `slab`       The number of planes that are updated together.
    `diamond`    Half the height of the cache tiles, in levels.

Each scheme uses some of the sizes that the user can give (`Scheme.sizes`). If the user gives a size, the scheme lists
only candidates with this size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

from outcrop.errors import InputError
from outcrop.plan.plan import Scheme
from outcrop.plan.problem import Problem
from outcrop.units import counted

MAX_STEPS_OF_PASS = 10_000
"""The maximum number of steps in a pass. More steps would not make a run faster, but they would make the list of
actions longer."""


@dataclass(frozen=True)
class GivenSizes:
    """The sizes that the user has given. A given size is at least 1. The tuner chooses each size that is None."""

    bt: int | None = None
    bx: int | None = None
    by: int | None = None
    bz: int | None = None
    slab: int | None = None
    diamond: int | None = None

    def to_dict(self) -> dict[str, int]:
        every = ((one.name, getattr(self, one.name)) for one in fields(self))
        return {name: size for name, size in every if size is not None}

    def or_any(self, name: str, tried: Iterable[int]) -> Iterable[int]:
        """Return the possible values of the size `name`. If the user has given the size `name`, only the given value is
        possible. If the user has not given the size `name`, all values in `tried` are possible."""
        size = self.to_dict().get(name)
        return tried if size is None else (size,)

    def levels(self, problem: Problem, tried: Iterable[int]) -> Iterable[int]:
        """Return the possible numbers of levels of a pass. If passes read a history, the problem determines the number
        of levels. If the user has given `bt`, return one number: the number of levels of `bt` steps. If the run has
        fewer than `bt` steps, return the number of levels of the run. In all other cases, return `tried`."""
        if problem.histories:
            return (min(len(problem.updates), problem.levels),)
        return tried if self.bt is None else (max(1, min(self.bt, problem.steps)) * problem.stages,)

    def __bool__(self) -> bool:
        return bool(self.to_dict())

    def __str__(self) -> str:
        return ", ".join(f"{name} = {size}" for name, size in self.to_dict().items())


FREE = GivenSizes()
NAMES = tuple(one.name for one in fields(GivenSizes))


def with_sizes(schemes: Sequence[Scheme], problem: Problem, given: GivenSizes) -> list[Scheme]:
    """Return the schemes of `schemes` that use all given sizes. The candidates of the returned schemes have the given
    sizes.

    Raises InputError if no scheme uses all given sizes, or if a size is not possible on this grid.
    """
    if not given:
        return list(schemes)
    fitting = [one for one in schemes if set(given.to_dict()) <= set(one.sizes)]
    require_possible(problem, given, max((one.max_levels(problem) for one in fitting), default=problem.max_levels))
    if not fitting:
        raise _no_scheme(schemes, given)
    if given.bt is not None:
        levels = min(given.bt, problem.steps) * problem.stages
        fitting = [one for one in fitting if levels <= one.max_levels(problem)]
    return [
        replace(
            one,
            candidates=partial(one.candidates, given=given),
            smallest=partial(one.smallest, given=given),
            diamond=given.diamond or 0,
        )
        for one in fitting
    ]


def require_possible(problem: Problem, given: GivenSizes, max_levels: int) -> None:
    """Raise InputError if a given size is not possible. The message names the nearest possible size. A pass may have at
    most `max_levels` levels."""
    (nz, ny, nx), (radius_z, radius_y, radius_x) = problem.shape, problem.radii
    if problem.ndim == 2 and given.by not in (None, ny):
        remedy = "leave by out, or give bz, which divides y"
        raise InputError(f"by {given.by}: a grid of two axes has one row in each plane; {remedy}")
    for name, size in (("by", given.by), ("bz", given.bz)):
        if problem.ndim == 1 and size not in (None, 1):
            raise InputError(f"{name} {size}: a grid of one axis has one plane of one row; leave {name} out")
    _check_block("bx", given.bx, nx, radius_x, problem.vector_cells, "cells, a whole vector")
    _check_block("by", given.by, ny, radius_y, problem.row_group, "rows, which direct I/O needs")
    _check_block("bz", given.bz, nz, radius_z, 1, "", "y" if problem.ndim == 2 else "z")
    for name, size, extent, is_periodic in (
        ("by", given.by, ny, problem.periodic[1]),
        ("bx", given.bx, nx, problem.periodic[2]),
    ):
        if is_periodic and size not in (None, extent):
            raise InputError(f"{name} {size}: {name[1]} is periodic and cannot be cut into blocks; leave {name} out")
    if problem.is_part_z and given.by not in (None, ny):
        raise InputError(
            f"by {given.by}: if the grid is cut along z, the rows of a rank cannot be cut into blocks; leave by out"
        )
    if not problem.block_order and not problem.is_part_z and given.by is not None:
        raise InputError(
            f"by {given.by}: the rows of a rank cannot be cut into blocks if y is periodic and the number of ranks is "
            "odd; leave by out, or start one rank more"
        )
    if given.bt is not None and (most := max_levels // problem.stages) < min(given.bt, problem.steps):
        raise InputError(
            f"bt {given.bt}: the {'rows and planes' if problem.is_part_z else 'rows'} of a rank are enough for passes "
            f"of {most} steps; give at most {most}"
        )
    if given.bt is not None and given.bt > MAX_STEPS_OF_PASS:
        raise InputError(f"bt {given.bt}: a pass has at most {MAX_STEPS_OF_PASS} steps; give fewer")
    if given.slab is not None and given.slab > nz:
        planes = counted(nz, "row" if problem.ndim == 2 else "plane")
        raise InputError(f"slab {given.slab} is more than the {planes} of the grid; give at most {nz}")
    widest = max(1, ny // problem.skew_y)
    # On a grid with one row, tiles do not divide rows, so any `diamond` is possible.
    if given.diamond is not None and given.diamond > widest and ny > 1:
        raise InputError(f"diamond {given.diamond} is wider than the {ny} rows of the grid; give at most {widest}")


def _check_block(
    name: str, size: int | None, extent: int, radius: int, multiple: int, unit: str, axis: str = ""
) -> None:
    axis = axis or name[1]
    if size is None or size == extent:
        return
    if size > extent:
        raise InputError(f"{name} {size} is more than the grid's {extent} along {axis}; give at most {extent}")
    if size < radius:
        raise InputError(f"{name} {size} is less than the stencil's radius {radius} along {axis}; give more")
    if size % multiple:
        below, above = size // multiple * multiple, min(extent, (size // multiple + 1) * multiple)
        nearest = f"{below} or {above}" if below >= max(1, radius) else f"{above}"
        raise InputError(f"{name} {size} must be a multiple of {multiple} {unit}, or all {extent}: give {nearest}")


def _no_scheme(schemes: Sequence[Scheme], given: GivenSizes) -> InputError:
    if len(schemes) > 1:
        others = "; ".join(f"{one.name} has {', '.join(one.sizes)}" for one in schemes if one.sizes)
        return InputError(f"no scheme that auto may choose has all of {given}; {others}")
    (scheme,) = schemes
    name = next(name for name in given.to_dict() if name not in scheme.sizes)
    has = f"which has {', '.join(scheme.sizes)}" if scheme.sizes else "which has none of these sizes"
    return InputError(f"{name} is not a size of scheme {scheme.name}, {has}")
