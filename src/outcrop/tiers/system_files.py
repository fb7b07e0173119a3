"""Files of /proc and /sys: short, sometimes missing, and in containers and virtual machines sometimes nonsense.

Every reader takes a missing or odd file as "not told".
"""

from __future__ import annotations

import os
from pathlib import Path

PROC, SYS = Path("/proc"), Path("/sys")
BYTES_MOST = 1 << 62
"""No machine has more; what is larger is a file that means "no limit", or nonsense."""


def read(path: Path) -> str:
    """The text of a file, in names of files as the system has them; nothing where it cannot be read."""
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except OSError:
        return ""


def number(text: str) -> int | None:
    """A whole number from 0 on that a machine can have; None for anything else."""
    is_plain = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if is_plain and int(text) <= BYTES_MOST else None


def numbered(text: str) -> dict[str, int]:
    """Lines like "MemTotal:  24684092 kB" or "inactive_file 4096", as bytes by name; other lines are left out."""
    found = {}
    for line in text.splitlines():
        name, *rest = line.replace(":", " ").split() or [""]
        if rest and (count := number(rest[0])) is not None:
            found[name] = count << 10 if rest[1:2] == ["kB"] else count
    return found


def listed(text: str) -> int:
    """How many numbers a list such as "0-1,4" has; 0 where it is none."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = number(first), number(last or first)
        if low is None or high is None or high < low:
            return 0
        count += high - low + 1
    return count
