"""Create a new run with its first values. A new run can get values from the old run that it replaces. The old run stays
complete until its values are no longer needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from outcrop.run.disk.creation import check_creation
from outcrop.run.disk.manifest import STAGED, new_manifest
from outcrop.run.disk.planes import PlaneSource
from outcrop.run.disk.replacement import located, old_run_held, publish, staged_places
from outcrop.run.disk.state import State
from outcrop.run.disk.values import assign
from outcrop.run.inputs.initial import read_all
from outcrop.run.places import check_state, created_state, may_hold_run
from outcrop.run.ranks.shared import share
from outcrop.run.setup import Setup


def begin_run(setup: Setup, steps: int, planes: Mapping[str, PlaneSource], is_apart: bool, is_complete: bool) -> State:
    """Create the run of `setup`, and commit the values `planes`. The run has `steps` steps to compute.

    `is_apart` is True if no value can come from a run that `setup` replaces. `is_complete` is True if the run needs no
    further values. If `is_complete` is False and the run has one process, the old run stays in its directory until
    `replace_old` is called. The old run also stays if a value cannot be read. On block devices, there is no place for a
    second run: all values are read once before the old run is replaced."""
    # The manifest contains the target step from the beginning. Therefore a run that is killed after its first commit
    # can be resumed.
    places, io = list(setup.directories), setup.description.settings.io
    manifest = new_manifest(setup.description, steps)
    replaces = setup.force and may_hold_run(places[0])
    waits = not is_complete and setup.group is None

    def others() -> None:
        if setup.group is not None:
            setup.group.allgather(None)

    def fill(state: State) -> None:
        assign(state, planes, io, others)  # if one rank cannot write its first values, no rank keeps its directory
        others()  # no rank replaces its old run before the new runs of all ranks are complete

    if not replaces or setup.raw_device or (is_apart and not waits):
        if replaces:  # if the new values cannot be read, the older run must survive
            read_all(planes.values(), setup.description.layout)
        with created_state(places, manifest, setup.force, setup.raw_device, setup.acquisition) as state:
            fill(state)
        return _shared(setup, state)
    staged = staged_places(places)
    manifest = located(manifest, staged)
    check_creation(staged, manifest, force=True, keeps_old=True)
    with old_run_held(places, manifest) as taken:
        with created_state(staged, manifest, True, False, setup.acquisition) as state:
            fill(state)
        if not waits:
            publish(state, taken)
    return _shared(setup, state)


def require_room(setup: Setup, state: State | None, scratch_bytes: int) -> None:
    """Raise InputError if a new run has no space for its arrays and for the `scratch_bytes` of its plan. Without the
    check of the space, the run would fail too late: after its values were written and after an old run was replaced."""
    if state is None and scratch_bytes:
        check_state(list(setup.directories), setup.description, setup.force, setup.raw_device, scratch_bytes)


def _shared(setup: Setup, state: State) -> State:
    if setup.group is not None:
        share(setup.group, state)
    return state


def replace_old(state: State | None, places: list[Path]) -> None:
    """Replace the old run in `places` by the new run `state`, unless `state` has already replaced the old run. Raises
    InputError if another process uses the old run. Raises StorageError."""
    if state is not None and state.path == places[0] / STAGED:
        with old_run_held(places, state.manifest) as taken:
            publish(state, taken)
