"""Built-in stencils. A new one is one function and one line of the table (`table.py`)."""

from outcrop.language.library.acoustic import acoustic
from outcrop.language.library.advection import advection
from outcrop.language.library.elastic import elastic
from outcrop.language.library.gray_scott import gray_scott
from outcrop.language.library.heat import box27, heat, heat7, heat13
from outcrop.language.library.lattice_boltzmann import lattice_boltzmann, lattice_directions, lattice_weights
from outcrop.language.library.maxwell import maxwell
from outcrop.language.library.sharpen import sharpen
from outcrop.language.library.sponge import sponge
from outcrop.language.library.stream_function import inlet_outlet, stream_function
from outcrop.language.library.table import FAMILIES, STENCILS, find_stencil
from outcrop.language.library.verdict import extremes_of, is_built_in, limit_of, stability, stable_limit, weights

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
