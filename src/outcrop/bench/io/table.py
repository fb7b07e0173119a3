"""The figures of `outcrop bench io` as Markdown tables, in MB/s."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from outcrop.bench.io.case import INTERFACES
from outcrop.units import format_bytes

Figures = list[dict[str, Any]]
TITLES = {
    "sizes": "nothing cached before; writes until they are on the device",
    "depths": "pages, past the page cache",
    "cached": "what the page cache holds, one thread",
    "raw": "a file and the device itself; writes until they are on it",
    "beyond": "a file that memory holds, and one that it does not",
}


def remarks(figures: dict[str, Any]) -> Iterator[str]:
    """What has to be known to read the tables."""
    yield ", ".join(f"{key} {value}" for key, value in figures["machine"].items())
    for name, reason in figures["unavailable"].items():
        yield f"{name} is not measured: {reason}"
    if not figures["direct"]:
        yield "The file system refuses O_DIRECT: all figures are through the page cache."


def table(part: str, figures: Figures) -> Iterator[str]:
    """One part, line by line."""
    yield from ("", f"{part}: {TITLES[part]}, MB/s", "", *_TABLES[part](figures))


def pattern_of(one: dict[str, Any]) -> str:
    """In words, as Case has it."""
    return f"{'random' if one['random'] else 'sequential'} {'write' if one['write'] else 'read'}"


def _of_sizes(part: Figures) -> Iterator[str]:
    return _pivot(part, "access", _access, _interface)


def _of_depths(part: Figures) -> Iterator[str]:
    return _pivot(part, "in flight", lambda one: f"{pattern_of(one)}, {one['depth']}", _interface)


def _of_raw(part: Figures) -> Iterator[str]:
    return _pivot(part, "access", _access, lambda one: f"{one['interface']}, {one['of']}")


def _of_beyond(part: Figures) -> Iterator[str]:
    return _pivot(part, "access", lambda one: f"{_access(one)}, {memory_of(one)}", _interface)


def memory_of(one: dict[str, Any]) -> str:
    """How much of it there was, of a part that limits it."""
    if one["wanted_limit_bytes"] is None:
        return "memory for all"
    if one["limit_bytes"] is None:
        return "not limited: no control group can be made here"
    return f"within {format_bytes(one['limit_bytes'])}"


def _access(one: dict[str, Any]) -> str:
    return f"{pattern_of(one)}, {format_bytes(one['request_bytes'])}"


_TABLES: dict[str, Callable[[Figures], Iterator[str]]] = {
    "sizes": _of_sizes, "depths": _of_depths, "cached": _of_sizes, "raw": _of_raw, "beyond": _of_beyond,
}  # fmt: skip


def _interface(one: dict[str, Any]) -> str:
    return str(one["interface"])


def _pivot(
    part: Figures, head: str, row_of: Callable[[dict[str, Any]], str], column_of: Callable[[dict[str, Any]], str]
) -> Iterator[str]:
    """Rows by pattern, then in the order in which they were measured."""
    cells = {(row_of(one), column_of(one)): f"{one['bytes_per_second'] / 1e6:.4g}" for one in part}
    order = [one.name for one in INTERFACES]
    columns = dict.fromkeys(column_of(one) for one in sorted(part, key=lambda one: order.index(one["interface"])))
    rows = dict.fromkeys(row_of(one) for one in sorted(part, key=lambda one: (one["random"], one["write"])))
    yield f"| {head} | {' | '.join(columns)} |"
    yield "|---|" + "--:|" * len(columns)
    for row in rows:
        yield f"| {row} | {' | '.join(cells.get((row, column), '–') for column in columns)} |"
