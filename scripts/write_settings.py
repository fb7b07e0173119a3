"""Copy the table of the settings of aggregation from the core into the C header and into the reference page.

    aggregate/core/outcrop/aggregate/placement/settings.cpp ──► outcrop_aggregate.h, docs/reference/aggregation.md

The script writes the settings between two marker lines in each file. With `--check`, the script compares the files with
the table, and writes no file. If a file differs from the table, the exit code of `--check` is 1.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from outcrop import _aggregate

ROOT = Path(__file__).parent.parent
BEGIN, END = "settings: written by scripts/write_settings.py", "end of the settings"


def header() -> Iterator[str]:
    for name, _, hint, romio, variable, unset, meaning in _aggregate.setting_rows():
        assert name
        yield f"       {hint}{f' or {romio}' if romio else ''}, {variable}"
        text = f"{meaning} Default: {unset}."
        yield from textwrap.wrap(text, 120, initial_indent=" " * 11, subsequent_indent=" " * 11)


def table() -> Iterator[str]:
    yield "| argument | MPI info hint | variable | meaning | default |"
    yield "|---|---|---|---|---|"
    for name, _, hint, romio, variable, unset, meaning in _aggregate.setting_rows():
        hints = f"`{hint}`, `{romio}`" if romio else f"`{hint}`"
        yield f"| `{name}` | {hints} | `{variable}` | {meaning} | {unset} |"


FILES: dict[str, Callable[[], Iterator[str]]] = {
    "aggregate/core/outcrop/aggregate/mpi/outcrop_aggregate.h": header,
    "docs/reference/aggregation.md": table,
}


def written(text: str, lines: Iterator[str]) -> str:
    """Replace the lines between the two marker lines in `text` by the given lines, and return the new text."""
    before, begin, rest = text.partition(BEGIN)
    first, newline, rest = rest.partition("\n")
    _, end, after = rest.partition(END)
    assert begin and end, "the marks are missing"
    indent = rest[: rest.index(END)].rpartition("\n")[2]
    return before + begin + first + newline + "\n".join(["", *lines, "", ""]) + indent + end + after


def main() -> int:
    wrong = []
    for name, lines in FILES.items():
        path = ROOT / name
        text = path.read_text()
        made = written(text, lines())
        if made != text and "--check" in sys.argv:
            wrong.append(name)
        elif made != text:
            path.write_text(made)
    if wrong:
        print(f"{', '.join(wrong)}: run scripts/write_settings.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
