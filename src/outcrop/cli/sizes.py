"""`-n NX [NY [NZ]]`: one to three numbers, by how many axes a stencil has.

Options of Typer take a fixed number of words, so those of this one are joined before Typer sees them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from outcrop.errors import InputError, shown

if TYPE_CHECKING:
    from outcrop.axes import Shape
    from outcrop.language.stencil import Stencil

OPTION = "-n"
_NUMBER = re.compile(r"[+-]?[0-9]+")
_DIGITS_MOST = 19


def join_sizes(words: list[str]) -> list[str]:
    """The words of a command line with up to three numbers behind `-n` as one word: "20 12 10"."""
    joined: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith(OPTION) and _NUMBER.fullmatch(word[len(OPTION) :]):
            rest.insert(0, word[len(OPTION) :])  # -n20
            word = OPTION
        joined.append(word)
        if word == OPTION:
            count = next((at for at, one in enumerate(rest[:3]) if not _NUMBER.fullmatch(one)), len(rest[:3]))
            joined += [" ".join(rest[:count])] if count else []
            del rest[:count]
    return joined


def parse_size(text: str, stencil: Stencil) -> Shape:
    """The shape (10, 12, 20) of "20 12 10". Raises InputError for what is no size of the stencil's grids."""
    from outcrop.axes import axes_text, option_text

    words = text.split()
    if not all(map(_NUMBER.fullmatch, words)):
        raise InputError(f"-n {text}: sizes are whole numbers; write {option_text(stencil.ndim)}")
    if len(words) != stencil.ndim:
        axes = axes_text(stencil.ndim)
        raise InputError(f"-n {text}: {stencil.name} is for grids of {axes}; write {option_text(stencil.ndim)}")
    if max(map(len, words)) > _DIGITS_MOST:
        raise InputError(f"-n {shown(text)}: the grid is beyond what files can hold")
    sizes = [int(word) for word in words]
    if min(sizes) < 1:
        raise InputError(f"-n {text}: all sizes must be at least 1")
    return tuple(reversed(sizes))
