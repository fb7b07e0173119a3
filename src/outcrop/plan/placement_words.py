"""Placements in words: one table and the same reasons, whatever is placed, arrays of users or the fields of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outcrop.units import format_bytes, format_seconds

FASTEST, FASTEST_WITH_ROOM = "the fastest", "the fastest with room"
SLOWEST, SLOWEST_FOR_NOTHING, HIDDEN = "the slowest", "the slowest that costs nothing", "hidden behind the computing"

LEAST_SECONDS = 0.001
"""Shorter times are not shown."""


@dataclass(frozen=True)
class Placed:
    """One thing: its bytes, where it is, what it takes of which place, seconds of its transfers, and why."""

    name: str
    nbytes: int
    place: str
    takes: tuple[tuple[str, int], ...]
    transfer_seconds: float
    why: str


def table(what: str, every: Sequence[Placed]) -> list[str]:
    """Lines with columns as wide as needed; `what` all of them are."""
    rows = [(what, "bytes", "tier", "takes", "transfers", "why")]
    for one in every:
        takes = ", ".join(f"{format_bytes(count)} of {place}" for place, count in one.takes if count) or "nothing"
        seconds = format_seconds(one.transfer_seconds)
        rows.append((one.name, format_bytes(one.nbytes), one.place, takes, seconds, one.why))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def has_no_room(place: str) -> str:
    """What speaks against a place."""
    return f"{place} has no room"


def takes_longer(place: str, what: str, seconds: float) -> str:
    """The same, by how much it makes `what` ("a step") longer."""
    longer = format_seconds(seconds) if seconds >= LEAST_SECONDS else f"less than {format_seconds(LEAST_SECONDS)}"
    return f"{place} makes {what} {longer} longer"


def because(kind: str, objections: Iterable[str]) -> str:
    """What a place is, and what speaks against the others."""
    every = ", ".join(objections)
    return f"{kind}: {every}" if every else kind
