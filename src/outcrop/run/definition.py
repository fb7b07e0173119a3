"""What a simulation computes, from what users give: a stencil and a shape, or Devito's equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from outcrop.axes import NAMES, PLACES, Shape
from outcrop.errors import InputError
from outcrop.language.boundary import Boundary
from outcrop.language.library import is_built_in
from outcrop.language.stencil import Stencil
from outcrop.run import arguments
from outcrop.run.coordinates import Coordinates, Numbers, as_coordinates
from outcrop.run.given import require_mapping
from outcrop.run.signal_values import encode_signals
from outcrop.run.taps.acquisition import Norms, Receivers, Snapshots, Source
from outcrop.run.taps.checks import Grid, define
from outcrop.run.taps.definitions import TapDefinitions

if TYPE_CHECKING:
    from outcrop.language.devito import Lowered


@dataclass(frozen=True)
class Wanted:
    """Sources, receivers, snapshots and norms as users gave them."""

    sources: Sequence[Source] = ()
    receivers: Sequence[Receivers] = ()
    snapshots: Snapshots | Sequence[Snapshots] | None = None
    norms: Norms | None = None


@dataclass(frozen=True, eq=False)
class Definition:
    """All that enters the computation. `shape` is that of the arrays, whose outermost `padding` cells along each axis
    are not the user's; `boundary` is on the three axes inside; `signals` are as `encode_signals` made them.
    """

    stencil: Stencil
    shape: Shape
    padding: tuple[int, ...]
    dtype: str
    boundary: Boundary
    parameters: dict[str, float]
    signals: dict[str, str]
    coordinates: Coordinates | None
    taps: TapDefinitions
    lowered: Lowered | None = None


def definition_of(
    stencil: object,
    shape: object,
    dtype: DTypeLike | None,
    boundary: object,
    params: Mapping[str, float] | None,
    signals: Mapping[str, Any] | None,
    dt: float | None,
    coordinates: tuple[Numbers, Numbers, str | None],
    wanted: Wanted,
) -> Definition:
    """What a Simulation is to compute; all as users gave it. Raises InputError for what cannot be."""
    spacing, origin, units = coordinates
    if not _are_equations(stencil):
        given = _with_dt({} if params is None else params, dt)
        sides = "fixed" if boundary is None else boundary
        cells = "float32" if dtype is None else dtype
        return _of_stencil(stencil, shape, cells, sides, given, {} if signals is None else signals, coordinates, wanted)
    others = {"shape": shape, "params": params, "signals": signals, "spacing": spacing, "origin": origin}
    for name, value in others.items():
        if value is not None:
            raise InputError(f"{name}={value!r} cannot be given beside Devito's equations, which say it themselves")
    return _of_equations(stencil, dt, dtype, boundary, units, wanted)


def _are_equations(given: object) -> bool:
    """Whether this is a list of Devito's equations, or one of them, and no stencil."""
    return not isinstance(given, (str, Stencil)) and (
        isinstance(given, (list, tuple)) or type(given).__module__.partition(".")[0] == "devito"
    )


def _with_dt(params: Mapping[str, float], dt: float | None) -> Mapping[str, float]:
    """Parameters with the time step that was given beside them. Raises InputError for what are none."""
    if dt is None:
        return params
    require_mapping(params, "params", "dt")
    if "dt" in params:
        raise InputError(f"dt={dt} and params['dt']={params['dt']} are the same; give one of them")
    return {**params, "dt": dt}


def _of_stencil(
    stencil: object,
    shape: object,
    dtype: DTypeLike,
    boundary: object,
    params: Mapping[str, float],
    signals: Mapping[str, Any],
    coordinates: tuple[Numbers, Numbers, str | None],
    wanted: Wanted,
) -> Definition:
    """That of a stencil, or of the name of a built-in one. Raises InputError for what cannot be."""
    known = arguments.as_stencil(stencil)
    if shape is None:
        raise InputError(f"{known.name} needs the shape of its grid")
    own, name = arguments.as_shape(shape, known), arguments.as_dtype_name(dtype)
    grid = Grid(
        known,
        own,
        (0,) * known.ndim,
        arguments.as_grid_boundary(boundary, known),
        as_coordinates(*coordinates, known.ndim),
        arguments.as_parameters(known, params),
        name,
    )
    if is_built_in(known) and grid.parameters.get("dt") == 0:
        raise InputError("dt = 0 is no time step: nothing would happen; give another one")
    if coordinates[0] is not None and grid.coordinates is not None:
        _require_own_spacing(known, params, grid.coordinates.spacing)
    taps = define(grid, wanted.sources, wanted.receivers, wanted.snapshots, wanted.norms)
    texts = encode_signals(known, signals)
    return Definition(known, own, grid.padding, name, grid.boundary, grid.parameters, texts, grid.coordinates, taps)


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


def _of_equations(
    equations: Any, dt: float | None, dtype: DTypeLike | None, boundary: object, units: str | None, wanted: Wanted
) -> Definition:
    """That of Devito's equations with the time step `dt`. Raises InputError for what cannot be."""
    from outcrop.language.devito import from_devito

    if dt is None:
        raise InputError("Devito's equations need the time step: give dt=...")
    lowered = from_devito(equations, dt=dt, boundary=boundary)
    stencil = lowered.stencil
    if dtype is not None and arguments.as_dtype_name(dtype) != lowered.dtype:
        raise InputError(
            f"dtype {arguments.as_dtype_name(dtype)}: the equations' grid has {lowered.dtype}; leave it out"
        )
    places = PLACES[stencil.ndim]
    shape, padding = (tuple(sizes[place] for place in places) for sizes in (lowered.shape, lowered.padding))
    spacing, origin = (tuple(lengths[place] for place in places) for lengths in (lowered.spacing, lowered.origin))
    sides = lowered.boundary if boundary is None else arguments.as_grid_boundary(boundary, stencil)
    grid = Grid(
        stencil,
        tuple(n - 2 * pad for n, pad in zip(shape, padding, strict=True)),
        padding,
        sides,
        as_coordinates(spacing, origin, units, stencil.ndim),
        arguments.as_parameters(stencil, {}),
        lowered.dtype,
    )
    more = TapDefinitions(lowered.injections, lowered.samplings)
    taps = define(grid, wanted.sources, wanted.receivers, wanted.snapshots, wanted.norms, more)
    texts = encode_signals(stencil, lowered.signals)
    return Definition(
        stencil, shape, padding, lowered.dtype, sides, grid.parameters, texts, grid.coordinates, taps, lowered
    )
