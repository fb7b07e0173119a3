"""What Devito's own objects hold: initial values in `.data` of functions, and room in `.data` of receivers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.run.disk.manifest import Description
from outcrop.run.disk.values import PlaneSource

if TYPE_CHECKING:
    from outcrop.language.devito import Lowered


def initial_planes(lowered: Lowered | None, manifest: Description, filled: Collection[str]) -> dict[str, PlaneSource]:
    """Planes of the arrays that have no values yet, of what the user has put into functions; others are left out.

    Where a field has been assigned, its function does not count, neither now nor for the values before.
    Raises InputError when the halos of a function's times differ.
    """
    found: dict[str, PlaneSource] = {}
    assigned = {manifest.entry(name).field for name in filled}
    for name in lowered.state_names if lowered else ():
        assert lowered is not None
        if manifest.entry(name).field not in assigned and (array := lowered.initial(name)) is not None:
            found[name] = _planes(array)
    return found


def require_room(lowered: Lowered | None, steps: int) -> None:
    """Raise InputError unless sources, signals and receivers last for so many steps from the beginning."""
    if lowered is not None and lowered.max_steps is not None and steps > lowered.max_steps:
        raise InputError(
            f"sources and receivers have room for {lowered.max_steps} steps, not for {steps}; make their nt larger"
        )


def require_unchanged(lowered: Lowered | None) -> None:
    """Raise InputError when Constants, sources or coordinates are not any more what the simulation has taken."""
    if lowered is not None and (name := lowered.read_values.changed()):
        raise InputError(f"{name} was changed after the simulation had taken it; make the Simulation after that")


def put_traces(lowered: Lowered | None, traces: Mapping[str, NDArray[Any]], first_step: int) -> None:
    """Put what was recorded from `first_step` on into the receivers' `.data`."""
    if lowered is not None:
        lowered.put_traces({name: traces[name][first_step:] for name in lowered.receivers}, first_step)


def _planes(array: NDArray[Any]) -> PlaneSource:
    return lambda z0, z1: array[z0:z1]
