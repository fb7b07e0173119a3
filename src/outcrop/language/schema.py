"""Check names, texts, numbers and counts in the parts of a stencil against fixed limits.

A stencil becomes C code that runs in the user's process. The stencil comes from the user's program, or from the
manifest of a directory that another person has made. Stencils from programs and stencils from manifests must pass the
same checks in this file. So a manifest can contain exactly the stencils that a program can make. Nothing in this file
needs SymPy or NumPy, because `outcrop info` must not load them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from outcrop.errors import InputError, shown

_NAME = re.compile(r"(?!_[_A-Z])[A-Za-z_][A-Za-z0-9_]{0,63}")
"""The pattern for names of fields, parameters and signals. Such a name is an identifier that C does not reserve. Zarr
allows it as the name of an array. The name must not be one of `C_WORDS`."""

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
"""The maximum number of parameters and signals together."""
MAX_STAGES = 64
MAX_OPERATIONS = 4096
"""The maximum number of operations of all stages together. The largest built-in stencil has 661 operations. The C
compiler needs minutes for some stencils with 4096 operations."""
MAX_OPERANDS = 64
"""The maximum number of pairs (field, age) that the core passes to one kernel (core/outcrop/exec/traverse.cpp)."""
MAX_EXACT = 1 << 24
"""float32 represents each whole number up to this number exactly."""
MAX_OFFSET = 64
"""The maximum offset along any axis, in cells. A kernel with an offset of n cells along x may read n cache lines (64
bytes each) beyond a plane. The guards of the window make 64 lines readable (core/outcrop/exec/window.hpp)."""
MAX_SPAN = 4096
"""The maximum number of cells, in all rows, that a stage reads to update one cell (`Stage.span`). The compiler keeps
the values of these cells in registers."""
MAX_NAME, MAX_TEXT = 200, 65536
"""The maximum number of characters in the name of a stencil, and in the text of its equation."""

Offset: TypeAlias = tuple[int, int, int]


def require_name(name: object, what: str) -> None:
    """Raise InputError if `name` is not allowed for a field, parameter or signal."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{what} name {shown(name)} is not an identifier: a letter, then up to 63 letters a-z, digits and _"
        )
    if name in C_WORDS:
        raise InputError(f"{what} name {name!r} is a word of C; choose another name, such as {name + '_'!r}")


def require_text(text: object, what: str, maximum: int) -> None:
    """Raise InputError if `text` is not one printable line, or has more than `maximum` characters."""
    if not isinstance(text, str) or not text.isprintable() or len(text) > maximum:
        raise InputError(f"{what} {shown(text)} must be text on one line, of at most {maximum} characters")


def as_number(value: object, what: str) -> float:
    """Convert a real number to a float. Raises InputError if the value is not a real number, or is too large for a
    float."""
    try:
        if not isinstance(value, str | bytes | bytearray):
            return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{what} {shown(value)} must be a finite number")


def as_finite(value: object, what: str) -> float:
    """Convert a finite number to a float. Raises InputError for other values."""
    number = as_number(value, what)
    if not math.isfinite(number):
        raise InputError(f"{what} {shown(value)} must be a finite number")
    return number


# The functions below read plain data that `to_json` has made, and raise ValueError for other data.


def read_members(data: object, what: str, *names: str) -> Mapping[str, Any]:
    """Return `data` if it is a mapping with exactly the members `names`. Otherwise raise ValueError."""
    if not isinstance(data, Mapping) or set(data) != set(names):
        there = sorted(map(shown, data)) if isinstance(data, Mapping) and len(data) < 20 else shown(data)
        raise ValueError(f"{what} needs the members {', '.join(names)}, and has {shown(there)}")
    return data


def read_list(data: object, what: str, maximum: int, minimum: int = 0) -> list[Any]:
    """Return `data` if it is a list with `minimum` to `maximum` entries. Otherwise raise ValueError."""
    if not isinstance(data, list) or not minimum <= len(data) <= maximum:
        count = len(data) if isinstance(data, list) else shown(data)
        raise ValueError(f"{what} must be {minimum} to {maximum}, not {count}")
    return data


def read_whole(value: object, what: str, end: int) -> int:
    """Return `value` if it is a whole number from 0 to `end` - 1. Otherwise raise ValueError."""
    if type(value) is not int or not 0 <= value < end:
        raise ValueError(f"{what} {shown(value)} must be a whole number from 0 to {end - 1}")
    return value


def read_offset(values: list[Any]) -> Offset:
    """Convert a list to an offset in cells along z, y and x."""
    for step in values:
        if type(step) is not int or not -MAX_OFFSET <= step <= MAX_OFFSET:
            raise ValueError(f"offset {shown(values)} must be whole numbers from {-MAX_OFFSET} to {MAX_OFFSET}")
    dz, dy, dx = values
    return dz, dy, dx


def read_number(value: object, what: str) -> float:
    """Convert an int or float to a finite float."""
    if type(value) not in (int, float):
        raise ValueError(f"{what} {shown(value)} must be a number")
    return as_finite(value, what)


def read_hexadecimal(text: object, what: str) -> float:
    """Convert text to a finite number. The text must have exactly the form that `float.hex` writes."""
    try:
        number = float.fromhex(text) if isinstance(text, str) and len(text) < 32 else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number.hex() != text:
        raise ValueError(f"{what} {shown(text)} must be a finite number in hexadecimal, such as '0x1.8000000000000p+1'")
    return number
