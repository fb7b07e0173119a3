"""Outcrop: stencil simulations on grids larger than memory, at the speed of memory.

import outcrop as oc
sim = oc.Simulation(oc.stencils.heat(ndim=3), shape=(2048, 1024, 1024), directory="run.oc", memory="1GiB")
sim["u"] = volume
report = sim.run(steps=1000)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from outcrop import errors

if TYPE_CHECKING:
    from outcrop import aggregate
    from outcrop.arrays.array import Array
    from outcrop.arrays.placing import Placement, array, open_array, place
    from outcrop.arrays.spec import ArraySpec
    from outcrop.language import library as stencils
    from outcrop.language.boundary import Boundary
    from outcrop.language.stencil import Field, Parameter, Signal, Stencil
    from outcrop.run.acquisition.options import Norms, Receivers, Snapshots, Source
    from outcrop.run.inputs.resample import extrude, resample
    from outcrop.run.options import RunOptions
    from outcrop.run.report import Report
    from outcrop.run.simulation import Simulation, open
    from outcrop.run.sweep import Sweep

__all__ = [
    "Array",
    "ArraySpec",
    "Boundary",
    "Field",
    "Norms",
    "Parameter",
    "Placement",
    "Receivers",
    "Report",
    "RunOptions",
    "Signal",
    "Simulation",
    "Snapshots",
    "Source",
    "Stencil",
    "Sweep",
    "aggregate",
    "array",
    "errors",
    "extrude",
    "open",
    "open_array",
    "place",
    "resample",
    "stencils",
]
__version__ = "0.1.0"

# Loaded when first used, so that `outcrop --help` and `outcrop info` need neither NumPy nor SymPy.
_HOMES = {
    "Array": ("outcrop.arrays.array", "Array"),
    "ArraySpec": ("outcrop.arrays.spec", "ArraySpec"),
    "Boundary": ("outcrop.language.boundary", "Boundary"),
    "Field": ("outcrop.language.stencil", "Field"),
    "Norms": ("outcrop.run.acquisition.options", "Norms"),
    "Parameter": ("outcrop.language.stencil", "Parameter"),
    "Placement": ("outcrop.arrays.placing", "Placement"),
    "Receivers": ("outcrop.run.acquisition.options", "Receivers"),
    "Report": ("outcrop.run.report", "Report"),
    "RunOptions": ("outcrop.run.options", "RunOptions"),
    "Signal": ("outcrop.language.stencil", "Signal"),
    "Simulation": ("outcrop.run.simulation", "Simulation"),
    "Snapshots": ("outcrop.run.acquisition.options", "Snapshots"),
    "Source": ("outcrop.run.acquisition.options", "Source"),
    "Stencil": ("outcrop.language.stencil", "Stencil"),
    "Sweep": ("outcrop.run.sweep", "Sweep"),
    "aggregate": ("outcrop.aggregate", ""),
    "array": ("outcrop.arrays.placing", "array"),
    "extrude": ("outcrop.run.inputs.resample", "extrude"),
    "open": ("outcrop.run.simulation", "open"),
    "open_array": ("outcrop.arrays.placing", "open_array"),
    "place": ("outcrop.arrays.placing", "place"),
    "resample": ("outcrop.run.inputs.resample", "resample"),
    "stencils": ("outcrop.language.library", ""),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'outcrop' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    loaded = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def __dir__() -> list[str]:
    return sorted(__all__)
