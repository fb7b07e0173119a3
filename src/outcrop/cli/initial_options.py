"""What `--init` asks for: values of one field, or of several by name, and with them the shape of the grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outcrop.cli.sizes import parse_size
from outcrop.errors import InputError
from outcrop.paths import is_there

if TYPE_CHECKING:
    from outcrop.axes import Shape
    from outcrop.language.stencil import Stencil
    from outcrop.run.inputs.source import Source


def initial_values(
    texts: Sequence[str], size: str | None, stencil: Stencil, cache_bytes: int
) -> tuple[Shape, dict[str, Source]]:
    """The shape of the grid, from `-n` or from a file that `--init` names, and where values of which fields come from.

    Raises InputError for values that cannot be, and when nothing says how large the grid is.
    """
    from outcrop.run.inputs.initial import parse_source

    named = by_name(texts, stencil)
    shape = _shape(named, size, stencil)
    return shape, {name: parse_source(text, shape, cache_bytes // len(named)) for name, text in named.items()}


def by_name(texts: Sequence[str], stencil: Stencil) -> dict[str, str]:
    """{"u": "gaussian", "m": "model.npy"} of ["u=gaussian", "m=model.npy"]; of nothing, zeros for the first field.

    A stencil of one field needs no name. Raises InputError for fields there are not, or that are given twice.
    """
    from outcrop.run.disk.arrays import arrays_of

    names = [entry.name for entry in arrays_of(stencil)]
    found: dict[str, str] = {}
    for text in texts or [f"{names[0]}=zeros"]:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or (name not in names and is_there(text)):
            if len(stencil.fields) > 1:
                raise InputError(
                    f"--init {text}: {stencil.name} has several fields; write --init NAME={text}, NAME being one of "
                    f"{', '.join(names)}"
                )
            name, value = names[0], text
        if name not in names:
            raise InputError(f"--init {text}: {stencil.name} has no field {name!r}; there are: {', '.join(names)}")
        if name in found:
            raise InputError(f"--init {text}: {name} is given twice")
        found[name] = value
    return found


def _shape(named: dict[str, str], size: str | None, stencil: Stencil) -> Shape:
    from outcrop.axes import axes_text, option_text
    from outcrop.run.inputs.initial import needs_shape, parse_source
    from outcrop.run.inputs.lift import can_lift

    if size is not None:
        return parse_size(size, stencil)
    files = [text for text in named.values() if not needs_shape(text)]
    if not files:
        text = next(iter(named.values()))
        raise InputError(f"--init {text} needs the size of the grid: give {option_text(stencil.ndim)}")
    source = parse_source(files[0], None)
    if len(source.shape) != stencil.ndim:
        message = f"{source.name} has shape {source.shape}; {stencil.name} is for grids of {axes_text(stencil.ndim)}"
        if can_lift(source, stencil.ndim):
            message += f"; give {option_text(stencil.ndim)}, and write FILE@resample to fit it to that grid"
        raise InputError(message)
    return source.shape
