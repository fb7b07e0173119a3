"""Terms as users know them, for messages."""

from __future__ import annotations

from typing import Any

import sympy
from devito.types import Indexed

_LONGEST = 80


def shown(term: Any) -> str:
    """A lowered term, or text, on one line and not too long, with indices that do not count the halo: u[t, x + 1] for
    u[t, x + 9]."""
    if not isinstance(term, sympy.Basic):
        return _cut(str(term))
    return _cut(str(term.xreplace({one: sympy.Symbol(_without_halo(one)) for one in term.atoms(Indexed)})))


def _without_halo(indexed: Any) -> str:
    halo = indexed.function._size_nodomain.left
    indices = [index - int(left) for index, left in zip(indexed.indices, halo, strict=True)]
    return f"{indexed.function.name}[{', '.join(map(str, indices))}]"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
