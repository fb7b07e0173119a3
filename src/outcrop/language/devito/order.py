"""Whether sources and receivers stand where a step can have them.

Devito's order is that of its list, in every step. Ours is fixed: sources act right after the last update of their
field, receivers see the end of the step; receivers of u(t) come before all of it. So what the list may not hold is
another equation between an update and its source, or a receiver of u.forward ahead of a source, where that makes a
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outcrop.errors import InputError
from outcrop.language.devito.equation import Update


@dataclass(frozen=True)
class Placed:
    """A source in `field` at t + dt, or a receiver of it, and its position in the user's list."""

    position: int
    where: str
    field: str
    is_source: bool


def check_order(operations: Sequence[Placed], updates: Sequence[Update]) -> None:
    """InputError when sources, receivers and equations stand in an order that a step cannot keep."""
    for one in operations:
        name = one.field
        written = [update.position for update in updates if update.field == name]
        if not written or min(written) > one.position:
            raise InputError(
                f"{one.where}: {name}.forward has no value yet; put it behind the equation that gives it one"
            )
        if max(written) > one.position:
            raise InputError(f"{one.where}: a later equation overwrites {name}.forward; put it behind all equations")
        if not one.is_source:
            continue
        if any(update.position < one.position and _reads_new(update, name) for update in updates):
            raise InputError(
                f"{one.where}: an equation before it reads {name}.forward; "
                f"put it right behind the one that updates {name}"
            )
        for other in operations:
            if other.field == name and not other.is_source and other.position < one.position:
                raise InputError(
                    f"{other.where}: a later source is added to {name}.forward; put receivers behind sources"
                )


def _reads_new(update: Update, field: str) -> bool:
    return any(read.field == field and read.shift == 1 for read in update.reads.values())
