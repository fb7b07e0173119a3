"""Outcrop: stencil simulations on grids larger than memory, at nearly the speed of runs in memory.

import outcrop as oc
sim = oc.Simulation(oc.stencils.heat(ndim=3), shape=(2048, 1024, 1024), directory="run.oc", memory="1GiB")
sim["u"] = volume
report = sim.run(steps=1000)
"""

from __future__ import annotations

import sys
from importlib import import_module
from logging import NullHandler, getLogger
from types import ModuleType
from typing import TYPE_CHECKING

from outcrop import errors

if TYPE_CHECKING:
    from outcrop import aggregate
    from outcrop.arrays.array import Array
    from outcrop.arrays.placing import Placement, array, open_array, place
    from outcrop.arrays.spec import ArraySpec
    from outcrop.arrays.trajectory import Trajectory
    from outcrop.language import library as stencils
    from outcrop.language.boundary import Boundary
    from outcrop.language.linearised import tangent
    from outcrop.language.stencil import Field, Parameter, Signal, Stencil
    from outcrop.language.symbols import nx, ny, nz, t, x, y, z
    from outcrop.run.adjoint import AdjointRun
    from outcrop.run.inputs.resample import extrude, resample
    from outcrop.run.inversion import Objective, SourceOperator, dot_test, taylor_test
    from outcrop.run.misfit import Misfit
    from outcrop.run.options import History, Norms, Receivers, RunOptions, Snapshots, Source
    from outcrop.run.report import Report
    from outcrop.run.results.export import export
    from outcrop.run.simulation import Simulation, open
    from outcrop.run.sweep import Sweep

__all__ = [
    "AdjointRun", "Array", "ArraySpec", "Boundary", "Field", "History", "Misfit", "Norms", "Objective", "Parameter",
    "Placement", "Receivers", "Report", "RunOptions", "Signal", "Simulation", "Snapshots", "Source",
    "SourceOperator", "Stencil", "Sweep", "Trajectory", "aggregate", "array", "dot_test", "errors", "export", "extrude",
    "nx", "ny", "nz", "open", "open_array", "place", "resample", "stencils", "t", "tangent", "taylor_test", "x", "y",
    "z",
]  # fmt: skip
__version__ = "0.1.0"

getLogger("outcrop").addHandler(NullHandler())  # messages are shown only if the user's program adds a handler

# Modules are imported on the first use of a name, so that `outcrop --help` and `outcrop info` load neither NumPy nor
# SymPy.
_MODULES = {"aggregate": "outcrop.aggregate", "stencils": "outcrop.language.library"}
_NAMES = {
    "arrays.array": ("Array",),
    "arrays.placing": ("Placement", "array", "open_array", "place"),
    "arrays.spec": ("ArraySpec",),
    "arrays.trajectory": ("Trajectory",),
    "language.boundary": ("Boundary",),
    "language.linearised": ("tangent",),
    "language.stencil": ("Field", "Parameter", "Signal", "Stencil"),
    "language.symbols": ("nx", "ny", "nz", "t", "x", "y", "z"),
    "run.adjoint": ("AdjointRun",),
    "run.inputs.resample": ("extrude", "resample"),
    "run.inversion": ("Objective", "SourceOperator", "dot_test", "taylor_test"),
    "run.misfit": ("Misfit",),
    "run.options": ("History", "Norms", "Receivers", "RunOptions", "Snapshots", "Source"),
    "run.report": ("Report",),
    "run.results.export": ("export",),
    "run.simulation": ("Simulation", "open"),
    "run.sweep": ("Sweep",),
}


def __getattr__(name: str) -> object:
    if name in ("_core", "_aggregate"):
        return _compiled(name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"outcrop.{module}"), name)
    raise AttributeError(f"module 'outcrop' has no attribute {name!r}")


def _compiled(name: str) -> ModuleType:
    """Return the extension module `name`. Raises ImportError with the reason if the extension module is missing."""
    try:
        return import_module(f"outcrop.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"outcrop.{name}":
            raise
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise ImportError(
            f"{__path__[0]} has no extension module {name} for Python {version}: remove this folder from PYTHONPATH, "
            "or install Outcrop again with this Python",
            name=error.name,
        ) from None


def __dir__() -> list[str]:
    return sorted(__all__)
