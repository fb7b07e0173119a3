"""`outcrop tiers`: the memory and storage of this machine, with capacities and measured speeds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from outcrop.cli import options
from outcrop.paths import require_directory
from outcrop.run.progress import can_draw
from outcrop.tiers.tier import LASTS
from outcrop.units import counted, format_bytes

if TYPE_CHECKING:
    from outcrop.tiers.survey import Measuring
    from outcrop.tiers.tier import Tier

HEADS = ("tier", "kind", "where", "capacity", "free", "read", "write", "random read", "random write", "latency",
         "lasts until")  # fmt: skip

AGES = ((86400, "day"), (3600, "hour"), (60, "minute"))
"""The units of the age of figures, with their lengths in seconds."""

Declared = Annotated[
    Path | None,
    Option("--tiers", metavar="FILE",
                 help="a TOML file that declares tiers [default: $OUTCROP_TIERS, or ~/.config/outcrop/tiers.toml]"),
]  # fmt: skip
Refresh = Annotated[bool, Option("--refresh", help="measure all tiers again, even if they were measured before")]


def tiers(
    directory: Annotated[
        list[Path] | None,
        Option(
            "-d", "--directory", metavar="DIR", help="measure the file system of DIR; repeat the option for several"
        ),
    ] = None,
    refresh: Refresh = False,
    declared: Declared = None,
    json: options.Json = None,
) -> None:
    """Show the memory and storage of this machine: capacity, speed, and how long stored data lasts.

    Tiers that have not been measured before are measured. The measurement of memory takes about two seconds, and of a
    file system at most 13 seconds. The command shows the time that is left. The measurement makes scratch files of at
    most 1 GiB and removes them. No other files are written.
    """
    from outcrop.tiers.survey import find_tiers

    options.check_output(json, "--json")
    for folder in directory or ():
        require_directory(folder)
    with shown_progress() as progress:
        found = find_tiers(directory or (), declared, measure=True, refresh=refresh, progress=progress)
    print("\n".join(table(found)))
    options.write_json(json, "--json", {"tiers": [tier.to_json() for tier in found]})


@contextmanager
def shown_progress() -> Iterator[Callable[[Measuring], None]]:
    """Yield a function that shows the progress of measurements on standard error. In a terminal, the progress is one
    line, which is drawn again and again, and removed at the end. Without a terminal, each tier gets a line."""
    is_terminal = can_draw()

    def write(text: str) -> None:
        with suppress(OSError, ValueError):  # the user may have closed the terminal
            print(text, end="", file=sys.stderr, flush=True)

    def show(measuring: Measuring) -> None:
        if is_terminal:
            write(f"\r\x1b[K{measuring} ...")
        elif not measuring.part:
            write(f"{measuring} ...\n")

    try:
        yield show
    finally:
        if is_terminal:
            write("\r\x1b[K")


def table(found: list[Tier]) -> Iterator[str]:
    """Yield the lines of a table with a row for each tier. Then yield a line with remarks for each tier."""
    rows = [HEADS, *(_row(tier) for tier in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    for row in rows:
        cells = [cell.ljust(width) if column < 3 else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths, strict=True))]  # fmt: skip
        yield "  ".join(cells).rstrip()
    yield ""
    for tier in found:
        yield f"{tier.name}: {'; '.join(_remarks(tier))}"


def _row(tier: Tier) -> tuple[str, ...]:
    sizes = format_bytes(tier.capacity_bytes), format_bytes(tier.free_bytes)
    rates = _rate(tier.read_bytes_per_second), _rate(tier.write_bytes_per_second)
    random = _rate(tier.random_read_bytes_per_second), _rate(tier.random_write_bytes_per_second)
    latency, lasts = _time(tier.latency_seconds_read), LASTS[tier.persistence]
    return (tier.name, tier.kind, tier.where, *sizes, *rates, *random, latency, lasts)


def _remarks(tier: Tier) -> Iterator[str]:
    if tier.source:
        yield tier.source
    if tier.primitive != "none":
        after = f", in {_time(tier.latency_seconds_flush)}" if tier.latency_seconds_flush is not None else ""
        yield f"made to last by {tier.primitive}{after}"
    if tier.triad_bytes_per_second:
        yield f"triad {_rate(tier.triad_bytes_per_second)}"
    yield f"figures {tier.origin}{_age(tier)}" if tier.origin != "not measured" else "no figures"
    if tier.note:
        yield tier.note


def _age(tier: Tier) -> str:
    """Return a text that says when the figures of a tier were measured. Return "" if the figures are not from the
    cache."""
    if tier.origin != "cached":
        return ""
    if tier.measured_at_seconds is None:
        return ", measured at an unknown time"
    seconds = max(0.0, time.time() - tier.measured_at_seconds)
    size, unit = next((one for one in AGES if seconds >= one[0]), (1, "second"))
    return f", measured {counted(int(seconds // size), unit)} ago"


def _rate(bytes_per_second: float | None) -> str:
    """Return a rate as text. The units of rates are decimal, as in data sheets of devices."""
    if bytes_per_second is None:
        return "-"
    return f"{bytes_per_second / 1e9:.3g} GB/s" if bytes_per_second >= 1e9 else f"{bytes_per_second / 1e6:.3g} MB/s"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
