"""This module converts texts to sizes, and converts sizes, rates and times to text."""

from __future__ import annotations

import operator
import re
from fractions import Fraction

from outcrop.errors import InputError, shown

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt]?)(i?b)?|(%))\s*", re.IGNORECASE)
_MAX_DIGITS = 40

ADDRESSABLE_BYTES = 1 << 63
"""File offsets and memory sizes are below ADDRESSABLE_BYTES, because the system counts bytes in signed numbers of 64
bits."""


def parse_bytes(text: str | int, whole_bytes: int | None = None) -> int:
    """Return the number of bytes that `text` means: "512MiB", "1.5 GiB", "64k" (binary), "2GB" (decimal), "25%" (of
    `whole_bytes`), or a number. Raises InputError for a text that means no size, and for sizes below 1 byte or from 8
    EiB on."""
    remedy = "write for example 512MiB, 1.5GiB or 25%"
    if isinstance(text, str):
        match = _SIZE.fullmatch(text)
        if not match:
            raise InputError(f"size {shown(text)} is not understood; {remedy}")
        number, prefix, suffix, percent = match.groups()
        if len(number) > _MAX_DIGITS:
            raise InputError(f"size {shown(text)} has too many digits; {remedy}")
        if percent:
            if whole_bytes is None:
                raise InputError(f"size {text!r}: a percentage has no meaning here; {remedy}")
            if Fraction(number) > 100:
                raise InputError(f"size {text!r} is more than there is; give at most 100%")
            count = int(Fraction(number) / 100 * whole_bytes)
        else:
            base = 1000 if prefix and (suffix or "").lower() == "b" else 1024
            count = int(Fraction(number) * base ** _POWERS[(prefix or "").lower()])
    else:
        try:
            count = operator.index(text)
        except TypeError:
            raise InputError(f"size {shown(text)} is not understood; {remedy}") from None
    if count <= 0 or isinstance(text, bool):
        raise InputError(f"size {shown(text)} must be positive; {remedy}")
    if count >= ADDRESSABLE_BYTES:
        raise InputError(f"size {shown(text)} is more than 8 EiB, which no machine can address; {remedy}")
    return count


def format_bytes(count: float) -> str:
    """Return a number of bytes as text. Example: 1536 -> "1.5 KiB". The unit is the largest binary unit up to EiB that
    is not larger than the rounded number."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        text = f"{count:.0f}" if unit == "B" else f"{count:.4g}"
        if abs(float(text)) < 1024:
            return f"{text} {unit}"
        count /= min(1024, abs(count))  # if `count` is rounded up to 1024, the text has one whole next unit
    return f"{count:.4g} EiB"


def format_bytes_up(count: int) -> str:
    """Return a text for the budget that a run needs. The text means at least `count` bytes. The unit of sizes up to 10
    MiB is KiB. Larger sizes have at most two decimals."""
    if count <= 10 << 20:
        return f"{-(-count // 1024)} KiB"
    power = 20 if count <= 10 << 30 else 30 if count <= 10 << 40 else 40
    return f"{-(-100 * count >> power) / 100:.12g} {'KMGT'[power // 10 - 1]}iB"


def format_seconds(seconds: float) -> str:
    """Return a duration as text. Examples: "0.123 s", "12.3 s", "4 min 05 s", "3 h 20 min"."""
    if round(seconds, 3) < 10:
        return f"{seconds:.3f} s"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_rate(per_second: float) -> str:
    """Return a rate as text, with a decimal prefix and without a unit. Example: 5.4e9 -> "5.40 G"."""
    for prefix in ("", "k", "M", "G"):
        text = f"{per_second:.2f}" if prefix == "G" else f"{per_second:.3g}"
        if abs(float(text)) < 1000:
            return f"{text} {prefix}"
        per_second /= min(1000, abs(per_second))  # if the rate is rounded up to 1000, the text has the next prefix
    return f"{per_second:.2f} T"


def counted(number: int, what: str, plural: str = "s") -> str:
    """Return a number and its noun. If the number is not 1, the noun is in the plural. Examples: "1 step", "3 steps",
    "2 passes"."""
    return f"{number} {what}{plural * (number != 1)}"
