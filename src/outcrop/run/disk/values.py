"""Values of a run's arrays: those that are assigned, and those that nobody gave before the first step.

                            has values already              has none yet
    array of the state      next generation, the others     written where it is
                            copied; in place overwritten
    array only read         before the first step: loses    written where it is
                            them, and is written again

So at every moment an array that the manifest lists as filled has whole values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from outcrop.axes import PLACES
from outcrop.errors import InputError
from outcrop.run.disk.manifest import NEW, READY, Description
from outcrop.run.disk.state import State

PlaneSource: TypeAlias = Callable[[int, int], np.ndarray[Any, Any]]
"""Planes z0 <= z < z1 on the three axes inside, shape (z1 - z0, ny, nx)."""


def require_fields(manifest: Description, filled: Collection[str]) -> None:
    """Raise InputError, with the remedy, when fields that are only read are not among those that have values."""
    if missing := [entry.name for entry in manifest.static if entry.name not in filled]:
        names = " and ".join(missing)
        raise InputError(
            f"{manifest.stencil.get('name', 'this run')} reads {names}, which "
            f"{'has' if len(missing) == 1 else 'have'} no values; assign sim[{missing[0]!r}] = ..., or on the command "
            f"line --init {missing[0]}=FILE"
        )


def assign(state: State, values: Mapping[str, PlaneSource], io: str = "auto") -> None:
    """Give these arrays values, at the same step; nothing else changes.

    Raises InputError for a field that is only read once steps have used it, StorageError when a pass in place has lost
    the state and not all of it is given anew.
    """
    with state.locked():
        manifest = state.manifest
        static = [name for name in values if manifest.entry(name).is_static]
        for name in static:
            if name in manifest.filled and manifest.step:
                raise InputError(
                    f"{name} is only read, and {manifest.step} steps have used it; it cannot change now: start another "
                    "run, or this one again with force"
                )
        if manifest.phase == READY:
            replaced = [name for name in values if name in manifest.filled and name not in static]
            _fill(state, {name: source for name, source in values.items() if name not in replaced}, io)
            if replaced:
                _replace(state, {name: values[name] for name in replaced}, io)
        else:
            _begin(state, values, static, io)


def complete(state: State, io: str = "auto") -> None:
    """Give the rest of the state values: a field starts from zeros, its previous values are its own, at rest."""
    with state.locked():
        state.require_whole()
        manifest = state.manifest
        missing = [entry for entry in manifest.state if entry.name not in manifest.filled]
        _fill(state, {entry.name: _zeros(state) for entry in missing if not entry.is_previous}, io)
        for entry in missing:
            if entry.is_previous:
                with state.planes_of(entry.field, io) as planes:
                    _fill(state, {entry.name: planes.read}, io)


def padded(planes: PlaneSource, manifest: Description) -> PlaneSource:
    """Planes of the arrays of planes of the user's grid, (z1 - z0, ny, nx) both; zeros around these."""
    if not any(manifest.padding):
        return planes
    pads = [0, 0, 0]
    for place, pad in zip(PLACES[len(manifest.shape)], manifest.padding, strict=True):
        pads[place] = pad
    nz, ny, nx = manifest.layout.shape

    def give(z0: int, z1: int) -> np.ndarray[Any, Any]:
        block = np.zeros((z1 - z0, ny, nx), manifest.dtype)
        first, end = max(z0, pads[0]), min(z1, nz - pads[0])
        if first < end:
            inside = block[first - z0 : end - z0, pads[1] : ny - pads[1], pads[2] : nx - pads[2]]
            inside[...] = planes(first - pads[0], end - pads[0])
        return block

    return give


def _begin(state: State, values: Mapping[str, PlaneSource], static: Sequence[str], io: str) -> None:
    """The first values of all, or those after the state was lost: nothing of the state need be kept."""
    manifest = state.manifest
    needed = {entry.field for entry in manifest.state}
    if manifest.phase != NEW and not needed <= values.keys():
        state.require_whole()  # what is not given is gone
    state.begin_filling(static)
    state.begin_writing()
    for name, source in values.items():
        _write(state, name, 1 - manifest.current, source, io)
    lost = [entry.name for entry in manifest.state if entry.name not in values]
    state.commit(manifest.step, values, lost)


def _fill(state: State, values: Mapping[str, PlaneSource], io: str) -> None:
    """Write arrays where they are; they have no values meanwhile."""
    if not values:
        return
    state.begin_filling(list(values))
    for name, source in values.items():
        _write(state, name, state.manifest.current, source, io)
    state.end_filling(list(values))


def _replace(state: State, values: Mapping[str, PlaneSource], io: str) -> None:
    """Make a next generation, in which the rest of the state is the same."""
    manifest = state.manifest
    state.begin_writing()
    written = list(values)
    for entry in manifest.state:
        if entry.name in values:
            _write(state, entry.name, 1 - manifest.current, values[entry.name], io)
        elif entry.name in manifest.filled and not manifest.in_place:
            with state.planes_of(entry.name, io) as planes:
                _write(state, entry.name, 1 - manifest.current, planes.read, io)
            written.append(entry.name)
    state.commit(manifest.step, written)


def _write(state: State, name: str, turn: int, source: PlaneSource, io: str) -> None:
    with state.target_planes(name, turn, io) as planes:
        planes.fill(source)
        planes.flush()


def _zeros(state: State) -> PlaneSource:
    _, ny, nx = state.layout.shape
    return lambda z0, z1: np.zeros((z1 - z0, ny, nx), state.layout.dtype)
