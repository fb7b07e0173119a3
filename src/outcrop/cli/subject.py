"""`Subject`: the values that `outcrop plot` and `outcrop view` show. The values of a subject are a field of a run,
snapshots of a run, or the values in a file. A subject has named axes with coordinates, and one or several frames. The
values of a frame are read on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from outcrop.errors import InputError, shown
from outcrop.paths import is_there
from outcrop.units import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from outcrop.run.acquisition.views import SnapshotView
    from outcrop.run.simulation import Simulation
    from outcrop.run.user_values import Coordinates

Index: TypeAlias = tuple[int | slice, ...]


@dataclass(frozen=True)
class Axis:
    """An axis of a subject. Positions on the axis are coordinates of the run, or numbers of cells. `origin` is the
    position of the first value.

    The first value on the axis is at cell `first` of the grid. The first value of snapshots of a box is at the first
    cell of the box. Coarse snapshots have one value for each group of `group` cells, at the centre of the group. The
    centre of a group can be between two cells."""

    name: str
    cells: int
    origin: float = 0.0
    spacing: float = 1.0
    units: str = ""
    first: float = 0.0
    group: int = 1
    has_coordinates: bool = False

    @property
    def label(self) -> str:
        return f"{self.name} ({self.units})" if self.units else self.name

    @property
    def ends(self) -> tuple[float, float]:
        """The positions of the outer sides of the first and the last cell of the axis."""
        return self.origin - 0.5 * self.spacing, self.origin + (self.cells - 0.5) * self.spacing

    def cell(self, index: int) -> str:
        """Return the position of value number `index` in cells of the grid, such as "20". The position of a group of
        cells is its centre, such as "65.5"."""
        return f"{self.first + index * self.group:.15g}"

    def place(self, index: int) -> str:
        """Return a text with the position of value number `index` in cells of the grid, such as "z = 20". If the run
        has coordinates, the text also has the coordinate of the value, such as "z = 20 (200 m)"."""
        found = f"{self.name} = {self.cell(index)}"
        coordinate = f"{self.origin + index * self.spacing:g} {self.units}".rstrip()
        return f"{found} ({coordinate})" if self.has_coordinates else found


@dataclass(frozen=True)
class SubjectFrame:
    """The values at one time. `read` returns the values that an index selects. `step` is the step of a run, or 0."""

    title: str
    step: int
    read: Callable[[Index], NDArray[Any]]


@dataclass(frozen=True)
class Subject:
    """The values that a picture shows. `label` names these values. The frames are in the order of time, and the last
    frame is the newest. There are `every` steps between two frames. If a subject never has more than one frame, `every`
    is 0."""

    label: str
    axes: tuple[Axis, ...]
    dtype: str
    frames: Sequence[SubjectFrame]
    every: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.cells for axis in self.axes)


def open_subject(where: Path, field: str | None, snapshots: str | None) -> Subject:
    """Return the subject in the file or run `where`: the snapshots with the name `snapshots`, or the committed values
    of `field`. If neither `snapshots` nor `field` is given, the subject is the first field. `where` may also name an
    array in a file, such as model.nc:vp. Raises InputError for unknown names."""
    from outcrop.axes import NAMES
    from outcrop.run.inputs.formats import names_array
    from outcrop.run.inputs.initial import InputView, parse_source
    from outcrop.run.opening import open_run
    from outcrop.run.places import may_hold_run
    from outcrop.run.ranks.whole import holds_parts
    from outcrop.run.simulation import Simulation

    text = ""
    if is_there(where):
        text = "" if may_hold_run(where) or holds_parts(where) else str(where.absolute())
    elif names_array(str(where)):
        text = str(where)
    for option, name in (("--field", field), ("--snapshots", snapshots)):
        if name is not None and text:
            raise InputError(f"{option} {name}: {where} is not a run, and has no fields; leave it out")
    if text:
        values = InputView(parse_source(text, None))
        axes = tuple(Axis(name, n) for name, n in zip(NAMES[values.ndim], values.shape, strict=True))
        return Subject("value", axes, values.dtype.name, [SubjectFrame(where.name, 0, values.sample)])
    if field is not None and snapshots is not None:
        raise InputError(f"--field {field} and --snapshots {snapshots}: give one of them")
    simulation = Simulation(open_run(where, {}, reads_only=True))
    return of_field(simulation, field) if snapshots is None else of_snapshots(simulation, snapshots)


def of_field(simulation: Simulation, field: str | None) -> Subject:
    """Return the committed values of `field`, or of the first field if `field` is None."""
    name = field or simulation.stencil.fields[0].name
    values, where = simulation[name], simulation.coordinates
    axes = [_axis(where, place, letter, n) for place, (letter, n) in
            enumerate(zip(simulation.setup.description.axis_names, values.shape, strict=True))]  # fmt: skip
    # the steps of snapshots of Devito's equations are Devito's time indices, so the count of steps is another number
    is_devito = simulation.setup.description.first_time is not None
    when = f"after {counted(simulation.step, 'step')}" if is_devito else f"step {simulation.step}"
    title = f"{simulation.stencil.name}, {when}"
    return Subject(name, tuple(axes), values.dtype.name, [SubjectFrame(title, simulation.step, values.sample)])


def of_snapshots(simulation: Simulation, name: str) -> Subject:
    """Return the committed snapshots with the name `name`, such as "u" or "side/u". The name of a group with one field,
    such as "side", is also accepted. Raises InputError if there are no snapshots with this name yet."""
    views = simulation.snapshots
    of_group = [one for one in views if one.rpartition("/")[0] == name]
    full = of_group[0] if name not in views and len(of_group) == 1 else name
    if full not in views:
        there = ", ".join(views) or "none"
        raise InputError(f"--snapshots {shown(name)}: there are no snapshots with this name; there are: {there}")
    view = views[full]
    if not len(view):
        raise InputError(f"--snapshots {name}: there is no snapshot yet at step {simulation.step}; run further steps")
    entry, description = view.entry, simulation.setup.description
    axes = []
    for place, (letter, (begin, _), group) in enumerate(
        zip(description.axis_names, entry.box, entry.group, strict=True)
    ):
        # each value is placed at the centre of its group of cells
        first = begin - description.padding[place] + (group - 1) / 2
        axes.append(_axis(simulation.coordinates, place, letter, entry.shape[place], first, group))
    dt, units = description.parameters.get("dt"), entry.time_units
    frames = []
    for number, step in enumerate(view.steps.tolist()):
        time = f", {dt * step:g} {units}" if dt is not None and units else ""
        title = f"{simulation.stencil.name}, step {step}{time}"
        frames.append(SubjectFrame(title, step, partial(_of_snapshot, view, number)))
    return Subject(full, tuple(axes), view.dtype.name, frames, entry.every)


def _of_snapshot(view: SnapshotView, number: int, index: Index) -> NDArray[Any]:
    import numpy as np

    return np.array(view[(number, *index)])  # copy the values, because `view` returns a part of a memory map


def _axis(where: Coordinates | None, place: int, name: str, cells: int, first: float = 0, group: int = 1) -> Axis:
    """Return the axis number `place`. The first value on this axis is at cell `first` of the grid. `first` may be a
    position between two cells. The distance between two neighbouring values is `group` cells."""
    origin, spacing, units = (where.origin[place], where.spacing[place], where.units) if where else (0.0, 1.0, "")
    return Axis(name, cells, origin + first * spacing, group * spacing, units, first, group, where is not None)
