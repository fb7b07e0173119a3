"""Compute the initial values that a run gets from its options."""

import outcrop as oc
from outcrop.axes import Shape
from outcrop.cli.options import parse_size
from outcrop.run.inputs.input_array import InputArray
from outcrop.run.options import RunOptions
from outcrop.run.setup import Initial


def initial_values(texts: list[str], size: str | None, stencil: oc.Stencil) -> tuple[Shape, dict[str, InputArray]]:
    """Return the shape of the grid and the initial values of each field for the options `--init` and `-n`."""
    options = RunOptions(stencil, None if size is None else parse_size(size, stencil), init=texts)
    initial = Initial(options, 1 << 20)
    shape = initial.shape or options.shape
    return shape, initial.by_name(stencil, shape)
