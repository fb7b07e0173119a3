"""Lists of hosts as batch systems write them: "n[001-003,7],login"."""

from __future__ import annotations

import re
from collections.abc import Iterator


def expand_hosts(text: str) -> list[str]:
    """All hosts of a list, in its order; numbers keep their leading zeros."""
    return [host for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text) for host in _expand(part)]


def _expand(part: str) -> Iterator[str]:
    match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
    if not match:
        yield part
        return
    head, ranges, tail = match.groups()
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        for number in range(int(first), int(last or first) + 1):
            for rest in _expand(tail):
                yield f"{head}{number:0{len(first)}d}{rest}"
