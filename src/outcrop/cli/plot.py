"""`outcrop plot`: draw one slice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from outcrop.cli.options import check_output, write_picture
from outcrop.errors import InputError, shown
from outcrop.paths import is_there

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from outcrop.run.disk.values import FieldView
    from outcrop.run.inputs.initial import InputView
    from outcrop.run.ranks.whole import WholeView
    from outcrop.run.user_values import Coordinates

MAX_PIXELS = 2048
"""The maximum number of cells along a side of the picture. On a longer side, only every second, third, ... cell is
drawn."""


def plot(
    where: Annotated[Path, Argument(metavar="WHERE", help="directory or device of a run, or a file of values")],
    output: Annotated[Path, Option("-o", "--output", metavar="PNG", help="the picture to write")],
    slice_at: Annotated[
        str | None,
        Option("--slice", metavar="AXIS=K", help="z=K, y=K or x=K on a grid of three axes [default: the middle of z]"),
    ] = None,
    field: Annotated[
        str | None, Option(metavar="NAME", help="a field of the run [default: the first field that is updated]")
    ] = None,
    colors: Annotated[str, Option(help="a colour map of matplotlib")] = "gray",
) -> None:
    """Draw one slice as a PNG. The slice is from the committed state of a run, or from a file in a format that a run
    can read."""
    check_output(output, "-o")
    values, title, label, coordinates = _open(where, field)
    names, index, place = _cut(slice_at, values.shape)
    picture = values[index]

    from matplotlib import colormaps
    from matplotlib.figure import Figure

    if colors not in colormaps:
        raise InputError(f"--colors {colors!r} is unknown to matplotlib; gray, viridis and inferno are common ones")
    figure, title = Figure(layout="constrained"), f"{title}{place}"
    places = [axis for axis, cut in enumerate(index) if isinstance(cut, slice)]
    units = f" ({coordinates.units})" if coordinates and coordinates.units else ""
    origin, spacing = (coordinates.origin, coordinates.spacing) if coordinates else ((0.0,) * 3, (1.0,) * 3)
    axes = [
        _Axis(name + units, values.shape[axis], origin[axis], spacing[axis])
        for name, axis in zip(names, places, strict=True)
    ]
    draw = _draw_line if len(axes) == 1 else _draw_image
    draw(figure, picture, axes, colors, title, label)
    write_picture(output, "-o", figure, dpi=150)
    print(f"{output}: {title}")


@dataclass(frozen=True)
class _Axis:
    """An axis of the picture, in the coordinates of the run or in cells. `origin` is the position of the first cell."""

    label: str
    cells: int
    origin: float
    spacing: float

    @property
    def ends(self) -> tuple[float, float]:
        """The positions of the outer sides of the first and the last cell."""
        return self.origin - 0.5 * self.spacing, self.origin + (self.cells - 0.5) * self.spacing


def _draw_image(figure: Figure, picture: Any, axes: list[_Axis], colors: str, title: str, label: str) -> None:
    up, across = axes
    plane = figure.add_subplot()
    image = plane.imshow(picture, cmap=colors, origin="lower", extent=(*across.ends, *up.ends), interpolation="nearest")
    plane.set(xlabel=across.label, ylabel=up.label, title=title)
    figure.colorbar(image, label=label)


def _draw_line(figure: Figure, picture: Any, axes: list[_Axis], colors: str, title: str, label: str) -> None:
    from matplotlib import colormaps

    line, axis = figure.add_subplot(), axes[0]
    step = -(-axis.cells // MAX_PIXELS)
    places = [axis.origin + cell * axis.spacing for cell in range(0, axis.cells, step)]
    line.plot(places, picture, color=colormaps[colors](0.3))
    line.set(xlabel=axis.label, ylabel=label, title=title)


def _open(where: Path, field: str | None) -> tuple[FieldView | WholeView | InputView, str, str, Coordinates | None]:
    """Open the file or run `where`. Return four values: a view of the values that can be indexed, a title, the name of
    the values, and the coordinates of the cells."""
    from outcrop.run.inputs.initial import InputView, parse_source
    from outcrop.run.opening import open_run
    from outcrop.run.places import may_hold_run
    from outcrop.run.ranks.whole import holds_parts
    from outcrop.run.simulation import Simulation

    if is_there(where) and not may_hold_run(where) and not holds_parts(where):
        if field is not None:
            raise InputError(f"--field {field}: {where} is not a run, and has no fields; leave it out")
        return InputView(parse_source(str(where.absolute()), None)), where.name, "value", None
    simulation = Simulation(open_run(where, {}, reads_only=True))
    name = field or simulation.stencil.fields[0].name
    return simulation[name], f"{simulation.stencil.name}, step {simulation.step}", name, simulation.coordinates


def _cut(slice_at: str | None, shape: tuple[int, ...]) -> tuple[str, tuple[int | slice, ...], str]:
    """Return the letters of the picture's axes (the vertical axis first), the index that selects the slice, and a text
    that names the slice."""
    thinned: list[int | slice] = [slice(None, None, -(-size // MAX_PIXELS)) for size in shape]
    if len(shape) < 3:
        if slice_at is not None:
            raise InputError(f"--slice {slice_at}: there is nothing to cut in a grid of fewer than three axes")
        return "yx"[-len(shape) :], tuple(thinned), ""
    nz, ny, nx = shape
    axis, place = parse_slice(slice_at, (nz, ny, nx))
    thinned["zyx".index(axis)] = place
    return "zyx".replace(axis, ""), tuple(thinned), f", {axis} = {place}"


def parse_slice(text: str | None, shape: tuple[int, int, int]) -> tuple[str, int]:
    """Convert "z=256" to ("z", 256). If `text` is None, return "z" and the middle plane.

    Raises InputError for an unknown axis and for a place outside the grid.
    """
    if text is None:
        return "z", shape[0] // 2
    axis, equals, number = text.partition("=")
    axis = axis.strip().lower()
    try:
        place = int(number)
    except ValueError:
        equals = ""
    if not equals or axis not in ("x", "y", "z"):
        raise InputError(f"--slice {shown(text)} is not understood; write z=256, y=0 or x=10")
    size = shape["zyx".index(axis)]
    if not 0 <= place < size:
        raise InputError(f"--slice {text}: {axis} goes from 0 to {size - 1}")
    return axis, place
