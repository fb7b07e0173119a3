"""Built-in stencils. A new one is one function and one line of the table (`table.py`)."""

from outcrop.language.library.filters import box27, sharpen
from outcrop.language.library.flow import (
    inlet_outlet,
    lattice_boltzmann,
    lattice_directions,
    lattice_weights,
    stream_function,
)
from outcrop.language.library.sponge import sponge
from outcrop.language.library.table import FAMILIES, STENCILS, find_stencil
from outcrop.language.library.transport import advection, gray_scott, heat, heat7, heat13
from outcrop.language.library.verdict import extremes_of, is_built_in, limit_of, stability, stable_limit, weights
from outcrop.language.library.waves import acoustic, elastic, maxwell

__all__ = [
    "FAMILIES",
    "STENCILS",
    "acoustic",
    "advection",
    "box27",
    "elastic",
    "extremes_of",
    "find_stencil",
    "gray_scott",
    "heat",
    "heat7",
    "heat13",
    "inlet_outlet",
    "is_built_in",
    "lattice_boltzmann",
    "lattice_directions",
    "lattice_weights",
    "limit_of",
    "maxwell",
    "sharpen",
    "sponge",
    "stability",
    "stable_limit",
    "stream_function",
    "weights",
]
