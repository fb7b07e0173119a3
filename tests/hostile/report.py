"""Counts of what came of the cases, and the cases that show something wrong."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from .judge import BAD
from .process import Ended  # noqa: F401  (what results are made of)
from .session import Result

SHOWN_MOST = 400


def print_report(results: Iterator[Result], findings: Path | None) -> int:
    """Print each fault as it is found, then the table; 1 when there is any."""
    counts: dict[str, Counter[str]] = {}
    found: list[Result] = []
    begin = time.monotonic()
    for result in results:
        count = counts.setdefault(result.generator, Counter())
        count["tried"] += 1
        count.update(result.faults.keys())
        if result.faults:
            found.append(result)
            if len(found) <= SHOWN_MOST:
                print_faults(result)
        elif result.code == 0:
            count["fine"] += 1
        else:
            count["one line"] += 1
    if findings is not None:
        findings.write_text("".join(json.dumps(asdict(result)) + "\n" for result in found))
    print("\n".join(table(counts)))
    print(f"{sum(count['tried'] for count in counts.values())} cases in {time.monotonic() - begin:.0f} s")
    return 1 if found else 0


def print_faults(result: Result) -> None:
    """What was wrong, with the command that repeats it alone."""
    for fault, detail in result.faults.items():
        print(f"{fault}: {ascii_only(detail)}")
    print(f"    {ascii_only(result.text)}\n    python -m tests.hostile --case {result.name}", flush=True)


def ascii_only(text: str) -> str:
    """What any terminal shows and any encoding takes."""
    return "".join(letter if letter.isascii() and letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def table(counts: dict[str, Counter[str]]) -> Iterator[str]:
    """A row for each generator and one for all."""
    heads = ("tried", "fine", "one line", *BAD)
    rows = [("generator", *heads)]
    for name in sorted(counts):
        rows.append((name, *(str(counts[name][head]) for head in heads)))
    rows.append(("all", *(str(sum(count[head] for count in counts.values())) for head in heads)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths, strict=True)))


def print_case(result: Result) -> int:
    """All about one case."""
    print(f"{ascii_only(result.text)}\nended with {result.code} after {result.seconds:.2f} s")
    for name, text in (("standard output", result.out), ("standard error", result.err)):
        if text:
            print(f"--- {name}\n{text.rstrip()}")
    sys.stdout.flush()
    if result.faults:
        print("---")
        print_faults(result)
    return 1 if result.faults else 0
