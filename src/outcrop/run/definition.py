"""What a run computes, of its options: a stencil on a grid, or Devito's equations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from outcrop.axes import NAMES, ORDERS, PLACES, Shape, axes_text, option_text
from outcrop.errors import InputError, shown
from outcrop.language.boundary import Boundary, as_boundary, boundary_on_grid
from outcrop.language.library import find_stencil, is_built_in
from outcrop.language.stencil import Stencil
from outcrop.paths import as_path
from outcrop.plan.problem import Problem
from outcrop.run.acquisition.definitions import AcquisitionDefinitions, Grid, define
from outcrop.run.coordinates import Coordinates, as_coordinates
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.engine import field_plans, stage_plans
from outcrop.run.given import as_number, as_whole_number, require_mapping, require_short_name
from outcrop.run.options import RunOptions
from outcrop.run.signal_values import encode_signals

if TYPE_CHECKING:
    from outcrop.language.devito import Lowered

MAX_PLANES = 1 << 27
"""A pass lists what is done slab by slab. This many planes of a single cell each would take half a terabyte."""

MAX_VALUES_BYTES = 1 << 30
"""Size of a .npy file with points or with values for each step."""


@dataclass(frozen=True, eq=False)
class Definition:
    """All that enters the computation.

    `shape` is that of the arrays, whose outermost `padding` cells along each axis are not the user's. `boundary` is on
    the three axes inside. `signals` are as `encode_signals` made them.
    """

    stencil: Stencil
    shape: Shape
    padding: tuple[int, ...]
    dtype: str
    boundary: Boundary
    parameters: dict[str, float]
    signals: dict[str, str]
    coordinates: Coordinates | None
    acquisition: AcquisitionDefinitions
    lowered: Lowered | None = None


def definition_of(options: RunOptions, shape: Shape | None = None) -> Definition:
    """What a run with these options computes. `shape` is that of a file of initial values, for options without one.

    Raises InputError for what cannot be.
    """
    if not are_equations(options.stencil):
        return _of_stencil(options, shape)
    for name in ("shape", "params", "signals", "spacing", "origin"):
        if (value := getattr(options, name)) is not None:
            raise InputError(f"{name}={value!r} cannot be given beside Devito's equations, which say it themselves")
    return _of_equations(options)


def are_equations(given: object) -> bool:
    """Whether this is a list of Devito's equations, or one of them, and no stencil."""
    return not isinstance(given, (str, Stencil)) and (
        isinstance(given, (list, tuple)) or type(given).__module__.partition(".")[0] == "devito"
    )


def as_stencil(stencil: object) -> Stencil:
    """A Stencil, also from the name of a built-in one."""
    if isinstance(stencil, str):
        return find_stencil(stencil)
    if not isinstance(stencil, Stencil):
        raise InputError(f"stencil {shown(stencil)} is neither a Stencil nor the name of a built-in one")
    for field in stencil.fields:
        require_short_name("field", field.name)
    return stencil


def as_shape(shape: object, stencil: Stencil) -> Shape:
    """As many whole numbers as the stencil has axes: (nz, ny, nx), (ny, nx) or (nx,)."""
    sizes = list(islice(shape, 4)) if isinstance(shape, Iterable) else [shape]
    if len(sizes) != stencil.ndim:
        raise InputError(f"shape {shown(shape)}: {stencil.name} is for grids of {axes_text(stencil.ndim)}")
    cells = tuple(as_whole_number(size, f"shape {shown(shape)}: size") for size in sizes)
    if len(cells) > 1 and cells[0] > MAX_PLANES:
        raise InputError(f"shape {shown(cells)}: the slowest axis has more than {MAX_PLANES} cells; make it another")
    return cells


def as_dtype_name(dtype: DTypeLike) -> str:
    """The name of a dtype, for the layout to judge."""
    try:
        return np.dtype("float32" if dtype is None else dtype).name
    except Exception:  # NumPy raises many kinds for what is none
        return shown(dtype)


def as_grid_boundary(boundary: object, stencil: Stencil) -> Boundary:
    """The sides on the three axes inside, from a word, text, sides by axis of the stencil's own axes, or a Boundary."""
    return boundary_on_grid(as_boundary("fixed" if boundary is None else boundary), stencil.ndim)


def as_parameters(stencil: Stencil, params: Mapping[str, float] | None, dt: float | None = None) -> dict[str, float]:
    """The value of every parameter of `stencil`: the given ones, else its defaults."""
    given = {} if params is None else params
    require_mapping(given, "params", "dt")
    if dt is not None:
        if "dt" in given:
            raise InputError(f"dt={dt} and params['dt']={given['dt']} are the same; give one of them")
        given = {**given, "dt": dt}
    values = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise InputError(f"params: {shown(name)} is no name of a parameter")
        values[name] = as_number(value, f"parameter {shown(name)} =")
    names = [parameter.name for parameter in stencil.parameters]
    return dict(zip(names, stencil.scalars(values), strict=True))


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


