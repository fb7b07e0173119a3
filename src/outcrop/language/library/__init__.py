"""Built-in stencils. To add a stencil, write its function in a file of this package. Then add a line to the table
(`table.py`), and add the function's name to the three lists in this module.

The module that defines a stencil's function is imported when the function is first used. A process that makes a stencil
needs SymPy. A process that reads a stencil from the user's cache does not need SymPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from outcrop.language.library.table import (
    FAMILIES,
    STENCILS,
    did_you_mean,
    extremes_of,
    find_stencil,
    is_built_in,
    limit_of,
    limit_text,
    split_name,
    stability,
    stable_limit,
    weights,
    why_unknown,
)

if TYPE_CHECKING:
    from outcrop.language.library.flow import (
        inlet_outlet,
        lattice_boltzmann,
        lattice_directions,
        lattice_weights,
        stream_function,
    )
    from outcrop.language.library.transport import advection, box27, gray_scott, heat, heat7, heat13, sharpen
    from outcrop.language.library.waves import acoustic, elastic, maxwell, sponge

__all__ = [
    "FAMILIES", "STENCILS", "acoustic", "advection", "box27", "elastic", "extremes_of", "find_stencil", "gray_scott",
    "heat", "heat7", "heat13", "inlet_outlet", "is_built_in", "lattice_boltzmann", "lattice_directions",
    "lattice_weights", "limit_of", "limit_text", "maxwell", "sharpen", "sponge", "stability", "stable_limit",
    "stream_function", "weights", "why_unknown",
]  # fmt: skip

_FILES = {
    "flow": ("inlet_outlet", "lattice_boltzmann", "lattice_directions", "lattice_weights", "stream_function"),
    "transport": ("advection", "box27", "gray_scott", "heat", "heat7", "heat13", "sharpen"),
    "waves": ("acoustic", "elastic", "maxwell", "sponge"),
}


def __getattr__(name: str) -> object:
    for file, names in _FILES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{file}"), name)
    if split_name(name):
        raise AttributeError(f"{name} is the name of a stencil and not a function; give the name as a text: {name!r}")
    hint = "" if name.startswith("_") else did_you_mean(name, __all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
