"""Change the words, numbers or lines of a text file. If the file ends with a checksum, this checksum is usually
updated.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from outcrop import _core

from . import values

SEAL = "crc32c "


def mutate_text(rng: random.Random, file: Path, world: Path) -> str:
    """Change `file` in one or two places, and return a description of the change."""
    text = file.read_text()
    head, seal, _ = text.rpartition(SEAL)
    body = head if seal else text
    told = []
    for _ in range(rng.choice([1, 1, 2])):
        body, how = _changed(rng, body, world)
        told.append(how)
    if seal:
        data = body.encode("utf-8", "surrogatepass")
        number = _core.crc32c(data) if rng.random() < 0.8 else rng.choice([0, 1, "x", "", 2**32])
        body += f"{SEAL}{number}\n"
    file.write_bytes(body.encode("utf-8", "surrogatepass"))
    return ", ".join(told)


def _changed(rng: random.Random, text: str, world: Path) -> tuple[str, str]:
    lines = text.splitlines(keepends=True) or [""]
    at = rng.randrange(len(lines))
    kind = rng.randrange(10)
    if kind < 6:
        words = list(re.finditer(r'"[^"]*"|[\w./:+-]+', lines[at]))
        if not words:
            return text, "nothing"
        word = rng.choice(words)
        new = str(rng.choice([values.number(rng), values.number(rng), values.text(rng), values.path(rng, world)]))
        if word.group().startswith('"') and rng.random() < 0.8:
            new = f'"{new}"'
        lines[at] = lines[at][: word.start()] + new + lines[at][word.end() :]
        return "".join(lines), f"{word.group()[:30]!a} = {new[:40]!a}"
    if kind == 6:
        return "".join(lines[:at] + lines[at + 1 :]), f"without line {at}"
    if kind == 7:
        return "".join(lines[: at + 1] + lines[at:]), f"line {at} twice"
    if kind == 8:
        return "".join(rng.sample(lines, len(lines))), "lines in another order"
    more = rng.choice(["[" * 10_000, "a = " + "[" * 10_000, "a = " + "9" * 5000, "\0", "\ufeff", "x = 1\n" * 3,
    "[x]\n", "x.y.z = {}\n", "\ud800"])
    return more + text if rng.random() < 0.5 else text + more, f"with {more[:20]!a}"
