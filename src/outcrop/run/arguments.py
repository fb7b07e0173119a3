"""What users pass to `Simulation`, brought into one form or refused with the value named and what would be right."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from outcrop import _core
from outcrop.errors import InputError
from outcrop.language.boundary import Boundary, as_boundary
from outcrop.language.library import find_stencil
from outcrop.language.schema import as_finite
from outcrop.language.stencil import Stencil
from outcrop.plan.given_sizes import NAMES, GivenSizes
from outcrop.plan.planner import find_scheme
from outcrop.plan.problem import Problem
from outcrop.run.axes import Shape, axes_text, boundary_on_grid
from outcrop.run.dependencies import field_plans, stage_plans
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.disk.manifest import Settings
from outcrop.tiers import discover
from outcrop.tiers.topology import BINDS, lay_out
from outcrop.units import parse_bytes

FOR_TESTS = "memory"
"""A storage backend that has no files: nothing a run could live on."""


def as_stencil(stencil: object) -> Stencil:
    """A Stencil, also from the name of a built-in one."""
    if isinstance(stencil, str):
        return find_stencil(stencil)
    if not isinstance(stencil, Stencil):
        raise InputError(f"stencil {stencil!r} is neither a Stencil nor the name of a built-in one")
    return stencil


def as_whole_number(value: object, name: str) -> int:
    """An int of any whole number, of NumPy's kinds too, that is at least 1."""
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} {value!r} must be a whole number") from None
    if count < 1:
        raise InputError(f"{name} {count} must be at least 1")
    return count


def as_shape(shape: object, stencil: Stencil) -> Shape:
    """As many whole numbers as the stencil has axes: (nz, ny, nx), (ny, nx) or (nx,)."""
    sizes = list(shape) if isinstance(shape, Iterable) else [shape]
    if len(sizes) != stencil.ndim:
        raise InputError(f"shape {shape!r}: {stencil.name} is for grids of {axes_text(stencil.ndim)}")
    return tuple(as_whole_number(size, f"shape {tuple(sizes)!r}: size") for size in sizes)


def as_dtype_name(dtype: DTypeLike) -> str:
    """The name of a dtype, for the layout to judge."""
    try:
        return np.dtype(dtype).name
    except TypeError:
        return str(dtype)


def as_grid_boundary(boundary: object, stencil: Stencil) -> Boundary:
    """The sides on the three axes inside, from a word, text, sides by axis of the stencil's own axes, or a Boundary."""
    return boundary_on_grid(as_boundary(boundary), stencil.ndim)


def as_directories(directory: object) -> list[Path]:
    """The paths of one directory or of several."""
    several = directory if isinstance(directory, Sequence) and not isinstance(directory, str) else [directory]
    if not several:
        raise InputError("a run needs a directory to live in")
    paths = []
    for place in several:
        if not isinstance(place, (str, os.PathLike)) or not os.fspath(place):
            raise InputError(f"directory {place!r} is not a path")
        paths.append(Path(place))
    return paths


def as_parameters(stencil: Stencil, chosen: Mapping[str, float]) -> dict[str, float]:
    """The value of every parameter of `stencil`: the chosen ones, else its defaults."""
    values = {}
    for name, value in chosen.items():
        values[name] = as_finite(value, f"parameter {name} =")
    names = [parameter.name for parameter in stencil.parameters]
    return dict(zip(names, stencil.scalars(values), strict=True))


def as_sizes(sizes: Mapping[str, int] | None) -> GivenSizes:
    """Sizes by name, each at least 1; whether a scheme has them, planning knows."""
    for name in sizes or {}:
        if name not in NAMES:
            raise InputError(f"size {name!r} is unknown; there are {', '.join(NAMES)}")
    return GivenSizes(**{name: as_whole_number(size, name) for name, size in (sizes or {}).items()})


def as_settings(
    memory: str | int, threads: int | None, scheme: str, io: str, bind: str, sizes: Mapping[str, int] | None = None
) -> Settings:
    """Budget in bytes, number of threads, a scheme and a storage backend that exist and work here, how to bind,
    and the sizes that are given."""
    count = discover.available_cores() if threads is None else as_whole_number(threads, "threads")
    if scheme != "auto":
        find_scheme(scheme)
    reasons = {name: reason for name, reason in _core.probe().items() if name != FOR_TESTS}
    if io != "auto" and io not in reasons:
        raise InputError(f"io {io!r} is unknown; there are auto, {', '.join(reasons)}")
    if io != "auto" and reasons[io]:
        raise InputError(f"io {io} does not work here: {reasons[io]}; auto takes what does")
    if bind not in BINDS:
        raise InputError(f"bind {bind!r} is unknown; there are {', '.join(BINDS)}")
    lay_out(count, bind)
    if not isinstance(memory, (str, int)):
        raise InputError(f"memory {memory!r} must be a whole number of bytes, or text such as 512MiB")
    budget_bytes = parse_bytes(memory, discover.memory_bytes())
    return Settings(budget_bytes, count, scheme, io, bind, as_sizes(sizes).to_dict())


def as_problem(stencil: Stencil, layout: PlaneLayout, steps: int, boundary: Boundary, in_place: bool) -> Problem:
    """What is to be computed, in the numbers that planning needs."""
    return Problem(
        stencil=stencil.name,
        radii=stencil.radii,
        shape=layout.shape,
        dtype=layout.dtype,
        steps=steps,
        pitch_bytes=layout.pitch_bytes,
        plane_bytes=layout.plane_bytes,
        record_bytes=layout.record_bytes,
        sides=boundary.sides,
        in_place=in_place,
        fields=field_plans(stencil),
        updates=stage_plans(stencil),
        ndim=stencil.ndim,
    )
