"""Make snapshots from TimeFunctions in which Devito keeps the values of several times.

A TimeFunction with `save=nt` keeps the values of each step. A TimeFunction along a ConditionalDimension with a factor
keeps the values of each `factor`-th step:

    sub = ConditionalDimension("sub", parent=grid.time_dim, factor=10)
    kept = TimeFunction(name="kept", grid=grid, save=20, time_dim=sub)
    Eq(kept, u)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from devito.types import Indexed

from outcrop.errors import InputError
from outcrop.language.devito.equation import Cell, FieldUpdate, LoweredEquation, access_of, is_updatable
from outcrop.language.devito.expression import shown
from outcrop.language.devito.lowered import SavedSteps


@dataclass(frozen=True)
class Kept:
    """An equation that copies the values of `field` to the TimeFunction `name`, once in `every` steps. If `shift` is 1,
    the equation keeps the value at the end of the step. Otherwise, the equation keeps the value at the beginning of the
    step. `position` is the place of the equation in the user's list."""

    position: int
    where: str
    name: str
    field: str
    every: int
    shift: int


def is_kept(lines: LoweredEquation) -> bool:
    """Return True if an equation writes a TimeFunction along a ConditionalDimension."""
    return any(
        isinstance(one.lhs, Indexed) and one.lhs.function.dimensions and one.lhs.function.dimensions[0].is_Conditional
        for one in lines.equations
    )


def kept_of(lines: LoweredEquation, grid: Any, direction: int) -> list[Kept]:
    """Return descriptions (`Kept`) of the values that an equation keeps. Raises InputError if the equation does not
    keep a field at regular steps."""
    found = []
    for one in lines.equations:
        function, where = one.lhs.function, lines.where
        dimension = function.dimensions[0]
        if dimension.condition is not None or dimension.parent is not grid.time_dim:
            raise InputError(f"{where}: {dimension.name} has a condition; only a factor of the grid's time is possible")
        if not isinstance(one.rhs, Indexed) or not is_updatable(one.rhs.function):
            raise InputError(f"{where}: {function.name} can keep only u or u.forward, not {shown(one.rhs)}")
        access = access_of(where, one.rhs, Cell(grid, direction, grid.dimensions))
        if access.near or access.shift not in (0, 1) or one.is_Reduction:
            raise InputError(f"{where}: {function.name} can keep only u or u.forward, not {shown(one.rhs)}")
        halo = [int(left) for left in function._size_nodomain.left]
        own = tuple(index - left for index, left in zip(one.lhs.indices, halo, strict=True))
        if own != (dimension, *grid.dimensions):
            name = function.name
            raise InputError(f"{where}: {name} can only keep all cells, at its own time: give Eq({name}, u)")
        factor = int(getattr(dimension.factor, "data", dimension.factor) or 0)
        if factor < 1:
            raise InputError(
                f"{where}: {dimension.name} has no factor of at least 1; give it one: "
                "ConditionalDimension(..., factor=10)"
            )
        found.append(Kept(lines.position, where, str(function.name), access.field, factor, access.shift))
    return found


def saved_steps(
    kept: Sequence[Kept], updates: Sequence[FieldUpdate], first_time: int, direction: int
) -> tuple[SavedSteps, ...]:
    """Return the snapshots that the equations ask for. Raises InputError if an equation keeps a value that no equation
    computes."""
    written = dict.fromkeys(update.field for update in updates)
    functions = {update.field: update.function for update in updates}
    found: list[SavedSteps] = []
    for one in kept:
        if one.field not in written:
            raise InputError(f"{one.where}: {one.name} keeps {one.field}, but no equation computes it")
        if any(other.name == one.name for other in found):
            raise InputError(f"{one.where}: two equations write {one.name}")
        # Devito executes an equation that keeps values at the times t with t % factor == 0.
        offset = (one.shift - direction * first_time) % one.every
        found.append(SavedSteps(one.name, (one.field,), one.every, offset, offset == 0 and one.shift == 0))
    saved = tuple(name for name in written if type(getattr(functions[name], "save", None)) is int)
    if saved:
        found.append(SavedSteps("", saved, 1, 0, True))
    return tuple(found)
