"""This module defines `AdjointRun`, the adjoint of a run. An adjoint run is a run of the adjoint stencil. An adjoint
run goes back from the last step of the forward run to the first step.

    forward run    state 0 ──► step 1 ──► ... ──► step N        sources are added, receivers record after each step
    adjoint run    adjoint 0 ◄── step N ◄── ... ◄── adjoint N   residuals are added, sources record before each step

The adjoint run begins with adjoint N. Adjoint N is the sum of two parts: the given derivative with respect to the last
state, and the residuals of step N. Each adjoint step goes back by one step of the forward run, from step k + 1 to step
k. Then the adjoint step adds the residuals of step k. Before each adjoint step, the adjoint run records the adjoint at
the cells of each source. The recorded value is the gradient with respect to the value of the source in the forward
step.

An adjoint run has its own directory and can be resumed like any other run. Two kinds of adjoint runs need values of the
forward run at each step. The first kind of adjoint run is the adjoint of a stencil that is not linear. The second kind
of adjoint run computes gradients with respect to static fields, parameters or signals. Both kinds of adjoint runs read
values of the forward run from its history (plan/history.py).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.axes import PLACES, inside
from outcrop.errors import InputError, OutcropError, shown
from outcrop.language.adjoint import Adjoint, adjoint_of, edge_values
from outcrop.language.boundary import Boundary, as_boundary
from outcrop.language.sparse import Injection, Sampling, spread
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.paths import as_place, is_there
from outcrop.run.acquisition.definitions import AcquisitionDefinitions, read_definitions
from outcrop.run.definition import Definition, definition_beside
from outcrop.run.device.use import is_block_device
from outcrop.run.disk.entries import (
    AcquisitionEntries,
    NormsEntry,
    SnapshotsEntry,
    SourceEntry,
    StatesEntry,
    static_fields,
    updated_fields,
)
from outcrop.run.disk.manifest import Description, Settings
from outcrop.run.disk.planes import PlaneSource
from outcrop.run.disk.values import padded
from outcrop.run.forward import Derived, Forward, computes_again, inputs_of, require_states, states_of
from outcrop.run.gradients import Corrected, by_initial_values, corner_sampling, scale_terms, scaled_sources, weighted
from outcrop.run.inputs.initial import cache_within, checked_planes, named_source, read_all
from outcrop.run.places import storage_at
from outcrop.run.report import Report
from outcrop.run.setup import as_threads, parse_memory, reopen, set_up_beside
from outcrop.run.user_values import as_flag, as_real_array, decode_signals, encode_signals, require_mapping
from outcrop.tiers import discover
from outcrop.units import format_bytes

if TYPE_CHECKING:
    from outcrop.run.simulation import Simulation

SOURCES = "source"
"""In the argument `wrt`, this word means the values of all sources."""

MAX_RESIDUAL_BYTES = 256 << 20
"""The maximum size of the residuals of the snapshots of one field, in bytes. The residuals have a value for each cell
of the box and each step."""

POINT_BYTES = 4 * 8
"""The number of bytes of a point with one corner. Such a point has three numbers for the cell, and a weight."""

Residuals: TypeAlias = tuple[Sampling, NDArray[np.float64]]
"""A pair: receivers, and the residuals of the traces of these receivers. The residuals have the shape (steps, points).
"""


class AdjointRun:
    """The adjoint of a run. `Simulation.adjoint` returns an object of this class. `simulation` is the run of the
    adjoint stencil."""

    def __init__(self, simulation: Simulation, adjoint: Adjoint, wrt: Sequence[str], forward: Forward) -> None:
        self.simulation, self._adjoint, self._wrt, self._forward = simulation, adjoint, wrt, forward

    def __repr__(self) -> str:
        place = str(self.simulation.directory)
        return f"<{self._adjoint.stencil.name} in {place!r} at step {self.remaining_steps}>"

    def run(self, progress: str = "auto") -> Report:
        """Run all remaining steps back to the initial state. `progress` has the same meaning as in `Simulation.run`.
        After an interruption or a failure, another call continues from the last commit. Raises the errors of
        `Simulation.run`."""
        if not (steps := self.remaining_steps):
            raise InputError(f"{self.simulation.directory}: the adjoint run is complete; read its gradients")
        return self.simulation.run(steps, progress)

    @property
    def remaining_steps(self) -> int:
        """The number of forward steps through which the adjoint run must still go back."""
        return self._forward.steps - self.simulation.step

    @property
    def gradients(self) -> dict[str, Any]:
        """A mapping that has a gradient for each name in `wrt`. For a field, the value is the gradient with respect to
        the initial values of the field. If other arrays of the run started as copies of the field, this gradient
        includes their parts. The gradients for fields and static fields are indexed like arrays. For
        "source", the gradient is a list with an array of shape (steps, points) for each source. For a parameter, the
        gradient is a number. For a signal, the gradient is an array with a value for each step. Raises InputError if
        the adjoint run is not complete."""
        simulation = self.simulation
        if self.remaining_steps:
            raise InputError(f"{simulation.directory}: the adjoint run is not complete; call run() first")
        found: dict[str, Any] = {}
        for name in self._wrt:
            if name == SOURCES:
                numbers = range(len(self._forward.definitions.injections))
                found[name] = [np.ascontiguousarray(simulation.traces[_trace(one)][::-1]) for one in numbers]
            elif name in inputs_of(self._forward.stencil):
                found[name] = self._by_input(name)
            else:
                found[name] = by_initial_values(self._forward, self._adjoint, simulation, name)
        return found

    def _by_input(self, name: str) -> Any:
        found, manifest = self._by_updates(name), self._forward.manifest
        cells, values = scale_terms(self._forward, self.simulation.traces, name)
        if not len(values):
            return found
        if name not in static_fields(self._forward.stencil):
            return found + math.fsum(values)
        own = cells[:, list(PLACES[len(manifest.shape)])] - manifest.padding
        here = ((own >= 0) & (own < manifest.own_shape)).all(axis=1)
        return Corrected(found, own[here], values[here])

    def _by_updates(self, name: str) -> Any:
        """Return the part of a gradient that comes from the updates. The result does not include the part that comes
        from the scales of sources.
        """
        forward, simulation = self._forward, self.simulation
        field = self._adjoint.gradients.get(name)
        is_static = name in static_fields(forward.stencil)
        if field is None:  # no update depends on the input `name`, so this part of its gradient is 0
            if is_static:
                return np.zeros(forward.manifest.own_shape)
            return np.zeros(forward.steps) if name in forward.stencil.signals else 0.0
        weight = simulation.states.weight if simulation.states else 1
        if is_static:
            return simulation[field] if weight == 1 else weighted(simulation, field, weight)
        sums = simulation.norms[field]["sum"]
        return sums[::-1].copy() if name in forward.stencil.signals else weight * float(sums[-1])


def adjoint_run(
    simulation: Simulation, residuals: Mapping[str, Any], wrt: Sequence[str], directory: str | os.PathLike[str] | None,
    memory: str | int | None = None, threads: int | None = None, force: object = False, resume: object = False,
    forward: Forward | None = None,
) -> AdjointRun:  # fmt: skip
    """Return the adjoint of a run, as `Simulation.adjoint` describes. All arguments are checked before any file is
    created."""
    # the import is here and not at the top, because `Simulation.adjoint` calls this function, and the imports must form
    # no cycle
    from outcrop.run.simulation import Simulation
    from outcrop.run.simulation import open as open_run

    if forward is None:  # otherwise, an operator uses the last parameters for all steps (inversion.py)
        forward = Forward.of(simulation)
        forward.require_unchanged()
    derived = derive(forward.stencil, forward.manifest, wrt)
    place, is_old = find_place(simulation, directory, force, resume)
    found = open_run(place, memory, threads) if is_old else None
    if found and 0 < found.setup.description.max_step != forward.steps:
        raise InputError(
            f"{place} is an adjoint run that begins at step {found.setup.description.max_step}, but "
            f"{forward.state.path} is now at step {forward.steps}; give force=True to replace the adjoint run, or "
            "another directory"
        )
    seeds, samples = _split_residuals(forward, residuals)
    if not forward.can_scale(derived.adjoint):
        derived = derive(forward.stencil, forward.manifest, wrt, is_scaled=False)
    before = found.states if found else None
    used = derived.hoisted() if computes_again(forward, before) else derived
    names, adjoint = derived.names, used.adjoint
    states = states_of(forward, used, before)
    definition = replace(_definition(forward, used, samples), states=states)
    last, begun = [(one, values[-1]) for one, values in samples if not one.before], dict[str, int]()
    planes: dict[str, PlaneSource] = {}
    for name in updated_fields(forward.stencil):
        own, key = [(one, row) for one, row in last if one.field == name], adjoint.adjoints[name]
        planes[key] = _last_adjoint(forward, adjoint, name, seeds.get(name), own)
        if name in seeds:
            planes[key] = _summed(planes[key], key, begun)
    if found:
        run = _same_run(found, definition, place)
        _require_same(run, {adjoint.adjoints[name]: planes[adjoint.adjoints[name]] for name in seeds}, begun)
        if run.step < forward.steps:  # an adjoint run that is complete needs no states
            require_states(forward.state, derived)
        return AdjointRun(run, adjoint, names, forward)
    require_states(forward.state, derived)
    settings = settings_beside(forward, memory, threads)
    if states and settings.io == "mmap":  # `mmap` cannot open other states for each pass
        settings = replace(settings, io="auto")
    setup = set_up_beside(definition, place, forward.steps, settings, force=as_flag(force, "force"))
    description = replace(setup.description, max_step=forward.steps, adjoint_of=forward.manifest.identity)
    setup = replace(setup, description=description)
    run = Simulation(setup)
    for entry in setup.description.static:
        axis = adjoint.edges.get(entry.name)
        planes[entry.name] = forward.state.source_of(entry.name) if axis is None else _edges(forward, axis)
    # the adjoints of all other fields begin with 0, because no residual depends on these fields
    for entry in setup.description.state:
        planes.setdefault(entry.name, _last_adjoint(forward, adjoint, "", None, []))
    run.assign_planes(planes)
    state = run.reader()
    assert state is not None
    with state.locked():
        state.change(begun=begun)
    return AdjointRun(run, adjoint, names, forward)


def derive(stencil: Stencil, description: Description, wrt: object, is_scaled: bool = True) -> Derived:
    """Return the adjoint of a run of `stencil`, with the gradients with respect to the names in `wrt`. Raises
    InputError for unknown names, and for gradients that no adjoint run can compute."""
    if description.states:
        raise InputError("this run is an adjoint run that reads states of another run; it has no adjoint")
    derived = derive_adjoint(stencil, description.taps.sources, as_boundary(description.boundary), wrt, is_scaled)
    if fixed := [name for name in derived.names if name in description.without_gradient]:
        what, remedy = description.without_gradient[fixed[0]], ""
        if other := description.fixed_fields.get(fixed[0]):
            remedy = f"; in the equations, use a Function of your own in place of {other}, and apply the chain rule"
        raise InputError(
            f"wrt: there is no gradient with respect to {fixed[0]}, because {what} was computed with it{remedy}"
        )
    return derived


def derive_adjoint(
    stencil: Stencil, sources: Sequence[SourceEntry], boundary: Boundary, wrt: object, is_scaled: bool = True
) -> Derived:
    """Return the adjoint of `stencil`, with the gradients with respect to the names in `wrt`. Raises InputError as
    `derive` does."""
    names = _require_wrt(stencil, bool(sources), wrt)
    inputs = tuple(name for name in names if name in inputs_of(stencil))
    scaled = scaled_sources(stencil, sources, inputs)
    recorded = [one for number, one in enumerate(sources) if SOURCES in names or number in scaled]
    sourced = tuple(dict.fromkeys(one.field for one in recorded))
    adjoint = adjoint_of(stencil, inputs, boundary, sourced, is_scaled)
    is_linear = not adjoint.history or not adjoint_of(stencil, (), boundary, sourced, is_scaled).history
    return Derived(stencil, names, inputs, adjoint, is_linear, scaled)


def find_place(
    simulation: Simulation, directory: str | os.PathLike[str] | None, force: object, resume: object
) -> tuple[Path, bool]:
    """Return the directory of the adjoint run, and True if an adjoint run in this directory is continued. Raises
    InputError if the directory overlaps a directory of the forward run. Also raises InputError if the directory exists
    and both `resume` and `force` are False. With `resume`, raises InputError if the directory holds the adjoint of
    another run.
    """
    run = simulation.directory
    if directory is None and is_block_device(run):
        raise InputError(f"the run is on the block device {run}; give a directory for its adjoint run")
    beside = run.parent / f"{run.name.removesuffix('.oc')}-adjoint.oc"
    place = beside if directory is None else as_place(directory, "directory")
    own = Path(os.path.realpath(place))
    for one in (run, *map(Path, simulation.setup.description.directories)):
        other = Path(os.path.realpath(one))
        if own == other or own in other.parents or other in own.parents:
            raise InputError(f"directory {place} and the forward run in {one} overlap; choose another directory")
    resumes, replaces = as_flag(resume, "resume"), as_flag(force, "force")
    if not is_there(str(place)):
        return place, False
    if (resumes or not replaces) and _is_of_another_run(place, simulation):
        raise InputError(
            f"{place} holds another run, or the adjoint of an older run in {run}; give force=True without resume to "
            "replace it"
        )
    if resumes or replaces:
        return place, resumes
    raise InputError(f"{place} exists; give resume=True to continue an adjoint run in it, or force=True to replace it")


def _is_of_another_run(place: Path, simulation: Simulation) -> bool:
    """Return True if `place` holds an adjoint run that does not belong to `simulation`. A simulation that is not on
    disk yet has no adjoint run."""
    try:
        manifest = storage_at(place).read()
    except OutcropError:  # later checks refuse a directory that holds no run
        return False
    reader = simulation.reader()
    if reader is None or manifest.adjoint_of is None:
        return reader is None
    return manifest.adjoint_of != reader.manifest.identity


def _same_run(run: Simulation, definition: Definition, place: Path) -> Simulation:
    """Return an existing adjoint run. Raises InputError if the existing run does not compute `definition`. The
    comparison includes the residuals of receivers, but not the residuals of fields. If the directory of the forward run
    has moved, the adjoint run stores the new directory."""
    from outcrop.run.simulation import Simulation

    state = run.reader()
    assert state is not None
    found, manifest = read_definitions(state.records, state.manifest), state.manifest
    pairs = zip(found.files.values(), definition.acquisition.files.values(), strict=False)
    is_same = (
        run.stencil == definition.stencil
        and (manifest.shape, manifest.dtype, manifest.parameters, manifest.boundary)
        == (definition.shape, definition.dtype, definition.parameters, str(definition.boundary))
        and _in_one_place(manifest.states) == _in_one_place(definition.states)
        and list(found.files) == list(definition.acquisition.files)
        and all(np.array_equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True))
    )
    if not is_same:
        raise InputError(f"{place} holds another run or other residuals; give force=True to replace it")
    if not state.has_values:
        raise InputError(f"{place} was interrupted before its values were written; give force=True to replace it")
    if manifest.states != definition.states:
        with state.locked():
            state.change(states=definition.states)
        settings = run.setup.description.settings
        run = Simulation(reopen(place, {"memory": settings.memory_bytes, "threads": settings.threads}, ranks=1))
    return run


def _require_same(run: Simulation, planes: Mapping[str, PlaneSource], begun: Mapping[str, int]) -> None:
    """Raise InputError if the residuals of fields differ from the residuals with which the adjoint run has begun. The
    functions in `planes` are results of `_summed`, so each call of such a function also updates the checksums in
    `begun`. `begun` is then compared with the checksums of the run. If the run has no checksums, no function in
    `planes` is called."""
    state = run.reader()
    assert state is not None
    kept = state.manifest.begun
    if kept is None:
        return
    if kept.keys() == planes.keys():
        read_all(planes.values(), state.layout)
    if kept != begun:
        raise InputError(f"{state.path} holds a run with other residuals of fields; give force=True to replace it")


def _summed(planes: PlaneSource, name: str, begun: dict[str, int]) -> PlaneSource:
    """Return a function that returns the same planes as `planes`. When this function has returned all planes, `begun`
    has the checksum of the array `name`. The planes must be requested in ascending order."""

    def give(z0: int, z1: int) -> np.ndarray[Any, Any]:
        block = planes(z0, z1)
        begun[name] = _core.crc32c(block, begun[name] if z0 else 0)
        return block

    return give


def _in_one_place(states: StatesEntry | None) -> StatesEntry | None:
    """Return a copy of `states` without the directory of the forward run. Two copies without the directory can be
    compared even if the run has moved."""
    return replace(states, run="/") if states else None


def _trace(number: int) -> str:
    return f"source_{number}"


def _require_wrt(stencil: Stencil, has_sources: bool, wrt: object) -> tuple[str, ...]:
    given = (wrt,) if isinstance(wrt, str) else tuple(wrt) if isinstance(wrt, Sequence) else ()
    pairs = zip(stencil.fields, stencil.storage, strict=True)
    previous = [field.name + PREVIOUS for field, storage in pairs if storage.history == 2]
    known = [*updated_fields(stencil), *previous, *([SOURCES] if has_sources else []), *inputs_of(stencil)]
    if not given:
        raise InputError(f"wrt {shown(wrt)} must be names; there are: {', '.join(known)}")
    if SOURCES in given and SOURCES in {*updated_fields(stencil), *inputs_of(stencil)}:
        raise InputError(
            f"wrt: {SOURCES!r} means the sources of the run, but {stencil.name} has a field, parameter or signal of "
            "this name; give it another name"
        )
    for name in given:
        if name not in known:
            raise InputError(f"wrt: there is no gradient by {shown(name)}; there are: {', '.join(known)}")
    return tuple(dict.fromkeys(given))


def _split_residuals(forward: Forward, residuals: object) -> tuple[dict[str, PlaneSource], list[Residuals]]:
    """Divide `residuals` into two parts. The first part maps each field to a function that returns planes of the
    derivative with respect to the last values of the field. The second part has the residuals of receivers and
    snapshots."""
    require_mapping(residuals, "residuals", "line")
    assert isinstance(residuals, Mapping)
    if not residuals:
        raise InputError("residuals are empty, so all gradients would be 0; give values for receivers or fields")
    seeds: dict[str, PlaneSource] = {}
    samples: list[Residuals] = []
    updated = updated_fields(forward.stencil)
    names = dict.fromkeys(one.name for one in forward.definitions.samplings)
    snapshots = named_snapshots(forward.manifest.taps)
    for name, values in residuals.items():
        if name not in names and name not in updated and name not in snapshots:
            there = ", ".join([*names, *snapshots, *updated])
            raise InputError(
                f"residuals: there is no {shown(name)}; there are the receivers, snapshots and fields: {there}"
            )
        if name in snapshots:
            samples += _snapshot_residuals(*snapshots[name], name, values, forward.steps)
        elif name not in names:
            manifest = forward.manifest
            cache_bytes, axes = cache_within(manifest.settings.memory_bytes), manifest.axis_names
            source = named_source(f"residuals of {name!r}", values, manifest.own_shape, cache_bytes, axes)
            seeds[name] = checked_planes(source, manifest.dtype, check_finite=True, names=axes)
            continue
        for one in (each for each in forward.definitions.samplings if each.name == name):
            if one.field not in updated:
                raise InputError(f"residuals of {name!r}: it records {one.field}, which no step changes")
            found = _as_residuals(name, values, (forward.steps, len(one.cells)), "steps, points")
            if not np.isfinite(found).all():
                step, point = np.argwhere(~np.isfinite(found))[0]
                value = found[step, point]
                raise InputError(f"residuals of {name!r}: the value of point {point} in step {step} is {value}")
            samples.append((one, found.astype(np.float64)))
    return seeds, samples


def named_snapshots(entries: AcquisitionEntries) -> dict[str, tuple[SnapshotsEntry, str]]:
    """Return a dictionary that maps a name of snapshots, such as "side/u", to the entry and the field of these
    snapshots. Snapshots without a name are left out, because a name such as "u" means the last values of the field. The
    history is also left out."""
    named = [one for one in entries.snapshots if one.name and not one.is_history]
    return {one.prefix + field: (one, field) for one in named for field in one.fields}


def require_small(name: str, entry: SnapshotsEntry, steps: int) -> None:
    """Raise InputError if the residuals of the snapshots need more than MAX_RESIDUAL_BYTES."""
    if entry.coarsen:
        raise InputError(
            f"residuals of {name!r}: these snapshots have means of cells (coarsen), and an adjoint run needs the "
            "cells; keep snapshots without coarsen"
        )
    cells = math.prod(entry.shape)
    needed = (1 + entry.initial) * cells * (8 * steps + POINT_BYTES)
    if needed > MAX_RESIDUAL_BYTES:
        raise InputError(
            f"residuals of the snapshots {name!r} need {format_bytes(needed)} for {cells} cells and {steps} steps, at "
            f"most {format_bytes(MAX_RESIDUAL_BYTES)} are possible; keep snapshots of a smaller box, or use receivers"
        )


def _snapshot_residuals(entry: SnapshotsEntry, field: str, name: str, values: Any, steps: int) -> list[Residuals]:
    """Convert residuals of snapshots to residuals of receivers. `values` has the residuals of the snapshots, and has
    the shape (times, nz, ny, nx). Each cell of the box becomes a point with one corner. Raises InputError for wrong
    values and for boxes that are too large.

    Snapshots of steps k > 0 become receivers that record after each step. The residuals of the snapshot of step k are
    in row k - 1. The snapshot of step 0 becomes receivers that record before each step. The residuals of the snapshot
    of step 0 are in row 0. All other rows are 0.
    """
    require_small(name, entry, steps)
    shape, cells = (entry.count(steps), *entry.shape), math.prod(entry.shape)
    found = _as_residuals(name, values, shape, "times, box")
    if not np.isfinite(found).all():
        number, *cell = np.argwhere(~np.isfinite(found))[0]
        raise InputError(f"residuals of {name!r}: cell {tuple(map(int, cell))} of snapshot {number} is not finite")
    axes = np.meshgrid(*(np.arange(begin, end) for begin, end in entry.box), indexing="ij")
    corners = spread(np.stack(axes, axis=-1).reshape(cells, 1, len(axes)).astype(np.int64))
    after, before = (np.zeros((steps, cells)) for _ in range(2))
    for number, row in enumerate(found.reshape(len(found), cells)):
        step = entry.step_of(number)
        (after if step else before)[max(step - 1, 0)] = row
    samples = [(Sampling(name, field, corners, np.ones((cells, 1))), after)]
    if entry.initial:
        samples.append((Sampling(name, field, corners, np.ones((cells, 1)), before=True), before))
    return samples


def _as_residuals(name: str, values: Any, shape: tuple[int, ...], axes: str) -> NDArray[Any]:
    """Return `values` as an array. Raises InputError if `values` are not real numbers of the shape `shape`. The message
    contains the text `axes`, which says what the axes mean."""
    found = as_real_array(values, f"residuals of {name!r}")
    if found is None or found.shape != shape:
        given = shown(values) if found is None else found.shape
        raise InputError(f"residuals of {name!r} must be numbers of shape {shape}: {axes}; given: {given}")
    return found


def settings_beside(forward: Forward, memory: str | int | None = None, threads: int | None = None) -> Settings:
    """Return the settings for another run that belongs to a forward run, such as its adjoint run. The settings are the
    settings of the forward run, but the planner chooses a new scheme and new sizes."""
    given = forward.manifest.settings
    return replace(
        given,
        sizes={},
        scheme="auto",
        memory_bytes=given.memory_bytes if memory is None else parse_memory(memory, discover.memory_bytes()),
        threads=given.threads if threads is None else as_threads(threads),
    )


def _definition(forward: Forward, derived: Derived, samples: Sequence[Residuals]) -> Definition:
    """Return the definition of the adjoint run. Step s of the adjoint run goes back from step N - s of the forward run
    to step N - s - 1. N is the number of steps of the forward run."""
    adjoint = derived.adjoint
    manifest, steps, made = forward.manifest, forward.steps, adjoint.stencil
    injections = []
    for one, values in samples:
        backward = np.zeros_like(values)
        if one.before:
            backward[:] = values[::-1]
        else:
            backward[:-1] = values[-2::-1]
        # in the rim, the static fields and therefore the factors can have any values
        factor, inside = forward.factor_at(adjoint, one.field, one.cells), forward.inside(one.cells)
        weights = np.multiply(one.weights, factor, out=np.zeros(inside.shape), where=inside)
        injections.append(Injection(adjoint.adjoints[one.field], one.cells, weights, backward))
    samplings = []
    for number, source in enumerate(forward.definitions.injections if SOURCES in derived.names else ()):
        known = source.resolved(forward.state.cells_of)
        field = adjoint.sources[source.field]
        is_before = field == adjoint.adjoints[source.field]
        factor, acts = forward.factor_at(adjoint, source.field, known.cells), known.weights != 0
        weights = np.divide(known.weights, factor, out=np.zeros(acts.shape), where=acts)
        samplings.append(Sampling(_trace(number), field, known.cells, weights, is_before))
    samplings += [corner_sampling(forward, adjoint, number) for number in derived.scaled]
    static = static_fields(forward.stencil)
    scalars = {one: field for one, field in adjoint.gradients.items() if one not in static}
    # The gradient with respect to a signal is a sum over the grid after each step. The gradient with respect to a
    # parameter is a sum over the grid after the last step only.
    every = 1 if scalars.keys() & set(forward.stencil.signals) else steps
    norms = NormsEntry(every, tuple(scalars.values())) if scalars else None
    signals = {name: values[:steps][::-1] for name, values in decode_signals(manifest.signals).items()}
    signals[forward.stencil.step_signal] = np.arange(steps, dtype=np.float64)[::-1]
    acquisition = AcquisitionDefinitions(tuple(injections), tuple(samplings), norms=norms)
    return replace(
        definition_beside(manifest, made, acquisition),
        parameters={one.name: manifest.parameters[one.name] for one in made.parameters},
        signals=encode_signals(made, {name: signals[name] for name in made.signals}),
    )


def _edges(forward: Forward, axis: int) -> PlaneSource:
    """Return a function that computes planes of the edge field of an axis (language/adjoint.py). An edge field has
    values other than 0 near the ends of the axis. All other values are 0."""
    shape = forward.manifest.layout.shape
    line = np.array(edge_values(shape[axis], forward.stencil.radii[axis]), forward.manifest.dtype)

    def give(z0: int, z1: int) -> np.ndarray[Any, Any]:
        own = line[z0:z1] if axis == 0 else line
        block = np.empty((z1 - z0, *shape[1:]), line.dtype)
        block[...] = own.reshape([-1 if one == axis else 1 for one in range(3)])
        return block

    return give


def _last_adjoint(
    forward: Forward, adjoint: Adjoint, name: str, seed: PlaneSource | None, rows: Sequence[Residuals],
) -> PlaneSource:  # fmt: skip
    """Return a function that computes planes of the adjoint of a field. The adjoint is for the time after the last step
    of the forward run. This adjoint is the sum of two parts: the given derivative with respect to the last state, and
    the residuals of the last step. In the rim, the adjoint is 0."""
    manifest, (z_updated, *inner) = forward.manifest, forward.updated_cells
    nz, ny, nx = manifest.layout.shape
    pad_z = inside(manifest.padding, 0)[0]
    whole = padded(seed, manifest) if seed is not None else None

    def give(z0: int, z1: int) -> np.ndarray[Any, Any]:
        block = np.zeros((z1 - z0, ny, nx), manifest.dtype)
        first, end = max(z0, z_updated.start, pad_z), min(z1, z_updated.stop, nz - pad_z)
        if whole is not None and first < end:
            part = (slice(None), *inner)
            block[first - z0 : end - z0][part] = whole(first, end)[part]
        for one, row in rows:
            here = forward.inside(one.cells) & (one.cells[..., 0] >= z0) & (one.cells[..., 0] < z1)
            z, y, x = one.cells[here].T
            np.add.at(block, (z - z0, y, x), (one.weights * row[:, None])[here].astype(block.dtype))
        if name in adjoint.scales:
            read = forward.state.source_of
            factor = forward.factor(adjoint, name, lambda static: read(static)(z0, z1).astype(np.float64))
            # where a factor 1/m is infinite, the product with 0 would be NaN, so zeros are left unchanged
            np.multiply(block, factor, out=block, where=block != 0, casting="same_kind")
        return block

    return give
