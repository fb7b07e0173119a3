"""Single values that users give, brought into one form or refused: numbers, True or False, names, values by name."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping

import numpy as np

from outcrop.errors import InputError, shown
from outcrop.units import ADDRESSABLE_BYTES

WHOLE_MOST = ADDRESSABLE_BYTES - 1
NAME_BYTES_MOST = 64
"""Names become those of files, of which file systems take 255 bytes; some are made longer."""

_NO_NUMBERS = (str, bytes, bytearray, bool, np.bool_, np.ndarray)


def as_whole_number(value: object, name: str, most: int = WHOLE_MOST, least: int = 1) -> int:
    """An int of any whole number, of NumPy's kinds too, that is at least `least` and at most `most`."""
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        count = None
    if count is None or isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} {shown(value)} must be a whole number")
    if count < least:
        raise InputError(f"{name} {shown(count)} must be at least {least}")
    if count > most:
        raise InputError(f"{name} {shown(count)} must be at most {most}")
    return count


def as_number(value: object, name: str) -> float:
    """A finite number; neither text nor True or False."""
    try:
        number = math.nan if isinstance(value, _NO_NUMBERS) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} {shown(value)} must be a finite number")
    return number


def as_flag(value: object, name: str) -> bool:
    """True or False, of NumPy's kind too."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} {shown(value)} must be True or False")
    return bool(value)


def require_flags(**values: object) -> None:
    """Raise InputError unless each value is True or False: "no" and 0.0 would be taken for what they are not."""
    for name, value in values.items():
        as_flag(value, name)


def require_mapping(given: object, what: str, example: str) -> None:
    """Raise InputError unless values are given by name."""
    if not isinstance(given, Mapping):
        raise InputError(f"{what} {shown(given)} must be values by name, such as {{{example!r}: ...}}")


def require_short_name(what: str, name: str) -> None:
    """Raise InputError for a name that cannot become that of a file."""
    if len(name.encode()) > NAME_BYTES_MOST:
        raise InputError(f"{what} {shown(name)}: the name is too long; give one of at most {NAME_BYTES_MOST} bytes")
