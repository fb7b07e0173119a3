"""Sizes, rates and times as people write and read them."""

from __future__ import annotations

import re

from outcrop.errors import InputError

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt]?)(i?b)?|(%))\s*", re.IGNORECASE)


def parse_bytes(text: str | int, whole_bytes: int | None = None) -> int:
    """Bytes of `text`: "512MiB", "1.5 GiB", "64k" (binary), "2GB" (decimal), "25%" of `whole_bytes`, or a plain number.

    Raises InputError for anything else, and for sizes that are not positive.
    """
    remedy = "write for example 512MiB, 1.5GiB or 25%"
    if isinstance(text, int):
        count = text
    else:
        match = _SIZE.fullmatch(text)
        if not match:
            raise InputError(f"size {text!r} is not understood; {remedy}")
        number, prefix, suffix, percent = match.groups()
        if percent:
            if whole_bytes is None:
                raise InputError(f"size {text!r}: a percentage has no meaning here; {remedy}")
            count = int(float(number) / 100 * whole_bytes)
        else:
            base = 1000 if prefix and (suffix or "").lower() == "b" else 1024
            count = int(float(number) * base ** _POWERS[(prefix or "").lower()])
    if count <= 0:
        raise InputError(f"size {text!r} must be positive; {remedy}")
    return count


def format_bytes(count: float) -> str:
    """A count of bytes in the largest binary unit below it: 1536 -> "1.5 KiB"."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
    return f"{count / 1024:.4g} TiB"


def format_seconds(seconds: float) -> str:
    """A duration with as much precision as one cares for: "0.123 s", "12.3 s", "4 min 05 s", "3 h 20 min"."""
    if seconds < 10:
        return f"{seconds:.3f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_rate(per_second: float) -> str:
    """A decimal rate without its noun: 5.4e9 -> "5.40 G"."""
    for unit in ("", "k", "M"):
        if abs(per_second) < 1000:
            return f"{per_second:.3g} {unit}"
        per_second /= 1000
    return f"{per_second:.2f} G"


def counted(number: int, what: str, plural: str = "s") -> str:
    """A number of things: 1 step, 3 steps, 2 passes."""
    return f"{number} {what}{plural * (number != 1)}"