def _of_stencil(options: RunOptions, shape: Shape | None) -> Definition:
    stencil = as_stencil(options.stencil)
    if options.shape is None and shape is None:
        size, order = option_text(stencil.ndim), ORDERS[stencil.ndim]
        raise InputError(f"{stencil.name} needs the shape of its grid: give {size}, or in Python shape={order}")
    own = as_shape(shape if options.shape is None else options.shape, stencil)
    grid = Grid(
        stencil,
        own,
        (0,) * stencil.ndim,
        as_grid_boundary(options.boundary, stencil),
        as_coordinates(options.spacing, options.origin, options.units, stencil.ndim),
        as_parameters(stencil, options.params, options.dt),
        as_dtype_name(options.dtype),
    )
    if is_built_in(stencil) and grid.parameters.get("dt") == 0:
        raise InputError("dt = 0 is no time step: nothing would happen; give another one")
    if options.spacing is not None and grid.coordinates is not None:
        _require_own_spacing(stencil, options.params or {}, grid.coordinates.spacing)
    signals = {} if options.signals is None else options.signals
    require_mapping(signals, "signals", "src")
    texts = encode_signals(stencil, {name: _values(name, one) for name, one in signals.items()})
    return Definition(
        stencil, own, grid.padding, grid.dtype, grid.boundary, grid.parameters, texts, grid.coordinates,
        _acquisition(grid, options),
    )  # fmt: skip


def _acquisition(grid: Grid, options: RunOptions, more: AcquisitionDefinitions | None = None) -> AcquisitionDefinitions:
    """Sources, receivers, snapshots and norms; their numbers may be in .npy files."""
    sources, receivers = (_with_values(several) for several in (options.sources, options.receivers))
    return define(grid, sources, receivers, options.snapshots, options.norms, more)


def _with_values(several: Any) -> Any:
    if not isinstance(several, (list, tuple)):
        return several  # `define` says what is wrong with it
    return [
        replace(one, **{
            name: _values(name, getattr(one, name))
            for name in ("points", "values")
            if isinstance(getattr(one, name, None), (str, Path))
        })
        if hasattr(one, "points") else one
        for one in several
    ]  # fmt: skip


def _values(name: str, given: Any) -> Any:
    """Numbers, also those of a .npy file that is named instead. Raises InputError when it cannot be read."""
    if not isinstance(given, (str, Path)):
        return given
    path = as_path(given, name)
    if not path.is_file():
        raise InputError(f"{name}: {path} is no file; name a .npy file")
    if path.stat().st_size > MAX_VALUES_BYTES:
        raise InputError(f"{name}: {path} has more than {MAX_VALUES_BYTES} bytes")
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise InputError(f"{name}: {path} cannot be read as .npy ({' '.join(str(error).split())[:200]})") from None


def _require_own_spacing(stencil: Stencil, params: Mapping[str, float], spacing: Sequence[float]) -> None:
    """Raise InputError when a built-in stencil would compute with its default for the distance between cells, while the
    user gives coordinates with another one. Who gives both may have them in other units."""
    if not is_built_in(stencil):
        return
    defaults = {one.name: one.default for one in stencil.parameters}
    for axis, step in zip(NAMES[stencil.ndim], spacing, strict=True):
        name = "h" if "h" in defaults else f"d{axis}"
        if name not in params and defaults.get(name, step) != step:
            raise InputError(
                f"spacing {step:g} along {axis} is of the coordinates alone, and {stencil.name} computes with "
                f"{name} = {defaults[name]:g} unless it is told; give params={{{name!r}: {step:g}}}, too"
            )


def _of_equations(options: RunOptions) -> Definition:
    """What Devito's equations say, with the time step `dt`."""
    from outcrop.language.devito import from_devito

    if options.dt is None:
        raise InputError("Devito's equations need the time step: give dt=...")
    lowered = from_devito(options.stencil, dt=options.dt, boundary=options.boundary)
    stencil = lowered.stencil
    if options.dtype is not None and as_dtype_name(options.dtype) != lowered.dtype:
        raise InputError(f"dtype {as_dtype_name(options.dtype)}: the equations' grid has {lowered.dtype}; leave it out")
    places = PLACES[stencil.ndim]
    shape, padding = (tuple(sizes[place] for place in places) for sizes in (lowered.shape, lowered.padding))
    spacing, origin = (tuple(lengths[place] for place in places) for lengths in (lowered.spacing, lowered.origin))
    sides = lowered.boundary if options.boundary is None else as_grid_boundary(options.boundary, stencil)
    grid = Grid(
        stencil,
        tuple(n - 2 * pad for n, pad in zip(shape, padding, strict=True)),
        padding,
        sides,
        as_coordinates(spacing, origin, options.units, stencil.ndim),
        as_parameters(stencil, {}),
        lowered.dtype,
    )
    acquisition = _acquisition(grid, options, AcquisitionDefinitions(lowered.injections, lowered.samplings))
    texts = encode_signals(stencil, lowered.signals)
    return Definition(
        stencil, shape, padding, lowered.dtype, sides, grid.parameters, texts, grid.coordinates, acquisition, lowered
    )
