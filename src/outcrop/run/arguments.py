"""What users pass to `Simulation`, brought into one form or refused with the value named and what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from outcrop import _core
from outcrop.axes import Shape, axes_text
from outcrop.errors import InputError, shown
from outcrop.language.boundary import Boundary, as_boundary, boundary_on_grid
from outcrop.language.library import find_stencil
from outcrop.language.stencil import Stencil
from outcrop.paths import as_place
from outcrop.plan.given_sizes import NAMES, GivenSizes
from outcrop.plan.planner import find_scheme
from outcrop.plan.problem import Problem
from outcrop.run.dependencies import field_plans, stage_plans
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.disk.manifest import Settings
from outcrop.run.given import as_number, as_whole_number, require_mapping, require_short_name
from outcrop.tiers import discover
from outcrop.tiers.discover import BINDS, lay_out
from outcrop.units import parse_bytes

FOR_TESTS = "memory"
"""A storage backend that has no files: nothing a run could live on."""

STEPS_MOST = 10_000_000
"""Of one run. A plan lists the passes, so it must not be endless; `resume -t` and another `run` go on from there."""

PLANES_MOST = 1 << 27
"""A pass lists what is done slab by slab. This many planes of a single cell each would take half a terabyte."""

THREADS_MOST = 4096


def as_stencil(stencil: object) -> Stencil:
    """A Stencil, also from the name of a built-in one."""
    if isinstance(stencil, str):
        return find_stencil(stencil)
    if not isinstance(stencil, Stencil):
        raise InputError(f"stencil {shown(stencil)} is neither a Stencil nor the name of a built-in one")
    for field in stencil.fields:
        require_short_name("field", field.name)
    return stencil


def as_steps(value: object) -> int:
    """The number of steps of a run."""
    return as_whole_number(value, "steps", STEPS_MOST)


def as_shape(shape: object, stencil: Stencil) -> Shape:
    """As many whole numbers as the stencil has axes: (nz, ny, nx), (ny, nx) or (nx,)."""
    sizes = list(islice(shape, 4)) if isinstance(shape, Iterable) else [shape]
    if len(sizes) != stencil.ndim:
        raise InputError(f"shape {shown(shape)}: {stencil.name} is for grids of {axes_text(stencil.ndim)}")
    cells = tuple(as_whole_number(size, f"shape {shown(shape)}: size") for size in sizes)
    if len(cells) > 1 and cells[0] > PLANES_MOST:
        raise InputError(f"shape {shown(cells)}: the slowest axis has more than {PLANES_MOST} cells; make it another")
    return cells


def as_dtype_name(dtype: DTypeLike) -> str:
    """The name of a dtype, for the layout to judge."""
    try:
        return np.dtype(dtype).name
    except Exception:  # NumPy raises many kinds for what is none
        return shown(dtype)


def as_grid_boundary(boundary: object, stencil: Stencil) -> Boundary:
    """The sides on the three axes inside, from a word, text, sides by axis of the stencil's own axes, or a Boundary."""
    return boundary_on_grid(as_boundary(boundary), stencil.ndim)


def as_directories(directory: object) -> list[Path]:
    """The paths of one directory or of several."""
    several = directory if isinstance(directory, Sequence) and not isinstance(directory, str) else [directory]
    if not several:
        raise InputError("a run needs a directory to live in")
    return [as_place(place, "directory") for place in several]


def as_parameters(stencil: Stencil, chosen: Mapping[str, float]) -> dict[str, float]:
    """The value of every parameter of `stencil`: the chosen ones, else its defaults."""
    require_mapping(chosen, "params", "dt")
    values = {}
    for name, value in chosen.items():
        if not isinstance(name, str):
            raise InputError(f"params: {shown(name)} is no name of a parameter")
        values[name] = as_number(value, f"parameter {shown(name)} =")
    names = [parameter.name for parameter in stencil.parameters]
    return dict(zip(names, stencil.scalars(values), strict=True))


def as_sizes(sizes: Mapping[str, int] | None) -> GivenSizes:
    """Sizes by name, each at least 1; whether a scheme has them, planning knows."""
    given = {} if sizes is None else sizes
    require_mapping(given, "sizes", "bt")
    for name in given:
        if name not in NAMES:
            raise InputError(f"size {shown(name)} is unknown; there are {', '.join(NAMES)}")
    return GivenSizes(**{name: as_whole_number(size, name) for name, size in given.items()})


def as_threads(threads: object) -> int:
    """The number of threads."""
    return as_whole_number(threads, "threads", THREADS_MOST)


def parse_memory(memory: str | int, whole_bytes: int) -> int:
    """Bytes of a budget, which may be a share of `whole_bytes`."""
    try:
        return parse_bytes(memory, whole_bytes)
    except InputError as error:
        raise InputError(f"memory: {error}") from None


def as_settings(
    memory: str | int, threads: int | None, scheme: str, io: str, bind: str, sizes: Mapping[str, int] | None = None
) -> Settings:
    """Budget in bytes, number of threads, a scheme and a storage backend that exist and work here, how to bind,
    and the sizes that are given."""
    count = discover.available_cores() if threads is None else as_threads(threads)
    for name, word in (("scheme", scheme), ("io", io), ("bind", bind)):
        if not isinstance(word, str):
            raise InputError(f"{name} {shown(word)} must be text, such as 'auto'")
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
    budget_bytes = parse_memory(memory, discover.memory_bytes())
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
