"""Show objects as short text, and as HTML in notebooks.

The texts can come from a run that an unknown person has made. Therefore the HTML of a text is escaped, and its size is
bounded. The functions of this module read no files, so they also work for a run that was removed.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

MAX_ROWS = 40
"""The maximum number of rows that are shown. If rows were left out, the last row says how many."""
MAX_CELL = 300
"""The maximum number of characters that are shown of one text."""

Rows: TypeAlias = Iterable[Sequence[str]]
"""The rows of a table. Each row has a text for each column."""


class Shown(ABC):
    """The base of classes whose objects have a text (`__str__`) and HTML (`_repr_html_`). `print` shows the text,
    IPython shows the text in a terminal, and notebooks show the HTML."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # IPython prefers the `__repr__` of a subclass to a method of a base
        cls._repr_pretty_ = Shown._repr_pretty_  # type: ignore[method-assign]

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def _repr_html_(self) -> str: ...

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


class Described(Shown):
    """The base of classes whose text and HTML consist of a title and a table below the title."""

    @abstractmethod
    def _title(self) -> str: ...

    @abstractmethod
    def _rows(self) -> Rows: ...

    def __str__(self) -> str:
        return as_text(self._title(), self._rows())

    def _repr_html_(self) -> str:
        return as_html(self._title(), self._rows())


def as_text(title: str, rows: Rows) -> str:
    """Return a title and a table as plain text. The columns of the table are aligned."""
    kept = _bounded(rows)
    columns = max((len(row) for row in kept), default=0)
    widths = [max(len(row[at]) for row in kept if at < len(row)) for at in range(columns)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in kept]
    return "\n".join([_cut(title), *(f"  {line}" for line in lines)])


def as_html(title: str, rows: Rows, head: Sequence[str] = (), below: str = "") -> str:
    """Return a title and a table as HTML. `head` are the names of the columns. `below` is text below the table."""
    lines = [f"<b>{escaped(title)}</b>", "<table>"]
    if head:
        lines.append(f"<tr>{''.join(f'<th>{escaped(one)}</th>' for one in head)}</tr>")
    for row in _bounded(rows):
        first, *others = (escaped(cell) for cell in row)
        cells = f"<th style='text-align:left'>{first}</th>" + "".join(
            f"<td style='text-align:left'>{cell}</td>" for cell in others
        )
        lines.append(f"<tr>{cells}</tr>")
    lines.append("</table>")
    if below:
        lines.append(f"<p>{escaped(below, 10 * MAX_CELL)}</p>")
    return "<div>" + "\n".join(lines) + "</div>"


def escaped(text: object, max_length: int = MAX_CELL) -> str:
    """Remove control characters from a text, shorten it to `max_length` characters, and escape it for HTML."""
    return html.escape(_cut(str(text), max_length))


def joined(names: Sequence[object], max_names: int = 12) -> str:
    """Return names with commas between them. If there are more than `max_names` names, the text has the first
    `max_names` names and the number of the other names."""
    shown = ", ".join(str(one) for one in names[:max_names])
    return shown if len(names) <= max_names else f"{shown} and {len(names) - max_names} more"


def _bounded(rows: Rows) -> list[list[str]]:
    every = [[_cut(cell) for cell in row] for row in rows]
    left = len(every) - MAX_ROWS
    return every if left <= 0 else [*every[:MAX_ROWS], [f"... and {left} more"]]


def _cut(text: str, max_length: int = MAX_CELL) -> str:
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: 2 * max_length])
    return plain if len(plain) <= max_length and len(text) <= max_length else f"{plain[: max_length - 4]} ..."
