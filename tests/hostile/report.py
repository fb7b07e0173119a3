"""Count the results of the cases, and show the cases with faults."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from .judge import BAD
from .session import Result

SHOWN_MOST = 400


def print_report(results: Iterator[Result], findings: Path | None) -> int:
    """Print each fault as soon as it is found, then the table. Return 1 if a fault was found, otherwise 0."""
    counts: dict[str, Counter[str]] = {}
    found: list[Result] = []
    begin = time.monotonic()
    for number, result in enumerate(results, 1):
        if number % 500 == 0:
            print(f"{number} cases after {time.monotonic() - begin:.0f} s", flush=True)
        count = counts.setdefault(result.generator, Counter())
        count["tried"] += 1
        count.update(result.faults.keys())
        if result.faults:
            found.append(result)
            if findings is not None:
                with findings.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
            if len(found) <= SHOWN_MOST:
                print_faults(result)
        elif result.code == 0:
            count["fine"] += 1
        else:
            count["one line"] += 1
    print("\n".join([*groups(found), *table(counts)]))
    print(f"{sum(count['tried'] for count in counts.values())} cases in {time.monotonic() - begin:.0f} s")
    return 1 if found else 0


def groups(found: list[Result]) -> Iterator[str]:
    """Yield lines that list the faults by cause (`cause_of`), with some commands for each cause."""
    alike: dict[tuple[str, str], list[Result]] = {}
    for result in found:
        for fault, detail in result.faults.items():
            alike.setdefault((fault, cause_of(fault, detail, result)), []).append(result)
    if alike:
        yield f"\n{len(alike)} causes"
    for (fault, cause), results in sorted(alike.items(), key=lambda item: (BAD.index(item[0][0]), -len(item[1]))):
        yield f"{len(results):4} x {fault}: {cause}"
        for result in results[:3]:
            yield f"         {result.name}   {ascii_only(result.text)[:220]}"
    yield ""


def cause_of(fault: str, detail: str, result: Result) -> str:
    """Return a text that describes the cause of a fault: the place in the code, or the message. In the message, N
    replaces numbers, because numbers differ from case to case."""
    if fault == "traceback":
        places = re.findall(r'File "[^"]*/outcrop/([^"]+)", line (\d+), in (\w+)', result.err)
        place = "{}:{} {}".format(*places[-1]) if places else "?"
        return f"{detail.partition(':')[0][:60]} at {place}"
    if fault in ("changed outside", "changed by reading", "several lines", "not as a process"):
        detail = re.sub(r"[0-9a-f]{6,}|\d+", "N", detail)[:70]
        return f"{detail} ({command_of(result)})"
    return f"{re.sub(chr(92) + 'd+', 'N', detail)[:50]} ({command_of(result)})"


def command_of(result: Result) -> str:
    """Return the first word of the command, or the name of the call."""
    last = result.text.removeprefix("python: ").split("; ")
    words = [part for part in reversed(last) if part and not part.startswith("stdout")]
    return f"{result.generator}: {ascii_only(words[0]).split('(')[0][:24]}" if words else result.generator


def print_faults(result: Result) -> None:
    """Print the faults of a case, with the command that repeats this case alone."""
    for fault, detail in result.faults.items():
        print(f"{fault}: {ascii_only(detail)}")
    print(f"    {ascii_only(result.text)}\n    python -m tests.hostile --case {result.name}", flush=True)


def ascii_only(text: str) -> str:
    """Return the text with only printable ASCII letters. Other letters are escaped."""
    return "".join(letter if letter.isascii() and letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def table(counts: dict[str, Counter[str]]) -> Iterator[str]:
    """Yield the lines of a table with a row for each generator and a row for the sum."""
    heads = ("tried", "fine", "one line", *BAD)
    rows = [("generator", *heads)]
    for name in sorted(counts):
        rows.append((name, *(str(counts[name][head]) for head in heads)))
    rows.append(("all", *(str(sum(count[head] for count in counts.values())) for head in heads)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(zip(row,
        widths, strict=True)))


def print_case(result: Result) -> int:
    """Print all details of one case. Return 1 if the case has faults, otherwise 0."""
    print(f"{ascii_only(result.text)}\nended with {result.code} after {result.seconds:.2f} s")
    for name, text in (("standard output", result.out), ("standard error", result.err)):
        if text:
            print(f"--- {name}\n{text.rstrip()}")
    sys.stdout.flush()
    if result.faults:
        print("---")
        print_faults(result)
    return 1 if result.faults else 0
