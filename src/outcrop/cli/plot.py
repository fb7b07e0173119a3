"""`outcrop plot`: one slice as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from outcrop.cli.options import check_output
from outcrop.errors import InputError

if TYPE_CHECKING:
    from outcrop.run.field import FieldView, SourceView

PIXELS_MOST = 2048
"""Longer sides are thinned: a picture, not the data."""


def plot(
    where: Annotated[Path, typer.Argument(metavar="WHERE", help="directory or device of a run, or a file of values")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PNG", help="the picture to write")],
    slice_at: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--slice", metavar="AXIS=K", help="z=K, y=K or x=K [default: the middle of z]"),
    ] = None,
    colors: Annotated[str, typer.Option(help="a colour map of matplotlib")] = "gray",
) -> None:
    """Draw one slice of a run's committed state, or of a file that could be its initial values, as a PNG."""
    check_output(output, "-o")
    values, title, label = _open(where)
    axis, place = parse_slice(slice_at, values.shape)
    index: list[int | slice] = [slice(None, None, -(-size // PIXELS_MOST)) for size in values.shape]
    index["zyx".index(axis)] = place
    picture = values[tuple(index)]

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    if colors not in colormaps:
        raise InputError(f"--colors {colors!r} is unknown to matplotlib; gray, viridis and inferno are common ones")
    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    across, up = [name for name in "xyz" if name != axis]
    width, height = (values.shape["zyx".index(name)] for name in (across, up))
    extent = (-0.5, width - 0.5, -0.5, height - 0.5)
    image = axes.imshow(picture, cmap=colors, origin="lower", extent=extent, interpolation="nearest")
    axes.set(xlabel=across, ylabel=up, title=f"{title}, {axis} = {place}")
    figure.colorbar(image, label=label)
    figure.savefig(output, dpi=150, format="png")
    print(f"{output}: {title}, {axis} = {place}")


def _open(where: Path) -> tuple[FieldView | SourceView, str, str]:
    """What `where` holds as something to index, its title, and the name of its values."""
    from outcrop.run.field import SourceView
    from outcrop.run.homes import may_hold_run
    from outcrop.run.initial import parse_source
    from outcrop.run.simulation import open as open_simulation

    if where.exists() and not may_hold_run(where):
        return SourceView(parse_source(str(where.absolute()), None)), where.name, "value"
    simulation = open_simulation(where)
    name = simulation.stencil.fields[0].name
    return simulation[name], f"{simulation.stencil.name}, step {simulation.step}", name


def parse_slice(text: str | None, shape: tuple[int, int, int]) -> tuple[str, int]:
    """("z", 256) of "z=256"; the middle of z when None. InputError for another axis or a place outside the grid."""
    if text is None:
        return "z", shape[0] // 2
    axis, equals, number = text.partition("=")
    axis = axis.strip().lower()
    try:
        place = int(number)
    except ValueError:
        equals = ""
    if not equals or axis not in ("x", "y", "z"):
        raise InputError(f"--slice {text!r} is not understood; write z=256, y=0 or x=10")
    size = shape["zyx".index(axis)]
    if not 0 <= place < size:
        raise InputError(f"--slice {text}: {axis} goes from 0 to {size - 1}")
    return axis, place
