"""Limits and checks of what a stencil may hold: names, texts, numbers, and the maximum of each kind.

A stencil becomes C that runs in the reader's process, and it comes from a user's program or from the manifest of a
directory that somebody else made. Both are held against what is here, so whatever can be made can be read back, and
whatever can be read could have been made. Nothing here needs SymPy or NumPy: looking at a run does without them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from outcrop.errors import InputError, shown

NAME_PATTERN = r"(?!_[_A-Z])[A-Za-z_][A-Za-z0-9_]{0,63}"
"""The pattern of the whole name of a field, parameter or signal: an identifier that C does not reserve, and that Zarr
allows as the name of an array. The words of C, `C_WORDS`, are refused as well."""

C_WORDS = frozenset(
    (
        *("auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern"),
        *("float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed"),
        *("sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while"),
        *("asm", "typeof"),
    )
)

MAX_FIELDS = 256
MAX_SCALARS = 256
"""Parameters and signals together."""
MAX_STAGES = 64
MAX_OPERATIONS = 4096
"""Operations of all stages. The largest built-in stencil has 661. Compilers need minutes for some stencils of 4096."""
MAX_OPERANDS = 64
"""Values of fields that the core passes to one kernel (core/outcrop/exec/traverse.cpp)."""
MAX_OFFSET = 64
"""Cells along any axis. Along x, a kernel reads as many 64-byte lines beyond a plane. The guards of the window, which
keep these readable, have 64 lines (core/outcrop/exec/window.hpp)."""
MAX_SPAN = 4096
"""Cells of all rows that a stage reads to update one cell. Compilers have to keep them in registers."""
MAX_NAME, MAX_TEXT = 200, 65536
"""Characters of the name of a stencil, and of the text of its equation."""

_NAME = re.compile(NAME_PATTERN)

Offset: TypeAlias = tuple[int, int, int]


def require_name(name: object, what: str) -> None:
    """Raise InputError unless `name` may be that of a field, parameter or signal."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{what} name {shown(name)} is not an identifier: a letter, then up to 63 letters a-z, digits and _"
        )
    if name in C_WORDS:
        raise InputError(f"{what} name {name!r} is a word of C; choose another one, such as {name + '_'!r}")


def require_text(text: object, what: str, maximum: int) -> None:
    """Raise InputError unless `text` can be shown on one line of at most `maximum` characters."""
    if not isinstance(text, str) or not text.isprintable() or len(text) > maximum:
        raise InputError(f"{what} {shown(text)} must be text on one line, of at most {maximum} characters")


def as_number(value: object, what: str) -> float:
    """Any real number as a float. Raises InputError for other values, and for numbers that no float can hold."""
    try:
        if not isinstance(value, str | bytes | bytearray):
            return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{what} {shown(value)} must be a finite number")


def as_finite(value: object, what: str) -> float:
    """A finite number as a float. Raises InputError for other values."""
    number = as_number(value, what)
    if not math.isfinite(number):
        raise InputError(f"{what} {shown(value)} must be a finite number")
    return number


# What follows reads plain data as `to_json` makes it, and raises ValueError for anything else.


def read_members(data: object, what: str, *names: str) -> Mapping[str, Any]:
    """A mapping that has exactly these members."""
    if not isinstance(data, Mapping) or set(data) != set(names):
        there = sorted(map(shown, data)) if isinstance(data, Mapping) and len(data) < 20 else shown(data)
        raise ValueError(f"{what} needs the members {', '.join(names)}, and has {shown(there)}")
    return data


def read_list(data: object, what: str, maximum: int, minimum: int = 0) -> list[Any]:
    """A list of `minimum` to `maximum` things."""
    if not isinstance(data, list) or not minimum <= len(data) <= maximum:
        count = len(data) if isinstance(data, list) else shown(data)
        raise ValueError(f"{what} must be {minimum} to {maximum}, not {count}")
    return data


def read_whole(value: object, what: str, end: int) -> int:
    """A whole number from 0 to `end` - 1."""
    if type(value) is not int or not 0 <= value < end:
        raise ValueError(f"{what} {shown(value)} must be a whole number from 0 to {end - 1}")
    return value


def read_offset(values: list[Any]) -> Offset:
    """A step along z, y and x."""
    for step in values:
        if type(step) is not int or not -MAX_OFFSET <= step <= MAX_OFFSET:
            raise ValueError(f"offset {shown(values)} must be whole numbers from {-MAX_OFFSET} to {MAX_OFFSET}")
    dz, dy, dx = values
    return dz, dy, dx


def read_number(value: object, what: str) -> float:
    """A finite number that JSON knows as one."""
    if type(value) not in (int, float):
        raise ValueError(f"{what} {shown(value)} must be a number")
    return as_finite(value, what)


def read_hexadecimal(text: object, what: str) -> float:
    """A finite number as `float.hex` writes it, and no other form of it."""
    try:
        number = float.fromhex(text) if isinstance(text, str) and len(text) < 32 else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number.hex() != text:
        raise ValueError(f"{what} {shown(text)} must be a finite number in hexadecimal, such as '0x1.8000000000000p+1'")
    return number
