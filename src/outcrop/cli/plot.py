"""`outcrop plot`: one slice as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from outcrop.cli.options import check_output
from outcrop.errors import InputError

PIXELS_MOST = 2048
"""Longer sides are thinned: a picture, not the data."""


def plot(
    where: Annotated[Path, typer.Argument(metavar="WHERE", help="directory of a run")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PNG", help="the picture to write")],
    slice_at: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--slice", metavar="AXIS=K", help="z=K, y=K or x=K [default: the middle of z]"),
    ] = None,
    colors: Annotated[str, typer.Option(help="a colour map of matplotlib")] = "gray",
) -> None:
    """Draw one slice of the committed state as a PNG."""
    from outcrop.run.simulation import open as open_simulation

    check_output(output, "-o")
    simulation = open_simulation(where)
    axis, place = parse_slice(slice_at, simulation.shape)
    index: list[int | slice] = [slice(None, None, -(-size // PIXELS_MOST)) for size in simulation.shape]
    index["zyx".index(axis)] = place
    picture = simulation["u"][tuple(index)]

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    if colors not in colormaps:
        raise InputError(f"--colors {colors!r} is unknown to matplotlib; gray, viridis and inferno are common ones")
    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    across, up = [name for name in "xyz" if name != axis]
    width, height = (simulation.shape["zyx".index(name)] for name in (across, up))
    extent = (-0.5, width - 0.5, -0.5, height - 0.5)
    image = axes.imshow(picture, cmap=colors, origin="lower", extent=extent, interpolation="nearest")
    axes.set(xlabel=across, ylabel=up, title=f"{simulation.stencil.name}, step {simulation.step}, {axis} = {place}")
    figure.colorbar(image, label="u")
    figure.savefig(output, dpi=150, format="png")
    print(f"{output}: {axis} = {place} at step {simulation.step}")


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
