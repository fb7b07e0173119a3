"""What a run does besides updating, as users ask for it: `oc.Source`, `oc.Receivers`, `oc.Snapshots`, `oc.Norms`.

    source = oc.Source("u", points=[20.0, 500.0, 500.0], values=wavelet)
    line = oc.Receivers("line", "u", points=[[20.0, 500.0, x] for x in places])
    oc.Simulation(..., sources=[source], receivers=[line], snapshots=oc.Snapshots(every=50), norms=oc.Norms(every=10))

Points have a coordinate for each axis in the order of the shape, (z, y, x), (y, x) or (x,), in the units of the
simulation's `spacing` and `origin`; without these a unit is a cell, and cell 0 lies at 0. Values between cells are
interpolated linearly. Nothing is checked here but by `checks`, which knows the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

OnSnapshot: TypeAlias = Callable[[int, Mapping[str, Any]], object]
"""Called with the step and, by field, what was kept of it; read from disk when indexed."""


@dataclass(frozen=True, eq=False)
class Source:
    """Adds `values[t]`, shape (steps,) for one point or (steps, points), to `field` at the end of its update in step t,
    spread over the cells around each point by the weights of linear interpolation; after its last value it is silent.

    `scale` multiplies the values: a number, or an expression of the stencil's parameters and of fields that are only
    read, at the centre, such as dt**2 * v[0, 0, 0] ** 2. It is taken at each of these cells.
    """

    field: str
    points: Any
    values: Any
    scale: Any = None


@dataclass(frozen=True, eq=False)
class Receivers:
    """Records `field` at `points` at the end of every step, or with `before` ahead of it: `sim.traces[name]`."""

    name: str
    field: str
    points: Any
    before: bool = False


@dataclass(frozen=True)
class Snapshots:
    """Keeps `fields` (default: all that are updated) after steps 0, every, 2 every, ...: `sim.snapshots[field]`, and
    the Zarr group snapshots.zarr in the run's directory.

    Step 0 are the initial values, kept by the first pass; `initial=False` leaves them out. `box` is a slice, in cells,
    for each axis (default: the whole grid). `time_units` is said of the coordinate `time`, which there is where the
    stencil has a parameter dt; "s" for seconds.

    A run may have several, in a list, with another `name` each: those called "side" are `sim.snapshots["side/u"]`, and
    the group snapshots.zarr/side.
    """

    every: int
    fields: Sequence[str] = ()
    box: Sequence[slice] | None = None
    time_units: str = ""
    initial: bool = True
    name: str = ""


@dataclass(frozen=True)
class Norms:
    """Adds up `fields` (default: all that are updated) after steps 0, every, 2 every, ...: `sim.norms[field]`.

    Step 0 are the initial values, added up by the first pass; `initial=False` leaves them out.
    """

    every: int
    fields: Sequence[str] = ()
    initial: bool = True
