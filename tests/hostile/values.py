"""Generate unexpected values: numbers, texts and paths. All functions use the random generator that the caller
passes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

INTEGERS = (
    *(0, -1, 1, 2, 3, 7, 255, 256, 65536, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**60, 2**63 - 1, 2**63, 2**64,
    2**64 + 1),
    *(-(2**31), -(2**63), -(2**63) - 1, -(2**60), 10**20, 10**400),
)
FLOATS = (float("nan"), float("inf"), float("-inf"), -0.0, 0.5, -1.5, 1e-320, 1e308, -1e308, 2.0**53, 1e19)
TEXTS = (
    *("", " ", "x", "-", "--", "=", ":", ",", "@", "%", "0x10", "1e3", "1_000", "١٢", "²", "+5", "None", "null",
    "true"),
    *("nan", "inf", "-inf", "1e999", "u", "u.0", "u/previous", ".u.0", "x" * 300, "y" * 5000, "\n", "a\nb", "a\tb",
    "\r"),
    *("\x1b[31m", "a\x00b", "\x00", "{}", "{0}", "%s%n", "'", '"', "`touch x`", "$(touch x)", "; touch x", "é", "𝔘",
    "\u202e"),
    *("\ud800", "9" * 5000, "-9" + "9" * 5000, "1" + "0" * 400, "1" + "0" * 400 + ".5", "__class__", "manifest.json",
    "con"),
)
NAMES = ("..", ".", "/", "//", "./x", "../x", "../../x", "a/b", "a//b", "a/../..", "x" * 256, "x" * 300, "x/" * 3000)


def number(rng: random.Random) -> int | float:
    """Return a number at the limit of a type or beyond it."""
    return rng.choice(INTEGERS) if rng.random() < 0.75 else rng.choice(FLOATS)


def text(rng: random.Random) -> str:
    """Return a text that is empty, is long, has unusual characters, or has a special meaning in another context."""
    if rng.random() < 0.25:
        return str(number(rng))
    return rng.choice(TEXTS)


def path(rng: random.Random, world: Path) -> str:
    """Return a path of the world that no run may use, or one of NAMES."""
    witness = rng.choice(
        ["home/keep", "home/notes.txt", "other.oc", "other.oc/manifest.json", "further", "further/v", "home", "empty"]
    )
    kind = rng.choice([0, 0, 0, 1, 1, 2, 3, 4, 5, 5])
    if kind == 0:
        return str(world / witness)
    if kind == 1:
        return "../" * rng.randrange(1, 4) + witness
    if kind == 2:
        return rng.choice([f"./{witness}", f"u/../../{witness}", f"{world}/./case/../{witness}", f"{world}//{witness}"])
    if kind == 3:
        return rng.choice(["fifo", "socket", "loop", "link-to-home", "link-to-file", "no-such", "unreadable"])
    if kind == 4:
        return str(world / rng.choice(["fifo", "socket", "loop", "link-to-home", "link-to-file", "no-such/deeper"]))
    # Some paths in NAMES are outside the world. The jail prevents changes at these paths.
    return rng.choice(NAMES)


def json_value(rng: random.Random, world: Path) -> Any:
    """Return any value that JSON can express."""
    kind = rng.randrange(12)
    if kind < 4:
        return number(rng)
    if kind < 6:
        return text(rng)
    if kind < 8:
        return path(rng, world)
    return rng.choice(
        [None, True, False, [], {}, [[]], [None], {"": 0}, {"a": {"b": []}}, [0] * 1000, ["u", "u"], [[0, 0, 0]],
         [-1, -1, -1], [2**60] * 3, [0.5, "x"], {"u": 1}, [[1]], "u", "v"]
    )  # fmt: skip


def bytes_name(rng: random.Random) -> bytes:
    """Return a file name that is not UTF-8, is very long, or has unusual characters."""
    return rng.choice([b"\xff\xfe", b"a\xc3", b"\x80" * 20, b"new\nline", b"tab\tand space", b"-d", b"--json", b"*",
    b"x" * 255])
